"""The exponential mechanism with the Hamming distance as its score: sampled, audited and calibrated in closed form.

    Pr[r] ∝ exp( −m·d(c, r) ),   d(c, r) = ½‖c − r‖₁,   r over all counts of n records in k cells:

d is the number of records to replace. On the way from c to r some cells gain d records together and others lose as
many. For a set U of u ≥ 1 gaining cells there are C(d−1, u−1) ways to gain and as many ways to lose as cells outside U
can lose 0 … cᵢ records each. So with q = exp(−m) the normaliser is

    Z(c) = Σ_d N_d·qᵈ,   N_0 = 1,   N_d = Σ_U C(d−1, u−1)·#{ (aᵢ), i ∉ U : 0 ≤ aᵢ ≤ cᵢ, Σ aᵢ = d }.

`hamming_mechanism` tabulates the counts of losses cell by cell and draws by walking back through them: the cost grows
like k²·n, not like the number of candidates. `hamming_loss` needs Z at every data set and has no table of d left. From
C(d−1, u−1) = Σ_j (−1)^{u−1−j} C(d, j), and Vandermonde's C(Σ aᵢ, j) = Σ Π C(aᵢ, jᵢ) over j₁ + j₂ + … = j,

    Z(c) = −(−1)ᵏ + Σ_U Σ_{j<u} (−1)^{u−1−j} [tʲ] Π_{i∉U} S(cᵢ; t),   S(x; t) = Σ_{a≤x} (1 + t)ᵃ·qᵃ,   0 < u < k,

where the sums over U of one size come from one pass over the cells. What is subtracted is a multiple of
Z that depends on k alone, however small m is, but grows like 2ᵏ: up to `MAX_CELLS` cells ln Z has 11 digits or more.

References
----------
McSherry & Talwar, "Mechanism design via differential privacy", FOCS 2007.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.conjugate import count_candidates, validate_counts, validate_prior
from mechanisms.counts.candidates import (
    MAX_TABLE,
    cell_deficits,
    enumerate_rows,
    require_enumerable,
    require_streamable,
    require_uniforms,
    row_deficits,
)
from mechanisms.counts.release import CountRelease
from mechanisms.jit import kernel
from mechanisms.privacy import validate_epsilon

__all__ = [
    "HammingLoss",
    "HammingMechanism",
    "calibrate_hamming",
    "hamming_loss",
    "hamming_mechanism",
    "require_hamming",
]

MAX_CELLS = 16
"""Largest number of cells whose loss is computed: the sums alternate, and lose a digit every three cells."""

MAX_SORTED = 20_000_000
"""Largest number of data sets, up to the order of their cells, over which the loss is maximised; less above k = 4."""

_GRID = 64
"""Decays between ε/2 and ε at which `calibrate_hamming` looks for an allowed one before it closes in."""


def hamming_mechanism(prior: ArrayLike, counts: ArrayLike, decay: float) -> HammingMechanism:
    """Prepare the law Pr[r] ∝ exp(−decay·½‖counts − r‖₁).

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0. They matter for the distance only, not for the release.
    counts : array_like, shape (k,)
        The true counts c: whole numbers ≥ 0 with sum n ≥ 1.
    decay : float
        m > 0, in nats a replaced record.

    Returns
    -------
    HammingMechanism

    Privacy
    -------
    Pure, replace-one with n public. The loss is `hamming_loss`, between `decay` and 2·`decay`; `calibrate_hamming`
    returns the decay for a budget. It holds for exact draws in real arithmetic; double precision is not hardened
    against attacks on its rounding.

    Raises
    ------
    ValueError
        If an argument is not allowed, or the tables for drawing would exceed `mechanisms.counts.candidates.MAX_TABLE`
        entries.

    Examples
    --------
    >>> mechanism = hamming_mechanism([1, 1], [2, 1], decay=1.0)
    >>> print(np.round(mechanism.probabilities(), 4))
    [0.0723 0.1966 0.5344 0.1966]
    >>> mechanism.sample(np.array([[0.1, 0.5], [0.9, 0.1], [0.9, 0.9]]))
    array([[2, 1], [1, 2], [3, 0]])
    """
    alpha = validate_prior(prior)
    c = validate_counts(counts, k=alpha.size)
    _require_decay(decay)
    n, k = int(c.sum()), c.size
    _require_tables(n, k)
    ways, ways_all = _count_losses(c)
    cumulative = np.cumsum(ways, axis=-1)
    weights = np.empty(1 + n * (k - 1))
    weights[0] = 1.0
    d = np.arange(1, n + 1)
    steps = np.exp(-decay * d)
    gains = np.ones(n)  # C(d − 1, u − 1)
    for u in range(1, k):
        weights[u :: k - 1] = gains * ways_all[k - u, 1:] * steps
        gains *= (d - u) / u
    for table in (alpha, c, ways, cumulative, weights):
        table.flags.writeable = False
    return HammingMechanism(alpha, c, float(decay), ways, cumulative, weights)


@dataclass(frozen=True, eq=False)
class HammingMechanism(CountRelease):
    """The law of the Hamming mechanism at one data set; build it with `hamming_mechanism`."""

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    decay: float
    """Weights are exp(−decay·d)."""
    _ways: NDArray[np.float64] = field(repr=False)
    """Ways in which v of the first i + 1 cells lose l records in all, the others gaining: (k − 1, k, n + 1)."""
    _cumulative: NDArray[np.float64] = field(repr=False)
    """The same, summed over the losses up to l."""
    _weights: NDArray[np.float64] = field(repr=False)
    """Total weight of distance 0, then of each distance d ≥ 1 with u = 1 … k − 1 gaining cells."""

    @property
    def n_uniforms(self) -> int:
        """Uniforms a draw takes: for the distance, for k − 1 cells, and for the gains of up to k − 2 of them."""
        return 2 * self.k - 2

    @property
    def log_normaliser(self) -> float:
        """Logarithm of Z = Σ_r exp(−decay·d(c, r))."""
        return math.log(self._weights.sum())

    def sample(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw released counts; 2k − 2 uniforms a draw, see `CountRelease.sample`."""
        u = require_uniforms(uniforms, self.n_uniforms)
        released = np.empty((len(u), self.k), dtype=np.int64)
        _sample(self.counts, np.cumsum(self._weights), self._ways, self._cumulative, u, released)
        return released

    def expected_hellinger(self) -> float:
        """Return the exact mean of H(true posterior, released posterior): one pass over all candidates.

        Raises
        ------
        ValueError
            If there are too many candidates to stream.
        """
        require_streamable(self.n, self.k)
        rows = enumerate_rows(self.n, self.k)
        deficits = cell_deficits(self.prior, self.counts)
        steps = np.exp(-self.decay * np.arange(self.n + 1) - self.log_normaliser)
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

    def log_probabilities(self) -> NDArray[np.float64]:
        """List the log law over all candidates; see `CountRelease.log_probabilities`."""
        require_enumerable(self.n, self.k)
        rows = enumerate_rows(self.n, self.k)
        log_steps = -self.decay * np.arange(self.n + 1) - self.log_normaliser
        log_law = np.empty(count_candidates(self.n, self.k))
        _fill_log_law(rows[:, -1], self._row_gains(rows), self.counts, log_steps, log_law)
        return log_law

    def _row_gains(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many records the prefix of each row gains."""
        return np.maximum(rows[:, :-1] - self.counts[:-2], 0).sum(axis=1)


class HammingLoss(NamedTuple):
    """The privacy loss of the Hamming mechanism, and neighbours between which it occurs."""

    loss: float
    """In nats."""
    data_set: NDArray[np.int64]
    """Counts c, the smallest cell first, shape (k,)."""
    neighbour: NDArray[np.int64]
    """Counts c' one record away; ln Pr[r | c] − ln Pr[r | c'] is the loss at r = c, among others."""


def require_hamming(n: int, k: int) -> None:
    """Refuse problems whose cells or data sets are too many for `hamming_loss`.

    Parameters
    ----------
    n, k : int
        Number of records and of cells.

    Raises
    ------
    ValueError
        If there are more than `MAX_CELLS` cells, the data sets, up to the order of their cells, number more than
        `MAX_SORTED` (above k = 4: than `MAX_SORTED`·4³/k³), or their tables exceed
        `mechanisms.counts.candidates.MAX_TABLE` entries.

    Examples
    --------
    >>> require_hamming(4177, 3), require_hamming(600, 4)
    (None, None)
    """
    if k > MAX_CELLS:
        raise ValueError(
            f"cells must number at most {MAX_CELLS} for the exact loss, got {k}; merge cells, or choose a mechanism "
            "that only adds noise"
        )
    _require_tables(n, k)
    limit = MAX_SORTED * 64 // max(k, 4) ** 3
    n_sorted = count_candidates(n, k) // math.factorial(k)
    if n_sorted <= limit:  # so far a lower bound: no data set has more orders than k!
        n_sorted = int(_count_sorted(n, k)[k, n])
    if n_sorted > limit:
        raise ValueError(
            f"data sets must number at most {limit:,} up to the order of their cells, got at least {n_sorted:,} "
            f"(n = {n}, k = {k}); use fewer records, merge cells, or choose a mechanism that only adds noise"
        )


def hamming_loss(n: int, k: int, decay: float) -> HammingLoss:
    """Return the exact privacy loss of the Hamming mechanism, over all neighbours and all outputs.

    Parameters
    ----------
    n, k : int
        Number of records ≥ 1 and of cells ≥ 2.
    decay : float
        m > 0, in nats a replaced record.

    Returns
    -------
    HammingLoss

    Raises
    ------
    ValueError
        If an argument is not allowed or `require_hamming` refuses.

    Notes
    -----
    For neighbours c and c', ln Pr[r|c] − ln Pr[r|c'] = m·(d(c', r) − d(c, r)) + ln Z(c') − ln Z(c). By the triangle
    inequality d(c', r) − d(c, r) ≤ d(c', c) = 1, and r = c attains it, whatever the pair. So

        loss = m + max over neighbours of ln Z(c') − ln Z(c).

    Each pair occurs in both orders, hence the maximum is ≥ 0 and the loss is ≥ m. Each d moves by at most 1, so Z by a
    factor of at most exp(m), and the loss is ≤ 2m. Z does not depend on the order of the cells: sorted counts are
    enough, with the moves of a record from a larger cell to a smaller one (the opposite move is the same pair, read
    from its other end; between cells that differ by one it only swaps them).

    Examples
    --------
    >>> loss, data_set, neighbour = hamming_loss(10, 3, decay=0.7)
    >>> round(loss, 6), data_set, neighbour
    (1.017853, array([ 0, 0, 10]), array([0, 1, 9]))
    """
    _require_decay(decay)
    require_hamming(n, k)
    n_sorted = _count_sorted(n, k)
    normalisers = np.empty(int(n_sorted[k, n]))
    _fill_normalisers(n, _loss_sums(n, k, decay), normalisers)
    pair = np.zeros((2, k), dtype=np.int64)
    ratio = _largest_ratio(n, n_sorted, normalisers, pair)
    return HammingLoss(decay + math.log(ratio), pair[0], pair[1])


@lru_cache(maxsize=4096)
def calibrate_hamming(n: int, k: int, epsilon: float) -> float:
    """Return the largest decay whose `hamming_loss` is at most `epsilon`.

    Parameters
    ----------
    n, k : int
        Number of records ≥ 1 and of cells ≥ 2.
    epsilon : float
        Privacy loss in nats, finite and > 0.

    Returns
    -------
    float
        m, between ε/2 and ε. Its own loss has been computed and is ≤ ε.

    Raises
    ------
    ValueError
        If an argument is not allowed or `require_hamming` refuses.

    Notes
    -----
    As m ≤ loss ≤ 2m, nothing above ε is allowed, and ε/2 is. That the loss increases in between is not assumed: a grid
    is searched from ε downwards for the first allowed decay, and only the gap above it is bisected. A decay is refused
    if a pair of neighbours known from an earlier search exceeds ε there, which costs two normalisers, and allowed only
    after a search over all pairs.

    Examples
    --------
    >>> decay = calibrate_hamming(100, 3, 1.0)
    >>> round(decay, 6), round(hamming_loss(100, 3, decay).loss, 12)
    (0.682546, 1.0)
    """
    epsilon = validate_epsilon(epsilon)
    require_hamming(n, k)
    pairs: list[NDArray[np.int64]] = []

    def surely_exceeds(decay: float) -> bool:
        if not pairs:
            return False
        sums = _loss_sums(n, k, decay)
        return any(
            decay + math.log(_normaliser(second, sums) / _normaliser(first, sums)) > epsilon for first, second in pairs
        )

    def allowed(decay: float) -> bool:
        if surely_exceeds(decay):
            return False
        found = hamming_loss(n, k, decay)
        if found.loss > epsilon:
            pairs.append(np.stack([found.data_set, found.neighbour]))
        return found.loss <= epsilon

    high = epsilon
    # The last step is below ε/2, whose loss may exceed ε by rounding.
    for low in [*np.linspace(epsilon, 0.5 * epsilon, _GRID + 1).tolist(), 0.499 * epsilon]:
        if allowed(low):
            break
        high = low
    else:
        raise AssertionError(f"no decay is allowed for n = {n}, k = {k}, epsilon = {epsilon}")
    while high - low > 1e-15 * epsilon:
        # Bisection between the allowed decay and the refused one, by the known pairs alone; then a search to confirm.
        inner, outer = low, high
        while inner < (middle := 0.5 * (inner + outer)) < outer and outer - inner > 1e-15 * epsilon:
            if surely_exceeds(middle):
                outer = middle
            else:
                inner = middle
        if inner == low or allowed(inner):
            return inner
        high = inner  # another pair exceeds ε here; it is known from now on
    return low


def _require_decay(decay: float) -> None:
    if not (math.isfinite(decay) and decay > 0):
        raise ValueError(f"decay must be a finite number > 0, got {decay}; use calibrate_hamming")


def _require_tables(n: int, k: int) -> None:
    n_entries = 2 * k * k * (n + 1)
    if n_entries > MAX_TABLE:
        raise ValueError(
            f"tables must have at most {MAX_TABLE:,} entries to be held, got {n_entries:,} "
            f"(n = {n}, k = {k}); use fewer records, merge cells, or choose a mechanism that only adds noise"
        )


def _loss_sums(n: int, k: int, decay: float) -> NDArray[np.float64]:
    """Return the coefficients of S(x; t): Σ_{a≤x} C(a, j)·exp(−decay·a), j < k − 1, shape (k − 1, n + 1)."""
    a = np.arange(n + 1)
    sums = np.empty((k - 1, n + 1))
    term = np.exp(-decay * a)
    for j in range(k - 1):
        np.cumsum(term, out=sums[j])
        term *= (a - j) / (j + 1)
    return sums


def _count_sorted(n: int, k: int) -> NDArray[np.int64]:
    """Return P with P[j, m] the number of ways to write m as an ordered sum of j numbers ≥ 0, the smallest first."""
    table = np.zeros((k + 1, n + 1), dtype=np.int64)
    table[0, 0] = 1
    for j in range(1, k + 1):
        table[j] = table[j - 1]
        for residue in range(min(j, n + 1)):  # P[j, m] = P[j − 1, m] + P[j, m − j]
            table[j, residue::j] = np.cumsum(table[j, residue::j])
    return table


@kernel
def _windowed_sums(values, width, sums):
    """Add to sums[l] the last `width` values up to l; blocks from both sides, so that nothing is subtracted."""
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
    for cell in range(k):
        for losing in range(min(cell + 1, k - 1), 0, -1):
            _windowed_sums(total[losing - 1], counts[cell] + 1, total[losing])
        if cell < k - 1:
            ways[cell] = total
    return ways, total


@kernel
def _first_above(cumulative, low, high, target):
    """Return the first index in [low, high] whose value exceeds `target`; `high` if none does."""
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def _draw_part(total, parts, uniform):
    """Return the first of `parts` numbers ≥ 1 that sum to `total`, all such sums equally likely."""
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
            for cell in range(k):
                released[trial, cell] = counts[cell]
            continue
        distance, gaining = 1 + (picked - 1) // (k - 1), 1 + (picked - 1) % (k - 1)
        losing, lost = k - gaining, distance
        # From the last cell to the first: a gain (marked −1), or a loss. `losing` and `lost` are of the cells up to it.
        for cell in range(k - 1, -1, -1):
            if cell == 0:
                loss = lost if losing == 1 else -1
            elif losing == 0:
                loss = -1
            else:
                before = cumulative[cell - 1, losing - 1]
                least = max(lost - counts[cell], 0)
                base = before[least - 1] if least > 0 else 0.0
                gain_weight = ways[cell - 1, losing, lost]
                target = uniforms[trial, k - cell] * (gain_weight + (before[lost] - base))
                if target < gain_weight or before[lost] == base:
                    loss = -1
                else:
                    left = _first_above(before, least, lost, base + (target - gain_weight))
                    # The product may round up to the total: then the last state that has any weight.
                    while left > least and ways[cell - 1, losing - 1, left] == 0.0:
                        left -= 1
                    loss = lost - left
            released[trial, cell] = loss
            if loss >= 0:
                losing -= 1
                lost -= loss
        place = k
        for cell in range(k):
            if released[trial, cell] >= 0:
                released[trial, cell] = counts[cell] - released[trial, cell]
                continue
            gain = distance
            if gaining > 1:
                gain = _draw_part(distance, gaining, uniforms[trial, place])
                place += 1
            released[trial, cell] = counts[cell] + gain
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
def _fill_log_law(remaining, gains, counts, log_steps, log_law):
    start = 0
    before_last, last = counts[-2], counts[-1]
    for row in range(remaining.size):
        top = remaining[row]
        for x in range(top + 1):
            log_law[start + x] = log_steps[gains[row] + max(x - before_last, 0) + max(top - x - last, 0)]
        start += top + 1


@kernel
def _add_cell(products, losses, updated):
    """Multiply one more cell into Σ_V Π_{i∈V} S(cᵢ; t), the row v for sets V of v cells, cut after t^(k−1−v)."""
    k = products.shape[0]
    for v in range(k):
        for degree in range(k - v):
            value = products[v, degree]
            if v > 0:
                for j in range(degree + 1):
                    value += products[v - 1, degree - j] * losses[j]
            updated[v, degree] = value


@kernel
def _alternating_sum(products):
    """Return Z from the sums over the sets V of losing cells, V neither empty nor all cells."""
    k = products.shape[0]
    total = 1.0 if k % 2 else -1.0
    for v in range(1, k):
        part = 0.0
        for j in range(k - v):
            part += products[v, j] if (k - v - 1 - j) % 2 == 0 else -products[v, j]
        total += part
    return total


@kernel
def _normaliser(counts, sums):
    k = counts.size
    products, updated = np.zeros((k, k)), np.zeros((k, k))
    products[0, 0] = 1.0
    for cell in range(k):
        _add_cell(products, sums[:, counts[cell]], updated)
        products, updated = updated, products
    return _alternating_sum(products)


@kernel
def _next_sorted(counts):
    """Advance to the next counts, the smallest cell first; return the first cell that changed, −1 after the last."""
    k = counts.size
    rest = counts[k - 1]
    for cell in range(k - 2, -1, -1):
        rest += counts[cell]
        value = counts[cell] + 1
        if value * (k - cell) <= rest:
            for later in range(cell, k - 1):
                counts[later] = value
            counts[k - 1] = rest - value * (k - 1 - cell)
            return cell
    return -1


@kernel
def _fill_normalisers(n, sums, normalisers):
    k = sums.shape[0] + 1
    by_value = sums.T.copy()
    counts = np.zeros(k, dtype=np.int64)
    counts[k - 1] = n
    # levels[i] holds the products over the first i cells: a step recomputes those from its first changed cell on.
    levels = np.zeros((k + 1, k, k))
    levels[0, 0, 0] = 1.0
    changed = 0
    for rank in range(normalisers.size):
        for cell in range(changed, k):
            _add_cell(levels[cell], by_value[counts[cell]], levels[cell + 1])
        normalisers[rank] = _alternating_sum(levels[k])
        changed = _next_sorted(counts)


@kernel
def _rank_sorted(counts, n_sorted):
    """Return the place of `counts` in the order of `_next_sorted`."""
    k = counts.size
    rest, least, rank = 0, 0, 0
    for cell in range(k):
        rest += counts[cell]
    for cell in range(k - 1):
        width = k - cell
        rank += n_sorted[width, rest - least * width] - n_sorted[width, rest - counts[cell] * width]
        rest -= counts[cell]
        least = counts[cell]
    return rank


@kernel
def _largest_ratio(n, n_sorted, normalisers, pair):
    k = pair.shape[1]
    counts = np.zeros(k, dtype=np.int64)
    counts[k - 1] = n
    # At n = 1 all data sets are permutations of one.
    pair[0, k - 1], pair[1, k - 1], pair[1, k - 2] = n, n - 1, 1
    largest = 1.0
    for rank in range(normalisers.size):
        for taker in range(k - 1):
            if counts[taker] == counts[taker + 1]:
                continue  # of equal cells the last takes, the first gives: the counts stay sorted
            for giver in range(taker + 1, k):
                if counts[giver] == counts[giver - 1] or counts[giver] < counts[taker] + 2:
                    continue
                counts[taker] += 1
                counts[giver] -= 1
                ratio = normalisers[_rank_sorted(counts, n_sorted)] / normalisers[rank]
                if max(ratio, 1.0 / ratio) > largest:
                    largest = max(ratio, 1.0 / ratio)
                    one, other = (1, 0) if ratio > 1.0 else (0, 1)
                    for cell in range(k):
                        pair[one, cell] = counts[cell]
                        pair[other, cell] = counts[cell]
                    pair[other, taker] -= 1
                    pair[other, giver] += 1
                counts[taker] -= 1
                counts[giver] += 1
        _next_sorted(counts)
    return largest
