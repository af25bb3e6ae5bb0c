"""Proposals of θ near its posterior, for joint updates of θ and all records in data augmentation.

The proposal density q is constant on the cells of a grid in φ, which is θ for the normal family and log θ for the
exponential and Poisson families. If mean and variance are unknown, the grid has two dimensions, φ = log σ² and
z = (μ − mean)/σ. The probability of a cell is proportional to its prior probability times the density of y at the
centre of the cell, where the statistic and its noise are taken as jointly normal. A share of the prior is mixed in.

The sampler is exact for every q > 0. Cells cover the prior but for 3e-7 in each tail; from θ outside all cells no joint
update is accepted.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import special, stats

from mechanisms.inference.families import MODELS
from mechanisms.inference.family import EXPONENTIAL, NORMAL
from mechanisms.inference.records import Bounds, Floats
from mechanisms.inference.release_model import ReleaseModel

__all__ = ["Proposal", "contribution_moments", "joint_proposal"]

Proposal = tuple[Floats, Floats, Floats, Floats]

_REACH = 5.0  # standard deviations of a normal variable within which cells are spaced evenly
_CELLS, _CELLS_EACH = 256, 64  # numbers of cells in one dimension, and in each of two
_SHARE = 0.05  # share of the prior in the proposal distribution
_SMALLEST, _LARGEST = 1e-300, 1e300


def joint_proposal(model: ReleaseModel, prior: Floats, noisy_statistics: Floats) -> Proposal:
    """Return the proposal distribution for one release of a model with bounds.

    For m cells in φ and k in z (one, from 0 to 1, in models with one parameter), return their edges, shapes (m + 1,)
    and (k + 1,), ascending; the sums of the probabilities of the m·k cells, in which z varies fastest; and the log
    density of the proposal in the cells, with respect to φ and z.
    """
    limits = tuple(float(limit[-1]) for limit in model.parameter_limits())
    assert model.bounds is not None
    clamps = model.outside == "clamp"
    edges, z_edges, probability, mean, covariance = _cells(
        str(model.family), tuple(map(float, prior)), limits, tuple(map(float, model.bounds)), clamps
    )
    total = model.n * covariance + model.noise.density_variance * np.eye(len(noisy_statistics))
    apart = noisy_statistics - model.n * mean
    with np.errstate(all="ignore"):
        log_likelihood = _log_normal_density(apart, total)
        weight = probability * np.exp(log_likelihood - np.nanmax(log_likelihood))
        weight /= np.nansum(weight)
    mass = (1.0 - _SHARE) * np.nan_to_num(weight) + _SHARE * probability
    cumulative = np.cumsum(mass)
    log_density = np.log(mass / np.outer(np.diff(edges), np.diff(z_edges)).ravel())
    return edges, z_edges, np.append(cumulative[:-1] / cumulative[-1], 1.0), log_density


def _log_normal_density(apart: Floats, covariance: Floats) -> Floats:
    """Return the log density of N(0, covariance) up to a constant, for deviations of shape (m, d), d ≤ 2."""
    if apart.shape[1] == 1:
        variance = covariance[:, 0, 0]
        return -0.5 * (apart[:, 0] ** 2 / variance + np.log(variance))
    (x, y), ((xx, xy), (_, yy)) = apart.T, covariance.transpose(1, 2, 0)
    determinant = xx * yy - xy**2
    return -0.5 * ((x * x * yy - 2.0 * x * y * xy + y * y * xx) / determinant + np.log(determinant))


@lru_cache(maxsize=64)
def _cells(
    family: str, prior: tuple[float, ...], limits: tuple[float, float], bounds: Bounds, clamps: bool
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return edges in φ and z, prior probabilities of the cells, and moments of a contribution at their centres."""
    entry = MODELS[family]
    if entry.has_square:
        location, strength, shape, scale = prior
        n_cells, distribution = _CELLS_EACH, stats.invgamma(shape, scale=scale)
        z_edges = np.linspace(-_REACH, _REACH, n_cells + 1) / np.sqrt(strength)
        z_probability = np.diff(special.ndtr(z_edges * np.sqrt(strength)))
    else:
        n_cells, distribution = _CELLS, entry.prior_distribution(prior)
        z_edges, z_probability = np.array([0.0, 1.0]), np.ones(1)
    least, most = special.ndtri(distribution.cdf(limits)).clip(-_REACH, _REACH)
    levels = np.linspace(least, most, n_cells + 1)
    with np.errstate(divide="ignore"):
        edges = distribution.ppf(special.ndtr(levels))
    if entry.code != NORMAL:
        edges = np.log(edges.clip(_SMALLEST, _LARGEST))
    edges, kept = np.unique(edges, return_index=True)  # quantiles of vague priors may underflow
    if edges.size == 1:
        edges, kept = np.append(edges, edges + 1.0), np.array([0, n_cells])
    probability = np.outer(np.diff(special.ndtr(levels)[kept]), z_probability).ravel()
    centres = 0.5 * (edges[1:] + edges[:-1])
    if entry.has_square:
        variance = np.repeat(np.exp(centres), n_cells)
        z = np.tile(0.5 * (z_edges[1:] + z_edges[:-1]), centres.size)
        theta = np.column_stack([location + np.sqrt(variance) * z, variance])
    else:
        theta = (centres if entry.code == NORMAL else np.exp(centres))[:, None]
    with np.errstate(all="ignore"):
        return edges, z_edges, probability / probability.sum(), *contribution_moments(family, theta, bounds, clamps)


