"""Posterior of one coefficient of a linear regression, vectorised over partitions, in closed form or by quadrature.

y = Xβ + e, e ~ N(0, σ²I), and the likelihood may be raised to a power M. Priors:

* `FlatPrior`: β ∝ 1, and σ² ∝ 1/σ² if it is unknown;
* `ZellnerPrior`: β | σ² ~ N(0, gσ²(XᵀX)⁻¹), σ² ∝ 1/σ²; X is the design of the partition;
* `ConjugatePrior`: β | σ² ~ N(μ, σ²Λ⁻¹), σ² ~ IG(a, b);
* `SemiConjugatePrior`: β ~ N(μ, Λ⁻¹) and, independently, σ² ~ IG(a, b).

**Coordinates.** Let XᵀX = CCᵀ, t = C⁻¹Xᵀ(y − Xμ) and R the residual sum of squares of the least squares fit, so that
‖y − Xβ‖² = R + ‖t − Cᵀ(β − μ)‖². Let Λ = LLᵀ and CᵀL⁻ᵀ = P·diag(√λ)·Qᵀ. With η = QᵀLᵀ(β − μ), and t replaced by Pᵀt,

    ‖y − Xβ‖² = R + Σ (tᵢ − √λᵢ·ηᵢ)²,   (β − μ)ᵀΛ(β − μ) = Σ ηᵢ²,   β_k = μ_k + Σ aᵢηᵢ.

The coordinates are independent, each with its own prior and likelihood. Zellner's prior has λᵢ = g for all i.

**Posterior.** If the prior scales with σ², β_k is normal given σ², and has a t distribution with σ² integrated out:

    mean μ_k + Σ aᵢ·M√λᵢtᵢ/(1 + Mλᵢ),   variance σ²·Σ aᵢ²/(1 + Mλᵢ),
    σ² ~ IG(a + Mn/2, b + ½(MR + Σ Mtᵢ²/(1 + Mλᵢ))).

Under the semi-conjugate prior λᵢ/σ² replaces λᵢ, and v = σ² has the density

    p(v) ∝ v^(−a−1−Mn/2) · exp(−(b + MR/2)/v) · Π (1 + Mλᵢ/v)^(−½) · exp(−½ Σ Mtᵢ²/(v + Mλᵢ)),

which is integrated by the trapezoidal rule in ln v, so that β_k has a mixture of normal distributions.

Rows are centred to avoid cancellation for columns with large means: with an intercept, X is (1, x − x̄) and the prior is
transformed accordingly. The relative rounding error of R remains proportional to Σ(y − ȳ)²/R.

References
----------
P2: Amitai, "Bayesian Inference Via Partitioning Under Differential Privacy", Duke University 2018, equations 3.1 to
3.5 and 4.1. Li, Srivastava & Dunson, "Simple, scalable and accurate posterior interval estimation", Biometrika 104(3),
2017 (powers of the likelihood).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.regression.coefficient_posterior import CoefficientPosterior
from mechanisms.regression.prior import ConjugatePrior, Prior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.statistics import RegressionStatistics

__all__ = ["coefficient_posterior"]

Floats = NDArray[np.float64]

_COLLINEAR = 1e-11  # eigenvalues of the correlation matrix below this are treated as zero
_ROUNDING = 1e-14  # a standard deviation below this fraction of the mean is treated as rounding error
_NEGLIGIBLE = 40.0  # nats below its maximum at which the density of ln σ² is truncated
_MOST_POINTS = 4096
_MOST_ITERATIONS = 200


def coefficient_posterior(
    statistics: RegressionStatistics,
    k: int,
    prior: Prior,
    error_variance: float | None = None,
    power: ArrayLike = 1.0,
) -> CoefficientPosterior:
    """Return the posterior of coefficient k in each partition.

    Parameters
    ----------
    statistics : RegressionStatistics
        Statistics of shape (...).
    k : int
        0 ≤ k < d; 0 is the intercept if there is one.
    prior : Prior
        Prior of every partition.
    error_variance : float, optional
        σ² if it is known; unknown by default.
    power : array_like, shape () or (...)
        Power M > 0 of the likelihood.

    Returns
    -------
    CoefficientPosterior
        Posterior of shape (...).

    Raises
    ------
    ValueError
        If an argument is invalid, or a partition has collinear columns or too few rows for a flat or Zellner prior;
        the message states the first such partition.

    Examples
    --------
    >>> from mechanisms.regression.prior import FlatPrior
    >>> from mechanisms.regression.statistics import partition_statistics
    >>> x, y = [[0.0], [1.0], [2.0], [3.0]], [0.9, 3.1, 5.0, 7.2]
    >>> rows = partition_statistics(x, y, [0, 0, 0, 0])
    >>> coefficient_posterior(rows, 1, FlatPrior(), error_variance=0.01).quantile([0.025, 0.975]).round(3)
    array([[1.992, 2.168]])
    >>> for prior in (FlatPrior(), ZellnerPrior(g=4), ConjugatePrior(), SemiConjugatePrior()):
    ...     print(coefficient_posterior(rows, 1, prior).mean().round(4), end=" ")
    [2.08] [1.664] [2.0799] [2.0799]
    """
    d = statistics.n_coefficients
    if not 0 <= k < d or int(k) != k:
        raise ValueError(f"k must be an integer from 0 to {d - 1}, got {k}; choose one of the {d} coefficients")
    if error_variance is not None and not (math.isfinite(error_variance) and error_variance > 0):
        raise ValueError(f"error_variance must be finite and > 0, got {error_variance}; pass None if it is unknown")
    M = np.broadcast_to(np.asarray(power, dtype=np.float64), statistics.n_rows.shape)[..., None]
    if not np.all(np.isfinite(M) & (M > 0)):
        raise ValueError(f"power must be finite and > 0, got {power!r}; pass 1.0 for the untempered likelihood")
    rows = np.multiply(statistics.n_rows, M[..., 0])
    if not isinstance(prior, ConjugatePrior):
        inverse_g = 1.0 / prior.g if isinstance(prior, ZellnerPrior) else 0.0
        a, t, residual = _orthonormal(statistics, k)
        location = np.sum(a * t * M, axis=-1) / (M[..., 0] + inverse_g)
        variance = np.sum(a * a, axis=-1) / (M[..., 0] + inverse_g)
        shape = rows / 2 if inverse_g else (rows - d) / 2
        share = M[..., 0] * inverse_g / (M[..., 0] + inverse_g)
        rate = (M[..., 0] * residual + share * np.sum(t * t, axis=-1)) / 2
        return _location_scale(location, variance, shape, rate, error_variance)
    a, lam, t, residual, centre = _diagonal(statistics, k, prior)
    shape, rate = prior.shape + rows / 2, prior.rate + M[..., 0] * residual / 2
    if isinstance(prior, SemiConjugatePrior):
        if error_variance is None:
            log_v, weights = _integrate_variance(shape, rate, M * lam, M * t * t)
            v = np.exp(log_v)[..., None]
        else:
            v = np.full((*shape.shape, 1, 1), error_variance)
            weights = np.ones((*shape.shape, 1))
        a, lam, t, M = (each[..., None, :] for each in (a, lam, t, M))
        locations = centre + np.sum(a * t * M * np.sqrt(lam) / (v + M * lam), axis=-1)
        scales = np.sqrt(np.sum(a * a * v / (v + M * lam), axis=-1))
        return CoefficientPosterior(weights, locations, scales, np.full(shape.shape, math.inf))
    location = centre + np.sum(a * t * M * np.sqrt(lam) / (1 + M * lam), axis=-1)
    variance = np.sum(a * a / (1 + M * lam), axis=-1)
    rate = rate + np.sum(M * t * t / (1 + M * lam), axis=-1) / 2
    return _location_scale(location, variance, shape, rate, error_variance)


def _location_scale(
    location: Floats, variance: Floats, shape: Floats, rate: Floats, error_variance: float | None
) -> CoefficientPosterior:
    """Return N(location, σ²·variance) for known σ², otherwise the t distribution for σ² ~ IG(shape, rate)."""
    if error_variance is not None:
        factor, degrees = np.full_like(rate, error_variance), np.full_like(rate, math.inf)
    else:
        _raise_where(
            ~((shape > 0) & (rate > 0)),
            "must have more rows than coefficients and positive residuals if the error variance is unknown; "
            "use larger partitions or a ConjugatePrior",
        )
        factor, degrees = rate / shape, 2.0 * shape
    weights = np.ones((*location.shape, 1))
    return CoefficientPosterior(weights, location[..., None], np.sqrt(factor * variance)[..., None], degrees)


def _raise_where(marked: NDArray[np.bool_], message: str) -> None:
    """Raise ValueError with the first marked partition."""
    if np.any(marked):
        place = ", ".join(map(str, np.argwhere(marked)[0])) or "0"
        raise ValueError(f"partition {place} {message}")


def _factor(statistics: RegressionStatistics) -> tuple[Floats, Floats]:
    """Return C with XᵀX = CCᵀ and its pseudo-inverse, where X is (1, x − x̄) or, without an intercept, x.

    Columns are scaled to unit length so that the rank does not depend on their units.
    """
    root_n = np.sqrt(statistics.n_rows)
    if statistics.intercept:
        moments = statistics.scatter[..., :-1, :-1]
        rounding = _ROUNDING * root_n[..., None] * np.abs(statistics.means[..., :-1])
    else:
        moments, rounding = statistics.XtX, np.zeros(1)
    length = np.sqrt(np.diagonal(moments, axis1=-2, axis2=-1))
    scale = _inverse(np.where(length > rounding, length, 0.0))
    values, vectors = np.linalg.eigh(moments * scale[..., :, None] * scale[..., None, :])
    root = np.sqrt(np.where(values > _COLLINEAR, values, 0.0))
    C = length[..., :, None] * vectors * root[..., None, :]
    C_inverse = np.swapaxes(vectors * scale[..., :, None] * _inverse(root)[..., None, :], -1, -2)
    if not statistics.intercept:
        return C, C_inverse
    return _bordered(root_n, C), _bordered(_inverse(root_n), C_inverse)


def _inverse(values: Floats) -> Floats:
    """Return 1/x for x > 0 and 0 otherwise."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def _bordered(corner: Floats, block: Floats) -> Floats:
    """Return block diagonal matrices with a scalar and a matrix block."""
    d = block.shape[-1] + 1
    whole = np.zeros((*block.shape[:-2], d, d))
    whole[..., 0, 0] = corner
    whole[..., 1:, 1:] = block
    return whole


