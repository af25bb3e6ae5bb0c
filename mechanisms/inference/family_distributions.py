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
    """Return the prior of a rate or mean θ as a frozen distribution of `scipy.stats`.

    Parameters
    ----------
    family : Family
        A truncated family with one parameter.
    prior : array_like, shape (2,)
        See `Family.validate_prior`.

    Returns
    -------
    scipy.stats.rv_continuous

    Raises
    ------
    ValueError
        If the prior is invalid.

    Examples
    --------
    >>> from mechanisms.inference.families import FAMILIES
    >>> float(prior_distribution(FAMILIES["poisson"], (8, 2)).mean())
    4.0
    """
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

    Parameters
    ----------
    family : Family
        A truncated family with one parameter.
    theta : array_like
        Parameters of the family, any shape.
    bounds : tuple of float
        See `Family.validate_bounds`.

    Returns
    -------
    q, mean, variance : ndarray of float64, shape theta.shape + (3,)
        Probability of the region (lower, centre, upper), and mean μ and variance Σ of a record given that it lies
        in the region. Relative error below 1e-10 if q > 1e-250 (and θ < 1e5 for Poisson). Empty regions have q = 0.

    Raises
    ------
    ValueError
        If the family has no bounds, or an argument is invalid.

    Examples
    --------
    >>> from mechanisms.inference.families import FAMILIES
    >>> q, mean, variance = region_moments(FAMILIES["exponential"], 1.0, (0.0, math.log(2)))
    >>> q, mean[1:]
    (array([0. , 0.5, 0.5]), array([0.30685282, 1.69314718]))
    """
    if family.regions is None:
        raise ValueError(f"family must have bounds, got {family.name}; use exponential, poisson or normal")
    values, checked = family.validate_parameters(theta), family.validate_bounds(bounds)
    assert checked is not None
    return family.regions.moments(values, *checked)
