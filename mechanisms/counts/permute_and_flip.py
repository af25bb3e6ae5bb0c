"""Permute-and-flip with the Hellinger distance as its score, and its exact output distribution.

The candidates r, all counts of n records, are visited in random order. Each candidate is released with probability
w_r = exp(−a·H(c, r)); otherwise the next one is visited. A release is certain, as w_c = 1. With independent uniform
arrival times as the random order, r is released if no candidate that arrived earlier is released, so that (McKenna &
Sheldon 2020; Ding et al. 2021)

    p_r = w_r·Q(w_r),   Q(w) = ∫₀¹ F(t) / (1 − w·t) dt,   F(t) = Π_s (1 − w_s·t).

**Quadrature.** F(t) ≤ (1 − t)·exp(−(W − 1)·t) with W = Σw. The integral is truncated where the exponential factor is
exp(−45), and computed by the Gauss–Legendre rule with 64 nodes. All candidates share one table of F at the nodes. All
terms are positive and Q(0) ≤ Q(w) ≤ Q(1), so ln p_r = −a·H + ln Q(w_r) is accurate for distant candidates, too.

**Exact calibration.** With the smooth sensitivity S, whose rate γ is that of `mechanisms.counts.calibration` for the
exponential mechanism, and weights exp(−rate·H/S), the search returns the largest rate found whose exact loss, over all
neighbours and outputs, is at most ε. It depends on public quantities only (prior, n, ε), so the mechanism is ε-DP.
McKenna & Sheldon (2020) prove a loss of at most 2·rate for the global sensitivity. With equal weights permute-and-flip
is more accurate than the exponential mechanism, but its exact loss is larger, so the calibrated rate is smaller.

References
----------
McKenna & Sheldon, "Permute-and-flip: a new mechanism for differentially private selection", NeurIPS 2020. Ding, Kifer,
Saghaian, Steinke, Wang, Xiao & Zhang, "The permute-and-flip mechanism is identical to report-noisy-max with exponential
noise", arXiv:2105.07260, 2021.
"""

from __future__ import annotations

import math
from functools import cache, partial

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core import conjugate
from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.calibrate import largest_below
from mechanisms.core.conjugate import neighbouring_pairs
from mechanisms.core.exact_losses import sum_exp
from mechanisms.core.jit import kernel
from mechanisms.core.metadata import Style
from mechanisms.core.privacy import pure_guarantee
from mechanisms.core.shared_cache import computed_once
from mechanisms.core.sums import weighted_sum
from mechanisms.counts.calibrated import Calibration
from mechanisms.counts.calibration import calibrate, search_rate
from mechanisms.counts.candidates import candidate_distances, enumerate_rows
from mechanisms.counts.mechanism import Mechanism, TabulatedRelease
from mechanisms.counts.sensitivity import Rule, global_sensitivity, smoothed_scales

MAX_FLIPPED = 2_000_000  # largest number of candidates in a stored distribution, which takes about a second to compute
_TAIL = 45.0
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(64)  # on [−1, 1]
# largest number of candidates for which all pairs of data sets are audited, which takes about a second per audit
MAX_FLIP_CALIBRATED = 6_000


def require_flippable(n: int, k: int) -> None:
    """Raise ValueError if there are too many candidates, the counts of n records, to store their distribution."""
    advice = "use fewer records, or k-norm"
    conjugate.require_at_most(
        MAX_FLIPPED, "candidates for permute-and-flip", conjugate.count_candidates(n, k), n, k, advice
    )


def permute_and_flip(prior: Floats, counts: Integers, rate: float, sensitivity: float) -> TabulatedRelease:
    """Return the release of `counts` by permute-and-flip with weights exp(−rate·H(c, c')/S), H the Hellinger distance.

    **Privacy.** (2·rate)-DP (proved) under replacement of one record, with n public, if `sensitivity` is the global
    sensitivity (McKenna & Sheldon 2020, Theorem 1). Other sensitivities need an audit, as in `calibrate_flip`.
    """
    distances = candidate_distances(prior, counts, enumerate_rows(int(counts.sum()), counts.size))
    log_pmf = log_flip_pmf(-rate / sensitivity * distances)
    return TabulatedRelease(prior, counts, log_pmf, float(weighted_sum(np.exp(log_pmf), distances)))


def log_flip_pmf(log_weights: Floats) -> Floats:
    """Return the log probability that permute-and-flip releases each candidate; the largest of `log_weights` is 0."""
    weights = np.exp(log_weights)
    stop = min(1.0, _TAIL / max(float(weights.sum()) - 1.0, 1e-300))
    nodes = 0.5 * stop * (1.0 + _GAUSS_NODES)
    factors = 0.5 * stop * _GAUSS_WEIGHTS * _products(weights, nodes)
    log_pmf = log_weights + np.log(_integrals(weights, nodes, factors))
    return np.asarray(log_pmf - math.log(sum_exp(log_pmf)))  # corrects the error of the quadrature, about 1e-14


