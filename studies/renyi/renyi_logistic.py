"""Private Bayesian logistic regression on real records (P3, Figure 3 and appendix).

One draw of the weights is released and evaluated on a held-out third of the records. Panels `abalone`, `adult` and
`mnist` use one fixed split and 50 independent draws, as in P3. `abalone-strong` uses 4,000 draws at settings where 50
are not sufficient. `abalone-splits` splits Abalone at random in each trial. `csv` reads a user's file:

    dpstudies run renyi-logistic --set data=FILE.csv --set target=COLUMN --store s.zarr

Split R-hat and effective sample size are stored for each draw. A draw from chains that did not converge is a failed
trial. Differences of means within four Monte Carlo standard errors are undecided, because one claim compares about a
hundred means. Standard errors are those of draws on a fixed split, except for random splits.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.draws.glm_mechanisms import GLM_MECHANISMS, glm_mechanism
from pipeline import (
    EVERY_PANEL,
    Criteria,
    Factor,
    Figure,
    Finding,
    Measure,
    Panel,
    Scale,
    Statistic,
    Streams,
    Study,
    claim,
    claims_in,
    verdict,
)
from studies.claims import Look, count, decide, gap, in_panels, joined, p3, span, together
from studies.data import load, read_csv, split
from studies.figures import Axis, Chart
from studies.panels import Values, method_of
from studies.renyi.logistic_trials import (
    LABELS,
    LARGEST_RHAT,
    LEAST_ESS,
    N_GROUPED,
    Group,
    evaluate_draws,
    group_trials,
    make_mechanism,
    simulate_fixed,
)
from studies.renyi.own_draws import tested_draw
from studies.renyi.page_tables import compare_errors
from studies.renyi.renyi_figures import against_epsilon


def _simulate_splits(cell: Values, streams: Streams) -> list[Group]:
    table = load("abalone")
    pairs = zip(streams.trials, streams.generators(), strict=True)
    return [Group(split(table, rng), range(trial, trial + 1)) for trial, rng in pairs]


def _simulate_csv(cell: Values, streams: Streams) -> list[Group]:
    return group_trials(read_csv(cell["data"], cell["target"]), streams)


def _validate(cell: Values, setting: Values) -> bool:
    if "target" in cell:
        read_csv(cell["data"], cell["target"])
    make_mechanism("true-posterior", 1, setting)
    return True


def _is_supported(name: str, cell: Values, setting: Values) -> bool:
    make_mechanism(name, 1, setting)
    return True


_EPSILONS = tuple(math.exp(k) for k in range(-5, 4))
_BETA = Factor("beta", (1e-3,), "prior precision of a weight, per training record")
_SPLITS = Panel(
    name="abalone-splits",
    meaning="Abalone, split at random in each trial",
    simulate=_simulate_splits,
    methods=tuple(
        method_of(entry, evaluate_draws, uses=entry.uses, supports=partial(_is_supported, entry.name))
        for entry in GLM_MECHANISMS.values()
        if entry.budget != "gaussian"
    ),
    accepts={"draw": tested_draw},
    measures=(
        Measure("test_error", "fraction of misclassified test records"),
        Measure("test_nll", "mean negative log-likelihood of a test record", "nat"),
        Measure("rhat", "largest split R-hat of the chains"),
        Measure("ess", "smallest bulk effective sample size of the chains"),
        Measure("n_train", "number of training records", dtype="int64", per_trial=False),
        Measure("n_columns", "number of weights", dtype="int64", per_trial=False),
        Measure("data_digest", "first 15 hexadecimal digits of the data's SHA-256", dtype="int64", per_trial=False),
    ),
    method_factors=(
        Factor("order", (1.0, 10.0, 100.0), "order of the Rényi divergence"),
        Factor("epsilon", _EPSILONS, "privacy loss", unit="nat"),
    ),
    constants=(_BETA,),
    method_dim="mechanism",
    trials=50,
    block_trials=2 * N_GROUPED,
    settings_apart=True,
    statistics=(
        Statistic("largest", "rhat", "largest split R-hat among the draws", np.max),
        Statistic("smallest", "ess", "smallest effective sample size among the draws", np.min),
    ),
    validate=_validate,
)
_FIXED = {
    name: replace(_SPLITS, name=name, meaning=f"{LABELS[name]} (P3, Figure {figure})", simulate=simulate_fixed(name))
    for name, figure in zip(LABELS, ("3a", "3b", "3c"), strict=True)
}
_STRONG = replace(
    _FIXED["abalone"],
    name="abalone-strong",
    meaning="Abalone at the smallest epsilon, with enough draws to compare Algorithms 4 and 5",
    trials=4000,
    block_trials=20 * N_GROUPED,
)
_STRONG = _STRONG.with_values("mechanism", ("glm-concentrated", "glm-diffused"))
_STRONG = _STRONG.with_values("order", (100.0,)).with_values("epsilon", _EPSILONS[:3])
_SOURCE = (
    Factor("data", ("FILE.csv",), "path of the file, with column names in the first row", "str"),
    Factor("target", ("target",), "column with the two classes", "str"),
)
_CSV = replace(
    _SPLITS,
    name="csv",
    meaning="a user's CSV file",
    simulate=_simulate_csv,
    constants=(*_SOURCE, _BETA),
    on_demand=True,
)


_SAMPLERS = ("glm-concentrated", "glm-diffused")
_OPS = ("ops", "ops-tight", "ops-renyi")
_DECIDING = 4.0
_REPEATS = 50  # number of draws per setting, as in P3


Pairs = tuple[tuple[str, str], ...]
"""Two mechanisms that are compared."""


def _ends(*mechanisms: str, panels: Iterable[str] = LABELS) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim: the ends of the published grid; verdicts cover all stored ε and orders."""
    orders, epsilons = (1.0, 10.0, 100.0, ...), (math.exp(-5), math.exp(3), ...)
    return in_panels(panels, order=orders, epsilon=epsilons, mechanism=mechanisms)


