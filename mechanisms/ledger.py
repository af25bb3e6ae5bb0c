"""Ledger of the releases from one data set, which computes the total privacy loss of these releases.

dp-accounting composes the releases (`mechanisms.profile_accountant`): it convolves privacy loss distributions, and adds
the ρ of zero-concentrated guarantees. The sums of all ε and of all δ, to which the sum of all ρ is converted, are
another bound, which has no largest loss, and the ledger returns the smaller of the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from mechanisms.accounting import Source, accounting_event
from mechanisms.counts.noise import IndependentNoise, NoisyCounts
from mechanisms.privacy import Guarantee, Neighbouring, Status
from mechanisms.privacy_parameters import validate_delta, validate_epsilon
from mechanisms.privacy_profile import PrivacyProfile
from mechanisms.renyi.conversions import concentrated_delta, concentrated_epsilon
from mechanisms.renyi.gaussian_counts import GaussianCounts

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
    The mechanisms, their parameters and their number must not depend on released values; see `mechanisms.accounting`.
    A ledger contains no data.

    Examples
    --------
    Forty histograms of 20 records by ``hamming-exact`` at ε = 0.1, and one release of counts with normal noise:

    >>> from mechanisms import ConcentratedGuarantee, audited_profile
    >>> from mechanisms.counts.audit import count_distributions
    >>> profile = audited_profile(count_distributions("hamming-exact", [1, 1, 1], 20, epsilon=0.1))
    >>> ledger = Ledger().spend(profile, times=40, label="histograms").spend(ConcentratedGuarantee(0.02))
    >>> print(round(ledger.epsilon(delta=1e-6), 2), ledger.guarantee(delta=1e-6))
    1.65 (1.6506, 1e-06)-DP

    The total ε computed from the guarantees alone is larger:

    >>> print(round(Ledger().spend(Guarantee(0.1), times=40).spend(ConcentratedGuarantee(0.02)).epsilon(1e-6), 2))
    3.03
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
                "source must be a guarantee, got None; a release without a guarantee, such as a rehearsal, cannot be "
                "added"
            )
        if isinstance(times, bool) or not isinstance(times, int) or times < 1:
            raise ValueError(f"times must be an integer >= 1, got {times!r}; pass the number of releases")
        event = accounting_event(source, allow_conjectured=allow_conjectured)
        relation = getattr(source, "relation", Neighbouring.REPLACE_ONE)
        if self.relation not in (None, relation):
            raise ValueError(
                f"all releases of a ledger must have one neighbouring relation ({self.relation.value}), got "
                f"{source} ({relation.value}); use one ledger per relation"
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
            math.fsum(entry.times * entry.epsilon for entry in others),
            math.fsum(entry.times * entry.delta for entry in others),
            math.fsum(entry.times * entry.rho for entry in self.entries),
        )

    def _compose(self) -> Any:
        from mechanisms.profile_accountant import ProfileAccountant  # imported here, because dp-accounting is optional

        accountant = ProfileAccountant()
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
