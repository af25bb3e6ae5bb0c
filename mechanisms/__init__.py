"""Differentially private mechanisms for Bayesian inference, with their guarantees and exact output distributions.

* `counts`: releases of counts, and thereby of a Dirichlet posterior, based on the Hellinger distance or on noise.
* `inference`: inference on the parameter of an exponential family from a noisy sum of sufficient statistics.
* `renyi`: Rényi-private draws from tempered or diffused posteriors, and conversions between privacy definitions.
* `glm`: releases of one posterior draw of the weights of a binary regression.
* `regression`: inference on one coefficient of a linear regression from statistics computed on partitions of the rows.

The Dirichlet–multinomial model is in `conjugate`, the Hellinger distance in `hellinger`, divergences between two
output distributions in `divergences`, guarantees in `privacy`, additive noise in `noise`, exact audits in `audit`, and
lower bounds from draws in `sampled_audit`. `accounting` provides events for dp-accounting, and `ledger` computes the
total privacy loss of several releases. `samplers` wraps mechanisms as functions of raw records for sampling-based
testers. `exact_noise` draws the noise that is added to real data. `protocols` defines the methods of output
distributions and posteriors, and `metadata` the fields of registry entries.

All functions are pure and all value types are frozen dataclasses. `sample(rng, size)` draws with a generator, and
`from_uniforms` maps given uniform variates to draws. This package exports the registries and the functions for common
tasks; import everything else from its module.
"""

from importlib.metadata import version

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
from mechanisms.inference.choice import choose_method, infer
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.gibbs import sample_gibbs
from mechanisms.inference.marginal import marginal_posterior
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.inference.naive import conjugate_posterior
from mechanisms.inference.noisy_statistics import release_statistics
from mechanisms.inference.private_posterior import posterior_from_release, private_posterior
from mechanisms.inference.private_quantile import private_bounds
from mechanisms.inference.publish import publish_sums
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
    "conjugate_posterior",
    "count_sampler",
    "enumerate_candidates",
    "gaussian_mechanism",
    "geometric_counts",
    "glm_mechanism",
    "hellinger",
    "infer",
    "laplace_counts",
    "marginal_posterior",
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
    "publish_counts",
    "publish_sums",
    "release_statistics",
    "sample_gibbs",
    "sampled_bound",
    "statistics_sampler",
]
