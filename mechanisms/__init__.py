"""Differentially private mechanisms for Bayesian inference, with their guarantees and exact output distributions.

* `counts`: releases of counts, and thereby of a Dirichlet posterior, based on the Hellinger distance or on noise.
* `inference`: inference on the parameter of an exponential family from a noisy sum of sufficient statistics.
* `renyi`: Rényi-private draws from tempered or diffused posteriors, and conversions between privacy definitions.
* `glm`: one posterior draw of the weights of a binary regression.
* `regression`: inference on one coefficient of a linear regression from statistics of partitions of the rows.

The Dirichlet–multinomial model is in `conjugate`, the Hellinger distance in `hellinger`, divergences between two
output distributions in `divergences`, guarantees in `privacy` and exact audits in `audit`. `accounting` provides
events for dp-accounting. `samplers` wraps mechanisms as functions of raw records for sampling-based testers.

All functions are pure and all value types are frozen dataclasses. Randomness is passed in as uniforms or a generator.
"""

from mechanisms.accounting import accounting_event, privacy_loss_distribution
from mechanisms.audit import Audit, OutputDistributions, Verdict, audit_distributions
from mechanisms.conjugate import balanced_counts, count_candidates, enumerate_candidates, posterior
from mechanisms.counts.audit import audit_counts, count_distributions
from mechanisms.counts.bound_calibration import BoundScale, bound_scale
from mechanisms.counts.calibration import Calibration, calibrate
from mechanisms.counts.exponential import ExponentialMechanism, exponential_mechanism
from mechanisms.counts.hamming import HammingMechanism, hamming_mechanism
from mechanisms.counts.hamming_loss import calibrate_hamming, hamming_loss
from mechanisms.counts.noise import NoisyCounts, geometric_counts, laplace_counts
from mechanisms.counts.optimal import OptimalCounts, OptimalDistribution, optimal_counts, optimal_distribution
from mechanisms.counts.power_mixture import PowerMixture, power_mixture_mechanism
from mechanisms.counts.registry import MECHANISMS, Mechanism, validate
from mechanisms.counts.release import CountRelease
from mechanisms.counts.scales import smoothing_gamma
from mechanisms.counts.sensitivity import (
    global_sensitivity,
    local_sensitivity,
    local_sensitivity_at_distance,
    smooth_sensitivity,
    varying_sensitivity,
)
from mechanisms.glm.audit import audit_replacements, critical_order, replacement_distributions
from mechanisms.glm.links import LINKS, Link
from mechanisms.glm.mechanisms import GLM_MECHANISMS, GlmMechanism, glm_mechanism
from mechanisms.glm.sampling import GlmDraws, LaplaceApproximation, laplace_approximation, sample_glm
from mechanisms.glm.worst_case import LimitingCase, candidate_records, limiting_case, shared_records
from mechanisms.hellinger import hellinger
from mechanisms.inference.binomial_mixture import BinomialMixture
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.family import Family
from mechanisms.inference.gibbs import sample_gibbs
from mechanisms.inference.marginal import MarginalPosterior, marginal_posterior
from mechanisms.inference.mmd import mmd2
from mechanisms.inference.naive import ConjugatePosterior, conjugate_posterior, naive_statistics
from mechanisms.inference.noisy_statistics import laplace_guarantee, laplace_scale, release_statistics
from mechanisms.inference.one_posterior_sample import OnePosteriorSampling, one_posterior_sampling, quantile_among
from mechanisms.inference.private_quantile import private_bounds
from mechanisms.inference.truncated_gibbs import RegionTable, sample_truncated_gibbs, tabulate_regions
from mechanisms.privacy import Guarantee, Neighbouring, RenyiGuarantee
from mechanisms.regression.audit import (
    adversarial_posteriors,
    centred_losses,
    probability_distributions,
    quantile_distributions,
    search_distributions,
    window_distributions,
)
from mechanisms.regression.coefficient_posterior import CoefficientPosterior
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, PartitionProbability
from mechanisms.regression.partition_quantile import QUANTILE_METHODS, PartitionQuantile
from mechanisms.regression.prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.simulation import simulate_statistics
from mechanisms.regression.sparse_vector import SparseVector
from mechanisms.regression.statistics import (
    RegressionStatistics,
    draw_partition,
    partition_sizes,
    partition_statistics,
)
from mechanisms.renyi.audit import audit_densities, audit_posteriors, audit_sampling
from mechanisms.renyi.conversions import (
    approximate_delta,
    approximate_epsilon,
    classical_epsilon,
    pure_epsilon_for,
    pure_renyi,
)
from mechanisms.renyi.divergence import dirichlet_renyi
from mechanisms.renyi.gaussian_counts import GAUSSIAN_MECHANISMS, GaussianCounts, gaussian_mechanism
from mechanisms.renyi.sampling import RENYI_SAMPLERS, RenyiSampling, calibrate_renyi, renyi_sampler
from mechanisms.samplers import count_sampler, statistics_sampler

