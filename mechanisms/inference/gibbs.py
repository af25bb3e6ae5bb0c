"""Gibbs samplers of P4: Algorithm 1 for binomial and multinomial records, Algorithm 2 for records with public bounds.

The sum s of the records is unobserved, and the release y = s + Lap(b) is observed. The Laplace noise is represented as
N(0, σ²) noise with σ² ~ Exp(mean 2b²) (Park & Casella). **Algorithm 1** alternates between draws of

    s  | θ, σ², y   from N(nμ, nΣ)·N(y, diag σ²) restricted to s ≥ 0 with Σs = n,
    σ² | s, y       from 1/σ² ~ InverseGaussian(mean 1/(b·|y − s|), shape 1/b²),
    θ  | s          from the conjugate posterior given n records with sum s,

where μ and Σ are the mean and the covariance of one record given θ (P4, section 3.2).

**Stationary distribution.** P4 draws θ from its conditional in the exact model, and s from its conditional in the
normal approximation, N(nθ, nθ(1 − θ)) truncated to [0, n]. The two belong to no common joint distribution: in the
normal model, the conditional of θ contains the density of s divided by its mass on [0, n]. Both have the exact means
(linear) and variances (quadratic), so that θ has exactly the prior mean and variance without data (b → ∞) and without
truncation. The stationary distribution is close to the posterior if nθ and n(1 − θ) are large for all plausible θ. It
does not tend to the posterior as n → ∞: with the prior Beta(1, 1), ε = 1 and y = 0, nθ remains of order 1. From n = 10²
to 10⁶, the Kolmogorov–Smirnov distance to the posterior is .145 to .155, and the mean is 1.29 to 1.32 times that of the
posterior. Use `sample_gibbs_exact` in such cases.

**Mixing.** A step moves θ by about the standard error of an estimate from n exact records. If the noise makes the
posterior much wider, successive draws are strongly correlated, so check the effective sample size of a run.

**Multinomial.** nΣ = n(diag θ − θθᵀ) is singular: it is the covariance of independent N(nθⱼ, nθⱼ) given that their sum
is n. The likelihood of y factorises over components, so s is drawn as k independent normal variables given their sum,
in O(k) operations. This remains cheap for many categories and for y far outside the simplex.

**Algorithm 2.** The release y = ŝ + Lap(b) sums only the records within public bounds [a, b]. The sampler alternates
between θ, the sum ŝ over the central region a ≤ x ≤ b, the sum r over the regions x < a and x > b, and σ². By the
central limit theorem (ŝ, r) given θ is approximately normal. Let q be the probability of a region, and μ and Σ the mean
and variance of a record in it. Each record adds q_c·μ_c to the mean of ŝ and q_c·Σ_c + q_c(1 − q_c)·μ_c² to its
variance, and its own mean and variance to those of ŝ + r. P4 treats the sums over the three regions as independent, but
as the numbers of records per region are multinomial, Cov(ŝ, r) = −E[ŝ]·E[r]/n. An iteration draws (ŝ, r) given θ, σ²
and y from the normal distribution of (ŝ, r) times N(y; ŝ, σ²), restricted; σ² given ŝ; and θ given s = ŝ + r by
conjugacy.

**As printed**, Algorithm 2 draws the total from N(m_l + m_c' + m_u, V_l + V_c' + V_u), where N(m_c', V_c') is
proportional to the product of N(m_c, V_c) and N(y, σ²), restricted to valid totals (lines 7, 8). It then draws θ (line
9), ŝ ~ N(m_c, V_c) at the new θ, unrestricted and independent of y (line 10), and σ² given this ŝ (line 11). As σ² then
hardly depends on y, the iterations do not converge to the posterior. The mean m is n·q·μ, not n·q as in Algorithm 3,
line 4.

**Restriction.** ŝ is restricted to the range of the central sum of n records, n·min(a, 0) to n·max(b, 0), and s to that
of n records. The outer sums are not restricted separately: if few records lie outside, truncating a normal distribution
at zero would shift its mean, and bias θ. The normal distributions are not renormalised.

**Multimodality.** E[ŝ | θ] first rises and then falls with θ, so the posterior may have two modes, and a chain remains
in the mode near its start. The collapsed sampler adds a Metropolis–Hastings move on (θ, ŝ, r, σ²): it draws θ' from the
prior and the other variables given θ' and y, and accepts with probability min(1, p(y | θ')/p(y | θ)). The densities
have all other variables integrated out (Normal ∗ Laplace), so the modes have the correct weights.

References
----------
P4, sections 3.2 and 3.3, Algorithms 1 to 3. The "N(s; nμ, sΣ)" of Algorithm 1 is N(s; nμ, nΣ).
Park & Casella, "The Bayesian Lasso", JASA 103(482), 2008.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from mechanisms.core.arguments import Floats
from mechanisms.core.jit import kernel
from mechanisms.inference.drawn_posterior import Chain, sampler
from mechanisms.inference.families import EXPONENTIAL, MODELS, POISSON
from mechanisms.inference.release_model import ReleaseModel

_MAX_CELLS = 1 << 17
_MAX_TRIES = 200  # each try succeeds with probability > .45 for all inputs except NaN
_JOINT_TRIES = 4  # number of unrestricted joint draws before the conditional draws
_TINY = 1e-300  # added to noise variances, which may underflow, so that weights are never 0/0


class RegionTable(NamedTuple):
    """Moments for Algorithm 2 as piecewise cubic polynomials in u = ln θ (exponential), √θ (Poisson) or θ (normal).

    Outside the table the end values are used, because all records then lie in one region. The coefficients are those of
    powers 0 to 3 of the relative position in an interval, for three functions: the mean of x·1[a ≤ x ≤ b], in units of
    the mean of a record (1 for the normal); its variance, and q_l·μ_l·q_u·μ_u for the lower and the upper region, both
    in units of the variance of a record.
    """

    origin: float  # u at the start of the first interval
    steps_per_unit: float  # number of intervals per unit of u
    coefficients: Floats  # shape (intervals, 3, 4)


@lru_cache(maxsize=8)  # seconds per table, which all trials with these bounds share
def tabulate_regions(family: str, bounds: tuple[float, float]) -> RegionTable:
    """Tabulate the moments of records truncated at public bounds, for many trials.

    Errors of means are below 1e-7 of the mean of a record (of the larger bound for the normal), and errors of variances
    below 1e-7 of the larger of the variances with and without truncation.
    """
    regions = MODELS[family].regions
    if regions is None:
        raise ValueError(f"family must be exponential, poisson or normal for bounds, got {family!r}; use one of them")
    low, high = regions.interval(*bounds)
    n_cells = math.ceil((high - low) / regions.step)
    if n_cells > _MAX_CELLS:
        raise ValueError(f"bounds must be closer together for the {family} family, got {bounds}; narrow them")
    u = low + regions.step * np.arange(n_cells + 1, dtype=np.float64)
    mean_unit, variance_unit = regions.mean_unit(u), regions.variance_unit(u)
    q, mean, variance = MODELS[family].region_moments(regions.parameter(u), bounds)
    share = q * mean
    centre = q[:, 1] * variance[:, 1] + q[:, 1] * (q[:, 0] + q[:, 2]) * mean[:, 1] ** 2
    moments = share[:, 1] / mean_unit, centre / variance_unit, share[:, 0] * share[:, 2] / variance_unit
    splines = CubicSpline(np.arange(n_cells + 1), np.stack(moments, axis=-1))
    coefficients = np.ascontiguousarray(splines.c[::-1].transpose(1, 2, 0))
    coefficients.flags.writeable = False
    return RegionTable(low, 1.0 / regions.step, coefficients)


@sampler
def sample_gibbs(
    model: ReleaseModel, prior: Floats, y: Floats, starts: Floats, *,
    jumps: bool = False, as_printed: bool = False, table: RegionTable | None = None,
) -> Chain:  # fmt: skip
    """Draw θ given one release, by Algorithm 1 of P4, or by Algorithm 2 if the model has bounds.

    `jumps` adds the joint move of the collapsed sampler to Algorithm 2. `table` is that of `tabulate_regions`.
    """
    known: tuple[Any, ...] = prior, model.n, y, model.noise.scale
    if model.bounds is None:
        return (run_multinomial if model.entry.is_vector else run_binomial), known
    table, least_total = table or tabulate_regions(model.family, model.bounds), model.n * model.entry.record_range[0]
    if model.entry.code == EXPONENTIAL:  # a vague prior can draw rates so small that the variance 1/θ² overflows
        np.maximum(starts, np.exp(table.origin), out=starts)
    known = model.entry.code, *known, tuple(table)
    if as_printed:
        return run_truncated_published, (*known, least_total)
    low, high = model.contribution_range()
    return run_truncated, (*known, (model.n * low, model.n * high, least_total), jumps)


@kernel
def draw_noise_variance(rng, distance, noise_scale):
    """Draw the variance σ² given the noise z, |z| = `distance`: 1/σ² ~ InverseGaussian(mean 1/(b|z|), shape 1/b²)."""
    # The method of Michael, Schucany & Haas (1976) chooses one of two roots, σ² = b·r or σ² = b·z²/r. Here
    # r = |z| + h + √(h(h + 2|z|)), with h = bν²/2 and ν ~ N(0, 1), is a sum of positive terms. The formula is also
    # exact at |z| = 0, where the mean is infinite (σ² = b²ν²).
    nu = rng.standard_normal()
    half = 0.5 * noise_scale * nu * nu
    root = distance + half + math.sqrt(half * (half + 2.0 * distance))
    other = distance * (distance / root)
    chosen = root if rng.random() * (root + distance) <= root else other
    return noise_scale * chosen + _TINY


@kernel
def draw_truncated_normal(rng, mean, std, lower, upper):
    """Draw from N(mean, std²) restricted to [lower, upper]; return NaN if no draw is accepted."""
    if std == 0.0:
        return min(max(mean, lower), upper)
    a, b = (lower - mean) / std, (upper - mean) / std
    if a > 0.0:
        x = lower + std * _draw_tail(rng, a, b - a)
        return upper if x > upper else x
    if b < 0.0:
        x = upper - std * _draw_tail(rng, -b, b - a)
        return lower if x < lower else x
    for _ in range(_MAX_TRIES):
        if b - a > 2.0:
            x = rng.standard_normal()
            accepted = a <= x <= b
        else:
            x = a + (b - a) * rng.random()
            accepted = 2.0 * rng.standard_exponential() >= x * x
        if accepted:
            return min(max(mean + std * x, lower), upper)
    return math.nan


@kernel
def _draw_tail(rng, start, width):
    """Draw x − start for x ~ N(0, 1) restricted to [start, start + width], start > 0; return NaN on failure."""
    # Robert, "Simulation of truncated normal variables", Statistics and Computing 5, 1995: an exponential proposal with
    # the optimal rate, here truncated at `width`. Using x − start in the density ratio avoids cancellation in the tail.
    gap = 2.0 / (start + math.hypot(start, 2.0))  # difference rate − start, without cancellation
    rate = start + gap
    mass = math.expm1(-rate * width)
    for _ in range(_MAX_TRIES):
        offset = -math.log1p(rng.random() * mass) / rate
        away = offset - gap
        if 2.0 * rng.standard_exponential() >= away * away:
            return offset
    return math.nan


@kernel
def run_binomial(rng, start, prior, n, noisy, noise_scale, n_burn_in, draws):
    """Fill `draws` with θ of the Beta–binomial model."""
    theta = start[0]
    other = 1.0 - theta
    noise_variance = 2.0 * noise_scale * noise_scale * rng.standard_exponential() + _TINY
    for iteration in range(-n_burn_in, len(draws)):
        # Algorithm 1, line 4: compute the moments. Line 5: draw the sum from the product of two normals.
        mean = n * theta
        variance = mean * other
        weight = variance / (variance + noise_variance)
        centre = mean + weight * (noisy[0] - mean)
        std = math.sqrt(weight * noise_variance)
        s = centre + std * rng.standard_normal()
        if not 0.0 <= s <= n:
            s = draw_truncated_normal(rng, centre, std, 0.0, float(n))
            if math.isnan(s):
                return n_burn_in + iteration
        # Line 6: draw the noise variance. Line 3 of the next iteration: draw θ.
        noise_variance = draw_noise_variance(rng, abs(noisy[0] - s), noise_scale)
        # 1 − θ has its own gamma variable, which stays accurate when θ rounds to one.
        theta, other = rng.standard_gamma(prior[0] + s), rng.standard_gamma(prior[1] + (n - s))
        total = theta + other
        theta /= total
        other /= total
        if iteration >= 0:
            draws[iteration, 0] = theta
    return None


@kernel
def run_multinomial(rng, theta, prior, n, noisy, noise_scale, n_burn_in, draws):
    """Fill `draws` with θ of the Dirichlet–multinomial model."""
    k = theta.size
    sums, noise_variances, centres, variances = np.empty((4, k))
    for j in range(k):
        sums[j] = n * theta[j]
        noise_variances[j] = 2.0 * noise_scale * noise_scale * rng.standard_exponential() + _TINY
    for iteration in range(-n_burn_in, len(draws)):
        # Algorithm 1, lines 4 and 5: compute the moments, and draw the sums.
        for j in range(k):
            mean = n * theta[j]
            weight = mean / (mean + noise_variances[j])
            centres[j] = mean + weight * (noisy[j] - mean)
            variances[j] = weight * noise_variances[j]
        if not draw_sums_given_total(rng, centres, variances, float(n), sums):
            return n_burn_in + iteration
        # Line 6: draw the noise variances. Line 3 of the next iteration: draw θ.
        total = 0.0
        for j in range(k):
            noise_variances[j] = draw_noise_variance(rng, abs(noisy[j] - sums[j]), noise_scale)
            theta[j] = rng.standard_gamma(prior[j] + sums[j])
            total += theta[j]
        for j in range(k):
            theta[j] /= total
            if iteration >= 0:
                draws[iteration, j] = theta[j]
    return None


@kernel
def draw_sums_given_total(rng, centres, variances, total, sums):
    """Update `sums`, shape (k,), by a step that leaves its conditional distribution invariant."""
    # The distribution is that of independent s_j ~ N(centre_j, variance_j) given s ≥ 0 and Σs = total. An unrestricted
    # draw x conditioned on its sum is x + v·(total − Σx)/Σv, with v the variances. If all of a few such draws have
    # negative entries, which happens with a probability independent of the current sums, two Gibbs sweeps replace them.
    # The pivot of the first has the largest variance, which constrains the others least. The second pivot is random,
    # because the sum of the first pivot may remain 0.
    k = sums.size
    proposal = np.empty(k)
    total_variance = variances.sum()
    for _ in range(_JOINT_TRIES):
        excess = total
        for j in range(k):
            proposal[j] = centres[j] + math.sqrt(variances[j]) * rng.standard_normal()
            excess -= proposal[j]
        excess /= total_variance
        valid = True
        for j in range(k):
            proposal[j] += variances[j] * excess
            valid &= proposal[j] >= 0.0
        if valid:
            for j in range(k):
                sums[j] = proposal[j]
            return True
    first = _sweep_pairs(rng, centres, variances, np.argmax(variances), sums)
    return first and _sweep_pairs(rng, centres, variances, int(rng.random() * k), sums)


@kernel
def _sweep_pairs(rng, centres, variances, pivot, sums):
    """Redraw each sum and that of the pivot given their total; return False if no draw was accepted."""
    for j in range(sums.size):
        pair_variance = variances[j] + variances[pivot]
        if j == pivot or pair_variance == 0.0:
            continue
        pair_total = sums[j] + sums[pivot]
        weight = variances[j] / pair_variance
        centre = centres[j] + weight * (pair_total - centres[j] - centres[pivot])
        std = math.sqrt(weight * variances[pivot])
        sums[j] = draw_truncated_normal(rng, centre, std, 0.0, pair_total)
        sums[pivot] = pair_total - sums[j]
        if math.isnan(sums[j]):
            return False
    return True


@kernel
def _log_ndtr(x):
    """Return ln Φ(x), for x < −37 by the asymptotic series, because erfc underflows."""
    if x > -37.0:
        return math.log(0.5 * math.erfc(-x * math.sqrt(0.5)))
    w = 1.0 / (x * x)
    return -0.5 * x * x - math.log(-x * math.sqrt(2.0 * math.pi)) + math.log1p(-w * (1.0 - 3.0 * w * (1.0 - 5.0 * w)))


@kernel
def _log_sides(deviation, variance, noise_scale):
    """Return the logs of the integrals of N(0, variance) + Lap(noise_scale) over noise ≥ 0 and < 0, up to ln 2b."""
    std = math.sqrt(variance)
    shift = variance / noise_scale
    level = 0.5 * shift / noise_scale
    above = level - deviation / noise_scale + _log_ndtr((deviation - shift) / std)
    below = level + deviation / noise_scale + _log_ndtr((-deviation - shift) / std)
    return above, below


@kernel
def _log_add(x, y):
    """Return ln(eˣ + eʸ)."""
    return max(x, y) + math.log1p(math.exp(-abs(x - y)))


@kernel
def split_moments(kind, theta, n, table):
    """Return the means and variances of the sums of records within and outside the bounds, and their covariance."""
    # The second returned value is n·q_l·μ_l·q_u·μ_u, see `RegionTable`, whose fields `table` has.
    origin, steps_per_unit, coefficients = table
    if kind == EXPONENTIAL:
        u = math.log(theta)
        mean = mean_unit = 1.0 / theta
        variance = mean * mean
    elif kind == POISSON:
        u = math.sqrt(theta)
        mean = mean_unit = variance = theta
    else:
        u = mean = theta
        mean_unit = variance = 1.0
    n_cells = coefficients.shape[0]
    position = (u - origin) * steps_per_unit
    # For NaN the condition is false, so the first table cell is used instead of an index out of range.
    position = min(position, float(n_cells)) if position > 0.0 else 0.0
    cell = min(int(position), n_cells - 1)
    t = position - cell
    c = coefficients[cell]
    centre_mean = mean_unit * (c[0, 0] + t * (c[0, 1] + t * (c[0, 2] + t * c[0, 3])))
    centre_variance = variance * max(c[1, 0] + t * (c[1, 1] + t * (c[1, 2] + t * c[1, 3])), 0.0)
    outer_product = variance * (c[2, 0] + t * (c[2, 1] + t * (c[2, 2] + t * c[2, 3])))
    rest_mean = mean - centre_mean
    covariance = -centre_mean * rest_mean
    rest_variance = max(variance - centre_variance - 2.0 * covariance, 0.0)
    return (n * centre_mean, n * centre_variance, n * rest_mean, n * rest_variance, n * covariance), n * outer_product


@kernel
def draw_conjugate(rng, kind, prior, n, total):
    """Draw θ given the sum of all n records; with n = 0 and total = 0, draw from the prior."""
    if kind == EXPONENTIAL:
        return rng.standard_gamma(prior[0] + n) / (prior[1] + total)
    if kind == POISSON:
        return rng.standard_gamma(prior[0] + total) / (prior[1] + n)
    precision = 1.0 / prior[1] + n
    return (prior[0] / prior[1] + total) / precision + rng.standard_normal() / math.sqrt(precision)


@kernel
def _residual(mean, variance, covariance, other, other_mean, other_variance):
    """Return the conditional mean and variance of a normal variable given the value `other` of a second one."""
    slope = covariance / other_variance if other_variance > 0.0 else 0.0
    return mean + slope * (other - other_mean), max(variance - slope * covariance, 0.0)


@kernel
def update_sums(rng, split, noisy, noise_variance, low, high, least_total, centre, rest):
    """Draw (centre, rest) given θ, σ² and y, restricted to low ≤ centre ≤ high and centre + rest ≥ least_total."""
    # They are the sums of the records within and outside the bounds. If a few unrestricted joint draws all violate the
    # restriction, each sum is drawn given the other. Return NaN if no draw was accepted.
    centre_mean, centre_variance, rest_mean, rest_variance, covariance = split
    weight = centre_variance / (centre_variance + noise_variance)
    mean, std = centre_mean + weight * (noisy - centre_mean), math.sqrt(weight * noise_variance)
    for _ in range(_JOINT_TRIES):
        new_centre = mean + std * rng.standard_normal()
        new_mean, spread = _residual(rest_mean, rest_variance, covariance, new_centre, centre_mean, centre_variance)
        new_rest = new_mean + math.sqrt(spread) * rng.standard_normal()
        if low <= new_centre <= high and new_centre + new_rest >= least_total:
            return new_centre, new_rest
    mean, variance = _residual(centre_mean, centre_variance, covariance, rest, rest_mean, rest_variance)
    weight = variance / (variance + noise_variance)
    mean, std = mean + weight * (noisy - mean), math.sqrt(weight * noise_variance)
    centre = draw_truncated_normal(rng, mean, std, max(low, least_total - rest), high)
    mean, variance = _residual(rest_mean, rest_variance, covariance, centre, centre_mean, centre_variance)
    return centre, draw_truncated_normal(rng, mean, math.sqrt(variance), least_total - centre, np.inf)


@kernel
def log_marginal(split, noisy, noise_scale):
    """Return ln p(y | θ) with all sums integrated out, up to the constant ln 2b."""
    above, below = _log_sides(noisy - split[0], split[1], noise_scale)
    return _log_add(above, below)


@kernel
def draw_sums(rng, split, noisy, noise_scale):
    """Draw the sums (centre, rest) of `update_sums` given θ and y, with σ² integrated out and no restriction."""
    centre_mean, centre_variance, rest_mean, rest_variance, covariance = split
    std, shift = math.sqrt(centre_variance), centre_variance / noise_scale
    above, below = _log_sides(noisy - centre_mean, centre_variance, noise_scale)
    # Noise >= 0 means centre <= y, where the Laplace factor shifts the normal mean upwards, and conversely.
    if math.log(rng.random()) <= above - _log_add(above, below):
        centre = draw_truncated_normal(rng, centre_mean + shift, std, -np.inf, noisy)
    else:
        centre = draw_truncated_normal(rng, centre_mean - shift, std, noisy, np.inf)
    mean, variance = _residual(rest_mean, rest_variance, covariance, centre, centre_mean, centre_variance)
    return centre, mean + math.sqrt(variance) * rng.standard_normal()


@kernel
def run_truncated(rng, start, kind, prior, n, noisy, noise_scale, table, limits, jumps, n_burn_in, draws):
    """Fill `draws` with values of θ by the corrected Algorithm 2, and with `jumps` by the collapsed sampler."""
    theta, y, (low, high, least_total) = start[0], noisy[0], limits
    split, _ = split_moments(kind, theta, n, table)
    centre = min(max(split[0], low), high)
    rest = max(split[2], least_total - centre)
    noise_variance = 2.0 * noise_scale * noise_scale * rng.standard_exponential() + _TINY
    for iteration in range(-n_burn_in, len(draws)):
        centre, rest = update_sums(rng, split, y, noise_variance, low, high, least_total, centre, rest)
        if math.isnan(centre + rest):
            return n_burn_in + iteration
        noise_variance = draw_noise_variance(rng, abs(y - centre), noise_scale)
        theta = draw_conjugate(rng, kind, prior, n, centre + rest)
        split, _ = split_moments(kind, theta, n, table)
        if jumps:
            new_theta = draw_conjugate(rng, kind, prior, 0, 0.0)
            new_split, _ = split_moments(kind, new_theta, n, table)
            least = log_marginal(split, y, noise_scale) - rng.standard_exponential()
            # E exp(−|d − Z|/b) ≤ E exp(±(d − Z)/b): this cheap bound rejects most proposals.
            bound = 0.5 * new_split[1] / (noise_scale * noise_scale) - abs(y - new_split[0]) / noise_scale
            if bound >= least and log_marginal(new_split, y, noise_scale) >= least:
                new_centre, new_rest = draw_sums(rng, new_split, y, noise_scale)
                if low <= new_centre <= high and new_centre + new_rest >= least_total:
                    theta, split, centre, rest = new_theta, new_split, new_centre, new_rest
                    noise_variance = draw_noise_variance(rng, abs(y - centre), noise_scale)
        if iteration >= 0:
            draws[iteration, 0] = theta
    return None


@kernel
def run_truncated_published(rng, start, kind, prior, n, noisy, noise_scale, table, least_total, n_burn_in, draws):
    """Fill `draws` with values of θ by Algorithm 2 as printed; see `run_truncated`."""
    theta, y = start[0], noisy[0]
    noise_variance = 2.0 * noise_scale * noise_scale * rng.standard_exponential() + _TINY
    for iteration in range(-n_burn_in, len(draws)):
        # Line 6: the three regions are treated as independent, so outer variances are added without covariance.
        (centre_mean, centre_variance, rest_mean, rest_variance, _), outer = split_moments(kind, theta, n, table)
        rest_variance += 2.0 * outer
        # Lines 7 and 8: draw the total, given y.
        weight = centre_variance / (centre_variance + noise_variance)
        mean = centre_mean + weight * (y - centre_mean) + rest_mean
        std = math.sqrt(weight * noise_variance + max(rest_variance, 0.0))
        total = mean + std * rng.standard_normal()
        if not total >= least_total:
            total = draw_truncated_normal(rng, mean, std, least_total, np.inf)
            if math.isnan(total):
                return n_burn_in + iteration
        # Line 9: draw θ. Line 10: draw the centre at the new θ, which ignores y. Line 11: draw the noise variance.
        theta = draw_conjugate(rng, kind, prior, n, total)
        (centre_mean, centre_variance, _, _, _), _ = split_moments(kind, theta, n, table)
        centre = centre_mean + math.sqrt(centre_variance) * rng.standard_normal()
        noise_variance = draw_noise_variance(rng, abs(y - centre), noise_scale)
        if iteration >= 0:
            draws[iteration, 0] = theta
    return None
