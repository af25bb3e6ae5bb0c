"""Registry of inference methods; each entry holds the function that fits it, and its module documents the method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arguments import Floats
from mechanisms.inference.data_augmentation import sample_data_augmentation
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.exact_posterior import exact_posterior
from mechanisms.inference.families import MODELS
from mechanisms.inference.gibbs import sample_gibbs
from mechanisms.inference.gibbs_exact import sample_gibbs_exact
from mechanisms.inference.marginal import marginal_posterior, validate_marginal_prior
from mechanisms.inference.naive import conjugate_posterior, naive_statistics
from mechanisms.inference.one_posterior_sample import N_DRAWS, OnePosteriorSampling
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.metadata import Entry, Style, find_entry
from mechanisms.protocols import Posterior


def _validate_prior(family: str, prior: ArrayLike) -> tuple[float, ...]:
    return find_entry(MODELS, family, "family").validate_prior(prior)


@dataclass(frozen=True)
class InferenceMethod(Entry):
    """Inference method for the parameter of an exponential family.

    ``fit(rng, model, prior, y, **run)`` returns the posterior of θ given one release y of a `ReleaseModel`, shape (d,).
    `marginal` and the conjugate methods also take many releases, shape (trials, d). Methods without a private release
    take the exact statistic as y. Samplers return a `DrawnPosterior`, and take `n_chains`, `n_burn_in` and `n_draws`.

    If `is_approximate`, the method approximates the distribution of the statistic by a normal distribution. It then
    requires Laplace noise, drops records outside the bounds, and has a prior that is not restricted.
    """

    fit: Callable[..., Any] = field(kw_only=True, repr=False)
    is_private: bool = field(default=True, kw_only=True)  # False if the method uses the records themselves
    is_approximate: bool = field(default=False, kw_only=True)
    is_sampler: bool = field(default=False, kw_only=True)
    # each iteration draws all records, so that its time is proportional to n
    draws_records: bool = field(default=False, kw_only=True)
    validate_prior: Callable[[str, ArrayLike], tuple[float, ...]] = field(
        default=_validate_prior, kw_only=True, repr=False
    )  # (name of a family, prior) -> hyperparameters; raises ValueError for an unsupported prior

    def supports(self, model: ReleaseModel) -> bool:
        """Return True if the method supports the noise, the outside records, the range of θ and the variance."""
        plain = model.noise.name == "laplace" and model.outside == "drop" and model.parameter_range is None
        return (plain and model.variance == 1.0) or not self.is_approximate


def _sampler(sample: Callable[..., Floats], **options: Any) -> Callable[..., Posterior]:
    return lambda rng, model, prior, y, **run: DrawnPosterior(sample(rng, model, prior, y, **options, **run))


def _naive(within: bool) -> Callable[..., Posterior]:
    return lambda rng, model, prior, y, **run: conjugate_posterior(model, prior, naive_statistics(model, y, within))


def _one_posterior_sample(tempers_prior: bool) -> Callable[..., Posterior]:
    def fit(rng: np.random.Generator, model: ReleaseModel, prior: ArrayLike, y: ArrayLike, **run: Any) -> Posterior:
        mechanism = OnePosteriorSampling(prior, model.n, model.sensitivity() / model.noise.scale, tempers_prior)
        return DrawnPosterior(mechanism.from_uniforms(rng.random((1, N_DRAWS)), np.ravel(y)[:1]))

    return fit


INFERENCE_METHODS: dict[str, InferenceMethod] = {
    method.name: method
    for method in (
        InferenceMethod(
            "gibbs",
            "Gibbs sampler of P4 with joint draws of the regions and the full conditional of the sum.",
            fit=_sampler(sample_gibbs),
            is_sampler=True,
            origin="paper",
            paper="P4",
            variant="corrected",
            is_approximate=True,
            style=Style("blue", "o"),
        ),
        InferenceMethod(
            "gibbs-collapsed",
            "Gibbs sampler with a Metropolis move between modes.",
            fit=_sampler(sample_gibbs, jumps=True),
            is_sampler=True,
            is_approximate=True,
            style=Style("blue", "h"),
        ),
        InferenceMethod(
            "gibbs-published",
            "Algorithm 2 of P4 as printed.",
            fit=_sampler(sample_gibbs, as_printed=True),
            is_sampler=True,
            is_approximate=True,
            origin="paper",
            paper="P4",
            style=Style("blue", "p"),
        ),
        InferenceMethod(
            "marginal",
            "Posterior with the statistic integrated out, by a normal approximation of its distribution.",
            fit=lambda rng, model, prior, y, **run: marginal_posterior(model, prior, y),
            is_approximate=True,
            validate_prior=validate_marginal_prior,
            style=Style("purple", "D"),
        ),
        InferenceMethod(
            "exact",
            "Exact posterior: a sum over counts, or the inverse of a transform of the sum of bounded records.",
            fit=lambda rng, model, prior, y, **run: exact_posterior(model, prior, y),
            style=Style("purple", "d"),
        ),
        InferenceMethod(
            "gibbs-exact",
            "Gibbs sampler for noisy counts that draws integer counts.",
            fit=_sampler(sample_gibbs_exact),
            is_sampler=True,
            style=Style("green", "*"),
        ),
        InferenceMethod(
            "data-augmentation",
            "Metropolis-within-Gibbs draws of all records (Ju et al. 2022).",
            fit=_sampler(sample_data_augmentation),
            is_sampler=True,
            origin="baseline",
            draws_records=True,
            style=Style("sky", "P"),
        ),
        InferenceMethod(
            "naive",
            "Conjugate posterior that ignores the noise; with bounds, it also uses the records outside them.",
            fit=_naive(within=False),
            origin="baseline",
            paper="P4",
            style=Style("vermilion", "s"),
        ),
        InferenceMethod(
            "naive-truncated",
            "Conjugate posterior that treats the noisy truncated sum as the sum of all records.",
            fit=_naive(within=True),
            origin="baseline",
            style=Style("vermilion", "v"),
        ),
        InferenceMethod(
            "ops",
            "Draws of a tempered, truncated posterior, with a tempered prior (Foulds et al. 2016).",
            fit=_one_posterior_sample(tempers_prior=True),
            origin="baseline",
            paper="P4",
            style=Style("orange", "^"),
        ),
        InferenceMethod(
            "ops-likelihood",
            "Draws of a truncated posterior with a tempered likelihood only.",
            fit=_one_posterior_sample(tempers_prior=False),
            style=Style("orange", ">"),
        ),
        InferenceMethod(
            "non-private",
            "Not private: the posterior given the records.",
            fit=lambda rng, model, prior, y, **run: conjugate_posterior(model, prior, y),
            origin="reference",
            is_private=False,
            style=Style("grey", "X"),
        ),
    )
}
"""Methods by name."""
