"""Samplers of the coefficients of a linear regression given a noisy Gram matrix, each for a stated joint model.

Scaled records u = (x, y) ∈ R^p have a normal distribution N(μ, Ψ), with the prior of `RegressionPrior`. The
coefficients are those of the regression of y on x: θ = Ψ_xx⁻¹Ψ_xy, θ₀ = μ_y − θ·μ_x and σ² = Ψ_yy − θ·Ψ_xy; so θ | σ² ~
N(0, σ²/λ·I) and σ² ~ InverseGamma(ν/2, λ/2). The methods differ in the model of the statistic G given (μ, Ψ).

=======================  =========================================================================================
method                   model of G, and chain
=======================  =========================================================================================
normal-covariates        Exact for records that no bound clamps: ū is normal and S = Σ(u − ū)(u − ū)ᵀ Wishart. With
                         (μ, Ψ) integrated out, ln p(ū, S) = (n−p−2)/2·ln|S| − (n+ν)/2·ln|λI + S + κn/(κ+n)·ūūᵀ|.
                         Metropolis steps in (ū, S); (μ, Ψ) given (ū, S) is drawn exactly. Draws of
                         ``normal-covariates-records`` are of the least-squares regression of the n records, which an
                         analysis without privacy returns, with σ² its mean squared residual.
noise-aware              Normal, with the moments of G (Bernstein & Sheldon 2019). Their step, the draw from a product
                         of normal densities followed by a conjugate draw of (μ, Ψ), is a proposal, which
                         Metropolis corrects.
data-augmentation        Exact: the sum over records that are clamped to [−1, 1]. Each record is redrawn given the
                         others (Ju et al. 2022); an iteration takes time proportional to n.
noise-aware-published    The step of `noise-aware` without correction, with statistics that are not positive definite
                         rejected. A control: it samples no stated joint model. ``noise-aware-uncorrected`` only
                         lacks the correction, and ``noise-aware-redrawn`` only rejects.
naive                    G is the release, moved to the nearest scatter that is positive definite; the noise is ignored.
                         Independent draws, a control.
=======================  =========================================================================================

`naive` of a noise-free release is the posterior without privacy.

References
----------
Bernstein & Sheldon, "Differentially private Bayesian linear regression", NeurIPS 2019. Alparslan, Yıldırım & Birbil,
"Differentially private distributed Bayesian linear regression with MCMC", ICML 2023. Ju, Awan, Gong & Rao, "Data
augmentation MCMC for Bayesian inference from privatized data", NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from mechanisms.arguments import Floats, validate_integer, validate_positive
from mechanisms.metadata import Entry, Style, find_entry, register
from mechanisms.regression.gram_kernels import (
    _fill_moments,
    augment_records,
    run_normal_covariates,
    run_normal_statistics,
)
from mechanisms.regression.gram_release import NOISE_CODES, GramRelease


@dataclass(frozen=True)
class RegressionPrior:
    """Prior of the moments of scaled records: Ψ ~ InverseWishart(p + excess, scale·I), μ | Ψ ~ N(0, Ψ/strength).

    By default, the expectation of Ψ is 0.125·I, a standard deviation of 0.35 half widths of the bounds.
    """

    strength: float = 0.5  # κ, the number of records whose weight the prior of μ has
    excess: float = 3.0  # ν − p
    scale: float = 0.25  # λ

    def __post_init__(self) -> None:
        for name in ("strength", "excess", "scale"):
            validate_positive(name, getattr(self, name), "choose e.g. 1")

    def hyperparameters(self, p: int) -> Floats:
        """Return (κ, ν, λ) for p columns."""
        return np.array([self.strength, p + self.excess, self.scale])

    def sample(self, rng: np.random.Generator, p: int) -> tuple[Floats, Floats]:
        """Return one draw of (μ, Ψ), shapes (p,) and (p, p)."""
        root = np.sqrt(self.scale) * np.linalg.inv(_draw_bartlett(rng, p + self.excess, p)).T
        return root @ rng.normal(size=p) / np.sqrt(self.strength), root @ root.T


def _draw_bartlett(rng: np.random.Generator, degrees: float, p: int, *size: int) -> Floats:
    """Return lower triangular factors A of Wishart matrices A·Aᵀ with scale I, shape (*size, p, p)."""
    factor = np.tril(rng.normal(size=(*size, p, p)), -1)
    factor[..., range(p), range(p)] = np.sqrt(rng.chisquare(degrees - np.arange(p), (*size, p)))
    return factor


def regression_of(mu: Floats, psi: Floats) -> Floats:
    """Return (θ₀, θ, σ²) of the regression of the last column on the others, shape (..., p + 1)."""
    cross = psi[..., :-1, -1]
    slopes = np.linalg.solve(psi[..., :-1, :-1], cross[..., None])[..., 0]
    intercept, variance = mu[..., -1] - (slopes * mu[..., :-1]).sum(-1), psi[..., -1, -1] - (slopes * cross).sum(-1)
    return np.concatenate([intercept[..., None], slopes, variance[..., None]], axis=-1)


def normal_statistic(rng: np.random.Generator, mu: Floats, psi: Floats, n: int) -> Floats:
    """Draw a Gram matrix with the normal distribution that `noise-aware` assumes."""
    p = mu.size
    rows, columns = (index[1:] for index in np.triu_indices(p + 1))
    first, second = np.where(rows == 0, columns, rows) - 1, np.where(rows == 0, 0, columns) - 1
    mean, covariance, gram = np.empty(rows.size), np.empty((rows.size, rows.size)), np.zeros((p + 1, p + 1))
    _fill_moments(n, mu, psi, first, second, mean, covariance)
    gram[0, 0] = n
    gram[rows, columns] = gram[columns, rows] = rng.multivariate_normal(mean, covariance, method="cholesky")
    return gram


def simulate_gram(rng: np.random.Generator, mu: Floats, psi: Floats, n: int) -> Floats:
    """Return the Gram matrix of n unclamped normal records, drawn as a normal mean and a Wishart scatter; n > p."""
    p, root = mu.size, np.linalg.cholesky(psi)
    bartlett = _draw_bartlett(rng, n - 1, p)
    mean, half, gram = mu + root @ rng.normal(size=p) / np.sqrt(n), root @ bartlett, np.empty((p + 1, p + 1))
    gram[0, 0], gram[0, 1:], gram[1:, 0] = n, n * mean, n * mean
    gram[1:, 1:] = half @ half.T + n * np.outer(mean, mean)
    return gram


_ALL = tuple(NOISE_CODES)
_MIXED = _ALL[:2]  # noises that are mixtures of normal distributions


@dataclass(frozen=True)
class GramMethod(Entry):
    """Inference method given a noisy Gram matrix."""

    run: Callable[..., None] = field(kw_only=True, repr=False)  # kernel
    noises: tuple[str, ...] = field(default=_ALL, kw_only=True)  # supported noises
    is_control: bool = field(default=False, kw_only=True)  # draws are not exact for a stated joint model
    thinning: int = field(default=5, kw_only=True)


def _run_naive(rng, noise, scale, noisy, n, prior, burn_in, thinning, draws):
    """Draw from the conjugate posterior given the release, with eigenvalues of its scatter below 1e-9 raised."""
    mean = noisy[0, 1:] / n
    values, vectors = np.linalg.eigh(noisy[1:, 1:] - n * np.outer(mean, mean))
    kappa, nu, scale_0 = prior
    matrix = (vectors * np.maximum(values, 1e-9)) @ vectors.T + scale_0 * np.eye(mean.size)
    root = np.linalg.cholesky(matrix + kappa * n / (kappa + n) * np.outer(mean, mean))
    size, p = draws.shape[0], mean.size
    half = root @ np.swapaxes(np.linalg.inv(_draw_bartlett(rng, nu + n, p, size)), 1, 2)
    mu = n / (kappa + n) * mean + (half @ rng.normal(size=(size, p, 1)))[..., 0] / np.sqrt(kappa + n)
    draws[:] = regression_of(mu, half @ np.swapaxes(half, 1, 2))


GRAM_METHODS: dict[str, GramMethod] = register(
    __name__,
    GramMethod(
        "normal-covariates", "Exact for unclamped normal records.",
        run=partial(run_normal_covariates, False), thinning=20, style=Style("blue", "o")),
    GramMethod(
        "noise-aware", "Exact for statistics with normal errors.",
        run=partial(run_normal_statistics, True, 1, 4), noises=_MIXED, style=Style("purple", "D")),
    GramMethod(
        "data-augmentation", "Exact for clamped normal records.",
        run=augment_records, thinning=10, style=Style("green", "^")),
    GramMethod(
        "normal-covariates-records", "Regression of the n records.",
        run=partial(run_normal_covariates, True), is_control=True, thinning=20, style=Style("blue", "h")),
    GramMethod(
        "noise-aware-published", "The published Gibbs steps.",
        run=partial(run_normal_statistics, False, 100, 0), noises=_MIXED, is_control=True,
        origin="paper", paper="P5", style=Style("vermilion", "s")),
    GramMethod(
        "noise-aware-uncorrected", "The conjugate draw, not corrected.",
        run=partial(run_normal_statistics, False, 1, 4), noises=_MIXED, is_control=True,
        origin="paper", paper="P5", variant="not redrawn", style=Style("brown", "<")),
    GramMethod(
        "noise-aware-redrawn", "The rejection without normaliser.",
        run=partial(run_normal_statistics, True, 100, 4), noises=_MIXED, is_control=True,
        origin="paper", paper="P5", variant="corrected", style=Style("sky", ">")),
    GramMethod(
        "naive", "Ignores the noise.",
        run=_run_naive, is_control=True, thinning=1, origin="baseline", style=Style("orange", "v")),
)  # fmt: skip
"""Inference methods by name."""


def sample_gram(
    rng: np.random.Generator,
    method: str,
    release: GramRelease,
    prior: RegressionPrior,
    n_chains: int = 4,
    n_burn_in: int = 500,
    n_draws: int = 1_000,
    thinning: int | None = None,
) -> Floats:
    """Return draws of (θ₀, θ, σ²) in scaled units, shape (n_chains, n_draws, p + 1), from random states."""
    entry, noise = find_entry(GRAM_METHODS, method, "method"), release.noise
    if noise.name not in entry.noises:
        raise ValueError(f"noise must be one of {', '.join(entry.noises)} for {method}, got {noise.name}; change it")
    if release.n < noise.p + 2:
        raise ValueError(f"n must be at least {noise.p + 2} for {noise.p - 1} features, got {release.n}; use fewer")
    step = entry.thinning if thinning is None else validate_integer("thinning", thinning)
    draws, hyperparameters = np.empty((n_chains, n_draws, noise.p + 1)), prior.hyperparameters(noise.p)
    noisy = np.ascontiguousarray(release.noisy, dtype=np.float64)
    for chain in draws:
        entry.run(rng, NOISE_CODES[noise.name], noise.scale, noisy, release.n, hyperparameters, n_burn_in, step, chain)
    return draws
