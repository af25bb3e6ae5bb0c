"""Regressions of users, of kind ``regression``, in the panels of `regression-inference`."""

from functools import partial
from typing import Any

import numpy as np

from mechanisms.regression.gram_priors import ConjugatePrior, RegressionPrior
from mechanisms.regression.gram_release import GramRelease, PublicBox
from pipeline import Method, Streams
from studies.own_methods import Draws, OwnMethod, evaluate_trials
from studies.panels import Values
from studies.regression.regression_trials import NOISES, Array, Block, score_draws


def regression_method(n_features: int, own: OwnMethod) -> Method:
    """Return the method of a panel of `regression-inference`."""
    return own.method(partial(_evaluate, own, n_features), supports=partial(_supports, own, n_features))


def _supports(own: OwnMethod, n_features: int, cell: Values, setting: Values) -> bool:
    return own.applies({**cell, "n_features": n_features, "noise": NOISES[cell["track"]][0]})


def _evaluate(own: OwnMethod, n_features: int, block: Block, setting: Values, streams: Streams) -> dict[str, Any]:
    """Return the measures of all trials, given releases with the first noise of the track."""
    box = PublicBox.of({**{f"x{k + 1}": (-1.0, 1.0) for k in range(n_features)}, "y": (-1.0, 1.0)})
    name, noise = next(iter(block.noises.items()))

    def evaluate(i: int, rng: np.random.Generator, uniforms: Array) -> dict[str, Array]:
        trial = block.trials[i]
        is_own = "exact" in trial.gram
        kind = own.records if is_own else next(iter(trial.gram))
        release, truth = GramRelease(trial.gram[kind] + trial.drawn[name], block.n, noise), trial.truths[kind]
        draws = Draws.of(own, own.fit(rng, release, box, _prior(kind, is_own)), truth.size)
        scores = {measure: values[0] for measure, values in score_draws(draws.values[None], truth[None]).items()}
        rhat, ess = draws.diagnostics
        return {**scores, "pit": draws.pit(truth, uniforms), "rhat": rhat, "ess": ess}

    return evaluate_trials(evaluate, n_features + 2, streams)


def _prior(records: str, is_own: bool) -> RegressionPrior | ConjugatePrior:
    """Return the prior from which moments of records are drawn; the default one if they are real or fixed."""
    is_default = records != "conjugate" if is_own else records in ("real", "ranges")
    return RegressionPrior() if is_default else ConjugatePrior()
