"""Finite mixtures of Beta distributions: posteriors of a probability given the distribution of a count of n records."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from mechanisms.arguments import Floats, Integers, real_array, validate_integer
from mechanisms.protocols import Posterior, validate_probabilities
from mechanisms.sums import weighted_sum

SMALLEST_WEIGHT = 1e-18
_MANY = 4_096  # number of counts beyond which distribution functions of components far from θ are 0 or 1


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
            raise ValueError(
                f"theta must be finite and between 0 and 1, got {values[~possible].flat[0]}; check the parameters"
            )
        alpha, beta = self._components()
        if alpha.size <= _MANY or np.ndim(self.n):
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
        roots = [optimize.brentq(lambda x, q=q: self.cdf(x) - q, 0.0, 1.0, xtol=1e-13, rtol=1e-14) for q in p.ravel()]
        return np.reshape(roots, p.shape)[()]  # a number for one probability

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw `size` independent values of θ, each from the Beta component of a count that is drawn first."""
        size = validate_integer("size", size)
        drawn = np.searchsorted(np.cumsum(self.weights), rng.random(size), side="right")
        alpha, beta = self._components()
        chosen = np.minimum(drawn, self.weights.size - 1)
        return rng.beta(alpha[chosen], beta[chosen])

    def _components(self) -> tuple[NDArray, NDArray]:
        return self.prior[0] + self.counts, self.prior[1] + (self.n - self.counts)
