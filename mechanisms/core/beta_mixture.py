"""Finite mixtures of Beta distributions: posteriors of a probability given the distribution of a count of n records.

Consecutive components differ by one binomial probability: with N = a + b,

    I_θ(a, b) = I_θ(a + 1, b − 1) + t(a),   t(a) = Γ(N)/(Γ(a + 1)·Γ(b))·θᵃ(1 − θ)ᵇ⁻¹.

With the cumulative weights P(x) of a run of consecutive counts, whose last component is I_last, its distribution
function is P·I_last + Σ t(a + x)·P(x) over the other counts: two incomplete beta functions, which give the sum of t,
and a loop around the mode of t. Omitted terms are below 1e-20 times the largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.core.arguments import Floats, Integers, real_array, validate_integer
from mechanisms.core.jit import kernel
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.core.sums import weighted_sum

SMALLEST_WEIGHT = 1e-18
_MANY = 4_096  # number of counts up to which each has its incomplete beta function


@dataclass(frozen=True, eq=False)
class BinomialMixture(Posterior):
    """Posterior of θ given the distribution of a binomial count."""

    prior: tuple[float, float]
    n: int | Integers  # number of records, or one per count
    counts: Integers = field(repr=False)  # s with a non-negligible weight, ascending, shape (c,)
    weights: Floats = field(repr=False)  # posterior probabilities of the counts

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of values ≤ θ, for `theta` in [0, 1] of any shape."""
        values = real_array("theta", theta)
        possible = (values >= 0.0) & (values <= 1.0)
        if not np.all(possible):
            raise ValueError(f"theta must be in [0, 1], got {values[~possible].flat[0]}; check the parameters")
        alpha, beta = self._components()
        if alpha.size <= _MANY or np.ndim(self.n):
            return weighted_sum(special.betainc(alpha, beta, values[..., None]), self.weights)
        inside = np.clip(values.ravel(), 1e-300, 1.0 - 1e-16)
        cdf = _Runs([self], values.size).evaluate(inside)[0].reshape(values.shape)
        return np.where(values == 0.0, 0.0, np.where(values == 1.0, 1.0, cdf))[()]

    def mean(self) -> float:
        """Return the posterior mean E[θ | y]."""
        if np.ndim(self.n):
            return float(weighted_sum(self._components()[0] / (sum(self.prior) + self.n), self.weights))
        return float(weighted_sum(self._components()[0], self.weights) / (sum(self.prior) + self.n))

    def std(self) -> float:
        """Return the standard deviation of θ given y."""
        alpha, beta = self._components()
        means = alpha / (alpha + beta)
        within = means * (beta / (alpha + beta)) / (alpha + beta + 1.0)
        return float(np.sqrt(weighted_sum(within + (means - weighted_sum(means, self.weights)) ** 2, self.weights)))

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of θ, for probabilities in (0, 1) of any shape, with an absolute error below 1e-12."""
        p = validate_probabilities(probabilities)
        return mixture_quantiles([self], p.ravel()).reshape(p.shape)[()]  # a number for one probability

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw `size` independent values of θ, each from the Beta component of a count that is drawn first."""
        size = validate_integer("size", size)
        drawn = np.searchsorted(np.cumsum(self.weights), rng.random(size), side="right")
        alpha, beta = self._components()
        chosen = np.minimum(drawn, self.weights.size - 1)
        return rng.beta(alpha[chosen], beta[chosen])

    def _components(self) -> tuple[NDArray, NDArray]:
        return self.prior[0] + self.counts, self.prior[1] + (self.n - self.counts)


