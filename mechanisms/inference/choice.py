"""Choice of the inference method for a release: an exact posterior wherever it is affordable."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arguments import Floats
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.exact_posterior import QuadraturePosterior
from mechanisms.inference.methods import INFERENCE_METHODS, InferenceMethod
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.protocols import Posterior

_LARGEST_ERROR = 1e-4  # relative error of exact posteriors that is reported
_LEAST_DIAGNOSED = 400  # number of draws per chain below which chains are not judged
_REHEARSED = (5_000, 20_000)  # numbers of draws per chain of rehearsals
_MAX_WIDTH = 20_000  # largest width of bounds of integer records
_MAX_COUNTS = 20_000_000  # largest number of values of a binomial count
_REACH, _MAX_CONVOLVED = 120, 50_000_000  # width of a window in scales of the noise; largest sum of all windows
_MAX_RECORDS = 100_000  # largest number of records in data augmentation, which takes 2 ms per iteration


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

    Exact sums over the statistic are preferred, because they allow independent draws. Among the samplers, `gibbs-exact`
    is preferred for counts, because its cost per iteration does not depend on n. Methods with a normal approximation
    are never chosen.

    Parameters
    ----------
    model : ReleaseModel
    prior : array_like, shape (h,)
        Hyperparameters: Beta(alpha, beta) for the binomial, Dir(alpha₁, …, alphaₖ) for the multinomial, Gamma(shape,
        rate) for exponential and Poisson, N(mean, variance) for normal, and mean, strength, shape, scale for
        normal-unknown-variance.

    Returns
    -------
    Choice

    Raises
    ------
    ValueError
        If the prior is invalid, or no exact method is affordable.

    Examples
    --------
    >>> from mechanisms.noise import Noise
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
    if model.entry.has_square and hyperparameters[2] <= 0.5 and not np.all(np.isfinite(model.parameter_limits())):
        raise ValueError(
            f"prior must have shape > 0.5, as the mean has no expectation otherwise, got {hyperparameters[2]:g}; raise "
            "the shape, or pass a finite parameter_range"
        )
    is_wide = model.entry.integer_records and np.ptp(model.contribution_range()) > _MAX_WIDTH
    if not (model.entry.has_square or is_wide):
        return Choice("exact", "the likelihood of a sum of bounded contributions is an inverse transform")
    if n <= _MAX_RECORDS:
        return Choice(
            "data-augmentation", f"the likelihood of the sums is not affordable, but draws of {n:,} records are"
        )
    raise ValueError(
        f"n must be at most {_MAX_RECORDS:,} for draws of records, got {n:,}; use narrower bounds or a known variance"
    )


def fit_release(
    rng: np.random.Generator | None,
    model: ReleaseModel,
    prior: ArrayLike,
    y: Floats,
    choice: Choice,
    n_chains: int = 4,
    n_draws: int = 5000,
) -> Posterior:
    """Return the posterior given one release by the chosen method; warn if it is inexact, or chains do not converge."""
    posterior = choice.entry.fit(rng, model, prior, y, n_chains=n_chains, n_draws=n_draws)
    problem = None
    if isinstance(posterior, DrawnPosterior) and n_draws >= _LEAST_DIAGNOSED:
        problem = posterior.problem()
    elif isinstance(posterior, QuadraturePosterior) and posterior.error > _LARGEST_ERROR:
        problem = (
            f"the exact posterior may have a relative error of {min(posterior.error, 1.0):.1g}, as the noise hardly "
            "explains y; check n, the bounds and the scale of the noise"
        )
    if problem:
        warnings.warn(problem, RuntimeWarning, stacklevel=3)
    return posterior


def rehearse(model: ReleaseModel, prior: ArrayLike, choice: Choice) -> int:
    """Return the number of draws with which chains converge given a public release, that of the median of the prior."""
    rng = np.random.default_rng(1)
    drawn = model.draw_parameters(rng, prior, 1_001)
    theta = drawn.mean(axis=0) if model.entry.is_vector else np.median(drawn, axis=0)
    y = model.draw_statistics(rng, theta[None])[0]
    for n_draws in _REHEARSED:
        posterior = choice.entry.fit(rng, model, prior, y, n_draws=n_draws)
        assert isinstance(posterior, DrawnPosterior)
        problem = posterior.problem()
        if not problem:
            return n_draws
    raise ValueError(f"{problem} (rehearsal on the median of the prior, before any noise is drawn)")
