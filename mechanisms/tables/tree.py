"""Validated tables of counts that add up on a tree, given noisy values at any of its nodes.

Leaves have independent priors w(x), a node is the sum of its children, and a measured node v contributes the likelihood
g_v(y_v | x_v), see `likelihoods`; `priors` contains the weights, and `solve` computes the posterior. Every error is
raised before anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers, describe, real_array
from mechanisms.core.noise import Exact, Noise
from mechanisms.tables.forest import Forest, grow_forest, select
from mechanisms.tables.likelihoods import (
    FAR,
    FORMATS,
    Factors,
    NoiseLike,
    Seen,
    likelihoods,
    node_name,
    refuse_large,
    validate_count,
)
from mechanisms.tables.priors import Prior, Weights, leaf_weights

Names = Sequence[str] | None

_PART = 1 << 17  # number of leaves of a part, whose marginals are computed at once
_CHANCE = float(np.log(1e-3))  # log probability of a consistent table below which it is refused


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Validated table: forest, likelihoods and public totals, and the weights of the leaves.

    With several options of weights, those of different parts of the forest are independent, with probabilities before
    the measurements in `before`.
    """

    forest: Forest
    factors: Factors
    total: Integers  # public total of each node; −1 if it is not public
    options: tuple[Weights, ...]
    parts: tuple[tuple[int, Integers], ...]  # root and nodes of parts whose messages are computed one after the other
    log_constant: float = 0.0  # to add to ln p(y), for K-norm noise replaced by geometric noise
    before: Floats | None = None  # probabilities of the options of each part, shape (parts, options)

    @property
    def weights(self) -> Weights:
        """Weights of the leaves, of the middle option."""
        return self.options[len(self.options) // 2]

    def groups(self) -> tuple[tuple[int, Integers], ...]:
        """Return the children of roots, and the roots that are leaves, each with all nodes below it."""
        parents, left = self.forest.parents, self.forest.left[: self.forest.m]
        nodes = np.flatnonzero(np.where(parents < 0, left < 0, parents[parents] < 0))
        return tuple(zip(nodes.tolist(), self.forest.below(nodes), strict=True))

    def part(self, nodes: Integers) -> Table:
        """Return the table of a node and all nodes below it, in ascending order, without the others."""
        total = self.total[nodes[nodes < self.forest.m]]
        options = tuple(select(weights, nodes) for weights in self.options)
        return _divided(self.forest.part(nodes), select(self.factors, nodes), total, options)


def _divided(
    forest: Forest, factors: Factors, total: Integers, options: tuple[Weights, ...], log_constant: float = 0.0
) -> Table:
    """Return the table with parts of at most `_PART` leaves, if it is larger."""
    count = forest.add_up(forest.left < 0)
    roots = np.flatnonzero((count <= _PART) & (forest.from_above(count, 0.0) > _PART))
    parts = tuple(zip(roots.tolist(), forest.below(roots), strict=True))
    return Table(forest, factors, total, options, parts, log_constant)


def read_table(
    values: ArrayLike, noise: NoiseLike | Sequence[NoiseLike], parents: ArrayLike, prior: Prior | Sequence[Prior],
    n: int | None, seen: Seen | Sequence[Seen] | None, names: Names = None,
) -> Table:  # fmt: skip
    """Return the validated table."""
    y = real_array("values", values)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"values must have shape (m,), got {describe(y)}; pass one per node and NaN if not measured")
    refuse_large(y, names)
    forest = _forest(parents, y.size, names)
    kinds = _per_node("noise", noise, y.size, Noise | Exact | None, "a Noise or EXACT", names)
    formats = _per_node("seen", "value" if seen is None else seen, y.size, str | FORMATS,
                        "'value', 'clipped', Suppressed, Rounded, RandomRounded or SmallRounded", names)  # fmt: skip
    roots = np.flatnonzero(forest.parents < 0)
    if n is not None and roots.size != 1:
        raise ValueError(f"n must be None for a table with {roots.size} roots, got {n}; pass the totals with EXACT")
    size = None if n is None else validate_count("n", n, "pass the public total")
    total = np.where([isinstance(kind, Exact) for kind in kinds] & ~np.isnan(y), np.nan_to_num(y, nan=-1.0), -1.0)
    total = np.where([form == "value" for form in formats], total, -1.0).astype(np.int64)
    if size is not None:
        if total[roots[0]] not in (-1, size):
            raise ValueError(f"n must equal the exact total {total[roots[0]]}, got {size}; remove one of them")
        total[roots[0]] = size
    plain, log_constant = _as_geometric(y, kinds, forest, total, names)
    pairs = forest.above.size - y.size  # nodes without values
    factors = likelihoods(
        np.append(y, np.full(pairs, np.nan)), plain + [None] * pairs, formats + ["value"] * pairs, names
    )
    if size is not None:
        factors.least[roots] = np.maximum(factors.least[roots], size)
        factors.most[roots] = np.minimum(factors.most[roots], size)
        factors.is_limited[roots] = True
    weights = leaf_weights(prior, forest.leaves, forest.above.size)
    _refuse_consistent(y, plain, formats, forest)
    _refuse_unbounded(forest, factors, weights, total, names)
    _refuse_impossible(forest, factors, weights, names)
    return _divided(forest, factors, total, (weights,), log_constant)


