"""Your own posterior given a noisy sum: change `fit`, and run it on the data of the studies of inference."""

import numpy as np
from scipy.special import betaln, gammaln

from studies import OwnMethod


def fit(rng, model, prior, y):
    """Return 1,000 independent draws of the parameter θ given the release y = sum of records + noise.

    `model` has the public facts: family, n, noise (name and scale), bounds, outside. `prior` has the hyperparameters,
    here those of Beta(a, b), and y has shape (1,). The example adds up over all counts s that the records may have.
    Draw random numbers from `rng` only. An exception fails its trial and no other one.
    """
    (a, b), n = prior, model.n
    s = np.arange(n + 1)
    log_weights = betaln(a + s, b + n - s) - gammaln(s + 1) - gammaln(n - s + 1) - abs(y[0] - s) / model.noise.scale
    weights = np.exp(log_weights - log_weights.max())
    drawn = rng.choice(s, 1000, p=weights / weights.sum())
    return rng.beta(a + drawn, b + n - drawn)


METHOD = OwnMethod(
    "template",
    "posterior",
    fit,
    supports=lambda cell: cell["family"] == "binomial" and cell.get("noise", "laplace") == "laplace",
    chains=False,  # True if draws are Markov chains: shape (chains, draws)
    note="Sum over all counts.",
)
# Instead of draws, `fit` may return an object with cdf(theta) and sample(rng, size). Vectors θ have draws (draws, p).
