"""Posterior of a parameter given a noisy statistic, by quadrature, for the one-parameter families of P4.

P4's Gibbs samplers treat the statistic given θ as Normal(m(θ), V(θ)). Under this approximation the statistic can be
integrated out: y | θ is a Normal ∗ Laplace convolution in closed form, and p(θ | y) ∝ p(θ)·p(y | θ) is integrated on
the panels of `mechanisms.inference.adaptive_grid`.

The posterior may have several modes, because the mean of a truncated statistic first rises and then falls with θ. A
panel is therefore discarded only if an upper bound on the integrand, over the range of m(θ) on the panel, is
negligible; small values at its nodes do not suffice.
The model is that of P4, section 3; the marginal posterior is not in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.core.arguments import Floats, find_entry
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.inference import adaptive_grid
from mechanisms.inference.families import FAMILIES, Marginal
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.trials import per_trial, validate_statistics

_PRIOR_REACH = 700.0  # number of nats by which the prior density at the ends of the range is below its maximum
_LARGEST = 345.0  # largest |φ| of the log or log odds of θ; the square of θ does not underflow
_MIN_SHAPE = 0.1  # with a smaller shape, more than 1e-15 of the prior mass lies below the smallest θ


def log_normal_laplace(deviation: ArrayLike, variance: ArrayLike, noise_scale: ArrayLike) -> Floats:
    """Return the log density of the sum of independent Normal(0, V) and Laplace(b) variables.

    With λ = 1/b and the scaled complementary error function erfcx(z) = exp(z²)·erfc(z),

        p(d) = (λ/4)·exp(−d²/2V)·[erfcx((λV − |d|)/√(2V)) + erfcx((λV + |d|)/√(2V))].

    If the first argument is negative, its exponential growth is factored out of the bracket. V = 0 gives the Laplace
    density.
    """
    d, rate = np.abs(deviation), 1.0 / np.asarray(noise_scale, dtype=np.float64)
    # Replace zero by a variance whose square root does not underflow.
    v = np.maximum(variance, 1e-300)
    with np.errstate(over="ignore", under="ignore"):
        root = np.sqrt(2 * v)
        near, far = (rate * v - d) / root, (rate * v + d) / root
        below = np.minimum(near, 0.0)
        exponent = np.where(near < 0, rate * (rate * v / 2 - d), -(d**2) / (2 * v))
        bracket = np.where(near < 0, special.erfc(below), special.erfcx(np.maximum(near, 0.0)))
        return np.log(rate / 4) + exponent + np.log(bracket + np.exp(-(below**2)) * special.erfcx(far))


@dataclass(frozen=True, eq=False)
class MarginalPosterior(Posterior):
    """Posterior of θ in each of many trials; build it with `marginal_posterior`."""

    family: str
    grid: adaptive_grid.Grid = field(repr=False)  # of φ: log θ, logit θ or θ under Gamma, Beta or normal priors
    means: Floats = field(repr=False)  # posterior means E[θ | y], shape (trials,)

    @property
    def _prior(self) -> Marginal:
        return FAMILIES[self.family].marginal

    def mean(self) -> Floats:
        """Return the posterior mean E[θ | y], shape (trials,)."""
        return self.means

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return Pr[θ' ≤ θ | y], the PIT value if θ generated the trial, for θ of shape (trials,) or (trials, m)."""
        values = FAMILIES[self.family].validate_parameters(theta)
        values = per_trial("theta", values, len(self.means))
        with np.errstate(divide="ignore"):  # φ is infinite at the ends of the parameter space
            phi = self._prior.to_coordinate(values)
        return adaptive_grid.interpolate(*self.grid, phi.reshape(len(phi), -1)).reshape(values.shape)

    def std(self) -> Floats:
        """Return the standard deviation of θ given y, shape (trials,)."""
        apart = self._prior.to_theta(self.grid.points) - self.means[:, None]
        return np.sqrt(adaptive_grid.integrate_panels(self.grid.points, self.grid.density * apart**2))

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of θ in each trial, shape (trials, m), or (trials,) for a single probability in (0, 1)."""
        p = validate_probabilities(probabilities)
        return self.from_uniforms(np.broadcast_to(p, (len(self.means), *p.shape)).copy())

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` independent draws of θ per trial, shape (trials, size)."""
        return self.from_uniforms(rng.random((len(self.means), size)))

    def from_uniforms(self, uniforms: ArrayLike) -> Floats:
        """Draw θ by inverting the distribution function, one draw per uniform, shape (trials,) or (trials, m)."""
        u = per_trial("uniforms", np.asarray(uniforms, dtype=np.float64), len(self.means))
        if not np.all((u >= 0) & (u < 1)):
            raise ValueError("uniforms must be in [0, 1), got a value outside; draw them with rng.random")
        phi = adaptive_grid.invert(*self.grid, u.reshape(len(u), -1))
        return self._prior.to_theta(phi.reshape(u.shape))


