"""Exact posterior of the binomial model given a noisy count: a finite mixture of Beta distributions.

Summing over the unreleased count s gives

    p(θ | y) = Σ_s w_s·Beta(θ; α + s, β + n − s),  w_s ∝ BetaBinomial(s; n, α, β)·exp(−|y − s|/b).

The mixture is the reference for methods that use a normal approximation. `count_mixture` accepts any log-likelihood of
the count, and therefore any noise.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018: the model.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.arguments import real_array
from mechanisms.beta_mixture import SMALLEST_WEIGHT, BinomialMixture
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.noisy_statistics import validate_noise_scale
from mechanisms.privacy_parameters import validate_size

__all__ = ["binomial_mixture", "count_mixture"]


def binomial_mixture(prior: ArrayLike, n: int, noisy_count: ArrayLike, noise_scale: float) -> BinomialMixture:
    """Return the exact posterior of θ given y = s + Lap(noise_scale), s ~ Binomial(n, θ), θ ~ Beta(alpha, beta).

    Counts with a weight below 1e-18 times the largest weight are omitted. Their total weight is below (n + 1)·1e-18.
    The release y may lie outside [0, n]; the scale b = 1/ε is in records.
    """
    alpha, beta = FAMILIES["binomial"].validate_prior(prior)
    n, scale = validate_size(n), validate_noise_scale(noise_scale)
    y = real_array("noisy_count", noisy_count)
    if not (y.size == 1 and np.all(np.isfinite(y))):
        raise ValueError(f"noisy_count must be a finite number, got {noisy_count!r}; pass one released count")
    return count_mixture((alpha, beta), -_log_noise_ratios(float(y.ravel()[0]), n, scale))


def count_mixture(prior: ArrayLike, log_likelihood: ArrayLike) -> BinomialMixture:
    """Return the exact posterior of θ given a release of the count s ~ Binomial(n, θ), θ ~ Beta(alpha, beta).

    Counts with a weight below 1e-18 times the largest weight are omitted. Their total weight is below (n + 1)·1e-18.
    `log_likelihood` contains ln p(y | s) at s = 0, …, n, up to a constant; −∞ for impossible counts.
    """
    alpha, beta = FAMILIES["binomial"].validate_prior(prior)
    evidence = np.asarray(log_likelihood, dtype=np.float64)
    if evidence.ndim != 1 or evidence.size < 2 or not np.any(evidence > -np.inf):
        raise ValueError(
            f"log_likelihood must have shape (n + 1,) and a finite value, got shape {evidence.shape}; pass ln p(y | s)"
        )
    n = evidence.size - 1
    log_weights = _log_beta_binomial(n, alpha, beta) + evidence
    weights = np.exp(log_weights - log_weights.max())
    counts = np.flatnonzero(weights >= SMALLEST_WEIGHT)
    return BinomialMixture((alpha, beta), n, counts, weights[counts] / weights[counts].sum())


def _log_noise_ratios(noisy_count: float, n: int, scale: float) -> NDArray[np.float64]:
    """Return |y − s|/b for the noisy count y at s = 0, …, n, up to a constant.

    If y is far outside [0, n], the differences between counts are lost in the rounding of y, and |y − s|/b may
    overflow. Distances from the nearer end of [0, n] are used instead; they differ from |y − s| by a constant.
    """
    counts = np.arange(n + 1)
    if np.spacing(abs(noisy_count)) <= 1e-9 * scale:
        return np.abs(noisy_count - counts) / scale
    distances = np.abs(min(max(noisy_count, 0.0), float(n)) - counts)
    with np.errstate(over="ignore"):
        return (distances - distances.min()) / scale


@lru_cache(maxsize=8)
def _log_beta_binomial(n: int, alpha: float, beta: float) -> NDArray[np.float64]:
    """Return the unnormalised log prior pmf of the counts 0, …, n, cached because many trials share n and the prior."""
    s = np.arange(n + 1)
    log_choose = -special.gammaln(s + 1) - special.gammaln(n - s + 1)
    log_pmf = log_choose + special.gammaln(alpha + s) + special.gammaln(beta + n - s)
    log_pmf.flags.writeable = False
    return log_pmf
