"""Private search for bounds of real records, with exact integer noise.

The real line is divided by 0 and ±2ʲ, j = −29, …, 50, into 160 bins, of which the outer ones are unbounded. Replacement
of one record changes the counts of at most two bins by one, so that counts with two-sided geometric noise of scale
s = 2/ε are ε-DP, and so is everything computed from them. The bounds are the outer ends of

1. all bins with noisy counts of at least t(0.001/160), where t(p) is the smallest integer that the noise reaches with a
   probability of at most p:

       Pr[Z ≥ t] = exp(−t/s)/(1 + exp(−1/s)) ≤ p;

2. consecutive bins next to them with noisy counts of at least t(0.05), so that smaller tails are not cut off.

Both ends come from one release. Two searches for quantiles, by the exponential mechanism (Smith 2011, algorithm 2) or
by AboveThreshold (Durfee 2023), have half of ε each.

References
----------
Wilson, Zhang, Lam, Desfontaines, Simmons-Marengo & Gipson, "Differentially private SQL with bounded user contribution",
PoPETs 2020, section 5.1.1 (ApproxBounds), has step 1. Durfee, "Unbounded differentially private quantile and maximum
estimation", NeurIPS 2023. Smith, "Privacy-preserving statistical estimation with optimal convergence rates", STOC 2011.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.exact_scales import laplace_scale_for
from mechanisms.core.noise import Noise
from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import validate_epsilon
from mechanisms.inference.families import MODELS
from mechanisms.inference.publish import validate_data
from mechanisms.release import Hook, LedgerLike, Rehearsal, check_release

EDGES: Floats = np.concatenate([-(2.0 ** np.arange(50, -30, -1)), [0.0], 2.0 ** np.arange(-29, 51)])
"""Finite ends of the bins and largest bounds, shape (161,)."""

_FALSE = 0.001  # largest probability that an empty bin is among those of step 1
_FALSE_NEIGHBOUR = 0.05  # largest probability that an empty bin is the next one of step 2
_ROWS = 5  # smallest number of records, in units of the threshold of step 1


def publish_bounds(
    data: ArrayLike,
    epsilon: float,
    rehearsal_seed: int | None = None,
    *,
    ledger: LedgerLike | None = None,
    before_release: Hook | None = None,
) -> tuple[float, float] | None:
    """Release bounds between which most of the records lie, zero or powers of two in size.

    Parameters
    ----------
    data : array_like, shape (n,)
        Private records, finite.
    epsilon : float
        Privacy loss in nats, at least about 120/n.
    rehearsal_seed : int, optional
        Seed of a rehearsal, which is reproducible and not private.
    ledger, before_release : optional
        Ledger of all releases from these records, or its path, in which this one is entered before the noise is drawn,
        and a function that is called in between; see `mechanisms.release.check_release`.

    Returns
    -------
    tuple of float or None
        Bounds lower < upper, within ±2⁵⁰; None if no bin has enough records. The privacy loss is spent in both cases.

    Raises
    ------
    ValueError
        If an argument is invalid, ε is too small for the number of records, or the ledger has less left.
    ModuleNotFoundError
        If OpenDP is not installed.

    Privacy
    -------
    ε-DP (proved) under replacement of one record, with public n, as the noise is drawn exactly and everything else is
    computed from noisy counts. A release within these bounds has a privacy loss of its own, and the losses add up. A
    rehearsal has no guarantee. An error about the values of `data` reveals that a record is invalid.

    Notes
    -----
    A bin next to the others is included with a probability of more than ½ if it has at least 4.6/ε records, and a
    separate bin if it has at least 23/ε. Inference treats the bounds as constants.

    Examples
    --------
    >>> incomes = np.random.default_rng(1).lognormal(10.4, 0.6, 1000)
    >>> publish_bounds(incomes, epsilon=0.5, rehearsal_seed=1)
    (8192.0, 131072.0)
    """
    guarantee = Guarantee(validate_epsilon(epsilon))
    release = check_release(guarantee, "publish_bounds", rehearsal_seed, ledger, before_release)
    records, n = validate_data(data, MODELS["normal"])
    scale = 2 / guarantee.epsilon
    needed = _ROWS * _threshold(scale, _FALSE / (EDGES.size - 1))
    if n < needed:
        rule = f"epsilon of the bounds must be at least about {epsilon * needed / n:.2g} for {n:,} records"
        raise ValueError(f"{rule}, got {epsilon:g}; increase it, or state public bounds")
    counts = count_bins(records)
    if isinstance(release, Rehearsal):
        rng = release.generator("publish_bounds")
        return choose_bounds(counts + Noise("geometric", scale).sample(rng, counts.shape), scale)
    noise = Noise("geometric", laplace_scale_for(2, epsilon))
    sampler = noise.exact_sampler(counts.size)
    return choose_bounds(counts + sampler(release.enter()), noise.scale)


def count_bins(records: Floats, edges: Floats = EDGES) -> Integers:
    """Return the numbers of records in [edges[i], edges[i+1]); the outer bins are unbounded."""
    return np.bincount(np.searchsorted(edges[1:-1], records, side="right"), minlength=edges.size - 1)


def choose_bounds(noisy: ArrayLike, scale: float, edges: Floats = EDGES) -> tuple[float, float] | None:
    """Return the bounds chosen from noisy counts of the bins, whose noise has a scale."""
    counts = np.asarray(noisy)
    occupied = np.flatnonzero(counts >= _threshold(scale, _FALSE / counts.size))
    if not occupied.size:
        return None
    first, last = occupied[0], occupied[-1]
    neighbour = _threshold(scale, _FALSE_NEIGHBOUR)
    while first > 0 and counts[first - 1] >= neighbour:
        first -= 1
    while last < counts.size - 1 and counts[last + 1] >= neighbour:
        last += 1
    return float(edges[first]), float(edges[last + 1])


def _threshold(scale: float, p: float) -> int:
    """Return t(p)."""
    return math.ceil(-scale * math.log(p * (1 + math.exp(-1 / scale))))
