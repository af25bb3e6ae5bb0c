"""Exponential mechanism with the Hamming distance as its score, sampled in closed form.

    Pr[r] ∝ exp( −m·d(c, r) ),   d(c, r) = ½‖c − r‖₁,   r over all counts of n records in k categories

The distance d is the number of records to replace, and m the inverse temperature. From c to r, some categories gain d
records in total and others lose d. For a set U of u ≥ 1 gaining categories there are C(d−1, u−1) ways to gain; the
ways to lose are those in which the categories outside U lose 0 … cᵢ records each. So with q = exp(−m) the normaliser is

    Z(c) = Σ_d N_d·qᵈ,   N_0 = 1,   N_d = Σ_U C(d−1, u−1)·#{ (aᵢ), i ∉ U : 0 ≤ aᵢ ≤ cᵢ, Σ aᵢ = d }.

`hamming_mechanism` tabulates the number of ways to lose, category by category, and samples backwards through these
tables. The cost is of order k²·n and does not depend on the number of candidates. The exact privacy loss is in
`mechanisms.counts.hamming_loss`.

References
----------
McSherry & Talwar, "Mechanism design via differential privacy", FOCS 2007.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import validate_positive
from mechanisms.conjugate import count_candidates, validate_counts, validate_prior, validate_problem
from mechanisms.counts.candidates import (
    MAX_TABLE,
    category_deficits,
    enumerate_rows,
    require_enumerable,
    require_streamable,
    require_uniforms,
    row_deficits,
)
from mechanisms.counts.release import CountRelease
from mechanisms.jit import kernel

__all__ = ["HammingMechanism", "hamming_mechanism", "require_hamming_tables", "require_inverse_temperature"]


def hamming_mechanism(prior: ArrayLike, counts: ArrayLike, inverse_temperature: float) -> HammingMechanism:
    """Return the distribution Pr[r] ∝ exp(−m·½‖counts − r‖₁), m the inverse temperature per replaced record.

    **Privacy.** Pure DP under replacement of one record, with n public, for exact draws. The loss is
    `mechanisms.counts.hamming_loss.hamming_loss`, between m and 2m; `calibrate_hamming` returns m for a given ε.
    """
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    require_inverse_temperature(inverse_temperature)
    n, k = int(c.sum()), c.size
    require_hamming_tables(n, k)
    ways, ways_all = _count_losses(c)
    cumulative = np.cumsum(ways, axis=-1)
    weights = np.empty(1 + n * (k - 1))
    weights[0] = 1.0
    d = np.arange(1, n + 1)
    steps = np.exp(-inverse_temperature * d)
    gains = np.ones(n)  # C(d − 1, u − 1) for d = 1, …, n
    for u in range(1, k):
        weights[u :: k - 1] = gains * ways_all[k - u, 1:] * steps
        gains *= (d - u) / u
    for table in (alpha, c, ways, cumulative, weights):
        table.flags.writeable = False
    return HammingMechanism(alpha, c, float(inverse_temperature), ways, cumulative, weights)


@dataclass(frozen=True, eq=False, repr=False)
class HammingMechanism(CountRelease):
    """Output distribution of the Hamming mechanism at one data set, created by `hamming_mechanism`."""

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    inverse_temperature: float
    """Coefficient m of the distance in the exponent."""
    _ways: NDArray[np.float64]
    """Number of ways in which v of the first i + 1 categories lose l records, at [i, v, l]; shape (k − 1, k, n + 1)."""
    _cumulative: NDArray[np.float64]
    """Cumulative sums of `_ways` over l."""
    _weights: NDArray[np.float64]
    """Total weight of distance 0, then of each distance d ≥ 1 with u = 1 … k − 1 gaining categories."""

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw: 1 for the distance, k − 1 for the set of gaining categories, k − 2 for gains."""
        return 2 * self.k - 2

    @property
    def log_normaliser(self) -> float:
        """Logarithm of Z = Σ_r exp(−m·d(c, r))."""
        return math.log(self._weights.sum())

    def from_uniforms(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw released counts; see `CountRelease.from_uniforms`."""
        u = require_uniforms(uniforms, self.n_uniforms)
        released = np.empty((len(u), self.k), dtype=np.int64)
        _sample(self.counts, np.cumsum(self._weights), self._ways, self._cumulative, u, released)
        return released

    def expected_hellinger(self) -> float:
        """Return the exact mean Hellinger distance between the true and the released posterior."""
        require_streamable(self.n, self.k)
        rows = enumerate_rows(self.n, self.k)
        deficits = category_deficits(self.prior, self.counts)
        steps = np.exp(-self.inverse_temperature * np.arange(self.n + 1) - self.log_normaliser)
        return float(
            _stream_mean(
                rows[:, -1],
                self._row_gains(rows),
                row_deficits(deficits, rows),
                deficits[-2],
                deficits[-1],
                self.counts,
                steps,
            )
        )

    def log_pmf(self) -> NDArray[np.float64]:
        """Return the log-pmf over all counts of n records; see `CountRelease.log_pmf`."""
        require_enumerable(self.n, self.k)
        rows = enumerate_rows(self.n, self.k)
        log_steps = -self.inverse_temperature * np.arange(self.n + 1) - self.log_normaliser
        log_pmf = np.empty(count_candidates(self.n, self.k))
        _fill_log_pmf(rows[:, -1], self._row_gains(rows), self.counts, log_steps, log_pmf)
        return log_pmf

    def _row_gains(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, for each row of `enumerate_rows`, the number of records that the first k − 2 categories gain."""
        return np.maximum(rows[:, :-1] - self.counts[:-2], 0).sum(axis=1)


def require_inverse_temperature(inverse_temperature: float) -> None:
    """Raise ValueError if the inverse temperature is not a finite number > 0."""
    validate_positive("inverse_temperature", inverse_temperature, "use calibrate_hamming")


def require_hamming_tables(n: int, k: int) -> None:
    """Raise ValueError if the tables, which have 2·k²·(n + 1) entries, do not fit in memory."""
    n, k = validate_problem(n, k)
    n_entries = 2 * k * k * (n + 1)
    if n_entries > MAX_TABLE:
        raise ValueError(
            f"tables must have at most {MAX_TABLE:,} entries to fit in memory, got {n_entries:,} "
            f"(n = {n}, k = {k}); use fewer records, merge categories, or choose a mechanism that only adds noise"
        )


@kernel
def _windowed_sums(values, width, sums):
    """Add to each sums[l] the sum of the `width` values that end at index l, without subtractions."""
    size = values.size
    suffix = np.empty(size)
    for start in range(0, size, width):
        total = 0.0
        for place in range(min(start + width, size) - 1, start - 1, -1):
            total += values[place]
            suffix[place] = total
    prefix = 0.0
    for place in range(size):
        if place % width == 0:
            prefix = 0.0
        prefix += values[place]
        first = place - width + 1
        sums[place] += prefix + (suffix[first] if first > 0 and first % width != 0 else 0.0)


@kernel
def _count_losses(counts):
    k = counts.size
    size = counts.sum() + 1
    ways = np.zeros((k - 1, k, size))
    total = np.zeros((k, size))
    total[0, 0] = 1.0
    for category in range(k):
        for losing in range(min(category + 1, k - 1), 0, -1):
            _windowed_sums(total[losing - 1], counts[category] + 1, total[losing])
        if category < k - 1:
            for losing in range(k):
                for lost in range(size):
                    ways[category, losing, lost] = total[losing, lost]
    return ways, total


@kernel
def _first_above(cumulative, low, high, target):
    """Return the first index in [low, high] whose value exceeds `target`, or `high` if there is none."""
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def _draw_part(total, parts, uniform):
    """Draw the first part of a uniformly random composition of `total` into `parts` numbers ≥ 1."""
    # Pr[first > x] = C(total − x − 1, parts − 1)/C(total − 1, parts − 1).
    low, high = 1, total - parts + 1
    while low < high:
        middle = (low + high) // 2
        beyond = 1.0
        for j in range(parts - 1):
            beyond *= (total - middle - 1 - j) / (total - 1 - j)
        if beyond < 1.0 - uniform:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def _sample(counts, weights, ways, cumulative, uniforms, released):
    n_trials, k = released.shape
    last = weights.size - 1
    while last > 0 and weights[last] == weights[last - 1]:
        last -= 1
    for trial in range(n_trials):
        picked = _first_above(weights, 0, last, uniforms[trial, 0] * weights[last])
        if picked == 0:
            for category in range(k):
                released[trial, category] = counts[category]
            continue
        distance, gaining = 1 + (picked - 1) // (k - 1), 1 + (picked - 1) % (k - 1)
        losing, lost = k - gaining, distance
        # Draw, from the last category to the first, a gain (marked −1) or a loss. `losing` and `lost` count the
        # categories up to the current one.
        for category in range(k - 1, -1, -1):
            if category == 0:
                loss = lost if losing == 1 else -1
            elif losing == 0:
                loss = -1
            else:
                before = cumulative[category - 1, losing - 1]
                least = max(lost - counts[category], 0)
                base = before[least - 1] if least > 0 else 0.0
                gain_weight = ways[category - 1, losing, lost]
                target = uniforms[trial, k - category] * (gain_weight + (before[lost] - base))
                if target < gain_weight or before[lost] == base:
                    loss = -1
                else:
                    left = _first_above(before, least, lost, base + (target - gain_weight))
                    # If the product is rounded up to the total, take the last state of positive weight.
                    while left > least and ways[category - 1, losing - 1, left] == 0.0:
                        left -= 1
                    loss = lost - left
            released[trial, category] = loss
            if loss >= 0:
                losing -= 1
                lost -= loss
        place = k
        for category in range(k):
            if released[trial, category] >= 0:
                released[trial, category] = counts[category] - released[trial, category]
                continue
            gain = distance
            if gaining > 1:
                gain = _draw_part(distance, gaining, uniforms[trial, place])
                place += 1
            released[trial, category] = counts[category] + gain
            distance -= gain
            gaining -= 1


@kernel
def _stream_mean(remaining, gains, prefix, first, second, counts, steps):
    mean = 0.0
    before_last, last = counts[-2], counts[-1]
    for row in range(remaining.size):
        top = remaining[row]
        row_mean = 0.0
        for x in range(top + 1):
            a = first[x]
            distance = math.sqrt(prefix[row] + (1.0 - prefix[row]) * (a + (1.0 - a) * second[top - x]))
            row_mean += steps[gains[row] + max(x - before_last, 0) + max(top - x - last, 0)] * distance
        mean += row_mean
    return mean


@kernel
def _fill_log_pmf(remaining, gains, counts, log_steps, log_pmf):
    start = 0
    before_last, last = counts[-2], counts[-1]
    for row in range(remaining.size):
        top = remaining[row]
        for x in range(top + 1):
            log_pmf[start + x] = log_steps[gains[row] + max(x - before_last, 0) + max(top - x - last, 0)]
        start += top + 1