def _per_node(name: str, given: Any, m: int, kind: Any, allowed: str, names: Sequence[str] | None) -> list:
    """Return one entry per node, of one entry or a sequence of m, after checking their types."""
    entries = list(given) if isinstance(given, list | tuple | np.ndarray) else [given] * m
    if len(entries) != m:
        raise ValueError(f"{name} must be one or one per node, got {len(entries)} for {m} nodes; pass {m}")
    for i, entry in enumerate(entries):
        if not isinstance(entry, kind) or (isinstance(entry, str) and entry not in ("value", "clipped")):
            raise ValueError(f"{name} must be {allowed}, got {describe(entry)} for {node_name(names, i)}; choose one")
    return entries


def _forest(parents: ArrayLike, m: int, names: Names) -> Forest:
    """Return the forest after checking that it is one."""
    above = real_array("parents", parents)
    if above.ndim == 2 or above.size != m:
        raise ValueError(f"parents must have one parent per node, shape ({m},), got {describe(above)}; pass one each")
    if not np.all((above == np.floor(above)) & (above >= -1) & (above < m)):
        raise ValueError(f"parents must be integers from -1 to {m - 1}, got another value; pass -1 for a root")
    forest = grow_forest(above.astype(np.int64))
    if isinstance(forest, int):
        name = node_name(names, forest)
        raise ValueError(f"parents must have no cycle, got one at {name}; every node needs a path to a root")
    return forest


def _as_geometric(
    y: Floats, kinds: list, forest: Forest, total: Integers, names: Sequence[str] | None
) -> tuple[list[NoiseLike], float]:
    """Return the noise with K-norm noise replaced by geometric noise, and the log ratio of their densities."""
    has_k_norm = np.array([isinstance(kind, Noise) and kind.sums_to_zero for kind in kinds]) & ~np.isnan(y)
    if not has_k_norm.any():
        return kinds, 0.0
    geometric, log_constant = list(kinds), 0.0
    for i in np.flatnonzero(has_k_norm):
        geometric[i] = Noise("geometric", kinds[i].scale)
    for p in np.unique(forest.parents[has_k_norm]):
        family = np.flatnonzero(forest.parents == p)
        same = p >= 0 and all(kinds[i] == kinds[family[0]] for i in family) and has_k_norm[family].all()
        if not (same and total[p] >= 0):
            i = family[has_k_norm[family]][0]
            raise ValueError(
                f"k-norm noise must be that of all children of a node with an exact total, got it for "
                f"{node_name(names, int(i))}; pass n or EXACT for the total, or geometric noise"
            )
        log_constant += k_norm_constant(kinds[family[0]].scale, family.size)
        if y[family].sum() != total[p]:
            raise ValueError(
                f"values with k-norm noise must sum to the total {total[p]}, got {y[family].sum():g}; check the release"
            )
    return geometric, log_constant


def k_norm_constant(scale: float, d: int) -> float:
    """Return the log of the probability of d values with K-norm noise over that with independent geometric noise.

    Both are proportional to exp(−Σ|z|/scale); only the former sum to zero.
    """
    return d * Noise("geometric", scale).log_normaliser(1) - Noise("k-norm", scale).log_normaliser(d)


