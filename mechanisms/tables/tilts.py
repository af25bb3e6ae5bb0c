"""Tilts that centre all messages of a tree on the posterior, and windows of the leaves.

The factor e^{λx} of every leaf below a node is the factor e^{λt} of their total t, so it commutes with convolution.
With λ = λ_p at the children of node p, the convolution is centred where all measurements agree. The tilts solve the
stationary equations of the log posterior with the saddle-point approximation of convolutions:

    λ_p = λ_parent(p) + (ln g_p)'(t_p),   t_p = Σ over the children,   t_leaf = mean of w(x)·g(y − x)·e^{λx}.

Each step replaces the leaves by Gaussian messages with the mean and variance of the tilted ones, and solves the
equations by a Kalman filter up the tree and a smoother down the tree. Errors of the tilts do not change the posterior;
they make windows less accurate, which the bound of the omitted mass includes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mechanisms.core.arguments import Floats, Integers
from mechanisms.tables import kernels
from mechanisms.tables.forest import Forest, select
from mechanisms.tables.likelihoods import FAR, GAUSSIAN, LARGEST, RANDOM, Factors
from mechanisms.tables.priors import Weights, log_coefficient

_AROUND = 12.0  # distance between counts of similar tilts at which searches start
DEPTH = 48.0  # log weight below the maximum at which windows of leaves end
_POINTS = 64, 128  # number of counts per leaf that the moments use: with Gaussian noise, and with others or none
_SPIKE = 32  # number of counts from the first on that the moments use if the weights have a spike at 0
_AT_ONCE = 1 << 9  # number of leaves whose moments are computed at once, in arrays that fit in a cache
_TABLE = 1 << 16  # largest count for which log weights are looked up
_STEPS = 40  # largest number of steps
_NEAR = 0.2  # change of the means, in standard deviations, that ends the search
_STUCK = 0.05  # the same if steps around a jump of the means, whose grids change with the windows, have been halved
_SMOOTH = 0.1  # average variance of a message that jumps from count to count
_REACH = 60.0  # distance in scales of the noise that no count exceeds with a relevant probability
_EXACT = 1e12  # precision of a total without noise


def caps(forest: Forest, factors: Factors, weights: Weights) -> Floats:
    """Return a count per node that it exceeds with a negligible probability; infinite if nothing bounds it."""
    high = np.where(np.isfinite(factors.high), factors.high, factors.low)
    from_value = np.where(factors.kind >= 0, np.maximum(high, 0.0) + _REACH * factors.scale + 10.0, np.inf)
    hard = np.where(factors.most < FAR, factors.most, np.inf)
    with np.errstate(divide="ignore", over="ignore"):
        mean = np.exp(np.minimum(weights.rate, 600.0))
        tail = (_REACH + 10.0 * np.maximum(weights.r, 1.0)) / np.maximum(-weights.rate, 0.0)
    prior = np.where(weights.r == 0.0, mean + _REACH * np.sqrt(mean) + 4.0 * _REACH, tail)
    prior = np.where(weights.upper < FAR, np.minimum(prior, weights.upper), prior)
    below = np.where(forest.left < 0, prior, 0.0)

    def largest_finite(a: Floats, b: Floats) -> Floats:
        """Return the larger of two caps, or the one that is finite."""
        return np.where(np.isfinite(a) & np.isfinite(b), np.maximum(a, b), np.minimum(a, b))

    cap = np.zeros(from_value.size)
    for nodes in forest.levels[::-1]:
        cap[nodes] = np.where(np.isfinite(hard[nodes]), hard[nodes], largest_finite(from_value[nodes], below[nodes]))
        child = nodes[forest.above[nodes] >= 0]
        np.add.at(below, forest.above[child], cap[child])
    for nodes in forest.levels[1:]:
        cap[nodes] = np.minimum(largest_finite(cap[nodes], cap[forest.above[nodes]]), hard[nodes])
    return np.minimum(cap, np.where(weights.upper < FAR, weights.upper, np.inf))


def _first(holds: Callable[[Floats], np.ndarray], low: Floats, high: Floats, near: Floats) -> Floats:
    """Return the smallest count in [low, high] at which a monotone condition holds; `high` if there is none.

    The search starts with counts around `near`; NaN if nothing is known.
    """
    for end in (near - _AROUND, near + _AROUND):
        at = np.clip(np.where(np.isnan(end), high, end), low, high)
        true = holds(at)
        low, high = np.where(true, low, np.minimum(at + 1.0, high)), np.where(true, at, high)
    while np.any(low < high):
        middle = np.floor(0.5 * (low + high))
        true = holds(middle)
        low, high = np.where(true, low, np.minimum(middle + 1.0, high)), np.where(true, middle, high)
    return high


class Leaves:
    """Log weights of the leaves of a forest, for searches over counts.

    With `has_spikes`, the moments have the spike at 0 of weights with r < 1. Without them, the tilts of hundreds of
    sparse leaves below a measured total are far from its posterior. Others hardly change; by default, spikes are left
    out, so that these posteriors keep their last digits.
    """

    def __init__(
        self, forest: Forest, factors: Factors, weights: Weights, cap: Floats, has_spikes: bool = False
    ) -> None:  # fmt: skip
        self.nodes, self.has_spikes = forest.leaves, has_spikes
        self.factors, self.weights = select(factors, self.nodes), select(weights, self.nodes)
        self.low = self.factors.least.astype(np.float64)
        self.is_gaussian, self.terms = self.factors.is_gaussian, self.factors.gaussian_terms()
        self.extend(cap)
        self.near = np.full((3, self.nodes.size), np.nan)  # modes, and last and first counts of the last windows

    def extend(self, cap: Floats) -> None:
        """Set the largest counts, given those of all nodes."""
        self.high = np.maximum(np.floor(np.minimum(cap[self.nodes], LARGEST)), self.low)

    def log(
        self, x: Floats, tilt: Floats, is_exact: bool | np.ndarray = False, which: slice = slice(None)
    ) -> Floats:  # fmt: skip
        """Return log weights of some leaves at x, of shape (leaves, …); if not `is_exact`, they are log-concave."""
        column = (which, *[None] * (x.ndim - 1))
        return select(self.weights, which).log(x, is_exact) + self.factors.log(column, x) + tilt[column] * x

    def log_ratio(self, x: Floats, tilt: Floats) -> Floats:
        """Return the log weight at x + 1 minus that at x, for one x per leaf."""
        factor = self.factors.log(slice(None), x + 1.0) - self.factors.log(slice(None), x)
        return self.weights.log_ratio(x) + factor + tilt

    def windows(self, tilt: Floats, depth: float = DEPTH) -> tuple[Floats, Floats]:
        """Return the first and last count of each tilted leaf with a relevant weight."""
        r, near = self.weights.r, self.near
        mode = _first(lambda x: self.log_ratio(x, tilt) <= 0.0, self.low, self.high, near[0])
        deep = self.log(mode, tilt) - depth - np.where(r > 0.0, np.maximum(1.0 - r, 0.0), 0.0) * np.log1p(mode)
        last = _first(lambda x: self.log(x, tilt) < deep, mode, self.high, near[1])
        first = -_first(lambda x: self.log(-x, tilt) < deep, -mode, -self.low, -near[2])
        self.near = np.array([mode, last, first])
        spike = (r < 1.0) & (r > 0.0) & (self.low == 0.0) & (first > 0.0)
        at_zero, at_mode = self.log(0.0 * mode, tilt, True), self.log(mode, tilt, True)
        return np.where(spike & (at_zero > at_mode - depth), 0.0, first), last

    def moments(self, tilt: Floats, first: Floats, last: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of tilted leaves, from some counts each."""
        mean, variance = np.empty((2, first.size))
        table = self._log_prior(last.max()) if self.is_gaussian else None
        for begin in range(0, first.size, _AT_ONCE):
            which = slice(begin, begin + _AT_ONCE)
            width = last[which] - first[which]
            points = np.where(self.factors.kind[which] >= GAUSSIAN, *_POINTS)
            stride = np.maximum(1.0, np.ceil(width / points))
            step = np.arange(int((width / stride).max()) + 1.0)
            if table is None:
                x, value = self._points(tilt, first, last, stride, step, which)
            else:
                x, value = self._points_by_table(table, tilt, first, last, stride, step.size, which)
            share = np.exp(value - value.max(axis=1, keepdims=True))
            share /= share.sum(axis=1, keepdims=True)
            mean[which] = np.einsum("ij,ij->i", share, x)
            variance[which] = np.einsum("ij,ij->i", share, (x - mean[which, None]) ** 2)
        return mean, variance

    def _log_prior(self, last: float) -> Floats | None:
        """Return ln w(x) − x·rate − constant of all leaves up to a count, and those of strides; None if they differ."""
        r = self.weights.r
        if last > _TABLE or np.any(r != r[0]):
            return None
        column, x = r[:1, None], np.arange(last + 1.0)[None, :]
        exact = log_coefficient(column, x)[0] if r[0] != 1.0 else np.zeros(x.size)
        return np.array([exact, np.zeros(x.size) if 0.0 < r[0] < 1.0 else exact])

    def _points(
        self, tilt: Floats, first: Floats, last: Floats, stride: Floats, step: Floats, which: slice
    ) -> tuple[Floats, Floats]:
        """Return counts of some leaves with a stride, and their log weights, −∞ beyond the last, (leaves, points)."""
        if self.has_spikes:  # counts next to a spike at 0, and then middles of strides
            step = np.append(np.arange(_SPIKE), _SPIKE + step)
            beyond = np.maximum(step - _SPIKE, 0.0) * (stride[:, None] - 1.0)
            x = first[which, None] + step + beyond + (step >= _SPIKE) * np.floor(0.5 * stride[:, None])
            value = self.log(x, tilt, True, which) + (step >= _SPIKE) * np.log(stride[:, None])
        else:
            x = first[which, None] + stride[:, None] * step
            value = self.log(x, tilt, stride[:, None] == 1.0, which)  # a spike at 0 has no stride
        return x, np.where(x <= last[which, None], value, -np.inf)

    def _points_by_table(
        self, table: Floats, tilt: Floats, first: Floats, last: Floats, stride: Floats, n_steps: int, which: slice
    ) -> tuple[Floats, Floats]:
        """Return the same as `_points` for leaves with Gaussian noise, in one loop."""
        n_points = n_steps + (_SPIKE if self.has_spikes else 0)
        x, value = np.empty((2, stride.size, n_points))
        kernels.gaussian_log_weights(
            first[which], last[which], stride, np.log(stride), _SPIKE if self.has_spikes else 0, table,
            self.weights.rate[which], self.weights.constant[which], self.factors.low[which], self.factors.scale[which],
            self.terms[:, which], tilt[which], x, value,
        )  # fmt: skip
        return x, value


