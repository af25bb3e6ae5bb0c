"""Links of binary regression: log-likelihoods of one label as functions of the linear predictor η = x·w.

The logistic link is the canonical link of the Bernoulli family. The probit and the complementary log-log link are not
canonical, and P3's theorems on generalised linear models do not hold for them (see `mechanisms.glm.mechanisms`). All
three log-likelihoods are concave in η.

References
----------
P3, section 4.1. McCullagh & Nelder, "Generalized linear models", 2nd edition, 1989, section 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import expit, log_expit, log_ndtr

from mechanisms.arguments import Floats
from mechanisms.metadata import register

_LARGEST_PREDICTOR = 700.0  # exp(700) is finite; the log-likelihood is below −1e304 there
_FAR = 1e3  # −margin beyond which the probit link uses series in 1/margin², whose relative error is below 1e-14
_LOG_ROOT_TAU = 0.5 * np.log(2.0 * np.pi)


@dataclass(frozen=True)
class Link:
    """Link function between the probability of the label 1 and η."""

    name: str
    code: int  # identifies the link in compiled samplers
    canonical: bool  # the slope is y − E[y], as P3's theorems assume
    tail: Literal["linear", "quadratic", "exponential"]  # growth of −ln p(y | η) with |η| if y is misclassified
    # (predictors, labels 0 or 1) -> ln p(y | η), its derivative in η, and minus its second derivative, which is ≥ 0
    log_likelihood: Callable[[Floats, Floats], Floats] = field(repr=False)
    slope: Callable[[Floats, Floats], Floats] = field(repr=False)
    curvature: Callable[[Floats, Floats], Floats] = field(repr=False)


def _margin(predictors: Floats, labels: Floats) -> Floats:
    """Return η for the label 1 and −η for the label 0; symmetric links depend on η and y only through this margin."""
    return np.where(labels > 0.5, predictors, -predictors)


def _logistic_log_likelihood(predictors: Floats, labels: Floats) -> Floats:
    return log_expit(_margin(predictors, labels))


def _logistic_slope(predictors: Floats, labels: Floats) -> Floats:
    return labels - expit(predictors)


def _logistic_curvature(predictors: Floats, labels: Floats) -> Floats:
    return expit(predictors) * expit(-predictors)


def _probit_log_likelihood(predictors: Floats, labels: Floats) -> Floats:
    return log_ndtr(_margin(predictors, labels))


def _hazard(margin: Floats) -> Floats:
    """Return φ(t)/Φ(t) for the margin t, which tends to −t as t → −∞ and to 0 as t → ∞."""
    near = np.clip(margin, -_FAR, _FAR)
    squared = _inverse_square(margin)
    return np.where(
        margin < -_FAR,
        -margin * (1.0 + squared * (1.0 - 2.0 * squared)),
        np.exp(-0.5 * near * near - _LOG_ROOT_TAU - log_ndtr(near)),
    )


def _inverse_square(margin: Floats) -> Floats:
    """Return 1/t², without overflow; for margins t > −`_FAR`, return 1/`_FAR`²."""
    return (1.0 / np.minimum(margin, -_FAR)) ** 2


def _probit_slope(predictors: Floats, labels: Floats) -> Floats:
    return _margin(np.ones_like(predictors), labels) * _hazard(_margin(predictors, labels))


def _probit_curvature(predictors: Floats, labels: Floats) -> Floats:
    margin = _margin(predictors, labels)
    near, squared = np.clip(margin, -_FAR, _FAR), _inverse_square(margin)
    hazard = _hazard(near)
    # The sum of the margin and the hazard cancels to about −1/margin.
    return np.where(margin < -_FAR, 1.0 - squared * (1.0 - 6.0 * squared), np.maximum(hazard * (near + hazard), 0.0))


def _rate(predictors: Floats) -> Floats:
    """Return exp(η), clipped at 1e304: the rate of the latent Poisson variable of the complementary log-log link."""
    return np.exp(np.minimum(predictors, _LARGEST_PREDICTOR))


def _cloglog_log_likelihood(predictors: Floats, labels: Floats) -> Floats:
    with np.errstate(over="ignore"):  # infinite for η ≥ 710, where the label 0 has probability 0
        rate = np.exp(predictors)
    tiny = rate < 1e-300  # ln(1 − exp(−rate)) equals η in double precision
    one = np.where(tiny, predictors, np.log(-np.expm1(-np.where(tiny, 1.0, rate))))
    return np.where(labels > 0.5, one, -rate)


def _cloglog_slope(predictors: Floats, labels: Floats) -> Floats:
    rate = _rate(predictors)
    return np.where(labels > 0.5, _rate_over_odds(rate), -rate)


def _cloglog_curvature(predictors: Floats, labels: Floats) -> Floats:
    rate = _rate(predictors)
    slope = _rate_over_odds(rate)
    small = rate < 1e-4  # slope·(rate + slope − 1) suffers from cancellation; its series is rate/2 − rate²/6 + …
    low = np.where(small, rate, 0.0)
    one = np.where(small, low * (0.5 - low / 6.0), slope * np.where(small, 0.0, rate + slope - 1.0))
    return np.where(labels > 0.5, one, rate)


def _rate_over_odds(rate: Floats) -> Floats:
    """Return μ/(exp(μ) − 1) for the rate μ; the limit is 1 at μ = 0."""
    large = rate > _LARGEST_PREDICTOR
    odds = np.expm1(np.where(large, 1.0, np.maximum(rate, 1e-300)))
    return np.where(large, 0.0, np.maximum(rate, 1e-300) / odds)


LINKS: dict[str, Link] = register(
    Link("logistic", 0, True, "linear", _logistic_log_likelihood, _logistic_slope, _logistic_curvature),
    Link("probit", 1, False, "quadratic", _probit_log_likelihood, _probit_slope, _probit_curvature),
    Link("cloglog", 2, False, "exponential", _cloglog_log_likelihood, _cloglog_slope, _cloglog_curvature),
)
"""Links by name."""
