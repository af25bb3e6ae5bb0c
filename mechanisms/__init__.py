"""Differentially private mechanisms for Bayesian inference, with their guarantees and exact output distributions.

The names that this package exports, by task; ``help(mechanisms.NAME)`` describes one of them:

* Counts: the registry `MECHANISMS` of releases, `Mechanism`, `CountRelease`, `geometric_counts`, `laplace_counts`,
  `noise_mechanism`, `balanced_counts`, `enumerate_candidates`, `posterior`, `hellinger`; `publish_counts` for real
  data.
* Inference from noisy sums: `posterior_from_release`, and `private_posterior` for real records, with `ReleaseModel` and
  `ReleasePosterior`; `FAMILIES`, `INFERENCE_METHODS`, `choose_method`; `publish_sums` and `publish_bounds` for real
  data.
* Noise: `Noise`, `calibrated_noise`.
* One draw of a posterior: `RENYI_SAMPLERS`, `GAUSSIAN_MECHANISMS`, `gaussian_mechanism`, `calibrate_renyi`; for binary
  regression `GLM_MECHANISMS`, `glm_mechanism`, `GLM_CHAINS`, `private_chain`, `LINKS`; `private_logistic` for real
  data.
* Linear regression: `private_regression` for real data; by partitions `PROBABILITY_METHODS`, `partition_probability`,
  `QUANTILE_METHODS`, `partition_quantile`.
* Audits: `audit_counts`, `audit_sums`, `audit_replacements`, `audit_distributions`, `Audit`, `Verdict`,
  `OutputDistribution`, `OutputDistributions`, `Posterior`; from draws `sampled_bound`, `count_sampler`,
  `statistics_sampler`.
* Guarantees and accounting: `Guarantee`, `RenyiGuarantee`, `ConcentratedGuarantee`, `GaussianGuarantee`,
  `Neighbouring`, `Status`, `Ledger`, `PrivacyProfile`, `audited_profile`, `approximate_epsilon`, `accounting_event`,
  `privacy_loss_distribution`; `LedgerFile`, a file that counts releases of real data and enforces a budget.

`mechanisms.tables` has posteriors of noisy tables. Methods are in the packages `counts`, `inference`, `tables`,
`renyi`, `glm` and `regression`. Other modules are shared by them, such as `conjugate` (Dirichlet–multinomial model),
`divergences`, `release` (exact noise and ledgers of real releases) and `protocols`.

All functions are pure and all value types are frozen dataclasses. `sample(rng, size)` draws with a generator, and
`from_uniforms` maps given uniform variates to draws.
"""

