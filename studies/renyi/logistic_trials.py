"""Trials of private Bayesian logistic regression: one draw of the weights per trial, or several published draws.

Trials with the same setting and records are divided into groups of `N_GROUPED`. A group takes its draws from one set of
chains, so that the search for the mode and the burn-in are run once per group. Successive draws from a chain are many
autocorrelation times apart and are treated as independent. The group of a trial depends on its index only.

**Published draws.** Everything that one trial publishes is (ε, δ)-DP together. The quality of the published draws is
their energy distance to the posterior without privacy, divided by the mean distance of two draws from it: k independent
exact draws have the expectation 1/k. With published draws X and posterior draws Y it is

    (2·E‖X − Y‖ − E‖X − X'‖ − E‖Y − Y'‖)/E‖Y − Y'‖,

where X and X' are drawn with replacement from the published draws. Of chains, states before the convergence that the
contraction implies, or before half of the steps, are left out, and at most 200 of the others are used.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.spatial.distance import cdist
from scipy.special import expit, log_expit

from mechanisms.core.conversions import concentrated_epsilon, gaussian_epsilon, gaussian_mu
from mechanisms.draws.chains import GLM_CHAINS, private_chain
from mechanisms.draws.glm_mechanisms import GlmMechanism, GlmMethod, glm_mechanism
from mechanisms.draws.glm_sampling import STEPS_PER_PRODUCT, laplace_approximation, sample_glm
from mechanisms.draws.langevin import LangevinChain, forecast_draws, langevin_chain, plan_intervals, published_langevin
from mechanisms.draws.penalty import log_likelihoods
from pipeline import Streams
from studies.data import Classification, Table, load, split
from studies.panels import Values

Array = NDArray[np.float64]

N_GROUPED = 25
"""Number of trials on the same records that share a set of chains."""

LARGEST_RHAT = 1.01
"""Split R-hat below which chains have converged, for the log posterior and random projections of the weights."""

LEAST_ESS = 400
"""Smallest accepted bulk effective sample size of a set of chains, for the same quantities."""

LABELS = {
    "abalone": "Abalone, fewer than 10 rings",
    "adult": "Adult, income above 50K",
    "mnist": "MNIST, digit 8 against 3",
}
"""Data sets of P3, with the class that is predicted."""

_N_CHAINS = 5
_N_PROJECTIONS = 10
_N_BURN_IN = 8 * STEPS_PER_PRODUCT
_FIRST_STEPS = 50 * STEPS_PER_PRODUCT
_MOST_STEPS = 64 * _FIRST_STEPS


@dataclass(frozen=True)
class Group:
    """Consecutive trials that share records and chains."""

    data: Classification
    trials: range


@dataclass(frozen=True)
class Sampled:
    """Draws from one set of chains, with convergence diagnostics."""

    weights: Array  # shape (draws, d)
    rhat: float  # largest split R-hat over all monitored quantities
    ess: float  # smallest bulk effective sample size over them
    n_steps: int  # per chain, over which the diagnostics were computed

    @property
    def problem(self) -> str:
        """Error message if the chains did not converge, otherwise the empty string."""
        if self.rhat < LARGEST_RHAT and self.ess >= LEAST_ESS:
            return ""
        return (
            f"the chains did not converge in {self.n_steps:,} steps: split R-hat must be < {LARGEST_RHAT}, got "
            f"{self.rhat:.3f}, and effective sample size >= {LEAST_ESS}, got {self.ess:.0f}; increase beta"
        )


def draw_weights(rng: np.random.Generator, data: Classification, mechanism: GlmMechanism, n_draws: int) -> Sampled:
    """Run chains until they converge, and return widely spaced draws from the last run.

    Each run is twice as long as the previous one, which is discarded as burn-in. `rng` is used by these chains only.
    Only the training records are used. Draws are taken from the chains in turn.
    """
    X, y = data.train_x, data.train_y.astype(np.float64)
    approximation = laplace_approximation(X, y, mechanism)
    projections = rng.standard_normal((X.shape[1], _N_PROJECTIONS))
    last = sample_glm(rng, X, y, mechanism, approximation, _N_BURN_IN, n_chains=_N_CHAINS).weights[:, -1]
    n_steps = _FIRST_STEPS
    while True:
        monitored = np.empty((1 + _N_PROJECTIONS, _N_CHAINS, n_steps))
        taken = n_steps * np.arange(1, 1 + -(-n_draws // _N_CHAINS)) // -(-n_draws // _N_CHAINS) - 1
        kept = []
        for first in range(0, n_steps, _FIRST_STEPS):  # the draws of a whole run would not fit into memory
            draws = sample_glm(rng, X, y, mechanism, approximation, _FIRST_STEPS, n_chains=_N_CHAINS, start=last)
            last = draws.weights[:, -1]
            monitored[0, :, first : first + _FIRST_STEPS] = draws.log_density
            monitored[1:, :, first : first + _FIRST_STEPS] = np.moveaxis(draws.weights @ projections, -1, 0)
            here = taken[(taken >= first) & (taken < first + _FIRST_STEPS)] - first
            kept.append(np.moveaxis(draws.weights[:, here], 1, 0))
        rhat, ess = _diagnose(monitored)
        sampled = Sampled(np.concatenate(kept).reshape(-1, X.shape[1])[:n_draws], rhat, ess, n_steps)
        if not sampled.problem or n_steps >= _MOST_STEPS:
            return sampled
        n_steps *= 2


def _diagnose(monitored: Array) -> tuple[float, float]:
    """Return the largest split R-hat and the smallest bulk ESS of quantities with shape (quantity, chain, step)."""
    from arviz_stats.base import array_stats  # slow import (1 s), not needed by `dpstudies list`

    rhat = array_stats.rhat(monitored, chain_axis=-2, draw_axis=-1, method="split")
    ess = array_stats.ess(monitored, chain_axis=-2, draw_axis=-1, method="bulk")
    return float(np.max(rhat)), float(np.min(ess))


split_once = lru_cache(maxsize=4)(split)
"""Function that splits a table once per process."""


def group_trials(table: Table, streams: Streams, size: int = N_GROUPED) -> list[Group]:
    """Return the complete groups of `size` trials that contain the trials of `streams`, on the fixed split."""
    first = streams.trials.start - streams.trials.start % size
    data = split_once(table)
    return [Group(data, range(start, start + size)) for start in range(first, streams.trials.stop, size)]


def simulate_fixed(name: str, size: int = N_GROUPED) -> Callable[[Values, Streams], list[Group]]:
    """Return a function that groups trials on the fixed split of one of the data sets of P3."""
    return lambda cell, streams: group_trials(load(name), streams, size)


def evaluate_draws(method: GlmMethod, groups: list[Group], setting: Values, streams: Streams) -> dict[str, Any]:
    """Return the measures of one mechanism; the setting contains ``beta`` and what the mechanism uses."""
    rows: list[tuple[Any, ...]] = []
    for group in groups:
        mechanism = make_mechanism(method.name, len(group.data.train_y), setting)
        rng = next(streams.single(group.trials.start).generators())
        sampled = draw_weights(rng, group.data, mechanism, len(group.trials))
        scores = zip(group.trials, *score_draw(sampled.weights, group.data), strict=True)
        same = sampled.rhat, sampled.ess, sampled.problem
        rows += [(error, nll, *same) for trial, error, nll in scores if trial in streams.trials]
    data = groups[0].data
    n_train, n_columns = data.train_x.shape
    measures = by_measure(("test_error", "test_nll", "rhat", "ess", "error"), rows)
    return {**measures, "n_train": n_train, "n_columns": n_columns, "data_digest": int(data.digest[:15], 16)}


def by_measure(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the values of each measure, given one row of values per trial."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def make_mechanism(name: str, n: int, setting: Values) -> GlmMechanism:
    """Return a mechanism; unused parameters are set to 1."""
    return glm_mechanism(name, n, setting["beta"], setting.get("order", 1.0), setting.get("epsilon", 1.0))


def score_draw(weights: Array, data: Classification) -> tuple[Array, Array]:
    """Return the test error of each draw, and its mean negative log-likelihood on the test records."""
    predictors = weights @ data.test_x.T
    signs = np.where(data.test_y > 0, 1.0, -1.0)
    wrong = (predictors > 0) != (data.test_y > 0)
    return wrong.mean(axis=1), -log_expit(predictors * signs).mean(axis=1)


# Published draws

SPLITS = {"glm-gdp-4": 4, "glm-gdp-16": 16}
"""Name -> number of exact draws among which the budget is divided equally."""

MECHANISMS = ("glm-concentrated", "glm-diffused", "glm-gdp", *SPLITS, *GLM_CHAINS, "true-posterior")

_N_REFERENCE = 400
_MOST_KEPT = 200
_SEED = 20_240_708
_ENDS = ((1.0 - 0.95) / 2.0, (1.0 + 0.95) / 2.0)  # of central 95 % intervals
_NODES = np.linspace(-6.0, 6.0, 41)  # of a grid in two dimensions, in standard deviations


def exact_target(name: str, n: int, setting: Values) -> tuple[GlmMechanism, int]:
    """Return the target of exact draws, and the number of published draws, for a budget (ε, δ).

    ``glm-diffused`` and ``glm-concentrated`` satisfy ρ-zCDP, with the largest ρ that implies (ε, δ)-DP at the best
    order; at order 1, their Rényi guarantee has ε = ρ.
    """
    beta, epsilon, delta = setting["beta"], setting.get("epsilon", 1.0), setting["delta"]
    if name in SPLITS:
        share = gaussian_epsilon(gaussian_mu(epsilon, delta) / math.sqrt(SPLITS[name]), delta)
        return glm_mechanism("glm-gdp", n, beta, 1.0, share, delta=delta), SPLITS[name]
    if name in ("glm-diffused", "glm-concentrated"):
        epsilon = _largest_rho(epsilon, delta)
    return glm_mechanism(name, n, beta, 1.0, epsilon, delta=delta), 1


@lru_cache(maxsize=64)  # one number per entry, for all trials
def _largest_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ for which ρ-zCDP implies (ε, δ)-DP, within a relative 1e-9."""
    low, high = epsilon**2 / (64.0 * math.log(1.0 / delta) + 64.0 * epsilon), epsilon + 1.0
    log_rho = brentq(lambda x: concentrated_epsilon(math.exp(x), delta) - epsilon, math.log(low), math.log(high))
    return math.exp(log_rho) * (1.0 - 1e-9)