def _of_pairs(pairs: Pairs) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim about pairs; see `_ends`."""
    return _ends(*(name for pair in pairs for name in pair))


def _compare(ds: xr.Dataset, measure: str, method: str, other: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Return masks of the settings in which `method` has a significantly smaller, or a larger, mean than `other`."""
    more, error = gap(ds, measure, method, other)
    return more < -_DECIDING * error, more > _DECIDING * error


def _same_distribution(ds: xr.Dataset, method: str, other: str) -> xr.DataArray:
    """Return a mask of settings in which both mechanisms draw from one distribution, such as the true posterior."""
    n, beta = int(ds["n_train"].max()), float(ds["beta"])

    def is_same(order: float, epsilon: float) -> bool:
        first, second = (glm_mechanism(name, n, beta, order, epsilon) for name in (method, other))
        return (first.precision, first.power, first.radius) == (second.precision, second.power, second.radius)

    return xr.apply_ufunc(np.vectorize(is_same, otypes=[bool]), ds["order"], ds["epsilon"])


def _where(marked: xr.DataArray) -> str:
    """Format the range of ε in the marked settings, for each order."""
    ranges = (
        (is_marked["order"], np.log(is_marked["epsilon"][is_marked]))
        for is_marked in marked.transpose("order", ...)
        if is_marked.any()
    )
    return "; ".join(
        f"order {order:g}, epsilon e^{span(powers, '.0f').replace(' to ', ' to e^')}" for order, powers in ranges
    )


