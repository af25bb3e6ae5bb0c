"""Product distributions over categories conditioned on the total, tabulated for sampling.

With the affinity t(r) = Πᵢ exp(gᵢ(rᵢ)) of candidate r to the true counts c, gᵢ(x) = ℓ(αᵢ + cᵢ, αᵢ + x) ≤ 0 (see
`mechanisms.core.hellinger`), the distribution with power J is ∝ t(r)^J over the candidates r ≠ c. Its suffix sums

    Sᵢ(m) = Σ Πₗ exp(J·gₗ(rₗ))   over all counts of m records in the categories l ≥ i

are convolutions from the last category to the first. Categories are sampled from the first to the last, each ∝
exp(J·gᵢ(x))·Sᵢ₊₁(m − x) if m records remain. If all previous categories agree with c, the sum without c replaces Sᵢ₊₁
at x = cᵢ, as the remaining categories must differ from c.

**Precision.** All sums have positive terms and are computed directly, not by Fourier transforms; their relative error
is at most about 1e-16 times the number of terms. Let u be the least −ln t over r ≠ c. Counts x with −J·gᵢ(x) > `reach`
+ J·u are omitted: with `reach` = ln(2⁵³·|R|) their total weight is less than 2⁻⁵³ of the weight of the distribution,
which is at least exp(−J·u). For large J, few counts remain, and the convolutions are cheap.

**Limits.** The decision to accept a data set must not depend on its counts. Work and memory are therefore bounded over
all data sets of n records, from public arguments only, before any table is computed. As (ln Γ)'' ≥ 1/x = (x·ln x)'',
with a = αᵢ + cᵢ and b = αᵢ + x

    −gᵢ(x) ≥ ½(a·ln a + b·ln b) − ½(a + b)·ln(½(a + b)) ≥ (a − b)²/(4(a + b)),

and at most wᵢ = 1 + 4√(B² + 2B·a) counts x have −gᵢ(x) ≤ B. By concavity Σ wᵢ ≤ W = k + 4√(k²B² + 2kB·(n + Σα)), and
the convolutions of one power take at most Σ_{i<l} wᵢ·wₗ ≤ ½(1 − 1/k)·W² multiplications. The powers of
`mechanisms.counts.power_mixture` have J·u ≤ reach + ε if S is at least the local sensitivity, so B ≤ 2·reach/J for
small ε; for large ε small powers are omitted. Powers up to max(2k, 40) are counted one by one. Larger ones are counted
once per group, whose ends have the ratio exp(½/k).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.conjugate import count_candidates, require_at_most
from mechanisms.core.hellinger import log_affinity
from mechanisms.core.jit import kernel
from mechanisms.counts.candidates import FEWER, MAX_TABLE

# largest allowed bound on the number of multiplications for one set of tables. At balanced data about a fifth of the
# bound is needed, which takes about ten seconds
MAX_WORK = 100_000_000_000
# largest allowed bound on the number of entries of one set of tables, 800 MB; balanced data need about a third
MAX_ENTRIES = 100_000_000
MAX_LOG_CANDIDATES = 650.0  # largest ln |R| for which sums over candidates do not overflow


def require_product_distributions(n: int, k: int, prior_total: float = 0.0) -> None:
    """Raise ValueError if tables may be too large for some counts of n records; the check uses no private argument."""
    advice = "use fewer records, merge categories, lower the prior, or choose a mechanism that only adds noise"
    require_at_most(MAX_TABLE, "entries of tables", k * (n + 1), n, k, advice)
    log_candidates = math.log(count_candidates(n, k))
    if log_candidates > MAX_LOG_CANDIDATES:
        raise ValueError(
            f"there must be at most exp({MAX_LOG_CANDIDATES:g}) candidates, got exp({log_candidates:.0f}); {FEWER}"
        )
    work, size = bound_tables(n, k, prior_total)
    require_at_most(MAX_WORK, "multiplications for convolutions", work, n, k, advice)
    require_at_most(MAX_ENTRIES, "entries of tables", size, n, k, advice)


def bound_tables(n: int, k: int, prior_total: float) -> tuple[int, int]:
    """Return upper bounds on the work for the tables and on their size over all data sets; see the module docstring."""
    reach = log_reach(n, k)
    single = max(2 * k, 40)
    stop = 16.0 * reach * (n + prior_total)  # u is above 1/(8(n + Σα))
    n_groups = max(1, math.ceil(2 * k * math.log(stop / single)))
    powers = np.concatenate([np.arange(1.0, single), single * np.exp(0.5 / k * np.arange(n_groups))])
    bound = 2.0 * reach / powers
    widths = np.minimum(k + 4.0 * np.sqrt((k * bound) ** 2 + 2 * k * bound * (n + prior_total)), k * (n + 1.0))
    work = np.minimum(0.5 * (1.0 - 1.0 / k) * widths**2, widths * (n + 1.0))
    size = widths + np.minimum(0.5 * (k + 1) * widths, k * (n + 1.0))
    return int(work.sum()), int(size.sum())


def log_reach(n: int, k: int) -> float:
    """Return ln(2⁵³·|R|) for n records in k categories; log weights further below the largest are negligible."""
    return math.log(count_candidates(n, k)) + 53 * math.log(2)


class Tables(NamedTuple):
    """Tables for the distributions at L powers J, restricted to counts of non-negligible weight."""

    powers: Floats  # J, shape (L,)
    low: Integers  # smallest and largest count of each category, shape (L, k)
    high: Integers
    low_total: Integers  # smallest and largest total of each category and all later ones, shape (L, k)
    high_total: Integers
    weight_start: Integers  # starts in `weights` of the values exp(J·g) of each category, shape (L, k)
    sum_start: Integers  # starts in `sums` of the suffix sums S of each category, shape (L, k)
    weights: Floats
    sums: Floats
    off: Floats  # S at the total of c without c itself, shape (L, k); off[:, 0] is the total weight Σ t(r)^J over r ≠ c


def product_distributions(prior: Floats, counts: Integers) -> ProductDistributions:
    """Return the distributions ∝ t(r)^J over counts r ≠ c of n records, for any power J > 0 of the affinity t to c."""
    n, k = int(counts.sum()), counts.size
    require_product_distributions(n, k, float(prior.sum()))
    log_affinities = np.array([log_affinity(a + c, a + np.arange(n + 1)) for a, c in zip(prior, counts, strict=True)])
    step = _least_step(log_affinities, counts)
    counts = counts.copy()
    counts.flags.writeable = log_affinities.flags.writeable = False
    return ProductDistributions(counts, log_affinities, log_reach(n, k), step)


@dataclass(frozen=True, eq=False)
class ProductDistributions:
    """Distributions ∝ t(r)^J over r ≠ c for any power J > 0, created by `product_distributions`."""

    counts: Integers = field(repr=False)
    log_affinities: Floats = field(repr=False)  # gᵢ(x), shape (k, n + 1)
    reach: float  # ln(2⁵³·|R|): even |R| terms of exp(−reach) times the largest term are negligible
    step: float  # least −ln t(r) over r ≠ c

    def tables(self, powers: Floats) -> Tables:
        """Return tables for the distributions at the given powers, real numbers > 0 of shape (L,)."""
        n, k = int(self.counts.sum()), self.counts.size
        bound = self.reach / powers + self.step
        low, high = np.empty((powers.size, k), dtype=np.int64), np.empty((powers.size, k), dtype=np.int64)
        for category, (row, count) in enumerate(zip(self.log_affinities, self.counts, strict=True)):
            # g decreases on both sides of c.
            low[:, category] = np.searchsorted(row[: count + 1], -bound)
            high[:, category] = count + np.searchsorted(-row[count:], bound, side="right") - 1
        # The ranges of the other categories also bound each category.
        most, least = high.sum(axis=1, keepdims=True) - high, low.sum(axis=1, keepdims=True) - low
        low, high = np.maximum(low, n - most), np.minimum(high, n - least)
        low_before, high_before = np.cumsum(low, axis=1) - low, np.cumsum(high, axis=1) - high
        low_total = np.maximum(low.sum(axis=1, keepdims=True) - low_before, n - high_before)
        high_total = np.minimum(high.sum(axis=1, keepdims=True) - high_before, n - low_before)
        widths, totals = high - low + 1, high_total - low_total + 1
        weight_start = np.cumsum(widths).reshape(widths.shape) - widths
        sum_start = np.cumsum(totals).reshape(totals.shape) - totals
        storage = np.empty(widths.sum()), np.zeros(totals.sum()), np.empty(widths.shape)
        tables = Tables(powers, low, high, low_total, high_total, weight_start, sum_start, *storage)
        _fill(self.counts, self.log_affinities, tables)
        for table in tables:
            table.flags.writeable = False
        return tables


def seed_states(uniforms: Floats) -> NDArray[np.uint64]:
    """Return states of xoshiro256++, shape (trials, 4), each half seeded by splitmix64 from one of two uniforms.

    Different pairs yield different states. References: Blackman & Vigna, "Scrambled linear pseudorandom number
    generators", ACM TOMS 47, 2021. Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    states = np.empty((len(uniforms), 4), dtype=np.uint64)
    _seed((uniforms + 0.0).view(np.uint64), states)  # adding zero turns −0.0 into 0.0
    return states


