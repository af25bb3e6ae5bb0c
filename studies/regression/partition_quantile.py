"""Private posterior quantiles from partitions of the rows (P2, Figures 4.1 and 4.2), without and with a private centre.

Data sets of 100,000 rows, y = 1 + 2x + N(0, 100), are divided into 100 partitions of 1,000 rows. Each method returns
quantiles of the posterior of the slope under a semi-conjugate prior. The bounds must contain four fifths of the
quantiles given each partition in panel `default`, and one half in `half-share`. In `abalone`, real rows are divided at
random. Panel `audit` contains the exact privacy loss of the private methods with few partitions.

Assumptions not stated in the paper: x ~ N(0, 1), β ~ N(0, 1000·I), σ² ~ IG(1, 1). The search for bounds starts at
μ = 1, requires a fraction θ = 0.8 of the partitions and ends after at most 30 doublings. Each probability p is a
separate release with privacy loss ε.

    dpstudies run partition-quantile --set epsilon=2 --set split=1:1 --set centred_split=0.4:0.6:1 --store s.zarr
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from mechanisms.audit.partitions import centred_losses, quantile_distributions, search_distributions
from mechanisms.core.conjugate import count_candidates
from mechanisms.core.exact_losses import audit_distributions
from mechanisms.core.protocols import validate_probabilities
from mechanisms.regression.partition_prior import SemiConjugatePrior
from mechanisms.regression.partition_quantile import (
    QUANTILE_METHODS,
    PartitionQuantile,
    QuantileMethod,
    partition_quantile,
)
from pipeline import Factor, Figure, Measure, Method, Panel, Scale, Statistic, Streams, Study
from studies.figures import Chart
from studies.panels import Values, given, method_of, require
from studies.regression.page_tables import audited_quantiles, compare_quantiles
from studies.regression.partition_figures import Limits, spreads
from studies.regression.partition_quantile_claims import CLAIMS, ERRATA
from studies.regression.partition_trials import (
    PartitionTrials,
    check_rows,
    full_method,
    row_factors,
    simulate_quantiles,
)


def _make(entry: QuantileMethod, n_partitions: int, setting: Values) -> PartitionQuantile:
    split = setting["centred_split" if entry.is_centred else "split"]
    search = {parameter: setting[parameter] for parameter in ("start", "share", "doublings")}
    return partition_quantile(entry, n_partitions, setting["epsilon"], split, **search)


def _evaluate(entry: QuantileMethod, trials: PartitionTrials, setting: Values, streams: Streams) -> dict[str, Any]:
    method = _make(entry, trials.parts.shape[1], setting)
    rows = zip(streams.generators(), trials.parts, trials.spreads, strict=True)
    released = [method.release(rng, parts, spreads) for rng, parts, spreads in rows]
    quantile = np.stack([drawn.values for drawn in released])
    guarantee = method.guarantee(len(setting["p"]))
    return {
        "slope_quantile": quantile,
        "difference": (quantile - trials.full) / trials.unit,
        "half_width": np.stack([drawn.half_widths for drawn in released]),
        "capped": np.stack([drawn.capped for drawn in released]).astype(np.int8),
        "spent": math.inf if guarantee is None else guarantee.epsilon,
    }


def _method(entry: QuantileMethod, evaluate: Callable[..., dict[str, Any]] = _evaluate) -> Method:
    # version 2: one scale for all p, and centres relative to the scale
    return method_of(entry, evaluate, version=2 if entry.is_centred and entry.has_noise else 1)


def _validate(cell: Values, setting: Values) -> bool:
    n_partitions = check_rows(cell).size
    validate_probabilities(cell["p"])
    variance, shape_rate = cell["prior_variance"], cell["variance_prior"]
    require(variance > 0, "prior_variance must be > 0", variance)
    require(len(shape_rate) == 2, "variance_prior must be a shape and a rate, such as 1:1", shape_rate)
    SemiConjugatePrior(0.0, 1.0 / variance, *shape_rate)
    if (entry := QUANTILE_METHODS.get(setting["algorithm"])) is not None:
        _make(entry, n_partitions, setting)
    return True


_RELEASE = (
    Factor("epsilon", (0.9,), "privacy loss of each p", unit="nat"),
    Factor("split", ("0.45:0.45",), "epsilon of bounds and noise", "vector", "nat"),
    Factor("centred_split", ("0.2:0.25:0.45",), "epsilon of scale, centre and noise", "vector", "nat"),
    Factor("start", (1.0,), "mu, half width of the first interval in the search for bounds"),
    Factor("share", (0.8,), "theta, fraction of the quantiles that the bounds must contain"),
    Factor("doublings", (30,), "largest number of doublings in the search for bounds"),
)
"""Constants that determine releases."""

_ABALONE = Panel(
    name="abalone",
    meaning="rings of 4,177 abalone on shell and shucked weight, divided at random in each trial",
    simulate=simulate_quantiles,
    methods=(
        full_method("slope_quantile", half_width=np.nan, capped=np.int8(0)),
        *map(_method, QUANTILE_METHODS.values()),
    ),
    measures=(
        Measure("slope_quantile", "posterior quantile of the slope", dims=("p",)),
        Measure("difference", "quantile minus that given all rows", "posterior sd", dims=("p",)),
        Measure("half_width", "half width of the clipping interval", dims=("p",), ragged=True),
        Measure("capped", "1 if the search for bounds failed", dims=("p",), dtype="int8", event=True),
        Measure("spent", "total privacy loss of the releases at all p", "nat", per_trial=False),
    ),
    outputs=(Factor("p", (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975), "probability"),),
    constants=(
        Factor("partition_size", (100,), "minimum number of rows per partition"),
        Factor("prior_variance", (1_000.0,), "prior variance of each coefficient"),
        Factor("variance_prior", ("1:1",), "shape and rate of the inverse gamma prior of the variance", "vector"),
        replace(_RELEASE[0], values=(3.0,)),
        replace(_RELEASE[1], values=("1.5:1.5",)),
        replace(_RELEASE[2], values=("0.7:0.8:1.5",)),
        *_RELEASE[3:],
    ),
    trials=1_000,
    block_trials=100,
    version=2,  # the error variance of each partition is integrated on its own grid
    statistics=(
        Statistic(
            "absolute",
            "difference",
            "median absolute difference from the quantile given all rows",
            lambda differences: np.median(np.abs(differences)),
            "posterior sd",
        ),
    ),
    validate=_validate,
)
_DEFAULT = replace(
    _ABALONE,
    name="default",
    meaning="simulated rows, semi-conjugate prior (P2, Figures 4.1 and 4.2)",
    constants=(*row_factors(10.0, "unknown"), *_ABALONE.constants[:3], *_RELEASE),
).with_values("partition_size", (1_000,))
_HALF = replace(
    _DEFAULT,
    name="half-share",
    meaning="simulated rows, with bounds that must contain half of the quantiles of the partitions",
).with_values("share", (0.5,))


_FAR = 9.0  # these quantiles are outside all intervals, so that the search ends at the largest number of doublings
_MOVES = ((1e9, 1e9), (-1e9, 1e-9), (_FAR, 10.0))  # quantile and standard deviation of the changed partition
_LARGEST_ENUMERATION = 20_000  # largest number of data sets that are enumerated


def _with_rings(entry: QuantileMethod, cell: Values, setting: Values) -> PartitionQuantile:
    """Return the method with one doubling per ring around the first interval."""
    return _make(entry, cell["n_partitions"], {**setting, "doublings": len(cell["ring"]) - 1})


def _audit_search(entry: QuantileMethod, cell: Values, setting: Values, streams: Streams) -> dict[str, Any]:
    """Audit the search over all data sets, and the search followed by a noisy mean for changes of one value."""
    method = _with_rings(entry, cell, setting)
    values = np.full((3, cell["n_partitions"]), -_FAR)
    values[1:, 0] = _FAR, 0.0
    search = audit_distributions(search_distributions(method.search))
    total = audit_distributions(quantile_distributions(method, values, [[0, 1], [0, 2]]))
    return {
        "exact_epsilon": total.epsilon,
        "search_epsilon": search.epsilon,
        "worst_dataset": search.witness.dataset,
        "worst_neighbour": search.witness.neighbour,
        "worst_output": search.witness.output,
    }


def _audit_centred(entry: QuantileMethod, cell: Values, setting: Values, streams: Streams) -> dict[str, Any]:
    """Audit the releases of scale, centre and mean if one quantile changes; the three losses add up to a bound."""
    n = cell["n_partitions"]
    method = _make(entry, n, setting)
    low = np.arange(n) < n / 2
    values, spreads = np.where(low, -_FAR, _FAR), np.where(low, 0.1, 10.0)
    missing = np.full(len(cell["ring"]), np.nan)
    return {
        "exact_epsilon": max(
            sum(centred_losses(method, values, spreads, (0, *moved), [1e-6, 1.0, 1e6])) for moved in _MOVES
        ),
        "search_epsilon": np.nan,
        "worst_dataset": missing,
        "worst_neighbour": missing,
        "worst_output": np.nan,
    }


def _validate_audit(cell: Values, setting: Values) -> bool:
    n, rings = cell["n_partitions"], cell["ring"]
    in_order = rings == tuple(range(len(rings))) and len(rings) >= 2
    require(in_order, "ring must be 0, 1, ... in order, at least 0 and 1", ", ".join(map(str, rings)))
    requirement = f"n_partitions must give at most {_LARGEST_ENUMERATION:,} data sets to enumerate"
    require(count_candidates(n, len(rings)) <= _LARGEST_ENUMERATION, requirement, n, "use fewer partitions")
    _with_rings(QUANTILE_METHODS["quantile"], cell, setting)
    _make(QUANTILE_METHODS[setting["algorithm"]], n, setting)
    return True


_AUDIT = Panel(
    name="audit",
    meaning="exact privacy loss of a release from few partitions; the search has one doubling per ring",
    simulate=given,
    methods=tuple(
        _method(entry, _audit_centred if entry.is_centred else _audit_search)
        for entry in map(QUANTILE_METHODS.__getitem__, ("quantile", "quantile-centred", "quantile-exact"))
    ),
    measures=(
        Measure("exact_epsilon", "largest privacy loss found; quantile-centred: sum over its steps", "nat"),
        Measure("search_epsilon", "exact privacy loss of the search for bounds over all data sets", "nat", ragged=True),
        *(
            Measure(
                f"worst_{data_set}",
                f"numbers of values of the {data_set} with the largest loss",
                "1",
                ("ring",),
                ragged=True,
            )
            for data_set in ("dataset", "neighbour")
        ),
        Measure("worst_output", "number of doublings with the largest loss", ragged=True),
    ),
    outputs=(Factor("ring", (0, 1, 2, 3), "values in the first interval, added by each doubling, and outside", "int"),),
    constants=(Factor("n_partitions", (6,), "number of partitions", "int"), *_RELEASE),
    validate=_validate_audit,
)


def _limits(rows: pd.DataFrame) -> Limits:
    """Return limits for the quartiles of the method `quantile`, which has far wider tails than the others."""
    private_quantiles = rows[rows["series"] == "quantile"]
    low, high = private_quantiles["low"].min(), private_quantiles["high"].max()
    if not low < high:  # its trials are pending
        return None, None
    return low - 0.5 * (high - low), high + 0.5 * (high - low)


def _spreads(panel: str) -> Chart:
    return spreads(panel, "p", "difference", _METHODS, "difference (posterior sd)", limits=_limits)


_BOXES = "Median, quartiles (box) and 5 and 95 % quantiles (line, clipped by the axes) over"
_METHODS = ("quantile-noiseless", "quantile", "quantile-centred-noiseless", "quantile-centred")

FIGURES = (
    Figure(
        "quantiles",
        "Posterior quantiles (P2, Figure 4.1)",
        f"{_BOXES} data sets of posterior quantiles of the slope, against their probability. Columns: given all rows, "
        "from partitions without noise, and released with noise. Top: bounds around 0; bottom: bounds around a private "
        "centre.",
        ("default",),
        spreads(
            "default",
            "p",
            "slope_quantile",
            ("full", *_METHODS[:2], "full", *_METHODS[2:]),
            "quantile of the slope",
            3,
            _limits,
        ),
    ),
    Figure(
        "quantile-differences",
        "Differences from the quantiles given all rows (P2, Figure 4.2)",
        f"{_BOXES} data sets of the quantile minus that given all rows, in standard deviations of the posterior given "
        "all rows. Top: bounds around 0; bottom: bounds around a private centre. Bounds around 0 need a width of 4 to "
        "contain slopes near 2, and the resulting noise is several posterior standard deviations.",
        ("default",),
        _spreads("default"),
        claims=(
            "reasonably-accurate",
            "partitions-have-no-pattern",
            "no-share-helps",
            "centre-first",
            "centre-first-is-accurate",
        ),
    ),
    Figure(
        "abalone-quantiles",
        "Rings of abalone on shell weight, 41 partitions",
        f"{_BOXES} random divisions of the same 4,177 rows of the quantile minus that given all rows. The rings are "
        "not linear in the weights, and slopes of partitions are on average larger than the slope given all rows.",
        ("abalone",),
        _spreads("abalone"),
    ),
)

STUDY = Study(
    name="partition-quantile",
    papers=("P2",),
    title="Private posterior quantiles of a regression slope, from partitions",
    aim="Compare quantiles from partitions, with and without bounds and noise, with those given all rows.",
    panels=(_DEFAULT, _HALF, _ABALONE, _AUDIT),
    seed=20_180_513,
    claims=CLAIMS,
    errata=ERRATA,
    figures=FIGURES,
    quick=Scale(trials={"default": 300, "half-share": 100, "abalone": 300}),
    comparisons=(compare_quantiles,),
    audits=(audited_quantiles,),
)
