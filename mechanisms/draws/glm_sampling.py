"""Elliptical slice sampling of the posterior of a logistic regression, centred at its normal approximation.

The target is p(w) ∝ exp(ρ·Σ ln p(yᵢ | xᵢ·w) − κ‖w‖²/2) on ‖w‖ ≤ R, with the κ, ρ and R of a `GlmMechanism`. Near its
mode m the target is approximately N(m, H⁻¹), with H the negative Hessian at m. Elliptical slice sampling uses the
factorisation N(m, H⁻¹)·exp(residual): the chain moves along the ellipse through its state and an independent draw from
N(0, H⁻¹), to a point on the slice under the residual. The flatter the residual, the closer a step is to an independent
draw. There is no step size to tune, and every step is accepted.

The linear predictors X·w also move along ellipses. A step costs one product of X with the draw from N(0, H⁻¹). As
these draws do not depend on the state, one matrix product serves several steps of all chains.

References
----------
Murray, Adams & MacKay, "Elliptical slice sampling", AISTATS 2010. Nishihara, Murray & Adams, "Parallel MCMC with
generalized elliptical slice sampling", JMLR 15, 2014, which replaces the prior by an approximation of the target. P3,
section 5.2, which uses coordinate slice sampling with 1,000 steps and does not measure its convergence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import lapack
from scipy.linalg.blas import dsyrk
from scipy.special import expit

from mechanisms.core.arguments import Floats, real_array, validate_integer
from mechanisms.core.jit import kernel
from mechanisms.draws.glm_mechanisms import GlmMechanism, validate_design

_MOST_NEWTON_STEPS = 200
_CONVERGED = 1e-9
_ROWS = 1024  # number of rows that are weighted at a time, to avoid a copy of the design
STEPS_PER_PRODUCT = 12  # number of steps per matrix product
_PIECE = 256
_LOG2_E = 1.0 / math.log(2.0)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_SHIFT = 1.5 * 2.0**52  # adding and subtracting this number rounds to an integer
_EXPONENT_OF_ONE = 1023 << 52
_CLOSED = 1e-14  # bracket width at which a point is accepted: rounding may put even the current state below the slice


@dataclass(frozen=True, eq=False)
class LaplaceApproximation:
    """Normal approximation N(m, H⁻¹) of a posterior at its mode."""

    mean: Floats = field(repr=False)  # the mode m
    factor: Floats = field(repr=False)  # upper triangular factor S with S·Sᵀ = H⁻¹


def laplace_approximation(design: Floats, labels: Floats, mechanism: GlmMechanism) -> LaplaceApproximation:
    """Return the normal approximation of a posterior at its mode, found by Newton's method with step halving."""
    _require_canonical(mechanism)
    design, labels = validate_design(design, labels, mechanism.norm_bound)
    precision, power, link = mechanism.precision, mechanism.power, mechanism.link
    mode = np.zeros(design.shape[1])

    def objective(weights: Floats) -> tuple[float, Floats]:
        predictors = design @ weights
        likelihood, penalty = float(link.log_likelihood(predictors, labels).sum()), float(weights @ weights)
        return power * likelihood - 0.5 * precision * penalty, predictors

    value, predictors = objective(mode)
    for _ in range(_MOST_NEWTON_STEPS):
        gradient = power * ((labels - expit(predictors)) @ design) - precision * mode
        factor = _factorise(design, power * (expit(predictors) * expit(-predictors)), precision)
        step, _ = lapack.dpotrs(factor, gradient, lower=True)
        decrement = float(gradient @ step)
        if decrement < _CONVERGED:
            inverse, _ = lapack.dtrtri(factor, lower=True)
            return LaplaceApproximation(mode, np.ascontiguousarray(np.tril(inverse).T))
        scale = 1.0
        while scale >= 1e-12:
            moved, predictors = objective(mode + scale * step)
            if moved >= value + 0.1 * scale * decrement - 1e-12 * abs(value):
                break
            scale *= 0.5
        else:
            break
        mode, value = mode + scale * step, moved
    raise ValueError(
        f"the mode was not found within {_MOST_NEWTON_STEPS} Newton steps at n, d = {design.shape}, prior "
        f"precision {precision:g}, likelihood power {power:g}; use a larger beta"
    )


def _require_canonical(mechanism: GlmMechanism) -> None:
    if not mechanism.link.canonical:
        raise ValueError(f"link must be logistic, got {mechanism.link.name}, whose draws have no guarantee; change it")


