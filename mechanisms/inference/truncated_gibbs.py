"""Posterior draws of θ given a noisy truncated sum: Algorithm 2 of P4, for exponential, Poisson and normal records.

The release y = ŝ + Lap(noise_scale) sums only the records within public bounds [a, b]. The n records are split among
the lower, central and upper regions x < a, a ≤ x ≤ b, x > b. The sampler alternates between θ, the sum ŝ over the
centre, the sum r over the rest, and the noise variance σ². By the central limit theorem (ŝ, r) given θ is approximately
normal. Let q be the probability of a region, and μ and Σ the mean and variance of a record in it. For the central
region c, each record adds q_c·μ_c to the mean of ŝ and q_c·Σ_c + q_c(1 − q_c)·μ_c² to its variance. Each record adds
its mean and variance to those of ŝ + r. The covariance is Cov(ŝ, r) = −E[ŝ]·E[r]/n.
See P4, section 3.3, Algorithms 2 and 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline

from mechanisms.inference.families import FAMILIES
from mechanisms.inference.family import Family
from mechanisms.inference.gibbs import validate_run, validate_statistics
from mechanisms.inference.gibbs_kernels import run_truncated, run_truncated_published
from mechanisms.inference.noisy_statistics import validate_noise_scale
from mechanisms.metadata import Entry, find_entry
from mechanisms.privacy_parameters import validate_size

_MAX_CELLS = 1 << 17


@dataclass(frozen=True)
class RegionTable:
    """Moments for Algorithm 2 as piecewise cubic polynomials in a function u of θ; build it with `tabulate_regions`.

    Interval i begins at u = origin + i/steps_per_unit, where u = ln θ (exponential), √θ (Poisson) or θ (normal).
    Outside the table the end values are used, because all records then lie in one region.

    The coefficients, shape (intervals, 3, 4), are those of powers 0 to 3 of the relative position in the interval, in
    [0, 1], for three functions: the mean of x·1[a ≤ x ≤ b], in units of the mean of a record (1 for the normal); its
    variance, in units of the variance of a record; and q_l·μ_l·q_u·μ_u for the lower and the upper region, in units of
    the variance of a record.
    """

    family: str
    bounds: tuple[float, float]
    origin: float
    steps_per_unit: float
    coefficients: NDArray[np.float64] = field(repr=False)


def tabulate_regions(family: Family | str, bounds: tuple[float, float]) -> RegionTable:
    """Tabulate the moments of records truncated at public bounds; the table can be used for many trials.

    Errors of means are below 1e-7 of the mean of a record (of the larger bound for the normal), and errors of variances
    below 1e-7 of the larger of the variances with and without truncation.
    """
    tabulated = {name: one for name, one in FAMILIES.items() if one.regions is not None}
    name = family if isinstance(family, str) else family.name
    family = find_entry(tabulated, name, "family", "use sample_gibbs for bounded records")
    checked, regions = family.validate_bounds(bounds), family.regions
    assert checked is not None
    assert regions is not None
    low, high = regions.interval(*checked)
    n_cells = math.ceil((high - low) / regions.step)
    if n_cells > _MAX_CELLS:
        raise ValueError(
            f"bounds must be closer together for the {family.name} family, got {bounds}; choose narrower bounds"
        )
    u = low + regions.step * np.arange(n_cells + 1, dtype=np.float64)
    mean_unit, variance_unit = regions.mean_unit(u), regions.variance_unit(u)
    q, mean, variance = family.region_moments(regions.parameter(u), checked)
    share = q * mean
    moments = (
        share[:, 1] / mean_unit,
        (q[:, 1] * variance[:, 1] + q[:, 1] * (q[:, 0] + q[:, 2]) * mean[:, 1] ** 2) / variance_unit,
        share[:, 0] * share[:, 2] / variance_unit,
    )
    splines = CubicSpline(np.arange(n_cells + 1), np.stack(moments, axis=-1))
    coefficients = np.ascontiguousarray(splines.c[::-1].transpose(1, 2, 0))
    coefficients.flags.writeable = False
    return RegionTable(family.name, checked, low, 1.0 / regions.step, coefficients)


region_table = lru_cache(maxsize=8)(tabulate_regions)
"""`tabulate_regions` for bounds that many trials share."""


def sample_truncated_gibbs(
    rng: np.random.Generator,
    table: RegionTable,
    prior: ArrayLike,
    n: int,
    noisy_statistics: ArrayLike,
    noise_scale: float,
    *,
    method: Entry | str = "gibbs",
    n_chains: int = 4,
    n_burn_in: int = 2000,
    n_draws: int = 5000,
) -> NDArray[np.float64]:
    """Draw θ from its posterior given one noisy truncated sum, shape (n_chains, n_draws), by Algorithm 2 of P4.

    ===================  ==============================================================================================
    method               iteration
    ===================  ==============================================================================================
    ``gibbs``            Draw (ŝ, r) given θ, σ² and y from the normal distribution of (ŝ, r) times N(y; ŝ, σ²),
                         restricted; σ² given ŝ; θ given s = ŝ + r by conjugacy.
    ``gibbs-collapsed``  As ``gibbs``, then a joint move: draw θ' from the prior and the other variables given θ' and y,
                         and accept with probability min(1, p(y | θ')/p(y | θ)).
    ``gibbs-published``  Algorithm 2 as printed.
    ===================  ==============================================================================================

    `n` includes the records outside the bounds. Each chain starts from a draw of the prior.

    **Joint distribution.** P4 treats the sums over the three regions as independent. The numbers of records per region
    are multinomial, so two sums have covariance −n·q_r·q_s·μ_r·μ_s. The outer sums are drawn together as r = ŝ_l + ŝ_u,
    which suffices for the update of θ.

    **As printed.** ``gibbs-published`` draws the total from N(m_l + m_c' + m_u, V_l + V_c' + V_u), where N(m_c', V_c')
    is proportional to the product of N(m_c, V_c) and N(y, σ²), restricted to valid totals (lines 7, 8). It then draws θ
    (line 9), ŝ ~ N(m_c, V_c) at the new θ, unrestricted and independent of y (line 10), and σ² given this ŝ (line 11).
    As σ² then hardly depends on y, the iterations do not converge to the posterior. The mean m is n·q·μ, not n·q as in
    Algorithm 3, line 4.

    **Restriction.** ŝ is restricted to the range of the central sum of n records, n·min(a, 0) to n·max(b, 0), and s to
    that of n records. The outer sums are not restricted separately: if few records lie outside, truncating a normal
    distribution at zero would shift its mean, and bias θ. The normal distributions are not renormalised. As in
    `sample_gibbs`, the conditional of θ belongs to the exact model and that of the sums to its normal approximation.

    **Multimodality.** E[ŝ | θ] first rises and then falls with θ, so the posterior may have two modes. A step of
    ``gibbs`` moves θ by about the standard error of an estimate from n exact records, so a chain remains in the mode
    near its start. The move of ``gibbs-collapsed`` compares θ and θ' by p(y | θ) with all other variables integrated
    out (Normal ∗ Laplace), so the modes have the correct weights. It is a Metropolis–Hastings step on (θ, ŝ, r, σ²) for
    the target given by the prior and the normal approximation.
    """
    name = method if isinstance(method, str) else method.name
    if name not in _JUMPS:
        raise ValueError(f"method must be one of {', '.join(_JUMPS)}, got {name!r}; choose one of them")
    family = FAMILIES[table.family]
    assert family.regions is not None
    hyperparameters = np.array(family.validate_prior(prior))
    n, scale = validate_size(n), validate_noise_scale(noise_scale)
    noisy = validate_statistics(noisy_statistics, 1)[0]
    n_chains, n_burn_in, n_draws = validate_run(rng, n_chains, n_burn_in, n_draws)
    starts = family.draw_parameters(rng, hyperparameters, n_chains)[:, 0]
    if family.regions.starts_inside:  # a vague prior can draw rates so small that the variance 1/θ² overflows
        starts = np.maximum(starts, family.regions.parameter(np.array(table.origin)))
    draws = np.empty((n_chains, n_draws))
    known, jumps = (starts, hyperparameters, n, noisy, scale), _JUMPS[name]
    grid = n * family.record_range[0], (table.origin, table.steps_per_unit, table.coefficients)
    if jumps is None:
        failed = run_truncated_published(rng, family.code, *known, *grid, n_burn_in, draws)
    else:
        centre = n * min(table.bounds[0], 0.0), n * max(table.bounds[1], 0.0)
        failed = run_truncated(rng, family.code, jumps, *known, *centre, *grid, n_burn_in, draws)
    if failed >= 0:
        raise ValueError(
            f"no truncated normal draw was accepted within the maximum number of attempts at iteration {failed} with "
            f"family={table.family!r}, bounds={table.bounds}, prior={hyperparameters.tolist()}, n={n}, "
            f"noisy_statistics=[{noisy}], noise_scale={scale}, method={method!r}; "
            "check for values that overflow"
        )
    return draws


_JUMPS = {"gibbs": False, "gibbs-collapsed": True, "gibbs-published": None}
"""True if a joint move follows each iteration; None for the algorithm as printed."""
