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

References
----------
Bernstein & Sheldon, "Differentially private Bayesian linear regression", NeurIPS 2019.
Gneiting & Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 102, 2007.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import ndtri

from mechanisms.core.chain_diagnostics import diagnose_chains
from mechanisms.regression.adassp import AdaSSP
from mechanisms.regression.binagg import BinnedRegression
from mechanisms.regression.dp_gd import NoisyDescent
from mechanisms.regression.gram_priors import ConjugatePrior, RegressionPrior
from mechanisms.regression.gram_release import GramNoise, GramRelease, PublicBox, calibrated_gram_noise
from mechanisms.regression.gram_samplers import (
    coefficient_intervals,
    normal_statistic,
    regression_of,
    sample_gram,
    simulate_gram,
)
from mechanisms.regression.partition_quantile import partition_quantile
from pipeline import Factor, Figure, Measure, Method, Panel, Scale, Statistic, Streams, Study
from studies.claims import ks_p_value
from studies.data.shipped import read_records
from studies.figures import Axis, Chart
from studies.panels import NOMINAL, Values, score_intervals
from studies.regression.page_tables import compare_coverage, compare_intervals, compare_ranges
from studies.regression.regression_claims import CLAIMS, DELTA
from studies.styles import GRAM_STYLES

Array = np.ndarray
_CONJUGATE = ConjugatePrior()
_CHAINS, _BURN_IN, _DRAWS = 2, 200, 150
_PART, _MOST_DRAWS = 200, 10_000  # 18 % of draws are inside for 2 columns, 2 % for 6
_NOISES: dict[str, tuple[Any, ...]] = {"pure": ("laplace", "k-norm"), "approximate": ("gaussian",)}
_SIZES = (10, 100, 1_000, 10_000, 100_000)
_SHIFTED = ("clamped", "heavy-tailed", "outliers", "interval")


@dataclass(frozen=True)
class Algorithm:
    """Method of this study: how it draws, the records of its joint model, and the cells to which it applies."""

    note: str
    draw: Callable[..., Array] = field(kw_only=True)  # of an algorithm, a block, a trial and a generator
    version: int = field(default=3, kw_only=True)
    own_records: str = field(default="clamped", kw_only=True)  # records of its joint model
    sampler: str = field(default="", kw_only=True)  # in `mechanisms.regression.gram_samplers.GRAM_METHODS`
    sampler_of_tables: str = field(default="", kw_only=True)  # of the regression of the records of a real table
    thinning: int | None = field(default=None, kw_only=True)  # if another one than that of the sampler
    noise: str | None = field(default=None, kw_only=True)  # by default the first one of the track
    is_noiseless: bool = field(default=False, kw_only=True)
    release: Any = field(default=None, kw_only=True)  # class of releases with a bootstrap
    tracks: tuple[str, ...] = field(default=tuple(_NOISES), kw_only=True)
    epsilons: tuple[float, ...] | None = field(default=None, kw_only=True)  # all by default, and so below
    most_features: int | None = field(default=None, kw_only=True)
    most_shifted_features: int | None = field(default=None, kw_only=True)  # for records that its model excludes
    least_records: int = field(default=0, kw_only=True)
    most_records: int | None = field(default=None, kw_only=True)
    records_divisor: int = field(default=1, kw_only=True)

    def applies(self, n: int, n_features: int, track: str, epsilon: float, is_shifted: bool) -> bool:
        """Return True if the method runs for n records of these features, at ε and in a track."""
        return (
            track in self.tracks
            and (self.epsilons is None or epsilon in self.epsilons)
            and _is_at_most(n_features, self.most_features)
            and not (is_shifted and not _is_at_most(n_features, self.most_shifted_features))
            and n >= self.least_records
            and _is_at_most(n, self.most_records)
            and n % self.records_divisor == 0
        )


def _is_at_most(number: int, limit: int | None) -> bool:
    return limit is None or number <= limit


