"""Conversion of guarantees and releases to events and privacy loss distributions of Google's dp-accounting.

==============================  =====================================================  ==========================
guarantee or release            event                                                  exact for
==============================  =====================================================  ==========================
ε-DP                            ``DiscreteLaplaceDpEvent(ε, 1)``                       binary randomised response
counts, Laplace noise b         ``LaplaceDpEvent(b/Δ)``                                the noise, at k = 2
counts, two-sided geometric     ``DiscreteLaplaceDpEvent(1/b, Δ)``                     the release, at k = 2
counts, normal noise σ          ``GaussianDpEvent(σ/√2)``                              the noise
==============================  =====================================================  ==========================

Each event dominates the guarantee or release that it represents, under any composition. Δ is `histogram_sensitivity`,
and √2 is the ℓ₂ distance between the counts of neighbours. The events are thus already scaled to replacement of one
record, and must be composed with the accountants' default relation, ADD_OR_REMOVE_ONE. With REPLACE_ONE an accountant
would double the ℓ₂ distance of normal noise and reject the other events.

The event of ε-DP is the discrete Laplace mechanism at sensitivity 1. Its loss is ε with probability 1/(1 + exp(−ε))
and −ε otherwise, as for binary randomised response, the worst case (Kairouz, Oh & Viswanath 2015). The randomised
response event of dp-accounting is not used: accountants assign it a smaller loss under their relation
REPLACE_SPECIAL.

dp-accounting is an optional package: ``pip install 'dpstudies[accounting]'``.

References
----------
Kairouz, Oh & Viswanath, "The composition theorem for differential privacy", ICML 2015. Google's library:
https://github.com/google/differential-privacy/tree/main/python/dp_accounting
"""

from __future__ import annotations

import importlib
import math
from typing import Any

from mechanisms.counts.noise import NoisyCounts, histogram_sensitivity
from mechanisms.privacy import Guarantee, RenyiGuarantee
from mechanisms.renyi.gaussian_counts import GaussianCounts

__all__ = ["accounting_event", "privacy_loss_distribution"]


def accounting_event(source: Guarantee | NoisyCounts | GaussianCounts) -> Any:
    """Return the dp-accounting event that represents a guarantee or a release.

    Parameters
    ----------
    source : Guarantee, NoisyCounts or GaussianCounts
        A guarantee with δ = 0; counts with Laplace or two-sided geometric noise (`laplace_counts`,
        `geometric_counts`); counts with normal noise (`gaussian_mechanism`).

    Returns
    -------
    dp_accounting.DpEvent
        See the table of the module. Every event can be composed by a ``PLDAccountant``; events of Laplace and normal
        noise also by an ``RdpAccountant``.

    Raises
    ------
    ValueError
        If no event represents `source`.
    ModuleNotFoundError
        If dp-accounting is not installed.

    Notes
    -----
    The event of sums with Laplace noise of scale Δ/ε (`release_statistics`) is
    ``dp_accounting.LaplaceDpEvent(1 / epsilon)``. Curves of Rényi divergences are composed by addition at equal
    orders; `mechanisms.approximate_epsilon` converts them to (ε, δ), as ``dp_accounting.rdp.compute_epsilon`` does.

    Examples
    --------
    The composition of ten 0.1-DP releases is 1-DP, and (0.8, δ)-DP for a small δ:

    >>> from dp_accounting.pld import PLDAccountant
    >>> accountant = PLDAccountant().compose(accounting_event(Guarantee(0.1)), 10)
    >>> print(f"{accountant.get_delta(0.8):.1e}")
    2.9e-04
    """
    library = _import("dp_accounting.dp_event")
    if isinstance(source, NoisyCounts):
        sensitivity = histogram_sensitivity(source.k)
        if source.noise == "laplace":
            return library.LaplaceDpEvent(source.noise_scale / sensitivity)
        return library.DiscreteLaplaceDpEvent(1 / source.noise_scale, sensitivity)
    if isinstance(source, GaussianCounts):
        return library.GaussianDpEvent(source.noise_std / math.sqrt(2.0))
    if isinstance(source, RenyiGuarantee):
        raise ValueError(
            f"source must have an event in dp-accounting, got {source}; add divergences of equal order, then use "
            "mechanisms.approximate_epsilon"
        )
    if not isinstance(source, Guarantee):
        raise ValueError(
            f"source must be a Guarantee, NoisyCounts or GaussianCounts, got {type(source).__name__}; pass the "
            "guarantee of the mechanism"
        )
    if not source.is_pure:
        raise ValueError(
            f"source must have an event in dp-accounting, got {source}; use mechanisms.privacy_loss_distribution"
        )
    return library.DiscreteLaplaceDpEvent(source.epsilon, 1)


def privacy_loss_distribution(guarantee: Guarantee) -> Any:
    """Return the privacy loss distribution of the worst mechanism with an (ε, δ) guarantee, for dp-accounting.

    Parameters
    ----------
    guarantee : Guarantee
        A guarantee with any δ.

    Returns
    -------
    dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution
        Losses are rounded up to multiples of 1e-4.

    Raises
    ------
    ModuleNotFoundError
        If dp-accounting is not installed.

    Examples
    --------
    >>> composed = privacy_loss_distribution(Guarantee(0.1, 1e-8)).self_compose(10)
    >>> print(f"{composed.get_delta_for_epsilon(1.0):.1e}")
    1.0e-07
    """
    distributions = _import("dp_accounting.pld.privacy_loss_distribution")
    common = _import("dp_accounting.pld.common")
    return distributions.from_privacy_parameters(
        common.DifferentialPrivacyParameters(guarantee.epsilon, guarantee.delta)
    )


def _import(name: str) -> Any:
    """Import a module of the optional package dp-accounting."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"dp-accounting must be installed, got: {error}; run: pip install 'dpstudies[accounting]'"
        ) from error
