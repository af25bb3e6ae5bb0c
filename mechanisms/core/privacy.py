"""Value types for privacy guarantees: neighbouring relations, evidence, and parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mechanisms.core.arguments import is_real, validate_positive
from mechanisms.core.privacy_parameters import format_loss, validate_delta, validate_epsilon, validate_order


class Neighbouring(Enum):
    """Neighbouring relation under which a guarantee holds."""

    REPLACE_ONE = "replace one record; the number of records is public"
    ADD_OR_REMOVE_ONE = "add or remove one record; the number of records is private"


# neighbouring relations by name
RELATIONS = {"replace-one": Neighbouring.REPLACE_ONE, "add-remove": Neighbouring.ADD_OR_REMOVE_ONE}


class Status(Enum):
    """Evidence for a guarantee: a proof, or a conjecture."""

    PROVED = "proved"
    CONJECTURED = "conjectured"


def validate_relation(relation: Neighbouring) -> Neighbouring:
    """Return `relation` if it is a neighbouring relation; names are not accepted."""
    if not isinstance(relation, Neighbouring):
        raise ValueError(f"relation must be a Neighbouring, got {relation!r}; look up names in RELATIONS")
    return relation


class _Stated:
    """Guarantee with a neighbouring relation and a status."""

    relation: Neighbouring
    status: Status

    def _store(self, **values: float) -> None:
        """Store valid parameters, and check the relation and the status."""
        vars(self).update(values)
        validate_relation(self.relation)
        if not isinstance(self.status, Status):
            raise ValueError(f"status must be Status.PROVED or Status.CONJECTURED, got {self.status!r}; pass a Status")

    def _qualified(self, text: str) -> str:
        """Return a text with the relation and the status, without the defaults (replace-one, proved)."""
        stated = text if self.relation is Neighbouring.REPLACE_ONE else f"{text} under add/remove"
        return stated if self.status is Status.PROVED else f"{stated}, {self.status.value}"


@dataclass(frozen=True)
class Guarantee(_Stated):
    """A differential-privacy guarantee: Pr[M(x) ∈ E] ≤ exp(epsilon)·Pr[M(x') ∈ E] + delta for neighbours x, x'.

    A guarantee without a proof is conjectured; accountants reject it by default.

    Parameters
    ----------
    epsilon : float
        Privacy loss in nats, finite and > 0; 0 is allowed if `delta` is > 0.
    delta : float
        0 for pure differential privacy, otherwise in (0, 1).
    relation : Neighbouring
        Neighbouring relation under which the guarantee holds.
    status : Status
        Evidence for the guarantee; keyword only, proved by default.

    Raises
    ------
    ValueError
        If a parameter is outside its range.

    Examples
    --------
    >>> Guarantee(1.0).is_pure, Guarantee(1.0, 1e-8).is_pure
    (True, False)
    >>> print(Guarantee(1.0, 1e-8))
    (1, 1e-08)-DP
    >>> print(Guarantee(1.0, 1e-8, status=Status.CONJECTURED))
    (1, 1e-08)-DP, conjectured
    """

    epsilon: float
    delta: float = 0.0
    relation: Neighbouring = Neighbouring.REPLACE_ONE
    status: Status = field(default=Status.PROVED, kw_only=True)

    def __post_init__(self) -> None:
        delta = 0.0 if _is_zero(self.delta) else validate_delta(self.delta)
        no_loss = _is_zero(self.epsilon) and delta > 0
        self._store(epsilon=0.0 if no_loss else validate_epsilon(self.epsilon), delta=delta)

    @property
    def is_pure(self) -> bool:
        """True if delta is zero."""
        return self.delta == 0

    def __str__(self) -> str:
        epsilon = format_loss(self.epsilon)
        return self._qualified(f"{epsilon}-DP" if self.is_pure else f"({epsilon}, {format_loss(self.delta)})-DP")


def _is_zero(value: object) -> bool:
    return (type(value) is float or is_real(value)) and value == 0


def pure_guarantee(epsilon: float, delta: float | None = None) -> Guarantee:
    """Return the ε-DP guarantee of a mechanism that ignores `delta`."""
    _validate_optional_delta(delta)
    return Guarantee(epsilon)


def approximate_guarantee(epsilon: float, delta: float | None = None) -> Guarantee:
    """Return the (ε, δ)-DP guarantee of a mechanism that needs `delta`; raise ValueError if `delta` is None."""
    return Guarantee(epsilon, validate_delta(delta))


def conjectured_guarantee(epsilon: float, delta: float | None = None) -> Guarantee:
    """Return the conjectured (ε, δ)-DP guarantee of a mechanism that needs `delta`, which must not be None."""
    return Guarantee(epsilon, validate_delta(delta), status=Status.CONJECTURED)


def no_guarantee(epsilon: float, delta: float | None = None) -> None:
    """Validate the parameters of a mechanism that is not private, and return None in place of a guarantee."""
    validate_epsilon(epsilon)
    _validate_optional_delta(delta)


def _validate_optional_delta(delta: float | None) -> None:
    if delta is not None:
        validate_delta(delta)


@dataclass(frozen=True)
class RenyiGuarantee(_Stated):
    """A Rényi-DP guarantee: D_λ(M(x)‖M(x')) ≤ epsilon for neighbours x, x', in either order, at one order λ.

    Parameters
    ----------
    order : float
        λ, finite and ≥ 1; 1 is the Kullback–Leibler divergence.
    epsilon : float
        Largest divergence in nats, finite and > 0.
    relation, status
        As in `Guarantee`. A parameter outside its range raises ValueError.

    References
    ----------
    Mironov, "Rényi differential privacy", CSF 2017, definition 4.

    Examples
    --------
    >>> print(RenyiGuarantee(2, 0.5))
    (2, 0.5)-RDP
    """

    order: float
    epsilon: float
    relation: Neighbouring = Neighbouring.REPLACE_ONE
    status: Status = field(default=Status.PROVED, kw_only=True)

    def __post_init__(self) -> None:
        self._store(order=validate_order(self.order), epsilon=validate_epsilon(self.epsilon))

    def __str__(self) -> str:
        return self._qualified(f"({self.order:g}, {format_loss(self.epsilon)})-RDP")


@dataclass(frozen=True)
class ConcentratedGuarantee(_Stated):
    """A zero-concentrated guarantee, ρ-zCDP: D_λ(M(x)‖M(x')) ≤ ρλ for neighbours x, x' at every order λ > 1.

    Parameters
    ----------
    rho : float
        ρ in nats, finite and > 0.
    relation, status
        As in `Guarantee`. A parameter outside its range raises ValueError.

    References
    ----------
    Bun & Steinke, "Concentrated differential privacy: simplifications, extensions, and lower bounds", TCC 2016,
    definition 1.1.

    Examples
    --------
    >>> print(ConcentratedGuarantee(0.5), ConcentratedGuarantee(0.5).at_order(4))
    0.5-zCDP (4, 2)-RDP
    """

    rho: float
    relation: Neighbouring = Neighbouring.REPLACE_ONE
    status: Status = field(default=Status.PROVED, kw_only=True)

    def __post_init__(self) -> None:
        self._store(rho=validate_positive("rho", self.rho, "choose e.g. 0.5"))

    def at_order(self, order: float) -> RenyiGuarantee:
        """Return the Rényi guarantee (λ, ρλ)-RDP at one order λ."""
        return RenyiGuarantee(order, self.rho * validate_order(order), self.relation, status=self.status)

    def __str__(self) -> str:
        return self._qualified(f"{format_loss(self.rho)}-zCDP")


@dataclass(frozen=True)
class GaussianGuarantee(_Stated):
    """A Gaussian guarantee, μ-GDP: outputs on neighbours are as hard to distinguish as N(0, 1) from N(mu, 1).

    Parameters
    ----------
    mu : float
        μ, finite and > 0.
    relation, status
        As in `Guarantee`. A parameter outside its range raises ValueError.

    References
    ----------
    Dong, Roth & Su, "Gaussian differential privacy", JRSS B 84, 2022, definition 4.

    Examples
    --------
    >>> print(GaussianGuarantee(0.5), GaussianGuarantee(0.5).at_order(4))
    0.5-GDP (4, 0.5)-RDP
    """

    mu: float
    relation: Neighbouring = Neighbouring.REPLACE_ONE
    status: Status = field(default=Status.PROVED, kw_only=True)

    def __post_init__(self) -> None:
        self._store(mu=validate_positive("mu", self.mu, "choose e.g. 0.3"))

    @property
    def rho(self) -> float:
        """Return ρ = μ²/2 of the zero-concentrated guarantee that follows."""
        return self.mu**2 / 2

    def at_order(self, order: float) -> RenyiGuarantee:
        """Return the Rényi guarantee (λ, λμ²/2)-RDP at one order λ."""
        return RenyiGuarantee(order, self.rho * validate_order(order), self.relation, status=self.status)

    def __str__(self) -> str:
        return self._qualified(f"{format_loss(self.mu)}-GDP")


def require_proved(guarantee: Any, allow_conjectured: bool = False) -> None:
    """Raise ValueError if a guarantee or a privacy profile is conjectured, unless the caller allows it."""
    if guarantee.status is Status.CONJECTURED and not allow_conjectured:
        raise ValueError(f"a guarantee must be proved, got {guarantee}; pass another, or allow_conjectured=True")
