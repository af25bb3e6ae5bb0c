"""The registry of mechanisms that release counts, and thereby a Dirichlet posterior.

A mechanism turns (prior, counts, ε, δ) into a `CountRelease`: the law of the released counts c̃, from which one can
draw, and whose accuracy H(posterior(c), posterior(c̃)) has an exact mean. To add one, write it in a file of its own and
list it in `MECHANISMS`; the tests are parametrised over the registry.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). P1: "Differentially Private Bayesian Inference" (draft).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.candidates import require_streamable
from mechanisms.conjugate import validate_counts, validate_prior
from mechanisms.exponential import ExponentialMechanism, exponential_mechanism
from mechanisms.noise import LaplaceCounts, histogram_sensitivity, laplace_counts
from mechanisms.privacy import Guarantee, validate_delta, validate_epsilon
from mechanisms.release import CountRelease
from mechanisms.sensitivity import SENSITIVITIES, Sensitivity

__all__ = ["MECHANISMS", "Mechanism", "validate"]


Build = Callable[[NDArray[np.float64], NDArray[np.int64], float, float], CountRelease]


def validate(
    prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float
) -> tuple[NDArray[np.float64], NDArray[np.int64], float, float]:
    """Check and convert the arguments that every mechanism takes, without computing anything.

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0.
    counts : array_like, shape (k,)
        Whole numbers ≥ 0 with sum n ≥ 1.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    delta : float
        In (0, 1); pure mechanisms ignore it.

    Returns
    -------
    prior : ndarray of float64, shape (k,)
    counts : ndarray of int64, shape (k,)
    epsilon, delta : float

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> validate([1, 1], [2, 1], 1, 1e-8)
    (array([1., 1.]), array([2, 1]), 1.0, 1e-08)
    """
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)
    alpha = validate_prior(prior)
    return alpha, validate_counts(counts, k=alpha.size), epsilon, delta


@dataclass(frozen=True)
class Mechanism:
    """A way to release counts, with its guarantee.

    Parameters
    ----------
    name : str
        The key in `MECHANISMS`.
    note : str
        One sentence; for a mechanism that is not private, why.
    release : callable
        (prior, counts, epsilon, delta), validated, to `CountRelease`.
    spends : callable or None
        (epsilon, delta) to `Guarantee`; None for a mechanism without any.
    streams : bool
        Whether building passes through all candidates, which bounds n and k.

    Privacy
    -------
    The guarantee is under replacement of one record, n public, for the release alone: `CountRelease.counts` and
    `CountRelease.expected_hellinger` are of the true data and are not to be published.

    P0 states (ε, δ) for the smooth mechanisms without a proof. What we can prove is (3ε/2, δ): with V = H/S at c and
    V' at its neighbour c', and S ≥ S', smoothness gives V ≤ V' + 1 and V' ≤ 1 + exp(γ)·V. So the log ratio of the
    probabilities is at most ε + (ε/2)·(exp(γ) − 1)·V, where (exp(γ) − 1)·ln(2N/δ) = ε/2, and V > (2/ε)·ln(N/δ) has
    probability at most δ; the opposite ratio is bounded as an entropy is at most ln N. No case we enumerated exceeds ε,
    with δ = 0.

    Examples
    --------
    >>> mechanism = MECHANISMS["smooth"]
    >>> print(mechanism.guarantee(epsilon=1.0, delta=1e-8))
    (1, 1e-08)-DP
    >>> round(mechanism.build([1, 1], [50, 50], epsilon=1.0, delta=1e-8).expected_hellinger(), 3)
    0.348
    """

    name: str
    note: str
    release: Build = field(repr=False)
    spends: Callable[[float, float], Guarantee] | None = field(repr=False)
    streams: bool = True

    @property
    def private(self) -> bool:
        """Whether the mechanism states a guarantee."""
        return self.spends is not None

    def guarantee(self, epsilon: float, delta: float) -> Guarantee | None:
        """Return what is promised at these parameters; None if nothing is.

        Raises
        ------
        ValueError
            If epsilon or delta is not allowed.
        """
        epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)
        return None if self.spends is None else self.spends(epsilon, delta)

    def validate(
        self, prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], float, float]:
        """Check all that `build` would refuse on sight, sizes included; see `mechanisms.count_release.validate`."""
        alpha, c, epsilon, delta = validate(prior, counts, epsilon, delta)
        if self.streams:
            require_streamable(int(c.sum()), c.size)
        return alpha, c, epsilon, delta

    def build(self, prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float) -> CountRelease:
        """Return the law of the released counts.

        Parameters
        ----------
        prior, counts, epsilon, delta
            As in `mechanisms.count_release.validate`.

        Returns
        -------
        CountRelease

        Raises
        ------
        ValueError
            If an argument is not allowed or the problem is too large, before anything is computed.
        """
        return self.release(*self.validate(prior, counts, epsilon, delta))


def _exponential(sensitivity: Sensitivity) -> Build:
    def release(
        prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
    ) -> ExponentialMechanism:
        scale = sensitivity.at(prior, counts, epsilon, delta)
        return exponential_mechanism(prior, counts, 2.0 * sensitivity.share * epsilon, scale)

    return release


def _laplace(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> LaplaceCounts:
    return laplace_counts(prior, counts, histogram_sensitivity(counts.size) / epsilon)


def _laplace_dimension(
    prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
) -> LaplaceCounts:
    return laplace_counts(prior, counts, counts.size / epsilon)


def _pure(epsilon: float, delta: float) -> Guarantee:
    return Guarantee(epsilon)


MECHANISMS: dict[str, Mechanism] = {
    **{
        name: Mechanism(name, sensitivity.note, _exponential(sensitivity), sensitivity.spends)
        for name, sensitivity in SENSITIVITIES.items()
    },
    "laplace": Mechanism(
        name="laplace",
        note="Laplace noise on k - 1 counts, scaled to the histogram's sensitivity: 1 at k = 2, 2 above.",
        release=_laplace,
        spends=_pure,
        streams=False,
    ),
    "laplace-dimension": Mechanism(
        name="laplace-dimension",
        note="Laplace noise on k - 1 counts, scaled to the dimension k as in P0; more noise than the guarantee needs.",
        release=_laplace_dimension,
        spends=_pure,
        streams=False,
    ),
}
