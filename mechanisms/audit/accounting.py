"""Accounting of the total privacy loss of releases from one data set, by Google's dp-accounting.

Each event dominates the guarantee or release that it represents, under any composition; `accounting_event` lists the
events. Δ is `NoisyCounts.sensitivity`, and √2 is the ℓ₂ distance between the counts of neighbours. The events are thus
already scaled to replacement of one record, and must be composed with the accountants' default relation,
ADD_OR_REMOVE_ONE. With REPLACE_ONE an accountant would double the ℓ₂ distance of normal noise and reject the other
events. `ProfileDpEvent` and ``ZCDpEvent`` need the accountant of `mechanisms.audit.profile_accountant`, which accepts
all events; `Ledger` uses this accountant. The sums of all ε and of all δ, to which the sum of all ρ is converted, are
another bound, which has no largest loss, and the ledger returns the smaller of the two.

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
from dataclasses import dataclass, field, replace
from typing import Any

from mechanisms.core.arguments import validate_integer
from mechanisms.core.conversions import concentrated_delta, concentrated_epsilon
from mechanisms.core.privacy import (
    ConcentratedGuarantee,
    GaussianGuarantee,
    Guarantee,
    Neighbouring,
    RenyiGuarantee,
    Status,
    require_proved,
)
from mechanisms.core.privacy_parameters import add_losses, as_decimal, validate_delta, validate_epsilon
from mechanisms.core.privacy_profile import PrivacyProfile, guarantee_profile
from mechanisms.counts.noise import IndependentNoise, NoisyCounts
from mechanisms.draws.gaussian_counts import GaussianCounts

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
            f"source must have an event, got {source}; add divergences per order, then use approximate_epsilon"
        )
    if not isinstance(source, Source):
        raise ValueError(f"source must be a guarantee, profile or noisy counts, got {type(source).__name__}; pass one")
    require_proved(source, allow_conjectured)
    if isinstance(source, ConcentratedGuarantee):
        return library.ZCDpEvent(source.rho)
    if isinstance(source, GaussianGuarantee):
        return library.GaussianDpEvent(1 / source.mu)
    if isinstance(source, Guarantee) and source.is_pure:
        return library.DiscreteLaplaceDpEvent(source.epsilon, 1)
    profile = source if isinstance(source, PrivacyProfile) else guarantee_profile(source)
    return _import("mechanisms.audit.profile_accountant").ProfileDpEvent(profile)


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
    accountant = _import("mechanisms.audit.profile_accountant")
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


_LEAST_DELTA = 1e-12


@dataclass(frozen=True)
class LedgerEntry:
    """One or more releases that are represented by the same event."""

    label: str  # name of the releases, or ""
    stated: str  # guarantee of one release as text
    times: int
    epsilon: float  # of one release; inf if no (ε, δ) guarantee is known
    delta: float
    rho: float
    event: Any = field(repr=False)  # dp-accounting event of one release


@dataclass(frozen=True)
class Ledger:
    """Ledger of the releases from one data set; `spend` returns a ledger with an additional entry.

    It computes tight totals in memory. `LedgerFile` counts releases of real data in a file, by basic composition, and
    enforces a budget.

    Parameters
    ----------
    entries : tuple of LedgerEntry
        Empty by default.
    relation : Neighbouring or None
        Neighbouring relation of all entries; None for an empty ledger.
    status : Status
        Conjectured if the guarantee of at least one entry is conjectured.

    Notes
    -----
    The mechanisms, their parameters and their number must not depend on released values; see
    `mechanisms.audit.accounting`. A ledger contains no data.

    Examples
    --------
    Forty histograms of 20 records by ``hamming-exact`` at ε = 0.1, and one release of counts with normal noise:

    >>> from mechanisms import ConcentratedGuarantee, audited_profile
    >>> from mechanisms.audit.counts import count_distributions
    >>> profile = audited_profile(count_distributions("hamming-exact", [1, 1, 1], 20, epsilon=0.1))
    >>> ledger = Ledger().spend(profile, times=40, label="histograms").spend(ConcentratedGuarantee(0.02))
    >>> print(round(ledger.epsilon(delta=1e-6), 2), ledger.guarantee(delta=1e-6))
    1.65 (1.6506, 1e-06)-DP
    """

    entries: tuple[LedgerEntry, ...] = ()
    relation: Neighbouring | None = None
    status: Status = Status.PROVED

    def spend(self, source: Source, times: int = 1, label: str = "", *, allow_conjectured: bool = False) -> Ledger:
        """Return a new ledger that also contains the given releases.

        Parameters
        ----------
        source : Guarantee, ConcentratedGuarantee, GaussianGuarantee, PrivacyProfile, NoisyCounts or GaussianCounts
            Guarantee or profile of each release, or the release; see `mechanisms.accounting_event`.
        times : int
            Number of releases, ≥ 1.
        label : str
            Name of the releases.
        allow_conjectured : bool
            True to accept a conjectured guarantee; the total is then conjectured.

        Raises
        ------
        ValueError
            If `source` is None or has no event, if it is conjectured and `allow_conjectured` is false, if its
            neighbouring relation differs from that of the ledger, or if `times` is not an integer ≥ 1.
        ModuleNotFoundError
            If dp-accounting is not installed.
        """
        if source is None:
            raise ValueError(
                "source must be a guarantee, got None; a release without one, such as a rehearsal, cannot be added"
            )
        times = validate_integer("times", times, advice="pass the number of releases")
        event = accounting_event(source, allow_conjectured=allow_conjectured)
        relation = getattr(source, "relation", Neighbouring.REPLACE_ONE)
        if self.relation not in (None, relation):
            raise ValueError(
                f"releases must have one relation ({self.relation.value}), got {relation.value}; use one ledger each"
            )
        status = getattr(source, "status", Status.PROVED)
        entry = LedgerEntry(label, _describe(source), times, *_parameters(source), event)
        status = self.status if status is Status.PROVED else status
        return replace(self, entries=(*self.entries, entry), relation=relation, status=status)

    def epsilon(self, delta: float) -> float:
        """Return the total ε in nats at a given δ, inf if there is no finite ε.

        `delta` is 0 for the pure loss, or in [1e-12, 1); another value raises ValueError.
        """
        sum_epsilon, sum_delta, rho = self._sums()
        rest = delta - sum_delta
        summed = sum_epsilon if rest >= 0 else math.inf
        if rho:
            summed += concentrated_epsilon(rho, rest) if 0 < rest < 1 else math.inf
        if delta == 0:
            return summed
        if validate_delta(delta) < _LEAST_DELTA:
            raise ValueError(f"delta must be 0 or in [{_LEAST_DELTA:g}, 1), got {delta}; choose 0 or a larger delta")
        return min(summed, self._compose().get_epsilon(delta))

    def delta(self, epsilon: float) -> float:
        """Return the total δ in [0, 1] at a given ε > 0 in nats; values below 1e-12 are rounding errors."""
        epsilon = validate_epsilon(epsilon)
        sum_epsilon, sum_delta, rho = self._sums()
        rest = epsilon - sum_epsilon
        converted = float(concentrated_delta(rho, rest)) if rho and rest >= 0 else 0.0
        summed = sum_delta + converted if rest >= 0 else 1.0
        return min(summed, max(0.0, float(self._compose().get_delta(epsilon))))

    def guarantee(self, delta: float) -> Guarantee:
        """Return the total as a guarantee with the given δ, which is as in `epsilon`.

        An empty ledger, and an infinite total ε, raise ValueError.
        """
        if self.relation is None:
            raise ValueError("a ledger must have an entry to state a guarantee, got none; add one with spend")
        epsilon = self.epsilon(delta)
        if math.isinf(epsilon):
            raise ValueError(f"epsilon must be finite at delta = {delta:g}, got inf; choose a larger delta")
        return Guarantee(epsilon, delta, self.relation, status=self.status)

    def _sums(self) -> tuple[float, float, float]:
        """Return the sums of ε and δ of the releases without ρ, and the sum of ρ of the others."""
        others = [entry for entry in self.entries if not entry.rho]
        return (
            add_losses(*(entry.times * as_decimal(entry.epsilon) for entry in others)),
            add_losses(*(entry.times * as_decimal(entry.delta) for entry in others)),
            add_losses(*(entry.times * as_decimal(entry.rho) for entry in self.entries)),
        )

    def _compose(self) -> Any:
        accountant = _import("mechanisms.audit.profile_accountant").ProfileAccountant()
        for entry in self.entries:
            accountant.compose(entry.event, entry.times)
        return accountant


def _describe(source: Source) -> str:
    """Return a guarantee, a profile or a release as text, without counts."""
    if isinstance(source, NoisyCounts):
        if not isinstance(source.noise, IndependentNoise):
            return f"counts with noise, {source.profile()}"
        return f"counts with {source.independent.name} noise of scale {source.independent.scale:g}"
    if isinstance(source, GaussianCounts):
        return f"counts with normal noise of standard deviation {source.noise_std:g}"
    return str(source)


def _parameters(source: Source) -> tuple[float, float, float]:
    """Return ε, δ and ρ of a guarantee, a profile or a release; ε is inf if only ρ is known."""
    stated = source.profile() if isinstance(source, NoisyCounts) else source
    if isinstance(stated, Guarantee):
        return stated.epsilon, stated.delta, 0.0
    if isinstance(stated, PrivacyProfile):
        return stated.epsilon(0.0), 0.0, 0.0
    return math.inf, 0.0, (stated.concentrated_guarantee if isinstance(stated, GaussianCounts) else stated).rho
