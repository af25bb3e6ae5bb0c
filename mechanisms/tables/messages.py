"""Messages of a forest of counts: the sum–product algorithm on a binary forest.

The message f of a node is the weight of its count t, given the measurements at it and below it: w(t)·g(y − t) at a
leaf, and the convolution of the children's messages times g(y − t) at an inner node. Messages from above, out, follow
by correlations; the marginal of a node is f·out.

A message is a window of values that sum to 1, the log of their scale, and a tilt (see `tilts`). Windows omit a share
of at most `CUT` at each end. The weights of all tables that use an omitted value d(t) of node v sum to
Σ_t d(t)·out_v(t) ≤ ‖d‖₁·max out_v. The maximum over all counts is at most that at the parent, times the maximum of its
factor, as the sibling's message sums to 1. Divided by the sum Σ_t f_v(t)·out_v(t) of all weights and added over all
nodes, this bounds, up to a factor of 1 + itself, the total variation distance between computed and exact marginals.
If the window of the parent has all possible counts, the sum of its factor times the maximum of the sibling's message is
another bound. Long convolutions are Fourier transforms, whose rounding errors are added to the bound. Short ones are
sums of products, which have a small relative error everywhere.

References
----------
Tarlow, Swersky, Zemel, Adams & Frey, "Fast exact inference for recursive cardinality models", UAI 2012. Serang, "The
probabilistic convolution tree", PLoS ONE 9(3), 2014.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from mechanisms.core.arguments import Floats, Integers
from mechanisms.tables import kernels
from mechanisms.tables.forest import Forest, select
from mechanisms.tables.likelihoods import Factors
from mechanisms.tables.priors import Weights

CUT = 1e-19  # largest share of a message that is omitted at each end
DIRECT = 1 << 17  # largest number of products of a convolution without Fourier transforms
_FOURIER_CUT = 2e-15  # the same for Fourier transforms, whose tails are rounding errors
_ROUNDING = 2e-16  # error of a Fourier convolution relative to the product of the Euclidean norms
_AT_ONCE = 1 << 20  # number of values that are computed at once
_IN_CACHE = 1 << 16  # the same without Fourier transforms, whose last digits depend on the number of rows
_ROOM = 4  # values of all messages for which memory is reserved, per value of the leaves; more are rare
_UNDERFLOW = 1e-290  # share of a message that may be lost by underflow


class Windows(NamedTuple):
    """Functions of counts, one per node, each on a run of counts; `values` has the runs one after the other."""

    start: Integers
    offset: Integers
    size: Integers
    values: Floats

    def of(self, node: int) -> Floats:
        """Return the values of one node."""
        return self.values[self.offset[node] : self.offset[node] + self.size[node]]

    def counts(self, node: int) -> Integers:
        """Return the counts of the values of one node."""
        return self.start[node] + np.arange(self.size[node])

    def moments(self) -> tuple[Floats, Floats]:
        """Return mean and variance of each node, for values that sum to 1."""
        mean, variance = np.empty((2, self.size.size))
        kernels.moments(self, mean, variance)
        return mean, variance

    def average(self, nodes: Integers, function: Callable[[Integers, Floats], Floats]) -> Floats:
        """Return the sums of values times a function of node and count, for some nodes."""
        size = self.size[nodes]
        counts, which = _runs(self.start[nodes], size).astype(np.float64), np.repeat(np.arange(nodes.size), size)
        terms = self.values[_runs(self.offset[nodes], size)] * function(nodes[which], counts)
        return np.bincount(which, terms, nodes.size).astype(np.float64)

    def rows(self, nodes: Integers, n: int) -> Floats:
        """Return the values of some nodes, shape (nodes, n), with zeros at the end."""
        padded, size = np.zeros((nodes.size, n)), self.size[nodes]
        padded.ravel()[_runs(np.arange(nodes.size) * n, size)] = self.values[_runs(self.offset[nodes], size)]
        return padded


def add_windows(m: int, terms: Sequence[tuple[float, Integers, Windows]]) -> Windows:
    """Return the weighted sums of functions of m nodes; each term is a weight, the nodes, and their functions."""
    start, end = np.full(m, np.iinfo(np.int64).max), np.zeros(m, np.int64)
    for _, nodes, term in terms:
        start[nodes] = np.minimum(start[nodes], term.start)
        end[nodes] = np.maximum(end[nodes], term.start + term.size)
    size = end - start
    sums = Windows(start, np.cumsum(size) - size, size, np.zeros(int(size.sum())))
    for weight, nodes, term in terms:
        for at in _pieces(np.arange(nodes.size), term.size):
            to = _runs(sums.offset[nodes[at]] + term.start[at] - start[nodes[at]], term.size[at])
            sums.values[to] += weight * term.values[_runs(term.offset[at], term.size[at])]
    return sums


def _pieces(nodes: Integers, size: Integers, at_once: int = _AT_ONCE) -> list[Integers]:
    """Divide nodes into runs with about `at_once` values."""
    return np.split(nodes, np.flatnonzero(np.diff(np.cumsum(size) // at_once)) + 1) if nodes.size else []


def _runs(first: Integers, size: Integers) -> Integers:
    """Return first, first + 1, …, first + size − 1 of each message, one after the other."""
    ends = np.cumsum(size)
    return np.arange(ends[-1] if size.size else 0) + np.repeat(first - (ends - size), size)


class VanishedError(Exception):
    """No table has a weight above the smallest number."""


class Message(NamedTuple):
    """Message of one node from below, with the errors of it and of all messages that it depends on."""

    start: int
    values: Floats
    log_sum: float
    lost: float
    rounded: float


class Plan(NamedTuple):
    """Tilts of the messages of nodes and of those of their children, largest counts, and ends of windows of leaves."""

    outer: Floats
    inner: Floats
    cap: Floats
    first: Integers
    last: Integers


class Messages:
    """Messages of the nodes of a forest from below, and, after `descend`, from above.

    With `is_direct`, no convolution is a Fourier transform, and windows omit nothing. Leaves may have given messages.
    """

    out: Floats  # messages from above, on the windows of those from below
    highest: Floats  # bound of each message from above
    marginal: Windows
    omitted = 0.0  # bound of the total variation distance of any marginal by omitted mass
    rounding = 0.0  # the same by rounding errors of Fourier transforms

    def __init__(
        self, forest: Forest, factors: Factors, weights: Weights, plan: Plan, is_direct: bool,
        given: Mapping[int, Message], cut: float = CUT,
    ) -> None:  # fmt: skip
        self.forest, self.factors, self.plan, self.is_direct = forest, factors, plan, is_direct
        self.cut = 0.0 if is_direct else cut
        self.start, self.offset, self.size = np.zeros((3, forest.above.size), np.int64)
        self.log_sum, self.lost, self.rounded, self.peak = np.zeros((4, forest.above.size))
        leaves = np.setdiff1d(forest.leaves, list(given), assume_unique=True)
        width = plan.last[leaves] - plan.first[leaves] + 1
        self.values, self.used = np.empty(max(_ROOM * int(width.sum()), 1 << 12)), 0
        for node, known in given.items():
            self._store(np.array([node]), known.values, np.array([known.start]), np.array([known.values.size]), cut=0.0)
            self.log_sum[node], self.lost[node], self.rounded[node] = known.log_sum, known.lost, known.rounded
        for nodes in _pieces(leaves, width, _IN_CACHE):
            self._add_leaves(nodes, weights)
        for nodes in forest.levels[::-1]:
            inner = forest.inner(nodes)
            for piece in _pieces(inner, 2 * self.size[forest.left[inner]], self._at_once(inner)):
                self._combine(piece)

    @property
    def up(self) -> Windows:
        """Messages from below."""
        return Windows(self.start, self.offset, self.size, self.values)

    def message(self, node: int) -> Message:
        """Return the message of one node from below."""
        errors = self.lost[node], self.rounded[node]
        return Message(self.start[node], self.up.of(node).copy(), self.log_sum[node], *errors)

    def _store(
        self, nodes: Integers, values: Floats, low: Integers, width: Integers, cut: Floats | float,
        omitted: Floats | float = 0.0,
    ) -> None:  # fmt: skip
        """Append the windows of messages, of which sums `omitted` are missing."""
        place, need = np.cumsum(width) - width, self.used + int(width.sum())
        if need > self.values.size:
            self.values, old = np.empty(max(2 * self.values.size, need)), self.values
            self.values[: self.used] = old[: self.used]
        skip, size = np.empty((2, nodes.size), np.int64)
        total, dropped = np.empty((2, nodes.size))
        kernels.normalise(values, place, width, np.full(nodes.size, cut), self.values[self.used :],
                          skip, size, total, dropped)  # fmt: skip
        if not np.all((total > 0.0) & np.isfinite(total)):
            raise VanishedError
        offset = self.used + np.cumsum(size) - size
        self.start[nodes], self.offset[nodes], self.size[nodes] = low + skip, offset, size
        self.used += int(size.sum())
        self.peak[nodes] = np.maximum.reduceat(self.values[: self.used], offset)
        self.log_sum[nodes] += np.log(total)
        self.lost[nodes] = dropped + _UNDERFLOW + omitted / total

    def _add_leaves(self, nodes: Integers, weights: Weights) -> None:
        """Compute the messages of leaves in their windows."""
        low, weights, outer = self.plan.first[nodes], select(weights, nodes), self.plan.outer[nodes]
        width = self.plan.last[nodes] - low + 1
        place = np.cumsum(width) - width
        value = np.empty(int(width.sum()))
        kernels.leaf_log_weights(low, width, weights.r, weights.rate + outer, value)
        factors = select(self.factors, nodes)
        if factors.is_gaussian:
            kernels.add_gaussian(low, width, factors.low, factors.scale, factors.gaussian_terms(), value)
        else:
            value += self.factors.log(np.repeat(nodes, width), _runs(low, width))
        top = np.maximum.reduceat(value, place)
        value = np.exp(value - np.repeat(top, width))
        self.log_sum[nodes] = top + weights.log(low) + outer * low
        # geometric bounds of the tails beyond the window
        edge, before = value[place + width - 1], value[place + np.maximum(width - 2, 0)]
        ratio = np.where((width > 1) & (before > 0.0), edge / before, 0.0)
        limit = np.minimum(self.factors.most[nodes], weights.upper)
        tail = np.where(low + width - 1 < limit, edge / np.maximum(1.0 - ratio, 1e-3), 0.0)
        head = np.where(low > self.factors.least[nodes], value[place] * width, 0.0)
        self._store(nodes, value, low, width, self.cut, tail + head)

    def _factor(self, nodes: Integers, low: Integers, width: Integers) -> tuple[Floats, Floats, Floats]:
        """Return factors of nodes relative to their maxima, with the change of tilt, and log maxima.

        The third array bounds the relative factors of all counts: factors are log-concave, so they are at most 1 if the
        maximum is inside the window, and beyond its end at most the line through the last value and the next.
        """
        counts, place = _runs(low, width), np.cumsum(width) - width
        value = self.factors.log(np.repeat(nodes, width), counts)
        change = self.plan.outer[nodes] - self.plan.inner[nodes]
        value += np.repeat(change, width) * (counts - np.repeat(low, width))
        top = np.maximum.reduceat(value, place)
        value -= np.repeat(top, width)
        last, log = low + width - 1, self.factors.log
        fall = log(nodes, low - 1) - log(nodes, low) - change
        rise = log(nodes, last + 1) - log(nodes, last) + change
        reach = np.minimum(self.factors.most[nodes], self.plan.cap[nodes]) - last
        down = np.fmax(fall, 0.0) * (low - self.factors.least[nodes])
        up = np.fmax(rise, 0.0) * np.fmax(reach, 0.0)
        beyond = np.exp(np.fmax(value[place] + down, value[place + width - 1] + up))
        return np.exp(value), top, np.maximum(beyond, 1.0)

    def _with_factor(self, nodes: Integers) -> Integers:
        """Return the positions of the nodes that have a factor, or children with another tilt."""
        return np.flatnonzero((self.factors.kind[nodes] >= 0) | (self.plan.outer[nodes] != self.plan.inner[nodes]))

    def _at_once(self, nodes: Integers) -> int:
        """Return the number of values of nodes to compute at once, smaller if no convolution is a Fourier transform."""
        left_size, right_size = self.size[self.forest.left[nodes]], self.size[self.forest.right[nodes]]
        is_pair = self.forest.right[nodes] >= 0
        return _AT_ONCE if not self.is_direct and np.any(is_pair & (left_size * right_size > DIRECT)) else _IN_CACHE

    def _combine(self, nodes: Integers) -> None:
        """Compute the messages of inner nodes whose children are done."""
        f, left, right = self.up, self.forest.left[nodes], self.forest.right[nodes]
        is_pair = right >= 0
        other = np.where(is_pair, right, left)
        low = f.start[left] + np.where(is_pair, f.start[other], 0)
        high = low + f.size[left] + np.where(is_pair, f.size[other] - 1, 0)
        low, high = np.maximum(low, self.factors.least[nodes]), np.minimum(high, self.factors.most[nodes] + 1)
        width = high - low
        if not np.all(width > 0):
            raise VanishedError
        place, values = np.cumsum(width) - width, np.empty(int(width.sum()))
        is_long = is_pair & (f.size[left] * f.size[other] > DIRECT) & (width > 64) & (not self.is_direct)
        short = np.flatnonzero(~is_long)
        kernels.convolve(f, left[short], f, right[short], 1, low[short], width[short], place[short], values)
        skip = low - f.start[left] - f.start[other]
        for n, at in _by_length(f, left, other, np.flatnonzero(is_long)):
            left_rows, right_rows = f.rows(left[at], n), f.rows(other[at], n)
            transform = fft.rfft(left_rows) * fft.rfft(right_rows)
            values[_runs(place[at], width[at])] = _periodic(transform, n, skip[at], width[at])
            self.rounded[nodes[at]] = _rounding(left_rows, right_rows)
        self.log_sum[nodes] = self.log_sum[left] + np.where(is_pair, self.log_sum[other], 0.0)
        real = self._with_factor(nodes)
        if real.size:
            at = nodes[real]
            factor, top, _ = self._factor(at, low[real], width[real])
            values[_runs(place[real], width[real])] *= factor
            self.log_sum[at] += top + (self.plan.outer[at] - self.plan.inner[at]) * low[real]
        self._store(nodes, values, low, width, np.where(is_long, max(self.cut, _FOURIER_CUT), self.cut))

    def descend(self, above: Floats | None = None, highest: float = 1.0, largest: float = np.inf) -> None:
        """Compute messages from above, given that of the root, or 1, and the bounds of the error.

        Raise VanishedError as soon as the bounds exceed `largest`.
        """
        forest, roots = self.forest, self.forest.levels[0]
        self.out, self.highest = np.empty(self.used), np.full(self.size.size, highest)
        self.omitted = float(self.lost[roots].sum()) if above is None else 0.0
        self.out[_runs(self.offset[roots], self.size[roots])] = 1.0 if above is None else above
        for nodes in forest.levels:
            inner = forest.inner(nodes)
            for piece in _pieces(inner, self.size[inner], self._at_once(inner)):
                self._descend_from(piece)
            if self.omitted + self.rounding > largest:
                raise VanishedError

    def multiply(self) -> None:
        """Compute the marginals, which replace the messages from above."""
        for nodes in _pieces(np.arange(self.forest.m), self.size):
            size = self.size[nodes]
            cell = _runs(self.offset[nodes], size)
            values = self.out[cell] * self.values[cell]
            self.out[cell] = values / np.repeat(np.add.reduceat(values, np.cumsum(size) - size), size)
        m = self.forest.m
        self.marginal = Windows(self.start[:m], self.offset[:m], self.size[:m], self.out)

    def _descend_from(self, nodes: Integers) -> None:
        """Compute the messages from above of the children of nodes, and add to the bounds of the error."""
        f, size = self.up, self.size[nodes]
        u = Windows(self.start[nodes], np.cumsum(size) - size, size, self.out[_runs(self.offset[nodes], size)])
        real, peak = self._with_factor(nodes), np.ones(nodes.size)
        if real.size:
            factor, _, peak[real] = self._factor(nodes[real], u.start[real], size[real])
            u.values[_runs(u.offset[real], size[real])] *= factor
        largest = np.maximum.reduceat(u.values, u.offset)
        u.values[:] /= np.repeat(largest, size)
        left, right = self.forest.left[nodes], self.forest.right[nodes]
        pairs = np.flatnonzero(right >= 0)
        child, sibling = np.concatenate([left, right[pairs]]), np.concatenate([right, left[pairs]])
        which = np.concatenate([np.arange(nodes.size), pairs])
        left_size, right_size = f.size[left], f.size[right]
        products = np.minimum(left_size * right_size, np.minimum(left_size, right_size) * size)
        is_long = (right >= 0) & (products > DIRECT) & (not self.is_direct)
        short = np.flatnonzero(~is_long[which])
        at = child[short]
        kernels.convolve(u, which[short], f, sibling[short], -1, f.start[at], f.size[at], f.offset[at], self.out)
        error = np.zeros(nodes.size)
        for n, at in _by_length(f, left, right, np.flatnonzero(is_long)):
            above = u.rows(at, n)
            transform = fft.rfft(above)
            for a, b in ((left[at], right[at]), (right[at], left[at])):
                row = f.rows(b, n)
                lag = f.start[a] + f.start[b] - u.start[at]  # of the first count of the child
                message = _periodic(transform * fft.rfft(row).conj(), n, lag, f.size[a])
                self.out[_runs(f.offset[a], f.size[a])] = message
                error[at] += _rounding(above, row)
        cell = _runs(f.offset[child], f.size[child])
        total = np.add.reduceat(self.out[cell] * f.values[cell], np.cumsum(f.size[child]) - f.size[child])
        if not np.all(total > 0.0):
            raise VanishedError
        sums = np.add.reduceat(u.values, u.offset)
        is_whole = (self.factors.least[nodes] == u.start) & (self.factors.most[nodes] == u.start + size - 1)
        another = np.where(is_whole[which] & (sibling >= 0), sums[which] * (self.peak + self.lost)[sibling], np.inf)
        self.highest[child] = np.minimum((peak * self.highest[nodes] / largest)[which], another)
        self.omitted += float((self.lost[child] * self.highest[child] / total).sum())
        # rounding of the convolution at the node itself is weighted by everything above it
        self.rounding += float(((error + self.rounded[nodes] * sums) / total[: nodes.size]).sum())

    def split(self, node: int, child: int, sibling: int) -> Floats:
        """Return Pr[child = s | node = t] of shape (t, s), which is proportional to f_child(s)·f_sibling(t − s)."""
        t, s = self.up.counts(node)[:, None], self.up.counts(child)
        if sibling < 0:
            return 1.0 * (t == s)
        at = t - s - self.start[sibling]
        is_known = (at >= 0) & (at < self.size[sibling])
        joint = np.where(is_known, self.up.of(child) * self.up.of(sibling)[np.where(is_known, at, 0)], 0.0)
        total = joint.sum(axis=1, keepdims=True)
        return joint / np.where(total > 0.0, total, 1.0)

    def draw(self, rng: np.random.Generator, counts: Integers) -> Integers:
        """Return draws of the counts of all nodes, shape (nodes, size), in an array with those of the roots."""
        for i in self.forest.inner(self.forest.by_height()):
            a, b = self.forest.left[i], self.forest.right[i]
            if b < 0:
                counts[a] = counts[i]
                continue
            kernels.draw_splits(self.up, a, b, counts[i], rng.random(counts.shape[1]), counts[a])
            counts[b] = counts[i] - counts[a]
        return counts


def _by_length(f: Windows, left: Integers, right: Integers, nodes: Integers) -> Iterator[tuple[int, Integers]]:
    """Return lengths of Fourier transforms, each with the nodes whose children are convolved with it."""
    length = np.exp2(np.ceil(np.log2(f.size[left[nodes]] + f.size[right[nodes]] - 1) * 8.0) / 8.0)
    for longest in np.unique(length):
        n = fft.next_fast_len(math.ceil(longest), real=True)
        for piece in _pieces(at := nodes[length == longest], np.full(at.size, n)):
            yield n, piece


def _periodic(transform: NDArray[np.complex128], n: int, first: Integers, size: Integers) -> Floats:
    """Return values of periodic functions from their transforms, `size` of each from `first`, one after the other."""
    periods = fft.irfft(transform, n)
    at = _runs(first, size) % n + np.repeat(np.arange(size.size) * n, size)
    return np.maximum(periods.ravel()[at], 0.0)


def _rounding(f: Floats, g: Floats) -> Floats:
    """Return the errors of the Fourier convolutions of rows."""
    norm = np.sqrt(np.einsum("ij,ij->i", f, f) * np.einsum("ij,ij->i", g, g))
    return _ROUNDING * norm * np.log2(f.shape[1])
