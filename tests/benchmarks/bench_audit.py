"""Time of exact audits, compared with a straightforward double loop over pairs.

    python tests/benchmarks/bench_audit.py [--quick | --smallest]

The straightforward version compares every pair of neighbouring data sets with array operations, without symmetry,
pruning or reuse of distributions. If there are too many pairs, a uniform sample is timed and extrapolated to all pairs;
otherwise both versions must find the same loss. Ratios and limits refer to processor time in the same run, without
compilation. ``--quick`` omits k = 3, n = 300 and k = 4; ``--smallest`` takes seconds.

A calibration compares only pairs that a bound does not exclude; it is compared with one audit of all pairs at the rate
that it finds.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from measuring import SMALLEST, print_machine
from scipy.special import gammaln

from mechanisms import audit_counts, enumerate_candidates
from mechanisms.counts.calibration import calibrate
from mechanisms.counts.exponential import smoothing_gamma
from mechanisms.counts.sensitivity import Rule, smooth_sensitivity

EPSILON, DELTA, ORDERS, SAMPLED_SECONDS = 1.0, 1e-8, (2.0, 10.0), 4.0
SIZES = [(2, 1000, 1.0), (2, 5000, None), (3, 100, 3.0), (3, 300, 90.0), (4, 60, None)]
QUICK = 3


def unordered_pairs(candidates: np.ndarray) -> np.ndarray:
    """Return the indices of all pairs of data sets that differ in one replaced record."""
    n, k = int(candidates[0].sum()), candidates.shape[1]
    weights = (n + 1) ** np.arange(k)[::-1]
    codes = candidates @ weights
    pairs = []
    for i in range(k):
        for j in range(i + 1, k):
            first = np.flatnonzero(candidates[:, i] > 0)
            pairs.append(np.column_stack([first, np.searchsorted(codes, codes[first] - weights[i] + weights[j])]))
    return np.concatenate(pairs)


def straightforward(k: int, n: int, in_full: bool) -> tuple[float, float, int, int]:
    """Return the loss, the processor seconds for all pairs, the number of timed pairs and that of all pairs."""
    candidates = enumerate_candidates(n, k)
    pairs = unordered_pairs(candidates)
    a = 1.0 + np.arange(n + 1)
    table = gammaln((a[:, None] + a) / 2) - (gammaln(a)[:, None] + gammaln(a)) / 2
    gamma = smoothing_gamma(EPSILON, DELTA, len(candidates))

    def distribution(index: int) -> np.ndarray:
        counts = candidates[index]
        log_affinity = sum(table[counts[cell], candidates[:, cell]] for cell in range(k))
        distances = np.sqrt(np.maximum(1 - np.exp(log_affinity), 0))
        weights = np.exp(-EPSILON * distances / (2 * smooth_sensitivity(np.ones(k), counts, gamma)))
        return weights / weights.sum()

    order = np.arange(len(pairs)) if in_full else np.random.default_rng(1).permutation(len(pairs))
    loss, deltas, renyi, timed = 0.0, 0.0, np.zeros(len(ORDERS)), 0
    start = time.process_time()
    for first, second in pairs[order].tolist():
        p, q = distribution(first), distribution(second)
        for above, below in ((p, q), (q, p)):
            loss = max(loss, float(np.log(above / below).max()))
            deltas = max(deltas, float(np.maximum(above - np.exp(EPSILON) * below, 0).sum()))
            for at, alpha in enumerate(ORDERS):
                renyi[at] = max(renyi[at], np.log((above**alpha * below ** (1 - alpha)).sum()) / (alpha - 1))
        timed += 1
        if not in_full and time.process_time() - start > SAMPLED_SECONDS:
            break
    seconds = (time.process_time() - start) * len(pairs) / timed
    return loss, seconds, timed, len(pairs)


def compare_calibrations(k: int, n: int) -> None:
    """Print the processor times of calibrations, and of audits of all pairs at their rates."""
    print("calibrations, unit prior, epsilon = 1, and one audit of all pairs at the rate of each")
    print("  k     n  mechanism     calibration       audit  ratio")
    for rule in (Rule.SMOOTH, Rule.VARYING, Rule.GLOBAL):
        start = time.process_time()
        calibration = calibrate(rule, np.ones(k), n, EPSILON)
        calibrated = time.process_time()
        audit = audit_counts(f"{rule.value}-exact", np.ones(k), n, EPSILON)
        seconds, audit_seconds = calibrated - start, time.process_time() - calibrated
        assert abs(audit.epsilon - calibration.loss) < 1e-12, (rule, audit.epsilon, calibration.loss)
        print(
            f"  {k} {n:5d}  {rule.value:13} {seconds:9.2f} s {audit_seconds:9.2f} s {audit_seconds / seconds:6.1f}",
            flush=True,
        )


def main() -> None:
    sizes = [(2, 40, None)] if SMALLEST else SIZES[:QUICK] if "--quick" in sys.argv[1:] else SIZES
    audit_counts("smooth", [1, 1, 1], 5, EPSILON, DELTA)  # compiles
    for k, n in ((2, 40), (3, 12), (4, 6)):
        found, plain = audit_counts("smooth", np.ones(k), n, EPSILON, DELTA), straightforward(k, n, in_full=True)
        assert abs(found.epsilon - plain[0]) < 1e-9, (k, n, found.epsilon, plain[0])
    print_machine()
    print("audit of `smooth`, unit prior, epsilon = 1: loss, delta at epsilon, Renyi of orders 2 and 10; one thread")
    print(
        "  k     n  outputs    pairs    loss   processor      limit   wall clock  two threads double loop  ratio  timed"
    )
    for k, n, limit in sizes:
        start, start_cpu = time.perf_counter(), time.process_time()
        found = audit_counts("smooth", np.ones(k), n, EPSILON, DELTA, orders=ORDERS)
        seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
        start = time.perf_counter()
        threaded = audit_counts("smooth", np.ones(k), n, EPSILON, DELTA, orders=ORDERS, n_threads=2)
        two = time.perf_counter() - start
        assert threaded.epsilon == found.epsilon
        loss, slow, timed, n_pairs = straightforward(k, n, in_full=(k, n) == (2, 1000))
        assert loss <= found.epsilon + 1e-9
        mark = "" if limit is None else f"< {limit:g} s" + (" OVER" if cpu > limit else "")
        share = "in full" if timed == n_pairs else f"{timed:,} of {n_pairs:,} pairs"
        print(
            f"  {k} {n:5d} {found.n_outputs:8,} {found.n_pairs:8,}  {found.epsilon:.4f} {cpu:9.2f} s "
            f"{mark:>10} {seconds:10.2f} s {two:10.2f} s {slow:10,.1f} s {slow / cpu:6,.1f}  {share}",
            flush=True,
        )
    calibrate(Rule.SMOOTH, np.ones(3), 4, EPSILON)  # compiles
    compare_calibrations(3, 12 if SMALLEST else 100 if "--quick" in sys.argv[1:] else 300)


if __name__ == "__main__":
    main()
