"""Differentially private mechanisms for Bayesian inference, with their guarantees and exact output distributions.

The names that this package exports, by task; ``help(mechanisms.NAME)`` describes one of them:

* Counts: the registry `MECHANISMS` of releases, `Mechanism`, `CountRelease`, `geometric_counts`, `laplace_counts`,
  `noise_mechanism`, `balanced_counts`, `enumerate_candidates`, `posterior`, `hellinger`; `publish_counts` for real
  data.
* Inference from noisy sums: `posterior_from_release`, and `private_posterior` for real records, with `ReleaseModel` and
  `ReleasePosterior`; `FAMILIES`, `INFERENCE_METHODS`, `choose_method`, `private_bounds`; `publish_sums` and
  `publish_bounds` for real data.
* Noise: `Noise`, `calibrated_noise`.
* One draw of a posterior: `RENYI_SAMPLERS`, `GAUSSIAN_MECHANISMS`, `gaussian_mechanism`, `calibrate_renyi`; for binary
  regression `GLM_MECHANISMS`, `glm_mechanism`, `GLM_CHAINS`, `private_chain`, `LINKS`; `private_logistic` for real
  data.
* Regression by partitions: `PROBABILITY_METHODS`, `partition_probability`, `QUANTILE_METHODS`, `partition_quantile`.
* Audits: `audit_counts`, `audit_sums`, `audit_replacements`, `audit_distributions`, `Audit`, `Verdict`,
  `OutputDistribution`, `OutputDistributions`, `Posterior`; from draws `sampled_bound`, `count_sampler`,
  `statistics_sampler`.
* Guarantees and accounting: `Guarantee`, `RenyiGuarantee`, `ConcentratedGuarantee`, `GaussianGuarantee`,
  `Neighbouring`, `Status`, `Ledger`, `PrivacyProfile`, `audited_profile`, `approximate_epsilon`, `accounting_event`,
  `privacy_loss_distribution`.

`mechanisms.tables` has posteriors of noisy tables, and `mechanisms.regression.private_regression` releases a linear
regression. Methods are in the packages `counts`, `inference`, `tables`, `renyi`, `glm` and `regression`. Other modules
are shared by them, such as `conjugate` (Dirichlet–multinomial model), `divergences`, `exact_noise` (noise of real
releases) and `protocols`.

All functions are pure and all value types are frozen dataclasses. `sample(rng, size)` draws with a generator, and
`from_uniforms` maps given uniform variates to draws.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from mechanisms.accounting import accounting_event, privacy_loss_distribution
from mechanisms.audit import Audit, Verdict, audit_distributions
from mechanisms.conjugate import balanced_counts, enumerate_candidates, posterior
from mechanisms.counts.audit import audit_counts
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.noise import geometric_counts, laplace_counts
from mechanisms.counts.noise_mechanism import noise_mechanism
from mechanisms.counts.publish import publish_counts
from mechanisms.counts.registry import MECHANISMS
from mechanisms.counts.release import CountRelease
from mechanisms.glm.audit import audit_replacements
from mechanisms.glm.chains import GLM_CHAINS, private_chain
from mechanisms.glm.links import LINKS
from mechanisms.glm.mechanisms import GLM_MECHANISMS, glm_mechanism
from mechanisms.glm.private_logistic import private_logistic
from mechanisms.hellinger import hellinger
from mechanisms.inference.audit import audit_sums
from mechanisms.inference.choice import choose_method
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.inference.private_posterior import posterior_from_release, private_posterior
from mechanisms.inference.private_quantile import private_bounds
from mechanisms.inference.publish import publish_sums
from mechanisms.inference.publish_bounds import publish_bounds
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior
from mechanisms.ledger import Ledger
from mechanisms.noise import Noise, calibrated_noise
from mechanisms.output_distributions import OutputDistributions
from mechanisms.privacy import ConcentratedGuarantee, GaussianGuarantee, Guarantee, Neighbouring, RenyiGuarantee, Status
from mechanisms.privacy_profile import PrivacyProfile, audited_profile
from mechanisms.protocols import OutputDistribution, Posterior
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, partition_probability
from mechanisms.regression.partition_quantile import partition_quantile
from mechanisms.regression.quantile_methods import QUANTILE_METHODS
from mechanisms.renyi.conversions import approximate_epsilon
from mechanisms.renyi.gaussian_counts import GAUSSIAN_MECHANISMS, gaussian_mechanism
from mechanisms.renyi.sampling import RENYI_SAMPLERS, calibrate_renyi
from mechanisms.sampled_audit import sampled_bound
from mechanisms.samplers import count_sampler, statistics_sampler

__version__ = version("dpstudies")
__all__ = [
    "FAMILIES",
    "GAUSSIAN_MECHANISMS",
    "GLM_CHAINS",
    "GLM_MECHANISMS",
    "INFERENCE_METHODS",
    "LINKS",
    "MECHANISMS",
    "PROBABILITY_METHODS",
    "QUANTILE_METHODS",
    "RENYI_SAMPLERS",
    "Audit",
    "ConcentratedGuarantee",
    "CountRelease",
    "GaussianGuarantee",
    "Guarantee",
    "Ledger",
    "Mechanism",
    "Neighbouring",
    "Noise",
    "OutputDistribution",
    "OutputDistributions",
    "Posterior",
    "PrivacyProfile",
    "ReleaseModel",
    "ReleasePosterior",
    "RenyiGuarantee",
    "Status",
    "Verdict",
    "accounting_event",
    "approximate_epsilon",
    "audit_counts",
    "audit_distributions",
    "audit_replacements",
    "audit_sums",
    "audited_profile",
    "balanced_counts",
    "calibrate_renyi",
    "calibrated_noise",
    "choose_method",
    "count_sampler",
    "enumerate_candidates",
    "gaussian_mechanism",
    "geometric_counts",
    "glm_mechanism",
    "hellinger",
    "laplace_counts",
    "noise_mechanism",
    "partition_probability",
    "partition_quantile",
    "posterior",
    "posterior_from_release",
    "privacy_loss_distribution",
    "private_bounds",
    "private_chain",
    "private_logistic",
    "private_posterior",
    "publish_bounds",
    "publish_counts",
    "publish_sums",
    "sampled_bound",
    "statistics_sampler",
]

if not TYPE_CHECKING:  # names outside of dir(): help(mechanisms) is a page, not the documentation of all names
    _EXPORTED = {name: globals().pop(name) for name in __all__}
    _SUCCESSORS = {
        "conjugate_posterior": 'INFERENCE_METHODS["naive"].fit',
        "infer": "posterior_from_release",
        "marginal_posterior": 'INFERENCE_METHODS["marginal"].fit',
        "release_statistics": "Noise.sample",
        "sample_gibbs": 'INFERENCE_METHODS["gibbs"].fit',
    }

    def __getattr__(name: str) -> Any:
        try:
            return _EXPORTED[name]
        except KeyError:
            successor = f"; use {_SUCCESSORS[name]}" if name in _SUCCESSORS else ""
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{successor}") from None
