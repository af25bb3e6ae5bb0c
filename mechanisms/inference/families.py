"""The models of P4, each declared once: records, prior, conjugate update, sensitivity, moments of cut-off records.

The sufficient statistic of n records x₁, …, xₙ is their sum s = Σ xᵢ in every family (a record of the multinomial is a
one-hot row). Where records are unbounded, a release needs public bounds [a, b]; a record outside is dropped, and the
statistic is ŝ = Σ 1[a ≤ xᵢ ≤ b]·xᵢ.

============  ========================  =====================================  ==========================
name          a record                  prior (its hyperparameters)            sensitivity Δ
============  ========================  =====================================  ==========================
binomial      0 or 1, mean θ            Beta(alpha, beta)                      1
multinomial   one-hot row, mean θ       Dir(alpha₁, …, alphaₖ), k ≥ 2          2
exponential   x ≥ 0, rate θ             Gamma(shape, rate)                     b
poisson       whole x ≥ 0, mean θ       Gamma(shape, rate)                     b
normal        x real, N(θ, 1)           N(mean, variance)                      max(|a|, |b|, b − a)
============  ========================  =====================================  ==========================

The known variance of the normal family is 1: measure the records in units of their standard deviation.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018, sections 2
and 3.3 (truncated families).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.jit import kernel
from mechanisms.privacy import validate_size

__all__ = ["FAMILIES", "Family"]

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
Moments = tuple[Floats, Floats, Floats]

_RECORDS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Family:
    """One model; its row of the module's table. Take it from `FAMILIES`.

    Arrays of parameters have shape (trials, p) and statistics (trials, d): p = d = 1, or k for the multinomial.

    Parameters
    ----------
    name : str
        Its key in `FAMILIES`.
    hyperparameters : tuple of str
        Names of the prior's numbers; the multinomial takes two or more of its one.
    any_sign : int
        So many leading hyperparameters are real numbers; the others are > 0.
    parameter_range, record_range : tuple of float
        Closed intervals for θ and for a record's entries. An end at infinity, or at 0 for a rate, is not attained.
    whole_records : bool
        Whether records are whole numbers.
    bounded_sensitivity : float or None
        Δ if records are bounded by themselves; None if a release needs public bounds.
    """

    name: str
    hyperparameters: tuple[str, ...]
    any_sign: int
    parameter_range: tuple[float, float]
    record_range: tuple[float, float]
    whole_records: bool
    bounded_sensitivity: float | None
    _draw_parameters: Callable[[np.random.Generator, Floats, int], Floats]
    _draw: Callable[[np.random.Generator, Floats, int], NDArray]
    _update: Callable[[Floats, Floats, int], Sequence[Floats]]
    _region_moments: Callable[[Floats, float, float], Moments] | None = None

    @property
    def is_truncated(self) -> bool:
        """Whether a release needs public bounds outside which records are dropped."""
        return self.bounded_sensitivity is None

    def validate_prior(self, prior: ArrayLike) -> tuple[float, ...]:
        """Return the hyperparameters as floats, refusing what is not a proper prior.

        Parameters
        ----------
        prior : array_like, shape (h,)
            In the order of the module's table, finite, > 0 but for the mean of the normal family.

        Returns
        -------
        tuple of float

        Raises
        ------
        ValueError
            If their number or a value is not allowed.

        Examples
        --------
        >>> FAMILIES["exponential"].validate_prior([8, 2])
        (8.0, 2.0)
        """
        names = ", ".join(self.hyperparameters)
        try:
            values = np.array(prior, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"prior must be numbers ({names}), got {prior!r}; pass one number each") from None
        if self.name == "multinomial":
            if values.ndim != 1 or values.size < 2:
                raise ValueError(f"prior must have one alpha a cell, at least 2, got {prior!r}; pass k numbers")
        elif values.shape != (len(self.hyperparameters),):
            raise ValueError(f"prior must have {len(self.hyperparameters)} numbers ({names}), got {prior!r}; pass them")
        positive = np.arange(values.size) >= self.any_sign
        if not np.all(np.isfinite(values) & ((values > 0) | ~positive)):
            rule = "finite" + (f" with {self.hyperparameters[-1]} > 0" if self.any_sign else " and > 0")
            raise ValueError(f"prior ({names}) must be {rule}, got {prior!r}; choose a proper prior")
        return tuple(values.tolist())

    def validate_bounds(self, bounds: Bounds | None) -> Bounds | None:
        """Return public bounds [a, b] as floats, or None for a family whose records are bounded by themselves.

        Parameters
        ----------
        bounds : tuple of float or None
            Finite, a < b, within the range of a record, whole numbers where records are.

        Returns
        -------
        tuple of float or None

        Raises
        ------
        ValueError
            If bounds are missing, not wanted, or not allowed.

        Examples
        --------
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
            raise ValueError(f"lower bound must be >= {self.record_range[0]:g}, got {a}; raise it")
        if self.whole_records and not (a.is_integer() and b.is_integer()):
            raise ValueError(f"bounds must be whole numbers for the {self.name} family, got ({a}, {b}); round them")
        return a, b

    def validate_parameters(self, theta: ArrayLike) -> Floats:
        """Return θ as a float64 array, refusing values outside the parameter space.

        Parameters
        ----------
        theta : array_like
            Any shape; the last axis holds the cells of the multinomial and must sum to one.

        Returns
        -------
        ndarray of float64

        Raises
        ------
        ValueError
            If a value is outside.

        Examples
        --------
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
        if self.name == "multinomial" and not np.allclose(values.sum(axis=-1), 1.0, rtol=0.0, atol=1e-12):
            raise ValueError(f"theta must sum to 1 over the cells, got {values.sum(axis=-1)}; normalise it")
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
            If the prior is not allowed.

        Examples
        --------
        >>> FAMILIES["multinomial"].draw_parameters(np.random.default_rng(1), (5, 5, 5), size=2).shape
        (2, 3)
        """
        draws = self._draw_parameters(rng, np.array(self.validate_prior(prior)), size)
        return draws.reshape(size, -1)

    def draw_statistics(
        self, rng: np.random.Generator, theta: ArrayLike, n: int, bounds: Bounds | None = None
    ) -> tuple[Floats, Floats]:
        """Draw a data set a trial and return its noise-free statistics: the sum s, and ŝ of the records within bounds.

        Sums of bounded records are drawn directly; unbounded records are drawn one by one, at most 2¹⁶ at a time.

        Parameters
        ----------
        rng : numpy.random.Generator
        theta : array_like, shape (trials, p)
        n : int
            Records a trial, ≥ 1.
        bounds : tuple of float, optional
            See `validate_bounds`.

        Returns
        -------
        s, truncated : ndarray of float64, shape (trials, d)
            Equal for families without bounds.

        Raises
        ------
        ValueError
            If an argument is not allowed.

        Examples
        --------
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
        s, truncated = np.zeros(values.shape), np.zeros(values.shape)
        trials_at_once = max(1, _RECORDS_AT_ONCE // n)
        for start in range(0, len(values), trials_at_once):
            rows = slice(start, start + trials_at_once)
            for done in range(0, n, _RECORDS_AT_ONCE):
                records = self._draw(rng, values[rows], min(n - done, _RECORDS_AT_ONCE))
                all_records, within = _sums(records, checked)
                s[rows] += all_records[:, None]
                truncated[rows] += within[:, None]
        return s, truncated

    def statistics(self, data: ArrayLike, bounds: Bounds | None = None) -> tuple[Floats, Floats]:
        """Return the noise-free statistics of one data set: the sum s, and ŝ of the records within bounds.

        Parameters
        ----------
        data : array_like, shape (n,), or (n, k) for the multinomial
            One record a row; one-hot rows for the multinomial.
        bounds : tuple of float, optional
            See `validate_bounds`.

        Returns
        -------
        s, truncated : ndarray of float64, shape (d,)
            Equal for families without bounds.

        Raises
        ------
        ValueError
            If there is no record, or one outside the range of records.

        Examples
        --------
        >>> FAMILIES["exponential"].statistics([0.5, 1.0, 7.0], bounds=(0.0, 2.0))
        (array([8.5]), array([1.5]))
        """
        records, checked = np.asarray(data, dtype=np.float64), self.validate_bounds(bounds)
        n_axes = 2 if self.name == "multinomial" else 1
        if records.ndim != n_axes or 0 in records.shape:
            shape = "(n, k)" if n_axes == 2 else "(n,)"
            raise ValueError(f"data must have shape {shape}, n >= 1, got {records.shape}; pass one record a row")
        low, high = self.record_range
        allowed = np.isfinite(records) & (records >= low) & (records <= high)
        if self.whole_records:
            allowed &= records == np.floor(records)
        if not np.all(allowed):
            kind = "whole numbers" if self.whole_records else "finite numbers"
            raise ValueError(
                f"data must be {kind} between {low:g} and {high:g} for the {self.name} family, "
                f"got {records[~allowed].flat[0]}; remove or correct such records"
            )
        if n_axes == 2:
            if not np.all(records.sum(axis=1) == 1):
                raise ValueError("data must have one-hot rows, got a row whose sum is not 1; encode one cell a record")
            s = records.sum(axis=0)
            return s, s.copy()
        if checked is None:
            return np.array([records.sum()]), np.array([records.sum()])
        return _sums(records[None, :], checked)

    def posterior(self, prior: ArrayLike, s: ArrayLike, n: int) -> Floats:
        """Return the hyperparameters of the conjugate posterior, given the statistic of all `n` records.

        Parameters
        ----------
        prior : array_like, shape (h,)
        s : array_like, shape (..., d)
            Not checked against the support: the naive method puts noisy statistics in.
        n : int
            Number of records, ≥ 1.

        Returns
        -------
        ndarray of float64, shape (..., h)

        Raises
        ------
        ValueError
            If the prior, the last axis of `s` or `n` is not allowed.

        Examples
        --------
        >>> FAMILIES["binomial"].posterior((1, 1), [[3.0], [0.0]], n=10)
        array([[ 4., 8.],
               [ 1., 11.]])
        """
        hyperparameters = np.array(self.validate_prior(prior))
        statistic, n = np.asarray(s, dtype=np.float64), validate_size(n)
        d = hyperparameters.size if self.name == "multinomial" else 1
        if statistic.ndim == 0 or statistic.shape[-1] != d:
            raise ValueError(f"s must have shape (..., {d}), got {statistic.shape}; add the missing axis")
        return np.stack(np.broadcast_arrays(*self._update(hyperparameters, statistic, n)), axis=-1)

    def sensitivity(self, bounds: Bounds | None = None) -> float:
        """Return Δ, the largest ℓ₁ move of the released statistic when one record is replaced.

        With bounds, a record contributes itself if it lies in [a, b] and 0 if not, so that the contribution moves by at
        most the spread of {0} ∪ [a, b]: max(|a|, |b|, b − a).

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
            If the bounds are not allowed.

        Examples
        --------
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
        """Return the law of one record over the three regions x < a, a ≤ x ≤ b, x > b.

        The records of a region sum to a total with mean n·q·μ and variance n·q·Σ + n·q·(1 − q)·μ²; the totals of two
        regions have covariance −n·q_r·q_s·μ_r·μ_s, as one multinomial law splits the n records.

        Parameters
        ----------
        theta : array_like
            Parameters of a one-parameter truncated family, any shape.
        bounds : tuple of float
            See `validate_bounds`.

        Returns
        -------
        q, mean, variance : ndarray of float64, shape theta.shape + (3,)
            Probability of the region (lower, centre, upper), and mean μ and variance Σ of a record known to lie in it.
            Accurate to a relative 1e-10 where q is above 1e-250 (Poisson: and θ below 1e5). Empty regions have q = 0.

        Raises
        ------
        ValueError
            If the family has no bounds, or an argument is not allowed.

        Examples
        --------
        >>> q, mean, variance = FAMILIES["exponential"].region_moments(1.0, (0.0, np.log(2)))
        >>> q, mean[1:]
        (array([0. , 0.5, 0.5]), array([0.30685282, 1.69314718]))
        """
        if self._region_moments is None:
            raise ValueError(f"family must have bounds, got {self.name}; use exponential, poisson or normal")
        values, checked = self.validate_parameters(theta), self.validate_bounds(bounds)
        assert checked is not None
        return self._region_moments(values, *checked)


