"""Simulation of trials with noisy statistics, and the inference methods of the calibration study.

A block of trials is simulated once for all methods. Each method returns the same measures of its draws and of the
posterior quantile of the true parameter. The methods are documented in `mechanisms.inference`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference.families import FAMILIES
from mechanisms.inference.gibbs import RegionTable, tabulate_regions
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.inference.mmd import mmd2
from mechanisms.inference.naive import ConjugatePosterior
from mechanisms.inference.one_posterior_sample import N_DRAWS as OPS_DRAWS
from mechanisms.inference.one_posterior_sample import OnePosteriorSampling
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.noise import Noise, calibrated_noise
from pipeline import Method, Streams

Array = NDArray[np.float64]

N_DRAWS = 5_000
"""Number of draws kept per chain, and of independent draws per posterior."""

N_BURN_IN = 2_000
"""Number of discarded initial iterations per chain."""

N_CHAINS = 2
"""Number of chains per trial, each started from a draw of the prior."""

N_AUGMENTED, N_AUGMENTED_BURN_IN = 1_000, 500
"""Numbers of kept and of discarded iterations per chain of data augmentation."""

LARGEST_AUGMENTED = 100
"""Largest number of records for data augmentation, whose time per iteration is proportional to it."""

N_RANKED = 99
"""Number of draws among which the true parameter is ranked."""

LARGEST_RHAT = 1.05
"""Split R-hat above which the chains of a trial have not converged."""


@dataclass(frozen=True)
class Trials:
    """Data of a block that all methods share.

    `theta` is the true parameter. The methods receive `statistics`, which are not private, or the private `noisy` or
    `noisy_total`. `reference` contains draws from the non-private posterior.

    Shapes: `theta`, `statistics`, `noisy`, `noisy_total` (trials, d); `reference` (trials, draws, d); `noise_scale`
    (trials,); `bounds` (trials, 2) or None.
    """

    family: str
    prior: tuple[float, ...]
    n: int
    epsilon: float
    own_bounds: bool
    theta: Array
    statistics: Array
    noisy: Array
    noisy_total: Array
    noise_scale: Array
    bounds: Array | None
    reference: Array


def simulate_trials(family: str, own_bounds: bool = False) -> Callable[[Mapping[str, Any], Streams], Trials]:
    """Return a function that simulates trials; with `own_bounds`, the bounds of a trial are multiples of 1/θ."""
    model = FAMILIES[family]

    def simulate(cell: Mapping[str, Any], streams: Streams) -> Trials:
        prior, n, public = cell["prior"], cell["n"], cell.get("bounds")
        columns: dict[str, list[Any]] = {
            name: [] for name in ("theta", "s", "noisy", "total", "scale", "bounds", "ref")
        }
        for rng in streams.generators():
            theta = model.draw_parameters(rng, prior, 1)
            bounds = None if public is None else tuple(np.divide(public, theta[0, 0] if own_bounds else 1.0).tolist())
            released = ReleaseModel(
                family, n, calibrated_noise("laplace", model.sensitivity(bounds), cell["epsilon"]), bounds
            )
            s, truncated = released.draw_sums(rng, theta)
            scale, noise = released.noise.scale, released.noise.sample(rng, s.shape[1:])
            reference = _draw_conjugate(family, model.posterior(prior, s[0], n), rng)
            for name, value in zip(
                columns, (theta[0], s[0], truncated[0] + noise, s[0] + noise, scale, bounds, reference), strict=True
            ):
                columns[name].append(value)
        held = {name: np.array(values) for name, values in columns.items() if name != "bounds"}
        return Trials(
            family,
            prior,
            n,
            cell["epsilon"],
            own_bounds,
            held["theta"],
            held["s"],
            held["noisy"],
            held["total"],
            held["scale"],
            None if public is None else np.array(columns["bounds"]),
            held["ref"],
        )

    return simulate


def _draw_conjugate(family: str, parameters: Array, rng: np.random.Generator, size: int = N_DRAWS) -> Array:
    """Draw θ, shape (size, d), from the conjugate distribution with the given parameters."""
    return FAMILIES[family].draw_parameters(rng, parameters, size)


# Methods


def summarise_draws(trials: Trials, draws: Array, quantile: Array | None = None) -> dict[str, Any]:
    """Return the measures computed from draws, shape (trials, chains, draws, d), and from exact quantiles if given."""
    n_trials, n_chains, n_draws, d = draws.shape
    pooled = draws.reshape(n_trials, n_chains * n_draws, d)
    theta = trials.theta[:, None, :]
    spaced = np.linspace(0, pooled.shape[1] - 1, min(N_RANKED, pooled.shape[1])).astype(int)
    distances = np.stack([mmd2(pooled[..., j], trials.reference[..., j]) for j in range(d)], axis=-1)
    found = {
        "pit": (pooled < theta).mean(axis=1) if quantile is None else quantile,
        "rank": (pooled[:, spaced] < theta).sum(axis=1) * (N_RANKED / len(spaced)),
        "mmd2": distances,
        "rhat": np.full((n_trials, d), np.nan),
        "ess": np.full((n_trials, d), np.nan),
    }
    if n_chains > 1:
        from arviz_stats.base import array_stats  # slow import (1 s), not needed by `dpstudies list`

        chains = np.moveaxis(draws, -1, 1)
        found["rhat"] = array_stats.rhat(chains, chain_axis=-2, draw_axis=-1, method="split")
        found["ess"] = array_stats.ess(chains, chain_axis=-2, draw_axis=-1, method="mean")
    return found if d > 1 else {name: value[:, 0] for name, value in found.items()}


def _release_model(trials: Trials, i: int) -> ReleaseModel:
    bounds = None if trials.bounds is None else tuple(trials.bounds[i].tolist())
    return ReleaseModel(trials.family, trials.n, Noise("laplace", trials.noise_scale[i]), bounds)


def _groups(trials: Trials) -> Iterator[tuple[slice, ReleaseModel]]:
    """Return the slices of trials that share a release model, with their models."""
    size = 1 if trials.own_bounds else len(trials.theta)
    for start in range(0, len(trials.theta), size):
        yield slice(start, start + size), _release_model(trials, start)


def _conjugate(name: str, statistics: Callable[[Trials], Array], note: str = "", is_private: bool = True) -> Method:
    method = INFERENCE_METHODS[name]

    def evaluate(trials: Trials, setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        y = statistics(trials)
        fitted = [method.fit(None, model, trials.prior, y[some]) for some, model in _groups(trials)]
        posterior = ConjugatePosterior(trials.family, np.concatenate([one.parameters for one in fitted]))
        d = trials.theta.shape[1]
        draws = [
            ConjugatePosterior(trials.family, posterior.parameters[i : i + 1]).sample(rng, N_DRAWS)
            for i, rng in enumerate(streams.generators())
        ]
        quantile = posterior.cdf(trials.theta if d > 1 else trials.theta[:, 0])
        return summarise_draws(trials, np.reshape(draws, (len(draws), 1, N_DRAWS, d)), quantile.reshape(len(draws), d))

    return Method(name, evaluate, note=note or method.note, is_private=is_private)


def _own_table(trials: Trials, i: int) -> RegionTable:
    """Return the table of moments for bounds that are multiples of 1/θ: the shifted table of θ = 1."""
    assert trials.bounds is not None
    low, high = trials.bounds[i].tolist()
    theta = trials.theta[i, 0]
    unit = tabulate_regions("exponential", (round(low * theta, 12), round(high * theta, 12)))
    return unit._replace(origin=unit.origin + float(np.log(theta)))


def _sampled(name: str, version: int = 1, n_burn_in: int = N_BURN_IN, n_draws: int = N_DRAWS) -> Method:
    """Return a method that samples the posterior of each trial; a failure affects its trial only."""
    method = INFERENCE_METHODS[name]

    def evaluate(trials: Trials, setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        rows, errors = [], []
        for i, rng in enumerate(streams.generators()):
            run: dict[str, Any] = {"n_chains": N_CHAINS, "n_burn_in": n_burn_in, "n_draws": n_draws}
            if trials.own_bounds and not method.draws_records:
                run["table"] = _own_table(trials, i)
            try:
                rows.append(method.fit(rng, _release_model(trials, i), trials.prior, trials.noisy[i], **run).draws)
                errors.append("")
            except ValueError as error:
                rows.append(np.stack([trials.reference[i]] * N_CHAINS))  # a placeholder, which the pipeline discards
                errors.append(str(error))
        draws = np.stack([row.reshape(*row.shape[:2], -1) for row in rows])
        return {**summarise_draws(trials, draws), "error": np.array(errors)}

    return Method(name, evaluate, version=version, note=method.note)


def _marginal() -> Method:
    method = INFERENCE_METHODS["marginal"]

    def evaluate(trials: Trials, setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        uniforms = np.stack([rng.random(N_DRAWS) for rng in streams.generators()])
        quantiles, draws = [], []
        for some, model in _groups(trials):
            posterior = method.fit(None, model, trials.prior, trials.noisy[some])
            quantiles.append(posterior.cdf(trials.theta[some, 0]))
            draws.append(posterior.from_uniforms(uniforms[some]))
        sampled = np.concatenate(draws)[:, None, :, None]
        return summarise_draws(trials, sampled, np.concatenate(quantiles)[:, None])

    return Method(method.name, evaluate, note=method.note)


def _ops(name: str, tempers_prior: bool) -> Method:
    def evaluate(trials: Trials, setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        mechanism = OnePosteriorSampling(trials.prior, trials.n, trials.epsilon, tempers_prior)
        draws = mechanism.from_uniforms(streams.uniforms(OPS_DRAWS), trials.statistics[:, 0])
        return summarise_draws(trials, draws[:, None, :, None], np.mean(draws < trials.theta, axis=1)[:, None])

    return Method(name, evaluate, note=INFERENCE_METHODS[name].note)


def _exact() -> Method:
    method = INFERENCE_METHODS["exact"]

    def evaluate(trials: Trials, setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        quantiles, draws = [], []
        for i, rng in enumerate(streams.generators()):
            posterior = method.fit(rng, _release_model(trials, i), trials.prior, trials.noisy[i])
            quantiles.append(posterior.cdf(trials.theta[i, 0]))
            draws.append(posterior.sample(rng, N_DRAWS))
        return summarise_draws(trials, np.stack(draws)[:, None, :, None], np.array(quantiles)[:, None])

    return Method(method.name, evaluate, note=method.note)


NON_PRIVATE = _conjugate("non-private", lambda t: t.statistics, is_private=False)
_NAIVE = _conjugate("naive", lambda t: t.noisy)
_GIBBS_EXACT = _sampled("gibbs-exact", version=2)
_AUGMENTATION = _sampled("data-augmentation", 2, N_AUGMENTED_BURN_IN, N_AUGMENTED)

BINOMIAL_METHODS = (
    NON_PRIVATE,
    _NAIVE,
    _ops("ops", tempers_prior=True),
    _ops("ops-likelihood", tempers_prior=False),
    _sampled("gibbs"),
    _marginal(),
    _exact(),
    _GIBBS_EXACT,
    _AUGMENTATION,
)
MULTINOMIAL_METHODS = (NON_PRIVATE, _NAIVE, _sampled("gibbs"), _GIBBS_EXACT, replace(_AUGMENTATION, version=3))
TRUNCATED_METHODS = (
    NON_PRIVATE,
    _conjugate(
        "naive",
        lambda t: t.noisy_total,
        "Not private: as in P4, the noisy sum of all records, with noise calibrated to the truncated sum.",
        is_private=False,
    ),
    _conjugate("naive-truncated", lambda t: t.noisy),
    *(_sampled(name) for name in ("gibbs", "gibbs-collapsed", "gibbs-published")),
    _marginal(),
    replace(_AUGMENTATION, version=4),
)
