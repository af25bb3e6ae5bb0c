"""Figures of regression from partitions: distributions over data sets, and errors, by cutoff or probability."""

from collections.abc import Sequence

import xarray as xr

from mechanisms.regression.partition_probability import PROBABILITY_METHODS, ProbabilityMethod
from mechanisms.regression.quantile_methods import QUANTILE_METHODS, QuantileMethod
from studies.figures import Axis, Drawing, Plot, across, label_of, quantile_rows, rows_of, stack
from studies.styles import Styles, complete_styles

_METHODS: dict[str, ProbabilityMethod | QuantileMethod] = {**PROBABILITY_METHODS, **QUANTILE_METHODS}


def _variant(name: str) -> tuple[str, bool]:
    """Return the name of the method with noise, and True if `name` is this method, not its noiseless variant."""
    return (_METHODS[name].base, _METHODS[name].has_noise) if name in _METHODS else (name, True)


def _title(name: str) -> str:
    base, has_noise = _variant(name)
    return base if has_noise else f"{base}, no noise"


def draw_spreads(
    ds: xr.Dataset,
    x: str,
    measure: str,
    methods: Sequence[str],
    columns: int,
    styles: Styles,
    ylabel: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> Drawing:
    """Draw the distribution of a measure at each value of an output, with one axes per method.

    The values of the output `x` are equally spaced. The median, quartiles and 5 and 95 % quantiles of the measure are
    drawn, with `columns` axes per row; methods that are not stored are omitted.
    """
    shown = [name for name in methods if name in ds["algorithm"].values]
    titles = [_title(name) + " (repeated)" * (name in shown[:place]) for place, name in enumerate(shown)]
    rows = [
        quantile_rows(ds.sel(algorithm=name), x, None, measure).assign(series=name, axes=title)
        for name, title in zip(shown, titles, strict=True)
    ]
    lines = [across(titles, level=0.0)] if measure == "difference" else []
    return [
        Plot(
            stack([*rows, *lines]),
            Axis(label_of(ds[x]), discrete=True),
            Axis(ylabel, limits=limits),
            {name: styles[name] for name in shown},
            ("level", "whisker", "box", "middle") if lines else ("whisker", "box", "middle"),
            columns=columns,
            height=140,
            named=False,
        )
    ]


def draw_errors(ds: xr.Dataset, x: str, styles: Styles) -> Drawing:
    """Draw the bias and the root mean squared error of all methods against an output, without and with noise.

    The summary has the measure ``difference`` and its statistic ``rmse``.
    """
    stored = ds["algorithm"].values.tolist()
    styles = complete_styles(styles, stored)
    bases = [name for name in styles if name in stored and _variant(name) == (name, True) and name != "full"]
    rows, titles = [], ("without noise", "with noise")
    for has_noise, title in enumerate(titles):
        of_base = {name: _variant(name)[0] for name in stored if _variant(name)[1] == bool(has_noise)}
        kept = [name for name, base in of_base.items() if base in bases]
        one = ds.sel(algorithm=kept).assign_coords(algorithm=[of_base[name] for name in kept])
        rows.append(rows_of(one, x, "algorithm", title, y="difference_mean", rmse="difference_rmse"))
    both = stack(rows)
    looks = {name: styles[name] for name in bases}
    axis = Axis(label_of(ds[x]))
    squared = both.drop(columns=["y", "mcse"]).rename(columns={"rmse": "y"})
    biased = stack([both.drop(columns="rmse"), across(titles, level=0.0)])
    marks = ("level", "line", "errors", "points")
    return [
        Plot(biased, axis, Axis("bias"), looks, marks, columns=2, height=200),
        Plot(squared, axis, Axis("root mean squared error"), looks, columns=2, height=200),
    ]