def _fit(statistics: RegressionStatistics, C_inverse: Floats) -> tuple[Floats, Floats]:
    """Return t = C⁻¹Xᵀy and the residual sum of squares."""
    if statistics.intercept:
        moment = np.concatenate(
            [(statistics.n_rows * statistics.means[..., -1])[..., None], statistics.scatter[..., :-1, -1]], axis=-1
        )
        total = statistics.scatter[..., -1, -1]
    else:
        moment, total = statistics.Xty, statistics.yty
    t = np.einsum("...ij,...j->...i", C_inverse, moment)
    explained = np.sum(t[..., int(statistics.intercept) :] ** 2, axis=-1)
    return t, np.maximum(total - explained, 0.0)


def _weights_of(statistics: RegressionStatistics, k: int) -> Floats:
    """Return w with β_k = w·γ, where γ are the coefficients of (1, x − x̄): β₀ = γ₀ − x̄·γ₁, with equal slopes."""
    w = np.zeros((*statistics.n_rows.shape, statistics.n_coefficients))
    w[..., k] = 1.0
    if statistics.intercept and k == 0:
        w[..., 1:] = -statistics.means[..., :-1]
    return w


def _orthonormal(statistics: RegressionStatistics, k: int) -> tuple[Floats, Floats, Floats]:
    """Return a and t of the least squares estimate a·t of β_k, and the residual sum of squares."""
    C, C_inverse = _factor(statistics)
    _raise_where(
        ~np.any(C != 0, axis=-2).all(axis=-1),
        "must have at least as many rows as coefficients and linearly independent columns; use larger partitions, "
        "fewer columns, or a ConjugatePrior or SemiConjugatePrior",
    )
    t, residual = _fit(statistics, C_inverse)
    return np.einsum("...ij,...j->...i", C_inverse, _weights_of(statistics, k)), t, residual


