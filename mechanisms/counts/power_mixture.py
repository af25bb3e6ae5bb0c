"""Exact sampling of the Hellinger exponential mechanism when there are too many possible outputs to stream.

The distribution is Pr[r] ∝ exp(−a·H(r)) over the counts r of n records in k categories, with inverse temperature
a = rate/S, H² = 1 − t(r), and an affinity t(r) that is a product over categories
(`mechanisms.counts.product_distributions`).

**A mixture of product distributions.** By the series below

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

**The series.** √(1 − t) = 1 − Σ bⱼtʲ with all bⱼ ≥ 0, so that pⱼ ≥ 0, and t = 1 gives Σ pⱼ = 1: they are the pmf of an
integer random variable N. As exp(−a·√s) is the Laplace transform of a²/(2Z²), Z standard normal (Lévy's distribution),
N is a Poisson variable with this random mean, and

    pⱼ = (a/√π)·(a/2)^ν·K_ν(a)/j!,   ν = j − ½,

which extends p to real powers. N is unimodal, as a Poisson mixture over a unimodal distribution (Holgate), and
pⱼ ~ a/(2√π)·j^(−3/2) for j ≫ a²: most powers are of the order a².

References
----------
Devroye, "Non-uniform random variate generation", Springer 1986, chapter II (rejection).
DLMF: NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, 5.11 (Stirling's series), 10.41 (Debye's
expansion), 10.32 (integrals of K). Holgate, "The modality of some compound Poisson distributions", Biometrika 57, 1970.
Gautschi, "Orthogonal polynomials: computation and approximation", Oxford 2004, section 1.5.2 (Gauss rules for sums).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh_tridiagonal

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.conjugate import count_candidates, posterior
from mechanisms.core.hellinger import hellinger
from mechanisms.core.jit import kernel
from mechanisms.core.sums import weighted_sum
from mechanisms.counts import candidates
from mechanisms.counts.mechanism import CountRelease
from mechanisms.counts.product_distributions import (
    ProductDistributions,
    Tables,
    product_distributions,
    propose,
    seed_states,
)

HEAD = 512  # power from which Debye's expansion is used, with an error of 1e-14; smaller powers use a recurrence
VARIATION = 0.5  # largest change of ln p within a group
UNDERFLOW = 750.0  # exponent x above which exp(−x) is zero in double precision
MAX_ROUNDS = 1000  # of rejection; at an acceptance rate of 1/5 more are needed with probability below 1e-96
MEAN_TOLERANCE = 1e-8  # largest accepted relative error of the mean


def series_head(a: float) -> Floats:
    """Return ln pⱼ for j < `HEAD`, which `log_coefficients` needs for the same a."""
    # From 4(1 − t)f'' = a²f + 2f' it follows that 4(j + 1)(j + 2)·pⱼ₊₂ = a²pⱼ + 2(j + 1)(2j + 1)·pⱼ₊₁. All terms are
    # positive, so rounding errors do not grow. The ratios pⱼ₊₁/pⱼ do not underflow as p₀ = exp(−a) does.
    logs, ratio = [-a], a / 2
    for j in range(HEAD - 1):
        logs.append(math.log(ratio))
        ratio = (a * (a / ratio) + 2 * (j + 1) * (2 * j + 1)) / (4 * (j + 1) * (j + 2))
    return np.cumsum(logs)


def first_power(stop: int, log_bound: float, a: float, head: Floats) -> int:
    """Return the last j < `stop` up to the mode with ln(j·pⱼ) ≤ `log_bound`, a bound on ln Σ pᵢ, i < j."""
    # Up to the mode p increases, and so does j·pⱼ ≥ p₀ + … + pⱼ₋₁.
    powers = range(1, min(stop, int(_mode(float(stop), a, head)) + 1))
    return bisect_right(powers, log_bound, key=lambda j: _log_coefficient(float(j), a, head) + math.log(j))


def sum_rule(size: int, n_nodes: int) -> tuple[Floats, Floats]:
    """Return nodes in [0, size − 1] and weights that sum polynomials of degree < 2·n_nodes over 0, ..., size − 1."""
    # This is the Gauss rule of the discrete Chebyshev polynomials (Gautschi, section 1.5.2).
    i = np.arange(1.0, min(size, n_nodes))
    if not i.size:
        return np.full(1, (size - 1) / 2), np.full(1, float(size))
    off_diagonal = 0.5 * size * i * np.sqrt((1 - (i / size) ** 2) / (4 * i * i - 1))
    nodes, vectors = eigh_tridiagonal(np.full(i.size + 1, (size - 1) / 2), off_diagonal)
    return nodes, size * vectors[0] ** 2


@kernel
def _log_coefficient(j, a, head):
    if j < HEAD:
        return head[int(j)]
    # With R = √(ν² + a²), ν·asinh(ν/a) − R (Debye) and j·ln j − j (Stirling) are combined into small terms.
    order = j - 0.5
    radius = math.hypot(order, a)
    share = a / (order + radius) * a
    q = (order / radius) ** 2
    s = 1.0 / radius
    d1 = (5 * q - 3) / 24
    d2 = (1 + q * (5 * q - 6)) / 16
    d3 = (q * (4779 + q * (5525 * q - 9945)) - 375) / 5760
    d4 = (13 + q * (q * (1062 + q * (565 * q - 1356)) - 284)) / 128
    debye = s * (d1 + s * (d2 + s * (d3 + s * d4)))  # logarithm of the series of DLMF 10.41.4
    stirling = (1 / 12 - (1 / 360 - 1 / (1260 * j * j)) / (j * j)) / j
    growth = order * (math.log1p(0.5 * share / order) + math.log1p(-0.5 / j))
    return math.log(a / (2 * j)) + 0.5 * (1 - math.log(math.pi * radius)) - share + growth + debye - stirling


@kernel
def log_coefficients(powers, a, head):
    """Return ln pⱼ for integers j ≥ 0, from `HEAD` on for real j, with an error of 1e-14·max(1, |ln pⱼ|)."""
    result = np.empty(powers.size)
    for i in range(powers.size):
        result[i] = _log_coefficient(powers[i], a, head)
    return result


@kernel
def _mode(stop, a, head):
    """Return the last power j <= stop with p_j >= p_(j-1), by bisection."""
    low, high = 0.0, stop + 1.0
    while high - low > 1.0:
        middle = np.floor(0.5 * (low + high))  # np.floor returns a float, unlike math.floor
        if _log_coefficient(middle, a, head) >= _log_coefficient(middle - 1.0, a, head):
            low = middle
        else:
            high = middle
    return low


@kernel
def group_powers(first, stop, ratio, a, head):
    """Divide the powers from `first` up to `stop` into groups, with starts, stops and the largest ln p of each.

    ln p changes by at most `VARIATION` in a group, and stops/starts is at most `ratio` unless it has one power.
    """
    ends, log_tops = [first], [0.0]
    mode, start = _mode(stop, a, head), first
    while start < stop:
        end = min(max(start + 1.0, math.floor(start * ratio)), stop)
        left, right = _log_coefficient(start, a, head), _log_coefficient(end - 1.0, a, head)
        while abs(right - left) > VARIATION:
            end = start + max(1.0, math.floor(0.5 * (end - start)))
            right = _log_coefficient(end - 1.0, a, head)
        ends.append(end)
        log_tops.append(_log_coefficient(mode, a, head) if start <= mode < end else max(left, right))
        start = end
    return np.array(ends[:-1]), np.array(ends[1:]), np.array(log_tops[1:])


def power_mixture_mechanism(prior: Floats, counts: Integers, inverse_temperature: float) -> PowerMixture:
    """Return Pr[c'] ∝ exp(−a·H(c, c')) as a mixture, with the guarantee of `exponential_mechanism`."""
    distributions, head = product_distributions(prior, counts), series_head(inverse_temperature)
    bound = distributions.reach + min(inverse_temperature * math.sqrt(-math.expm1(-distributions.step)), UNDERFLOW)
    stop = math.ceil(bound / distributions.step)
    first = first_power(stop, -bound, inverse_temperature, head)
    # Within a group the weight t^J decreases by a factor of about ratio^((k − 1)/2), at most exp(1/4).
    ratio = math.exp(0.5 / counts.size)
    starts, stops, log_tops = group_powers(max(float(first), 1.0), float(stop), ratio, inverse_temperature, head)
    tables = distributions.tables(starts)
    with np.errstate(divide="ignore"):
        log_groups = log_tops + np.log(stops - starts) + np.log(tables.off[:, 0])
    log_size = math.log(count_candidates(int(counts.sum()), counts.size))
    log_weights = np.r_[0.0, log_size - inverse_temperature if first == 0 else -math.inf, log_groups]
    # Components 0 and 1 are proposed with power 0, which is always accepted.
    log_tops = np.r_[-inverse_temperature, -inverse_temperature, log_tops]
    bounds = first, stop
    return PowerMixture(
        prior, counts, inverse_temperature, distributions, head, bounds, tables, stops, log_tops, log_weights
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
    _head: Floats  # of the series
    _bounds: tuple[int, int]  # first power, and the one after the last
    _tables: Tables
    _stops: Floats
    _log_tops: Floats
    _log_weights: Floats

    n_uniforms = 2  # which seed the generator of the draw

    def from_uniforms(self, uniforms: Floats) -> Integers:
        u = candidates.require_uniforms(uniforms, self.n_uniforms)
        states, released = seed_states(u), np.empty((len(u), self.k), dtype=np.int64)
        cumulative = np.cumsum(np.exp(self._log_weights - self._log_weights.max()))
        counts, log_affinities = self._distributions.counts, self._distributions.log_affinities
        pending = np.arange(len(u))
        for _ in range(MAX_ROUNDS):
            component, power, log_excess, uniform = propose(
                states, pending, counts, log_affinities, self._tables, self._stops, cumulative, released
            )
            log_p = log_coefficients(power, self.inverse_temperature, self._head)
            log_ratio = log_p - self._log_tops[component] + log_excess
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
        candidates.require_enumerable(self.n, self.k)
        log_pmf = candidates.candidate_distances(self.prior, self.counts, candidates.enumerate_rows(self.n, self.k))
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
                f"the error of the mean must be below {MEAN_TOLERANCE}, got {error:.1e}; average draws instead"
            )
        weight, moment = fine.tolist()
        return math.log1p(weight), moment / (1.0 + weight)

    def _sum_off(self, n_nodes: int) -> Floats:
        """Return Σ exp(−a·H) = Σ pⱼV(j) and Σ H·exp(−a·H) = Σ −(dpⱼ/da)·V(j) over r ≠ c."""
        # Powers up to HEAD are summed one by one, larger powers by Gauss rules for sums over intervals in which ln V
        # and ln p are smooth. As pⱼ ∝ a^(j + ½)·K_{j − ½}(a) and K' = −K₋₁ − (ν/a)·K, the derivative is −dpⱼ/da =
        # (a/2j)·pⱼ₋₁ − pⱼ/a for j ≥ 1, and −dp₀/da = p₀.
        a, (first, stop) = self.inverse_temperature, self._bounds
        single = np.arange(max(first, 1), max(1, min(stop, HEAD + 1)), dtype=np.float64)
        nodes, weights = [single], [np.ones(single.size)]
        # Near its maximum pⱼV(j) is approximately normal in ln j, with variance 1/(a·h) or, near c, 2/(k − 1).
        far = min(a * math.sqrt(-math.expm1(-self._distributions.step)), UNDERFLOW)
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
        p, before = np.exp(log_coefficients(j, a, self._head)), np.exp(log_coefficients(j - 1.0, a, self._head))
        sums = weighted_sum(np.stack([p, (a / (2.0 * j)) * before - p / a]), off)
        if first == 0:
            sums += math.exp(math.log(count_candidates(self.n, self.k) - 1) - a)
        return sums
