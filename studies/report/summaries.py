"""Summaries of a store, and its completeness."""

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import xarray as xr

from pipeline import BadInputError, Study, summarise
from pipeline.blocks.evaluate import total_by_kind
from pipeline.declare.factors import N_VALUES, QUANTILES, format_value
from pipeline.errors import counted, unknown, verb
from pipeline.results.verdicts import summarise_panel
from pipeline.store.datasets import open_panel
from pipeline.store.result_store import ResultStore, open_complete
from pipeline.store.scan.states import count_by_status


def load_summaries(
    store: str | os.PathLike[str] | ResultStore, panels: Sequence[str] = (), study: Study | None = None
) -> dict[str, xr.Dataset]:
    """Return the summaries of a store, or of some of its panels, with the statistics that its study declares."""
    opened = store if isinstance(store, ResultStore) else open_complete(store)
    stored = opened.spec["panels"]
    for name in panels:
        if name not in stored:
            raise BadInputError(unknown("panel", name, stored))
    declared = {} if study is None else {panel.name: panel for panel in study.panels}
    return {
        name: summarise_panel(opened, declared[name]) if name in declared else summarise(open_panel(opened, name))
        for name in panels or stored
    }


def tabulate(summary: xr.Dataset) -> tuple[list[str], list[list[str]], int]:
    """Return a summary as headings, rows of text, and the number of leading columns that name the row.

    Numbers of values are shown for measures that miss some.

    Examples
    --------
    >>> ds = xr.Dataset({"x_mean": ("n", [0.5]), "x_mcse": ("n", [0.01]), "n_ok": ("n", [7])}, {"n": [3]})
    >>> tabulate(ds)
    (['n', 'x_mean', 'x_mcse', 'n_ok'], [['3', '0.500', '0.0100', '7']], 1)
    """
    names = [str(dim) for dim in summary["n_ok"].dims]
    shown = [str(name) for name, variable in summary.data_vars.items() if set(variable.dims) <= set(names)]
    shown = [name for name in shown if not _is_error_of_quantile(summary, name) and not _is_number_of_ok(summary, name)]
    columns = sorted(shown, key=lambda name: name.startswith("n_"))
    sizes = {name: summary.sizes[name] for name in names}
    cells = {
        name: summary[name].variable.set_dims(sizes).transpose(*names).values.ravel().tolist()
        for name in (*names, *columns)
    }
    texts = [*(map(format_value, cells[name]) for name in names), *(_aligned(cells[name]) for name in columns)]
    return list(cells), [list(row) for row in zip(*texts, strict=True)], len(names)


def _is_error_of_quantile(summary: xr.Dataset, name: str) -> bool:
    """Return True if a variable is the error of a quantile of a measure, whose name may also end as a quantile."""
    measures = [name.removesuffix(f"_{quantile}_mcse") for quantile in QUANTILES]
    return any(measure != name and f"{measure}_mean" in summary for measure in measures)


def _is_number_of_ok(summary: xr.Dataset, name: str) -> bool:
    """Return True if a variable is the number of values of a measure that has one in every ok trial."""
    measure = name.removesuffix(f"_{N_VALUES}")
    return measure != name and f"{measure}_mean" in summary and bool((summary[name] == summary["n_ok"]).all())


def _aligned(values: Sequence[float]) -> list[str]:
    """Format a column of numbers, with the same number of decimals if they are within four powers of ten."""
    if all(isinstance(value, int) for value in values):
        return [f"{value:,}" for value in values]
    sizes = [abs(value) for value in values if math.isfinite(value) and value]
    if not sizes or max(sizes) > 1e4 * min(sizes) or not 1e-6 <= min(sizes) <= max(sizes) < 1e6:
        return [f"{value:.4g}" for value in values]
    decimals = max(0, 2 - math.floor(math.log10(min(sizes))))
    return [f"{value:.{decimals}f}" for value in values]


class State(NamedTuple):
    """Completeness of a store: numbers of evaluations, as a headline, and as a sentence."""

    n_ok: int
    n_failed: int
    n_pending: int

    @property
    def headline(self) -> str:
        """Completeness in a few words."""
        finished = "All evaluations done, some failed." if self.n_failed else "All evaluations done."
        return "Evaluations pending." if self.n_pending else finished

    @property
    def detail(self) -> str:
        """Numbers of evaluations."""
        ok, failed, pending = self.n_ok, self.n_failed, self.n_pending
        n_all = counted(ok + failed + pending, "evaluation")
        return f"{ok:,} of {n_all} {verb(ok)} ok, {failed:,} failed, {pending:,} pending."


def state_of(store: ResultStore) -> State:
    """Count the evaluations of a store by status."""
    return State(*total_by_kind([count_by_status(store, panel) for panel in store.spec["panels"]]))
