"""Base class for the output distributions of mechanisms that release counts."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import validate_integer
from mechanisms.conjugate import rank_candidates
from mechanisms.privacy import Guarantee

__all__ = ["CountRelease"]


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

    prior: NDArray[np.float64]
    counts: NDArray[np.int64]
    guarantee: Guarantee | None = None

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
    def from_uniforms(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
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

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Return `size` independent draws of released counts, shape (size, k), for simulation.

        The state of `rng` reveals the noise, and draws in double precision are not private; `mechanisms.publish_counts`
        releases real counts.
        """
        return self.from_uniforms(rng.random((validate_integer("size", size, least=0), self.n_uniforms)))

    @abstractmethod
    def expected_hellinger(self) -> float:
        """Return the exact mean Hellinger distance between the true and the released posterior.

        Raises
        ------
        ValueError
            If there are too many possible outputs for an exact mean.
        """

    @abstractmethod
    def log_pmf(self) -> NDArray[np.float64]:
        """Return the log probability of all counts of n records, in the order of `enumerate_candidates`.

        Returns
        -------
        ndarray of float64, shape (|R|,)
            In nats; −inf for impossible counts. Values of counts far from the true counts do not underflow.

        Raises
        ------
        ValueError
            If there are more than `mechanisms.conjugate.MAX_ENUMERATED` counts of n records.
        """

    def log_prob(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return the log probability of released counts.

        Parameters
        ----------
        values : array_like, shape (..., k)
            Integers ≥ 0 with sum n.

        Returns
        -------
        ndarray of float64, shape (...)

        Raises
        ------
        ValueError
            If the counts are not integers ≥ 0 with sum n, or `log_pmf` raises an error.
        """
        return self.log_pmf()[rank_candidates(values, self.n, self.k)]

    def pmf(self) -> NDArray[np.float64]:
        """Return the probability of all counts of n records, in the order of `log_pmf`."""
        return np.exp(self.log_pmf())
