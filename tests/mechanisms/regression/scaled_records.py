"""Simulated records of the scaled box, their least squares, exact scatter, coverage of intervals, and the K-norm."""

from fractions import Fraction

import numpy as np


def records_of(rng, n=2_000, slopes=(0.5,), error_std=0.1):
    x = np.clip(rng.normal(0, 0.35, (n, len(slopes))), -1, 1)
    return np.column_stack([x, np.clip(0.1 + x @ slopes + error_std * rng.normal(size=n), -1, 1)])


def gram_from(u):
    z = np.column_stack([np.ones(len(u)), u])
    return z.T @ z


def exact_scatter(z):
    """Return Σ(z − z̄)(z − z̄)ᵀ in rational arithmetic, rounded once."""
    rows = [[Fraction(float(value)) for value in row] for row in z]
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    apart = [[value - mean for value, mean in zip(row, means, strict=True)] for row in rows]
    width = range(len(means))
    return np.array([[float(sum(row[i] * row[j] for row in apart)) for j in width] for i in width])


def least_squares(u):
    z = np.column_stack([np.ones(len(u)), u[:, :-1]])
    theta = np.linalg.solve(z.T @ z, z.T @ u[:, -1])
    return theta, ((u[:, -1] - z @ theta) ** 2).mean(), np.linalg.inv(z.T @ z)


def coverage(method, assumed, data_of, n_trials=150):
    """Return the coverage of 95 % intervals of (θ₀, θ, σ²) by the bootstrap of `assumed`; `data_of` is released."""
    rng, truth, hits = np.random.default_rng(2), np.array([0.1, 0.5, 0.04]), []
    for _ in range(n_trials):
        release = method.release(rng, data_of(records_of(rng, 10_000, error_std=0.2)))
        low, high = np.quantile(assumed.bootstrap(rng, release, 200), [0.025, 0.975], axis=0)
        hits.append((low < truth) & (truth < high))
    return np.mean(hits, axis=0)


def k_norm(matrices):
    """Return max(tr M₊, tr M₋) of symmetric matrices, shape (..., m, m)."""
    values = np.linalg.eigvalsh(matrices)
    return np.maximum(np.maximum(values, 0.0).sum(axis=-1), np.maximum(-values, 0.0).sum(axis=-1))
