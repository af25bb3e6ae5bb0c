"""Your own private draw for logistic regression: change `fit`, and run it on private-mcmc and renyi-logistic."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from mechanisms import Guarantee
from studies import OwnMethod


def fit(rng, X, y, epsilon, delta, precision):
    """Return one private draw of the weights, shape (d,); `precision` is that of the prior of each weight.

    Rows of X have norm at most 1, and y is 0 or 1. The draw must have the guarantee below. The example releases the
    posterior mode with noise: replacing one record moves the mode by at most 2/precision (Chaudhuri & Monteleoni 2008).
    Draw random numbers from `rng` only.
    """

    def loss(weights):
        predictor = X @ weights
        gradient = X.T @ (expit(predictor) - y) + precision * weights
        return np.sum(np.logaddexp(0, predictor) - y * predictor) + precision / 2 * weights @ weights, gradient

    d = X.shape[1]
    mode = minimize(loss, np.zeros(d), jac=True, method="L-BFGS-B").x
    direction = rng.normal(size=d)
    return mode + rng.gamma(d, 2 / (precision * epsilon)) * direction / np.linalg.norm(direction)


METHOD = OwnMethod(
    "template",
    "draw",
    fit,
    guarantee=lambda epsilon, delta: Guarantee(epsilon),  # return None where there is none, such as at delta = 0
    note="Posterior mode with noise.",
)
