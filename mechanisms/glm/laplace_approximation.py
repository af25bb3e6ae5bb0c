"""Normal approximation of the posterior of a binary regression at its mode, for `mechanisms.glm.sampling`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.linalg.blas import dsyrk

from mechanisms.glm.mechanisms import GlmMechanism, validate_design

__all__ = ["LaplaceApproximation", "laplace_approximation"]

Array = NDArray[np.float64]

_MOST_NEWTON_STEPS = 200

_CONVERGED = 1e-9

_ROWS = 1024  # number of rows that are weighted at a time, to avoid a copy of the design


@dataclass(frozen=True, eq=False)
class LaplaceApproximation:
    """Normal approximation N(m, H⁻¹) of a posterior at its mode."""

    mean: Array = field(repr=False)  # the mode m
    factor: Array = field(repr=False)  # upper triangular factor S with S·Sᵀ = H⁻¹


def laplace_approximation(design: Array, labels: Array, mechanism: GlmMechanism) -> LaplaceApproximation:
    """Return the normal approximation of a posterior at its mode, found by Newton's method with step halving."""
    design, labels = validate_design(design, labels, mechanism.norm_bound)
    precision, power, link = mechanism.precision, mechanism.power, mechanism.link
    mode = np.zeros(design.shape[1])

    def objective(weights: Array) -> tuple[float, Array]:
        predictors = design @ weights
        value = power * float(link.log_likelihood(predictors, labels).sum()) - 0.5 * precision * float(
            weights @ weights
        )
        return value, predictors

    value, predictors = objective(mode)
    for _ in range(_MOST_NEWTON_STEPS):
        gradient = power * (link.slope(predictors, labels) @ design) - precision * mode
        factor = _factorise(design, power * link.curvature(predictors, labels), precision)
        step, _ = lapack.dpotrs(factor, gradient, lower=True)
        decrement = float(gradient @ step)
        if decrement < _CONVERGED:
            inverse, _ = lapack.dtrtri(factor, lower=True)
            return LaplaceApproximation(mode, np.ascontiguousarray(np.tril(inverse).T))
        scale = 1.0
        while True:
            moved, predictors_there = objective(mode + scale * step)
            if moved >= value + 0.1 * scale * decrement - 1e-12 * abs(value):
                break
            scale *= 0.5
            if scale < 1e-12:
                raise _no_mode(design, mechanism)
        mode, value, predictors = mode + scale * step, moved, predictors_there
    raise _no_mode(design, mechanism)


def _no_mode(design: Array, mechanism: GlmMechanism) -> ValueError:
    return ValueError(
        f"the mode was not found within {_MOST_NEWTON_STEPS} Newton steps at n, d = {design.shape}, prior "
        f"precision {mechanism.precision:g}, likelihood power {mechanism.power:g}; use a larger beta"
    )


def _factorise(design: Array, curvatures: Array, precision: float) -> Array:
    """Return the lower Cholesky factor of Xᵀ·diag(curvatures)·X + precision·I."""
    d = design.shape[1]
    hessian = np.zeros((d, d), order="F")
    for start in range(0, len(design), _ROWS):
        rows = design[start : start + _ROWS] * np.sqrt(curvatures[start : start + _ROWS, None])
        hessian = dsyrk(1.0, rows.T, beta=1.0, c=hessian, lower=True, overwrite_c=True)
    hessian[np.diag_indices(d)] += precision
    factor, failed = lapack.dpotrf(hessian, lower=True, overwrite_a=True)
    if failed:
        raise ValueError(
            f"the Hessian is not numerically positive definite at prior precision {precision:g}; use a larger beta"
        )
    return factor
