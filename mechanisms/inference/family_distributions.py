"""Distributions of a family of P4: its prior, and the moments of a record within and outside public bounds."""

from __future__ import annotations

import math

from numpy.typing import ArrayLike
from scipy import stats

from mechanisms.inference.family import Family
from mechanisms.inference.records import Bounds
from mechanisms.inference.region_moments import Moments

__all__ = ["prior_distribution", "region_moments"]


def prior_distribution(family: Family, prior: ArrayLike) -> stats.rv_continuous:
    """Return the prior of a rate or mean θ as a frozen distribution of `scipy.stats`."""
    assert family.is_truncated
    assert not family.has_square
    first, second = family.validate_prior(prior)
    if family.marginal == "normal":
        return stats.norm(first, math.sqrt(second))
    return stats.gamma(first, scale=1.0 / second)


def region_moments(family: Family, theta: ArrayLike, bounds: Bounds) -> Moments:
    """Return the probability of each region x < a, a ≤ x ≤ b, x > b, and the moments of a record in the region.

    The sum of the records in a region has mean n·q·μ and variance n·q·Σ + n·q·(1 − q)·μ². The sums over two regions
    have covariance −n·q_r·q_s·μ_r·μ_s, because the numbers of records per region are multinomial.

    q, μ and Σ have shape theta.shape + (3,), for (lower, centre, upper). Their relative error is below 1e-10 if
    q > 1e-250 (and θ < 1e5 for Poisson). Empty regions have q = 0.
    """
    if family.regions is None:
        raise ValueError(f"family must have bounds, got {family.name}; use exponential, poisson or normal")
    values, checked = family.validate_parameters(theta), family.validate_bounds(bounds)
    assert checked is not None
    return family.regions.moments(values, *checked)
