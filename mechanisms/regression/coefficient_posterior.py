"""Posterior distribution of one regression coefficient in each of many partitions, as returned by `posterior`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.jit import kernel
from mechanisms.protocols import Posterior, validate_probabilities

__all__ = ["CoefficientPosterior", "add_in_order"]

Floats = NDArray[np.float64]

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
        """Return Pr[β_k ≤ b] for each cutoff b.

        Cutoffs have shape (..., c) or (); their leading axes broadcast with those of the posterior.
        """
        b = np.asarray(cutoffs, dtype=np.float64)
        if np.any(np.isnan(b)):
            raise ValueError("cutoffs must be numbers, got NaN; remove NaN")
        z = (b[..., None] - self._lifted(self.locations, b)) / self._lifted(self.scales, b)
        below = special.ndtr(z)
        finite = np.isfinite(self.degrees)
        if finite.any():
            df = np.where(finite, self.degrees, 1.0)[..., None]
            student = special.stdtr(df[..., None] if b.ndim else df, z)
            normal = ~finite[..., None]
            below = np.where(normal[..., None] if b.ndim else normal, below, student)
        return np.minimum(add_in_order(self._lifted(self.weights, b) * below), 1.0)

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return the quantile b with Pr[β_k ≤ b] = p for each probability p.

        Probabilities have shape (c,) or (), quantiles (..., c) or (...).
        """
        p = validate_probabilities(probabilities)
        z = special.ndtri(p)
        if np.isfinite(self.degrees).any():
            df = self.degrees.reshape(self.degrees.shape + (1,) * p.ndim)
            z = np.where(np.isfinite(df), special.stdtrit(np.where(np.isfinite(df), df, 1.0), p), z)
        each = self._lifted(self.locations, p) + self._lifted(self.scales, p) * z[..., None]
        if self.weights.shape[-1] == 1:
            return each[..., 0]
        mean, std = (each.reshape(each.shape + (1,) * p.ndim) for each in (self.mean(), self.std()))
        guess = mean + std * z
        low, high = each.min(axis=-1), each.max(axis=-1)
        flat = (array.reshape(-1, self.weights.shape[-1]) for array in (self.weights, self.locations, self.scales))
        roots = [array.reshape(-1, p.size).copy() for array in (np.clip(guess, low, high), low, high)]
        _solve(*flat, p.ravel(), *roots)
        return roots[0].reshape(guess.shape)

    def _lifted(self, array: Floats, values: Floats) -> Floats:
        """Return `array`, shape (..., q), with an additional axis before the last unless `values` is a scalar."""
        return array[..., None, :] if values.ndim else array


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
