"""Intervals for regression coefficients given a noisy Gram matrix: calibration, coverage, width and interval score.

In each trial, the moments of scaled records are drawn from the prior, and the records from them. The release has the
noise of a track: pure ε-DP (Laplace, or K-norm noise), or (ε, 1e-6)-DP (Gaussian). Scores of different tracks are not
compared. The records of a cell are those of each method's own joint model, normal records clamped to the bounds, or
clamped records with Student's t₃ distribution of the same covariance. In the first, calibration tests the code.

The interval score is width + (2/0.05)·(distance of the truth from the interval), in half widths of the bounds; its
expectation is smallest for the true quantiles (Gneiting & Raftery 2007). Each trial runs 2 chains of 150 draws, whose
split R-hat and effective sample size are stored. Data augmentation runs up to n = 100,
K-norm noise at ε = 1, and the chains of `noise-aware`, which mix slowly in many dimensions, with one covariate.

References
----------
Bernstein & Sheldon, "Differentially private Bayesian linear regression", NeurIPS 2019.
Gneiting & Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 102, 2007.
"""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.chain_diagnostics import diagnose_chains
from mechanisms.regression.gram_release import GramNoise, GramRelease, calibrated_gram_noise
from mechanisms.regression.gram_samplers import RegressionPrior, normal_statistic, regression_of, sample_gram
from mechanisms.regression.private_regression import simulate_gram
from pipeline import (
    Factor,
    Figure,
    Finding,
    Measure,
    Method,
    Panel,
    Scale,
    Statistic,
    Streams,
    Study,
    claim,
    claims_in,
    critical,
    verdict,
)
from pipeline.declare.claims import two_sided_level
from studies.claims import Stored, decide, place, smallest
from studies.figures import Axis, Drawing, Plot, constants_of, looks_of, of, rows_of, with_labels
from studies.styles import GRAM_STYLES

Array = np.ndarray
_DELTA, _NOMINAL, _LEVEL = 1e-6, 0.95, 1e-3
_PRIOR = RegressionPrior()
_CHAINS, _BURN_IN, _DRAWS = 2, 200, 150
_LARGEST_AUGMENTED = 100
_THINNING = {2: 20, 6: 160}  # iterations per draw of normal-covariates, by the number of columns
_OWN = {"noise-aware": "normal", "noise-aware-published": "normal", "data-augmentation": "clamped"}
_QUICK = ("normal-covariates", "noise-aware", "noise-aware-published", "data-augmentation", "naive", "non-private")
_EXACT = ("normal-covariates", "normal-covariates-k-norm", "noise-aware", "data-augmentation")
_NOISES: dict[str, tuple[Any, ...]] = {"pure": ("laplace", "k-norm"), "approximate": ("gaussian",)}


