"""Time and memory of the mixture of product distributions, compared with streaming where enumeration is possible.

    python tests/benchmarks/bench_power_mixture.py [--smallest]

Every line is measured in a new process, because the peak memory of a process never decreases. These processes are
forks of one that has imported the libraries; the interpreter and the libraries use about 200 MB. Times are wall-clock
times on one core, without compilation. The last columns are the exact mean Hellinger distance and the mean over the
draws, whose standard error is too small if rare draws dominate the mean.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np
from measuring import SMALLEST, in_new_process, peak_megabytes, print_machine

from mechanisms import balanced_counts
from mechanisms.core.conjugate import count_candidates
from mechanisms.core.hellinger import hellinger
from mechanisms.counts.exponential import exponential_mechanism, smoothing_gamma
from mechanisms.counts.power_mixture import PowerMixture, power_mixture_mechanism
from mechanisms.counts.sensitivity import smooth_sensitivity

EPSILON, DELTA, DRAWS = 1.0, 1e-8, 10_000


class Case(NamedTuple):
    """Data set and inverse temperature ε/(2S); None selects ε = 1 and the smooth sensitivity S."""

    label: str
    prior: list[float]
    counts: list[int]
    inverse_temperature: float | None = None


class Figures(NamedTuple):
    """Measured times in seconds, and peak memory in MB, of one process."""

    inverse_temperature: float
    setup: float
    draws: float
    mean: float
    memory: float
    acceptance: float
    expected: float
    drawn: float


def balanced(n: int, k: int, inverse_temperature: float | None = None) -> Case:
    """Return a case with equal counts and a unit prior."""
    return Case(f"k={k}, n={n:,}", [1.0] * k, balanced_counts(n, k).tolist(), inverse_temperature)


def measure(case: Case, build: str) -> Figures:
    """Build a mechanism, draw from it, and compute its exact mean; return the measurements of this process."""
    make = {
        "mixture": lambda prior, counts, rate, scale: power_mixture_mechanism(prior, counts, rate / scale),
        "package": exponential_mechanism,
    }[build]
    rng = np.random.default_rng(20)
    for counts in ([3, 3], [3, 2, 1]):  # compiles
        warm = make(np.ones(len(counts)), np.array(counts), 0.5, 0.3)
        warm.from_uniforms(rng.random((10, 2)))
        warm.expected_hellinger()
    prior, counts = np.array(case.prior), np.array(case.counts)
    if case.inverse_temperature is None:
        gamma = smoothing_gamma(EPSILON, DELTA, count_candidates(int(counts.sum()), counts.size))
        sensitivity = smooth_sensitivity(prior, counts, gamma)
    else:
        sensitivity = EPSILON / (2 * case.inverse_temperature)
    uniforms = rng.random((DRAWS, 2))
    times = [time.perf_counter()]
    mechanism = make(prior, counts, EPSILON / 2, sensitivity)
    times.append(time.perf_counter())
    released = mechanism.from_uniforms(uniforms)
    times.append(time.perf_counter())
    expected = mechanism.expected_hellinger()
    times.append(time.perf_counter())
    memory = peak_megabytes()
    acceptance = 1.0
    if isinstance(mechanism, PowerMixture):
        acceptance = math.exp(mechanism._moments[0] - np.logaddexp.reduce(mechanism._log_weights))
    drawn = float(hellinger(prior + counts, prior + released).mean())
    return Figures(EPSILON / (2 * sensitivity), *np.diff(times).tolist(), memory, acceptance, expected, drawn)


def run(case: Case, build: str) -> Figures:
    return in_new_process(["mechanisms.counts.power_mixture"], measure, case, build)


def main() -> None:
    print_machine()
    print(f"Required sizes, by the public function: seconds, {DRAWS:,} draws")
    smallest = balanced(30, 3)
    cases = [balanced(10**7, 2)]
    for n, k in ((10**5, 3), (10**4, 4), (1000, 10)):
        cases += [balanced(n, k, inverse_temperature) for inverse_temperature in (None, 1e-3, 30.0, 100.0, 1e4)]
        rest = k - 1
        cases.append(Case(f"k={k}, n={n:,}, one cell full", [1.0] * k, [n] + [0] * rest, 20.0))
        cases.append(Case(f"k={k}, n={n:,}, prior 0.01, 100, 1", [0.01, 100.0] + [1.0] * (k - 2), [n // k] * k, 60.0))
    cases += [balanced(10**6, 3), balanced(10**5, 4), balanced(10**5, 10)]
    for case in [smallest] if SMALLEST else cases:
        f = run(case, "package")
        print(
            f"  {case.label:32} 1/T {f.inverse_temperature:9.4g}  setup {f.setup:6.3f}  draws {f.draws:6.3f}  "
            f"mean {f.mean:6.3f}  "
            f"peak {f.memory:4.0f} MB  acceptance {f.acceptance:.3f}  E[H] {f.expected:.5g}, {f.drawn:.5g} drawn",
            flush=True,
        )
    print("Streaming against the mixture, setup + draws + mean:")
    compared = [balanced(10**6, 2), balanced(9000, 3), balanced(600, 4), balanced(600, 4, 3.0), balanced(60, 6)]
    for case in [smallest] if SMALLEST else compared:
        slow, fast = run(case, "package"), run(case, "mixture")
        n_candidates = count_candidates(sum(case.counts), len(case.counts))
        streaming, mixture = sum(slow[1:4]), sum(fast[1:4])
        print(
            f"  {case.label:16} {n_candidates:11,} candidates  1/T {slow.inverse_temperature:7.4g}  "
            f"streaming {streaming:.3f} s  "
            f"mixture {mixture:.3f} s  ratio {streaming / mixture:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
