"""Parameter ranges supported by the Rényi studies; outside them, quadrature takes minutes or numbers overflow."""

from mechanisms.core.privacy_parameters import validate_epsilon, validate_order
from studies.panels import require

_CHECKS = {"order": validate_order, "epsilon": validate_epsilon}
_RANGES = {
    "order": (1, 1e12, "an order such as 2"),
    "epsilon": (1e-100, 1e6, "a value such as 1.0"),
    "coefficient": (1e-100, 1, "a value such as 0.5"),  # of a diffused or concentrated posterior
}


def require_in_range(name: str, value: float) -> float:
    """Return the order of a Rényi divergence, its ε, or a coefficient; raise ValueError if it is not supported."""
    least, most, advice = _RANGES[name]
    if name in _CHECKS:
        _CHECKS[name](value)
    require(least <= value <= most, f"{name} must be in [{least:g}, {most:g}]", value, f"choose {advice}")
    return float(value)
