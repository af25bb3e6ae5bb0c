"""Search for hidden lines of figures that are better than the shown ones."""

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
