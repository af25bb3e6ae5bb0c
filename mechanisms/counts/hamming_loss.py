"""Exact privacy loss of the Hamming mechanism, and its largest private inverse temperature.

With m, d, c and r as in `mechanisms.counts.hamming`, the loss depends on the ratio of Z(c) = Σ_r exp(−m·d(c, r)) at
neighbours. Z is needed at every data set, so it is computed without a table over d. The numbers N_d in that module,
C(d−1, u−1) = Σ_j (−1)^{u−1−j} C(d, j), and Vandermonde's C(Σ aᵢ, j) = Σ Π C(aᵢ, jᵢ) over j₁ + j₂ + … = j give

    Z(c) = −(−1)ᵏ + Σ_U Σ_{j<u} (−1)^{u−1−j} [tʲ] Π_{i∉U} S(cᵢ; t),   S(x; t) = Σ_{a≤x} (1 + t)ᵃ·qᵃ,   0 < u < k,

with q = exp(−m), U a set of u gaining categories and aᵢ the loss of category i. The sums over all U of one size take
one pass over the categories. The subtracted terms exceed Z by a factor that depends only on k and grows like 2ᵏ. Up to
`MAX_CATEGORIES` categories ln Z is accurate to 11 digits or more.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.calibrate import bisect, first_private
from mechanisms.conjugate import count_candidates, validate_problem
from mechanisms.counts.calibration import Calibration
from mechanisms.counts.hamming import hamming_mechanism, require_hamming_tables, require_inverse_temperature
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.sensitivity import Rule
from mechanisms.jit import kernel
from mechanisms.metadata import Style
from mechanisms.privacy import pure_guarantee
from mechanisms.privacy_parameters import validate_resolved_epsilon

__all__ = ["HAMMING_EXACT", "HammingLoss", "calibrate_hamming", "hamming_loss", "require_hamming"]

MAX_CATEGORIES = 16
"""Largest number of categories; the alternating sums lose one digit per three categories."""

MAX_SORTED = 20_000_000
"""Largest number of data sets, up to permutations of categories, for k ≤ 4; the limit is smaller for k > 4."""

_GRID = 64
"""Number of grid intervals between ε/2 and ε in `calibrate_hamming`, before the bisection."""


class HammingLoss(NamedTuple):
    """Privacy loss of the Hamming mechanism, with neighbours that attain it."""

    loss: float
    """Privacy loss in nats."""
    data_set: NDArray[np.int64]
    """Counts c in ascending order, shape (k,)."""
    neighbour: NDArray[np.int64]
    """Neighbour c' of c; ln Pr[r | c] − ln Pr[r | c'] equals the loss at r = c, among others."""


def require_hamming(n: int, k: int) -> None:
    """Raise ValueError if there are too many categories or data sets for `hamming_loss`."""
    n, k = validate_problem(n, k)
    if k > MAX_CATEGORIES:
        raise ValueError(
            f"there must be at most {MAX_CATEGORIES} categories for the exact loss, got {k}; merge categories, or "
            "choose a mechanism that only adds noise"
        )
    require_hamming_tables(n, k)
    limit = MAX_SORTED * 64 // max(k, 4) ** 3
    n_sorted = count_candidates(n, k) // math.factorial(k)
    if n_sorted <= limit:  # a lower bound, as a data set has at most k! permutations
        n_sorted = int(_count_sorted(n, k)[k, n])
    if n_sorted > limit:
        raise ValueError(
            f"data sets up to permutations must number at most {limit:,}, got at least {n_sorted:,} "
            f"(n = {n}, k = {k}); use fewer records, merge categories, or choose a mechanism that only adds noise"
        )


def hamming_loss(n: int, k: int, inverse_temperature: float) -> HammingLoss:
    """Return the exact privacy loss of the Hamming mechanism over all neighbours and outputs.

    For neighbours c and c', ln Pr[r|c] − ln Pr[r|c'] = m·(d(c', r) − d(c, r)) + ln Z(c') − ln Z(c), and d(c', r) − d(c,
    r) ≤ d(c', c) = 1, with equality at r = c. So loss = m + max over neighbours of ln Z(c') − ln Z(c). The maximum is ≥
    0, as each pair occurs in both orders, and ≤ m, as each d changes by at most 1: m ≤ loss ≤ 2m. Z is invariant under
    permutations of the categories, so it is sufficient to consider sorted counts and moves of a record from a larger to
    a smaller category: the opposite move is the same pair in reverse order, and a move between counts that differ by
    one only swaps them.
    """
    require_inverse_temperature(inverse_temperature)
    n, k = validate_problem(n, k)
    require_hamming(n, k)
    n_sorted = _count_sorted(n, k)
    normalisers = np.empty(int(n_sorted[k, n]))
    _fill_normalisers(n, _loss_sums(n, k, inverse_temperature), normalisers)
    pair = np.zeros((2, k), dtype=np.int64)
    ratio = _largest_ratio(n, n_sorted, normalisers, pair)
    return HammingLoss(inverse_temperature + math.log(ratio), pair[0], pair[1])


def calibrate_hamming(n: int, k: int, epsilon: float) -> float:
    """Return the largest inverse temperature, in nats per replaced record, whose `hamming_loss` is at most `epsilon`.

    As m ≤ loss ≤ 2m, no m above ε is private, and m = ε/2 is private. The loss is not assumed to increase in between: a
    grid is searched downwards from ε for the first private m, and only the interval above it is bisected. A value is
    rejected if the loss at a known pair of neighbours exceeds ε, and accepted only after a search over all pairs.
    """
    n, k = validate_problem(n, k)
    return _calibrate_hamming(n, k, validate_resolved_epsilon(epsilon))


@lru_cache(maxsize=4096)
def _calibrate_hamming(n: int, k: int, epsilon: float) -> float:
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

    # The last step is below ε/2, because the loss at ε/2 may exceed ε by rounding.
    grid = [*np.linspace(epsilon, 0.5 * epsilon, _GRID + 1).tolist(), 0.499 * epsilon]
    low, high = first_private(allowed, grid)
    while high - low > 1e-15 * epsilon:
        # Bisect between the accepted and the rejected value with the known pairs only; then search all pairs.
        inner, _ = bisect(lambda rate: not surely_exceeds(rate), low, high, absolute=1e-15 * epsilon)
        if inner == low or allowed(inner):
            return inner
        high = inner  # the loss of another pair, which is now a known pair, exceeds ε
    return low


def _loss_sums(n: int, k: int, inverse_temperature: float) -> NDArray[np.float64]:
    """Return the coefficients Σ_{a≤x} C(a, j)·exp(−m·a) of tʲ in S(x; t) for j < k − 1, shape (k − 1, n + 1)."""
    a = np.arange(n + 1)
    sums = np.empty((k - 1, n + 1))
    term = np.exp(-inverse_temperature * a)
    for j in range(k - 1):
        np.cumsum(term, out=sums[j])
        term *= (a - j) / (j + 1)
    return sums


def _count_sorted(n: int, k: int) -> NDArray[np.int64]:
    """Return a table P in which P[j, m] is the number of partitions of m into at most j parts."""
    table = np.zeros((k + 1, n + 1), dtype=np.int64)
    table[0, 0] = 1
    for j in range(1, k + 1):
        table[j] = table[j - 1]
        for residue in range(min(j, n + 1)):  # P[j, m] = P[j − 1, m] + P[j, m − j]
            table[j, residue::j] = np.cumsum(table[j, residue::j])
    return table


@kernel
def _add_category(products, losses, updated):
    """Add a category to Σ_V Π_{i∈V} S(cᵢ; t); row v is the sum over sets V of v categories, up to t^(k−1−v)."""
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
    """Return the normaliser Z, given sums over the non-empty proper subsets V of losing categories."""
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
    for category in range(k):
        _add_category(products, sums[:, counts[category]], updated)
        products, updated = updated, products
    return _alternating_sum(products)


@kernel
def _next_sorted(counts):
    """Replace `counts` by the next ascending counts; return the first changed category, or −1 at the end."""
    k = counts.size
    rest = counts[k - 1]
    for category in range(k - 2, -1, -1):
        rest += counts[category]
        value = counts[category] + 1
        if value * (k - category) <= rest:
            for later in range(category, k - 1):
                counts[later] = value
            counts[k - 1] = rest - value * (k - 1 - category)
            return category
    return -1


@kernel
def _fill_normalisers(n, sums, normalisers):
    k = sums.shape[0] + 1
    by_value = sums.T.copy()
    counts = np.zeros(k, dtype=np.int64)
    counts[k - 1] = n
    # levels[i] contains the products over the first i categories; a step recomputes them from the first changed one.
    levels = np.zeros((k + 1, k, k))
    levels[0, 0, 0] = 1.0
    changed = 0
    for rank in range(normalisers.size):
        for category in range(changed, k):
            _add_category(levels[category], by_value[counts[category]], levels[category + 1])
        normalisers[rank] = _alternating_sum(levels[k])
        changed = _next_sorted(counts)


@kernel
def _rank_sorted(counts, n_sorted):
    k = counts.size
    rest, least, rank = 0, 0, 0
    for category in range(k):
        rest += counts[category]
    for category in range(k - 1):
        width = k - category
        rank += n_sorted[width, rest - least * width] - n_sorted[width, rest - counts[category] * width]
        rest -= counts[category]
        least = counts[category]
    return rank


@kernel
def _largest_ratio(n, n_sorted, normalisers, pair):
    k = pair.shape[1]
    counts = np.zeros(k, dtype=np.int64)
    counts[k - 1] = n
    # At n = 1 all data sets are permutations of each other.
    pair[0, k - 1], pair[1, k - 1], pair[1, k - 2] = n, n - 1, 1
    largest = 1.0
    for rank in range(normalisers.size):
        for taker in range(k - 1):
            if counts[taker] == counts[taker + 1]:
                continue  # of equal counts, the last increases and the first decreases, so counts stay sorted
            for giver in range(taker + 1, k):
                if counts[giver] == counts[giver - 1] or counts[giver] < counts[taker] + 2:
                    continue
                counts[taker] += 1
                counts[giver] -= 1
                ratio = normalisers[_rank_sorted(counts, n_sorted)] / normalisers[rank]
                if max(ratio, 1.0 / ratio) > largest:
                    largest = max(ratio, 1.0 / ratio)
                    one, other = (1, 0) if ratio > 1.0 else (0, 1)
                    for category in range(k):
                        pair[one, category] = counts[category]
                        pair[other, category] = counts[category]
                    pair[other, taker] -= 1
                    pair[other, giver] += 1
                counts[taker] -= 1
                counts[giver] += 1
        _next_sorted(counts)
    return largest


def _calibration(prior: NDArray[np.float64], n: int, epsilon: float) -> Calibration:
    rate, loss = _rate_and_loss(n, len(prior), epsilon)
    return Calibration(Rule.HAMMING, tuple(prior.tolist()), n, epsilon, math.nan, rate, loss)


@lru_cache(maxsize=4096)
def _rate_and_loss(n: int, k: int, epsilon: float) -> tuple[float, float]:
    rate = calibrate_hamming(n, k, epsilon)
    return rate, hamming_loss(n, k, rate).loss


HAMMING_EXACT = Mechanism(
    name="hamming-exact",
    note="Exponential mechanism on the number of replaced records; the largest exponent whose exact loss is ε.",
    release=lambda prior, counts, epsilon, delta: hamming_mechanism(
        prior, counts, calibrate_hamming(int(counts.sum()), counts.size, epsilon)
    ),
    uses_prior=False,
    guarantee=pure_guarantee,
    require=require_hamming,
    symmetric=True,
    calibrate=_calibration,
    style=Style("olive", "*"),
)
