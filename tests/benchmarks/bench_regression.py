"""Time of private regression: an iteration of the samplers, against a loop in NumPy and SciPy, and one pass.

    python tests/benchmarks/bench_regression.py [ROWS | --smallest]

The loop is a plain transcription of the Gibbs steps of Bernstein & Sheldon (2019) for any number of covariates, with
their libraries: entries of the fourth moments one by one, and draws by `scipy.stats`. A table of 10⁷ rows × 5 columns
is then read by two worker processes with one thread each, in alternating rounds with and without its Gram matrix.
"""

import functools
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import zarr
from bench_tables import TWO_WORKERS, compare_with_reading, count_rows, peak_memory
from measuring import SMALLEST
from scipy import stats

from mechanisms.regression import gram_kernels
from mechanisms.regression.gram_priors import ConjugatePrior
from mechanisms.regression.gram_release import NOISE_CODES, PublicBox, calibrated_gram_noise, release_gram
from mechanisms.regression.gram_samplers import GRAM_METHODS, simulate_gram
from pipeline.clusters.cluster import connect
from pipeline.tables.tables import open_table, reduce_rows
from studies.own_data.regression import _join, _reduce_block

CHUNK, N_CHUNKS, ROUNDS = (1_000, 4, 1) if SMALLEST else (500_000, 20, 3)
ITERATIONS = {"loop": 5, "kernel": 100} if SMALLEST else {"loop": 1_000, "kernel": 1_000_000}
PRIOR = ConjugatePrior()


def moments(n, mu, psi):
    """Return the mean and covariance of Σu and Σuuᵀ (upper triangle) of n normal records, entry by entry."""
    p = len(mu)
    index = [(j, None) if i is None else (i, j) for j in range(p) for i in (None, *range(j + 1))]
    second = psi + np.outer(mu, mu)
    mean = np.array([mu[i] if j is None else second[i, j] for i, j in index])
    covariance = np.empty((len(index), len(index)))
    for a, one in enumerate(index):
        for b, other in enumerate(index):
            factors = [k for k in (*one, *other) if k is not None]
            covariance[a, b] = raw_moment(factors, mu, psi) - mean[a] * mean[b]
    return n * mean, n * covariance


def raw_moment(factors, mu, psi):
    """Return E[Πu_k] of a normal distribution by Isserlis' recursion."""
    if not factors:
        return 1.0
    first, *rest = factors
    total = mu[first] * raw_moment(rest, mu, psi)
    for k, other in enumerate(rest):
        total += psi[first, other] * raw_moment(rest[:k] + rest[k + 1 :], mu, psi)
    return total


def update(rng, y, n, scale, mu, psi, variance):
    """Return (μ, Ψ, ω) after one iteration of the published Gibbs sampler."""
    p = len(mu)
    mean, covariance = moments(n, mu, psi)
    precision = np.linalg.inv(covariance)
    product = np.linalg.inv(precision + np.diag(1.0 / variance))
    centre = product @ (precision @ mean + y / variance)
    for _ in range(100):
        t = stats.multivariate_normal.rvs(centre, product, random_state=rng)
        gram, at = np.empty((p + 1, p + 1)), 0
        for j in range(1, p + 1):
            gram[: j + 1, j] = gram[j, : j + 1] = t[at : at + j + 1]
            at += j + 1
        average = gram[0, 1:] / n
        scatter = gram[1:, 1:] - n * np.outer(average, average)
        if (np.linalg.eigvalsh(scatter) > 0).all():
            kappa, nu, scale_0 = PRIOR.hyperparameters(p)
            matrix = scale_0 * np.eye(p) + scatter + kappa * n / (kappa + n) * np.outer(average, average)
            psi = stats.invwishart.rvs(nu + n, matrix, random_state=rng)
            mu = stats.multivariate_normal.rvs(n / (kappa + n) * average, psi / (kappa + n), random_state=rng)
            break
    inverse = stats.invgauss.rvs(scale / np.abs(y - t), scale=1.0 / scale**2, random_state=rng)
    return mu, psi, 1.0 / inverse


def compare_iterations() -> None:
    rng, n, p = np.random.default_rng(1), 100, 2
    mu, psi = PRIOR.sample(rng, p)
    release = release_gram(rng, simulate_gram(rng, mu, psi, n), calibrated_gram_noise("laplace", p, 1.0))
    y = np.concatenate([release.noisy[: j + 1, j] for j in range(1, p + 1)])
    scale = release.noise.scale
    first, second = np.array([0, 0, 1, 0, 1]), np.array([-1, 0, -1, 1, 1])
    mean, covariance = np.empty(5), np.empty((5, 5))
    gram_kernels._fill_moments(n, mu, psi, first, second, mean, covariance)
    assert np.allclose(mean, moments(n, mu, psi)[0])
    assert np.allclose(covariance, moments(n, mu, psi)[1])
    state = mu, psi, np.full(5, 2.0 * scale**2)
    start = time.perf_counter()
    for _ in range(ITERATIONS["loop"]):
        state = update(rng, y, n, scale, *state)
    loop = (time.perf_counter() - start) / ITERATIONS["loop"]
    times = {}
    known = gram_kernels.NoisyGram(NOISE_CODES["laplace"], scale, release.noisy, n)
    for name in ("noise-aware-published", "noise-aware", "normal-covariates"):
        method = GRAM_METHODS[name]
        for length in (1, ITERATIONS["kernel"]):  # the first call compiles
            start = time.perf_counter()
            method.run(rng, known, method.prior().hyperparameters(p), 0, length, np.empty((1, 2 * p)))
            times[name] = (time.perf_counter() - start) / length
    print(f"one iteration, one covariate: loop {1e3 * loop:.3f} ms")
    for name, seconds in times.items():
        print(f"    {name} {1e6 * seconds:.2f} µs: {loop / seconds:,.0f} times faster")


def compare_passes(n_rows: int) -> None:
    names = ("a", "b", "c", "d", "y")
    with tempfile.TemporaryDirectory() as folder:
        array = zarr.create_array(
            Path(folder) / "t.zarr",
            shape=(n_rows, 5),
            chunks=(CHUNK, 5),
            dtype="f8",
            attributes={"columns": list(names)},
        )
        for start in range(0, n_rows, CHUNK):
            array[start : start + CHUNK] = np.random.default_rng(start).standard_normal((CHUNK, 5))
        box = PublicBox(names, (-3.0,) * 5, (3.0,) * 5)
        with connect(TWO_WORKERS) as client:
            rows = open_table(f"{folder}/t.zarr", "y", names[:-1]).rows
            read = functools.partial(reduce_rows, [rows], count_rows, sum, client)
            reduce = functools.partial(
                reduce_rows, [rows], functools.partial(_reduce_block, box, (0,) * 5), _join, client
            )
            reduce()  # compiles and imports
            ratios, (sums, *_) = compare_with_reading(ROUNDS, read, n_rows, reduce, "reduce")
            assert sums[0][0] == n_rows
            peaks = [f"{peak} MB" for peak in client.run(peak_memory).values()]
    print(f"{n_rows:,} rows x 5 columns: {statistics.median(ratios):.2f} times the reading; workers {', '.join(peaks)}")


if __name__ == "__main__":
    compare_iterations()
    words = [word for word in sys.argv[1:] if word != "--smallest"]
    compare_passes(int(float(words[0])) // CHUNK * CHUNK if words else N_CHUNKS * CHUNK)
