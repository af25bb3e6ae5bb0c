"""Exact posterior of the parameter given one release.

==========================  ==========================================================================================
binomial                    mixture over the count s of Beta(α + s, β + n − s) with weights BetaBinomial(s)·p(y | s)
multinomial                 mixtures over the counts, see `mechanisms.tables`
exponential, poisson,       quadrature over θ of the prior times the likelihood of the noisy sum, see `sum_inversion`
normal
==========================  ==========================================================================================

The statistic is not approximated by a normal distribution, and these posteriors are the reference for the samplers. The
quadrature is in ln θ, or in the mean of normal records. Its interval covers the prior and all θ between the prior and
the range in which the distribution of a contribution depends on θ; beyond, the likelihood is constant and the prior
decreases. A panel is halved until the rules with 5 and 9 nodes agree on its mass and on its first two moments. It is
negligible only if the log integrand, extrapolated by half of its variation on the panel, is: a mode between the nodes
of a wide panel makes the integrand vary by more. The mass of rates and means below the interval is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.core.arguments import Floats
from mechanisms.core.beta_mixture import SMALLEST_WEIGHT, BinomialMixture
from mechanisms.core.noise import Noise
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.core.sums import weighted_sum
from mechanisms.inference.adaptive_grid import COARSE_WEIGHTS, NODES, WEIGHTS, Grid, interpolate, invert, tabulate
from mechanisms.inference.families import EXPONENTIAL, NORMAL
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.sum_inversion import log_bound, log_likelihood
from mechanisms.tables import Theta, dirichlet_multinomial, table_posterior

_PANELS, _LARGEST = 24, 4_000  # numbers of first panels on each part of the range, and of all panels
_TOLERANCE = 1e-8  # largest difference of the rules on a panel, relative to mass and moments of the posterior
_LARGEST_ERROR = 1e-4  # relative error that is not reported
_NEGLIGIBLE = 1e-13  # largest part of a panel that is not halved
_LOG_SMALLEST = -690.0  # log of the smallest rate or mean
_FAR = 1e6  # distance of a release from the range of the statistic, in scales of the noise
_CERTAIN = 1e4  # the same for Gaussian noise in units of its variance, where neighbouring sums differ by as many nats
_REACH = 13.0  # standard deviations of a normal prior that the range covers
_UNDERFLOW = 800.0  # log integrand below the peak whose exponential is 0
_DEEP = 120.0  # the same where it is negligible
_PRECISE = 50.0  # range of a contribution in scales of the noise beyond which negligible likelihoods take long
_STEPS = 30_000_000  # largest number of steps of line integrals, of which 1 to 3 million take a second
_TAIL = 1e-35  # prior probability beyond each end of the range of rates and means


@dataclass(frozen=True, eq=False)
class QuadraturePosterior(Posterior):
    """Posterior of a scalar θ from values of its density at nodes; build it with `exact_posterior`."""

    grid: Grid = field(repr=False)  # of φ = ln θ, or θ for normal records, given that φ is at least the first point
    moments: tuple[float, float]  # mean and standard deviation of θ
    below: float  # probability below the first node, where θ has a density ∝ θ^(shape − 1)
    shape: float  # shape of the prior; unused if `below` is 0
    is_log: bool  # True if φ = ln θ
    error: float  # estimate of the relative error of the mass: of quadrature and of likelihoods

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of values ≤ θ, for `theta` of any shape."""
        values = np.asarray(theta, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            phi = np.where(values > 0.0, np.log(values), -np.inf) if self.is_log else values
        above = interpolate(*self.grid, phi.reshape(1, -1))
        first = self.grid.points[0, 0]
        tail = self.below * np.exp(self.shape * np.minimum(phi - first, 0.0)) if self.below else 0.0
        return np.where(np.isnan(values), np.nan, tail + (1.0 - self.below) * above.reshape(values.shape))[()]

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles, for probabilities in (0, 1) of any shape."""
        return self._invert(validate_probabilities(probabilities))

    def mean(self) -> float:
        """Return the posterior mean E[θ | y]."""
        return self.moments[0]

    def std(self) -> float:
        """Return the standard deviation of θ given y."""
        return self.moments[1]

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw `size` independent values of θ by inversion."""
        return self._invert(rng.random(size))

    def problem(self) -> str | None:
        """Return a sentence about an estimated error above 1e-4, or None."""
        if self.error <= _LARGEST_ERROR:
            return None
        problem = f"the exact posterior may have a relative error of {min(self.error, 1.0):.1g}, as the noise hardly"
        return f"{problem} explains y; check n, the bounds and the scale of the noise"

    def _invert(self, p: Floats) -> Floats:
        above = np.clip((p.reshape(1, -1) - self.below) / (1.0 - self.below), 0.0, 1.0)
        phi = invert(*self.grid, above).reshape(p.shape)
        if self.below > 1e-300:
            tail = np.log(np.minimum(np.maximum(p, 1e-300) / self.below, 1.0)) / self.shape
            phi = np.where(p < self.below, self.grid.points[0, 0] + tail, phi)
        return (np.exp(phi) if self.is_log else phi)[()]


def exact_posterior(model: ReleaseModel, prior: ArrayLike, noisy_statistics: ArrayLike) -> Posterior:
    """Return the exact posterior of θ given one release.

    The model has a scalar parameter, or is multinomial. For binomial and multinomial records, errors are rounding
    errors. For records with bounds, the distribution function has an error below 1e-6, and the mean and the standard
    deviation a relative error below 1e-6.
    """
    hyperparameters, y = model.validate_release(prior, noisy_statistics)
    least, most = model.statistic_range()
    if model.noise.power == 1:  # beyond the range of the statistic, the likelihood does not depend on y but by rounding
        y = np.clip(y, least - _FAR * model.noise.scale, most + _FAR * model.noise.scale)
    elif model.entry.integer_records and not model.entry.is_vector:  # further away, only the nearest sum is possible
        certain = _CERTAIN * model.noise.scale * model.noise.scale
        y = np.clip(y, least - certain, most + certain)
    if model.entry.has_square:
        raise ValueError(f"family must have one parameter, got {model.family}; use sample_data_augmentation")
    if model.bounds is None:
        if model.entry.is_vector:  # given integer counts, the likelihood of integer noise is that of real noise
            noise = Noise("laplace" if model.noise.power == 1 else "gaussian", model.noise.scale)
            k = y.size
            values, noises, parents = [*y.tolist(), np.nan], [*[noise] * k, None], [*[k] * k, -1]  # node k is the total
            table = table_posterior(values, noises, parents, dirichlet_multinomial(hyperparameters), n=model.n)
            return Theta(table, np.arange(k))
        counts = np.arange(model.n + 1)
        if model.noise.power == 1:
            return count_mixture(hyperparameters, model.noise.log_weight(y[0] - counts))
        nearest = np.clip(y[0], 0.0, model.n)  # squares of larger distances would cancel
        beyond = (counts - nearest) / model.noise.scale * ((y[0] - nearest) / model.noise.scale)
        return count_mixture(hyperparameters, model.noise.log_weight(nearest - counts) + beyond)
    return _integrate(*model.standardised(hyperparameters, y), unit=model.units()[1])


def count_mixture(prior: Iterable[float], log_likelihood: Floats) -> BinomialMixture:
    """Return the exact posterior of θ given a release of the count s ~ Binomial(n, θ), θ ~ Beta(alpha, beta)."""
    # `log_likelihood` contains ln p(y | s) at s = 0, …, n, up to a constant; −∞ for impossible counts. Counts with a
    # weight below 1e-18 times the largest weight are omitted, whose total weight is below (n + 1)·1e-18.
    alpha, beta = map(float, prior)
    n = log_likelihood.size - 1
    log_weights = _log_beta_binomial(n, alpha, beta) + log_likelihood
    weights = np.exp(log_weights - log_weights.max())
    counts = np.flatnonzero(weights >= SMALLEST_WEIGHT)
    return BinomialMixture((alpha, beta), n, counts, weights[counts] / weights[counts].sum())


@lru_cache(maxsize=8)
def _log_beta_binomial(n: int, alpha: float, beta: float) -> Floats:
    """Return the unnormalised log prior pmf of the counts 0, …, n, cached because many trials share n and the prior."""
    s = np.arange(n + 1)
    log_choose = -special.gammaln(s + 1) - special.gammaln(n - s + 1)
    log_pmf = log_choose + special.gammaln(alpha + s) + special.gammaln(beta + n - s)
    log_pmf.flags.writeable = False
    return log_pmf


def _integrate(model: ReleaseModel, prior: Floats, release: Floats, unit: float) -> QuadraturePosterior:
    """Return the posterior by adaptive quadrature over φ, for a standardised model; `unit` is 1 if φ = ln θ."""
    y, is_log, marginal = float(release[0]), model.entry.code != NORMAL, model.entry.marginal

    def evaluate(panels: Floats, peak: float) -> tuple[Floats, Floats, Floats]:
        """Return nodes, log integrand at the nodes, and errors of the likelihood, all of shape (panels, nodes).

        The likelihood, which is at most 1, is not computed where its bound is far enough below the peak.
        """
        phi = panels[:, :1] * (1.0 - _FRACTIONS) + panels[:, 1:] * _FRACTIONS
        log_prior, error = marginal.log_density(phi, *prior), np.zeros(phi.shape)
        bound = log_prior.copy()
        if is_precise:
            bound += log_bound(model, marginal.to_theta(phi.ravel()), y).reshape(phi.shape)
        is_needed = bound >= peak - (_DEEP if is_precise else _UNDERFLOW)
        log_likelihoods = np.empty(phi.shape)
        for nodes in np.array_split(np.flatnonzero(is_needed), len(panels)):
            theta = marginal.to_theta(phi.ravel()[nodes])
            log_likelihoods.ravel()[nodes], error.ravel()[nodes], steps = log_likelihood(model, theta, y)
            budget[0] -= steps
            if budget[0] < 0:
                raise ValueError(
                    f"the exact posterior must take less than about 30 s, got more for noise of scale "
                    f"{model.noise.scale * unit:.3g} and contributions with a range of {reach * unit:.3g}; choose "
                    "less precise noise, narrower bounds or a larger variance of a record"
                )
        return phi, np.where(is_needed, log_likelihoods + log_prior, bound), error

    edges = _first_edges(model, prior)
    assert model.bounds is not None
    reach, budget = float(np.ptp(model.contribution_range())), [_STEPS]
    is_precise = reach > _PRECISE * model.noise.scale
    phi, log_integrand, error = _evaluate_first(evaluate, np.column_stack([edges[:-1], edges[1:]]), marginal, prior)
    while True:
        split, gap = _unresolved(phi, log_integrand, error, is_log)
        if not split.any() or len(phi) > _LARGEST:
            break
        left, right = phi[split, 0], phi[split, -1]
        middle = 0.5 * (left + right)
        halves = np.column_stack([np.append(left, middle), np.append(middle, right)])
        kept = zip((phi, log_integrand, error), evaluate(halves, float(log_integrand.max())), strict=True)
        phi, log_integrand, error = (np.concatenate([old[~split], new]) for old, new in kept)
    return _posterior_of_panels(model, prior, unit, phi, log_integrand, gap, error)


def _posterior_of_panels(
    model: ReleaseModel, prior: Floats, unit: float, phi: Floats, log_integrand: Floats, gap: float, error: Floats
) -> QuadraturePosterior:
    """Return the posterior from its log density at the nodes of resolved panels.

    The errors are those of the likelihood at the nodes, and `gap` that of quadrature relative to the mass.
    """
    is_log, marginal = model.entry.code != NORMAL, model.entry.marginal
    grid, means = tabulate(1, np.zeros(len(phi), dtype=np.int64), phi, log_integrand, marginal.to_theta)
    grid = grid._replace(points=unit * grid.points, density=grid.density / unit)
    weights = np.exp(log_integrand - log_integrand.max()) * WEIGHTS * 0.5 * (phi[:, -1:] - phi[:, :1])
    total = weights.sum()
    below = 0.0
    if is_log and model.parameter_limits()[0][0] <= 0.0:
        first = np.unravel_index(phi.argmin(), phi.shape)
        tail = math.exp(min(log_integrand[first] - log_integrand.max(), 0.0)) / prior[0]
        below = float(tail / (tail + total))
    shares, mean = weights * ((1.0 - below) / total), float(means[0] * (1.0 - below))
    variance = float((shares * (marginal.to_theta(phi) - mean) ** 2).sum() + below * mean**2)
    moments, total_error = (unit * mean, unit * math.sqrt(variance)), gap + float((shares * error).sum())
    return QuadraturePosterior(grid, moments, below, float(prior[0]), is_log, total_error)


_FRACTIONS = (1.0 + NODES) / 2.0


def _evaluate_first(
    evaluate: Callable[[Floats, float], tuple[Floats, Floats, Floats]], panels: Floats, marginal: Any, prior: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the values of panels, in their order, from those with the largest prior density on: they have the peak."""
    order = np.argsort(-marginal.log_density(panels.mean(axis=1), *prior), kind="stable")
    peak, parts = -math.inf, []
    for which in np.array_split(order, max(len(order) // 6, 1)):
        parts.append(evaluate(panels[which], peak))
        peak = max(peak, float(parts[-1][1].max()))
    back = np.argsort(order)
    phi, log_integrand, error = (np.concatenate(column)[back] for column in zip(*parts, strict=True))
    return phi, log_integrand, error


def _unresolved(phi: Floats, log_integrand: Floats, error: Floats, is_log: bool) -> tuple[np.ndarray, float]:
    """Return the panels to be halved, and the sum of the differences of the two rules relative to the mass."""
    # Differences that errors of the likelihood explain are not reduced by halving.
    peak, top, bottom = log_integrand.max(), log_integrand.max(axis=1), log_integrand.min(axis=1)
    width = phi[:, -1] - phi[:, 0]
    integrand = np.exp(log_integrand - peak) * (0.5 * width[:, None])
    theta = np.exp(phi) if is_log else phi
    total = weighted_sum(integrand, WEIGHTS).sum()
    mean = weighted_sum(integrand * theta, WEIGHTS).sum() / total
    square = (theta - mean) ** 2
    variance = weighted_sum(integrand * square, WEIGHTS).sum() / total
    if variance > 0.0:
        square = np.minimum(np.abs(theta - mean) / math.sqrt(variance), 1e150) ** 2
    with np.errstate(over="ignore"):
        bound = np.exp(np.minimum(1.5 * top - 0.5 * bottom - peak, 600.0)) * width * (1.0 + square.max(axis=1))
    moments = np.array([integrand, integrand * np.sqrt(square), integrand * square])
    errors = np.abs(weighted_sum(moments, WEIGHTS) - weighted_sum(moments[..., ::2], COARSE_WEIGHTS))
    explained = weighted_sum(moments * error, WEIGHTS)
    resolved = np.all(errors <= _TOLERANCE * total + explained, axis=0) & (top - bottom < 60.0)
    narrow = width <= 1e-12 * np.maximum(np.abs(phi).max(axis=1), 1.0)
    return ~(resolved | (bound < _NEGLIGIBLE * total) | narrow), float(errors[0].sum() / total)


def _first_edges(model: ReleaseModel, prior: Floats) -> Floats:
    """Return edges of the first panels: they cover the prior, and the range in which contributions depend on θ."""
    assert model.bounds is not None
    (a, b), n = model.bounds, model.n
    low, high = model.contribution_range()
    rise = (high - low) / model.noise.scale if model.noise.power == 1 else 700.0
    lower, upper = (float(limit[0]) for limit in model.parameter_limits())
    if model.entry.code == NORMAL:
        reach = math.sqrt(2.0 * (45.0 + math.log(n) + min(rise, 700.0)))
        spread = _REACH * math.sqrt(prior[1])
        parts = [(a - reach, b + reach), (prior[0] - spread, prior[0] + spread)]
    else:
        distribution = model.entry.marginal.frozen(*prior)
        with np.errstate(divide="ignore"):
            parts = [tuple(np.log([distribution.ppf(_TAIL), distribution.isf(_TAIL)]))]
            lower, upper = np.log(np.maximum((lower, upper), 0.0)).clip(_LOG_SMALLEST, -_LOG_SMALLEST).tolist()
        if model.entry.code == EXPONENTIAL:
            parts.append((math.log(1e-15 / n / b), math.log(1e15 * n / min(model.noise.scale, b))))
        else:
            parts.append((math.log(1e-15 / n), math.log(b + 50.0 * math.sqrt(b) + 100.0)))
        least = min(min(part[0] for part in parts), math.log(1e-15 / prior[1]))
        parts.append((least, max(part[1] for part in parts)))
    ends = np.clip(parts, lower, upper)
    edges = np.concatenate([np.linspace(first, last, _PANELS + 1) for first, last in ends])
    limits = [edge for edge in (lower, upper) if math.isfinite(edge) and model.parameter_range is not None]
    edges = np.unique(np.append(edges, limits))
    spaced = np.diff(edges) > 1e-9 * np.ptp(edges)
    return np.append(edges[0], edges[1:][spaced]) if spaced[-1] else np.append(edges[:-1][spaced], edges[-1])
