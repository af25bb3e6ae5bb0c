"""Exact posterior of the parameter given one release, by sums over the possible values of the statistic.

==========================  ==========================================================================================
binomial, multinomial       finite mixtures over the counts, see `binomial_mixture` and `multinomial_mixture`
poisson                     p(y | θ) = Σ_s p(s | θ)·p(y | s); the pmf of s is the n-fold convolution of the contribution
exponential, normal         the same with contributions on a lattice of `LATTICE` steps between the bounds
==========================  ==========================================================================================

The n-fold convolution is the n-th power of the characteristic function of one contribution, which the fast Fourier
transform computes. On the lattice, the mass of a contribution is divided linearly between the two neighbouring points.
This preserves the mean of a record, and increases its variance by at most a quarter of the squared step. Integrals over
θ are sums over the cells of `parameter_grid`, each weighted by its exact prior mass. The cells are refined until no
cell has a large posterior mass.

The statistic is not approximated by a normal distribution. These posteriors are the reference for the samplers. A
posterior that would be inexact raises `UnresolvedPosteriorError`: if the lattice is too coarse for the noise, or if the
release contradicts the prior so much that the likelihood at all probable θ is lost in the rounding of the transform.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, special, stats

from mechanisms.inference.binomial_mixture import BinomialMixture, count_mixture
from mechanisms.inference.joint_proposals import contribution_moments
from mechanisms.inference.multinomial_mixture import MultinomialMixture, multinomial_mixture
from mechanisms.inference.parameter_grid import cell_probabilities, divide_cells, first_cells, is_resolved
from mechanisms.inference.records import Floats
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.protocols import Posterior, validate_probabilities

__all__ = [
    "ContradictionError",
    "ExactPosterior",
    "GridPosterior",
    "UnresolvedPosteriorError",
    "exact_posterior",
    "lattice_step",
]

LATTICE = 128
"""Number of lattice steps between the bounds, for real records."""

_FINE, _ROUNDS = 500, 4  # number of cells of the final grid of θ, and largest number of refinements
_LEAST_LIKELIHOOD = 1e4  # smallest mean likelihood in units of its rounding error
_ROUNDING = 2e-15  # likelihoods that may be rounding errors, in units of those of the transform
_LARGEST_EXCESS = 0.02  # largest share of the variance of y that the lattice adds
_SMALLEST, _SMALL = 1e-300, 1e-5
_FAR = 1e6  # distance of a release from the range of the statistic, in scales of the noise
_BEYOND = 40.0  # standard deviations beyond the bounds, where all normal records are on the same side
_BLOCK = 1 << 14  # number of values that are transformed at once
_NEGLIGIBLE_POWER = 1e-18  # negligible modulus of the characteristic function of the sum, which is at most 1


class UnresolvedPosteriorError(ValueError):
    """A posterior that sums over a lattice would not represent; `sample_data_augmentation` draws from it."""


class ContradictionError(UnresolvedPosteriorError):
    """A release so improbable under the prior that rounding dominates the exact sums.

    If records are dropped, the posterior may have several modes, between which chains do not move.
    """


@dataclass(frozen=True, eq=False)
class GridPosterior(Posterior):
    """Posterior of a scalar θ with uniform density on each cell of a grid; build it with `exact_posterior`.

    Parameters
    ----------
    edges : ndarray of float64, shape (g + 1,)
        Ends of the cells, ascending.
    cdf_values : ndarray of float64, shape (g + 1,)
        Pr[θ' ≤ edge | y], from 0 to 1.
    """

    edges: Floats = field(repr=False)
    cdf_values: Floats = field(repr=False)

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of values ≤ θ, for `theta` of any shape."""
        return np.interp(np.asarray(theta, dtype=np.float64), self.edges, self.cdf_values)

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles, for probabilities in (0, 1) of any shape."""
        return np.interp(validate_probabilities(probabilities), self.cdf_values, self.edges)

    def mean(self) -> float:
        """Return the posterior mean E[θ | y]."""
        return float(np.diff(self.cdf_values) @ self._middles)

    def std(self) -> float:
        """Return the standard deviation of θ given y."""
        second = (self._middles - self.mean()) ** 2 + np.diff(self.edges) ** 2 / 12.0
        return float(np.sqrt(np.diff(self.cdf_values) @ second))

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw `size` independent values of θ by inversion."""
        return np.interp(rng.random(size), self.cdf_values, self.edges)

    @property
    def _middles(self) -> Floats:
        return (self.edges[1:] + self.edges[:-1]) / 2.0


ExactPosterior: TypeAlias = BinomialMixture | MultinomialMixture | GridPosterior


def exact_posterior(model: ReleaseModel, prior: ArrayLike, noisy_statistics: ArrayLike) -> ExactPosterior:
    """Return the exact posterior of θ given one release.

    Parameters
    ----------
    model : ReleaseModel
        Any model with a scalar parameter, or the multinomial.
    prior : array_like, shape (h,)
        See `Family.validate_prior`.
    noisy_statistics : array_like, shape (d,)
        Release y; see `ReleaseModel.validate_release`.

    Returns
    -------
    Posterior
        The error of the distribution function is below 1e-3 for records with bounds, and below 1e-4 for Poisson records
        with a prior that is not vague; for binomial and multinomial records it is a rounding error.

    Raises
    ------
    ValueError
        If an argument is invalid, or the variance of the records is unknown.
    UnresolvedPosteriorError
        If the posterior would be inexact; see the module docstring.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> model = ReleaseModel("poisson", 50, Noise("geometric", 6.0), bounds=(0, 6), outside="clamp")
    >>> posterior = exact_posterior(model, (3, 1), [110])
    >>> round(posterior.mean(), 2), posterior.cdf([2.0, 2.5]).round(3)
    (2.23, array([0.195, 0.853]))
    """
    hyperparameters, y = model.validate_release(prior, noisy_statistics)
    if model.noise.power == 1:  # beyond the range of the statistic, the likelihood does not depend on y but by rounding
        least, most = model.statistic_range()
        y = np.clip(y, least - _FAR * model.noise.scale, most + _FAR * model.noise.scale)
    if model.entry.has_square:
        raise ValueError(f"family must have one parameter, got {model.family}; use sample_data_augmentation")
    if model.bounds is None:
        evidence = model.noise.log_weight(y[:, None] - np.arange(model.n + 1))
        if model.entry.is_vector:
            return multinomial_mixture(hyperparameters, evidence)
        return count_mixture(hyperparameters, evidence[0])
    if not model.entry.integer_records and model.noise.scale < lattice_step(model):
        raise UnresolvedPosteriorError(
            f"the scale of the noise must be at least {lattice_step(model):g}, a step of the lattice, got "
            f"{model.noise.scale:g}; use sample_data_augmentation"
        )
    edges = first_cells(model, hyperparameters, y[0])
    mass = _posterior_masses(model, hyperparameters, edges, y[0])
    for _ in range(_ROUNDS):
        edges = divide_cells(model, edges, mass, _FINE)
        mass = _posterior_masses(model, hyperparameters, edges, y[0])
        if is_resolved(edges, mass):
            posterior = GridPosterior(edges, np.append(0.0, np.cumsum(mass)))
            _check_lattice(model, posterior.quantile(0.5))
            return posterior
    raise UnresolvedPosteriorError("no grid of θ resolves the posterior; use sample_data_augmentation")


def lattice_step(model: ReleaseModel) -> float:
    """Return the distance of neighbouring values of a contribution in the sums over a model with bounds.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> lattice_step(ReleaseModel("normal", 10, Noise("laplace", 10.0), bounds=(-64, 64)))
    1.0
    """
    assert model.bounds is not None
    return 1.0 if model.entry.integer_records else (model.bounds[1] - model.bounds[0]) / LATTICE


def _check_lattice(model: ReleaseModel, theta: Floats) -> None:
    """Raise `UnresolvedPosteriorError` if the lattice adds too much to the variance of the release at θ."""
    if model.entry.integer_records:
        return
    assert model.bounds is not None
    clamps = model.outside == "clamp"
    variance = contribution_moments(str(model.family), np.reshape(theta, (1, 1)), model.bounds, clamps)[1][0, 0, 0]
    excess = model.n * lattice_step(model) ** 2 / 4.0
    if excess > _LARGEST_EXCESS * (model.noise.density_variance + model.n * variance):
        raise UnresolvedPosteriorError(
            f"the bounds {model.bounds} are too wide for a lattice of {LATTICE} steps; use sample_data_augmentation or "
            "narrower bounds"
        )


def _posterior_masses(model: ReleaseModel, prior: Floats, edges: Floats, y: float) -> Floats:
    """Return the posterior mass of each cell of θ: prior mass times p(y | θ) at the middle of the cell, normalised."""
    weights, origin, step = _contribution_weights(model, (edges[1:] + edges[:-1]) / 2.0)
    size = model.n * (weights.shape[1] - 1) + 1
    log_evidence = model.noise.log_weight(y - (model.n * origin + step * np.arange(size)))
    evidence = np.exp(log_evidence - log_evidence.max())
    length = fft.next_fast_len(size, real=True)
    spectrum = np.conj(fft.rfft(evidence, length))
    spectrum[1 : (length + 1) // 2] *= 2.0  # each entry stands for two conjugate frequencies of a real sequence
    floor = _NEGLIGIBLE_POWER ** (2.0 / model.n)
    likelihood = np.empty(len(weights))
    rows = max(1, _BLOCK // length)
    for start in range(0, len(weights), rows):
        block = slice(start, start + rows)
        transforms = fft.rfft(weights[block], length, axis=1)
        row, kept = np.nonzero(transforms.real**2 + transforms.imag**2 > floor)
        terms = np.real(_power(transforms[row, kept], model.n) * spectrum[kept])
        likelihood[block] = np.bincount(row, terms, len(transforms))  # Σ_s p(s | θ)·p(y | s), by Parseval's theorem
    probability = cell_probabilities(model, prior, edges)
    rounding = _ROUNDING * model.n * np.linalg.norm(spectrum)  # powers have relative errors of about n roundings
    mass = probability * np.where(likelihood > rounding, likelihood, 0.0)
    if not mass.sum() > _LEAST_LIKELIHOOD * rounding * probability.sum():
        raise ContradictionError(
            f"the release y={y:g} contradicts the prior {prior.tolist()} so much that rounding dominates the exact "
            "sums; check n and the noise, or use sample_data_augmentation"
        )
    return mass / mass.sum()


def _power(values: NDArray[np.complex128], n: int) -> NDArray[np.complex128]:
    """Return `values` to the power n ≥ 1 by repeated squaring, a tenth of the time of NumPy's power for n ≥ 100."""
    result = np.ones_like(values)
    while n:
        if n & 1:
            result *= values
        values, n = values * values, n >> 1
    return result


def _contribution_weights(model: ReleaseModel, theta: Floats) -> tuple[Floats, float, float]:
    """Return, for each θ, the pmf of one contribution on a lattice; also return the first lattice point and the step.

    With G the integral of the distribution function F of a record and h the step, the mass that linear division gives
    to the point x is [G(x + h) − 2G(x) + G(x − h)]/h. At the two bounds only mass from within the bounds is counted.
    """
    assert model.bounds is not None
    (a, b), t = model.bounds, theta[:, None]
    if model.entry.integer_records:
        points, step = np.arange(a, b + 1.0), 1.0
        weights = stats.poisson.pmf(points, t)
        below, above = stats.poisson.cdf(a - 1.0, theta), stats.poisson.sf(b, theta)
    else:
        step = lattice_step(model)
        points = a + step * np.arange(LATTICE + 1)
        if model.entry.marginal == "gamma":
            t = np.maximum(t, _SMALLEST)
            survival, inside, u = np.exp(-t * points), -np.expm1(-t * step), t * step
            average = np.where(u < _SMALL, 1.0 - u / 2.0 + u**2 / 6.0, inside / u)
            ends = np.where(u < _SMALL, u / 2.0 - u**2 / 6.0, 1.0 - average), average - np.exp(-u)
            between = average * inside * survival[:, :-2]
            weights = np.hstack([ends[0] * survival[:, :1], between, ends[1] * survival[:, -2:-1]])
            below, above = -np.expm1(-theta * a), survival[:, -1]
        else:
            t = t.clip(a - _BEYOND, b + _BEYOND)
            cdf = special.ndtr(points - t)
            integral = (points - t) * cdf + np.exp(-0.5 * (points - t) ** 2) / np.sqrt(2.0 * np.pi)
            slopes = np.diff(integral, axis=1) / step
            weights = np.diff(slopes, axis=1, prepend=cdf[:, :1], append=cdf[:, -1:])
            below, above = cdf[:, 0], 1.0 - cdf[:, -1]
    if model.outside == "clamp":
        weights[:, 0] += below
        weights[:, -1] += above
        return np.maximum(weights, 0.0), a, step
    # The lattice is extended to 0, the contribution of a dropped record, which is divided between its neighbours.
    before = max(int(np.ceil(a / step)), 0)
    after = max(int(np.ceil(-b / step)), 0)
    weights = np.pad(weights, ((0, 0), (before, after)))
    origin = a - before * step
    place = min(int(-origin / step), weights.shape[1] - 2)
    upper = -origin / step - place
    weights[:, place] += (1.0 - upper) * (below + above)
    weights[:, place + 1] += upper * (below + above)
    return np.maximum(weights, 0.0), origin, step
