"""Errors in printed formulas of P3, demonstrated by computations that take milliseconds."""

import math

import numpy as np
from scipy import integrate, special, stats

from pipeline import Erratum
from studies.panels import Values


def gamma(summaries: Values) -> str:
    """Compute the log normaliser of a Beta distribution."""
    integral, _ = integrate.quad(lambda theta: theta**5 * (1 - theta) ** 11, 0, 1)
    printed = special.gamma(6) + special.gamma(12) - special.gamma(18)
    return (
        f"Beta(6, 12): ln of the integral of its kernel is {math.log(integral):.4f} by quadrature, "
        f"{special.betaln(6, 12):.4f} with ln Γ, and {printed:.4g} as printed."
    )


def trigamma(summaries: Values) -> str:
    """Compute the variance of ln θ under a Beta distribution."""
    distribution = stats.beta(6, 12)
    first, second = (distribution.expect(lambda theta, power=power: np.log(theta) ** power) for power in (1, 2))
    right, wrong = (float(special.polygamma(order, 6) - special.polygamma(order, 18)) for order in (1, 0))
    return (
        f"Variance of ln θ under Beta(6, 12): {second - first**2:.5f} by quadrature, {right:.5f} by the trigamma "
        f"function, {wrong:.5f} by the digamma function."
    )


ERRATA = (
    Erratum(
        "C(η) = Γ(η₁) + Γ(η₂ − η₁) − Γ(η₂).",
        "The formula needs ln Γ instead of Γ.",
        "log normaliser of the Beta family",
        "P3",
        gamma,
    ),
    Erratum("ψ₁ is the digamma function.", "It is the trigamma function.", "appendix", "P3", trigamma),
)
