"""Differentially private Bayesian inference: the mechanisms, each with its guarantee and its exact law.

The Dirichlet–multinomial model lives in `conjugate`, distances in `divergences`, how far one record moves them in
`sensitivity`. Counts are released by `exponential` (by `power_mixture` where the candidates are too many), `hamming`,
`noise` and `optimal`; `calibration` and `bound_calibration` find the largest exponents that are private, and
`count_release` lists them all. `audit` says what a mechanism spends. All are pure functions and frozen dataclasses;
randomness comes in as uniforms.
"""

from mechanisms.audit import Audit, OutputLaws, Verdict, audit_laws
from mechanisms.bound_calibration import BoundScale, bound_scale
from mechanisms.calibration import Certificate, calibrate
from mechanisms.conjugate import balanced_counts, count_candidates, enumerate_candidates, posterior
from mechanisms.count_audit import audit_counts, count_laws
from mechanisms.count_release import MECHANISMS, Mechanism, validate
from mechanisms.divergences import hellinger
from mechanisms.exponential import ExponentialMechanism, exponential_mechanism
from mechanisms.hamming import HammingMechanism, calibrate_hamming, hamming_loss, hamming_mechanism
from mechanisms.noise import NoisyCounts, geometric_counts, laplace_counts
from mechanisms.optimal import OptimalCounts, OptimalLaw, optimal_counts, optimal_law
from mechanisms.power_mixture import PowerMixture, power_mixture_mechanism
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
    "Audit",
    "BoundScale",
    "Certificate",
    "CountRelease",
    "ExponentialMechanism",
    "Guarantee",
    "HammingMechanism",
    "Mechanism",
    "Neighbouring",
    "NoisyCounts",
    "OptimalCounts",
    "OptimalLaw",
    "OutputLaws",
    "PowerMixture",
    "Verdict",
    "audit_counts",
    "audit_laws",
    "balanced_counts",
    "bound_scale",
    "calibrate",
    "calibrate_hamming",
    "count_candidates",
    "count_laws",
    "enumerate_candidates",
    "exponential_mechanism",
    "geometric_counts",
    "global_sensitivity",
    "hamming_loss",
    "hamming_mechanism",
    "hellinger",
    "laplace_counts",
    "local_sensitivity",
    "local_sensitivity_at_distance",
    "optimal_counts",
    "optimal_law",
    "posterior",
    "power_mixture_mechanism",
    "smooth_sensitivity",
    "smoothing_gamma",
    "validate",
    "varying_sensitivity",
]
