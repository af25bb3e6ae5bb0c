"""What the Hamming mechanism spends, exactly, and the largest inverse_temperature within a budget.

With m, d, c and r of `mechanisms.counts.hamming`, the loss compares Z(c) = Σ_r exp(−m·d(c, r)) between neighbours: Z is
needed at every data set, in a form that has no table of d left. From the counts of gains and losses there, by
C(d−1, u−1) = Σ_j (−1)^{u−1−j} C(d, j), and Vandermonde's C(Σ aᵢ, j) = Σ Π C(aᵢ, jᵢ) over j₁ + j₂ + … = j,

    Z(c) = −(−1)ᵏ + Σ_U Σ_{j<u} (−1)^{u−1−j} [tʲ] Π_{i∉U} S(cᵢ; t),   S(x; t) = Σ_{a≤x} (1 + t)ᵃ·qᵃ,   0 < u < k,

with q = exp(−m), U a set of u gaining cells and aᵢ what cell i loses. The sums over U of one size come from one pass
over the cells. What is subtracted is a multiple of Z that depends on k alone, however small m is, but grows like 2ᵏ: up
to `MAX_CELLS` cells ln Z has 11 digits or more.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.conjugate import count_candidates
from mechanisms.counts.hamming import require_inverse_temperature, require_hamming_tables
from mechanisms.jit import kernel
from mechanisms.privacy import validate_epsilon

__all__ = ["HammingLoss", "calibrate_hamming", "hamming_loss", "require_hamming"]

MAX_CELLS = 16
"""Largest number of cells whose loss is computed: the sums alternate, and lose a digit every three cells."""

MAX_SORTED = 20_000_000
"""Largest number of data sets, up to the order of their cells, over which the loss is maximised; less above k = 4."""

_GRID = 64
"""Decays between ε/2 and ε at which `calibrate_hamming` looks for an allowed one before it closes in."""


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
    require_hamming_tables(n, k)
    limit = MAX_SORTED * 64 // max(k, 4) ** 3
    n_sorted = count_candidates(n, k) // math.factorial(k)
    if n_sorted <= limit:  # so far a lower bound: no data set has more orders than k!
        n_sorted = int(_count_sorted(n, k)[k, n])
    if n_sorted > limit:
        raise ValueError(
            f"data sets must number at most {limit:,} up to the order of their cells, got at least {n_sorted:,} "
            f"(n = {n}, k = {k}); use fewer records, merge cells, or choose a mechanism that only adds noise"
        )


def hamming_loss(n: int, k: int, inverse_temperature: float) -> HammingLoss:
    """Return the exact privacy loss of the Hamming mechanism, over all neighbours and all outputs.

    Parameters
    ----------
    n, k : int
        Number of records ≥ 1 and of cells ≥ 2.
    inverse_temperature : float
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
    >>> loss, data_set, neighbour = hamming_loss(10, 3, inverse_temperature=0.7)
    >>> round(loss, 6), data_set, neighbour
    (1.017853, array([ 0, 0, 10]), array([0, 1, 9]))
    """
    require_inverse_temperature(inverse_temperature)
    require_hamming(n, k)
    n_sorted = _count_sorted(n, k)
    normalisers = np.empty(int(n_sorted[k, n]))
    _fill_normalisers(n, _loss_sums(n, k, inverse_temperature), normalisers)
    pair = np.zeros((2, k), dtype=np.int64)
    ratio = _largest_ratio(n, n_sorted, normalisers, pair)
    return HammingLoss(inverse_temperature + math.log(ratio), pair[0], pair[1])


@lru_cache(maxsize=4096)
def calibrate_hamming(n: int, k: int, epsilon: float) -> float:
    """Return the largest inverse_temperature whose `hamming_loss` is at most `epsilon`.

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
    is searched from ε downwards for the first allowed inverse_temperature, and only the gap above it is bisected. A inverse_temperature is refused
    if a pair of neighbours known from an earlier search exceeds ε there, which costs two normalisers, and allowed only
    after a search over all pairs.

    Examples
    --------
    >>> inverse_temperature = calibrate_hamming(100, 3, 1.0)
    >>> round(inverse_temperature, 6), round(hamming_loss(100, 3, inverse_temperature).loss, 12)
    (0.682546, 1.0)
    """
    epsilon = validate_epsilon(epsilon)
    require_hamming(n, k)
    pairs: list[NDArray[np.int64]] = []

    def surely_exceeds(inverse_temperature: float) -> bool:
        if not pairs:
            return False
        sums = _loss_sums(n, k, inverse_temperature)
        return any(
            inverse_temperature + math.log(_normaliser(second, sums) / _normaliser(first, sums)) > epsilon
            for first, second in pairs
        )

    def allowed(inverse_temperature: float) -> bool:
        if surely_exceeds(inverse_temperature):
            return False
        found = hamming_loss(n, k, inverse_temperature)
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
        raise AssertionError(f"no inverse_temperature is allowed for n = {n}, k = {k}, epsilon = {epsilon}")
    while high - low > 1e-15 * epsilon:
        # Bisection between the allowed inverse_temperature and the refused one, by the known pairs alone; then a search to confirm.
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


def _loss_sums(n: int, k: int, inverse_temperature: float) -> NDArray[np.float64]:
    """Return the coefficients of S(x; t): Σ_{a≤x} C(a, j)·exp(−inverse_temperature·a), j < k − 1, shape (k − 1, n + 1)."""
    a = np.arange(n + 1)
    sums = np.empty((k - 1, n + 1))
    term = np.exp(-inverse_temperature * a)
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
