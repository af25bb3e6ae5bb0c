"""Panels of the calibration studies, and tests of uniformity of the quantiles and ranks of parameters."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mechanisms.inference.families import MODELS
from mechanisms.inference.methods import INFERENCE_METHODS, InferenceMethod
from pipeline import Factor, Measure, Method, Panel, Statistic
from studies.claims import ks_distance, ks_p_value
from studies.inference.noisy_trials import LARGEST_AUGMENTED, N_RANKED, Array, release_model
from studies.panels import Values

_LEVELS = Factor("level", tuple(round(0.01 * i, 2) for i in range(101)), "quantile level")
_BINS = Factor("rank_bin", tuple(range(20)), "bin of five ranks", "int")


def _rank_p_value(ranks: Array) -> float:
    """Return the p-value of a chi-square test that ranks are uniform on 0 to 99, in bins of five ranks."""
    from scipy.stats import chisquare

    return float(chisquare(_histogram(ranks) * ranks.size).pvalue)


def _histogram(ranks: Array) -> Array:
    """Return the fraction of ranks in each bin."""
    width = (N_RANKED + 1) / len(_BINS.values)
    return np.bincount((ranks // width).astype(int), minlength=len(_BINS.values)) / ranks.size


PIT_STATISTICS = (
    Statistic("ks", "pit", "Kolmogorov-Smirnov distance of the quantiles to the uniform distribution", ks_distance),
    Statistic("p", "pit", "p-value of the Kolmogorov-Smirnov test", ks_p_value),
    Statistic(
        "tails", "pit", "fraction of quantiles outside [0.05, 0.95]; 0.1 if calibrated",
        lambda quantiles: np.mean(np.abs(quantiles - 0.5) > 0.45)),
    Statistic(
        "ecdf", "pit", "empirical distribution function of the quantiles", axis=_LEVELS,
        function=lambda quantiles: np.searchsorted(np.sort(quantiles), _LEVELS.values, side="right") / quantiles.size),
)  # fmt: skip
"""Statistics of the measure `pit`: tests against the uniform distribution, and the distribution function."""

RANK_STATISTICS = (
    Statistic("p", "rank", "p-value of the chi-square test of uniform ranks", _rank_p_value),
    Statistic("histogram", "rank", "fraction of ranks in the bin", _histogram, axis=_BINS),
)
"""Statistics of the measure `rank` among 99 draws: test against the uniform distribution, and the histogram."""


def inference_panel(
    name: str, meaning: str, family: str, simulate: Callable[..., Any], methods: tuple[Method, ...],
    measures: tuple[Measure, ...], *, n: tuple[int, ...], epsilon: tuple[float, ...],
    priors: tuple[tuple[float, ...], ...], bounds: tuple[float, float] | None = None,
    unit: str = "public bounds of a record", component: str = "component of the parameter",
    factors: tuple[Factor, ...] = (), scalars: tuple[Measure, ...] = (), largest: int = LARGEST_AUGMENTED,
    **options: Any,
) -> Panel:  # fmt: skip
    """Return a panel of methods that infer the parameter of a family from a release.

    `measures` have one value per component of the parameter, if there are several, and `scalars` one per trial. Methods
    that draw the records apply up to `largest` records. `unit` describes the bounds.
    """
    p = MODELS[family].n_components(priors[0])
    dims = ("component",) if p > 1 else ()

    def validate(cell: Values, setting: Values) -> bool:
        model = release_model(family, cell)
        model.entry.validate_prior(cell["prior"])
        wanted = list(range(model.entry.n_components(cell["prior"])))
        if len(wanted) > 1 and list(cell["component"]) != wanted:
            raise ValueError(f"component must be {wanted}, one value per parameter, got {list(cell['component'])}")
        return True

    def supports(method: InferenceMethod, cell: Values, setting: Values) -> bool:
        method.validate_prior(family, cell["prior"])
        model = release_model(family, cell)
        return method.supports(model) and (not method.draws_records or model.n <= largest)

    applicable = tuple(
        replace(method, supports=partial(supports, INFERENCE_METHODS[method.name])) for method in methods
    )
    prior = Factor("prior", priors, "hyperparameters of the prior", "vector")
    sizes = Factor("n", n, "number of records", "int"), Factor("epsilon", epsilon, "privacy loss", unit="nat")
    public = () if bounds is None else (Factor("bounds", (bounds,), unit, "vector"),)
    return Panel(
        name, meaning, simulate, applicable, (*(replace(measure, dims=dims) for measure in measures), *scalars),
        (*sizes, *((prior,) if len(priors) > 1 else ()), *factors),
        outputs=(Factor("component", tuple(range(p)), component, "int"),) if p > 1 else (),
        constants=(*(() if len(priors) > 1 else (prior,)), *public), validate=validate, **options)  # fmt: skip
