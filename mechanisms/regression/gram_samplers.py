"""Samplers of the coefficients of a linear regression given a noisy Gram matrix, each for a stated joint model.

Scaled records u = (x, y) ∈ R^p have a normal distribution N(μ, Ψ). Its prior is `gram_priors.RegressionPrior`, but for
the published sampler and its variants, which need `gram_priors.ConjugatePrior`. The coefficients are those of the
regression of y on x. The methods differ in the model of the statistic G given (μ, Ψ).

=======================  =========================================================================================
method                   model of G, and chain
=======================  =========================================================================================
normal-covariates        Exact for records that no bound clamps: ū is normal and S = Σ(u − ū)(u − ū)ᵀ Wishart.
                         Metropolis steps in (ū, S) with the moments, and in the moments given (ū, S) or their pivots,
                         which are independent of them. Draws of ``normal-covariates-records`` are of the least-squares
                         regression of the n records, which an analysis without privacy returns, with σ² its mean
                         squared residual.
noise-aware              Normal, with the moments of G (Bernstein & Sheldon 2019). Metropolis steps in the moments given
                         normal noise whose mixture is Laplace noise, with G integrated out.
data-augmentation        Exact: the sum over records that are clamped to [−1, 1]. Each record is redrawn given the
                         others (Ju et al. 2022); an iteration takes time proportional to n.
noise-aware-published    The Gibbs sampler of Bernstein & Sheldon: a draw of G from a product of normal densities,
                         rejected if it is not positive definite, and a conjugate draw of (μ, Ψ). A control: it samples
                         no stated joint model, and keeps the conjugate prior. ``noise-aware-uncorrected`` only has the
                         conjugate draw, and ``noise-aware-redrawn``, which corrects it, only the rejection.
naive                    G is the release, moved to the nearest scatter that is positive definite; the noise is ignored.
                         A control.
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

from mechanisms.core.arguments import Floats, find_entry, validate_integer
from mechanisms.core.metadata import Entry, Style, register
from mechanisms.regression.gram_kernels import (
    NoisyGram,
    augment_records,
    run_conjugate_gibbs,
    run_noise_aware,
    run_normal_covariates,
)
from mechanisms.regression.gram_priors import ConjugatePrior, RegressionPrior, draw_bartlett
from mechanisms.regression.gram_release import NOISE_CODES, GramRelease

_RESOLVED = 0.2  # smallest ratio of the ends of a resolved interval of σ


def regression_of(mu: Floats, psi: Floats) -> Floats:
    """Return (θ₀, θ, σ²) of the regression of the last column on the others, shape (..., p + 1)."""
    cross = psi[..., :-1, -1]
    slopes = np.linalg.solve(psi[..., :-1, :-1], cross[..., None])[..., 0]
    intercept, variance = mu[..., -1] - (slopes * mu[..., :-1]).sum(-1), psi[..., -1, -1] - (slopes * cross).sum(-1)
    return np.concatenate([intercept[..., None], slopes, variance[..., None]], axis=-1)


def resolves(variances: Floats) -> Floats:
    """Return True where draws of residual variances, shape (..., n_draws), bound them away from 0.

    The central 95 % interval of the standard deviation then starts above a fifth of its upper end. Otherwise the lower
    end is that of the prior, whose density at 0 is positive.
    """
    low, high = np.quantile(variances, [0.025, 0.975], axis=-1)
    return low > _RESOLVED**2 * high


def coefficient_intervals(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Return intervals of (θ₀, θ, σ²) given draws, shape (..., n_draws, p + 1).

    They are central, but that of σ² starts at 0 where the draws do not resolve it: its upper end is then a bound. It is
    that of the central interval, because the draws decide about the kind of interval.
    """
    low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2], axis=-2)
    low[..., -1] *= resolves(draws[..., -1])
    return low, high


def normal_statistic(rng: np.random.Generator, mu: Floats, psi: Floats, n: int) -> Floats:
    """Draw a Gram matrix with the normal distribution that `noise-aware` assumes.

    It is a linear function of that of standard normal records, whose entries are uncorrelated, because a factor of the
    covariance matrix of its entries has the square of the condition number of that of Ψ.
    """
    rows, columns = (index[1:] for index in np.triu_indices(mu.size + 1))
    standard, transform = n * np.eye(mu.size + 1), np.eye(mu.size + 1)
    standard[rows, columns] += np.sqrt(np.where(rows == columns, 2.0 * n, n)) * rng.standard_normal(rows.size)
    standard[columns, rows] = standard[rows, columns]
    transform[1:, 0], transform[1:, 1:] = mu, np.linalg.cholesky(psi)
    gram = transform @ standard @ transform.T
    return (gram + gram.T) / 2.0


def simulate_gram(rng: np.random.Generator, mu: Floats, psi: Floats, n: int) -> Floats:
    """Return the Gram matrix of n unclamped normal records, drawn as a normal mean and a Wishart scatter; n > p."""
    p, root = mu.size, np.linalg.cholesky(psi)
    bartlett = draw_bartlett(rng, n - 1, p)
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
    takes_ends_for_clamped: bool = field(default=False, kw_only=True)  # values at ends stand for any beyond them
    is_control: bool = field(default=False, kw_only=True)  # draws are not exact for a stated joint model
    prior: type[RegressionPrior] | type[ConjugatePrior] = field(default=RegressionPrior, kw_only=True, repr=False)
    thinning: int = field(default=5, kw_only=True)  # number of iterations per draw