__all__ = [
    "FAMILIES",
    "GAUSSIAN_MECHANISMS",
    "GLM_MECHANISMS",
    "LINKS",
    "MECHANISMS",
    "PROBABILITY_METHODS",
    "QUANTILE_METHODS",
    "RENYI_SAMPLERS",
    "Audit",
    "BinomialMixture",
    "BoundScale",
    "Calibration",
    "CoefficientPosterior",
    "ConjugatePosterior",
    "ConjugatePrior",
    "CountRelease",
    "ExponentialMechanism",
    "Family",
    "FlatPrior",
    "GaussianCounts",
    "GlmDraws",
    "GlmMechanism",
    "Guarantee",
    "HammingMechanism",
    "LaplaceApproximation",
    "LimitingCase",
    "Link",
    "MarginalPosterior",
    "Mechanism",
    "Neighbouring",
    "NoisyCounts",
    "OnePosteriorSampling",
    "OptimalCounts",
    "OptimalDistribution",
    "OutputDistributions",
    "PartitionProbability",
    "PartitionQuantile",
    "PowerMixture",
    "RegionTable",
    "RegressionStatistics",
    "RenyiGuarantee",
    "RenyiSampling",
    "SemiConjugatePrior",
    "SparseVector",
    "Verdict",
    "ZellnerPrior",
    "accounting_event",
    "adversarial_posteriors",
    "approximate_delta",
    "approximate_epsilon",
    "audit_counts",
    "audit_densities",
    "audit_distributions",
    "audit_posteriors",
    "audit_replacements",
    "audit_sampling",
    "balanced_counts",
    "bound_scale",
    "calibrate",
    "calibrate_hamming",
    "calibrate_renyi",
    "candidate_records",
    "centred_losses",
    "classical_epsilon",
    "conjugate_posterior",
    "count_candidates",
    "count_distributions",
    "count_sampler",
    "critical_order",
    "dirichlet_renyi",
    "draw_partition",
    "enumerate_candidates",
    "exponential_mechanism",
    "gaussian_mechanism",
    "geometric_counts",
    "glm_mechanism",
    "global_sensitivity",
    "hamming_loss",
    "hamming_mechanism",
    "hellinger",
    "laplace_approximation",
    "laplace_counts",
    "laplace_guarantee",
    "laplace_scale",
    "limiting_case",
    "local_sensitivity",
    "local_sensitivity_at_distance",
    "marginal_posterior",
    "mmd2",
    "naive_statistics",
    "one_posterior_sampling",
    "optimal_counts",
    "optimal_distribution",
    "partition_sizes",
    "partition_statistics",
    "posterior",
    "power_mixture_mechanism",
    "privacy_loss_distribution",
    "private_bounds",
    "probability_distributions",
    "pure_epsilon_for",
    "pure_renyi",
    "quantile_among",
    "quantile_distributions",
    "release_statistics",
    "renyi_sampler",
    "replacement_distributions",
    "sample_gibbs",
    "sample_glm",
    "sample_truncated_gibbs",
    "search_distributions",
    "shared_records",
    "simulate_statistics",
    "smooth_sensitivity",
    "smoothing_gamma",
    "statistics_sampler",
    "tabulate_regions",
    "validate",
    "varying_sensitivity",
    "window_distributions",
]
