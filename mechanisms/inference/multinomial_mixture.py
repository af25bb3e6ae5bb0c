"""Exact posterior of the multinomial model given noisy counts: a finite mixture of Dirichlet distributions.

Summing over the unreleased counts c gives

    p(θ | y) = Σ_c w_c·Dir(θ; α + c),  w_c ∝ Πⱼ fⱼ(cⱼ) on Σⱼ cⱼ = n,  fⱼ(x) = Γ(αⱼ + x)/x!·p(yⱼ | x).

The sums over c are convolutions of the fⱼ. The factor e^(λx) of each fⱼ(x) does not change the weights given Σⱼ cⱼ = n.
With λ such that the means of the tilted fⱼ sum to n, no convolution loses the digits of its value at n. Long
convolutions are computed by Fourier transforms, unless their rounding errors matter.

For K-norm noise the weights are also a product: its log density is −Σⱼ |yⱼ − cⱼ|/scale, given Σⱼ cⱼ = Σⱼ yⱼ = n.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018: the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import signal, special

from mechanisms.beta_mixture import SMALLEST_WEIGHT, BinomialMixture
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.records import Floats
from mechanisms.jit import kernel
from mechanisms.protocols import Posterior
from mechanisms.sums import weighted_sum

__all__ = ["MultinomialMixture", "multinomial_mixture"]

_CUT = 1e-25  # probability that is omitted at each end of a tilted distribution
_DIRECT = 2e8  # largest number of terms of a convolution that is computed without Fourier transforms
_ROUNDING = 1e-15  # error of a Fourier convolution relative to the product of the norms
_LARGEST_ERROR = 1e-9  # error relative to the weight of the total n beyond which no Fourier transforms are used
_STEPS = 400  # largest number of steps in the search of λ

Weights: TypeAlias = tuple[int, Floats]


@dataclass(frozen=True, eq=False)
class MultinomialMixture(Posterior):
    """Posterior of θ given noisy counts; build it with `multinomial_mixture`.

    Parameters
    ----------
    prior : tuple of float
        Dirichlet parameters α of the prior, one per category.
    n : int
        Number of records.
    marginals : tuple of BinomialMixture
        Posterior of each component of θ.
    factors, totals : tuple of (int, ndarray of float64)
        First values and tilted weights of the count of category j, and of the total of the counts of categories 0 to j.
    """

    prior: tuple[float, ...]
    n: int
    marginals: tuple[BinomialMixture, ...] = field(repr=False)
    factors: tuple[Weights, ...] = field(repr=False)
    totals: tuple[Weights, ...] = field(repr=False)

    def mean(self) -> Floats:
        """Return the posterior mean E[θ | y], shape (k,)."""
        return np.array([one.mean() for one in self.marginals])

    def std(self) -> Floats:
        """Return the posterior standard deviation of each component of θ, shape (k,)."""
        return np.array([one.std() for one in self.marginals])

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of values ≤ θⱼ for each component; `theta` has shape (..., k)."""
        values = np.asarray(theta, dtype=np.float64)
        return np.stack([one.cdf(values[..., j]) for j, one in enumerate(self.marginals)], axis=-1)

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of each component of θ, shape (..., k), for probabilities in (0, 1) of any shape."""
        return np.stack([one.quantile(probabilities) for one in self.marginals], axis=-1)

    def sample_counts(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` independent draws of the vector of counts given y, shape (size, k)."""
        uniforms = rng.random((size, len(self.prior)))
        counts, left = np.zeros(uniforms.shape), np.full(size, self.n)
        for j in range(len(self.prior) - 1, 0, -1):
            _split(*self.factors[j], *self.totals[j - 1], *self.totals[j], uniforms[:, j], left)
            counts[:, j], left = left, (self.n - counts[:, j + 1 :].sum(axis=1)).astype(np.int64) - left
        counts[:, 0] = left
        return counts

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` independent draws of θ, shape (size, k): first counts are drawn, then θ given the counts."""
        gammas = rng.standard_gamma(np.array(self.prior) + self.sample_counts(rng, size))
        return gammas / gammas.sum(axis=1, keepdims=True)


def multinomial_mixture(prior: ArrayLike, log_likelihood: ArrayLike) -> MultinomialMixture:
    """Return the exact posterior of θ given a noisy release y of counts c ~ Multinomial(n, θ), θ ~ Dir(α).

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters α, finite and > 0.
    log_likelihood : array_like, shape (k, n + 1)
        ln p(yⱼ | cⱼ = x) at x = 0, …, n, up to a constant per category.

    Returns
    -------
    MultinomialMixture

    Raises
    ------
    ValueError
        If the prior or the shape of `log_likelihood` is invalid, or no counts with sum n are possible.

    Examples
    --------
    >>> y, x = np.array([[6.2], [3.1], [-1.0]]), np.arange(11)
    >>> multinomial_mixture((1, 1, 1), -np.abs(y - x) / 2.0).mean().round(3)
    array([0.535, 0.312, 0.153])
    """
    alpha = np.array(FAMILIES["multinomial"].validate_prior(prior))
    evidence = np.asarray(log_likelihood, dtype=np.float64)
    k = alpha.size
    if evidence.ndim != 2 or len(evidence) != k or evidence.shape[1] < 2:
        raise ValueError(f"log_likelihood must have shape ({k}, n + 1), got {evidence.shape}; pass ln p(y | c)")
    n = evidence.shape[1] - 1
    x = np.arange(n + 1)
    log_factors = special.gammaln(alpha[:, None] + x) - special.gammaln(x + 1) + evidence
    if not np.all(log_factors.max(axis=1) > -np.inf):
        raise ValueError(f"log_likelihood must allow counts with sum n = {n}, got none; check the release")
    tilted = _tilt(log_factors, x)
    for cut, direct in ((_CUT, _DIRECT), (0.0, np.inf)):
        factors = tuple(_window(weights, cut) for weights in tilted)
        up, error = _totals(factors, n, direct)
        down, more = _totals(factors[::-1], n, direct)
        shares, down = [], down[::-1]
        for j, (start, factor) in enumerate(factors):
            first, others = up[j - 1] if j else (0, np.ones(1))
            if j < k - 1:
                (first, others), rounding = _convolve((first, others), down[j + 1], n, direct)
                more += rounding
            index = n - first - np.arange(start, start + factor.size)
            known = (index >= 0) & (index < others.size)
            shares.append(np.where(known, factor * others[np.where(known, index, 0)], 0.0))
        weight = min(share.sum() for share in shares)
        if (error + more if direct < np.inf else 0.0) + cut <= _LARGEST_ERROR * weight:
            break
    if not weight > 0.0:
        raise ValueError(f"log_likelihood must allow counts with sum n = {n}, got none; check the release")
    marginals = []
    for a, (start, _), share in zip(alpha, factors, shares, strict=True):
        kept = np.flatnonzero(share >= SMALLEST_WEIGHT * share.max())
        weights = share[kept] / share[kept].sum()
        marginals.append(BinomialMixture((float(a), float(alpha.sum() - a)), n, start + kept, weights))
    return MultinomialMixture(tuple(alpha.tolist()), n, tuple(marginals), factors, tuple(up))


def _tilt(log_factors: Floats, x: Floats) -> Floats:
    """Return fⱼ(x)·e^(λx), normalised, for the λ with which the means sum to about n."""
    low, high, rate, step = -np.inf, np.inf, 0.0, 1.0 / x.size
    for i in range(_STEPS):
        weights = log_factors + rate * x
        weights -= weights.max(axis=1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=1, keepdims=True)
        means = weighted_sum(weights, x)
        excess, variance = means.sum() - x[-1], (weighted_sum(weights, x * x) - means**2).sum()
        if abs(excess) <= max(0.1 * np.sqrt(max(variance, 0.0)), 0.05):
            break
        low, high = (low, rate) if excess > 0.0 else (rate, high)
        guess = rate - excess / variance if variance > 0.0 and i % 2 == 0 else np.nan
        if not (low < guess < high and abs(guess - rate) <= 4.0 * step):
            step *= 4.0
            guess = 0.5 * (low + high) if np.isfinite(high - low) else rate - np.copysign(step, excess)
        rate = guess
    return weights


def _window(weights: Floats, cut: float) -> Weights:
    """Return the first value and the weights of the values between the two ends of probability `cut`."""
    kept = np.flatnonzero((np.cumsum(weights) > cut) & (np.cumsum(weights[::-1])[::-1] > cut))
    return int(kept[0]), weights[kept[0] : kept[-1] + 1]


def _totals(factors: Sequence[Weights], n: int, direct: float) -> tuple[list[Weights], float]:
    """Return the weights of the totals of the first 1, 2, …, k counts, and the sum of the errors."""
    totals, error = [factors[0]], 0.0
    for factor in factors[1:]:
        total, rounding = _convolve(totals[-1], factor, n, direct)
        totals.append(total)
        error += rounding
    return totals, error


@kernel
def _convolve_directly(f, g):
    """Return the convolution of two sequences, in an order of summation that does not depend on BLAS."""
    found = np.zeros(f.size + g.size - 1)
    for i in range(f.size):
        for j in range(g.size):
            found[i + j] += f[i] * g[j]
    return found


def _convolve(first: Weights, second: Weights, n: int, direct: float) -> tuple[Weights, float]:
    """Return Σ_x first(x)·second(t − x) for totals t ≤ n, and the largest absolute error."""
    (a, f), (b, g) = first, second
    if min(f.size, g.size) < 2 or f.size * g.size <= direct:
        found, error = _convolve_directly(f, g), 0.0
    else:  # the first weights, which are large for small α, are not transformed
        inner = np.maximum(signal.fftconvolve(f[1:], g[1:]), 0.0)
        error = _ROUNDING * math.sqrt(np.sum(f[1:] ** 2) * np.sum(g[1:] ** 2))
        found = np.concatenate([[0.0, 0.0], inner])
        found[: f.size] += f * g[0]
        found[1 : g.size] += f[0] * g[1:]
    return (a + b, np.ascontiguousarray(found[: max(n - a - b + 1, 0)])), error


@kernel
def _split(a, f, b, g, c, total, uniforms, left):
    """Replace each total t in `left` by a draw of x with probability ∝ f(x)·g(t − x); `total` has its sum over x."""
    for row in range(left.size):
        t = left[row]
        x, last = max(a, t - b - g.size + 1), min(a + f.size - 1, t - b)
        bound = uniforms[row] * total[t - c]
        cumulative = f[x - a] * g[t - x - b]
        while x < last and cumulative <= bound:
            x += 1
            cumulative += f[x - a] * g[t - x - b]
        left[row] = x
