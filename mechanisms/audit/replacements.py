"""Audits of GLM posterior sampling by quadrature: Rényi divergences between data sets that differ in one record.

The density of a draw is p(w) ∝ exp(ρ·Σ ln p(yᵢ | xᵢ·w) − κ‖w‖²/2) on ‖w‖ ≤ R, where ‖xᵢ‖ ≤ c (`glm.GlmMechanism`). For
one- or two-dimensional weights, integrals are approximated by sums over quadrature nodes. The densities for data sets
that share all records but one are represented by masses on these nodes: density times weight, normalised.
`audit.audit_distributions` compares all pairs of them, and its Rényi sums approximate ∫ p^λ q^(1−λ) by quadrature.

**Position of the nodes.** The integrand of order λ, p·(p/q)^(λ−1), is not centred at the mode of p: replacing a record
changes ln p by up to 2cρ‖w‖ and shifts the integrand by up to (λ−1)·2cρ/κ. So a single box is used for all pairs and
orders. This box contains every point where some integrand exceeds e^−40 times its maximum.

**Finite orders.** The loss ln p/q grows with ‖w‖ as fast as minus the log-likelihood of a misclassified record, while
ln p falls like −κ‖w‖²/2. A logistic log-likelihood falls linearly, so the divergence is finite at every order; for the
other links see `mechanisms`.

References
----------
P3, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from mechanisms.core.arguments import Floats, validate_positive
from mechanisms.core.exact_losses import Audit, OutputDistributions, audit_distributions
from mechanisms.core.privacy_parameters import validate_order
from mechanisms.draws.glm_mechanisms import GlmMechanism, validate_design
from mechanisms.draws.worst_case import validate_dimension

_NEGLIGIBLE = 40.0  # depth, in nats below its maximum, at which an integrand is negligible
_SCAN = {1: 512, 2: 48}  # number of nodes per axis in the search for the box
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PANELS = {1: (32, 8192), 2: (4, 64)}  # initial and largest number of panels per axis
_PANELS_ON_A_BOX = {1: 256, 2: 12}
_MOST_MOVES, _LEAP, _SETTLED = 200, 0.3, 0.8  # search for the box: number of steps, growth, final relative size
_AGREE = 1e-7


def critical_order(mechanism: GlmMechanism) -> float:
    """Return the infimum of the orders with an infinite divergence: inf on a ball or for the logistic link.

    Otherwise it is 1 + κ/(ρc²) for the probit link and 1 for the complementary log-log link, which excludes order 1.
    """
    if mechanism.link.canonical or math.isfinite(mechanism.radius):
        return math.inf
    if mechanism.link.tail == "quadratic":
        return 1.0 + mechanism.precision / (mechanism.power * mechanism.norm_bound**2)
    return 1.0


def audit_replacements(
    mechanism: GlmMechanism, candidates: ArrayLike, shared: ArrayLike | None = None, orders: Sequence[float] = (1.0,)
) -> Audit:
    """Audit a mechanism over all data sets that consist of the shared records and one of several candidate records.

    Parameters
    ----------
    mechanism : GlmMechanism
    candidates : array_like, shape (k, d + 1)
        At least two records, as rows x₁, …, x_d, y; d = 1 or 2.
    shared : array_like, shape (m, d + 2), optional
        Shared records, as rows x₁, …, x_d, y, multiplicity; by default there are none, and n = 1.
    orders : sequence of float
        Orders λ ≥ 1; orders > 1 must be below `critical_order`.

    Returns
    -------
    Audit
        The evidence is "quadrature": the divergences `renyi` agree with those on half as many quadrature nodes per
        axis up to a relative 1e-7. If the weights are restricted to a ball, the pure loss is the maximum over the
        nodes, which include the boundary. Otherwise the density ratio for two different records is unbounded, so the
        pure loss is inf, and the witness is the node with the largest ratio.

    Raises
    ------
    ValueError
        If records or orders are invalid, or the divergences do not converge on the finest grid.

    Examples
    --------
    The tempered posterior given one record is almost normal, so the divergence is close to λ·(2·cρ/2)²/(2κ) = ε/4. The
    divergence divided by ε is printed:

    >>> from mechanisms.draws.glm_mechanisms import glm_mechanism
    >>> mechanism = glm_mechanism("glm-diffused", n=1, beta=100.0, order=2, epsilon=1e-4)
    >>> found = audit_replacements(mechanism, [[1.0, 1], [-1.0, 1]], orders=[2])
    >>> print(f"{found.renyi[2] / 1e-4:.4f}", found.evidence)
    0.2500 quadrature
    """
    orders = [validate_order(order) for order in orders]
    limit = critical_order(mechanism)
    for order in orders:
        if order > 1 and order >= limit:
            raise ValueError(
                f"orders must be below {limit:g} with the {mechanism.link.name} link, got {order:g}; use "
                "replacement_distributions to show that divergences of larger orders grow with the box"
            )
    rows, others = _validate(mechanism, candidates, shared)
    d = rows.shape[1] - 1
    box = _find_box(mechanism, rows, others, orders)
    n_panels, most = _PANELS[d]
    coarse = audit_distributions(_distributions_on(box, n_panels, mechanism, rows, others), orders=orders)
    while n_panels < most:
        n_panels *= 2
        fine = audit_distributions(_distributions_on(box, n_panels, mechanism, rows, others), orders=orders)
        if all(abs(fine.renyi[o] - coarse.renyi[o]) <= _AGREE * fine.renyi[o] + 1e-13 for o in orders):
            bounded = math.isfinite(mechanism.radius) or fine.epsilon == 0
            return replace(fine, epsilon=fine.epsilon if bounded else math.inf, evidence="quadrature")
        coarse = fine
    raise ValueError(
        f"divergences did not converge within {most * len(_NODES)} nodes per axis at prior precision "
        f"{mechanism.precision:g}, orders {orders}; use a larger n·beta or smaller orders"
    )


def replacement_distributions(
    mechanism: GlmMechanism, candidates: ArrayLike, shared: ArrayLike | None = None, *, reach: float
) -> OutputDistributions:
    """Return the distributions that `audit_replacements` compares, restricted to the box [−reach, reach]^d.

    A divergence that grows without bound as the box grows is infinite without the restriction. If the edges of the box
    dominate an integral, only the order of magnitude of the result is correct.
    """
    validate_positive("reach", reach, "pass half the width of a box")
    rows, others = _validate(mechanism, candidates, shared)
    limit = min(reach, mechanism.radius)
    d = rows.shape[1] - 1
    return _distributions_on(np.tile([-limit, limit], (d, 1)), _PANELS_ON_A_BOX[d], mechanism, rows, others)


def _validate(mechanism: GlmMechanism, candidates: ArrayLike, shared: ArrayLike | None) -> tuple[Floats, Floats]:
    rows = np.asarray(candidates, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 2:
        raise ValueError(f"candidates must have shape (k, d + 1), k >= 2, got {rows.shape}; pass rows (x, y)")
    d = validate_dimension(rows.shape[1] - 1)
    validate_design(rows[:, :d], rows[:, d], mechanism.norm_bound)
    if d == 2 and math.isfinite(mechanism.radius):
        raise ValueError(f"x must have 1 dimension if weights are restricted to a ball, got {d}; pass a single column")
    if shared is None:
        return rows, np.empty((0, d + 2))
    others = np.asarray(shared, dtype=np.float64)
    if others.ndim != 2 or others.shape[1] != d + 2:
        raise ValueError(f"shared records must have shape (m, {d + 2}), got {others.shape}; pass rows (x, y, count)")
    validate_design(others[:, :d], others[:, d], mechanism.norm_bound)
    if not np.all(np.isfinite(others[:, -1]) & (others[:, -1] > 0)):
        raise ValueError(
            f"counts of shared records must be finite and > 0, got {others[:, -1].tolist()}; remove absent records"
        )
    return rows, others


def _log_densities(mechanism: GlmMechanism, rows: Floats, others: Floats, nodes: Floats) -> tuple[Floats, Floats]:
    """Return the log density given shared records, up to a constant, (R,), and candidates' log-likelihoods, (k, R)."""
    d, link = nodes.shape[1], mechanism.link

    def log_likelihood(record: Floats) -> Floats:
        return mechanism.power * link.log_likelihood(nodes @ record[:d], np.full(len(nodes), record[d]))

    base = -0.5 * mechanism.precision * np.einsum("ij,ij->i", nodes, nodes)
    with np.errstate(over="ignore"):  # multiples of −exp(η) may be −inf
        for record in others:
            base += record[-1] * log_likelihood(record)
    base -= base.max()  # keeps the terms of the candidates accurate for huge counts
    return base, np.stack([log_likelihood(record) for record in rows])


