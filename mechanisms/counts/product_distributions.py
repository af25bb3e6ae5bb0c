"""Distributions of counts that are products over cells but for the total, tabulated and drawn from.

With the affinity t(r) = Πᵢ exp(gᵢ(rᵢ)) of candidate r to the true counts c, gᵢ(x) = ℓ(αᵢ + cᵢ, αᵢ + x) ≤ 0 (see
`mechanisms.hellinger`), the distribution of power J is ∝ t(r)^J over the candidates r ≠ c. Its suffix sums

    Sᵢ(m) = Σ Πₗ exp(J·gₗ(rₗ))   over the ways in which the cells l ≥ i hold m records

are convolutions from the last cell to the first; cells are then drawn from the first to the last, each
∝ exp(J·gᵢ(x))·Sᵢ₊₁(m − x) if m records remain. As long as a draw agrees with c, so that the rest must not, the sums
without c take the place of S where x = cᵢ.

**Precision.** Every sum is of positive terms, added directly and not by Fourier transforms: its relative error is
about 1e-16 times the number of terms, at worst. Counts x with −J·gᵢ(x) > `reach` + J·u are left out, u the least −ln t
off c: with `reach` = ln(2⁵³·|R|) all of them together weigh less than 2⁻⁵³ of the distribution, whose weight is exp(−J·u) at
least. So at large J few counts are left, and a convolution is the cheaper the larger J is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.conjugate import count_candidates
from mechanisms.counts.candidates import MAX_TABLE
from mechanisms.hellinger import log_affinity
from mechanisms.jit import kernel

__all__ = [
    "MAX_LOG_CANDIDATES",
    "MAX_WORK",
    "ProductDistributions",
    "Tables",
    "product_distributions",
    "propose",
    "require_product_distributions",
    "seed_states",
]

MAX_WORK = 20_000_000_000
"""Largest number of multiplications for the convolutions of one set of tables: about ten seconds."""

MAX_LOG_CANDIDATES = 650.0
"""Largest ln |R|: sums over candidates stay within double precision."""


class Tables(NamedTuple):
    """The distributions of L powers, cut down to the counts that matter.

    Of the (L, k) arrays, `low` and `high` are the ends of the counts of a cell, `low_total` and `high_total` those of
    the totals of a cell and all later ones; a cell's exp(J·g) begin at `cell_start` in `cells`, its S at `sum_start` in
    `sums`; `off` is S at c's total, without c itself. `off[:, 0]` is thus the weight of the distribution, Σ t(r)^J over r ≠ c.
    """

    powers: NDArray[np.float64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    low_total: NDArray[np.int64]
    high_total: NDArray[np.int64]
    cell_start: NDArray[np.int64]
    sum_start: NDArray[np.int64]
    cells: NDArray[np.float64]
    sums: NDArray[np.float64]
    off: NDArray[np.float64]


def require_product_distributions(n: int, k: int) -> None:
    """Refuse what `product_distributions` refuses whatever the prior and the counts.

    Parameters
    ----------
    n, k : int
        Number of records and of cells.

    Raises
    ------
    ValueError
        If k·(n + 1) is above `mechanisms.counts.candidates.MAX_TABLE`, or ln |R| above `MAX_LOG_CANDIDATES`.

    Examples
    --------
    >>> require_product_distributions(1_000_000, 3)
    """
    if k * (n + 1) > MAX_TABLE:
        raise _too_large("tables must have at most", MAX_TABLE, "entries", k * (n + 1), n, k)
    log_candidates = math.log(count_candidates(n, k))
    if log_candidates > MAX_LOG_CANDIDATES:
        raise ValueError(
            f"candidates must number at most exp({MAX_LOG_CANDIDATES:g}), got exp({log_candidates:.0f}) "
            f"(n = {n}, k = {k}); use fewer records, merge cells, or choose a mechanism that only adds noise"
        )


def product_distributions(prior: NDArray[np.float64], counts: NDArray[np.int64]) -> ProductDistributions:
    """Prepare the product distributions around `counts`.

    Parameters
    ----------
    prior : ndarray of float64, shape (k,)
    counts : ndarray of int64, shape (k,)
        Both validated; n records in all.

    Returns
    -------
    ProductDistributions

    Raises
    ------
    ValueError
        As `require_product_distributions`.

    Examples
    --------
    >>> distributions = product_distributions(np.ones(3), np.array([1, 1, 0]))
    >>> print(np.round(distributions.tables(np.array([1.0, 8.0])).off[:, 0], 4))
    [3.7922 0.7624]
    """
    n, k = int(counts.sum()), counts.size
    require_product_distributions(n, k)
    log_candidates = math.log(count_candidates(n, k))
    log_affinities = np.array([log_affinity(a + c, a + np.arange(n + 1)) for a, c in zip(prior, counts, strict=True)])
    step = _least_step(log_affinities, counts)
    log_affinities.flags.writeable = False
    return ProductDistributions(counts, log_affinities, log_candidates + 53 * math.log(2), step)


@dataclass(frozen=True, eq=False)
class ProductDistributions:
    """The distributions ∝ t(r)^J, r ≠ c, for any power J > 0; build it with `product_distributions`."""

    counts: NDArray[np.int64]
    log_affinities: NDArray[np.float64] = field(repr=False)
    """gᵢ(x), shape (k, n + 1)."""
    reach: float
    """ln(2⁵³·|R|): what weighs exp(−reach) of the largest term counts for nothing, even as often as |R| times."""
    step: float
    """The least −ln t(r) off c."""

    def tables(self, powers: NDArray[np.float64]) -> Tables:
        """Tabulate the distributions of the given powers, shape (L,), real numbers > 0.

        Raises
        ------
        ValueError
            If that takes more than `MAX_WORK` multiplications or `mechanisms.counts.candidates.MAX_TABLE` entries.
        """
        n, k = int(self.counts.sum()), self.counts.size
        bound = self.reach / powers + self.step
        low, high = np.empty((powers.size, k), dtype=np.int64), np.empty((powers.size, k), dtype=np.int64)
        for cell, (row, count) in enumerate(zip(self.log_affinities, self.counts, strict=True)):
            # g falls to both sides of c.
            low[:, cell] = np.searchsorted(row[: count + 1], -bound)
            high[:, cell] = count + np.searchsorted(-row[count:], bound, side="right") - 1
        # What the other cells can hold bounds each cell too.
        most, least = high.sum(axis=1, keepdims=True) - high, low.sum(axis=1, keepdims=True) - low
        low, high = np.maximum(low, n - most), np.minimum(high, n - least)
        low_before, high_before = np.cumsum(low, axis=1) - low, np.cumsum(high, axis=1) - high
        low_total = np.maximum(low.sum(axis=1, keepdims=True) - low_before, n - high_before)
        high_total = np.minimum(high.sum(axis=1, keepdims=True) - high_before, n - low_before)
        widths, totals = high - low + 1, high_total - low_total + 1
        work = int((widths[:, :-1] * np.minimum(totals[:, :-1], totals[:, 1:])).sum())
        size = int(widths.sum() + totals.sum())
        if work > MAX_WORK:
            raise _too_large("convolutions must take at most", MAX_WORK, "multiplications", work, n, k)
        if size > MAX_TABLE:
            raise _too_large("tables must have at most", MAX_TABLE, "entries", size, n, k)
        cell_start = np.cumsum(widths).reshape(widths.shape) - widths
        sum_start = np.cumsum(totals).reshape(totals.shape) - totals
        storage = np.empty(widths.sum()), np.zeros(totals.sum()), np.empty(widths.shape)
        tables = Tables(powers, low, high, low_total, high_total, cell_start, sum_start, *storage)
        _fill(self.counts, self.log_affinities, tables)
        for table in tables:
            table.flags.writeable = False
        return tables


def seed_states(uniforms: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return the state of a generator (xoshiro256++) for each pair of uniforms, from the bits of both.

    Each number is a seed of splitmix64, as the authors of the generator advise, for one half of the state: different
    pairs have different states.

    Parameters
    ----------
    uniforms : ndarray of float64, shape (trials, 2)

    Returns
    -------
    ndarray of uint64, shape (trials, 4)

    References
    ----------
    Blackman & Vigna, "Scrambled linear pseudorandom number generators", ACM Transactions on Mathematical Software 47,
    2021. Steele, Lea & Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.

    Examples
    --------
    >>> seed_states(np.zeros((1, 2)))[0, :2] == [16294208416658607535, 7960286522194355700]
    array([ True,  True])
    """
    states = np.empty((len(uniforms), 4), dtype=np.uint64)
    _seed((uniforms + 0.0).view(np.uint64), states)  # adding zero makes −0.0 the seed that 0.0 is
    return states


