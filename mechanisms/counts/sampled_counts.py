"""Releases of counts by mechanisms that can be sampled, but whose output distribution is not computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.counts.candidates import require_uniforms
from mechanisms.counts.release import CountRelease

__all__ = ["SampleCounts", "SampledCounts"]

SampleCounts = Callable[[np.random.Generator, NDArray[np.int64], float, float, int], ArrayLike]


@dataclass(frozen=True, eq=False, repr=False)
class SampledCounts(CountRelease):
    """Release of counts at one data set by the `sampler` of a `Mechanism`."""

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    epsilon: float
    delta: float
    sampler: SampleCounts = field(repr=False)

    @property
    def n_uniforms(self) -> int:
        """One uniform, which seeds the generator of a draw."""
        return 1

    def from_uniforms(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw released counts, each with a generator of its own, so that draws do not depend on their batch."""
        seeds = (require_uniforms(uniforms, 1)[:, 0] * 2.0**53).astype(np.int64).tolist()
        draws = [self._draw(np.random.Generator(np.random.PCG64DXSM(seed)), 1)[0] for seed in seeds]
        return np.array(draws, dtype=np.int64).reshape(len(seeds), self.k)

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Return `size` independent draws of released counts, shape (size, k), from one call of the sampler."""
        return self._draw(rng, size)

    def expected_hellinger(self) -> float:
        """Raise ValueError, as the distribution is not computed."""
        raise ValueError("the mechanism can only be sampled, and has no exact mean; average the distances of draws")

    def log_pmf(self) -> NDArray[np.float64]:
        """Raise ValueError, as the distribution is not computed."""
        raise ValueError("the mechanism can only be sampled, and has no pmf; audit it by sampled_bound")

    def _draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        drawn = np.asarray(self.sampler(rng, self.counts.copy(), self.epsilon, self.delta, size))
        is_valid = drawn.shape == (size, self.k) and drawn.dtype.kind in "iu"
        if not (is_valid and np.all(drawn >= 0) and np.all(drawn.sum(axis=1) == self.n)):
            raise ValueError(
                f"a sampler must return integers >= 0 of shape ({size}, {self.k}) with sums n, got {drawn.dtype} of "
                f"shape {drawn.shape}; return one release per row"
            )
        return drawn.astype(np.int64)
