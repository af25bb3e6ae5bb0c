"""Conversion of guarantees and releases to events and privacy loss distributions of Google's dp-accounting.

Each event dominates the guarantee or release that it represents, under any composition; `accounting_event` lists the
events. Δ is `NoisyCounts.sensitivity`, and √2 is the ℓ₂ distance between the counts of neighbours. The events are thus
already scaled to replacement of one record, and must be composed with the accountants' default relation,
ADD_OR_REMOVE_ONE. With REPLACE_ONE an accountant would double the ℓ₂ distance of normal noise and reject the other
events. `ProfileDpEvent` and ``ZCDpEvent`` need the accountant of `mechanisms.profile_accountant`, which accepts all
events; `mechanisms.Ledger` uses this accountant.

The event of ε-DP is the discrete Laplace mechanism at sensitivity 1. Its loss is ε with probability 1/(1 + exp(−ε))
and −ε otherwise, as for binary randomised response, the worst ε-DP mechanism (Kairouz, Oh & Viswanath 2015). The
randomised response event of dp-accounting is not used: accountants assign this event a smaller loss under the relation
REPLACE_SPECIAL.

Compositions of privacy loss distributions assume that mechanisms, parameters and the number of releases are fixed in
advance. If the parameters of a release depend on the outputs of earlier releases, a privacy filter is needed, such as a
limit on the sum of the pure ε.

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

from mechanisms.counts.noise import IndependentNoise, NoisyCounts
from mechanisms.privacy import ConcentratedGuarantee, GaussianGuarantee, Guarantee, RenyiGuarantee, require_proved
from mechanisms.privacy_profile import PrivacyProfile, guarantee_profile
from mechanisms.renyi.gaussian_counts import GaussianCounts

# guarantees, audited profiles and releases with noise that dp-accounting can compose
Source = Guarantee | ConcentratedGuarantee | GaussianGuarantee | PrivacyProfile | NoisyCounts | GaussianCounts


def accounting_event(source: Source, *, allow_conjectured: bool = False) -> Any:
    """Return the dp-accounting event that represents a guarantee, a privacy profile or a release.

    Parameters
    ----------
    source : Guarantee, ConcentratedGuarantee, GaussianGuarantee, PrivacyProfile, NoisyCounts or GaussianCounts
        A guarantee; the profile of an audit (`audited_profile`); counts with noise, as built by `laplace_counts`,
        `geometric_counts` or a mechanism that adds noise; counts with normal noise (`gaussian_mechanism`).
    allow_conjectured : bool
        True to accept a conjectured guarantee.

    Returns
    -------
    dp_accounting.DpEvent
        The event of the table, where b and σ are scales of noise in records and Δ is `NoisyCounts.sensitivity`. Events
        of Laplace and normal noise can also be composed by an ``RdpAccountant``.

        ===============================  ===================================  =============================
        guarantee or release             event                                exact for
        ===============================  ===================================  =============================
        ε-DP                             ``DiscreteLaplaceDpEvent(ε, 1)``     binary randomised response
        (ε, δ)-DP                        `ProfileDpEvent`                     the worst mechanism
        ρ-zCDP                           ``ZCDpEvent(ρ)``                     Rényi divergences equal to λρ
        μ-GDP                            ``GaussianDpEvent(1/μ)``             the Gaussian mechanism
        audited profile                  `ProfileDpEvent`                     the profile of one release
        counts, Laplace noise b          ``LaplaceDpEvent(b/Δ)``              the noise, at k = 2
        counts, two-sided geometric      ``DiscreteLaplaceDpEvent(1/b, Δ)``   the release, at k = 2
        counts, K-norm noise             that of ε-DP                         the release, at k = 2
        counts, discrete Gaussian noise  `ProfileDpEvent`                     the lattice vector
        counts, normal noise σ           ``GaussianDpEvent(σ/√2)``            the noise
        ===============================  ===================================  =============================

    Raises
    ------
    ValueError
        If no event represents `source`, or if `source` is conjectured and `allow_conjectured` is false.
    ModuleNotFoundError
        If dp-accounting is not installed.

    Notes
    -----
    The event of a sum with Laplace noise of scale Δ/ε is ``dp_accounting.LaplaceDpEvent(1 / epsilon)``. Rényi
    guarantees are composed by adding the divergences at each order; `mechanisms.approximate_epsilon` converts the sums
    to (ε, δ), as ``dp_accounting.rdp.compute_epsilon`` does.

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
        if not isinstance(source.noise, IndependentNoise):
            return accounting_event(source.profile())
        scale = source.independent.scale
        if not source.independent.is_integer:
            return library.LaplaceDpEvent(scale / source.sensitivity)
        return library.DiscreteLaplaceDpEvent(1 / scale, source.sensitivity)
    if isinstance(source, GaussianCounts):
        return library.GaussianDpEvent(source.noise_std / math.sqrt(2.0))
    if isinstance(source, RenyiGuarantee):
        raise ValueError(
            f"source must have an event in dp-accounting, got {source}; add divergences of equal order, then use "
            "mechanisms.approximate_epsilon"
        )
    if not isinstance(source, Source):
        raise ValueError(
            "source must be a Guarantee, ConcentratedGuarantee, GaussianGuarantee, PrivacyProfile, NoisyCounts or "
            f"GaussianCounts, got {type(source).__name__}; pass the guarantee of the mechanism"
        )
    require_proved(source, allow_conjectured)
    if isinstance(source, ConcentratedGuarantee):
        return library.ZCDpEvent(source.rho)
    if isinstance(source, GaussianGuarantee):
        return library.GaussianDpEvent(1 / source.mu)
    if isinstance(source, Guarantee) and source.is_pure:
        return library.DiscreteLaplaceDpEvent(source.epsilon, 1)
    profile = source if isinstance(source, PrivacyProfile) else guarantee_profile(source)
    return _import("mechanisms.profile_accountant").ProfileDpEvent(profile)


def privacy_loss_distribution(source: Source, *, allow_conjectured: bool = False) -> Any:
    """Return the privacy loss distribution that dominates a guarantee, a privacy profile or a release.

    Parameters
    ----------
    source, allow_conjectured
        As in `accounting_event`.

    Returns
    -------
    dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution
        Distribution on multiples of 1e-4 whose δ(ε) is at least that of `source` at every ε.

    Raises
    ------
    ValueError
        Under the same conditions as in `accounting_event`.
    ModuleNotFoundError
        If dp-accounting is not installed.

    Examples
    --------
    The total δ of ten releases at ε = 1:

    >>> composed = privacy_loss_distribution(Guarantee(0.1, 1e-8)).self_compose(10)
    >>> print(f"{composed.get_delta_for_epsilon(1.0):.1e}")
    1.0e-07
    """
    accountant = _import("mechanisms.profile_accountant")
    if isinstance(source, Guarantee):
        require_proved(source, allow_conjectured)
        return accountant.connect_dots(guarantee_profile(source))
    event = accounting_event(source, allow_conjectured=allow_conjectured)
    return accountant.ProfileAccountant().compose(event).distribution


def _import(name: str) -> Any:
    """Return a module that needs the optional package dp-accounting; raise ModuleNotFoundError if it is missing."""
    try:
        importlib.import_module("dp_accounting")
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"dp-accounting must be installed, got: {error}; run: pip install 'dpstudies[accounting]'"
        ) from error
