"""Choice of the inference method for a release: an exact posterior wherever it is affordable."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.inference.data_augmentation import sample_data_augmentation
from mechanisms.inference.exact_posterior import (
    LATTICE,
    ContradictionError,
    ExactPosterior,
    UnresolvedPosteriorError,
    exact_posterior,
    lattice_step,
)
from mechanisms.inference.gibbs import validate_run
from mechanisms.inference.gibbs_exact import sample_gibbs_exact
from mechanisms.inference.records import Floats
from mechanisms.inference.release_model import ReleaseModel

__all__ = ["Choice", "Inference", "choose_method", "draw_posterior", "infer", "resolve"]

_MAX_TERMS = 100_000_000  # largest number of terms in an exact posterior: 1 s for counts, 10 s for real records
_MAX_COUNTS = 2_000_000  # largest number of counts in a binomial mixture
_MAX_RECORDS = 100_000  # largest number of records in data augmentation, which takes 2 ms per iteration
_CELLS = 700  # number of cells of θ in a grid posterior


@dataclass(frozen=True)
class Choice:
    """Inference method for a release, and the reason for its choice.

    Parameters
    ----------
    method : {"exact", "gibbs-exact", "data-augmentation"}
        Key of `INFERENCE_METHODS`.
    reason : str
        Reason in one sentence.
    """

    method: str
    reason: str


@dataclass(frozen=True, eq=False)
class Inference:
    """Posterior draws for a release.

    Parameters
    ----------
    choice : Choice
        Method that produced the draws, and the reason for its choice.
    draws : ndarray of float64, shape (n_chains, n_draws) or (n_chains, n_draws, p)
        Draws of θ, which are independent if the method is "exact".
    is_surprising : bool
        True if y is so far outside the range of the statistic that the noise hardly explains it; see
        `ReleaseModel.is_surprising`. The stated number of records or noise may then be wrong.
    """

    choice: Choice
    draws: Floats = field(repr=False)
    is_surprising: bool


def choose_method(model: ReleaseModel, prior: ArrayLike) -> Choice:
    """Choose the inference method for a release from public quantities only.

    Exact sums over the statistic are preferred, because they allow independent draws. Among the samplers, `gibbs-exact`
    is preferred for counts, because its cost per iteration does not depend on n. Methods with a normal approximation
    are never chosen.

    Parameters
    ----------
    model : ReleaseModel
    prior : array_like, shape (h,)
        See `Family.validate_prior`.

    Returns
    -------
    Choice

    Raises
    ------
    ValueError
        If the prior is invalid, or no exact method is affordable.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> choose_method(ReleaseModel("binomial", 1_000, Noise("laplace", 2.0)), (1, 1))
    Choice(method='exact', reason='a sum over 1,001 counts is affordable')
    """
    k, n = len(model.validate_prior(prior)), model.n
    if model.entry.is_vector:
        terms = (3 * k - 4) * n * n // 2
        if terms <= _MAX_TERMS:
            return Choice("exact", f"convolutions over {k} categories with {terms:,} terms are affordable")
        return Choice("gibbs-exact", f"convolutions with {terms:,} terms are not affordable, but draws of counts are")
    if model.bounds is None:
        if n < _MAX_COUNTS:
            return Choice("exact", f"a sum over {n + 1:,} counts is affordable")
        return Choice("gibbs-exact", f"a sum over {n + 1:,} counts is not affordable, but draws of the count are")
    if not model.entry.has_square:
        low, high = model.contribution_range()
        terms = int(_CELLS * n * (high - low) / lattice_step(model))
        is_fine = model.entry.integer_records or model.noise.scale >= lattice_step(model)
        if terms <= _MAX_TERMS and is_fine:
            return Choice("exact", f"convolutions of the contributions with {terms:,} terms are affordable")
        if not is_fine and n <= _MAX_RECORDS:
            return Choice("data-augmentation", f"the noise is too narrow for a lattice of {LATTICE} contributions")
    if n <= _MAX_RECORDS:
        return Choice("data-augmentation", f"no sum over the statistic is affordable, but draws of {n:,} records are")
    raise ValueError(
        f"n must be at most {_MAX_RECORDS:,} for exact inference in the {model.family} family, got {n:,}; use "
        "sample_truncated_gibbs or marginal_posterior, which approximate the statistic by a normal distribution"
    )


def infer(
    rng: np.random.Generator,
    model: ReleaseModel,
    prior: ArrayLike,
    noisy_statistics: ArrayLike,
    *,
    n_chains: int = 4,
    n_draws: int = 5000,
) -> Inference:
    """Draw the parameter θ from the exact posterior given one release, by the method that `choose_method` returns.

    Parameters
    ----------
    rng : numpy.random.Generator
    model : ReleaseModel
    prior : array_like, shape (h,)
        See `Family.validate_prior`.
    noisy_statistics : array_like, shape (d,)
        Release y; see `ReleaseModel.validate_release`.
    n_chains, n_draws : int
        Number of chains and of draws per chain; samplers first discard 2,000 warm-up iterations.

    Returns
    -------
    Inference

    Raises
    ------
    ValueError
        If an argument is invalid, or no exact method is affordable.

    Examples
    --------
    A noisy count of −30 is surprising, as the noise has scale 1:

    >>> from mechanisms.noise import Noise
    >>> model = ReleaseModel("binomial", 100, Noise("laplace", 1.0))
    >>> found = infer(np.random.default_rng(1), model, (1, 1), [-30.0])
    >>> found.choice.method, found.draws.shape, found.is_surprising
    ('exact', (4, 5000), True)
    """
    n_chains, _, n_draws = validate_run(rng, n_chains, 0, n_draws)
    _, y = model.validate_release(prior, noisy_statistics)
    choice, posterior = resolve(model, prior, y)
    if posterior is None:
        draws = draw_posterior(rng, model, prior, y, choice, n_chains, n_draws)
    else:
        drawn = posterior.sample(rng, n_chains * n_draws)
        draws = drawn.reshape(n_chains, n_draws, *drawn.shape[1:])
    return Inference(choice, draws, model.is_surprising(y))


def resolve(model: ReleaseModel, prior: ArrayLike, y: Floats) -> tuple[Choice, ExactPosterior | None]:
    """Return the method for a release, and the exact posterior if the method is "exact".

    If the exact sums do not resolve the posterior given this release, the method is "data-augmentation".

    Raises
    ------
    ValueError
        If no exact method is affordable, or the release contradicts the prior and records are dropped: chains might
        not move between the modes.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> model = ReleaseModel("poisson", 100, Noise("laplace", 2.0), bounds=(0, 10), outside="clamp")
    >>> resolve(model, (100, 100), np.array([300.0]))[0].method
    'data-augmentation'
    """
    choice = choose_method(model, prior)
    if choice.method != "exact":
        return choice, None
    try:
        return choice, exact_posterior(model, prior, y)
    except UnresolvedPosteriorError as error:
        has_modes = isinstance(error, ContradictionError) and model.outside == "drop"
        if model.n > _MAX_RECORDS or has_modes:
            raise
        return Choice("data-augmentation", str(error)), None


def draw_posterior(
    rng: np.random.Generator,
    model: ReleaseModel,
    prior: ArrayLike,
    y: Floats,
    choice: Choice,
    n_chains: int = 4,
    n_draws: int = 5000,
) -> Floats:
    """Draw θ by the chosen sampler, shape (n_chains, n_draws) or (n_chains, n_draws, p)."""
    sample = sample_gibbs_exact if choice.method == "gibbs-exact" else sample_data_augmentation
    return sample(rng, model, prior, y, n_chains=n_chains, n_draws=n_draws)
