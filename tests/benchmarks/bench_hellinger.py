"""Time of the smooth-sensitivity mechanism, compared with plain array operations, and time and memory at full size.

    python tests/benchmarks/bench_hellinger.py [--smallest]

The run at full size comes first, because the peak memory of a process never decreases. Ratios compare times on one
core in the same run, without compilation; the array operations must give the same numbers.
"""

from __future__ import annotations

import math
import time

import numpy as np
from measuring import SMALLEST, best_time, on_two_threads, peak_megabytes, print_machine
from scipy.special import gammaln

from mechanisms import MECHANISMS, CountRelease, balanced_counts, posterior
from mechanisms.core.conjugate import count_candidates
from mechanisms.core.hellinger import hellinger
from mechanisms.counts.exponential import smoothing_gamma
from mechanisms.counts.sensitivity import smooth_sensitivity

EPSILON, DELTA, DRAWS = 1.0, 1e-8, 10_000
N3, N4 = (30, 20) if SMALLEST else (300, 600)


def product(counts: np.ndarray, uniforms: np.ndarray) -> tuple[CountRelease, np.ndarray]:
    """Compute the sensitivity, build the mechanism and draw from it, with the public functions."""
    release = MECHANISMS["smooth"].build(np.ones(counts.size), counts, EPSILON, DELTA)
    return release, release.from_uniforms(uniforms)


def vectorised(counts: np.ndarray, uniforms: np.ndarray) -> tuple[float, np.ndarray, float, np.ndarray]:
    """Implement the mechanism of P0 for k = 3 and a unit prior by array operations over data sets."""
    n = int(counts.sum())
    first = np.repeat(np.arange(n + 1), np.arange(n + 1, 0, -1))
    second = np.concatenate([np.arange(n + 1 - i) for i in range(n + 1)])
    candidates = np.column_stack([first, second, n - first - second])

    def log_beta(x: np.ndarray) -> np.ndarray:
        return gammaln(x).sum(axis=-1) - gammaln(x.sum(axis=-1))

    def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        affinity = np.exp(log_beta((a + b) / 2) - (log_beta(a) + log_beta(b)) / 2)
        return np.sqrt(np.maximum(0.0, 1 - affinity))

    posteriors = 1.0 + candidates
    local = np.zeros(len(candidates))
    for i in range(3):
        for j in range(3):
            if i != j:
                occupied = candidates[:, i] > 0
                neighbours = posteriors[occupied].copy()
                neighbours[:, i] -= 1
                neighbours[:, j] += 1
                local[occupied] = np.maximum(local[occupied], distance(posteriors[occupied], neighbours))
    gamma = np.log(1 - EPSILON / (2 * np.log(DELTA / (2 * len(candidates)))))
    moves = np.abs(candidates - counts).sum(axis=1) / 2
    sensitivity = float((local * np.exp(-gamma * moves)).max())
    distances = distance(1.0 + counts, posteriors)
    distribution = np.exp(-EPSILON * distances / (2 * sensitivity))
    distribution /= distribution.sum()
    picked = np.minimum(np.searchsorted(np.cumsum(distribution), uniforms, side="right"), len(distribution) - 1)
    return sensitivity, distribution, float(distribution @ distances), candidates[picked]


def check_same_numbers(counts: np.ndarray, uniforms: np.ndarray, release: CountRelease) -> None:
    n, k = int(counts.sum()), counts.size
    gamma = smoothing_gamma(EPSILON, DELTA, count_candidates(n, k))
    sensitivity, distribution, mean, draws = vectorised(counts, uniforms)
    np.testing.assert_allclose(sensitivity, smooth_sensitivity(np.ones(k), counts, gamma), rtol=1e-8)
    # The array operations lose digits, because they subtract log gammas.
    np.testing.assert_allclose(distribution, release.pmf(), rtol=1e-5)
    np.testing.assert_allclose(mean, release.expected_hellinger(), rtol=1e-7)
    distances = hellinger(posterior(np.ones(k), counts), posterior(np.ones(k), np.asarray(draws)))
    assert abs(distances.mean() - mean) <= 5 * distances.std() / math.sqrt(len(distances))


def main() -> None:
    rng = np.random.default_rng(20)
    product(balanced_counts(20, 3), rng.random((10, 2)))  # compiles
    print_machine()

    counts, uniforms = balanced_counts(N4, 4), rng.random((DRAWS, 2))
    before = peak_megabytes()
    start = time.perf_counter()
    product(counts, uniforms)
    first = time.perf_counter() - start
    memory = peak_megabytes() - before
    one = min(first, best_time(lambda: product(counts, uniforms), 4))
    two = best_time(lambda: on_two_threads(lambda _: product(counts, uniforms), 2), 5)
    print(f"(b) k=4, n={N4}, {count_candidates(N4, 4):,} candidates: sensitivity + setup + {DRAWS:,} draws")
    print(f"    one core      {one:8.3f} s (first call {first:.3f} s), peak memory +{memory:.0f} MB")
    print(f"    two threads   {two:8.3f} s for two such jobs: speed-up {2 * one / two:.2f} of 2")

    abalone = np.array([1528, 1307, 1342])
    seconds = best_time(lambda: product(abalone, uniforms), 5)
    print(f"    abalone counts, k=3, {count_candidates(4177, 3):,} candidates: {seconds:.3f} s")

    counts = balanced_counts(N3, 3)
    fast = best_time(lambda: product(counts, uniforms), 20)
    release, _ = product(counts, uniforms)
    arrays = best_time(lambda: vectorised(counts, uniforms[:, 0]), 3)
    check_same_numbers(counts, uniforms[:, 0], release)
    print(f"(a) k=3, n={N3}, {count_candidates(N3, 3):,} candidates: sensitivity + setup + {DRAWS:,} draws")
    print(f"    product       {fast:8.4f} s")
    print(f"    numpy arrays  {arrays:8.4f} s: ratio {arrays / fast:,.0f}")


if __name__ == "__main__":
    main()