def contribution_moments(family: str, theta: Floats, bounds: Bounds, clamps: bool) -> tuple[Floats, Floats]:
    """Return mean and covariance of the contribution c of one record, or of (c, c²) if the variance is unknown.

    `theta` has shape (m, p), the mean (m, d), and the covariance (m, d, d), accurate to about 1e-8 of the squared range
    of a contribution, as moments about zero are subtracted. Records outside the bounds are clamped or dropped.
    """
    a, b = bounds
    if MODELS[family].has_square:
        return _normal_contribution_moments(theta, a, b, clamps)
    regions = MODELS[family].regions
    assert regions is not None
    least, most = regions.parameter(np.array(regions.interval(a, b)))  # beyond, all records lie in one region
    if MODELS[family].code == EXPONENTIAL and a == 0.0:
        most = np.inf  # all records lie within the bounds, and their mean is 1/θ
    q, mean, variance = regions.moments(theta[:, 0].clip(least, most), a, b)
    value = np.column_stack([np.full(len(q), a * clamps), mean[:, 1], np.full(len(q), b * clamps)])
    average = (q * value).sum(axis=1)
    spread = q[:, 1] * variance[:, 1] + (q * (value - average[:, None]) ** 2).sum(axis=1)
    return average[:, None], spread[:, None, None]


def _normal_contribution_moments(theta: Floats, a: float, b: float, clamps: bool) -> tuple[Floats, Floats]:
    """Return the moments of (c, c²) for x ~ N(μ, σ²), from E[zʲ; a ≤ x ≤ b] of z = (x − μ)/σ for j ≤ 4.

    With the standard normal density f, these moments satisfy Mⱼ = (j − 1)·Mⱼ₋₂ + αʲ⁻¹f(α) − βʲ⁻¹f(β), where α and β
    are the values of z at a and b.
    """
    mu, sigma = theta[:, 0], np.sqrt(theta[:, 1])
    alpha, beta = (a - mu) / sigma, (b - mu) / sigma
    f_alpha, f_beta = stats.norm.pdf(alpha), stats.norm.pdf(beta)
    central = [special.ndtr(beta) - special.ndtr(alpha), f_alpha - f_beta]
    for j in (2, 3, 4):
        central.append((j - 1) * central[j - 2] + alpha ** (j - 1) * f_alpha - beta ** (j - 1) * f_beta)
    raw = [
        sum(special.comb(k, j) * mu ** (k - j) * sigma**j * central[j] for j in range(k + 1))
        + clamps * (a**k * special.ndtr(alpha) + b**k * special.ndtr(-beta))
        for k in (1, 2, 3, 4)
    ]
    mean = np.column_stack(raw[:2])
    second = np.stack([np.column_stack(raw[1:3]), np.column_stack(raw[2:4])], axis=1)
    return mean, second - mean[:, :, None] * mean[:, None, :]