def _distributions_on(
    box: Floats, n_panels: int, mechanism: GlmMechanism, rows: Floats, others: Floats
) -> OutputDistributions:
    rules = [_rule(low, high, n_panels, mechanism.radius) for low, high in box]
    nodes = _grid([points for points, _ in rules])
    log_weights = _grid([weights for _, weights in rules]).sum(axis=1)
    base, log_likelihoods = _log_densities(mechanism, rows, others, nodes)
    table = base + log_likelihoods + log_weights
    table -= logsumexp(table, axis=1, keepdims=True)
    return OutputDistributions(rows, nodes, np.array(list(combinations(range(len(rows)), 2))), table.__getitem__)


def _rule(low: float, high: float, n_panels: int, radius: float) -> tuple[Floats, Floats]:
    """Return the nodes and log weights of a Gauss–Legendre rule composed of `n_panels` panels."""
    # If the weights are restricted to a ball, the loss is largest at an end of [−radius, radius], so both ends are
    # added as nodes with negligible quadrature weights.
    edges = np.linspace(low, high, n_panels + 1)
    half = 0.5 * (high - low) / n_panels
    points = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * _NODES).ravel()
    logs = np.log(np.tile(half * _WEIGHTS, n_panels))
    if math.isinf(radius):
        return points, logs
    return np.concatenate([[-radius], points, [radius]]), np.pad(logs, 1, constant_values=logs.min() - 80.0)


