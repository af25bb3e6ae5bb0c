"""Checks of chains by means of batches, which take their autocorrelation into account."""

import numpy as np


def batch_means(draws, n_batches=50):
    """Return the means of batches of consecutive draws of each chain; `draws` has shape (n_chains, n_draws)."""
    return draws.reshape(draws.shape[0] * n_batches, -1).mean(axis=1)


def assert_cdf(draws, cdf, tolerance=0.0):
    """Assert that chains agree with `cdf` at nine points, within `tolerance` plus five standard errors."""
    for level in np.linspace(0.1, 0.9, 9):
        point = np.quantile(draws, level)
        below = batch_means(draws <= point)
        se = below.std(ddof=1) / np.sqrt(below.size)
        error = abs(below.mean() - cdf(point))
        assert error <= tolerance + 5 * se, f"{error:.4f} is not within {tolerance} + 5·{se:.2g} at {point}"
