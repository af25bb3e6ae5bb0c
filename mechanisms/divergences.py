"""Divergences between two distributions P, Q with finitely many outputs, and cheap upper bounds on them.

    δ(ε) = Σ_r max(p(r) − e^ε·q(r), 0),   D_λ(P‖Q) = ln Σ_r p(r)^λ q(r)^(1−λ) / (λ − 1),   D_1 = Σ_r p(r)·ln p(r)/q(r)

are the hockey-stick and the Rényi divergence. Both are convex in the ratio p/q. If all privacy losses ln p/q lie in
[−down, up], the divergence is therefore at most that of the two-point distribution on these ends with mean ratio one.

References
----------
Balle, Barthe & Gaboardi, "Privacy amplification by subsampling: tight analyses via couplings and divergences",
NeurIPS 2018 (hockey-stick). Mironov, "Rényi differential privacy", CSF 2017.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mechanisms.jit import kernel

__all__ = ["extremes", "hockey_stick", "hockey_stick_bound", "log_ratios", "renyi", "renyi_bound"]


def log_ratios(log_p: NDArray[np.float64], log_q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln p − ln q, and 0 for outputs that are impossible under both.

    Parameters
    ----------
    log_p, log_q : ndarray of float64, shape (R,)
        Log probabilities, −inf for impossible outputs.

    Returns
    -------
    ndarray of float64, shape (R,)
        Losses in nats.

    Examples
    --------
    >>> log_ratios(np.array([0.0, -np.inf]), np.array([-1.0, -np.inf]))
    array([1., 0.])
    """
    with np.errstate(invalid="ignore"):
        losses = log_p - log_q
    losses[np.isneginf(log_p) & np.isneginf(log_q)] = 0.0
    return losses


@kernel
def extremes(log_p, log_q):
    """Return the maximum and the minimum of `log_ratios`, without allocating an array."""
    high, low = -math.inf, math.inf
    for i in range(log_p.size):
        change = log_p[i] - log_q[i]
        if change != change:  # both are −inf
            change = 0.0
        high, low = max(high, change), min(low, change)
    return high, low


def hockey_stick(log_p: NDArray[np.float64], losses: NDArray[np.float64], epsilon: float) -> float:
    """Return the hockey-stick divergence δ(ε).

    Parameters
    ----------
    log_p : ndarray of float64, shape (R,)
        Log probabilities under P.
    losses : ndarray of float64, shape (R,)
        `log_ratios` of P and Q.
    epsilon : float
        ε ≥ 0 in nats.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> log_p, log_q = np.log([0.75, 0.25]), np.log([0.25, 0.75])
    >>> round(hockey_stick(log_p, log_ratios(log_p, log_q), 0.0), 12)
    0.5
    """
    above = losses > epsilon
    return float(np.sum(np.exp(log_p[above]) * -np.expm1(epsilon - losses[above])))


def hockey_stick_bound(up: float, down: float, epsilon: float) -> float:
    """Return the hockey-stick divergence of the two-point distribution with losses `up` and −`down`.

    Parameters
    ----------
    up, down : float
        Largest losses of P against Q and of Q against P, in nats.
    epsilon : float
        ε ≥ 0 in nats.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> round(hockey_stick_bound(math.log(3), math.log(3), 0.0), 12)
    0.5
    """
    if up <= epsilon:
        return 0.0
    return _mass_above(up, down) * -math.expm1(epsilon - up)


def renyi(log_p: NDArray[np.float64], losses: NDArray[np.float64], order: float) -> float:
    """Return the Rényi divergence D_λ(P‖Q).

    Parameters
    ----------
    log_p : ndarray of float64, shape (R,)
        Log probabilities under P.
    losses : ndarray of float64, shape (R,)
        `log_ratios` of P and Q.
    order : float
        λ ≥ 1; 1 is the Kullback–Leibler divergence.

    Returns
    -------
    float
        Divergence in nats; inf if an output is possible under P only.

    Examples
    --------
    >>> log_p, log_q = np.log([0.75, 0.25]), np.log([0.25, 0.75])
    >>> round(math.exp(renyi(log_p, log_ratios(log_p, log_q), 2.0)), 12) == round(0.75**2 / 0.25 + 0.25**2 / 0.75, 12)
    True
    """
    possible = np.isfinite(log_p)
    log_p, losses = log_p[possible], losses[possible]
    if np.any(np.isposinf(losses)):
        return math.inf
    if order == 1:
        return float(np.sum(np.exp(log_p) * losses))
    growth = (order - 1) * losses
    if growth.max() < 1.0:  # near order 1 the sum is close to 1
        return math.log1p(float(np.sum(np.exp(log_p) * np.expm1(growth)))) / (order - 1)
    growth += log_p
    high = float(growth.max())
    return (high + math.log(float(np.exp(growth - high).sum()))) / (order - 1)


def renyi_bound(up: float, down: float, order: float) -> float:
    """Return the Rényi divergence of the two-point distribution with losses `up` and −`down`.

    Parameters
    ----------
    up, down : float
        Largest losses of P against Q and of Q against P, in nats.
    order : float
        λ ≥ 1.

    Returns
    -------
    float
        Divergence in nats; inf if a loss is infinite.

    Examples
    --------
    >>> round(renyi_bound(math.log(3), math.log(3), 1.0), 12) == round(0.5 * math.log(3), 12)
    True
    """
    if math.isinf(up) or math.isinf(down):
        return math.inf
    share = _mass_above(up, down)
    if order == 1:
        return share * up - (1.0 - share) * down
    growth = (order - 1) * up
    if growth < 1.0:
        rest = (1.0 - share) * math.expm1(-(order - 1) * down)
        return math.log1p(share * math.expm1(growth) + rest) / (order - 1)
    return (growth + math.log(share + (1.0 - share) * math.exp(-(order - 1) * (up + down)))) / (order - 1)


def _mass_above(up: float, down: float) -> float:
    """Return the mass at `up` of the distribution on losses `up`, −`down` whose mean ratio is 1."""
    if up <= 0 or down <= 0 or math.isinf(up) or math.isinf(down):  # up, down ≤ 0 only by rounding of the normaliser
        return 1.0
    return math.expm1(-down) / math.expm1(-up - down)
