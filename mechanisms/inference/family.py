"""Exponential families of P4: priors, data, sufficient statistics, conjugate updates, sensitivities, moments.

The members are declared in `mechanisms.inference.families`, which also cites the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.inference.records import Bounds, Floats, draw_sums, require_records, sum_records
from mechanisms.inference.region_moments import Moments
from mechanisms.privacy import validate_size

__all__ = ["Family"]


@dataclass(frozen=True)
class Family:
    """Exponential family with a conjugate prior; the members are listed in `mechanisms.inference.families.FAMILIES`.

    Arrays of parameters have shape (trials, p) and statistics (trials, d): p = d = 1, or k for the multinomial.

    Parameters
    ----------
    name : str
        Key in `FAMILIES`.
    hyperparameters : tuple of str
        Names of the prior's parameters. The prior of the multinomial has two or more values of its single name.
    any_sign : int
        Number of leading hyperparameters that may have any sign; the others must be > 0.
    parameter_range, record_range : tuple of float
        Closed intervals for θ and for the entries of a record. An end at infinity, or at 0 for a rate, is not attained.
    integer_records : bool
        True if records are integers.
    bounded_sensitivity : float or None
        Δ if the support of a record is bounded; None if a release needs public bounds.
    marginal : {"beta", "gamma", "normal"}
        Distribution of θ, or of each of its components, under the prior and the posterior.
    is_vector : bool
        True if θ and the statistic have k ≥ 2 components.
    """

    name: str
    hyperparameters: tuple[str, ...]
    any_sign: int
    parameter_range: tuple[float, float]
    record_range: tuple[float, float]
    integer_records: bool
    bounded_sensitivity: float | None
    marginal: Literal["beta", "gamma", "normal"]
    _draw_parameters: Callable[[np.random.Generator, Floats, int], Floats]
    _draw: Callable[[np.random.Generator, Floats, int], NDArray]
    _update: Callable[[Floats, Floats, int], Sequence[Floats]]
    _region_moments: Callable[[Floats, float, float], Moments] | None = None
    is_vector: bool = False

    @property
    def is_truncated(self) -> bool:
        """True if a release needs public bounds outside which records are dropped."""
        return self.bounded_sensitivity is None

    def validate_prior(self, prior: ArrayLike) -> tuple[float, ...]:
        """Return the hyperparameters of a proper prior as floats.

        Parameters
        ----------
        prior : array_like, shape (h,)
            In the order of the table of families, finite, > 0 except for the mean of the normal family.

        Returns
        -------
        tuple of float

        Raises
        ------
        ValueError
            If the number of hyperparameters or a value is invalid.

        Examples
        --------
        >>> from mechanisms.inference.families import FAMILIES
        >>> FAMILIES["exponential"].validate_prior([8, 2])
        (8.0, 2.0)
        """
        names = ", ".join(self.hyperparameters)
        try:
            values = np.array(prior, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"prior must be numbers ({names}), got {prior!r}; pass one number each") from None
        if self.is_vector:
            if values.ndim != 1 or values.size < 2:
                raise ValueError(f"prior must have one alpha per category, at least 2, got {prior!r}; pass k numbers")
        elif values.shape != (len(self.hyperparameters),):
            raise ValueError(
                f"prior must have {len(self.hyperparameters)} numbers ({names}), got {prior!r}; pass one number each"
            )
        positive = np.arange(values.size) >= self.any_sign
        if not np.all(np.isfinite(values) & ((values > 0) | ~positive)):
            rule = "finite" + (f" with {self.hyperparameters[-1]} > 0" if self.any_sign else " and > 0")
            raise ValueError(f"prior ({names}) must be {rule}, got {prior!r}; choose a proper prior")
        return tuple(values.tolist())

    def validate_bounds(self, bounds: Bounds | None) -> Bounds | None:
        """Return public bounds [a, b] as floats, or None for a family with bounded records.

        Parameters
        ----------
        bounds : tuple of float or None
            Finite, a < b, within the range of a record; integers if records are integers. None for bounded records.

        Returns
        -------
        tuple of float or None

        Raises
        ------
        ValueError
            If bounds are missing, superfluous or invalid.

        Examples
        --------
        >>> from mechanisms.inference.families import FAMILIES
        >>> FAMILIES["poisson"].validate_bounds((1, 9))
        (1.0, 9.0)
        """
        if not self.is_truncated:
            if bounds is not None:
                raise ValueError(f"bounds must be None for the {self.name} family, got {bounds}; drop them")
            return None
        try:
            a, b = (float(end) for end in bounds)  # type: ignore[union-attr]
        except (TypeError, ValueError):
            raise ValueError(f"bounds must be two numbers (lower, upper), got {bounds!r}; pass public bounds") from None
        if not (math.isfinite(a) and math.isfinite(b) and a < b):
            raise ValueError(f"bounds must be finite with lower < upper, got ({a}, {b}); choose public bounds")
        if a < self.record_range[0]:
            raise ValueError(f"lower bound must be >= {self.record_range[0]:g}, got {a}; choose a larger one")
        if self.integer_records and not (a.is_integer() and b.is_integer()):
            raise ValueError(f"bounds must be integers for the {self.name} family, got ({a}, {b}); round them")
        return a, b

    def validate_parameters(self, theta: ArrayLike) -> Floats:
        """Return θ as a float64 array and check that it lies in the parameter space.

        Parameters
        ----------
        theta : array_like
            Any shape; for the multinomial the last axis contains the k categories and must sum to one.

        Returns
        -------
        ndarray of float64

        Raises
        ------
        ValueError
            If a value is outside the parameter space.

        Examples
        --------
        >>> from mechanisms.inference.families import FAMILIES
        >>> FAMILIES["binomial"].validate_parameters(0.25)
        array(0.25)
        """
        values = np.asarray(theta, dtype=np.float64)
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
            raise ValueError(f"theta must sum to 1 over the categories, got {values.sum(axis=-1)}; normalise it")
        return values

    def draw_parameters(self, rng: np.random.Generator, prior: ArrayLike, size: int) -> Floats:
        """Draw θ from the prior, or from any conjugate posterior given by its hyperparameters.

        Parameters
        ----------
        rng : numpy.random.Generator
        prior : array_like, shape (h,)
            See `validate_prior`.
        size : int
            Number of draws.

        Returns
        -------
        ndarray of float64, shape (size, p)

        Raises
        ------
        ValueError
            If the prior is invalid.

        Examples
        --------
        >>> from mechanisms.inference.families import FAMILIES
        >>> FAMILIES["multinomial"].draw_parameters(np.random.default_rng(1), (5, 5, 5), size=2).shape
        (2, 3)
        """
        draws = self._draw_parameters(rng, np.array(self.validate_prior(prior)), size)
        return draws.reshape(size, -1)

    def draw_statistics(
        self, rng: np.random.Generator, theta: ArrayLike, n: int, bounds: Bounds | None = None
    ) -> tuple[Floats, Floats]:
        """Draw one data set per trial and return its exact statistics: the sum s, and ŝ of the records within bounds.

        Sums of bounded records are drawn directly. Unbounded records are drawn in batches of at most 2¹⁶.

        Parameters
        ----------
        rng : numpy.random.Generator
        theta : array_like, shape (trials, p)
        n : int
            Records per trial, ≥ 1.
        bounds : tuple of float, optional
            See `validate_bounds`.

        Returns
        -------
        s, truncated : ndarray of float64, shape (trials, d)
            Equal for families without bounds.

        Raises
        ------
        ValueError
            If an argument is invalid.

        Examples
        --------
        >>> from mechanisms.inference.families import FAMILIES
        >>> s, truncated = FAMILIES["poisson"].draw_statistics(np.random.default_rng(1), [[2.0]], n=10, bounds=(1, 3))
        >>> s, truncated
        (array([[21.]]), array([[16.]]))
        """
        values = self.validate_parameters(theta)
        if values.ndim != 2:
            raise ValueError(f"theta must have shape (trials, p), got {values.shape}; add the missing axis")
        n, checked = validate_size(n), self.validate_bounds(bounds)
        if checked is None:
            s = np.asarray(self._draw(rng, values, n), dtype=np.float64)
            return s, s.copy()
        return draw_sums(rng, self._draw, values, n, checked)

    def statistics(self, data: ArrayLike, bounds: Bounds | None = None) -> tuple[Floats, Floats]:
        """Return the exact statistics of one data set: the sum s, and ŝ of the records within bounds.

        Parameters
        ----------
        data : array_like, shape (n,), or (n, k) for the multinomial
            One record per row; one-hot rows for the multinomial.
        bounds : tuple of float, optional
            See `validate_bounds`.

        Returns
        -------
        s, truncated : ndarray of float64, shape (d,)
            Equal for families without bounds.

        Raises
        ------
        ValueError
            If there is no record, or a record is outside the range of the family.

        Examples
        --------
        >>> from mechanisms.inference.families import FAMILIES
        >>> FAMILIES["exponential"].statistics([0.5, 1.0, 7.0], bounds=(0.0, 2.0))
        (array([8.5]), array([1.5]))
        """
        records, checked = np.asarray(data, dtype=np.float64), self.validate_bounds(bounds)
        require_records(records, self.name, self.record_range, self.integer_records)
        if self.is_vector:
            s = records.sum(axis=0)
            return s, s.copy()
        if checked is None:
            return np.array([records.sum()]), np.array([records.sum()])
        return sum_records(records[None, :], checked)

    def posterior(self, prior: ArrayLike, s: ArrayLike, n: int) -> Floats:
        """Return the hyperparameters of the conjugate posterior, given the statistic of all `n` records.

        Parameters
        ----------
        prior : array_like, shape (h,)
        s : array_like, shape (..., d)
            Not checked against the support, as the naive method passes noisy statistics.
        n : int
            Number of records, ≥ 1.

        Returns
        -------
        ndarray of float64, shape (..., h)

        Raises
        ------
        ValueError
            If the prior, the last axis of `s` or `n` is invalid.

        Examples
        --------
        >>> from mechanisms.inference.families import FAMILIES
        >>> FAMILIES["binomial"].posterior((1, 1), [[3.0], [0.0]], n=10)
        array([[ 4., 8.],
               [ 1., 11.]])
        """
        hyperparameters = np.array(self.validate_prior(prior))
        statistic, n = np.asarray(s, dtype=np.float64), validate_size(n)
        d = hyperparameters.size if self.is_vector else 1
        if statistic.ndim == 0 or statistic.shape[-1] != d:
            raise ValueError(f"s must have shape (..., {d}), got {statistic.shape}; add the missing axis")
        return np.stack(np.broadcast_arrays(*self._update(hyperparameters, statistic, n)), axis=-1)

    def sensitivity(self, bounds: Bounds | None = None) -> float:
        """Return Δ, the largest ℓ₁ change of the released statistic when one record is replaced.

        With bounds, a record in [a, b] contributes its value and any other contributes 0. The contribution changes by
        at most the diameter of {0} ∪ [a, b], max(|a|, |b|, b − a).

        Parameters
        ----------
        bounds : tuple of float, optional
            See `validate_bounds`.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If the bounds are invalid.

        Examples
        --------
        >>> from mechanisms.inference.families import FAMILIES
        >>> FAMILIES["multinomial"].sensitivity(), FAMILIES["normal"].sensitivity((-1.0, 2.0))
        (2.0, 3.0)
        """
        checked = self.validate_bounds(bounds)
        if checked is None:
            assert self.bounded_sensitivity is not None
            return self.bounded_sensitivity
        a, b = checked
        return max(abs(a), abs(b), b - a)

    def region_moments(self, theta: ArrayLike, bounds: Bounds) -> Moments:
        """Return probability, mean and variance of one record in each of the regions x < a, a ≤ x ≤ b, x > b.

        The sum of the records in a region has mean n·q·μ and variance n·q·Σ + n·q·(1 − q)·μ². The sums over two regions
        have covariance −n·q_r·q_s·μ_r·μ_s, because the numbers of records per region are multinomial.

        Parameters
        ----------
        theta : array_like
            Parameters of a one-parameter truncated family, any shape.
        bounds : tuple of float
            See `validate_bounds`.

        Returns
        -------
        q, mean, variance : ndarray of float64, shape theta.shape + (3,)
            Probability of the region (lower, centre, upper), and mean μ and variance Σ of a record given that it lies
            in the region. Relative error below 1e-10 if q > 1e-250 (and θ < 1e5 for Poisson). Empty regions have q = 0.

        Raises
        ------
        ValueError
            If the family has no bounds, or an argument is invalid.

        Examples
        --------
        >>> from mechanisms.inference.families import FAMILIES
        >>> q, mean, variance = FAMILIES["exponential"].region_moments(1.0, (0.0, np.log(2)))
        >>> q, mean[1:]
        (array([0. , 0.5, 0.5]), array([0.30685282, 1.69314718]))
        """
        if self._region_moments is None:
            raise ValueError(f"family must have bounds, got {self.name}; use exponential, poisson or normal")
        values, checked = self.validate_parameters(theta), self.validate_bounds(bounds)
        assert checked is not None
        return self._region_moments(values, *checked)
