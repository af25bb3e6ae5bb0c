"""Tests that posterior quantiles are uniform, at one family-wise level over all cells and components.

In each cell and for each component, two Kolmogorov-Smirnov tests compare quantiles u with the uniform distribution: of
u, and of |2u − 1|, the level of the smallest central interval with the truth. The second one detects posteriors that
are too narrow or too wide with fewer trials. Both tests are also made on the quantiles of all cells of a panel
together, which are independent. P-values are adjusted by Holm's method, which controls the family-wise error whatever
the dependence of the tests.

A cell is not calibrated if one of its tests is rejected. It passed if none is, and each would detect a deviation of
`LARGE_DEVIATION`; otherwise it is undecided. A smaller deviation may remain in a cell that passed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from pipeline.declare.factors import format_values
from studies.benchmark.compared_panel import ComparedPanel

LEVEL = 1e-3
"""Family-wise level: probability that a calibrated method is reported as not calibrated."""

LARGE_DEVIATION = 0.15
"""Deviation of a distribution function that the tests of a cell must detect to pass a method."""

_POWER_QUANTILE = 1.2816
"""Standard normal quantile of 0.9, the probability of a detection."""

ALL_CELLS = "all cells"

NOT_CALIBRATED, PASSED, UNDECIDED = "not calibrated", "passed", "undecided"


@dataclass(frozen=True)
class UniformityTest:
    """Kolmogorov-Smirnov test of the quantiles of one component in one cell, or in all cells of a panel.

    The sign of the distance is that of the larger one-sided deviation: positive if the values are too large, negative
    if they are too small. If levels |2u − 1| are too large, intervals are too narrow; if they are too small, too wide.
    If quantiles u of the truth are too large, the posterior is biased down, since the truth is above most of it; if
    they are too small, it is biased up.
    """

    study: str
    panel: str
    cell: str  # label, or `ALL_CELLS`
    component: str
    measure: str
    of_levels: bool  # True for |2u − 1|
    signed_distance: float
    n: int
    p_value: float

    @property
    def distance(self) -> float:
        """Kolmogorov-Smirnov distance, from 0 to 1."""
        return abs(self.signed_distance)

    @property
    def is_pooled(self) -> bool:
        """True for a test of all cells."""
        return self.cell == ALL_CELLS

    @property
    def subject(self) -> str:
        """Tested quantity as text."""
        quantity = "levels of central intervals" if self.of_levels else "quantiles"
        joint = "" if self.measure == "pit" else f" ({self.measure})"
        return f"{quantity}{joint}{f' of {self.component}' if self.component else ''}"

    @property
    def direction(self) -> str:
        """Deviation as text, such as "intervals too narrow"; "biased" without a direction for a joint measure."""
        too_large = self.signed_distance > 0.0
        if self.of_levels:
            stated = f"intervals too {'narrow' if too_large else 'wide'}"
        else:
            stated = "biased" + (f" {'down' if too_large else 'up'}" if self.measure == "pit" else "")
        return f"{stated}{f' for {self.component}' if self.component else ''}"


@dataclass(frozen=True)
class Uniformity:
    """Tests of one method with their p-values, which are adjusted for `n_family` tests."""

    tests: Sequence[UniformityTest]
    adjusted: Sequence[float]
    n_family: int

    @property
    def verdict(self) -> str:
        """Verdict on the calibration by at least one test: not calibrated, passed or undecided."""
        if self.rejected:
            return NOT_CALIBRATED
        return PASSED if self.detectable <= LARGE_DEVIATION else UNDECIDED

    @property
    def detectable(self) -> float:
        """Smallest deviation that each of the tests detects; see `detectable_deviation`."""
        return detectable_deviation(min(test.n for test in self.tests), self.n_family)

    @cached_property
    def by_cell(self) -> dict[str, "Uniformity"]:
        """Tests of each single cell, by its label."""
        cells = dict.fromkeys(test.cell for test in self.tests if not test.is_pooled)
        return {cell: self.in_cell(cell) for cell in cells}

    @property
    def rejected(self) -> list[UniformityTest]:
        """Rejected tests, the smallest p-value first."""
        pairs = sorted(zip(self.adjusted, self.tests, strict=True), key=lambda pair: pair[1].p_value)
        return [test for adjusted, test in pairs if adjusted < LEVEL]

    def of_panel(self, study: str, panel: str) -> "Uniformity":
        """Return the tests of one panel; their p-values remain adjusted for all tests."""
        return self._where(lambda test: (test.study, test.panel) == (study, panel))

    def of_study(self, study: str) -> "Uniformity":
        """Return the tests of one study; their p-values remain adjusted for all tests."""
        return self._where(lambda test: test.study == study)

    def in_cell(self, cell: str) -> "Uniformity":
        """Return the tests of the cells with a label, or of `ALL_CELLS` together."""
        return self._where(lambda test: test.cell == cell)

    def _where(self, is_kept: Callable[[UniformityTest], bool]) -> "Uniformity":
        pairs = [pair for pair in zip(self.tests, self.adjusted, strict=True) if is_kept(pair[0])]
        return Uniformity([test for test, _ in pairs], [adjusted for _, adjusted in pairs], self.n_family)


def judge_tests(tests: Sequence[UniformityTest]) -> Uniformity:
    """Return tests with p-values that are adjusted by Holm's method."""
    return Uniformity(tests, adjust([test.p_value for test in tests]), len(tests))


