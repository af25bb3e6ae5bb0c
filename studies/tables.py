"""Tables on a page: comparisons of methods, audited losses, and formatting of numbers."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from mechanisms.core.metadata import Entry
from pipeline.declare.factors import ENDS, format_value
from studies.styles import label_method, stored_audits

_RELATIVE = 1e-6  # relative tolerance for the error of a quadrature


@dataclass(frozen=True)
class PageTable:
    """A table on a page."""

    title: str
    caption: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    prose: tuple[int, ...] = ()  # indices of the columns whose text may wrap


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    escaped = ([cell.replace("|", r"\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *escaped))


def plus_minus(value: float, error: float) -> str:
    """Format a number with two digits of its standard error, or without it if the error is negligible."""
    if math.isnan(value):
        return ""
    if not (math.isfinite(value) and math.isfinite(error) and error > 1e-12 * abs(value)):
        return f"{value:.4g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


Column = tuple[xr.Dataset, Callable[[xr.Dataset], str]]
"""Summary with a dimension of methods, and the function that formats the summary of one method."""


def compare_methods(
    title: str, caption: str, by: str, registries: Iterable[Mapping[str, Entry]], columns: Mapping[str, Column]
) -> PageTable:
    """Return a table with one row per method that is in a registry, or was audited, and has at least one number.

    Methods stand in the order of the registries, `by` is their dimension, and `columns` maps headings to columns.
    """
    rows = []
    summaries = {id(ds): ds for ds, _ in columns.values()}  # columns share them, and a selection takes milliseconds
    stored = {name: ds for ds, _ in columns.values() for name in ds[by].values.tolist()}
    origins = {name: entry.origin_text for registry in registries for name, entry in registry.items()}
    added = {name: "added" for ds, _ in columns.values() for name in stored_audits(ds, by)}
    for name, origin in {**origins, **added}.items():
        if name not in stored:
            continue
        selected = {panel: ds.sel({by: name}) for panel, ds in summaries.items() if name in ds[by].values}
        cells = [show(selected[id(ds)]) if id(ds) in selected else "" for ds, show in columns.values()]
        if any(cells):
            rows.append((label_method(stored[name], by, name), origin, *cells))
    return PageTable(title, caption, (by, "from", *columns), rows)


def show_mean(measure: str) -> Callable[[xr.Dataset], str]:
    """Return a function that formats the mean of a measure with its standard error, or that of an event's interval."""

    def show(ds: xr.Dataset) -> str:
        mean = float(ds[f"{measure}_mean"])
        if f"{measure}_low" not in ds or math.isnan(mean):
            return plus_minus(mean, float(ds[f"{measure}_mcse"]))
        low, high = (float(ds[f"{measure}_{end}"]) for end in ENDS)
        return f"{mean:.4g} [{low:.3g}, {high:.3g}]"

    return show


@dataclass(frozen=True)
class AuditedLoss:
    """Largest audited privacy loss of a mechanism, relative to its stated guarantee."""

    mechanism: str
    states: str  # stated guarantee in a few words
    share: float  # largest ratio of a loss or divergence to the stated bound; NaN if not stored
    loss: float  # that attains the ratio
    n_audits: int
    place: str  # parameters or data set at which the ratio is largest
    is_private: bool = True  # False without a guarantee, or with a wrong published one
    holds: bool | None = None  # verdict; if None, the guarantee holds if the share is at most 1

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of the row, as text."""
        if self.n_audits == 0:
            return self.mechanism, self.states, "not audited", "", "", "", "0", self.place
        exceeds = self.share > 1 + _RELATIVE
        holds = not exceeds if self.holds is None else self.holds
        judged = ("holds" if holds else "broken") if self.is_private else ("within here" if holds else "not private")
        slack = "none" if exceeds else f"{max(0.0, 1 - self.share):.2%}"
        numbers = _shown(self.loss, 4), _shown(self.share), slack, f"{self.n_audits:,}"
        return self.mechanism, self.states, judged, *numbers, self.place


def _shown(value: float, digits: int = 6) -> str:
    if math.isnan(value):
        return ""
    return "infinite" if math.isinf(value) else f"{value:.{digits}f}" if value < 10 else f"{value:,.0f}"


def largest_loss(pairs: Iterable[tuple[xr.DataArray, xr.DataArray | float]]) -> tuple[float, float, int, str]:
    """Return the largest ratio of a loss to its bound, the loss, the number of losses, and the coordinates."""
    several = [(loss / stated, loss) for loss, stated in pairs]
    several = [(share, loss.broadcast_like(share)) for share, loss in several if share.notnull().any()]
    if not several:
        return math.nan, math.nan, 0, ""
    shares, losses = max(several, key=lambda pair: float(pair[0].max()))
    at = shares.fillna(-np.inf).argmax(...)
    largest_share = shares.isel(at)
    place = ", ".join(f"{name} = {format_value(largest_share[name].item())}" for name in shares.dims)
    return float(largest_share), float(losses.isel(at)), sum(int(share.count()) for share, _ in several), place


def duration(seconds: float) -> str:
    """Format a time in minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
