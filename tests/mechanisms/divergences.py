"""Hockey-stick divergences of two distributions, of their compositions, and of the Gaussian mechanism."""

import math

import numpy as np
from scipy.special import log_ndtr


def hockey_stick(p, q, epsilon):
    return math.fsum(max(a - math.exp(epsilon) * b, 0.0) for a, b in zip(p, q, strict=True))


def compose(pairs):
    """Return the two output distributions of independent releases, given one pair of distributions per release."""
    p, q = np.ones(1), np.ones(1)
    for one, other in pairs:
        p, q = np.outer(p, one).ravel(), np.outer(q, other).ravel()
    return p, q


def gaussian_delta(mu, epsilon):
    """Return δ(ε) of μ-GDP by the closed form of Balle and Wang (2018)."""
    first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
    return np.exp(first) - np.exp(epsilon + second)
