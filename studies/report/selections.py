"""Selections from the summaries of a store, as tables and as files in several formats."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pipeline import Study, to_pandas
from pipeline.declare.factors import ENDS, N_VALUES, Factor, Kind, format_value
from pipeline.errors import BadInputError, unknown
from pipeline.store.result_store import ResultStore, open_complete
from studies.report.summaries import load_summaries
from studies.styles import label_all_methods

_COUNTS = ("n_ok", "n_failed", "n_pending")
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # a spreadsheet may execute a cell that begins with one of these characters
_KINDS: dict[str, Kind] = {"i": "int", "f": "float"}


@dataclass(frozen=True)
class Selection:
    """Summary of a panel, restricted to some cells, settings and measures."""

    panel: str
    summary: xr.Dataset
    measures: Sequence[str]

    def statistics(self, measure: str) -> dict[str, str]:
        """Return the statistics of a measure as a mapping from variable names to names of statistics."""
        names = {}
        for name in map(str, self.summary.data_vars):
            owners = [owner for owner in self.measures if name == owner or name.startswith(f"{owner}_")]
            if owners and max(owners, key=len) == measure:
                names[name] = name.removeprefix(measure).removeprefix("_") or "value"
        return names

    def frame(self, long: bool) -> pd.DataFrame:
        """Return the summary as a table with all statistics and constants.

        Statistics with an axis of their own have a column per value of it, such as ``pit_ecdf[level=0.05]``.
        """
        if not long:
            return to_pandas(self._without_axes().summary)
        parts = []
        columns: dict[str, None] = {}
        for measure in self.measures:
            without_axes = self._without_axes(measure)
            names = without_axes._columns(measure)
            part = to_pandas(without_axes.summary[[*names, *_COUNTS]]).rename(columns=names)
            part.insert(part.columns.get_loc(next(iter(names.values()))), "measure", measure)
            columns |= dict.fromkeys(names.values())
            parts.append(part)
        frame = _joined(parts)
        cells = frame.columns.drop(["measure", *columns, *_COUNTS])  # with the outputs that only some measures have
        return frame[[*cells, "measure", *columns, *_COUNTS]]

    def _columns(self, measure: str) -> dict[str, str]:
        """Return the columns of the long form for the variables of a measure; those of coordinates have other names."""
        statistics = self.statistics(measure)
        return {name: name if short in self.summary.coords else short for name, short in statistics.items()}

    def _axes(self, measure: str, name: str) -> list[str]:
        """Return the dimensions of a statistic that its measure does not have."""
        mean = f"{measure}_mean"
        return [
            str(dim) for dim in self.summary[name].dims if mean in self.summary and dim not in self.summary[mean].dims
        ]

    def _without_axes(self, *measures: str) -> "Selection":
        """Return the selection with each statistic with an axis, of all or some measures, divided along the axis."""
        divided: dict[str, xr.DataArray] = {}
        axes = {
            name: self._axes(measure, name)
            for measure in measures or self.measures
            for name in self.statistics(measure)
        }
        for name, variable in self.summary.data_vars.items():
            dims = axes.get(str(name), [])
            for values in product(*(variable[dim].values.tolist() for dim in dims)):
                at = dict(zip(dims, values, strict=True))
                label = ", ".join(f"{dim}={format_value(value)}" for dim, value in at.items())
                divided[f"{name}[{label}]" if at else str(name)] = variable.sel(at, drop=True)
        return replace(self, summary=xr.Dataset(divided, attrs=self.summary.attrs))

    def texts(self, long: bool) -> tuple[list[str], list[list[str]], int]:
        """Return headings, rows of text, and the number of columns that name the row; constants are omitted.

        Methods are named by their labels, which have the results of audits.
        """
        return replace(self, summary=label_all_methods(self.summary))._texts(long)

    def _texts(self, long: bool) -> tuple[list[str], list[list[str]], int]:
        if long:
            shown = replace(self, summary=self.summary.drop_vars(self.hidden(long)))
            constants = [str(name) for name, coord in shown.summary.coords.items() if not coord.dims]
            frame = shown.frame(long).drop(columns=constants).astype(object)
            n_names = list(frame).index("measure") + 1
            columns = {measure: set(shown._columns(measure).values()) for measure in self.measures}
            for measure, columns_of_measure in columns.items():
                others = set().union(*columns.values()) - columns_of_measure  # statistics that the measure lacks
                frame.loc[frame["measure"] == measure, sorted(others)] = ""
            frame.iloc[:, :n_names] = frame.iloc[:, :n_names].fillna("")  # outputs that it does not have
        else:
            names = list(map(str, self.summary["n_ok"].dims or self.summary.dims))  # a single cell has a row per output
            kept = [name for name, variable in self.summary.data_vars.items() if set(variable.dims) <= set(names)]
            table, n_names = to_pandas(self.summary[kept]), len(names)
            frame = table[names].copy()
            for measure in self.measures:
                if measure in table:
                    frame[measure] = table[measure]
                elif f"{measure}_mean" in table:
                    frame[measure] = _show_means(table, measure)
                    if (n_values := table[f"{measure}_{N_VALUES}"]).ne(table["n_ok"]).any():
                        frame[f"{measure} values"] = n_values
            for name in _COUNTS:
                if name == "n_ok" or table[name].any():
                    frame[name.removeprefix("n_")] = table[name]
        return list(frame), [list(map(_format, row)) for row in frame.to_numpy(object)], n_names

    def hidden(self, long: bool) -> list[str]:
        """Return the measures, or the statistics in the long form, that `texts` omits: those with several values."""
        if long:
            return [name for measure in self.measures for name in self.statistics(measure) if self._axes(measure, name)]
        return [measure for measure in self.measures if measure not in self.texts(long)[0]]

    @property
    def title(self) -> str:
        """Name and title of the panel, with its constants."""
        constants = [f"{name}={_format(coord.item())}" for name, coord in self.summary.coords.items() if not coord.dims]
        return f"{self.panel}: {self.summary.attrs['title']}" + (f" ({', '.join(constants)})" if constants else "")


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return tables one below the other; columns of integers that some tables lack remain integers."""
    integer_columns = [{name for name in frame if pd.api.types.is_integer_dtype(frame[name])} for frame in frames]
    has = [set(frame) for frame in frames]
    partly = {
        name: "Int64"
        for name in set().union(*integer_columns)
        if not all(name in columns for columns in has)
        and all(name in integers for columns, integers in zip(has, integer_columns, strict=True) if name in columns)
    }
    return pd.concat(frames, ignore_index=True).astype(partly)


