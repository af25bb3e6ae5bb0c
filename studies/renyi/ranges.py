"""Parameter ranges supported by the Rényi studies; outside them, quadrature takes minutes or numbers overflow."""

from mechanisms.privacy_parameters import validate_epsilon, validate_order


def require_order(order: float) -> float:
    """Return the order of a Rényi divergence; raise ValueError unless it is in [1, 1e12]."""
    validate_order(order)
    return _require("order", order, 1, 1e12, "an order such as 2")


def require_epsilon(epsilon: float) -> float:
    """Return the ε of a Rényi guarantee; raise ValueError unless it is in [1e-100, 1e6]."""
    validate_epsilon(epsilon)
    return _require("epsilon", epsilon, 1e-100, 1e6, "a value such as 1.0")


def require_coefficient(coefficient: float) -> float:
    """Return the coefficient of a diffused or concentrated posterior; raise ValueError unless it is in [1e-100, 1]."""
    return _require("coefficient", coefficient, 1e-100, 1, "a value such as 0.5")


def _require(name: str, value: float, least: float, most: float, advice: str) -> float:
    if not least <= value <= most:
        raise ValueError(f"{name} must be in [{least:g}, {most:g}], got {value}; choose {advice}")
    return float(value)
