"""Base class for releases of counts whose whole distribution over the candidates is stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.conjugate import enumerate_candidates
from mechanisms.counts.candidates import require_uniforms
from mechanisms.counts.release import CountRelease

__all__ = ["TabulatedRelease"]


@dataclass(frozen=True, eq=False, repr=False)
class TabulatedRelease(CountRelease):
    """Distribution of released counts at one data set, stored as a table over all counts of n records."""

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    _log_pmf: NDArray[np.float64]
    _expected: float

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw: one."""
        return 1

    def from_uniforms(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw released counts by inversion; see `CountRelease.from_uniforms`."""
        u = require_uniforms(uniforms, self.n_uniforms)[:, 0]
        cumulative = np.cumsum(np.exp(self._log_pmf))
        # If the product is rounded up to the total, take the first candidate that reaches it.
        last = np.searchsorted(cumulative, cumulative[-1])
        picked = np.minimum(np.searchsorted(cumulative, u * cumulative[-1], side="right"), last)
        return enumerate_candidates(self.n, self.k)[picked]

    def expected_hellinger(self) -> float:
        """Return the exact mean Hellinger distance between the true and the released posterior."""
        return self._expected

    def log_pmf(self) -> NDArray[np.float64]:
        """Return the log-pmf over all counts of n records; see `CountRelease.log_pmf`."""
        return self._log_pmf.copy()