def _diagonal(
    statistics: RegressionStatistics, k: int, prior: ConjugatePrior
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Return a, λ, t, the residual sum of squares and μ_k, as defined in the module docstring."""
    d = statistics.n_coefficients
    mean, L = prior.arrays(d)
    C, C_inverse = _factor(statistics)
    t, residual = _fit(statistics.add_to_outcome(-mean), C_inverse)
    # γ = Tβ transforms the factor of XᵀX to the coordinates Lᵀβ
    T = np.broadcast_to(np.eye(d), (*statistics.n_rows.shape, d, d)).copy()
    if statistics.intercept:
        T[..., 0, 1:] = statistics.means[..., :-1]
    L_inverse = np.linalg.inv(L)
    P, root, Qt = np.linalg.svd(np.swapaxes(C, -1, -2) @ T @ L_inverse.T)
    a = Qt @ L_inverse[:, k]
    return a, root**2, np.einsum("...ji,...j->...i", P, t), residual, float(mean[k])


def _integrate_variance(shape: Floats, rate: Floats, c: Floats, u: Floats) -> tuple[Floats, Floats]:
    """Return quadrature points ln v and weights for the posterior of ln v.

    The density of ln v is ∝ v^(−A)·exp(−B/v)·Π (1 + cᵢ/v)^(−½)·exp(−½Σ uᵢ/(v + cᵢ)). Its stationary points solve
    A·v = F(v) = B + ½Σ cᵢv/(v + cᵢ) + ½Σ uᵢv²/(v + cᵢ)². As F increases, fixed-point iteration from below and from
    above encloses all of them. At a peak the curvature is at most 2A + d/8, which determines the step.
    """
    A, B = shape[..., None], rate[..., None]

    def moved(v: Floats) -> Floats:
        part = v / (v + c)
        return B + 0.5 * np.sum(c * part + u * part**2, axis=-1, keepdims=True)

    low, high = B / A, (B + 0.5 * np.sum(c + u, axis=-1, keepdims=True)) / A
    for _ in range(_MOST_ITERATIONS):
        new_low, new_high = moved(low) / A, moved(high) / A
        settled = np.all(new_low - low <= 1e-3 * low) and np.all(high - new_high <= 1e-3 * high)
        low, high = new_low, new_high
        if settled:
            break

    def log_density(s: Floats) -> Floats:
        v = np.exp(s)[..., None]
        inner = np.log1p(c[..., None, :] / v) + u[..., None, :] / (v + c[..., None, :])
        return -A * s - B / v[..., 0] - 0.5 * np.sum(inner, axis=-1)

    first, last = np.log(low), np.log(high)
    step = np.minimum(0.9 / np.sqrt(2.0 * A + c.shape[-1] / 8.0), 0.25)
    peak = np.maximum(log_density(first), log_density(last))
    ends = []
    for start, sign in ((first, -1.0), (last, 1.0)):
        reach = step.copy()
        for _ in range(_MOST_ITERATIONS):
            near = log_density(start + sign * reach) > peak - _NEGLIGIBLE
            if not near.any():
                break
            reach = np.where(near, 1.5 * reach, reach)
        ends.append(start + sign * reach)
    n_points = 2 + int(np.max((ends[1] - ends[0]) / step, initial=0.0))
    if n_points > _MOST_POINTS:
        raise ValueError(
            f"the posterior of the error variance must be resolved by at most {_MOST_POINTS} quadrature points, got "
            f"{n_points}; prior and rows conflict, use a wider prior"
        )
    s = ends[0] + (ends[1] - ends[0]) * np.linspace(0.0, 1.0, n_points)
    logs = log_density(s)
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return s, weights / weights.sum(axis=-1, keepdims=True)
