"""Simulation of trials with noisy statistics, and the inference methods of the calibration study.

A block of trials is simulated once for all methods. Each method returns the same measures of its draws and of the
posterior quantile of the true parameter. The methods are documented in `mechanisms.inference`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.core.noise import Noise, calibrated_noise
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.gibbs import RegionTable, tabulate_regions
from mechanisms.inference.methods import INFERENCE_METHODS, InferenceMethod
from mechanisms.inference.mmd import mmd2
from mechanisms.inference.naive import ConjugatePosterior
from mechanisms.inference.one_posterior_sample import N_DRAWS as OPS_DRAWS
from mechanisms.inference.one_posterior_sample import OnePosteriorSampling
from mechanisms.inference.release_model import ReleaseModel
from pipeline import Method, Streams
from studies.panels import Values, method_of

Array = NDArray[np.float64]

N_CHAINS, N_BURN_IN, N_DRAWS = 2, 2_000, 5_000
"""Chains per trial, each started from a draw of the prior; iterations discarded, and draws kept, per chain. Posteriors
with independent draws have `N_DRAWS` of them."""

LARGEST_AUGMENTED = 100
"""Largest number of records for data augmentation, whose time per iteration is proportional to it."""

N_RANKED = 99
"""Number of draws among which the true parameter is ranked."""

LARGEST_RHAT = 1.05
"""Split R-hat above which the chains of a trial have not converged."""


@dataclass(frozen=True)
class NoisyTrials:
    """Data of a block that all methods share.

    `theta` is the true parameter. The methods receive `statistics`, which are not private, or the private `noisy` or
    `noisy_total`; these have shape (trials, d). `reference`, shape (trials, draws, d), contains draws from the
    non-private posterior. All trials have one release model, unless they have their own bounds.
    """

    prior: tuple[float, ...]
    epsilon: float
    own_bounds: bool
    models: tuple[ReleaseModel, ...]
    theta: Array
    statistics: Array
    noisy: Array
    noisy_total: Array
    reference: Array

    def trial(self, i: int) -> "NoisyTrials":
        """Return the data of one trial."""
        rows = {name: getattr(self, name)[i : i + 1] for name in ("theta", "statistics", "noisy", "noisy_total")}
        return replace(self, models=self.models[i : i + 1], reference=self.reference[i : i + 1], **rows)

    def groups(self) -> Iterator[tuple[slice, ReleaseModel]]:
        """Yield the slices of trials that share a release model, with their models."""
        size = 1 if self.own_bounds else len(self.models)
        for start in range(0, len(self.models), size):
            yield slice(start, start + size), self.models[start]


def release_model(family: str, cell: Values) -> ReleaseModel:
    """Return the release model for a cell, with noise calibrated to its sensitivity."""
    name, bounds, outside = cell.get("noise", "laplace"), cell.get("bounds"), cell.get("outside", "drop")
    sensitivity = ReleaseModel(family, cell["n"], Noise(name, 1.0), bounds, outside).sensitivity()
    return ReleaseModel(family, cell["n"], calibrated_noise(name, sensitivity, cell["epsilon"]), bounds, outside)


def simulate_trials(family: str, own_bounds: bool, cell: Values, streams: Streams) -> NoisyTrials:
    """Simulate trials; with `own_bounds`, the bounds of a trial are multiples of 1/θ."""
    model, prior, n, public = FAMILIES[family], cell["prior"], cell["n"], cell.get("bounds")
    rows = []
    for rng in streams.generators():
        theta = model.draw_parameters(rng, prior, 1)
        bounds = None if public is None else tuple(np.divide(public, theta[0, 0] if own_bounds else 1.0).tolist())
        release = release_model(family, {**cell, "bounds": bounds})
        s, truncated = release.draw_sums(rng, theta)
        noise = release.noise.sample(rng, s.shape[1:])
        reference = model.draw_parameters(rng, model.posterior(prior, s[0], n), N_DRAWS)
        rows.append((release, theta[0], s[0], truncated[0] + noise, s[0] + noise, reference))
    models, *columns = zip(*rows, strict=True)
    return NoisyTrials(prior, cell["epsilon"], own_bounds, models, *map(np.array, columns))


def locate(theta: Array, draws: Array, quantile: Array | None) -> dict[str, Array]:
    """Return the given quantile of θ, or the fraction of smaller draws, and its rank among equally spaced draws."""
    below = draws < theta[:, None]
    spaced = np.linspace(0, draws.shape[1] - 1, N_RANKED).astype(int)
    return {
        "pit": below.mean(axis=1) if quantile is None else quantile,
        "rank": below[:, spaced].sum(axis=1).astype(float),
    }


def summarise_draws(trials: NoisyTrials, draws: Array, quantile: Array | None = None) -> dict[str, Any]:
    """Return the measures computed from draws, shape (trials, chains, draws, d), and from exact quantiles if given."""
    n_trials, n_chains, n_draws, d = draws.shape
    pooled = draws.reshape(n_trials, n_chains * n_draws, d)
    measures = locate(trials.theta, pooled, quantile)
    measures["mmd2"] = np.stack([mmd2(pooled[..., j], trials.reference[..., j]) for j in range(d)], axis=-1)
    measures["rhat"], measures["ess"] = np.full((2, n_trials, d), np.nan)
    if n_chains > 1:
        from arviz_stats.base import array_stats  # slow import (1 s), not needed by `dpstudies list`

        chains = np.moveaxis(draws, -1, 1)
        measures["rhat"] = array_stats.rhat(chains, chain_axis=-2, draw_axis=-1, method="split")
        measures["ess"] = array_stats.ess(chains, chain_axis=-2, draw_axis=-1, method="mean")
    return measures if d > 1 else {name: value[:, 0] for name, value in measures.items()}


def draw_each(posterior: Any, rngs: Iterable[np.random.Generator], size: int) -> Array:
    """Return independent draws from the posterior of each of several trials, by their own generators."""
    if isinstance(posterior, ConjugatePosterior):
        rows = (replace(posterior, parameters=row[None]) for row in posterior.parameters)
        return np.concatenate([posterior.sample(rng, size) for posterior, rng in zip(rows, rngs, strict=True)])
    return posterior.from_uniforms(np.stack([rng.random(size) for rng in rngs]))


def _fit(
    entry: InferenceMethod, trials: NoisyTrials, setting: Values, streams: Streams, release: str = "noisy"
) -> dict[str, Any]:
    """Fit all trials with one release model at once, given the statistics named `release`, and draw independently."""
    y, (n_trials, d), rngs = getattr(trials, release), trials.theta.shape, list(streams.generators())
    quantiles, draws = [], []
    for rows, model in trials.groups():
        posterior = entry.fit(None, model, trials.prior, y[rows])
        quantiles.append(posterior.cdf(trials.theta[rows] if d > 1 else trials.theta[rows, 0]))
        draws.append(draw_each(posterior, rngs[rows], N_DRAWS))
    sampled = np.concatenate(draws).reshape(n_trials, 1, N_DRAWS, d)
    return summarise_draws(trials, sampled, np.concatenate(quantiles).reshape(n_trials, d))


def attempt(run: Callable[[], Any], other: Any) -> tuple[Any, str]:
    """Return the result and no error, or a placeholder, which the pipeline discards, and the error of the trial."""
    try:
        return run(), ""
    except ValueError as error:
        return other, str(error)


def _own_table(model: ReleaseModel, theta: float) -> RegionTable:
    """Return the table of moments for bounds that are multiples of 1/θ: the shifted table of θ = 1."""
    assert model.bounds is not None
    low, high = (round(bound * theta, 12) for bound in model.bounds)
    unit = tabulate_regions("exponential", (low, high))
    return unit._replace(origin=unit.origin + float(np.log(theta)))


def _sample(
    entry: InferenceMethod,
    trials: NoisyTrials,
    setting: Values,
    streams: Streams,
    n_burn_in: int = N_BURN_IN,
    n_draws: int = N_DRAWS,
) -> dict[str, Any]:
    """Sample the posterior of each trial; a failure affects its trial only."""

    def draw(i: int, rng: np.random.Generator) -> Array:
        run: dict[str, Any] = {"n_chains": N_CHAINS, "n_burn_in": n_burn_in, "n_draws": n_draws}
        if trials.own_bounds and not entry.draws_records:
            run["table"] = _own_table(trials.models[i], float(trials.theta[i, 0]))
        draws = entry.fit(rng, trials.models[i], trials.prior, trials.noisy[i], **run).draws
        return draws.reshape(N_CHAINS, n_draws, -1)

    others = (np.stack([draws[:n_draws]] * N_CHAINS) for draws in trials.reference)
    rngs = enumerate(streams.generators())
    tried = [attempt(partial(draw, i, rng), other) for (i, rng), other in zip(rngs, others, strict=True)]
    rows, errors = zip(*tried, strict=True)
    return {**summarise_draws(trials, np.stack(rows)), "error": np.array(errors)}


def _ops(entry: InferenceMethod, trials: NoisyTrials, setting: Values, streams: Streams) -> dict[str, Any]:
    mechanism = OnePosteriorSampling(trials.prior, trials.models[0].n, trials.epsilon, entry.name == "ops")
    draws = mechanism.from_uniforms(streams.uniforms(OPS_DRAWS), trials.statistics[:, 0])
    return summarise_draws(trials, draws[:, None, :, None])


def _exact(entry: InferenceMethod, trials: NoisyTrials, setting: Values, streams: Streams) -> dict[str, Any]:
    quantiles, draws = [], []
    for rng, model, y, theta in zip(streams.generators(), trials.models, trials.noisy, trials.theta[:, 0], strict=True):
        posterior = entry.fit(rng, model, trials.prior, y)
        quantiles.append(posterior.cdf(theta))
        draws.append(posterior.sample(rng, N_DRAWS))
    return summarise_draws(trials, np.stack(draws)[:, None, :, None], np.array(quantiles)[:, None])


def inference_method(name: str, evaluate: Callable[..., dict[str, Any]] = _sample, **options: Any) -> Method:
    """Return a method of the registry; `evaluate` takes its entry, the data, the setting and the streams."""
    return method_of(INFERENCE_METHODS[name], evaluate, **options)


_NON_PRIVATE = inference_method("non-private", partial(_fit, release="statistics"))
_NAIVE, _MARGINAL = inference_method("naive", _fit), inference_method("marginal", _fit)
_GIBBS_EXACT = inference_method("gibbs-exact", version=2)
_AUGMENTATION = inference_method("data-augmentation", partial(_sample, n_burn_in=500, n_draws=1_000), version=2)
_TOTAL = "Not private: as in P4, the noisy sum of all records, with noise calibrated to the truncated sum."

METHODS: dict[str, tuple[Method, ...]] = {
    "binomial": (
        _NON_PRIVATE,
        _NAIVE,
        inference_method("ops", _ops),
        inference_method("ops-likelihood", _ops),
        inference_method("gibbs"),
        _MARGINAL,
        inference_method("exact", _exact),
        _GIBBS_EXACT,
        _AUGMENTATION,
    ),
    "multinomial": (_NON_PRIVATE, _NAIVE, inference_method("gibbs"), _GIBBS_EXACT, replace(_AUGMENTATION, version=3)),
    "exponential": (
        _NON_PRIVATE,
        inference_method("naive", partial(_fit, release="noisy_total"), note=_TOTAL, is_private=False),
        inference_method("naive-truncated", _fit),
        *map(inference_method, ("gibbs", "gibbs-collapsed", "gibbs-published")),
        _MARGINAL,
        replace(_AUGMENTATION, version=4),
    ),
}
"""Methods by family."""
