"""Model of one release: family, number of records, public bounds, and noise.

    y = s + Z,  s = Σ c(xᵢ),

where a record outside the public bounds [a, b] contributes 0 (``drop``) or the nearest bound (``clamp``). Bounded
records contribute themselves. If the variance of normal records is unknown, each record contributes (c, c²). The
samplers and the exact posteriors of this package take a `ReleaseModel`.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018, which drops
records outside the bounds. Kazan & Reiter, "Bayesian inference under differential privacy with bounded data",
arXiv:2405.13801, 2024, which clamps them, and restricts the prior to parameters that the bounds allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from mechanisms.arguments import real_array
from mechanisms.inference.families import MODELS
from mechanisms.inference.family import Family
from mechanisms.inference.family_distributions import prior_distribution
from mechanisms.inference.records import Bounds, Floats
from mechanisms.metadata import find_entry
from mechanisms.noise import Noise
from mechanisms.privacy import Guarantee, RenyiGuarantee
from mechanisms.privacy_parameters import validate_size

__all__ = ["ReleaseModel"]

_RECORDS_AT_ONCE = 1 << 20
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

    def __post_init__(self) -> None:
        name = self.family.name if isinstance(self.family, Family) else self.family
        object.__setattr__(self, "family", name)
        family = find_entry(MODELS, str(name), "family")
        validate_size(self.n)
        family.validate_bounds(self.bounds)
        if self.outside not in ("drop", "clamp"):
            raise ValueError(f"outside must be drop or clamp, got {self.outside!r}; choose one of them")
        if not isinstance(self.noise, Noise):
            raise ValueError(f"noise must be a Noise, got {self.noise!r}; pass Noise(name, scale)")
        if self.noise.is_integer and not family.integer_records:
            raise ValueError(
                f"noise must be laplace or gaussian for the {self.family} family, got {self.noise.name}; choose "
                "one of them"
            )
        if self.noise.sums_to_zero and not family.is_vector:
            raise ValueError(f"family must be multinomial for k-norm noise, got {self.family}; use geometric noise")
        if self.parameter_range is not None:
            self._validate_range()

    def _validate_range(self) -> None:
        if self.bounds is None:
            raise ValueError(
                f"parameter_range must be None for the {self.family} family, got {self.parameter_range}; pass None"
            )
        assert self.parameter_range is not None
        p = 1 + self.entry.has_square
        try:
            limits = real_array("parameter_range", self.parameter_range).reshape(2, p)
        except (TypeError, ValueError):
            one = "a number" if p == 1 else "a pair (mean, variance)"
            raise ValueError(
                f"parameter_range must be (lower, upper), each {one}, got {self.parameter_range!r}; pass public limits"
            ) from None
        if not np.all(limits[0] < limits[1]):  # also NaN
            raise ValueError(
                f"parameter_range must have lower < upper, got {self.parameter_range}; choose public limits"
            )

    @property
    def entry(self) -> Family:
        """Entry of the family in `MODELS`."""
        return MODELS[self.family]

    def n_components(self, prior: ArrayLike) -> int:
        """Return d, the number of components of the statistic."""
        return self.entry.n_components(prior)

    def contribution_range(self) -> tuple[float, float]:
        """Return the smallest and the largest contribution c of a record."""
        if self.bounds is None:
            return self.entry.record_range
        a, b = self.bounds
        return (a, b) if self.outside == "clamp" else (min(a, 0.0), max(b, 0.0))

    def statistic_range(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest value of each component of s, shape (d,), or (1,) for counts."""
        low, high = self.contribution_range()
        least, most = [low], [high]
        if self.entry.has_square:
            least.append(0.0 if low <= 0.0 <= high else min(low * low, high * high))
            most.append(max(low * low, high * high))
        return self.n * np.array(least), self.n * np.array(most)

    def sensitivity(self) -> float:
        """Return the sensitivity Δ of the sum to replacement of one record, in ℓ₁, or in ℓ₂ for Gaussian noise.

        A scalar sum changes by at most the width of `contribution_range`. For the multinomial, one count increases by 1
        and another decreases by 1, so that Δ is 2 in ℓ₁ and √2 in ℓ₂. For (c, c²), |c − c'| + |c² − c'²| is the larger
        of |(c + c²) − (c' + c'²)| and |(c − c²) − (c' − c'²)|, and the ranges of both components bound Δ in ℓ₂.
        """
        is_gaussian = not self.noise.is_pure
        if self.entry.is_vector:
            return math.sqrt(2.0) if is_gaussian else 2.0
        low, high = self.contribution_range()
        if not self.entry.has_square:
            return high - low
        assert self.bounds is not None
        a, b = self.bounds
        vertices = [v for v in (-0.5, 0.0, 0.5) if a <= v <= b]
        c = np.array([a, b, *vertices, *([0.0] if self.outside == "drop" else [])])
        if is_gaussian:
            return math.hypot(high - low, np.ptp(c**2))
        return float(max(np.ptp(c + c**2), np.ptp(c - c**2)))

    def guarantee(self) -> Guarantee | Callable[[float], RenyiGuarantee]:
        """Return the guarantee of the release under replace-one with n public; see `Noise.guarantee`."""
        return self.noise.guarantee(self.sensitivity())

    def contributions(self, records: ArrayLike) -> Floats:
        """Return the contribution of each record, with the shape of `records`."""
        x = np.asarray(records, dtype=np.float64)
        if self.bounds is None:
            return x
        a, b = self.bounds
        return np.clip(x, a, b) if self.outside == "clamp" else np.where((x >= a) & (x <= b), x, 0.0)

    def parameter_limits(self) -> tuple[Floats, Floats]:
        """Return the lower and the upper limits of the components of θ, shape (1,), or (2,) if the variance is unknown.

        The limits are infinite without `parameter_range`.

        Examples
        --------
        >>> model = ReleaseModel("normal", 10, Noise("laplace", 1.0), bounds=(0, 5), parameter_range=(0, 5))
        >>> model.parameter_limits()
        (array([0.]), array([5.]))
        """
        p = 1 + self.entry.has_square
        if self.parameter_range is None:
            return np.full(p, -np.inf), np.full(p, np.inf)
        lower, upper = np.array(self.parameter_range, dtype=np.float64).reshape(2, p)
        return lower, upper

    def draw_parameters(self, rng: np.random.Generator, prior: ArrayLike, size: int) -> Floats:
        """Draw θ from the prior, restricted by rejection to `parameter_range`.

        Parameters
        ----------
        rng : numpy.random.Generator
        prior : array_like, shape (h,)
            See `Family.validate_prior`.
        size : int
            Number of draws.

        Returns
        -------
        ndarray of float64, shape (size, p)

        Raises
        ------
        ValueError
            If the prior is invalid; see `validate_prior`.
        """
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

    def validate_prior(self, prior: ArrayLike) -> tuple[float, ...]:
        """Return the hyperparameters as floats, after checking them and the prior probability of `parameter_range`.

        Parameters
        ----------
        prior : array_like, shape (h,)
            See `Family.validate_prior`.

        Returns
        -------
        tuple of float

        Raises
        ------
        ValueError
            If the prior is invalid, or the probability of the range is below 0.001.
        """
        hyperparameters = self.entry.validate_prior(prior)
        if self.parameter_range is not None and self.range_probability(hyperparameters) < _LEAST_PROBABILITY:
            raise ValueError(
                f"parameter_range must have a prior probability >= {_LEAST_PROBABILITY:g}, got {self.parameter_range} "
                f"for prior={list(hyperparameters)}; choose a wider range or another prior"
            )
        return hyperparameters

    def range_probability(self, prior: ArrayLike) -> float:
        """Return the prior probability of `parameter_range`, for models with bounds.

        Examples
        --------
        >>> model = ReleaseModel("normal", 10, Noise("laplace", 1.0), bounds=(0, 5), parameter_range=(0, 5))
        >>> round(model.range_probability((0, 1)), 4)
        0.5
        """
        lower, upper = self.parameter_limits()
        if not self.entry.has_square:
            low, high = prior_distribution(self.entry, prior).cdf([lower[0], upper[0]])
            return float(high - low)
        mean, strength, shape, scale = self.entry.validate_prior(prior)
        variance = stats.invgamma(shape, scale=scale).ppf((np.arange(_LEVELS) + 0.5) / _LEVELS)
        low, high = stats.norm.cdf((np.array([[lower[0]], [upper[0]]]) - mean) / np.sqrt(variance / strength))
        return float(np.mean((high - low) * ((variance >= lower[1]) & (variance <= upper[1]))))

    def draw_statistics(self, rng: np.random.Generator, theta: ArrayLike) -> Floats:
        """Draw one data set per row of θ and return its exact statistic s.

        Parameters
        ----------
        rng : numpy.random.Generator
        theta : array_like, shape (trials, p)

        Returns
        -------
        ndarray of float64, shape (trials, d)
        """
        values = self.entry.validate_parameters(theta)
        if self.bounds is None:
            return self.entry.draw_statistics(rng, values, self.n)[0]
        sums = np.zeros((len(values), 1 + self.entry.has_square))
        rows = max(1, _RECORDS_AT_ONCE // self.n)
        for start in range(0, len(values), rows):
            some = slice(start, start + rows)
            for done in range(0, self.n, _RECORDS_AT_ONCE):
                records = self.entry.draw(rng, values[some], min(self.n - done, _RECORDS_AT_ONCE))
                c = self.contributions(records)
                sums[some, 0] += c.sum(axis=1)
                if self.entry.has_square:
                    sums[some, 1] += (c**2).sum(axis=1)
        return sums

    def draw_release(self, rng: np.random.Generator, theta: ArrayLike) -> Floats:
        """Draw one data set per row of θ and return its noisy statistic y, shape (trials, d)."""
        s = self.draw_statistics(rng, theta)
        return s + self.noise.sample(rng, s.shape)

    def validate_release(self, prior: ArrayLike, noisy_statistics: ArrayLike) -> tuple[Floats, Floats]:
        """Return the prior and one release as arrays, after checking them.

        Parameters
        ----------
        prior : array_like, shape (h,)
            See `Family.validate_prior`.
        noisy_statistics : array_like, shape (d,)
            Release y: finite numbers of any size and sign; integers if the noise is integer, with sum n for K-norm
            noise.

        Returns
        -------
        prior, noisy_statistics : ndarray of float64

        Raises
        ------
        ValueError
            If an argument is invalid.
        """
        hyperparameters = np.array(self.validate_prior(prior))
        y = np.atleast_1d(np.array(noisy_statistics, dtype=np.float64))
        d = self.n_components(hyperparameters)
        if y.shape != (d,) or not np.all(np.isfinite(y)):
            raise ValueError(f"noisy_statistics must be finite, of shape ({d},), got {y.tolist()}; pass one release")
        if self.noise.is_integer and not np.all(y == np.floor(y)):
            raise ValueError(
                f"noisy_statistics must be integers for {self.noise.name} noise, got {y.tolist()}; pass the released "
                "integers"
            )
        if self.noise.sums_to_zero and y.sum() != self.n:
            raise ValueError(
                f"noisy_statistics must sum to n = {self.n} for k-norm noise, got {y.sum():g}; pass one release"
            )
        return hyperparameters, y

    def is_surprising(self, noisy_statistics: ArrayLike) -> bool:
        """Return True if y is so far outside the range of s that the noise hardly explains the distance.

        Parameters
        ----------
        noisy_statistics : array_like, shape (d,)

        Returns
        -------
        bool
            True if noise large enough to explain the distance of y, or of one of its components, from the possible
            values has a probability below 1e-6. Possible counts sum to n, and possible sums s of records and s₂ of
            their squares satisfy s² ≤ n·s₂.

        Examples
        --------
        >>> model = ReleaseModel("binomial", 100, Noise("laplace", 1.0))
        >>> model.is_surprising([-9.0]), model.is_surprising([-19.0])
        (False, True)
        >>> ReleaseModel("multinomial", 1000, Noise("laplace", 2.0)).is_surprising([900.0, 900.0, 900.0])
        True
        """
        y = np.asarray(noisy_statistics, dtype=np.float64)
        least, most = self.statistic_range()
        apart = np.abs(y - np.clip(y, least, most)) / self.noise.scale
        d, distance = y.size, self._distance(y) / self.noise.scale
        if self.noise.power == 2:
            tails = np.append(stats.norm.sf(apart), stats.chi.sf(distance / math.sqrt(d), d) if d > 1 else 1.0)
        else:
            tails = np.append(0.5 * np.exp(-apart), special.gammaincc(d, distance) if d > 1 else 1.0)
        return bool(np.any(tails < _SURPRISE))

    def _distance(self, y: Floats) -> float:
        """Return the ℓ₁ distance of y from the possible statistics if there are several components, otherwise 0."""
        if self.entry.is_vector:
            return float(np.maximum(-y, 0.0).sum() + abs(np.maximum(y, 0.0).sum() - self.n))
        if not self.entry.has_square:
            return 0.0
        (low, low_2), (high, high_2) = self.statistic_range()
        s = np.append(np.linspace(low, high, 1_001), np.clip(y[0], low, high))
        nearest = np.clip(y[1], np.maximum(low_2, s**2 / self.n), high_2)
        return float((np.abs(y[0] - s) + np.abs(y[1] - nearest)).min())
