"""Inference of noisy tables by users, of kind ``table``, in the panels of `noisy-tables`."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mechanisms.core.arguments import real_array, returned_array
from pipeline import Method, Streams
from studies.noisy_tables.table_trials import Array, NoisyTable, measures_of
from studies.own_methods import Draws, Intervals, OwnMethod, PublishedTable, evaluate_trials
from studies.panels import NOMINAL, Values

_ENDS = 0.5 - NOMINAL / 2, 0.5 + NOMINAL / 2


def table_method(own: OwnMethod) -> Method:
    """Return the method of a panel of `noisy-tables`."""
    return own.method(partial(_evaluate, own), supports=lambda cell, setting: own.applies(cell))


def _evaluate(own: OwnMethod, tables: Sequence[NoisyTable], setting: Values, streams: Streams) -> dict[str, Any]:
    n_parts = len(tables[0].parts)

    def evaluate(i: int, rng: np.random.Generator, uniforms: Array) -> dict[str, Array]:
        table = tables[i]
        public = PublishedTable(table.values, table.noise, table.parents, table.seen)
        result = own.fit(rng, public, table.prior)
        if isinstance(result, Intervals):
            estimate, low, high = _checked(own, result, table.truth.size)
            return measures_of(table, estimate, low, high, np.full(n_parts, np.nan))
        draws = Draws.of(own, result, table.truth.size)
        # draws are integers: ends are draws, so that intervals have at least the nominal probability
        low, high = np.quantile(draws.pooled, _ENDS, axis=0, method="inverted_cdf")
        of_nodes = [draws.quantile(node, table.truth[node], u) for node, u in zip(table.picked, uniforms, strict=True)]
        return measures_of(table, draws.pooled.mean(axis=0), low, high, np.array(of_nodes))

    return evaluate_trials(evaluate, n_parts, streams)


def _checked(own: OwnMethod, intervals: Intervals, n_nodes: int) -> tuple[Array, ...]:
    """Return estimate, low and high as arrays; raise ValueError for other shapes, and for ends in another order."""
    arrays = []
    for name in ("estimate", "low", "high"):
        label = f"{name} of {own.name}"
        array = real_array(label, returned_array(label, getattr(intervals, name)))
        if array.shape != (n_nodes,) or not np.isfinite(array).all():
            raise ValueError(f"{label} must be {n_nodes} finite numbers, one per node, got shape {array.shape}")
        arrays.append(array)
    if (arrays[1] > arrays[2]).any():
        raise ValueError(f"intervals of {own.name} must have low <= high, got {(arrays[1] > arrays[2]).sum()} others")
    return tuple(arrays)
