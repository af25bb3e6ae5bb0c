"""Audits of GLM posterior sampling by quadrature: what one draw spends when any record is replaced by any other.

A draw's distribution (`glm.GlmMechanism`) is p(w) ∝ exp(ρ·Σ ln p(yᵢ | xᵢ·w) − κ‖w‖²/2) on ‖w‖ ≤ R. For weights of one or two
dimensions its integrals are sums over nodes, and the distributions of data sets that share all records but one are distributions on
these nodes: density times weight, normalised. `audit.audit_distributions` then compares every two of them as it does distributions with
finitely many outputs, and its Rényi sums are the quadrature of ∫ p^λ q^(1−λ).

**Where the nodes lie.** The integrand of order λ, p·(p/q)^(λ−1), is not centred where p is: replacing a record moves
ln p by up to 2cρ‖w‖, and the integrand by up to (λ−1)·2cρ/κ. So the box is found for all pairs and orders at once: it
holds every point where an integrand is above e^−40 of its largest value.

**Which orders are finite.** The loss ln p/q grows with ‖w‖ as fast as minus the log-likelihood of a record on its
wrong side, while ln p falls like −κ‖w‖²/2. A logistic log-likelihood falls linearly: every order is finite. A probit's
falls like −η²/2 − ln|η|, so (λ−1)·ρc²w²/2 meets κw²/2 at λ = 1 + κ/(ρc²), the first order that is infinite. A
complementary log-log's falls like −exp(η), and every λ > 1 is infinite.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi differential privacy mechanisms for posterior sampling", NeurIPS 2017, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from mechanisms.audit import Audit, OutputDistributions, audit_distributions
from mechanisms.glm.mechanisms import GlmMechanism, validate_design
from mechanisms.glm.worst_case import validate_dimension
from mechanisms.privacy import validate_order

__all__ = ["audit_replacements", "critical_order", "replacement_distributions"]

Array = NDArray[np.float64]

_NEGLIGIBLE = 40.0  # an integrand this far below its largest value, in nats, is left out
_SCAN = {1: 512, 2: 48}  # nodes an axis while the box is sought
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PANELS = {1: (32, 8192), 2: (4, 64)}  # of an axis: at first, and at most
_PANELS_ON_A_BOX = {1: 256, 2: 12}
_MOST_MOVES, _LEAP, _SETTLED = 200, 0.3, 0.8  # of the search: its steps, and shares of the box
_AGREE = 1e-7


def critical_order(mechanism: GlmMechanism) -> float:
    """Return the order below which every Rényi divergence between neighbours is finite, and from which some are not.

    Parameters
    ----------
    mechanism : GlmMechanism
        Its link decides, with κ, ρ, the bound of the records and the radius.

    Returns
    -------
    float
        inf for the logistic link and on a ball, 1 + κ/(ρc²) for the probit, 1 for the complementary log-log. The
        Kullback–Leibler divergence, order 1, is finite for all of them.

    Examples
    --------
    >>> from mechanisms.glm.mechanisms import glm_mechanism
    >>> for link in ("logistic", "probit", "cloglog"):
    ...     print(link, critical_order(glm_mechanism("true-posterior", 100, 0.01, 2, 1.0, link=link)))
    logistic inf
    probit 2.0
    cloglog 1.0
    """
    if mechanism.link.canonical or math.isfinite(mechanism.radius):
        return math.inf
    if mechanism.link.name == "probit":
        return 1.0 + mechanism.precision / (mechanism.power * mechanism.norm_bound**2)
    return 1.0


def audit_replacements(
    mechanism: GlmMechanism, candidates: ArrayLike, shared: ArrayLike | None = None, orders: Sequence[float] = (1.0,)
) -> Audit:
    """Compare the distributions of all data sets that consist of shared records and one of the candidates.

    Parameters
    ----------
    mechanism : GlmMechanism
    candidates : array_like, shape (k, d + 1)
        Rows x₁, …, x_d, y, at least two, d = 1 or 2.
    shared : array_like, shape (m, d + 2), optional
        Rows x₁, …, x_d, y and how often the record occurs; by default there is none, and n = 1.
    orders : sequence of float
        Orders λ ≥ 1, below `critical_order`.

    Returns
    -------
    Audit
        With evidence "quadrature": its `renyi` agrees to 1e-7 with that on half as many nodes an axis. On a ball its
        pure loss is the largest on the nodes, the ends among them; elsewhere the ratio of the distributions of two different
        records has no bound, and the witness is where it is largest on the nodes.

    Raises
    ------
    ValueError
        If records or orders are not allowed, or the divergences do not settle on the finest grid.

    Examples
    --------
    A tempered posterior of one record is almost normal, with divergence λ·(2·cρ/2)²/(2κ):

    >>> from mechanisms.glm.mechanisms import glm_mechanism
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
                f"orders must be below {limit:g} with the {mechanism.link.name} link, got {order:g}; from there on "
                "divergences are infinite, which replacement_distributions shows on growing boxes"
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
        f"divergences must settle within {most * len(_NODES)} nodes an axis, did not at prior precision "
        f"{mechanism.precision:g}, orders {orders}; take a larger n·beta or smaller orders"
    )


