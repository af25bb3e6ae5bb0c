"""Private Bayesian logistic regression on real records: P3, Figure 3, and the test likelihoods of its appendix.

One draw of the weights is released; it is judged on a third of the records, which no mechanism sees. Panels `abalone`,
`adult` and `mnist` have one fixed split each, and 50 independent draws, as P3 has; `abalone-strong` has 4,000, where 50
do not decide; `abalone-splits` divides Abalone anew for every trial; `csv` takes any user's file:

    dpstudies run renyi-logistic --set data=FILE.csv --set target=COLUMN --store s.zarr

Every point's chains are judged by split R-hat and effective sample size, stored beside it; a draw from chains that did
not converge is a failed trial.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi differential privacy mechanisms for posterior sampling", NeurIPS 2017.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from mechanisms.glm.mechanisms import GLM_MECHANISMS
from pipeline import Factor, Measure, Method, Panel, Statistic, Streams, Study
from studies.data import Classification, Table, load, read_csv, split
from studies.renyi.logistic_trials import N_GROUPED, Group, evaluate_draws, group_trials, make_mechanism
from studies.renyi.renyi_logistic_claims import CLAIMS, FIGURES

_EPSILONS = tuple(math.exp(k) for k in range(-5, 4))
_ORDERS = (1.0, 10.0, 100.0)
_USES: dict[str, tuple[str, ...]] = {
    "glm-concentrated": ("order", "epsilon"),
    "glm-diffused": ("order", "epsilon"),
    "ops": ("epsilon",),
    "ops-tight": ("epsilon",),
    "ops-renyi": ("order", "epsilon"),
    "true-posterior": (),
}
_NOTES = {
    "true-posterior": "Not private: spends what the posterior spends, whatever epsilon is.",
    "ops": "Pure DP; at most half of what it states is spent.",
    "ops-tight": "Pure DP.",
    "ops-renyi": "Calibrated through its pure guarantee.",
}


@lru_cache(maxsize=4)
def _divided(table: Table) -> Classification:
    """Divide records once: every setting is a task of its own."""
    return split(table)


def _simulate_fixed(name: str) -> Callable[[Mapping[str, Any], Streams], list[Group]]:
    def simulate(cell: Mapping[str, Any], streams: Streams) -> list[Group]:
        return group_trials(_divided(load(name)), streams)

    return simulate


def _simulate_splits(cell: Mapping[str, Any], streams: Streams) -> list[Group]:
    table = load("abalone")
    pairs = zip(streams.trials, streams.generators(), strict=True)
    return [Group(split(table, rng), range(trial, trial + 1)) for trial, rng in pairs]


def _simulate_csv(cell: Mapping[str, Any], streams: Streams) -> list[Group]:
    return group_trials(_divided(read_csv(cell["data"], cell["target"])), streams)


def _method(name: str) -> Method:
    def evaluate(groups: list[Group], setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        return evaluate_draws(name, groups, setting, streams)

    return Method(name, evaluate, uses=_USES[name], note=_NOTES.get(name, ""))


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
    mechanisms: tuple[str, ...] = tuple(GLM_MECHANISMS),
    trials: int = 50,
    block_trials: int = 2 * N_GROUPED,
    on_demand: bool = False,
) -> Panel:
    return Panel(
        name=name,
        meaning=meaning,
        simulate=simulate,
        methods=tuple(_method(mechanism) for mechanism in mechanisms),
        measures=(
            Measure("test_error", "share of test records classified wrongly"),
            Measure("test_nll", "mean negative log-likelihood of a test record", "nat"),
            Measure("rhat", "largest split R-hat of the chains"),
            Measure("ess", "smallest bulk effective sample size of the chains"),
            Measure("n_train", "number of training records", dtype="int64", per_trial=False),
            Measure("n_columns", "number of weights", dtype="int64", per_trial=False),
            Measure("data_digest", "first 15 hexadecimal digits of the data's SHA-256", dtype="int64", per_trial=False),
        ),
        method_factors=(
            Factor("order", orders, "order of the Renyi divergence"),
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
    _panel("abalone", "Abalone, fewer than 10 rings (P3, Figure 3a)", _simulate_fixed("abalone")),
    _panel("adult", "Adult, income above 50K (P3, Figure 3b)", _simulate_fixed("adult")),
    _panel("mnist", "MNIST, digit 8 against 3 (P3, Figure 3c)", _simulate_fixed("mnist")),
    _panel("abalone-splits", "Abalone, split at random in each trial", _simulate_splits),
    _panel(
        "abalone-strong",
        "Abalone at the strongest privacy, with draws enough to tell Algorithm 5 from Algorithm 4",
        _simulate_fixed("abalone"),
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
            Factor("data", ("FILE.csv",), "path of the file, names in its first row", "str"),
            Factor("target", ("target",), "column with the two classes", "str"),
        ),
        on_demand=True,
    ),
)

STUDY = Study(
    name="renyi-logistic",
    title="Rényi-DP posterior sampling for logistic regression on real records",
    aim="Compare what one private draw of the weights is worth on test records, at equal privacy.",
    panels=_PANELS,
    seed=20_171_204,
    claims=CLAIMS,
    figures=FIGURES,
)
