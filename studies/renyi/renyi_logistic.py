"""Private Bayesian logistic regression on real records (P3, Figure 3 and appendix).

One draw of the weights is released and evaluated on a held-out third of the records. Panels `abalone`, `adult` and
`mnist` use one fixed split and 50 independent draws, as in P3. `abalone-strong` uses 4,000 draws at settings where 50
are not sufficient. `abalone-splits` splits Abalone at random in each trial. `csv` reads a user's file:

    dpstudies run renyi-logistic --set data=FILE.csv --set target=COLUMN --store s.zarr

Split R-hat and effective sample size are stored for each draw. A draw from chains that did not converge is a failed
trial.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mechanisms.glm.mechanisms import GLM_MECHANISMS
from pipeline import Factor, Figure, Measure, Panel, Scale, Statistic, Streams, Study
from studies.data import load, read_csv, split
from studies.figures import Axis, Chart
from studies.panels import method_of
from studies.renyi.logistic_trials import (
    LABELS,
    N_GROUPED,
    Group,
    evaluate_draws,
    group_trials,
    make_mechanism,
    simulate_fixed,
)
from studies.renyi.page_tables import compare_errors
from studies.renyi.renyi_figures import against_epsilon
from studies.renyi.renyi_logistic_claims import CLAIMS

_EPSILONS = tuple(math.exp(k) for k in range(-5, 4))
_ORDERS = (1.0, 10.0, 100.0)
_MECHANISMS = tuple(name for name, method in GLM_MECHANISMS.items() if method.budget != "gaussian")


def _simulate_splits(cell: Mapping[str, Any], streams: Streams) -> list[Group]:
    table = load("abalone")
    pairs = zip(streams.trials, streams.generators(), strict=True)
    return [Group(split(table, rng), range(trial, trial + 1)) for trial, rng in pairs]


def _simulate_csv(cell: Mapping[str, Any], streams: Streams) -> list[Group]:
    return group_trials(read_csv(cell["data"], cell["target"]), streams)


def _validate(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    if "target" in cell:
        read_csv(cell["data"], cell["target"])
    make_mechanism(setting["mechanism"], 1, setting)
    return True


def _panel(
    name: str,
    meaning: str,
    simulate: Callable[[Mapping[str, Any], Streams], list[Group]],
    source: tuple[Factor, ...] = (),
    orders: tuple[float, ...] = _ORDERS,
    epsilons: tuple[float, ...] = _EPSILONS,
    mechanisms: tuple[str, ...] = _MECHANISMS,
    trials: int = 50,
    block_trials: int = 2 * N_GROUPED,
    on_demand: bool = False,
) -> Panel:
    return Panel(
        name=name,
        meaning=meaning,
        simulate=simulate,
        methods=tuple(
            method_of(GLM_MECHANISMS[name], evaluate_draws, uses=GLM_MECHANISMS[name].uses) for name in mechanisms
        ),
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
            Factor("order", orders, "order of the Rényi divergence"),
            Factor("epsilon", epsilons, "privacy loss", unit="nat"),
        ),
        constants=(*source, Factor("beta", (1e-3,), "prior precision of a weight, per training record")),
        method_dim="mechanism",
        trials=trials,
        block_trials=block_trials,
        on_demand=on_demand,
        settings_apart=True,
        statistics=(
            Statistic("largest", "rhat", "largest split R-hat among the draws", np.max),
            Statistic("smallest", "ess", "smallest effective sample size among the draws", np.min),
        ),
        validate=_validate,
    )


_PANELS = (
    *(
        _panel(name, f"{LABELS[name]} (P3, Figure {figure})", simulate_fixed(name))
        for name, figure in zip(LABELS, ("3a", "3b", "3c"), strict=True)
    ),
    _panel("abalone-splits", "Abalone, split at random in each trial", _simulate_splits),
    _panel(
        "abalone-strong",
        "Abalone at the smallest epsilon, with enough draws to compare Algorithms 4 and 5",
        simulate_fixed("abalone"),
        orders=_ORDERS[-1:],
        epsilons=_EPSILONS[:3],
        mechanisms=("glm-concentrated", "glm-diffused"),
        trials=4000,
        block_trials=20 * N_GROUPED,
    ),
    _panel(
        "csv",
        "a user's CSV file",
        _simulate_csv,
        (
            Factor("data", ("FILE.csv",), "path of the file, with column names in the first row", "str"),
            Factor("target", ("target",), "column with the two classes", "str"),
        ),
        on_demand=True,
    ),
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
    panels=_PANELS,
    seed=20_171_204,
    claims=CLAIMS,
    figures=_FIGURES,
    quick=Scale(10, ("abalone",), {"order": (10.0,), "epsilon": (math.exp(-5), math.exp(1))}),
    comparisons=(compare_errors,),
)
