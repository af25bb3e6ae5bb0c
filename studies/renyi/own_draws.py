"""Private draws of users, of kind ``draw``, in the panels of `private-mcmc` and `renyi-logistic`.

Draws of `renyi-logistic` are asked for at δ = 0: ε-DP implies (λ, ε)-RDP at every order λ.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from mechanisms.core.arguments import real_array, returned_array
from pipeline import Method, Streams
from studies.own_methods import OwnMethod, evaluate_trials
from studies.panels import Values
from studies.renyi.logistic_trials import (
    OF_PUBLISHED,
    OF_SIMULATED,
    Array,
    Group,
    Simulated,
    forecasts,
    is_planned,
    score_draw,
    score_published,
    score_simulated,
)


def published_draw(own: OwnMethod) -> Method:
    """Return the method of a panel of `private-mcmc` on real records."""
    return _method(own, _evaluate_published)


def simulated_draw(own: OwnMethod) -> Method:
    """Return the method of the panel of `private-mcmc` on simulated records."""
    return _method(own, _evaluate_simulated)


def tested_draw(own: OwnMethod) -> Method:
    """Return the method of a panel of `renyi-logistic`."""
    return _method(own, _evaluate_tested)


def _method(own: OwnMethod, evaluate: Any) -> Method:
    return own.method(partial(evaluate, own), uses=("epsilon",), supports=partial(_supports, own))


def _supports(own: OwnMethod, cell: Values, setting: Values) -> bool:
    epsilon, delta = setting["epsilon"], setting.get("delta", 0.0)
    return own.states(epsilon, delta) and own.applies({"delta": delta, **cell, **setting})


def _draw(own: OwnMethod, rng: np.random.Generator, X: Array, y: Array, setting: Values) -> Array:
    """Return the published draws, shape (k, d); raise ValueError for another shape and values that are not finite."""
    more = {"precision": len(y) * setting["beta"]} if own.takes_precision else {}
    label = f"fit of {own.name}"
    result = own.fit(rng, X, np.asarray(y, dtype=np.float64), setting["epsilon"], setting.get("delta", 0.0), **more)
    draws = np.atleast_2d(real_array(label, returned_array(label, result)))
    if draws.ndim != 2 or draws.shape[1] != X.shape[1] or not len(draws):
        d = X.shape[1]
        raise ValueError(f"{label} must return weights of shape ({d},), or (draws, {d}), got {np.shape(result)}")
    if not np.isfinite(draws).all():
        raise ValueError(f"draws of {own.name} must be finite, got {(~np.isfinite(draws)).sum()} values that are not")
    return draws


def _evaluate_published(own: OwnMethod, groups: list[Group], setting: Values, streams: Streams) -> Mapping[str, Any]:
    data = groups[0].data

    def evaluate(i: int, rng: np.random.Generator, uniforms: Array) -> dict[str, Any]:
        draws = _draw(own, rng, data.train_x, data.train_y, setting)
        return dict(zip(OF_PUBLISHED, score_published(draws, data, setting["beta"]), strict=True))

    measures = evaluate_trials(evaluate, 0, streams)
    return {**measures, **forecasts(len(data.train_y), data.train_x.shape[1], setting)}


def _evaluate_simulated(
    own: OwnMethod, records: Sequence[Simulated], setting: Values, streams: Streams
) -> Mapping[str, Any]:
    setting, n = {**setting, "beta": records[0].beta}, len(records[0].labels)

    def evaluate(i: int, rng: np.random.Generator, uniforms: Array) -> dict[str, Any]:
        draws = _draw(own, rng, records[i].design, records[i].labels, setting)
        return dict(zip(OF_SIMULATED, score_simulated(draws, records[i]), strict=True))

    measures = evaluate_trials(evaluate, 0, streams)
    return {**measures, **forecasts(n, 2, setting), "planned": is_planned(n, setting)}


def _evaluate_tested(own: OwnMethod, groups: list[Group], setting: Values, streams: Streams) -> Mapping[str, Any]:
    """Return the measures of one draw per trial; its diagnostics are those of an independent draw."""
    trials = {trial: group.data for group in groups for trial in group.trials}

    def evaluate(i: int, rng: np.random.Generator, uniforms: Array) -> dict[str, Any]:
        data = trials[streams.trials[i]]
        draws = _draw(own, rng, data.train_x, data.train_y, setting)
        if len(draws) != 1:
            raise ValueError(f"fit of {own.name} must return one draw in this panel, got {len(draws)}")
        (error,), (nll,) = score_draw(draws, data)
        return {"test_error": error, "test_nll": nll, "rhat": 1.0, "ess": 1.0}

    measures = evaluate_trials(evaluate, 0, streams)
    data = groups[0].data
    n_train, n_columns = data.train_x.shape
    of_data = {"n_train": n_train, "n_columns": n_columns, "data_digest": int(data.digest[:15], 16)}
    return {**measures, **of_data}