_LENGTH, _WHOLE, _RINGS = {"length": (0.0, 1.0)}, {"whole_weight": (0.0, 3.0)}, {"rings": (0.0, 30.0)}
_SIZES_OF_SEVEN = {**_LENGTH, "diameter": (0.0, 1.0), "height": (0.0, 0.5), **_WHOLE}
_PARTS_OF_SEVEN = {"shucked_weight": (0.0, 1.5), "viscera_weight": (0.0, 1.0), "shell_weight": (0.0, 1.5)}
_PUBLIC: dict[str, dict[str, tuple[float, float]]] = {
    "abalone": {**_LENGTH, **_WHOLE, **_RINGS},
    "abalone-seven": {**_SIZES_OF_SEVEN, **_PARTS_OF_SEVEN, **_RINGS},
    "adult": {"age": (17.0, 90.0), "education_num": (1.0, 16.0), "hours_per_week": (0.0, 100.0)},
}
"""Table -> columns with ranges that are plausible without looking at the data, the response last."""


@cache
def _public_records(name: str) -> np.ndarray:
    """Return the clamped and scaled records of a table; each process reads it once."""
    ranges = _PUBLIC[name]
    records = read_records(name.split("-")[0])[list(ranges)].to_numpy(dtype=float)
    return PublicBox.of(ranges).scale(records)


class _Trial(NamedTuple):
    truths: Mapping[str, Array]  # by kind of records, true (θ₀, θ, σ²), or those of a regression without privacy
    drawn: Mapping[str, Array]  # noise matrices by noise
    gram: Mapping[str, Array]  # Gram matrices by kind of records
    records: Array | None = None  # clamped; Gram matrices of their partitions in the pure track


class _Block(NamedTuple):
    n: int
    epsilon: float
    noises: Mapping[str, GramNoise]
    trials: Sequence[_Trial]


def _simulate(n_features: int, cell: Values, streams: Streams) -> _Block:
    """Draw moments, noise and records of each trial."""
    n, kind, noises = cell["n"], cell["records"], _noises(cell, n_features + 1)
    trials = []
    for rng in streams.generators():
        if kind == "own":
            trials.append(_own_trial(rng, cell, noises))
            continue
        mu, psi = _moments(rng, n_features + 1, is_inside=kind != "clamped")
        drawn = {name: noise.sample(rng, 1)[0] for name, noise in noises.items()}
        z, kept = _with_intercept(np.clip(_records(rng, kind, mu, psi, n), -1.0, 1.0)), None
        if cell["track"] == "approximate":
            kept = z[:, 1:]
        elif n % _PART == 0:
            blocks = z.reshape(-1, _PART, n_features + 2)
            kept = blocks.swapaxes(1, 2) @ blocks
        trials.append(_Trial({kind: regression_of(mu, psi)}, drawn, {kind: z.T @ z}, kept))
    return _Block(n, cell["epsilon"], noises, trials)


def _own_trial(rng: np.random.Generator, cell: Values, noises: Mapping[str, GramNoise]) -> _Trial:
    """Draw moments from each prior, and statistics of each joint model."""
    n, p = cell["n"], next(iter(noises.values())).p
    (mu, psi), conjugate = RegressionPrior().sample(rng, p), _CONJUGATE.sample(rng, p)
    drawn = {name: noise.sample(rng, 1)[0] for name, noise in noises.items()}
    z = _with_intercept(np.clip(_records(rng, "normal", mu, psi, n), -1.0, 1.0))
    gram = {
        "exact": simulate_gram(rng, mu, psi, n),
        "normal": normal_statistic(rng, mu, psi, n),
        "clamped": z.T @ z,
        "conjugate": normal_statistic(rng, *conjugate, n),
    }
    truths = {**dict.fromkeys(gram, regression_of(mu, psi)), "conjugate": regression_of(*conjugate)}
    return _Trial(truths, drawn, gram, z[:, 1:] if cell["track"] == "approximate" else None)


def _simulate_ranges(cell: Values, streams: Streams) -> _Block:
    """Draw records of one covariate that fill a fraction 1/factor of each range, in its middle or near its end."""
    n, factor, noises = cell["n"], cell["range_factor"], _noises(cell, 2)
    centre, variance = 0.0 if cell["place"] == "middle" else 0.9 * (1.0 - 1.0 / factor), (0.15 / factor) ** 2
    truth, trials = np.array([0.5 * centre, 0.5, variance]), []
    for rng in streams.generators():
        drawn = {name: noise.sample(rng, 1)[0] for name, noise in noises.items()}
        x = centre + rng.uniform(-1.0, 1.0, n) / factor
        y = truth[0] + truth[1] * x + np.sqrt(variance) * rng.normal(size=n)
        z = _with_intercept(np.clip(np.column_stack([x, y]), -1.0, 1.0))
        trials.append(_Trial({"ranges": truth}, drawn, {"ranges": z.T @ z}))
    return _Block(n, cell["epsilon"], noises, trials)


