"""Posterior of a parameter in one call, from private records or from a noisy sum that is already public.

`private_posterior` releases a noisy sum of the records and infers θ from it; `posterior_from_release` only infers.
`choose_method` chooses the inference method, which involves no normal approximation: exact sums where they are
affordable, otherwise a sampler of the exact model.

========================  ================================  ==========================================
family                    prior                             θ
========================  ================================  ==========================================
binomial                  Beta(alpha, beta)                 probability of a one
multinomial               Dir(alpha₁, …, alphaₖ)            probabilities of k categories
exponential               Gamma(shape, rate)                rate
poisson                   Gamma(shape, rate)                mean
normal                    N(mean, variance)                 mean; pass the known variance of a record
normal-unknown-variance   mean, strength, shape, scale      mean and variance of a record
========================  ================================  ==========================================

If records of unknown variance are clamped, the posterior is that of the mean and the variance of a clamped record. They
are what the release measures: the share of the records that the normal distribution places outside the bounds is
an assumption, which is wrong for skewed records, and with it the mean before clamping.

The family for amounts such as incomes is normal-unknown-variance: variance ~ InverseGamma(shape, scale), and the mean
given the variance ~ N(mean, variance/strength). Only this family has a default prior. With m the midpoint of the bounds
and h half of their width, it is (m, 1/3, 1, h²/10): the median of the standard deviation is 0.38·h, and the prior
weighs as much as a third of a record for the mean and two records for the variance.

`mechanisms.inference.families` describes the families, and `mechanisms.inference.publish` draws the releases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arguments import real_array, validate_integer
from mechanisms.inference.choice import Choice, choose_method, fit_release, rehearse
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.families import MODELS
from mechanisms.inference.family import NORMAL, Family
from mechanisms.inference.publish import publish_sums, validate_data
from mechanisms.inference.records import Bounds, Floats
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior, require_generator
from mechanisms.metadata import find_entry
from mechanisms.noise import NOISES, Noise, calibrated_noise
from mechanisms.privacy import Guarantee
from mechanisms.privacy_parameters import validate_epsilon

__all__ = ["posterior_from_release", "private_posterior"]

_NEAR = 1e-6  # distance from an integer of the product of a proportion and the number of records
_PURE = [name for name in NOISES if Noise(name, 1.0).is_pure]


def posterior_from_release(
    y: ArrayLike,
    family: Family | str,
    prior: ArrayLike | None = None,
    *,
    n: int,
    epsilon: float,
    proportion: bool = False,
    variance: float | None = None,
    bounds: Bounds | None = None,
    noise: Literal["laplace", "geometric", "k-norm"] = "laplace",
    outside: Literal["drop", "clamp"] = "drop",
    parameter_range: tuple[Any, Any] | None = None,
    rng: np.random.Generator | None = None,
) -> ReleasePosterior:
    """Return the posterior of θ given a noisy sum of n records.

    Parameters
    ----------
    y : float, or array_like of shape (d,)
        Release: k noisy counts for the multinomial, the noisy sums of the standardised records and of their squares if
        the variance is unknown, see `ReleaseModel`, otherwise the noisy sum. It may lie outside the range of the
        statistic.
    family : Family or str
        Family or its name; see the table in the module docstring.
    prior : array_like, shape (h,)
        Hyperparameters; see the table in the module docstring and `Family.validate_prior`. None is the default prior of
        the family normal-unknown-variance.
    n : int
        Number of records, public, ≥ 1.
    epsilon : float
        Privacy loss of the release in nats, > 0, if one record is replaced. The scale of the noise is Δ/ε, where Δ is
        `ReleaseModel.sensitivity`.
    proportion : bool
        True if `y` is a noisy proportion, or k noisy proportions, of n records, whose noise has the scale Δ/(n·ε).
    variance : float, optional
        Known variance of a record, > 0, which the family normal needs.
    bounds : tuple of float, optional
        Public bounds of the release; None for the binomial and multinomial.
    noise : {"laplace", "geometric", "k-norm"}
        Distribution of the noise, see `mechanisms.noise`. For other noise or another scale, use `infer`.
    outside : {"drop", "clamp"}
        Contribution of a record outside the bounds to the release: 0, or the nearest bound.
    parameter_range : tuple, optional
        Limits of θ to which the prior is restricted, such as the bounds for a mean; see `ReleaseModel`.
    rng : numpy.random.Generator, optional
        Random generator for a sampler; exact posteriors do not need one.

    Returns
    -------
    ReleasePosterior
        Posterior whose `guarantee` is that of a release with this noise.

    Raises
    ------
    ValueError
        If an argument is invalid, no exact method is affordable, or the method is a sampler and `rng` is None.

    Warns
    -----
    UserWarning
        If noisy counts of several records look like proportions, as they lie between 0 and 1, or if noisy
        proportions are surprising, see `ReleaseModel.is_surprising`, such as percentages.

    Examples
    --------
    >>> posterior = posterior_from_release(63.7, "binomial", (1, 1), n=100, epsilon=0.5)
    >>> posterior
    ReleasePosterior(binomial, n=100, mean=0.6343, std=0.05493, method=exact, guarantee=0.5-DP)
    >>> low, high = posterior.interval(0.95)
    >>> print(f"{low:.2f} to {high:.2f}; Pr[θ > 0.5] = {1 - posterior.cdf(0.5):.2f}")
    0.52 to 0.74; Pr[θ > 0.5] = 0.99
    >>> share = posterior_from_release(0.637, "binomial", (1, 1), n=100, epsilon=0.5, proportion=True)
    >>> f"{share.mean():.4f}"
    '0.6343'
    """
    if noise not in _PURE:
        raise ValueError(f"noise must be one of {', '.join(_PURE)}, got {noise!r}; use infer for other noise")
    entry = find_entry(MODELS, family, "family")
    unscaled = _unscaled(entry, n, noise, bounds, outside, parameter_range, variance)
    model = replace(unscaled, noise=calibrated_noise(noise, unscaled.sensitivity(), epsilon))
    release = _counts(entry, real_array("y", y), n, proportion, model.noise.is_integer)
    if proportion and model.is_surprising(release):
        warn(
            f"the noise hardly explains proportions so far from those of {n:,} records; check n, epsilon, and that "
            "they are not percentages",
            stacklevel=2,
        )
    prior = _prior(model, prior)
    return _infer(model, prior, release, choose_method(model, prior), Guarantee(epsilon), rng)


def private_posterior(
    records: ArrayLike,
    family: Family | str,
    prior: ArrayLike | None = None,
    epsilon: float | None = None,
    *,
    n: int | None = None,
    variance: float | None = None,
    bounds: Bounds | None = None,
    outside: Literal["drop", "clamp"] = "drop",
    parameter_range: tuple[Any, Any] | None = None,
    rehearsal_seed: int | None = None,
    before_release: Callable[[], object] | None = None,
) -> ReleasePosterior:
    """Release the noisy sum of private records, and return the posterior of θ given the release.

    Parameters
    ----------
    records : array_like, shape (n,), or (n, k) for the multinomial
        Private records, one per row: a list, or a NumPy, pandas or xarray object. Rows of the multinomial are one-hot.
        With `n`, their sum instead: the number of ones, or k counts. Messages and the result contain neither, but a
        message may contain the index of the first invalid row.
    family : Family or str
        Family or its name; see the table in the module docstring.
    prior : array_like, shape (h,)
        Hyperparameters; see the table in the module docstring and `Family.validate_prior`. They must not depend on the
        records. None is the default prior of the family normal-unknown-variance.
    epsilon : float
        Privacy loss in nats, finite and > 0; required.
    n : int, optional
        Number of records, public, if `records` is the sum of binomial or multinomial records.
    variance : float, optional
        Known variance of a record, public, > 0, which the family normal needs.
    bounds : tuple of float, optional
        Public bounds [a, b] for unbounded records. They must not depend on the records; see `private_bounds`.
    outside : {"drop", "clamp"}
        Contribution of a record outside the bounds: 0, or the nearest bound. Inference takes either into account.
    parameter_range : tuple, optional
        Public limits of θ to which the prior is restricted; see `ReleaseModel`.
    rehearsal_seed : int, optional
        Seed of a rehearsal, which is reproducible and not private.
    before_release : callable, optional
        Called after all checks and directly before the noise is drawn; see `publish_sums`.

    Returns
    -------
    ReleasePosterior

    Privacy
    -------
    ε-DP (proved) under replacement of one record; the number of records is public. `publish_sums` draws the noise with
    entropy of the operating system, and inference uses only the release. Every call is a separate release. A rehearsal
    has no guarantee.

    Raises
    ------
    ValueError
        If an argument is invalid, no exact method is affordable, or the chains of a sampler do not converge in a
        rehearsal on public numbers, before any noise is drawn.
    ModuleNotFoundError
        If OpenDP is not installed.

    Notes
    -----
    The release is rounded to a fine grid, but inference assumes continuous Laplace noise of the same scale. The
    likelihood has no error for integer records; for other records `mechanisms.inference.publish` states the error. A
    sampler draws with fresh entropy, or with a seed derived from `rehearsal_seed`.

    Examples
    --------
    >>> waiting_times = [0.3, 1.2, 0.1, 0.8, 2.5, 0.4, 0.6, 1.9, 0.2, 0.7]
    >>> posterior = private_posterior(waiting_times, "exponential", (2, 2), epsilon=1.0, bounds=(0, 3))
    >>> print(posterior.guarantee, posterior.method, posterior.release.shape)
    1-DP exact (1,)
    >>> private_posterior(waiting_times, "exponential", (2, 2), epsilon=1.0, bounds=(0, 3), rehearsal_seed=1)
    ReleasePosterior(exponential, n=10, mean=0.9042, std=0.5532, method=exact, guarantee=none (rehearsal))
    >>> private_posterior([52, 31, 17], "multinomial", (1, 1, 1), epsilon=1.0, n=100).release.shape
    (3,)
    >>> incomes = [21_000, 64_500, 38_200, 29_900, 47_300, 33_700]
    >>> posterior = private_posterior(
    ...     incomes, "normal-unknown-variance", epsilon=5.0, bounds=(0, 200_000), outside="clamp", rehearsal_seed=1
    ... )
    >>> low, high = posterior.interval()  # of the mean and of the variance
    >>> bool(low[0] < 39_100 < high[0])
    True
    """
    entry = find_entry(MODELS, family, "family")
    seed = None if rehearsal_seed is None else validate_integer("rehearsal_seed", rehearsal_seed, 0)
    data, size = validate_data(records, entry, n)
    epsilon = validate_epsilon(epsilon)  # type: ignore[arg-type]  # raises an error for None
    unscaled = _unscaled(entry, size, "laplace", bounds, outside, parameter_range, variance)
    model = replace(unscaled, noise=calibrated_noise("laplace", unscaled.sensitivity(), epsilon))
    prior = _prior(model, prior)
    if entry.is_vector and data.shape[1] != np.size(prior):
        raise ValueError(
            f"prior must have as many numbers as there are categories, {data.shape[1]}, got {prior!r}; pass one per "
            "category"
        )
    choice = choose_method(model, prior)
    # Raises an error before the budget is spent.
    n_draws = rehearse(model, prior, choice) if choice.entry.is_sampler else 0
    rng = np.random.default_rng(None if seed is None else [seed, 1])
    released = publish_sums(
        entry,
        records,
        epsilon,
        bounds,
        rehearsal_seed=rehearsal_seed,
        outside=outside,
        n=n,
        before_release=before_release,
    )
    model = replace(model, noise=Noise("laplace", released.noise_scale))
    return _infer(model, prior, released.noisy, choice, released.guarantee, rng, n_draws)


def _unscaled(
    family: Family,
    n: int,
    noise: str,
    bounds: Bounds | None,
    outside: Literal["drop", "clamp"],
    parameter_range: tuple[Any, Any] | None,
    variance: float | None,
) -> ReleaseModel:
    """Return the model with noise of scale 1, after checking that the variance is given if it must be."""
    if family.code == NORMAL and variance is None:
        raise ValueError(
            "variance must be the known variance of a record for the normal family, got None; pass variance=, or use "
            "normal-unknown-variance"
        )
    known = 1.0 if variance is None else variance
    return ReleaseModel(family.name, n, Noise(noise, 1.0), bounds, outside, parameter_range, known)


def _prior(model: ReleaseModel, prior: ArrayLike | None) -> ArrayLike:
    """Return the prior, or the default prior if it is None."""
    if prior is not None:
        return prior
    if not model.entry.has_square:
        names = ", ".join(model.entry.hyperparameters)
        raise ValueError(f"prior ({names}) must be given for the {model.family} family, got None; pass its numbers")
    middle, half_width = model.units()
    return middle, 1.0 / 3.0, 1.0, 0.1 * half_width**2


def _counts(family: Family, y: Floats, n: int, proportion: bool, is_integer: bool) -> Floats:
    """Return released counts, given counts or proportions; warn if counts look like proportions."""
    counts = not family.is_truncated
    if proportion:
        if not counts:
            raise ValueError(
                f"proportion must be False for the {family.name} family, got True; pass the noisy sum of the records"
            )
        # A proportion of integers is a multiple of 1/n up to rounding.
        return np.where(np.abs(n * y - np.rint(n * y)) < _NEAR, np.rint(n * y), n * y) if is_integer else n * y
    if counts and n > 1 and y.size and np.all(np.abs(y) < 1) and y.sum() > 0:
        warn(
            f"the release of {n:,} records lies between 0 and 1, and is read as a noisy count; pass proportion=True if "
            "it is a noisy proportion",
            stacklevel=3,
        )
    return y


def _infer(
    model: ReleaseModel,
    prior: ArrayLike,
    y: Floats,
    choice: Choice,
    guarantee: Guarantee | None,
    rng: np.random.Generator | None,
    n_draws: int = 5_000,
) -> ReleasePosterior:
    """Return the posterior given a release; that of records that are clamped, if their variance is unknown."""
    hyperparameters, release = model.validate_release(prior, y)
    release.flags.writeable = False
    if choice.entry.is_sampler:
        require_generator(rng, f"the sampler {choice.method}")
    distribution = fit_release(rng, model, hyperparameters, release, choice, n_draws=n_draws)
    if isinstance(distribution, DrawnPosterior) and model.entry.has_square and model.outside == "clamp":
        distribution = DrawnPosterior(model.released_moments(distribution.draws))
    return ReleasePosterior(model, release, guarantee, choice, distribution)
