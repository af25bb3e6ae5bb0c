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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from mechanisms.tables import kernels
from mechanisms.tables.formats import Factors
from mechanisms.tables.priors import Weights
from mechanisms.tables.tilts import Shape

__all__ = ["CUT", "DIRECT", "Messages", "Plan", "balanced_plan", "depths", "pass_messages", "split_by"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CUT = 1e-19  # largest share of a message that is omitted at each end
DIRECT = 1 << 17  # largest number of products of a convolution without Fourier transforms
_ROUNDING = 2e-16  # error of a Fourier convolution relative to the product of the Euclidean norms
_FAR = 48.0  # −log of the share that is omitted at each end before a Fourier transform
_UNDERFLOW = 1e-290  # share of a message that may be lost by underflow
_AT_ONCE = 1 << 22  # number of values of leaves that are computed at once


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Binary forest: nodes 0 to m − 1 are those of the table, and the others pairs of children of `owner`."""

    left: Integers
    right: Integers
    owner: Integers  # parent in the table, for which the node's message is tilted; −1 for roots
    batches: tuple[Integers, ...]  # nodes of each height, in which draws use random numbers


def depths(parents: Integers) -> Integers:
    """Return the depth of each node of a forest, −1 for nodes on a cycle or below one, by doubling of paths."""
    above, depth = parents.copy(), (parents >= 0).astype(np.int64)
    for _ in range(parents.size.bit_length() + 1):
        is_open = above >= 0
        depth[is_open] += depth[above[is_open]]
        above[is_open] = above[above[is_open]]
    depth[above >= 0] = -1
    return depth


def balanced_plan(parents: Integers) -> Plan:
    """Return the binary forest in which the children of each node are combined pairwise."""
    m = parents.size
    left, right = np.full(2 * m, -1, np.int64), np.full(2 * m, -1, np.int64)
    owner = np.concatenate([parents, np.full(m, -1, np.int64)])
    items = np.argsort(parents, kind="stable")
    items = items[parents[items] >= 0]
    of, following = parents[items], m
    while items.size:
        first = np.flatnonzero(np.diff(of, prepend=-1))
        count = np.diff(np.append(first, of.size))
        rank = np.arange(of.size) - np.repeat(first, count)
        size = np.repeat(count, count)
        single, heads = size == 1, (rank % 2 == 0) & (rank + 1 < size)
        left[of[single]] = items[single]
        place = np.flatnonzero(heads)
        is_last = size[place] == 2
        new = np.where(is_last, of[place], 0)
        fresh = int((~is_last).sum())
        new[~is_last] = following + np.arange(fresh)
        following += fresh
        left[new], right[new] = items[place], items[place + 1]
        owner[new[~is_last]] = of[place][~is_last]
        merged = np.where(heads, 0, items)
        merged[place] = new
        remains = (rank % 2 == 0) & (size > 2)
        items, of = merged[remains], of[remains]
    left, right, owner = left[:following], right[:following], owner[:following]
    is_inner, both = left >= 0, right >= 0
    above = np.full(following, -1)
    above[left[is_inner]], above[right[both]] = np.flatnonzero(is_inner), np.flatnonzero(both)
    height = np.zeros(following, np.int64)
    for nodes in split_by(depths(above))[::-1]:
        one = nodes[is_inner[nodes]]
        other = np.where(both[one], right[one], left[one])
        height[one] = 1 + np.maximum(height[left[one]], height[other])
    return Plan(left, right, owner, split_by(height))


def split_by(rank: Integers) -> tuple[Integers, ...]:
    """Return the nodes of each rank 0, 1, …."""
    return tuple(np.split(np.argsort(rank, kind="stable"), np.cumsum(np.bincount(rank))[:-1]))


@dataclass(frozen=True, eq=False, repr=False)
class Messages:
    """Messages of all nodes of a plan, and marginals of the nodes of the table."""

    plan: Plan
    start: Integers
    offset: Integers
    size: Integers
    up: Floats  # normalised, tilted messages, one after the other
    marginal: Floats  # normalised marginals of the nodes of the table, at the same places
    log_weight: Floats  # log of the sum of the weights of each root's tree; 0 for other nodes
    omitted: float  # bound of the total variation distance of any marginal by omitted mass
    rounding: float  # the same by rounding errors of Fourier transforms

    @property
    def error(self) -> float:
        """Bound of the total variation distance between any marginal and the exact one."""
        return self.omitted + self.rounding

    def message(self, node: int) -> Floats:
        """Return the upward message of a node."""
        return self.up[self.offset[node] : self.offset[node] + self.size[node]]


def pass_messages(
    shape: Shape,
    plan: Plan,
    factors: Factors,
    weights: Weights,
    cap: Floats,
    tilt: Floats,
    windows: tuple[Floats, Floats],
    is_last: bool = False,
) -> Messages | None:
    """Return all messages and marginals, or None if no table has a weight above the smallest number.

    The last attempt omits no mass, and uses no Fourier transforms.
    """
    state = _Passes(shape, plan, factors, cap, tilt, *((0.0, np.inf) if is_last else (CUT, DIRECT)))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
        if not state.leaves(weights, *windows):
            return None
        for batch in plan.batches[1:]:
            if not state.combine(batch):
                return None
        return state.down()


def _runs(first: Integers, size: Integers) -> Integers:
    """Return first, first + 1, …, first + size − 1 of each message, one after the other."""
    ends = np.cumsum(size)
    found = np.arange(ends[-1] if size.size else 0)
    found += np.repeat(first - (ends - size), size)
    return found


class _Passes:
    """State of one upward and one downward pass."""

    def __init__(
        self, shape: Shape, plan: Plan, factors: Factors, cap: Floats, tilt: Floats, cut: float, direct: float
    ) -> None:
        self.shape, self.plan, self.factors, self.cut, self.direct = shape, plan, factors, cut, direct
        self.ends = np.minimum(cap, 2.0**52)  # counts beyond which the prior or the measurements leave no mass
        n = plan.left.size
        self.m = shape.parents.size
        self.start, self.offset, self.size = (np.zeros(n, np.int64) for _ in range(3))
        self.log_sum, self.lost, self.rounding = np.zeros(n), np.zeros(n), np.zeros(n)
        # tilt of the message of each node, and of the messages of its children
        self.outer = np.where(plan.owner >= 0, tilt[np.maximum(plan.owner, 0)], 0.0)
        self.inner = np.append(tilt, self.outer[self.m :])
        self.up, self.used = np.empty(1 << 12), 0

    def _store(
        self, nodes: Integers, values: Floats, place: Integers, low: Integers, width: Integers, omitted: Floats | float
    ) -> bool:
        """Append the windows of messages, of which sums `omitted` are missing; return False if a message is 0."""
        n = nodes.size
        skip, kept, total, dropped = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n), np.empty(n)
        kernels.trim(values, place, width, self.cut, skip, kept, total, dropped)
        if not np.all((total > 0.0) & np.isfinite(total)):
            return False
        need = int(kept.sum())
        if self.used + need > self.up.size:
            grown = np.empty(max(2 * self.up.size, self.used + need))
            grown[: self.used] = self.up[: self.used]
            self.up = grown
        kernels.normalise(values, place, skip, kept, total, self.up[self.used :])
        self.start[nodes], self.size[nodes] = low + skip, kept
        self.offset[nodes] = self.used + np.cumsum(kept) - kept
        self.used += need
        self.log_sum[nodes] += np.log(total)
        self.lost[nodes] += dropped + _UNDERFLOW + omitted / total
        return True

    def leaves(self, weights: Weights, first: Floats, last: Floats) -> bool:
        """Compute the messages of the leaves in the given windows."""
        begin, widths = first.astype(np.int64), (last - first).astype(np.int64) + 1
        ends = np.cumsum(widths)
        i, n = 0, begin.size
        while i < n:
            j = max(i + 1, int(np.searchsorted(ends, ends[i] - widths[i] + _AT_ONCE, side="right")))
            j = min(j, n)
            part = slice(i, j)
            nodes, low, width = self.shape.leaves[part], begin[part], widths[part]
            place = np.cumsum(width) - width
            counts = _runs(low, width)
            value = np.empty(counts.size)
            kernels.leaf_log_weights(low, width, weights.r[part], weights.rate[part] + self.outer[nodes], value)
            value += self.factors.log(np.repeat(nodes, width), counts)
            top = np.maximum.reduceat(value, place)
            value -= np.repeat(top, width)
            np.exp(value, out=value)
            self.log_sum[nodes] = top + weights.log(np.arange(i, j), low) + self.outer[nodes] * low
            # geometric bounds of the tails beyond the window
            edge = value[place + width - 1]
            ratio = np.where(width > 1, edge / value[place + np.maximum(width - 2, 0)], 0.0)
            limit = np.minimum(self.factors.most[nodes], weights.upper[part])
            tail = np.where(low + width - 1 < limit, edge / np.maximum(1.0 - ratio, 1e-3), 0.0)
            head = np.where(low > self.factors.least[nodes], value[place] * width, 0.0)
            self.lost[nodes] = (tail + head) / np.add.reduceat(value, place)
            if not self._store(nodes, value, place, low, width, 0.0):
                return False
            i = j
        return True

    def _factor(self, nodes: Integers, low: Integers, width: Integers) -> tuple[Floats, Floats, Floats]:
        """Return factors of nodes of the table relative to their maxima, with the change of tilt, and log maxima.

        The third array bounds the relative factors of all counts: factors are log-concave, so they are at most 1 if the
        maximum is inside the window, and at most the line through the last two values beyond its end.
        """
        counts, place = _runs(low, width), np.cumsum(width) - width
        value = self.factors.log(np.repeat(nodes, width), counts)
        change = self.outer[nodes] - self.inner[nodes]
        value += np.repeat(change, width) * (counts - np.repeat(low, width))
        top = np.maximum.reduceat(value, place)
        value -= np.repeat(top, width)
        first, last = place, place + width - 1
        second, before = first + (width > 1), last - (width > 1)
        down = np.maximum(value[first] - value[second], 0.0) * (low - self.factors.least[nodes])
        reach = np.minimum(self.factors.most[nodes], self.ends[nodes]) - (low + width - 1)
        up = np.maximum(value[last] - value[before], 0.0) * np.maximum(reach, 0)
        single = (width == 1) & (self.factors.least[nodes] < self.factors.most[nodes])
        beyond = np.where(single, np.inf, np.exp(np.maximum(value[first] + down, value[last] + up)))
        return np.exp(value, out=value), top, np.maximum(beyond, 1.0)

    def combine(self, nodes: Integers) -> bool:
        """Compute the messages of inner nodes whose children are done."""
        left, right = self.plan.left[nodes], self.plan.right[nodes]
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
            return False
        long = np.flatnonzero(both & (self.size[left] * self.size[other] > self.direct) & (width > 64))
        length = self.size[left[long]] + self.size[right[long]] - 1
        is_cut = np.zeros(nodes.size, bool)
        if long.size:
            first, last = np.empty(long.size, np.int64), np.empty(long.size, np.int64)
            kernels.chernoff_ends(self.up, self.start, self.offset, self.size, left[long], right[long],
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
        kernels.convolve_pairs(self.up, self.start, self.offset, self.size, left[short], right[short], low[short],
                               width[short], place[short], values)  # fmt: skip
        for i, least in zip(long, length, strict=True):
            f, g = self._message(left[i]), self._message(right[i])
            n = fft.next_fast_len(max(int(least), f.size, g.size), real=True)
            found = fft.irfft(fft.rfft(f, n) * fft.rfft(g, n), n)  # counts that would overlap have a negligible weight
            skip = low[i] - self.start[left[i]] - self.start[right[i]]
            values[place[i] : place[i] + width[i]] = _cyclic(found, skip, width[i])
            self.rounding[nodes[i]] = _rounding(f, g)
        self.log_sum[nodes] = self.log_sum[left] + np.where(both, self.log_sum[other], 0.0)
        omitted = 2.0 * np.exp(-_FAR) * is_cut
        if real.size:
            factor, top, beyond = self._factor(tables, low[real], width[real])
            omitted[real] *= beyond
            values[_runs(place[real], width[real])] *= factor
            self.log_sum[tables] += top + (self.outer[tables] - self.inner[tables]) * low[real]
        return self._store(nodes, values, place, low, width, omitted)

    def _message(self, node: int) -> Floats:
        return self.up[self.offset[node] : self.offset[node] + self.size[node]]

    def down(self) -> Messages | None:
        """Compute the messages from above, the marginals, and the bound of the error."""
        self.up = self.up[: self.used].copy()
        out = np.empty(self.used)
        roots = np.flatnonzero(self.plan.owner < 0)
        for i in roots:
            out[self.offset[i] : self.offset[i] + self.size[i]] = 1.0
        omitted, rounding = float(self.lost[roots].sum()), 0.0
        highest = np.ones(self.size.size)  # bound of each message from above
        for nodes in self.plan.batches[:0:-1]:
            size, place = self.size[nodes], np.cumsum(self.size[nodes]) - self.size[nodes]
            source = _runs(self.offset[nodes], size)
            u = out[source]
            out[source] *= self.up[source]
            real, peak = np.flatnonzero(nodes < self.m), np.ones(nodes.size)
            if real.size:
                factor, _, beyond = self._factor(nodes[real], self.start[nodes[real]], size[real])
                peak[real] = beyond
                u[_runs(place[real], size[real])] *= factor
            largest = np.maximum.reduceat(u, place)
            u /= np.repeat(largest, size)
            left, right = self.plan.left[nodes], self.plan.right[nodes]
            both = right >= 0
            child = np.concatenate([left, right[both]])
            sibling = np.concatenate([right, left[both]])
            which = np.concatenate([np.arange(nodes.size), np.flatnonzero(both)])
            one, two = self.size[left], self.size[np.where(both, right, left)]
            products = np.minimum(np.minimum(one, size) * two, np.minimum(two, size) * one)
            long = np.flatnonzero(both & (products > self.direct))
            short = np.flatnonzero(~np.isin(which, long))
            at = which[short]
            kernels.correlate_pairs(self.up, self.start, self.offset, self.size, child[short], sibling[short], u,
                                    self.start[nodes[at]], place[at], size[at], out)  # fmt: skip
            e = np.zeros(child.size)
            for w in long:
                above, pair = u[place[w] : place[w] + size[w]], (left[w], right[w])
                f = [self._message(a) for a in pair]
                n = fft.next_fast_len(max(f[0].size + f[1].size - 1, above.size), real=True)
                transform, parts = fft.rfft(above, n), [fft.rfft(one, n) for one in f]
                for a, own, other_part in zip(pair, f, parts[::-1], strict=True):
                    b = pair[1] if a == pair[0] else pair[0]
                    found = fft.irfft(transform * other_part.conj(), n)
                    skip = self.start[a] - self.start[nodes[w]] + self.start[b]  # lag of the first count of the child
                    out[self.offset[a] : self.offset[a] + own.size] = _cyclic(found, skip, own.size)
                e[which == w] = [_rounding(above, one) for one in f[::-1]]
            cell = _runs(self.offset[child], self.size[child])
            total = np.add.reduceat(out[cell] * self.up[cell], np.cumsum(self.size[child]) - self.size[child])
            if not np.all(total > 0.0):
                return None
            highest[child] = (peak * highest[nodes] / largest)[which]
            omitted += float((self.lost[child] * highest[child] / total).sum())
            rounding += float((e / total).sum())
            # rounding of the convolution at the node itself, weighted by everything above it
            rounded = np.flatnonzero(self.rounding[nodes] > 0.0)
            for i in rounded:
                part = slice(place[i], place[i] + size[i])
                own = total[np.flatnonzero(child == left[i])[0]]
                rounding += float(self.rounding[nodes[i]] * u[part].sum() / own)
        cell = _runs(self.offset[: self.m], self.size[: self.m])
        plain = self.plan.batches[0]
        leaf = _runs(self.offset[plain], self.size[plain])
        out[leaf] *= self.up[leaf]
        total = np.add.reduceat(out[cell], np.cumsum(self.size[: self.m]) - self.size[: self.m])
        if not np.all(total > 0.0):
            return None
        out[cell] /= np.repeat(total, self.size[: self.m])
        log_weight = np.zeros(self.m)
        log_weight[roots] = self.log_sum[roots]
        omitted, rounding = (np.inf if np.isnan(bound) else bound for bound in (omitted, rounding))
        return Messages(self.plan, self.start, self.offset, self.size, self.up, out, log_weight, omitted, rounding)


def _cyclic(values: Floats, first: int, size: int) -> Floats:
    """Return entries first to first + size − 1 of a periodic array, without negative rounding errors."""
    return np.maximum(np.take(values, np.arange(first, first + size), mode="wrap"), 0.0)


def _rounding(f: Floats, g: Floats) -> float:
    """Return the error of a Fourier convolution."""
    return float(_ROUNDING * np.sqrt((f * f).sum() * (g * g).sum()) * np.log2(f.size + g.size))
