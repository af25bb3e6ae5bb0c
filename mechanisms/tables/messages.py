"""Messages of a forest of counts: the sum–product algorithm on balanced binary trees.

The message of a node is the weight of its count t, given the measurements at it and below it: w(t)·g(y − t) at a leaf,
and the convolution of the children's messages times g(y − t) at an inner node. Children are combined in pairs, the
pairs in pairs, and so on. Messages from above, out, follow by correlations; the marginal of a node is f·out.

Messages are tilted (see `tilts`), normalised, and restricted to windows that omit a share of at most `CUT` at each end.
The weights of all tables that use an omitted value d(t) of node v sum to Σ_t d(t)·out_v(t) ≤ ‖d‖₁·max out_v. The
maximum over all counts is at most that at the parent, times the maximum of its factor, as the sibling's message sums to
1. Divided by the sum Σ_t f_v(t)·out_v(t) of all weights and added over all nodes, this bounds, up to a factor of 1 +
itself, the total variation distance between computed and exact marginals. Long convolutions are
Fourier transforms, whose rounding errors are added to the bound; short ones are sums of products, which have a small
relative error everywhere.

References
----------
Tarlow, Swersky, Zemel, Adams & Frey, "Fast exact inference for recursive cardinality models", UAI 2012. Serang, "The
probabilistic convolution tree", PLoS ONE 9(3), 2014.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import fft

from mechanisms.arguments import Floats, Integers
from mechanisms.tables import kernels
from mechanisms.tables.forest import Forest
from mechanisms.tables.formats import Factors
from mechanisms.tables.priors import Weights

CUT = 1e-19  # largest share of a message that is omitted at each end
DIRECT = 1 << 17  # largest number of products of a convolution without Fourier transforms
_ROUNDING = 2e-16  # error of a Fourier convolution relative to the product of the Euclidean norms
_FAR = 48.0  # −log of the share that is omitted at each end before a Fourier transform
_UNDERFLOW = 1e-290  # share of a message that may be lost by underflow
_AT_ONCE = 1 << 20  # number of values that are computed at once


@dataclass(frozen=True, eq=False, repr=False)
class Windows:
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

    def at(self, nodes: Integers) -> Windows:
        """Return the functions of some nodes."""
        return Windows(self.start[nodes], self.offset[nodes], self.size[nodes], self.values)

    def moments(self) -> tuple[Floats, Floats]:
        """Return mean and variance of each node for values that sum to 1."""
        mean, variance = np.empty((2, self.start.size))
        kernels.moments(self.values, self.start, self.offset, self.size, mean, variance)
        return mean, variance


def add_windows(m: int, terms: Sequence[tuple[float, Integers, Windows]]) -> Windows:
    """Return the weighted sums of functions of m nodes; each term is a weight, the nodes, and their functions."""
    start, end = np.full(m, np.iinfo(np.int64).max), np.zeros(m, np.int64)
    for _, nodes, term in terms:
        start[nodes] = np.minimum(start[nodes], term.start)
        end[nodes] = np.maximum(end[nodes], term.start + term.size)
    size = end - start
    offset = np.cumsum(size) - size
    values = np.zeros(int(size.sum()))
    for weight, nodes, term in terms:
        for part in _pieces(np.arange(nodes.size), term.size):
            to = _runs(offset[nodes[part]] + term.start[part] - start[nodes[part]], term.size[part])
            values[to] += weight * term.values[_runs(term.offset[part], term.size[part])]
    return Windows(start, offset, size, values)


def _runs(first: Integers, size: Integers) -> Integers:
    """Return first, first + 1, …, first + size − 1 of each message, one after the other."""
    ends = np.cumsum(size)
    found = np.arange(ends[-1] if size.size else 0)
    found += np.repeat(first - (ends - size), size)
    return found


def _pieces(nodes: Integers, size: Integers | Floats) -> Iterator[Integers]:
    """Divide nodes into runs with about `_AT_ONCE` values."""
    piece = np.cumsum(size) // _AT_ONCE
    yield from np.split(nodes, np.flatnonzero(np.diff(piece)) + 1) if nodes.size else ()


class _VanishedError(Exception):
    """No table has a weight above the smallest number."""


class Messages:
    """Messages of all nodes for given tilts and windows of the leaves, and marginals of the nodes of the table.

    Each option has weights of the leaves, and their first and last counts. With several options, those of different
    parts are independent, and equally probable: the messages of the root of a part are mixed.
    """

    marginal: Windows
    log_weight: float  # log of the sum of the weights of all tables
    omitted: float  # bound of the total variation distance of any marginal by omitted mass
    rounding: float  # the same by rounding errors of Fourier transforms
    tilts: tuple[Floats, Floats, Floats]  # of the first attempt

    def __init__(
        self, forest: Forest, factors: Factors, cap: Floats, tilt: Floats,
        options: Sequence[tuple[Weights, Floats, Floats]], is_last: bool,
    ) -> None:  # fmt: skip
        self.forest, self.factors, self.options = forest, factors, options
        self.cut = 0.0 if is_last else CUT
        self.direct: float = np.inf if is_last else DIRECT
        self.ends = np.minimum(cap, 2.0**52)  # counts beyond which the prior or the measurements leave no mass
        self.m, n = forest.parents.size, forest.left.size
        self.start, self.offset, self.size = np.zeros((3, n), np.int64)
        self.log_sum, self.lost, self.rounded = np.zeros((3, n))
        # tilt of the message of each node, and of the messages of its children
        self.outer = np.where(forest.owner >= 0, tilt[np.maximum(forest.owner, 0)], 0.0)
        self.inner = np.append(tilt, self.outer[self.m :])
        self.values, self.used, self.base = np.empty(1 << 12), 0, 0
        self.is_whole = len(forest.part_roots) == len(options) == 1 and not forest.parts[1]
        self.kept: list[tuple[int, int, int, int]] = []  # root of a part, with start, offset and size
        self.mixed: dict[int, tuple[Floats, list[tuple[int, Floats]]]] = {}  # shares and messages of options

    @property
    def error(self) -> float:
        """Bound of the total variation distance between any marginal and the exact one."""
        return self.omitted + self.rounding

    @property
    def up(self) -> Windows:
        """Messages of the nodes of the last part and of the loaded part."""
        return Windows(self.start, self.offset, self.size, self.values)

    def run(self) -> bool:
        """Compute all messages and marginals; return False if no table has a weight above the smallest number."""
        try:
            with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
                self._up()
                self._down()
        except _VanishedError:
            return False
        except MemoryError:
            raise ValueError(
                "the table must fit in memory, got messages that do not; split it, or choose a prior with less range"
            ) from None
        self.omitted, self.rounding = (np.inf if np.isnan(bound) else bound for bound in (self.omitted, self.rounding))
        return True

    def load(self, part: int, option: int) -> None:
        """Compute the messages of a part again, unless all messages are in memory."""
        if not (self.is_whole and self.used):
            self.used = self.base
            with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
                self._climb(self.forest.parts[part], option)

    def load_children(self, node: int) -> None:
        """Make the messages of the children of a node available in `up`."""
        for part, batches in enumerate([] if self.is_whole else self.forest.parts[:-1]):
            if any(node in batch for batch in batches):
                if len(self.options) > 1:
                    raise ValueError("shares below the groups of a fitted prior have no closed form; use evaluate")
                return self.load(part, 0)
        return self._restore()

    def _restore(self) -> None:
        """Point to the messages of the roots of parts that the last part uses."""
        for i, first, offset, size in self.kept:
            self.start[i], self.offset[i], self.size[i] = first, offset, size

    def _up(self) -> None:
        kept: list[tuple[int, Floats]] = []
        for part, roots in enumerate(self.forest.part_roots):
            found: list[list[tuple[Any, ...]]] = [[] for _ in roots]
            for option in range(len(self.options)):
                self.load(part, option)
                for one, i in zip(found, roots, strict=True):
                    one.append((self.start[i], self.up.of(i).copy(), self.log_sum[i], self.lost[i], self.rounded[i]))
            kept += [] if self.is_whole else [(i, self._mix(i, one)) for i, one in zip(roots, found, strict=True)]
        if not self.is_whole:
            self.used = 0
            for i, values in kept:
                self._reserve(values.size)
                self.offset[i], self.size[i] = self.used, values.size
                self.values[self.used : self.used + values.size] = values
                self.used += values.size
                self.kept.append((i, self.start[i], self.offset[i], values.size))
            self._climb(self.forest.parts[-1], 0)
            self.base = self.used
        self.log_weight = float(np.where(self.forest.parents < 0, self.log_sum[: self.m], 0.0).sum())

    def _mix(self, node: int, options: list) -> Floats:
        """Return the message of the root of a part, a mixture over the options."""
        starts, values, log_sums, lost, rounded = zip(*options, strict=True)
        top = max(log_sums)
        share = np.exp(np.array(log_sums) - top)
        self.log_sum[node] = top + np.log(share.mean())
        share /= share.sum()
        first = min(starts)
        found = np.zeros(max(a + one.size for a, one in zip(starts, values, strict=True)) - first)
        for weight, a, one in zip(share, starts, values, strict=True):
            found[a - first : a - first + one.size] += weight * one
        self.start[node], self.lost[node], self.rounded[node] = first, share @ lost, share @ rounded
        self.mixed[node] = share, list(zip(starts, values, strict=True))
        return found

    def _climb(self, batches: Sequence[Integers], option: int) -> None:
        """Compute the upward messages of the nodes of a part."""
        for batch in batches:
            left, right = self.forest.left[batch], self.forest.right[batch]
            if left[0] < 0:
                at = np.searchsorted(self.forest.leaves, batch)
                _, first, last = self.options[option]
                for leaf in _pieces(at, (last - first)[at] + 1.0):
                    self._leaves(leaf, option)
            else:
                for nodes in _pieces(batch, self.size[left] + np.where(right >= 0, self.size[right], 0)):
                    self._combine(nodes)

    def _reserve(self, need: int) -> None:
        if self.used + need > self.values.size:
            grown = np.empty(max(2 * self.values.size, self.used + need))
            grown[: self.used] = self.values[: self.used]
            self.values = grown

    def _store(
        self, nodes: Integers, values: Floats, place: Integers, low: Integers, width: Integers, omitted: Floats
    ) -> None:
        """Append the windows of messages, of which sums `omitted` are missing."""
        skip, kept = np.empty((2, nodes.size), np.int64)
        total, dropped = np.empty((2, nodes.size))
        kernels.trim(values, place, width, self.cut, skip, kept, total, dropped)
        if not np.all((total > 0.0) & np.isfinite(total)):
            raise _VanishedError
        self._reserve(int(kept.sum()))
        kernels.normalise(values, place, skip, kept, total, self.values[self.used :])
        self.start[nodes], self.size[nodes] = low + skip, kept
        self.offset[nodes] = self.used + np.cumsum(kept) - kept
        self.used += int(kept.sum())
        self.log_sum[nodes] += np.log(total)
        self.lost[nodes] = dropped + _UNDERFLOW + omitted / total

    def _leaves(self, leaf: Integers, option: int) -> None:
        """Compute the messages of leaves in their windows."""
        weights, first, last = self.options[option]
        nodes, low = self.forest.leaves[leaf], first[leaf].astype(np.int64)
        width = (last - first)[leaf].astype(np.int64) + 1
        place, counts = np.cumsum(width) - width, _runs(low, width)
        value = np.empty(counts.size)
        kernels.leaf_log_weights(low, width, weights.r[leaf], weights.rate[leaf] + self.outer[nodes], value)
        value += self.factors.log(np.repeat(nodes, width), counts)
        top = np.maximum.reduceat(value, place)
        value -= np.repeat(top, width)
        np.exp(value, out=value)
        self.log_sum[nodes] = top + weights.log(leaf, low) + self.outer[nodes] * low
        # geometric bounds of the tails beyond the window
        edge = value[place + width - 1]
        before = value[place + np.maximum(width - 2, 0)]
        ratio = np.where((width > 1) & (before > 0.0), edge / before, 0.0)
        limit = np.minimum(self.factors.most[nodes], weights.upper[leaf])
        tail = np.where(low + width - 1 < limit, edge / np.maximum(1.0 - ratio, 1e-3), 0.0)
        head = np.where(low > self.factors.least[nodes], value[place] * width, 0.0)
        self._store(nodes, value, place, low, width, tail + head)

    def _factor(self, nodes: Integers, low: Integers, width: Integers) -> tuple[Floats, Floats, Floats]:
        """Return factors of nodes of the table relative to their maxima, with the change of tilt, and log maxima.

        The third array bounds the relative factors of all counts: factors are log-concave, so they are at most 1 if the
        maximum is inside the window, and beyond its end at most the line through the last value and the next.
        """
        counts, place = _runs(low, width), np.cumsum(width) - width
        value = self.factors.log(np.repeat(nodes, width), counts)
        change = self.outer[nodes] - self.inner[nodes]
        value += np.repeat(change, width) * (counts - np.repeat(low, width))
        top = np.maximum.reduceat(value, place)
        value -= np.repeat(top, width)
        last, log = low + width - 1, self.factors.log
        fall = log(nodes, low - 1) - log(nodes, low) - change
        rise = log(nodes, last + 1) - log(nodes, last) + change
        reach = np.minimum(self.factors.most[nodes], self.ends[nodes]) - last
        down = np.fmax(fall, 0.0) * (low - self.factors.least[nodes])
        beyond = np.exp(
            np.fmax(value[place] + down, value[place + width - 1] + np.fmax(rise, 0.0) * np.fmax(reach, 0.0))
        )
        return np.exp(value, out=value), top, np.maximum(beyond, 1.0)

    def _combine(self, nodes: Integers) -> None:
        """Compute the messages of inner nodes whose children are done."""
        self.rounded[nodes] = 0.0
        left, right = self.forest.left[nodes], self.forest.right[nodes]
        both = right >= 0
        other = np.where(both, right, left)
        low = self.start[left] + np.where(both, self.start[other], 0)
        high = low + self.size[left] + np.where(both, self.size[other] - 1, 0)
        real = np.flatnonzero(nodes < self.m)
        tables = nodes[real]
        low[real] = np.maximum(low[real], self.factors.least[tables])
        high[real] = np.minimum(high[real], self.factors.most[tables] + 1)
        width = high - low
        if not np.all(width > 0):
            raise _VanishedError
        long = np.flatnonzero(both & (self.size[left] * self.size[other] > self.direct) & (width > 64))
        length = self.size[left[long]] + self.size[right[long]] - 1
        is_cut = np.zeros(nodes.size, bool)
        if long.size:
            first, last = np.empty(long.size, np.int64), np.empty(long.size, np.int64)
            kernels.chernoff_ends(self.values, self.start, self.offset, self.size, left[long], right[long],
                                  _FAR, first, last)  # fmt: skip
            span = last - first + 1
            first, last = np.maximum(first, low[long]), np.minimum(last, low[long] + width[long] - 1)
            inside = first <= last
            is_cut[long] = inside
            low[long] = np.where(inside, first, low[long])
            width[long] = np.where(inside, last - first + 1, width[long])
            length = np.where(inside, np.minimum(length, span), length)
        place = np.cumsum(width) - width
        values = np.empty(int(width.sum()))
        short = np.delete(np.arange(nodes.size), long)
        kernels.convolve_pairs(self.values, self.start, self.offset, self.size, left[short], right[short], low[short],
                               width[short], place[short], values)  # fmt: skip
        for i, least in zip(long, length, strict=True):
            f, g = self.up.of(left[i]), self.up.of(right[i])
            n = fft.next_fast_len(max(int(least), f.size, g.size), real=True)
            found = fft.irfft(fft.rfft(f, n) * fft.rfft(g, n), n)  # counts that would overlap have a negligible weight
            skip = low[i] - self.start[left[i]] - self.start[right[i]]
            values[place[i] : place[i] + width[i]] = _cyclic(found, skip, width[i])
            self.rounded[nodes[i]] = _rounding(f, g)
        self.log_sum[nodes] = self.log_sum[left] + np.where(both, self.log_sum[other], 0.0)
        omitted = 2.0 * np.exp(-_FAR) * is_cut
        if real.size:
            factor, top, beyond = self._factor(tables, low[real], width[real])
            omitted[real] *= beyond
            values[_runs(place[real], width[real])] *= factor
            self.log_sum[tables] += top + (self.outer[tables] - self.inner[tables]) * low[real]
        self._store(nodes, values, place, low, width, omitted)

    def _down(self) -> None:
        """Compute the messages from above, the marginals, and the bound of the error."""
        forest, roots = self.forest, np.flatnonzero(self.forest.owner < 0)
        self.omitted, self.rounding = float(self.lost[roots].sum()), 0.0
        highest = np.ones(self.size.size)  # bound of each message from above
        out = np.empty(self.used)
        for i in roots:
            out[self.offset[i] : self.offset[i] + self.size[i]] = 1.0
        if self.is_whole:
            self.marginal = self._descend(forest.parts[0], out, highest, 1.0)[1]
            return
        terms = [(1.0, *self._descend(forest.parts[-1], out, highest, 1.0))]
        top = [[(self.start[i], out[self.offset[i] : self.offset[i] + self.size[i]].copy()) for i in one]
               for one in forest.part_roots]  # fmt: skip
        for part, part_roots in enumerate(forest.part_roots):
            (first, above), (share, options) = top[part][0], self.mixed[part_roots[0]]
            weights = share * [values @ above[a - first : a - first + values.size] for a, values in options]
            weights = weights / weights.sum()
            for option, weight in enumerate(weights):
                self.load(part, option)
                out = np.empty(self.used)
                for i, (first, above) in zip(part_roots, top[part], strict=True):
                    skip = self.start[i] - first
                    out[self.offset[i] : self.offset[i] + self.size[i]] = above[skip : skip + self.size[i]]
                terms.append((weight, *self._descend(forest.parts[part], out, highest, weight)))
        self.marginal = add_windows(self.m, terms)

    def _descend(
        self, batches: Sequence[Integers], out: Floats, highest: Floats, weight: float
    ) -> tuple[Integers, Windows]:
        """Return a part's nodes of the table, and their marginals, given messages from above; add error bounds."""
        for batch in batches[::-1]:
            if self.forest.left[batch[0]] >= 0:
                for nodes in _pieces(batch, self.size[batch]):
                    self._descend_from(nodes, out, highest, weight)
        nodes = self._tabled(batches)
        size = self.size[nodes]
        values, place = np.empty(int(size.sum())), np.cumsum(size) - size
        for part in _pieces(np.arange(nodes.size), size):
            cell = _runs(self.offset[nodes[part]], size[part])
            value = out[cell]
            is_leaf = np.repeat(self.forest.left[nodes[part]] < 0, size[part])
            value[is_leaf] *= self.values[cell[is_leaf]]
            total = np.add.reduceat(value, place[part] - place[part[0]])
            if not np.all(total > 0.0):
                raise _VanishedError
            values[place[part[0]] : place[part[0]] + value.size] = value / np.repeat(total, size[part])
        return nodes, Windows(self.start[nodes], place, size, values)

    def _tabled(self, batches: Sequence[Integers]) -> Integers:
        """Return the nodes of the table in a part, in ascending order."""
        every = np.concatenate([np.zeros(0, np.int64), *batches])
        return np.sort(every[every < self.m])

    def _descend_from(self, nodes: Integers, out: Floats, highest: Floats, weight: float) -> None:
        """Compute the messages from above of the children of nodes, and the marginals of nodes; add error bounds."""
        size, place = self.size[nodes], np.cumsum(self.size[nodes]) - self.size[nodes]
        source = _runs(self.offset[nodes], size)
        u = out[source]
        out[source] *= self.values[source]
        real, peak = np.flatnonzero(nodes < self.m), np.ones(nodes.size)
        if real.size:
            factor, _, beyond = self._factor(nodes[real], self.start[nodes[real]], size[real])
            peak[real] = beyond
            u[_runs(place[real], size[real])] *= factor
        largest = np.maximum.reduceat(u, place)
        u /= np.repeat(largest, size)
        left, right = self.forest.left[nodes], self.forest.right[nodes]
        both = right >= 0
        child = np.concatenate([left, right[both]])
        sibling = np.concatenate([right, left[both]])
        which = np.concatenate([np.arange(nodes.size), np.flatnonzero(both)])
        one, two = self.size[left], self.size[np.where(both, right, left)]
        products = np.minimum(np.minimum(one, size) * two, np.minimum(two, size) * one)
        long = np.flatnonzero(both & (products > self.direct))
        short = np.flatnonzero(~np.isin(which, long))
        at = which[short]
        kernels.correlate_pairs(self.values, self.start, self.offset, self.size, child[short], sibling[short], u,
                                self.start[nodes[at]], place[at], size[at], out)  # fmt: skip
        e = np.zeros(child.size)
        for w in long:
            above, pair = u[place[w] : place[w] + size[w]], (left[w], right[w])
            f = [self.up.of(a) for a in pair]
            n = fft.next_fast_len(max(f[0].size + f[1].size - 1, above.size), real=True)
            transform, parts = fft.rfft(above, n), [fft.rfft(one, n) for one in f]
            for a, own, other_part in zip(pair, f, parts[::-1], strict=True):
                b = pair[1] if a == pair[0] else pair[0]
                found = fft.irfft(transform * other_part.conj(), n)
                skip = self.start[a] - self.start[nodes[w]] + self.start[b]  # lag of the first count of the child
                out[self.offset[a] : self.offset[a] + own.size] = _cyclic(found, skip, own.size)
            e[which == w] = [_rounding(above, one) for one in f[::-1]]
        cell = _runs(self.offset[child], self.size[child])
        total = np.add.reduceat(out[cell] * self.values[cell], np.cumsum(self.size[child]) - self.size[child])
        if not np.all(total > 0.0):
            raise _VanishedError
        highest[child] = (peak * highest[nodes] / largest)[which]
        self.omitted += weight * float((self.lost[child] * highest[child] / total).sum())
        self.rounding += weight * float((e / total).sum())
        # rounding of the convolution at the node itself, weighted by everything above it
        rounded = np.flatnonzero(self.rounded[nodes] > 0.0)
        for i in rounded:
            part = slice(place[i], place[i] + size[i])
            own = total[np.flatnonzero(child == left[i])[0]]
            self.rounding += weight * float(self.rounded[nodes[i]] * u[part].sum() / own)

    def up_moments(self) -> tuple[Floats, Floats]:
        """Return mean and variance of the upward messages of the nodes of the table, averages over the options."""
        found = np.zeros((2, self.m))
        for part, roots in enumerate(self.forest.part_roots):
            for option, share in enumerate(np.ones(1) if self.is_whole else self.mixed[roots[0]][0]):
                self.load(part, option)
                nodes = self._tabled(self.forest.parts[part])
                found[:, nodes] += share * np.array(self.up.at(nodes).moments())
        nodes = self._tabled(self.forest.parts[-1])
        found[:, nodes] = self.up.at(nodes).moments()
        return found[0], found[1]

    def draw(self, rng: np.random.Generator, size: int) -> Integers:
        """Return joint draws of the counts of all nodes of the table, from the roots down, shape (size, m)."""
        found = np.empty((self.forest.left.size, size), np.int64)
        self._restore()
        for i in np.flatnonzero(self.forest.owner < 0):
            cumulative = np.cumsum(self.marginal.of(int(i)))
            drawn = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
            found[i] = self.marginal.start[i] + np.minimum(drawn, cumulative.size - 1)
        self._split(self.forest.parts[-1], rng, found)
        for part, roots in enumerate(self.forest.part_roots):
            if len(self.options) == 1:
                self.load(part, 0)
                self._split(self.forest.parts[part], rng, found)
                continue
            share, options = self.mixed[roots[0]]
            p = np.zeros((len(share), size))
            for j, (first, values) in enumerate(options):
                at = found[roots[0]] - first
                known = (at >= 0) & (at < values.size)
                p[j, known] = share[j] * values[at[known]]
            cumulative = np.cumsum(p, axis=0)
            chosen = (cumulative < rng.random(size) * cumulative[-1]).sum(axis=0)
            for j in np.unique(chosen):
                self.load(part, int(j))
                columns = found[:, chosen == j]
                self._split(self.forest.parts[part], rng, columns)
                found[:, chosen == j] = columns
        return np.ascontiguousarray(found[: self.m].T)

    def _split(self, batches: Sequence[Integers], rng: np.random.Generator, found: Integers) -> None:
        """Draw the counts of the children of the nodes of a part."""
        for batch in batches[::-1]:
            for i in batch:
                a, b = self.forest.left[i], self.forest.right[i]
                if a < 0:
                    break
                if b < 0:
                    found[a] = found[i]
                    continue
                kernels.draw_splits(self.values, self.start, self.offset, self.size, a, b, found[i],
                                    rng.random(found.shape[1]), found[a])  # fmt: skip
                found[b] = found[i] - found[a]


def _cyclic(values: Floats, first: int, size: int) -> Floats:
    """Return entries first to first + size − 1 of a periodic array, without negative rounding errors."""
    return np.maximum(np.take(values, np.arange(first, first + size), mode="wrap"), 0.0)


def _rounding(f: Floats, g: Floats) -> float:
    """Return the error of a Fourier convolution."""
    return float(_ROUNDING * np.sqrt((f * f).sum() * (g * g).sum()) * np.log2(f.size + g.size))
