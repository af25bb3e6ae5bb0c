"""Time of exact marginals of noisy tables, relative to a pass by `numpy.convolve`, and its growth with the table.

    python tests/benchmarks/bench_noisy_tables.py [--smallest]

Tables have a root, states, 40 counties per state and 25 leaves per county, all measured with discrete Gaussian noise.
The alternative computes the messages from below alone: it convolves windows of ten standard deviations around the
values of the leaves and multiplies by the likelihoods, without a bound of what it omits and without messages from
above, which take twice as many products.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy import stats

from mechanisms.core.noise import Noise
from mechanisms.tables import negative_binomial, table_posterior

STATES = (1, 2) if "--smallest" in sys.argv[1:] else (10, 100)
SIGMA, SHAPE, MEAN = 5.0, 0.5, 20.0


def simulate(states: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy values and parents of a table, whose nodes are in the order of their levels."""
    rng, sizes = np.random.default_rng(1), np.cumprod([1, states, 40, 25])
    first = np.cumsum(sizes) - sizes
    parents = [np.array([-1])]
    for above, size, start in zip(sizes[:-1], sizes[1:], first[:-1], strict=True):
        parents.append(start + np.arange(size) // (size // above))
    level = rng.negative_binomial(SHAPE, SHAPE / (SHAPE + MEAN), sizes[-1])
    counts = [level]
    for above in sizes[-2::-1]:
        level = level.reshape(above, -1).sum(axis=1)
        counts.insert(0, level)
    values = np.concatenate(counts)
    return values + np.rint(rng.normal(0.0, SIGMA, values.size)), np.concatenate(parents)


def means_by_convolution(values: np.ndarray, parents: np.ndarray) -> float:
    """Return the mean of the message of the root."""
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], 1):
        children[parent].append(node)
    messages: dict[int, tuple[int, np.ndarray]] = {}
    for node in range(len(parents) - 1, -1, -1):
        start, values_of = 0, np.ones(1)
        if children[node]:
            for child in children[node]:
                first, one = messages.pop(child)
                start, values_of = start + first, np.convolve(values_of, one)
        else:
            start = int(max(values[node] - 10.0 * SIGMA, 0.0))
            counts = np.arange(start, max(int(values[node] + 10.0 * SIGMA), start) + 1)
            values_of = stats.nbinom.pmf(counts, SHAPE, SHAPE / (SHAPE + MEAN))
        counts = start + np.arange(values_of.size)
        values_of = values_of * np.exp(-0.5 * ((counts - values[node]) / SIGMA) ** 2)
        values_of /= values_of.sum()
        kept = np.flatnonzero(values_of > 1e-19)
        messages[node] = start + int(kept[0]), values_of[kept[0] : kept[-1] + 1]
    start, values_of = messages[0]
    return float((start + np.arange(values_of.size)) @ values_of)


def main() -> None:
    prior, noise = negative_binomial(SHAPE, MEAN), Noise("discrete-gaussian", SIGMA)
    table_posterior(*(lambda y, p: (y, noise, p, prior))(*simulate(1)))  # compiles
    seconds = []
    for states in STATES:
        values, parents = simulate(states)
        start = time.process_time()
        posterior = table_posterior(values, noise, parents, prior)
        mean = posterior.mean()[0]
        seconds.append(time.process_time() - start)
        start = time.process_time()
        plain = means_by_convolution(values, parents)
        ratio = seconds[-1] / (time.process_time() - start)
        print(f"{parents.size:,} nodes: {seconds[-1]:.2f} s, {ratio:.2f} times the passes by numpy.convolve; error "
              f"{posterior.error:.1g}, total {mean:.2f} and {plain:.2f}")  # fmt: skip
    growth = np.log(seconds[1] / seconds[0]) / np.log(STATES[1] / STATES[0])
    print(f"growth exponent {growth:.2f}")


if __name__ == "__main__":
    main()
