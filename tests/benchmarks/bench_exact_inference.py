"""Speed of exact samplers given noisy counts, compared with an implementation in NumPy.

    python tests/benchmarks/bench_exact_inference.py [--smallest]

Times are processor time without compilation. Compared runs are short and alternate, and the shortest of many times is
used, so that other load affects both alike. All samplers use the prior Beta(1, 1), Laplace noise at ε = 1 and the noisy
count 0.4 n. The R package dapper is not compared: it is on CRAN only, which was not available.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from arviz_stats.base import array_stats
from measuring import SMALLEST, best_seconds, print_machine

from mechanisms.core.noise import Noise
from mechanisms.inference.data_augmentation import sample_data_augmentation
from mechanisms.inference.gibbs_exact import sample_gibbs_exact
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.inference.laplace import sample_gibbs

ITERATIONS, TURNS = (200, 1) if SMALLEST else (5_000, 60)
SIZES = (10, 100) if SMALLEST else (10, 100, 1_000, 10_000)
PRIOR, NOISE = (1.0, 1.0), Noise("laplace", 1.0)


def numpy_augmentation(rng: np.random.Generator, n: int, y: float, n_draws: int, n_chains: int = 64) -> np.ndarray:
    """Run data augmentation for binary records with a loop over records and NumPy operations over chains."""
    theta, records, draws = np.full(n_chains, 0.5), np.zeros((n, n_chains), dtype=bool), np.empty((n_draws, n_chains))
    s = np.zeros(n_chains)
    for iteration in range(n_draws):
        for i in range(n):
            new = rng.random(n_chains) < theta
            moved = s + new - records[i]
            accepted = rng.random(n_chains) < np.exp((np.abs(y - s) - np.abs(y - moved)) / NOISE.scale)
            records[i] = np.where(accepted, new, records[i])
            s = np.where(accepted, moved, s)
        theta = draws[iteration] = rng.beta(PRIOR[0] + s, PRIOR[1] + n - s)
    return draws


def main() -> None:
    print_machine()
    rng = np.random.default_rng(20)
    for scale in (1.0, 10.0, 100.0):
        model = ReleaseModel("binomial", 10_000, Noise("laplace", scale))
        length = {"n_chains": 1, "n_burn_in": 0, "n_draws": ITERATIONS}
        calls = (
            lambda scale=scale, length=length: sample_gibbs(rng, "binomial", PRIOR, 10_000, [4e3], scale, **length),
            lambda model=model, length=length: sample_gibbs_exact(rng, model, PRIOR, [4e3], **length),
        )
        plain, exact = best_seconds(calls, TURNS, time.thread_time)
        print(
            f"n = 10,000, noise scale {scale:g}: gibbs {1e9 * plain / ITERATIONS:.0f} ns, gibbs-exact "
            f"{1e9 * exact / ITERATIONS:.0f} ns per iteration, ratio {exact / plain:.2f}"
        )

    for n in SIZES:
        model, y = ReleaseModel("binomial", n, NOISE), 0.4 * n
        found = {}
        for name, sample, iterations in (
            ("gibbs-exact", sample_gibbs_exact, ITERATIONS),
            ("data-augmentation", sample_data_augmentation, max(ITERATIONS * 100 // n, 100)),
        ):
            sample(rng, model, PRIOR, [y], n_chains=1, n_burn_in=0, n_draws=1)
            start = time.thread_time()
            draws = sample(rng, model, PRIOR, [y], n_chains=2, n_burn_in=100, n_draws=iterations)
            spent = time.thread_time() - start
            found[name] = float(array_stats.ess(draws, chain_axis=-2, draw_axis=-1, method="mean")) / spent
        listed = ", ".join(f"{name} {rate:,.0f}" for name, rate in found.items())
        print(f"n = {n:,}, effective draws per second: {listed}")

    n, n_draws = (20, 200) if SMALLEST else (1_000, 200)
    y, model = 0.4 * n, ReleaseModel("binomial", n, NOISE)
    short = {"n_chains": 1, "n_burn_in": 0, "n_draws": n_draws}
    runs = {
        "gibbs-exact": lambda: sample_gibbs_exact(rng, model, PRIOR, [y], **short),
        "data-augmentation": lambda: sample_data_augmentation(rng, model, PRIOR, [y], **short),
        "NumPy": lambda: numpy_augmentation(rng, n, y, n_draws // 10),
    }
    seconds = dict(zip(runs, best_seconds(list(runs.values()), min(TURNS, 8), time.thread_time), strict=True))
    vectorised = 10 * seconds["NumPy"] / 64  # per chain of n_draws iterations
    print(f"data augmentation, n = {n:,}: {1e9 * seconds['data-augmentation'] / (n * n_draws):.1f} ns per record")
    for name in ("gibbs-exact", "data-augmentation"):
        ratio = vectorised / seconds[name]
        print(f"{name}, n = {n:,}: {ratio:,.0f} times the iterations per second of NumPy over 64 chains")


if __name__ == "__main__":
    main()
