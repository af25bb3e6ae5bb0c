"""Exact calibration of permute-and-flip: the largest rate that passes its exact audit.

The weights are exp(−rate·H(posterior(c), posterior(c'))/S(c)) with the Hellinger distance H and the smooth sensitivity
S. The smoothing rate γ of S is the one that `mechanisms.counts.calibration` finds for the exponential mechanism. The
search returns the largest rate found whose exact loss, over all neighbours and outputs, is at most ε. The rate depends
on public quantities only (prior, n, ε), so the mechanism is ε-DP.

McKenna & Sheldon (2020) prove a loss of at most 2·rate for the global sensitivity. With equal weights permute-and-flip
is more accurate than the exponential mechanism, but its exact loss is larger, so the calibrated rate is smaller.

References
----------
McKenna & Sheldon, "Permute-and-flip: a new mechanism for differentially private selection", NeurIPS 2020.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.audit import audit_distributions
from mechanisms.calibrate import largest_below
from mechanisms.conjugate import count_candidates, enumerate_candidates, validate_prior
from mechanisms.counts.calibration import Calibration, calibrate
from mechanisms.counts.candidates import candidate_distances, enumerate_rows
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.permute_and_flip import PermuteAndFlip, log_flip_pmf, permute_and_flip
from mechanisms.counts.sensitivity import Rule, smoothed_scales
from mechanisms.metadata import Style
from mechanisms.neighbours import neighbouring_pairs
from mechanisms.output_distributions import OutputDistributions
from mechanisms.privacy import pure_guarantee

__all__ = ["PERMUTE_AND_FLIP_EXACT", "calibrate_flip", "require_flip_calibratable"]

MAX_FLIP_CALIBRATED = 6_000
"""Largest number of candidates for which all pairs of data sets are audited, which takes about a second per audit."""

_ROUNDS = 60


def require_flip_calibratable(n: int, k: int) -> None:
    """Raise ValueError if there are too many data sets to audit permute-and-flip."""
    n_candidates = count_candidates(n, k)
    if n_candidates > MAX_FLIP_CALIBRATED:
        raise ValueError(
            f"there must be at most {MAX_FLIP_CALIBRATED:,} candidates for an exact calibration of permute-and-flip, "
            f"got {n_candidates:,} (n = {n}, k = {k}); use fewer records, or k-norm"
        )


def calibrate_flip(prior: ArrayLike, n: int, epsilon: float) -> Calibration:
    """Return, and cache, the largest rate at which permute-and-flip with the smooth sensitivity is ε-DP by an audit."""
    alpha = validate_prior(prior)
    require_flip_calibratable(n, alpha.size)
    exponential = calibrate(Rule.SMOOTH, alpha, n, epsilon)
    return _calibrate(exponential.prior, exponential.n, exponential.epsilon)


@lru_cache(maxsize=256)
def _calibrate(prior: tuple[float, ...], n: int, epsilon: float) -> Calibration:
    alpha, exponential = np.array(prior), calibrate(Rule.SMOOTH, prior, n, epsilon)
    rows, candidates = enumerate_rows(n, alpha.size), enumerate_candidates(n, alpha.size)
    datasets, pairs = neighbouring_pairs(alpha, candidates)
    scales = smoothed_scales(Rule.SMOOTH, alpha, datasets, exponential.gamma)
    active: list[int] = []
    target, rate = epsilon, exponential.rate

    def log_pmf(index: int, rate: float) -> NDArray[np.float64]:
        return log_flip_pmf(candidate_distances(alpha, datasets[index], rows) * (-rate / scales[index]))

    def is_private(rate: float) -> bool:
        log_pmfs: dict[int, NDArray[np.float64]] = {}
        for place, pair in enumerate(active):
            for index in pairs[pair].tolist():
                if index not in log_pmfs:
                    log_pmfs[index] = log_pmf(index, rate)
            first, second = pairs[pair].tolist()
            if float(np.abs(log_pmfs[first] - log_pmfs[second]).max()) > target:
                active.insert(0, active.pop(place))  # this pair probably exceeds the target at the next rate as well
                return False
        return True

    for _ in range(_ROUNDS):
        found = audit_distributions(OutputDistributions(datasets, candidates, pairs, partial(log_pmf, rate=rate)))
        if active and found.epsilon <= epsilon:
            return Calibration(Rule.SMOOTH, prior, n, epsilon, exponential.gamma, rate, found.epsilon)
        near = np.abs(datasets - found.witness.dataset).sum(axis=1) <= 4
        added = set(np.flatnonzero(near[pairs].all(axis=1)).tolist()).difference(active)
        if not added:
            target -= 2.0 * (found.epsilon - epsilon)  # the loss exceeds ε by rounding only
        active.extend(sorted(added))
        rate = largest_below(is_private, 2.0 * exponential.rate, 1e-10)
    raise AssertionError(f"no private rate after {_ROUNDS} audits: prior {prior}, n = {n}, epsilon = {epsilon}")


def _release(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> PermuteAndFlip:
    calibration = calibrate_flip(prior, int(counts.sum()), epsilon)
    return permute_and_flip(prior, counts, calibration.rate, calibration.sensitivity(counts))


PERMUTE_AND_FLIP_EXACT = Mechanism(
    name="permute-and-flip-exact",
    note="Permute-and-flip on the smooth sensitivity, with the largest exponent found whose exact loss is ε.",
    release=_release,
    guarantee=pure_guarantee,
    require=require_flip_calibratable,
    symmetric=True,
    calibrate=calibrate_flip,
    style=Style("teal", "x"),
)