def mixture_quantiles(mixtures: Sequence[BinomialMixture], p: Floats) -> Floats:
    """Return quantiles of several mixtures, shape (p, mixtures), by Newton's method and bisection for all at once."""
    runs = _Runs(mixtures, p.size)
    moments = np.array([(mixture.mean(), mixture.std()) for mixture in mixtures])
    target = np.repeat(p, len(mixtures))
    x = np.clip(moments[:, 0] + special.ndtri(p)[:, None] * moments[:, 1], 0.1 * moments[:, 0], None).ravel()
    low, high = np.zeros(x.size), np.ones(x.size)
    x = np.where(x < 1.0, x, 0.5)
    for step in range(200):
        cdf, density = runs.evaluate(x)
        is_low = cdf < target
        low, high = np.where(is_low, x, low), np.where(is_low, high, x)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            new = x + (target - cdf) / density
        if np.all((np.abs(new - x) <= 1e-14) | (high - low <= 1e-13)):
            break
        is_inside = (low < new) & (new < high) & (step % 4 < 3)  # bisection in each fourth step
        x = np.where(is_inside, new, 0.5 * (low + high))
    return np.clip(np.where(np.isfinite(new), new, x), low, high).reshape(p.size, len(mixtures))


class _Runs:
    """Runs of consecutive counts with one total, for queries of every mixture, `repeats` times."""

    def __init__(self, mixtures: Sequence[BinomialMixture], repeats: int) -> None:
        parts = []
        for j, mixture in enumerate(mixtures):
            alpha, beta = mixture._components()
            first = np.flatnonzero(
                (np.diff(alpha, prepend=np.nan) != 1.0) | (np.diff(alpha + beta, prepend=0.0) != 0.0)
            )
            parts.append((np.full(first.size, j), alpha[first], beta[first], np.diff(np.append(first, alpha.size))))
        query, alpha, beta, size = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        weights = np.concatenate([mixture.weights for mixture in mixtures])
        self.cumulative = np.concatenate([np.cumsum(run) for run in np.split(weights, np.cumsum(size)[:-1])])
        self.offset = np.tile(np.cumsum(size) - size, repeats)
        self.query = (len(mixtures) * np.arange(repeats)[:, None] + query).ravel()
        self.alpha, self.beta, self.size = (np.tile(column, repeats) for column in (alpha, beta, size))

    def evaluate(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return distribution functions and densities at one θ in (0, 1) per query."""
        at, more = theta[self.query], self.size - 1
        begin, end = (
            special.betainc(self.alpha, self.beta, at),
            special.betainc(self.alpha + more, self.beta - more, at),
        )
        cdf, density = np.zeros((2, theta.size))
        _add_runs(
            self.query, at, self.alpha, self.beta, self.offset, self.size, self.cumulative, begin, end, cdf, density
        )
        return cdf, density


@kernel
def _add_runs(query, theta, alpha, beta, offset, size, cumulative, begin, end, cdf, density):
    """Add the distribution function and the density of each run to those of its query."""
    for i in range(query.size):
        x, a, b, n = theta[i], alpha[i], beta[i], size[i]
        odds = x / (1.0 - x)
        mode = min(max(int(x * (a + b) - a), 0), max(n - 2, 0))
        terms, weighted, slope = 0.0, 0.0, 0.0  # sums of t, t·P and t·p·a
        term = 1.0
        for j in range(mode, n):
            if j > mode:
                term *= odds * (b - j) / (a + j)  # t(a + j)/t(a + j − 1)
            above = cumulative[offset[i] + j]
            slope += term * (above - (cumulative[offset[i] + j - 1] if j > 0 else 0.0)) * (a + j)
            if j < n - 1:
                terms += term
                weighted += term * above
            if term < 1e-20:
                break
        term = 1.0
        for j in range(mode - 1, -1, -1):
            term *= (a + j + 1.0) / (odds * (b - j - 1.0))
            above = cumulative[offset[i] + j]
            slope += term * (above - (cumulative[offset[i] + j - 1] if j > 0 else 0.0)) * (a + j)
            terms += term
            weighted += term * above
            if term < 1e-20:
                break
        if n > 1:
            scale = (begin[i] - end[i]) / terms
        else:
            log_term = math.lgamma(a + b) - math.lgamma(a + 1.0) - math.lgamma(b) + a * np.log(x)
            scale = np.exp(log_term + (b - 1.0) * np.log1p(-x))
        cdf[query[i]] += cumulative[offset[i] + n - 1] * end[i] + scale * weighted
        density[query[i]] += scale * slope / x
