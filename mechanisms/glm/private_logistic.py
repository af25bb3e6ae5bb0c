"""One private draw of the weights of a logistic regression: the last iterate of a noisy Langevin chain.

The chain ``langevin-last`` has a guarantee for its own finite number of steps (`mechanisms.glm.langevin`), whereas the
guarantee of a draw by slice or elliptical slice sampling assumes that the sampler has converged.

**Discrete noise.** For real data the noise of a step is √η·2^(−b)·z with z from the exact discrete Gaussian, and the
mean is rounded to the same grid. By coupling, each step differs from one with normal noise and an unrounded state by at
most √d·2^(−b)/√(2π) in total variation, since each of two roundings moves the mean by at most √d/2 units and the step
contracts. Over T steps and both neighbours this adds at most (1 + e^ε)·T·√d·2^(−b) to δ; b is chosen so that this is at
most a thousandth of δ, which is reserved. Rounding of doubles in the gradient, of a relative 1e-13, is not covered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import real_array, validate_integer
from mechanisms.exact_noise import integer_gaussian, require_opendp
from mechanisms.glm.langevin import LangevinChain, last_langevin
from mechanisms.glm.mechanisms import validate_design
from mechanisms.privacy import Guarantee

__all__ = ["PrivateWeights", "private_logistic"]

_RESERVED = 1e-3  # part of δ for the discretisation of the noise
_MOST_BITS = 52


@dataclass(frozen=True)
class PrivateWeights:
    """A private draw of the weights.

    Attributes
    ----------
    weights : ndarray of float64, shape (d,)
        The draw.
    chain : LangevinChain
        Parameters of the chain, which are public.
    guarantee : Guarantee or None
        (ε, δ)-DP under replace-one with n public; None for a rehearsal.
    """

    weights: NDArray[np.float64] = field(repr=False)
    chain: LangevinChain
    guarantee: Guarantee | None


def private_logistic(
    design: ArrayLike,
    labels: ArrayLike,
    epsilon: float,
    delta: float,
    *,
    beta: float,
    norm_bound: float = 1.0,
    rehearsal_seed: int | None = None,
) -> PrivateWeights:
    """Return one private draw from a tempered posterior of the weights of a logistic regression.

    Parameters
    ----------
    design : array_like, shape (n, d)
        Explanatory variables. Rows with a norm above `norm_bound` are scaled down to it; their number is not returned.
    labels : array_like, shape (n,)
        Labels 0 or 1.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    delta : float
        In (0, 1).
    beta : float
        Prior precision per record, finite and > 0: the prior is N(0, (n·beta)⁻¹I).
    norm_bound : float
        Upper bound on the norm of a row, chosen independently of the data.
    rehearsal_seed : int, optional
        Seed of a rehearsal, which has no guarantee.

    Returns
    -------
    PrivateWeights

    Privacy
    -------
    (ε, δ)-DP (proved) under replace-one with n public, by Bok, Su & Altschuler (2024) and a bound on the discretisation
    of the noise. Every call is a separate release. The guarantee does not cover errors: an error about `design` or
    `labels` reveals that a value is not a number or not a label, and the index of its row.

    Raises
    ------
    ValueError
        If an argument is invalid, or `delta` is too small for 52 bits of noise.
    ModuleNotFoundError
        If OpenDP is not installed and `rehearsal_seed` is None.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> private_logistic(x, x[:, 0] > 0.2, epsilon=2.0, delta=1e-6, beta=0.01, rehearsal_seed=1).weights.shape
    (1,)
    """
    X = real_array("design", design)
    if X.ndim == 2 and np.isfinite(X).all():
        with np.errstate(over="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", X, X))
        X = X * np.minimum(1.0, norm_bound / np.maximum(norms, norm_bound))[:, None]
    X, y = validate_design(X, labels, norm_bound)
    chain = last_langevin(len(X), beta, epsilon, delta * (1.0 - _RESERVED), norm_bound)
    if rehearsal_seed is not None:
        rng = np.random.default_rng(validate_integer("rehearsal_seed", rehearsal_seed, least=0))
        return PrivateWeights(chain.sample(rng, X, y)[0, -1], chain, None)
    stated = Guarantee(epsilon, delta)
    bits = noise_bits(chain.n_steps, X.shape[1], epsilon, delta)
    require_opendp()
    unit = math.sqrt(chain.step) * 2.0**-bits
    weights = np.zeros(X.shape[1])
    for _ in range(chain.n_steps):
        means = weights + chain.step / 2 * chain.drift(weights, X, y)
        noise = integer_gaussian(2.0**bits, weights.size)
        weights = unit * np.asarray(np.rint(means / unit) + noise, dtype=np.float64)
    return PrivateWeights(weights, chain, stated)


def noise_bits(n_steps: int, d: int, epsilon: float, delta: float) -> int:
    """Return the smallest b for which the discretisation of the noise adds at most a thousandth of δ."""
    added = math.log(n_steps * math.sqrt(d) / (_RESERVED * delta)) + np.logaddexp(
        0.0, epsilon
    )  # at b = 0, over allowed
    bits = math.ceil(added / math.log(2))
    if bits > _MOST_BITS:
        least = delta * 2.0 ** (bits - _MOST_BITS)
        raise ValueError(f"delta must be at least {least:.1g} for {n_steps} steps in {d} dimensions, got {delta:g}")
    return max(bits, 10)
