"""Releases of real counts by exact draws that use the entropy of the operating system.

OpenDP draws integer noise exactly (`mechanisms.release`). Mechanisms that compute probabilities in double precision
have no exact sampler and are for simulation only.

The draws have the distributions of the registered mechanisms, except that scales are rounded up in the last place.
Noise with sum 0 is drawn by rejection; K-norm noise is two-sided geometric noise of scale 2/ε on all counts given that
its sum is 0, as d(v) = ½‖v‖₁ on the lattice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Integers, find_entry
from mechanisms.core.conjugate import validate_counts
from mechanisms.core.privacy import Guarantee, Neighbouring
from mechanisms.core.privacy_parameters import warn_large_delta
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.noise import clip_in_order
from mechanisms.counts.projection import project
from mechanisms.counts.registry import MECHANISMS
from mechanisms.release import Hook, LedgerLike, Rehearsal, check_release

# names of the mechanisms with an exact sampler
PUBLISHABLE = tuple(name for name, mechanism in MECHANISMS.items() if mechanism.exact_noise is not None)


@dataclass(frozen=True, eq=False)
class PublishedCounts:
    """Released counts; all attributes are public."""

    mechanism: str
    counts: Integers  # released counts ≥ 0 with sum n, shape (k,)
    # noisy counts before projection, for inference; None for `geometric`, which clips, and for a rehearsal
    vector: Integers | None
    guarantee: Guarantee | None = field(kw_only=True)  # None for a rehearsal
    rehearsal: bool = field(kw_only=True)  # the draws come from a seeded generator and are not private


def publish_counts(
    mechanism: Mechanism | str,
    counts: ArrayLike,
    epsilon: float,
    delta: float = 1e-8,
    rehearsal_seed: int | None = None,
    *,
    ledger: LedgerLike | None = None,
    before_release: Hook | None = None,
) -> PublishedCounts:
    """Release counts of real data.

    Parameters
    ----------
    mechanism : Mechanism or str
        One of `PUBLISHABLE`, or the entry of `MECHANISMS` with this name.
    counts : array_like, shape (k,)
        Private true counts: integers ≥ 0 with sum n ≥ 1. Error messages contain no counts.
    epsilon, delta : float
        Privacy parameters; only `discrete-gaussian` uses δ.
    rehearsal_seed : int, optional
        Seed of a rehearsal, whose draws are computed in double precision and are not private.
    ledger, before_release : optional
        Ledger of all releases from these records, or its path, in which this one is entered before the noise is drawn,
        and a function that is called in between; see `mechanisms.release.check_release`.

    Privacy
    -------
    The release has the guarantee of the mechanism under replacement of one record, with n public, because the draws are
    exact and use fresh entropy of the operating system. Every call is a separate release. A rehearsal has no guarantee.

    Raises
    ------
    ValueError
        If an argument is invalid, or the ledger has less left than the release spends, before any noise is drawn.
    ModuleNotFoundError
        If OpenDP is not installed.

    Examples
    --------
    >>> released = publish_counts("k-norm", [40, 25, 10], epsilon=1.0)
    >>> print(released.counts.sum(), released.guarantee, released.rehearsal)
    75 1-DP False
    """
    entry = find_entry(MECHANISMS, mechanism, "mechanism")
    if entry.exact_noise is None:
        raise ValueError(
            f"mechanism must have an exact sampler to release real data, one of {', '.join(PUBLISHABLE)}, got "
            f"{entry.name!r}; choose one of them"
        )
    guarantee = entry.guarantee(epsilon, delta)
    release = check_release(guarantee, "publish_counts", rehearsal_seed, ledger, before_release)
    c = validate_counts(counts)
    entry.validate(np.ones(c.size), c, epsilon, delta)
    n, k, vector = int(c.sum()), c.size, None
    if isinstance(guarantee, Guarantee):
        warn_large_delta(guarantee.delta, n if guarantee.relation is Neighbouring.REPLACE_ONE else None)
    if isinstance(release, Rehearsal):
        rng = release.generator("publish_counts")
        released = entry.build(np.ones(k), c, epsilon, delta).sample(rng, 1)[0]
        return PublishedCounts(entry.name, released, None, guarantee=None, rehearsal=True)
    sampler = entry.exact_noise(k, epsilon, delta)
    noise = release.enter()
    drawn = sampler(noise)
    if drawn.size < k:
        released = clip_in_order(c, drawn[None].astype(np.float64))[0]
    else:
        vector = c + drawn
        ties = np.array([noise.below(2**53) for _ in range(k)]) * 2.0**-53
        released = project(np.clip(vector, 0, n)[None], n, ties[None])[0]
    return PublishedCounts(entry.name, released, vector, guarantee=guarantee, rehearsal=False)
