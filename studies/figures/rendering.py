"""Interactive figures."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from studies.figures.plot import Plot
from studies.figures.vega import Spec, first_lines, other_scale, specify


def interactive(plots: Sequence[Plot], datasets: Spec | None = None) -> str:
    """Return the interactive figure as JSON: specifications by scale, their common data, and what a reader can choose.

    These are the names of the lines, with those shown at first, and the picked values of factors. The data, by default
    those of the plots, are tables of ``names`` and ``rows``, with null for what a row lacks.
    """
    scales = {"": specify(plots, hover=True, datasets=datasets)}
    data = scales[""]["datasets"]
    if (others := other_scale(plots)) is not None:
        names = ("logarithmic", "linear") if plots[0].y.log else ("linear", "logarithmic")
        scales = {names[0]: scales[""], names[1]: specify(others, hover=True, datasets=data)}
    specs = {name: {key: value for key, value in spec.items() if key != "datasets"} for name, spec in scales.items()}
    lines = list(dict.fromkeys(name for plot in plots if plot.named for name in plot.series))
    picks = list(dict.fromkeys(pick for plot in plots for pick in plot.picks))
    tables = {name: _tabulate(rows) for name, rows in data.items()}
    shown: dict[str, Any] = {"data": tables, "scales": specs, "lines": lines if len(lines) > 1 else []}
    shown |= {"first": [name for name in first_lines(plots) if name in lines], "picks": picks}
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _tabulate(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return records as a table, whose JSON contains each name once.

    Examples
    --------
    >>> _tabulate([{"x": 1, "y": 2}, {"x": 3}])
    {'names': ['x', 'y'], 'rows': [[1, 2], [3, None]]}
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    return {"names": names, "rows": [[record.get(name) for name in names] for record in records]}
