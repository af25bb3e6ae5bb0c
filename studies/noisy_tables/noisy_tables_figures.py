"""Figures of the study `noisy-tables`."""

from collections.abc import Callable, Mapping

import xarray as xr

from pipeline import Figure
from studies.figures import Axis, Chart, Plot, Summaries, stacked
from studies.styles import TABLE_STYLES


def _draw(
    panel: str, x: str, split: tuple[str, ...], measures: Mapping[str, str], log: bool = False
) -> Callable[[Summaries], list[Plot]]:
    """Describe means per value of the factors `split`; others have their last value, or the first `part`."""

    def prepare(ds: xr.Dataset) -> xr.Dataset:
        others = {dim: 0 if dim == "part" else -1 for dim in ds["covered_mean"].dims}
        return ds.isel({dim: at for dim, at in others.items() if dim not in (x, *split, "algorithm")})

    charts = [
        Chart(
            panel,
            x,
            {"y": measure},
            "algorithm",
            TABLE_STYLES,
            x=Axis(discrete=True),
            y=Axis(label, log=log and measure != "covered_mean"),
            marks=("line", "errors", "points"),
            facet={name: f"{name} = {{}}" for name in split},
            prepare=prepare,
            columns=2,
            height=180,
            with_constants=True,
        )
        for measure, label in measures.items()
    ]
    return stacked(*charts)


_WIDTH, _COVERED = {"width_mean": "mean width of 95 % intervals"}, {"covered_mean": "coverage of 95 % intervals"}
_SCORE = {"score_mean": "mean interval score"}

FIGURES = (
    Figure(
        "tree-scores",
        "Interval scores by level of the table",
        "Mean interval score of the nodes of each level, at the largest noise, with bars of two Monte Carlo standard "
        "errors; smaller is better. Posteriors are exact for the assumed prior.",
        ("tree",),
        _draw("tree", "part", ("leaves", "prior"), _SCORE, log=True),
    ),
    Figure(
        "tree-coverage",
        "Widths and coverage by level of the table",
        "Mean width of 95 % intervals of the nodes of each level, and the fraction that contains the true count, at "
        "the largest noise, with bars of two Monte Carlo standard errors.",
        ("tree",),
        _draw("tree", "part", ("leaves", "prior"), _WIDTH | _COVERED, log=True),
        claims=("narrower-in-small-cells",),
    ),
    Figure(
        "real-counts",
        "Widths and coverage for real counts, by size of the cell",
        "Mean width and coverage of 95 % intervals for the cells of sex × race × education × income in Adult, at the "
        "largest noise, with bars of two Monte Carlo standard errors. The prior is fitted to the noisy values.",
        ("contingency",),
        _draw("contingency", "part", (), _WIDTH | _COVERED),
    ),
    Figure(
        "formats",
        "Coverage of clipped, rounded and suppressed values",
        "Fraction of leaves below 20 whose 95 % interval contains the true count, by the format of the published "
        "values, with bars of two Monte Carlo standard errors.",
        ("formats",),
        _draw("formats", "published", ("noise_std",), _COVERED),
    ),
    Figure(
        "mechanisms",
        "Widths by mechanism",
        "Mean width of 95 % intervals for counts below 20 of 1,000 records in k categories, at the largest ε, with "
        "bars of two Monte Carlo standard errors. Discrete Gaussian noise has a weaker guarantee.",
        ("mechanisms",),
        _draw("mechanisms", "noise", ("k",), _WIDTH, log=True),
    ),
)