def replacement_distributions(
    mechanism: GlmMechanism,
    candidates: ArrayLike,
    shared: ArrayLike | None = None,
    *,
    reach: float,
) -> OutputDistributions:
    """Return the distributions restricted to the box [−reach, reach]^d, which shows whether a divergence grows with the box.

    Parameters
    ----------
    mechanism, candidates, shared
        As in `audit_replacements`.
    reach : float
        Finite and > 0.

    Returns
    -------
    OutputDistributions
        On the nodes, shape (R, d).

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Notes
    -----
    Where the edges of the box dominate an integral, it is that of the nodes next to them: right in its order, no more.

    Examples
    --------
    >>> from mechanisms.audit import audit_distributions
    >>> from mechanisms.glm.mechanisms import glm_mechanism
    >>> mechanism = glm_mechanism("true-posterior", n=1, beta=1.0, order=2, epsilon=1.0, link="cloglog")
    >>> for reach in (4, 6, 8):
    ...     distributions = replacement_distributions(mechanism, [[1.0, 1], [1.0, 0]], reach=reach)
    ...     print(reach, f"{audit_distributions(distributions, orders=[5.0]).renyi[5.0]:.3g}")
    4 50.7
    6 396
    8 2.97e+03
    """
    if not (math.isfinite(reach) and reach > 0):
        raise ValueError(f"reach must be finite and > 0, got {reach}")
    rows, others = _validate(mechanism, candidates, shared)
    limit = min(reach, mechanism.radius)
    d = rows.shape[1] - 1
    return _distributions_on(np.tile([-limit, limit], (d, 1)), _PANELS_ON_A_BOX[d], mechanism, rows, others)


