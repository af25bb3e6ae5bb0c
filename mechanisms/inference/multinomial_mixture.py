"""Exact posterior of the multinomial model given noisy counts: a finite mixture of Dirichlet distributions.

Summing over the unreleased counts c gives

    p(θ | y) = Σ_c w_c·Dir(θ; α + c),  w_c ∝ Πⱼ fⱼ(cⱼ) on Σⱼ cⱼ = n,  fⱼ(x) = Γ(αⱼ + x)/x!·p(yⱼ | x).

The sums over c are convolutions of the fⱼ, so that O(k·n²) operations replace the enumeration of C(n + k − 1, k − 1)
vectors. Convolutions are computed from logarithms and have no cancellation. Draws of c start at the last category:
given the total t of the first j counts, the count x of category j has weight fⱼ(x)·total(t − x), where total(t − x) is
the weight of the total t − x of the first j − 1 counts.

For K-norm noise the weights are also a product: its log density is −Σⱼ |yⱼ − cⱼ|/scale, given Σⱼ cⱼ = Σⱼ yⱼ = n.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018: the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.inference.binomial_mixture import BinomialMixture, count_mixture
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.records import Floats
from mechanisms.jit import kernel
from mechanisms.protocols import Posterior

__all__ = ["MultinomialMixture", "multinomial_mixture"]


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
    log_factors, log_totals : ndarray of float64, shape (k, n + 1)
        Row j contains, for x = 0, …, n, ln fⱼ(x) and the log weight of the total x of the counts of categories 0 to j.
    """

    prior: tuple[float, ...]
    n: int
    marginals: tuple[BinomialMixture, ...] = field(repr=False)
    log_factors: Floats = field(repr=False)
    log_totals: Floats = field(repr=False)

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
        counts = np.zeros((size, len(self.prior)))
        _draw_counts(self.log_factors, self.log_totals, rng.random(counts.shape), counts)
        return counts

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` independent draws of θ, shape (size, k): first counts are drawn, then θ given the counts."""
        gammas = rng.standard_gamma(np.array(self.prior) + self.sample_counts(rng, size))
        return gammas / gammas.sum(axis=1, keepdims=True)


def multinomial_mixture(prior: ArrayLike, log_likelihood: ArrayLike) -> MultinomialMixture:
    """Return the exact posterior of θ given a noisy release y of counts c ~ Multinomial(n, θ), θ ~ Dir(α).

    The cost is (3k − 4)·n²/2 exponentials: about 0.04 s for k = 3 and 0.35 s for k = 10 at n = 1,000.

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
    up, down = _totals(log_factors), _totals(log_factors[::-1])[::-1]
    if not math.isfinite(up[-1, n]):
        raise ValueError(f"log_likelihood must allow counts with sum n = {n}, got none; check the release")
    marginals = []
    for j in range(k):
        others = up[j - 1] if j == k - 1 else down[j + 1] if j == 0 else _convolve(up[j - 1], down[j + 1])
        # count_mixture multiplies by Γ(αⱼ + x)/x!·Γ(β + n − x)/(n − x)!; the weights of the other categories replace
        # the second factor.
        rest = alpha.sum() - alpha[j]
        own = special.gammaln(rest + n - x) - special.gammaln(n - x + 1)
        marginals.append(count_mixture((alpha[j], rest), evidence[j] + others[::-1] - own))
    return MultinomialMixture(tuple(alpha.tolist()), n, tuple(marginals), log_factors, up)


def _totals(log_factors: Floats) -> Floats:
    """Return the log weights of the totals of the first 1, 2, …, k counts, one row each, shape (k, n + 1)."""
    totals = [np.ascontiguousarray(log_factors[0])]
    for factor in log_factors[1:]:
        totals.append(_convolve(totals[-1], np.ascontiguousarray(factor)))
    return np.stack(totals)


@kernel
def _convolve(first, second):
    """Return ln Σ_x exp(first[x] + second[t − x]) for t = 0, …, n."""
    out = np.empty(first.size)
    for t in range(first.size):
        largest = -np.inf
        for x in range(t + 1):
            largest = max(largest, first[x] + second[t - x])
        total = 0.0
        if largest > -np.inf:
            for x in range(t + 1):
                total += math.exp(first[x] + second[t - x] - largest)
        out[t] = largest + math.log(total) if total > 0.0 else -np.inf
    return out


@kernel
def _draw_counts(log_factors, log_totals, uniforms, counts):
    """Fill `counts` from the last category to the first: given the total t, the count x has weight f(x)·total(t − x).

    t is the total of the counts not yet drawn, f(x) the factor of the category, and total(t − x) the weight of the
    total t − x of the counts that remain after x.
    """
    k, n = log_factors.shape[0], log_factors.shape[1] - 1
    for row in range(counts.shape[0]):
        left = n
        for j in range(k - 1, 0, -1):
            log_sum, cumulative = log_totals[j, left], 0.0
            x = -1
            while x < left and cumulative <= uniforms[row, j]:
                x += 1
                cumulative += math.exp(log_factors[j, x] + log_totals[j - 1, left - x] - log_sum)
            counts[row, j] = x
            left -= x
        counts[row, 0] = left
