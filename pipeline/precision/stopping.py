"""Rules of sequential stopping: minimum number of trials, required trials, confidence sequences.

A run until a precision estimates the standard error from the trials so far, so that it stops a little more often when
the error is underestimated. As the bound decreases, the coverage of the final interval tends to the nominal one (Chow &
Robbins 1965); a minimum number of trials limits the loss before that. The study `fixed-width-stopping` measures it.

References
----------
Chow & Robbins, "On the asymptotic theory of fixed-width sequential confidence intervals for the mean", Ann. Math.
Statist. 1965. Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, "Time-uniform central limit theory and asymptotic
confidence sequences", Ann. Statist. 2024, arXiv:2103.06476.
"""

import math

from pipeline.declare.panel import MAX_TRIALS

MIN_TRIALS = 100
"""Minimum number of trials of a cell and setting before its precision is assessed."""

_GROWTH = 2  # maximum ratio of the numbers of trials of two successive rounds


def required_trials(n: int, error: float, bound: float) -> int:
    """Return the number of trials at which a standard error reaches a bound, if the spread of the draws is unchanged.

    Examples
    --------
    >>> required_trials(100, error=0.02, bound=0.01)
    400
    """
    ratio = min(error / bound, 1e9) if bound else 1e9
    return min(math.ceil(n * ratio**2 * (1 - 1e-12)), MAX_TRIALS)  # at most rounding errors above an integer


def next_trials(n: int, error: float, bound: float) -> int:
    """Return the number of trials after the next round: `n` if the bound is reached, and otherwise at most twice `n`.

    A first estimate of the standard error is uncertain. The limit lets later rounds correct it.

    Examples
    --------
    >>> next_trials(100, error=0.02, bound=0.01), next_trials(300, 0.011, 0.01), next_trials(400, 0.01, 0.01)
    (200, 363, 400)
    """
    if error <= bound:
        return n
    return max(n + 1, min(_GROWTH * n, required_trials(n, error, bound)))


def confidence_sequence(n: int, level: float = 0.05, n_tight: int = MIN_TRIALS) -> float:
    r"""Return the half-width, in standard errors, of an interval for a mean that holds at all sizes simultaneously.

    With :math:`m = n\rho^2`, the half-width is :math:`\sqrt{2 (m + 1) / m \cdot \log(\sqrt{m + 1} / \alpha)}`, the
    asymptotic confidence sequence of Waudby-Smith et al. (equation 9). It holds under every stopping rule, also one
    that depends on the mean, and applies to paired differences. A fixed-size interval has 1.96 standard errors.

    Parameters
    ----------
    n : int
        Number of trials, at least 1.
    level : float
        Error level α, in (0, 1), over all sizes.
    n_tight : int
        Number of trials at which the interval is narrowest relative to others; it determines ρ.

    Examples
    --------
    >>> [round(confidence_sequence(n), 2) for n in (100, 1_000, 10_000)]
    [3.04, 3.24, 3.56]
    """
    twice = -2 * math.log(level)
    m = n * (twice + math.log(twice + 1)) / n_tight
    return math.sqrt(2 * (m + 1) / m * math.log(math.sqrt(m + 1) / level))
