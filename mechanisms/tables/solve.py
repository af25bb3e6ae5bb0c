"""Attempts to solve a table: tilts and windows are improved until the bound of the error is small."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mechanisms.core.arguments import Floats, Integers
from mechanisms.tables.forest import Forest
from mechanisms.tables.likelihoods import FAR, LARGEST
from mechanisms.tables.messages import Plan, VanishedError
from mechanisms.tables.priors import Weights
from mechanisms.tables.solution import Solution, Start
from mechanisms.tables.tilts import DEPTH, Leaves, caps, largest_tilts, solve_tilts
from mechanisms.tables.tree import Table

MEMORY = 8e9
"""Largest forecast of memory in bytes; a table that needs more is refused."""

_OMITTED = 5e-13, 1e-16  # bound of the omitted mass, and more per node, beyond which tilts and windows are improved
_OMITTED_LARGE = 1e-17, 1e-7  # the same times the squared number of nodes, and its maximum: attempts take minutes, and
# cuts of Fourier transforms, which later attempts do not avoid, are most of the bound
_POOR = 2e-9  # bound of the omitted mass with which sums of products end the attempts
_ROUNDING = 1e-10  # bound of the rounding errors beyond which no Fourier transforms are used
_LARGEST = 1e-6  # bound of the error beyond which there is no result
_HOPELESS = 1.0  # bound of the error beyond which an attempt ends early if tilts with spikes follow
_ATTEMPTS = 8
_ERROR = 1e-4  # largest bound of the error of an evidence
_EVIDENCE = 28.0, 1e-12  # depth of the windows of leaves and largest omitted share of evidences without bounds
_DIRECT_PRODUCTS = 3e10, 3e9  # largest number of products of an attempt without Fourier transforms, and if there is
# a result


def solve(
    table: Table, start: Start | None = None, tolerance: float = 0.0, has_spikes: bool = False
) -> Solution:  # fmt: skip
    """Return the solution of a table, after attempts to make the bound of its error small, or at most `tolerance`.

    The tilts of `start`, a similar table, can be too far away, and moments with spikes too uneven, for any result. Then
    a search without them follows.
    """
    searches: list[tuple[Start | None, bool]] = [(start, has_spikes)]
    if start is not None:
        searches.append((None, has_spikes))
    if has_spikes:
        searches.append((None, False))
    for start_of_search, with_spikes in searches:
        attempts = _Attempts(table, start_of_search, with_spikes)
        attempts.run_all(tolerance)
        if attempts.has_result_within(tolerance):
            break
    return attempts.best_solution(tolerance)


class _Bounds(NamedTuple):
    """Options of an attempt, and the bounds of its error."""

    options: list[tuple[Weights, Plan]]
    is_direct: bool
    omitted: float
    rounding: float

    @property
    def error(self) -> float:
        return self.omitted + self.rounding


class _Attempts:
    """Attempts to solve a table: what the next one uses, and the best so far."""

    def __init__(self, table: Table, start: Start | None, has_spikes: bool) -> None:
        self.table = table
        self.solution: Solution | None = None  # of the last attempt; a large table has memory for one
        self.best = _Bounds([], False, np.inf, np.inf)
        self.has_untried_sums = False  # of products at the tilts of the best attempt, without Fourier transforms
        self.has_few_products = False  # so that sums take an acceptable time
        self.has_halved_error = False  # in the last attempt, which was better than those before
        nodes = table.total.size
        self.small = max(_OMITTED[0] + _OMITTED[1] * nodes, min(_OMITTED_LARGE[0] * nodes**2, _OMITTED_LARGE[1]))
        self._search(start, has_spikes)

    def _search(self, start: Start | None, has_spikes: bool) -> None:
        """Search tilts for the next attempt, with spikes of the weights at 0 or without, see `Leaves`."""
        self.cap, self.leaves, self.limit, self.tilt = _search_tilts(self.table, start, has_spikes)
        self.best_tilt, self.is_direct = self.tilt, False
        self.start = Start(self.tilt, self.leaves[len(self.leaves) // 2].near)
        self.can_have_spikes = not has_spikes and any(
            ((weights.r > 0) & (weights.r < 1)).any() for weights in self.table.options
        )

    def run_all(self, tolerance: float) -> None:
        """Run attempts; after each, the first change whose condition holds prepares the next one."""
        for _ in range(_ATTEMPTS):
            if not self.run() or self.best.error <= tolerance:
                break
            if not self.has_result and self.can_have_spikes:
                self.search_with_spikes()
            elif self.is_accurate:
                break
            elif self.has_halved_error and self.is_far:
                self.recentre()
            elif self.has_untried_sums:
                self.use_sums()
            elif self.has_result and not self.has_few_products:
                break
            else:
                self.extend_windows()

    @property
    def has_result(self) -> bool:
        """True if the best attempt is accurate enough to be returned."""
        return self.has_result_within(0.0)

    def has_result_within(self, tolerance: float) -> bool:
        """Return True if the best attempt is accurate enough to be returned, or its error at most `tolerance`."""
        return self.best.error <= max(_LARGEST, tolerance)

    @property
    def is_accurate(self) -> bool:
        """True if the best attempt needs no improvement, or only one of its rounding errors that is not possible."""
        is_small = self.best.omitted <= (_POOR if self.best.is_direct else self.small)
        return self.has_result and is_small and (self.best.rounding <= _ROUNDING or not self.has_untried_sums)

    @property
    def is_far(self) -> bool:
        """True if windows cut too much for a result, or sums, which cut no tails, take too long."""
        return self.best.omitted > _LARGEST or not self.has_few_products

    def run(self) -> bool:
        """Solve the table; return False, without an attempt, if there is a result and the memory is too small."""
        forest = self.table.forest
        options = _plans(self.table, self.leaves, self.cap, self.tilt)
        width = _widths(forest, options)
        if self.has_result and _memory(self.table, width) > MEMORY:
            return False
        _refuse_memory(self.table, width)
        products = float(0.5 * (forest.add_up(width)[forest.levels[0]] ** 2).sum())
        self.is_direct = self.is_direct and products <= _DIRECT_PRODUCTS[0]
        before = self.best.error
        self.solution = None
        self.solution = _solve_with(self.table, options, self.is_direct, _HOPELESS if self.can_have_spikes else np.inf)
        is_better = self.solution is not None and self.solution.error <= before
        if self.solution is not None and is_better:
            self.best = _Bounds(options, self.is_direct, self.solution.omitted, self.solution.rounding)
            self.best_tilt = self.tilt
        self.has_halved_error = is_better and not self.best.error > 0.5 * before
        self.has_few_products = products <= _DIRECT_PRODUCTS[int(self.has_result)]
        if is_better or not self.best.options:
            self.has_untried_sums = self.has_few_products and not self.is_direct
        return True

    def search_with_spikes(self) -> None:
        """Search the tilts of the next attempt anew, with spikes."""
        self._search(None, has_spikes=True)

    def recentre(self) -> None:
        """Centre the tilts on the posterior of the last attempt."""
        assert self.solution is not None
        self.tilt, self.is_direct = _recentre(self.table, self.tilt, self.solution, self.limit), False

    def use_sums(self) -> None:
        """Use the tilts of the best attempt with sums of products, which cut no tails."""
        self.tilt, self.is_direct, self.has_untried_sums = self.best_tilt, True, False

    def extend_windows(self) -> None:
        """Extend the windows, and let the weights of leaves fall at their ends."""
        hard = np.min([np.where(most < FAR, most, np.inf)
                       for most in (self.table.factors.most, self.table.weights.upper)], axis=0)  # fmt: skip
        self.cap, self.is_direct = np.minimum(4.0 * self.cap, hard), False
        for leaves in self.leaves:
            leaves.extend(self.cap)
        self.limit = np.min([largest_tilts(self.table.forest, leaves, DEPTH) for leaves in self.leaves], axis=0)
        self.tilt = np.minimum(self.best_tilt, self.limit)

    def best_solution(self, tolerance: float) -> Solution:
        """Return the solution of the best attempt; raise ValueError if its error is too large."""
        if not self.has_result_within(tolerance):
            raise ValueError(
                f"the measurements must be possible together, got a table of {len(self.table.forest.levels)} levels "
                "that contradict each other beyond double precision; check the values and scales of the noise, and "
                "use fewer levels if there are more than 200"
            )
        if self.solution is None or self.solution.options is not self.best.options:
            self.solution = _solve_with(self.table, self.best.options, self.best.is_direct)
        assert self.solution is not None
        self.solution.start = self.start
        return self.solution


def log_evidence(table: Table, start: Start | None = None, is_bounded: bool = True) -> tuple[float, Start]:
    """Return ln p(y) up to a constant of the table, and the start for a similar table.

    If `is_bounded`, its error is at most `_ERROR`. Otherwise only messages from below are computed, in less than half
    of the time: tilts with spikes centre the messages, of which a share of about 1e-12 per node is omitted, but only
    messages from above bound the error. If no table then has a weight above the smallest number, `solve` follows.
    """
    if not is_bounded:
        cap, leaves, _, tilt = _search_tilts(table, start, has_spikes=True)
        options = _plans(table, leaves, cap, tilt, _EVIDENCE[0])
        _refuse_memory(table, _widths(table.forest, options))
        try:
            with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
                upwards = Solution(table, options, False, _EVIDENCE[1])
            return upwards.log_weight, Start(tilt, leaves[len(leaves) // 2].near)
        except VanishedError:
            pass
    solution = solve(table, start, _ERROR, has_spikes=True)
    return solution.log_weight, solution.start


def _search_tilts(
    table: Table, start: Start | None, has_spikes: bool
) -> tuple[Floats, list[Leaves], Floats, Floats]:  # fmt: skip
    """Return largest counts of all nodes, leaves of each option, and limits of the tilts and the tilts."""
    forest, factors = table.forest, table.factors
    cap = np.max([caps(forest, factors, weights) for weights in table.options], axis=0)
    leaves = [Leaves(forest, factors, weights, cap, has_spikes) for weights in table.options]
    middle = leaves[len(leaves) // 2]
    if start is not None:
        middle.near = start.near
    limit = np.min([largest_tilts(forest, leaves_of_option) for leaves_of_option in leaves], axis=0)
    limit -= 0.25 * np.abs(limit) * (len(leaves) > 1)
    return cap, leaves, limit, solve_tilts(forest, factors, middle, limit, None if start is None else start.tilt)


def _plans(
    table: Table, leaves: list[Leaves], cap: Floats, tilt: Floats, depth: float = DEPTH
) -> list[tuple[Weights, Plan]]:  # fmt: skip
    """Return the weights of each option with its tilts and windows."""
    cap = np.minimum(cap, LARGEST)
    return [(weights, _plan(table.forest, leaves_of_option, cap, tilt, depth))
            for weights, leaves_of_option in zip(table.options, leaves, strict=True)]  # fmt: skip


def _plan(forest: Forest, leaves: Leaves, cap: Floats, tilt: Floats, depth: float) -> Plan:
    """Return tilts and windows."""
    outer = forest.from_above(tilt, 0.0)
    begin, end = leaves.windows(outer[leaves.nodes], depth)
    first, last = np.zeros((2, tilt.size), np.int64)
    first[leaves.nodes], last[leaves.nodes] = begin, end
    return Plan(outer, tilt, cap, first, last)


def _solve_with(
    table: Table, options: list[tuple[Weights, Plan]], is_direct: bool, largest: float = np.inf
) -> Solution | None:
    """Return the solution; None if no table has a weight above the smallest number, or the error may be `largest`."""
    try:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
            solution = Solution(table, options, is_direct)
            solution.descend(largest)
    except VanishedError:
        return None
    except MemoryError:
        raise ValueError(
            "the table must fit in memory, got messages that do not; split it, or choose a prior with less range"
        ) from None
    solution.omitted = np.inf if np.isnan(solution.omitted) else solution.omitted
    solution.rounding = np.inf if np.isnan(solution.rounding) else solution.rounding
    return solution


def _recentre(table: Table, tilt: Floats, solution: Solution, limit: Floats) -> Floats:
    """Return tilts that solve the stationary equations with the posterior means of the slopes of log likelihoods.

    Those below nodes with limits, which have no slopes, stay.
    """
    forest, factors, m = table.forest, table.factors, table.total.size
    measured = np.flatnonzero((factors.kind[:m] >= 0) & (forest.left[:m] >= 0))
    slope, new = np.zeros((2, tilt.size))
    slope[measured] = solution.marginal.average(measured, factors.slope)
    for nodes in forest.levels:
        inner = forest.inner(nodes)
        centred = np.where(factors.is_limited[inner], tilt[inner], forest.from_above(new, 0.0, inner) + slope[inner])
        new[inner] = np.minimum(centred, tilt[inner] + 0.9375 * (limit[inner] - tilt[inner]))
    return new


def _widths(forest: Forest, options: list[tuple[Weights, Plan]]) -> Integers:
    """Return the largest number of counts in the window of each leaf, and 0 for other nodes."""
    return np.where(forest.left < 0, np.max([plan.last - plan.first + 1 for _, plan in options], axis=0), 0)


def _refuse_memory(table: Table, width: Integers) -> None:
    """Raise ValueError for a table that needs more memory than `MEMORY`."""
    if (need := _memory(table, width)) > MEMORY:
        raise ValueError(
            f"the table must fit in {MEMORY / 1e9:g} GB of memory, got a forecast of {need / 1e9:.3g} GB; "
            "split it, or choose a prior with a smaller range"
        )


def _memory(table: Table, width: Integers) -> float:
    """Return a forecast of the memory of the marginals and the messages of the largest part, in bytes."""
    inside = [float(width[nodes].sum()) for _, nodes in table.parts]
    width_of_table = float(width.sum())
    largest = max([width_of_table - sum(inside), *inside])
    levels = min(4.0, 1.0 + 0.5 * len(table.forest.levels))
    return 8.0 * (2.5 * largest * levels + (3.0 * width_of_table if inside else 0.0))
