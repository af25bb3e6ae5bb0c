"""Constructors of priors, families, models and noise refuse numeric arguments that are not real numbers."""

import math

import numpy as np
import pytest

from mechanisms import glm_mechanism
from mechanisms.core.conjugate import validate_prior
from mechanisms.core.noise import Noise
from mechanisms.draws.worst_case import limiting_case
from mechanisms.inference.families import MODELS
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.regression.partition_prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.sparse_vector import SparseVector
from mechanisms.regression.statistics import partition_statistics

ROWS = partition_statistics([[0.0], [1.0], [2.0], [3.0]], [0.9, 3.1, 5.0, 7.2], [0, 0, 0, 0])
GLM = {"name": "ops", "n": 100, "beta": 0.1, "order": 2.0, "epsilon": 1.0, "norm_bound": 1.0}
CASE = {"beta": 0.1, "dimension": 1, "norm_bound": 1.0, "power": 1.0}
SEARCH = {"n_values": 100, "epsilon": 1.0, "start": 1.0, "share": 0.8, "doublings": 30}
LAPLACE = Noise("laplace", 1.0)
PRIORS = {name: (1.0,) * (3 if model.is_vector else len(model.hyperparameters)) for name, model in MODELS.items()}
PARAMETERS = {"multinomial": [0.5, 0.25, 0.25], "normal-unknown-variance": [0.5, 0.5]}
TRUNCATED = [name for name, model in MODELS.items() if model.is_truncated]


def replaced(values, place, value):
    return (*values[:place], value, *values[place + 1 :])


def with_argument(function, arguments, name):
    """Return a function of the value of one argument, and a valid value."""
    return lambda value: function(**{**arguments, name: value}), arguments[name]


CASES = {
    "ZellnerPrior(g)": (ZellnerPrior, 4.0),
    **{
        f"{prior.__name__}({name})": with_argument(prior, {name: 1.0}, name)
        for prior in (ConjugatePrior, SemiConjugatePrior)
        for name in ("mean", "precision", "shape", "rate")
    },
    **{
        f"coefficient_posterior({name})": with_argument(
            lambda **arguments: coefficient_posterior(ROWS, 1, FlatPrior(), **arguments), {name: 1.0}, name
        )
        for name in ("error_variance", "power")
    },
    **{f"SparseVector({name})": with_argument(SparseVector, SEARCH, name) for name in SEARCH},
    **{f"glm_mechanism({name})": with_argument(glm_mechanism, GLM, name) for name in GLM if name != "name"},
    **{f"limiting_case({name})": with_argument(limiting_case, CASE, name) for name in CASE},
    "Noise(scale)": (lambda value: Noise("laplace", value), 1.0),
    "validate_prior": (lambda value: validate_prior([value, 1.0]), 1.0),
    **{
        f"{family}.prior[{place}]": (
            lambda value, family=family, place=place: MODELS[family].validate_prior(
                replaced(PRIORS[family], place, value)
            ),
            1.0,
        )
        for family in MODELS
        for place in range(len(PRIORS[family]))
    },
    **{
        f"{family}.theta": (
            lambda value, family=family: MODELS[family].validate_parameters(
                replaced(PARAMETERS.get(family, [0.5]), 0, value)
            ),
            0.5,
        )
        for family in MODELS
    },
    **{
        f"{family}.bounds[{place}]": (
            lambda value, family=family, place=place: MODELS[family].validate_bounds(
                replaced((0.0, 9.0), place, value)
            ),
            (0.0, 9.0)[place],
        )
        for family in TRUNCATED
        for place in range(2)
    },
    "ReleaseModel(n)": (lambda value: ReleaseModel("binomial", value, LAPLACE), 10),
    **{
        f"ReleaseModel({name}[{place}])": (
            lambda value, name=name, place=place: ReleaseModel(
                "normal",
                10,
                LAPLACE,
                **{"bounds": (0.0, 5.0), "parameter_range": (0.0, 5.0), name: replaced((0.0, 5.0), place, value)},
            ),
            (0.0, 5.0)[place],
        )
        for name in ("bounds", "parameter_range")
        for place in range(2)
    },
}


@pytest.mark.parametrize("case", CASES)
def test_numeric_arguments_refuse_other_types_in_one_line(case):
    construct, valid = CASES[case]
    construct(valid)  # negative control
    construct(np.float32(valid))
    for value in (
        "1.0",
        True,
        np.True_,
        math.nan,
        1.0 + 0.5j,
        None if case != "coefficient_posterior(error_variance)" else [],
    ):
        with pytest.raises(ValueError, match=r"must .*, got .*; ") as caught:
            construct(value)
        assert "\n" not in str(caught.value)