def _with_intercept(records: Array) -> Array:
    return np.column_stack([np.ones(len(records)), records])


def _moments(rng: np.random.Generator, p: int, is_inside: bool) -> tuple[Array, Array]:
    """Return moments from the conjugate prior, or given that three standard deviations are inside the bounds."""
    for _ in range(_MOST_DRAWS):
        mu, psi = _CONJUGATE.sample(rng, p)
        if not is_inside or (np.abs(mu) + 3.0 * np.sqrt(np.diag(psi)) <= 1.0).all():
            return mu, psi
    raise ValueError(f"moments inside the bounds must be found in {_MOST_DRAWS:,} draws, got none; use fewer features")


def _records(rng: np.random.Generator, kind: str, mu: Array, psi: Array, n: int) -> Array:
    """Return records, shape (n, p), before they are clamped."""
    u = rng.standard_normal((n, mu.size))
    if kind == "interval":
        intercept, *slopes, variance = regression_of(mu, psi)
        x = rng.uniform(-1.0, 1.0, (n, mu.size - 1))
        return np.column_stack([x, intercept + x @ slopes + np.sqrt(variance) * u[:, -1]])
    u = mu + u @ np.linalg.cholesky(psi).T / (np.sqrt(rng.chisquare(3, (n, 1))) if kind == "heavy-tailed" else 1.0)
    if kind == "outliers":
        u[:, -1] = np.where(rng.random(n) < 0.05, rng.choice([-1.0, 1.0], n), u[:, -1])
    return u


def _simulate_releases(columns: str, cell: Values, streams: Streams) -> _Block:
    """Return the Gram matrix of a real table, its regression without privacy, and noise, for each release."""
    records = _public_records(cell.get("data", columns))
    z = _with_intercept(records)
    gram = z.T @ z
    n, mean = len(z), gram[0, 1:] / len(z)
    truth, noises = regression_of(mean, gram[1:, 1:] / n - np.outer(mean, mean)), _noises(cell, len(mean))
    trials = [
        _Trial(
            {"real": truth}, {name: noise.sample(rng, 1)[0] for name, noise in noises.items()}, {"real": gram}, records
        )
        for rng in streams.generators()
    ]
    return _Block(n, cell["epsilon"], noises, trials)


def _noises(cell: Values, p: int) -> dict[str, GramNoise]:
    delta = DELTA if cell["track"] == "approximate" else None
    return {name: calibrated_gram_noise(name, p, cell["epsilon"], delta) for name in _NOISES[cell["track"]]}


def _kind(algorithm: Algorithm, trial: _Trial) -> str:
    """Return the kind of records that a method analyses: if records are its own, that of its joint model."""
    return algorithm.own_records if "exact" in trial.gram else next(iter(trial.gram))


def _evaluate(name: str, block: _Block, setting: Values, streams: Streams) -> dict[str, Any]:
    algorithm = ALGORITHMS[name]
    pairs = zip(block.trials, streams.generators(), strict=True)
    draws = np.array([algorithm.draw(algorithm, block, trial, rng) for trial, rng in pairs])  # in C order
    scores = _score(draws, np.array([trial.truths[_kind(algorithm, trial)] for trial in block.trials]))
    if algorithm.release is not None:
        constant = np.ptp(draws, axis=(1, 2)) == 0.0  # σ² at the end of its range; the draws are independent
        scores["rhat"][constant], scores["ess"][constant] = 1.0, _CHAINS * _DRAWS
    return scores


