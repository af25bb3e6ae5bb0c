"""Messages and marginals of a table, of which parts may have several options of leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mechanisms.core.arguments import Floats, Integers
from mechanisms.tables.forest import select
from mechanisms.tables.messages import CUT, Message, Messages, Plan, Windows, add_windows
from mechanisms.tables.priors import Weights
from mechanisms.tables.tree import Table


class Start(NamedTuple):
    """Tilts of a table, and where the windows of its leaves are."""

    tilt: Floats
    near: Floats


class Solution:
    """Messages and marginals of a table; those of its parts are computed again for draws and shares.

    Each option has weights of the leaves, and a plan. With several options, those of different parts are independent:
    the messages of the root of a part are mixed by their probabilities before the measurements. A new solution has the
    messages from below; `descend` computes those from above, and the marginals.
    """

    start: Start  # for the search for tilts and windows of similar tables

    def __init__(
        self, table: Table, options: list[tuple[Weights, Plan]], is_direct: bool, cut: float = CUT
    ) -> None:  # fmt: skip
        self.table, self.options, self.is_direct, self.cut = table, options, is_direct, cut
        roots = np.array([root for root, _ in table.parts], np.int64)
        inside = np.concatenate([np.zeros(0, np.int64), *(nodes for _, nodes in table.parts)])
        is_above = np.ones(table.forest.above.size, bool)
        is_above[inside], is_above[roots] = False, True
        self.nodes = np.flatnonzero(is_above)  # above all parts, with their roots
        self.mixed: list[tuple[Floats, list[Message]]] = []  # shares and messages of the roots
        self.loaded: dict[tuple[int, int], Messages] = {}
        from_parts: dict[int, Message] = {}
        for k, (root, nodes) in enumerate(table.parts):
            at = int(np.searchsorted(nodes, root))
            messages = [self.load(k, j, keep=len(options) == 1).message(at) for j in range(len(options))]
            log_sum = np.array([message.log_sum for message in messages])
            share = np.exp(log_sum - log_sum.max()) * (1.0 if table.before is None else table.before[k])
            self.mixed.append((share / share.sum(), messages))
            mixture = _mix(*self.mixed[-1], log_sum.max() + np.log(share.sum()))
            from_parts[int(np.searchsorted(self.nodes, root))] = mixture
        self.top = self._messages(self.nodes, 0, from_parts)
        self.log_weight = float(self.top.log_sum[self.top.forest.levels[0]].sum())

    def _messages(self, nodes: Integers, option: int, from_parts: dict[int, Message]) -> Messages:
        table, (weights, plan) = self.table, self.options[option]
        return Messages(table.forest.part(nodes), select(table.factors, nodes), select(weights, nodes),
                        select(plan, nodes), self.is_direct, from_parts, self.cut)  # fmt: skip

    def load(self, part: int, option: int, keep: bool = False) -> Messages:
        """Return the messages of a part; those of others are forgotten, or kept for the way down."""
        if (part, option) not in self.loaded:
            if not keep:
                self.loaded.clear()
            self.loaded[part, option] = self._messages(self.table.parts[part][1], option, {})
        return self.loaded[part, option]

    def descend(self, largest: float = np.inf) -> None:
        """Compute marginals and the bounds of the error; raise VanishedError if these exceed `largest`."""
        top, m = self.top, self.table.total.size
        roots = np.array([root for root, _ in self.table.parts], np.int64)
        top.descend(largest=largest)
        self.omitted, self.rounding = top.omitted, top.rounding
        above = [top.out[top.offset[at] :][: top.size[at]].copy() for at in np.searchsorted(self.nodes, roots)]
        top.multiply()
        self.marginal = top.marginal
        if not roots.size:
            return
        pick = np.flatnonzero(~np.isin(self.nodes[: top.forest.m], roots))
        start, offset, size, values = top.marginal
        terms = [(1.0, self.nodes[pick], Windows(start[pick], offset[pick], size[pick], values))]
        for k, (root, nodes) in enumerate(self.table.parts):
            at, (share, messages) = int(np.searchsorted(self.nodes, root)), self.mixed[k]
            outs = [_on_window(message, int(top.start[at]), above[k]) for message in messages]
            weights = share * [message.values @ out for message, out in zip(messages, outs, strict=True)]
            for j, weight in enumerate(weights / weights.sum()):
                if weight == 0.0:
                    continue
                part = self.load(k, j)
                del self.loaded[k, j]
                part.descend(outs[j], float(top.highest[at]))
                part.multiply()
                terms.append((weight, nodes[: part.forest.m], part.marginal))
                self.omitted += weight * part.omitted
                self.rounding += weight * part.rounding
        self.marginal = add_windows(m, terms)

    @property
    def error(self) -> float:
        """Bound of the total variation distance between any marginal and the exact one."""
        return self.omitted + self.rounding

    def draw(self, rng: np.random.Generator, size: int) -> Integers:
        """Return joint draws of the counts of all nodes of the table, from the roots down, shape (size, m)."""
        counts, roots = np.empty((self.table.forest.above.size, size), np.int64), self.table.forest.levels[0]
        for i in roots:
            cumulative = np.cumsum(self.marginal.of(i))
            drawn = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
            counts[i] = self.marginal.start[i] + np.minimum(drawn, cumulative.size - 1)
        counts[self.nodes] = self.top.draw(rng, counts[self.nodes])
        for k, (root, nodes) in enumerate(self.table.parts):
            share, messages = self.mixed[k]
            p = np.zeros((len(messages), size))
            for j, message in enumerate(messages):
                at = counts[root] - message.start
                is_inside = (at >= 0) & (at < message.values.size)
                p[j, is_inside] = share[j] * message.values[at[is_inside]]
            chosen = (np.cumsum(p, axis=0) < rng.random(size) * p.sum(axis=0)).sum(axis=0)
            for j in np.unique(chosen):
                columns = np.ix_(nodes, np.flatnonzero(chosen == j))
                counts[columns] = self.load(k, int(j)).draw(rng, counts[columns])
        return np.ascontiguousarray(counts[: self.table.total.size].T)

    def splits(self, node: int) -> list[tuple[int, int, Floats]]:
        """Return the children of a node of the table, their first counts s, and Pr[child = s | node = t], shape (t, s).

        Given the count of the node, the counts of the two children of each binary node follow.
        """
        children, stack = [], [(node, np.eye(self.marginal.size[node]))]
        while stack:
            i, joint = stack.pop()
            messages, nodes = self._above(i)
            at = int(np.searchsorted(nodes, i))
            left, right = messages.forest.left[at], messages.forest.right[at]
            for child, sibling in ((left, right), (right, left))[: 1 + (right >= 0)]:
                conditional = joint @ messages.split(at, child, sibling)
                if nodes[child] >= self.table.total.size:
                    stack.append((int(nodes[child]), conditional))
                else:
                    children.append((int(nodes[child]), int(messages.start[child]), conditional))
        return sorted(children, key=lambda child: child[0])

    def _above(self, node: int) -> tuple[Messages, Integers]:
        """Return the messages of a node and its children, and all nodes that have such messages."""
        for k, (_, nodes) in enumerate(self.table.parts):
            if node in nodes:
                if len(self.options) > 1:
                    raise ValueError("shares below the groups of a fitted prior have no closed form; use evaluate")
                return self.load(k, 0), nodes
        return self.top, self.nodes


def _on_window(message: Message, start: int, values: Floats) -> Floats:
    """Return the values, which begin at the count `start`, on the window of a message, with zeros elsewhere."""
    on_window, shift = np.zeros(message.values.size), start - message.start
    low, high = max(shift, 0), min(shift + values.size, on_window.size)
    on_window[low : max(high, low)] = values[low - shift : max(high, low) - shift]
    return on_window


def _mix(share: Floats, messages: list[Message], log_sum: float) -> Message:
    """Return the mixture of messages with the log of its sum."""
    start = min(message.start for message in messages)
    values = np.zeros(max(message.start + message.values.size for message in messages) - start)
    for weight, message in zip(share, messages, strict=True):
        values[message.start - start :][: message.values.size] += weight * message.values
    lost, rounded = share @ [(message.lost, message.rounded) for message in messages]
    return Message(start, values, log_sum, lost, rounded)
