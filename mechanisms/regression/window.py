"""Exponential mechanism over a public range, whose score is the number of values in a window."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.privacy import Guarantee
from mechanisms.privacy_parameters import validate_epsilon
from mechanisms.protocols import OutputDistribution

__all__ = ["WindowDistribution", "flatten", "window_distribution"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WindowDistribution(OutputDistribution):
    """Output distribution of the exponential mechanism whose score is the number of values in a window.

    The density is piecewise constant, up to the factor 1/√(x² + μ²).
    """

    edges: Floats = field(repr=False)  # ends of the s steps of the density, ascending
    log_masses: Floats = field(repr=False)  # log probability of each step, shape (s,); −inf for steps of length zero
    unit: float  # μ of the density 1/√(x² + μ²) within a step; inf for a uniform density
    epsilon: float  # of one draw, in nats

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one draw."""
        return Guarantee(self.epsilon)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent draws, shape (size,)."""
        cumulative = np.cumsum(np.exp(self.log_masses))
        uniforms = rng.random((size, 2))
        # the first step with cumulative mass above u < 1 never has length zero
        steps = np.searchsorted(cumulative / cumulative[-1], uniforms[:, 0], side="right")
        ends = flatten(self.edges, self.unit)
        drawn = ends[steps] + uniforms[:, 1] * (ends[steps + 1] - ends[steps])
        # math.sinh, because the accuracy of np.sinh depends on the processor
        return np.array([self.unit * math.sinh(x) for x in drawn]) if math.isfinite(self.unit) else drawn

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log density at values of any shape; −inf outside the public range."""
        x = np.asarray(values, dtype=np.float64)
        lengths = np.diff(flatten(self.edges, self.unit))
        steps = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, lengths.size - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.log_masses[steps] - np.log(lengths[steps])
        jacobian = -0.5 * np.log(x * x + self.unit**2) if math.isfinite(self.unit) else 0.0
        inside = (x >= self.edges[0]) & (x < self.edges[-1])
        return np.where(inside, found + jacobian, -np.inf)


def flatten(x: Floats, unit: float) -> Floats:
    """Transform x to a coordinate in which the density 1/√(x² + μ²) is uniform."""
    return np.arcsinh(x / unit) if math.isfinite(unit) else x


def window_distribution(
    values: ArrayLike, half_window: float, epsilon: float, reach: tuple[float, float], unit: float = math.inf
) -> WindowDistribution:
    """Return the distribution ∝ exp((ε/2)·#{j : |v_j − x| ≤ h})/√(x² + μ²) over a public, finite range `reach`.

    The half-width h > 0 may be the result of an earlier release. μ = `unit` > 0; by default the base distribution is
    uniform. A draw is ε-DP: replacing one value v_j changes every count by at most 1, and the normaliser by a factor of
    at most e^(ε/2). Values outside the range are clipped to it, so that windows at its ends contain them.
    """
    v = np.asarray(values, dtype=np.float64)
    low, high = reach
    if not half_window > 0:
        raise ValueError(f"half_window must be > 0, got {half_window}; pass half the width of the window")
    if v.ndim != 1 or not v.size or np.any(np.isnan(v)):
        raise ValueError(
            f"values must be numbers of shape (M,), got shape {v.shape}, {np.isnan(v).sum()} NaN; "
            "pass one value per partition"
        )
    epsilon = validate_epsilon(epsilon)
    v = np.clip(v, low, high)
    starts, ends = np.sort(v - half_window), np.sort(v + half_window)
    edges = np.concatenate([[low], np.clip(np.sort(np.concatenate([starts, ends])), low, high), [high]])
    middles = edges[:-1] + 0.5 * np.diff(edges)
    counts = np.searchsorted(starts, middles, side="right") - np.searchsorted(ends, middles, side="left")
    lengths = np.maximum(np.diff(flatten(edges, unit)), 0.0)
    with np.errstate(divide="ignore"):
        logs = np.log(lengths) + 0.5 * epsilon * counts
    top = logs.max()
    return WindowDistribution(edges, logs - (top + math.log(np.exp(logs - top).sum())), unit, epsilon)
