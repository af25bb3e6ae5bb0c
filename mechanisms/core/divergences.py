"""Divergences between two distributions P, Q with finitely many outputs, and cheap upper bounds on them.

    δ(ε) = Σ_r max(p(r) − e^ε·q(r), 0),   D_λ(P‖Q) = ln Σ_r p(r)^λ q(r)^(1−λ) / (λ − 1),   D_1 = Σ_r p(r)·ln p(r)/q(r)

are the hockey-stick and the Rényi divergence. Both are convex in the ratio p/q. If all privacy losses ln p/q lie in
[−down, up], a divergence is therefore at most its value if the only losses are −down and up, with probabilities such
that the mean of p/q under Q is one.

**Small divergences.** Losses ℓ of size ε give a divergence of size ε². A sum of terms of size ε loses such a divergence
to rounding; at ε = 1e-7 two digits remain. Let φ(x) = eˣ − 1 − x ≥ 0. Both distributions sum to one, so
Σ p·e^(−ℓ) = 1 − Q(p = 0) over the outputs that are possible under P, and with μ = λ − 1

    D_1 = Σ p·φ(−ℓ) + Q(p = 0),   exp(μ·D_λ) − 1 = μ·(Σ p·[φ(μℓ)/μ + φ(−ℓ)] + Q(p = 0)).

All terms are ≥ 0, and an error of the losses contributes in proportion to ε.

References
----------
Balle, Barthe & Gaboardi, "Privacy amplification by subsampling: tight analyses via couplings and divergences",
NeurIPS 2018 (hockey-stick). Mironov, "Rényi differential privacy", CSF 2017.
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.core.arguments import Floats
from mechanisms.core.jit import kernel

_LARGEST_EXPONENT = 700.0  # largest exponent, whose exponential is finite
_ERROR = 4 * 2.0**-52  # relative error of a log probability: twice the largest error that was measured
_SERIES, _TERMS = 0.5, 17  # range and number of terms of a series; 0.5¹⁶·2/18! is below 1e-20


def log_ratios(log_p: Floats, log_q: Floats) -> Floats:
    """Return the privacy losses ln p − ln q, with 0 for outputs that are impossible under P and Q."""
    with np.errstate(invalid="ignore"):
        losses = log_p - log_q
    losses[np.isneginf(log_p) & np.isneginf(log_q)] = 0.0
    return losses


def rounding_errors(log_p: Floats, log_q: Floats) -> Floats:
    """Return the errors of the `log_ratios` due to the rounding of log probabilities; 0 for infinite logarithms."""
    sizes = np.maximum(1.0, np.maximum(-log_p, -log_q))
    return np.where(np.isfinite(sizes), _ERROR * sizes, 0.0)


@kernel
def extremes(log_p, log_q):
    """Return the largest and the smallest loss of `log_ratios`, and the largest |loss| less its rounding error."""
    high, low, certain = -math.inf, math.inf, -math.inf
    for i in range(log_p.size):
        change = log_p[i] - log_q[i]
        if change != change:  # the change is NaN if both logarithms are −inf
            change = 0.0
        high, low, loss = max(high, change), min(low, change), abs(change)
        certain = max(certain, loss if loss == math.inf else loss - _rounding(log_p[i], log_q[i]))
    return high, low, certain


@kernel
def _rounding(log_p, log_q):
    """Return the error of the difference of two log probabilities; 0 if both are −inf."""
    size = max(1.0, -log_p, -log_q)
    return _ERROR * size if size < math.inf else 0.0


def hockey_stick(log_p: Floats, losses: Floats, epsilon: float) -> float:
    """Return the hockey-stick divergence δ(ε) of P from Q, given their `log_ratios`."""
    above = losses > epsilon
    return float(np.sum(np.exp(log_p[above]) * -np.expm1(epsilon - losses[above])))


def hockey_stick_bound(up: float, down: float, epsilon: float) -> float:
    """Return a bound on δ(ε): its value if `up` and −`down`, the extreme losses of P against Q, are the only losses."""
    if up <= epsilon:
        return 0.0
    return _mass_above(up, down) * -math.expm1(epsilon - up)


def renyi_divergence(log_p: Floats, log_q: Floats, order: float) -> float:
    """Return D_λ(P‖Q) in nats; inf if an output is possible under P only, the Kullback–Leibler divergence at λ = 1."""
    mu = order - 1
    growth, excess = _sum_excess(log_p, log_q, mu)
    if growth <= _LARGEST_EXPONENT:
        return math.log1p(mu * excess) / mu if mu > 0 else excess
    if math.isinf(growth):
        return math.inf
    possible = np.isfinite(log_p)
    exponents = log_p[possible] + mu * (log_p[possible] - log_q[possible])
    high = float(exponents.max())
    return (high + math.log(float(np.exp(exponents - high).sum()))) / mu


def renyi_error(log_p: Floats, log_q: Floats, order: float) -> float:
    """Return the error of a finite `renyi_divergence` that is due to the rounding of the log probabilities.

    With the weights w = p^λ·q^(1−λ)/Σ p^λ·q^(1−λ), errors η(r) of the losses ≤ ε change the divergence by about min(λε,
    2)·Σ (w + q)·η. An output that is impossible under P and Q up to underflow has no weight.
    """
    mass = np.isfinite(log_p) & np.isfinite(log_q)
    p, q = log_p[mass], log_q[mass]
    if not mass.any():
        return 0.0
    errors = rounding_errors(p, q)
    exponents = p + (order - 1.0) * (p - q)
    weights = np.exp(exponents - exponents.max())
    mean = float(np.sum(weights * errors) / weights.sum() + np.sum(np.exp(q) * errors))
    return min(order * float(np.abs(p - q).max()), 2.0) * mean


def renyi_bound(up: float, down: float, order: float) -> float:
    """Return a bound on D_λ: its value if `up` and −`down`, the extreme losses of P against Q, are the only losses."""
    if math.isinf(up) or math.isinf(down):
        return math.inf
    mu, share, rest = order - 1, _mass_above(up, down), _mass_above(down, up)
    # P has the masses share at the loss up and rest·exp(−down) at −down; Q has share·exp(−up) and rest.
    if mu * up > _LARGEST_EXPONENT:
        return (mu * up + math.log(share + rest * math.exp(-down - mu * (up + down)))) / mu
    excess = _excess(share, share * math.exp(-up), up, mu) + _excess(rest * math.exp(-down), rest, -down, mu)
    return math.log1p(mu * excess) / mu if mu > 0 else excess


def _mass_above(up: float, down: float) -> float:
    """Return P(loss = up) if `up` and −`down` are the only losses and the mean of p/q under Q is 1."""
    if up <= 0 or down <= 0 or math.isinf(up) or math.isinf(down):  # up and down are ≤ 0 only by rounding
        return 1.0
    return math.expm1(-down) / math.expm1(-up - down)


@kernel
def _phi(x):
    """Return eˣ − 1 − x with a relative error of about 1e-15, by a series where the difference would lose digits."""
    if abs(x) >= _SERIES:
        return math.expm1(x) - x
    series = 1.0
    for power in range(_TERMS, 2, -1):  # the series is x²/2·(1 + x/3·(1 + x/4·(…)))
        series = 1.0 + x / power * series
    return 0.5 * x * x * series


@kernel
def _excess(p, q, loss, mu):
    """Return p·[φ(μℓ)/μ + φ(−ℓ)] for the loss ℓ = ln p/q and φ(x) = eˣ − 1 − x; at μ = 0 the first term is 0."""
    # For large losses exp(−ℓ) may overflow; q − p + p·ℓ equals p·φ(−ℓ) and loses no digits there.
    total = p * _phi(-loss) if abs(loss) < 1.0 else q - p + p * loss
    return total + p * (_phi(mu * loss) / mu) if mu > 0.0 else total


@kernel
def _sum_excess(log_p, log_q, mu):
    """Return the largest μℓ, and Σ p·[φ(μℓ)/μ + φ(−ℓ)] + Q(p = 0); both are inf if Q excludes an output of P."""
    growth, total = 0.0, 0.0
    for i in range(log_p.size):
        if log_p[i] == -math.inf:
            total += math.exp(log_q[i])
            continue
        loss = log_p[i] - log_q[i]
        if loss == math.inf:
            return math.inf, math.inf
        growth = max(growth, mu * loss)
        if growth > _LARGEST_EXPONENT:
            continue  # the caller does not use the sum
        total += _excess(math.exp(log_p[i]), math.exp(log_q[i]), loss, mu)
    return growth, total
