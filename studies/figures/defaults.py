"""Figures of studies that declare none."""

from pipeline import Factor, Figure, Measure, Panel, Study
from studies.figures.chart import Chart
from studies.figures.plot import Axis

_MAX_FACETS = 6


def default_figures(study: Study) -> list[Figure]:
    """Return one figure for each panel and measure: the mean against a factor, with one line per method.

    The factor is the first one with several numbers, or else the first one. Categories are not joined by lines.
    Panels without trials have exact values instead of means.

    All other factors are shown: the one with the fewest values (at least two, at most six) in axes next to each
    other, the rest by a selector of their values.
    """
    return [
        _describe(panel, measure)
        for panel in study.panels
        for measure in panel.measures
        if (panel.factors or panel.method_factors) and (measure.per_trial or panel.trials is None)
    ]


def _is_ordered(factor: Factor) -> bool:
    return factor.kind in ("int", "float")


def _describe(panel: Panel, measure: Measure) -> Figure:
    outputs = [output for output in panel.outputs if output.name in measure.dims]
    factors = [*panel.factors, *panel.method_factors]
    x = next((factor for factor in factors if _is_ordered(factor) and len(factor.values) > 1), factors[0])
    others = [axis for axis in (*factors, *outputs) if axis is not x]
    sizes = {one.name: len(one.values) for one in others}
    several = sorted((name for name, size in sizes.items() if size > 1), key=lambda name: sizes[name])
    facet = [name for name in several[:1] if sizes[name] <= _MAX_FACETS]
    pick = [name for name in sizes if name in several and name not in facet]
    single = [name for name in sizes if name not in several]
    is_exact, has_nominal = panel.trials is None, measure.nominal is not None
    marks = {"level": has_nominal, "line": _is_ordered(x), "errors": not is_exact, "points": True}
    chart = Chart(
        panel.name, x.name, {"y": measure.name if is_exact else f"{measure.name}_mean"}, panel.method_dim, {},
        x=Axis(discrete=not _is_ordered(x)), y=Axis(measure.meaning if measure.is_event else ""),
        marks=tuple(name for name, is_shown in marks.items() if is_shown),
        facet={name: f"{name} = {{}}" for name in facet}, pick={name: f"{name} = {{}}" for name in pick},
        across={} if measure.nominal is None else {"level": float(measure.nominal)},
        prepare=lambda ds: ds.isel(dict.fromkeys(single, 0)), columns=2 if facet else 1, height=200 if facet else 300,
        with_constants=panel.method_dim is not None, best="" if has_nominal else "extreme")  # fmt: skip
    bars = "95 % intervals" if measure.is_event else "bars of two Monte Carlo standard errors"
    caption = (
        ("Exact values" if is_exact else f"Means over trials with {bars}")
        + f", against {x.name}"
        + "".join(f", with one plot per {name}" for name in facet)
        + (f". {' and '.join(pick)}: the first values; others can be selected on the page" if pick else "")
        + (f". The horizontal line is the nominal value, {measure.nominal:g}." if has_nominal else ".")
    )
    return Figure(f"{panel.name}-{measure.name}", f"{panel.name}: {measure.meaning}", caption, (panel.name,), chart)
