"""Simulated noisy tables, and the methods of the study `noisy-tables`.

A trial is a tree of true counts with published values. Methods return an estimate, an interval and a posterior quantile
of the true count of every node. The measures are means over the nodes of a part of the table, such as a level, and the
quantile is that of one random node of each part, so that quantiles are independent over trials.

References
----------
Hay, Rastogi, Miklau & Suciu, "Boosting the accuracy of differentially private histograms through consistency", VLDB
2010: least squares on trees by two passes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from mechanisms.core.noise import Exact, Noise
from mechanisms.tables import Prior, Rounded, Suppressed, fit_prior, table_posterior
from pipeline import Method, Streams
from studies.panels import NOMINAL, Values, score_intervals

Array = np.ndarray
_REACH = float(special.ndtri(0.5 + NOMINAL / 2))


@dataclass(frozen=True)
class NoisyTable:
    """Table of one trial.

    `parts` are lists of nodes, `picked` one random node of each (−1 for an empty part) and `uniforms` numbers in (0, 1)
    for randomised quantiles. `prior` is None if it is fitted; `alone` has the prior of the count of each node.
    """

    truth: Array
    values: Array
    noise: Sequence[Noise | Exact | None]
    parents: Array
    parts: Sequence[Array]
    picked: Array
    uniforms: Array
    prior: Prior | None
    alone: Sequence[Prior] | Prior | None
    seen: Sequence[Any] | None = None


def make_table(
    rng: np.random.Generator, truth: Array, noise: Sequence[Any], parents: Array, parts: Sequence[Array], **others: Any
) -> NoisyTable:
    """Return a table with noisy values of all nodes, unless `values` are given."""
    values = others.pop("values", None)
    if values is None:
        values = truth + draw_noise(rng, noise)
    picked = np.array([rng.choice(part) if part.size else -1 for part in parts])
    return NoisyTable(truth, values, noise, parents, parts, picked, rng.random(len(parts)), **others)


def draw_noise(rng: np.random.Generator, noise: Sequence[Any]) -> Array:
    """Return noise for all nodes, 0 for exact values."""
    drawn = np.zeros(len(noise))
    kinds = np.array([f"{distribution}" for distribution in noise])
    for kind in np.unique(kinds):
        which = np.flatnonzero(kinds == kind)
        distribution = noise[which[0]]
        if isinstance(distribution, Noise):
            drawn[which] = distribution.sample(rng, (which.size,))
    return drawn


def grow_tree(leaves: Array, groups: Sequence[int]) -> tuple[Array, Array, list[Array]]:
    """Return counts, parents and levels of a tree from its leaves; a node of level j has ``groups[j]`` children."""
    counts, parents, levels, start = [leaves], [], [np.arange(leaves.size)], 0
    for size in reversed(groups):
        n = counts[-1].size
        parents.append(start + n + np.arange(n) // size)
        counts.append(counts[-1].reshape(-1, size).sum(axis=1))
        start += n
        levels.append(start + np.arange(n // size))
    return np.concatenate(counts), np.append(np.concatenate(parents), -1), levels


def measures_of(table: NoisyTable, estimate: Array, low: Array, high: Array, pit: Array) -> dict[str, Array]:
    """Return the measures of one trial, each of shape (parts,); NaN for an empty part."""
    by_node = score_intervals(table.truth, estimate, low, high)
    means = {name: np.array([of_nodes[part].mean() if part.size else np.nan for part in table.parts])
             for name, of_nodes in by_node.items()}  # fmt: skip
    return {**means, "pit": np.where(table.picked < 0, np.nan, pit)}


def _judge(table: NoisyTable, parents: Array, prior: Any, seen: Any) -> dict[str, Array]:
    """Return the measures of an exact posterior, with randomised quantiles: Pr[x < truth] + u·Pr[x = truth]."""
    posterior, pit = table_posterior(table.values, table.noise, parents, prior, seen=seen), np.empty(table.picked.size)
    for j, node in enumerate(table.picked):
        support, p = posterior.pmf(max(int(node), 0))
        at = table.truth[node]
        pit[j] = p[support < at].sum() + table.uniforms[j] * p[support == at].sum()
    return measures_of(table, posterior.mean(), *posterior.interval(NOMINAL), np.clip(pit, 0.0, 1.0))


def _tree(table: NoisyTable) -> dict[str, Array]:
    prior = table.prior or fit_prior(table.values, table.noise, table.parents, seen=table.seen)
    return _judge(table, table.parents, prior, table.seen)


def _leaf(table: NoisyTable) -> dict[str, Array]:
    return _judge(table, np.full(table.values.size, -1), table.alone, table.seen)


def _published(table: NoisyTable) -> dict[str, Array]:
    return _judge(table, table.parents, table.prior, None)


def _normal(table: NoisyTable, estimate: Array, std: Array, clip: bool = False) -> dict[str, Array]:
    """Return the measures of normal intervals, with ends and estimates clipped at 0 if asked for."""
    low, high = estimate - _REACH * std, estimate + _REACH * std
    at = table.picked
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (table.truth[at] - estimate[at]) / std[at]
    pit = special.ndtr(np.where(np.isnan(z), 0.0, z))
    if clip:
        estimate, low, high = (np.maximum(ends, 0.0) for ends in (estimate, low, high))
    return measures_of(table, estimate, low, high, pit)


def _variances(table: NoisyTable) -> Array:
    """Return the variance of the noise of each value; 0 for exact values and ∞ for missing ones."""
    variances = np.array([np.inf if kind is None else 0.0 if isinstance(kind, Exact) else variance(kind)
                      for kind in table.noise])  # fmt: skip
    return np.where(np.isnan(table.values), np.inf, variances)


def variance(noise: Noise) -> float:
    """Return the variance of one component: 1/(2·sinh²(1/(2·scale))) for geometric noise."""
    return 0.5 / np.sinh(0.5 / noise.scale) ** 2 if noise.is_integer and noise.is_pure else noise.density_variance


def least_squares(values: Array, variances: Array, parents: Array) -> tuple[Array, Array]:
    """Return generalised least squares estimates of all nodes of a tree, and their variances, by two passes."""
    m = values.size
    depth = np.zeros(m, np.int64)
    above = parents.copy()
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parents[above], -1)
    inner = np.isin(np.arange(m), parents)
    below, spread = np.zeros(m), np.zeros(m)
    up, var = np.where(inner, 0.0, values), np.where(inner, 0.0, variances)
    levels = [np.flatnonzero(depth == d) for d in range(depth.max() + 1)]
    for nodes in levels[::-1]:
        summed = nodes[inner[nodes]]
        measured = np.isfinite(variances[summed])
        gain = np.where(measured, spread[summed] / np.where(measured, spread[summed] + variances[summed], 1.0), 0.0)
        up[summed] = below[summed] + gain * (np.where(measured, values[summed], 0.0) - below[summed])
        var[summed] = spread[summed] * (1.0 - gain)
        child = nodes[parents[nodes] >= 0]
        np.add.at(below, parents[child], up[child])
        np.add.at(spread, parents[child], var[child])
    estimate, final = up.copy(), var.copy()
    for nodes in levels[1:]:
        p = parents[nodes]
        share = var[nodes] / np.where(spread[p] > 0.0, spread[p], 1.0)
        estimate[nodes] = up[nodes] + share * (estimate[p] - below[p])
        final[nodes] = var[nodes] - share**2 * (spread[p] - final[p])
    return estimate, np.maximum(final, 0.0)


def _squares(table: NoisyTable, clip: bool) -> dict[str, Array]:
    estimate, var = least_squares(table.values, _variances(table), table.parents)
    return _normal(table, estimate, np.sqrt(var), clip)


def _naive(table: NoisyTable) -> dict[str, Array]:
    std = np.sqrt(_variances(table))
    missing = ~np.isfinite(std)
    return _normal(table, np.where(missing, 0.0, table.values), np.where(missing, 0.0, std))


def _each(
    evaluate: Callable[[NoisyTable], dict[str, Array]], data: Sequence[NoisyTable], setting: Values,
    streams: Streams,
) -> dict[str, Array]:  # fmt: skip
    rows = [evaluate(table) for table in data]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


_METHODS = (
    ("tree", _tree, "Exact posterior of the whole table."),
    ("published", _published,
     "Exact posterior that takes published values as noisy ones, and suppressed values as missing."),
    ("least-squares", partial(_squares, clip=False), "Generalised least squares on the tree, by two passes."),
    ("least-squares-clipped", partial(_squares, clip=True), "The same, with estimates and intervals clipped at 0."),
    ("leaf", _leaf, "Exact posterior of each node, given its own value only."),
    ("naive", _naive, "Published value, with an interval of the noise."),
)  # fmt: skip
METHODS = {name: Method(name, partial(_each, evaluate), note=note) for name, evaluate, note in _METHODS}
"""Methods by name."""
FITTED = replace(METHODS["tree"], version=2)
"""The method `tree` where the prior is fitted in each trial."""


def round_value(form: Any, values: Array) -> Array:
    """Return integers as published in a format: clipped, suppressed (NaN) or rounded, ties to even multiples."""
    if isinstance(form, Suppressed):
        return np.where(values < form.threshold, np.nan, values)
    if isinstance(form, Rounded):
        return form.base * np.rint(values / form.base)
    return np.maximum(values, 0.0) if form == "clipped" else values
