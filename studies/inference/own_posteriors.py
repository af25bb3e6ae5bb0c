"""Posteriors of users, of kind ``posterior``, in the panels of `calibration` and `exact-inference`."""

from functools import partial
from typing import Any

import numpy as np

from pipeline import Method, Streams
from studies.inference import exact_trials, noisy_trials
from studies.inference.noisy_trials import Array, release_model
from studies.own_methods import Draws, OwnMethod, evaluate_trials, randomised_quantile
from studies.panels import Values

_N_SAMPLED = 2_000  # draws of a posterior that a method returns in place of draws


def calibrated_posterior(family: str, own: OwnMethod) -> Method:
    """Return the method of a panel of `calibration`."""
    return own.method(partial(_calibrate, own), supports=partial(_supports, family, own))


def compared_posterior(family: str, own: OwnMethod) -> Method:
    """Return the method of a panel of `exact-inference`."""
    return own.method(partial(_compare, own), supports=partial(_supports, family, own))


def _supports(family: str, own: OwnMethod, cell: Values, setting: Values) -> bool:
    return own.applies({**cell, "family": family, "model": release_model(family, cell)})


def _fit(own: OwnMethod, rng: np.random.Generator, model: Any, prior: tuple[float, ...], y: Array, p: int) -> Draws:
    """Return the draws of one trial; of a posterior, independent draws and the posterior itself."""
    result = own.fit(rng, model, prior, y)
    if not (hasattr(result, "sample") and hasattr(result, "cdf")):
        return Draws.of(own, result, p)
    values = np.reshape(result.sample(rng, _N_SAMPLED), (1, _N_SAMPLED, p))
    return Draws(values, False, result)


def _calibrate(own: OwnMethod, trials: noisy_trials.NoisyTrials, setting: Values, streams: Streams) -> dict[str, Any]:
    p = trials.theta.shape[1]

    def evaluate(i: int, rng: np.random.Generator, uniforms: Array) -> dict[str, Any]:
        draws, theta = _fit(own, rng, trials.models[i], trials.prior, trials.noisy[i], p), trials.theta[i]
        measures = noisy_trials.summarise_draws(trials.trial(i), draws.pooled[None, None])
        rhat, ess = draws.diagnostics if own.chains else np.full((2, p), np.nan)
        own_measures = {
            "pit": draws.pit(theta, uniforms), "rank": draws.ranks(theta, uniforms), "rhat": rhat, "ess": ess,
        }  # fmt: skip
        return _by_component(measures, own_measures, p)

    return evaluate_trials(evaluate, p, streams)


def _compare(own: OwnMethod, releases: exact_trials.Releases, setting: Values, streams: Streams) -> dict[str, Any]:
    p = releases.theta.shape[1]

    def evaluate(i: int, rng: np.random.Generator, uniforms: Array) -> dict[str, Any]:
        draws, theta = _fit(own, rng, releases.model, releases.prior, releases.noisy[i], p), releases.theta[i]
        measures = exact_trials.summarise_draws(releases.trial(i), draws.pooled[None])
        rhat, ess = draws.diagnostics
        own_measures: dict[str, Any] = {
            "pit": draws.pit(theta, uniforms), "rank": draws.ranks(theta, uniforms), "rhat": rhat, "ess": ess,
        }  # fmt: skip
        joint = {}
        if p > 1:
            kept = draws.nearly_independent()
            drawn, true = exact_trials.distances(kept[None], theta[None], releases.reference[[i]])
            joint = {"joint": randomised_quantile(drawn[0], float(true[0]), float(uniforms[p]))}
        return {**_by_component(measures, own_measures, p), **joint}

    return evaluate_trials(evaluate, p + 1, streams)


def _by_component(measures: dict[str, Any], own_measures: dict[str, Any], p: int) -> dict[str, Any]:
    """Return the measures of one trial, with one value per component if there are several."""
    by_component = {name: value if p > 1 else value[0] for name, value in own_measures.items()}
    return {name: value[0] for name, value in measures.items()} | by_component
