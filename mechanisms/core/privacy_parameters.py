"""Validation of the parameters of privacy guarantees: ε, δ, Rényi orders, numbers of records and sensitivities."""

from __future__ import annotations

import math
import warnings
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from mechanisms.core.arguments import validate_integer, validate_number, validate_positive

# smallest ε of a mechanism whose output distribution is computed in double precision, in nats. At this ε, the computed
# loss of every registered release of counts at k ≤ 4 is accurate to one part in 10⁶. The absolute error of a loss is
# about 1e-14 nats at any ε, which is more than ε itself at 1e-15
SMALLEST_EPSILON = 1e-8
_EPSILONS = (1e-100, 1e100)
MOST_RECORDS = 10**15
_LARGEST_DELTA = 1e-5  # without a warning, if the number of records is not known


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


def add_losses(*losses: float | Decimal) -> float:
    """Return the sum of privacy losses as decimal numbers, as in ledgers, rounded up to a float.

    >>> add_losses(0.1, 0.1, 0.1), add_losses(1.0, 1e-17)
    (0.3, 1.0000000000000002)
    """
    total = sum(map(as_decimal, losses), Decimal())
    rounded = float(total)
    return rounded if Decimal(repr(rounded)) >= total else math.nextafter(rounded, math.inf)


def format_loss(loss: float | Decimal) -> str:
    """Return a privacy loss as text of at most six digits, rounded up but for the last digit of a double.

    >>> format_loss(0.1 + 0.2), format_loss(1 / 3), format_loss(1.0000049)
    ('0.3', '0.333334', '1.00001')
    """
    return _rounded(loss, ROUND_CEILING)


def format_rest(rest: float | Decimal) -> str:
    """Return the rest of a budget as text of at most six digits, rounded down.

    >>> format_rest(0.12345678)
    '0.123456'
    """
    return _rounded(rest, ROUND_FLOOR)


def _rounded(number: float | Decimal, rounding: str) -> str:
    exact = Context(prec=15).plus(as_decimal(number))
    return f"{float(Context(prec=6, rounding=rounding).plus(exact)):g}"


def as_decimal(number: float | Decimal) -> Decimal:
    """Return the decimal number that a float shows, in which ledgers add losses."""
    return number if isinstance(number, Decimal) else Decimal(repr(float(number)))


def describe_large_delta(delta: float, n: int | None = None) -> str:
    """Return a warning about a delta that allows the release of a whole record; "" for a smaller delta.

    A mechanism that publishes one of n records, chosen at random, is (0, 1/n)-DP, so that δ must be much smaller than
    1/n (Dwork & Roth 2014, section 2.3). Without a public `n`, the warning is about δ > 1e-5, which is 1/n of 100,000
    records.

    >>> describe_large_delta(0.01, 200)
    'delta 0.01 is not below 1/n = 0.005: publishing one of 200 records has this delta; choose at most 5e-05'
    >>> describe_large_delta(1e-8), describe_large_delta(1e-6, 200)
    ('', '')
    """
    if n is not None and delta * n >= 1.0:
        return (
            f"delta {delta:g} is not below 1/n = {1.0 / n:.2g}: publishing one of {n:,} records has this delta; choose "
            f"at most {0.01 / n:.1g}"
        )
    if n is None and delta > _LARGEST_DELTA:
        return (
            f"delta {delta:g} is large: publishing one of {math.ceil(1.0 / delta):,} records has this delta; choose a "
            "value well below 1/n for n records, such as 1e-8"
        )
    return ""


def warn_large_delta(delta: float, n: int | None = None) -> None:
    """Warn about a delta that allows the release of a whole record; see `describe_large_delta`."""
    if text := describe_large_delta(delta, n):
        warnings.warn(text, stacklevel=3)


def validate_order(order: float) -> float:
    """Return the order λ of a Rényi divergence as a float if it is finite and ≥ 1."""
    advice = "choose 1 (Kullback-Leibler) or more"
    return validate_number("order", order, "a finite number >= 1", lambda value: 1.0 <= value < math.inf, advice)


def validate_size(n: int, least: int = 1) -> int:
    """Return the number of records as an int if it is an integer up to 10¹⁵, so that sums of records are exact."""
    size = validate_integer("n", n, least, advice="pass the number of records")
    if size > MOST_RECORDS:
        raise ValueError(f"n must be at most {MOST_RECORDS:,}, got {size:.3g}; pass the number of records")
    return size


def validate_sensitivity(sensitivity: float) -> float:
    """Return the sensitivity of a statistic as a float if it is a finite number > 0."""
    return validate_positive("sensitivity", sensitivity, "pass the largest change of the statistic")