def adjust(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method for all of them.

    >>> adjust([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order, adjusted, largest = np.argsort(p_values, kind="stable"), [0.0] * len(p_values), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[k]))
        adjusted[k] = largest
    return adjusted


def run_tests(panel: ComparedPanel, method: str) -> list[UniformityTest]:
    """Return the tests of a method in the cells of a panel in which the quantiles of an exact posterior are uniform."""
    from scipy.stats import kstwo  # slow import

    summary, cells = panel.summaries[method], [*panel.labels, ALL_CELLS]
    return [
        UniformityTest(
            panel.study,
            panel.panel.name,
            cells[k],
            ", ".join(format_values(values)),
            measure,
            bool(of_levels),
            distance,
            n,
            float(kstwo.sf(abs(distance), n)),
        )
        for measure in panel.uniform
        for component, values in enumerate(panel.components(measure))
        for k in np.flatnonzero(summary.n_values[measure][:, component])
        for n in [int(summary.n_values[measure][k, component])]
        for of_levels, distance in enumerate(summary.distances[measure][k, component].tolist())
    ]


def count_tests(panel: ComparedPanel, is_supported: NDArray[np.bool_]) -> int:
    """Return the number of `run_tests` of a method without failures, given data that it supports in a panel.

    It is an upper bound for a method that does not have all measures of quantiles. The mask has one entry per
    combination of values of the factors of data.
    """
    n_tests = 0
    for measure in panel.uniform:
        is_exact = panel.is_exact(measure)
        is_tested = is_exact & np.repeat(is_supported, len(is_exact) // len(is_supported))[:, None]
        n_cells = is_tested.sum(axis=0)
        n_tests += 2 * int(n_cells.sum() + (n_cells > 1).sum())
    return n_tests


@cache
def detectable_deviation(n: int, n_tests: int) -> float:
    """Return the deviation of a distribution function that one of `n_tests` tests of n quantiles detects.

    A test with a smaller level than that of Holm's method rejects with probability 0.9 or more: at the point of the
    deviation, the standard deviation of the empirical distribution function is at most 1/(2√n).
    """
    from scipy.stats import kstwo  # slow import

    return min(1.0, float(kstwo.isf(LEVEL / n_tests, n)) + _POWER_QUANTILE / (2.0 * sqrt(n)))


def trials_to_detect(deviation: float, n_tests: int) -> int:
    """Return the number of quantiles from which `detectable_deviation` is at most `deviation`, asymptotically.

    >>> trials_to_detect(0.15, 10), round(detectable_deviation(366, 10), 3)
    (366, 0.149)
    """
    return int(np.ceil(((sqrt(log(2.0 * n_tests / LEVEL) / 2.0) + _POWER_QUANTILE / 2.0) / deviation) ** 2))