def validate_marginal_prior(family: str, prior: ArrayLike) -> tuple[float, ...]:
    """Return the hyperparameters as floats and check that `marginal_posterior` supports them."""
    scalar = {name: model for name, model in FAMILIES.items() if not model.is_vector}
    model = find_entry(scalar, family, "family", "use sample_gibbs for others")
    hyperparameters = model.validate_prior(prior)
    if any(shape < _MIN_SHAPE for shape in hyperparameters[: model.marginal.n_shapes]):
        raise ValueError(f"prior must have shapes >= {_MIN_SHAPE} for marginal, got {prior!r}; use another prior")
    return hyperparameters


def marginal_posterior(model: ReleaseModel, prior: ArrayLike, noisy_statistics: ArrayLike) -> MarginalPosterior:
    """Return the posterior of θ given a noisy sum y = ŝ + Lap(b), with ŝ approximately normal given θ, in each trial.

    The mean and the variance of ŝ are those of the exact (truncated) statistic of n records. The absolute error of the
    distribution function under this approximation is below 1e-6. Beta parameters and the shape of a Gamma prior must be
    ≥ 0.1. Releases have shape (trials,), (trials, 1) or (); a trial uses about 30 kB of memory.
    """
    hyperparameters = validate_marginal_prior(model.family, prior)
    marginal, scale = model.entry.marginal, model.noise.scale
    y = validate_statistics("noisy_statistics", noisy_statistics, 1)[:, 0]
    low, high = _interval(marginal, hyperparameters)
    root_width = (high - low) / adaptive_grid.ROOT_PANELS

    def evaluate(trial: NDArray[np.int64], panel: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the log integrand at the nodes of each panel, and an upper bound on it over the panel."""
        distinct, which = np.unique(panel, return_inverse=True)
        phi = adaptive_grid.panel_nodes(distinct, low, root_width)
        log_prior = marginal.log_density(phi, *hyperparameters)
        mean, variance = _statistic_moments(model, marginal.to_theta(phi), phi)
        margin = np.abs(np.diff(mean, axis=1)).max(axis=1)
        least, most = mean.min(axis=1) - margin, mean.max(axis=1) + margin
        log_integrand = log_prior[which] + log_normal_laplace(y[trial, None] - mean[which], variance[which], scale)
        gap = np.maximum(np.maximum(least[which] - y[trial], y[trial] - most[which]), 0.0)
        widest = np.stack([variance.min(axis=1), variance.max(axis=1)], axis=1)[which]
        bound = log_prior.max(axis=1)[which] + log_normal_laplace(gap[:, None], widest, scale).max(axis=1)
        return log_integrand, np.maximum(bound, log_integrand.max(axis=1))

    trial, panel, log_integrand = adaptive_grid.refine(y.size, root_width, evaluate)
    phi = adaptive_grid.panel_nodes(panel, low, root_width)
    grid, means = adaptive_grid.tabulate(y.size, trial, phi, log_integrand, marginal.to_theta)
    return MarginalPosterior(model.family, grid, means)


def _interval(marginal: Marginal, prior: tuple[float, ...]) -> tuple[float, float]:
    """Return a range of φ outside which the prior density is negligible."""
    centre, spread = marginal.centre(*prior), marginal.spread(*prior)
    limit, ends = _LARGEST if marginal.n_shapes else math.inf, []
    for direction in (-1.0, 1.0):
        reach, peak = spread, marginal.log_density(np.array(centre), *prior)
        while peak - marginal.log_density(np.array(centre + direction * reach), *prior) < _PRIOR_REACH:
            reach *= 2.0
        ends.append(min(max(centre + direction * reach, -limit), limit))
    return ends[0], ends[1]


def _statistic_moments(model: ReleaseModel, theta: Floats, phi: Floats) -> tuple[Floats, Floats]:
    n = model.n
    if model.bounds is None:
        return n * theta, n * theta * special.expit(-phi)
    q, mean, variance = model.entry.region_moments(theta, model.bounds)
    inside, outside = q[..., 1], q[..., 0] + q[..., 2]
    return n * inside * mean[..., 1], n * inside * (variance[..., 1] + outside * mean[..., 1] ** 2)
