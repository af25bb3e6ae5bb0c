"""Links of binary regression: log-likelihoods of one label as functions of the linear predictor η = x·w.

The logistic link is the canonical link of the Bernoulli family. The probit and the complementary log-log link are not
canonical. P3's theorems on generalised linear models do not hold for them (see `mechanisms.glm.mechanisms`), so they
are for audits only. All three log-likelihoods are concave in η.

References
----------
P3, section 4.1. McCullagh & Nelder, "Generalized linear models", 2nd edition, 1989, section 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import log_expit, log_ndtr

from mechanisms.arguments import Floats
from mechanisms.metadata import register


@dataclass(frozen=True)
class Link:
    """Link function between the probability of the label 1 and η."""

    name: str
    canonical: bool  # the slope is y − E[y], as P3's theorems assume
    tail: Literal["linear", "quadratic", "exponential"]  # growth of −ln p(y | η) with |η| if y is misclassified
    log_likelihood: Callable[[Floats, Floats], Floats] = field(repr=False)  # (predictors, labels 0 or 1) -> ln p(y | η)


def _margin(predictors: Floats, labels: Floats) -> Floats:
    """Return η for the label 1 and −η for the label 0; symmetric links depend on η and y only through this margin."""
    return np.where(labels > 0.5, predictors, -predictors)


def _cloglog_log_likelihood(predictors: Floats, labels: Floats) -> Floats:
    with np.errstate(over="ignore"):  # infinite for η ≥ 710, where the label 0 has probability 0
        rate = np.exp(predictors)
    tiny = rate < 1e-300  # ln(1 − exp(−rate)) equals η in double precision
    one = np.where(tiny, predictors, np.log(-np.expm1(-np.where(tiny, 1.0, rate))))
    return np.where(labels > 0.5, one, -rate)


LINKS: dict[str, Link] = register(
    Link("logistic", True, "linear", lambda predictors, labels: log_expit(_margin(predictors, labels))),
    Link("probit", False, "quadratic", lambda predictors, labels: log_ndtr(_margin(predictors, labels))),
    Link("cloglog", False, "exponential", _cloglog_log_likelihood),
)
"""Links by name."""
