"""Tests of the command ``partition`` and of `release_table`."""

import json
from dataclasses import replace
from math import isclose

import numpy as np
import pandas as pd
import pytest
import zarr

from mechanisms.regression.keyed_partition import keyed_partition
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, partition_probability
from mechanisms.regression.partition_quantile import QUANTILE_METHODS, partition_quantile
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.statistics import partition_statistics
from pipeline import Streams
from pipeline.errors import BadInputError
from studies.regression.partition_table import Request, find_prior, release_table

N, M = 3004, 30
SLOPE = 2.0
FRAME = pd.DataFrame(np.random.default_rng(1).standard_normal((N, 3)), columns=["a", "b", "y"])
FRAME["y"] += 1 + SLOPE * FRAME["a"] - FRAME["b"]
AT = ("--target", "y", "--coefficient", "a", "--partitions", M, "--epsilon", 1)
CUTOFFS, QUANTILES = ("--cutoffs", "1.98,2,2.05"), ("--probabilities", "0.1,0.5,0.9")
REQUEST = Request("y", "a", M, 1.0, cutoffs=(1.98, 2.0, 2.05))


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return a folder with the same table in each format."""
    folder = tmp_path_factory.mktemp("tables")
    FRAME.to_csv(folder / "t.csv", index=False)
    FRAME.to_parquet(folder / "t.parquet", row_group_size=1000)
    zarr.create_array(folder / "t.zarr", data=FRAME.to_numpy(), chunks=(700, 3), attributes={"columns": list(FRAME)})
    return folder


@pytest.fixture
def partition(command, tables):
    """Return a function that runs ``dpstudies partition`` on the table in one format."""
    return lambda *words, table="t.zarr": command("partition", tables / table, *words)


def values(out):
    """Return the rows of the printed table."""
    lines = [line.split() for line in out.splitlines()]
    end = next(i for i, line in enumerate(lines) if len(line) != len(lines[0]))
    return pd.DataFrame(lines[1:end], columns=lines[0])


@pytest.mark.parametrize("at", [CUTOFFS, QUANTILES], ids=["cutoffs", "probabilities"])
def test_all_formats_give_the_same_release(partition, at):
    found = [partition(*AT, *at, "--seed", 5, table=f"t.{suffix}") for suffix in ("csv", "parquet", "zarr")]
    assert [code for code, _, _ in found] == [0, 0, 0]
    assert len({out for _, out, _ in found}) == 1
    assert {err for _, _, err in found} == {""}


def test_report_of_partitions_and_budget(partition):
    _, out, _ = partition(*AT, *CUTOFFS)
    assert "3,004 rows, divided at random into 30 partitions of 100 rows, 4 of them with one more" in out
    assert "normality-corrected: budget spent: 3 x 1 nats, 3-DP in total, provided that the table is accepted" in out
    assert "for simulation only" in out
    _, out, _ = partition(*AT, *QUANTILES, "--partitions", 4)
    assert "4 partitions of 751 rows\n" in out
    assert "quantile-centred: budget spent: 3 x 1 nats, 3-DP in total" in out
    assert "too small epsilon for a private centre: it is wrong with probability of about 1," in out
    assert "private centre" not in partition(*AT, *QUANTILES, "--epsilon", 9)[1]


def test_release_equals_a_direct_computation(tables):
    """Compute the release from all rows in memory; likelihoods have the power n/nⱼ."""
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


@pytest.mark.parametrize("name", [*PROBABILITY_METHODS, *QUANTILE_METHODS])
def test_every_method_is_accurate_and_reports_its_loss(tables, name):
    is_quantile = name in QUANTILE_METHODS
    points = {"cutoffs": (), "probabilities": (0.1, 0.9)} if is_quantile else {"cutoffs": (1.0, 3.0)}
    found = release_table(str(tables / "t.zarr"), replace(REQUEST, method=name, epsilon=20.0, **points), seed=6)
    assert found.method == name
    if is_quantile:
        np.testing.assert_allclose(found.values["quantile"], SLOPE, atol=0.5)
    else:
        np.testing.assert_allclose(found.values["probability"], [0.0, 1.0], atol=0.01)
    if name.endswith("-noiseless") or name == "fisher-published":
        spent = np.inf if name.endswith("-noiseless") else 20.0 * M
        assert found.guarantee is None
        assert "NOT PRIVATE" in found.budget
        np.testing.assert_allclose(found.values["epsilon"], spent)
    else:
        assert found.guarantee.epsilon == 40.0
        assert np.all(found.values["epsilon"] == 20.0)


def test_priors_and_models(tables):
    """Releases without noise equal the posterior of the named prior and model."""
    path, base = str(tables / "t.parquet"), replace(REQUEST, n_partitions=1, method="normality-noiseless")
    whole = partition_statistics(FRAME[["a", "b"]], FRAME["y"], np.zeros(N, dtype=int))
    bare = partition_statistics(FRAME[["b"]], FRAME["y"], np.zeros(N, dtype=int), intercept=False)
    cases = [
        (base, coefficient_posterior(whole, 1, ZellnerPrior(N))),
        (replace(base, prior="zellner:50"), coefficient_posterior(whole, 1, ZellnerPrior(50))),
        (replace(base, prior="flat"), coefficient_posterior(whole, 1, FlatPrior())),
        (replace(base, prior="flat", error_variance=4.0), coefficient_posterior(whole, 1, FlatPrior(), 4.0)),
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
    """A seed repeats a release; another request has new noise on the same partition; without a seed both are new."""
    path, noiseless = str(tables / "t.zarr"), "normality-noiseless"

    def released(seed, **changes):
        return release_table(path, replace(REQUEST, **changes), seed).values["probability"].tolist()

    assert released(1) == released(1)
    assert released(1) != released(2)
    assert released(1)[:1] != released(1, cutoffs=(1.98,))
    assert released(1, method=noiseless)[:1] == released(1, method=noiseless, cutoffs=(1.98,))
    assert released(None) != released(None)
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
        assert facts["budget"] in out
    np.testing.assert_allclose(stored["quantile"], printed["quantile"].astype(float), rtol=1e-9)
    assert (facts["method"], facts["n_rows"], facts["n_partitions"]) == (method, N, M)
    private = method == "quantile"
    assert isclose(facts["total_epsilon"], 3.0) if private else pd.isna(facts["total_epsilon"])


def test_failed_search_for_bounds_is_reported(partition):
    """The search for bounds fails with tiny intervals; the budget is spent nevertheless."""
    code, out, _ = partition(
        *AT, "--probabilities", "0.5", "--method", "quantile", "--mu", "1e-300", "--seed", 1, "--epsilon", 1
    )
    assert code == 0
    assert "the search for bounds failed at p = 0.5" in out
    assert "the budget is spent; increase --mu" in out
    assert "budget spent: 1 x 1 nats, 1-DP in total" in out
    assert values(out)["capped"].tolist() == ["True"]


BAD = {
    (): "Missing option '--target'",
    (*AT,): "either --cutoffs or --probabilities must be given",
    (*AT, *CUTOFFS, *QUANTILES): "either --cutoffs or --probabilities must be given",
    (*AT, "--probabilities", "0.5,1"): "p must be in (0, 1), got 1.0",
    (*AT, "--probabilities", "-0.5"): "p must be in (0, 1), got -0.5",
    (*AT, "--cutoffs", "x"): "cutoffs must be a finite number",
    (*AT, "--cutoffs", "nan"): "cutoffs must be a finite number",
    (*AT, *CUTOFFS, "--epsilon", "0"): "epsilon must be a finite number > 0, got 0",
    (*AT, *CUTOFFS, "--epsilon", "nan"): "epsilon must be a finite number > 0",
    (*AT, *CUTOFFS, "--method", "fischer"): "did you mean fisher",
    (*AT, *CUTOFFS, "--method", "quantile"): "unknown method for cutoffs 'quantile'",
    (*AT, *QUANTILES, "--method", "normality"): "unknown method for probabilities 'normality'",
    (*AT, *CUTOFFS, "--split", "0.5:0.5"): "split must be omitted with cutoffs",
    (*AT, *QUANTILES, "--split", "0.5:0.5"): "split of quantile-centred must be 3 numbers > 0",
    (*AT, *QUANTILES, "--split", "0.2:0.2:0.5"): "must add up to epsilon = 1, got 0.2 + 0.2 + 0.5 = 0.9",
    (*AT, *QUANTILES, "--split", "0:0.5:0.5"): "must be 3 numbers > 0",
    (*AT, *QUANTILES, "--split", "x"): "split must be finite numbers separated by ':'",
    (*AT, *QUANTILES, "--mu", "0"): "mu, half the width of the first interval, must be finite and > 0, got 0.0",
    (*AT, *QUANTILES, "--mu", "-1"): "mu, half the width of the first interval, must be finite and > 0, got -1.0",
    (
        *AT,
        *QUANTILES,
        "--method",
        "quantile",
        "--theta",
        "1.5",
    ): "theta, the fraction of values, must be in (0, 1], got 1.5",
    (*AT, *CUTOFFS, "--mu", "2"): "mu must be omitted with cutoffs, got 2.0",
    (*AT, *CUTOFFS, "--theta", "0.5"): "theta must be omitted with cutoffs, got 0.5",
    (*AT, *QUANTILES, "--theta", "0.5"): "theta must be omitted with quantile-centred, got 0.5",
    (*AT, *CUTOFFS, "--partitions", "0"): "n_partitions must be an integer >= 1, got 0",
    (
        *AT,
        *CUTOFFS,
        "--partitions",
        "1002",
    ): "at least as many rows as coefficients, 3, got 1,002 partitions of 3,004 rows",
    (
        *AT,
        *CUTOFFS,
        "--partitions",
        "3005",
        "--prior",
        "conjugate",
    ): "n_partitions must be an integer in [1, n = 3004]",
    (*AT, *CUTOFFS, "--coefficient", "c"): "unknown coefficient 'c'; Allowed: intercept, a, b",
    (*AT, *CUTOFFS, "--coefficient", "intercept", "--no-intercept"): "unknown coefficient 'intercept'",
    (*AT, *CUTOFFS, "--features", "b"): "unknown coefficient 'a'",
    (*AT, *CUTOFFS, "--features", "a,c"): "unknown column 'c'",
    (*AT, *CUTOFFS, "--target", "z"): "unknown column 'z'",
    (*AT, *CUTOFFS, "--prior", "zelner"): "did you mean zellner",
    (*AT, *CUTOFFS, "--prior", "zellner:-1"): "g must be finite and > 0, got -1",
    (*AT, *CUTOFFS, "--prior", "zellner:x"): "prior must be a name with an optional number, such as zellner:1000",
    (*AT, *CUTOFFS, "--prior", "flat:2"): "flat takes no number",
    (*AT, *CUTOFFS, "--prior", "conjugate:0"): "a variance must be finite and > 0",
    (*AT, *CUTOFFS, "--error-variance", "0"): "error_variance must be finite and > 0, got 0.0",
    (*AT, *CUTOFFS, "--output", "absent/x.csv"): "must be a .csv or .json file in an existing folder",
    (*AT, *CUTOFFS, "--output", "x.txt"): "must be a .csv or .json file in an existing folder",
    (*AT, *CUTOFFS, "--cluster", "absent.yaml"): "cannot read the cluster file absent.yaml",
}


@pytest.mark.parametrize("words", BAD, ids=lambda words: " ".join(map(str, words[8:])))
def test_invalid_input_gives_one_line(partition, words):
    code, out, err = partition(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert BAD[words] in err


def error_of(frame, tmp_path, **changes):
    """Return the error message for a table."""
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    with pytest.raises(BadInputError) as caught:
        release_table(str(tmp_path / "t.parquet"), replace(REQUEST, **changes), seed=1)
    return str(caught.value)


def test_invalid_tables_raise(tmp_path):
    missing = FRAME.copy()
    missing.loc[[17, 400], "b"] = [np.nan, np.inf]
    assert "got 2 that are not, the first in row 18 (counted from 1)" in error_of(missing, tmp_path)
    assert "linearly independent columns" in error_of(FRAME.assign(b=3 * FRAME["a"] - 1), tmp_path)
    assert "linearly independent columns" in error_of(FRAME.assign(b=1.0), tmp_path)
    assert "must not have a column intercept" in error_of(FRAME.assign(intercept=1.0), tmp_path)
    assert "more rows than coefficients" in error_of(FRAME, tmp_path, n_partitions=1001, prior="flat")
    found = release_table(str(tmp_path / "t.parquet"), replace(REQUEST, n_partitions=3000, prior="conjugate"))
    assert found.n_partitions == 3000


def test_model_with_an_intercept_only(partition):
    code, out, _ = partition(
        *AT, "--features", "", "--coefficient", "intercept", "--method", "normality-noiseless", "--cutoffs", "0,2"
    )
    assert code == 0
    np.testing.assert_allclose(values(out)["probability"].astype(float), [0, 1], atol=1e-9)


def test_prior_names():
    assert find_prior("flat", 10) == FlatPrior()
    assert find_prior("conjugate", 10) == ConjugatePrior(precision=0.001)
