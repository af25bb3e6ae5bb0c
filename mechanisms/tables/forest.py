"""Forests of counts, and the balanced binary trees in which the children of each node are combined pairwise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mechanisms.arguments import Integers

_PART = 1 << 17  # number of leaves below which all messages of a part are in memory at once


@dataclass(frozen=True, eq=False, repr=False)
class Forest:
    """Forest of m nodes, and its binary forest with further nodes m, m + 1, … for pairs of children of `owner`.

    The binary forest is divided into parts, each with all nodes below its roots; the last part has the nodes above all
    others. A part is a sequence of batches of nodes of equal height.
    """

    parents: Integers
    leaves: Integers
    inner: np.ndarray  # True for nodes of the table with children
    levels: tuple[Integers, ...]  # nodes of each depth
    left: Integers
    right: Integers  # −1 for a node with one child
    owner: Integers  # parent in the table, for which the node's message is tilted; −1 for roots
    batches: tuple[Integers, ...]
    parts: tuple[tuple[Integers, ...], ...] = ()
    part_roots: tuple[Integers, ...] = ()  # of each part but the last

    def add_up(self, values: np.ndarray, level: int) -> None:
        """Add the values of the nodes of a level to those of their parents."""
        nodes = self.levels[level]
        np.add.at(values, self.parents[nodes], values[nodes])

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values of leaves over the leaves of each node."""
        found = np.zeros(self.parents.size)
        found[self.leaves] = values
        for level in range(len(self.levels) - 1, 0, -1):
            self.add_up(found, level)
        return found

    def root_of(self) -> Integers:
        """Return the root above each node."""
        root = np.arange(self.parents.size)
        for nodes in self.levels[1:]:
            root[nodes] = root[self.parents[nodes]]
        return root

    def divided(self, groups: Integers | None = None) -> Forest:
        """Return the forest with one part per node of `groups`, or with parts of at most `_PART` leaves."""
        n = self.left.size
        above, batches = _above(self.left, self.right), self.batches
        count = np.zeros(n, np.int64)
        count[batches[0]] = 1
        for nodes in batches[1:]:
            count[nodes] = count[self.left[nodes]] + np.where(self.right[nodes] >= 0, count[self.right[nodes]], 0)
        if groups is None:
            small = np.append(count <= _PART, False)  # the last entry is for nodes without a node above
            roots = np.flatnonzero(small[:n] & ~small[above])
            number = (np.cumsum(count[roots]) - 1) // _PART
        else:
            roots, number = groups, np.arange(groups.size)
        names, number = np.unique(number, return_inverse=True)
        part = np.full(n + 1, names.size)
        part[roots] = number
        is_root = np.zeros(n, bool)
        is_root[roots] = True
        for nodes in batches[:0:-1]:
            for child in (self.left[nodes], self.right[nodes]):
                known = (child >= 0) & ~is_root[child]
                part[child[known]] = part[nodes[known]]
        parts: list[list[Integers]] = [[] for _ in range(names.size + 1)]
        for nodes in batches:
            order = np.argsort(part[nodes], kind="stable")
            of, first = np.unique(part[nodes][order], return_index=True)
            for k, batch in zip(of, np.split(nodes[order], first[1:]), strict=True):
                parts[k].append(batch)
        part_roots = tuple(roots[number == k] for k in range(names.size))
        return replace(self, parts=tuple(map(tuple, parts)), part_roots=part_roots)


def grow_forest(parents: Integers) -> Forest | int:
    """Return the forest, or a node on or below a cycle."""
    m = parents.size
    depth = _depths(parents)
    if (depth < 0).any():
        return int(np.argmin(depth))
    inner = np.zeros(m, bool)
    inner[parents[parents >= 0]] = True
    left, right = np.full((2, 2 * m), -1)
    owner = np.concatenate([parents, np.full(m, -1)])
    items = np.argsort(parents, kind="stable")
    items = items[parents[items] >= 0]
    of, following = parents[items], m
    while items.size:
        first = np.flatnonzero(np.diff(of, prepend=-1))
        count = np.diff(np.append(first, of.size))
        rank, size = np.arange(of.size) - np.repeat(first, count), np.repeat(count, count)
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
    height = np.zeros(following, np.int64)
    for nodes in _split_by(_depths(_above(left, right)))[::-1]:
        one = nodes[left[nodes] >= 0]
        other = np.where(right[one] >= 0, right[one], left[one])
        height[one] = 1 + np.maximum(height[left[one]], height[other])
    whole, levels = _split_by(height), _split_by(depth)
    return Forest(parents, np.flatnonzero(~inner), inner, levels, left, right, owner, whole).divided()


def _above(left: Integers, right: Integers) -> Integers:
    """Return the node above each node of a binary forest; −1 for roots."""
    above = np.full(left.size, -1)
    for child in (left, right):
        known = child >= 0
        above[child[known]] = np.flatnonzero(known)
    return above


def _depths(parents: Integers) -> Integers:
    """Return the depth of each node of a forest, −1 for nodes on a cycle or below one, by doubling of paths."""
    above, depth = parents.copy(), (parents >= 0).astype(np.int64)
    for _ in range(parents.size.bit_length() + 1):
        is_open = above >= 0
        depth[is_open] += depth[above[is_open]]
        above[is_open] = above[above[is_open]]
    depth[above >= 0] = -1
    return depth


def _split_by(rank: Integers) -> tuple[Integers, ...]:
    """Return the nodes of each rank 0, 1, …."""
    return tuple(np.split(np.argsort(rank, kind="stable"), np.cumsum(np.bincount(rank))[:-1]))
