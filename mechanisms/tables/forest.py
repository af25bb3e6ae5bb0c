"""Forests of counts as binary forests, in which the children of each node are combined in pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from mechanisms.core.arguments import Integers

Columns = TypeVar("Columns", bound=tuple[Any, ...])


def select(columns: Columns, nodes: Integers | slice) -> Columns:
    """Return the entries of some nodes, of a named tuple of arrays with one entry per node."""
    return type(columns)(*(column[nodes] for column in columns))


@dataclass(frozen=True, eq=False, repr=False)
class Forest:
    """Forest in which every node has at most two children.

    The nodes 0, …, m − 1 are those of a table. If a node of the table has more than two children, the further nodes
    m, m + 1, … are their pairs, pairs of pairs, and so on.
    """

    parents: Integers  # parent of each node of the table; −1 for a root
    above: Integers  # parent of each node
    left: Integers  # children; −1 for a leaf
    right: Integers  # −1 for a node with one child, too
    levels: tuple[Integers, ...]  # nodes of each depth

    @property
    def m(self) -> int:
        """Number of nodes of the table."""
        return self.parents.size

    @property
    def leaves(self) -> Integers:
        """Nodes without children."""
        return np.flatnonzero(self.left < 0)

    def inner(self, nodes: Integers) -> Integers:
        """Return those of some nodes that have children."""
        return nodes[self.left[nodes] >= 0]

    def add_up(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values over each node and all nodes below it."""
        sums = np.array(values, dtype=np.float64)
        for nodes in self.levels[:0:-1]:
            np.add.at(sums, self.above[nodes], sums[nodes])
        return sums

    def from_above(self, values: np.ndarray, roots: float | Integers, nodes: Any = slice(None)) -> np.ndarray:
        """Return the value of the parent of each node, or of some nodes, and `roots` for roots."""
        above = self.above[nodes]
        return np.where(above < 0, roots, values[np.maximum(above, 0)])

    def root_of(self) -> Integers:
        """Return the root above each node."""
        root = np.arange(self.above.size)
        for nodes in self.levels[1:]:
            root[nodes] = root[self.above[nodes]]
        return root

    def below(self, roots: Integers) -> list[Integers]:
        """Return each of some nodes with all nodes below it, in ascending order."""
        number = np.full(self.above.size, -1)
        number[roots] = np.arange(roots.size)
        for nodes in self.levels[1:]:
            number[nodes] = np.maximum(number[nodes], number[self.above[nodes]])
        return np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number + 1))[:-1])[1:]

    def part(self, nodes: Integers) -> Forest:
        """Return the forest of some nodes, in ascending order; nodes whose parents are not among them become roots."""
        place = np.full(self.above.size + 1, -1)  # the last entry is for no node
        place[nodes] = np.arange(nodes.size)
        above, left, right = (place[column[nodes]] for column in (self.above, self.left, self.right))
        parents = place[self.parents[nodes[nodes < self.m]]]
        return Forest(parents, above, left, right, _by_depth(_depths(above)))

    def by_height(self) -> Integers:
        """Return the nodes, ordered by their largest distance from a leaf below them, from the largest."""
        height = np.zeros(self.above.size, np.int64)
        for nodes in self.levels[:0:-1]:
            np.maximum.at(height, self.above[nodes], height[nodes] + 1)
        return np.argsort(-height, kind="stable")


def grow_forest(parents: Integers) -> Forest | int:
    """Return the forest of a table, or a node on or below a cycle."""
    above, first_child = parents.copy(), np.arange(parents.size)  # first node of the table in each node
    while True:  # replace pairs of children of nodes with more than two children
        children = np.lexsort((first_child, above))
        children = children[above[children] >= 0]
        of = above[children]
        rank, count = np.arange(of.size) - np.searchsorted(of, of), np.bincount(of, minlength=above.size)[of]
        if not (count > 2).any():
            break
        first = np.flatnonzero((rank % 2 == 0) & (rank + 1 < count) & (count > 2))
        above[children[first]] = above[children[first + 1]] = above.size + np.arange(first.size)
        above, first_child = np.append(above, of[first]), np.append(first_child, first_child[children[first]])
    depth = _depths(above)
    if (depth < 0).any():
        return int(np.argmin(depth))
    left, right = np.full((2, above.size), -1)
    left[of[rank == 0]], right[of[rank == 1]] = children[rank == 0], children[rank == 1]
    return Forest(parents, above, left, right, _by_depth(depth))


def _by_depth(depth: Integers) -> tuple[Integers, ...]:
    """Return the nodes of each depth, in ascending order."""
    return tuple(np.split(np.argsort(depth, kind="stable"), np.cumsum(np.bincount(depth))[:-1]))


def _depths(above: Integers) -> Integers:
    """Return the depth of each node of a forest, −1 for nodes on a cycle or below one, by doubling of paths."""
    above, depth = above.copy(), (above >= 0).astype(np.int64)
    for _ in range(above.size.bit_length() + 1):
        is_open = above >= 0
        depth[is_open] += depth[above[is_open]]
        above[is_open] = above[above[is_open]]
    depth[above >= 0] = -1
    return depth
