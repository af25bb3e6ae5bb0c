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

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from mechanisms.arguments import real_array, validate_integer
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.noisy_statistics import validate_noise_scale
from mechanisms.privacy_parameters import validate_size
from mechanisms.protocols import Posterior, validate_probabilities
from mechanisms.sums import weighted_sum

__all__ = ["BinomialMixture", "binomial_mixture", "count_mixture"]

SMALLEST_WEIGHT = 1e-18
_MANY = 4_096  # number of counts beyond which distribution functions of components far from θ are 0 or 1


@dataclass(frozen=True, eq=False)
class BinomialMixture(Posterior):
    """Posterior of θ given one noisy count; build it with `binomial_mixture`."""

    prior: tuple[float, float]
    n: int
    counts: NDArray[np.int64] = field(repr=False)  # s with a non-negligible weight, ascending, shape (c,)
    weights: NDArray[np.float64] = field(repr=False)  # posterior probabilities of the counts

    def cdf(self, theta: ArrayLike) -> NDArray[np.float64]:
        """Return the posterior probability of values ≤ θ, for `theta` in [0, 1] of any shape."""
        values = FAMILIES["binomial"].validate_parameters(theta)
        alpha, beta = self._components()
        if alpha.size <= _MANY:
            return weighted_sum(special.betainc(alpha, beta, values[..., None]), self.weights)
        # The tail of Beta(a, b) at θ is below e^(−41) if |a − (a + b)·θ| > 16 + √(187 + 82·(a + b)·θ·(1 − θ)), by
        # Bernstein's inequality for Binomial(a + b − 1, θ).
        total, below = sum(self.prior) + self.n, np.append(0.0, np.cumsum(self.weights))
        width = 16.0 + np.sqrt(187.0 + 82.0 * total * values * (1.0 - values))
        ends = [np.searchsorted(alpha, total * values + side * width) for side in (-1.0, 1.0)]
        found = np.empty(values.shape)
        for i, value in np.ndenumerate(values):
            near = slice(ends[0][i], ends[1][i])
            inside = weighted_sum(special.betainc(alpha[near], beta[near], value), self.weights[near])
            found[i] = below[near.start] + inside
        return found[()]

    def mean(self) -> float:
        """Return the posterior mean E[θ | y]."""
        return float(weighted_sum(self._components()[0], self.weights)) / (sum(self.prior) + self.n)

    def std(self) -> float:
        """Return the standard deviation of θ given y."""
        alpha, beta = self._components()
        means = alpha / (alpha + beta)
        within = means * (beta / (alpha + beta)) / (alpha + beta + 1.0)
        return float(np.sqrt(weighted_sum(within + (means - weighted_sum(means, self.weights)) ** 2, self.weights)))

    def quantile(self, probabilities: ArrayLike) -> NDArray[np.float64]:
        """Return quantiles of θ, for probabilities in (0, 1) of any shape, with an absolute error below 1e-12."""
        p = validate_probabilities(probabilities)
        roots = [optimize.brentq(lambda x, q=q: self.cdf(x) - q, 0.0, 1.0, xtol=1e-13, rtol=1e-14) for q in p.ravel()]
        return np.reshape(roots, p.shape)[()]  # a number for one probability

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        """Draw `size` independent values of θ, each from the Beta component of a count that is drawn first."""
        size = validate_integer("size", size)
        drawn = np.searchsorted(np.cumsum(self.weights), rng.random(size), side="right")
        alpha, beta = self._components()
        chosen = np.minimum(drawn, self.weights.size - 1)
        return rng.beta(alpha[chosen], beta[chosen])

    def _components(self) -> tuple[NDArray, NDArray]:
        return self.prior[0] + self.counts, self.prior[1] + (self.n - self.counts)


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
