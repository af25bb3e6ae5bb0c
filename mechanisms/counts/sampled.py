"""Released counts of a mechanism for which only a sampler is available.

Such a mechanism can be compared with others by simulation. The exact mean distance and the exact audit require the
probabilities of the released counts; for such a mechanism they raise ValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mechanisms.counts.release import CountRelease

__all__ = ["SampledCounts"]

_WORDS = 2  # number of uniforms that seed the generator of one draw


@dataclass(frozen=True, repr=False, eq=False)
class SampledCounts(CountRelease):
    """Distribution of released counts that is defined by a sampler only."""

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    # one draw, shape (k,), with any number of random numbers
    draw: Callable[[np.random.Generator], NDArray[np.int64]] = field(repr=False)

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw, which seed the generator of the draw."""
        return _WORDS

    def from_uniforms(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return one draw per row of `uniforms`; see `CountRelease.from_uniforms`."""
        rows = np.asarray(uniforms, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != _WORDS or not ((rows >= 0) & (rows < 1)).all():
            raise ValueError(
                f"uniforms must be in [0, 1) and have shape (trials, {_WORDS}), got shape {rows.shape}; draw "
                f"{_WORDS} numbers per trial"
            )
        words = np.ldexp(rows, 53).astype(np.uint64).tolist()
        draws = [np.asarray(self.draw(np.random.Generator(np.random.PCG64DXSM(seed)))) for seed in words]
        for drawn in draws:
            if drawn.shape != self.counts.shape or drawn.dtype.kind not in "iu" or (drawn < 0).any():
                raise ValueError(
                    f"a draw must be {self.k} integers >= 0, got dtype {drawn.dtype} and shape {drawn.shape}; correct "
                    "the sampler"
                )
        return np.array(draws, dtype=np.int64).reshape(len(draws), self.k)

    def expected_hellinger(self) -> float:
        """Raise ValueError: the exact mean requires the probabilities of the released counts."""
        raise ValueError(
            "the exact mean requires the probabilities of the released counts, got a sampler; estimate it by simulation"
        )

    def log_pmf(self) -> NDArray[np.float64]:
        """Raise ValueError: the probabilities are not known."""
        raise ValueError(
            "an exact audit requires the probabilities of the released counts, got a sampler; define log_pmf"
        )
