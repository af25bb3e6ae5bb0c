"""Posterior draws of θ given noisy sufficient statistics: Algorithm 1 of P4, for binomial and multinomial records.

The sum s of the records is unobserved, and the release y = s + Lap(noise_scale) is observed. The Laplace noise is
represented as N(0, σ²) noise with σ² ~ Exp(mean 2·noise_scale²). The sampler alternates between draws of

    s  | θ, σ², y   from N(nμ, nΣ)·N(y, diag σ²) restricted to s ≥ 0 with Σs = n,
    σ² | s, y       from 1/σ² ~ InverseGaussian(mean 1/(noise_scale·|y − s|), shape 1/noise_scale²),
    θ  | s          from the conjugate posterior given n records with sum s,

where μ and Σ are the mean and the covariance of one record given θ (P4, section 3.2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import validate_integer
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.family import Family
from mechanisms.inference.gibbs_kernels import run_binomial, run_multinomial
from mechanisms.inference.noisy_statistics import validate_noise_scale
from mechanisms.metadata import find_entry
from mechanisms.privacy_parameters import validate_size


def sample_gibbs(
    rng: np.random.Generator,
    family: Family | str,
    prior: ArrayLike,
    n: int,
    noisy_statistics: ArrayLike,
    noise_scale: float,
    *,
    n_chains: int = 4,
    n_burn_in: int = 2000,
    n_draws: int = 5000,
) -> NDArray[np.float64]:
    """Draw the parameter θ from its posterior given one release of noisy statistics, by Algorithm 1 of P4.

    Parameters
    ----------
    rng : numpy.random.Generator
        Random generator, which the chains use one after the other.
    family : Family or {"binomial", "multinomial"}
        A key of `FAMILIES` with bounded records.
    prior : array_like, shape (2,) or (k,)
        Beta or Dirichlet parameters, finite and > 0.
    n : int
        Number of records, public, ≥ 1.
    noisy_statistics : array_like, shape (1,) or (k,)
        Release y: the noisy number of ones, or the noisy number of records per category; finite, of any size and sign.
    noise_scale : float
        Scale of the Laplace noise on each component, Δ/ε > 0, in records.
    n_chains, n_burn_in, n_draws : int
        Number of chains, each of which starts from a draw of the prior; numbers of discarded (≥ 0) and of returned
        (≥ 1) iterations per chain.

    Returns
    -------
    ndarray of float64, shape (n_chains, n_draws) or (n_chains, n_draws, k)
        Draws of θ, the probability of a one, or the probability of each category.

    Raises
    ------
    ValueError
        If an argument is invalid, or no draw was accepted within the maximum number of attempts.

    Notes
    -----
    **Stationary distribution.** P4 draws θ from its conditional in the exact model, and s from its conditional in the
    normal approximation. The conditionals Beta(α + s, β + n − s) and N(nθ, nθ(1 − θ)), truncated to [0, n], belong to
    no common joint distribution. The stationary distribution of the chain is close to the posterior if nθ and n(1 − θ)
    are large for all plausible θ. It does not tend to the posterior as n → ∞: with the prior Beta(1, 1), ε = 1 and y =
    0, nθ remains of order 1 under the posterior. From n = 10² to 10⁶, the Kolmogorov–Smirnov distance of the stationary
    distribution to the posterior is .145 to .155, and its mean is 1.29 to 1.32 times that of the posterior. Use
    `sample_gibbs_exact` in such cases. The stationary distribution is not the posterior of the normal model either: in
    that model the conditional of θ contains the density N(s; nθ, nθ(1 − θ)) divided by its mass on [0, n]. Both
    conditionals have the exact means (linear) and variances (quadratic). Without data (noise_scale → ∞) and without
    truncation, θ has exactly the prior mean and variance.

    **Mixing.** A step moves θ by about the standard error of an estimate from n exact records. If the noise makes the
    posterior much wider, successive draws are strongly correlated, so check the effective sample size of a run.

    **Multinomial.** nΣ = n(diag θ − θθᵀ) is singular. This matrix is the covariance of independent N(nθⱼ, nθⱼ) given
    that their sum is n, and the likelihood of y factorises over components. So s is drawn as k independent normal
    variables given their sum, which takes O(k) operations and no inverse. Draws with a negative component are rejected,
    at most four times. Exact pairwise draws follow, which remain cheap for many categories and for y far outside the
    simplex.

    References
    ----------
    P4, Algorithm 1. Its "N(s; nμ, sΣ)" is N(s; nμ, nΣ).

    Examples
    --------
    >>> draws = sample_gibbs(np.random.default_rng(1), "binomial", (10, 10), 1000, [305.2], noise_scale=10.0)
    >>> draws.shape, round(float(draws.mean()), 2)
    ((4, 5000), 0.31)
    """
    counted = {name: one for name, one in FAMILIES.items() if not one.is_truncated}
    name = family if isinstance(family, str) else family.name
    family = find_entry(counted, name, "family", "see truncated_gibbs for the others")
    alpha = np.array(family.validate_prior(prior))
    noisy = validate_statistics(noisy_statistics, family.n_components(alpha))
    n, scale = validate_size(n), validate_noise_scale(noise_scale)
    n_chains, n_burn_in, n_draws = validate_run(rng, n_chains, n_burn_in, n_draws)
    starts = family.draw_parameters(rng, alpha, n_chains)
    if family.is_vector:
        draws = np.empty((n_chains, n_draws, alpha.size))
        failed = run_multinomial(rng, starts, alpha, n, noisy, scale, n_burn_in, draws)
    else:
        draws = np.empty((n_chains, n_draws))
        failed = run_binomial(rng, starts[:, 0], alpha[0], alpha[1], n, noisy[0], scale, n_burn_in, draws)
    if failed >= 0:
        raise ValueError(
            f"no truncated normal draw was accepted within the maximum number of attempts at iteration {failed} with "
            f"family={name!r}, prior={alpha.tolist()}, n={n}, noisy_statistics={noisy.tolist()}, "
            f"noise_scale={scale}; check for values that overflow"
        )
    return draws


def validate_run(rng: np.random.Generator, n_chains: int, n_burn_in: int, n_draws: int) -> tuple[int, int, int]:
    """Return the numbers of chains, burn-in iterations and draws as ints; check these numbers and the generator."""
    if not isinstance(rng, np.random.Generator):
        raise ValueError(f"rng must be a numpy.random.Generator, got {rng!r}; pass the generator of the trial")
    return (
        validate_integer("n_chains", n_chains),
        validate_integer("n_burn_in", n_burn_in, least=0),
        validate_integer("n_draws", n_draws),
    )


def validate_statistics(noisy_statistics: ArrayLike, size: int) -> NDArray[np.float64]:
    """Return one release of noisy statistics as a new float64 array, after checking its shape and values."""
    noisy = np.atleast_1d(np.array(noisy_statistics, dtype=np.float64))
    if noisy.shape != (size,):
        raise ValueError(f"noisy_statistics must have shape ({size},), got {noisy.shape}; pass one release")
    if not np.all(np.isfinite(noisy)):
        raise ValueError(f"noisy_statistics must be finite, got {noisy.tolist()}; pass one release")
    return noisy
