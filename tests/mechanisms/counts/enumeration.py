"""All data sets of n records in k categories, with distances, neighbours and losses: the oracle of calibrations."""

import numpy as np
from scipy.special import gammaln

from mechanisms.core.conjugate import count_candidates, enumerate_candidates


def log_affinities(a, b):
    return gammaln((a + b) / 2) - (gammaln(a) + gammaln(b)) / 2


def frequencies_of(draws, n, k):
    """Return the number of draws of each candidate, in the order of `enumerate_candidates`."""
    assert np.all(draws >= 0)
    np.testing.assert_array_equal(draws.sum(axis=1), n)
    weights = (n + 1) ** np.arange(k)[::-1]
    places = np.searchsorted(enumerate_candidates(n, k) @ weights, draws @ weights)
    return np.bincount(places, minlength=count_candidates(n, k))


class Enumerated:
    """Data sets with Hellinger distances of their posteriors, replaced records, neighbours and local sensitivities."""

    def __init__(self, prior, n):
        self.n, self.k = n, len(prior)
        self.datasets = enumerate_candidates(n, self.k)
        log_affinity = np.zeros((len(self.datasets),) * 2)  # the parameters of all posteriors have equal sums
        for category, alpha in enumerate(prior):
            a = alpha + np.arange(n + 1)
            table = log_affinities(a[:, None], a)
            np.fill_diagonal(table, 0.0)
            x = self.datasets[:, category]
            log_affinity += table[x[:, None], x]
        self.distances = np.sqrt(np.maximum(-np.expm1(log_affinity), 0))
        self.moves = np.abs(self.datasets[:, None] - self.datasets).sum(axis=-1) // 2
        self.pairs = np.argwhere(self.moves == 1)  # pairs in both directions
        self.local = np.where(self.moves == 1, self.distances, 0).max(axis=1)

    def loss(self, inverse_temperatures):
        """Return the largest loss of exponential mechanisms with one inverse temperature per data set."""
        log_pmf = -inverse_temperatures[:, None] * self.distances
        log_pmf -= np.log(np.exp(log_pmf).sum(axis=1, keepdims=True))
        return max(float((log_pmf[c] - log_pmf[d]).max()) for c, d in self.pairs)
