"""Exponential mechanism with the Hamming distance as its score, sampled in closed form.

    Pr[r] ∝ exp( −m·d(c, r) ),   d(c, r) = ½‖c − r‖₁,   r over all counts of n records in k categories

The distance d is the number of records to replace, and m the inverse temperature. From c to r, some categories gain d
records in total and others lose d. For a set U of u ≥ 1 gaining categories there are C(d−1, u−1) ways to gain; the ways
to lose are those in which the categories outside U lose 0 … cᵢ records each. So with q = exp(−m) the normaliser is

    Z(c) = Σ_d N_d·qᵈ,   N_0 = 1,   N_d = Σ_U C(d−1, u−1)·#{ (aᵢ), i ∉ U : 0 ≤ aᵢ ≤ cᵢ, Σ aᵢ = d }.

`HammingMechanism` tabulates the number of ways to lose, category by category, and samples backwards through these
tables. The cost is of order k²·n and does not depend on the number of candidates.

**Exact privacy loss.** The loss depends on the ratio of Z(c) = Σ_r exp(−m·d(c, r)) at neighbours. Z is needed at every
data set, so it is computed without a table over d. For the numbers N_d, C(d−1, u−1) = Σ_j (−1)^{u−1−j} C(d, j), and
Vandermonde's C(Σ aᵢ, j) = Σ Π C(aᵢ, jᵢ) over j₁ + j₂ + … = j give

    Z(c) = −(−1)ᵏ + Σ_U Σ_{j<u} (−1)^{u−1−j} [tʲ] Π_{i∉U} S(cᵢ; t),   S(x; t) = Σ_{a≤x} (1 + t)ᵃ·qᵃ,   0 < u < k,

with q = exp(−m), U a set of u gaining categories and aᵢ the loss of category i. The sums over all U of one size take
one pass over the categories. The subtracted terms exceed Z by a factor that depends only on k and grows like 2ᵏ. Up to
`MAX_CATEGORIES` categories ln Z is accurate to 11 digits or more.

References
----------
McSherry & Talwar, "Mechanism design via differential privacy", FOCS 2007.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mechanisms.core.arguments import Floats, Integers, validate_positive
from mechanisms.core.calibrate import bisect, first_private
from mechanisms.core.conjugate import count_candidates, require_at_most, tabulate_candidates, validate_problem
from mechanisms.core.jit import kernel
from mechanisms.core.metadata import Style
from mechanisms.core.privacy import pure_guarantee
from mechanisms.core.privacy_parameters import validate_resolved_epsilon
from mechanisms.core.shared_cache import computed_once
from mechanisms.counts import candidates
from mechanisms.counts.calibrated import Calibration
from mechanisms.counts.mechanism import CountRelease, Mechanism
from mechanisms.counts.sensitivity import Rule

MAX_CATEGORIES = 16  # largest number of categories; the alternating sums lose one digit per three categories
# largest number of data sets, up to permutations of categories, for k ≤ 4; the limit is smaller for k > 4
MAX_SORTED = 20_000_000
_GRID = 64  # number of grid intervals between ε/2 and ε in `calibrate_hamming`, before the bisection


@dataclass(frozen=True, eq=False, repr=False)
class HammingMechanism(CountRelease):
    """Distribution Pr[r] ∝ exp(−m·½‖counts − r‖₁) of released counts r.

    **Privacy.** Pure DP under replacement of one record, with n public, for exact draws. The loss is
    `hamming_loss`, between m and 2m; `calibrate_hamming` returns m for a given ε.
    """

    prior: Floats
    counts: Integers
    inverse_temperature: float  # m, in nats per replaced record

    @cached_property
    def _ways(self) -> tuple[Floats, Floats]:
        """Numbers of ways in which v of the first i + 1 categories lose l records, at [i, v, l]; of all at [v, l]."""
        return _count_losses(self.counts)

    @cached_property
    def _weights(self) -> Floats:
        """Total weight of distance 0, then of each distance d ≥ 1 with u = 1 … k − 1 gaining categories."""
        weights, d = np.ones(1 + self.n * (self.k - 1)), np.arange(1, self.n + 1)
        steps = np.exp(-self.inverse_temperature * d)
        gains = np.ones(self.n)  # C(d − 1, u − 1) for d = 1, …, n
        for u in range(1, self.k):
            weights[u :: self.k - 1] = gains * self._ways[1][self.k - u, 1:] * steps
            gains *= (d - u) / u
        return weights

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw: 1 for the distance, k − 1 for the set of gaining categories, k − 2 for gains."""
        return 2 * self.k - 2

    @property
    def log_normaliser(self) -> float:
        """Logarithm of Z = Σ_r exp(−m·d(c, r))."""
        return math.log(self._weights.sum())

    def from_uniforms(self, uniforms: Floats) -> Integers:
        u = candidates.require_uniforms(uniforms, self.n_uniforms)
        released = np.empty((len(u), self.k), dtype=np.int64)
        ways = self._ways[0]
        _sample(self.counts, np.cumsum(self._weights), ways, np.cumsum(ways, axis=-1), u, released)
        return released

    def expected_hellinger(self) -> float:
        candidates.require_streamable(self.n, self.k)
        rows = candidates.enumerate_rows(self.n, self.k)
        deficits = candidates.category_deficits(self.prior, self.counts)
        steps = np.exp(-self.inverse_temperature * np.arange(self.n + 1) - self.log_normaliser)
        remaining = candidates.remaining_records(rows)
        reach = np.count_nonzero(steps > candidates.NEGLIGIBLE * steps[1]) - 1
        gains = np.maximum(rows[:, :-1] - self.counts[:-2], 0).sum(axis=1)  # records that the prefix gains
        prefix = candidates.row_deficits(deficits, rows)
        return float(_stream_mean(remaining, gains, prefix, *deficits[-2:], self.counts, steps, reach))

    def log_pmf(self) -> Floats:
        candidates.require_enumerable(self.n, self.k)
        columns = zip(tabulate_candidates(self.n, self.k).T, self.counts, strict=True)
        distances = np.sum([np.maximum(column - count, 0) for column, count in columns], axis=0)
        log_steps = -self.inverse_temperature * np.arange(self.n + 1) - self.log_normaliser
        return log_steps[distances]


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
        picked = np.searchsorted(weights[:last], uniforms[trial, 0] * weights[last], side="right")
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
                    left = least + np.searchsorted(before[least:lost], base + (target - gain_weight), side="right")
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
def _stream_mean(remaining, gains, prefix, first, second, counts, steps, reach):
    """Return the mean distance, without candidates for which more than `reach` records are replaced."""
    mean = 0.0
    before_last, last = counts[-2], counts[-1]
    for row in range(remaining.size):
        top, farther = remaining[row], reach - gains[row]
        row_mean = 0.0
        for x in range(max(top - last - farther, 0), min(before_last + farther, top) + 1):
            a = first[x]
            distance = math.sqrt(prefix[row] + (1.0 - prefix[row]) * (a + (1.0 - a) * second[top - x]))
            row_mean += steps[gains[row] + max(x - before_last, 0) + max(top - x - last, 0)] * distance
        mean += row_mean
    return mean


