"""Signs that a published table is not what its formats state: clipped values, sums of cells, and contradictions.

They are warnings. `mechanisms.tables.tree` refuses exact values that contradict each other, and tables that were made
consistent after the noise, and `mechanisms.tables.solve` tables that contradict each other beyond double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import special

from mechanisms.core.noise import Noise
from mechanisms.tables import Suppressed
from mechanisms.tables.likelihoods import likelihoods
from studies.own_data.published_values import Published

_SMALL = 10  # number of values below one standard deviation of which some should be negative
_ZEROS = 3  # number of values of real noise that are exactly 0
_DEVIATIONS = 10.0  # distance in standard deviations of values that contradict each other
_CHANCE = 1e-6  # probability below which equal values with integer noise are hardly independent
_CHILDREN = 5  # number of cells whose rounded sum hardly equals the rounded total by chance

Ranges = tuple[np.ndarray, np.ndarray]


def find_warnings(
    published: Published, parents: np.ndarray, first: np.ndarray, names: Sequence[str]
) -> list[str]:  # fmt: skip
    """Return warnings about the first nodes of a table, those of its rows; `first` has the first rows of cells."""
    return [
        *_clipped(published),
        *_summed(published, parents),
        *_contradictory(published, parents, first, names),
        *_repeated(published, parents),
    ]


def _plain(published: Published) -> np.ndarray:
    """Return True for values that are noisy counts as they are."""
    is_value = np.array([form == "value" for form in published.seen], bool)
    return is_value & ~np.isnan(published.values) & (published.variance > 0.0)


def _clipped(published: Published) -> list[str]:
    """Warn about values of which none is negative: of counts near 0, about 0.6 per value in [0, sd] should be."""
    plain = _plain(published)
    y, deviation = published.values[plain], np.sqrt(published.variance[plain])
    is_real = np.array([isinstance(noise, Noise) and not noise.is_integer for noise in published.noise], bool)[plain]
    small, zeros = int((y <= deviation).sum()), int(((y == 0.0) & is_real).sum())
    if (y < 0.0).any() or (small < _SMALL and zeros < _ZEROS):
        return []
    return [
        f"no value is negative, though {small:,} are at most one standard deviation of the noise and {zeros:,} exactly "
        "0: the table looks clipped at 0, and intervals are then wrong; state --seen clipped"
    ]


def _sums(published: Published, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return number, sum of values and sum of variances of the children of each row; NaN if not all have values."""
    m = published.values.size
    number, total, variance = np.zeros((3, parents.size))
    child = np.flatnonzero(parents >= 0)
    known = child < m
    np.add.at(number, parents[child], 1.0)
    np.add.at(total, parents[child], np.where(known, published.values[np.minimum(child, m - 1)], np.nan))
    np.add.at(variance, parents[child], np.where(known, published.variance[np.minimum(child, m - 1)], np.nan))
    return number[:m], total[:m], variance[:m]


def _summed(published: Published, parents: np.ndarray) -> list[str]:
    """Warn if all totals of rounded or clipped values equal the sums of their cells."""
    number, total, _ = _sums(published, parents)
    is_value = np.array([form == "value" for form in published.seen], bool)
    family = (number > 1) & ~np.isnan(total) & ~np.isnan(published.values) & ~is_value
    if not family.any() or not np.allclose(total[family], published.values[family], rtol=1e-9, atol=0.0):
        return []
    if number[family].sum() < _CHILDREN or not published.values[family].any():
        return []
    return [
        "every total equals the sum of its published cells: if totals were computed from them, they are no "
        "measurements; state --totals sums"
    ]


