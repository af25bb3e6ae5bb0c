"""Parameter ranges supported by the Rényi studies; outside them, quadrature takes minutes or numbers overflow."""

from mechanisms.privacy_parameters import validate_epsilon, validate_order

_LARGEST_ORDER = 1e12
_LARGEST_EPSILON = 1e6
_SMALLEST_COEFFICIENT = 1e-100


def require_order(order: float) -> float:
    """Return the order of a Rényi divergence; raise ValueError unless it is in [1, 1e12].

    Examples
    --------
    >>> require_order(2)
    2.0
    """
    if not validate_order(order) <= _LARGEST_ORDER:
        raise ValueError(f"order must be in [1, {_LARGEST_ORDER:g}], got {order}; choose an order such as 2")
    return float(order)


def require_epsilon(epsilon: float) -> float:
    """Return the ε of a Rényi guarantee; raise ValueError unless it is in [1e-100, 1e6].

    Examples
    --------
    >>> require_epsilon(1)
    1.0
    """
    if not validate_epsilon(epsilon) <= _LARGEST_EPSILON:
        raise ValueError(
            f"epsilon must be in [1e-100, {_LARGEST_EPSILON:g}], got {epsilon}; choose a value such as 1.0"
        )
    return float(epsilon)


def require_coefficient(coefficient: float) -> float:
    """Return the coefficient of a diffused or concentrated posterior; raise ValueError unless it is in [1e-100, 1].

    Examples
    --------
    >>> require_coefficient(0.5)
    0.5
    """
    if not _SMALLEST_COEFFICIENT <= coefficient <= 1:
        raise ValueError(
            f"coefficient must be in [{_SMALLEST_COEFFICIENT:g}, 1], got {coefficient}; choose a value such as 0.5"
        )
    return float(coefficient)
