"""Cells of a scalar θ that resolve its posterior, also if the posterior is much narrower than the prior.

The first cells cover the prior, and the range in which the distribution of a contribution depends on θ. They are then
divided where an approximate posterior has its mass, in which the sum of the contributions is normal and the noise is
not approximated. Its logarithm has no floor, so that the cells converge to a peak between two of the first edges. The
approximation only places cells: the exact posterior is computed on them, and refines them again.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from mechanisms.inference.family import EXPONENTIAL, NORMAL
from mechanisms.inference.family_distributions import prior_distribution
from mechanisms.inference.joint_proposals import contribution_moments
from mechanisms.inference.records import Floats
from mechanisms.inference.release_model import ReleaseModel

__all__ = ["cell_probabilities", "divide_cells", "first_cells", "is_resolved"]

_SMALLEST, _LARGEST = 1e-300, 1e300  # cells of positive parameters end at 0 and at the larger value
_QUANTILES, _EVEN = 200, 400  # numbers of cells that cover the prior, and the range in which contributions depend on θ
_REACH = 9.0  # standard deviations of a record beyond the bounds, where nearly all records are on the same side
_CELLS, _COVERING, _LEAST_ROUNDS, _ROUNDS = 300, 60, 2, 30
_RESOLVED = 0.03  # largest mass of a cell
_NEGLIGIBLE = 1e-13  # mass of the cells at either end that are not divided


def first_cells(model: ReleaseModel, prior: Floats, y: float) -> Floats:
    """Return edges of cells that resolve the approximate posterior and cover the prior.

    Parameters
    ----------
    model : ReleaseModel
        Model with bounds and a scalar parameter.
    prior : ndarray of float64, shape (2,)
    y : float
        Release.

    Returns
    -------
    ndarray of float64, shape (g + 1,)
        Ascending edges, from 0 for positive parameters without limits.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> model = ReleaseModel("normal", 100, Noise("laplace", 10.0), bounds=(-5, 5), outside="clamp")
    >>> edges = first_cells(model, np.array([0.0, 1e6]), 120.0)
    >>> bool(np.diff(edges).min() < 0.02), bool(np.ptp(edges) > 5e3)
    (True, True)
    """
    covering = _covering_cells(model, prior)
    edges, sparse = covering, np.append(covering[:: max(1, len(covering) // _COVERING)], covering[-1])
    for k in range(_ROUNDS):
        log_mass = _approximate_log_masses(model, prior, edges, y)
        mass = np.exp(log_mass - special.logsumexp(log_mass))
        if k >= _LEAST_ROUNDS and is_resolved(edges, mass):
            break
        edges = np.union1d(divide_cells(model, edges, mass, _CELLS), sparse)
    return np.union1d(divide_cells(model, edges, np.sqrt(mass), _CELLS // 2), sparse)


def divide_cells(model: ReleaseModel, edges: Floats, mass: Floats, size: int) -> Floats:
    """Return about `size` cells that divide the given cells where their masses are, and the neighbours of such cells.

    A third of the cells are placed in proportion to the square root of the mass, for narrow peaks. In another third,
    the number of cells per length is proportional to the cube root of the density, for tails, and in the last third, to
    the square root of the contribution to the variance, for long tails.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> model = ReleaseModel("normal", 10, Noise("laplace", 10.0), bounds=(-5, 5))
    >>> divide_cells(model, np.arange(6.0), np.array([0.0, 0.0, 0.0, 0.0, 1.0]), 4)
    array([3. , 3.5, 4. , 4.5, 5. ])
    """
    first = int(np.searchsorted(np.cumsum(mass), _NEGLIGIBLE))
    last = mass.size - 1 - int(np.searchsorted(np.cumsum(mass[::-1]), _NEGLIGIBLE))
    kept = slice(max(first - 1, 0), min(last + 2, mass.size))
    edges, mass = edges[kept.start : kept.stop + 1], mass[kept]
    phi = _to_phi(model, edges)
    middles = (edges[1:] + edges[:-1]) / 2.0
    peaks, tails = np.sqrt(mass), np.cbrt(mass * np.diff(phi) ** 2)
    spread = peaks * np.abs(middles - mass @ middles / mass.sum())
    weights = sum(one / max(one.sum(), _SMALLEST) for one in (peaks, tails, spread))
    widened = np.maximum(weights, np.maximum(np.append(weights[1:], 0.0), np.append(0.0, weights[:-1])))
    total = np.append(0.0, np.cumsum(widened))
    divided = _from_phi(model, np.interp(np.linspace(0.0, total[-1], size + 1), total, phi))
    return np.union1d(divided, edges[:2]) if edges[0] == 0.0 else np.unique(divided)


def is_resolved(edges: Floats, mass: Floats) -> bool:
    """Return True if no cell has a large posterior mass, except for a cell that ends at the smallest number.

    Examples
    --------
    >>> is_resolved(np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.5]))
    False
    """
    divisible = edges[1:] > _SMALLEST if edges[0] == 0.0 else np.ones(mass.shape, dtype=bool)
    return bool(np.all(mass[divisible] <= _RESOLVED))


def cell_probabilities(model: ReleaseModel, prior: Floats, edges: Floats) -> Floats:
    """Return the prior probability of each cell, from the tail on its side of the median.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> model = ReleaseModel("normal", 10, Noise("laplace", 10.0), bounds=(-5, 5))
    >>> print(cell_probabilities(model, np.array([0.0, 1.0]), np.array([-np.inf, 0.0, 9.0, 10.0])).round(20))
    [5.0e-01 5.0e-01 1.1e-19]
    """
    distribution = prior_distribution(model.entry, prior)
    below, above = distribution.cdf(edges), distribution.sf(edges)
    return np.where(below[1:] <= 0.5, np.diff(below), -np.diff(above))


def _covering_cells(model: ReleaseModel, prior: Floats) -> Floats:
    assert model.bounds is not None
    distribution, (a, b) = prior_distribution(model.entry, prior), model.bounds
    quantiles = distribution.ppf(special.expit(np.linspace(-28.0, 28.0, _QUANTILES + 1)))
    if model.entry.code == NORMAL:
        even = np.linspace(a - _REACH, b + _REACH, _EVEN + 1)
    else:
        least, most = 1e-3 * min(model.noise.scale, b) / model.n, 1e3 * model.n * b  # means of a record
        even = np.geomspace(least, most, _EVEN + 1)
        even = 1.0 / even[::-1] if model.entry.code == EXPONENTIAL else even
        quantiles = quantiles.clip(_SMALLEST, _LARGEST)
        even = np.append(even.clip(_SMALLEST, _LARGEST), [0.0, _SMALLEST])
    lower, upper = (float(limit[0]) for limit in model.parameter_limits())
    inside = np.union1d(quantiles, even).clip(lower, upper)
    if math.isfinite(lower) and math.isfinite(upper):
        inside = np.append(inside, np.linspace(lower, upper, _COVERING + 1))
    return np.unique(np.append(inside, [end for end in (lower, upper) if math.isfinite(end)]))


def _approximate_log_masses(model: ReleaseModel, prior: Floats, edges: Floats, y: float) -> Floats:
    """Return the log of the mass of each cell with normal sums of contributions, up to a constant."""
    assert model.bounds is not None
    theta = (edges[1:] + edges[:-1]) / 2.0
    with np.errstate(all="ignore"):
        mean, variance = contribution_moments(str(model.family), theta[:, None], model.bounds, model.outside == "clamp")
        apart, spread = y - model.n * mean[:, 0], model.n * np.maximum(variance[:, 0, 0], 0.0)
        log_mass = np.log(cell_probabilities(model, prior, edges)) + _log_density(model, apart, spread)
    return np.nan_to_num(log_mass, nan=-1e300, neginf=-1e300)


def _log_density(model: ReleaseModel, apart: Floats, variance: Floats) -> Floats:
    """Return the log density at `apart` of noise plus a normal variable, up to a constant."""
    scale = model.noise.scale
    if model.noise.power == 2:
        return stats.norm.logpdf(apart, scale=np.sqrt(variance + scale**2))
    sd = np.sqrt(variance).clip(1e-6 * scale)
    sides = [sign * apart / scale + special.log_ndtr(-sign * apart / sd - sd / scale) for sign in (-1.0, 1.0)]
    return np.logaddexp(*sides) + 0.5 * (sd / scale) ** 2


def _to_phi(model: ReleaseModel, theta: Floats) -> Floats:
    return theta if model.entry.code == NORMAL else np.log(theta.clip(_SMALLEST))


def _from_phi(model: ReleaseModel, phi: Floats) -> Floats:
    if model.entry.code == NORMAL:
        return phi
    theta = np.exp(phi)
    return np.where(phi <= math.log(_SMALLEST), 0.0, theta)
