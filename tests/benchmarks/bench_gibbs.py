"""Time of the Gibbs samplers, compared with the time of their random draws alone, and speed-up on two threads.

    python tests/benchmarks/bench_gibbs.py [--smallest]

Runs of the sampler and of the draws alternate, and the shortest of many times is used, so that other load affects both.
Times are nanoseconds of processor time per iteration of one chain, without compilation. Two threads run independent
trials, each a call of the public function with its own generator, in wall-clock time; this needs two idle cores.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numba
import numpy as np
from measuring import SMALLEST, best_seconds, on_two_threads, print_machine

from tests.mechanisms.inference.laplace import sample_gibbs

ITERATIONS, TURNS, TRIALS = (200, 1, 2) if SMALLEST else (50_000, 30, 60)


@numba.njit(nogil=True)
def bare_binomial(rng, shape, out):
    """Draw the variates of one iteration: a beta variate (from two gammas), a normal and an inverse Gaussian one."""
    for i in range(out.size):
        first, second = rng.standard_gamma(shape), rng.standard_gamma(shape)
        out[i] = first / (first + second) + rng.standard_normal() + rng.standard_normal() + rng.random()


@numba.njit(nogil=True)
def bare_truncated(rng, shape, out):
    """Draw the variates of one iteration: one gamma, two normal variates and one inverse Gaussian variate."""
    for i in range(out.size):
        sums = rng.standard_normal() + rng.standard_normal()
        out[i] = rng.standard_gamma(shape) + sums + rng.standard_normal() + rng.random()


def report(title: str, bare: Callable[[], object], samplers: dict[str, Callable[[], object]]) -> None:
    """Print the time of each sampler, and its ratio to the time of drawing the variates alone."""
    bare_time, *times = (
        1e9 * seconds / ITERATIONS for seconds in best_seconds([bare, *samplers.values()], TURNS, time.thread_time)
    )
    print(f"{title}: bare draws {bare_time:.0f} ns")
    for name, nanoseconds in zip(samplers, times, strict=True):
        print(f"    {name:32s}{nanoseconds:6.0f} ns, ratio {nanoseconds / bare_time:.2f}")


def main() -> None:
    print_machine()
    rng, out = np.random.default_rng(20), np.empty(ITERATIONS)
    length = {"n_chains": 1, "n_burn_in": 0, "n_draws": ITERATIONS}

    binomial = {
        f"n={n}, noise scale {scale:g}": lambda n=n, scale=scale: sample_gibbs(
            rng, "binomial", (10, 10), n, [0.4 * n], scale, **length
        )
        for n in (10, 1000, 100_000)
        for scale in (10.0, 100.0)
    }
    report("binomial (at most 350 ns, ratio 2)", lambda: bare_binomial(rng, 500.0, out), binomial)
    multinomial = {
        f"k={k}{where}": lambda k=k, y=y: sample_gibbs(rng, "multinomial", (5,) * k, 1000, y, 20.0, **length)
        for k in (3, 20)
        for where, y in (("", [1000 / k] * k), (", y far outside the simplex", np.linspace(-9000, 9000, k)))
    }
    report("multinomial", lambda: bare_binomial(rng, 500.0, out), multinomial)

    cases = {
        "exponential": ((0.00633, 0.9222), (8, 2), 235.0, 9.222),
        "poisson": ((1, 9), (8, 2), 3900.0, 90.0),
        "normal": ((-2.0, 2.0), (0, 1), 300.0, 40.0),
    }
    for family, (bounds, prior, y, scale) in cases.items():
        methods = {
            method: lambda known=(family, prior, 1000, [y], scale, bounds, method): sample_gibbs(rng, *known, **length)
            for method in ("gibbs", "gibbs-collapsed", "gibbs-published")
        }
        report(f"{family} (at most 500 ns)", lambda: bare_truncated(rng, 1000.0, out), methods)

    bounds, prior, y, scale = cases["exponential"]
    trials = {
        "binomial": lambda i: sample_gibbs(np.random.default_rng(i), "binomial", (10, 10), 1000, [400.0], 10.0),
        "exponential": lambda i: sample_gibbs(np.random.default_rng(i), "exponential", prior, 1000, [y], scale, bounds),
    }
    for name, trial in trials.items():
        one, two = best_seconds(
            (lambda trial=trial: [trial(i) for i in range(TRIALS)], lambda trial=trial: on_two_threads(trial, TRIALS)),
            6,
        )
        title = f"two threads, {name}, {TRIALS} trials of 4 chains of 7000 iterations"
        print(f"{title}: {one / two:.2f} times one (at least 1.8)")


if __name__ == "__main__":
    main()