def _contradictory(published: Published, parents: np.ndarray, first: np.ndarray, names: Sequence[str]) -> list[str]:
    """Warn about noisy values that differ from those of the same count by more than the noise explains.

    Of a value of which only a range is known, such as a suppressed one, the distance is that from the range.
    """
    ranges = likelihoods(published.values, published.noise, published.seen, names).ranges()
    distance = np.maximum(
        _distance_in_cells(published, ranges, first), _distance_from_sums(published, ranges, parents, first)
    )
    far = int((distance > _DEVIATIONS).sum())
    if not far:
        return []
    worst = int(np.argmax(distance))
    difference = "value differs from the value or the sum of values" if far == 1 else "values differ from those"
    return [
        f"{far:,} {difference} of the same count by more than {_DEVIATIONS:g} standard deviations of the noise, at "
        f"most {distance[worst]:.3g} for {names[worst]}; check the noise and the formats"
    ]


def _known(published: Published) -> np.ndarray:
    """Return the rows with values that are counts with or without noise, neither clipped, suppressed nor rounded."""
    is_known = [
        form == "value" or isinstance(form, Suppressed) or (form == "clipped" and value > 0.0)
        for form, value in zip(published.seen, published.values, strict=True)
    ]
    return np.flatnonzero(np.array(is_known, bool) & ~np.isnan(published.values))


def _distance_in_cells(published: Published, ranges: Ranges, first: np.ndarray) -> np.ndarray:
    """Return the largest distance of two measurements of each cell in standard deviations, at its first row.

    Compared are that with the lowest upper end and that with the highest lower end, and each and that with the least
    noise.
    """
    (low, high), variance = ranges, published.variance
    rows = np.flatnonzero(~np.isnan(low))
    lowest = _last_of_cells(rows[np.argsort(-high[rows], kind="stable")], first)
    highest = _last_of_cells(rows[np.argsort(low[rows], kind="stable")], first)
    best = _last_of_cells(rows[np.argsort(-variance[rows], kind="stable")], first)
    distance = np.zeros(first.size)
    for row, other in ((rows, best[first[rows]]), (lowest[first[rows]], highest[first[rows]])):
        gap = _gap((low[row], high[row]), (low[other], high[other]))
        np.maximum.at(distance, first[rows], _in_deviations(gap, variance[row] + variance[other]))
    return distance


