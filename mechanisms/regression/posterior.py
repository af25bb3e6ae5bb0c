"""Posterior of one coefficient of a linear regression, vectorised over partitions, in closed form or by quadrature.

The model is y = Xβ + e, e ~ N(0, σ²I), the likelihood may be raised to a power M, and the priors are those of `prior`.

**Coordinates.** Let XᵀX = CCᵀ, t = C⁻¹Xᵀ(y − Xμ) and R the residual sum of squares of the least squares fit, so that
‖y − Xβ‖² = R + ‖t − Cᵀ(β − μ)‖². Let Λ = LLᵀ and CᵀL⁻ᵀ = P·diag(√λ)·Qᵀ. With η = QᵀLᵀ(β − μ), and t replaced by Pᵀt,

    ‖y − Xβ‖² = R + Σ (tᵢ − √λᵢ·ηᵢ)²,   (β − μ)ᵀΛ(β − μ) = Σ ηᵢ²,   β_k = μ_k + Σ aᵢηᵢ.

The coordinates are independent, each with its own prior and likelihood. Zellner's prior has λᵢ = g for all i.

**Posterior.** If the prior variance of β is proportional to σ², β_k is normal given σ², and has a t distribution with
σ² integrated out:

    mean μ_k + Σ aᵢ·M√λᵢtᵢ/(1 + Mλᵢ),   variance σ²·Σ aᵢ²/(1 + Mλᵢ),
    σ² ~ IG(a + Mn/2, b + ½(MR + Σ Mtᵢ²/(1 + Mλᵢ))).

Under the semi-conjugate prior λᵢ/σ² replaces λᵢ, and v = σ² has the density

    p(v) ∝ v^(−a−1−Mn/2) · exp(−(b + MR/2)/v) · Π (1 + Mλᵢ/v)^(−½) · exp(−½ Σ Mtᵢ²/(v + Mλᵢ)),

which is integrated by the trapezoidal rule in ln v, so that β_k has a mixture of normal distributions.

Rows are centred to avoid cancellation if columns have large means: with an intercept, X is (1, x − x̄) and the prior is
transformed accordingly. The relative rounding error of R remains proportional to Σ(y − ȳ)²/R.

References
----------
P2, equations 3.1 to 3.5 and 4.1. Li, Srivastava & Dunson, "Simple, scalable and accurate posterior interval
estimation", Biometrika 104(3), 2017 (powers of the likelihood).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.core.arguments import Floats, real_array, validate_number, validate_positive
from mechanisms.core.jit import kernel
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.regression.partition_prior import ConjugatePrior, Prior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.statistics import RegressionStatistics

Substitute = tuple[float, float] | None

POSTERIOR_RANGE = (1e-140, 1e140)
"""Smallest and largest scale, and largest absolute location, of a posterior that a substitute need not replace.