def _least_step(log_affinities: Floats, counts: Integers) -> float:
    """Return the least −ln t(r) over r ≠ c, which one moved record attains, as g decreases on both sides of c."""
    categories, n = np.arange(counts.size), counts.sum()
    more = np.where(counts < n, -log_affinities[categories, np.minimum(counts + 1, n)], np.inf)
    fewer = np.where(counts > 0, -log_affinities[categories, np.maximum(counts - 1, 0)], np.inf)
    moves = more[:, None] + fewer
    np.fill_diagonal(moves, np.inf)
    return float(moves.min())


@kernel
def _add_multiple(target, factor, source):
    for i in range(target.size):
        target[i] += factor * source[i]


@kernel
def _fill(counts, log_affinities, tables):
    last = counts.size - 1
    for distribution in range(tables.powers.size):
        power, low, high = tables.powers[distribution], tables.low[distribution], tables.high[distribution]
        low_total, high_total = tables.low_total[distribution], tables.high_total[distribution]
        weight_start, sum_start = tables.weight_start[distribution], tables.sum_start[distribution]
        for m in range(low_total[last], high_total[last] + 1):
            tables.sums[sum_start[last] + m - low_total[last]] = math.exp(power * log_affinities[last, m])
        held, off = counts[last], 0.0
        tables.off[distribution, last] = off
        for category in range(last - 1, -1, -1):
            held += counts[category]
            size = high_total[category] - low_total[category] + 1
            size_after = high_total[category + 1] - low_total[category + 1] + 1
            sums = tables.sums[sum_start[category] : sum_start[category] + size]
            after = tables.sums[sum_start[category + 1] : sum_start[category + 1] + size_after]
            for x in range(low[category], high[category] + 1):
                weight = math.exp(power * log_affinities[category, x])
                tables.weights[weight_start[category] + x - low[category]] = weight
                # after[i] contributes to sums[i + shift].
                shift = x + low_total[category + 1] - low_total[category]
                begin, end = max(0, -shift), min(size_after, size - shift)
                if begin < end:
                    _add_multiple(sums[begin + shift : end + shift], weight, after[begin:end])
                rest = held - x - low_total[category + 1]
                if x != counts[category] and 0 <= rest < size_after:
                    off += weight * after[rest]
            tables.off[distribution, category] = off


