"""Private Bayesian logistic regression on real records (P3, Figure 3 and appendix).

One draw of the weights is released and evaluated on a held-out third of the records. Panels `abalone`, `adult` and
`mnist` use one fixed split and 50 independent draws, as in P3. `abalone-strong` uses 4,000 draws at settings where 50
are not sufficient. `abalone-splits` splits Abalone at random in each trial. `csv` reads a user's file:

    dpstudies run renyi-logistic --set data=FILE.csv --set target=COLUMN --store s.zarr

Split R-hat and effective sample size are stored for each draw. A draw from chains that did not converge is a failed
trial.
"""

import math
from dataclasses import replace

import numpy as np

from mechanisms.glm.mechanisms import GLM_MECHANISMS
from pipeline import Factor, Figure, Measure, Panel, Scale, Statistic, Streams, Study
from studies.data import load, read_csv, split
from studies.figures import Axis, Chart
from studies.panels import Values, method_of
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


def _simulate_splits(cell: Values, streams: Streams) -> list[Group]:
    table = load("abalone")
    pairs = zip(streams.trials, streams.generators(), strict=True)
    return [Group(split(table, rng), range(trial, trial + 1)) for trial, rng in pairs]


def _simulate_csv(cell: Values, streams: Streams) -> list[Group]:
    return group_trials(read_csv(cell["data"], cell["target"]), streams)


def _validate(cell: Values, setting: Values) -> bool:
    if "target" in cell:
        read_csv(cell["data"], cell["target"])
    make_mechanism(setting["mechanism"], 1, setting)
    return True


_EPSILONS = tuple(math.exp(k) for k in range(-5, 4))
_BETA = Factor("beta", (1e-3,), "prior precision of a weight, per training record")
_SPLITS = Panel(
    name="abalone-splits",
    meaning="Abalone, split at random in each trial",
    simulate=_simulate_splits,
    methods=tuple(
        method_of(one, evaluate_draws, uses=one.uses) for one in GLM_MECHANISMS.values() if one.budget != "gaussian"
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
    claims=CLAIMS,
    figures=_FIGURES,
    quick=Scale(10, ("abalone",), {"order": (10.0,), "epsilon": (math.exp(-5), math.exp(1))}),
    comparisons=(compare_errors,),
)
