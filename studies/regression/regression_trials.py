"""Trials of `studies.regression.regression_inference`: records and noise, and the methods that infer from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
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
from pipeline import Streams
from studies.data.shipped import read_records
from studies.panels import NOMINAL, Values, score_intervals
from studies.regression.regression_claims import DELTA

Array = np.ndarray
_CONJUGATE = ConjugatePrior()
_CHAINS, _BURN_IN, _DRAWS = 2, 200, 150
_PART, _MOST_DRAWS = 200, 10_000  # 18 % of draws are inside for 2 columns, 2 % for 6
NOISES: dict[str, tuple[Any, ...]] = {"pure": ("laplace", "k-norm"), "approximate": ("gaussian",)}
SHIFTED = ("clamped", "heavy-tailed", "outliers", "interval")


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
    tracks: tuple[str, ...] = field(default=tuple(NOISES), kw_only=True)
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


class Trial(NamedTuple):
    """Statistics of one trial, with the true coefficients."""

    truths: Mapping[str, Array]  # by kind of records, true (θ₀, θ, σ²), or those of a regression without privacy
    drawn: Mapping[str, Array]  # noise matrices by noise
    gram: Mapping[str, Array]  # Gram matrices by kind of records
    records: Array | None = None  # clamped; Gram matrices of their partitions in the pure track


class Block(NamedTuple):
    """Trials of a cell, with the noise of its track."""

    n: int
    epsilon: float
    noises: Mapping[str, GramNoise]
    trials: Sequence[Trial]


def simulate_records(n_features: int, cell: Values, streams: Streams) -> Block:
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
        trials.append(Trial({kind: regression_of(mu, psi)}, drawn, {kind: z.T @ z}, kept))
    return Block(n, cell["epsilon"], noises, trials)


def _own_trial(rng: np.random.Generator, cell: Values, noises: Mapping[str, GramNoise]) -> Trial:
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
    return Trial(truths, drawn, gram, z[:, 1:] if cell["track"] == "approximate" else None)


def simulate_ranges(cell: Values, streams: Streams) -> Block:
    """Draw records of one covariate that fill a fraction 1/factor of each range, in its middle or near its end."""
    n, factor, noises = cell["n"], cell["range_factor"], _noises(cell, 2)
    centre, variance = 0.0 if cell["place"] == "middle" else 0.9 * (1.0 - 1.0 / factor), (0.15 / factor) ** 2
    truth, trials = np.array([0.5 * centre, 0.5, variance]), []
    for rng in streams.generators():
        drawn = {name: noise.sample(rng, 1)[0] for name, noise in noises.items()}
        x = centre + rng.uniform(-1.0, 1.0, n) / factor
        y = truth[0] + truth[1] * x + np.sqrt(variance) * rng.normal(size=n)
        z = _with_intercept(np.clip(np.column_stack([x, y]), -1.0, 1.0))
        trials.append(Trial({"ranges": truth}, drawn, {"ranges": z.T @ z}))
    return Block(n, cell["epsilon"], noises, trials)


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


def simulate_releases(columns: str, cell: Values, streams: Streams) -> Block:
    """Return the Gram matrix of a real table, its regression without privacy, and noise, for each release."""
    records = _public_records(cell.get("data", columns))
    z = _with_intercept(records)
    gram = z.T @ z
    n, mean = len(z), gram[0, 1:] / len(z)
    truth, noises = regression_of(mean, gram[1:, 1:] / n - np.outer(mean, mean)), _noises(cell, len(mean))
    trials = [
        Trial(
            {"real": truth}, {name: noise.sample(rng, 1)[0] for name, noise in noises.items()}, {"real": gram}, records
        )
        for rng in streams.generators()
    ]
    return Block(n, cell["epsilon"], noises, trials)


def _noises(cell: Values, p: int) -> dict[str, GramNoise]:
    delta = DELTA if cell["track"] == "approximate" else None
    return {name: calibrated_gram_noise(name, p, cell["epsilon"], delta) for name in NOISES[cell["track"]]}


def _kind(algorithm: Algorithm, trial: Trial) -> str:
    """Return the kind of records that a method analyses: if records are its own, that of its joint model."""
    return algorithm.own_records if "exact" in trial.gram else next(iter(trial.gram))


def evaluate_algorithm(name: str, block: Block, setting: Values, streams: Streams) -> dict[str, Any]:
    """Return the measures of a method, by its name, for the trials of a block."""
    algorithm = ALGORITHMS[name]
    pairs = zip(block.trials, streams.generators(), strict=True)
    draws = np.array([algorithm.draw(algorithm, block, trial, rng) for trial, rng in pairs])  # in C order
    scores = score_draws(draws, np.array([trial.truths[_kind(algorithm, trial)] for trial in block.trials]))
    if algorithm.release is not None:
        constant = np.ptp(draws, axis=(1, 2)) == 0.0  # σ² at the end of its range; the draws are independent
        scores["rhat"][constant], scores["ess"][constant] = 1.0, _CHAINS * _DRAWS
    return scores


def _draw_chains(algorithm: Algorithm, block: Block, trial: Trial, rng: np.random.Generator) -> Array:
    noise = algorithm.noise or next(iter(block.noises))
    added, gram = block.noises[noise], trial.gram[_kind(algorithm, trial)]
    release = GramRelease(gram if algorithm.is_noiseless else gram + trial.drawn[noise], block.n, added)
    is_table = "real" in trial.gram and algorithm.sampler_of_tables
    sampler = algorithm.sampler_of_tables if is_table else algorithm.sampler
    draws = sample_gram(rng, sampler, release, None, _CHAINS, _BURN_IN, _DRAWS, algorithm.thinning)
    return draws[..., : added.p + 1]


def _draw_bootstrap(algorithm: Algorithm, block: Block, trial: Trial, rng: np.random.Generator) -> Array:
    """Return independent draws given a release of a Gram matrix, or of records."""
    method = algorithm.release.calibrated(next(iter(block.noises.values())).p, block.epsilon, DELTA)
    statistic = trial.gram[_kind(algorithm, trial)] if algorithm.release is AdaSSP else trial.records
    release = method.release(rng, statistic)
    return method.bootstrap(rng, release, _CHAINS * _DRAWS).reshape(_CHAINS, _DRAWS, -1)


def _draw_partition(algorithm: Algorithm, block: Block, trial: Trial, rng: np.random.Generator) -> Array:
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


def score_draws(draws: Array, truth: Array) -> dict[str, Any]:
    """Return the measures of draws, shape (trials, chains, draws, components)."""
    rhat, ess = diagnose_chains(np.moveaxis(draws, -1, 1))
    pooled = draws.reshape(len(truth), -1, truth.shape[1])
    low, high = coefficient_intervals(pooled, NOMINAL)
    scores = score_intervals(truth, pooled.mean(axis=1), low, high)
    return {**scores, "pit": (pooled < truth[:, None]).mean(axis=1), "rhat": rhat, "ess": ess}


def is_computed(n_features: int, cell: Values, setting: Values) -> bool:
    """Return True if methods are compared in a cell; raise ValueError for too few records."""
    n, is_shifted = _records_of(cell)
    if n < n_features + 3:
        raise ValueError(f"n must be at least {n_features + 3} for {n_features} features, got {n}; use more records")
    return not is_shifted or cell["epsilon"] == 1.0


def _records_of(cell: Values) -> tuple[int, bool]:
    """Return a number of records, and True if most models exclude them; real tables have far more than 10 records."""
    return cell.get("n", 10_000), cell.get("records") in SHIFTED


def is_supported(name: str, n_features: int, most_records: int | None, cell: Values, setting: Values) -> bool:
    """Return True if a method, by its name, applies to a cell."""
    (n, is_shifted), algorithm = _records_of(cell), ALGORITHMS[name]
    if most_records is not None:
        algorithm = replace(algorithm, most_records=most_records)
    return algorithm.applies(n, n_features, cell["track"], cell["epsilon"], is_shifted)


_CHAIN = partial(Algorithm, draw=_draw_chains)
_EXACT_COVARIATES: dict[str, Any] = {"own_records": "exact", "sampler": "normal-covariates"}
_EXACT_COVARIATES |= {"sampler_of_tables": "normal-covariates-records"}
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