def _sums(records: NDArray, bounds: Bounds) -> tuple[Floats, Floats]:
    """Return the sums over the last axis, of all records and of those within bounds."""
    within = (records >= bounds[0]) & (records <= bounds[1])
    # Not a sum over `where=within`, which numpy does record by record.
    return records.sum(axis=-1, dtype=np.float64), (records * within).sum(axis=-1, dtype=np.float64)


# 1/t − 1/(eᵗ − 1) = ½ − Σ_{k≥1} B₂ₖ·t^(2k−1)/(2k)!, Bernoulli numbers B₂ₖ; at t ≤ 1 the tenth term is below 1e-16.
_K = np.arange(1, 11)
_SERIES = special.bernoulli(20)[2::2] / special.factorial(2 * _K)


def _tilted_unit_interval(t: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of the density ∝ exp(−t·u) on [0, 1], t ≥ 0: the closed form, its series for small t."""
    small = np.minimum(t, 1.0)
    series_mean = 0.5 - small * np.polynomial.polynomial.polyval(small**2, _SERIES)
    series_variance = np.polynomial.polynomial.polyval(small**2, _SERIES * (2 * _K - 1))
    large = np.maximum(t, 1.0)
    decay, rest = np.exp(-large), -np.expm1(-large)
    mean, variance = 1.0 / large - decay / rest, 1.0 / large**2 - decay / rest**2
    return np.where(t < 1, series_mean, mean), np.where(t < 1, series_variance, variance)


def _exponential_regions(theta: Floats, a: float, b: float) -> Moments:
    below_mean, below_variance = _tilted_unit_interval(theta * a)
    between_mean, between_variance = _tilted_unit_interval(theta * (b - a))
    q = [-np.expm1(-theta * a), np.exp(-theta * a) * -np.expm1(-theta * (b - a)), np.exp(-theta * b)]
    mean = [a * below_mean, a + (b - a) * between_mean, b + 1.0 / theta]
    variance = [a**2 * below_variance, (b - a) ** 2 * between_variance, theta**-2.0]
    return np.stack(q, axis=-1), np.stack(mean, axis=-1), np.stack(variance, axis=-1)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_NEGLIGIBLE_EXPONENT = 40.0


def _normal_interval(theta: Floats, low: float, high: float) -> Moments:
    """Return probability, mean and variance of N(theta, 1) on [low, high], either end may be infinite.

    The closed forms cancel in narrow intervals and in far tails. Here 64 Gauss–Legendre nodes cover the part of the
    interval where the density is above exp(−40) of its largest value there, at x₀: every sum has terms of one sign.
    """
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


def _normal_regions(theta: Floats, a: float, b: float) -> Moments:
    parts = [_normal_interval(theta, low, high) for low, high in ((-np.inf, a), (a, b), (b, np.inf))]
    q, mean, variance = (np.stack(moment, axis=-1) for moment in zip(*parts, strict=True))
    return q, mean, variance


def _poisson_regions(theta: Floats, a: float, b: float) -> Moments:
    moments = np.zeros((3, theta.size, 3))
    _fill_poisson_regions(np.ravel(theta), np.array([0.0, a, b + 1.0, np.inf]), moments)
    q, mean, variance = moments.reshape(3, *theta.shape, 3)
    return q, mean, variance


@kernel
def _fill_poisson_regions(theta, starts, moments):
    """Sum the law outwards from its largest term in each region: the shifted distribution functions would cancel."""
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


def _gamma_parameters(rng: np.random.Generator, prior: Floats, size: int) -> Floats:
    return rng.gamma(prior[0], size=size) / prior[1]


FAMILIES: dict[str, Family] = {
    "binomial": Family(
        name="binomial",
        hyperparameters=("alpha", "beta"),
        any_sign=0,
        parameter_range=(0.0, 1.0),
        record_range=(0.0, 1.0),
        whole_records=True,
        bounded_sensitivity=1.0,
        _draw_parameters=lambda rng, prior, size: rng.beta(prior[0], prior[1], size=size),
        _draw=lambda rng, theta, n: rng.binomial(n, theta),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n - s[..., 0]),
    ),
    "multinomial": Family(
        name="multinomial",
        hyperparameters=("alpha",),
        any_sign=0,
        parameter_range=(0.0, 1.0),
        record_range=(0.0, 1.0),
        whole_records=True,
        bounded_sensitivity=2.0,
        _draw_parameters=lambda rng, prior, size: rng.dirichlet(prior, size=size),
        _draw=lambda rng, theta, n: rng.multinomial(n, theta),
        _update=lambda prior, s, n: [alpha + s[..., cell] for cell, alpha in enumerate(prior)],
    ),
    "exponential": Family(
        name="exponential",
        hyperparameters=("shape", "rate"),
        any_sign=0,
        parameter_range=(0.0, math.inf),
        record_range=(0.0, math.inf),
        whole_records=False,
        bounded_sensitivity=None,
        _draw_parameters=_gamma_parameters,
        _draw=lambda rng, theta, n: rng.standard_exponential((len(theta), n)) / theta,
        _update=lambda prior, s, n: (prior[0] + n, prior[1] + s[..., 0]),
        _region_moments=_exponential_regions,
    ),
    "poisson": Family(
        name="poisson",
        hyperparameters=("shape", "rate"),
        any_sign=0,
        parameter_range=(0.0, math.inf),
        record_range=(0.0, math.inf),
        whole_records=True,
        bounded_sensitivity=None,
        _draw_parameters=_gamma_parameters,
        _draw=lambda rng, theta, n: rng.poisson(theta, size=(len(theta), n)),
        _update=lambda prior, s, n: (prior[0] + s[..., 0], prior[1] + n),
        _region_moments=_poisson_regions,
    ),
    "normal": Family(
        name="normal",
        hyperparameters=("mean", "variance"),
        any_sign=1,
        parameter_range=(-math.inf, math.inf),
        record_range=(-math.inf, math.inf),
        whole_records=False,
        bounded_sensitivity=None,
        _draw_parameters=lambda rng, prior, size: prior[0] + math.sqrt(prior[1]) * rng.standard_normal(size),
        _draw=lambda rng, theta, n: theta + rng.standard_normal((len(theta), n)),
        _update=lambda prior, s, n: (
            (prior[0] / prior[1] + s[..., 0]) / (1 / prior[1] + n),
            1 / (1 / prior[1] + n),
        ),
        _region_moments=_normal_regions,
    ),
}
"""The families by name."""
