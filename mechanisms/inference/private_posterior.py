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
normal                    N(mean, variance)                 mean; the variance of a record is 1
normal-unknown-variance   mean, strength, shape, scale      mean and variance of a record
========================  ================================  ==========================================

`mechanisms.inference.families` describes the families, and `mechanisms.inference.publish` draws the releases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arguments import real_array, validate_integer
from mechanisms.inference.choice import choose_method, draw_posterior, resolve
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.families import MODELS
from mechanisms.inference.family import Family
from mechanisms.inference.publish import publish_sums, validate_data
from mechanisms.inference.records import Bounds, Floats
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior, require_generator
from mechanisms.metadata import find_entry
from mechanisms.noise import NOISES, Noise, calibrated_noise
from mechanisms.privacy import Guarantee
from mechanisms.protocols import Posterior

__all__ = ["posterior_from_release", "private_posterior"]

_PURE = [name for name in NOISES if Noise(name, 1.0).is_pure]


def posterior_from_release(
    y: ArrayLike,
    family: Family | str,
    prior: ArrayLike,
    *,
    n: int,
    epsilon: float,
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
        Release: k noisy counts for the multinomial, the noisy sums of the records and of their squares if the variance
        is unknown, otherwise one number. It may lie outside the range of the statistic.
    family : Family or str
        Family or its name; see the table in the module docstring.
    prior : array_like, shape (h,)
        Hyperparameters; see the table in the module docstring and `Family.validate_prior`.
    n : int
        Number of records, public, ≥ 1.
    epsilon : float
        Privacy loss of the release in nats, > 0, if one record is replaced. The scale of the noise is Δ/ε, where Δ is
        `ReleaseModel.sensitivity`.
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

    Examples
    --------
    >>> posterior = posterior_from_release(63.7, "binomial", (1, 1), n=100, epsilon=0.5)
    >>> posterior
    ReleasePosterior(binomial, n=100, mean=0.6343, std=0.05493, method=exact, guarantee=0.5-DP)
    >>> low, high = posterior.interval(0.95)
    >>> print(f"{low:.2f} to {high:.2f}; Pr[θ > 0.5] = {1 - posterior.cdf(0.5):.2f}")
    0.52 to 0.74; Pr[θ > 0.5] = 0.99
    """
    if noise not in _PURE:
        raise ValueError(f"noise must be one of {', '.join(_PURE)}, got {noise!r}; use infer for other noise")
    name = find_entry(MODELS, family, "family").name
    unscaled = ReleaseModel(name, n, Noise(noise, 1.0), bounds, outside, parameter_range)
    model = replace(unscaled, noise=calibrated_noise(noise, unscaled.sensitivity(), epsilon))
    return _infer(model, prior, real_array("y", y), Guarantee(epsilon), rng)


def private_posterior(
    records: ArrayLike,
    family: Family | str,
    prior: ArrayLike,
    epsilon: float,
    *,
    n: int | None = None,
    bounds: Bounds | None = None,
    outside: Literal["drop", "clamp"] = "drop",
    parameter_range: tuple[Any, Any] | None = None,
    rehearsal_seed: int | None = None,
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
        records.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    n : int, optional
        Number of records, public, if `records` is the sum of binomial or multinomial records.
    bounds : tuple of float, optional
        Public bounds [a, b] for unbounded records. They must not depend on the records; see `private_bounds`.
    outside : {"drop", "clamp"}
        Contribution of a record outside the bounds: 0, or the nearest bound. Inference takes either into account.
    parameter_range : tuple, optional
        Public limits of θ to which the prior is restricted; see `ReleaseModel`.
    rehearsal_seed : int, optional
        Seed of a rehearsal, which is reproducible and not private.

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
        If an argument is invalid or no exact method is affordable, before any noise is drawn.
    ContradictionError
        If records are dropped and the release contradicts the prior; the message contains the release.
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
    ReleasePosterior(exponential, n=10, mean=0.9043, std=0.5535, method=exact, guarantee=none (rehearsal))
    >>> private_posterior([52, 31, 17], "multinomial", (1, 1, 1), epsilon=1.0, n=100).release.shape
    (3,)
    """
    entry = find_entry(MODELS, family, "family")
    seed = None if rehearsal_seed is None else validate_integer("rehearsal_seed", rehearsal_seed, 0)
    data, size = validate_data(records, entry, n)
    unscaled = ReleaseModel(entry.name, size, Noise("laplace", 1.0), bounds, outside, parameter_range)
    model = replace(unscaled, noise=calibrated_noise("laplace", unscaled.sensitivity(), epsilon))
    choose_method(model, prior)  # raises an error before the budget is spent if no method is affordable
    if entry.is_vector and data.shape[1] != np.size(prior):
        raise ValueError(
            f"prior must have as many numbers as there are categories, {data.shape[1]}, got {prior!r}; pass one per "
            "category"
        )
    rng = np.random.default_rng(None if seed is None else [seed, 1])
    released = publish_sums(entry, records, epsilon, bounds, rehearsal_seed=rehearsal_seed, outside=outside, n=n)
    model = replace(model, noise=Noise("laplace", released.noise_scale))
    return _infer(model, prior, released.noisy, released.guarantee, rng)


def _infer(
    model: ReleaseModel, prior: ArrayLike, y: Floats, guarantee: Guarantee | None, rng: np.random.Generator | None
) -> ReleasePosterior:
    """Return the posterior given a release; `choose_method` selects the method that computes it."""
    hyperparameters, release = model.validate_release(prior, y)
    release.flags.writeable = False
    choice, exact = resolve(model, hyperparameters, release)
    distribution: Posterior
    if exact is not None:
        distribution = exact
    else:
        generator = require_generator(rng, f"the sampler {choice.method}")
        distribution = DrawnPosterior(draw_posterior(generator, model, hyperparameters, release, choice))
    return ReleasePosterior(model, release, guarantee, choice, distribution)
