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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.tables.formats import FAR, Factors
from mechanisms.tables.priors import Weights

__all__ = ["Shape", "caps", "leaf_windows", "level_tilts", "solve_tilts"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tilts = tuple[Floats, Floats, Floats]

_DEPTH = 48.0  # log weight below the maximum at which windows of leaves end
_POINTS = 64  # number of counts per leaf that the moments use
_STEPS = 40  # largest number of steps
_NEAR = 0.2  # change of the means, in standard deviations, that ends the search
_REACH = 60.0  # distance in scales of the noise that no count exceeds with a relevant probability
_AT_ONCE = 1 << 16  # number of leaves that are evaluated at once


@dataclass(frozen=True, eq=False, repr=False)
class Shape:
    """Shape of a forest: parents, depth of each node, leaves, and the nodes of each depth."""

    parents: Integers
    depth: Integers
    leaves: Integers
    levels: tuple[Integers, ...]

    def sum_children(self, values: Floats, level: int) -> None:
        """Add the values of the nodes of a level to those of their parents."""
        nodes = self.levels[level]
        above = self.parents[nodes]
        np.add.at(values, above, values[nodes])


def caps(shape: Shape, factors: Factors, weights: Weights) -> Floats:
    """Return a count per node that it exceeds with a negligible probability; ∞ if nothing bounds it."""
    m = shape.parents.size
    high = np.where(np.isfinite(factors.high), factors.high, factors.low)
    own = np.where(factors.kind > 0, np.maximum(high, 0.0) + _REACH * factors.scale + 10.0, np.inf)
    hard = np.where(factors.most < FAR, factors.most, np.inf).astype(np.float64)
    free = np.zeros(m)
    with np.errstate(divide="ignore", over="ignore"):
        falling = weights.rate < 0.0
        tail = (_REACH + 10.0 * np.maximum(weights.r, 1.0)) / np.where(falling, -weights.rate, 1.0)
        mean = np.exp(np.minimum(weights.rate, 600.0))
    prior = np.where(falling, tail, np.inf)
    prior = np.where(weights.r == 0.0, mean + _REACH * np.sqrt(mean) + 4.0 * _REACH, prior)
    prior = np.where(weights.upper < FAR, np.minimum(prior, weights.upper), prior)
    free[shape.leaves] = prior
    cap = np.zeros(m)
    inner = np.ones(m, bool)
    inner[shape.leaves] = False
    below = np.where(inner, 0.0, free)
    for level in range(len(shape.levels) - 1, -1, -1):
        nodes = shape.levels[level]
        one = below[nodes]
        cap[nodes] = np.where(np.isfinite(own[nodes]), np.where(np.isfinite(one), np.maximum(own[nodes], one),
                                                                own[nodes]), one)  # fmt: skip
        cap[nodes] = np.minimum(cap[nodes], hard[nodes])
        if level:
            np.add.at(below, shape.parents[nodes], cap[nodes])
    for level in range(1, len(shape.levels)):
        nodes = shape.levels[level]
        above = cap[shape.parents[nodes]]
        raised = np.where(np.isfinite(cap[nodes]) & np.isfinite(above), np.maximum(cap[nodes], above), np.minimum(
            cap[nodes], above))  # fmt: skip
        cap[nodes] = np.minimum(raised, hard[nodes])
    top = cap[shape.leaves]
    cap[shape.leaves] = np.where(weights.upper < FAR, np.minimum(top, weights.upper), top)
    return cap


class _LeafTarget:
    """Log weights of tilted leaves, for searches over counts."""

    def __init__(self, shape: Shape, factors: Factors, weights: Weights, which: Integers, tilt: Floats) -> None:
        self.factors, self.weights, self.which, self.tilt = factors, weights, which, tilt
        self.node = shape.leaves[which]

    def log(self, x: Floats, convex: bool = True) -> Floats:
        """Return log weights at x, of shape (leaves,) or (leaves, counts)."""
        add = (slice(None), None) if x.ndim == 2 else slice(None)
        weight = self.weights.log(self.which[add], x, convex) + self.factors.log(self.node[add], x)
        return weight + self.tilt[add] * x


def _first(
    holds: Callable[[Floats], NDArray[np.bool_]],
    low: Floats,
    high: Floats,
    guess: Floats,
    step: Floats,
    tolerance: Floats,
) -> Floats:
    """Return a count ≥ the smallest in [low, high] at which a monotone condition holds, to a tolerance ≥ 1."""
    # invariant: the condition fails at `a` (or a = low − 1) and holds at `b` (or b = high)
    at = np.clip(np.rint(guess), low, high)
    true = holds(at)
    a, b = np.where(true, low - 1.0, at), np.where(true, at, high)
    step = np.maximum(np.rint(step), 1.0)
    open_ = (b - a) > np.maximum(tolerance, 1.0)
    grow = true.copy()  # direction of the search: down if the condition holds at the guess
    active = open_.copy()
    while active.any():
        probe = np.clip(np.where(grow, b - step, a + step), low, high)
        result = holds(probe)
        b, a = np.where(active & result, probe, b), np.where(active & ~result, probe, a)
        done = (result != grow) | (probe <= low) & grow | (probe >= high) & ~grow
        step = np.where(active, 2.0 * step, step)
        active &= ~done
    a = np.where(b <= low, low - 1.0, a)
    while True:
        active = (b - a) > np.maximum(tolerance, 1.0)
        if not active.any():
            return b
        middle = np.maximum(np.floor(0.5 * (a + b)), low)
        result = holds(middle)
        b, a = np.where(active & result, middle, b), np.where(active & ~result, middle, a)


def leaf_windows(
    shape: Shape, factors: Factors, weights: Weights, cap: Floats, tilt: Floats, guess: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """Return the first and last count of each tilted leaf with a relevant weight; `tilt` has one entry per leaf."""
    n = shape.leaves.size
    first, last = np.empty(n), np.empty(n)
    for begin in range(0, n, _AT_ONCE):
        which = np.arange(begin, min(begin + _AT_ONCE, n))
        target = _LeafTarget(shape, factors, weights, which, tilt[which])
        low = factors.least[target.node].astype(np.float64)
        high = np.maximum(np.floor(np.minimum(cap[target.node], 2.0**52)), low)
        near = np.clip(np.rint(guess[which]), low, high)
        step = np.maximum(spread[which], 1.0)

        def falls(x: Floats, target: _LeafTarget = target) -> NDArray[np.bool_]:
            return target.log(x + 1.0, False) <= target.log(x, False)

        mode = _first(falls, low, high, near, step, np.maximum(1.0, np.floor(0.1 * step)))
        top = target.log(mode, False)
        deep = top - _DEPTH - np.maximum(1.0 - np.where(weights.r[which] > 0, weights.r[which], 1.0), 0.0) * np.log1p(
            mode)  # fmt: skip
        tolerance = np.maximum(1.0, np.floor(0.25 * step))

        def is_past(x: Floats, target: _LeafTarget = target, deep: Floats = deep) -> NDArray[np.bool_]:
            return target.log(x, False) < deep

        def is_before(x: Floats, target: _LeafTarget = target, deep: Floats = deep) -> NDArray[np.bool_]:
            return target.log(-x, False) < deep

        last[which] = _first(is_past, mode, high, np.minimum(mode + 8.0 * step, high), step, tolerance)
        down = _first(is_before, -mode, -low, np.minimum(8.0 * step - mode, -low), step, tolerance)
        first[which] = np.maximum(-down, low)
        spike = (weights.r[which] < 1.0) & (weights.r[which] > 0.0) & (low == 0.0) & (first[which] > 0.0)
        if spike.any():
            at_zero, at_mode = target.log(np.zeros(which.size)), target.log(mode)
            first[which] = np.where(spike & (at_zero > at_mode - _DEPTH), 0.0, first[which])
    return first, last


def _leaf_moments(
    shape: Shape, factors: Factors, weights: Weights, tilt: Floats, first: Floats, last: Floats
) -> tuple[Floats, Floats]:
    """Return mean and variance of tilted leaves, from at most `_POINTS` + 1 counts each."""
    mean, variance = np.empty(first.size), np.empty(first.size)
    for begin in range(0, first.size, _AT_ONCE):
        which = np.arange(begin, min(begin + _AT_ONCE, first.size))
        target = _LeafTarget(shape, factors, weights, which, tilt[which])
        width = last[which] - first[which]
        stride = np.maximum(1.0, np.ceil(width / _POINTS))
        x = first[which, None] + stride[:, None] * np.arange(min(_POINTS, int(width.max())) + 1)
        value = np.where(x <= last[which, None], target.log(x), -np.inf)
        share = np.exp(value - value.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        mean[which] = np.einsum("ij,ij->i", share, x)
        variance[which] = np.einsum("ij,ij->i", share, (x - mean[which, None]) ** 2)
    return mean, variance


def solve_tilts(shape: Shape, factors: Factors, weights: Weights, cap: Floats, start: Tilts | None = None) -> Tilts:
    """Return the tilt of the children of each node, and the windows' guesses: mean and spread per leaf.

    The entry of a leaf in the first array is not used; the tilt of a root itself is 0.
    """
    m, leaves = shape.parents.size, shape.leaves
    above = np.maximum(shape.parents, 0)
    is_root = shape.parents < 0
    inner = np.ones(m, bool)
    inner[leaves] = False
    limit = _largest_tilts(shape, factors, weights, cap)
    centre = factors.centre()[leaves]
    with np.errstate(over="ignore"):
        prior_mean = weights.mean()
    guess = np.minimum(np.maximum(np.where(np.isnan(centre), prior_mean, centre), 0.0), cap[leaves])
    spread = np.where(np.isnan(centre), np.sqrt(guess) + 1.0, factors.scale[leaves])
    total = np.zeros(m)
    moved = np.zeros(m)  # last step of each tilt
    tilt = np.zeros(m)
    if start is not None:
        tilt, guess, spread = np.where(inner, np.minimum(start[0], limit - 0.0625 * np.abs(limit)), 0.0), *start[1:]
    measured = np.flatnonzero((factors.kind > 0) & inner)
    for attempt in range(_STEPS):
        on_leaf = np.where(is_root[leaves], 0.0, tilt[above[leaves]])
        first, last = leaf_windows(shape, factors, weights, cap, on_leaf, guess, spread)
        mean, variance = _leaf_moments(shape, factors, weights, on_leaf, first, last)
        guess, spread = mean, np.maximum(np.sqrt(variance), 0.3)
        # narrow messages jump from count to count as the tilt changes; their average change is that of the noise
        smooth = np.where(factors.kind[leaves] > 0, np.minimum(factors.scale[leaves] ** 2, 0.1), 0.1)
        variance = np.where(last > first, np.maximum(variance, smooth), variance)
        if not inner.any():
            break
        # up: mean and variance of Gaussian messages without tilt, before and after the likelihood of each node
        before, var_before = np.zeros(m), np.zeros(m)
        after, var_after = np.zeros(m), np.zeros(m)
        after[leaves], var_after[leaves] = mean - on_leaf * variance, variance
        if attempt == 0:
            current = np.zeros(m)
            current[leaves] = mean
            for level in range(len(shape.levels) - 1, 0, -1):
                shape.sum_children(current, level)
            total = current
        pseudo, noise_variance = np.zeros(m), np.full(m, np.inf)
        if measured.size:
            power_one = factors.code[measured] <= 1
            s = factors.scale[measured]
            distance = np.abs(np.where(np.isfinite(factors.high[measured]), factors.high[measured],
                                       factors.low[measured]) - total[measured])  # fmt: skip
            width = np.where(factors.kind[measured] == 2, factors.high[measured] - factors.low[measured], 0.0)
            noise_variance[measured] = np.where(power_one, s * np.hypot(distance, s), s * s) + np.where(
                np.isfinite(width), width * width / 12.0, 0.0)  # fmt: skip
            slope = factors.slope(measured, total[measured])
            slope = np.where(np.isfinite(slope), slope, np.sign(-total[measured]) / s)
            pseudo[measured] = total[measured] + noise_variance[measured] * slope
            gauss = (factors.kind[measured] == 1) & ~power_one
            pseudo[measured] = np.where(gauss, factors.low[measured], pseudo[measured])
        bounded = inner & factors.limited
        outside = bounded & ((total >= factors.most) | (total <= factors.least) | (factors.least == factors.most))
        nearest = np.clip(total, factors.least, factors.most.astype(np.float64))
        pseudo = np.where(outside, nearest, pseudo)
        noise_variance = np.where(outside, np.where(factors.least == factors.most, 0.0, 1.0), noise_variance)
        for level in range(len(shape.levels) - 1, -1, -1):
            nodes = shape.levels[level]
            one = nodes[inner[nodes]]
            v, s2 = var_before[one], noise_variance[one]
            gain = np.where(np.isinf(s2), 0.0, v / np.where(v + s2 > 0.0, v + s2, 1.0))
            after[one] = before[one] + gain * (pseudo[one] - before[one])
            var_after[one] = v * (1.0 - gain)
            if level:
                np.add.at(before, shape.parents[nodes], after[nodes])
                np.add.at(var_before, shape.parents[nodes], var_after[nodes])
        # down
        target, new = after.copy(), np.zeros(m)
        for level in range(len(shape.levels)):
            nodes = shape.levels[level]
            if level:
                target[nodes] += var_after[nodes] * new[shape.parents[nodes]]
            one = nodes[inner[nodes]]
            v, s2 = var_before[one], noise_variance[one]
            outer = np.where(is_root[one], 0.0, new[above[one]])
            known = np.isfinite(s2) & (v + s2 > 0.0)
            whole = np.where(known, v + s2, 1.0)
            new[one] = np.where(known, (pseudo[one] - before[one] + np.where(known, s2, 0.0) * outer) / whole, outer)
            # at most 15/16 of the way to the tilt at which the mean of a leaf below has no bound
            new[one] = np.minimum(new[one], tilt[one] + 0.9375 * (limit[one] - tilt[one]))
        deviation = np.sqrt(np.maximum(var_before, 1e-300))
        change = (np.abs(new - tilt) * np.where(inner, deviation, 0.0)).max()
        if change <= _NEAR:
            tilt = new
            break
        # a step is at most four times the last one, and half of it after a change of sign, as in a bisection
        step = new - tilt
        bound = np.where(step * moved < 0.0, 0.5, 4.0) * np.abs(moved) if moved.any() else 3.0 / deviation
        bound = np.where(moved == 0.0, 3.0 / deviation, bound)
        shortened = np.clip(step, -bound, bound)
        share = np.where(step != 0.0, shortened / np.where(step != 0.0, step, 1.0), 1.0)
        moved, tilt = shortened, tilt + shortened
        total = np.clip(total + share * (target - total), factors.least, cap)
    return level_tilts(shape, factors, np.where(inner, tilt, 0.0)), guess, spread


def _largest_tilts(shape: Shape, factors: Factors, weights: Weights, cap: Floats) -> Floats:
    """Return bounds of the tilts of the children of each node, beyond which the mode of a leaf is at its cap."""
    found = np.full(shape.parents.size, 1e300)
    which = np.arange(shape.leaves.size)
    target = _LeafTarget(shape, factors, weights, which, np.zeros(which.size))
    end = np.floor(np.minimum(cap[shape.leaves], 2.0**52))
    free = (end > factors.least[shape.leaves]) & (factors.most[shape.leaves] >= FAR) & (weights.upper >= FAR)
    slope = target.log(np.maximum(end - 1.0, 0.0)) - target.log(end)
    found[shape.leaves] = np.where(free, slope, 1e300)
    for level in range(len(shape.levels) - 1, 0, -1):
        nodes = shape.levels[level]
        np.minimum.at(found, shape.parents[nodes], found[nodes])
    return found


def level_tilts(shape: Shape, factors: Factors, tilt: Floats) -> Floats:
    """Return tilts that do not change at nodes without a likelihood or a limit, as the equations require."""
    free = (factors.kind == 0) & ~factors.limited
    found = np.where(free & (shape.parents < 0), 0.0, tilt)
    for nodes in shape.levels[1:]:
        one = nodes[free[nodes]]
        found[one] = found[shape.parents[one]]
    return found
