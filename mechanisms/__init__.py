"""Differentially private Bayesian inference: the mechanisms, each with its guarantee and its exact law.

The Dirichlet–multinomial model lives in `conjugate`, distances in `divergences`, how far one record moves them in
`sensitivity`, the releases of counts in `exponential` and `noise`, and their registry in `count_release`. All are
pure functions and frozen dataclasses; randomness comes in as uniforms.
"""

from mechanisms.conjugate import balanced_counts, count_candidates, enumerate_candidates, posterior
from mechanisms.count_release import MECHANISMS, Mechanism, validate
from mechanisms.divergences import hellinger
from mechanisms.exponential import ExponentialMechanism, exponential_mechanism
from mechanisms.noise import LaplaceCounts, laplace_counts
from mechanisms.privacy import Guarantee, Neighbouring
from mechanisms.release import CountRelease
from mechanisms.sensitivity import (
    global_sensitivity,
    local_sensitivity,
    local_sensitivity_at_distance,
    smooth_sensitivity,
    smoothing_gamma,
    varying_sensitivity,
)

__all__ = [
    "MECHANISMS",
    "CountRelease",
    "ExponentialMechanism",
    "Guarantee",
    "LaplaceCounts",
    "Mechanism",
    "Neighbouring",
    "balanced_counts",
    "count_candidates",
    "enumerate_candidates",
    "exponential_mechanism",
    "global_sensitivity",
    "hellinger",
    "laplace_counts",
    "local_sensitivity",
    "local_sensitivity_at_distance",
    "posterior",
    "smooth_sensitivity",
    "smoothing_gamma",
    "validate",
    "varying_sensitivity",
]