@joined(
    "Numbers of settings (order, epsilon) with means at least four standard errors apart, among those at which the two "
    "distributions differ: {}."
)
def _beats(look: Look, measure: str, pairs: Pairs) -> Iterator[Finding]:
    """Judge that, in each pair, the first mechanism has the smaller mean where distributions differ."""
    for method, other in pairs:
        parts = []
        for panel, ds in look.items():
            differ = ~_same_distribution(ds, method, other)
            ahead, behind = (mask & differ for mask in _compare(ds, measure, method, other))
            part = f"{panel} {count(ahead, differ)}"
            for word, marked in (("larger", behind), ("undecided", ~ahead & ~behind & differ)):
                part += f" ({word} in {int(marked.sum())}: {_where(marked)})" if marked.any() else ""
            parts.append(decide((ahead == differ).all(), behind.any(), part))
        yield together(parts, f"{method} smaller than {other} in {{}}", ", ")


@claim(
    "converged",
    f"Every draw comes from chains with split R-hat below {LARGEST_RHAT} and bulk ESS of at least {LEAST_ESS}.",
    short="Every chain has converged, and has enough effective draws.",
    kind="self-check",
    place="P3 uses 1,000 steps without a diagnostic",
    needs=in_panels((*LABELS, "abalone-splits", "abalone-strong")),
    also=EVERY_PANEL,
    min_trials=0,
)
@joined()
def converged(look: Look) -> Iterator[Finding]:
    for panel, ds in look.items():
        rhat, ess = float(ds["rhat_largest"].max()), float(ds["ess_smallest"].min())
        n_failed = int(ds["n_failed"].sum())  # chains that did not converge are failed trials
        evidence = f"{panel}: split R-hat <= {rhat:.4f}, ESS >= {ess:.0f}, {n_failed} failed trials"
        yield verdict(n_failed == 0 and rhat < LARGEST_RHAT and ess >= LEAST_ESS, evidence)


_PUBLISHED_OPS: Pairs = tuple((sampler, "ops") for sampler in _SAMPLERS)
_BETTER_OPS: Pairs = tuple(product(_SAMPLERS, ("ops-tight", "ops-renyi")))
_ALL_OPS: Pairs = tuple(product(_SAMPLERS, _OPS))
_OWN: Pairs = (("glm-diffused", "glm-concentrated"),)


@p3(
    short="Algorithms 4 and 5 have a lower test error than one posterior sample (OPS).",
    place="section 5.2, Figure 3",
    min_trials=_REPEATS,
    needs=_of_pairs(_PUBLISHED_OPS),
)
def beats_ops(look: Look) -> Finding:
    """Algorithms 4 and 5 have a lower test error than one posterior sample (OPS) at all privacy levels and on all data
    sets.
    """
    return _beats(look, "test_error", _PUBLISHED_OPS)


@claim(
    short="Algorithms 4 and 5 have a lower test error than improved variants of OPS.",
    kind="self-check",
    min_trials=_REPEATS,
    needs=_of_pairs(_BETTER_OPS),
)
def beats_better_ops(look: Look) -> Finding:
    """Algorithms 4 and 5 have a lower test error than OPS with twice the power (ops-tight), and than OPS with the same
    Rényi guarantee by its pure one (ops-renyi).
    """
    return _beats(look, "test_error", _BETTER_OPS)


@p3(place="section 5.2 and appendix", min_trials=_REPEATS, needs=_of_pairs(_ALL_OPS))
def beats_ops_in_likelihood(look: Look) -> Finding:
    """Algorithms 4 and 5 have a higher test likelihood than all variants of OPS."""
    return _beats(look, "test_nll", _ALL_OPS)


@p3(
    place="section 5.2, Figure 3",
    min_trials=_REPEATS,
    needs={**_of_pairs(_OWN), "abalone-strong": {"mechanism": _OWN[0]}},
)
def diffused_beats_concentrated(look: Look) -> Finding:
    """Algorithm 5 always has a lower test error than Algorithm 4."""
    return _beats(look, "test_error", _OWN)


@p3(place="appendix", min_trials=_REPEATS, needs=_of_pairs(_OWN))
def diffused_beats_concentrated_in_likelihood(look: Look) -> Finding:
    """Algorithm 5 has a higher test likelihood than Algorithm 4."""
    return _beats(look, "test_nll", _OWN)


