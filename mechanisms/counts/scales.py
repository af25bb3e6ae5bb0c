"""The scales of the Hellinger score by name: the methods of P0 and P1, with what each spends.

The exponential mechanism weighs a candidate at distance H by exp(−share·ε·H/S). Each `Sensitivity` of `SENSITIVITIES`
says which S of `mechanisms.counts.sensitivity` it takes, at which smoothing rate, with which share of ε, and under
which guarantee.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). P1: "Differentially Private Bayesian Inference" (draft).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.conjugate import count_candidates, validate_counts, validate_prior
from mechanisms.counts.sensitivity import (
    global_sensitivity,
    local_sensitivity,
    smooth_sensitivity,
    varying_sensitivity,
)
from mechanisms.privacy import Guarantee, no_guarantee, pure_guarantee, validate_delta, validate_epsilon

__all__ = ["SENSITIVITIES", "Sensitivity", "smoothing_gamma"]


def smoothing_gamma(epsilon: float, delta: float, n_outputs: int) -> float:
    """Return γ = ln(1 − ε / (2·ln(δ/(2N)))), the rate of P0 for N possible outputs.

    Parameters
    ----------
    epsilon : float
        Privacy loss in nats, finite and > 0.
    delta : float
        In (0, 1).
    n_outputs : int
        N ≥ 1. P0 prints n + 1, which is the number of candidates at k = 2 only.

    Returns
    -------
    float
        > 0.

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> round(smoothing_gamma(1.0, 1e-8, 101), 6)
    0.020852
    """
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)
    if n_outputs < 1:
        raise ValueError(f"n_outputs must be >= 1, got {n_outputs}; pass the number of possible outputs")
    # ln N apart: the number of candidates may exceed the range of a double.
    return math.log1p(-epsilon / (2.0 * (math.log(delta) - math.log(2.0) - math.log(n_outputs))))


@dataclass(frozen=True)
class Sensitivity:
    """A scale S of the Hellinger score, data in, S out, with what the exponential mechanism spends on it.

    Weights exp(−share·ε·H/S) have the stated guarantee.

    Parameters
    ----------
    name, note : str
        The key in `SENSITIVITIES`, and one sentence; for a scale that protects nothing, why.
    evaluate : callable
        (prior, counts, epsilon, delta), validated, to S.
    share : float
        The part of ε in the exponent: ½, or less where S itself moves with the data.
    guarantee : callable
        (epsilon, delta) to `Guarantee`, or to None for a scale without one.

    Examples
    --------
    >>> for name in ("local", "varying", "smooth", "global"):
    ...     print(name, round(SENSITIVITIES[name].at([1, 1], [50, 50], epsilon=1.0, delta=1e-8), 4))
    local 0.0703
    varying 0.0703
    smooth 0.122
    global 0.3389
    """

    name: str
    note: str
    evaluate: Callable[[NDArray[np.float64], NDArray[np.int64], float, float], float] = field(repr=False)
    share: float
    guarantee: Callable[[float, float], Guarantee | None] = field(repr=False)

    def at(self, prior: ArrayLike, counts: ArrayLike, epsilon: float, delta: float) -> float:
        """Return S at a data set.

        Parameters
        ----------
        prior : array_like, shape (k,)
            Dirichlet parameters, finite and > 0.
        counts : array_like, shape (k,)
            Whole numbers ≥ 0 with sum n ≥ 1.
        epsilon, delta : float
            Parameters of the guarantee, on which the smoothing rates depend.

        Returns
        -------
        float
            In (0, 1], private for all but the global sensitivity.

        Raises
        ------
        ValueError
            If an argument is not allowed.
        """
        alpha = validate_prior(prior)
        c = validate_counts(counts, k=alpha.size)
        return self.evaluate(alpha, c, validate_epsilon(epsilon), validate_delta(delta))


SENSITIVITIES: dict[str, Sensitivity] = {
    "smooth": Sensitivity(
        name="smooth",
        note="Exponential mechanism on the smooth Hellinger sensitivity with N = |R|; guarantee as published in P0.",
        evaluate=lambda prior, counts, epsilon, delta: smooth_sensitivity(
            prior, counts, smoothing_gamma(epsilon, delta, count_candidates(int(counts.sum()), counts.size))
        ),
        share=0.5,
        guarantee=Guarantee,
    ),
    "smooth-n": Sensitivity(
        name="smooth-n",
        note="As smooth, with N = n + 1 as P0 prints it for every k; guarantee as published in P0.",
        evaluate=lambda prior, counts, epsilon, delta: smooth_sensitivity(
            prior, counts, smoothing_gamma(epsilon, delta, int(counts.sum()) + 1)
        ),
        share=0.5,
        guarantee=Guarantee,
    ),
    "varying": Sensitivity(
        name="varying",
        note="Exponential mechanism on the varying Hellinger sensitivity with rate 1 (P1, section 1.3, as read here).",
        evaluate=lambda prior, counts, epsilon, delta: varying_sensitivity(prior, counts, gamma=1.0),
        share=0.25,
        guarantee=pure_guarantee,
    ),
    "global": Sensitivity(
        name="global",
        note="Exponential mechanism on the global Hellinger sensitivity (P1, section 1.1).",
        evaluate=lambda prior, counts, epsilon, delta: global_sensitivity(prior, int(counts.sum())),
        share=0.5,
        guarantee=pure_guarantee,
    ),
    "local": Sensitivity(
        name="local",
        note=(
            "Not private: its noise scale is the local sensitivity, which itself reveals the data (P1, section 1.2); "
            "kept as a negative control."
        ),
        evaluate=lambda prior, counts, epsilon, delta: local_sensitivity(prior, counts),
        share=0.5,
        guarantee=no_guarantee,
    ),
}
