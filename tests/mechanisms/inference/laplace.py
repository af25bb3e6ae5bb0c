"""Sums of records, and the methods of P4, for Laplace noise, with examples of priors, records and bounds."""

import math

import numpy as np
from scipy import stats

from mechanisms.core.arguments import find_entry
from mechanisms.core.noise import Noise
from mechanisms.inference import gibbs, marginal, naive
from mechanisms.inference.families import MODELS
from mechanisms.inference.publish import validate_data
from mechanisms.inference.release_model import ReleaseModel

PRIORS = {
    "binomial": (2.0, 3.0),
    "multinomial": (1.0, 2.0, 3.0),
    "exponential": (8.0, 2.0),
    "poisson": (6.0, 2.0),
    "normal": (1.0, 2.0),
    "normal-unknown-variance": (0.5, 2.0, 5.0, 4.0),
}
RECORDS = {
    "binomial": [0, 1, 1, 0, 1, 1],
    "multinomial": np.eye(3)[[0, 1, 1, 2, 1, 1]],
    "exponential": [0.3, 0.1, 2.9, 1.13, 0.2, 0.7],
    "poisson": [0, 4, 20, 5, 2, 3],
    "normal": [-0.3, 0.1, 5.0, 1.7, 0.2, 0.3],
    "normal-unknown-variance": [-0.3, 0.1, 5.0, 1.7, 0.2, 0.3],
}
BOUNDS = {"exponential": (0.5, 3.0), "poisson": (2.0, 9.0), "normal": (-1.0, 2.0)}
"""Hyperparameters, records and bounds of each family; some records are outside the bounds."""

PRIOR_DISTRIBUTIONS = {  # of the first component of θ, given hyperparameters
    "binomial": lambda prior: stats.beta(*prior),
    "multinomial": lambda prior: stats.beta(prior[0], sum(prior[1:])),
    "exponential": lambda prior: stats.gamma(prior[0], scale=1 / prior[1]),
    "poisson": lambda prior: stats.gamma(prior[0], scale=1 / prior[1]),
    "normal": lambda prior: stats.norm(prior[0], math.sqrt(prior[1])),
}
OPTIONS = {"gibbs": {}, "gibbs-collapsed": {"jumps": True}, "gibbs-published": {"as_printed": True}}


def laplace_model(family, n, scale=1.0, bounds=None):
    return ReleaseModel(family, n, Noise("laplace", scale), bounds)


def statistic(family, records, bounds=None):
    """Return the sum of the records within the bounds."""
    data, n = validate_data(records, find_entry(MODELS, family))
    return laplace_model(family, n, bounds=bounds).statistic(data)


def draw_sums(family, rng, theta, n, bounds=None):
    """Return the sums of all records, and of those within the bounds."""
    return laplace_model(family, n, bounds=bounds).draw_sums(rng, theta)


def sample_gibbs(rng, family, prior, n, noisy_statistics, noise_scale, bounds=None, method="gibbs", **run):
    model = laplace_model(family, n, noise_scale, bounds)
    return gibbs.sample_gibbs(rng, model, prior, noisy_statistics, **OPTIONS[method], **run)


def marginal_posterior(family, prior, n, noisy_statistics, noise_scale, bounds=None):
    return marginal.marginal_posterior(laplace_model(family, n, noise_scale, bounds), prior, noisy_statistics)


def conjugate_posterior(family, prior, n, statistics):
    bounds = (0, 1) if find_entry(MODELS, family).is_truncated else None
    return naive.conjugate_posterior(laplace_model(family, n, bounds=bounds), prior, statistics)


def naive_statistics(family, noisy_statistics, n, bounds=None):
    """Clip to the range of the sum of the records within the bounds, or of all records without bounds."""
    needed = (0, 1) if bounds is None and find_entry(MODELS, family).is_truncated else bounds
    return naive.naive_statistics(laplace_model(family, n, bounds=needed), noisy_statistics, bounds is not None)