def _factorise(design: Floats, curvatures: Floats, precision: float) -> Floats:
    """Return the lower Cholesky factor of Xᵀ·diag(curvatures)·X + precision·I."""
    d = design.shape[1]
    hessian = np.zeros((d, d), order="F")
    for start in range(0, len(design), _ROWS):
        rows = design[start : start + _ROWS] * np.sqrt(curvatures[start : start + _ROWS, None])
        hessian = dsyrk(1.0, rows.T, beta=1.0, c=hessian, lower=True, overwrite_c=True)
    hessian[np.diag_indices(d)] += precision
    factor, failed = lapack.dpotrf(hessian, lower=True, overwrite_a=True)
    if failed:
        raise ValueError(f"the Hessian is not definite at prior precision {precision:g}; use a larger beta")
    return factor


@dataclass(frozen=True, eq=False)
class GlmDraws:
    """Consecutive draws of several chains."""

    weights: Floats = field(repr=False)  # shape (chains, steps, d)
    log_density: Floats = field(repr=False)  # ρ·Σ ln p(yᵢ | xᵢ·w) − κ‖w‖²/2 at each draw, shape (chains, steps)


def sample_glm(
    rng: np.random.Generator, design: Floats, labels: Floats, mechanism: GlmMechanism,
    approximation: LaplaceApproximation, n_steps: int, *, n_chains: int = 4, start: Floats | None = None,
) -> GlmDraws:  # fmt: skip
    """Draw weights from a posterior, restricted to ‖w‖ ≤ `mechanism.radius`, by elliptical slice sampling.

    `n_steps` is a multiple of `STEPS_PER_PRODUCT`. The draws of a chain depend on the number of chains. To continue
    earlier chains, pass the same generator and their last weights as `start`; by default, chains start at draws from
    the normal approximation with twice its covariance. No finite number of steps has a proved guarantee.
    """
    _require_canonical(mechanism)
    n_steps = validate_integer("n_steps", n_steps, advice=f"pass a multiple of {STEPS_PER_PRODUCT}")
    n_chains = validate_integer("n_chains", n_chains)
    if n_steps % STEPS_PER_PRODUCT:
        raise ValueError(f"n_steps must be a positive multiple of {STEPS_PER_PRODUCT}, got {n_steps}; round it up")
    d = design.shape[1]
    if mechanism.radius <= math.sqrt(float(approximation.mean @ approximation.mean)):
        raise ValueError(
            f"the mode must be within the ball of radius {mechanism.radius:g}, got one outside; approximate it again"
        )
    if start is None:
        offset = math.sqrt(2.0) * rng.standard_normal((n_chains, d)) @ approximation.factor.T
        while np.any(outside := np.sum((approximation.mean + offset) ** 2, axis=1) >= mechanism.radius**2):
            offset[outside] *= 0.5
    else:
        offset = _validate_start(start, (n_chains, d), mechanism.radius) - approximation.mean
    # ζ = S⁻¹u by a triangular solve
    whitened = np.stack([lapack.dtrtrs(approximation.factor, u)[0] for u in offset])
    predictors_at_mode = design @ approximation.mean
    predictors = offset @ design.T
    draws = GlmDraws(np.empty((n_chains, n_steps, d)), np.empty((n_chains, n_steps)))
    for first in range(0, n_steps, STEPS_PER_PRODUCT):
        directions = rng.standard_normal((n_chains * STEPS_PER_PRODUCT, d))
        moves = directions @ approximation.factor.T
        proposals = (rows.reshape(n_chains, STEPS_PER_PRODUCT, -1) for rows in (directions, moves, moves @ design.T))
        steps = slice(first, first + STEPS_PER_PRODUCT)
        _run(
            rng, labels, mechanism.power, mechanism.precision, mechanism.radius**2, approximation.mean,
            predictors_at_mode, whitened, offset, predictors, *proposals, draws.weights[:, steps],
            draws.log_density[:, steps],
        )  # fmt: skip
    return draws


def _validate_start(start: Floats, shape: tuple[int, int], radius: float) -> Floats:
    """Return `start` after checking that all weights are in the ball; outside, the density is 0 and no chain moves."""
    weights = real_array("start", start)
    if weights.shape != shape or not np.all(np.isfinite(weights)):
        raise ValueError(f"start must be finite, of shape {shape}, got shape {weights.shape}; pass one row per chain")
    if np.any(np.sum(weights**2, axis=1) > radius**2 * (1.0 + 1e-9)):
        raise ValueError(f"start must be within the ball of radius {radius:g}, got weights outside; scale them down")
    return weights