def propose(
    states: NDArray[np.uint64],
    trials: NDArray[np.int64],
    distributions: ProductDistributions,
    tables: Tables,
    stops: NDArray[np.float64],
    cumulative: NDArray[np.float64],
    released: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Draw one proposal for each of the given trials, from its own generator.

    Component 0 is c, component 1 is uniform on the candidates, component 2 + l is a uniform power j from
    tables.powers[l] up to stops[l] with counts from distribution l.

    Parameters
    ----------
    states : ndarray of uint64, shape (all trials, 4)
        From `seed_states`; those of the given trials advance.
    trials : ndarray of int64, shape (m,)
    distributions : ProductDistributions
    tables : Tables
        L distributions of whole powers.
    stops : ndarray of float64, shape (L,)
    cumulative : ndarray of float64, shape (L + 2,)
        Cumulative sums of the weights of the components.
    released : ndarray of int64, shape (all trials, k)
        Receives the counts.

    Returns
    -------
    component : ndarray of int64, shape (m,)
    power : ndarray of float64, shape (m,)
        j; zero for components 0 and 1.
    log_excess : ndarray of float64, shape (m,)
        ln t(r)^(j − J), J the power of the distribution; −inf for component 1 if it came out as c.
    uniform : ndarray of float64, shape (m,)
        One more number in [0, 1), to accept by.
    """
    component, drawn = np.empty(trials.size, dtype=np.int64), np.empty((3, trials.size))
    _propose(
        states,
        trials,
        distributions.counts,
        distributions.log_affinities,
        tables,
        stops,
        cumulative,
        released,
        component,
        drawn,
    )
    return component, drawn[0], drawn[1], drawn[2]


def _too_large(requirement: str, limit: int, unit: str, got: int, n: int, k: int) -> ValueError:
    return ValueError(
        f"{requirement} {limit:,} {unit}, got {got:,} (n = {n}, k = {k}); "
        "use fewer records, merge cells, lower the prior, or choose a mechanism that only adds noise"
    )


def _least_step(log_affinities: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Return the least −ln t off c: that of one record moved, as every g falls to both sides of c."""
    cells, n = np.arange(counts.size), counts.sum()
    more = np.where(counts < n, -log_affinities[cells, np.minimum(counts + 1, n)], np.inf)
    fewer = np.where(counts > 0, -log_affinities[cells, np.maximum(counts - 1, 0)], np.inf)
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
        power, low_total, high_total = (
            tables.powers[distribution],
            tables.low_total[distribution],
            tables.high_total[distribution],
        )
        sum_start = tables.sum_start[distribution]
        for m in range(low_total[last], high_total[last] + 1):
            tables.sums[sum_start[last] + m - low_total[last]] = math.exp(power * log_affinities[last, m])
        held, off = counts[last], 0.0
        tables.off[distribution, last] = off
        for cell in range(last - 1, -1, -1):
            held += counts[cell]
            size, size_after = high_total[cell] - low_total[cell] + 1, high_total[cell + 1] - low_total[cell + 1] + 1
            sums = tables.sums[sum_start[cell] : sum_start[cell] + size]
            after = tables.sums[sum_start[cell + 1] : sum_start[cell + 1] + size_after]
            for x in range(tables.low[distribution, cell], tables.high[distribution, cell] + 1):
                weight = math.exp(power * log_affinities[cell, x])
                tables.cells[tables.cell_start[distribution, cell] + x - tables.low[distribution, cell]] = weight
                # The total of after[i] becomes that of sums[i + shift].
                shift = x + low_total[cell + 1] - low_total[cell]
                begin, end = max(0, -shift), min(size_after, size - shift)
                if begin < end:
                    _add_multiple(sums[begin + shift : end + shift], weight, after[begin:end])
                rest = held - x - low_total[cell + 1]
                if x != counts[cell] and 0 <= rest < size_after:
                    off += weight * after[rest]
            tables.off[distribution, cell] = off


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
    """Return a uniform whole number below `size`; of the 2⁶⁴ outputs, those that do not divide evenly are skipped."""
    choices = np.uint64(size)
    surplus = (np.uint64(0) - choices) % choices
    bits = _next(state)
    while bits < surplus:
        bits = _next(state)
    return np.int64(bits % choices)


@kernel
def _draw_candidate(n, bars, state, released):
    """Draw uniformly from the candidates: k − 1 bars among n + k − 1 places, by Floyd's algorithm, kept sorted."""
    for drawn in range(bars.size):
        bar = _below(n + drawn + 1, state)
        if np.any(bars[:drawn] == bar):
            bar = n + drawn
        place = drawn
        while place > 0 and bars[place - 1] > bar:
            bars[place] = bars[place - 1]
            place -= 1
        bars[place] = bar
    before = -1
    for cell in range(bars.size):
        released[cell] = bars[cell] - before - 1
        before = bars[cell]
    released[bars.size] = n + bars.size - 1 - before


@kernel
def _draw_off(distribution, counts, log_affinities, tables, state, released):
    """Draw from a distribution cell by cell, by inversion; return ln t(r)."""
    last = counts.size - 1
    remaining, log_t, equal = counts.sum(), 0.0, True
    for cell in range(last):
        low_after, high_after = tables.low_total[distribution, cell + 1], tables.high_total[distribution, cell + 1]
        first_weight = tables.cell_start[distribution, cell] - tables.low[distribution, cell]
        first_sum = tables.sum_start[distribution, cell + 1] - low_after
        if equal:
            total = tables.off[distribution, cell]
        else:
            total = tables.sums[tables.sum_start[distribution, cell] + remaining - tables.low_total[distribution, cell]]
        target, running, chosen = _uniform(state) * total, 0.0, -1
        for x in range(
            max(tables.low[distribution, cell], remaining - high_after),
            min(tables.high[distribution, cell], remaining - low_after) + 1,
        ):
            if equal and x == counts[cell]:
                weight = tables.off[distribution, cell + 1]
            else:
                weight = tables.cells[first_weight + x] * tables.sums[first_sum + remaining - x]
            if weight > 0.0:
                chosen = x  # the last possible one stands if rounding leaves the sum below the target
            running += weight
            if running > target:
                break
        equal = equal and chosen == counts[cell]
        released[cell] = chosen
        log_t += log_affinities[cell, chosen]
        remaining -= chosen
    released[last] = remaining
    return log_t + log_affinities[last, remaining]


@kernel
def _propose(states, trials, counts, log_affinities, tables, stops, cumulative, released, component, drawn):
    n, bars = counts.sum(), np.empty(counts.size - 1, dtype=np.int64)
    for i in range(trials.size):
        state, counts_drawn = states[trials[i]], released[trials[i]]
        index = np.searchsorted(cumulative, _uniform(state) * cumulative[-1], side="right")
        # The last component of positive weight, should the product round up to the total.
        while index >= cumulative.size or (index > 0 and cumulative[index] == cumulative[index - 1]):
            index -= 1
        power, log_excess = 0.0, 0.0
        if index == 0:
            counts_drawn[:] = counts
        elif index == 1:
            _draw_candidate(n, bars, state, counts_drawn)
            if np.all(counts_drawn == counts):
                log_excess = -np.inf
        else:
            start = tables.powers[index - 2]
            more = float(_below(stops[index - 2] - start, state))
            power = start + more
            log_excess = more * _draw_off(index - 2, counts, log_affinities, tables, state, counts_drawn)
        component[i] = index
        drawn[0, i], drawn[1, i], drawn[2, i] = power, log_excess, _uniform(state)