def require_hamming(n: int, k: int) -> None:
    """Raise ValueError if there are too many categories or data sets for `hamming_loss`."""
    n, k = validate_problem(n, k)
    if k > MAX_CATEGORIES:
        raise ValueError(f"there must be at most {MAX_CATEGORIES} categories for the exact loss, got {k}; merge some")
    tables = 2 * k * k * (n + 1)
    require_at_most(candidates.MAX_TABLE, "entries of tables in memory", tables, n, k, candidates.FEWER)
    limit = MAX_SORTED * 64 // max(k, 4) ** 3
    n_sorted = count_candidates(n, k) // math.factorial(k)
    if n_sorted <= limit:  # a lower bound, as a data set has at most k! permutations
        n_sorted = int(_count_sorted(n, k)[k, n])
    require_at_most(limit, "data sets up to permutations", n_sorted, n, k, candidates.FEWER)


def hamming_loss(n: int, k: int, inverse_temperature: float) -> tuple[float, Integers]:
    """Return the exact loss over all neighbours and outputs, and neighbours c, c', shape (2, k), with it at r = c."""
    # For neighbours c and c', ln Pr[r|c] − ln Pr[r|c'] = m·(d(c', r) − d(c, r)) + ln Z(c') − ln Z(c), and d(c', r) −
    # d(c, r) ≤ d(c', c) = 1, with equality at r = c. So loss = m + max over neighbours of ln Z(c') − ln Z(c). The
    # maximum is ≥ 0, as each pair occurs in both orders, and ≤ m, as each d changes by at most 1: m ≤ loss ≤ 2m. Z is
    # invariant under permutations of the categories, so it is sufficient to consider sorted counts and moves of a
    # record from a larger to a smaller category: the opposite move is the same pair in reverse order, and a move
    # between counts that differ by one only swaps them.
    validate_positive("inverse_temperature", inverse_temperature, "use calibrate_hamming")
    n, k = validate_problem(n, k)
    require_hamming(n, k)
    n_sorted = _count_sorted(n, k)
    normalisers = np.empty(int(n_sorted[k, n]))
    _fill_normalisers(n, _loss_sums(n, k, inverse_temperature), normalisers)
    pair = np.zeros((2, k), dtype=np.int64)
    ratio = _largest_ratio(n, n_sorted, normalisers, pair)
    return inverse_temperature + math.log(ratio), pair


