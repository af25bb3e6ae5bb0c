"""Time of draws and of exact means of the K-norm mechanism.

    python tests/benchmarks/bench_k_norm.py [--smallest]

Times are the shortest of several repeats on one core, without compilation. A draw takes O(k) time for every ε; exact
means enumerate classes of lattice vectors.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from measuring import SMALLEST, best_time, print_machine

from mechanisms import balanced_counts
from mechanisms.counts.minimax_post_processing import minimax_post_processing
from mechanisms.counts.registry import MECHANISMS

DRAWS = 100 if SMALLEST else 10_000
REPEATS = 1 if SMALLEST else 15
CATEGORIES = (3, 10) if SMALLEST else (3, 10, 100)
MEANS = ((30, 3),) if SMALLEST else ((100, 3), (300, 3), (4_177, 3), (600, 4))


def best_milliseconds(call: Callable[[], object]) -> float:
    return 1e3 * best_time(call, REPEATS)


def main() -> None:
    print_machine()
    rng = np.random.default_rng(1)
    MECHANISMS["k-norm"].build(np.ones(3), [1, 1, 1], 1.0).sample(rng, 2)  # compiles
    print(f"{DRAWS:,} draws, in ms: tables, lattice vectors and projected counts from uniforms")
    for k in CATEGORIES:
        for epsilon in (1.0, 0.01):
            counts = balanced_counts(50 * k, k)
            distribution = MECHANISMS["k-norm"].build(np.ones(k), counts, epsilon)
            uniforms = rng.random((DRAWS, distribution.n_uniforms))
            tables = best_milliseconds(lambda k=k, c=counts, e=epsilon: MECHANISMS["k-norm"].build(np.ones(k), c, e))
            lattice = best_milliseconds(lambda d=distribution, u=uniforms: d.noise.vectors(d.counts, u[:, : -d.k]))
            projected = best_milliseconds(lambda d=distribution, u=uniforms: d.from_uniforms(u))
            print(f"    k={k:<4} epsilon={epsilon:<5g} {tables:7.2f} {lattice:7.2f} {projected:7.2f}")
    print("exact mean distance at balanced data, epsilon = 1")
    for n, k in MEANS:
        distribution = MECHANISMS["k-norm"].build(np.ones(k), balanced_counts(n, k), 1.0)
        mean = distribution.expected_hellinger()
        print(f"    k={k}, n={n}: {mean:.5f} in {best_milliseconds(distribution.expected_hellinger):.1f} ms")
    n = 5 if SMALLEST else 20
    start = time.perf_counter()
    table = minimax_post_processing(np.ones(3), n, 1.0)
    seconds = time.perf_counter() - start
    print(f"minimax post-processing, k=3, n={n}: worst case {table.worst_case:.4f} in {seconds:.2f} s")


if __name__ == "__main__":
    main()
