"""Calibration of the Rényi-DP posterior samplers of `mechanisms.renyi.sampling` to a bound on the divergence (P3)."""

from __future__ import annotations

from itertools import count

from numpy.typing import ArrayLike

from mechanisms.calibrate import bisect, first_private
from mechanisms.metadata import find_entry
from mechanisms.privacy_parameters import validate_epsilon, validate_order
from mechanisms.renyi.sampling import RENYI_SAMPLERS, RenyiMethod, RenyiSampling, renyi_sampler

__all__ = ["calibrate_renyi"]

_MARGIN = 1e-12  # this relative change of a coefficient changes the divergence by more than the rounding error


def calibrate_renyi(
    name: RenyiMethod | str,
    prior: ArrayLike,
    n: int,
    order: float,
    epsilon: float,
    public_counts: ArrayLike | None = None,
) -> RenyiSampling:
    """Return the posterior sampler with the largest coefficient for which one draw is (λ, ε)-RDP.

    Parameters
    ----------
    name, prior, n, public_counts
        See `renyi_sampler`.
    order : float
        Order λ, finite and ≥ 1.
    epsilon : float
        Bound on the Rényi divergence of one draw in nats, finite and > 0.

    Returns
    -------
    RenyiSampling
        Mechanism with `renyi_epsilon(order)` ≤ ε. If a draw from the posterior itself is (λ, ε)-RDP, the coefficient
        is 1.

    Privacy
    -------
    One draw is (λ, ε)-RDP under replace-one with n public. The coefficient depends on public quantities only.

    Raises
    ------
    ValueError
        If an argument is invalid, or if `name` is `direct`, which has no coefficient, and its divergence exceeds ε.

    Notes
    -----
    The largest coefficient is found by bisection and reduced by a relative 1e-12, so that the divergence is at most ε
    also in real arithmetic, even if the mixed parameter is as small as its rounding error. For ε above about 27/(λ−1),
    the coefficient is, in double precision, equal to the one at which the divergence becomes infinite, and the
    divergence of the returned mechanism is below ε.

    P3 (Corollary 2) takes the supremum over pairs of parameter vectors, a corner ηP and ηQ = ηP ± (r, 0), including ηQ
    that are the posterior parameters of no data set. The result is an upper bound on the supremum over data sets. For
    two categories and λ ≥ 2 it is equal to that supremum if α > r. For smaller λ or more categories it is larger. For
    α ≤ r it is infinite even at orders below λ*.

    Examples
    --------
    The largest coefficients r and m for ε = e⁻²:

    >>> import math
    >>> budget = math.exp(-2)
    >>> for name in ("diffused", "concentrated"):
    ...     print(name, round(calibrate_renyi(name, [6, 12], 100, order=2, epsilon=budget).coefficient, 6))
    diffused 0.838452
    concentrated 0.714208
    """
    name = find_entry(RENYI_SAMPLERS, name).name
    order, epsilon = validate_order(order), validate_epsilon(epsilon)
    whole = renyi_sampler(name, prior, n, 1.0, public_counts)
    spent = whole.renyi_epsilon(order)
    if spent <= epsilon:
        return whole
    if not RENYI_SAMPLERS[name].is_tunable:
        raise ValueError(
            f"epsilon must be >= {spent:.6g} at order {order:g} for {name}, got {epsilon:g}; the divergence of {name} "
            f"is finite at orders below {whole.critical_order:g} only, use diffused or concentrated for other targets"
        )

    def weakened(coefficient: float) -> RenyiSampling:
        return RenyiSampling(name, whole.prior, whole.n, coefficient, whole.public_counts)

    def is_private(coefficient: float) -> bool:
        return weakened(coefficient).renyi_epsilon(order) <= epsilon

    low, high = first_private(is_private, (2.0**-power for power in count(1)))
    return weakened(bisect(is_private, low, max(high, 2 * low))[0] * (1 - _MARGIN))