from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mechanisms.accounting import Ledger as Ledger
from mechanisms.accounting import accounting_event as accounting_event
from mechanisms.accounting import privacy_loss_distribution as privacy_loss_distribution
from mechanisms.audit import Audit as Audit
from mechanisms.audit import OutputDistributions as OutputDistributions
from mechanisms.audit import Verdict as Verdict
from mechanisms.audit import audit_distributions as audit_distributions
from mechanisms.conjugate import balanced_counts as balanced_counts
from mechanisms.conjugate import enumerate_candidates as enumerate_candidates
from mechanisms.conjugate import posterior as posterior
from mechanisms.counts.audit import audit_counts as audit_counts
from mechanisms.counts.mechanism import CountRelease as CountRelease
from mechanisms.counts.mechanism import Mechanism as Mechanism
from mechanisms.counts.noise import geometric_counts as geometric_counts
from mechanisms.counts.noise import laplace_counts as laplace_counts
from mechanisms.counts.noise_mechanism import noise_mechanism as noise_mechanism
from mechanisms.counts.publish import publish_counts as publish_counts
from mechanisms.counts.registry import MECHANISMS as MECHANISMS
from mechanisms.glm.audit import audit_replacements as audit_replacements
from mechanisms.glm.chains import GLM_CHAINS as GLM_CHAINS
from mechanisms.glm.chains import private_chain as private_chain
from mechanisms.glm.mechanisms import GLM_MECHANISMS as GLM_MECHANISMS
from mechanisms.glm.mechanisms import LINKS as LINKS
from mechanisms.glm.mechanisms import glm_mechanism as glm_mechanism
from mechanisms.glm.private_logistic import private_logistic as private_logistic
from mechanisms.hellinger import hellinger as hellinger
from mechanisms.inference.audit import audit_sums as audit_sums
from mechanisms.inference.families import FAMILIES as FAMILIES
from mechanisms.inference.methods import INFERENCE_METHODS as INFERENCE_METHODS
from mechanisms.inference.methods import choose_method as choose_method
from mechanisms.inference.private_posterior import posterior_from_release as posterior_from_release
from mechanisms.inference.private_posterior import private_posterior as private_posterior
from mechanisms.inference.publish import publish_sums as publish_sums
from mechanisms.inference.publish_bounds import publish_bounds as publish_bounds
from mechanisms.inference.release_model import ReleaseModel as ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior as ReleasePosterior
from mechanisms.noise import Noise as Noise
from mechanisms.noise import calibrated_noise as calibrated_noise
from mechanisms.privacy import ConcentratedGuarantee as ConcentratedGuarantee
from mechanisms.privacy import GaussianGuarantee as GaussianGuarantee
from mechanisms.privacy import Guarantee as Guarantee
from mechanisms.privacy import Neighbouring as Neighbouring
from mechanisms.privacy import RenyiGuarantee as RenyiGuarantee
from mechanisms.privacy import Status as Status
from mechanisms.privacy_profile import PrivacyProfile as PrivacyProfile
from mechanisms.privacy_profile import audited_profile as audited_profile
from mechanisms.protocols import OutputDistribution as OutputDistribution
from mechanisms.protocols import Posterior as Posterior
from mechanisms.regression.partition_probability import PROBABILITY_METHODS as PROBABILITY_METHODS
from mechanisms.regression.partition_probability import partition_probability as partition_probability
from mechanisms.regression.partition_quantile import QUANTILE_METHODS as QUANTILE_METHODS
from mechanisms.regression.partition_quantile import partition_quantile as partition_quantile
from mechanisms.regression.private_regression import private_regression as private_regression
from mechanisms.release.ledger import LedgerFile as LedgerFile
from mechanisms.renyi.conversions import approximate_epsilon as approximate_epsilon
from mechanisms.renyi.gaussian_counts import GAUSSIAN_MECHANISMS as GAUSSIAN_MECHANISMS
from mechanisms.renyi.gaussian_counts import gaussian_mechanism as gaussian_mechanism
from mechanisms.renyi.sampling import RENYI_SAMPLERS as RENYI_SAMPLERS
from mechanisms.renyi.sampling import calibrate_renyi as calibrate_renyi
from mechanisms.sampled_audit import count_sampler as count_sampler
from mechanisms.sampled_audit import sampled_bound as sampled_bound
from mechanisms.sampled_audit import statistics_sampler as statistics_sampler

__version__ = version("dpstudies")
if not TYPE_CHECKING:  # names outside of dir(): help(mechanisms) is a page, not the documentation of all names
    _OTHERS = ("Any", "ModuleType", "TYPE_CHECKING", "version")
    _NAMES = [name for name, value in globals().items() if not (name.startswith("_") or isinstance(value, ModuleType))]
    _EXPORTED = {name: globals().pop(name) for name in sorted(_NAMES) if name not in _OTHERS}
    _SUCCESSORS = {
        "conjugate_posterior": 'INFERENCE_METHODS["naive"].fit',
        "infer": "posterior_from_release",
        "marginal_posterior": 'INFERENCE_METHODS["marginal"].fit',
        "private_bounds": "publish_bounds",
        "release_statistics": "Noise.sample",
        "sample_gibbs": 'INFERENCE_METHODS["gibbs"].fit',
    }
    __all__ = list(_EXPORTED)

    def __getattr__(name: str) -> Any:
        try:
            return _EXPORTED[name]
        except KeyError:
            successor = f"; use {_SUCCESSORS[name]}" if name in _SUCCESSORS else ""
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{successor}") from None
