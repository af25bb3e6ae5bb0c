"""Time per effective draw of the sampler for logistic regression and of slice sampling, on the MNIST digits 3 and 8.

Run with ``python tests/benchmarks/bench_glm.py [--smallest]``; it takes about two minutes. Both samplers draw 784
weights from the same posterior, given 7,988 records and a prior precision of 0.001 per record, in one process on one
core. The number of effective draws is the smallest bulk effective sample size of the log posterior and ten random
projections. Slice sampling starts at the mode, which favours it. Its chains are too short to converge, so that its
effective sample size is overestimated and the ratio is a lower bound.
"""

import math
import time

import numba
import numpy as np
from arviz_stats.base import array_stats
from measuring import SMALLEST
from threadpoolctl import threadpool_limits

from mechanisms.draws.glm_mechanisms import glm_mechanism
from mechanisms.draws.glm_sampling import laplace_approximation, sample_glm
from studies.data import load, split

N_CHAINS = 4
N_ROWS, STEPS = (100, (60, 4)) if SMALLEST else (None, (600, 12))


@numba.njit
def slice_sweep(rng, X, signs, precision, weights, margins, width):
    """Update each weight in turn, in place, by slice sampling with stepping out (Neal 2003), as P3 does."""
    n, d = X.shape
    for j in range(d):
        column = X[:, j] * signs
        here = -0.5 * precision * weights[j] ** 2
        for i in range(n):
            here -= math.log1p(math.exp(-margins[i]))
        level = here - rng.standard_exponential()
        low = -width * rng.random()
        high = low + width
        for side in range(2):
            for _ in range(50):
                at = low if side == 0 else high
                value = -0.5 * precision * (weights[j] + at) ** 2
                for i in range(n):
                    value -= math.log1p(math.exp(-(margins[i] + at * column[i])))
                if value <= level:
                    break
                if side == 0:
                    low -= width
                else:
                    high += width
        while True:
            at = low + (high - low) * rng.random()
            value = -0.5 * precision * (weights[j] + at) ** 2
            for i in range(n):
                value -= math.log1p(math.exp(-(margins[i] + at * column[i])))
            if value > level:
                break
            if at < 0:
                low = at
            else:
                high = at
        weights[j] += at
        margins += at * column


def effective(log_density, projections):
    """Return the smallest bulk effective sample size over `projections`, each of shape (chain, step)."""
    watched = np.concatenate([log_density[None], np.moveaxis(projections, -1, 0)])
    return float(np.min(array_stats.ess(watched, chain_axis=-2, draw_axis=-1, method="bulk")))


def log_posterior(X, signs, precision, weights):
    """Return the log posterior density for weights of shape (chains, d)."""
    margins = (weights @ X.T) * signs
    return -np.logaddexp(0, -margins).sum(axis=1) - 0.5 * precision * (weights**2).sum(axis=1)


def run_ours(X, y, target, directions, n_steps):
    """Run the sampler of `mechanisms.draws.glm_sampling`, including the search for the mode."""
    rng = np.random.default_rng(1)
    approximation = laplace_approximation(X, y, target)
    first = sample_glm(rng, X, y, target, approximation, 96, n_chains=N_CHAINS)
    draws = sample_glm(rng, X, y, target, approximation, n_steps, n_chains=N_CHAINS, start=first.weights[:, -1])
    return effective(draws.log_density, draws.weights @ directions)


def run_slice(X, y, target, directions, n_steps):
    rng = np.random.default_rng(3)
    signs, approximation = 2 * y - 1, laplace_approximation(X, y, target)
    width = 3 * float(np.median(np.diag(approximation.factor)))
    log_density, projections = np.empty((N_CHAINS, n_steps)), np.empty((N_CHAINS, n_steps, 10))
    for chain in range(N_CHAINS):
        weights = approximation.mean.copy()
        margins = (X @ weights) * signs
        for k in range(n_steps):
            slice_sweep(rng, X, signs, target.precision, weights, margins, width)
            log_density[chain, k] = log_posterior(X, signs, target.precision, weights[None])[0]
            projections[chain, k] = weights @ directions
    return effective(log_density, projections)


def main():
    """Print the time in seconds per effective draw of both samplers, and the ratio of these times."""
    data = split(load("mnist"))
    X, y = data.train_x[:N_ROWS], data.train_y[:N_ROWS].astype(float)
    target = glm_mechanism("true-posterior", len(y), 1e-3, 1, 1.0)
    directions = np.random.default_rng(0).standard_normal((X.shape[1], 10))
    small = X[:50].copy()
    slice_sweep(np.random.default_rng(0), small, 2 * y[:50] - 1, 1.0, np.zeros(784), np.zeros(50), 1.0)  # compile
    run_ours(small, y[:50], target, directions, 12)
    seconds = {}
    for name, run, n_steps in (("ours", run_ours, STEPS[0]), ("slice", run_slice, STEPS[1])):
        started = time.perf_counter()
        ess = run(X, y, target, directions, n_steps)
        spent = time.perf_counter() - started
        seconds[name] = spent / ess
        print(f"{name}: {N_CHAINS} x {n_steps:,} steps, {spent:.1f} s, ESS {ess:.1f}, {seconds[name]:.4f} s per draw")
    print(f"ours is {seconds['slice'] / seconds['ours']:,.0f} times faster than slice, at least")


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
