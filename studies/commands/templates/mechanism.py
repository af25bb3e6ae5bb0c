"""Counts with noise of your own: change `log_pmf`, audit the mechanism, and compare it on simulated data."""

from dataclasses import replace

from mechanisms import Guarantee, noise_mechanism
from studies import STUDIES


def log_pmf(z, epsilon, k):
    """Return the log probability of the integer noise z on a count, up to a constant; z is an array.

    The example is two-sided geometric noise on the first k - 1 counts of k categories. If one of n records is replaced,
    one of these counts changes by 1 with two categories, and up to two with more. A parameter `delta` is passed as well
    if you add it; the guarantee is then called with (epsilon, delta).
    """
    return -abs(z) * epsilon / min(k - 1, 2)


MECHANISM = noise_mechanism(
    "template",
    log_pmf=log_pmf,
    guarantee=Guarantee,  # epsilon-DP is stated; the audit checks it over all data sets and outputs, and the draws
)
# If you cannot write down a distribution, give draws instead; the audit then bounds the loss from them:
# MECHANISM = Mechanism("template", sampler=draw, guarantee=lambda epsilon, delta: Guarantee(epsilon))
# where draw(rng, counts, epsilon, delta, size) returns integers of shape (size, k) with the sum of the counts.

PUBLISHED = STUDIES["hellinger-accuracy"]
STUDY = replace(
    PUBLISHED,
    title="Noise of my own among the mechanisms of hellinger-accuracy",
    panels=(PUBLISHED.panel("k2"),),  # the same simulated data with 2 categories
    claims=(),
).with_methods(MECHANISM)
