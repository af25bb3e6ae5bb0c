"""Selections from the summaries of a store, as tables and as files in several formats."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pipeline import to_pandas
from pipeline.declare.factors import Factor, Kind, format_value
from pipeline.errors import BadInputError, unknown
from pipeline.stores.store import open_complete
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
        found = {}
        for name in map(str, self.summary.data_vars):
            owners = [one for one in self.measures if name == one or name.startswith(f"{one}_")]
            if owners and max(owners, key=len) == measure:
                found[name] = name.removeprefix(measure).removeprefix("_") or "value"
        return found

    def frame(self, long: bool) -> pd.DataFrame:
        """Return the summary as a table with all statistics and constants."""
        if not long:
            return to_pandas(self.summary)
        parts = []
        for measure in self.measures:
            names = self.statistics(measure)
            part = to_pandas(self.summary[[*names, *_COUNTS]]).rename(columns=names)
            part.insert(part.columns.get_loc(next(iter(names.values()))), "measure", measure)
            parts.append(part)
        frame = pd.concat(parts, ignore_index=True)
        return frame[[*frame.columns.drop(list(_COUNTS)), *_COUNTS]]

    def texts(self, long: bool) -> tuple[list[str], list[list[str]], int]:
        """Return headings, rows of text, and the number of columns that name the row; constants are omitted.

        Methods are named by their labels, which have the results of audits.
        """
        return replace(self, summary=label_all_methods(self.summary))._texts(long)

    def _texts(self, long: bool) -> tuple[list[str], list[list[str]], int]:
        constants = [str(name) for name, coord in self.summary.coords.items() if not coord.dims]
        if long:
            frame = self.frame(long).drop(columns=constants)
            n_names = list(frame).index("measure") + 1
        else:
            names = list(map(str, self.summary["n_ok"].dims or self.summary.dims))  # a single cell has a row per output
            kept = [name for name, variable in self.summary.data_vars.items() if set(variable.dims) <= set(names)]
            given, n_names = to_pandas(self.summary[kept]), len(names)
            frame = given[names].copy()
            for measure in self.measures:
                if measure in given:
                    frame[measure] = given[measure]
                elif f"{measure}_mean" in given:
                    errors = given[f"{measure}_mcse"].map("{:.2g}".format)
                    frame[measure] = given[f"{measure}_mean"].map(_format) + " ± " + errors
            for name in _COUNTS:
                if name == "n_ok" or given[name].any():
                    frame[name.removeprefix("n_")] = given[name]
        return list(frame), [list(map(_format, row)) for row in frame.to_numpy(object)], n_names

    def hidden(self, long: bool) -> list[str]:
        """Return the measures that `texts` omits because they have several values per cell."""
        return [] if long else [measure for measure in self.measures if measure not in self.texts(long)[0]]

    @property
    def title(self) -> str:
        """Name and title of the panel, with its constants."""
        constants = [f"{name}={_format(coord.item())}" for name, coord in self.summary.coords.items() if not coord.dims]
        return f"{self.panel}: {self.summary.attrs['title']}" + (f" ({', '.join(constants)})" if constants else "")


def _format(value: Any) -> str:
    """Format a number with four digits, and other values as text."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int | np.integer) else f"{value:.4g}"


def select(
    store: str, panels: Sequence[str], measures: Sequence[str], where: Mapping[str, Sequence[str]]
) -> list[Selection]:
    """Return the selected part of each panel, without the panels that lack a selected measure, factor or value."""
    opened = open_complete(store)
    declared = opened.spec["panels"]
    selected: list[Selection] = []
    reasons: list[BadInputError] = []
    for panel, summary in load_summaries(opened, panels).items():
        own = list(declared[panel]["measures"])
        try:
            kept = [_known("measure", name, own) for name in dict.fromkeys(measures)] or own
            for name, values in where.items():
                summary = _restrict(summary, name, values)
        except BadInputError as error:
            reasons.append(BadInputError(f"panel {panel}: {error}"))
            continue
        one = Selection(panel, summary, own)
        dropped = [variable for name in own if name not in kept for variable in one.statistics(name)]
        selected.append(Selection(panel, summary.drop_vars(dropped), kept))
    if not selected:
        raise reasons[0]
    return selected


def _restrict(summary: xr.Dataset, name: str, values: Sequence[str]) -> xr.Dataset:
    """Select values along a dimension; if `name` is a constant, one of the values must be equal to it."""
    coord = summary.coords[_known("factor", name, list(map(str, summary.coords)))]
    known = Factor(name, tuple(np.atleast_1d(coord.values).tolist()), "", _KINDS.get(coord.dtype.kind, "str"))
    wanted = [_known(name, known.cast(value), known.values) for value in values]
    return summary.sel({name: wanted}) if coord.dims else summary


def _known(what: str, given: Any, allowed: Sequence[Any]) -> Any:
    if given not in allowed:
        shown = format_value(given)
        raise BadInputError(unknown(what, shown, map(format_value, allowed)))
    return given


def encode(selected: Sequence[Selection], long: bool, suffix: str) -> bytes:
    """Return the selections as one table in the format given by a file suffix: .csv, .json or .parquet."""
    parts = pd.concat([one.frame(long).assign(panel=one.panel) for one in selected], ignore_index=True)
    frame = parts[["panel", *parts.columns.drop("panel")]]
    if suffix == ".parquet":
        buffer = BytesIO()
        frame.to_parquet(buffer, index=False)
        return buffer.getvalue()
    if suffix == ".json":  # JSON has neither infinity nor NaN
        is_finite = frame.map(lambda value: not isinstance(value, float) or math.isfinite(value))
        return (json.dumps(frame.astype(object).where(is_finite, None).to_dict("records"), indent=1) + "\n").encode()
    return frame.map(_inert).rename(columns=_inert).to_csv(index=False).encode()


def _inert(cell: Any) -> Any:
    """Return a cell of a CSV file, with a quote before text that a spreadsheet would execute as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
