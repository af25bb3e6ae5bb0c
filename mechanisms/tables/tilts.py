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

from mechanisms.arguments import Floats, Integers
from mechanisms.tables.forest import Forest
from mechanisms.tables.formats import FAR, Factors
from mechanisms.tables.messages import Messages
from mechanisms.tables.priors import Weights
from mechanisms.tables.tree import Table

Tilts = tuple[Floats, Floats, Floats]  # of the children of each node, and mean and spread of each leaf

MEMORY = 8e9
"""Largest forecast of memory in bytes; a table that needs more is refused."""

_DEPTH = 48.0  # log weight below the maximum at which windows of leaves end
_POINTS = 64  # number of counts per leaf that the moments use
_LONG = 1 << 16  # number of counts of a leaf from which its moments are those of log-concave weights
_STEPS = 40  # largest number of steps
_NEAR = 0.2  # change of the means, in standard deviations, that ends the search
_REACH = 60.0  # distance in scales of the noise that no count exceeds with a relevant probability
_AT_ONCE = 1 << 16  # number of leaves that are evaluated at once
_OMITTED = 5e-13, 1e-16  # bound of the omitted mass, and more per node, beyond which tilts and windows are improved
_OMITTED_LARGE = 1e-21  # times the squared number of nodes: an attempt at 10⁶ leaves takes a minute
_ROUNDING = 1e-10  # bound of the rounding errors beyond which no Fourier transforms are used
_POOR = 2e-9  # bound of the omitted mass beyond which all tilts are computed in another way
_LARGEST = 1e-6  # bound of the error beyond which there is no result
_ATTEMPTS = 6
_DIRECT_PRODUCTS = 3e10  # largest number of products of an attempt without Fourier transforms


def solve(table: Table, start: Tilts | None = None) -> Messages:
    """Return the messages of a table; tilts, windows and convolutions are improved until the error bound is small."""
    forest, factors = table.forest, table.factors
    cap = np.max([caps(forest, factors, weights) for weights in table.options], axis=0)
    tilts = solve_tilts(forest, factors, table.weights, cap, start)
    best = _improve(table, cap, tilts, False)
    if best is None or best.omitted > _POOR:
        other = _improve(table, cap, tilts, True)
        best = min((one for one in (best, other) if one is not None), key=lambda one: one.error, default=None)
    if best is None or best.error > _LARGEST:
        raise ValueError(
            "the measurements must be possible together, got a table whose levels contradict each other beyond "
            "double precision; check the values and scales of the noise"
        )
    best.tilts = tilts
    return best


def _improve(table: Table, cap: Floats, tilts: Tilts, is_far: bool) -> Messages | None:
    """Return the best messages of several attempts; with `is_far`, all tilts follow from the means of the last one."""
    forest, factors, (tilt, guess, spread) = table.forest, table.factors, tilts
    above, is_root = np.maximum(forest.parents[forest.leaves], 0), forest.parents[forest.leaves] < 0
    m = forest.parents.size
    small = max(_OMITTED[0] + _OMITTED[1] * m, _OMITTED_LARGE * m**2)
    best: Messages | None = None
    is_last, centred = False, tilt
    for attempt in range(_ATTEMPTS):
        on_leaf = np.where(is_root, 0.0, tilt[above])
        is_last = is_last or attempt == _ATTEMPTS - 1
        options = []
        for weights in table.options:
            first, last = leaf_windows(forest, factors, weights, cap, on_leaf, guess, spread)
            if is_last and (best is None or best.omitted > _LARGEST):  # the tilts are far off
                reach = 8.0 * (last - first) + 64.0
                first = np.maximum(first - reach, factors.least[forest.leaves])
                last = np.minimum(last + reach, np.floor(cap[forest.leaves]))
            options.append((weights, first, last))
        _refuse_large(forest, options)
        width = np.max([last - first + 1.0 for _, first, last in options], axis=0)
        if is_last and 0.5 * (forest.sums(width)[forest.levels[0]] ** 2).sum() > _DIRECT_PRODUCTS:
            break
        found = Messages(forest, factors, cap, tilt, options, is_last)
        is_found = found.run()
        if is_found and (best is None or found.error < best.error or (is_far and found.error == best.error)):
            best = found
        if best is None:
            is_last = True
            continue
        if attempt == _ATTEMPTS - 2 and best.error <= _ROUNDING:
            break
        if is_last or best.omitted <= max(small, best.rounding):
            if is_last or best.rounding <= _ROUNDING:
                break
            is_last = True
        elif found is best:  # centre the convolutions on the posterior of this attempt
            mean, _ = best.marginal.moments()
            centred = tilt
            tilt = _recentre(forest, factors, tilt, mean, *best.up_moments())
            if is_far:
                tilt = _stationary(forest, factors, tilt, mean)
            guess = mean[forest.leaves]
        else:
            tilt = 0.5 * (tilt + centred)
    return best


