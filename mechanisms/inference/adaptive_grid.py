"""Adaptive quadrature of the density of a scalar φ, and its distribution function, vectorised over trials.

A density is given by its logarithm, up to a constant, on an interval of φ that all trials share. The interval is
divided into `ROOT_PANELS` equal root panels, which are halved until they are resolved. A panel has 9 Chebyshev–Lobatto
nodes. Every second node belongs to the rule with 5 nodes, and the difference between the two (Clenshaw–Curtis) rules
estimates the error. A panel is negligible only if an upper bound on the density over the whole panel is negligible;
small values at the nodes do not suffice. Between the nodes the distribution function is interpolated by cubics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.jit import kernel
from mechanisms.core.sums import weighted_sum

ROOT_PANELS = 64
"""Number of root panels, whose indices are 64, …, 127. The halves of panel p have the indices 2p and 2p + 1."""

_MAX_ROUNDS = 45
_TOLERANCE = 1e-9  # difference of a panel's mass between the rules with 5 and 9 nodes, relative to the total mass
_LOG_NEGLIGIBLE = math.log(1e-17)
_MAX_UNSEEN = 3.0  # nats by which the bound on a resolved panel may exceed the largest value at its nodes


def _nested_rule(n_nodes: int) -> tuple[NDArray, NDArray, NDArray]:
    """Return Chebyshev–Lobatto nodes on [−1, 1], their weights, and the matrix that integrates from −1 to each."""
    nodes = np.sin(np.pi * (2 * np.arange(n_nodes) - (n_nodes - 1)) / (2 * (n_nodes - 1)))
    ends = np.where(np.arange(n_nodes) % (n_nodes - 1), 1.0, 0.5)
    values = np.polynomial.chebyshev.chebvander(nodes, n_nodes - 1)
    to_coefficients = 2 / (n_nodes - 1) * np.outer(ends, ends) * values.T
    antiderivative = np.polynomial.chebyshev.chebint(to_coefficients, lbnd=-1.0, axis=0)
    cumulative = weighted_sum(np.polynomial.chebyshev.chebvander(nodes, n_nodes), antiderivative)
    return nodes, cumulative[-1], cumulative


NODES, WEIGHTS, _CUMULATIVE = _nested_rule(9)
COARSE_WEIGHTS = _nested_rule(5)[1]


class Grid(NamedTuple):
    """Distribution of φ in each trial, tabulated at the nodes of all panels; arrays have shape (n_trials, g)."""

    points: Floats  # φ, ascending; ends of panels twice, last points of short rows repeated
    cdf: Floats  # distribution function at the points
    density: Floats  # its derivative


def panel_nodes(panel: Integers, low: float, root_width: float) -> Floats:
    """Return the 9 nodes of each panel, shape (panels, 9), ascending from end to end; panel 64 starts at `low`."""
    parts = 2.0 ** _levels(panel)
    left, right = (low + root_width * (edge / parts - ROOT_PANELS) for edge in (panel, panel + 1))
    fraction = (1 + NODES) / 2
    # In this form the common end of neighbouring panels is bitwise equal.
    return left[:, None] * (1 - fraction) + right[:, None] * fraction


def _levels(panel: Integers) -> Integers:
    return np.frexp(panel / ROOT_PANELS)[1] - 1


def refine(
    n_trials: int, root_width: float, evaluate: Callable[[Integers, Integers], tuple[Floats, Floats]]
) -> tuple[Integers, Integers, Floats]:
    """Halve panels in all trials until each is resolved or negligible; return trials, panels and log integrands.

    A panel is resolved if its estimated error is small relative to the total mass, whose estimate improves in each
    round. `evaluate` maps (trial, panel), both of shape (panels,), to the log integrand at the nodes, shape (panels,
    9), and an upper bound on it over each panel. Negligible panels are not returned.
    """
    trial = np.repeat(np.arange(n_trials), ROOT_PANELS)
    panel = np.tile(np.arange(ROOT_PANELS, 2 * ROOT_PANELS), n_trials)
    log_integrand, bound = evaluate(trial, panel)
    for _ in range(_MAX_ROUNDS):
        seen = log_integrand.max(axis=1)
        peak = np.full(n_trials, -np.inf)
        np.maximum.at(peak, trial, seen)
        integrand = np.exp(log_integrand - peak[trial, None])
        half_width = root_width / 2.0 ** (_levels(panel) + 1)
        mass = half_width * weighted_sum(integrand, WEIGHTS)
        total = np.bincount(trial, mass, n_trials)[trial]
        error = np.abs(mass - half_width * weighted_sum(integrand[:, ::2], COARSE_WEIGHTS))
        negligible = bound - peak[trial] + np.log(2 * half_width / total) < _LOG_NEGLIGIBLE
        resolved = (error <= _TOLERANCE * total) & (bound - seen <= _MAX_UNSEEN)
        split = ~(negligible | resolved)
        keep = resolved & ~negligible
        if not split.any():
            return trial[keep], panel[keep], log_integrand[keep]
        halves = np.repeat(trial[split], 2), np.ravel(2 * panel[split, None] + np.arange(2))
        pairs = zip((trial, panel, log_integrand, bound), (*halves, *evaluate(*halves)), strict=True)
        trial, panel, log_integrand, bound = (np.concatenate([old[keep], new]) for old, new in pairs)
    raise ValueError(f"the posterior is not resolved by {_MAX_ROUNDS} halvings in trial {trial[-1]}; check its release")


def tabulate(
    n_trials: int, trial: Integers, phi: Floats, log_integrand: Floats, to_theta: Callable[[Floats], Floats]
) -> tuple[Grid, Floats]:
    """Tabulate the distribution of φ in each trial by integrating over its panels from the left; also return means.

    `phi` and `log_integrand`, shape (panels, 9), belong to panels of `refine`. The means, shape (n_trials,), are those
    of θ = `to_theta`(φ).
    """
    order = np.lexsort((phi[:, 0], trial))
    trial, phi, log_integrand = trial[order], phi[order], log_integrand[order]
    n_panels = np.bincount(trial, minlength=n_trials)
    place = np.arange(trial.size) - (np.cumsum(n_panels) - n_panels)[trial]
    peak = np.full(n_trials, -np.inf)
    np.maximum.at(peak, trial, log_integrand.max(axis=1))
    integrand = np.exp(log_integrand - peak[trial, None])
    half_width = (phi[:, -1] - phi[:, 0])[:, None] / 2

    shape = (n_trials, n_panels.max(), NODES.size)
    points, density, increments = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    points += phi[np.cumsum(n_panels) - 1, -1][:, None, None]
    points[trial, place] = phi
    density[trial, place] = integrand
    increments[trial, place] = half_width * weighted_sum(integrand, _CUMULATIVE.T)
    before = np.cumsum(increments[:, :, -1], axis=1)
    total = before[:, -1]
    cdf = increments + np.concatenate([np.zeros((n_trials, 1)), before[:, :-1]], axis=1)[:, :, None]
    flat = (n_trials, shape[1] * shape[2])
    # Rounding and interpolation in the tails may break monotonicity by less than the tolerance.
    ordered = np.maximum.accumulate(cdf.reshape(flat) / total[:, None], axis=1)
    moment = np.bincount(trial, half_width[:, 0] * weighted_sum(integrand * to_theta(phi), WEIGHTS), n_trials)
    density /= total[:, None, None]
    return Grid(points.reshape(flat), np.clip(ordered, 0.0, 1.0), density.reshape(flat)), moment / total


def integrate_panels(points: Floats, values: Floats) -> Floats:
    """Return the integral over φ, shape (n_trials,), of a function with given values at the points of `tabulate`."""
    nodes, heights = (array.reshape(len(points), -1, NODES.size) for array in (points, values))
    return np.sum((nodes[..., -1] - nodes[..., 0]) / 2 * weighted_sum(heights, WEIGHTS), axis=1)


@kernel
def interpolate(points, cdf, density, phi):
    """Return the distribution function of each trial at the points `phi`, both of shape (n_trials, m)."""
    g, probability = points.shape[1], np.empty(phi.shape)
    for trial in range(phi.shape[0]):
        for j in range(phi.shape[1]):
            i = np.searchsorted(points[trial], phi[trial, j], side="right") - 1
            if i < 0:
                probability[trial, j] = 0.0
            elif i >= g - 1:
                probability[trial, j] = 1.0
            else:
                h, rise = points[trial, i + 1] - points[trial, i], cdf[trial, i + 1] - cdf[trial, i]
                t, slopes = (phi[trial, j] - points[trial, i]) / h, (h * density[trial, i], h * density[trial, i + 1])
                value = _hermite(t, cdf[trial, i], rise, slopes[0], slopes[1])[0]
                probability[trial, j] = min(max(value, cdf[trial, i]), cdf[trial, i + 1])
    return probability


@kernel
def invert(points, cdf, density, uniforms):
    """Return the quantiles of each trial at the levels `uniforms`, both of shape (n_trials, m)."""
    g, phi = points.shape[1], np.empty(uniforms.shape)
    for trial in range(uniforms.shape[0]):
        for j in range(uniforms.shape[1]):
            u = uniforms[trial, j]
            i = min(max(np.searchsorted(cdf[trial], u, side="right") - 1, 0), g - 2)
            h, rise = points[trial, i + 1] - points[trial, i], cdf[trial, i + 1] - cdf[trial, i]
            # Newton's method started on the chord, with bisection whenever a step leaves the bracket.
            low, high, t = 0.0, 1.0, 0.0
            if rise > 0.0:  # neighbouring values may be equal far in a tail
                t = min(max((u - cdf[trial, i]) / rise, 0.0), 1.0)
            for _ in range(60):
                value, slope = _hermite(t, cdf[trial, i] - u, rise, h * density[trial, i], h * density[trial, i + 1])
                if value > 0.0:
                    high = t
                else:
                    low = t
                new = t - value / slope
                if not low <= new <= high:
                    new = (low + high) / 2.0
                step = abs(new - t)
                t = new
                if step < 1e-9:
                    break
            phi[trial, j] = points[trial, i] + t * h
    return phi


@kernel
def _hermite(t, start, rise, start_slope, end_slope):
    """Return the value and the slope, at t in [0, 1], of a cubic Hermite polynomial."""
    a, b = start_slope + end_slope - 2.0 * rise, 3.0 * rise - 2.0 * start_slope - end_slope
    return start + t * (start_slope + t * (b + t * a)), start_slope + t * (2.0 * b + 3.0 * t * a)