@kernel
def _mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def _seed(bits, states):
    golden = np.uint64(0x9E3779B97F4A7C15)
    for trial in range(bits.shape[0]):
        first, second = bits[trial, 0] + golden, bits[trial, 1] - golden
        states[trial, 0], states[trial, 1] = _mix(first), _mix(first + golden)
        states[trial, 2], states[trial, 3] = _mix(second), _mix(second + golden)


@kernel
def _next(state):
    mixed = state[0] + state[3]
    result = ((mixed << np.uint64(23)) | (mixed >> np.uint64(41))) + state[0]
    shifted = state[1] << np.uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= shifted
    state[3] = (state[3] << np.uint64(45)) | (state[3] >> np.uint64(19))
    return result


@kernel
def _uniform(state):
    return (_next(state) >> np.uint64(11)) * 2.0**-53


@kernel
def _below(size, state):
    """Return a uniform integer in [0, size); outputs of the 64-bit generator that would cause a bias are rejected."""
    choices = np.uint64(size)
    surplus = (np.uint64(0) - choices) % choices
    bits = _next(state)
    while bits < surplus:
        bits = _next(state)
    return np.int64(bits % choices)


@kernel
def _draw_candidate(n, bars, state, released):
    """Draw uniform counts of n records as k − 1 sorted separators among n + k − 1 places (Floyd's algorithm)."""
    for drawn in range(bars.size):
        bar = _below(n + drawn + 1, state)
        for earlier in range(drawn):
            if bars[earlier] == bar:
                bar = n + drawn
        place = drawn
        while place > 0 and bars[place - 1] > bar:
            bars[place] = bars[place - 1]
            place -= 1
        bars[place] = bar
    before = -1
    for category in range(bars.size):
        released[category] = bars[category] - before - 1
        before = bars[category]
    released[bars.size] = n + bars.size - 1 - before