def solve_tilts(forest: Forest, factors: Factors, target: Leaves, limit: Floats, start: Floats | None) -> Floats:
    """Return the tilt of the children of each node, below `limit`; the entries of leaves are not used.

    From the tilts of a similar table, windows are searched again only if the tilt of a leaf has changed.
    """
    leaves, is_inner = target.nodes, forest.left >= 0
    tilt = np.where(is_inner, 0.0 if start is None else np.minimum(start, limit - 0.0625 * np.abs(limit)), 0.0)
    moved, mean, variance = np.zeros((3, tilt.size))  # last steps; moments of leaves
    turned = np.zeros(tilt.size, bool)
    measured = np.flatnonzero((factors.kind >= 0) & is_inner)
    searched: Floats | None = None  # tilts of the leaves for which windows have been searched
    for _ in range(_STEPS):
        on_leaf = forest.from_above(tilt, 0.0)[leaves]
        spread = np.maximum(variance[leaves], _SMOOTH)
        if start is None or searched is None or (spread * (on_leaf - searched) ** 2).max() > 1.0:
            first, last = target.windows(on_leaf)
            searched = on_leaf
        mean[leaves], spread = target.moments(on_leaf, first, last)
        # narrow messages jump from count to count as the tilt changes; their average change is that of the noise
        smooth = np.where(factors.kind[leaves] >= 0, np.minimum(factors.scale[leaves] ** 2, _SMOOTH), _SMOOTH)
        variance[leaves] = np.where(last > first, np.maximum(spread, smooth), spread)
        total = forest.add_up(mean)
        precision, pull = np.zeros((2, tilt.size))  # of Gaussian measurements with the slopes of the likelihoods
        precision[measured], pull[measured] = _curvature(factors, measured, total[measured])
        nearest = np.clip(total, factors.least, factors.most)
        is_fixed = factors.least == factors.most
        outside = is_inner & factors.is_limited & ((nearest != total) | is_fixed)
        precision = np.where(outside, np.where(is_fixed, _EXACT, 1.0), precision)
        pull = np.where(outside, precision * (nearest - total), pull)
        # up: means and variances of Gaussian messages without tilt; at nodes, before the measurement
        before, spread = np.where(is_inner, 0.0, mean - forest.from_above(tilt, 0.0) * variance), variance.copy()
        after, narrowed = before.copy(), variance.copy()
        for nodes in forest.levels[::-1]:
            inner, child = forest.inner(nodes), nodes[forest.above[nodes] >= 0]
            gain = 1.0 / (1.0 + spread[inner] * precision[inner])
            residual = pull[inner] + precision[inner] * (total[inner] - before[inner])
            after[inner] = before[inner] + gain * spread[inner] * residual
            narrowed[inner] = gain * spread[inner]
            np.add.at(before, forest.above[child], after[child])
            np.add.at(spread, forest.above[child], narrowed[child])
        new = np.zeros(tilt.size)
        for nodes in forest.levels:
            inner = forest.inner(nodes)
            residual = pull[inner] + precision[inner] * (total[inner] - before[inner])
            outer = forest.from_above(new, 0.0, inner)
            new[inner] = (outer + residual) / (1.0 + spread[inner] * precision[inner])
            # at most 15/16 of the way to the tilt at which the mean of a leaf below has no bound
            new[inner] = np.minimum(new[inner], tilt[inner] + 0.9375 * (limit[inner] - tilt[inner]))
        deviation = np.sqrt(np.maximum(spread, 1e-300))
        step = np.where(is_inner, new - tilt, 0.0)
        if (np.abs(step) * deviation).max() <= _NEAR:
            tilt = tilt + step
            break
        # a step is at most four times the last one, and half of it after a change of sign, as in a bisection
        is_turn = step * moved < 0.0
        turned |= is_turn
        growth = np.where(is_turn, 0.5, np.where(turned, 1.7, 4.0))  # below 2: two steps back are shorter than one
        bound = np.where(moved == 0.0, 3.0 / deviation, growth * np.abs(moved))
        moved = np.clip(step, -bound, bound)
        tilt = tilt + moved
        if (np.abs(moved) * deviation).max() <= _STUCK:
            break
    free = (factors.kind < 0) & ~factors.is_limited  # their tilts do not change, as the equations require
    tilt[free & (forest.above < 0)] = 0.0
    for nodes in forest.levels[1:]:
        follows = nodes[free[nodes]]
        tilt[follows] = tilt[forest.above[follows]]
    return tilt


