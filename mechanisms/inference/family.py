"""Exponential families of P4: priors, data, sufficient statistics, conjugate updates, sensitivities, moments.

The members are declared in `mechanisms.inference.families`, which also cites the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from mechanisms.arguments import Floats, real_array
from mechanisms.privacy import Neighbouring, validate_relation
from mechanisms.privacy_parameters import validate_size

BINOMIAL, MULTINOMIAL, EXPONENTIAL, POISSON, NORMAL, UNKNOWN_VARIANCE = range(6)
"""Identifiers of families in compiled samplers."""

_LARGEST_BOUND, _LARGEST_INTEGER = 1e50, 1e15  # variances of squares remain finite, and integers exact
_LEAST_WIDTH = 1e-50  # noise scales, and units of a release, are normal doubles

Bounds = tuple[float, float]
Moments = tuple[Floats, Floats, Floats]
"""Probability of each region x < a, a ≤ x ≤ b, x > b, and mean and variance of a record in it, shape θ.shape + (3,)."""


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
    """Moments of one record in the regions outside and within bounds, as functions of a coordinate u of θ.

    The moments vary over distances of about one in u.
    """

    moments: Callable[[Floats, float, float], Moments]  # maps θ and the bounds to `Moments`
    # maps the bounds to the range of u outside which all records lie in one region
    interval: Callable[[float, float], tuple[float, float]]
    step: float  # distance of tabulated values of u
    parameter: Callable[[Floats], Floats]  # maps u to θ
    mean_unit: Callable[[Floats], Floats]  # maps u to the unit of a tabulated mean
    variance_unit: Callable[[Floats], Floats]  # maps u to the unit of a tabulated variance


@dataclass(frozen=True, kw_only=True)
class Family:
    """Exponential family with a conjugate prior; the members are listed in `mechanisms.inference.families.FAMILIES`.

    Arrays of parameters have shape (trials, p), and arrays of statistics have shape (trials, d). Here p = d, which is k
    for the multinomial, 2 if the variance is unknown, and 1 otherwise.
    """

    name: str
    code: int  # number that identifies the family in compiled samplers
    hyperparameters: tuple[str, ...]  # names; the multinomial has a single name for its k ≥ 2 values
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

    def validate_prior(self, prior: ArrayLike) -> tuple[float, ...]:
        """Return the hyperparameters of a proper prior as floats.

        They are in the order of the table in `mechanisms.inference.families`, finite, and > 0 except for the mean of a
        normal family.
        """
        names = ", ".join(self.hyperparameters)
        try:
            values = real_array("prior", prior)
        except ValueError:
            raise ValueError(
                f"prior must be numbers ({names}), got {prior!r}; pass one number per hyperparameter"
            ) from None
        if self.is_vector:
            if values.ndim != 1 or values.size < 2:
                raise ValueError(f"prior must have one alpha per category, at least 2, got {prior!r}; pass k numbers")
        elif values.shape != (len(self.hyperparameters),):
            raise ValueError(
                f"prior must have {len(self.hyperparameters)} numbers ({names}), got {prior!r}; pass one number per "
                "hyperparameter"
            )
        positive = np.arange(values.size) >= self.any_sign
        if not np.all(np.isfinite(values) & ((values > 0) | ~positive)):
            rule = "finite" + (
                f" with {', '.join(self.hyperparameters[self.any_sign :])} > 0" if self.any_sign else " and > 0"
            )
            raise ValueError(f"prior ({names}) must be {rule}, got {prior!r}; choose a proper prior")
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
        if not (math.isfinite(a) and math.isfinite(b) and a < b):
            raise ValueError(f"bounds must be finite with lower < upper, got ({a}, {b}); choose public bounds")
        largest = _LARGEST_INTEGER if self.integer_records else _LARGEST_BOUND
        if max(-a, b) > largest:
            raise ValueError(f"bounds must be at most {largest:g} in size, got ({a}, {b}); choose narrower bounds")
        if b - a < _LEAST_WIDTH:
            raise ValueError(
                f"bounds must differ by >= {_LEAST_WIDTH:g}, got ({a}, {b}); change the unit of the records"
            )
        if a < self.record_range[0]:
            raise ValueError(f"lower bound must be >= {self.record_range[0]:g}, got {a}; choose a larger bound")
        if self.integer_records and not (a.is_integer() and b.is_integer()):
            raise ValueError(f"bounds must be integers for the {self.name} family, got ({a}, {b}); round the bounds")
        return a, b

    def validate_parameters(self, theta: ArrayLike) -> Floats:
        """Return θ as an array in the parameter space; probabilities of k categories must sum to one."""
        values = real_array("theta", theta)
        low, high = self.parameter_range
        inside = np.isfinite(values) & (values >= low) & (values <= high)
        if math.isinf(high):
            inside &= values > low
        if not np.all(inside):
            raise ValueError(
                f"theta must be finite and between {low:g} and {high:g} for the {self.name} family, "
                f"got {values[~inside].flat[0]}; check the parameters"
            )
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

    def prior_distribution(self, prior: ArrayLike) -> stats.rv_continuous:
        """Return the prior of a scalar θ as a frozen distribution of `scipy.stats`."""
        return self.marginal.frozen(*self.validate_prior(prior))

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
