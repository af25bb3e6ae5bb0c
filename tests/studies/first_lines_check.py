"""Search for hidden lines of figures that are better than the shown ones, and a rule that hides such lines."""

import numpy as np

from studies.figures.plot import MARKS


def hidden_winners(plots):
    """Return the hidden lines that are better than each shown one at any point, by a comparison of all pairs."""
    shown = {name for plot in plots for name in plot.shown}
    winners = set()
    for plot in plots:
        signs = {"lowest": [1], "highest": [-1], "extreme": [1, -1], "": []}[plot.best] if plot.named else []
        columns = {column for mark in plot.marks for column in MARKS[mark].columns} & {"y", "exact"} & set(plot.rows)
        for column in columns:
            rows = plot.rows[plot.rows["series"].notna() & plot.rows[column].notna()]
            for _, point in rows.groupby([name for name in ("axes", "pick", "x") if name in rows]):
                for sign in signs:
                    values = dict(zip(point["series"], sign * point[column], strict=True))
                    best = min((value for name, value in values.items() if name in shown), default=np.inf)
                    winners |= {name for name, value in values.items() if name not in shown and value < best}
    return winners


def six_in_turn(looks, estimates, best, first):
    """Return the lines of the rule that does not look at the results: those declared, or six of all origins in turn."""
    origins = ("", "ours", "paper", "baseline", "reference", "broken")
    groups = [[name for name, look in looks.items() if look.origin == origin] for origin in origins]
    ranked = sorted((rank, turn, name) for turn, group in enumerate(groups) for rank, name in enumerate(group))
    return tuple(name for name in looks if name in first) or tuple(name for *_, name in ranked[:6])
