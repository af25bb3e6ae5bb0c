"""Tests of the study `partition-probability`."""

import math
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import pipeline
from pipeline import Streams
from pipeline.execution.rerun import rerun_trial
from pipeline.run import study_of
from pipeline.stores.store import ResultStore
from studies import STUDIES
from studies.figures import render
from studies.regression.partition_probability import STUDY
from studies.regression.partition_probability_claims import audit_adversarial
from studies.regression.partition_trials import read_abalone
from studies.report import drawable, judge, load_summaries

METHODS = [
    "full",
    *(
        f"{name}{noise}"
        for name in ("normality", "normality-corrected", "fisher", "fisher-corrected", "fisher-published")
        for noise in ("", "-noiseless")
    ),
]
SMALL = {"n": [20_000], "partition_size": [100]}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Run every panel with a fifth of the rows."""
    path = tmp_path_factory.mktemp("study") / "s.zarr"
    pipeline.run(STUDY, path, trials=120, values=SMALL)
    return path


@pytest.fixture(scope="module")
def summaries(store):
    return load_summaries(store, study=STUDY)


def test_store_layout(store):
    """Check groups, dimensions, coordinates and measures as read by xarray."""
    assert STUDIES["partition-probability"] is STUDY
    for panel in ("default", "zellner-partition", "abalone"):
        ds = xr.open_zarr(store, group=panel)
        for name in ("probability", "difference"):
            assert ds[name].dims == ("algorithm", "trial", "cutoff")
        assert ds.algorithm.values.tolist() == METHODS
        assert ds.cutoff.values.tolist() == [-3, -2, -1, 0, 1, 2, 3]
        assert (ds.status == 1).all()
        assert ((ds.probability >= 0) & (ds.probability <= 1)).all()
        full = ds.probability.sel(algorithm="full")
        np.testing.assert_allclose(ds.difference, ds.probability - full, atol=1e-15)
    for panel in ("default", "zellner-partition"):
        spec = STUDY.panel(panel).spec()["constants"]
        assert (spec["n"], spec["partition_size"], spec["epsilon"]) == ([100_000], [100], [0.25])
        assert spec["coefficients"] == [[1.0, 2.0]]
        assert STUDY.panel(panel).trials >= 1_000


def test_privacy_loss_is_stored(store):
    spent = xr.open_zarr(store, group="default").spent.load()
    assert spent.sel(algorithm="normality") == 7 * 0.25
    assert spent.sel(algorithm="fisher-corrected") == pytest.approx(7 * 0.25)
    assert spent.sel(algorithm="fisher-published") == pytest.approx(7 * 200 * 0.25)
    assert np.isinf(spent.sel(algorithm=["full", "normality-noiseless"])).all()


def rows_of(trial, n, panel="default"):
    """Return the rows of a trial, drawn as in the study."""
    rng = next(Streams(STUDY.seed, STUDY.name, panel, "data", {}, range(trial, trial + 1)).generators())
    z = rng.standard_normal((n, 2))
    return z[:, 0], 1.0 + 2.0 * z[:, 0] + z[:, 1]


@pytest.mark.parametrize("panel", ["default", "zellner-partition"])
def test_one_trial_against_numpy(store, panel):
    """Compute Zellner posteriors by the printed formula and both aggregates with numpy."""
    x, y = rows_of(3, 20_000, panel)
    cutoffs = 2.0 + np.arange(-3, 4) / math.sqrt(20_000)

    def posterior(x, y, g):
        X = np.column_stack([np.ones(x.size), x])
        inverse = np.linalg.inv(X.T @ X)
        mean, sd = g / (g + 1) * (inverse @ X.T @ y)[1], math.sqrt(g / (g + 1) * inverse[1, 1])
        return stats.norm.cdf((cutoffs - mean) / sd)

    ds = xr.open_zarr(store, group=panel).probability.isel(trial=3).load()
    np.testing.assert_allclose(ds.sel(algorithm="full"), posterior(x, y, 20_000), rtol=1e-8)
    g = 20_000 if panel == "default" else 100
    parts = np.stack([posterior(x[i : i + 100], y[i : i + 100], g) for i in range(0, 20_000, 100)])
    score = stats.norm.ppf(parts.mean(axis=0))
    np.testing.assert_allclose(
        ds.sel(algorithm="normality-noiseless"), stats.norm.cdf(math.sqrt(200) * score), rtol=1e-7
    )
    np.testing.assert_allclose(
        ds.sel(algorithm="normality-corrected-noiseless"), stats.norm.cdf(math.sqrt(400) * score), rtol=1e-7
    )
    total = -2 * np.log(np.maximum(parts, 0.001)).sum(axis=0)
    np.testing.assert_allclose(ds.sel(algorithm="fisher-noiseless"), stats.chi2.sf(total, 400), rtol=1e-7)


def test_trial_does_not_depend_on_the_run(store, tmp_path):
    """Results are identical with other trials and methods, in another order, and for a single trial."""
    values = {**SMALL, "algorithm": ["fisher", "normality"]}
    pipeline.run(STUDY, tmp_path / "t.zarr", panels=["default"], trials=105, values=values)
    part = xr.open_zarr(tmp_path / "t.zarr", group="default").load()
    whole = xr.open_zarr(store, group="default").load().sel({"algorithm": part.algorithm, "trial": part.trial})
    assert np.array_equal(part.probability, whole.probability)
    opened = ResultStore.open(store)
    _, configured = study_of(opened, STUDY)
    for panel in ("default", "abalone"):
        assert all(rerun.equal for rerun in rerun_trial(opened, configured, panel, {}, 57))


def test_unequal_partitions(tmp_path):
    """1,037 rows give ten partitions of 103 or 104 rows."""
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["default"], trials=2, values={"n": [1037]})
    ds = xr.open_zarr(tmp_path / "s.zarr", group="default").load()
    assert (ds.status == 1).all()
    assert ds.spent.sel(algorithm="fisher-published") == pytest.approx(7 * 10 * 0.25)


def test_abalone_data():
    """Compare the least-squares slope with its known value."""
    x, rings = read_abalone()
    assert x.shape == (4177, 2)
    least = np.linalg.lstsq(np.column_stack([np.ones(4177), x]), rings, rcond=None)[0]
    assert least[1] == pytest.approx(26.8413, abs=1e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("epsilon=0",), "epsilon must be a finite number > 0"),
        (("least_probability=1",), "least_probability must be in (0, 1)"),
        (("partition_size=0",), "size must be an integer in [1, n = 100000]"),
        (("partition_size=200000",), "size must be an integer in [1, n = 100000]"),
        (("partition_size=1",), "partition_size must be >= the number of coefficients, 2, got 1"),
        (("n=0",), "n must be an integer >= 1"),
        (("error_std=0",), "error_std must be > 0"),
        (("coefficients=1",), "coefficients must be an intercept and a slope"),
        (("cutoff=nan",), "cutoff must be a finite number"),
        (("algorithm=normal",), "did you mean"),
    ],
)
def test_invalid_input_is_reported_before_writing(command, tmp_path, words, message):
    given = [part for word in words for part in ("--set", word)]
    code, _, err = command("run", "partition-probability", "--panel", "default", *given, "--store", "s.zarr")
    assert code == 2
    assert message in err
    assert not (tmp_path / "s.zarr").exists()


# Claims and figures


def verdicts(summaries):
    return {claim.name: finding.verdict for claim, finding in judge(STUDY, summaries)}


def verdict_of(claim, summaries):
    """Check a single claim, because others are slow."""
    alone = replace(STUDY, claims=tuple(each for each in STUDY.claims if each.name == claim))
    ((_, finding),) = judge(alone, summaries)
    return finding.verdict


def changed(summaries, panel, method, **values):
    """Replace values of one method in a summary."""
    ds = summaries[panel]
    new = {name: ds[name].where(ds.algorithm != method, value) for name, value in values.items()}
    return {**summaries, panel: ds.assign(new)}


def odd(summaries, value):
    """Return `value` below the true slope, −`value` above it, and 0 at it."""
    return -np.sign(summaries["default"]["cutoff"]) * value


def idealised(summaries):
    """Replace results without noise by their limits for many trials, because few trials leave verdicts undecided."""
    ds = summaries["default"]
    for name, bias, slope in (
        ("normality", 0.05, math.sqrt(0.5)),
        ("normality-corrected", 0.003, 1.0),
        ("fisher", 0.025, 0.9),
        ("fisher-corrected", 0.012, 1.0),
    ):
        summaries = changed(
            summaries,
            "default",
            f"{name}-noiseless",
            difference_mean=odd(summaries, bias),
            difference_mcse=0.0005,
            difference_rmse=0.017,
            difference_rmse_mcse=0.0005,
            probability_median=stats.norm.cdf(slope * ds["cutoff"]),
        )
    for name in ("normality", "normality-corrected", "fisher"):
        summaries = changed(summaries, "zellner-partition", f"{name}-noiseless", probability_mean=0.9999)
    return changed(summaries, "default", "full", probability_median=stats.norm.cdf(ds["cutoff"]))


EXPECTED = {
    "means-agree-normality": "not reproduced",
    "means-agree-fisher": "not reproduced",
    "normality-over-then-under": "reproduced",
    "corrected-does-not": "holds",
    "slopes-of-scores": "holds",
    "largest-near-the-truth": "undecided",
    "fisher-has-no-pattern": "not reproduced",
    "fisher-noise-is-private": "corrected",
    "g-is-the-partitions-length": "corrected",
}


def test_verdicts(summaries):
    assert verdicts(idealised(summaries)) == EXPECTED


@pytest.mark.parametrize(
    ("method", "values", "claim", "verdict"),
    [
        ("normality-corrected-noiseless", {"difference_mean": 0.03}, "means-agree-normality", "not reproduced"),
        ("normality-noiseless", {"difference_mean": 0.001}, "normality-over-then-under", "undecided"),
        ("normality-noiseless", {"difference_mean": -0.05}, "normality-over-then-under", "not reproduced"),
        ("normality-corrected-noiseless", {"difference_mean": 0.01}, "corrected-does-not", "does not hold"),
        ("normality-corrected-noiseless", {"difference_mean": 0.007}, "corrected-does-not", "undecided"),
        ("normality-corrected-noiseless", {"difference_rmse": 0.03}, "corrected-does-not", "does not hold"),
        ("normality-corrected-noiseless", {"difference_rmse": 0.021}, "corrected-does-not", "undecided"),
        ("fisher-corrected-noiseless", {"probability_median": 0.5}, "slopes-of-scores", "does not hold"),
        ("fisher", {"difference_sd": 0.1}, "largest-near-the-truth", "undecided"),
        ("fisher-noiseless", {"difference_mean": 0.0001}, "fisher-has-no-pattern", "reproduced"),
    ],
)
def test_verdicts_depend_on_the_results(summaries, method, values, claim, verdict):
    assert verdict_of(claim, changed(idealised(summaries), "default", method, **values)) == verdict


def test_agreement_reproduces_the_claims(summaries):
    both = idealised(summaries)
    for name in ("normality", "normality-noiseless"):
        both = changed(both, "default", name, difference_mean=0.01)
    assert verdict_of("means-agree-normality", both) == "reproduced"
    every = both
    for name in METHODS:
        every = changed(every, "zellner-partition", name, probability_mean=0.5)
    assert verdict_of("g-is-the-partitions-length", every) == "reproduced"


@pytest.mark.parametrize(("name", "loss"), [("normality", 0.5), ("fisher", 0.5), ("fisher-published", 10.0)])
def test_adversarial_audit(name, loss):
    assert audit_adversarial(name, 20, 30, 0.5, 0.01) == pytest.approx(loss, rel=1e-9)


def test_every_figure_is_drawn(summaries):
    assert {figure.name for figure in drawable(STUDY, summaries)} == {figure.name for figure in STUDY.figures}
    for figure in STUDY.figures:
        (svg,) = render(figure.draw, summaries, ["png"])
        assert len(svg) > 10_000
