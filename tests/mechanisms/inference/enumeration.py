"""Posterior of the multinomial model by enumeration of all vectors of counts."""

import numpy as np
from scipy import special

from mechanisms.core.conjugate import enumerate_candidates
from mechanisms.core.noise import Noise
from mechanisms.inference.exact_posterior import exact_posterior
from mechanisms.inference.release_model import ReleaseModel


def enumerate_posterior(prior, n, log_likelihood):
    """Return all count vectors and their posterior weights, given `log_likelihood` of shape (k, n + 1)."""
    alpha, counts = np.array(prior), enumerate_candidates(n, len(prior))
    log_weights = (special.gammaln(alpha + counts) - special.gammaln(counts + 1)).sum(axis=1)
    log_weights += sum(np.asarray(log_likelihood)[j, counts[:, j]] for j in range(alpha.size))
    return counts, special.softmax(log_weights)


def marginal_cdf(prior, n, counts, weights, j, theta):
    """Return Pr[θⱼ ≤ theta | y] as a sum over the vectors of counts."""
    rest = sum(prior) - prior[j]
    return weights @ special.betainc(prior[j] + counts[:, j], rest + n - counts[:, j], theta)


def binomial_mixture(prior, n, y, scale):
    """Return the exact posterior of a binomial probability given a count with Laplace noise."""
    return exact_posterior(ReleaseModel("binomial", n, Noise("laplace", scale)), prior, y)