def _draw_chains(algorithm: Algorithm, block: _Block, trial: _Trial, rng: np.random.Generator) -> Array:
    noise = algorithm.noise or next(iter(block.noises))
    added, gram = block.noises[noise], trial.gram[_kind(algorithm, trial)]
    release = GramRelease(gram if algorithm.is_noiseless else gram + trial.drawn[noise], block.n, added)
    is_table = "real" in trial.gram and algorithm.sampler_of_tables
    sampler = algorithm.sampler_of_tables if is_table else algorithm.sampler
    draws = sample_gram(rng, sampler, release, None, _CHAINS, _BURN_IN, _DRAWS, algorithm.thinning)
    return draws[..., : added.p + 1]


def _draw_bootstrap(algorithm: Algorithm, block: _Block, trial: _Trial, rng: np.random.Generator) -> Array:
    """Return independent draws given a release of a Gram matrix, or of records."""
    method = algorithm.release.calibrated(next(iter(block.noises.values())).p, block.epsilon, DELTA)
    statistic = trial.gram[_kind(algorithm, trial)] if algorithm.release is AdaSSP else trial.records
    release = method.release(rng, statistic)
    return method.bootstrap(rng, release, _CHAINS * _DRAWS).reshape(_CHAINS, _DRAWS, -1)


def _draw_partition(algorithm: Algorithm, block: _Block, trial: _Trial, rng: np.random.Generator) -> Array:
    """Return draws of a normal distribution with the released quantiles, for each component."""
    assert trial.records is not None
    means, spreads = _powered_posteriors(trial.records)
    budget, half = block.epsilon / means.shape[1], ndtri(0.5 + NOMINAL / 2)
    split = [budget / 5] * 3  # the scale is shared by both quantiles
    method = partition_quantile("quantile-centred", len(means), sum(split), split, start=2.0**-5, doublings=12)
    components = []
    for mean, spread in zip(means.T, spreads.T, strict=True):
        ends = np.stack([mean - half * spread, mean + half * spread], axis=1)
        low, high = sorted(method.release(rng, ends, spread).values)
        components.append((low + high) / 2 + (high - low) / (2 * half) * rng.standard_normal(_CHAINS * _DRAWS))
    return np.transpose(components).reshape(_CHAINS, _DRAWS, -1)


def _powered_posteriors(parts: Array) -> tuple[Array, Array]:
    """Return means and standard deviations of (θ₀, θ, σ²) given each part, its likelihood raised to the power M."""
    n = _PART * len(parts)
    (kappa, nu, scale), mean = _CONJUGATE.hyperparameters(2), parts[:, 0, 1:] / _PART
    outer = mean[:, :, None] * mean[:, None, :]
    matrix = len(parts) * (parts[:, 1:, 1:] - _PART * outer) + scale * np.eye(2) + kappa * n / (kappa + n) * outer
    slope = matrix[:, 0, 1] / matrix[:, 0, 0]
    variance = (matrix[:, 1, 1] - slope * matrix[:, 0, 1]) / (n + nu)
    means = np.stack([mean[:, 1] - slope * mean[:, 0], slope, variance], axis=1)
    unit = np.stack([1 / n + mean[:, 0] ** 2 / matrix[:, 0, 0], 1 / matrix[:, 0, 0], 2 * variance / n], axis=1)
    return means, np.sqrt(variance[:, None] * unit)


def _score(draws: Array, truth: Array) -> dict[str, Any]:
    """Return the measures of draws, shape (trials, chains, draws, components)."""
    rhat, ess = diagnose_chains(np.moveaxis(draws, -1, 1))
    pooled = draws.reshape(len(truth), -1, truth.shape[1])
    low, high = coefficient_intervals(pooled, NOMINAL)
    scores = score_intervals(truth, pooled.mean(axis=1), low, high)
    return {**scores, "pit": (pooled < truth[:, None]).mean(axis=1), "rhat": rhat, "ess": ess}


def _validate(n_features: int, most_records: int | None, cell: Values, setting: Values) -> bool:
    """Return True if a method applies to a cell; real tables have far more than 10 records."""
    n, is_shifted = cell.get("n", 10_000), cell.get("records") in _SHIFTED
    if n < n_features + 3:
        raise ValueError(f"n must be at least {n_features + 3} for {n_features} features, got {n}; use more records")
    if is_shifted and cell["epsilon"] != 1.0:
        return False
    algorithm = ALGORITHMS[setting["algorithm"]]
    if most_records is not None:
        algorithm = replace(algorithm, most_records=most_records)
    return algorithm.applies(n, n_features, cell["track"], cell["epsilon"], is_shifted)


