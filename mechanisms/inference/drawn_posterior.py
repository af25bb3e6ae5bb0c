"""Posterior represented by the draws of a sampler, with the Monte Carlo error of its mean."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.inference.records import Floats
from mechanisms.protocols import Posterior, validate_probabilities

__all__ = ["DrawnPosterior"]


@dataclass(frozen=True, eq=False)
class DrawnPosterior(Posterior):
    """Posterior represented by the draws of a sampler.

    Parameters
    ----------
    draws : ndarray of float64, shape (n_chains, n_draws) or (n_chains, n_draws, p)
        Draws of θ, which may be autocorrelated within a chain.

    Examples
    --------
    >>> posterior = DrawnPosterior(np.random.default_rng(1).normal(size=(4, 1000)))
    >>> posterior.cdf([0.0, 1.0]).round(2), round(posterior.mcse(), 3)
    (array([0.51, 0.85]), 0.016)
    """

    draws: Floats = field(repr=False)

    def mean(self) -> Floats | float:
        """Return the mean of the draws; `mcse` is its standard error."""
        found = self._pooled.mean(axis=0)
        return found if found.ndim else float(found)

    def std(self) -> Floats | float:
        """Return the standard deviation of the draws."""
        found = self._pooled.std(axis=0)
        return found if found.ndim else float(found)

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the fraction of draws ≤ θ; if θ is a vector, the last axis of `theta` contains its components."""
        values = np.asarray(theta, dtype=np.float64)
        if self.draws.ndim == 2:
            return self._shares(self._pooled, values)
        shares = [self._shares(column, values[..., j]) for j, column in enumerate(self._pooled.T)]
        return np.stack(shares, axis=-1)

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of the draws; if θ is a vector, the last axis contains its components."""
        return np.quantile(self._pooled, validate_probabilities(probabilities), axis=0)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` of the draws, chosen with replacement."""
        return self._pooled[rng.integers(len(self._pooled), size=size)]

    def mcse(self) -> Floats | float:
        """Return the Monte Carlo standard error of the mean, from the effective sample size of all chains."""
        from arviz_stats.base import array_stats  # slow import (1 s)

        found = np.asarray(array_stats.mcse(self.draws, chain_axis=0, draw_axis=1, method="mean"))
        return found if found.ndim else float(found)

    @property
    def _pooled(self) -> Floats:
        return self.draws.reshape(-1, *self.draws.shape[2:])

    @staticmethod
    def _shares(draws: Floats, theta: Floats) -> Floats:
        return np.searchsorted(np.sort(draws), theta, side="right") / draws.size