def _refuse_large(forest: Forest, options: list[tuple[Weights, Floats, Floats]]) -> None:
    """Raise ValueError if the marginals and the messages of the largest part would need too much memory."""
    width = np.zeros(forest.left.size)
    width[forest.leaves] = np.max([last - first + 1.0 for _, first, last in options], axis=0)
    parts = [float(sum(width[batch].sum() for batch in part[:1])) for part in forest.parts[:-1]]
    is_divided = len(parts) > 1 or len(options) > 1
    need = 8.0 * (2.5 * max(parts) * min(4.0, 1.0 + 0.5 * len(forest.batches)) + is_divided * 3.0 * sum(parts))
    need += 80.0 * min(max(parts), 2.0 * width.max())  # temporary arrays of the longest messages
    if need > MEMORY:
        raise ValueError(
            f"the table must fit in {MEMORY / 1e9:g} GB of memory, got a forecast of {need / 1e9:.3g} GB; "
            "split it, or choose a prior with a smaller range"
        )


def caps(forest: Forest, factors: Factors, weights: Weights) -> Floats:
    """Return a count per node that it exceeds with a negligible probability; ∞ if nothing bounds it."""
    m = forest.parents.size
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
    free[forest.leaves] = prior
    cap, below = np.zeros(m), np.where(forest.inner, 0.0, free)

    def both(one: Floats, other: Floats) -> Floats:
        return np.where(np.isfinite(one) & np.isfinite(other), np.maximum(one, other), np.minimum(one, other))

    for level in range(len(forest.levels) - 1, -1, -1):
        nodes = forest.levels[level]
        cap[nodes] = both(own[nodes], below[nodes])
        cap[nodes] = np.minimum(cap[nodes], hard[nodes])
        if level:
            np.add.at(below, forest.parents[nodes], cap[nodes])
    for level in range(1, len(forest.levels)):
        nodes = forest.levels[level]
        cap[nodes] = np.minimum(both(cap[nodes], cap[forest.parents[nodes]]), hard[nodes])
    top = cap[forest.leaves]
    cap[forest.leaves] = np.where(weights.upper < FAR, np.minimum(top, weights.upper), top)
    return cap


class _LeafTarget:
    """Log weights of tilted leaves, for searches over counts."""

    def __init__(self, forest: Forest, factors: Factors, weights: Weights, which: Integers, tilt: Floats) -> None:
        self.factors, self.weights, self.which, self.tilt = factors, weights, which, tilt
        self.node = forest.leaves[which]

    def log(self, x: Floats, convex: bool = True) -> Floats:
        """Return log weights at x, of shape (leaves,) or (leaves, counts)."""
        add = (slice(None), None) if x.ndim == 2 else slice(None)
        weight = self.weights.log(self.which[add], x, convex) + self.factors.log(self.node[add], x)
        return weight + self.tilt[add] * x


