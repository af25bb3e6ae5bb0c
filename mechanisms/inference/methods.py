"""Registry of inference methods, and the choice among them for a release: an exact posterior wherever affordable.

An entry holds the function that fits the method, whose module documents it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, find_entry
from mechanisms.core.metadata import Entry, Style, register
from mechanisms.core.protocols import Posterior
from mechanisms.inference.data_augmentation import sample_data_augmentation
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.exact_posterior import QuadraturePosterior, exact_posterior
from mechanisms.inference.families import MODELS, NORMAL
from mechanisms.inference.gibbs import sample_gibbs
from mechanisms.inference.gibbs_exact import sample_gibbs_exact
from mechanisms.inference.marginal import marginal_posterior, validate_marginal_prior
from mechanisms.inference.naive import conjugate_posterior, naive_statistics
from mechanisms.inference.one_posterior_sample import N_DRAWS, OnePosteriorSampling
from mechanisms.inference.release_model import ReleaseModel

_REHEARSED = (5_000, 20_000)  # numbers of draws per chain of rehearsals
_LONGER = 4  # ratio of the numbers of draws of chains that replace those that have not converged
_LONGEST, _MAX_DRAWN = 80_000, 10**9  # largest number of draws per chain, and of records that one chain draws, of these
_MAX_WIDTH = 20_000  # largest width of bounds of integer records
_MAX_COUNTS = 20_000_000  # largest number of values of a binomial count
_REACH, _MAX_CONVOLVED = 120, 50_000_000  # width of a window in scales of the noise; largest sum of all windows
_WIDEST = 10_000  # largest width of bounds in standard deviations of normal records, whose posterior takes up to 30 s
_MAX_RECORDS = 100_000  # largest number of records in data augmentation, which takes 2 ms per iteration


@dataclass(frozen=True, kw_only=True)
class InferenceMethod(Entry):
    """Inference method for the parameter of an exponential family.

    ``fit(rng, model, prior, y, **run)`` returns the posterior of θ given one release y of a `ReleaseModel`, shape (d,).
    `marginal` and the conjugate methods also take many releases, shape (trials, d). Methods without a private release
    take the exact statistic as y. Samplers return a `DrawnPosterior`, and take `n_chains`, `n_burn_in` and `n_draws`.

    If `is_approximate`, the method approximates the distribution of the statistic by a normal distribution. It then
    requires Laplace noise, drops records outside the bounds, and has a prior that is not restricted.
    """

    fit: Callable[..., Any] = field(repr=False)
    is_private: bool = True  # False if the method uses the records themselves
    is_approximate: bool = False
    is_sampler: bool = False
    draws_records: bool = False  # True if the time of an iteration is proportional to n
    # (name of a family, prior) -> hyperparameters; raises ValueError for an unsupported prior
    validate_prior: Callable[[str, ArrayLike], tuple[float, ...]] = field(
        default=lambda family, prior: find_entry(MODELS, family, "family").validate_prior(prior), repr=False
    )

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


INFERENCE_METHODS: dict[str, InferenceMethod] = register(
    __name__,
    InferenceMethod(
        "gibbs", "Gibbs sampler of P4 with joint draws of the regions and the full conditional of the sum.",
        fit=_sampler(sample_gibbs), is_sampler=True, is_approximate=True,
        origin="paper", paper="P4", variant="corrected", style=Style("blue", "o")),
    InferenceMethod(
        "gibbs-collapsed", "Gibbs sampler with a Metropolis move between modes.",
        fit=_sampler(sample_gibbs, jumps=True), is_sampler=True, is_approximate=True, style=Style("blue", "h")),
    InferenceMethod(
        "gibbs-published", "Algorithm 2 of P4 as printed.",
        fit=_sampler(sample_gibbs, as_printed=True), is_sampler=True, is_approximate=True,
        origin="paper", paper="P4", style=Style("blue", "p")),
    InferenceMethod(
        "marginal", "Posterior with the statistic integrated out, by a normal approximation of its distribution.",
        fit=lambda rng, model, prior, y, **run: marginal_posterior(model, prior, y),
        is_approximate=True, validate_prior=validate_marginal_prior, style=Style("purple", "D")),
    InferenceMethod(
        "exact", "Exact posterior: a sum over counts, or the inverse of a transform of the sum of bounded records.",
        fit=lambda rng, model, prior, y, **run: exact_posterior(model, prior, y), style=Style("purple", "d")),
    InferenceMethod(
        "gibbs-exact", "Gibbs sampler for noisy counts that draws integer counts.",
        fit=_sampler(sample_gibbs_exact), is_sampler=True, style=Style("green", "*")),
    InferenceMethod(
        "data-augmentation", "Metropolis-within-Gibbs draws of all records (Ju et al. 2022).",
        fit=_sampler(sample_data_augmentation), is_sampler=True, draws_records=True,
        origin="baseline", style=Style("sky", "P")),
    InferenceMethod(
        "naive", "Conjugate posterior that ignores the noise; with bounds, it also uses the records outside them.",
        fit=_naive(within=False), origin="baseline", paper="P4", style=Style("vermilion", "s")),
    InferenceMethod(
        "naive-truncated", "Conjugate posterior that treats the noisy truncated sum as the sum of all records.",
        fit=_naive(within=True), origin="baseline", style=Style("vermilion", "v")),
    InferenceMethod(
        "ops", "Draws of a tempered, truncated posterior, with a tempered prior (Foulds et al. 2016).",
        fit=_one_posterior_sample(tempers_prior=True), origin="baseline", paper="P4", style=Style("orange", "^")),
    InferenceMethod(
        "ops-likelihood", "Draws of a truncated posterior with a tempered likelihood only.",
        fit=_one_posterior_sample(tempers_prior=False), style=Style("orange", ">")),
    InferenceMethod(
        "non-private", "Not private: the posterior given the records.",
        fit=lambda rng, model, prior, y, **run: conjugate_posterior(model, prior, y),
        origin="reference", is_private=False, style=Style("grey", "X")),
)  # fmt: skip
"""Methods by name."""


@dataclass(frozen=True)
class Choice:
    """Inference method for a release, and the reason for its choice in one sentence."""

    method: str  # key of `INFERENCE_METHODS`
    reason: str

    @property
    def entry(self) -> InferenceMethod:
        """Entry of the method in `INFERENCE_METHODS`."""
        return INFERENCE_METHODS[self.method]


def choose_method(model: ReleaseModel, prior: ArrayLike) -> Choice:
    """Choose the inference method for a release from public quantities only.

    Exact posteriors are preferred, because they allow independent draws, then `gibbs-exact`, whose cost per iteration
    does not depend on n. Methods with a normal approximation are never chosen.

    Parameters
    ----------
    model : ReleaseModel
    prior : array_like, shape (h,)
        Hyperparameters: Beta(alpha, beta) for the binomial, Dir(alpha₁, …, alphaₖ) for the multinomial, Gamma(shape,
        rate) for exponential and Poisson, N(mean, variance) for normal, and one of two kinds for
        normal-unknown-variance, see `ReleaseModel`.

    Raises
    ------
    ValueError
        If the prior is invalid, or no exact method is affordable.

    Examples
    --------
    >>> from mechanisms.core.noise import Noise
    >>> choose_method(ReleaseModel("binomial", 1_000, Noise("laplace", 2.0)), (1, 1))
    Choice(method='exact', reason='a sum over 1,001 counts is affordable')
    """
    hyperparameters, n = model.validate_prior(prior), model.n
    if model.entry.is_vector:
        terms = len(hyperparameters) * min(n + 1, math.ceil(_REACH * model.noise.scale))
        if terms <= _MAX_CONVOLVED:
            return Choice("exact", "counts that add up to n have a posterior by convolutions")
        return Choice("gibbs-exact", f"convolutions of {terms:,} counts are not affordable, but draws of counts are")
    if model.bounds is None:
        if n + 1 <= _MAX_COUNTS:
            return Choice("exact", f"a sum over {n + 1:,} counts is affordable")
        return Choice("gibbs-exact", f"a sum over {n + 1:,} counts is not affordable, but draws of counts are")
    is_restricted = bool(np.all(np.isfinite(model.parameter_limits())))
    is_conjugate = model.entry.has_square and model.entry.is_conjugate(hyperparameters)
    if is_conjugate and hyperparameters[2] <= 0.5 and not is_restricted:
        rule = "prior must have shape > 0.5, as the mean has no expectation otherwise"
        raise ValueError(f"{rule}, got {hyperparameters[2]:g}; raise it, or pass a finite parameter_range")
    width = float(np.ptp(model.contribution_range()))
    if model.entry.code == NORMAL and width > _WIDEST * math.sqrt(model.variance):
        rule = f"bounds must be at most {_WIDEST:,} standard deviations of a record apart"
        raise ValueError(f"{rule}, got {width / math.sqrt(model.variance):,.0f}; check the units, or narrow the bounds")
    is_wide = model.entry.integer_records and width > _MAX_WIDTH
    if not (model.entry.has_square or is_wide):
        return Choice("exact", "the likelihood of a sum of bounded contributions is an inverse transform")
    if n <= _MAX_RECORDS:
        reason = f"the likelihood of the sums is not affordable, but draws of {n:,} records are"
        return Choice("data-augmentation", reason)
    rule = f"n must be at most {_MAX_RECORDS:,} for draws of records"
    raise ValueError(f"{rule}, got {n:,}; use narrower bounds or a known variance")


def fit_release(
    rng: np.random.Generator | None, model: ReleaseModel, prior: ArrayLike, y: Floats, choice: Choice, **run: int
) -> Posterior:
    """Return the posterior given one release by the chosen method; warn if it is inexact, or chains do not converge.

    Chains that have not converged are replaced by longer ones while these are affordable.
    """
    posterior = choice.entry.fit(rng, model, prior, y, **run)
    problem = _problem(posterior)
    while problem and choice.entry.is_sampler and isinstance(posterior, DrawnPosterior):
        n_draws = _LONGER * posterior.draws.shape[1]
        if n_draws > _LONGEST or (choice.entry.draws_records and n_draws * model.n > _MAX_DRAWN):
            break
        posterior = choice.entry.fit(rng, model, prior, y, **run | {"n_draws": n_draws})
        problem = _problem(posterior)
    if problem:
        warnings.warn(problem, RuntimeWarning, stacklevel=3)
    return posterior


def _problem(posterior: Posterior) -> str | None:
    """Return a sentence about a posterior that is inexact, or about chains that have not converged; None otherwise."""
    return posterior.problem() if isinstance(posterior, DrawnPosterior | QuadraturePosterior) else None


def rehearse(model: ReleaseModel, prior: ArrayLike, choice: Choice) -> int:
    """Return the number of draws with which chains converge given a public release, that of the median of the prior.

    For exact methods, which make no draws, it is 0; a ValueError is raised if the posterior takes too long.
    """
    rng = np.random.default_rng(1)
    drawn = model.draw_parameters(rng, prior, 1_001)
    theta = drawn.mean(axis=0) if model.entry.is_vector else np.median(drawn, axis=0)
    y = model.draw_sums(rng, theta[None])[1][0]
    if not choice.entry.is_sampler:
        choice.entry.fit(rng, model, prior, y)
        return 0
    for n_draws in _REHEARSED:
        posterior = choice.entry.fit(rng, model, prior, y, n_draws=n_draws)
        assert isinstance(posterior, DrawnPosterior)
        problem = posterior.problem()
        if not problem:
            return n_draws
    raise ValueError(f"{problem} (rehearsal on the median of the prior, before any noise is drawn)")
