"""Lines that a figure shows at first.

A figure with many lines hides some of them until its reader asks for them. It never hides the best one: at each value
of the horizontal axis, in each axes and for each picked value, the line with the best estimate is shown, and so is the
best one of the methods that are private and not broken. Estimates are compared without their Monte Carlo errors.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from studies.styles import Look

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


def choose_first_lines(
    looks: Mapping[str, Look], estimates: Sequence[pd.DataFrame], best: str, first: Sequence[str]
) -> tuple[str, ...]:
    """Return the series of a plot that are shown at first.

    These are all if at most `MAX_LINES` are not added by a user. Otherwise they are the added and the broken ones, the
    best ones at any point, and then those of `first`, or else of all origins in turn, up to `MAX_LINES`; and at least
    one of each origin that `first` has. Tables of estimates have one row per point and one column per series.
    """
    added = {name for name, look in looks.items() if look.origin in ("added", "broken")}
    if len(looks) - len(added) <= MAX_LINES:
        return tuple(looks)
    shown = {*added, *_best_lines(looks, estimates, best)}
    for name in [name for name in first if name in looks] or _in_turn(looks):
        if len(shown - added) < MAX_LINES or looks[name].origin not in {looks[line].origin for line in shown}:
            shown.add(name)
    return tuple(name for name in looks if name in shown)


def _best_lines(looks: Mapping[str, Look], estimates: Sequence[pd.DataFrame], best: str) -> set[str]:
    """Return the best series at any point: of all, and of the private ones that are not broken."""
    private = [name for name, look in looks.items() if _is_private(look)]
    names: set[str] = set()
    for reduction in COMPARISONS[best].values():
        for table in estimates:
            for competitors in (table, table[table.columns.intersection(private)]):
                compared = competitors.dropna(how="all")
                winners = compared.idxmin(axis=1) if reduction == "min" else compared.idxmax(axis=1)
                names.update(winners.tolist())
    return names


def _is_private(look: Look) -> bool:
    return look.is_private and look.origin not in ("reference", "broken")


def _in_turn(looks: Mapping[str, Look]) -> list[str]:
    """Return the series of all origins in turn."""
    groups = [[name for name, look in looks.items() if look.origin == origin] for origin in _TURNS]
    ranked = sorted((rank, turn, name) for turn, group in enumerate(groups) for rank, name in enumerate(group))
    return [name for _, _, name in ranked]
