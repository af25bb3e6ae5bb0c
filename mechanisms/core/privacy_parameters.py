"""Validation of the parameters of privacy guarantees: ε, δ, Rényi orders, numbers of records and sensitivities."""

from __future__ import annotations

import math

from mechanisms.core.arguments import validate_integer, validate_number, validate_positive

# smallest ε of a mechanism whose output distribution is computed in double precision, in nats. At this ε, the computed
# loss of every registered release of counts at k ≤ 4 is accurate to one part in 10⁶. The absolute error of a loss is
# about 1e-14 nats at any ε, which is more than ε itself at 1e-15
SMALLEST_EPSILON = 1e-8
_EPSILONS = (1e-100, 1e100)
_MOST_RECORDS = 10**15


def validate_epsilon(epsilon: float) -> float:
    """Return ε as a float in [1e-100, 1e100], where scales and products with n or k do not underflow or overflow."""
    if type(epsilon) is float and _EPSILONS[0] <= epsilon <= _EPSILONS[1]:  # the common case first
        return epsilon
    value = validate_positive("epsilon", epsilon, "choose a loss in nats, such as 1.0")
    if not _EPSILONS[0] <= value <= _EPSILONS[1]:
        raise ValueError(f"epsilon must be in [1e-100, 1e100], got {epsilon}; choose a loss in nats, such as 1.0")
    return value


def validate_resolved_epsilon(epsilon: float) -> float:
    """Return `epsilon` as a float if it is large enough for output distributions computed in double precision."""
    value = validate_epsilon(epsilon)
    if value < SMALLEST_EPSILON:
        raise ValueError(
            f"epsilon must be >= {SMALLEST_EPSILON:g} in double precision, got {value:g}; choose a larger one"
        )
    return value


def validate_delta(delta: float | None) -> float:
    """Return `delta` as a float if it is in the open interval (0, 1)."""
    if type(delta) is float and 0 < delta < 1:  # the common case first
        return delta
    advice = "choose a value well below 1/n, such as 1e-8"
    return validate_number("delta", delta, "in (0, 1)", lambda value: 0.0 < value < 1.0, advice)


def validate_order(order: float) -> float:
    """Return the order λ of a Rényi divergence as a float if it is finite and ≥ 1."""
    advice = "choose 1 (Kullback-Leibler) or more"
    return validate_number("order", order, "a finite number >= 1", lambda value: 1.0 <= value < math.inf, advice)


def validate_size(n: int, least: int = 1) -> int:
    """Return the number of records as an int if it is an integer up to 10¹⁵, so that sums of records are exact."""
    size = validate_integer("n", n, least, advice="pass the number of records")
    if size > _MOST_RECORDS:
        raise ValueError(f"n must be at most {_MOST_RECORDS:,}, got {size:.3g}; pass the number of records")
    return size


def validate_sensitivity(sensitivity: float) -> float:
    """Return the sensitivity of a statistic as a float if it is a finite number > 0."""
    return validate_positive("sensitivity", sensitivity, "pass the largest change of the statistic")
