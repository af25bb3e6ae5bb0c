"""Value types of privacy guarantees, and validation of their parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

__all__ = [
    "Guarantee",
    "Neighbouring",
    "RenyiGuarantee",
    "approximate_guarantee",
    "no_guarantee",
    "pure_guarantee",
    "validate_delta",
    "validate_epsilon",
    "validate_order",
    "validate_size",
]


class Neighbouring(Enum):
    """Neighbouring relation under which a guarantee holds."""

    REPLACE_ONE = "replace one record; the number of records is public"


_EPSILONS = (1e-100, 1e100)


def validate_epsilon(epsilon: float) -> float:
    """Return `epsilon` as a float if it is a valid privacy loss in nats.

    Parameters
    ----------
    epsilon : float
        In [1e-100, 1e100], so that noise scales, squares and products with sizes neither underflow nor overflow.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `epsilon` is not a finite number > 0 or is outside this range.

    Examples
    --------
    >>> validate_epsilon(1)
    1.0
    """
    value = _as_float(epsilon, "epsilon must be a finite number > 0")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon}; choose a loss in nats, such as 1.0")
    if not _EPSILONS[0] <= value <= _EPSILONS[1]:
        raise ValueError(f"epsilon must be in [1e-100, 1e100], got {epsilon}; choose a loss in nats, such as 1.0")
    return value


def validate_delta(delta: float | None) -> float:
    """Return `delta` as a float if it is in the open interval (0, 1).

    Parameters
    ----------
    delta : float
        0 < delta < 1.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `delta` is not in (0, 1).

    Examples
    --------
    >>> validate_delta(1e-8)
    1e-08
    """
    value = _as_float(delta, "delta must be in (0, 1)")
    if not 0 < value < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta}; choose a value well below 1/n, such as 1e-8")
    return value


def validate_order(order: float) -> float:
    """Return the order λ of a Rényi divergence as a float if it is finite and ≥ 1.

    Parameters
    ----------
    order : float
        Finite and ≥ 1; 1 is the Kullback–Leibler divergence.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `order` is not a finite number ≥ 1.

    Examples
    --------
    >>> validate_order(2)
    2.0
    """
    value = _as_float(order, "order must be a finite number >= 1")
    if not (math.isfinite(value) and value >= 1):
        raise ValueError(
            f"order must be a finite number >= 1, got {order}; choose an order such as 2, or 1 for Kullback-Leibler"
        )
    return value


def validate_size(n: int) -> int:
    """Return the number of records as an int if it is an integer ≥ 1.

    Parameters
    ----------
    n : int
        Number of records, public.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If `n` is not an integer ≥ 1.

    Examples
    --------
    >>> validate_size(10)
    10
    """
    if not (np.ndim(n) == 0 and np.isreal(n) and math.isfinite(n) and n == int(n) and n >= 1):
        raise ValueError(f"n must be an integer >= 1, got {n}; pass the number of records")
    return int(n)


def _as_float(value: object, requirement: str) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"{requirement}, got {value!r}; pass a number") from None


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy guarantee: Pr[M(x) ∈ E] ≤ exp(epsilon)·Pr[M(x') ∈ E] + delta for neighbours x, x'.

    Parameters
    ----------
    epsilon : float
        Privacy loss in nats, finite and > 0.
    delta : float
        0 for pure differential privacy, otherwise in (0, 1).
    relation : Neighbouring
        The neighbouring relation.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> Guarantee(1.0).is_pure, Guarantee(1.0, 1e-8).is_pure
    (True, False)
    >>> print(Guarantee(1.0, 1e-8))
    (1, 1e-08)-DP
    """

    epsilon: float
    delta: float = 0.0
    relation: Neighbouring = Neighbouring.REPLACE_ONE

    def __post_init__(self) -> None:
        validate_epsilon(self.epsilon)
        if self.delta != 0:
            validate_delta(self.delta)

    @property
    def is_pure(self) -> bool:
        """True if delta is zero."""
        return self.delta == 0

    def __str__(self) -> str:
        return f"{self.epsilon:g}-DP" if self.is_pure else f"({self.epsilon:g}, {self.delta:g})-DP"


def pure_guarantee(epsilon: float, delta: float | None = None) -> Guarantee:
    """Return the ε-DP guarantee of a pure mechanism, which ignores `delta`."""
    _validate_optional_delta(delta)
    return Guarantee(epsilon)


def approximate_guarantee(epsilon: float, delta: float | None = None) -> Guarantee:
    """Return the (ε, δ)-DP guarantee of a mechanism that needs `delta`; raise ValueError if it is None."""
    return Guarantee(epsilon, validate_delta(delta))


def no_guarantee(epsilon: float, delta: float | None = None) -> None:
    """Return None: the guarantee of a mechanism that is not private."""
    validate_epsilon(epsilon)
    _validate_optional_delta(delta)


def _validate_optional_delta(delta: float | None) -> None:
    if delta is not None:
        validate_delta(delta)


@dataclass(frozen=True)
class RenyiGuarantee:
    """A Rényi-DP guarantee: D_λ(M(x)‖M(x')) ≤ epsilon for neighbours x, x', in either order, at one order λ.

    Parameters
    ----------
    order : float
        λ, finite and ≥ 1; 1 is the Kullback–Leibler divergence.
    epsilon : float
        Largest divergence in nats, finite and > 0.
    relation : Neighbouring
        The neighbouring relation.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    References
    ----------
    Mironov, "Rényi differential privacy", CSF 2017, definition 4.

    Examples
    --------
    >>> print(RenyiGuarantee(2, 0.5))
    (2, 0.5)-RDP
    """

    order: float
    epsilon: float
    relation: Neighbouring = Neighbouring.REPLACE_ONE

    def __post_init__(self) -> None:
        validate_order(self.order)
        validate_epsilon(self.epsilon)

    def __str__(self) -> str:
        return f"({self.order:g}, {self.epsilon:g})-RDP"
