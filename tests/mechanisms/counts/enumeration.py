"""All data sets of n records in k categories, with distances, neighbours and losses: the oracle of calibrations."""

import numpy as np
from scipy.special import gammaln

from mechanisms.core.conjugate import count_candidates, enumerate_candidates
from mechanisms.counts.sensitivity import Rule


def log_affinities(a, b):
    return gammaln((a + b) / 2) - (gammaln(a) + gammaln(b)) / 2


def count_rows(rows, vectors):
    """Return the number of occurrences of each of the vectors in rows, all of which must be one of them."""
    places = {vector: place for place, vector in enumerate(map(tuple, vectors.tolist()))}
    return np.bincount([places[row] for row in map(tuple, rows.tolist())], minlength=len(vectors))


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

    def scales(self, rule, gamma):
        """Return the scale of each data set by the definition of a rule."""
        if rule is Rule.GLOBAL:
            return np.full(len(self.datasets), self.local.max())
        if rule is Rule.SMOOTH:
            return (self.local * np.exp(-gamma * self.moves)).max(axis=1)
        return 1 / (1 / self.local + gamma * self.moves).min(axis=1)

    def loss(self, inverse_temperatures):
        """Return the largest loss of exponential mechanisms with one inverse temperature per data set."""
        log_pmf = -inverse_temperatures[:, None] * self.distances
        log_pmf -= np.log(np.exp(log_pmf).sum(axis=1, keepdims=True))
        return max(float((log_pmf[c] - log_pmf[d]).max()) for c, d in self.pairs)
