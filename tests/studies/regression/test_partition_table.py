"""Tests of the command ``partition`` and of `release_table`."""

import json
import re
import shlex
import sys
from dataclasses import replace
from math import isclose

import numpy as np
import pandas as pd
import pytest
import zarr

from mechanisms.core.privacy import Guarantee
from mechanisms.regression.keyed_partition import keyed_partition
from mechanisms.regression.partition_prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, partition_probability
from mechanisms.regression.partition_quantile import (
    QUANTILE_METHODS,
    PartitionQuantile,
    ReleasedQuantiles,
    partition_quantile,
)
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.statistics import partition_statistics
from pipeline import Streams
from pipeline.errors import BadInputError
from pipeline.tables.cells import NOT_PUBLIC
from studies.own_data.partition import release_table
from studies.own_data.partition_output import Release
from studies.own_data.partition_request import Request

N, M = 3004, 30
SLOPE = 2.0
FRAME = pd.DataFrame(np.random.default_rng(1).standard_normal((N, 3)), columns=["a", "b", "y"])
FRAME["y"] += 1 + SLOPE * FRAME["a"] - FRAME["b"]
AT = ("--target", "y", "--coefficient", "a", "--partitions", M, "--epsilon", 1)
CUTOFFS, UNRELIABLE = ("--cutoffs", "1.98,2,2.05"), ("--probabilities", "0.1,0.5,0.9")
QUANTILES = (*UNRELIABLE, "--allow-failure", "1")
REQUEST = Request("y", "a", M, 1.0, cutoffs=(1.98, 2.0, 2.05), allowed_failure=1.0)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return a folder that contains the same table in each format."""
    folder = tmp_path_factory.mktemp("tables")
    FRAME.to_csv(folder / "t.csv", index=False)
    FRAME.to_parquet(folder / "t.parquet", row_group_size=1000)
    zarr.create_array(folder / "t.zarr", data=FRAME.to_numpy(), chunks=(700, 3), attributes={"columns": list(FRAME)})
    return folder


@pytest.fixture
def partition(command, tables):
    """Return a function that runs ``dpstudies partition`` on the table in a given format."""
    return lambda *words, table="t.zarr": command("partition", tables / table, *words, "--yes")


def values(out):
    lines = [line.split() for line in out.splitlines()[1:]]  # the first one has the release
    end = next(i for i, line in enumerate(lines) if len(line) != len(lines[0]))
    return pd.DataFrame(lines[1:end], columns=lines[0])


@pytest.mark.slow
@pytest.mark.parametrize("at", [CUTOFFS, QUANTILES], ids=["cutoffs", "probabilities"])
def test_all_formats_give_the_same_release(partition, at):
    found = [partition(*AT, *at, "--seed", 5, table=f"t.{suffix}") for suffix in ("csv", "parquet", "zarr")]
    assert [code for code, _, _ in found] == [0, 0, 0]
    assert len({out for _, out, _ in found}) == 1
    assert {err for _, _, err in found} == {""}


def test_report_of_partitions_and_budget(partition):
    _, out, _ = partition(*AT, *CUTOFFS, "--seed", 1)
    assert "3,004 rows, divided at random into 30 partitions of 100 rows, 4 of them with one more" in out
    assert (
        "normality-corrected: no budget spent; a release would spend 3 x 1 nats, 3-DP in total, for all tables of "
        "numbers, where those beyond ±1e+140 count as ±1e+140 (replace one record" in out
    )
    assert "budget spent:" not in out
    assert "epsilon" not in values(out)
    assert "guarantee: none: a rehearsal with a seed is not private" in out
    _, out, _ = partition(*AT, *QUANTILES, "--partitions", 4, "--seed", 1, "--epsilon", 3)
    assert "4 partitions of 751 rows\n" in out
    assert "quantile-centred: no budget spent; a release would spend 0.6 + 3 x 2.4 nats, 7.8-DP in total" in out
    assert "misplaced" not in partition(*AT, *QUANTILES, "--epsilon", 9, "--seed", 1)[1]


def test_release_without_a_seed_is_drawn_exactly(partition):
    for at, words in ((CUTOFFS, ()), (UNRELIABLE, ("--epsilon", 4))):
        code, out, _ = partition(*AT, *at, *words)
        assert code == 0
        assert re.search(r"^guarantee: \S+-DP \(proved\)$", out, re.MULTILINE)
        assert "rehearsal" not in out
        assert "budget spent: " in out
        assert "no budget spent" not in out
        assert "epsilon" in values(out)


@pytest.mark.parametrize("at", [CUTOFFS, (*UNRELIABLE, "--epsilon", "4")], ids=["cutoffs", "probabilities"])
def test_release_needs_opendp(partition, refused, tables, monkeypatch, at):
    for name in ["opendp", *(name for name in sys.modules if name.startswith("opendp."))]:
        monkeypatch.setitem(sys.modules, name, None)
    refused("partition", tables / "t.zarr", *AT, *at, "--yes", message="pip install 'dpstudies[release]'")
    assert partition(*AT, *at, "--seed", 1)[0] == 0


def test_unreliable_quantiles_are_rejected_before_the_table_is_read(refused):
    """Too few partitions for the budget are rejected before the table, which does not exist, is read."""
    err = refused("partition", "absent.csv", *AT, *UNRELIABLE, message="--allow-failure 1")
    assert "misplaced clipping interval must be at most 0.01, got about 1 for quantile-centred with 30" in err


def test_estimated_failure_is_reported_after_the_release(tables):
    found = release_table(str(tables / "t.zarr"), replace(REQUEST, cutoffs=(), probabilities=(0.5,), epsilon=2.0), 3)
    doubtful = replace(found, allowed_failure=found.failure / 2)
    assert 0 < found.failure < 1
    assert not any("misplaced" in line for line in found.lines)
    assert any(f"misplaced with a probability of about {found.failure:.2g}" in line for line in doubtful.lines)


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--range", "y=-10:20", "--range", "income=0:1e6")], ids=["default", "ranges"])
def test_quantiles_of_a_tiny_slope_are_accurate(command, tmp_path, words):
    """For an income in dollars and a slope of 2e-5, released quantiles have errors of at most 2e-6 (regression)."""
    rng = np.random.default_rng(21)
    income = np.exp(rng.normal(10.5, 0.5, 20_000))
    y = 1 + 2e-5 * income + rng.standard_normal(income.size)
    pd.DataFrame({"income": income, "y": y}).to_csv(tmp_path / "t.csv", index=False)
    at = ("--target", "y", "--coefficient", "income", "--partitions", 200, "--epsilon", 0.9)
    for seed in range(4):
        code, out, _ = command(
            "partition", tmp_path / "t.csv", *at, "--probabilities", "0.025,0.5,0.975", "--seed", seed, *words
        )
        assert code == 0
        found = values(out)
        np.testing.assert_allclose(found["quantile"].astype(float), 2e-5, atol=2e-6)
        assert found["quantile"].astype(float).is_monotonic_increasing
        assert all(len(text) <= 10 for text in found["quantile"])  # digits below the noise are omitted


def test_quantiles_ascend_with_their_probability(tables):
    """Released quantiles keep the requested order and increase with p, although noise can reverse close ones."""
    p = (0.5, 0.49, 0.51, 0.4)
    found = release_table(str(tables / "t.zarr"), replace(REQUEST, cutoffs=(), probabilities=p, epsilon=4.0), 1)
    assert found.values["p"].tolist() == list(p)
    assert found.values.sort_values("p")["quantile"].is_monotonic_increasing


def test_quantiles_that_noise_reversed_keep_the_columns_of_their_draw(tables, monkeypatch):
    request = replace(REQUEST, cutoffs=(), probabilities=(0.05, 0.95), method="quantile", epsilon=1.0)
    drawn = ReleasedQuantiles(*map(np.array, ([9.0, 2.0], [0.0, 0.5], [16.0, 4.0], [True, False])))
    monkeypatch.setattr(PartitionQuantile, "release", lambda *_: drawn)
    values = release_table(str(tables / "t.zarr"), request, 1).values
    assert values["quantile"].tolist() == [2.0, 9.0]
    assert values["clipped_from"].tolist() == [-3.5, -16.0]
    assert values["capped"].tolist() == [False, True]
    scales = [request.mechanism().noise_scale(width) for width in (4.0, 16.0)]
    np.testing.assert_allclose(values["noise"], np.sqrt(2.0) * np.array(scales))


def test_release_equals_a_direct_computation(tables):
    """A release equals one computed in memory from all rows, with likelihoods to the power n/nⱼ."""
    streams = Streams(5, "partition", "table", "division", {"n_partitions": M}, range(1))
    labels = keyed_partition(next(streams.generators()), N, M).labels(0, N)
    rows, none = partition_statistics(FRAME[["a", "b"]], FRAME["y"], labels), np.random.default_rng(1)
    request = replace(REQUEST, method="normality-corrected-noiseless")
    found = release_table(str(tables / "t.csv"), request, seed=5)
    below = coefficient_posterior(rows, 1, ZellnerPrior(N)).cdf(request.cutoffs)
    expected = partition_probability(request.method, M, 1.0).release(none, below)
    np.testing.assert_allclose(found.values["probability"], expected, rtol=1e-9)
    assert found.guarantee is None
    request = replace(REQUEST, cutoffs=(), probabilities=(0.1, 0.5), method="quantile-centred-noiseless")
    found = release_table(str(tables / "t.csv"), request, seed=5)
    posterior = coefficient_posterior(rows, 1, ZellnerPrior(N), power=N / rows.n_rows)
    method = partition_quantile(request.method, M, 1.0, (0.2, 0.3, 0.5))
    released = method.release(none, posterior.quantile(request.probabilities), posterior.std())
    np.testing.assert_allclose(found.values["quantile"], released.values, rtol=1e-9)
    np.testing.assert_allclose(found.values["clipped_to"], released.centres + released.half_widths, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PROBABILITY_METHODS, *QUANTILE_METHODS])
def test_every_method_is_accurate_and_reports_its_loss(tables, name):
    is_quantile = name in QUANTILE_METHODS
    points = {"cutoffs": (), "probabilities": (0.1, 0.9)} if is_quantile else {"cutoffs": (1.0, 3.0)}
    found = release_table(str(tables / "t.zarr"), replace(REQUEST, method=name, epsilon=20.0, **points), seed=6)
    assert found.mechanism.name == name
    if is_quantile:
        np.testing.assert_allclose(found.values["quantile"], SLOPE, atol=0.5)
    else:
        np.testing.assert_allclose(found.values["probability"], [0.0, 1.0], atol=0.01)
    if name.endswith("-noiseless") or name == "fisher-published":
        spent = np.inf if name.endswith("-noiseless") else 20.0 * M
        assert found.guarantee is None
        assert "NOT PRIVATE" in found.budget
        np.testing.assert_allclose(found.mechanism.loss, spent)
    else:
        shared = 4.0 if name == "quantile-centred" else 0.0  # one scale is released for both quantiles
        assert found.guarantee.epsilon == pytest.approx(40.0 - shared)
        np.testing.assert_allclose(found.mechanism.loss, 20.0 - shared)


def test_priors_and_models(tables):
    """Releases without noise from one partition equal the posterior under the requested prior and model."""
    path, base = str(tables / "t.parquet"), replace(REQUEST, n_partitions=1, method="normality-noiseless")
    whole = partition_statistics(FRAME[["a", "b"]], FRAME["y"], np.zeros(N, dtype=int))
    bare = partition_statistics(FRAME[["b"]], FRAME["y"], np.zeros(N, dtype=int), intercept=False)
    cases = [
        (base, coefficient_posterior(whole, 1, ZellnerPrior(N))),
        (replace(base, prior="zellner:50"), coefficient_posterior(whole, 1, ZellnerPrior(50))),
        (replace(base, prior="flat"), coefficient_posterior(whole, 1, FlatPrior())),
        (replace(base, prior="flat", error_variance=4.0), coefficient_posterior(whole, 1, FlatPrior(), 4.0)),
        (replace(base, prior="conjugate"), coefficient_posterior(whole, 1, ConjugatePrior(precision=0.001))),
        (replace(base, prior="conjugate:0.01"), coefficient_posterior(whole, 1, ConjugatePrior(precision=100.0))),
        (replace(base, prior="semi-conjugate"), coefficient_posterior(whole, 1, SemiConjugatePrior(precision=0.001))),
        (replace(base, coefficient="b"), coefficient_posterior(whole, 2, ZellnerPrior(N))),
        (replace(base, coefficient="intercept"), coefficient_posterior(whole, 0, ZellnerPrior(N))),
        (
            replace(base, features=("b",), coefficient="b", intercept=False),
            coefficient_posterior(bare, 0, ZellnerPrior(N)),
        ),
    ]
    for request, posterior in cases:
        cutoffs = tuple(posterior.quantile([0.1, 0.6])[0])
        found = release_table(path, replace(request, cutoffs=cutoffs), seed=7)
        np.testing.assert_allclose(found.values["probability"], [0.1, 0.6], rtol=1e-7)


def test_seeds(tables):
    """A seed repeats a release; another request has new noise for the same partition; without a seed, both change."""
    path, noiseless = str(tables / "t.zarr"), "normality-noiseless"

    def released(seed, **changes):
        return release_table(path, replace(REQUEST, **changes), seed).values["probability"].tolist()

    assert released(1) == released(1)
    assert released(1) != released(2)
    assert released(1)[:1] != released(1, cutoffs=(1.98,))
    assert released(1, method=noiseless)[:1] == released(1, method=noiseless, cutoffs=(1.98,))
    assert released(None, method="normality") != released(None, method="normality")
    assert released(1, method=noiseless) != released(2, method=noiseless)


@pytest.mark.parametrize("suffix", ["csv", "json"])
@pytest.mark.parametrize("method", ["quantile", "quantile-noiseless"])
def test_output_files(partition, tmp_path, suffix, method):
    file = tmp_path / f"values.{suffix}"
    code, out, _ = partition(*AT, *QUANTILES, "--method", method, "--mu", 0.001, "--output", file, "--seed", 1)
    assert (code, out.splitlines()[-1]) == (0, f"values: {file}")
    printed = values(out)
    if suffix == "csv":
        stored = pd.read_csv(file)
        facts = stored.iloc[0]
    else:
        facts = json.loads(file.read_text())
        stored = pd.DataFrame(facts["values"])
        assert facts["budget"] is None
        assert (facts["target"], facts["coefficient"], facts["features"]) == ("y", "a", ["intercept", "a", "b"])
    noise = np.maximum(stored["noise"], 1e-9)
    assert np.all(np.abs(stored["quantile"] - printed["quantile"].astype(float)) <= 0.05 * noise)
    assert bool(facts["rehearsal"]) is True
    assert (facts["method"], facts["n_rows"], facts["n_partitions"]) == (method, N, M)
    assert pd.isna(facts["total_epsilon"])
    assert "epsilon" not in stored
    if method == "quantile":
        code, out, _ = partition(*AT, *QUANTILES, "--method", method, "--mu", 0.001, "--output", file)
        facts = pd.read_csv(file).iloc[0] if suffix == "csv" else json.loads(file.read_text())
        assert (code, bool(facts["rehearsal"]), isclose(facts["total_epsilon"], 3.0)) == (0, False, True)
        assert suffix == "csv" or facts["budget"] in out


def test_failed_search_for_bounds_is_reported(partition):
    """If the search for bounds fails, the output gives advice; only a release has spent its budget."""
    code, out, _ = partition(
        *AT, "--probabilities", "0.5", "--method", "quantile", "--mu", "1e-250", "--seed", 1, "--epsilon", 100
    )
    assert code == 0
    assert "the search for bounds failed at p = 0.5: the values are mostly noise; increase --mu" in out
    assert "no budget spent; a release would spend 1 x 100 nats, 100-DP in total" in out
    assert values(out)["capped"].tolist() == ["True"]
    failed = pd.DataFrame({"p": [0.5], "quantile": [0.0], "capped": [True], "epsilon": [1.0]})
    lines = Release(
        failed, partition_quantile("quantile", M, 1.0, (0.5, 0.5)), N, Guarantee(1.0), rehearsal=False
    ).lines
    assert lines[3].startswith("quantile: budget spent: 1 x 1 nats, 1-DP in total")
    assert "and the budget is spent; increase --mu" in lines[4]


_CUTOFFS, _UNRELIABLE, _QUANTILES = (" ".join(words) for words in (CUTOFFS, UNRELIABLE, QUANTILES))
_FORM_OF_RANGES = "range must have the form COLUMN=LOW:HIGH, with finite numbers such as 1000 or -0.5"
BAD = {
    "": "either --cutoffs or --probabilities must be given",
    f"{_CUTOFFS} {_QUANTILES}": "either --cutoffs or --probabilities must be given",
    "--probabilities 0.5,1": "p must be in (0, 1), got 1.0",
    "--probabilities -0.5": "p must be in (0, 1), got -0.5",
    "--cutoffs x": "cutoffs must be a finite number",
    "--cutoffs nan": "cutoffs must be a finite number",
    f"{_CUTOFFS} --epsilon 0": "epsilon must be a finite number > 0, got 0",
    f"{_CUTOFFS} --epsilon nan": "epsilon must be a finite number > 0",
    f"{_CUTOFFS} --method fischer": "did you mean fisher",
    f"{_CUTOFFS} --method quantile": "unknown method for cutoffs 'quantile'",
    f"{_QUANTILES} --method normality": "unknown method for probabilities 'normality'",
    f"{_CUTOFFS} --split 0.5:0.5": "split must be omitted with cutoffs",
    f"{_QUANTILES} --split 0.5:0.5": "split of quantile-centred must be 3 numbers > 0",
    f"{_QUANTILES} --split 0.2:0.2:0.5": "must add up to epsilon = 1, got 0.2 + 0.2 + 0.5 = 0.9",
    f"{_QUANTILES} --split 0:0.5:0.5": "must be 3 numbers > 0",
    f"{_QUANTILES} --split x": "split must be finite numbers separated by ':'",
    f"{_QUANTILES} --mu 0": "mu, half the width of the first interval, must be a finite number > 0, got 0.0",
    f"{_QUANTILES} --mu -1": "mu, half the width of the first interval, must be a finite number > 0, got -1.0",
    f"{_QUANTILES} --method quantile --theta 1.5": "theta, the fraction of values, must be in (0, 1], got 1.5",
    f"{_CUTOFFS} --mu 2": "mu must be omitted with cutoffs, got 2.0",
    f"{_CUTOFFS} --range y=0:1": "range must be omitted with cutoffs",
    f"{_QUANTILES} --range y=0:1": "ranges must be given for a and y, got y; give one --range for each",
    f"{_QUANTILES} --range y=0:1 --range a=1:1": "range of a must be finite numbers LOW < HIGH, got 1",
    f"{_QUANTILES} --range y=0:1 --range a=0:1 --mu 1": "mu must be omitted with ranges",
    f"{_QUANTILES} --range y=0": f"{_FORM_OF_RANGES}, once per column, got 'y=0'",
    f"{_QUANTILES} --range y": f"{_FORM_OF_RANGES}, once per column, got 'y'",
    f"{_UNRELIABLE} --allow-failure 2": "allow-failure must be a probability in [0, 1], got 2",
    f"{_CUTOFFS} --allow-failure 2": "allow-failure must be a probability in [0, 1], got 2",
    f"{_UNRELIABLE} --allow-failure 0.5": "misplaced clipping interval must be at most 0.5, got about 1",
    f"{_CUTOFFS} --method fisher-published": "method must be private to release real data, got fisher-publ",
    f"{_CUTOFFS} --theta 0.5": "theta must be omitted with cutoffs, got 0.5",
    f"{_QUANTILES} --theta 0.5": "theta must be omitted with quantile-centred, got 0.5",
    f"{_CUTOFFS} --partitions 0": "n_partitions must be an integer >= 1, got 0",
    f"{_CUTOFFS} --partitions 1002": "at least as many rows as coefficients, 3, got 1,002 partitions of 3,004 rows",
    f"{_CUTOFFS} --partitions 3005 --prior conjugate": "n_partitions must be an integer in [1, n = 3004]",
    f"{_CUTOFFS} --coefficient c": "unknown coefficient 'c'; allowed: intercept, a, b",
    f"{_CUTOFFS} --coefficient intercept --no-intercept": "unknown coefficient 'intercept'",
    f"{_CUTOFFS} --features b": "unknown coefficient 'a'",
    f"{_CUTOFFS} --features a,c": "unknown column 'c'",
    f"{_CUTOFFS} --target z": "unknown column 'z'",
    f"{_CUTOFFS} --prior zelner": "did you mean zellner",
    f"{_CUTOFFS} --prior zellner:-1": "g must be a finite number > 0, got -1",
    f"{_CUTOFFS} --prior zellner:x": "prior must be a name with an optional number, such as zellner:1000",
    f"{_CUTOFFS} --prior flat:2": "flat takes no number",
    f"{_CUTOFFS} --prior conjugate:0": "a variance must be finite and > 0",
    f"{_CUTOFFS} --error-variance 0": "error_variance must be a finite number > 0, got 0.0",
    f"{_CUTOFFS} --prior semi-conjugate:1e-300 --error-variance 1e300": "of the prior must be finite and > 0, got inf",
    f"{_QUANTILES} --mu 1e-300": "mu/2^30 must be >= 1e-290 and mu·2^30 <= 1e+290, got mu = 1e-300",
    f"{_QUANTILES} --mu 1e300": "mu·2^30 must be finite, got mu = 1e+300",
    f"{_QUANTILES} --range y=0:1e285 --range a=0:1": "mu·2^30 <= 1e+290, got mu = 1e+285",
    f"{_QUANTILES} --range y=0:1e300 --range a=0:1e-300": "must be a finite number > 0, got inf",
    f"{_CUTOFFS} --epsilon 1e-7": "the noise scale must be at most 2^52 units",
    f"{_QUANTILES} --epsilon 1e-6": "the noise scale must be at most 2^52 units",
    f"{_QUANTILES} --method quantile --epsilon 1e-3": "epsilon of the bounds must be at least 0.00098",
    f"{_QUANTILES} --epsilon 1e10": "exact draws of quantile-centred must need at most 4.3 GB, got 4.9e+",
    f"{_CUTOFFS} --output absent/x.csv": "must be a .csv or .json file in an existing folder",
    f"{_CUTOFFS} --output x.txt": "must be a .csv or .json file in an existing folder",
    f"{_CUTOFFS} --cluster absent.yaml": "cannot read the cluster file absent.yaml",
}
"""Options besides those that are required, and what the message contains."""


@pytest.mark.parametrize("options", BAD)
def test_invalid_input_gives_one_line(refused, tables, options):
    words = [str(word) for word in AT] + shlex.split(options)
    refused("partition", tables / "t.zarr", *words, "--yes", message=BAD[options])


def error_of(frame, tmp_path, **changes):
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    with pytest.raises(BadInputError) as caught:
        release_table(str(tmp_path / "t.parquet"), replace(REQUEST, **changes), seed=1)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "error_variance"), [("zellner", None), ("flat", None), ("flat", 1.0), ("semi-conjugate", None)]
)
@pytest.mark.parametrize("wanted", [{"cutoffs": (0.5, 2.0)}, {"cutoffs": (), "probabilities": (0.5,)}])
def test_all_tables_of_numbers_are_accepted(tmp_path, prior, error_variance, wanted):
    """Collinear columns, exact fits and large numbers are accepted, since a refusal would reveal private data."""
    extreme = FRAME.copy()
    extreme.loc[7, ["a", "y"]] = 1.7e308, -1.7e308
    for frame in (FRAME.assign(b=3 * FRAME["a"] - 1), FRAME.assign(b=1.0), FRAME.assign(y=0.0), extreme):
        frame.to_parquet(tmp_path / "t.parquet", index=False)
        request = replace(REQUEST, prior=prior, error_variance=error_variance, **wanted)
        assert np.isfinite(release_table(str(tmp_path / "t.parquet"), request, seed=1).values.iloc[:, 1]).all()


@pytest.mark.parametrize("wanted", [("--probabilities", "0.3"), ("--probabilities", "0.5"), ("--cutoffs", "1e308")])
def test_one_number_does_not_decide_whether_a_table_is_released(command, tmp_path, wanted):
    """A column of zeros and one with the number 1e-161, whose reciprocal has an infinite square, are both released."""
    frame = pd.DataFrame({"x": np.zeros(300), "y": np.random.default_rng(0).standard_normal(300)})
    words = ("--target", "y", "--coefficient", "x", "--partitions", 60, "--epsilon", 1, "--allow-failure", 1)
    if wanted[0] == "--cutoffs":
        words = words[:-2]
    for number in (0.0, 1e-161):
        frame.loc[17, "x"] = number
        frame.to_csv(tmp_path / "t.csv", index=False)
        ledger = tmp_path / f"{number}.ledger"
        code, out, err = command(
            *("partition", tmp_path / "t.csv", *words, *wanted, "--no-intercept", "--yes"),
            *("--ledger", ledger, "--budget", 5),
        )
        assert (code, err) == (0, "")
        assert "budget spent: " in out
        assert ledger.read_text().count('"epsilon": 1.0') == 1


@pytest.mark.parametrize(("low", "high"), [(1e280, 1e280), (-1e-290, 1e-290), (0.0, 1e290), (5e-324, 1e-323)])
def test_extreme_released_values_are_shown_and_stored(tmp_path, low, high):
    """Released values of any size give text and valid JSON, also if the ends of an interval are equal."""
    columns = {"p": [0.5], "quantile": [high], "noise": [1e-290], "clipped_from": [low], "clipped_to": [high]}
    mechanism = partition_quantile("quantile-centred", M, 1.0, (0.2, 0.3, 0.5))
    release = Release(
        pd.DataFrame({**columns, "capped": [False], "epsilon": [0.8]}), mechanism, N, Guarantee(1.0), rehearsal=False
    )
    assert 0 < release.failure <= 1
    assert any("misplaced" in line for line in release.lines)
    assert float(release.formatted()[0][1]) == pytest.approx(high, abs=1e-290)
    release.write(tmp_path / "t.json")
    (stored,) = json.loads((tmp_path / "t.json").read_text())["values"]
    assert (stored["clipped_from"], stored["clipped_to"]) == (low, high)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "column 'b' must be present in every row, got a missing cell in data row 18; impute"),
        (
            np.inf,
            "column 'b' must be a finite number, got something else in data row 18; convert that row or remove it",
        ),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_missing_and_infinite_values_are_rejected_before_a_release(refused, tmp_path, suffix, value, message):
    table = tmp_path / f"missing.{suffix}"
    frame = FRAME.copy()
    frame.loc[[17, 400], "b"] = value
    (frame.to_csv if suffix == "csv" else frame.to_parquet)(table, index=False)
    err = refused("partition", table, *AT, *CUTOFFS, "--output", "released.csv", message=message)
    assert err.endswith(f"({NOT_PUBLIC})\n")


def test_invalid_tables_raise(tmp_path):
    assert "must not have a column intercept" in error_of(FRAME.assign(intercept=1.0), tmp_path)
    assert "more rows than coefficients" in error_of(FRAME, tmp_path, n_partitions=1001, prior="flat")
    found = release_table(str(tmp_path / "t.parquet"), replace(REQUEST, n_partitions=3000, prior="conjugate"), 1)
    assert found.mechanism.n_partitions == 3000


def test_model_with_an_intercept_only(partition):
    code, out, _ = partition(
        *AT,
        *("--features", "", "--coefficient", "intercept", "--method", "normality-noiseless", "--cutoffs", "0,2"),
        *("--seed", 1),
    )
    assert code == 0
    np.testing.assert_allclose(values(out)["probability"].astype(float), [0, 1], atol=1e-9)
