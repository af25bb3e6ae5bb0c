"""Uncertainty of proportions: an interval for the probability of an event, and a standard error if none or all occur.

The posterior of a probability given x events in n trials and Jeffreys' prior is Beta(x + 1/2, n - x + 1/2). The
interval between its quantiles, with an end at 0 for none and at 1 for n events, has a coverage near the level on
average, but of .88 for probabilities near 2.5/n and of .90 near .1/n. Brown, Cai & DasGupta change its ends for 0, 1,
n - 1 and n events: the interval is [0, 1 - (α/2)^(1/n)] for none, which is exact, and begins at 0 for one event. Its
coverage at the level .95 is at least .917 for probabilities below 3.6/n, and at least .899 elsewhere. That of the
Wilson interval falls to .79 for n = 1 and to .84 near .18/n for large n, and that of two standard errors to 0.

References
----------
Brown, Cai & DasGupta, "Interval estimation for a binomial proportion", Statistical Science 2001, section 4.1.2.
"""

import numpy as np
from scipy.special import betaincinv

LEVEL = 0.95
"""Coverage of the intervals, on average over probabilities."""


def proportion_interval(n_events: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the interval for the probability of an event, given counts; NaN without trials."""
    n_events, n = np.broadcast_arrays(np.asarray(n_events, float), np.asarray(n, float))
    tail = (1 - LEVEL) / 2
    others = n - n_events
    low = betaincinv(n_events + 0.5, others + 0.5, tail)
    high = betaincinv(n_events + 0.5, others + 0.5, 1 - tail)
    # powers of NumPy arrays differ in the last bit from those of numbers
    low = np.select([others == 0, n_events <= 1], [betaincinv(n, 1.0, tail), 0.0], low)
    high = np.select([n_events == 0, others <= 1], [betaincinv(1.0, n, 1 - tail), 1.0], high)
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def constant_error(n: np.ndarray) -> np.ndarray:
    """Return the standard deviation of Beta(1/2, n + 1/2): the error of a proportion if none or all of n are events.

    Times the root of n + 2, it is the standard deviation of an event with the posterior mean as its probability.
    """
    n = np.asarray(n, float)
    return np.sqrt(0.5 * (n + 0.5) / (n + 2)) / (n + 1)
