"""Exact calibration: the exponential mechanism with the largest rate at which it is ε-DP.

The papers prove a loss of ε for weights exp(−ε·H/(2S)) by bounding the changes of the score and of the normaliser
separately; the actual loss is about half of that. This module uses the weights

    Pr[c'] ∝ exp( −rate·H(posterior(c), posterior(c')) / S(c) )

with the largest rate found whose exact loss, over all neighbours and outputs, is at most ε. The search starts from
above, as the loss need not be monotone. The rate depends on public quantities only (prior, n, ε), so the mechanism is
ε-DP; `Calibration.loss` is the loss found by the audit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core import conjugate
from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.calibrate import largest_below
from mechanisms.core.conjugate import neighbouring_pairs
from mechanisms.core.exact_losses import OutputDistributions, audit_distributions, sum_exp
from mechanisms.core.hellinger import hellinger
from mechanisms.core.metadata import Style
from mechanisms.core.privacy import pure_guarantee
from mechanisms.core.privacy_parameters import validate_resolved_epsilon, validate_size
from mechanisms.core.shared_cache import computed_once
from mechanisms.counts.calibrated import Calibration
from mechanisms.counts.candidates import candidate_distances, enumerate_rows
from mechanisms.counts.exponential import exponential_mechanism
from mechanisms.counts.mechanism import CountRelease, Mechanism
from mechanisms.counts.sensitivity import (
    Rule,
    local_sensitivity_at_distance,
    smoothed_scales,
)

# largest number of candidates for which all pairs of data sets are audited: a few seconds per audit
MAX_CALIBRATED = 50_000
# largest number of records, which limits the time at k = 2: distributions then take longer than comparisons
MAX_RECORDS = 10_000
_GAMMA_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
_ROUNDS = 60
_ACTIVE_BYTES = 60_000_000


def require_calibratable(n: int, k: int) -> None:
    """Raise ValueError if there are too many data sets for an exact calibration."""
    advice = "use varying-bound, whose guarantee is proved for every size, or hamming-exact"
    conjugate.require_at_most(MAX_RECORDS, "records for an exact calibration", n, n, k, advice)
    conjugate.require_at_most(
        MAX_CALIBRATED, "candidates for an exact calibration", conjugate.count_candidates(n, k), n, k, advice
    )


def calibrate(rule: Rule, prior: ArrayLike, n: int, epsilon: float) -> Calibration:
    """Return the largest rate at which the exponential mechanism with sensitivity S is ε-DP.

    The smoothing rate γ of S is the one with the largest inverse temperature at balanced data. The result is cached,
    does not depend on data, and is ε-DP under replacement of one record, with n public, by the audit at the returned
    rate.

    For a pair c, c', scores V = H/S and rate m, the loss is m·max(V' − V) + ln Z'(m) − ln Z(m). The losses of both
    directions sum to m·[max(V' − V) + max(V − V')], so no m above 2ε divided by the largest such bracket is private.
    From this upper bound downwards, the search finds the largest m at which a set of active pairs is private, and
    audits all pairs at this m, but for those with a proof that another pair loses more. Pairs near one whose loss
    exceeds ε become active, and the search continues.
    """
    if rule not in (Rule.SMOOTH, Rule.VARYING, Rule.GLOBAL):
        raise ValueError(f"rule must be Rule.SMOOTH, Rule.VARYING or Rule.GLOBAL, got {rule!r}; pass a Rule")
    alpha = conjugate.validate_prior(prior)
    n = validate_size(n)
    require_calibratable(n, alpha.size)
    return _calibrate(rule, tuple(alpha.tolist()), n, validate_resolved_epsilon(epsilon))


@computed_once(maxsize=256)  # seconds per calibration, which trials and audits share
def _calibrate(rule: Rule, prior: tuple[float, ...], n: int, epsilon: float) -> Calibration:
    alpha = np.array(prior)
    rows = enumerate_rows(n, alpha.size)
    candidates = conjugate.enumerate_candidates(n, alpha.size)
    datasets, pairs = neighbouring_pairs(alpha, candidates)
    distances: dict[int, Floats] = {}  # from a data set of an active pair to all outputs

    def largest_rate(active: Integers, target: float, scale: Floats, tolerance: float = 1e-10) -> float:
        """Return the largest rate at which no active pair has a loss above `target`, given S at each data set."""
        chosen = pairs[active]
        for index in np.unique(chosen).tolist():
            if index not in distances:
                distances[index] = candidate_distances(alpha, datasets[index], rows)
        changes = (distances[there] / scale[there] - distances[here] / scale[here] for here, there in chosen.tolist())
        gaps = np.array([(float(change.max()), -float(change.min())) for change in changes])
        top = 2.0 * target / float(gaps.sum(axis=1).max())
        return largest_below(_PrivateRates(distances, chosen, gaps, scale, target), top, tolerance)

    active = _initial_pairs(datasets, pairs, alpha)

    def balanced_exponent(gamma: float) -> float:
        """Return the largest inverse temperature at balanced data that the active pairs allow."""
        scale, held = np.ones(len(datasets)), np.unique(pairs[active])
        scale[held] = smoothed_scales(rule, alpha, datasets[held], gamma)
        balanced = conjugate.balanced_counts(n, alpha.size)[None]
        return largest_rate(active, epsilon, scale, 1e-4) / float(smoothed_scales(rule, alpha, balanced, gamma)[0])

    gamma = 0.0 if rule is Rule.GLOBAL else max(_gammas(rule, alpha, n), key=balanced_exponent)
    scale = smoothed_scales(rule, alpha, datasets, gamma)
    log_pmf = partial(_log_pmf, alpha, rows, datasets, scale)
    doubtful, rate_of = (
        partial(_doubtful_pairs, alpha, rows, datasets, pairs, scale),
        partial(largest_rate, scale=scale),
    )
    rate, loss = search_rate(datasets, candidates, pairs, log_pmf, rate_of, active, epsilon, doubtful)
    return Calibration(rule, prior, n, epsilon, gamma, rate, loss)


def _log_pmf(prior: Floats, rows: Integers, datasets: Integers, scale: Floats, index: int, rate: float) -> Floats:
    log_weights = candidate_distances(prior, datasets[index], rows)
    log_weights *= -rate / scale[index]
    log_weights -= math.log(sum_exp(log_weights))
    return log_weights


def _doubtful_pairs(
    prior: Floats, rows: Integers, datasets: Integers, pairs: Integers, scale: Floats, rate: float, loss: float
) -> Integers:
    """Return indices of the pairs whose loss at a rate m may be `loss` or more.

    For a pair c, c' with scores V = H/S and h = H(c, c'), the triangle inequality and H ≤ 1 give

        V' − V ≤ min(1/S, 1/S')·h + max(1/S' − 1/S, 0).

    The loss in this direction is at most m times this bound plus ln Z' − ln Z, which is at most m times the bound of
    the opposite direction. So ln Z is needed only where m times the sum of both bounds reaches `loss`.
    """
    first, second = pairs.T
    inverse = 1.0 / scale
    moved = hellinger(prior + datasets[first], prior + datasets[second])
    moved *= np.minimum(inverse[first], inverse[second])
    rise = inverse[second] - inverse[first]
    least = loss * (1.0 - 1e-9) - 1e-9  # allows for rounding
    possible = rate * (2.0 * moved + np.abs(rise)) >= least
    log_z = np.zeros(len(datasets))
    for index in np.unique(pairs[possible]).tolist():
        distances = candidate_distances(prior, datasets[index], rows)
        log_z[index] = math.log(sum_exp(distances, -rate / scale[index]))
    change = log_z[second] - log_z[first]
    larger = np.maximum(rate * np.maximum(rise, 0.0) + change, rate * np.maximum(-rise, 0.0) - change)
    return np.flatnonzero(possible & (rate * moved + larger >= least))


def search_rate(
    datasets: Integers,
    candidates: Integers,
    pairs: Integers,
    log_pmf: Callable[..., Floats],
    largest_rate: Callable[[Integers, float], float],
    active: Integers,
    epsilon: float,
    doubtful: Callable[[float, float], Integers] | None = None,
) -> tuple[float, float]:
    """Return the largest rate found whose exact loss over all pairs is at most ε, and this loss.

    `log_pmf` takes the index of a data set and `rate`. `largest_rate` maps indices of active pairs and a target to the
    largest rate at which no active pair has a loss above the target. Pairs near one whose loss exceeds ε become active.
    `doubtful` maps a rate and a loss to indices of all pairs that may have this loss; only these are compared.
    """
    target = epsilon
    for _ in range(_ROUNDS):
        rate = largest_rate(active, target)
        log_pmf_at_rate, compared = partial(log_pmf, rate=rate), pairs
        if doubtful is not None:
            loss_of_active = audit_distributions(
                OutputDistributions(datasets, candidates, pairs[active], log_pmf_at_rate)
            ).epsilon
            compared = pairs[doubtful(rate, loss_of_active)]
        audit = audit_distributions(OutputDistributions(datasets, candidates, compared, log_pmf_at_rate))
        if active.size and audit.epsilon <= epsilon:
            return rate, audit.epsilon
        near = np.abs(datasets - audit.witness.dataset).sum(axis=1) <= 4
        wider = np.union1d(active, np.flatnonzero(near[pairs].all(axis=1)))
        if wider.size == active.size:
            target -= 2.0 * (audit.epsilon - epsilon)  # the loss exceeds ε by rounding only
        active = wider
    raise AssertionError(f"no private rate after {_ROUNDS} audits: n = {candidates[0].sum()}, epsilon = {epsilon}")


class _PrivateRates:
    """Predicate on rates m: True if the loss of no pair exceeds `epsilon`.

    ln Z is convex and decreases in the rate. So, with ln Z at a smaller rate l and R the set of outputs,

        ln Z(l) − (m − l)·(ln|R| − ln Z(l))/l  ≤  ln Z(m)  ≤  ln Z(l).

    These bounds decide about most pairs without a sum over the outputs. Here l is the last private rate, so later
    rates must not be smaller, as in `largest_below`.
    """

    def __init__(
        self, distances: dict[int, Floats], pairs: Integers, gaps: Floats, scales: Floats, epsilon: float
    ) -> None:
        self._indices = np.unique(pairs)
        self._distances = [distances[index] for index in self._indices.tolist()]
        self._scales = scales[self._indices]
        self._pairs = np.searchsorted(self._indices, pairs)
        self._gaps, self._epsilon = gaps, epsilon
        self._log_n_outputs = math.log(self._distances[0].size)
        # The largest private rate l at which ln Z was computed, ln Z(l), and a bound on −d ln Z/dm, per data set.
        self._rates = np.zeros(self._indices.size)
        self._log_z = np.full(self._indices.size, self._log_n_outputs)
        self._slopes = np.array([distances.max() for distances in self._distances]) / self._scales
        self._exceeding = 0  # the pair that exceeded epsilon at the last rate that is not private

    def __call__(self, rate: float) -> bool:
        lowest = self._log_z - (rate - self._rates) * self._slopes
        first, second = self._pairs.T
        bounds = rate * self._gaps + np.stack(
            [self._log_z[second] - lowest[first], self._log_z[first] - lowest[second]], axis=1
        )
        doubtful = np.flatnonzero(bounds.max(axis=1) > self._epsilon * (1.0 - 1e-9) - 1e-9)
        log_z: dict[int, float] = {}
        for pair in (self._exceeding, *doubtful.tolist()):
            here, there = self._pairs[pair].tolist()
            for index in (here, there):
                if index not in log_z:
                    log_z[index] = math.log(sum_exp(self._distances[index], -rate / self._scales[index]))
            change = log_z[there] - log_z[here]
            if max(rate * self._gaps[pair, 0] + change, rate * self._gaps[pair, 1] - change) > self._epsilon:
                self._exceeding = pair
                return False
        for index, value in log_z.items():
            self._rates[index], self._log_z[index] = rate, value
            self._slopes[index] = (self._log_n_outputs - value) / rate
        return True


def _gammas(rule: Rule, prior: Floats, n: int) -> list[float]:
    """Return candidates for the smoothing rate γ, up to the smallest at which S is local at balanced data."""
    profile = local_sensitivity_at_distance(prior, conjugate.balanced_counts(n, prior.size))
    t = np.arange(1, profile.size)
    rises = np.log(profile[1:] / profile[0]) / t if rule is Rule.SMOOTH else (1.0 / profile[0] - 1.0 / profile[1:]) / t
    enough = float(rises.max(initial=0.0)) or 1.0
    return [share * enough for share in _GAMMA_SHARES]


def _initial_pairs(datasets: Integers, pairs: Integers, prior: Floats) -> Integers:
    """Return the first active pairs: those at the corners, near balanced data, and with counts 0, 1, 2, 4, ..."""
    n, k = int(datasets[0].sum()), prior.size
    levels = np.array([0, *(2**power for power in range(int(math.log2(n)) + 1)), n // 2, n // 3])
    corner = (datasets <= 1).sum(axis=1) >= k - 1
    balanced = np.abs(np.sort(datasets, axis=1) - np.sort(conjugate.balanced_counts(n, k))).sum(axis=1) <= 2
    spread = np.isin(datasets, levels).sum(axis=1) >= k - 1
    always = np.flatnonzero((corner | balanced)[pairs[:, 0]])
    others = np.flatnonzero(spread[pairs[:, 0]])
    n_allowed = max(1, int(_ACTIVE_BYTES / (16 * conjugate.count_candidates(n, k))))
    return np.union1d(always, others[:: max(1, -(-others.size // n_allowed))])


def _entry(rule: Rule, style: Style) -> Mechanism:
    def release(prior: Floats, counts: Integers, epsilon: float, delta: float) -> CountRelease:
        calibration = calibrate(rule, prior, int(counts.sum()), epsilon)
        return exponential_mechanism(prior, counts, calibration.rate, calibration.sensitivity(counts))

    return Mechanism(
        f"{rule.value}-exact",
        f"Exponential mechanism on the {rule.value} sensitivity, with the largest exponent whose exact loss is ε.",
        release=release, guarantee=pure_guarantee, require=require_calibratable, symmetric=True,
        calibrate=partial(calibrate, rule), style=style,
    )  # fmt: skip


CALIBRATED = (
    _entry(Rule.SMOOTH, Style("blue", "h")),
    _entry(Rule.VARYING, Style("purple", "d")),
    _entry(Rule.GLOBAL, Style("green", ">")),
)
"""Exponential mechanisms that are calibrated by their exact loss."""