@claim(
    short="Comparisons on one split of Abalone also hold over random splits.",
    kind="self-check",
    min_trials=_REPEATS,
    needs=_ends(*_SAMPLERS, "ops", "true-posterior", panels=("abalone", "abalone-splits")),
)
def one_split_is_enough(look: Look) -> Finding:
    """The comparisons of diffused, concentrated and OPS on one split of Abalone also hold over random splits."""
    fixed, splits = look.values()
    confirmed = contradicted = decided = 0
    for method, other in (*_OWN, *_PUBLISHED_OPS):
        (ahead, behind), (there, back) = (_compare(ds, "test_error", method, other) for ds in (fixed, splits))
        decided += int((ahead | behind).sum())
        confirmed += int(((ahead & there) | (behind & back)).sum())
        contradicted += int(((ahead & back) | (behind & there)).sum())
    spread = [ds["test_error_sd"].sel(mechanism="true-posterior").mean() for ds in (splits, fixed)]
    return decide(
        confirmed == decided > 0,
        contradicted > 0,
        f"Of {decided} settings decided on one split (diffused against concentrated, both against ops), random splits "
        f"confirm {confirmed} and contradict {contradicted}. For the true posterior, the standard deviation of the "
        f"test error is {spread[0]:.3f} over random splits and {spread[1]:.3f} over draws on one split.",
    )


def _chart(measure: str, ylabel: str) -> Chart:
    """Describe the mean of a measure against ε, with one row per order and one column per panel."""
    x = Axis("ε (nat)", log=True, ticks=(0.01, 0.1, 1.0, 10.0))
    return against_epsilon(measure, ylabel, x=x, facet={"order": "order {}"}, panels_in_row=True, height=160)


_CAPTION = (
    " against the privacy loss, with one row per order of the Rényi guarantee{}. Error bars show ± 2 Monte Carlo "
    "standard errors. true-posterior: the posterior without privacy. glm-diffused: Algorithm 5. glm-concentrated: "
    "Algorithm 4. ops, ops-tight, ops-renyi: OPS as published, with twice the likelihood power, and calibrated to the "
    "same Rényi guarantee through its pure one."
)
_BY_DATA_SET = _CAPTION.format(" and one column per data set")

_FIGURES = (
    Figure(
        "test-error",
        "Test error (P3, Figure 3)",
        "Mean test error" + _BY_DATA_SET,
        tuple(LABELS),
        _chart("test_error", "test error"),
    ),
    Figure(
        "test-nll",
        "Test likelihood (P3, appendix)",
        "Mean negative log-likelihood of a test record" + _BY_DATA_SET,
        tuple(LABELS),
        _chart("test_nll", "−log-likelihood of a test record (nat)"),
        claims=("beats-ops-in-likelihood", "diffused-beats-concentrated-in-likelihood"),
    ),
    Figure(
        "splits",
        "Test error over random splits",
        "Mean test error over random splits, with one draw per split," + _CAPTION.format(""),
        ("abalone-splits",),
        _chart("test_error", "test error"),
        claims=("one-split-is-enough",),
    ),
    Figure(
        "csv-test-error",
        "Test error on the user's data",
        "Mean test error" + _CAPTION.format(""),
        ("csv",),
        _chart("test_error", "test error"),
    ),
)

STUDY = Study(
    name="renyi-logistic",
    papers=("P3",),
    title="Rényi-DP posterior sampling for logistic regression on real records",
    aim="Compare private draws of the weights on test records at equal privacy.",
    panels=(*_FIXED.values(), _SPLITS, _STRONG, _CSV),
    seed=20_171_204,
    claims=claims_in(globals()),
    figures=_FIGURES,
    criteria=Criteria(loss=("test_nll", "test_error")),
    quick=Scale(10, ("abalone",), {"order": (10.0,), "epsilon": (math.exp(-5), math.exp(1))}),
    comparisons=(compare_errors,),
)
