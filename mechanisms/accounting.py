"""Guarantees and releases as what Google's dp-accounting composes: events, and privacy loss distributions.

==============================  =====================================================  ==========================
what                            event                                                  exact for
==============================  =====================================================  ==========================
ε-DP                            ``DiscreteLaplaceDpEvent(ε, 1)``                       binary randomised response
counts, Laplace noise b         ``LaplaceDpEvent(b/Δ)``                                the noise, at k = 2
counts, two-sided geometric     ``DiscreteLaplaceDpEvent(1/b, Δ)``                     the release, at k = 2
counts, normal noise σ          ``GaussianDpEvent(σ/√2)``                              the noise
==============================  =====================================================  ==========================

Each event loses at least as much as what it stands for, after any composition. Δ is `histogram_sensitivity`, and √2
the ℓ₂ move of counts when a record is replaced: events are in units of the move between *our* neighbours. So they
are composed by an accountant with its relation as it is by default, ADD_OR_REMOVE_ONE. Told REPLACE_ONE, it would
double the move of normal noise, and refuse the others.

An event of ε-DP is the discrete Laplace mechanism at sensitivity 1: its loss is ε with probability 1/(1 + exp(−ε)),
else −ε, which is that of binary randomised response, the worst there is (Kairouz, Oh & Viswanath 2015). The event of
that name is none to use here, since accountants take its loss to be smaller under their relation REPLACE_SPECIAL.

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


def accounting_event(spent: Guarantee | NoisyCounts | GaussianCounts) -> Any:
    """Return the event of dp-accounting that stands for a guarantee or a release.

    Parameters
    ----------
    spent : Guarantee, NoisyCounts or GaussianCounts
        A guarantee with δ = 0; counts with Laplace or two-sided geometric noise (`laplace_counts`,
        `geometric_counts`); counts with normal noise (`gaussian_mechanism`).

    Returns
    -------
    dp_accounting.DpEvent
        See the module's table. Compose it by a ``PLDAccountant``; those of Laplace and normal noise by an
        ``RdpAccountant``, too.

    Raises
    ------
    ValueError
        If there is no such event.
    ModuleNotFoundError
        If dp-accounting is not installed.

    Notes
    -----
    Sums with Laplace noise of scale Δ/ε (`release_statistics`) are ``dp_accounting.LaplaceDpEvent(1 / epsilon)``. A
    curve of Rényi divergences is composed by addition at equal orders, and `mechanisms.approximate_epsilon` says what
    (ε, δ) it implies, as ``dp_accounting.rdp.compute_epsilon`` does.

    Examples
    --------
    Ten releases, each 0.1-DP, are 1-DP, and 0.8-DP but for a small δ:

    >>> from dp_accounting.pld import PLDAccountant
    >>> accountant = PLDAccountant().compose(accounting_event(Guarantee(0.1)), 10)
    >>> print(f"{accountant.get_delta(0.8):.1e}")
    2.9e-04
    """
    library = _import("dp_accounting.dp_event")
    if isinstance(spent, NoisyCounts):
        sensitivity = histogram_sensitivity(spent.k)
        if spent.noise == "laplace":
            return library.LaplaceDpEvent(spent.noise_scale / sensitivity)
        return library.DiscreteLaplaceDpEvent(1 / spent.noise_scale, sensitivity)
    if isinstance(spent, GaussianCounts):
        return library.GaussianDpEvent(spent.noise_std / math.sqrt(2.0))
    if isinstance(spent, RenyiGuarantee):
        raise ValueError(
            f"no event of dp-accounting is {spent}; add divergences of equal order, then use "
            "mechanisms.approximate_epsilon"
        )
    if not isinstance(spent, Guarantee):
        raise ValueError(
            f"spent must be a Guarantee, NoisyCounts or GaussianCounts, got {type(spent).__name__}; pass its guarantee"
        )
    if not spent.is_pure:
        raise ValueError(f"no event of dp-accounting is {spent}; use mechanisms.privacy_loss_distribution")
    return library.DiscreteLaplaceDpEvent(spent.epsilon, 1)


def privacy_loss_distribution(guarantee: Guarantee) -> Any:
    """Return the privacy loss distribution of the worst mechanism with an (ε, δ) guarantee, for dp-accounting.

    Parameters
    ----------
    guarantee : Guarantee
        With any δ.

    Returns
    -------
    dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution
        ``compose`` and ``self_compose`` it; its losses are rounded up to multiples of 1e-4.

    Raises
    ------
    ModuleNotFoundError
        If dp-accounting is not installed.

    Examples
    --------
    >>> spent = privacy_loss_distribution(Guarantee(0.1, 1e-8)).self_compose(10)
    >>> print(f"{spent.get_delta_for_epsilon(1.0):.1e}")
    1.0e-07
    """
    distributions = _import("dp_accounting.pld.privacy_loss_distribution")
    common = _import("dp_accounting.pld.common")
    return distributions.from_privacy_parameters(
        common.DifferentialPrivacyParameters(guarantee.epsilon, guarantee.delta)
    )


def _import(name: str) -> Any:
    """Import a module of dp-accounting, which only this module needs."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"dp-accounting must be installed, got: {error}; run: pip install 'dpstudies[accounting]'"
        ) from error
