"""Differentially private mechanisms for Bayesian inference, with their guarantees and exact output distributions.

* `counts`: releases of counts, and thereby of a Dirichlet posterior, based on the Hellinger distance or on noise.
* `inference`: inference on the parameter of an exponential family from a noisy sum of sufficient statistics.
* `renyi`: Rényi-private draws from tempered or diffused posteriors, and conversions between privacy definitions.
* `glm`: one posterior draw of the weights of a binary regression.
* `regression`: inference on one coefficient of a linear regression from statistics of partitions of the rows.

The Dirichlet–multinomial model is in `conjugate`, the Hellinger distance in `hellinger`, divergences between two
output distributions in `divergences`, guarantees in `privacy` and exact audits in `audit`. `accounting` provides
events for dp-accounting. `samplers` wraps mechanisms as functions of raw records for sampling-based testers.
`protocols` defines the methods of output distributions and posteriors, and `metadata` the fields of registry entries.

All functions are pure and all value types are frozen dataclasses. `sample(rng, size)` draws with a generator, and
`from_uniforms` maps given uniforms to draws. This package exports the registries and the functions for common tasks;
import everything else from its module.
"""

from mechanisms.accounting import accounting_event, privacy_loss_distribution
from mechanisms.audit import Audit, OutputDistributions, Verdict, audit_distributions
from mechanisms.conjugate import balanced_counts, enumerate_candidates, posterior
from mechanisms.counts.audit import audit_counts
from mechanisms.counts.noise import geometric_counts, laplace_counts
from mechanisms.counts.registry import MECHANISMS, Mechanism
from mechanisms.counts.release import CountRelease
from mechanisms.glm.audit import audit_replacements
from mechanisms.glm.links import LINKS
from mechanisms.glm.mechanisms import GLM_MECHANISMS, glm_mechanism
from mechanisms.hellinger import hellinger
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.gibbs import sample_gibbs
from mechanisms.inference.marginal import marginal_posterior
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.inference.naive import conjugate_posterior
from mechanisms.inference.noisy_statistics import release_statistics
from mechanisms.inference.private_quantile import private_bounds
from mechanisms.privacy import Guarantee, RenyiGuarantee
from mechanisms.protocols import OutputDistribution, Posterior
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, partition_probability
from mechanisms.regression.partition_quantile import QUANTILE_METHODS, partition_quantile
from mechanisms.renyi.conversions import approximate_epsilon
from mechanisms.renyi.gaussian_counts import GAUSSIAN_MECHANISMS, gaussian_mechanism
from mechanisms.renyi.sampling import RENYI_SAMPLERS, calibrate_renyi
from mechanisms.samplers import count_sampler, statistics_sampler

__all__ = [
    "FAMILIES",
    "GAUSSIAN_MECHANISMS",
    "GLM_MECHANISMS",
    "INFERENCE_METHODS",
    "LINKS",
    "MECHANISMS",
    "PROBABILITY_METHODS",
    "QUANTILE_METHODS",
    "RENYI_SAMPLERS",
    "Audit",
    "CountRelease",
    "Guarantee",
    "Mechanism",
    "OutputDistribution",
    "OutputDistributions",
    "Posterior",
    "RenyiGuarantee",
    "Verdict",
    "accounting_event",
    "approximate_epsilon",
    "audit_counts",
    "audit_distributions",
    "audit_replacements",
    "balanced_counts",
    "calibrate_renyi",
    "conjugate_posterior",
    "count_sampler",
    "enumerate_candidates",
    "gaussian_mechanism",
    "geometric_counts",
    "glm_mechanism",
    "hellinger",
    "laplace_counts",
    "marginal_posterior",
    "partition_probability",
    "partition_quantile",
    "posterior",
    "privacy_loss_distribution",
    "private_bounds",
    "release_statistics",
    "sample_gibbs",
    "statistics_sampler",
]
