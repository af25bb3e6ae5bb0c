"""Messages of all parts of a table, improved until the bound of their error is small."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mechanisms.core.arguments import Floats, Integers
from mechanisms.tables.forest import Forest, select
from mechanisms.tables.formats import FAR, LARGEST
from mechanisms.tables.messages import CUT, Message, Messages, Plan, VanishedError, Windows, add_windows
from mechanisms.tables.priors import Weights
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


class Start(NamedTuple):
    """Tilts of a table, and where the windows of its leaves are."""

    tilt: Floats
    near: Floats


class Solution:
    """Messages and marginals of a table; those of its parts are computed again for draws and shares.

    Each option has weights of the leaves, and a plan. With several options, those of different parts are independent:
    the messages of the root of a part are mixed by their probabilities before the measurements. A new solution has the
    messages from below; `descend` computes those from above, and the marginals.
    """

    start: Start  # for the search for tilts and windows of similar tables

    def __init__(
        self, table: Table, options: list[tuple[Weights, Plan]], is_direct: bool, cut: float = CUT
    ) -> None:  # fmt: skip
        self.table, self.options, self.is_direct, self.cut = table, options, is_direct, cut
        roots = np.array([root for root, _ in table.parts], np.int64)
        inside = np.concatenate([np.zeros(0, np.int64), *(nodes for _, nodes in table.parts)])
        is_above = np.ones(table.forest.above.size, bool)
        is_above[inside], is_above[roots] = False, True
        self.nodes = np.flatnonzero(is_above)  # above all parts, with their roots
        self.mixed: list[tuple[Floats, list[Message]]] = []  # shares and messages of the roots
        self.loaded: dict[tuple[int, int], Messages] = {}
        given: dict[int, Message] = {}
        for k, (root, nodes) in enumerate(table.parts):
            at = int(np.searchsorted(nodes, root))
            found = [self.load(k, j, keep=len(options) == 1).message(at) for j in range(len(options))]
            log_sum = np.array([one.log_sum for one in found])
            share = np.exp(log_sum - log_sum.max()) * (1.0 if table.before is None else table.before[k])
            self.mixed.append((share / share.sum(), found))
            given[int(np.searchsorted(self.nodes, root))] = _mix(*self.mixed[-1], log_sum.max() + np.log(share.sum()))
        self.top = self._messages(self.nodes, 0, given)
        self.log_weight = float(self.top.log_sum[self.top.forest.levels[0]].sum())

    def _messages(self, nodes: Integers, option: int, given: dict[int, Message]) -> Messages:
        table, (weights, plan) = self.table, self.options[option]
        return Messages(table.forest.part(nodes), select(table.factors, nodes), select(weights, nodes),
                        select(plan, nodes), self.is_direct, given, self.cut)  # fmt: skip

    def load(self, part: int, option: int, keep: bool = False) -> Messages:
        """Return the messages of a part; those of others are forgotten, or kept for the way down."""
        if (part, option) not in self.loaded:
            if not keep:
                self.loaded.clear()
            self.loaded[part, option] = self._messages(self.table.parts[part][1], option, {})
        return self.loaded[part, option]

    def descend(self, largest: float = np.inf) -> None:
        """Compute marginals and the bounds of the error; raise VanishedError if these exceed `largest`."""
        top, m = self.top, self.table.total.size
        roots = np.array([root for root, _ in self.table.parts], np.int64)
        top.descend(largest=largest)
        self.omitted, self.rounding = top.omitted, top.rounding
        above = [top.out[top.offset[at] :][: top.size[at]].copy() for at in np.searchsorted(self.nodes, roots)]
        top.multiply()
        self.marginal = top.marginal
        if not roots.size:
            return
        pick = np.flatnonzero(~np.isin(self.nodes[: top.forest.m], roots))
        start, offset, size, values = top.marginal
        terms = [(1.0, self.nodes[pick], Windows(start[pick], offset[pick], size[pick], values))]
        for k, (root, nodes) in enumerate(self.table.parts):
            at, (share, options) = int(np.searchsorted(self.nodes, root)), self.mixed[k]
            outs = [_on_window(one, int(top.start[at]), above[k]) for one in options]
            weights = share * [one.values @ out for one, out in zip(options, outs, strict=True)]
            for j, weight in enumerate(weights / weights.sum()):
                if weight == 0.0:
                    continue
                part = self.load(k, j)
                del self.loaded[k, j]
                part.descend(outs[j], float(top.highest[at]))
                part.multiply()
                terms.append((weight, nodes[: part.forest.m], part.marginal))
                self.omitted += weight * part.omitted
                self.rounding += weight * part.rounding
        self.marginal = add_windows(m, terms)

    @property
    def error(self) -> float:
        """Bound of the total variation distance between any marginal and the exact one."""
        return self.omitted + self.rounding

    def draw(self, rng: np.random.Generator, size: int) -> Integers:
        """Return joint draws of the counts of all nodes of the table, from the roots down, shape (size, m)."""
        found, roots = np.empty((self.table.forest.above.size, size), np.int64), self.table.forest.levels[0]
        for i in roots:
            cumulative = np.cumsum(self.marginal.of(i))
            drawn = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
            found[i] = self.marginal.start[i] + np.minimum(drawn, cumulative.size - 1)
        found[self.nodes] = self.top.draw(rng, found[self.nodes])
        for k, (root, nodes) in enumerate(self.table.parts):
            share, options = self.mixed[k]
            p = np.zeros((len(options), size))
            for j, one in enumerate(options):
                at = found[root] - one.start
                is_known = (at >= 0) & (at < one.values.size)
                p[j, is_known] = share[j] * one.values[at[is_known]]
            chosen = (np.cumsum(p, axis=0) < rng.random(size) * p.sum(axis=0)).sum(axis=0)
            for j in np.unique(chosen):
                columns = np.ix_(nodes, np.flatnonzero(chosen == j))
                found[columns] = self.load(k, int(j)).draw(rng, found[columns])
        return np.ascontiguousarray(found[: self.table.total.size].T)

    def splits(self, node: int) -> list[tuple[int, int, Floats]]:
        """Return the children of a node of the table, their first counts s, and Pr[child = s | node = t], shape (t, s).

        Given the count of the node, the counts of the two children of each binary node follow.
        """
        found, stack = [], [(node, np.eye(self.marginal.size[node]))]
        while stack:
            i, joint = stack.pop()
            messages, nodes = self._above(i)
            at = int(np.searchsorted(nodes, i))
            left, right = messages.forest.left[at], messages.forest.right[at]
            for child, sibling in ((left, right), (right, left))[: 1 + (right >= 0)]:
                both = joint @ messages.split(at, child, sibling)
                if nodes[child] >= self.table.total.size:
                    stack.append((int(nodes[child]), both))
                else:
                    found.append((int(nodes[child]), int(messages.start[child]), both))
        return sorted(found, key=lambda one: one[0])

    def _above(self, node: int) -> tuple[Messages, Integers]:
        """Return the messages of a node and its children, and all nodes that have such messages."""
        for k, (_, nodes) in enumerate(self.table.parts):
            if node in nodes:
                if len(self.options) > 1:
                    raise ValueError("shares below the groups of a fitted prior have no closed form; use evaluate")
                return self.load(k, 0), nodes
        return self.top, self.nodes


def _on_window(one: Message, start: int, values: Floats) -> Floats:
    """Return the values, which begin at the count `start`, on the window of a message, with zeros elsewhere."""
    found, shift = np.zeros(one.values.size), start - one.start
    low, high = max(shift, 0), min(shift + values.size, found.size)
    found[low : max(high, low)] = values[low - shift : max(high, low) - shift]
    return found


def _mix(share: Floats, options: list[Message], log_sum: float) -> Message:
    """Return the mixture of messages with the log of its sum."""
    start = min(one.start for one in options)
    values = np.zeros(max(one.start + one.values.size for one in options) - start)
    for weight, one in zip(share, options, strict=True):
        values[one.start - start :][: one.values.size] += weight * one.values
    lost, rounded = share @ [(one.lost, one.rounded) for one in options]
    return Message(start, values, log_sum, lost, rounded)


class _Attempt(NamedTuple):
    """Options of an attempt, and the bounds of its error."""

    options: list[tuple[Weights, Plan]]
    is_direct: bool
    omitted: float
    rounding: float

    @property
    def error(self) -> float:
        return self.omitted + self.rounding


def solve(
    table: Table, start: Start | None = None, tolerance: float = 0.0, has_spikes: bool = False
) -> Solution:  # fmt: skip
    """Return the solution of a table, after attempts to make the bound of its error small, or at most `tolerance`.

    If the first attempt is useless, tilts are searched with spikes at 0, see `Leaves`. From the best attempt, the tilts
    are centred on its posterior as long as that halves a large bound. Then the same tilts are used with sums of
    products, which cut no tails, and then with windows that extend further and leaves whose weights fall at their ends.
    """
    forest, factors = table.forest, table.factors
    cap, leaves, limit, tilt = _search(table, start, has_spikes)
    centred = tilt
    first, is_direct, has_direct = Start(tilt, leaves[len(leaves) // 2].near), False, False
    best = _Attempt([], False, np.inf, np.inf)
    found: Solution | None = None
    m = table.total.size
    small = max(_OMITTED[0] + _OMITTED[1] * m, min(_OMITTED_LARGE[0] * m**2, _OMITTED_LARGE[1]))
    hard = np.min([np.where(most < FAR, most, np.inf) for most in (factors.most, table.weights.upper)], axis=0)
    for _ in range(_ATTEMPTS):
        options = [(weights, _plan(forest, one, np.minimum(cap, LARGEST), tilt))
                   for weights, one in zip(table.options, leaves, strict=True)]  # fmt: skip
        width = _widths(forest, options)
        if best.error <= _LARGEST and _memory(table, width) > MEMORY:
            break
        _refuse_memory(table, width)
        products = float(0.5 * (forest.add_up(width)[forest.levels[0]] ** 2).sum())
        is_direct = is_direct and products <= _DIRECT_PRODUCTS[0]
        found = None  # a large table has memory for the arrays of one attempt
        can_have_spikes = not has_spikes and any(((one.r > 0) & (one.r < 1)).any() for one in table.options)
        found, before = _attempt(table, options, is_direct, _HOPELESS if can_have_spikes else np.inf), best.error
        is_better = found is not None and found.error <= before
        if found is not None and is_better:
            best, centred = _Attempt(options, is_direct, found.omitted, found.rounding), tilt
        is_short = products <= _DIRECT_PRODUCTS[int(best.error <= _LARGEST)]
        if is_better or not best.options:
            has_direct = is_short and not is_direct
        if best.error <= tolerance:
            break
        if best.error > _LARGEST and can_have_spikes:
            has_spikes = True
            cap, leaves, limit, tilt = _search(table, None, has_spikes)
            centred, first = tilt, Start(tilt, leaves[len(leaves) // 2].near)
            continue
        is_accurate = best.omitted <= (_POOR if best.is_direct else small)
        if best.error <= _LARGEST and is_accurate and (best.rounding <= _ROUNDING or not has_direct):
            break
        is_far = best.omitted > _LARGEST or not is_short
        if found is not None and is_better and is_far and not found.error > 0.5 * before:
            tilt, is_direct = _recentre(table, tilt, found, limit), False
        elif has_direct:
            tilt, is_direct, has_direct = centred, True, False
        elif best.error <= _LARGEST and not is_short:
            break
        else:
            cap, is_direct = np.minimum(4.0 * cap, hard), False
            for one in leaves:
                one.extend(cap)
            limit = np.min([largest_tilts(forest, one, DEPTH) for one in leaves], axis=0)
            tilt = np.minimum(centred, limit)
    if best.error > max(_LARGEST, tolerance):
        raise ValueError(
            f"the measurements must be possible together, got a table of {len(forest.levels)} levels that contradict "
            "each other beyond double precision; check the values and scales of the noise, and use fewer levels if "
            "there are more than 200"
        )
    if found is None or found.options is not best.options:
        found = _attempt(table, best.options, best.is_direct)
    assert found is not None
    found.start = first
    return found


def log_evidence(table: Table, start: Start | None = None, is_bounded: bool = True) -> tuple[float, Start]:
    """Return ln p(y) up to a constant of the table, and the start for a similar table.

    If `is_bounded`, its error is at most `_ERROR`. Otherwise only messages from below are computed, in less than half
    of the time: tilts with spikes centre the messages, of which a share of about 1e-12 per node is omitted, but only
    messages from above bound the error. If no table then has a weight above the smallest number, `solve` follows.
    """
    if not is_bounded:
        cap, leaves, _, tilt = _search(table, start, has_spikes=True)
        options = [(weights, _plan(table.forest, one, np.minimum(cap, LARGEST), tilt, _EVIDENCE[0]))
                   for weights, one in zip(table.options, leaves, strict=True)]  # fmt: skip
        _refuse_memory(table, _widths(table.forest, options))
        try:
            with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
                found = Solution(table, options, False, _EVIDENCE[1])
            return found.log_weight, Start(tilt, leaves[len(leaves) // 2].near)
        except VanishedError:
            pass
    solution = solve(table, start, _ERROR, has_spikes=True)
    return solution.log_weight, solution.start


def _search(table: Table, start: Start | None, has_spikes: bool = False) -> tuple[Floats, list[Leaves], Floats, Floats]:
    """Return largest counts of all nodes, leaves of each option, and limits of the tilts and the tilts."""
    forest, factors = table.forest, table.factors
    cap = np.max([caps(forest, factors, weights) for weights in table.options], axis=0)
    leaves = [Leaves(forest, factors, weights, cap, has_spikes) for weights in table.options]
    middle = leaves[len(leaves) // 2]
    if start is not None:
        middle.near = start.near
    limit = np.min([largest_tilts(forest, one) for one in leaves], axis=0)
    limit -= 0.25 * np.abs(limit) * (len(leaves) > 1)
    return cap, leaves, limit, solve_tilts(forest, factors, middle, limit, None if start is None else start.tilt)


def _plan(forest: Forest, leaves: Leaves, cap: Floats, tilt: Floats, depth: float = DEPTH) -> Plan:
    """Return tilts and windows."""
    outer = forest.from_above(tilt, 0.0)
    begin, end = leaves.windows(outer[leaves.nodes], depth)
    first, last = np.zeros((2, tilt.size), np.int64)
    first[leaves.nodes], last[leaves.nodes] = begin, end
    return Plan(outer, tilt, cap, first, last)


def _attempt(
    table: Table, options: list[tuple[Weights, Plan]], is_direct: bool, largest: float = np.inf
) -> Solution | None:
    """Return the solution; None if no table has a weight above the smallest number, or the error may be `largest`."""
    try:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
            found = Solution(table, options, is_direct)
            found.descend(largest)
    except VanishedError:
        return None
    except MemoryError:
        raise ValueError(
            "the table must fit in memory, got messages that do not; split it, or choose a prior with less range"
        ) from None
    found.omitted, found.rounding = (np.inf if np.isnan(one) else one for one in (found.omitted, found.rounding))
    return found


def _recentre(table: Table, tilt: Floats, found: Solution, limit: Floats) -> Floats:
    """Return tilts that solve the stationary equations with the posterior means of the slopes of log likelihoods.

    Those below nodes with limits, which have no slopes, stay.
    """
    forest, factors, m = table.forest, table.factors, table.total.size
    measured = np.flatnonzero((factors.kind[:m] >= 0) & (forest.left[:m] >= 0))
    slope, new = np.zeros((2, tilt.size))
    slope[measured] = found.marginal.average(measured, factors.slope)
    for nodes in forest.levels:
        one = forest.inner(nodes)
        centred = np.where(factors.is_limited[one], tilt[one], forest.from_above(new, 0.0, one) + slope[one])
        new[one] = np.minimum(centred, tilt[one] + 0.9375 * (limit[one] - tilt[one]))
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
    whole = float(width.sum())
    largest = max([whole - sum(inside), *inside])
    return 8.0 * (2.5 * largest * min(4.0, 1.0 + 0.5 * len(table.forest.levels)) + (3.0 * whole if inside else 0.0))