def _last_of_cells(rows: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the last of some rows for each cell, at its first row; 0 if there is none."""
    last = np.zeros(first.size, int)
    last[first[rows]] = rows
    return last


def _gap(ranges: Ranges, others: Ranges) -> np.ndarray:
    """Return the distance between ranges; 0 if they overlap."""
    return np.maximum(np.maximum(ranges[0] - others[1], others[0] - ranges[1]), 0.0)


def _in_deviations(gap: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return gaps in standard deviations; 0 without noise, where a contradiction is an error."""
    return np.nan_to_num(gap / np.sqrt(np.where(variance > 0.0, variance, np.inf)))


def _pooled(published: Published, ranges: Ranges, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ends of the range of each cell and its variance, at its first row; NaN if there is no measurement.

    Values are averaged with inverse variances as weights, and an exact count is the average. Cells without a value that
    is published in any case have their value with the least noise, and those without any value the range with the least
    noise.
    """
    low, high, variance = np.full((3, first.size), np.nan)
    for rows in (np.flatnonzero(ranges[0] < ranges[1]), np.flatnonzero(ranges[0] == ranges[1])):
        falling = rows[np.argsort(-published.variance[rows], kind="stable")]
        cells = first[falling]  # of several assignments, the last holds
        low[cells], high[cells], variance[cells] = ranges[0][falling], ranges[1][falling], published.variance[falling]
    rows = np.flatnonzero(_plain(published))
    precision, total = np.zeros((2, first.size))
    np.add.at(precision, first[rows], 1.0 / published.variance[rows])
    np.add.at(total, first[rows], published.values[rows] / published.variance[rows])
    is_averaged = (precision > 0.0) & (variance > 0.0)
    low[is_averaged] = high[is_averaged] = total[is_averaged] / precision[is_averaged]
    variance[is_averaged] = 1.0 / precision[is_averaged]
    return low, high, variance


def _distance_from_sums(
    published: Published, ranges: Ranges, parents: np.ndarray, first: np.ndarray
) -> np.ndarray:  # fmt: skip
    """Return the distance of each cell from the sum of the cells below it in standard deviations, at its first row.

    A cell without a measurement has the sum of those below it.
    """
    low, high, variance = _pooled(published, ranges, first)
    low = np.where(np.isneginf(low), 0.0, low)  # counts are not negative
    last = np.arange(first.size)
    np.maximum.at(last, first, np.arange(first.size))  # the last row of a cell has the parent of the cell
    cells = np.flatnonzero((first == np.arange(first.size)) & (parents[last] >= 0))
    above = parents[last[cells]]
    is_family = np.zeros(first.size, bool)
    is_family[above] = True
    for _ in range(first.size):  # one pass per level
        lowest, highest, spread = np.zeros((3, first.size))
        for sums, terms in ((lowest, low), (highest, high), (spread, variance)):
            np.add.at(sums, above, terms[cells])
        filled = is_family & np.isnan(low) & ~np.isnan(lowest)
        if not filled.any():
            break
        low[filled], high[filled], variance[filled] = lowest[filled], highest[filled], spread[filled]
    distance = _in_deviations(_gap((low, high), (lowest, highest)), spread + variance)
    return np.where(is_family, distance, 0.0)


def _repeated(published: Published, parents: np.ndarray) -> list[str]:
    """Warn about equal values of one count that are hardly independent.

    Two values with real noise are never equal. With integer noise, k counts that have equal values with mean
    probability p do so in a or more cases with probability at most exp(−k·KL(a/k ‖ p)) (Hoeffding 1963).
    """
    agrees, chance = _equal_values(published, _counts(parents))
    is_integer = chance > 0.0
    equal = int(agrees[~is_integer].sum())
    if is_integer.any():
        share, expected = agrees[is_integer].mean(), chance[is_integer].mean()
        divergence = special.rel_entr(share, expected) + special.rel_entr(1.0 - share, 1.0 - expected)
        if share > expected and is_integer.sum() * divergence > -math.log(_CHANCE):
            equal += int(agrees[is_integer].sum())
    if not equal:
        return []
    return [
        f"{equal:,} {'cell has' if equal == 1 else 'cells have'} the same value twice, taken as two measurements with "
        "independent noise; remove rows that repeat one release"
    ]


def _counts(parents: np.ndarray) -> np.ndarray:
    """Return the topmost node with the count of each node; an only child has the count of its parent."""
    nodes = np.arange(parents.size)
    children = np.bincount(parents[parents >= 0], minlength=parents.size)
    top = np.where((parents >= 0) & (children[parents] == 1), parents, nodes)
    for _ in range(parents.size.bit_length()):  # each pass doubles the steps
        top = top[top]
    return top


def _equal_values(published: Published, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return True for each count with two equal noisy values, and a bound on the probability for independent noise.

    The bound is Σ_z Pr[z]² per pair of values. Values with real noise are compared unless they are 0, and those with
    integer noise if they are published in any case, separately.
    """
    seen: dict[tuple[int, bool], set[float]] = {}
    agrees: dict[tuple[int, bool], bool] = {}
    chance: dict[tuple[int, bool], float] = {}
    plain = _plain(published)
    for row in _known(published):
        kind, value = published.noise[row], published.values[row]
        if isinstance(kind, Noise) and (plain[row] if kind.is_integer else value != 0.0):
            key = (int(counts[row]), kind.is_integer)
            values = seen.setdefault(key, set())
            if values:
                agrees[key] = agrees.get(key, False) or value in values
                chance[key] = min(chance.get(key, 0.0) + len(values) * _equal_chance(kind), 1.0)
            values.add(value)
    return np.array(list(agrees.values()), bool), np.array(list(chance.values()), float)


@lru_cache  # one number per noise of a table
def _equal_chance(noise: Noise) -> float:
    """Return Σ_z Pr[z]² of integer noise, 0 of real noise; a squared weight is that of a smaller scale."""
    if not noise.is_integer:
        return 0.0
    squared = Noise(noise.name, noise.scale * 2.0 ** (-1.0 / noise.power))
    return math.exp(squared.log_normaliser(1) - 2.0 * noise.log_normaliser(1))
