"""Figures of the study `noisy-tables`."""

from functools import partial

import xarray as xr

from pipeline import Figure
from pipeline.declare.factors import format_value
from studies.figures import Axis, Drawing, Plot, constants_of, looks_of, of, rows_of, stack, with_labels
from studies.styles import TABLE_STYLES


def _draw(ds: xr.Dataset, x: str, split: tuple[str, ...], measures: dict[str, str], log: bool = False) -> Drawing:
    """Draw means of measures against a discrete axis, with one axes per value of the factors `split`.

    Each measure has a plot. Other factors have their last value, or the first value of `part`.
    """
    others = {dim: 0 if dim == "part" else -1 for dim in ds.dims if dim not in (x, *split, "algorithm")}
    ds = with_labels(ds.isel({dim: at for dim, at in others.items() if dim in ds["covered_mean"].dims}), "algorithm")
    cells = ds[list(split)].to_dataframe().index if split else [()]
    plots = []
    for measure, label in measures.items():
        rows = []
        for cell in cells:
            values = dict(zip(split, cell if isinstance(cell, tuple) else (cell,), strict=True))
            title = ", ".join(f"{name} = {format_value(value)}" for name, value in values.items())
            rows.append(rows_of(ds.sel(values), x, "algorithm", **({"axes": title} if split else {}), y=measure))
        plots.append(
            Plot(
                stack(rows),
                Axis(ds[x].attrs.get("long_name", x), discrete=True),
                Axis(label, log=log and measure != "covered_mean"),
                looks_of(TABLE_STYLES, "algorithm", [ds]),
                ("line", "errors", "points"),
                columns=2,
                height=180,
                note=constants_of(ds),
            )
        )
    return plots


_WIDTH, _COVERED = {"width_mean": "mean width of 95 % intervals"}, {"covered_mean": "coverage of 95 % intervals"}
_SCORE = {"score_mean": "mean interval score"}

FIGURES = (
    Figure(
        "tree-scores",
        "Interval scores by level of the table",
        "Mean interval score of the nodes of each level, at the largest noise, with bars of two Monte Carlo standard "
        "errors; smaller is better. Posteriors are exact for the assumed prior.",
        ("tree",),
        of("tree", partial(_draw, x="part", split=("leaves", "prior"), measures=_SCORE, log=True)),
    ),
    Figure(
        "tree-coverage",
        "Coverage by level of the table",
        "Fraction of nodes of each level whose 95 % interval contains the true count, at the largest noise, with bars "
        "of two Monte Carlo standard errors.",
        ("tree",),
        of("tree", partial(_draw, x="part", split=("leaves", "prior"), measures=_COVERED)),
    ),
    Figure(
        "real-counts",
        "Widths and coverage for real counts, by size of the cell",
        "Mean width and coverage of 95 % intervals for the cells of sex × race × education × income in Adult, at the "
        "largest noise, with bars of two Monte Carlo standard errors. The prior is fitted to the noisy values.",
        ("contingency",),
        of("contingency", partial(_draw, x="part", split=(), measures=_WIDTH | _COVERED)),
    ),
    Figure(
        "formats",
        "Coverage of clipped, rounded and suppressed values",
        "Fraction of leaves below 20 whose 95 % interval contains the true count, by the format of the published "
        "values, with bars of two Monte Carlo standard errors.",
        ("formats",),
        of("formats", partial(_draw, x="published", split=("noise_std",), measures=_COVERED)),
    ),
    Figure(
        "mechanisms",
        "Widths by mechanism",
        "Mean width of 95 % intervals for counts below 20 of 1,000 records in k categories, at the largest ε, with "
        "bars of two Monte Carlo standard errors. Discrete Gaussian noise has a weaker guarantee.",
        ("mechanisms",),
        of("mechanisms", partial(_draw, x="noise", split=("k",), measures=_WIDTH, log=True)),
    ),
)
