"""Registry of the mechanisms that release counts, and thereby a Dirichlet posterior.

A mechanism maps (prior, counts, ε, δ) to a `CountRelease`, the distribution of the released counts c̃, with draws and
the exact mean of the distance H(posterior(c), posterior(c̃)). To add a mechanism, define it in a separate file and add
it to `MECHANISMS`; the tests are parametrised over the registry.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). P1: "Differentially Private Bayesian Inference" (draft).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.conjugate import validate_counts, validate_prior
from mechanisms.counts.bound_calibration import bound_scale, require_bound
from mechanisms.counts.calibration import Calibration, calibrate, require_calibratable
from mechanisms.counts.exponential import exponential_mechanism
from mechanisms.counts.hamming import HammingMechanism, hamming_mechanism
from mechanisms.counts.hamming_loss import calibrate_hamming, hamming_loss, require_hamming
from mechanisms.counts.noise import NoisyCounts, geometric_counts, histogram_sensitivity, laplace_counts
from mechanisms.counts.optimal import MAX_EPSILON, OptimalCounts, optimal_counts, require_solvable
from mechanisms.counts.product_distributions import require_product_distributions
from mechanisms.counts.release import CountRelease
from mechanisms.counts.scales import SENSITIVITIES, Sensitivity
from mechanisms.metadata import Entry, Style
from mechanisms.privacy import Guarantee, pure_guarantee, validate_delta, validate_epsilon

__all__ = ["MECHANISMS", "Mechanism", "validate"]


Build = Callable[[NDArray[np.float64], NDArray[np.int64], float, float], CountRelease]


def validate(
    prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64], float, float | None]:
    """Validate and convert the arguments common to all mechanisms.

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0.
    counts : array_like, shape (k,)
        Integers ≥ 0 with sum n ≥ 1.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    delta : float, optional
        In (0, 1); ignored by pure mechanisms.

    Returns
    -------
    prior : ndarray of float64, shape (k,)
    counts : ndarray of int64, shape (k,)
    epsilon : float
    delta : float or None

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> validate([1, 1], [2, 1], 1, 1e-8)
    (array([1., 1.]), array([2, 1]), 1.0, 1e-08)
    """
    epsilon, alpha = validate_epsilon(epsilon), validate_prior(prior)
    delta = None if delta is None else validate_delta(delta)
    return alpha, validate_counts(counts, k=alpha.size), epsilon, delta


def _no_limit(n: int, k: int) -> None:
    pass


@dataclass(frozen=True)
class Mechanism(Entry):
    """Mechanism that releases counts, with its guarantee.

    Parameters
    ----------
    name, note, origin, paper, variant, style
        See `Entry`.
    release : callable
        Maps validated (prior, counts, epsilon, delta) to `CountRelease`; delta is 0 if it was omitted.
    guarantee : callable
        Maps (epsilon, delta) to `Guarantee`, or to None for a mechanism without a guarantee. Registered mechanisms
        that do not need δ accept epsilon alone.
    needs_delta : bool
        True if the release depends on δ. Otherwise δ may be omitted.
    require : callable
        Takes (n, k) and raises ValueError if the problem is too large. By default there is no limit.
    max_epsilon : float
        Largest supported privacy loss in nats. By default there is no limit.
    symmetric : bool
        True if permutations of categories with equal prior permute the distribution. Audits of registered mechanisms
        then compare fewer pairs.
    calibrate : callable or None
        Maps (prior, n, epsilon) to `Calibration`; None if the mechanism is not calibrated by its exact loss.

    Privacy
    -------
    The guarantee is for replacement of one record with n public, and for the release only: `CountRelease.counts` and
    `CountRelease.expected_hellinger` depend on the true data and must not be published.

    P0 states (ε, δ) for the smooth mechanisms without a proof. (3ε/2, δ) can be proved: with V = H/S at c and V' at its
    neighbour c', and S ≥ S', smoothness gives V ≤ V' + 1 and V' ≤ 1 + exp(γ)·V. So the log ratio of the probabilities
    is at most ε + (ε/2)·(exp(γ) − 1)·V, where (exp(γ) − 1)·ln(2N/δ) = ε/2, and V > (2/ε)·ln(N/δ) has probability at
    most δ; the opposite ratio is bounded as an entropy is at most ln N. The loss of all enumerated cases is at most ε,
    with δ = 0.

    Examples
    --------
    >>> mechanism = MECHANISMS["smooth"]
    >>> print(mechanism.guarantee(epsilon=1.0, delta=1e-8))
    (1, 1e-08)-DP
    >>> round(mechanism.build([1, 1], [50, 50], epsilon=1.0, delta=1e-8).expected_hellinger(), 3)
    0.348
    """

    release: Build = field(kw_only=True, repr=False)
    guarantee: Callable[..., Guarantee | None] = field(kw_only=True, repr=False)
    needs_delta: bool = field(default=False, kw_only=True)
    require: Callable[[int, int], None] = field(default=_no_limit, repr=False)
    max_epsilon: float = field(default=math.inf, repr=False)
    symmetric: bool = False
    calibrate: Callable[[NDArray[np.float64], int, float], Calibration] | None = field(default=None, repr=False)

    @property
    def is_private(self) -> bool:
        """True if the mechanism has a guarantee."""
        return self.guarantee(1.0, 0.5) is not None

    def supports(self, n: int, k: int) -> bool:
        """Return True if `build` accepts n records in k categories.

        Examples
        --------
        >>> MECHANISMS["optimal"].supports(100, 2), MECHANISMS["optimal"].supports(100_000, 2)
        (True, False)
        """
        try:
            self.require(n, k)
        except ValueError:
            return False
        return True

    def validate(
        self, prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], float, float | None]:
        """Validate the arguments of `build`, including sizes; see `mechanisms.counts.registry.validate`."""
        alpha, c, epsilon, delta = validate(prior, counts, epsilon, delta)
        if self.needs_delta and delta is None:
            raise ValueError(f"delta must be given for {self.name}, got None; choose a value well below 1/n")
        self.require(int(c.sum()), c.size)
        if epsilon > self.max_epsilon:
            raise ValueError(
                f"epsilon must be at most {self.max_epsilon:g} for {self.name}, got {epsilon:g}; choose a smaller "
                "epsilon or another mechanism"
            )
        return alpha, c, epsilon, delta

    def build(self, prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float | None = None) -> CountRelease:
        """Return the distribution of the released counts.

        Parameters
        ----------
        prior, counts, epsilon, delta
            Arguments as in `mechanisms.counts.registry.validate`.

        Returns
        -------
        CountRelease

        Raises
        ------
        ValueError
            If an argument is invalid or the problem is too large; raised before any computation.
        """
        alpha, c, epsilon, delta = self.validate(prior, counts, epsilon, delta)
        release = copy(self.release(alpha, c, epsilon, delta or 0.0))
        object.__setattr__(release, "guarantee", self.guarantee(epsilon, delta))
        return release


def _exponential(sensitivity: Sensitivity) -> Build:
    def release(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> CountRelease:
        scale = sensitivity.evaluate(prior, counts, epsilon, delta)
        return exponential_mechanism(prior, counts, sensitivity.share * epsilon, scale)

    return release


def _exact(rule: str) -> Build:
    def release(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> CountRelease:
        calibration = calibrate(rule, prior, int(counts.sum()), epsilon)
        return exponential_mechanism(prior, counts, calibration.rate, calibration.sensitivity(counts))

    return release


def _calibrate_hamming(prior: NDArray[np.float64], n: int, epsilon: float) -> Calibration:
    rate = calibrate_hamming(n, len(prior), epsilon)
    loss = hamming_loss(n, len(prior), rate).loss
    return Calibration("hamming", tuple(prior.tolist()), n, epsilon, math.nan, rate, loss)


def _varying_bound(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> CountRelease:
    scale = bound_scale(prior, int(counts.sum()), epsilon).sensitivity(counts)
    return exponential_mechanism(prior, counts, epsilon, scale)


def _laplace(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> NoisyCounts:
    return laplace_counts(prior, counts, histogram_sensitivity(counts.size) / epsilon)


def _laplace_dimension(
    prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
) -> NoisyCounts:
    return laplace_counts(prior, counts, counts.size / epsilon)


def _geometric(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> NoisyCounts:
    return geometric_counts(prior, counts, histogram_sensitivity(counts.size) / epsilon)


def _hamming_exact(
    prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
) -> HammingMechanism:
    return hamming_mechanism(prior, counts, calibrate_hamming(int(counts.sum()), counts.size, epsilon))


def _optimal(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> OptimalCounts:
    return optimal_counts(prior, counts, epsilon)


MECHANISMS: dict[str, Mechanism] = {
    **{
        name: Mechanism(
            name=name,
            note=sensitivity.note,
            origin=sensitivity.origin,
            paper=sensitivity.paper,
            variant=sensitivity.variant,
            style=sensitivity.style,
            release=_exponential(sensitivity),
            guarantee=sensitivity.guarantee,
            needs_delta=sensitivity.needs_delta,
            require=require_product_distributions,
            symmetric=True,
        )
        for name, sensitivity in SENSITIVITIES.items()
    },
    **{
        f"{rule}-exact": Mechanism(
            name=f"{rule}-exact",
            note=f"Exponential mechanism on the {rule} sensitivity, with the largest exponent whose exact loss is ε.",
            release=_exact(rule),
            guarantee=pure_guarantee,
            require=require_calibratable,
            symmetric=True,
            calibrate=partial(calibrate, rule),
            style=style,
        )
        for rule, style in (
            ("smooth", Style("blue", "h", "dashed")),
            ("varying", Style("purple", "d", "dashed")),
            ("global", Style("green", ">", "dashed")),
        )
    },
    "varying-bound": Mechanism(
        name="varying-bound",
        note="Exponential mechanism on a varying sensitivity, calibrated by a proof that holds for every size.",
        release=_varying_bound,
        guarantee=pure_guarantee,
        require=require_bound,
        symmetric=True,
        style=Style("purple", "2", "dash-dotted"),
    ),
    "laplace": Mechanism(
        name="laplace",
        note="Laplace noise on k - 1 counts, scaled to the sensitivity of the histogram: 1 at k = 2, otherwise 2.",
        release=_laplace,
        guarantee=pure_guarantee,
        origin="baseline",
        style=Style("vermilion", "s"),
    ),
    "laplace-dimension": Mechanism(
        name="laplace-dimension",
        note="Laplace noise on k - 1 counts, scaled to the dimension k as in P0; more noise than necessary.",
        release=_laplace_dimension,
        guarantee=pure_guarantee,
        origin="baseline",
        paper="P0",
        style=Style("orange", "v", "dash-dotted"),
    ),
    "geometric": Mechanism(
        name="geometric",
        note="Two-sided geometric noise on k - 1 counts, scale as laplace (Ghosh et al. 2012); the loss at k = 2 is ε.",
        release=_geometric,
        guarantee=pure_guarantee,
        origin="baseline",
        variant="Ghosh et al.",
        style=Style("sky", "P"),
    ),
    "hamming-exact": Mechanism(
        name="hamming-exact",
        note="Exponential mechanism on the number of replaced records; the largest exponent whose exact loss is ε.",
        release=_hamming_exact,
        guarantee=pure_guarantee,
        require=require_hamming,
        symmetric=True,
        calibrate=_calibrate_hamming,
        style=Style("olive", "*", "dashed"),
    ),
    "optimal": Mechanism(
        name="optimal",
        note="Linear program for small n: minimises the worst-case distance, then the distance at balanced data.",
        release=_optimal,
        guarantee=pure_guarantee,
        require=require_solvable,
        max_epsilon=MAX_EPSILON,
        symmetric=True,
        style=Style("brown", "<"),
    ),
}