def _first(
    holds: Callable[[Floats], np.ndarray], low: Floats, high: Floats, guess: Floats, step: Floats, tolerance: Floats
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
    forest: Forest, factors: Factors, weights: Weights, cap: Floats, tilt: Floats, guess: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """Return the first and last count of each tilted leaf with a relevant weight; `tilt` has one entry per leaf."""
    n = forest.leaves.size
    first, last = np.empty(n), np.empty(n)
    for begin in range(0, n, _AT_ONCE):
        which = np.arange(begin, min(begin + _AT_ONCE, n))
        target = _LeafTarget(forest, factors, weights, which, tilt[which])
        low = factors.least[target.node].astype(np.float64)
        high = np.maximum(np.floor(np.minimum(cap[target.node], 2.0**52)), low)
        near = np.clip(np.rint(guess[which]), low, high)
        step = np.maximum(spread[which], 1.0)

        def falls(x: Floats, target: _LeafTarget = target) -> np.ndarray:
            return target.log(x + 1.0, False) <= target.log(x, False)

        mode = _first(falls, low, high, near, step, np.maximum(1.0, np.floor(0.1 * step)))
        top = target.log(mode, False)
        deep = top - _DEPTH - np.maximum(1.0 - np.where(weights.r[which] > 0, weights.r[which], 1.0), 0.0) * np.log1p(
            mode)  # fmt: skip
        tolerance = np.maximum(1.0, np.floor(0.25 * step))

        def is_past(x: Floats, target: _LeafTarget = target, deep: Floats = deep) -> np.ndarray:
            return target.log(x, False) < deep

        def is_before(x: Floats, target: _LeafTarget = target, deep: Floats = deep) -> np.ndarray:
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
    forest: Forest, factors: Factors, weights: Weights, tilt: Floats, first: Floats, last: Floats
) -> tuple[Floats, Floats]:
    """Return mean and variance of tilted leaves, from at most `_POINTS` + 1 counts each."""
    mean, variance = np.empty(first.size), np.empty(first.size)
    for begin in range(0, first.size, _AT_ONCE):
        which = np.arange(begin, min(begin + _AT_ONCE, first.size))
        target = _LeafTarget(forest, factors, weights, which, tilt[which])
        width = last[which] - first[which]
        stride = np.maximum(1.0, np.ceil(width / _POINTS))
        x = first[which, None] + stride[:, None] * np.arange(min(_POINTS, int(width.max())) + 1)
        value = target.log(x)
        if (width >= _LONG).any():  # a sum over few counts gives too much weight to 0 if r < 1
            value = np.where(width[:, None] >= _LONG, target.log(x, False), value)
        value = np.where(x <= last[which, None], value, -np.inf)
        share = np.exp(value - value.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        mean[which] = np.einsum("ij,ij->i", share, x)
        variance[which] = np.einsum("ij,ij->i", share, (x - mean[which, None]) ** 2)
    return mean, variance


def solve_tilts(forest: Forest, factors: Factors, weights: Weights, cap: Floats, start: Tilts | None = None) -> Tilts:
    """Return the tilt of the children of each node, and the windows' guesses: mean and spread per leaf.

    The entry of a leaf in the first array is not used; the tilt of a root itself is 0.
    """
    m, leaves = forest.parents.size, forest.leaves
    above = np.maximum(forest.parents, 0)
    is_root = forest.parents < 0
    inner = np.ones(m, bool)
    inner[leaves] = False
    limit = _largest_tilts(forest, factors, weights, cap)
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
        first, last = leaf_windows(forest, factors, weights, cap, on_leaf, guess, spread)
        mean, variance = _leaf_moments(forest, factors, weights, on_leaf, first, last)
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
            total = forest.sums(mean)
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
        for level in range(len(forest.levels) - 1, -1, -1):
            nodes = forest.levels[level]
            one = nodes[inner[nodes]]
            v, s2 = var_before[one], noise_variance[one]
            gain = np.where(np.isinf(s2), 0.0, v / np.where(v + s2 > 0.0, v + s2, 1.0))
            after[one] = before[one] + gain * (pseudo[one] - before[one])
            var_after[one] = v * (1.0 - gain)
            if level:
                np.add.at(before, forest.parents[nodes], after[nodes])
                np.add.at(var_before, forest.parents[nodes], var_after[nodes])
        # down
        target, new = after.copy(), np.zeros(m)
        for level in range(len(forest.levels)):
            nodes = forest.levels[level]
            if level:
                target[nodes] += var_after[nodes] * new[forest.parents[nodes]]
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
    return level_tilts(forest, factors, np.where(inner, tilt, 0.0)), guess, spread


def _largest_tilts(forest: Forest, factors: Factors, weights: Weights, cap: Floats) -> Floats:
    """Return bounds of the tilts of the children of each node, beyond which the mode of a leaf is at its cap."""
    found = np.full(forest.parents.size, 1e300)
    which = np.arange(forest.leaves.size)
    target = _LeafTarget(forest, factors, weights, which, np.zeros(which.size))
    end = np.floor(np.minimum(cap[forest.leaves], 2.0**52))
    free = (end > factors.least[forest.leaves]) & (factors.most[forest.leaves] >= FAR) & (weights.upper >= FAR)
    slope = target.log(np.maximum(end - 1.0, 0.0)) - target.log(end)
    found[forest.leaves] = np.where(free, slope, 1e300)
    for level in range(len(forest.levels) - 1, 0, -1):
        nodes = forest.levels[level]
        np.minimum.at(found, forest.parents[nodes], found[nodes])
    return found


def level_tilts(forest: Forest, factors: Factors, tilt: Floats) -> Floats:
    """Return tilts that do not change at nodes without a likelihood or a limit, as the equations require."""
    free = (factors.kind == 0) & ~factors.limited
    found = np.where(free & (forest.parents < 0), 0.0, tilt)
    for nodes in forest.levels[1:]:
        one = nodes[free[nodes]]
        found[one] = found[forest.parents[one]]
    return found


def _recentre(forest: Forest, factors: Factors, tilt: Floats, target: Floats, mean: Floats, variance: Floats) -> Floats:
    """Return tilts with which the totals of the children have about the target means, by one bounded Newton step."""
    total, spread = np.zeros(tilt.size), np.zeros(tilt.size)
    child = forest.parents >= 0
    np.add.at(total, forest.parents[child], mean[child])
    np.add.at(spread, forest.parents[child], variance[child])
    known = spread > 1e-9
    limit = 5.0 / np.sqrt(np.where(known, spread, 1.0))
    step = np.where(known, np.clip((target - total) / np.where(known, spread, 1.0), -limit, limit), 0.0)
    return level_tilts(forest, factors, tilt + step)


def _stationary(forest: Forest, factors: Factors, tilt: Floats, mean: Floats) -> Floats:
    """Return the tilts that solve the stationary equations at given means, for nodes without limits."""
    found = tilt.copy()
    for level, nodes in enumerate(forest.levels):
        one = nodes[forest.inner[nodes] & ~factors.limited[nodes]]
        found[one] = (found[forest.parents[one]] if level else 0.0) + factors.slope(one, mean[one])
    return found
