"""Model of one release: family, number of records, public bounds, and noise.

    y = s + Z,  s = Σ c(xᵢ),

where a record outside the public bounds [a, b] contributes 0 (``drop``) or the nearest bound (``clamp``). Bounded
records contribute themselves. The samplers and the exact posteriors of this package take a `ReleaseModel`.

If the variance of normal records is unknown, each record contributes (z, z²), where z = (x − m)/h is its distance from
the midpoint m of the bounds in units of half of their width, h; it lies in [−1, 1], and is clamped to ±1 or dropped as
0 outside the bounds. Both components of y, and the scale of their noise, are pure numbers. Weights of z² other
than 1 give intervals of the mean that are at most 1.2 % narrower, at ε = 0.5, 1 and 5 for 200 lognormal records.

References
----------
P4, which drops records outside the bounds.
Kazan & Reiter, "Bayesian inference under differential privacy with bounded data",
arXiv:2405.13801, 2024, which clamps them, and restricts the prior to parameters that the bounds allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from mechanisms.core.arguments import Floats, find_entry, real_array, validate_positive
from mechanisms.core.noise import Exact, Noise
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee, Neighbouring
from mechanisms.core.privacy_parameters import validate_size
from mechanisms.inference.families import (
    MODELS,
    Bounds,
    Family,
    mean_cdf,
    normal_contribution_moments,
    variance_prior,
)

_RECORDS_AT_ONCE = 1 << 16
_WIDEST, _BEYOND = 1e4, 40.0  # largest σ in half-widths of the bounds; standard normal values without mass beyond
_SURPRISE = 1e-6
_LEAST_PROBABILITY = 1e-3  # smallest prior probability of a parameter range
_BATCHES, _LEVELS = 100_000, 1_000  # largest number of batches of prior draws; quantiles of the variance in a sum


@dataclass(frozen=True)
class ReleaseModel:
    """Release of the noisy sum of the contributions of n records.

    Parameters
    ----------
    family : str or Family
        Key of `mechanisms.inference.families.MODELS`, or the family, which is replaced by its key.
    n : int
        Number of records, public, ≥ 1.
    noise : Noise
        Distribution of the noise. Integer noise requires integer records; K-norm noise requires the multinomial family.
    bounds : tuple of float, optional
        Public bounds for unbounded records, see `Family.validate_bounds`; None for bounded records.
    outside : {"drop", "clamp"}
        Contribution of a record outside the bounds: 0, or the nearest bound.
    parameter_range : tuple, optional
        Lower and upper limit of θ, to which the prior is restricted: two numbers, or two pairs (mean, variance) if the
        variance is unknown. None for bounded records, and for an unrestricted prior.
    variance : float
        Known variance of a record of the normal family, > 0; 1 for other families.

    Notes
    -----
    Methods take the hyperparameters of the prior as a sequence: Beta(alpha, beta) for the binomial, Dir(alpha₁, …,
    alphaₖ) for the multinomial, Gamma(shape, rate) for exponential and Poisson, N(mean, variance) for normal, and mean,
    strength, shape, scale or mean, half_width, ratio, median, log_std for normal-unknown-variance.

    Raises
    ------
    ValueError
        If an argument is invalid, or the noise does not suit the family.

    Examples
    --------
    >>> model = ReleaseModel("poisson", 100, Noise("geometric", 5.0), bounds=(1, 6), outside="clamp")
    >>> print(model.guarantee())
    1-DP
    """

    family: str
    n: int
    noise: Noise
    bounds: Bounds | None = None
    outside: Literal["drop", "clamp"] = "drop"
    parameter_range: tuple[Any, Any] | None = None
    variance: float = 1.0

    def __post_init__(self) -> None:
        family = find_entry(MODELS, self.family, "family")
        name, bounds = family.name, family.validate_bounds(self.bounds)
        if self.outside not in ("drop", "clamp"):
            raise ValueError(f"outside must be drop or clamp, got {self.outside!r}; choose one of them")
        if not isinstance(self.noise, Noise):
            raise ValueError(f"noise must be a Noise, got {self.noise!r}; pass Noise(name, scale)")
        if self.noise.is_integer and not family.integer_records:
            raise ValueError(f"noise must be laplace or gaussian for the {name} family, got {self.noise.name}; use one")
        if self.noise.sums_to_zero and not family.is_vector:
            raise ValueError(f"family must be multinomial for k-norm noise, got {name}; use geometric noise")
        variance = validate_positive("variance", self.variance, "pass the variance of a record")
        if variance != 1.0 and name != "normal":
            raise ValueError(f"variance must be 1 for the {name} family, got {self.variance}; use the normal family")
        checked = {"family": name, "n": validate_size(self.n), "bounds": bounds, "variance": variance}
        for field, value in checked.items():
            object.__setattr__(self, field, value)
        if bounds is not None and variance != 1.0:
            a, b = (bound / math.sqrt(variance) for bound in bounds)
            try:
                family.validate_bounds((a, b))
            except ValueError:
                rule = f"variance must be that of a record, in the squared unit of the bounds {bounds}"
                raise ValueError(f"{rule}, got {variance:g}, which gives ({a:g}, {b:g}); check the units") from None
        self.parameter_limits()

    @property
    def entry(self) -> Family:
        """Entry of the family in `MODELS`."""
        return MODELS[self.family]

    @property
    def noises(self) -> frozenset[Noise | Exact]:
        """Distributions of the noise that inference assumes: one."""
        return frozenset([self.noise])

    def contribution_range(self) -> tuple[float, float]:
        """Return the smallest and the largest contribution of a record, without its square."""
        if self.bounds is None:
            return self.entry.record_range
        if self.entry.has_square:
            return -1.0, 1.0
        a, b = self.bounds
        return (a, b) if self.outside == "clamp" else (min(a, 0.0), max(b, 0.0))

    def statistic_range(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest value of each component of s, shape (d,), or (1,) for counts."""
        low, high = self.contribution_range()
        least, most = ([low, 0.0], [high, 1.0]) if self.entry.has_square else ([low], [high])
        return self.n * np.array(least), self.n * np.array(most)

    def sensitivity(self, relation: Neighbouring = Neighbouring.REPLACE_ONE) -> float:
        """Return the sensitivity Δ of the statistic in the norm of the noise; see `Family.sensitivity`."""
        return self.entry.sensitivity(self.bounds, relation, self.outside, self.noise.power)

    def guarantee(self, relation: Neighbouring = Neighbouring.REPLACE_ONE) -> Guarantee | ConcentratedGuarantee:
        """Return the guarantee of the release: (Δ/scale)-DP, or Δ²/(2·scale²)-zCDP for Gaussian noise."""
        return self.noise.guarantee(self.sensitivity(relation), relation)

    def contributions(self, records: ArrayLike) -> Floats:
        """Return the contribution of each record, without its square, with the shape of `records`."""
        x = np.asarray(records, dtype=np.float64)
        if self.bounds is None:
            return x
        a, b = self.bounds
        kept = np.clip(x, a, b)
        if self.entry.has_square:
            kept = ((kept - a) - (b - kept)) / (b - a)  # ±1 at the bounds, without rounding
        return kept if self.outside == "clamp" else np.where((x >= a) & (x <= b), kept, 0.0)

    def statistic(self, records: ArrayLike) -> Floats:
        """Return s of one data set, shape (d,)."""
        c = self.contributions(records)
        return np.array([c.sum(), (c**2).sum()]) if self.entry.has_square else np.atleast_1d(c.sum(axis=0))

    def units(self) -> tuple[float, float]:
        """Return location and scale of the units of computations: (m, h) if the variance is unknown, or (0, σ)."""
        if not self.entry.has_square:
            return 0.0, math.sqrt(self.variance)
        assert self.bounds is not None
        half_a, half_b = 0.5 * self.bounds[0], 0.5 * self.bounds[1]
        return half_a + half_b, half_b - half_a

    def standardised(self, prior: ArrayLike, noisy_statistics: ArrayLike) -> tuple[ReleaseModel, Floats, Floats]:
        """Return the model, the prior and the release in the units of `units`, in which σ = 1 or the bounds are ±1.

        The parameter of the model is θ' = (θ − location)/scale, or (μ', σ²/scale²). A standardised model is returned
        unchanged.
        """
        hyperparameters, y = np.array(prior, dtype=np.float64), np.asarray(noisy_statistics, dtype=np.float64)
        location, scale = self.units()
        if (location, scale) == (0.0, 1.0):
            return self, hyperparameters, y
        assert self.bounds is not None
        hyperparameters[0] = (hyperparameters[0] - location) / scale
        if self.entry.is_conjugate(hyperparameters):
            hyperparameters[-1] /= scale**2  # the variance of the mean, or the scale of the variance
        else:
            hyperparameters[[1, 3]] /= scale  # the half-width of the mean, and the median standard deviation
        limits = None
        if self.parameter_range is not None:
            p = 1 + self.entry.has_square
            origin, unit = np.array([location, 0.0])[:p], np.array([scale, scale**2])[:p]
            lower, upper = ((limit - origin) / unit for limit in self.parameter_limits())
            limits = tuple(lower), tuple(upper)
        if self.entry.has_square:
            return replace(self, bounds=(-1.0, 1.0), parameter_range=limits), hyperparameters, y
        a, b = self.bounds
        noise = replace(self.noise, scale=self.noise.scale / scale)
        model = replace(self, bounds=(a / scale, b / scale), noise=noise, parameter_range=limits, variance=1.0)
        return model, hyperparameters, y / scale

    def parameter_limits(self) -> tuple[Floats, Floats]:
        """Return the lower and upper limits of the components of θ, shape (p,), infinite without `parameter_range`."""
        p, limits = 1 + self.entry.has_square, self.parameter_range
        if limits is None:
            return np.full(p, -np.inf), np.full(p, np.inf)
        if self.bounds is None:
            raise ValueError(f"parameter_range must be None for the {self.family} family, got {limits}; pass None")
        try:
            lower, upper = real_array("parameter_range", limits).reshape(2, p)
        except (TypeError, ValueError):
            rule = f"(lower, upper), each {'a number' if p == 1 else 'a pair (mean, variance)'}"
            raise ValueError(f"parameter_range must be {rule}, got {limits!r}; pass both") from None
        if not np.all(lower < upper):  # also NaN
            raise ValueError(f"parameter_range must have lower < upper, got {limits}; choose public limits")
        return lower, upper

    def released_moments(self, theta: ArrayLike) -> Floats:
        """Return mean and variance of a clamped record of unknown variance, shape (..., 2), in the units of records."""
        (location, scale), values = self.units(), np.asarray(theta, dtype=np.float64)
        mu, sigma = (values[..., 0].ravel() - location) / scale, np.sqrt(values[..., 1].ravel()) / scale
        shrink = np.maximum(sigma / _WIDEST, 1.0)  # beyond, nearly all records are clamped, and their shares are kept
        sigma = np.maximum(sigma / shrink, np.finfo(np.float64).tiny)
        mu = np.clip(mu / shrink, -1.0 - _BEYOND * sigma, 1.0 + _BEYOND * sigma)
        mean, covariance = normal_contribution_moments(mu, sigma, -1.0, 1.0, clamps=True)
        moments = location + scale * mean[:, 0].clip(-1.0, 1.0), scale**2 * np.maximum(covariance[:, 0, 0], 0.0)
        return np.stack(moments, axis=-1).reshape(values.shape)

    def draw_parameters(self, rng: np.random.Generator, prior: ArrayLike, size: int) -> Floats:
        """Draw θ, shape (size, p), from the prior restricted by rejection to `parameter_range`."""
        self.validate_prior(prior)
        lower, upper = self.parameter_limits()
        accepted: list[Floats] = []
        for _ in range(_BATCHES):
            drawn = self.entry.draw_parameters(rng, prior, size)
            if self.parameter_range is None:
                return drawn
            accepted.append(drawn[np.all((drawn >= lower) & (drawn <= upper), axis=1)])
            if sum(map(len, accepted)) >= size:
                return np.concatenate(accepted)[:size]
        raise AssertionError(f"no {size} draws in {_BATCHES} batches, although the range is probable")

    def require_prior(self, prior: ArrayLike | None) -> ArrayLike:
        """Return the prior; if it is None, the default prior of the family normal-unknown-variance.

        The default is (m, h, 1, h/3, 2), where m is the midpoint of the bounds and h half of their width. Under it, the
        mean of a clamped record is uniform between the bounds, whatever the standard deviation σ before clamping: its
        derivative with respect to μ is the probability of a record within the bounds, which is proportional to the
        density of μ.
        """
        if prior is not None or not self.entry.has_square:
            return self.entry.require_prior(prior)
        middle, half_width = self.units()
        return middle, half_width, 1.0, half_width / 3.0, 2.0

    def validate_prior(self, prior: ArrayLike) -> tuple[float, ...]:
        """Return the hyperparameters as floats; raise ValueError if they are invalid.

        The prior probability of `parameter_range` must be at least 0.001.
        """
        hyperparameters, limits = self.entry.validate_prior(prior), self.parameter_range
        if self.n < 2 and not self.entry.is_conjugate(hyperparameters):
            names = ", ".join(self.entry.hyperparameters)
            raise ValueError(f"n must be at least 2 for the default prior, got {self.n}; pass a prior ({names})")
        if limits is not None and self.range_probability(hyperparameters) < _LEAST_PROBABILITY:
            rule = f"parameter_range must have a prior probability >= {_LEAST_PROBABILITY:g}"
            raise ValueError(
                f"{rule}, got {limits} for prior={list(hyperparameters)}; choose a wider range or another prior"
            )
        return hyperparameters

    def range_probability(self, prior: Sequence[float]) -> float:
        """Return the prior probability of `parameter_range`, for models with bounds."""
        lower, upper = self.parameter_limits()
        if not self.entry.has_square:
            low, high = self.entry.marginal.frozen(*prior).cdf([lower[0], upper[0]])
            return float(high - low)
        hyperparameters = np.array(prior)
        variance = variance_prior(hyperparameters).ppf((np.arange(_LEVELS) + 0.5) / _LEVELS)
        low, high = mean_cdf(hyperparameters, np.array([[lower[0]], [upper[0]]]), variance)
        return float(np.mean((high - low) * ((variance >= lower[1]) & (variance <= upper[1]))))

    def draw_sums(self, rng: np.random.Generator, theta: ArrayLike) -> tuple[Floats, Floats]:
        """Draw one data set per row of θ, shape (trials, p); return the sum of all records and the exact statistic s.

        The sum of all records has shape (trials, 1), or that of s for counts; s has shape (trials, d). Records are
        drawn in batches of at most 2¹⁶.
        """
        values, std = self.entry.validate_parameters(theta), math.sqrt(self.variance)
        if values.ndim != 2:
            raise ValueError(f"theta must have shape (trials, p), got {values.shape}; add the missing axis")
        if self.bounds is None:
            counts = np.asarray(self.entry.draw(rng, values, self.n), dtype=np.float64)
            return counts, counts
        totals, sums = np.zeros((len(values), 1)), np.zeros((len(values), 1 + self.entry.has_square))
        at_once = max(1, _RECORDS_AT_ONCE // self.n)
        for start in range(0, len(values), at_once):
            rows = slice(start, start + at_once)
            for done in range(0, self.n, _RECORDS_AT_ONCE):
                records = std * self.entry.draw(rng, values[rows] / std, min(self.n - done, _RECORDS_AT_ONCE))
                c = self.contributions(records)
                totals[rows, 0] += records.sum(axis=1)
                sums[rows, 0] += c.sum(axis=1)
                if self.entry.has_square:
                    sums[rows, 1] += (c**2).sum(axis=1)
        return totals, sums

    def draw_release(self, rng: np.random.Generator, theta: ArrayLike) -> Floats:
        """Draw one data set per row of θ and return its noisy statistic y, shape (trials, d)."""
        _, s = self.draw_sums(rng, theta)
        return s + self.noise.sample(rng, s.shape)

    def validate_release(self, prior: ArrayLike, noisy_statistics: ArrayLike) -> tuple[Floats, Floats]:
        """Return the prior and one release, shape (d,), as arrays; raise ValueError if they are invalid."""
        hyperparameters = np.array(self.validate_prior(prior))
        return hyperparameters, self.validate_noisy_statistics(
            noisy_statistics, self.entry.n_components(hyperparameters)
        )

    def validate_noisy_statistics(self, noisy_statistics: ArrayLike, d: int) -> Floats:
        """Return one release as a new array of shape (d,); raise ValueError if it is invalid.

        It must be finite, of any size and sign; integers if the noise is integer, with sum n for K-norm noise.
        """
        y = np.atleast_1d(np.array(real_array("noisy_statistics", noisy_statistics)))
        if y.shape != (d,) or not np.all(np.isfinite(y)):
            raise ValueError(f"noisy_statistics must be finite, of shape ({d},), got {y.tolist()}; pass one release")
        if self.noise.is_integer and not np.all(y == np.floor(y)):
            rule = f"integers for {self.noise.name} noise"
            raise ValueError(f"noisy_statistics must be {rule}, got {y.tolist()}; pass the released integers")
        if self.noise.sums_to_zero and y.sum() != self.n:
            rule = f"sum to n = {self.n} for k-norm noise"
            raise ValueError(f"noisy_statistics must {rule}, got {y.sum():g}; pass one release")
        return y

    def is_surprising(self, noisy_statistics: ArrayLike) -> bool:
        """Return True if y is so far outside the range of s that the noise hardly explains the distance.

        Noise large enough to explain the distance of y, or of one of its components, from the possible values then has
        a probability below 1e-6. Possible counts sum to n, and possible sums s of z and s₂ of their squares satisfy
        s² ≤ n·s₂.

        Examples
        --------
        >>> model = ReleaseModel("binomial", 100, Noise("laplace", 1.0))
        >>> model.is_surprising([-9.0]), model.is_surprising([-19.0])
        (False, True)
        """
        y = np.asarray(noisy_statistics, dtype=np.float64)
        least, most = self.statistic_range()
        if np.any(is_unlikely(self.noise, np.abs(y - np.clip(y, least, most)))):
            return True
        d = y.size
        if d == 1:
            return False
        distance = self._distance(y) / self.noise.scale
        if self.noise.power == 2:
            return bool(stats.chi.sf(distance / math.sqrt(d), d) < _SURPRISE)
        return bool(special.gammaincc(d, distance) < _SURPRISE)

    def _distance(self, y: Floats) -> float:
        """Return the ℓ₁ distance of several components y from the possible statistics."""
        if self.entry.is_vector:
            return float(np.maximum(-y, 0.0).sum() + abs(np.maximum(y, 0.0).sum() - self.n))
        (low, low_2), (high, high_2) = self.statistic_range()
        s = np.append(np.linspace(low, high, 1_001), np.clip(y[0], low, high))
        nearest = np.clip(y[1], np.maximum(low_2, s**2 / self.n), high_2)
        return float((np.abs(y[0] - s) + np.abs(y[1] - nearest)).min())


def is_unlikely(noise: Noise, apart: ArrayLike) -> NDArray[np.bool_]:
    """Return True where real noise exceeds a distance ≥ 0 with a probability below 1e-6."""
    z = np.asarray(apart) / noise.scale
    return (stats.norm.sf(z) if noise.power == 2 else 0.5 * np.exp(-z)) < _SURPRISE