Squares and quotients of numbers in this range lie between 1e-280 and 1e280. Sums of squares, and the variance of a t
distribution, which is up to 1e16 times the squared scale, are therefore finite, and a standard deviation is not 0.
"""

_COLLINEAR = 1e-11  # eigenvalues of the correlation matrix below this value are treated as zero
_ROUNDING = 1e-14  # a standard deviation below this fraction of the mean is treated as rounding error
_NEGLIGIBLE = 40.0  # the density of ln σ² is truncated this many nats below its maximum
_MOST_POINTS = 4096
_MOST_ITERATIONS = 200
_ROOT_HALF, _DENSITY = math.sqrt(0.5), 1.0 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class CoefficientPosterior(Posterior):
    """Posterior of a coefficient in each partition: a mixture of q normal distributions, or one t distribution.

    Weights, locations (means) and scales (standard deviations) have shape (..., q); for a t distribution, q = 1.
    """

    weights: Floats = field(repr=False)
    locations: Floats = field(repr=False)
    scales: Floats = field(repr=False)
    degrees: Floats = field(repr=False)  # degrees of freedom, shape (...); inf for normal distributions

    def mean(self) -> Floats:
        """Return the mean, shape (...), or the location if a t distribution has no mean."""
        return add_in_order(self.weights * self.locations)

    def std(self) -> Floats:
        """Return the standard deviation, shape (...); inf for a t distribution with at most two degrees of freedom."""
        apart = self.locations - self.mean()[..., None]
        variance = add_in_order(self.weights * (self.scales**2 + apart**2))
        excess = np.where(self.degrees > 2, 1.0 - 2.0 / np.maximum(self.degrees, 2.0), 0.0)
        return np.sqrt(np.divide(variance, excess, out=np.full_like(variance, math.inf), where=excess > 0))

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent draws, shape (..., size)."""
        shape = (*self.degrees.shape, size)
        places = (np.cumsum(self.weights, axis=-1)[..., None, :-1] <= rng.random(shape)[..., None]).sum(axis=-1)
        locations, scales = (np.take_along_axis(each, places, axis=-1) for each in (self.locations, self.scales))
        draws, degrees = rng.standard_normal(shape), self.degrees[..., None]
        if (finite := np.isfinite(degrees)).any():
            degrees = np.where(finite, degrees, 1.0)
            draws = np.where(finite, draws / np.sqrt(rng.chisquare(degrees, shape) / degrees), draws)
        return locations + scales * draws

    def cdf(self, cutoffs: ArrayLike) -> Floats:
        """Return Pr[β_k ≤ b] for cutoffs b of shape (..., c) or (); leading axes broadcast with the posterior's."""
        b = np.atleast_1d(np.asarray(cutoffs, dtype=np.float64))
        if np.any(np.isnan(b)):
            raise ValueError("cutoffs must be numbers, got NaN; remove NaN")
        with np.errstate(over="ignore"):  # the probability is then 0 or 1
            z = (b[..., None] - self.locations[..., None, :]) / self.scales[..., None, :]
        below, degrees = special.ndtr(z), self.degrees[..., None, None]
        if (finite := np.isfinite(degrees)).any():
            below = np.where(finite, special.stdtr(np.where(finite, degrees, 1.0), z), below)
        found = np.minimum(add_in_order(self.weights[..., None, :] * below), 1.0)
        return found if np.ndim(cutoffs) else found[..., 0]

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return the quantiles, shape (..., c) or (...), at probabilities of shape (c,) or ()."""
        p, degrees = np.atleast_1d(validate_probabilities(probabilities)), self.degrees[..., None]
        z = special.ndtri(p)
        if (finite := np.isfinite(degrees)).any():
            z = np.where(finite, special.stdtrit(np.where(finite, degrees, 1.0), p), z)
        with np.errstate(over="ignore"):  # the quantile is then infinite
            each = self.locations[..., None, :] + self.scales[..., None, :] * z[..., None]
        found = each[..., 0]
        if each.shape[-1] > 1:
            guess, low, high = self.mean()[..., None] + self.std()[..., None] * z, each.min(axis=-1), each.max(axis=-1)
            flat = (array.reshape(-1, each.shape[-1]) for array in (self.weights, self.locations, self.scales))
            roots = [array.reshape(-1, p.size).copy() for array in (np.clip(guess, low, high), low, high)]
            _solve(*flat, p, *roots)
            found = roots[0].reshape(guess.shape)
        return found if np.ndim(probabilities) else found[..., 0]


def add_in_order(values: Floats) -> Floats:
    """Return sums over the last axis, added from first to last, so that zeros at the end do not change the rounding."""
    return np.cumsum(values, axis=-1)[..., -1]


@kernel
def _solve(weights, locations, scales, probabilities, x, low, high):
    """Replace the guesses `x` by the roots of Σ wᵢΦ((x − μᵢ)/σᵢ) = p in [low, high], by bracketed Newton steps."""
    n_distributions, n_components = weights.shape
    for distribution in range(n_distributions):
        spread = scales[distribution].min()
        for place in range(probabilities.size):
            root, a, b = x[distribution, place], low[distribution, place], high[distribution, place]
            for _ in range(_MOST_ITERATIONS):
                excess, slope = -probabilities[place], 0.0
                for i in range(n_components):
                    z = (root - locations[distribution, i]) / scales[distribution, i]
                    excess += weights[distribution, i] * 0.5 * math.erfc(-z * _ROOT_HALF)
                    slope += weights[distribution, i] / scales[distribution, i] * math.exp(-0.5 * z * z)
                if excess == 0.0:
                    break
                if excess < 0.0:
                    a = root
                else:
                    b = root
                new, enough = root, 1e-7 * spread  # Newton steps converge quadratically
                if slope > 0.0:
                    new = root - excess / (slope * _DENSITY)
                if not a < new < b:
                    new, enough = 0.5 * (a + b), 1e-13 * spread
                moved = abs(new - root)
                root = new
                if moved <= enough + 4e-16 * abs(root):
                    break
            x[distribution, place] = root


def coefficient_posterior(
    statistics: RegressionStatistics,
    k: int,
    prior: Prior,
    error_variance: float | None = None,
    power: ArrayLike = 1.0,
    substitute: Substitute = None,
) -> CoefficientPosterior:
    """Return the posterior of coefficient k in each partition; statistics and posterior have shape (...).

    Coefficient 0 is the intercept if there is one, the error variance σ² is unknown by default, and `power` is the
    power M of the likelihood. `substitute` is the public mean and standard deviation of a normal distribution, which
    replaces the posterior of each partition whose rows determine no posterior in `POSTERIOR_RANGE`. By default, such a
    partition raises an error, or NumPy warns of an overflow.

    The posterior of a partition depends only on its own rows, to the last bit. With `substitute`, no error or warning
    depends on the rows, so a release that is computed from the posteriors requires no condition on the rows.
    """
    d = statistics.n_coefficients
    k = int(validate_number("k", k, f"an integer from 0 to {d - 1}", lambda one: one in range(d), "number from 0"))
    if error_variance is not None:
        error_variance = validate_positive("error_variance", error_variance, "pass None if it is unknown")
    M = np.broadcast_to(real_array("power", power), statistics.n_rows.shape)[..., None]
    if not np.all(np.isfinite(M) & (M > 0)):
        raise ValueError(f"power must be finite and > 0, got {power!r}; pass 1.0 for the untempered likelihood")
    with np.errstate() if substitute is None else np.errstate(all="ignore"):  # what overflows is replaced
        computed, flawed = _compute(statistics, k, prior, error_variance, M, substitute)
        return _replace(computed, flawed, substitute)


def _compute(
    statistics: RegressionStatistics,
    k: int,
    prior: Prior,
    error_variance: float | None,
    M: Floats,
    substitute: Substitute,
) -> tuple[CoefficientPosterior, NDArray[np.bool_]]:
    """Return the posteriors, and a mask of partitions whose rows determine none; the powers M have shape (..., 1)."""
    rows = np.multiply(statistics.n_rows, M[..., 0])
    weights, flawed = np.ones((*rows.shape, 1)), np.zeros(rows.shape, dtype=bool)
    is_mixture = isinstance(prior, SemiConjugatePrior) and error_variance is None
    if isinstance(prior, SemiConjugatePrior) and error_variance is not None:
        prior = ConjugatePrior(prior.mean, np.multiply(prior.precision, error_variance))  # the same prior of β
    if isinstance(prior, ConjugatePrior):
        a, lam, t, residual, centre = _diagonal(statistics, k, prior, substitute)
        shape, rate = prior.shape + rows / 2, prior.rate + M[..., 0] * residual / 2
        if is_mixture:
            log_v, weights, flawed = _integrate_variance(shape, rate, M * lam, M * t * t, substitute)
        else:  # variances are in units of σ²
            log_v = np.zeros(weights.shape)
            rate = rate + np.sum(M * t * t / (1 + M * lam), axis=-1) / 2
        v = np.exp(log_v)[..., None]
        a, lam, t, M = (each[..., None, :] for each in (a, lam, t, M))
        locations = centre + np.sum(a * t * M * np.sqrt(lam) / (v + M * lam), axis=-1)
        variances = np.sum(a * a * v / (v + M * lam), axis=-1)
    else:
        inverse_g = 1.0 / prior.g if isinstance(prior, ZellnerPrior) else 0.0
        a, t, residual, flawed = _orthonormal(statistics, k, substitute)
        locations = np.sum(a * t * M, axis=-1, keepdims=True) / (M + inverse_g)
        variances = np.sum(a * a, axis=-1, keepdims=True) / (M + inverse_g)
        shape = rows / 2 if inverse_g else (rows - statistics.n_coefficients) / 2
        share = M[..., 0] * inverse_g / (M[..., 0] + inverse_g)
        rate = (M[..., 0] * residual + share * np.sum(t * t, axis=-1)) / 2
    if is_mixture or error_variance is not None:
        factor, degrees = np.full(rows.shape, error_variance or 1.0), np.full(rows.shape, math.inf)
    else:
        advice = "if the error variance is unknown; use larger partitions or a ConjugatePrior"
        _raise_where(~(shape > 0), f"must have more rows than coefficients {advice}")  # public
        exact = ~(rate > 0)
        _raise_where(exact & ~flawed, f"must have positive residuals {advice}", substitute)
        flawed = flawed | exact
        factor, degrees = np.where(exact, 1.0, rate) / shape, 2.0 * shape
    return CoefficientPosterior(weights, locations, np.sqrt(factor[..., None] * variances), degrees), flawed


def _replace(found: CoefficientPosterior, flawed: NDArray[np.bool_], substitute: Substitute) -> CoefficientPosterior:
    """Return the posteriors `found` after replacing those that are flawed, or out of range, by the substitute."""
    if substitute is None:
        return found
    location, scale = substitute
    first = np.arange(found.weights.shape[-1]) == 0
    flawed = flawed | ~_is_in_range(found)
    marked = flawed[..., None]
    return CoefficientPosterior(
        np.where(marked, first, found.weights),
        np.where(marked, location, found.locations),
        np.where(marked, scale, found.scales),
        np.where(flawed, math.inf, found.degrees),
    )


def _is_in_range(posterior: CoefficientPosterior) -> NDArray[np.bool_]:
    """Return a mask of the partitions with finite weights, and with locations and scales in `POSTERIOR_RANGE`."""
    smallest, largest = POSTERIOR_RANGE
    locations, scales = np.abs(posterior.locations), posterior.scales
    in_range = (locations <= largest) & (scales >= smallest) & (scales <= largest)
    return (in_range & np.isfinite(posterior.weights)).all(axis=-1) & (posterior.degrees > 0)


def _raise_where(marked: NDArray[np.bool_], message: str, substitute: Substitute = None) -> None:
    """Raise a ValueError for the first marked partition; with a substitute, raise no error."""
    if substitute is None and np.any(marked):
        place = ", ".join(map(str, np.argwhere(marked)[0])) or "0"
        raise ValueError(f"partition {place} {message}")


def _decompose(
    decomposition: Callable[[Floats], tuple[Floats, ...]], matrices: Floats, substitute: Substitute
) -> tuple[Floats, ...]:
    """Return the decomposition of each matrix of a stack; with a substitute, NaN for those that have none.

    NumPy raises an error for the whole stack if one matrix is not finite or its iterations do not converge. Such
    matrices are replaced by the identity matrix, so that the other results are the same as without them, to the last
    bit.
    """
    if substitute is None:
        return decomposition(matrices)
    sound: NDArray[np.bool_] = np.asarray(np.isfinite(matrices).all(axis=(-2, -1)))
    identity = np.eye(matrices.shape[-1])
    try:
        parts = decomposition(np.where(sound[..., None, None], matrices, identity))
    except np.linalg.LinAlgError:
        for place in np.argwhere(sound):
            try:
                decomposition(matrices[tuple(place)])
            except np.linalg.LinAlgError:
                sound[tuple(place)] = False
        parts = decomposition(np.where(sound[..., None, None], matrices, identity))
    return tuple(np.where(sound.reshape(sound.shape + (1,) * (part.ndim - sound.ndim)), part, np.nan) for part in parts)


def _least_squares(statistics: RegressionStatistics, substitute: Substitute) -> tuple[Floats, Floats, Floats, Floats]:
    """Return C with XᵀX = CCᵀ, its pseudo-inverse, t = C⁻¹Xᵀy and R, where X is (1, x − x̄) or, without intercept, x.

    Columns are scaled to unit length so that the rank does not depend on their units.
    """
    root_n, intercept = np.sqrt(statistics.n_rows), statistics.intercept
    means, moments = statistics.means, statistics.scatter
    if not intercept:
        moments = moments + np.einsum("...,...i,...j->...ij", statistics.n_rows, means, means)
    rounding = _ROUNDING * root_n[..., None] * np.abs(means[..., :-1]) if intercept else np.zeros(1)
    XtX, Xty = moments[..., :-1, :-1], moments[..., :-1, -1]
    length = np.sqrt(np.diagonal(XtX, axis1=-2, axis2=-1))
    scale = _inverse(np.where(length > rounding, length, 0.0))
    values, vectors = _decompose(np.linalg.eigh, XtX * scale[..., :, None] * scale[..., None, :], substitute)
    root = np.sqrt(np.where(values > _COLLINEAR, values, 0.0))
    C = length[..., :, None] * vectors * root[..., None, :]
    C_inverse = np.swapaxes(vectors * scale[..., :, None] * _inverse(root)[..., None, :], -1, -2)
    if intercept:
        C, C_inverse = _bordered(root_n, C), _bordered(_inverse(root_n), C_inverse)
        Xty = np.concatenate([(statistics.n_rows * statistics.means[..., -1])[..., None], Xty], axis=-1)
    t = np.einsum("...ij,...j->...i", C_inverse, Xty)
    explained = np.sum(t[..., int(intercept) :] ** 2, axis=-1)
    return C, C_inverse, t, np.maximum(moments[..., -1, -1] - explained, 0.0)


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


def _orthonormal(
    statistics: RegressionStatistics, k: int, substitute: Substitute
) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Return a and t of the estimate β̂_k = a·t, the residual sum of squares, and a mask of collinear partitions."""
    C, C_inverse, t, residual = _least_squares(statistics, substitute)
    collinear = ~np.any(C != 0, axis=-2).all(axis=-1)
    _raise_where(
        collinear,
        "must have at least as many rows as coefficients and linearly independent columns; use larger partitions, "
        "fewer columns, or a ConjugatePrior or SemiConjugatePrior",
        substitute,
    )
    # β_k = w·γ, where γ = (γ₀, γ₁) are coefficients of (1, x − x̄): γ₁ = β₁ and β₀ = γ₀ − x̄·γ₁
    w = np.zeros((*statistics.n_rows.shape, statistics.n_coefficients))
    w[..., k] = 1.0
    if statistics.intercept and k == 0:
        w[..., 1:] = -statistics.means[..., :-1]
    return np.einsum("...ij,...j->...i", C_inverse, w), t, residual, collinear


