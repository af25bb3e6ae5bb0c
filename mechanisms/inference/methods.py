"""Registry of the inference methods that the calibration study compares.

Each method is documented in the module of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from mechanisms.inference.families import MODELS
from mechanisms.inference.marginal import validate_marginal_prior
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.metadata import Entry, Style, find_entry

__all__ = ["INFERENCE_METHODS", "InferenceMethod"]


def _validate_prior(family: str, prior: ArrayLike) -> tuple[float, ...]:
    return find_entry(MODELS, family, "family").validate_prior(prior)


@dataclass(frozen=True)
class InferenceMethod(Entry):
    """Inference method for the parameter of an exponential family.

    If `is_approximate`, the method approximates the distribution of the statistic by a normal distribution. It then
    requires Laplace noise, drops records outside the bounds, and has a prior that is not restricted.
    """

    is_private: bool = field(default=True, kw_only=True)  # False if the method uses the records themselves
    is_approximate: bool = field(default=False, kw_only=True)
    # each iteration draws all records, so that its time is proportional to n
    draws_records: bool = field(default=False, kw_only=True)
    validate_prior: Callable[[str, ArrayLike], tuple[float, ...]] = field(
        default=_validate_prior, kw_only=True, repr=False
    )  # (name of a family, prior) -> hyperparameters; raises ValueError for an unsupported prior

    def supports(self, model: ReleaseModel) -> bool:
        """Return True if the method supports the noise, the treatment of outside records and the range of θ."""
        plain = model.noise.name == "laplace" and model.outside == "drop" and model.parameter_range is None
        return plain or not self.is_approximate


INFERENCE_METHODS: dict[str, InferenceMethod] = {
    method.name: method
    for method in (
        InferenceMethod(
            "gibbs",
            "Gibbs sampler of P4 with joint draws of the regions and the full conditional of the sum.",
            origin="paper",
            paper="P4",
            variant="corrected",
            is_approximate=True,
            style=Style("blue", "o"),
        ),
        InferenceMethod(
            "gibbs-collapsed",
            "Gibbs sampler with a Metropolis move between modes.",
            is_approximate=True,
            style=Style("blue", "h"),
        ),
        InferenceMethod(
            "gibbs-published",
            "Algorithm 2 of P4 as printed.",
            is_approximate=True,
            origin="paper",
            paper="P4",
            style=Style("blue", "p"),
        ),
        InferenceMethod(
            "marginal",
            "Posterior with the statistic integrated out, by a normal approximation of its distribution.",
            is_approximate=True,
            validate_prior=validate_marginal_prior,
            style=Style("purple", "D"),
        ),
        InferenceMethod(
            "exact",
            "Exact posterior: a sum over counts, or the inverse of a transform of the sum of bounded records.",
            style=Style("purple", "d"),
        ),
        InferenceMethod(
            "gibbs-exact",
            "Gibbs sampler for noisy counts that draws integer counts.",
            style=Style("green", "*"),
        ),
        InferenceMethod(
            "data-augmentation",
            "Metropolis-within-Gibbs draws of all records (Ju et al. 2022).",
            origin="baseline",
            draws_records=True,
            style=Style("sky", "P"),
        ),
        InferenceMethod(
            "naive",
            "Conjugate posterior that ignores the noise; with bounds, it also uses the records outside them.",
            origin="baseline",
            paper="P4",
            style=Style("vermilion", "s"),
        ),
        InferenceMethod(
            "naive-truncated",
            "Conjugate posterior that treats the noisy truncated sum as the sum of all records.",
            origin="baseline",
            style=Style("vermilion", "v"),
        ),
        InferenceMethod(
            "ops",
            "Draws of a tempered, truncated posterior, with a tempered prior (Foulds et al. 2016).",
            origin="baseline",
            paper="P4",
            style=Style("orange", "^"),
        ),
        InferenceMethod(
            "ops-likelihood",
            "Draws of a truncated posterior with a tempered likelihood only.",
            style=Style("orange", ">"),
        ),
        InferenceMethod(
            "non-private",
            "Not private: the posterior given the records.",
            origin="reference",
            is_private=False,
            style=Style("grey", "X"),
        ),
    )
}
"""Methods by name."""