def _curvature(factors: Factors, nodes: Integers, total: Floats) -> tuple[Floats, Floats]:
    """Return the precision of a Gaussian likelihood that bounds that of each node at a total, and the slope there.

    Random rounding has the variance of its triangle. Laplace and geometric noise at a distance d has the likelihood
    with the logarithm −√(1 + d²/scale²): the steps of many nodes may alternate around kinks.
    """
    scale, high = factors.scale[nodes], factors.high[nodes]
    distance = np.abs(np.where(np.isfinite(high), high, factors.low[nodes]) - total)
    width = np.where(factors.kind[nodes] % 2, high - factors.low[nodes], 0.0)
    variance = np.where(factors.kind[nodes] < GAUSSIAN, scale * np.hypot(distance, scale), scale * scale)
    is_random = factors.kind[nodes] == RANDOM
    variance = np.where(is_random, variance / 6.0, variance)
    variance += np.where(np.isfinite(width), width * width / 12.0, 0.0)
    has_kink = is_random | (factors.kind[nodes] < GAUSSIAN) & (factors.kind[nodes] % 2 == 0)
    slope = np.where(has_kink, (factors.low[nodes] - total) / variance, factors.slope(nodes, total))
    return 1.0 / variance, np.where(np.isfinite(slope), slope, np.sign(-total) / scale)


def largest_tilts(forest: Forest, leaves: Leaves, depth: float = 0.0) -> Floats:
    """Return bounds of the tilts of the children of each node.

    Beyond them, the mode of a leaf is at its cap. With them, the log weight of a leaf without a value falls by at least
    about `depth` up to its cap.
    """
    largest, nodes = np.full(forest.above.size, 1e300), leaves.nodes
    is_free = (leaves.high > leaves.low) & (leaves.factors.most >= FAR) & (leaves.weights.upper >= FAR)
    slope = leaves.log_ratio(np.maximum(leaves.high - 1.0, 0.0), np.zeros(nodes.size))
    largest[nodes] = np.where(is_free, -slope - depth / np.maximum(leaves.high, 1.0), 1e300)
    for level in forest.levels[:0:-1]:
        np.minimum.at(largest, forest.above[level], largest[level])
    return largest
