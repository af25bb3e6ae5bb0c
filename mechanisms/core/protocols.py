"""Protocols of output distributions and of posterior distributions."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.core.arguments import Floats


@runtime_checkable
class OutputDistribution(Protocol):
    """Distribution of a release at one data set.

    Parameters of the distribution that depend on the data are private, and the representation omits them.
    """

    @property
    def guarantee(self) -> Any:
        """Privacy guarantee of one draw, or a function from the Rényi order to the guarantee; None if there is none."""

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[Any]:
        """Return `size` independent draws, one per row."""

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log probability, or log density, of each value, one per row."""


@runtime_checkable
class Posterior(Protocol):
    """Posterior distribution of a scalar, or of each component of a vector, in one or more trials.

    Returned arrays have the shape of the trials, followed by an axis of draws or probabilities and the axis of
    components, if there are any.
    """

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` independent draws per trial."""

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of values ≤ `theta`."""

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return the quantiles at one probability, or at an array of probabilities of shape (c,), in (0, 1)."""

    def mean(self) -> Floats | float:
        """Return the posterior mean."""

    def std(self) -> Floats | float:
        """Return the posterior standard deviation."""

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the equal-tailed interval of probability `level`, in (0, 1)."""
        (level,) = validate_probabilities([level])
        return self.quantile((1.0 - level) / 2.0), self.quantile((1.0 + level) / 2.0)


def validate_probabilities(probabilities: ArrayLike) -> Floats:
    """Return probabilities as an array after checking that they lie in (0, 1)."""
    p = np.asarray(probabilities, dtype=np.float64)
    if not np.all((p > 0) & (p < 1)):
        raise ValueError(f"p must be in (0, 1), got {p[~((p > 0) & (p < 1))].flat[0]}; choose e.g. 0.975")
    return p
