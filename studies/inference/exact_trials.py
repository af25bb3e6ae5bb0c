"""Simulated releases, and the inference methods of the study `exact-inference`.

Each block of releases is simulated once for all methods, together with exact posteriors. Posteriors that are finite
mixtures are computed for all releases; others are computed for every 25th release, by inverse transforms, in about 0.05
seconds each. Chains that are too short are replaced by longer ones. All methods return the same measures of
their draws.

The joint distribution of several parameters is tested by the distances of the draws to a random reference point. If a
posterior is exact, the fraction of draws that are nearer to the reference than the true parameter is uniform.

References
----------
Lemos, Coogan, Hezaveh & Perreault-Levasseur, "Sampling-based accuracy testing of posterior estimators for general
inference", ICML 2023: the test of joint coverage (TARP).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from mechanisms.core.chain_diagnostics import diagnose_chains
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.exact_posterior import exact_posterior
from mechanisms.inference.methods import InferenceMethod
from mechanisms.inference.release_model import ReleaseModel
from pipeline import Streams
from studies.inference.noisy_trials import Array, attempt, draw_each, inference_method, locate, release_model
from studies.panels import Values, score_intervals

N_CHAINS, N_BURN_IN, N_DRAWS = 2, 200, 1_000
"""Chains per trial, each started from a draw of the prior; iterations discarded, and draws kept, per chain."""

LARGEST_RHAT, ENOUGH_DRAWS, LONGEST = 1.01, 100, 16
"""Split R-hat below which, and effective sample size from which, chains suffice; largest number of iterations of a
repeated run, as a multiple of those of the first. A run of m times as many keeps every m-th draw."""

_AIM = 400  # effective sample size at which R-hat of independent draws is below 1.01 in nine of ten trials

N_POINTS = 50
"""Number of points, quantiles of the exact posterior, at which distribution functions are compared."""

EXACT_EVERY, TABULATED_EVERY = 25, 5
"""In models with one parameter and real or Poisson records, every 25th trial has an exact posterior; all trials have in
models of counts. Distances to it are computed in every 5th trial only, because its distribution function is slow."""


@dataclass(frozen=True)
class Releases:
    """Data of a block that all methods share.

    Shapes: `theta` and `reference` (trials, p), `noisy` (trials, d), `points` and `exact` (trials, N_POINTS, p), `pit`
    (trials, p). The last three are NaN, and the posterior is None, in trials without an exact posterior; `points` and
    `exact` are NaN in other trials without a tabulated one.
    """

    model: ReleaseModel
    prior: tuple[float, ...]
    theta: Array
    reference: Array
    noisy: Array
    points: Array
    exact: Array
    pit: Array
    posteriors: tuple[Any, ...]

    def trial(self, i: int) -> "Releases":
        """Return the data of one trial."""
        names = "theta", "reference", "noisy", "points", "exact", "pit", "posteriors"
        return replace(self, **{name: getattr(self, name)[i : i + 1] for name in names})


def simulate_releases(family: str, at_zero: bool, cell: Values, streams: Streams) -> Releases:
    """Simulate releases of a model family; with `at_zero`, the release is 0 in every trial."""
    model, prior = release_model(family, cell), cell["prior"]
    every = 1 if model.bounds is None else EXACT_EVERY
    rows = []
    for trial, rng in zip(streams.trials, streams.generators(), strict=True):
        theta = model.entry.draw_parameters(rng, prior, 1)
        y = np.zeros(1) if at_zero else model.draw_release(rng, theta)[0]
        has_exact = trial % every == 0 and not model.entry.has_square
        posterior = exact_posterior(model, prior, y) if has_exact else None
        pit = np.full(theta.size, np.nan)
        points, exact = np.full((2, N_POINTS, theta.size), np.nan)
        if posterior is not None:
            pit = np.atleast_1d(posterior.cdf(theta[0] if theta.size > 1 else theta[0, 0]))
            if trial % TABULATED_EVERY == 0:
                points, exact = _tabulate(rng, posterior)
        reference = model.entry.draw_parameters(rng, prior, 1)[0]
        rows.append((theta[0], reference, y, points, exact, pit, posterior))
    columns: list[Any] = list(zip(*rows, strict=True))
    return Releases(model, prior, *(*map(np.array, columns[:-1]), columns[-1]))


def _tabulate(rng: np.random.Generator, posterior: Any) -> tuple[Array, Array]:
    """Return quantiles of a posterior and its distribution function at these quantiles, both of shape (N_POINTS, p)."""
    draws = posterior.sample(rng, 20 * N_POINTS).reshape(20 * N_POINTS, -1)
    points = np.sort(draws, axis=0)[10::20]
    if points.shape[1] == 1:
        return points, posterior.cdf(points[:, 0])[:, None]
    return points, posterior.cdf(points)


def joint_coverage(draws: Array, theta: Array, reference: Array) -> Array:
    """Return the fraction of draws that are nearer to the reference point than the true parameter.

    Draws have shape (trials, draws, p). The reference points, shape (trials, p), do not depend on the parameters given
    the data. Distances are Euclidean in units of the standard deviations of the draws. The fractions are uniform over
    trials if the draws are from the exact posterior.
    """
    drawn, true = distances(draws, theta, reference)
    return (drawn < true[:, None]).mean(axis=1)


def distances(draws: Array, theta: Array, reference: Array) -> tuple[Array, Array]:
    """Return squared distances of draws, shape (trials, draws), and of parameters, shape (trials,), to a reference."""
    scale = draws.std(axis=1)
    drawn = (((draws - reference[:, None]) / scale[:, None]) ** 2).sum(axis=-1)
    return drawn, (((theta - reference) / scale) ** 2).sum(axis=-1)


def summarise_draws(releases: Releases, draws: Array, pit: Array | None = None) -> dict[str, Any]:
    """Return the measures of independent draws, shape (trials, draws, p), and exact quantiles if given."""
    n_trials, n_draws, p = draws.shape
    theta, ordered = releases.theta, np.sort(draws, axis=1)
    scores = score_intervals(theta, draws.mean(axis=1), *np.quantile(ordered, [0.025, 0.975], axis=1))
    measures = {
        **locate(theta, draws, pit),
        **{name: scores[name] for name in ("covered", "width", "score")},
        "distance": np.full((n_trials, p), np.nan),
        "rhat": np.ones((n_trials, p)),
        "ess": np.full((n_trials, p), float(n_draws)),
    }
    for i in np.flatnonzero(~np.isnan(releases.exact[:, 0, 0])):
        for j in range(p):
            below = np.searchsorted(ordered[i, :, j], releases.points[i, :, j], side="right") / n_draws
            measures["distance"][i, j] = np.abs(below - releases.exact[i, :, j]).max()
    thinning = {"thinning": np.ones(n_trials)}
    if p == 1:
        return {name: value[:, 0] for name, value in measures.items()} | thinning
    mean_width = {"mean_width": measures["width"].mean(axis=1)} if releases.model.family == "multinomial" else {}
    return {**measures, **thinning, **mean_width, "joint": joint_coverage(draws, theta, releases.reference)}


@dataclass(frozen=True)
class Chains:
    """Thinned chains of one trial, shape (chains, draws, p), with their diagnostics, shape (p,)."""

    draws: Array
    rhat: Array
    ess: Array
    thinning: int

    @property
    def suffice(self) -> bool:
        """True if every component has a small split R-hat and enough effective draws."""
        return bool(np.all(self.rhat < LARGEST_RHAT) and np.all(self.ess >= ENOUGH_DRAWS))


def _run_chains(sample: Callable[..., DrawnPosterior], thinning: int) -> Array:
    """Return every `thinning`-th draw of new chains, shape (chains, draws, p)."""
    draws = sample(n_chains=N_CHAINS, n_burn_in=N_BURN_IN * thinning, n_draws=N_DRAWS * thinning).draws
    return draws.reshape(N_CHAINS, N_DRAWS * thinning, -1)[:, thinning - 1 :: thinning]


def lengthen_chains(sample: Callable[..., DrawnPosterior], chains: Chains) -> Chains:
    """Return the given chains if they suffice, and otherwise new chains with more iterations.

    The number of iterations is what the effective sample size of the last chains requires (Talts et al. 2018, Algorithm
    2), up to `LONGEST` times the number of the first chains. The chains of that length may not suffice either. `sample`
    is a function of `n_chains`, `n_burn_in` and `n_draws`.
    """
    while not chains.suffice and chains.thinning < LONGEST:
        needed = math.ceil(_AIM * chains.thinning / max(chains.ess.min(), 1.0))
        thinning = min(max(needed, 2 * chains.thinning), LONGEST)
        draws = _run_chains(sample, thinning)
        chains = Chains(draws, *diagnose_chains(np.moveaxis(draws, -1, 0)), thinning)
    return chains


def sample_each(entry: InferenceMethod, releases: Releases, setting: Values, streams: Streams) -> dict[str, Any]:
    """Sample the posterior of each trial; a failure affects its trial only."""
    p, pairs = releases.theta.shape[1], zip(streams.generators(), releases.noisy, strict=True)
    samplers = [partial(entry.fit, rng, releases.model, releases.prior, y) for rng, y in pairs]
    none = np.zeros((N_CHAINS, N_DRAWS, p))
    first, errors = zip(*(attempt(partial(_run_chains, sampler, 1), none) for sampler in samplers), strict=True)
    diagnostics = diagnose_chains(np.moveaxis(np.stack(first), -1, 1))
    starts = [Chains(*chain, 1) for chain in zip(first, *diagnostics, strict=True)]
    tried = [
        (start, error) if error else attempt(partial(lengthen_chains, sample, start), start)
        for sample, start, error in zip(samplers, starts, errors, strict=True)
    ]
    chains, errors = zip(*tried, strict=True)
    measures = summarise_draws(releases, np.stack([chain.draws.reshape(-1, p) for chain in chains]))
    for measure in ("rhat", "ess", "thinning"):
        measures[measure] = np.array([getattr(chain, measure) for chain in chains], float).reshape(
            measures[measure].shape
        )
    return {**measures, "error": np.array(errors)}


def _exact(entry: InferenceMethod, releases: Releases, setting: Values, streams: Streams) -> dict[str, Any]:
    size = N_CHAINS * N_DRAWS
    pairs = zip(releases.posteriors, streams.generators(), strict=True)
    draws = np.stack([posterior.sample(rng, size).reshape(size, -1) for posterior, rng in pairs])
    return summarise_draws(releases, draws, releases.pit)


def _fit(entry: InferenceMethod, releases: Releases, setting: Values, streams: Streams) -> dict[str, Any]:
    posterior = entry.fit(None, releases.model, releases.prior, releases.noisy)
    draws = draw_each(posterior, streams.generators(), N_CHAINS * N_DRAWS)
    return summarise_draws(releases, draws[..., None], posterior.cdf(releases.theta[:, 0])[:, None])


METHODS = {
    "exact": inference_method("exact", _exact, version=2),
    "gibbs-exact": inference_method("gibbs-exact", sample_each, version=4),
    "data-augmentation": inference_method("data-augmentation", sample_each, version=4),
    "gibbs": inference_method("gibbs", sample_each, version=3),
    "gibbs-collapsed": inference_method("gibbs-collapsed", sample_each, version=3),
    "marginal": inference_method("marginal", _fit, version=2),
}
