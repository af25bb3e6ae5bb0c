"""Exact posterior of counts that add up on a tree, given noisy values at any of its nodes.

Leaves have independent priors w(x), a node is the sum of its children, and a measured node v contributes the likelihood
g_v(y_v | x_v). `messages` computes the posterior by convolutions, `tilts` centres them, `formats` contains the
likelihoods and `priors` the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import describe, real_array, validate_integer
from mechanisms.noise import Exact, Noise
from mechanisms.tables import kernels
from mechanisms.tables.formats import FAR, Factors, NoiseLike, Rounded, Seen, Suppressed, likelihoods, node_name
from mechanisms.tables.messages import Messages, Plan, balanced_plan, depths, pass_messages, split_by
from mechanisms.tables.priors import Prior, Weights, leaf_weights
from mechanisms.tables.tilts import Shape, Tilts, caps, leaf_windows, level_tilts, solve_tilts

__all__ = ["MEMORY", "Problem", "solve", "table_problem"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MEMORY = 8e9
"""Largest forecast of memory in bytes; a table that needs more is refused."""

_OMITTED = 5e-13, 1e-16  # bound of the omitted mass, and more per node, beyond which tilts and windows are improved
_ROUNDING = 1e-10  # bound of the rounding errors beyond which no Fourier transforms are used
_LARGEST = 1e-6  # bound of the error beyond which there is no result
_ATTEMPTS = 6
_PRODUCTS = 1 << 26  # largest number of products of convolutions over all counts


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """Validated table: shape, plan, likelihoods, weights of the leaves, and a bound of each count."""

    shape: Shape
    plan: Plan
    factors: Factors
    weights: Weights
    cap: Floats
    total: Integers  # public total of each node; −1 if it is not public

    def with_weights(self, weights: Weights) -> Problem:
        """Return the same table with other weights."""
        return replace(self, weights=weights, cap=caps(self.shape, self.factors, weights))


def table_problem(
    values: ArrayLike, noise: NoiseLike | Sequence[NoiseLike], parents: ArrayLike, prior: Prior | Sequence[Prior],
    n: int | None, seen: Seen | Sequence[Seen] | None, names: Sequence[str] | None = None,
) -> Problem:  # fmt: skip
    """Return the validated table; every error is raised before anything is computed."""
    y = real_array("values", values)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"values must have shape (m,), got {describe(y)}; pass one per node and NaN if not measured")
    if np.isinf(y).any():
        raise ValueError(f"values must be finite or NaN, got {y[np.isinf(y)][0]}; pass NaN if not measured")
    shape = _shape(parents, y.size, names)
    kinds = _per_node("noise", noise, y.size, Noise | Exact | None, "a Noise or EXACT", names)
    formats = _per_node("seen", "value" if seen is None else seen, y.size, str | Suppressed | Rounded,
                        "'value', 'clipped', Suppressed or Rounded", names)  # fmt: skip
    roots = np.flatnonzero(shape.parents < 0)
    if n is not None and roots.size != 1:
        raise ValueError(f"n must be None for a table with {roots.size} roots, got {n}; pass the totals with EXACT")
    size = None if n is None else validate_integer("n", n, 0, "pass the public total")
    total = np.where([isinstance(one, Exact) for one in kinds] & ~np.isnan(y), np.nan_to_num(y, nan=-1.0), -1.0)
    total = np.where([one == "value" for one in formats], total, -1.0).astype(np.int64)
    if size is not None:
        if total[roots[0]] not in (-1, size):
            raise ValueError(f"n must equal the exact total {total[roots[0]]}, got {size}; remove one of them")
        total[roots[0]] = size
    factors = likelihoods(y, _as_geometric(y, kinds, shape, total, names), formats, names)
    if size is not None:
        factors.least[roots] = np.maximum(factors.least[roots], size)
        factors.most[roots] = np.minimum(factors.most[roots], size)
        factors.limited[roots] = True
    weights = leaf_weights(prior, shape.leaves.size)
    _refuse_consistent(y, kinds, shape)
    _refuse_unbounded(shape, factors, weights, total, names)
    _refuse_impossible(shape, factors, weights, names)
    return Problem(shape, balanced_plan(shape.parents), factors, weights, caps(shape, factors, weights), total)


def _per_node(name: str, given: Any, m: int, kind: Any, allowed: str, names: Sequence[str] | None) -> list:
    """Return one entry per node, of one entry or a sequence of m, after checking their types."""
    found = list(given) if isinstance(given, list | tuple | np.ndarray) else [given] * m
    if len(found) != m:
        raise ValueError(f"{name} must be one or one per node, got {len(found)} for {m} nodes; pass {m}")
    for i, one in enumerate(found):
        if not isinstance(one, kind) or (isinstance(one, str) and one not in ("value", "clipped")):
            raise ValueError(f"{name} must be {allowed}, got {describe(one)} for {node_name(names, i)}; choose one")
    return found


def _shape(parents: ArrayLike, m: int, names: Sequence[str] | None) -> Shape:
    """Return the shape of the forest after checking that it is one."""
    above = real_array("parents", parents)
    if above.ndim == 2 or above.size != m:
        raise ValueError(f"parents must have one parent per node, shape ({m},), got {describe(above)}; pass one each")
    if not np.all((above == np.floor(above)) & (above >= -1) & (above < m)):
        raise ValueError(f"parents must be integers from -1 to {m - 1}, got another value; pass -1 for a root")
    node_parents = above.astype(np.int64)
    depth = depths(node_parents)
    if (depth < 0).any():
        name = node_name(names, int(np.flatnonzero(depth < 0)[0]))
        raise ValueError(f"parents must have no cycle, got one at {name}; every node needs a path to a root")
    is_leaf = np.ones(m, bool)
    is_leaf[node_parents[node_parents >= 0]] = False
    return Shape(node_parents, depth, np.flatnonzero(is_leaf), split_by(depth))


def _as_geometric(
    y: Floats, kinds: list, shape: Shape, total: Integers, names: Sequence[str] | None
) -> list[NoiseLike]:
    """Return the noise with K-norm noise replaced by geometric noise, which is the same given an exact total."""
    which = np.array([isinstance(one, Noise) and one.sums_to_zero for one in kinds]) & ~np.isnan(y)
    if not which.any():
        return kinds
    found = list(kinds)
    for i in np.flatnonzero(which):
        found[i] = Noise("geometric", kinds[i].scale)
    for p in np.unique(shape.parents[which]):
        family = np.flatnonzero(shape.parents == p)
        same = p >= 0 and all(kinds[i] == kinds[family[0]] for i in family) and which[family].all()
        if not (same and total[p] >= 0):
            i = family[which[family]][0]
            raise ValueError(
                f"k-norm noise must be that of all children of a node with an exact total, got it for "
                f"{node_name(names, int(i))}; pass n or EXACT for the total, or geometric noise"
            )
        if y[family].sum() != total[p]:
            raise ValueError(
                f"values with k-norm noise must sum to the total {total[p]}, got {y[family].sum():g}; check the release"
            )
    return found


def _refuse_consistent(y: Floats, kinds: list, shape: Shape) -> None:
    """Raise ValueError if all parents equal the sums of their children, although they were measured with noise."""
    inner = np.ones(y.size, bool)
    inner[shape.leaves] = False
    sums = np.zeros(y.size)
    child = shape.parents >= 0
    np.add.at(sums, shape.parents[child], y[child])
    parents = np.flatnonzero(inner)
    close = np.abs(sums[parents] - y[parents]) <= 1e-9 * np.maximum(np.abs(y[parents]), 1.0)
    if close.size and close.all() and not all(isinstance(kinds[i], Exact) for i in parents):
        raise ValueError(
            "values must be the noisy measurements, got a table in which every parent equals the sum of its children: "
            "it was made consistent after the noise, which loses information; ask for the measurements"
        )


def _refuse_unbounded(
    shape: Shape, factors: Factors, weights: Weights, total: Integers, names: Sequence[str] | None
) -> None:
    """Raise ValueError for a leaf with an improper prior that no measurement bounds, or Dirichlet without a total."""
    bounded = (factors.kind > 0) | (factors.most < FAR)
    public = total >= 0
    root = np.arange(shape.parents.size)
    for nodes in shape.levels[1:]:
        bounded[nodes] |= bounded[shape.parents[nodes]]
        root[nodes] = root[shape.parents[nodes]]
    dirichlet = shape.leaves[weights.is_dirichlet]
    missing = dirichlet[~public[root[dirichlet]]]
    if missing.size:
        raise ValueError(
            f"dirichlet_multinomial must have a public total, got none for {node_name(names, int(missing[0]))}; pass n "
            "or EXACT for the root, or negative_binomial priors with one mean/shape for an unknown total"
        )
    mixed = np.unique(root[dirichlet])
    other = shape.leaves[~weights.is_dirichlet]
    if np.isin(root[other], mixed).any():
        raise ValueError("prior must be dirichlet_multinomial for all leaves of a root or for none; choose one of them")
    free = shape.leaves[weights.is_improper & ~bounded[shape.leaves]]
    if free.size:
        raise ValueError(
            f"every leaf must have a measurement at or above it, or a proper prior, got neither for "
            f"{node_name(names, int(free[0]))}; pass uniform(upper) or negative_binomial"
        )


def _refuse_impossible(shape: Shape, factors: Factors, weights: Weights, names: Sequence[str] | None) -> None:
    """Raise ValueError if invariants and bounds contradict each other; tighten the limits of `factors`."""
    m = shape.parents.size
    low, high = np.zeros(m), np.zeros(m)
    high[shape.leaves] = np.where(weights.upper < FAR, weights.upper, np.inf)
    for level in range(len(shape.levels) - 1, -1, -1):
        nodes = shape.levels[level]
        most = np.where(factors.most[nodes] < FAR, factors.most[nodes], np.inf)
        bad = (low[nodes] > most) | (high[nodes] < factors.least[nodes])
        if bad.any():
            i = int(nodes[np.flatnonzero(bad)[0]])
            first, last = factors.least[i], factors.most[i]
            asked = f"{first}" if first == last else f"{first} to {last if last < FAR else 'any count'}"
            raise ValueError(
                f"{node_name(names, i)} must be reached by its parts, got {asked} where they allow {low[i]:g} to "
                f"{high[i]:g}; check the invariants and bounds"
            )
        low[nodes] = np.maximum(low[nodes], factors.least[nodes])
        high[nodes] = np.minimum(high[nodes], most)
        if level:
            np.add.at(low, shape.parents[nodes], low[nodes])
            np.add.at(high, shape.parents[nodes], high[nodes])
    factors.least[:] = low
    for level in range(len(shape.levels)):
        nodes = shape.levels[level]
        if level:
            high[nodes] = np.minimum(high[nodes], high[shape.parents[nodes]])
        factors.most[nodes] = np.where(np.isfinite(high[nodes]), np.minimum(high[nodes], FAR), FAR)


def solve(problem: Problem, tilts: Tilts | None = None) -> Messages:
    """Return the messages of a table; tilts, windows and convolutions are improved until the error bound is small."""
    shape, factors, weights = problem.shape, problem.factors, problem.weights
    tilt, guess, spread = tilts or solve_tilts(shape, factors, weights, problem.cap)
    above = np.maximum(shape.parents[shape.leaves], 0)
    is_root = shape.parents[shape.leaves] < 0
    best: Messages | None = None
    is_last, centred = False, tilt
    small = _OMITTED[0] + _OMITTED[1] * shape.parents.size
    for attempt in range(_ATTEMPTS):
        on_leaf = np.where(is_root, 0.0, tilt[above])
        windows = leaf_windows(shape, factors, weights, problem.cap, on_leaf, guess, spread)
        is_last = is_last or attempt == _ATTEMPTS - 1
        if is_last and (best is None or best.omitted > _LARGEST):  # the tilts are far off
            reach = 8.0 * (windows[1] - windows[0]) + 64.0
            first = np.maximum(windows[0] - reach, factors.least[shape.leaves])
            windows = first, np.minimum(windows[1] + reach, np.floor(problem.cap[shape.leaves]))
        need = 8.0 * 2.5 * float((windows[1] - windows[0] + 1.0).sum()) * max(1.0, _extent(problem))
        if need > MEMORY:
            raise ValueError(
                f"the table must fit in {MEMORY / 1e9:g} GB of memory, got a forecast of {need / 1e9:.3g} GB; "
                "split it, or choose a prior with a smaller range"
            )
        found = pass_messages(shape, problem.plan, factors, weights, problem.cap, tilt, windows, is_last)
        if found is not None and (best is None or found.error < best.error):
            best = found
        if best is None:
            continue
        if attempt == _ATTEMPTS - 2 and best.error <= _ROUNDING:
            break
        if is_last or best.omitted <= max(small, 0.1 * best.rounding):
            if is_last or best.rounding <= _ROUNDING:
                break
            is_last = True
        elif found is best and best.rounding > _ROUNDING:
            is_last = True
        elif found is best:  # centre the convolutions on the posterior of this attempt
            mean, _ = message_moments(best, best.marginal)
            centred = tilt
            tilt = _recentre(shape, factors, tilt, mean, *message_moments(best, best.up))
            guess = mean[shape.leaves]
        else:
            tilt = 0.5 * (tilt + centred)
    if best is None or best.omitted > max(small, 0.1 * best.rounding) or best.rounding > _ROUNDING:
        ends = _all_counts(problem)
        modal = None if ends is None else _mode_tilts(problem, *ends)
        if ends is not None and modal is not None:
            whole = ends[0][shape.leaves].astype(np.float64), ends[1][shape.leaves].astype(np.float64)
            found = pass_messages(shape, problem.plan, factors, weights, problem.cap, modal, whole, True)
            if found is not None and (best is None or found.error < best.error):
                best = found
    if best is None or best.error > _LARGEST:
        raise ValueError(
            "the measurements must be possible together, got a table whose levels contradict each other beyond "
            "double precision; check the values and scales of the noise"
        )
    return best


def _all_counts(problem: Problem) -> tuple[Integers, Integers] | None:
    """Return the first and last possible count of each node of the plan; None if their convolutions are too long."""
    plan, factors, shape = problem.plan, problem.factors, problem.shape
    m = shape.parents.size
    first, last = np.zeros(plan.left.size), np.zeros(plan.left.size)
    first[:m], last[:m] = factors.least, np.minimum(np.floor(problem.cap), factors.most)
    products = 0.0
    for nodes in plan.batches[1:]:
        left, right = plan.left[nodes], plan.right[nodes]
        both = right >= 0
        low, high = (end[left] + np.where(both, end[right], 0.0) for end in (first, last))
        products += float(
            ((last[left] - first[left] + 1.0) * np.where(both, last[right] - first[right] + 1.0, 1)).sum()
        )
        real = nodes < m
        first[nodes] = np.where(real, np.maximum(low, first[nodes]), low)
        last[nodes] = np.where(real, np.minimum(high, factors.most[np.where(real, nodes, 0)]), high)
    if not products <= _PRODUCTS or (last[:m] - first[:m]).max() > _PRODUCTS:
        return None
    return first.astype(np.int64), last.astype(np.int64)


def _mode_tilts(problem: Problem, first: Integers, last: Integers) -> Floats | None:
    """Return the tilts at about the most probable table, by messages of the logarithms of all weights.

    Log weights f of a node are those h of its children's total and its likelihood g: f = h + g. With slopes (ln) as
    intervals from one side of the mode to the other, −λ of the children is in h' and in −λ_parent − g'.
    """
    plan, factors, shape = problem.plan, problem.factors, problem.shape
    m, leaf = shape.parents.size, {int(node): j for j, node in enumerate(shape.leaves)}
    f: list[Floats] = [np.empty(0)] * plan.left.size
    h, g, begin = list(f), list(f), first.copy()  # h begins at `begin`, before the limits of the node
    for batch in plan.batches:
        for i in batch:
            a, b, counts = plan.left[i], plan.right[i], np.arange(first[i], last[i] + 1)
            if a < 0:
                h[i] = problem.weights.log(np.full(counts.size, leaf[int(i)]), counts)
            else:
                begin[i] = first[a] + (first[b] if b >= 0 else 0)
                h[i] = f[a] if b < 0 else kernels.log_convolve(f[a], f[b])
            g[i] = factors.log(np.full(counts.size, i), counts) if i < m else np.zeros(counts.size)
            f[i] = h[i][first[i] - begin[i] : last[i] + 1 - begin[i]] + g[i]
            if not f[i].max() > -np.inf:
                return None
    mode = np.array([first[i] + np.argmax(f[i]) for i in range(plan.left.size)])
    tilt = np.zeros(m)
    for batch in plan.batches[:0:-1]:
        for i in batch:
            a, b, t = plan.left[i], plan.right[i], mode[i]
            mode[a] = t
            if b >= 0:
                s = np.arange(max(first[a], t - last[b]), min(last[a], t - first[b]) + 1)
                mode[a] = s[np.argmax(f[a][s - first[a]] + f[b][t - s - first[b]])]
                mode[b] = t - mode[a]
            if i < m:
                outer = 0.0 if plan.owner[i] < 0 else -tilt[plan.owner[i]]
                (h_low, h_high), (g_low, g_high) = _slopes(h[i], t - begin[i]), _slopes(g[i], t - first[i])
                low, high = max(h_low, outer - g_high), min(h_high, outer - g_low)
                is_finite = np.isfinite(low) and np.isfinite(high)
                tilt[i] = -(0.5 * (low + high) if is_finite else np.clip(outer, low, high))
    return tilt


def _slopes(values: Floats, at: int) -> tuple[float, float]:
    """Return the differences after and before one of the values; infinite at the ends."""
    after = values[at + 1] - values[at] if at + 1 < values.size else -np.inf
    before = values[at] - values[at - 1] if at > 0 else np.inf
    return float(after), float(before)


def _recentre(shape: Shape, factors: Factors, tilt: Floats, target: Floats, mean: Floats, variance: Floats) -> Floats:
    """Return tilts with which the totals of the children have about the target means, by one bounded Newton step."""
    total, spread = np.zeros(tilt.size), np.zeros(tilt.size)
    child = shape.parents >= 0
    np.add.at(total, shape.parents[child], mean[child])
    np.add.at(spread, shape.parents[child], variance[child])
    known = spread > 1e-9
    limit = 5.0 / np.sqrt(np.where(known, spread, 1.0))
    step = np.where(known, np.clip((target - total) / np.where(known, spread, 1.0), -limit, limit), 0.0)
    return level_tilts(shape, factors, tilt + step)


def _extent(problem: Problem) -> float:
    """Return the number of levels of pairs that hold messages as long as those of the leaves, about."""
    return min(4.0, 1.0 + 0.5 * len(problem.plan.batches))


def message_moments(messages: Messages, values: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of the marginals of the nodes of the table."""
    m = messages.log_weight.size
    mean, variance = np.empty(m), np.empty(m)
    kernels.moments(values, messages.start[:m], messages.offset[:m], messages.size[:m], mean, variance)
    return mean, variance
