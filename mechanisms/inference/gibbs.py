"""Gibbs samplers of P4: Algorithm 1 for binomial and multinomial records, Algorithm 2 for records with public bounds.

The sum s of the records is unobserved, and the release y = s + Lap(b) is observed. The Laplace noise is represented as
N(0, σ²) noise with σ² ~ Exp(mean 2b²). **Algorithm 1** alternates between draws of

    s  | θ, σ², y   from N(nμ, nΣ)·N(y, diag σ²) restricted to s ≥ 0 with Σs = n,
    σ² | s, y       from 1/σ² ~ InverseGaussian(mean 1/(b·|y − s|), shape 1/b²),
    θ  | s          from the conjugate posterior given n records with sum s,

where μ and Σ are the mean and the covariance of one record given θ (P4, section 3.2).

**Stationary distribution.** P4 draws θ from its conditional in the exact model, and s from its conditional in the
normal approximation. The conditionals Beta(α + s, β + n − s) and N(nθ, nθ(1 − θ)), truncated to [0, n], belong to no
common joint distribution. The stationary distribution of the chain is close to the posterior if nθ and n(1 − θ) are
large for all plausible θ. It does not tend to the posterior as n → ∞: with the prior Beta(1, 1), ε = 1 and y = 0, nθ
remains of order 1 under the posterior. From n = 10² to 10⁶, the Kolmogorov–Smirnov distance of the stationary
distribution to the posterior is .145 to .155, and its mean is 1.29 to 1.32 times that of the posterior. Use
`sample_gibbs_exact` in such cases. The stationary distribution is not the posterior of the normal model either: in that
model the conditional of θ contains the density N(s; nθ, nθ(1 − θ)) divided by its mass on [0, n]. Both conditionals
have the exact means (linear) and variances (quadratic). Without data (b → ∞) and without truncation, θ has exactly the
prior mean and variance.

**Mixing.** A step moves θ by about the standard error of an estimate from n exact records. If the noise makes the
posterior much wider, successive draws are strongly correlated, so check the effective sample size of a run.

**Multinomial.** nΣ = n(diag θ − θθᵀ) is singular. This matrix is the covariance of independent N(nθⱼ, nθⱼ) given that
their sum is n, and the likelihood of y factorises over components. So s is drawn as k independent normal variables
given their sum, which takes O(k) operations and no inverse. Draws with a negative component are rejected, at most four
times. Exact pairwise draws follow, which remain cheap for many categories and for y far outside the simplex.

**Algorithm 2.** The release y = ŝ + Lap(b) sums only the records within public bounds [a, b]. The n records are split
among the lower, central and upper regions x < a, a ≤ x ≤ b, x > b. The sampler alternates between θ, the sum ŝ over the
centre, the sum r over the rest, and the noise variance σ². By the central limit theorem (ŝ, r) given θ is approximately
normal. Let q be the probability of a region, and μ and Σ the mean and variance of a record in it. For the central
region c, each record adds q_c·μ_c to the mean of ŝ and q_c·Σ_c + q_c(1 − q_c)·μ_c² to its variance. Each record adds
its mean and variance to those of ŝ + r. The covariance is Cov(ŝ, r) = −E[ŝ]·E[r]/n. An iteration draws (ŝ, r) given θ,
σ² and y from the normal distribution of (ŝ, r) times N(y; ŝ, σ²), restricted; σ² given ŝ; and θ given s = ŝ + r by
conjugacy.

**Joint distribution.** P4 treats the sums over the three regions as independent. The numbers of records per region are
multinomial, so two sums have covariance −n·q_r·q_s·μ_r·μ_s. The outer sums are drawn together as r = ŝ_l + ŝ_u, which
suffices for the update of θ.

**As printed**, Algorithm 2 draws the total from N(m_l + m_c' + m_u, V_l + V_c' + V_u), where N(m_c', V_c') is
proportional to the product of N(m_c, V_c) and N(y, σ²), restricted to valid totals (lines 7, 8). It then draws θ (line
9), ŝ ~ N(m_c, V_c) at the new θ, unrestricted and independent of y (line 10), and σ² given this ŝ (line 11). As σ² then
hardly depends on y, the iterations do not converge to the posterior. The mean m is n·q·μ, not n·q as in Algorithm 3,
line 4.

**Restriction.** ŝ is restricted to the range of the central sum of n records, n·min(a, 0) to n·max(b, 0), and s to that
of n records. The outer sums are not restricted separately: if few records lie outside, truncating a normal distribution
at zero would shift its mean, and bias θ. The normal distributions are not renormalised.

**Multimodality.** E[ŝ | θ] first rises and then falls with θ, so the posterior may have two modes, and a chain remains
in the mode near its start. The collapsed sampler adds a joint move: it draws θ' from the prior and the other variables
given θ' and y, and accepts with probability min(1, p(y | θ')/p(y | θ)). All other variables are integrated out of these
densities (Normal ∗ Laplace), so the modes have the correct weights. The move is a Metropolis–Hastings step on (θ, ŝ, r,
σ²) for the target given by the prior and the normal approximation.

References
----------
P4, sections 3.2 and 3.3, Algorithms 1 to 3. The "N(s; nμ, sΣ)" of Algorithm 1 is N(s; nμ, nΣ).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from mechanisms.arguments import Floats
from mechanisms.inference.drawn_posterior import sampler
from mechanisms.inference.families import MODELS
from mechanisms.inference.gibbs_kernels import run_binomial, run_multinomial, run_truncated, run_truncated_published
from mechanisms.inference.release_model import ReleaseModel

_MAX_CELLS = 1 << 17


class RegionTable(NamedTuple):
    """Moments for Algorithm 2 as piecewise cubic polynomials in a function u of θ; build it with `tabulate_regions`.

    Interval i begins at u = origin + i/steps_per_unit, where u = ln θ (exponential), √θ (Poisson) or θ (normal).
    Outside the table the end values are used, because all records then lie in one region.

    The coefficients, shape (intervals, 3, 4), are those of powers 0 to 3 of the relative position in the interval, in
    [0, 1], for three functions: the mean of x·1[a ≤ x ≤ b], in units of the mean of a record (1 for the normal); its
    variance, in units of the variance of a record; and q_l·μ_l·q_u·μ_u for the lower and the upper region, in units of
    the variance of a record.
    """

    origin: float
    steps_per_unit: float
    coefficients: Floats


@lru_cache(maxsize=8)
def tabulate_regions(family: str, bounds: tuple[float, float]) -> RegionTable:
    """Tabulate the moments of records truncated at public bounds, for many trials.

    Errors of means are below 1e-7 of the mean of a record (of the larger bound for the normal), and errors of variances
    below 1e-7 of the larger of the variances with and without truncation.
    """
    regions = MODELS[family].regions
    if regions is None:
        raise ValueError(
            f"family must be exponential, poisson or normal for bounds, got {family!r}; choose one of them"
        )
    low, high = regions.interval(*bounds)
    n_cells = math.ceil((high - low) / regions.step)
    if n_cells > _MAX_CELLS:
        raise ValueError(
            f"bounds must be closer together for the {family} family, got {bounds}; choose narrower bounds"
        )
    u = low + regions.step * np.arange(n_cells + 1, dtype=np.float64)
    mean_unit, variance_unit = regions.mean_unit(u), regions.variance_unit(u)
    q, mean, variance = MODELS[family].region_moments(regions.parameter(u), bounds)
    share = q * mean
    moments = (
        share[:, 1] / mean_unit,
        (q[:, 1] * variance[:, 1] + q[:, 1] * (q[:, 0] + q[:, 2]) * mean[:, 1] ** 2) / variance_unit,
        share[:, 0] * share[:, 2] / variance_unit,
    )
    splines = CubicSpline(np.arange(n_cells + 1), np.stack(moments, axis=-1))
    coefficients = np.ascontiguousarray(splines.c[::-1].transpose(1, 2, 0))
    coefficients.flags.writeable = False
    return RegionTable(low, 1.0 / regions.step, coefficients)


@sampler
def sample_gibbs(
    rng: np.random.Generator,
    model: ReleaseModel,
    prior: Floats,
    y: Floats,
    n_burn_in: int,
    draws: Floats,
    *,
    jumps: bool = False,
    as_printed: bool = False,
    table: RegionTable | None = None,
) -> int:
    """Draw θ given one release, by Algorithm 1 of P4, or by Algorithm 2 if the model has bounds.

    `jumps` adds the joint move of the collapsed sampler to Algorithm 2. `table` is that of `tabulate_regions`.
    """
    scale, starts = model.noise.scale, model.draw_parameters(rng, prior, len(draws))
    if model.entry.is_vector:
        return run_multinomial(rng, starts, prior, model.n, y, scale, n_burn_in, draws)
    starts = starts[:, 0]
    if model.bounds is None:
        return run_binomial(rng, starts, prior[0], prior[1], model.n, y[0], scale, n_burn_in, draws)
    table, regions = table or tabulate_regions(model.family, model.bounds), model.entry.regions
    assert regions is not None
    if regions.starts_inside:  # a vague prior can draw rates so small that the variance 1/θ² overflows
        starts = np.maximum(starts, regions.parameter(np.array(table.origin)))
    known, least_total = (starts, prior, model.n, y[0], scale), model.n * model.entry.record_range[0]
    if as_printed:
        return run_truncated_published(rng, model.entry.code, *known, least_total, tuple(table), n_burn_in, draws)
    centre = (model.n * end for end in model.contribution_range())
    return run_truncated(rng, model.entry.code, jumps, *known, *centre, least_total, tuple(table), n_burn_in, draws)
