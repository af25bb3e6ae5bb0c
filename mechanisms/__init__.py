"""Differentially private mechanisms for Bayesian inference, with their guarantees and exact output distributions.

* Counts: the registry `MECHANISMS` of releases, and `publish_counts` for real data.
* Inference from noisy sums and counts: `SumRelease`, `NoisyCounts`, or `posterior_from_release` for both in one call,
  and `private_posterior` for real records.
* One draw of a posterior: `calibrate_renyi`; for binary regression `glm_mechanism`, and `private_logistic` for real
  data.
* Linear regression: `private_regression` for real data; by partitions `partition_probability`.
* Audits: `audit_counts` and others from exact output distributions; `sampled_bound` from draws.
* Guarantees and accounting: `Guarantee`, `Ledger`, `PrivacyProfile`; `LedgerFile`, which counts releases of real data
  and enforces a budget.

``dir(mechanisms)`` lists all names that this package exports; ``help(mechanisms.NAME)`` describes one of them. They are
listed in ``__init__.pyi`` and imported on first access, since NumPy, SciPy and Numba take seconds to import.

`mechanisms.tables` has posteriors of noisy tables. Methods are in the packages `counts`, `inference`, `tables`, `draws`
and `regression`, and their audits in `audit`. `core` contains what they share, such as `conjugate`
(Dirichlet–multinomial model) and `protocols`, and `release` has exact noise and ledgers of real releases.

All functions are pure and all value types are frozen dataclasses. `sample(rng, size)` draws with a generator, and
`from_uniforms` maps given uniform variates to draws.
"""

import sys

from lazy_loader import attach_stub

_SUCCESSORS = {
    "conjugate_posterior": 'INFERENCE_METHODS["naive"].fit',
    "infer": "posterior_from_release",
    "marginal_posterior": 'INFERENCE_METHODS["marginal"].fit',
    "private_bounds": "publish_bounds",
    "release_statistics": "Noise.sample",
    "sample_gibbs": 'INFERENCE_METHODS["gibbs"].fit',
}
_import_name, __dir__, __all__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Return an exported name, which is imported on first access."""
    if name == "__version__":
        from importlib.metadata import version

        return version("dpstudies")
    if name not in __all__:
        successor = f"; use {_SUCCESSORS[name]}" if name in _SUCCESSORS else ""
        message = f"module {__name__!r} has no attribute {name!r}{successor}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    return _import_name(name)
