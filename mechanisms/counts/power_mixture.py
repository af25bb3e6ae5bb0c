"""Exact sampling of the Hellinger exponential mechanism when there are too many possible outputs to stream.

The distribution is Pr[r] ∝ exp(−a·H(r)) over the counts r of n records in k categories, with inverse temperature
a = rate/S, H² = 1 − t(r), and an affinity t(r) that is a product over categories
(`mechanisms.counts.product_distributions`).

**A mixture of product distributions.** By `mechanisms.counts.power_series`

    exp(−a·√(1 − t)) = Σⱼ pⱼ tʲ,   pⱼ ≥ 0,   Σⱼ pⱼ = 1,

and each tʲ is again a product over categories, whose cost does not depend on the number of outputs. Let
V(j) = Σ t(r)ʲ over r ≠ c. The distribution is a mixture of c with weight 1, a uniform r ≠ c with weight p₀·V(0), and
for each j ≥ 1 an r ≠ c drawn ∝ tʲ with weight pⱼ·V(j).

**Rejection.** The powers j ≥ 1 are divided into groups J, ..., J' − 1 with an upper bound M ≥ pⱼ. Propose group
(J, J', M) with probability ∝ M·(J' − J)·V(J), j uniformly in it, and r ≠ c ∝ t(r)^J; accept with probability
(pⱼ/M)·t(r)^(j − J). Then (j, r) is accepted ∝ pⱼ·t(r)ʲ: the choice of groups affects the speed, not the distribution.
For j = 0, propose a uniform candidate with probability ∝ p₀·|R| and reject c. Component c has weight 1 and is never
rejected. After a rejection, a new group is drawn. For ten or more candidates, at least four in five proposals are
accepted.

**Truncation.** Let u be the least −ln t over r ≠ c. Each of three truncations removes less than 2⁻⁵³ of the weight of
r ≠ c, which is at least exp(−a·h) with h = √(1 − exp(−u)): the powers j ≥ `stop`, as V(j) ≤ |R|·exp(−j·u); the powers
j < `first`, as V(j) ≤ |R|; and counts far from c, see `product_distributions`. If a·h > 750, `stop` and `first` are
computed for 750: the weight of r ≠ c is then zero in double precision.

References
----------
Devroye, "Non-uniform random variate generation", Springer 1986, chapter II (rejection).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arguments import Floats, Integers
from mechanisms.conjugate import count_candidates, posterior, validate_counts, validate_prior
from mechanisms.counts.candidates import (
    candidate_distances,
    compute_inverse_temperature,
    enumerate_rows,
    require_enumerable,
    require_uniforms,
)
from mechanisms.counts.power_series import HEAD, PowerSeries, power_series, sum_rule
from mechanisms.counts.product_distributions import (
    ProductDistributions,
    Tables,
    product_distributions,
    propose,
    seed_states,
)
from mechanisms.counts.release import CountRelease
from mechanisms.hellinger import hellinger
from mechanisms.sums import weighted_sum

UNDERFLOW = 750.0  # exponent x above which exp(−x) is zero in double precision
# largest number of rejection rounds; at an acceptance rate of 1/5 more are needed with probability below 1e-96
MAX_ROUNDS = 1000
MEAN_TOLERANCE = 1e-8  # largest accepted relative error of the mean


def power_mixture_mechanism(prior: ArrayLike, counts: ArrayLike, rate: float, sensitivity: float) -> PowerMixture:
    """Return Pr[c'] ∝ exp(−rate·H(c, c')/S) as a mixture, with the guarantee of `exponential_mechanism`."""
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    inverse_temperature = compute_inverse_temperature(rate, sensitivity)
    alpha.flags.writeable = c.flags.writeable = False
    distributions, series = product_distributions(alpha, c), power_series(inverse_temperature)
    bound = distributions.reach + min(inverse_temperature * math.sqrt(-math.expm1(-distributions.step)), UNDERFLOW)
    stop = math.ceil(bound / distributions.step)
    first = series.first_power(stop, -bound)
    # Within a group the weight t^J decreases by a factor of about ratio^((k − 1)/2), at most exp(1/4).
    starts, stops, log_tops = series.groups(max(first, 1), stop, math.exp(0.5 / c.size))
    tables = distributions.tables(starts)
    with np.errstate(divide="ignore"):
        log_groups = log_tops + np.log(stops - starts) + np.log(tables.off[:, 0])
    log_uniform = math.log(count_candidates(int(c.sum()), c.size)) - inverse_temperature if first == 0 else -math.inf
    log_weights = np.r_[0.0, log_uniform, log_groups]
    # Components 0 and 1 are proposed with power 0, which is always accepted.
    log_tops = np.r_[-inverse_temperature, -inverse_temperature, log_tops]
    for table in (stops, log_tops, log_weights):
        table.flags.writeable = False
    return PowerMixture(
        alpha, c, inverse_temperature, distributions, series, (first, stop), tables, stops, log_tops, log_weights
    )


@dataclass(frozen=True, eq=False, repr=False)
class PowerMixture(CountRelease):
    """Output distribution of the exponential mechanism at one data set, created by `power_mixture_mechanism`.

    The 106 bits of the two uniforms of a draw seed a separate generator for its proposals and rejections. Draw i
    therefore depends on row i only, and is exact if the output of the generator is random.
    """

    prior: Floats
    counts: Integers
    inverse_temperature: float  # coefficient of H in the exponent: rate/S
    _distributions: ProductDistributions
    _series: PowerSeries
    _powers: tuple[int, int]
    _tables: Tables
    _stops: Floats
    _log_tops: Floats
    _log_weights: Floats

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw, which seed the generator of the draw."""
        return 2

    @property
    def acceptance(self) -> float:
        """Probability that a proposal is accepted."""
        return math.exp(self._moments[0] - float(np.logaddexp.reduce(self._log_weights)))

    def from_uniforms(self, uniforms: Floats) -> Integers:
        """Draw released counts by rejection; see `CountRelease.from_uniforms`."""
        u = require_uniforms(uniforms, self.n_uniforms)
        states, released = seed_states(u), np.empty((len(u), self.k), dtype=np.int64)
        cumulative = np.cumsum(np.exp(self._log_weights - self._log_weights.max()))
        pending = np.arange(len(u))
        for _ in range(MAX_ROUNDS):
            component, power, log_excess, uniform = propose(
                states, pending, self._distributions, self._tables, self._stops, cumulative, released
            )
            log_ratio = self._series.log_coefficients(power) - self._log_tops[component] + log_excess
            pending = pending[uniform >= np.exp(log_ratio)]
            if not pending.size:
                return released
        raise AssertionError(f"{pending.size} draws had no proposal accepted in {MAX_ROUNDS} rounds: {self}")

    def expected_hellinger(self) -> float:
        """Return the mean Hellinger distance between true and released posteriors, up to a relative error of 1e-8."""
        return self._moments[1]

    def log_prob(self, released: ArrayLike) -> Floats:
        """Return the log probability of the given counts, with an absolute error below about 1e-8."""
        r = np.asarray(released, dtype=np.float64)
        parameters = posterior(self.prior, r)
        if not (np.all(r == np.floor(r)) and np.all(r.sum(axis=-1) == self.n)):
            raise ValueError(f"released must be integers with sum {self.n}, got {r}; pass counts of n records")
        return -self.inverse_temperature * hellinger(posterior(self.prior, self.counts), parameters) - self._moments[0]

    def log_pmf(self) -> Floats:
        """Return the log-pmf over all counts of n records; see `CountRelease.log_pmf`."""
        require_enumerable(self.n, self.k)
        log_pmf = candidate_distances(self.prior, self.counts, enumerate_rows(self.n, self.k))
        log_pmf *= -self.inverse_temperature
        log_pmf -= self._moments[0]
        return log_pmf

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """Log of the normaliser Σ exp(−a·H), and mean of the Hellinger distance H."""
        coarse, fine = self._sum_off(10), self._sum_off(14)
        error = float(np.max(np.abs(coarse - fine) / np.maximum(fine, np.finfo(np.float64).tiny)))
        if not error < MEAN_TOLERANCE:
            raise ValueError(
                f"the relative error of the mean must be below {MEAN_TOLERANCE}, got {error:.1e} (n = {self.n}, "
                f"k = {self.k}, inverse temperature {self.inverse_temperature:.6g}); average draws instead, or use "
                "fewer records or categories"
            )
        weight, moment = fine.tolist()
        return math.log1p(weight), moment / (1.0 + weight)

    def _sum_off(self, n_nodes: int) -> Floats:
        """Return Σ exp(−a·H) = Σ pⱼV(j) and Σ H·exp(−a·H) = Σ −(dpⱼ/da)·V(j) over r ≠ c.

        Powers up to HEAD are summed one by one, larger powers by Gauss rules for sums over intervals in which ln V and
        ln p are smooth. As pⱼ ∝ a^(j + ½)·K_{j − ½}(a) and K' = −K₋₁ − (ν/a)·K, the derivative is
        −dpⱼ/da = (a/2j)·pⱼ₋₁ − pⱼ/a for j ≥ 1, and −dp₀/da = p₀.
        """
        first, stop = self._powers
        single = np.arange(max(first, 1), max(1, min(stop, HEAD + 1)), dtype=np.float64)
        nodes, weights = [single], [np.ones(single.size)]
        # Near its maximum pⱼV(j) is approximately normal in ln j, with variance 1/(a·h) or, near c, 2/(k − 1).
        far = min(self.inverse_temperature * math.sqrt(-math.expm1(-self._distributions.step)), UNDERFLOW)
        share = min(0.5, 4.0 / math.sqrt(self.k + far))
        start = max(first, HEAD + 1)
        while start < stop:
            end = min(stop, start + max(1, int(share * start)))
            x, w = sum_rule(end - start, n_nodes)
            nodes.append(start + x)
            weights.append(w)
            start = end
        j, w = np.concatenate(nodes), np.concatenate(weights)
        parts = np.array_split(j, 1 + j.size // 16)  # in blocks, as tables of small powers are large
        off = w * np.concatenate([self._distributions.tables(part).off[:, 0] for part in parts])
        p = np.exp(self._series.log_coefficients(j))
        before = np.exp(self._series.log_coefficients(j - 1.0))
        slope = (self.inverse_temperature / (2.0 * j)) * before - p / self.inverse_temperature
        sums = weighted_sum(np.stack([p, slope]), off)
        if first == 0:
            sums += math.exp(math.log(count_candidates(self.n, self.k) - 1) - self.inverse_temperature)
        return sums