def calibrate_hamming(n: int, k: int, epsilon: float) -> float:
    """Return the largest inverse temperature, in nats per replaced record, whose `hamming_loss` is at most `epsilon`.

    As m ≤ loss ≤ 2m, no m above ε is private, and m = ε/2 is private. The loss is not assumed to increase in between: a
    grid is searched downwards from ε for the first private m, and only the interval above it is bisected. A value is
    rejected if the loss at a known pair of neighbours exceeds ε, and accepted only after a search over all pairs.
    """
    n, k = validate_problem(n, k)
    return _calibrate_hamming(n, k, validate_resolved_epsilon(epsilon))[0]


@computed_once(maxsize=4096)  # seconds per calibration, which trials and audits share; two numbers per entry
def _calibrate_hamming(n: int, k: int, epsilon: float) -> tuple[float, float]:
    """Return the inverse temperature of `calibrate_hamming`, and its loss."""
    require_hamming(n, k)
    # The loss is largest where one record leaves a category with all others, in all known cases.
    corner = np.zeros((2, k), dtype=np.int64)
    corner[:, -1], corner[1, -2:] = n, sorted((1, n - 1))
    pairs = [corner]
    losses: dict[float, float] = {}

    def surely_exceeds(inverse_temperature: float) -> bool:
        sums = _loss_sums(n, k, inverse_temperature)
        return any(
            inverse_temperature + math.log(_normaliser(second, sums) / _normaliser(first, sums)) > epsilon
            for first, second in pairs
        )

    def allowed(inverse_temperature: float) -> bool:
        if surely_exceeds(inverse_temperature):
            return False
        losses[inverse_temperature], pair = hamming_loss(n, k, inverse_temperature)
        if losses[inverse_temperature] > epsilon:
            pairs.append(pair)
        return losses[inverse_temperature] <= epsilon

    # The last step is below ε/2, because the loss at ε/2 may exceed ε by rounding.
    grid = [*np.linspace(epsilon, 0.5 * epsilon, _GRID + 1).tolist(), 0.499 * epsilon]
    low, high = first_private(allowed, grid)
    while high - low > 1e-15 * epsilon:
        # Bisect between the accepted and the rejected value with the known pairs only; then search all pairs.
        inner, _ = bisect(lambda rate: not surely_exceeds(rate), low, high, absolute=1e-15 * epsilon)
        if inner == low or allowed(inner):
            return inner, losses[inner]
        high = inner  # the loss of another pair, which is now a known pair, exceeds ε
    return low, losses[low]