def _run_naive(rng, release, prior, burn_in, thinning, draws):
    """Run the chain given the release, with eigenvalues of its scatter below n·1e-9 raised, and almost no noise."""
    n, noisy = release.n, release.noisy.copy()
    mean = noisy[0, 1:] / n
    values, vectors = np.linalg.eigh(noisy[1:, 1:] - n * np.outer(mean, mean))
    noisy[1:, 1:] = (vectors * np.maximum(values, 1e-9 * n)) @ vectors.T + n * np.outer(mean, mean)
    run_normal_covariates(False, True, rng, NoisyGram(0, 1e-15, noisy, n), prior, burn_in, thinning, draws)


GRAM_METHODS: dict[str, GramMethod] = register(
    __name__,
    GramMethod(
        "normal-covariates",
        "Chain on the noise-free sums and the parameters; exact for normal records that no bound clamps.",
        run=partial(run_normal_covariates, False, False), thinning=20, style=Style("blue", "o")),
    GramMethod(
        "noise-aware", "Chain on the parameters, with the sums integrated out; exact if the sums are normal.",
        run=run_noise_aware, noises=_MIXED, style=Style("purple", "D")),
    GramMethod(
        "data-augmentation",
        "Chain on all records (Ju et al. 2022); exact for normal records, also if bounds clamp them.",
        run=augment_records, takes_ends_for_clamped=True, thinning=10, style=Style("green", "^")),
    GramMethod(
        "normal-covariates-records",
        "As normal-covariates, for the least-squares coefficients of the n records instead of the population.",
        run=partial(run_normal_covariates, True, False), is_control=True, thinning=20, style=Style("blue", "h")),
    GramMethod(
        "noise-aware-published",
        "Gibbs sampler of Bernstein & Sheldon (2019), with their conjugate prior; of no stated joint model.",
        run=partial(run_conjugate_gibbs, False, 100, 0), noises=_MIXED, is_control=True,
        prior=ConjugatePrior, origin="paper", paper="P5", style=Style("vermilion", "s")),
    GramMethod(
        "noise-aware-uncorrected",
        "Only the conjugate draw of noise-aware-published, uncorrected; indefinite sums are not drawn again.",
        run=partial(run_conjugate_gibbs, False, 1, 4), noises=_MIXED, is_control=True,
        prior=ConjugatePrior, origin="paper", paper="P5", variant="not redrawn", style=Style("brown", "<")),
    GramMethod(
        "noise-aware-redrawn",
        "Only the rejection of noise-aware-published, which draws indefinite sums again; the draw is corrected.",
        run=partial(run_conjugate_gibbs, True, 100, 4), noises=_MIXED, is_control=True,
        prior=ConjugatePrior, origin="paper", paper="P5", variant="corrected", style=Style("sky", ">")),
    GramMethod(
        "naive", "Posterior that takes the noisy sums, made positive definite, for noise-free ones.",
        run=_run_naive, is_control=True, origin="baseline", style=Style("orange", "v")),
)  # fmt: skip
"""Inference methods by name."""


def sample_gram(
    rng: np.random.Generator,
    method: str,
    release: GramRelease,
    prior: RegressionPrior | ConjugatePrior | None = None,
    n_chains: int = 4,
    n_burn_in: int = 500,
    n_draws: int = 1_000,
    thinning: int | None = None,
) -> Floats:
    """Return draws of (θ₀, θ, σ², τ²) in scaled units, shape (n_chains, n_draws, 2p), from random states.

    τ_j² is the residual variance of feature j given the other features. The default prior is that of the method.
    """
    entry, noise = find_entry(GRAM_METHODS, method, "method"), release.noise
    if noise.name not in entry.noises:
        raise ValueError(f"noise must be one of {', '.join(entry.noises)} for {method}, got {noise.name}; change it")
    if release.n < noise.p + 2:
        raise ValueError(f"n must be at least {noise.p + 2} for {noise.p - 1} features, got {release.n}; use fewer")
    if prior is not None and not isinstance(prior, entry.prior):
        expected = f"prior must be a {entry.prior.__name__} for {method}"
        raise ValueError(f"{expected}, got {type(prior).__name__}; omit it, or use another method")
    step = entry.thinning if thinning is None else validate_integer("thinning", thinning)
    draws, hyperparameters = (
        np.empty((n_chains, n_draws, 2 * noise.p)),
        (prior or entry.prior()).hyperparameters(noise.p),
    )
    noisy = np.ascontiguousarray(release.noisy, dtype=np.float64)
    known = NoisyGram(NOISE_CODES[noise.name], noise.scale, noisy, release.n)
    for chain in draws:
        entry.run(rng, known, hyperparameters, n_burn_in, step, chain)
    return draws
