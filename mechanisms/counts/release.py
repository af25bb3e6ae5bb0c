"""Output distributions of mechanisms that release counts: base class, stored tables, and samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arguments import Floats, Integers, validate_integer
from mechanisms.conjugate import enumerate_candidates, rank_candidates
from mechanisms.counts.candidates import require_uniforms
from mechanisms.privacy import Guarantee

SampleCounts = Callable[[np.random.Generator, Integers, float, float, int], ArrayLike]


class CountRelease(ABC):
    """Distribution of released counts at one data set; `mechanisms.counts.registry` lists the mechanisms.

    Attributes
    ----------
    prior : ndarray of float64, shape (k,)
        Dirichlet parameters.
    counts : ndarray of int64, shape (k,)
        True counts, which are private and omitted from the representation.
    guarantee : Guarantee or None
        Guarantee of one draw; None if there is none, or if the release was not built by a `Mechanism`.
    """

    prior: Floats
    counts: Integers
    guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, k={self.k})"

    @property
    def k(self) -> int:
        """Number of categories."""
        return self.counts.size

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.counts.sum())

    @property
    @abstractmethod
    def n_uniforms(self) -> int:
        """Number of uniforms in [0, 1) per draw."""

    @abstractmethod
    def from_uniforms(self, uniforms: Floats) -> Integers:
        """Return one draw of released counts per row of `uniforms`.

        Parameters
        ----------
        uniforms : ndarray of float64, shape (trials, n_uniforms)
            Values in [0, 1). Draw i depends on row i only, so draws do not depend on the batching of trials. Uniforms
            reveal the noise: outside a simulation they must be secret, fresh and never shared between releases.

        Returns
        -------
        ndarray of int64, shape (trials, k)

        Raises
        ------
        ValueError
            If the shape is wrong or a value is outside [0, 1).
        """

    def sample(self, rng: np.random.Generator, size: int) -> Integers:
        """Return `size` independent draws of released counts, shape (size, k), for simulation.

        The state of `rng` reveals the noise, and draws in double precision are not private; `mechanisms.publish_counts`
        releases real counts.
        """
        return self.from_uniforms(rng.random((validate_integer("size", size, least=0), self.n_uniforms)))

    @abstractmethod
    def expected_hellinger(self) -> float:
        """Return the exact mean Hellinger distance between the true and the released posterior.

        Too many possible outputs for an exact mean raise ValueError.
        """

    @abstractmethod
    def log_pmf(self) -> Floats:
        """Return the log probability of all counts of n records, shape (|R|,), in the order of `enumerate_candidates`.

        Values are in nats, −inf for impossible counts, and do not underflow far from the true counts. More than
        `mechanisms.conjugate.MAX_ENUMERATED` counts of n records raise ValueError.
        """

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log probability, shape (...), of released counts of shape (..., k).

        Counts that are not integers ≥ 0 with sum n raise ValueError, and so may `log_pmf`.
        """
        return self.log_pmf()[rank_candidates(values, self.n, self.k)]

    def pmf(self) -> Floats:
        """Return the probability of all counts of n records, in the order of `log_pmf`."""
        return np.exp(self.log_pmf())


@dataclass(frozen=True, eq=False, repr=False)
class TabulatedRelease(CountRelease):
    """Distribution of released counts at one data set, stored as a table over all counts of n records."""

    prior: Floats
    counts: Integers
    _log_pmf: Floats
    _expected: float

    n_uniforms = 1

    def from_uniforms(self, uniforms: Floats) -> Integers:
        u = require_uniforms(uniforms, self.n_uniforms)[:, 0]
        cumulative = np.cumsum(np.exp(self._log_pmf))
        # If the product is rounded up to the total, take the first candidate that reaches it.
        last = np.searchsorted(cumulative, cumulative[-1])
        picked = np.minimum(np.searchsorted(cumulative, u * cumulative[-1], side="right"), last)
        return enumerate_candidates(self.n, self.k)[picked]

    def expected_hellinger(self) -> float:
        return self._expected

    def log_pmf(self) -> Floats:
        return self._log_pmf.copy()


@dataclass(frozen=True, eq=False, repr=False)
class SampledCounts(CountRelease):
    """Release of counts at one data set by the `sampler` of a `Mechanism`."""

    prior: Floats
    counts: Integers
    epsilon: float
    delta: float
    sampler: SampleCounts = field(repr=False)

    n_uniforms = 1  # which seeds the generator of a draw

    def from_uniforms(self, uniforms: Floats) -> Integers:
        """Draw released counts, each with a generator of its own, so that draws do not depend on their batch."""
        seeds = (require_uniforms(uniforms, 1)[:, 0] * 2.0**53).astype(np.int64).tolist()
        draws = [self._draw(np.random.Generator(np.random.PCG64DXSM(seed)), 1)[0] for seed in seeds]
        return np.array(draws, dtype=np.int64).reshape(len(seeds), self.k)

    def sample(self, rng: np.random.Generator, size: int) -> Integers:
        """Return `size` independent draws of released counts, shape (size, k), from one call of the sampler."""
        return self._draw(rng, size)

    def expected_hellinger(self) -> float:
        raise ValueError("the mechanism can only be sampled, and has no exact mean; average the distances of draws")

    def log_pmf(self) -> Floats:
        raise ValueError("the mechanism can only be sampled, and has no pmf; audit it by sampled_bound")

    def _draw(self, rng: np.random.Generator, size: int) -> Integers:
        drawn = np.asarray(self.sampler(rng, self.counts.copy(), self.epsilon, self.delta, size))
        is_valid = drawn.shape == (size, self.k) and drawn.dtype.kind in "iu"
        if not (is_valid and np.all(drawn >= 0) and np.all(drawn.sum(axis=1) == self.n)):
            raise ValueError(
                f"a sampler must return integers >= 0 of shape ({size}, {self.k}) with sums n, got {drawn.dtype} of "
                f"shape {drawn.shape}; return one release per row"
            )
        return drawn.astype(np.int64)
