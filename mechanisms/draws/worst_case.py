"""Data sets for which the Rényi divergence of GLM posterior sampling is large relative to the bound of P3's Theorem 16.

The density of a draw is p(w) ∝ exp(ρ·Σ ln p(yᵢ | xᵢ·w) − κ‖w‖²/2), κ = nβ, with the logistic link. The slope of a
record is the gradient of ln p(y | x·w) with respect to w. The bound 2c²ρ²λ/κ assumes that the slopes of two records
differ by 2c. Let σ be the logistic function and m = max vσ(−v) = 0.278465, which is attained at v = 1 + m (m·e^m =
1/e). Let n − 1 *shared* records ((s, 0), 1), s ≤ c, shift the mode to (W, 0), where their slopes balance the prior,
ρ(n−1)·sσ(−sW) = κW. With v = sW this is W² = ρvσ(−v)(n−1)/κ ≤ ρm(n−1)/κ, so that W is of order 1/√β, and records with
small norms shift the mode further than records with large norms. As n and κ grow, the distributions become normal, and
the divergence of order λ tends to λρ²Δ²/(2h), with Δ the difference of the slopes at the mode and h the Hessian.

**In two dimensions the bound is tight in the limit.** The records c(−cos φ, ±sin φ) with label 1 are misclassified.
Their slopes differ by Δ = 2c·sin φ·σ(cW·cos φ) along the second axis. Along this axis the shared records contribute
nothing to the Hessian, so h = κ. The ratio of the divergence to the bound is sin²φ·σ(cW·cos φ)². As β → 0, W grows, the
best φ tends to a right angle, and the ratio tends to 1. This holds at every κ, as the marginal along the second axis
then tends to N(±c·sin φ·ρ/κ, 1/κ).

**In one dimension it is not tight.** Two slopes differ by |sσ(−sw) − s′σ(−s′w)|. If cw ≥ 1 + m, this is at most c times
σ(cw) + m/(cw), with equality for the records −c and (1 + m)/w. The maximum of this factor is 1.05163 at cw = 4.0316. If
cw < 1 + m, slopes differ by at most c. So no divergence exceeds 1.05163²/4 = 0.27648 times the bound. The shared
records contribute κ·vσ(v) to the Hessian, so this value is approached as the norms of the shared records tend to 0.

References
----------
P3, section 4.2, which states in an appendix that the bound is tight for logistic regression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, lambertw

from mechanisms.core.arguments import Floats, describe, is_real, validate_integer, validate_positive
from mechanisms.core.privacy_parameters import validate_size
from mechanisms.draws.glm_mechanisms import GlmMechanism

_PUSH = float(lambertw(math.exp(-1.0)).real)
# largest possible ratio of a divergence to the bound of Theorem 16 for one-dimensional x: (1.05163/2)²
LARGEST_SHARE_1D = 0.276483513043387


@dataclass(frozen=True, eq=False)
class LimitingCase:
    """Pair of data sets whose divergence is largest relative to its bound, in the limit n, κ → ∞ at a fixed β."""

    share: float  # limit of the divergence divided by its bound 2c²ρ²λ/κ, for every order
    mode: float  # first component W of the mode given the shared records
    shared: Floats = field(repr=False)  # row x₁, …, x_d, y that all shared records have in common
    candidates: Floats = field(repr=False)  # rows x₁, …, x_d, y of the replaced record and its replacement


def limiting_case(beta: float, dimension: int, norm_bound: float = 1.0, power: float = 1.0) -> LimitingCase:
    """Return the pair of data sets with the largest limiting divergence relative to the bound, for x in R¹ or R²."""
    validate_dimension(dimension)
    for argument, value in (("beta", beta), ("norm_bound", norm_bound), ("power", power)):
        validate_positive(argument, value, "choose a number > 0")
    c = norm_bound
    longest = brentq(lambda v: beta * v - power * c * c * expit(-v), 0.0, power * c * c / beta)
    furthest = min(longest, 1.0 + _PUSH)  # v with the largest mode, for records within the norm bound

    def mode(v: float) -> float:
        return math.sqrt(power * v * expit(-v) / beta)

    if dimension == 2:
        W = mode(furthest)

        def across(angle: float) -> float:
            return float(np.sin(angle) * expit(c * W * np.cos(angle))) ** 2

        angle = _argmax(across, 0.0, math.pi / 2)
        pair = np.array([[-c * math.cos(angle), sign * c * math.sin(angle), 1.0] for sign in (1.0, -1.0)])
        return LimitingCase(across(angle), W, np.array([min(c, furthest / W), 0.0, 1.0]), pair)

    def along(log_v: float) -> float:
        v = math.exp(log_v)
        t = c * mode(v)
        return 0.25 * (float(expit(t)) + _PUSH / t) ** 2 / (1.0 + v * float(expit(v)))

    enough = (1.0 + _PUSH) / c  # for smaller modes the largest difference of slopes is c
    if mode(furthest) > enough:
        least = brentq(lambda v: mode(v) - enough, 0.0, furthest)
        log_v = _argmax(along, math.log(least), math.log(furthest))
        if along(log_v) > 0.25:
            v, W = math.exp(log_v), mode(math.exp(log_v))
            pair = np.array([[-c, 1.0], [(1.0 + _PUSH) / W, 1.0]])
            return LimitingCase(along(log_v), W, np.array([v / W, 1.0]), pair)
    return LimitingCase(0.25, 0.0, np.array([0.0, 1.0]), np.array([[-c, 1.0], [c, 1.0]]))


def _argmax(function: Callable[[float], float], low: float, high: float) -> float:
    optimum = minimize_scalar(lambda x: -function(x), bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    return float(optimum.x)


def candidate_records(
    norm_bound: float, dimension: int, size: int, labels: Sequence[int] = (1,), shares: Sequence[float] = (0.5, 1.0)
) -> Floats:
    """Return a grid of records x₁, …, x_d, y within the norm bound, each x with each label.

    For d = 1, `size` is the number of x; for d = 2, of directions, with norms c·`shares`. With a symmetric link a
    record (x, 0) is equivalent to (−x, 1), and the label 1 suffices.
    """
    size = validate_integer("size", size)
    if validate_dimension(dimension) == 1:
        x = np.linspace(-norm_bound, norm_bound, size)[:, None]
    else:
        angles = 2.0 * np.pi * np.arange(size) / size
        circle = np.column_stack([np.cos(angles), np.sin(angles)])
        x = np.concatenate([share * norm_bound * circle for share in shares])
    return np.concatenate([np.column_stack([x, np.full(len(x), float(label))]) for label in labels])


def shared_records(mechanism: GlmMechanism, n: int, dimension: int) -> dict[str, Floats | None]:
    """Return sets of n − 1 records, rows x₁, …, x_d, y, multiplicity, that are `shared` of `audit_replacements`.

    ``separable``: norm c, in one direction, with label 1. ``weak``: the smaller norm that shifts the mode furthest.
    ``weaker``, for d = 1: a still smaller norm, for which divergences are closer to the bound. ``balanced``: equally
    many, up to rounding, in each direction along the axes. For n = 1 the only entry is ``none``, with the value None.
    """
    n = validate_size(n)
    if n == 1:
        return {"none": None}
    c, axes = mechanism.norm_bound, np.eye(dimension)
    length = {
        d: limiting_case(mechanism.precision / (n - 1), d, c, mechanism.power).shared[0] for d in range(dimension, 3)
    }
    signed = c * np.concatenate([axes, -axes])
    counts = np.full(len(signed), (n - 1) // len(signed))
    counts[: (n - 1) % len(signed)] += 1
    balanced = np.column_stack([signed, np.ones(len(signed)), counts])

    def alike(norm: float) -> Floats:
        return np.array([[*(norm * axes[0]), 1.0, n - 1.0]])

    weaker = {"weaker": alike(length[1])} if dimension == 1 else {}
    return {"separable": alike(c), "weak": alike(length[2]), **weaker, "balanced": balanced[counts > 0]}


def validate_dimension(dimension: int) -> int:
    """Return the dimension of x after checking that audits by quadrature support it."""
    if not is_real(dimension) or dimension not in (1, 2):
        raise ValueError(f"x must have 1 or 2 dimensions, got {describe(dimension)}; reduce the dimension")
    return int(dimension)