def _refuse_consistent(y: Floats, kinds: list, formats: list, forest: Forest) -> None:
    """Raise ValueError if all noisy parents equal the sums of their children and noise hardly explains it.

    Only families of several children whose members all have plain values count. The probability that noise makes the
    sum of a family equal is at most the largest probability of the noise of any member, which is 0 for real numbers.
    """
    plain = np.array([form == "value" for form in formats]) & ~np.isnan(y)
    child = np.flatnonzero(forest.parents >= 0)
    above = forest.parents[child]
    is_sum = (forest.left[: y.size] >= 0) & (forest.right[: y.size] >= 0)  # a node with one child is measured again
    family = is_sum & plain & np.array([isinstance(kind, Noise) for kind in kinds])
    np.logical_and.at(family, above, plain[child])
    sums = np.zeros(y.size)
    np.add.at(sums, above, np.where(plain[child], y[child], 0.0))
    gap = np.abs(sums - y)[family] - 1e-9 * np.maximum(np.abs(y[family]), 1.0)
    if not gap.size or (gap > 0.0).any():
        return
    most = {
        kind: -kind.log_normaliser(1) if kind.is_integer else -np.inf for kind in set(kinds) if isinstance(kind, Noise)
    }
    log_equal = np.array([most.get(kind, 0.0) for kind in kinds])
    np.minimum.at(log_equal, above, log_equal[child])
    if log_equal[family].sum() < _CHANCE:
        raise ValueError(
            "values must be the noisy measurements, got a table in which every parent equals the sum of its children: "
            "it was made consistent after the noise, which loses information; ask for the measurements, or omit the "
            "parents (infer: --totals sums) if they were only added up from the children"
        )


def _refuse_unbounded(
    forest: Forest, factors: Factors, weights: Weights, total: Integers, names: Sequence[str] | None
) -> None:
    """Raise ValueError for a leaf with an improper prior that no measurement bounds, or Dirichlet without a total."""
    bounded = (factors.kind >= 0) | (factors.most < FAR)
    for nodes in forest.levels[1:]:
        bounded[nodes] |= bounded[forest.above[nodes]]
    root = forest.root_of()
    is_dirichlet = weights.is_dirichlet
    missing = np.flatnonzero(is_dirichlet & (total[root] < 0))
    if missing.size:
        raise ValueError(
            f"dirichlet_multinomial must have a public total, got none for {node_name(names, int(missing[0]))}; pass n "
            "or EXACT for the root, or negative_binomial priors with one mean/shape for an unknown total"
        )
    if np.isin(root[~is_dirichlet & (forest.left < 0)], root[is_dirichlet]).any():
        raise ValueError("prior must be dirichlet_multinomial for all leaves of a root or for none; choose one of them")
    free = np.flatnonzero(weights.is_improper & ~bounded)
    if free.size:
        raise ValueError(
            f"every leaf must have a measurement at or above it, or a proper prior, got neither for "
            f"{node_name(names, int(free[0]))}; use a prior with a finite mean, such as a negative binomial one"
        )


def _refuse_impossible(forest: Forest, factors: Factors, weights: Weights, names: Sequence[str] | None) -> None:
    """Raise ValueError if invariants and bounds contradict each other; tighten the limits of `factors`."""
    low, high = np.zeros(forest.above.size), np.where(forest.left < 0, weights.upper, 0.0)
    high[high >= FAR] = np.inf
    for nodes in forest.levels[::-1]:
        most = np.where(factors.most[nodes] < FAR, factors.most[nodes], np.inf)
        bad = (low[nodes] > most) | (high[nodes] < factors.least[nodes])
        if bad.any():
            i = int(nodes[np.flatnonzero(bad)[0]])
            first, last = factors.least[i], factors.most[i]
            asked = f"{first}" if first == last else f"{first} to {last if last < FAR else 'any count'}"
            is_single = forest.left[i] >= 0 and forest.right[i] < 0
            others = "other values of this count allow" if is_single else "its parts allow"
            allowed = f"{low[i]:g}" if low[i] == high[i] else f"{low[i]:g} to {high[i]:g}"
            raise ValueError(
                f"values without noise must be possible together, got {asked} for {node_name(names, i)}, where "
                f"{others} {allowed}; check the exact values and the bounds"
            )
        low[nodes] = np.maximum(low[nodes], factors.least[nodes])
        high[nodes] = np.minimum(high[nodes], most)
        child = nodes[forest.above[nodes] >= 0]
        np.add.at(low, forest.above[child], low[child])
        np.add.at(high, forest.above[child], high[child])
    factors.least[:] = low
    for nodes in forest.levels[1:]:
        high[nodes] = np.minimum(high[nodes], high[forest.above[nodes]])
    factors.most[:] = np.minimum(high, FAR)
