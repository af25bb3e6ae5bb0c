"""Privacy profiles on a grid, and the privacy loss distributions that dominate them.

The privacy profile of a mechanism is the largest hockey-stick divergence over pairs of neighbours, in either order,

    δ(ε) = max over (x, x') of  Σ_r max(p(r) − e^ε·p'(r), 0).

As a function of a = e^ε each divergence is convex and decreases from 1 at a = 0, and so does their maximum. Every such
function that stays above max(1 − a, 0) is the profile of one pair of distributions. That pair dominates all pairs: δ of
a composition of releases is at most that of the composition of their dominating pairs (Zhu, Dong & Wang 2022). Linear
interpolation in a between the values of the profile on a grid is such a function, too, and lies above the profile. All
privacy losses of its pair are points of the grid (Doroshenko et al. 2022, "connect the dots"), so compositions are
convolutions. The neighbouring relation is symmetric, so δ(−ε) = 1 − e^(−ε)·(1 − δ(ε)), and a grid of ε ≥ 0 is
sufficient.

**Truncation and underflow.** A profile from a table that omits outputs, or whose probabilities underflow, bounds δ from
above: the omitted mass is part of δ at every ε, and a positive probability counts as at least `_LEAST`. So δ is 0 at an
ε only if no output has a larger loss, and only such a profile has a pure guarantee.

References
----------
Zhu, Dong & Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022, definition 7,
theorem 10 and proposition 8 (dominating pairs and their composition).
Doroshenko, Ghazi, Kamath, Kumar & Manurangsi, "Connect the dots: tighter discrete approximations of privacy loss
distributions", PoPETs 2022, algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, validate_number
from mechanisms.core.divergences import log_ratios
from mechanisms.core.exact_losses import OutputDistributions, cached_log_pmf, require_comparable
from mechanisms.core.jit import kernel
from mechanisms.core.privacy import Guarantee, Neighbouring, Status

_LEAST = 1e-300  # replaces smaller positive probabilities, whose products with small numbers would underflow
STEP = 1e-4  # distance between points of the grid in nats, the default of dp-accounting
LARGEST_LOSS = 50.0  # largest ε of the grid in nats; larger losses are treated as infinite


@dataclass(frozen=True, eq=False, repr=False)
class PrivacyProfile:
    """Upper bound on the privacy profile δ(ε), given on a grid.

    Parameters
    ----------
    deltas : ndarray of float64, shape (m + 1,)
        δ(0), δ(`STEP`), …, δ(m·`STEP`), in [0, 1], nonincreasing and convex in e^ε. The last value also bounds δ at
        all larger ε.
    relation : Neighbouring
        The neighbouring relation.
    status : Status
        Evidence for the bound; a proved bound may be violated by rounding errors.

    Raises
    ------
    ValueError
        If the values are not in [0, 1], or increase.

    Notes
    -----
    Values are accurate to about 1e-15. In a composition of profiles, values of δ below 1e-12 are rounding errors.

    Examples
    --------
    >>> profile = guarantee_profile(Guarantee(1.0))
    >>> print(round(profile.delta(0.5), 4), round(profile.epsilon(0.1), 4))
    0.2876 0.8529
    """

    deltas: Floats
    relation: Neighbouring = Neighbouring.REPLACE_ONE
    status: Status = Status.PROVED

    def __post_init__(self) -> None:
        deltas = np.array(self.deltas, dtype=np.float64)
        if deltas.ndim != 1 or not deltas.size or not np.all((deltas >= 0) & (deltas <= 1)):
            raise ValueError(
                f"deltas must be in [0, 1] of shape (m + 1,), got shape {deltas.shape}; pass a profile on the grid"
            )
        if np.any(np.diff(deltas) > 1e-12):
            raise ValueError(f"deltas must not increase, got an increase of {np.diff(deltas).max():g}; pass a profile")
        deltas = np.minimum.accumulate(deltas)
        deltas.flags.writeable = False
        object.__setattr__(self, "deltas", deltas)

    @property
    def largest_loss(self) -> float:
        """Last ε of the grid in nats; the profile is that of a pure guarantee if δ is 0 at this ε."""
        return (self.deltas.size - 1) * STEP

    def delta(self, epsilon: float) -> float:
        """Return an upper bound in [0, 1] on δ(ε), linear in e^ε between points of the grid, for ε ≥ 0 in nats.

        Another ε raises ValueError.
        """
        epsilon = validate_number("epsilon", epsilon, ">= 0", lambda value: value >= 0.0, "pass a loss in nats")
        place = min(int(min(epsilon, LARGEST_LOSS) / STEP), self.deltas.size - 1)
        if place == self.deltas.size - 1:
            return float(self.deltas[-1])
        share = math.expm1(epsilon - place * STEP) / math.expm1(STEP)
        return float(self.deltas[place] + min(max(share, 0.0), 1.0) * (self.deltas[place + 1] - self.deltas[place]))

    def epsilon(self, delta: float) -> float:
        """Return the smallest ε ≥ 0, in nats, at which the bound on δ(ε) is at most `delta`; inf if there is none.

        A `delta` that is not in [0, 1] raises ValueError.
        """
        delta = validate_number("delta", delta, "in [0, 1]", lambda value: 0.0 <= value <= 1.0, "choose e.g. 1e-8")
        place = int(np.argmax(self.deltas <= delta))
        if self.deltas[place] > delta:
            return math.inf
        if place == 0:
            return 0.0
        above, below = self.deltas[place - 1 : place + 1].tolist()
        return (place - 1) * STEP + math.log1p((above - delta) / (above - below) * math.expm1(STEP))

    def __str__(self) -> str:
        return f"privacy profile with losses up to {self.largest_loss:g} except with probability {self.deltas[-1]:g}"

    def mirrored(self) -> Floats:
        """Return δ at −m·`STEP`, …, m·`STEP`, shape (2m + 1,); δ at ε < 0 follows from the symmetry of the relation."""
        epsilons = np.arange(self.deltas.size - 1, 0, -1) * STEP
        return np.concatenate([-np.expm1(-epsilons) + np.exp(-epsilons) * self.deltas[:0:-1], self.deltas])


def audited_profile(distributions: OutputDistributions) -> PrivacyProfile:
    """Return the exact privacy profile of a mechanism with finitely many data sets and outputs.

    Parameters
    ----------
    distributions : OutputDistributions
        Output distributions of all data sets, such as those of `mechanisms.audit.counts.count_distributions`.

    Returns
    -------
    PrivacyProfile
        Profile that is exact on the grid, up to rounding, for the public parameters of `distributions` only. Losses
        above `LARGEST_LOSS` are treated as infinite.

    Raises
    ------
    ValueError
        If `mechanisms.audit_distributions` would reject `distributions`.

    Examples
    --------
    The value δ(0.5) of one 1-DP mechanism, and that of the worst 1-DP mechanism:

    >>> from mechanisms.audit.counts import count_distributions
    >>> profile = audited_profile(count_distributions("hamming-exact", [1, 1, 1], 40, epsilon=1.0))
    >>> print(round(profile.delta(0.5), 3), round(guarantee_profile(Guarantee(1.0)).delta(0.5), 3))
    0.106 0.288
    """
    require_comparable(distributions)
    deltas, distribution = np.zeros(1), cached_log_pmf(distributions)
    for first, second in distributions.pairs.tolist():
        log_p, log_q = distribution(first), distribution(second)
        losses = np.abs(log_ratios(log_p, log_q))
        largest = float(losses[np.isfinite(losses)].max(initial=0.0))
        size = 1 + math.ceil(min(largest, LARGEST_LOSS) / STEP)
        if size > deltas.size:
            deltas = np.concatenate([deltas, np.full(size - deltas.size, deltas[-1])])
        _raise_profile(log_p, log_q, STEP, deltas)
        _raise_profile(log_q, log_p, STEP, deltas)
    return PrivacyProfile(np.minimum(deltas + distributions.omitted, 1.0), distributions.relation)


def guarantee_profile(guarantee: Guarantee) -> PrivacyProfile:
    """Return the profile of the worst mechanism with an (ε, δ) guarantee (Kairouz, Oh & Viswanath 2015).

    With probability δ it publishes a record, and otherwise a randomised response to the record.
    """
    loss, delta = guarantee.epsilon, guarantee.delta
    epsilons = np.arange(1 + math.ceil(min(loss, LARGEST_LOSS) / STEP)) * STEP
    # (e^loss − e^ε)/(1 + e^loss), without overflow
    response = np.maximum(-np.expm1(epsilons - loss), 0.0) / (1.0 + math.exp(-loss))
    return PrivacyProfile(delta + (1.0 - delta) * response, guarantee.relation, guarantee.status)


def losses_profile(losses: ArrayLike, probabilities: ArrayLike, omitted: float = 0.0) -> PrivacyProfile:
    """Return the profile of a mechanism whose privacy loss distribution is the same for all pairs of neighbours.

    `losses` ln p(r)/p'(r) have the `probabilities` under p; others have at most `omitted`, which is added to δ.
    """
    values = np.asarray(losses, dtype=np.float64)
    with np.errstate(divide="ignore"):
        log_p = np.log(np.asarray(probabilities, dtype=np.float64))
    deltas = np.zeros(1 + math.ceil(min(max(float(values.max()), 0.0), LARGEST_LOSS) / STEP))
    _raise_profile(log_p, log_p - values, STEP, deltas)
    return PrivacyProfile(np.minimum(deltas + omitted, 1.0))


@kernel
def _raise_profile(log_p, log_q, step, deltas):
    """Increase `deltas` at the points of the grid to at least δ(ε) of P and Q, in one pass over the outputs.

    With S(ε) = Σ p·e^(ε − loss) over the outputs whose loss exceeds ε,

        δ(εⱼ) = δ(εⱼ₊₁) + S(εⱼ₊₁)·(1 − e^(−step)) + Σ p·(1 − e^(εⱼ − loss)) over losses in (εⱼ, εⱼ₊₁].

    All terms are positive, so the relative error of small δ is small, too.
    """
    last = deltas.size - 1
    excess, tilted_mass = np.zeros(deltas.size), np.zeros(deltas.size)
    for i in range(log_p.size):
        if log_p[i] == -math.inf:
            continue
        loss = log_p[i] - log_q[i]
        if loss <= 0.0:
            continue
        place = last if loss >= last * step else int(loss / step)
        p, tilt = max(math.exp(log_p[i]), _LEAST), math.exp(place * step - loss)
        excess[place] += max(0.0, p * -math.expm1(place * step - loss))
        tilted_mass[place] += p * tilt
    decay, rise = math.exp(-step), -math.expm1(-step)
    delta, tilted = excess[last], tilted_mass[last]
    deltas[last] = max(deltas[last], delta)
    for place in range(last - 1, -1, -1):
        delta += tilted * rise + excess[place]
        tilted = tilted * decay + tilted_mass[place]
        deltas[place] = max(deltas[place], delta)
