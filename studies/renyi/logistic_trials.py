"""Trials of private Bayesian logistic regression: one draw of the weights each, judged on test records.

Draws of one setting on the same records come from chains that run together, `N_GROUPED` draws from each set of chains,
so that the search for the mode and the convergence are paid once. A draw is far from the next on its chain, in
autocorrelation times, and counts as independent. Which chains a trial belongs to depends on its number alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from mechanisms.glm.mechanisms import GlmMechanism, glm_mechanism
from mechanisms.glm.sampling import STEPS_A_PRODUCT, laplace_approximation, sample_glm
from pipeline import Streams
from studies.data import Classification

Array = NDArray[np.float64]

N_GROUPED = 25
"""Trials on the same records that share a set of chains."""

LARGEST_RHAT = 1.01
"""Split R-hat from which chains disagree, on the log posterior and on random projections of the weights."""

LEAST_ESS = 400
"""Bulk effective sample size that a set of chains must reach, on the same quantities."""

_N_CHAINS = 5
_N_PROJECTIONS = 10
_N_BURN_IN = 8 * STEPS_A_PRODUCT
_FIRST_STEPS = 50 * STEPS_A_PRODUCT
_MOST_STEPS = 64 * _FIRST_STEPS


@dataclass(frozen=True)
class Group:
    """Trials that share records and chains, and the records."""

    data: Classification
    trials: range


@dataclass(frozen=True)
class Sampled:
    """Draws from one set of chains and how well it converged.

    Attributes
    ----------
    weights : ndarray, shape (draws, d)
    rhat, ess : float
        The largest split R-hat and the smallest bulk effective sample size over all quantities watched.
    n_steps : int
        Steps of each chain over which they were computed.
    """

    weights: Array
    rhat: float
    ess: float
    n_steps: int

    @property
    def complaint(self) -> str:
        """Why the draws are not to be used; empty if they are."""
        if self.rhat < LARGEST_RHAT and self.ess >= LEAST_ESS:
            return ""
        return (
            f"the chains did not converge in {self.n_steps:,} steps: split R-hat {self.rhat:.3f} (below {LARGEST_RHAT} "
            f"is asked for), effective sample size {self.ess:.0f} ({LEAST_ESS}); take a larger beta"
        )


def draw_weights(rng: np.random.Generator, data: Classification, mechanism: GlmMechanism, n_draws: int) -> Sampled:
    """Run chains until they have converged and return draws from their last stretch, far from one another.

    Each stretch is twice as long as the one before, which then counts as burn-in.

    Parameters
    ----------
    rng : numpy.random.Generator
        Of these chains alone.
    data : Classification
        Its training records are seen.
    mechanism : GlmMechanism
        The target.
    n_draws : int
        How many draws; taken from the chains in turn.

    Returns
    -------
    Sampled

    Raises
    ------
    ValueError
        If the records do not suit the mechanism, or the mode is not found.
    """
    X, y = data.train_x, data.train_y.astype(np.float64)
    approximation = laplace_approximation(X, y, mechanism)
    projections = rng.standard_normal((X.shape[1], _N_PROJECTIONS))
    last = sample_glm(rng, X, y, mechanism, approximation, _N_BURN_IN, n_chains=_N_CHAINS).weights[:, -1]
    n_steps = _FIRST_STEPS
    while True:
        watched = np.empty((1 + _N_PROJECTIONS, _N_CHAINS, n_steps))
        taken = n_steps * np.arange(1, 1 + -(-n_draws // _N_CHAINS)) // -(-n_draws // _N_CHAINS) - 1
        kept = []
        for first in range(0, n_steps, _FIRST_STEPS):  # the draws of a whole stretch would not fit the memory
            draws = sample_glm(rng, X, y, mechanism, approximation, _FIRST_STEPS, n_chains=_N_CHAINS, start=last)
            last = draws.weights[:, -1]
            watched[0, :, first : first + _FIRST_STEPS] = draws.log_density
            watched[1:, :, first : first + _FIRST_STEPS] = np.moveaxis(draws.weights @ projections, -1, 0)
            here = taken[(taken >= first) & (taken < first + _FIRST_STEPS)] - first
            kept.append(np.moveaxis(draws.weights[:, here], 1, 0))
        rhat, ess = _diagnose(watched)
        sampled = Sampled(np.concatenate(kept).reshape(-1, X.shape[1])[:n_draws], rhat, ess, n_steps)
        if not sampled.complaint or n_steps >= _MOST_STEPS:
            return sampled
        n_steps *= 2


def _diagnose(watched: Array) -> tuple[float, float]:
    """Return the largest split R-hat and the smallest bulk ESS of quantities of shape (quantity, chain, step)."""
    from arviz_stats.base import array_stats  # a second to import, which `dpstudies list` need not wait for

    rhat = array_stats.rhat(watched, chain_axis=-2, draw_axis=-1, method="split")
    ess = array_stats.ess(watched, chain_axis=-2, draw_axis=-1, method="bulk")
    return float(np.max(rhat)), float(np.min(ess))


def group_trials(data: Classification, streams: Streams) -> list[Group]:
    """Return the groups that some trials on the same records belong to, whole groups throughout."""
    first = streams.trials.start - streams.trials.start % N_GROUPED
    return [Group(data, range(start, start + N_GROUPED)) for start in range(first, streams.trials.stop, N_GROUPED)]


def evaluate_draws(name: str, groups: list[Group], setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
    """Return the measures of one mechanism for the trials of `streams`, which the groups hold.

    Parameters
    ----------
    name : str
        A key of `mechanisms.glm.mechanisms.GLM_MECHANISMS`.
    groups : list of Group
        In order of their trials.
    setting : mapping
        ``beta`` and, where the mechanism uses them, ``order`` and ``epsilon``.
    streams : Streams
        Of the mechanism.
    """
    found: dict[str, list[Any]] = {"test_error": [], "test_nll": [], "rhat": [], "ess": [], "error": []}
    data = groups[0].data
    for group in groups:
        mechanism = make_mechanism(name, len(group.data.train_y), setting)
        rng = next(streams.single(group.trials.start).generators())
        sampled = draw_weights(rng, group.data, mechanism, len(group.trials))
        error, nll = _judge(sampled.weights, group.data)
        for trial in group.trials:
            if trial in streams.trials:
                k = trial - group.trials.start
                values = (error[k], nll[k], sampled.rhat, sampled.ess, sampled.complaint)
                for measure, value in zip(found, values, strict=True):
                    found[measure].append(value)
    n_train, n_columns = data.train_x.shape
    return {**found, "n_train": n_train, "n_columns": n_columns, "data_digest": int(data.digest[:15], 16)}


def make_mechanism(name: str, n: int, setting: Mapping[str, Any]) -> GlmMechanism:
    """Return a mechanism; what it does not use, it is given as 1."""
    return glm_mechanism(name, n, setting["beta"], setting.get("order", 1.0), setting.get("epsilon", 1.0))


def _judge(weights: Array, data: Classification) -> tuple[Array, Array]:
    """Return for each draw the share of test records classified wrongly, and their mean negative log-likelihood."""
    predictors = weights @ data.test_x.T
    signs = np.where(data.test_y > 0, 1.0, -1.0)
    wrong = (predictors > 0) != (data.test_y > 0)
    return wrong.mean(axis=1), -log_expit(predictors * signs).mean(axis=1)
