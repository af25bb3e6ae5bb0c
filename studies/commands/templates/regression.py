"""Your own regression given a noisy Gram matrix: change `fit`, and run it on the study regression-inference."""

import numpy as np

from studies import OwnMethod


def fit(rng, release, box, prior):
    """Return 500 independent draws of intercept, slopes and error variance, shape (500, columns + 1).

    `release.noisy` is the Gram matrix of (1, x, y) of `release.n` records in the public `box`, plus `release.noise`.
    `prior` is the one from which the study draws moments. The example subtracts new noise, and draws coefficients
    around least squares. Draw random numbers from `rng` only.
    """
    n, p = release.n, box.p
    draws = np.empty((500, p + 1))
    for draw, noise in zip(draws, release.noise.sample(rng, 500), strict=True):
        gram = release.noisy - noise
        mean = gram[0, 1:] / n
        values, vectors = np.linalg.eigh(gram[1:, 1:] / n - np.outer(mean, mean))
        moments = (vectors * np.maximum(values, 1e-3 / n)) @ vectors.T  # a covariance matrix is positive definite
        slopes = np.linalg.solve(moments[:-1, :-1], moments[:-1, -1])
        variance = max(moments[-1, -1] - slopes @ moments[:-1, -1], 1e-9) * n / rng.chisquare(max(n - p, 1))
        slopes = rng.multivariate_normal(slopes, variance / n * np.linalg.inv(moments[:-1, :-1]))
        draw[1:-1], draw[-1] = slopes, variance
        draw[0] = mean[-1] - slopes @ mean[:-1] + np.sqrt(variance / n) * rng.normal()
    return draws


METHOD = OwnMethod(
    "template",
    "regression",
    fit,
    # noise hides the error variance if records are fewer or features more; cells of real tables have no n
    supports=lambda cell: cell["n_features"] <= 2 and cell.get("n", 10_000) * cell["epsilon"] >= 1_000,
    chains=False,  # True if draws are Markov chains: shape (chains, draws, columns + 1)
    records="exact",  # simulated records where methods have those of their own model: not clamped to the box
    note="Least squares with new noise.",
)
