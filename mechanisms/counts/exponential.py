"""Exponential mechanism with the Hellinger distance as its score, sampled exactly.

    Pr[c'] ∝ exp( −ε·H(posterior(c), posterior(c')) / (2·S) ),   c' over all counts of n records in k categories

(P0, section "Smoothed Hellinger Distance Based Exponential Mechanism"; P1, section 1). The methods of the papers
differ in the sensitivity S (`mechanisms.counts.sensitivity`), its smoothing rate, the fraction of ε in the exponent
and the guarantee.

References
----------
McSherry & Talwar, "Mechanism design via differential privacy", FOCS 2007.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.conjugate import MAX_ENUMERATED, count_candidates
from mechanisms.core.jit import kernel
from mechanisms.core.metadata import Style
from mechanisms.core.privacy import Guarantee, conjectured_guarantee, no_guarantee, pure_guarantee
from mechanisms.counts import candidates
from mechanisms.counts.mechanism import CountRelease, Mechanism
from mechanisms.counts.power_mixture import power_mixture_mechanism
from mechanisms.counts.product_distributions import require_product_distributions
from mechanisms.counts.sensitivity import global_sensitivity, local_sensitivity, smooth_sensitivity, varying_sensitivity


def smoothing_gamma(epsilon: float, delta: float, n_outputs: int) -> float:
    """Return γ = ln(1 − ε / (2·ln(δ/(2N)))) > 0 per record of P0, where N = n + 1 is printed, exact at k = 2 only."""
    # Separate logarithms, as N may exceed the range of a double.
    return math.log1p(-epsilon / (2.0 * (math.log(delta) - math.log(2.0) - math.log(n_outputs))))


# maps validated (prior, counts, epsilon, delta) to S in (0, 1]; S is private, except for the global sensitivity
SENSITIVITIES: dict[str, Callable[[Floats, Integers, float, float], float]] = {
    "smooth": lambda prior, counts, epsilon, delta: smooth_sensitivity(
        prior, counts, smoothing_gamma(epsilon, delta, count_candidates(int(counts.sum()), counts.size))
    ),
    "smooth-n": lambda prior, counts, epsilon, delta: smooth_sensitivity(
        prior, counts, smoothing_gamma(epsilon, delta, int(counts.sum()) + 1)
    ),
    "varying": lambda prior, counts, epsilon, delta: varying_sensitivity(prior, counts, gamma=1.0),
    "global": lambda prior, counts, epsilon, delta: global_sensitivity(prior, int(counts.sum())),
    "local": lambda prior, counts, epsilon, delta: local_sensitivity(prior, counts),
}


def exponential_mechanism(prior: Floats, counts: Integers, rate: float, sensitivity: float) -> CountRelease:
    """Return the distribution Pr[c'] ∝ exp(−rate·H(c, c')/S) of the exponential mechanism.

    Up to `MAX_ENUMERATED` candidates, and always at k = 2, all candidates are streamed and draws invert the
    distribution function; more are sampled by `mechanisms.counts.power_mixture`. `rate` is ε/2 for the mechanism of P0.

    **Privacy.** (2·rate)-DP under replacement of one record, with n public, if `sensitivity` is the global sensitivity;
    for the smooth sensitivity see `Mechanism`, and for the local one there is no guarantee. Draws are assumed to be
    exact.
    """
    inverse_temperature = rate / sensitivity
    n, k = int(counts.sum()), counts.size
    if (k > 2 and count_candidates(n, k) > MAX_ENUMERATED) or candidates.count_table(n, k) > candidates.MAX_TABLE:
        return power_mixture_mechanism(prior, counts, inverse_temperature)
    deficits = candidates.category_deficits(prior, counts)
    rows = candidates.enumerate_rows(n, k)
    prefix = candidates.row_deficits(deficits, rows)
    totals, moments = _stream_rows(
        candidates.remaining_records(rows), prefix, deficits[-2], deficits[-1], inverse_temperature
    )
    expected = float(moments.sum() / totals.sum())
    return ExponentialMechanism(prior, counts, inverse_temperature, deficits, rows, prefix, totals, expected)


@dataclass(frozen=True, eq=False, repr=False)
class ExponentialMechanism(CountRelease):
    """Output distribution of the exponential mechanism at one data set; only total weights of rows are stored."""

    prior: Floats
    counts: Integers
    inverse_temperature: float  # coefficient of H in the exponent: rate/S
    _deficits: Floats
    _rows: Integers
    _row_deficits: Floats
    _row_totals: Floats
    _expected: float

    n_uniforms = 2  # one selects the row, one the candidate within it

    def from_uniforms(self, uniforms: Floats) -> Integers:
        u = candidates.require_uniforms(uniforms, self.n_uniforms)
        released = np.empty((len(u), self.k), dtype=np.int64)
        table = np.cumsum(self._row_totals), self._rows, self._row_deficits, *self._deficits[-2:]
        _sample(*table, self.inverse_temperature, u, released)
        return released

    def expected_hellinger(self) -> float:
        return self._expected

    def log_pmf(self) -> Floats:
        candidates.require_enumerable(self.n, self.k)
        log_pmf = candidates.combine_deficits(self._deficits, self._rows, self._row_deficits)
        log_pmf *= -self.inverse_temperature
        log_pmf -= math.log(self._row_totals.sum())
        return log_pmf


@kernel
def _fill_row(remaining, prefix, first, second, inverse_temperature, distances, weights):
    # Separate loops, so that the compiler vectorises the square roots.
    for x in range(remaining + 1):
        a = first[x]
        distances[x] = math.sqrt(prefix + (1.0 - prefix) * (a + (1.0 - a) * second[remaining - x]))
    for x in range(remaining + 1):
        weights[x] = math.exp(-inverse_temperature * distances[x])


@kernel
def _stream_rows(remaining, prefix, first, second, inverse_temperature):
    distances, weights = np.empty(first.size), np.empty(first.size)
    totals, moments = np.empty(remaining.size), np.empty(remaining.size)
    for row in range(remaining.size):
        _fill_row(remaining[row], prefix[row], first, second, inverse_temperature, distances, weights)
        total, moment = 0.0, 0.0
        for x in range(remaining[row] + 1):
            total += weights[x]
            moment += weights[x] * distances[x]
        totals[row], moments[row] = total, moment
    return totals, moments


@kernel
def _pick(cumulative, size, uniform):
    """Return an index drawn by inversion from cumulative weights; the weight of this index is positive."""
    total = cumulative[size - 1]
    target, index, high = uniform * total, 0, size
    while index < high:  # as np.searchsorted with side="right", which takes longer to compile
        middle = (index + high) // 2
        if cumulative[middle] <= target:
            index = middle + 1
        else:
            high = middle
    # cumulative[index] > target >= cumulative[index - 1], unless the product is rounded up to the total. Then take
    # the last index of positive weight.
    while index >= size or (index > 0 and cumulative[index] == cumulative[index - 1]):
        index -= 1
    return index


@kernel
def _sample(row_cumulative, rows, prefix, first, second, inverse_temperature, uniforms, released):
    n_trials, k = released.shape
    n_rows = rows.shape[0]
    picked = np.empty(n_trials, dtype=np.int64)
    starts = np.zeros(n_rows + 1, dtype=np.int64)
    for trial in range(n_trials):
        picked[trial] = _pick(row_cumulative, n_rows, uniforms[trial, 0])
        starts[picked[trial] + 1] += 1
    # Counting sort by row, so that each row is computed once.
    starts = np.cumsum(starts)
    order = np.empty(n_trials, dtype=np.int64)
    for trial in range(n_trials):
        order[starts[picked[trial]]] = trial
        starts[picked[trial]] += 1
    distances, cumulative = np.empty(first.size), np.empty(first.size)
    current = -1
    for trial in order:
        row = picked[trial]
        remaining = rows[row, k - 2]
        if row != current:
            _fill_row(remaining, prefix[row], first, second, inverse_temperature, distances, cumulative)
            for x in range(1, remaining + 1):
                cumulative[x] += cumulative[x - 1]
            current = row
        x = _pick(cumulative, remaining + 1, uniforms[trial, 1])
        for category in range(k - 2):
            released[trial, category] = rows[row, category]
        released[trial, k - 2] = x
        released[trial, k - 1] = remaining - x


def _entry(
    name: str, note: str, paper: str, share: float, guarantee: Callable[..., Guarantee | None], **fields: Any
) -> Mechanism:
    """Return the mechanism with weights exp(−share·ε·H/S)."""
    scale = SENSITIVITIES[name]

    def release(prior: Floats, counts: Integers, epsilon: float, delta: float) -> CountRelease:
        return exponential_mechanism(prior, counts, share * epsilon, scale(prior, counts, epsilon, delta))

    return Mechanism(
        name, note, release=release, guarantee=guarantee, require=require_product_distributions, symmetric=True,
        origin="paper", paper=paper, **fields,
    )  # fmt: skip


EXPONENTIAL = (
    _entry(
        "smooth",
        "Exponential mechanism on smooth Hellinger sensitivity with N = |R|; P0 states (ε, δ)-DP without proof.", "P0",
        0.5, conjectured_guarantee, needs_delta=True, style=Style("blue", "o")),
    _entry(
        "smooth-n", "As smooth, with N = n + 1 for every k as printed in P0, which states (ε, δ)-DP without proof.",
        "P0", 0.5, conjectured_guarantee, needs_delta=True, variant="N = n + 1", min_categories=3,
        style=Style("blue", "p")),
    _entry(
        "varying",
        "Exponential mechanism on varying Hellinger sensitivity, rate 1 (P1, section 1.3, our interpretation).", "P1",
        0.25, pure_guarantee, style=Style("purple", "D")),
    _entry(
        "global", "Exponential mechanism on the global Hellinger sensitivity (P1, section 1.1).", "P1", 0.5,
        pure_guarantee, style=Style("green", "^")),
    _entry(
        "local",
        "Not private: its scale is the local sensitivity, which depends on the data (P1, section 1.2); kept as a "
        "negative control.",
        "P1", 0.5, no_guarantee, style=Style("grey", "X")),
)  # fmt: skip