def _publish(rng: np.random.Generator, name: str, group: Group, setting: Values) -> tuple[Array, str]:
    """Return published draws used by all trials of a group, shape (trials, k, d), and the error message if any."""
    data = group.data
    n, d = data.train_x.shape
    if name in GLM_CHAINS:
        chain = private_chain(name, n, d, setting["beta"], setting["epsilon"], setting["delta"])
        return _states(rng, chain, data.train_x, data.train_y, len(group.trials)), ""
    target, size = exact_target(name, n, setting)
    sampled = draw_weights(rng, data, target, size * len(group.trials))
    return sampled.weights.reshape(len(group.trials), size, d), sampled.problem


def _states(rng: np.random.Generator, chain: Any, design: Array, labels: Array, n_chains: int) -> Array:
    """Return the states that are used as draws, shape (n_chains, k, d), evenly spaced from the end."""
    burn_in = chain.n_steps // 2
    if isinstance(chain, LangevinChain):
        burn_in = min(burn_in, math.ceil(math.log(0.01) / math.log1p(-chain.gap)))
    every = max(1, math.ceil((chain.n_steps - burn_in) / _MOST_KEPT))
    states = chain.sample(rng, design, labels.astype(np.float64), n_chains, every=every)
    return states[:, min(burn_in // every, states.shape[1] - 1) :]


@lru_cache(maxsize=4)
def _reference(data: Classification, beta: float) -> Array:
    """Return draws from the posterior without privacy; they are the same in all trials."""
    target = glm_mechanism("true-posterior", len(data.train_y), beta, 1.0, 1.0)
    return draw_weights(np.random.Generator(np.random.PCG64DXSM(_SEED)), data, target, _N_REFERENCE).weights


def relative_energy(draws: Array, reference: Array) -> float:
    """Return the energy distance of the draws, shape (k, d), to the reference, over that of one exact draw."""
    spread = cdist(reference, reference).sum() / (len(reference) * (len(reference) - 1))
    return float((2.0 * cdist(draws, reference).mean() - cdist(draws, draws).mean() - spread) / spread)


def forecasts(n: int, d: int, setting: Values) -> dict[str, float]:
    """Return public forecasts for a chain of small steps, which hold for any records."""
    kappa, mu = n * setting["beta"], gaussian_mu(setting.get("epsilon", 1.0), setting["delta"])
    least, most, total = forecast_draws([kappa, kappa + n / (4.0 * d), n / 4.0], mu)
    return {"least_draws": least, "mean_draws": most, "total_draws": total}


def evaluate_published(name: str, groups: list[Group], setting: Values, streams: Streams) -> dict[str, Any]:
    """Return the measures of one method on real records for the trials of `streams`."""
    rows: list[tuple[Any, ...]] = []
    data = groups[0].data
    for group in groups:
        rng = next(streams.single(group.trials.start).generators())
        published, problem = _publish(rng, name, group, setting)
        for trial, draws in zip(group.trials, published, strict=True):
            if trial in streams.trials:
                rows.append((*score_published(draws, data, setting["beta"]), problem))
    measures = by_measure((*OF_PUBLISHED, "error"), rows)
    return {**measures, **forecasts(len(data.train_y), data.train_x.shape[1], setting)}


OF_PUBLISHED = "test_error", "test_nll", "energy", "n_used"
"""Measures that `score_published` returns."""


def score_published(draws: Array, data: Classification, beta: float) -> tuple[float, float, float, int]:
    """Return test error, log loss, relative energy distance and number of published draws, shape (k, d)."""
    signs = np.where(data.test_y > 0, 1.0, -1.0)
    right = expit((draws @ data.test_x.T) * signs).mean(axis=0)  # predictive probability of the true label
    nll = -log_expit((draws @ data.test_x.T) * signs)
    wrong = np.where(data.test_y > 0, right <= 0.5, right < 0.5)  # weights of 0 predict class 0
    loss = float(np.mean(-np.log(right)) if len(draws) > 1 else nll.mean())
    return float(wrong.mean()), loss, relative_energy(draws, _reference(data, beta)), len(draws)


# Simulated records in two dimensions


@dataclass(frozen=True)
class Simulated:
    """Records of one trial, with the true weights and draws from the exact posterior."""

    design: Array
    labels: Array
    weights: Array
    reference: Array
    beta: float  # prior precision per record


def simulate_records(cell: Values, streams: Streams) -> list[Simulated]:
    """Draw weights from the prior, and records with directions that are uniform on the unit circle."""
    simulated = []
    for rng in streams.generators():
        n = cell["n"]
        angles = 2.0 * math.pi * rng.random(n)
        X = np.column_stack([np.cos(angles), np.sin(angles)])
        weights = rng.standard_normal(2) / math.sqrt(n * cell["beta"])
        y = (rng.random(n) < expit(X @ weights)).astype(np.float64)
        target = glm_mechanism("true-posterior", n, cell["beta"], 1.0, 1.0)
        simulated.append(Simulated(X, y, weights, grid_draws(rng, X, y, target, _N_REFERENCE), cell["beta"]))
    return simulated


def grid_draws(rng: np.random.Generator, design: Array, labels: Array, target: GlmMechanism, size: int) -> Array:
    """Return independent draws from a posterior in two dimensions, uniform within the cells of a grid."""
    centre, cells, probabilities = grid_posterior(design, labels, target)
    chosen = cells[rng.choice(len(cells), size, p=probabilities)]
    jitter = (rng.random((size, 2)) - 0.5) * (_NODES[1] - _NODES[0])
    return centre.mean + (chosen + jitter) @ centre.factor.T


def grid_posterior(design: Array, labels: Array, target: GlmMechanism) -> tuple[Any, Array, Array]:
    """Return the normal approximation, nodes of a grid in its coordinates, and their posterior probabilities."""
    centre = laplace_approximation(design, labels, target)
    cells = np.stack(np.meshgrid(_NODES, _NODES), axis=-1).reshape(-1, 2)
    weights = centre.mean + cells @ centre.factor.T
    signed = (2.0 * labels - 1.0)[:, None] * design
    log_density = target.power * log_likelihoods(signed, weights)
    log_density -= 0.5 * target.precision * np.square(weights).sum(axis=1)
    density = np.exp(log_density - log_density.max())
    return centre, cells, density / density.sum()


def evaluate_simulated(name: str, records: Sequence[Simulated], setting: Values, streams: Streams) -> dict[str, Any]:
    """Return the measures of one method on simulated records; intervals are quantiles of published draws."""
    rows = []
    n, setting = len(records[0].labels), {**setting, "beta": records[0].beta}
    for record, rng in zip(records, streams.generators(), strict=True):
        if name in GLM_CHAINS:
            chain = private_chain(name, n, 2, setting["beta"], setting["epsilon"], setting["delta"])
            draws = _states(rng, chain, record.design, record.labels, 1)[0]
        else:
            draws = grid_draws(rng, record.design, record.labels, *exact_target(name, n, setting))
        rows.append(score_simulated(draws, record))
    return {**by_measure(OF_SIMULATED, rows), **forecasts(n, 2, setting), "planned": is_planned(n, setting)}


OF_SIMULATED = "energy", "n_used", "covered", "width"
"""Measures that `score_simulated` returns."""


def score_simulated(draws: Array, record: Simulated) -> tuple[float, int, float, float]:
    """Return relative energy distance and number of published draws, and coverage and relative width of intervals."""
    (low, high), exact = (np.quantile(sampled, _ENDS, axis=0) for sampled in (draws, record.reference))
    covered = float(((low <= record.weights) & (record.weights <= high)).mean())
    width = float(((high - low) / (exact[1] - exact[0])).mean())
    return relative_energy(draws, record.reference), len(draws), covered, width


def is_planned(n: int, setting: Values) -> bool:
    """Return True if the planner allows intervals from a chain that publishes all iterates."""
    try:
        plan_intervals(published_langevin(n, setting["beta"], setting.get("epsilon", 1.0), setting["delta"]), 2)
    except ValueError:
        return False
    return True


# Step size of a Langevin chain

_DESIGN = np.array([[0.9, 0.3], [-0.4, 0.8], [0.2, -0.9], [0.6, 0.5]])
_LABELS = np.array([1.0, 0.0, 1.0, 1.0])
_BETA, _N_STEPS, _N_DISCARDED = 0.5, 2_000, 500


def evaluate_steps(cell: Values, setting: Values, streams: Streams) -> dict[str, Any]:
    """Return bias and effective draws of a chain on four records, which are 0 in the model ``quadratic``."""
    n, d = _DESIGN.shape
    design = _DESIGN if cell["model"] == "logistic" else np.zeros((n, d))
    target = glm_mechanism("true-posterior", n, _BETA, 1.0, 1.0)
    centre, cells, probabilities = grid_posterior(design, _LABELS, target)
    points = centre.mean + cells @ centre.factor.T
    mean = probabilities @ points
    std = np.sqrt(probabilities @ np.square(points - mean))
    curvature = n * _BETA + (n / 4.0 if cell["model"] == "logistic" else 0.0)
    largest = 4.0 / (n * _BETA + n * _BETA + n / 4.0)
    chain = langevin_chain(n, _BETA, _N_STEPS, cell["step"] * largest)
    rows = []
    for rng in streams.generators():
        iterates = chain.sample(rng, design, _LABELS, n_chains=300)[:, _N_DISCARDED:]
        offset, inflation = (iterates.mean(axis=(0, 1)) - mean) / std, iterates.std(axis=(0, 1)) / std
        rows.append((offset, inflation, iterates.var(axis=(0, 1)) / iterates.mean(axis=1).var(axis=0)))
    mu = math.sqrt(chain.step * (_N_STEPS - _N_DISCARDED))
    return {
        **by_measure(("offset", "inflation", "effective"), rows),
        "predicted_draws": float(forecast_draws(curvature, mu, chain.step)),
        "predicted_inflation": (1.0 - chain.step * curvature / 4.0) ** -0.5,
    }