def _diagonal(
    statistics: RegressionStatistics, k: int, prior: ConjugatePrior, substitute: Substitute
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Return a, λ, t, the residual sum of squares and μ_k, as defined in the module docstring."""
    d = statistics.n_coefficients
    mean, L = prior.arrays(d)
    C, _, t, residual = _least_squares(statistics.add_to_outcome(-mean), substitute)
    # γ = Tβ transforms the factor of XᵀX to the coordinates Lᵀβ
    T = np.broadcast_to(np.eye(d), (*statistics.n_rows.shape, d, d)).copy()
    if statistics.intercept:
        T[..., 0, 1:] = statistics.means[..., :-1]
    L_inverse = np.linalg.inv(L)
    P, root, Qt = _decompose(np.linalg.svd, np.swapaxes(C, -1, -2) @ T @ L_inverse.T, substitute)
    a = Qt @ L_inverse[:, k]
    return a, root**2, np.einsum("...ji,...j->...i", P, t), residual, float(mean[k])


def _integrate_variance(
    shape: Floats, rate: Floats, c: Floats, u: Floats, substitute: Substitute
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return quadrature points ln v and weights for the posterior of ln v, and a mask of unresolved partitions.

    With A = `shape` and B = `rate`, ln v has the density ∝ v^(−A)·exp(−B/v)·Π (1 + cᵢ/v)^(−½)·exp(−½Σ uᵢ/(v + cᵢ)).
    The stationary points of the density solve A·v = F(v) = B + ½Σ cᵢv/(v + cᵢ) + ½Σ uᵢv²/(v + cᵢ)². F is increasing, so
    fixed-point iterations from below and from above enclose all of them. The curvature at a peak is at most 2A + d/8,
    which determines the step. A partition is unresolved if it requires too many points, or has no finite statistics.
    """
    A, B = shape[..., None], rate[..., None]

    def moved(v: Floats) -> Floats:
        part = v / (v + c)
        return B + 0.5 * np.sum(c * part + u * part**2, axis=-1, keepdims=True)

    low, high = B / A, (B + 0.5 * np.sum(c + u, axis=-1, keepdims=True)) / A
    # Each partition stops separately: a row must not change the posterior of another partition, not even by rounding.
    active = np.ones(low.shape, dtype=bool)
    for _ in range(_MOST_ITERATIONS):
        new_low, new_high = moved(low) / A, moved(high) / A
        settled = (new_low - low <= 1e-3 * low) & (high - new_high <= 1e-3 * high)
        low, high = np.where(active, new_low, low), np.where(active, new_high, high)
        active &= ~settled
        if not active.any():
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
    n_steps = (ends[1] - ends[0]) / step
    unresolved = ~(n_steps < _MOST_POINTS - 1)
    _raise_where(
        unresolved[..., 0],
        f"must have a posterior of the error variance that {_MOST_POINTS} quadrature points resolve; prior and rows "
        "conflict: use a wider prior",
        substitute,
    )
    n_points = 2 + np.where(unresolved, 0.0, n_steps).astype(np.int64)  # quadrature points of each partition
    most = int(n_points.max(initial=0))
    # All partitions have as many points as the largest needs; surplus points repeat the last one, with weight 0.
    place = np.arange(most)
    s = ends[0] + (ends[1] - ends[0]) * (np.minimum(place, n_points - 1) / (n_points - 1))
    logs = np.where(place < n_points, log_density(s), -math.inf)
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return s, weights / add_in_order(weights)[..., None], unresolved[..., 0]
