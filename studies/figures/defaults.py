"""Figures of studies that declare none."""

from collections.abc import Mapping, Sequence
from functools import partial

import xarray as xr

from pipeline import Figure, Measure, Panel, Study
from pipeline.declare.factors import Factor
from studies.figures.chart import Chart
from studies.figures.plot import MAX_LINES, Axis, Plot


def default_figures(study: Study) -> list[Figure]:
    """Return one figure for each panel and measure: the mean against the first factor, with one line per method.

    Panels without trials have exact values instead of means.

    All other factors are shown: the one with the fewest values (at least two, at most `MAX_LINES`) in axes next to each
    other, the rest by a selector of their values.
    """
    figures = []
    for panel in study.panels:
        axes = [*panel.factors, *panel.method_factors]
        is_exact = panel.trials is None
        for measure in (one for one in panel.measures if axes and (one.per_trial or is_exact)):
            others = [*axes[1:], *(output for output in panel.outputs if output.name in measure.dims)]
            figures.append(
                Figure(
                    f"{panel.name}-{measure.name}",
                    f"{panel.name}: {measure.meaning}",
                    _caption(axes[0], others, measure, is_exact),
                    (panel.name,),
                    partial(_draw, panel, axes[0].name, measure, [one.name for one in others]),
                )
            )
    return figures


def _split(sizes: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return the dimension of the axes, or none, and those of the selector."""
    several = sorted((name for name, size in sizes.items() if size > 1), key=lambda name: sizes[name])
    facet = [name for name in several[:1] if sizes[name] <= MAX_LINES]
    return facet, [name for name in sizes if name in several and name not in facet]


def _caption(x: Factor, others: Sequence[Factor], measure: Measure, is_exact: bool) -> str:
    facet, pick = _split({one.name: len(one.values) for one in others})
    nominal = "" if measure.nominal is None else f" The horizontal line is the nominal value, {measure.nominal:g}."
    return (
        ("Exact values" if is_exact else "Means over trials with bars of two Monte Carlo standard errors")
        + f", against {x.name}"
        + "".join(f", with one plot per {name}" for name in facet)
        + (f". {' and '.join(pick)}: the first values; others can be selected on the page" if pick else "")
        + f".{nominal}"
    )


def _draw(
    panel: Panel, x: str, measure: Measure, others: Sequence[str], summaries: Mapping[str, xr.Dataset]
) -> list[Plot]:
    ds, by, is_exact = summaries[panel.name], panel.method_dim, panel.trials is None
    facet, pick = _split({name: ds.sizes[name] for name in others})
    single = [name for name in others if name not in (*facet, *pick)]
    chart = Chart(
        panel.name,
        x,
        {"y": measure.name if is_exact else f"{measure.name}_mean"},
        by,
        {},
        x=Axis(discrete=ds[x].dtype.kind not in "if"),
        y=Axis(measure.meaning if measure.dtype == "bool" else ""),
        marks=(
            *(("level",) if measure.nominal is not None else ()),
            "line",
            *(() if is_exact else ("errors",)),
            "points",
        ),
        facet={name: f"{name} = {{}}" for name in facet},
        pick={name: f"{name} = {{}}" for name in pick},
        across={} if measure.nominal is None else {"level": float(measure.nominal)},
        prepare=lambda ds: ds.isel(dict.fromkeys(single, 0)),
        columns=2 if facet else 1,
        height=200 if facet else 300,
        with_constants=by is not None,
    )
    return chart(summaries)