@kernel
def _products(weights, nodes):
    """Return F(t) = Π (1 − w·t) at the quadrature nodes t; the product is over all weights w."""
    products = np.ones(nodes.size)
    for s in range(weights.size):
        for i in range(nodes.size):
            products[i] *= 1.0 - weights[s] * nodes[i]
    return products


@kernel
def _integrals(weights, nodes, factors):
    """Return the integral Q(w) for each weight w; `factors` contains F times the quadrature weights."""
    integrals = np.zeros(weights.size)
    for i in range(nodes.size):  # outside the loop over weights, so that the compiler vectorises the divisions
        for s in range(weights.size):
            integrals[s] += factors[i] / (1.0 - weights[s] * nodes[i])
    return integrals


PERMUTE_AND_FLIP = Mechanism(
    name="permute-and-flip", note="Permute-and-flip on the global sensitivity (McKenna & Sheldon 2020).",
    release=lambda prior, counts, epsilon, delta: permute_and_flip(
        prior, counts, epsilon / 2.0, global_sensitivity(prior, int(counts.sum()))
    ),
    guarantee=pure_guarantee, require=require_flippable, symmetric=True, origin="baseline", variant="McKenna & Sheldon",
    style=Style("teal", "4"),
)  # fmt: skip


def require_flip_calibratable(n: int, k: int) -> None:
    """Raise ValueError if there are too many data sets to audit permute-and-flip."""
    n, k = conjugate.validate_problem(n, k)
    limited, advice = "candidates for an exact calibration of permute-and-flip", "use fewer records, or k-norm"
    conjugate.require_at_most(MAX_FLIP_CALIBRATED, limited, conjugate.count_candidates(n, k), n, k, advice)


def calibrate_flip(prior: ArrayLike, n: int, epsilon: float) -> Calibration:
    """Return, and cache, the largest rate at which permute-and-flip with the smooth sensitivity is ε-DP by an audit."""
    alpha = conjugate.validate_prior(prior)
    require_flip_calibratable(n, alpha.size)
    exponential = calibrate(Rule.SMOOTH, alpha, n, epsilon)
    return _calibrate(exponential.prior, exponential.n, exponential.epsilon)


@computed_once(maxsize=256)  # seconds per calibration, which trials and audits share
def _calibrate(prior: tuple[float, ...], n: int, epsilon: float) -> Calibration:
    alpha, exponential = np.array(prior), calibrate(Rule.SMOOTH, prior, n, epsilon)
    rows, candidates = enumerate_rows(n, alpha.size), conjugate.enumerate_candidates(n, alpha.size)
    datasets, pairs = neighbouring_pairs(alpha, candidates)
    scales = smoothed_scales(Rule.SMOOTH, alpha, datasets, exponential.gamma)

    def log_pmf(index: int, rate: float) -> Floats:
        return log_flip_pmf(candidate_distances(alpha, datasets[index], rows) * (-rate / scales[index]))

    def largest_rate(active: Integers, target: float) -> float:
        if not active.size:
            return exponential.rate
        order = active.tolist()

        def is_private(rate: float) -> bool:
            log_pmf_at = cache(partial(log_pmf, rate=rate))
            for place, pair in enumerate(order):
                first, second = pairs[pair].tolist()
                if float(np.abs(log_pmf_at(first) - log_pmf_at(second)).max()) > target:
                    order.insert(0, order.pop(place))  # this pair probably exceeds the target at the next rate as well
                    return False
            return True

        return largest_below(is_private, 2.0 * exponential.rate, 1e-10)

    none = np.empty(0, dtype=np.int64)
    rate, loss = search_rate(datasets, candidates, pairs, log_pmf, largest_rate, none, epsilon)
    return Calibration(Rule.SMOOTH, prior, n, epsilon, exponential.gamma, rate, loss)


def _release(prior: Floats, counts: Integers, epsilon: float, delta: float) -> TabulatedRelease:
    calibration = calibrate_flip(prior, int(counts.sum()), epsilon)
    return permute_and_flip(prior, counts, calibration.rate, calibration.sensitivity(counts))


PERMUTE_AND_FLIP_EXACT = Mechanism(
    name="permute-and-flip-exact",
    note="Permute-and-flip on the smooth sensitivity, with the largest exponent found whose exact loss is ε.",
    release=_release, guarantee=pure_guarantee, require=require_flip_calibratable, symmetric=True,
    calibrate=calibrate_flip, style=Style("teal", "x"),
)  # fmt: skip