def _show_means(table: pd.DataFrame, measure: str) -> pd.Series:
    """Return the means of a measure as text, with their standard errors, or intervals if it is an event."""
    means = table[f"{measure}_mean"].map(_format)
    if f"{measure}_low" not in table:
        return means + " ± " + table[f"{measure}_mcse"].map("{:.2g}".format)
    low, high = (table[f"{measure}_{end}"].map("{:.3g}".format) for end in ENDS)
    return means + " [" + low + ", " + high + "]"


def _format(value: Any) -> str:
    """Format a number with four digits, and other values as text."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int | np.integer) else f"{value:.4g}"


def select(
    store: str | ResultStore,
    panels: Sequence[str],
    measures: Sequence[str],
    where: Mapping[str, Sequence[str]],
    study: Study | None = None,
) -> list[Selection]:
    """Return the selected part of each panel, without the panels that lack a selected measure, factor or value.

    The statistics and events are those that the study declares, if it is given.
    """
    opened = store if isinstance(store, ResultStore) else open_complete(store)
    declared = opened.spec["panels"]
    selected: list[Selection] = []
    reasons: list[BadInputError] = []
    for panel, summary in load_summaries(opened, panels, study).items():
        measures_of_panel = list(declared[panel]["measures"])
        try:
            kept = [_known("measure", name, measures_of_panel) for name in dict.fromkeys(measures)] or measures_of_panel
            for name, values in where.items():
                summary = _restrict(summary, name, values)
        except BadInputError as error:
            reasons.append(BadInputError(f"panel {panel}: {error}"))
            continue
        selection = Selection(panel, summary, measures_of_panel)
        dropped = [
            variable for name in measures_of_panel if name not in kept for variable in selection.statistics(name)
        ]
        selected.append(Selection(panel, summary.drop_vars(dropped), kept))
    if not selected:
        raise reasons[0]
    return selected


def _restrict(summary: xr.Dataset, name: str, values: Sequence[str]) -> xr.Dataset:
    """Select values along a dimension; if `name` is a constant, one of the values must be equal to it."""
    coord = summary.coords[_known("factor", name, list(map(str, summary.coords)))]
    known = Factor(name, tuple(np.atleast_1d(coord.values).tolist()), "", _KINDS.get(coord.dtype.kind, "str"))
    cast = list(dict.fromkeys(known.cast(value) for value in values))
    if not coord.dims and any(value in known.values for value in cast):
        return summary
    return summary.sel({name: [_known(name, value, known.values) for value in cast]})


def _known(kind: str, value: Any, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        shown = format_value(value)
        raise BadInputError(unknown(kind, shown, map(format_value, allowed)))
    return value


def encode(selected: Sequence[Selection], long: bool, suffix: str) -> bytes:
    """Return the selections as one table in the format given by a file suffix: .csv, .json or .parquet."""
    parts = _joined([selection.frame(long).assign(panel=selection.panel) for selection in selected])
    frame = parts[["panel", *parts.columns.drop("panel")]]
    if suffix == ".parquet":
        buffer = BytesIO()
        frame.to_parquet(buffer, index=False)
        return buffer.getvalue()
    if suffix == ".json":  # JSON has neither infinity nor NaN
        is_finite = frame.map(
            lambda value: value is not pd.NA and not (isinstance(value, float) and not math.isfinite(value))
        )
        return (json.dumps(frame.astype(object).where(is_finite, None).to_dict("records"), indent=1) + "\n").encode()
    return frame.map(_inert).rename(columns=_inert).to_csv(index=False).encode()


def _inert(cell: Any) -> Any:
    """Return a cell of a CSV file, with a quote before text that a spreadsheet would execute as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