@kernel
def _draw_off(distribution, counts, log_affinities, tables, state, released):
    """Draw counts r ≠ c from a distribution, category by category, by inversion; return the log affinity ln t(r)."""
    last = counts.size - 1
    remaining, log_t, equal = counts.sum(), 0.0, True
    low, high, off = tables.low[distribution], tables.high[distribution], tables.off[distribution]
    low_total, high_total = tables.low_total[distribution], tables.high_total[distribution]
    weight_start, sum_start = tables.weight_start[distribution], tables.sum_start[distribution]
    for category in range(last):
        low_after, high_after = low_total[category + 1], high_total[category + 1]
        first_weight, first_sum = weight_start[category] - low[category], sum_start[category + 1] - low_after
        total = off[category] if equal else tables.sums[sum_start[category] + remaining - low_total[category]]
        target, running, chosen = _uniform(state) * total, 0.0, -1
        for x in range(max(low[category], remaining - high_after), min(high[category], remaining - low_after) + 1):
            if equal and x == counts[category]:
                weight = off[category + 1]
            else:
                weight = tables.weights[first_weight + x] * tables.sums[first_sum + remaining - x]
            if weight > 0.0:
                chosen = x  # this value is kept if rounding leaves the sum below the target
            running += weight
            if running > target:
                break
        equal = equal and chosen == counts[category]
        released[category] = chosen
        log_t += log_affinities[category, chosen]
        remaining -= chosen
    released[last] = remaining
    return log_t + log_affinities[last, remaining]


@kernel
def propose(states, trials, counts, log_affinities, tables, stops, cumulative, released):
    """Draw a proposal for each of the m given trials, from its own state, which is advanced, and set its released row.

    Component 0 is c, and component 1 is uniform on the counts of n records. Component 2 + l has a power j that is
    uniform on tables.powers[l], ..., stops[l] − 1, and counts from distribution l. Return, each of shape (m,), the
    component, the power j (0 for components 0 and 1), ln t(r)^(j − J), where J is the power of the distribution (−inf
    for component 1 if the draw equals c), and a uniform number for the acceptance step.
    """
    component, drawn = np.empty(trials.size, dtype=np.int64), np.empty((3, trials.size))
    n, bars = counts.sum(), np.empty(counts.size - 1, dtype=np.int64)
    for i in range(trials.size):
        state, counts_drawn = states[trials[i]], released[trials[i]]
        index = np.searchsorted(cumulative, _uniform(state) * cumulative[-1], side="right")
        # If the product is rounded up to the total, take the last component of positive weight.
        while index >= cumulative.size or (index > 0 and cumulative[index] == cumulative[index - 1]):
            index -= 1
        power, log_excess = 0.0, 0.0
        if index == 0:
            for category in range(counts.size):
                counts_drawn[category] = counts[category]
        elif index == 1:
            _draw_candidate(n, bars, state, counts_drawn)
            log_excess = -np.inf  # reset below if the draw differs from c
            for category in range(counts.size):
                if counts_drawn[category] != counts[category]:
                    log_excess = 0.0
        else:
            more = float(_below(stops[index - 2] - tables.powers[index - 2], state))
            power = tables.powers[index - 2] + more
            log_excess = more * _draw_off(index - 2, counts, log_affinities, tables, state, counts_drawn)
        component[i] = index
        drawn[0, i], drawn[1, i], drawn[2, i] = power, log_excess, _uniform(state)
    return component, drawn[0], drawn[1], drawn[2]
