"""Intervals for regression coefficients given a noisy Gram matrix: calibration, coverage, width and interval score.

The release has the noise of a track: pure ε-DP, or (ε, 1e-6)-DP. Scores of different tracks are not compared. In each
trial, moments of scaled records are drawn, and records from them. Records are

* ``own``: those of each method's joint model and prior, so that calibration tests the code;
* ``inside``: normal, with moments from the conjugate prior, given that three standard deviations are inside the bounds;
  ``clamped``: normal, with moments from the conjugate prior. Neither is the prior of most methods;
* as ``inside``, but ``heavy-tailed``: with Student's t₃ distribution of the same covariance; ``outliers``: one
  response in 20 is at a bound; ``interval``: covariates uniform between bounds such as 10 and 11, which exclude 0.

The panel `ranges` has fixed coefficients instead, and records that fill a fraction of the range of each column, 1 to
0.1, in its middle or near its end: users choose ranges without looking at the data.

The interval score is width + (2/0.05)·(distance of the truth from the interval), in half widths of the bounds; its
expectation is smallest for the true quantiles (Gneiting & Raftery 2007). Each trial has 2 chains of 150 draws, whose
split R-hat and effective sample size are stored. K-norm noise has ε = 1. `noise-aware` mixes slowly in many dimensions,
and has one covariate. Intervals of adassp and dp-gd are a bootstrap, and those of binagg normal. Those of `partition`
are released quantiles of the posteriors of partitions of 200 records, ε/3 per component, with the conjugate prior.
Intervals of the error variance start at 0 where a release does not resolve it.

Interval scores of a slope have heavy tails where the noise on the squares of the covariate is as large as their sum,
and a mean needs many trials: at n = 1,000 and ε = 1 the standard deviation of the difference between `naive` and
`normal-covariates` was 8, 27 and 62 in 30, 2,000 and 20,000 trials, whose mean, 1.4, is 3.2 standard errors.

References
----------
Bernstein & Sheldon, "Differentially private Bayesian linear regression", NeurIPS 2019.
Gneiting & Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 102, 2007.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray as xr

from pipeline import Criteria, Factor, Figure, Measure, Method, Panel, Scale, Statistic, Streams, Study
from studies.claims import ks_p_value
from studies.figures import Axis, Chart
from studies.panels import Values
from studies.regression.own_regressions import regression_method
from studies.regression.page_tables import compare_coverage, compare_intervals, compare_ranges
from studies.regression.regression_claims import CLAIMS
from studies.regression.regression_trials import (
    ALGORITHMS,
    NOISES,
    SHIFTED,
    Block,
    evaluate_algorithm,
    is_computed,
    is_supported,
    simulate_ranges,
    simulate_records,
    simulate_releases,
)
from studies.styles import GRAM_STYLES

_SIZES = (10, 100, 1_000, 10_000, 100_000)
_FACTORS: dict[str, tuple[Any, ...]] = {
    "n": ("number of records", "int", "1"),
    "data": ("data set", "str", "1"),
    "epsilon": ("privacy loss", "float", "nat"),
    "records": ("distribution of the records", "str", "1"),
    "track": ("kind of guarantee", "str", "1"),
    "range_factor": ("width of a range, as a multiple of that of the records", "float", "1"),
    "place": ("part of the range that the records fill", "str", "1"),
}


def _panel(
    name: str,
    n_features: int,
    meaning: str,
    trials: int,
    kept: Collection[str],
    most_records: int | None = None,
    simulate: Callable[[Values, Streams], Block] | None = None,
    target: str = "true parameter",
    **values: tuple[Any, ...],
) -> Panel:
    values = {"epsilon": (1.0,), "track": tuple(NOISES), **values}
    components = ("intercept", *(f"slope-{k + 1}" for k in range(n_features)), "variance")
    measures = {
        "pit": f"posterior quantile of the {target}",
        "covered": f"1 if the central 95 % interval contains the {target}",
        "width": "width of the central 95 % interval, in half widths of the bounds",
        "score": "interval score of the central 95 % interval",
        "square": "squared error of the posterior mean",
        "rhat": "split R-hat of the chains",
        "ess": "effective sample size of the mean among 300 draws",
    }
    return Panel(
        name=name,
        meaning=meaning,
        simulate=simulate or partial(simulate_records, n_features),
        methods=tuple(
            Method(
                name,
                partial(evaluate_algorithm, name),
                note=algorithm.note,
                version=algorithm.version,
                supports=partial(is_supported, name, n_features, most_records),
            )
            for name, algorithm in ALGORITHMS.items()
            if name in kept
        ),
        measures=tuple(
            Measure(name, text, dims=("component",), event=name == "covered") for name, text in measures.items()
        ),
        factors=tuple(
            Factor(name, values[name], meaning, kind, unit, categories=values[name] if kind == "str" else None)
            for name, (meaning, kind, unit) in _FACTORS.items()
            if name in values
        ),
        outputs=(Factor("component", components, "parameter", "str"),),
        trials=trials,
        block_trials=min(trials, 50),
        version=4 if "own" in values.get("records", ()) else 2,
        statistics=(
            Statistic("p", "pit", "p-value of the Kolmogorov-Smirnov test of uniform quantiles", ks_p_value),
            Statistic("largest", "rhat", "largest split R-hat among the trials", np.max),
        ),
        validate=partial(is_computed, n_features),
        accepts={"regression": partial(regression_method, n_features)},
    )


_REAL_TARGET = "estimate without privacy"
_BOOTSTRAPPED = tuple(name for name, algorithm in ALGORITHMS.items() if algorithm.release is not None)
_ABLATIONS = ("noise-aware-uncorrected", "noise-aware-redrawn")
_OF_ONE_FEATURE = ("noise-aware", "noise-aware-published", *_ABLATIONS)
_ON_REAL = ("normal-covariates", "normal-covariates-k-norm", "naive", *_BOOTSTRAPPED)
PANELS = (
    _panel(
        "calibration", 1, "regression on 1 covariate, records of the models of the methods", 1_000,
        ALGORITHMS.keys() - {*_BOOTSTRAPPED, "partition", "non-private"}, n=_SIZES, records=("own",)),
    _panel(
        "one-feature", 1, "regression on 1 covariate, simulated records", 200, ALGORITHMS.keys() - {*_ABLATIONS},
        n=_SIZES, epsilon=(0.1, 1.0, 3.0), records=("inside", *SHIFTED)),
    _panel(
        "augmentation", 1, "regression on 1 covariate given 1,000 records of the model of data-augmentation", 200,
        ("data-augmentation",), 1_000, n=(1_000,), records=("own",)),
    _panel(
        "five-features", 5, "regression on 5 correlated covariates, simulated records", 400,
        ALGORITHMS.keys() - {*_OF_ONE_FEATURE, "data-augmentation", "partition"}, n=(10_000,),
        records=("own", "inside", "heavy-tailed")),
    _panel(
        "real-two", 2, "rings on length and weight (abalone), hours on age and education (adult)", 500, _ON_REAL,
        simulate=partial(simulate_releases, "real-two"), target=_REAL_TARGET,
        data=("abalone", "adult"), epsilon=(0.1, 1.0, 3.0)),
    _panel(
        "ranges", 1, "regression on 1 covariate whose records fill a part of the public ranges", 1_000,
        ("normal-covariates", "noise-aware-published", "naive"), simulate=simulate_ranges, n=(1_000, 10_000, 100_000),
        range_factor=(1.0, 3.0, 10.0), place=("middle", "end")),
    _panel(
        "abalone-seven", 7, "rings on 7 covariates (abalone)", 500, ("normal-covariates", "naive", *_BOOTSTRAPPED),
        simulate=partial(simulate_releases, "abalone-seven"), target=_REAL_TARGET),
)  # fmt: skip


def _slope(ds: xr.Dataset) -> xr.Dataset:
    """Return the summary of the slope at ε = 1, or else the largest ε, for the first kind of records and track."""
    ds = ds.isel(component=1, records=[0], track=[0])
    return ds.sel(epsilon=[1.0]) if 1.0 in ds["epsilon"].values else ds.isel(epsilon=[-1])


def _against_n(measure: str, label: str, log: bool, best: Literal["", "lowest"] = "") -> Chart:
    return Chart(
        "one-feature", "n", {"y": f"{measure}_mean"}, "algorithm", GRAM_STYLES, x=Axis("number of records", log=True),
        y=Axis(label, log=log), marks=("line", "errors", "points"), prepare=_slope,
        facet={"records": "records: {}", "epsilon": "ε = {}", "track": "{} track"}, best=best,
        first=("normal-covariates", "noise-aware-published", "adassp", "naive", "non-private"),
        height=300)  # fmt: skip


STUDY = Study(
    name="regression-inference",
    title="Private regression: coefficients with intervals",
    aim="Compare intervals for regression coefficients given a noisy Gram matrix, by coverage and interval score.",
    panels=PANELS,
    papers=("P5",),
    seed=20_261_125,
    claims=CLAIMS,
    figures=(
        Figure(
            "coverage",
            "Coverage of the slope",
            "Fraction of intervals that contain the true slope, for the records, ε and track that the title states, "
            "with 95 % intervals of it. The nominal coverage is 0.95.",
            ("one-feature",),
            _against_n("covered", "coverage of the slope", False),
        ),
        Figure(
            "interval-score",
            "Interval score of the slope",
            "Mean interval score of the slope, for the records, ε and track that the title states, with bars of two "
            "Monte Carlo standard errors; smaller is better.",
            ("one-feature",),
            _against_n("score", "interval score of the slope", True, "lowest"),
            claims=("k-norm-saves-little-with-one", "posterior-beats-bootstrap", "ignoring-noise-costs"),
        ),
    ),
    criteria=Criteria(
        uniform=("pit",),
        exact={name: {"records": ("own",)} for name in ("calibration", "augmentation", "five-features")},
        loss=("score",),
        covered="covered",
        width="width",
    ),
    comparisons=tuple(
        partial(compare, track)
        for compare in (compare_intervals, compare_coverage, compare_ranges)
        for track in ("pure", "approximate")
    ),
    quick=Scale(
        trials=30,
        panels=("calibration", "one-feature", "real-two"),
        values={
            "n": {"calibration": (10, 1_000), "one-feature": (100, 1_000, 10_000)},
            "epsilon": {"one-feature": (1.0,), "real-two": (1.0,)},
            "track": {"calibration": ("pure",)},
            "records": {"one-feature": ("inside",)},
            "data": ("abalone",),
        },
    ),
)