def _simulate(n_features: int, cell: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
    """Return the true parameters, Gram matrices by kind of records, and noise by name, for each trial."""
    n, p = cell["n"], n_features + 1
    noises = {name: _noise(name, p, cell["epsilon"]) for name in _NOISES[cell["track"]]}
    kinds = {"own": ("exact", "normal", "clamped"), "clamped": ("clamped",), "heavy-tailed": ("heavy-tailed",)}
    found: dict[str, Any] = {"truth": [], "noises": noises, "n": n, "drawn": {name: [] for name in noises}}
    found["gram"] = {kind: [] for kind in kinds[cell["records"]]}
    for rng in streams.generators():
        mu, psi = _PRIOR.sample(rng, p)
        found["truth"].append(regression_of(mu, psi))
        for name, noise in noises.items():
            found["drawn"][name].append(noise.sample(rng, 1)[0])
        for kind, grams in found["gram"].items():
            if kind in ("exact", "normal"):
                grams.append((simulate_gram if kind == "exact" else normal_statistic)(rng, mu, psi, n))
            else:
                u = rng.standard_normal((n, p)) @ np.linalg.cholesky(psi).T
                u = u / np.sqrt(rng.chisquare(3, (n, 1))) if kind == "heavy-tailed" else u
                z = np.column_stack([np.ones(n), np.clip(mu + u, -1.0, 1.0)])
                grams.append(z.T @ z)
    return found


@lru_cache
def _noise(name: Any, p: int, epsilon: float) -> GramNoise:
    return calibrated_gram_noise(name, p, epsilon, _DELTA if name == "gaussian" else None)


def _evaluate(
    algorithm: str, noise: str, data: Mapping[str, Any], setting: Mapping[str, Any], streams: Streams
) -> dict[str, Any]:
    grams, name = data["gram"], noise or next(iter(data["noises"]))
    grams = grams[_OWN.get(algorithm, "exact") if "exact" in grams else next(iter(grams))]
    method, added = ("naive" if algorithm == "non-private" else algorithm), data["noises"][name]
    thinning = _THINNING[added.p] if method == "normal-covariates" else None
    chains = []
    for gram, drawn, rng in zip(grams, data["drawn"][name], streams.generators(), strict=True):
        release = GramRelease(gram if algorithm == "non-private" else gram + drawn, data["n"], added)
        chains.append(sample_gram(rng, method, release, _PRIOR, _CHAINS, _BURN_IN, _DRAWS, thinning))
    draws, truth = np.stack(chains), np.array(data["truth"])
    rhat, ess = diagnose_chains(np.moveaxis(draws, -1, 1))
    pooled = draws.reshape(len(truth), -1, truth.shape[1])
    low, high = np.quantile(pooled, [0.5 - _NOMINAL / 2, 0.5 + _NOMINAL / 2], axis=1)
    outside = np.maximum(low - truth, 0.0) + np.maximum(truth - high, 0.0)
    return {
        "pit": (pooled < truth[:, None]).mean(axis=1),
        "covered": 1.0 * (outside == 0.0),
        "width": high - low,
        "score": high - low + 2.0 / (1.0 - _NOMINAL) * outside,
        "square": (pooled.mean(axis=1) - truth) ** 2,
        "rhat": rhat,
        "ess": ess,
    }


def _method(algorithm: str, note: str, noise: str = "") -> Method:
    return Method(algorithm + (f"-{noise}" if noise else ""), partial(_evaluate, algorithm, noise), note=note)


_METHODS = (
    _method("normal-covariates", "Exact for unclamped normal records."),
    _method("normal-covariates", "The same with K-norm noise, in the pure track.", "k-norm"),
    _method("noise-aware", "Exact for a normal statistic."),
    _method("noise-aware-published", "The Gibbs steps of Bernstein & Sheldon (2019), without correction."),
    _method("data-augmentation", "Exact for clamped normal records."),
    _method("naive", "Conjugate posterior that ignores the noise."),
    _method("non-private", "Conjugate posterior without noise."),
)


def _p_value(quantiles: Array) -> float:
    """Return the p-value of the Kolmogorov–Smirnov test that quantiles are uniform."""
    from scipy.stats import kstest  # slow import (0.5 s), not needed by `dpstudies list`

    return float(kstest(quantiles, "uniform").pvalue)


def _validate(n_features: int, cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    if cell["n"] < n_features + 3:
        raise ValueError(
            f"n must be at least {n_features + 3} for {n_features} features, got {cell['n']}; use more records"
        )
    name = setting["algorithm"]
    if name == "normal-covariates-k-norm" and (cell["track"] != "pure" or cell["epsilon"] != 1):
        return False
    if name == "data-augmentation":
        return cell["n"] <= _LARGEST_AUGMENTED
    return n_features == 1 or not name.startswith("noise-aware")


def _panel(name: str, n_features: int, n: tuple[int, ...], epsilon: tuple[float, ...], trials: int) -> Panel:
    slopes = [f"slope-{k + 1}" for k in range(n_features)]
    dims = ("component",)
    return Panel(
        name=name,
        meaning=f"regression on {n_features} covariate{'s' if n_features > 1 else ''}, simulated records",
        simulate=partial(_simulate, n_features),
        methods=_METHODS,
        measures=(
            Measure("pit", "posterior quantile of the true parameter", dims=dims),
            Measure("covered", "1 if the central 95 % interval contains the true parameter", dims=dims),
            Measure("width", "width of the central 95 % interval, in half widths of the bounds", dims=dims),
            Measure("score", "interval score of the central 95 % interval", dims=dims),
            Measure("square", "squared error of the posterior mean", dims=dims),
            Measure("rhat", "split R-hat of the chains", dims=dims),
            Measure("ess", "effective sample size of the mean among 300 draws", dims=dims),
        ),
        factors=(
            Factor("n", n, "number of records", "int"),
            Factor("epsilon", epsilon, "privacy loss", unit="nat"),
            Factor("records", ("own", "clamped", "heavy-tailed"), "distribution of the records", "str"),
            Factor("track", ("pure", "approximate"), "kind of guarantee", "str"),
        ),
        outputs=(Factor("component", ("intercept", *slopes, "variance"), "parameter", "str"),),
        trials=trials,
        block_trials=min(trials, 50),
        statistics=(
            Statistic("p", "pit", "p-value of the Kolmogorov-Smirnov test of uniform quantiles", _p_value),
            Statistic("largest", "rhat", "largest split R-hat among the trials", np.max),
        ),
        validate=partial(_validate, n_features),
    )


@claim("own-models-are-calibrated", kind="self-check", min_trials=30)
def own_models_are_calibrated(summaries: Stored) -> Finding:
    """For records of its own joint model, each exact method has uniform posterior quantiles for each parameter, at
    every n, ε and track.
    """
    values = summaries.need("one-feature", algorithm=_EXACT, records=("own",))["pit_p"]
    values = values.sel(algorithm=list(_EXACT), records="own")
    n_tests = int(values.notnull().sum())
    least = smallest(values)
    return verdict(
        bool(least > _LEVEL / n_tests),
        f"The smallest of {n_tests} p-values is {float(least):.2g} ({place(least, values.dims)}); values above "
        f"{_LEVEL / n_tests:.1g} are accepted.",
    )


def _undercovers(summaries: Stored, method: str, n: int, component: str) -> Finding:
    """Judge the statement that intervals from clamped records undercover at ε = 1 on the pure track."""
    where: dict[str, Any] = {"n": n, "epsilon": 1.0, "track": "pure", "records": "clamped", "algorithm": method}
    ds = summaries.need("one-feature", **{name: (value,) for name, value in where.items()})
    one = ds.sel(component=component, **where)
    covered, error = float(one["covered_mean"]), float(one["covered_mcse"])
    width = critical(4) * error
    return decide(
        covered + width < _NOMINAL,
        covered - width > _NOMINAL or (covered >= _NOMINAL and error > 0.0),
        f"{method} covers with probability {covered:.3f} ± {error:.3f}; nominal {_NOMINAL}.",
    )


@claim("naive-undercovers", kind="self-check", min_trials=30, level=two_sided_level(4))
def naive_undercovers(summaries: Stored) -> Finding:
    """Intervals that ignore the noise cover the slope with less than the nominal probability, at n = 100 and ε = 1."""
    return _undercovers(summaries, "naive", 100, "slope-1")


@claim("clamping-belongs-in-the-model", kind="self-check", min_trials=30, level=two_sided_level(4))
def clamping_belongs_in_the_model(summaries: Stored) -> Finding:
    """With many clamped records, normal-covariates, whose model has no bounds, covers the error variance with less than
    the nominal probability, at n = 100,000 and ε = 1.
    """
    return _undercovers(summaries, "normal-covariates", 100_000, "variance")


def _draw(ds: xr.Dataset, measure: str, label: str, log: bool) -> Drawing:
    ds = ds.isel(component=1, epsilon=-1, records=0, track=0)
    return [
        Plot(
            rows_of(with_labels(ds, "algorithm"), "n", "algorithm", y=f"{measure}_mean"),
            Axis("number of records", log=True),
            Axis(label, log=log),
            looks_of(GRAM_STYLES, "algorithm", [ds]),
            ("line", "errors", "points"),
            height=300,
            note=constants_of(ds),
        )
    ]


STUDY = Study(
    name="regression-inference",
    title="Private regression: coefficients with intervals",
    aim="Compare intervals for regression coefficients given a noisy Gram matrix, by coverage and interval score.",
    panels=(
        _panel("one-feature", 1, (10, 100, 1_000, 10_000, 100_000), (0.1, 1.0, 3.0), 100),
        _panel("five-features", 5, (10_000,), (1.0, 3.0), 40),
    ),
    seed=20_261_125,
    claims=claims_in(globals()),
    figures=(
        Figure(
            "coverage",
            "Coverage of the slope",
            "Fraction of intervals that contain the true slope, for records of each method's own model at the largest "
            "ε of the pure track, with bars of two Monte Carlo standard errors. The nominal coverage is 0.95.",
            ("one-feature",),
            of("one-feature", _draw, "covered", "coverage of the slope", False),
        ),
        Figure(
            "interval-score",
            "Interval score of the slope",
            "Mean interval score of the slope, for records of each method's own model at the largest ε of the pure "
            "track, with bars of two Monte Carlo standard errors; smaller is better.",
            ("one-feature",),
            of("one-feature", _draw, "score", "interval score of the slope", True),
        ),
    ),
    quick=Scale(
        trials=30,
        panels=("one-feature",),
        values={
            "n": (100, 100_000),
            "epsilon": (1.0,),
            "track": ("pure",),
            "records": ("own", "clamped"),
            "algorithm": _QUICK,
        },
    ),
)
