"""Lines that a figure shows at first, and the statement about those that it hides.

A figure with many lines hides some of them until its reader asks for them. It never hides the best one: at each value
of the horizontal axis, in each axes and for each picked value, the line with the best estimate is shown, and so is the
best one of the methods that are private and not broken. Estimates are compared without their Monte Carlo errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from studies.styles import Look

if TYPE_CHECKING:
    from studies.figures.plot import Plot

MAX_LINES = 8
"""Number of lines that a figure shows at first, besides lines that a user added, unless more of them are best."""

COMPARISONS: Mapping[str, Mapping[str, str]] = {
    "": {},
    "lowest": {"lower": "min"},
    "highest": {"higher": "max"},
    "extreme": {"lower": "min", "higher": "max"},
}
"""Which lines are best -> comparative -> reduction; none if the measure has no direction."""

_TURNS = ("paper", "ours", "baseline", "reference", "")  # order in which origins have lines at first


def choose_first_lines(plot: "Plot") -> tuple[str, ...]:
    """Return the series that a plot shows at first.

    These are all if at most `MAX_LINES` are not added by a user. Otherwise they are the added and the broken ones, the
    best ones at any point, and then those of `first`, or else of all origins in turn, up to `MAX_LINES`; and at least
    one of each origin that `first` has.
    """
    added = {name for name, look in plot.series.items() if look.origin in ("added", "broken")}
    if not plot.named or len(plot.series) - len(added) <= MAX_LINES:
        return tuple(plot.series)
    shown = {*added, *_best_lines(plot)}
    for name in [name for name in plot.first if name in plot.series] or _in_turn(plot.series):
        origins = {plot.series[line].origin for line in shown}
        if len(shown - added) < MAX_LINES or plot.series[name].origin not in origins:
            shown.add(name)
    return tuple(name for name in plot.series if name in shown)


@dataclass(frozen=True)
class HiddenLines:
    """Lines of a figure that are hidden at first, and those of them that are better at some point than all shown ones.

    Attributes
    ----------
    hidden, lines : tuple of str
        Hidden and all lines.
    better : mapping of str to tuple of str
        Phrase such as "lower estimate" -> those lines. It names the vertical axis if not all plots have a direction.
    """

    hidden: tuple[str, ...]
    lines: tuple[str, ...]
    better: Mapping[str, tuple[str, ...]]

    @property
    def note(self) -> str:
        """Phrase for a static image; empty if no line is hidden."""
        if not self.hidden:
            return ""
        phrases = [
            f"{len(names) or 'none'} with a {phrase} at {'some' if names else 'any'} point"
            for phrase, names in self.better.items()
        ]
        n_hidden = len(self.hidden)
        return ", ".join([f"{n_hidden} more line{'s' if n_hidden > 1 else ''} on the interactive page", *phrases])

    @property
    def sentence(self) -> str:
        """Sentences of a caption; empty if no line is hidden."""
        if not self.hidden:
            return ""
        is_one = len(self.hidden) == 1
        texts = [f"{len(self.hidden)} of {len(self.lines)} lines {'is' if is_one else 'are'} hidden at first."]
        for phrase, names in self.better.items():
            if names:
                has = "has" if len(names) == 1 else "have"
                texts.append(f"At some points, {', '.join(names)} {has} a {phrase} than every shown line.")
        if none := [phrase for phrase, names in self.better.items() if not names]:
            line = f"{'the' if is_one else 'a'} hidden line"
            texts.append(f"At no point does {line} have a {' or a '.join(none)} than every shown line.")
        return " ".join(texts)


def describe_hidden(plots: Sequence["Plot"]) -> HiddenLines:
    """Return the lines that a figure of some plots, one above the other, hides at first."""
    named = [plot for plot in plots if plot.named]
    shown = {name for plot in named for name in plot.shown}
    lines = dict.fromkeys(name for plot in named for name in plot.series)
    better: dict[str, tuple[str, ...]] = {}
    are_all_directed = all(plot.best for plot in named)
    for plot in named:
        estimate = "estimate" if are_all_directed else f"estimate of the {plot.y.title}"
        for comparative, reduction in COMPARISONS[plot.best].items():
            names = _better_than_shown(plot, shown, reduction)
            phrase = f"{comparative} {estimate}"
            better[phrase] = tuple(dict.fromkeys((*better.get(phrase, ()), *names)))
    return HiddenLines(tuple(name for name in lines if name not in shown), tuple(lines), better)


def _better_than_shown(plot: "Plot", shown: set[str], reduction: str) -> tuple[str, ...]:
    """Return the hidden series of a plot that are better at some point than all shown ones."""
    better: set[str] = set()
    for estimates in _estimates(plot):
        sign = 1 if reduction == "min" else -1
        is_shown = estimates.columns.isin(list(shown))
        best_shown = (sign * estimates.loc[:, is_shown]).min(axis=1).fillna(np.inf)
        is_better = (sign * estimates.loc[:, ~is_shown]).lt(best_shown, axis=0).any()
        better.update(is_better.index[is_better])
    return tuple(name for name in plot.series if name in better)


def _best_lines(plot: "Plot") -> set[str]:
    """Return the best series at any point: of all, and of the private ones that are not broken."""
    private = [name for name, look in plot.series.items() if _is_private(look)]
    best: set[str] = set()
    for reduction in COMPARISONS[plot.best].values():
        for estimates in _estimates(plot):
            for competitors in (estimates, estimates[estimates.columns.intersection(private)]):
                compared = competitors.dropna(how="all")
                winners = compared.idxmin(axis=1) if reduction == "min" else compared.idxmax(axis=1)
                best.update(winners.tolist())
    return best


def _is_private(look: Look) -> bool:
    return look.is_private and look.origin not in ("reference", "broken")


def _estimates(plot: "Plot") -> list[pd.DataFrame]:
    """Return a table with one row per point and one column per series, for the markers and for the lines of a plot."""
    points = [name for name in ("axes", "pick", "x") if name in plot.rows]
    tables = []
    for column in plot.estimated:
        rows = plot.rows[plot.rows["series"].notna() & plot.rows[column].notna()]
        tables.append(rows.pivot_table(index=points, columns="series", values=column, sort=False, observed=True))
    return tables


def _in_turn(looks: Mapping[str, Look]) -> list[str]:
    """Return the series of all origins in turn."""
    groups = [[name for name, look in looks.items() if look.origin == origin] for origin in _TURNS]
    ranked = sorted((rank, turn, name) for turn, group in enumerate(groups) for rank, name in enumerate(group))
    return [name for _, _, name in ranked]