@kernel
def _sum_log_likelihood(labels, centre, here, move, cosine, sine):
    """Return Σ ln p(yᵢ | centreᵢ + cosine·hereᵢ + sine·moveᵢ) for the logistic link.

    This is Σ min(t, 0) − ln Π (1 + exp(−|t|)), in blocks whose product cannot overflow. The exponential is written by
    hand, since a call of ``math.exp`` keeps a loop from being compiled to vector instructions, and chains spend nearly
    all of their time here. With x = m·ln 2 + r, m an integer and |r| ≤ ln(2)/2, the series of exp(r) up to r¹² omits a
    relative 2e-16 at most. Adding `_SHIFT` rounds x/ln 2 to m, in the low bits, which become the exponent of 2ᵐ.
    """
    total = 0.0
    negative, fraction, shifted = np.empty(_PIECE), np.empty(_PIECE), np.empty(_PIECE)
    bits = shifted.view(np.int64)
    for first in range(0, labels.size, _PIECE):
        size = min(_PIECE, labels.size - first)
        y, m, u, v = labels[first:], centre[first:], here[first:], move[first:]
        for j in range(size):
            margin = (2.0 * y[j] - 1.0) * (m[j] + cosine * u[j] + sine * v[j])
            negative[j] = min(margin, 0.0)
            x = max(-abs(margin), -708.0)
            shifted[j] = x * _LOG2_E + _SHIFT
            exponent = shifted[j] - _SHIFT  # exp(x) = 2^exponent · exp(r)
            r = (x - exponent * _LN2_HIGH) - exponent * _LN2_LOW
            series = 1.0 / 3628800.0 + r * (1.0 / 39916800.0 + r * (1.0 / 479001600.0))
            series = 1.0 / 5040.0 + r * (1.0 / 40320.0 + r * (1.0 / 362880.0 + r * series))
            series = 1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0 + r * series))
            fraction[j] = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * series)))
        for j in range(size):  # the low bits are `exponent`
            bits[j] = (bits[j] << 52) + _EXPONENT_OF_ONE
        product = 1.0
        for j in range(size):
            total += negative[j]
            product *= 1.0 + shifted[j] * fraction[j]
        total -= math.log(product)
    return total


@kernel
def _dot(a, b):
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@kernel
def _run(
    rng, labels, power, precision, radius_squared, mean, predictors_at_mode, whitened, offset, predictors, directions,
    moves, predictor_moves, weights, log_density,
):  # fmt: skip
    """Run all chains and change their states in place; comments number steps of Murray, Adams & MacKay, Figure 2."""
    n_chains, n_steps, d = directions.shape
    mean_squared = _dot(mean, mean)
    for chain in range(n_chains):
        zeta, u, eta = whitened[chain], offset[chain], predictors[chain]
        likelihood = _sum_log_likelihood(labels, predictors_at_mode, eta, eta, 1.0, 0.0)
        for step in range(n_steps):
            # 1. Choose the ellipse.
            xi, v, move = directions[chain, step], moves[chain, step], predictor_moves[chain, step]
            # along the ellipse, squared norms are quadratic forms in (cos, sin)
            zz, zx, xx = _dot(zeta, zeta), _dot(zeta, xi), _dot(xi, xi)
            uu, uv, vv = _dot(u, u), _dot(u, v), _dot(v, v)
            mu, mv = _dot(mean, u), _dot(mean, v)
            penalty = 0.5 * precision * (mean_squared + 2.0 * mu + uu)
            # 2. Draw the threshold.
            level = power * likelihood - penalty + 0.5 * zz - rng.standard_exponential()
            # 3. Draw the first proposal, which also defines the bracket.
            angle = 2.0 * math.pi * rng.random()
            low, high = angle - 2.0 * math.pi, angle
            while True:
                # 4. to 6. Accept the proposal if it is above the threshold.
                c, s = math.cos(angle), math.sin(angle)
                squared = mean_squared + 2.0 * (c * mu + s * mv) + c * c * uu + 2.0 * c * s * uv + s * s * vv
                closed = high - low < _CLOSED
                if squared <= radius_squared or closed:
                    there = _sum_log_likelihood(labels, predictors_at_mode, eta, move, c, s)
                    density = power * there - 0.5 * precision * squared
                    if density + 0.5 * (c * c * zz + 2.0 * c * s * zx + s * s * xx) > level or closed:
                        break
                # 7. to 10. Shrink the bracket and try another angle.
                if angle < 0.0:
                    low = angle
                else:
                    high = angle
                angle = low + (high - low) * rng.random()
            likelihood = there
            for i in range(d):
                zeta[i] = c * zeta[i] + s * xi[i]
                u[i] = c * u[i] + s * v[i]
                weights[chain, step, i] = mean[i] + u[i]
            for i in range(labels.size):
                eta[i] = c * eta[i] + s * move[i]
            log_density[chain, step] = density
