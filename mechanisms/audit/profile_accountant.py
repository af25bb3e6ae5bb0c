"""Accountant for dp-accounting that also composes privacy profiles and zero-concentrated guarantees.

This module needs dp-accounting: ``pip install 'dpstudies[accounting]'``.
"""

from __future__ import annotations

import math

import attr
from dp_accounting import DpEvent, NeighboringRelation, ZCDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from mechanisms.core.conversions import concentrated_profile
from mechanisms.core.privacy import ConcentratedGuarantee
from mechanisms.core.privacy_profile import STEP, PrivacyProfile


@attr.s(frozen=True, auto_attribs=True, eq=False)
class ProfileDpEvent(DpEvent):
    """Event of a release with a known privacy profile."""

    profile: PrivacyProfile  # upper bound on δ(ε) for all pairs of neighbouring data sets


class ProfileAccountant(PLDAccountant):
    """A ``PLDAccountant`` for `ProfileDpEvent` and for ``ZCDpEvent``, whose ρ add up and are converted to a profile."""

    _pld: PrivacyLossDistribution

    def __init__(self) -> None:
        # events are scaled to the neighbours of this package: see mechanisms.audit.accounting
        super().__init__(NeighboringRelation.ADD_OR_REMOVE_ONE, STEP)
        self._rho = 0.0

    def _maybe_compose(
        self, event: DpEvent, count: int, do_compose: bool
    ) -> PLDAccountant.CompositionErrorDetails | None:
        """Compose an event, or return an error; dp-accounting requires subclasses to implement this method."""
        if isinstance(event, ProfileDpEvent):
            if do_compose:
                self._pld = self._pld.compose(connect_dots(event.profile).self_compose(count))
            return None
        if isinstance(event, ZCDpEvent):
            if event.xi != 0:
                return self.CompositionErrorDetails(event, f"xi of a ZCDpEvent must be 0, got {event.xi}")
            if do_compose:
                self._rho += count * event.rho
            return None
        return super()._maybe_compose(event, count, do_compose)

    def get_epsilon(self, target_delta: float) -> float:
        """Return the smallest ε at which δ(ε) of the composition is at most `target_delta`; inf if there is none."""
        return math.inf if self._contains_non_dp_event else self.distribution.get_epsilon_for_delta(target_delta)

    def get_delta(self, target_epsilon: float) -> float:
        """Return δ(ε) of the composition at ε = `target_epsilon`."""
        return 1.0 if self._contains_non_dp_event else self.distribution.get_delta_for_epsilon(target_epsilon)

    @property
    def distribution(self) -> PrivacyLossDistribution:
        """Privacy loss distribution that dominates the composed events, except events that are not private."""
        if not self._rho:
            return self._pld
        return self._pld.compose(connect_dots(concentrated_profile(ConcentratedGuarantee(self._rho))))


def connect_dots(profile: PrivacyProfile) -> PrivacyLossDistribution:
    """Return the loss distribution that dominates all mechanisms with a profile (Doroshenko et al., algorithm 1)."""
    largest = profile.deltas.size - 1
    return PrivacyLossDistribution(
        create_pmf_pessimistic_connect_dots_fixed_gap(STEP, -largest, largest, profile.mirrored())
    )
