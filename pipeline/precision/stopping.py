"""Rules of sequential stopping: minimum number of trials, required trials, confidence sequences.

A run until a precision estimates the standard error from the trials so far, so that it stops a little more often when
the error is underestimated. As the bound decreases, the coverage of the final interval tends to the nominal one (Chow &
Robbins 1965); a minimum number of trials limits the loss before that. The spread of skewed draws is correlated with
their mean, which gives the mean a bias of -G/√n standard errors, G being the skewness (Wald's identity), and the normal
interval is accurate for n much larger than G² only (Cochran's rule is n > 25 G²). Therefore the minimum is also
`SKEWED_TRIALS`·G², at which the bias is about a tenth of the standard error. For events, which are 0 or 1, this is a
number of events and of non-events, as in inverse binomial sampling, whose relative error is one over its root. The
study `fixed-width-stopping` measures coverage and bias.

References
----------
Cochran, "Sampling Techniques", 3rd ed., Wiley 1977, section 2.15. Mendo & Hernando, "A simple sequential stopping rule
for Monte Carlo simulation", IEEE Transactions on Communications 2006.
Chow & Robbins, "On the asymptotic theory of fixed-width sequential confidence intervals for the mean", Ann. Math.
Statist. 1965. Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, "Time-uniform central limit theory and asymptotic
confidence sequences", Ann. Statist. 2024, arXiv:2103.06476.
"""

import math

from pipeline.declare.panel import MAX_TRIALS

MIN_TRIALS = 100
"""Minimum number of trials of a cell and setting before its precision is assessed."""

SKEWED_TRIALS = 100
"""Ratio of the minimum number of trials to the squared skewness; about the minimum number of rare events."""

_GROWTH = 2  # maximum ratio of the numbers of trials of two successive rounds


def required_trials(n: int, ratio: float) -> int:
    """Return the number of trials at which a ratio of error to bound is 1, if the spread of the draws is unchanged."""
    # the product is at most rounding errors above an integer
    return min(math.ceil(n * min(ratio, 1e9) ** 2 * (1 - 1e-12)), MAX_TRIALS)


def next_trials(n: int, ratio: float) -> int:
    """Return the number of trials after the next round, at most twice `n`, or `n` if the ratio is at most 1."""
    if ratio <= 1:
        return n
    return max(n + 1, min(_GROWTH * n, required_trials(n, ratio)))


def confidence_sequence(n: int, level: float = 0.05) -> float:
    r"""Return the half-width, in standard errors, of an interval for a mean that holds at all sizes simultaneously.

    With :math:`m = n\rho^2`, the half-width is :math:`\sqrt{2 (m + 1) / m \cdot \log(\sqrt{m + 1} / \alpha)}`, the
    asymptotic confidence sequence of Waudby-Smith et al. (equation 9). It holds under every stopping rule, also one
    that depends on the mean, and applies to paired differences. A fixed-size interval has 1.96 standard errors. `level`
    is α, over all sizes. The interval is narrowest relative to others at `MIN_TRIALS` trials, which determines ρ.
    """
    twice = -2 * math.log(level)
    m = n * (twice + math.log(twice + 1)) / MIN_TRIALS
    return math.sqrt(2 * (m + 1) / m * math.log(math.sqrt(m + 1) / level))
