"""Time of MMD² for 5000 × 5000 draws, compared with the plain double sum, and throughput on two threads.

    python tests/benchmarks/bench_mmd.py [--smallest]

Times are the shortest wall-clock times of several runs, without compilation. "error" is the deviation from the double
sum in double precision; most of it is the rounding error of that sum.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from measuring import SMALLEST, best_time, on_two_threads, print_machine

from mechanisms.inference.mmd import mmd2

DRAWS, TRIALS = (200, 4) if SMALLEST else (5000, 200)
DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "Beta(410, 610)": lambda rng, size: rng.beta(410, 610, size),
    "uniform on [0, 1]": lambda rng, size: rng.random(size),
    "Gamma(8, rate 2)": lambda rng, size: rng.gamma(8, 0.5, size),
    "uniform on [0, 290]": lambda rng, size: 290 * rng.random(size),
    "uniform on [0, 1000]": lambda rng, size: 1000 * rng.random(size),
}


def double_sum(x: np.ndarray, y: np.ndarray) -> float:
    """Compute MMD² as a sum over all pairs, in blocks of rows whose kernel matrix fits in the cache."""

    def total(a: np.ndarray, b: np.ndarray) -> float:
        return sum(float(np.exp(-0.5 * (a[i : i + 25, None] - b) ** 2).sum()) for i in range(0, a.size, 25))

    m, n = x.size, y.size
    return (total(x, x) - m) / (m * (m - 1)) + (total(y, y) - n) / (n * (n - 1)) - 2 * total(x, y) / (m * n)


def main() -> None:
    print_machine()
    print(f"{DRAWS} x {DRAWS} draws")
    rng = np.random.default_rng(1)
    print(f"{'distribution':<22}{'mmd2 ms':>9}{'double sum ms':>15}{'ratio':>8}{'error':>10}")
    for distribution, draw in DISTRIBUTIONS.items():
        x, y = draw(rng, DRAWS), draw(rng, DRAWS)
        error = abs(float(mmd2(x, y)) - double_sum(x, y))
        fast, plain = best_time(lambda: mmd2(x, y), 20), best_time(lambda: double_sum(x, y), 2)  # noqa: B023
        print(f"{distribution:<22}{1e3 * fast:>9.2f}{1e3 * plain:>15.0f}{plain / fast:>8.0f}{error:>10.0e}")
    x, y = rng.beta(410, 610, (TRIALS, DRAWS)), rng.beta(400, 620, (TRIALS, DRAWS))
    halves = [(x[::2], y[::2]), (x[1::2], y[1::2])]
    one = best_time(lambda: mmd2(x, y), 3)
    two = best_time(lambda: on_two_threads(lambda k: mmd2(*halves[k]), 2), 3)
    print(f"{TRIALS} trials: {1e3 * one / TRIALS:.2f} ms per trial on one thread, {one / two:.2f} x on two")


if __name__ == "__main__":
    main()
