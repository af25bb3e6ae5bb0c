"""Declarations of the models of P4: records, prior, conjugate update, sensitivity and moments of truncated records.

The sufficient statistic of n records x₁, …, xₙ is their sum s = Σ xᵢ in every family (a record of the multinomial is a
one-hot row). If records are unbounded, a release needs public bounds [a, b]. Records outside the bounds are dropped,
and the statistic is ŝ = Σ 1[a ≤ xᵢ ≤ b]·xᵢ.

============  ========================  =====================================  ==========================
name          record                    prior (hyperparameters)                sensitivity Δ
============  ========================  =====================================  ==========================
binomial      0 or 1, mean θ            Beta(alpha, beta)                      1
multinomial   one-hot row, mean θ       Dir(alpha₁, …, alphaₖ), k ≥ 2          2
exponential   x ≥ 0, rate θ             Gamma(shape, rate)                     b
poisson       integer x ≥ 0, mean θ     Gamma(shape, rate)                     b
normal        x real, N(θ, 1)           N(mean, variance)                      max(|a|, |b|, b − a)
============  ========================  =====================================  ==========================

The known variance of the normal family is 1: divide the records by their standard deviation. `MODELS` adds the normal
family with unknown mean μ and variance σ², whose statistic is (Σ xᵢ, Σ xᵢ²) and whose prior is normal-inverse-gamma:
σ² ~ InverseGamma(shape, scale), μ | σ² ~ N(mean, σ²/strength), or weakly informative at all scales of the records:
σ is lognormal, ln σ ~ N(ln median, log_std²), and μ | σ is uniform within half_width of the mean, plus
N(0, ratio²·σ²). This family is not in P4; for the others see sections 2 and 3.3 (truncated families).

**Regions.** Closed forms of the moments of a record below, within and above bounds suffer from cancellation in narrow
intervals and far tails. There the exponential distribution uses a series; the normal and Poisson distributions are
always integrated or summed over the region.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from mechanisms.core.arguments import Floats, real_array
from mechanisms.core.jit import kernel
from mechanisms.core.metadata import Registered, register
from mechanisms.core.privacy import Neighbouring, validate_relation
from mechanisms.core.privacy_parameters import validate_size

BINOMIAL, MULTINOMIAL, EXPONENTIAL, POISSON, NORMAL, UNKNOWN_VARIANCE = range(6)
"""Identifiers of families in compiled samplers."""

N_CONJUGATE = 4
"""Number of hyperparameters of the conjugate prior of mean and variance; their other prior has more."""

_LARGEST_BOUND, _LARGEST_INTEGER = 1e50, 1e15  # variances of squares remain finite, and integers exact
_LEAST_WIDTH = 1e-50  # noise scales, and units of a release, are normal doubles

Bounds = tuple[float, float]
Moments = tuple[Floats, Floats, Floats]
"""Probability of each region x < a, a ≤ x ≤ b, x > b, and mean and variance of a record in it, shape θ.shape + (3,)."""


# Hyperparameters whose posteriors have moments in double precision, of probabilities and of other families
_ALPHA_RANGE, _PRIOR_RANGE = (1e-12, 1e300), (1e-50, 1e50)


@dataclass(frozen=True)
class Marginal:
    """Distribution with two parameters a and b, and a coordinate φ of θ in which its log density is concave."""

    frozen: Callable[[float, float], Any]  # (a, b) -> distribution of `scipy.stats`
    mean: Callable[[Floats, Floats], Floats]
    std: Callable[[Floats, Floats], Floats]
    cdf: Callable[[Floats, Floats, Floats], Floats]  # (a, b, θ) -> probability of values ≤ θ
    quantile: Callable[[Floats, Floats, Floats], Floats]  # (a, b, probability) -> θ
    to_coordinate: Callable[[Floats], Floats]  # θ -> φ
    to_theta: Callable[[Floats], Floats]  # φ -> θ
    log_density: Callable[[Floats, float, float], Floats]  # (φ, a, b) -> log density of φ, up to a constant
    centre: Callable[[float, float], float]  # (a, b) -> φ near the mode
    spread: Callable[[float, float], float]  # (a, b) -> order of the standard deviation of φ
    n_shapes: int = 0  # number of parameters that are shapes


BETA = Marginal(
    stats.beta, lambda a, b: a / (a + b), lambda a, b: np.sqrt(a * b / (a + b + 1.0)) / (a + b),
    special.betainc, special.betaincinv, special.logit, special.expit,
    lambda phi, a, b: a * special.log_expit(phi) + b * special.log_expit(-phi),
    lambda a, b: math.log(a / b), lambda a, b: math.sqrt(1 / a + 1 / b), n_shapes=2)  # fmt: skip
GAMMA = Marginal(
    lambda a, b: stats.gamma(a, scale=1.0 / b), lambda a, b: a / b, lambda a, b: np.sqrt(a) / b,
    lambda a, b, theta: special.gammainc(a, b * theta), lambda a, b, p: special.gammaincinv(a, p) / b, np.log, np.exp,
    lambda phi, a, b: a * phi - b * np.exp(phi),
    lambda a, b: math.log(a / b), lambda a, b: 1 / math.sqrt(a), n_shapes=1)  # fmt: skip
"""Gamma distribution with shape a and rate b."""

GAUSSIAN = Marginal(
    lambda a, b: stats.norm(a, math.sqrt(b)), lambda a, b: a, lambda a, b: np.sqrt(b),
    lambda a, b, theta: special.ndtr((theta - a) / np.sqrt(b)), lambda a, b, p: a + np.sqrt(b) * special.ndtri(p),
    np.copy, np.copy, lambda phi, a, b: -((phi - a) ** 2) / (2 * b),
    lambda a, b: a, lambda a, b: math.sqrt(b))  # fmt: skip
"""Normal distribution with mean a and variance b."""


@dataclass(frozen=True)
class Regions:
    """Moments of one record in the regions outside and within bounds, and a coordinate u of θ for their tables."""

    moments: Callable[[Floats, float, float], Moments]  # of θ and the bounds
    interval: Callable[[float, float], tuple[float, float]]  # range of u beyond which one region has all records
    step: float  # distance of tabulated values; moments vary over distances of about one
    parameter: Callable[[Floats], Floats]  # u -> θ
    mean_unit: Callable[[Floats], Floats]  # u -> unit of a tabulated mean
    variance_unit: Callable[[Floats], Floats]  # u -> unit of a tabulated variance


@dataclass(frozen=True, kw_only=True)
class Family(Registered):
    """Exponential family with a conjugate prior.

    Parameters have shape (trials, p), and statistics (trials, d), where p = d is k for the multinomial, 2 if the
    variance is unknown, and 1 otherwise.
    """

    name: str
    code: int  # number that identifies the family in compiled samplers
    hyperparameters: tuple[str, ...]  # names; the multinomial has a single name for its k ≥ 2 values
    other_hyperparameters: tuple[str, ...] = ()  # names of those of a second kind of prior, which is not conjugate
    any_sign: int = 0  # number of leading hyperparameters that may have any sign; the others must be > 0
    # closed intervals of the entries of θ and of a record, without ends at infinity, or at 0 for a rate
    parameter_range: tuple[float, float] = (0.0, math.inf)
    record_range: tuple[float, float] = (0.0, math.inf)
    integer_records: bool = False
    bounded_sensitivity: float | None = None  # Δ under replacement; None if a release needs public bounds
    _marginal: Marginal | None = field(default=None, repr=False)
    _draw_parameters: Callable[[np.random.Generator, Floats, int], Floats] = field(repr=False)
    # (rng, θ, n) -> records, shape (trials, n), or their sums if records are bounded
    draw: Callable[[np.random.Generator, Floats, int], NDArray] = field(repr=False)
    _update: Callable[[Floats, Floats, int], Sequence[Floats]] = field(repr=False)
    regions: Regions | None = field(default=None, repr=False)  # moments of records outside and within bounds
    is_vector: bool = False  # True if θ and the statistic have k ≥ 2 components
    has_square: bool = False  # True if the statistic is the sum of the records and the sum of their squares

    @property
    def is_truncated(self) -> bool:
        """True if a release needs public bounds outside which records are dropped."""
        return self.bounded_sensitivity is None

    @property
    def marginal(self) -> Marginal:
        """Distribution of each component of θ given prior or records, unless the variance is unknown."""
        assert self._marginal is not None
        return self._marginal

    def n_components(self, prior: ArrayLike) -> int:
        """Return the number of components of θ and of the statistic, which is k for a multinomial prior."""
        return np.size(prior) if self.is_vector else 1 + self.has_square

    def is_conjugate(self, prior: ArrayLike) -> bool:
        """Return False for the hyperparameters of the second kind of prior."""
        return not self.other_hyperparameters or np.size(prior) != len(self.other_hyperparameters)

    def require_prior(self, prior: ArrayLike | None) -> ArrayLike:
        """Return the prior, which must be given."""
        if prior is None:
            names = ", ".join(self.hyperparameters)
            raise ValueError(f"prior ({names}) must be given for the {self.name} family, got None; pass its numbers")
        return prior

    def validate_prior(self, prior: ArrayLike) -> tuple[float, ...]:
        """Return the hyperparameters of a proper prior as floats.

        They are in the order of the module's table, finite, and > 0 except for the mean of a normal family. Those of
        probabilities are in [1e-12, 1e300]; others are in [1e-50, 1e50], and a mean is at most 1e50 in size.
        """
        try:
            values = real_array("prior", prior)
        except ValueError:
            values = np.empty(0)
        hyperparameters = self.hyperparameters if self.is_conjugate(values) else self.other_hyperparameters
        names, least = ", ".join(hyperparameters), 2 if self.is_vector else len(hyperparameters)
        if values.shape != (max(values.size, least) if self.is_vector else least,):
            rule = "one alpha per category, at least 2" if self.is_vector else f"{least} numbers ({names})"
            if self.other_hyperparameters:
                rule += f" or {len(self.other_hyperparameters)} ({', '.join(self.other_hyperparameters)})"
            raise ValueError(f"prior must have {rule}, got {prior!r}; pass one number per hyperparameter")
        if not (np.all(np.isfinite(values)) and np.all(values[self.any_sign :] > 0)):
            positive = f" with {', '.join(hyperparameters[self.any_sign :])} > 0" if self.any_sign else " and > 0"
            raise ValueError(f"prior ({names}) must be finite{positive}, got {prior!r}; choose a proper prior")
        low, high = _PRIOR_RANGE if self.is_truncated else _ALPHA_RANGE
        sizes = np.abs(values)
        if np.any(sizes[self.any_sign :] < low) or np.any(sizes > high):
            means = f", and {', '.join(hyperparameters[: self.any_sign])} at most {high:g} in size"
            rule = f"prior ({names}) must be in [{low:g}, {high:g}] in double precision{means if self.any_sign else ''}"
            raise ValueError(f"{rule}, got {prior!r}; choose a less extreme one")
        return tuple(values.tolist())

    def validate_bounds(self, bounds: Bounds | None) -> Bounds | None:
        """Return public bounds [a, b] as floats, or None for a family with bounded records.

        They are finite numbers a < b within the range of a record, at most 1e50 in size and at least 1e-50 apart, and
        integers if records are integers.
        """
        if not self.is_truncated:
            if bounds is not None:
                raise ValueError(f"bounds must be None for the {self.name} family, got {bounds}; pass None")
            return None
        try:
            a, b = real_array("bounds", bounds).reshape(2).tolist()  # type: ignore[arg-type]
        except ValueError:
            raise ValueError(f"bounds must be two numbers (lower, upper), got {bounds!r}; pass public bounds") from None
        least, largest = self.record_range[0], _LARGEST_INTEGER if self.integer_records else _LARGEST_BOUND
        suits_records = not self.integer_records or (a.is_integer() and b.is_integer())
        for holds, rule, remedy in (
            (-math.inf < a < b < math.inf, "bounds must be finite with lower < upper", "choose public bounds"),
            (max(-a, b) <= largest, f"bounds must be at most {largest:g} in size", "choose narrower bounds"),
            (b - a >= _LEAST_WIDTH, f"bounds must differ by >= {_LEAST_WIDTH:g}", "change the unit of the records"),
            (a >= least, f"lower bound must be >= {least:g}", "choose a larger bound"),
            (suits_records, f"bounds must be integers for the {self.name} family", "round the bounds"),
        ):
            if not holds:
                raise ValueError(f"{rule}, got ({a}, {b}); {remedy}")
        return a, b

    def validate_parameters(self, theta: ArrayLike) -> Floats:
        """Return θ as an array in the parameter space; probabilities of k categories must sum to one."""
        values = real_array("theta", theta)
        low, high = self.parameter_range
        inside = np.isfinite(values) & (values >= low) & (values <= high)
        if math.isinf(high):
            inside &= values > low
        if not np.all(inside):
            rule = f"finite and between {low:g} and {high:g} for the {self.name} family"
            raise ValueError(f"theta must be {rule}, got {values[~inside].flat[0]}; check the parameters")
        if self.is_vector and not np.allclose(values.sum(axis=-1), 1.0, rtol=0.0, atol=1e-12):
            raise ValueError(f"theta must sum to 1 over the categories, got {values.sum(axis=-1)}; normalise theta")
        return values

    def draw_parameters(self, rng: np.random.Generator, prior: ArrayLike, size: int) -> Floats:
        """Draw `size` values of θ, shape (size, p), from a prior or conjugate posterior with these hyperparameters."""
        draws = self._draw_parameters(rng, np.array(self.validate_prior(prior)), size)
        return draws.reshape(size, -1)

    def posterior(self, prior: ArrayLike, s: ArrayLike, n: int) -> Floats:
        """Return the hyperparameters of the conjugate posterior, given the statistic of all `n` records.

        The sums `s`, shape (..., d), are not checked against the support, because the naive method passes noisy sums.
        """
        hyperparameters = np.array(self.validate_prior(prior))
        if not self.is_conjugate(hyperparameters):
            names = ", ".join(self.hyperparameters)
            raise ValueError(f"prior must be conjugate ({names}), got {prior!r}; choose another method or prior")
        statistic, n = real_array("s", s), validate_size(n)
        d = self.n_components(hyperparameters)
        if statistic.ndim == 0 or statistic.shape[-1] != d:
            raise ValueError(f"s must have shape (..., {d}), got {statistic.shape}; add the missing axis")
        return np.stack(np.broadcast_arrays(*self._update(hyperparameters, statistic, n)), axis=-1)

    def sensitivity(
        self,
        bounds: Bounds | None = None,
        relation: Neighbouring = Neighbouring.REPLACE_ONE,
        outside: Literal["drop", "clamp"] = "drop",
        power: int = 1,
    ) -> float:
        """Return Δ, the largest change of the released statistic between neighbouring data sets, in ℓ₁ or ℓ₂ (`power`).

        With bounds, a record in [a, b] contributes its value, and any other contributes 0 or the nearest bound.
        Replacement changes the contribution by at most the diameter of its range, {0} ∪ [a, b] or [a, b]; addition or
        removal changes the statistic by at most max(|a|, |b|).

        If the variance is unknown, a record contributes (z, z²) with z in [−1, 1]; see `ReleaseModel`. As |u| + |v| is
        the larger of |u + v| and |u − v|, replacement changes both by at most the width of the range of z + z², which
        is [−1/4, 2]. This is only 1/4 more than for z alone, as z² does not change from −1 to 1. In ℓ₂, replacement
        changes a vector of counts by √2, and (z, z²) by 2, as the largest squared change at |z − z'| = d, which is
        d² + d²(2 − d)², increases with d.
        """
        checked = self.validate_bounds(bounds)
        replaced = validate_relation(relation) is Neighbouring.REPLACE_ONE
        if power == 2 and replaced and (self.is_vector or self.has_square):
            return math.sqrt(2.0) if self.is_vector else 2.0
        if checked is None:
            assert self.bounded_sensitivity is not None
            return self.bounded_sensitivity if replaced else self.record_range[1]
        if self.has_square:
            return 2.25 if replaced else 2.0
        a, b = checked
        if not replaced:
            return max(abs(a), abs(b))
        return b - a if outside == "clamp" else max(b, 0.0) - min(a, 0.0)

    def region_moments(self, theta: ArrayLike, bounds: Bounds) -> Moments:
        """Return the probability of each region x < a, a ≤ x ≤ b, x > b, and the moments of a record in the region.

        The sum of the records in a region has mean n·q·μ and variance n·q·Σ + n·q·(1 − q)·μ². The sums over two regions
        have covariance −n·q_r·q_s·μ_r·μ_s, because the numbers of records per region are multinomial.

        q, μ and Σ have shape theta.shape + (3,), for (lower, centre, upper). Their relative error is below 1e-10 if
        q > 1e-250 (and θ < 1e5 for Poisson). Empty regions have q = 0.
        """
        if self.regions is None:
            raise ValueError(f"family must have bounds, got {self.name}; use exponential, poisson or normal")
        values, checked = self.validate_parameters(theta), self.validate_bounds(bounds)
        assert checked is not None
        return self.regions.moments(values, *checked)

    def contribution_moments(self, theta: Floats, bounds: Bounds, clamps: bool) -> tuple[Floats, Floats]:
        """Return mean, shape (m, d), and covariance, (m, d, d), of the contribution of one record given θ, (m, p).

        They are accurate to about 1e-8 of the squared range of a contribution. Records outside are clamped or dropped.
        """
        a, b = bounds
        if self.has_square:
            return normal_contribution_moments(theta[:, 0], np.sqrt(theta[:, 1]), a, b, clamps)
        assert self.regions is not None
        least, most = self.regions.parameter(np.array(self.regions.interval(a, b)))  # beyond, all are in one region
        if self.code == EXPONENTIAL and a == 0.0:
            most = np.inf  # all records lie within the bounds, and their mean is 1/θ
        q, mean, variance = self.regions.moments(theta[:, 0].clip(least, most), a, b)
        value = np.column_stack([np.full(len(q), a * clamps), mean[:, 1], np.full(len(q), b * clamps)])
        average = (q * value).sum(axis=1)
        spread = q[:, 1] * variance[:, 1] + (q * (value - average[:, None]) ** 2).sum(axis=1)
        return average[:, None], spread[:, None, None]


# 1/t − 1/(eᵗ − 1) = ½ − Σ_{k≥1} B₂ₖ·t^(2k−1)/(2k)!, Bernoulli numbers B₂ₖ; at t ≤ 1 the tenth term is below 1e-16.
_K = np.arange(1, 11)
_SERIES = special.bernoulli(20)[2::2] / special.factorial(2 * _K)


def _tilted_unit_interval(t: Floats) -> tuple[Floats, Floats]:
    """Return the mean and variance of the density ∝ exp(−t·u) on [0, 1] for t ≥ 0, by a series if t < 1."""
    small = np.minimum(t, 1.0)
    series_mean = 0.5 - small * np.polynomial.polynomial.polyval(small**2, _SERIES)
    series_variance = np.polynomial.polynomial.polyval(small**2, _SERIES * (2 * _K - 1))
    large = np.maximum(t, 1.0)
    decay, rest = np.exp(-large), -np.expm1(-large)
    mean, variance = 1.0 / large - decay / rest, 1.0 / large**2 - decay / rest**2
    return np.where(t < 1, series_mean, mean), np.where(t < 1, series_variance, variance)


def exponential_regions(theta: Floats, a: float, b: float) -> Moments:
    """Return the probability of each region, and the mean and variance of an Exp(rate θ) record in the region."""
    below_mean, below_variance = _tilted_unit_interval(theta * a)
    between_mean, between_variance = _tilted_unit_interval(theta * (b - a))
    q = [-np.expm1(-theta * a), np.exp(-theta * a) * -np.expm1(-theta * (b - a)), np.exp(-theta * b)]
    mean = [a * below_mean, a + (b - a) * between_mean, b + 1.0 / theta]
    variance = [a**2 * below_variance, (b - a) ** 2 * between_variance, theta**-2.0]
    return np.stack(q, axis=-1), np.stack(mean, axis=-1), np.stack(variance, axis=-1)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NEGLIGIBLE_EXPONENT = 40.0
_BEYOND = 40.0  # standard normal value without mass beyond


def _normal_interval(theta: Floats, low: float, high: float) -> Moments:
    """Return the probability of [low, high] under N(theta, 1), and the mean and variance on this interval."""
    # 64 Gauss–Legendre nodes cover the part of the interval, whose ends may be infinite, where the density exceeds
    # exp(−40) times its largest value, at x₀. All terms of a sum have the same sign, so there is no cancellation.
    x0 = np.clip(theta, low, high)
    z0 = x0 - theta
    reach = 2 * _NEGLIGIBLE_EXPONENT / (np.sqrt(z0**2 + 2 * _NEGLIGIBLE_EXPONENT) + np.abs(z0))
    left, right = np.maximum(low - x0, -reach), np.minimum(high - x0, reach)
    u = ((right + left)[..., None] + (right - left)[..., None] * _NODES) / 2
    weights = np.exp(-u * (z0[..., None] + u / 2)) * _WEIGHTS
    total = weights.sum(axis=-1)
    shift = (weights * u).sum(axis=-1) / total
    variance = (weights * (u - shift[..., None]) ** 2).sum(axis=-1) / total
    q = np.exp(-(z0**2) / 2) / math.sqrt(2 * math.pi) * total * (right - left) / 2
    return q, x0 + shift, variance


def normal_regions(theta: Floats, a: float, b: float) -> Moments:
    """Return the probability of each region, and the mean and variance of an N(θ, 1) record in the region."""
    parts = [_normal_interval(theta, low, high) for low, high in ((-np.inf, a), (a, b), (b, np.inf))]
    q, mean, variance = (np.stack(moment, axis=-1) for moment in zip(*parts, strict=True))
    return q, mean, variance


def normal_contribution_moments(mu: Floats, sigma: Floats, a: float, b: float, clamps: bool) -> tuple[Floats, Floats]:
    """Return mean, shape (m, 2), and covariance, (m, 2, 2), of (c, c²) for the contribution c of x ~ N(μ, σ²).

    With the standard normal density f, the moments Mⱼ = E[zʲ; a ≤ x ≤ b] of z = (x − μ)/σ satisfy Mⱼ = (j − 1)·Mⱼ₋₂ +
    αʲ⁻¹f(α) − βʲ⁻¹f(β), where α and β are the values of z at a and b. Records outside are clamped or dropped.
    """
    alpha, beta = (((end - mu) / sigma).clip(-_BEYOND, _BEYOND) for end in (a, b))
    f_alpha, f_beta = (np.exp(-(end**2) / 2.0) / math.sqrt(2.0 * math.pi) for end in (alpha, beta))
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


def poisson_regions(theta: Floats, a: float, b: float) -> Moments:
    """Return the probability of each region, and the mean and variance of a Poisson(θ) record in the region."""
    moments = _poisson_regions(np.ravel(theta), np.array([0.0, a, b + 1.0, np.inf]))
    q, mean, variance = moments.reshape(3, *theta.shape, 3)
    return q, mean, variance


@kernel
def _poisson_regions(theta, starts):
    """Return moments by sums of the pmf from the largest term of each region outwards, shape (3, m, 3)."""
    moments = np.zeros((3, theta.size, 3))
    for i in range(theta.size):
        for region in range(3):
            low, high = starts[region], starts[region + 1] - 1.0
            if high < low:
                continue
            x0 = min(max(math.floor(theta[i]), low), high)
            total, first, second = 1.0, 0.0, 0.0
            for step in (1.0, -1.0):
                x, weight = x0, 1.0
                while low <= x + step <= high and weight > 1e-20 * total:
                    weight *= theta[i] / (x + 1.0) if step > 0 else x / theta[i]
                    x += step
                    total += weight
                    first += weight * (x - x0)
                    second += weight * (x - x0) ** 2
            shift = first / total
            moments[0, i, region] = total * math.exp(x0 * math.log(theta[i]) - theta[i] - math.lgamma(x0 + 1.0))
            moments[1, i, region] = x0 + shift
            moments[2, i, region] = second / total - shift**2
    return moments


def _gamma_parameters(rng: np.random.Generator, prior: Floats, size: int) -> Floats:
    return rng.gamma(prior[0], size=size) / prior[1]


def mean_cdf(prior: Floats, mean: Any, variance: Any) -> Any:
    """Return the prior distribution function of the mean of records given their variance, for either prior of both."""
    away = mean - prior[0]
    if prior.size == N_CONJUGATE:
        return special.ndtr(away / np.sqrt(variance / prior[1]))
    std = prior[2] * np.sqrt(variance)
    above, below = (away + prior[1]) / std, (away - prior[1]) / std
    area = _integrated_cdf(above) - _integrated_cdf(below)
    return (area * std / (2.0 * prior[1])).clip(0.0, 1.0)


def _integrated_cdf(z: Any) -> Any:
    """Return the integral of the standard normal distribution function up to z."""
    return z * special.ndtr(z) + np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)


def variance_prior(prior: Floats) -> Any:
    """Return the prior distribution of the variance of records, for either prior of mean and variance."""
    if prior.size == N_CONJUGATE:
        return stats.invgamma(prior[2], scale=prior[3])
    return stats.lognorm(2.0 * prior[4], scale=prior[3] ** 2)


def _mean_and_variance(rng: np.random.Generator, prior: Floats, size: int) -> Floats:
    if prior.size == N_CONJUGATE:
        mean, strength, shape, scale = prior
        variance = scale / rng.gamma(shape, size=size)
        return np.column_stack([mean + np.sqrt(variance / strength) * rng.standard_normal(size), variance])
    mean, half_width, ratio, median, log_std = prior
    std = median * np.exp(log_std * rng.standard_normal(size))
    centre = mean + half_width * rng.uniform(-1.0, 1.0, size)
    return np.column_stack([centre + ratio * std * rng.standard_normal(size), std**2])


def _normal_inverse_gamma_update(prior: Floats, s: Floats, n: int) -> list[Floats]:
    """Return mean, strength, shape and scale of the posterior given Σ x and Σ x² of n records."""
    mean, strength, shape, scale = prior
    average = s[..., 0] / n
    spread = np.maximum(s[..., 1] - n * average**2, 0.0) + strength * n / (strength + n) * (average - mean) ** 2
    together = (strength * mean + s[..., 0]) / (strength + n)
    return [together, strength + n, shape + 0.5 * n, scale + 0.5 * spread]


_UNIT = (0.0, 1.0)
_COUNTED: dict[str, Any] = {"parameter_range": _UNIT, "record_range": _UNIT, "integer_records": True, "_marginal": BETA}
_REAL: dict[str, Any] = {"parameter_range": (-math.inf, math.inf), "record_range": (-math.inf, math.inf), "any_sign": 1}

FAMILIES: dict[str, Family] = register(
    __name__,
    Family(
        name="binomial", code=BINOMIAL, hyperparameters=("alpha", "beta"), bounded_sensitivity=1.0, **_COUNTED,
        _draw_parameters=lambda rng, prior, size: rng.beta(prior[0], prior[1], size=size),
        draw=lambda rng, theta, n: rng.binomial(n, theta),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n - s[..., 0])),
    Family(
        name="multinomial", code=MULTINOMIAL, hyperparameters=("alpha",), bounded_sensitivity=2.0, is_vector=True,
        **_COUNTED,
        _draw_parameters=lambda rng, prior, size: rng.dirichlet(prior, size=size),
        draw=lambda rng, theta, n: rng.multinomial(n, theta),
        _update=lambda prior, s, n: [alpha + s[..., j] for j, alpha in enumerate(prior)]),
    Family(
        name="exponential", code=EXPONENTIAL, hyperparameters=("shape", "rate"), _marginal=GAMMA,
        _draw_parameters=_gamma_parameters,
        draw=lambda rng, theta, n: rng.standard_exponential((len(theta), n)) / theta,
        _update=lambda prior, s, n: (prior[0] + n, prior[1] + s[..., 0]),
        regions=Regions(
            exponential_regions, parameter=np.exp, step=0.01,
            interval=lambda a, b: (math.log(1e-6 / b), math.log(100.0 / (a if a > 0 else b))),
            mean_unit=lambda u: np.exp(-u), variance_unit=lambda u: np.exp(-2.0 * u))),
    Family(
        name="poisson", code=POISSON, hyperparameters=("shape", "rate"), integer_records=True, _marginal=GAMMA,
        _draw_parameters=_gamma_parameters,
        draw=lambda rng, theta, n: rng.poisson(theta, size=(len(theta), n)),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n),
        regions=Regions(
            poisson_regions, parameter=np.square, step=0.005, mean_unit=np.square, variance_unit=np.square,
            interval=lambda a, b: (0.005, math.sqrt(b) + 10.0))),
    Family(
        name="normal", code=NORMAL, hyperparameters=("mean", "variance"), _marginal=GAUSSIAN, **_REAL,
        _draw_parameters=lambda rng, prior, size: prior[0] + math.sqrt(prior[1]) * rng.standard_normal(size),
        draw=lambda rng, theta, n: theta + rng.standard_normal((len(theta), n)),
        _update=lambda prior, s, n: (
            (prior[0] / prior[1] + s[..., 0]) / (1 / prior[1] + n), 1 / (1 / prior[1] + n)),
        regions=Regions(
            normal_regions, parameter=np.copy, step=0.01, mean_unit=np.ones_like, variance_unit=np.ones_like,
            interval=lambda a, b: (a - 12.0, b + 12.0))),
)  # fmt: skip
"""Families of P4 by name."""

MODELS: dict[str, Family] = FAMILIES | register(
    __name__,
    Family(
        name="normal-unknown-variance", code=UNKNOWN_VARIANCE, hyperparameters=("mean", "strength", "shape", "scale"),
        other_hyperparameters=("mean", "half_width", "ratio", "median", "log_std"), has_square=True, **_REAL,
        _draw_parameters=_mean_and_variance,
        draw=lambda rng, theta, n: theta[:, :1] + np.sqrt(theta[:, 1:]) * rng.standard_normal((len(theta), n)),
        _update=_normal_inverse_gamma_update),
)  # fmt: skip
"""Families that `ReleaseModel` supports, by name: those of P4, and normal records with unknown variance."""