_CHAIN = partial(Algorithm, draw=_draw_chains)
_EXACT_COVARIATES: dict[str, Any] = {
    "own_records": "exact",
    "sampler": "normal-covariates",
    "sampler_of_tables": "normal-covariates-records",
}
_CONJUGATE_RECORDS: dict[str, Any] = {"own_records": "conjugate", "most_records": 10}  # the claims are about n = 10
_BOOTSTRAP = partial(Algorithm, draw=_draw_bootstrap, version=1, tracks=("approximate",))
ALGORITHMS: dict[str, Algorithm] = {
    "normal-covariates": _CHAIN("Exact for unclamped normal records.", **_EXACT_COVARIATES),
    "normal-covariates-k-norm": _CHAIN(
        "The same with K-norm noise, in the pure track.",
        **_EXACT_COVARIATES,
        noise="k-norm",
        tracks=("pure",),
        epsilons=(1.0,),
        most_shifted_features=1,
    ),
    "noise-aware": _CHAIN(
        "Exact for a normal statistic.", own_records="normal", sampler="noise-aware", thinning=10, most_features=1
    ),
    "noise-aware-published": _CHAIN(
        "The Gibbs steps of Bernstein & Sheldon (2019), with their conjugate prior.",
        own_records="conjugate",
        sampler="noise-aware-published",
        thinning=20,
        most_features=1,
        version=2,
    ),
    "noise-aware-uncorrected": _CHAIN(
        "The conjugate draw without correction; statistics are not redrawn.",
        **_CONJUGATE_RECORDS,
        sampler="noise-aware-uncorrected",
        thinning=10,
    ),
    "noise-aware-redrawn": _CHAIN(
        "Indefinite statistics are redrawn without normaliser; the draw is corrected.",
        **_CONJUGATE_RECORDS,
        sampler="noise-aware-redrawn",
        thinning=10,
    ),
    "data-augmentation": _CHAIN("Exact for clamped normal records.", sampler="data-augmentation", most_records=100),
    "adassp": _BOOTSTRAP("Private ridge regression with a parametric bootstrap, (ε, δ)-DP.", release=AdaSSP),
    "dp-gd": _BOOTSTRAP("Noisy gradient descent with a parametric bootstrap, (ε, δ)-DP.", release=NoisyDescent),
    "binagg": _BOOTSTRAP("Regression on noisy sums in private bins, (ε, δ)-DP.", release=BinnedRegression),
    "partition": Algorithm(
        "Private posterior quantiles from partitions (P2), ε-DP.",
        draw=_draw_partition,
        version=1,
        tracks=("pure",),
        most_features=1,
        least_records=50 * _PART,
        records_divisor=_PART,
    ),
    "naive": _CHAIN("Posterior that ignores the noise.", own_records="exact", sampler="naive"),
    "non-private": _CHAIN("Posterior without noise.", own_records="exact", sampler="naive", is_noiseless=True),
}
"""Methods of the study by name."""


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
    simulate: Callable[[Values, Streams], _Block] | None = None,
    target: str = "true parameter",
    **values: tuple[Any, ...],
) -> Panel:
    values = {"epsilon": (1.0,), "track": tuple(_NOISES), **values}
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
        simulate=simulate or partial(_simulate, n_features),
        methods=tuple(
            Method(name, partial(_evaluate, name), note=algorithm.note, version=algorithm.version)
            for name, algorithm in ALGORITHMS.items()
            if name in kept
        ),
        measures=tuple(
            Measure(name, text, dims=("component",), event=name == "covered") for name, text in measures.items()
        ),
        factors=tuple(Factor(name, values[name], *words) for name, words in _FACTORS.items() if name in values),
        outputs=(Factor("component", components, "parameter", "str"),),
        trials=trials,
        block_trials=min(trials, 50),
        version=4 if "own" in values.get("records", ()) else 2,
        statistics=(
            Statistic("p", "pit", "p-value of the Kolmogorov-Smirnov test of uniform quantiles", ks_p_value),
            Statistic("largest", "rhat", "largest split R-hat among the trials", np.max),
        ),
        validate=partial(_validate, n_features, most_records),
    )