def _grid(parts: Sequence[Floats]) -> Floats:
    return np.stack([part.ravel() for part in np.meshgrid(*parts, indexing="ij")], axis=1)


def _find_box(mechanism: GlmMechanism, rows: Floats, others: Floats, orders: Sequence[float]) -> Floats:
    """Return a box, shape (d, 2), outside which the integrands of all `orders` are negligible.

    Each step scans a grid on the box and marks the nodes where some integrand is not negligible. The hull of these
    nodes, widened by one node, is the next box. If the hull touches an edge, the box grows there, so that it can follow
    a peak that the nodes missed. The first box contains all peaks: −ln of an integrand is at most ρ(n − 1 + λ) at 0,
    and at least κ′‖w‖²/2 − (λ−1)ρ(c‖w‖ + 1) at w, with κ′ = κ − (λ−1)ρc² for the probit link and κ′ = κ otherwise.
    """
    d, order = rows.shape[1] - 1, max(orders)
    power, c = mechanism.power, mechanism.norm_bound
    kept = mechanism.precision
    if mechanism.link.tail == "quadratic":
        kept -= (order - 1.0) * power * c * c
    drift = (order - 1.0) * power * c + c
    depth = power * (others[:, -1].sum() + 2.0 * order) + 2.0 * _NEGLIGIBLE
    widest = min((drift + math.sqrt(drift * drift + 2.0 * kept * depth)) / kept, mechanism.radius)
    box = np.tile([-widest, widest], (d, 1))
    for _ in range(_MOST_MOVES):
        scan = [np.linspace(low, high, _SCAN[d]) for low, high in box]
        base, log_likelihoods = _log_densities(mechanism, rows, others, _grid(scan))
        matters = np.zeros(base.size, dtype=bool)
        for candidate in log_likelihoods:
            loss, density = candidate - log_likelihoods, base + candidate
            for log_integrand in (density + np.log1p(np.abs(loss)), *(density + (o - 1.0) * loss for o in orders)):
                matters |= (log_integrand > log_integrand.max(axis=1, keepdims=True) - _NEGLIGIBLE).any(axis=0)
        matters = matters.reshape([_SCAN[d]] * d)
        moved = np.empty_like(box)
        for axis, points in enumerate(scan):
            where = np.flatnonzero(matters.any(axis=tuple({*range(d)} - {axis})))
            step, leap = points[1] - points[0], _LEAP * (points[-1] - points[0])
            low = points[where[0]] - (step if where[0] > 0 else leap)
            high = points[where[-1]] + (step if where[-1] < points.size - 1 else leap)
            moved[axis] = max(low, -widest), min(high, widest)
        kept_inside = np.all((box[:, 0] <= moved[:, 0]) & (moved[:, 1] <= box[:, 1]))
        if kept_inside and np.all(np.diff(moved) >= _SETTLED * np.diff(box)):
            return moved
        box = moved
    raise ValueError(
        f"the integration box did not converge at prior precision {mechanism.precision:g}; use fewer shared records"
    )