def _validate(mechanism: GlmMechanism, candidates: ArrayLike, shared: ArrayLike | None) -> tuple[Array, Array]:
    rows = np.asarray(candidates, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 2:
        raise ValueError(f"candidates must have shape (k, d + 1), k >= 2, got {rows.shape}; give rows x, y")
    d = validate_dimension(rows.shape[1] - 1)
    validate_design(rows[:, :d], rows[:, d], mechanism.norm_bound)
    if d == 2 and math.isfinite(mechanism.radius):
        raise ValueError(f"x must have 1 dimension where weights are kept to a ball, got {d}")
    if shared is None:
        return rows, np.empty((0, d + 2))
    others = np.asarray(shared, dtype=np.float64)
    if others.ndim != 2 or others.shape[1] != d + 2:
        raise ValueError(f"shared records must have shape (m, {d + 2}), got {others.shape}; give rows x, y, count")
    validate_design(others[:, :d], others[:, d], mechanism.norm_bound)
    if not np.all(np.isfinite(others[:, -1]) & (others[:, -1] > 0)):
        raise ValueError(f"counts of shared records must be finite and > 0, got {others[:, -1].tolist()}")
    return rows, others


def _log_densities(mechanism: GlmMechanism, rows: Array, others: Array, nodes: Array) -> tuple[Array, Array]:
    """Return what all distributions share, up to a constant, shape (R,), and what each candidate adds, shape (k, R)."""
    d, link = nodes.shape[1], mechanism.link

    def log_likelihood(record: Array) -> Array:
        return mechanism.power * link.log_likelihood(nodes @ record[:d], np.full(len(nodes), record[d]))

    base = -0.5 * mechanism.precision * np.einsum("ij,ij->i", nodes, nodes)
    with np.errstate(over="ignore"):  # −exp(η), many times over
        for record in others:
            base += record[-1] * log_likelihood(record)
    base -= base.max()  # counts may be huge: what the candidates add must not drown
    return base, np.stack([log_likelihood(record) for record in rows])


def _distributions_on(
    box: Array, n_panels: int, mechanism: GlmMechanism, rows: Array, others: Array
) -> OutputDistributions:
    rules = [_rule(low, high, n_panels, mechanism.radius) for low, high in box]
    nodes = _grid([points for points, _ in rules])
    log_weights = _grid([weights for _, weights in rules]).sum(axis=1)
    base, each = _log_densities(mechanism, rows, others, nodes)
    table = base + each + log_weights
    table -= logsumexp(table, axis=1, keepdims=True)
    return OutputDistributions(rows, nodes, np.array(list(combinations(range(len(rows)), 2))), table.__getitem__)


def _rule(low: float, high: float, n_panels: int, radius: float) -> tuple[Array, Array]:
    """Return nodes and logarithms of weights of Gauss–Legendre sums over panels.

    A distribution on a ball has its largest loss at an end of it: the ends are nodes, too, with next to no weight.
    """
    edges = np.linspace(low, high, n_panels + 1)
    half = 0.5 * (high - low) / n_panels
    points = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * _NODES).ravel()
    logs = np.log(np.tile(half * _WEIGHTS, n_panels))
    if math.isinf(radius):
        return points, logs
    return np.concatenate([[-radius], points, [radius]]), np.pad(logs, 1, constant_values=logs.min() - 80.0)


def _grid(parts: Sequence[Array]) -> Array:
    return np.stack([part.ravel() for part in np.meshgrid(*parts, indexing="ij")], axis=1)


def _find_box(mechanism: GlmMechanism, rows: Array, others: Array, orders: Sequence[float]) -> Array:
    """Return a box, shape (d, 2), outside which no integrand of these orders matters.

    A scan keeps the nodes where some integrand is not negligible, and their hull, a node wider, is the next box; where
    it touches an edge, the box grows there, so that it follows an integrand whose peak the nodes had missed. The first
    box holds all: −ln of an integrand at w is at least κ′‖w‖²/2 − (λ−1)ρ(c‖w‖ + 1), with κ′ = κ less what a probit
    takes of it, and at 0 at most ρ(n − 1 + λ).
    """
    d, order = rows.shape[1] - 1, max(orders)
    power, c = mechanism.power, mechanism.norm_bound
    kept = mechanism.precision
    if mechanism.link.name == "probit":
        kept -= (order - 1.0) * power * c * c
    drift = (order - 1.0) * power * c + c
    depth = power * (others[:, -1].sum() + 2.0 * order) + 2.0 * _NEGLIGIBLE
    widest = min((drift + math.sqrt(drift * drift + 2.0 * kept * depth)) / kept, mechanism.radius)
    box = np.tile([-widest, widest], (d, 1))
    for _ in range(_MOST_MOVES):
        scan = [np.linspace(low, high, _SCAN[d]) for low, high in box]
        base, each = _log_densities(mechanism, rows, others, _grid(scan))
        matters = np.zeros(base.size, dtype=bool)
        for candidate in each:
            loss, density = candidate - each, base + candidate
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
        f"the distributions must have a width that a scan can see, have none at prior precision {mechanism.precision:g} and "
        f"{others[:, -1].sum():g} shared records; take fewer, or more along the axes"
    )