_REAL_TARGET = "estimate without privacy"
_BOOTSTRAPPED = ("adassp", "dp-gd", "binagg")
_ABLATIONS = ("noise-aware-uncorrected", "noise-aware-redrawn")
_OF_ONE_FEATURE = ("noise-aware", "noise-aware-published", *_ABLATIONS)
_ON_REAL = ("normal-covariates", "normal-covariates-k-norm", "naive", *_BOOTSTRAPPED)
PANELS = (
    _panel(
        "calibration", 1, "regression on 1 covariate, records of the models of the methods", 1_000,
        ALGORITHMS.keys() - {*_BOOTSTRAPPED, "partition", "non-private"}, n=_SIZES, records=("own",)),
    _panel(
        "one-feature", 1, "regression on 1 covariate, simulated records", 200, ALGORITHMS.keys() - {*_ABLATIONS},
        n=_SIZES, epsilon=(0.1, 1.0, 3.0), records=("inside", *_SHIFTED)),
    _panel(
        "augmentation", 1, "regression on 1 covariate given 1,000 records of the model of data-augmentation", 200,
        ("data-augmentation",), 1_000, n=(1_000,), records=("own",)),
    _panel(
        "five-features", 5, "regression on 5 correlated covariates, simulated records", 400,
        ALGORITHMS.keys() - {*_OF_ONE_FEATURE, "data-augmentation", "partition"}, n=(10_000,),
        records=("own", "inside", "heavy-tailed")),
    _panel(
        "real-two", 2, "rings on length and weight (abalone), hours on age and education (adult)", 500, _ON_REAL,
        simulate=partial(_simulate_releases, "real-two"), target=_REAL_TARGET,
        data=("abalone", "adult"), epsilon=(0.1, 1.0, 3.0)),
    _panel(
        "ranges", 1, "regression on 1 covariate whose records fill a part of the public ranges", 1_000,
        ("normal-covariates", "noise-aware-published", "naive"), simulate=_simulate_ranges, n=(1_000, 10_000, 100_000),
        range_factor=(1.0, 3.0, 10.0), place=("middle", "end")),
    _panel(
        "abalone-seven", 7, "rings on 7 covariates (abalone)", 500, ("normal-covariates", "naive", *_BOOTSTRAPPED),
        simulate=partial(_simulate_releases, "abalone-seven"), target=_REAL_TARGET),
)  # fmt: skip


def _slope(ds: xr.Dataset) -> xr.Dataset:
    """Return the summary of the slope at ε = 1, or else the largest ε, for the first kind of records and track."""
    ds = ds.isel(component=1, records=0, track=0)
    return ds.sel(epsilon=1.0) if 1.0 in ds["epsilon"].values else ds.isel(epsilon=-1)


def _against_n(measure: str, label: str, log: bool) -> Chart:
    return Chart(
        "one-feature", "n", {"y": f"{measure}_mean"}, "algorithm", GRAM_STYLES, x=Axis("number of records", log=True),
        y=Axis(label, log=log), marks=("line", "errors", "points"), prepare=_slope,
        first=("normal-covariates", "noise-aware-published", "adassp", "naive", "non-private"), height=300,
        with_constants=True)  # fmt: skip


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
            "Fraction of intervals that contain the true slope, for records inside the bounds at ε = 1 on the pure "
            "track, with 95 % intervals of it. The nominal coverage is 0.95.",
            ("one-feature",),
            _against_n("covered", "coverage of the slope", False),
        ),
        Figure(
            "interval-score",
            "Interval score of the slope",
            "Mean interval score of the slope, for records inside the bounds at ε = 1 on the pure track, with bars of "
            "two Monte Carlo standard errors; smaller is better.",
            ("one-feature",),
            _against_n("score", "interval score of the slope", True),
            claims=("k-norm-saves-little-with-one", "posterior-beats-bootstrap", "ignoring-noise-costs"),
        ),
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
            "n": {"calibration": (10,), "one-feature": (100, 1_000, 10_000)},
            "epsilon": {"one-feature": (1.0,), "real-two": (1.0,)},
            "track": {"calibration": ("pure",)},
            "records": {"one-feature": ("inside",)},
            "data": ("abalone",),
        },
    ),
)