def _loss_sums(n: int, k: int, inverse_temperature: float) -> Floats:
    """Return the coefficients Σ_{a≤x} C(a, j)·exp(−m·a) of tʲ in S(x; t) for j < k − 1, shape (n + 1, k − 1)."""
    a = np.arange(n + 1)
    sums = np.empty((k - 1, n + 1))
    term = np.exp(-inverse_temperature * a)
    for j in range(k - 1):
        np.cumsum(term, out=sums[j])
        term *= (a - j) / (j + 1)
    return sums.T.copy()


def _count_sorted(n: int, k: int) -> Integers:
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
        _add_category(products, sums[counts[category]], updated)
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
    k = sums.shape[1] + 1
    counts = np.zeros(k, dtype=np.int64)
    counts[k - 1] = n
    # levels[i] contains the products over the first i categories; a step recomputes them from the first changed one.
    levels = np.zeros((k + 1, k, k))
    levels[0, 0, 0] = 1.0
    changed = 0
    for rank in range(normalisers.size):
        for category in range(changed, k):
            _add_category(levels[category], sums[counts[category]], levels[category + 1])
        normalisers[rank] = _alternating_sum(levels[k])
        changed = _next_sorted(counts)


@kernel
def _rank_sorted(first, rank, rest, counts, n_sorted):
    """Return the rank of ascending counts, given the rank of the least ones with equal counts before `first`.

    `rest` is the number of records from the category `first` on.
    """
    k = counts.size
    least = counts[first - 1] if first > 0 else 0
    for category in range(first, k - 1):
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
        before, lowest, rest, least = normalisers[rank], 0, n, 0
        for taker in range(k - 1):
            for giver in range(taker + 1, k):
                # Of equal counts, the last increases and the first decreases, so counts stay sorted.
                if counts[taker] == counts[taker + 1]:
                    break
                if counts[giver] == counts[giver - 1] or counts[giver] < counts[taker] + 2:
                    continue
                counts[taker] += 1
                counts[giver] -= 1
                after = normalisers[_rank_sorted(taker, lowest, rest, counts, n_sorted)]
                # Products decide about most pairs without divisions.
                bound = largest * (1.0 - 1e-14)
                if after > bound * before or before > bound * after:
                    ratio = after / before
                    if max(ratio, 1.0 / ratio) > largest:
                        largest = max(ratio, 1.0 / ratio)
                        upper, lower = (1, 0) if ratio > 1.0 else (0, 1)
                        for category in range(k):
                            pair[upper, category] = counts[category]
                            pair[lower, category] = counts[category]
                        pair[lower, taker] -= 1
                        pair[lower, giver] += 1
                counts[taker] -= 1
                counts[giver] += 1
            width = k - taker
            lowest += n_sorted[width, rest - least * width] - n_sorted[width, rest - counts[taker] * width]
            rest -= counts[taker]
            least = counts[taker]
        _next_sorted(counts)
    return largest


def _calibration(prior: Floats, n: int, epsilon: float) -> Calibration:
    rate, loss = _calibrate_hamming(n, len(prior), epsilon)
    return Calibration(Rule.HAMMING, tuple(prior.tolist()), n, epsilon, math.nan, rate, loss)


HAMMING_EXACT = Mechanism(
    name="hamming-exact",
    note="Exponential mechanism on the number of replaced records; the largest exponent whose exact loss is ε.",
    release=lambda prior, counts, epsilon, delta: HammingMechanism(
        prior, counts, calibrate_hamming(int(counts.sum()), counts.size, epsilon)
    ),
    uses_prior=False, guarantee=pure_guarantee, require=require_hamming, symmetric=True, calibrate=_calibration,
    style=Style("olive", "*"),
)  # fmt: skip
