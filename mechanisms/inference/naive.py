"""Conjugate posteriors that ignore the privacy noise: the non-private posterior and the naive methods.

==================  ==================================  ===========================================
method              statistic                           private
==================  ==================================  ===========================================
`non-private`       s, without noise                    no
`naive`             y = s + Lap(Δ/ε)                    ε-DP if records are bounded; **no** if not
`naive-truncated`   y = ŝ + Lap(Δ/ε), bounds [a, b]     ε-DP
==================  ==================================  ===========================================

The naive methods treat y as the exact statistic: they are consistent as n → ∞ and over-confident at finite n. For
unbounded records, P4 passes to `naive` the sum s of *all* records with noise Lap(b/ε), although this scale is
calibrated to the truncated sum ŝ. This release is not private. `naive-truncated` uses the private release of ŝ as if it
were the sum of all n records, because the number of dropped records is not public; a dropped record counts as 0.

References
----------
P4, section 4.
Foulds, Geumlek, Welling & Chaudhuri, "On the theory and practice of privacy-preserving Bayesian data analysis", UAI
2016, section 3: the naive method, with a projection.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.arguments import real_array, validate_integer
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.family import Family
from mechanisms.inference.records import Floats
from mechanisms.metadata import find_entry
from mechanisms.privacy_parameters import validate_size
from mechanisms.protocols import Posterior, validate_probabilities
from mechanisms.sums import weighted_sum


def naive_statistics(
    family: Family | str, noisy_statistics: ArrayLike, n: int, bounds: tuple[float, float] | None = None
) -> Floats:
    """Clip every component of noisy statistics to the range of the sum of n records.

    Without bounds, the range is [n·low, n·high] for records in [low, high]; with public bounds, y is a noisy sum of the
    records within them, and the range is [n·min(a, 0), n·max(b, 0)]. P4 does not specify its naive method for y outside
    the support of s, where the conjugate update may be improper. Statistics are not rounded, and the components of a
    multinomial are clipped separately, so that their sum may differ from n.
    """
    distribution, n = find_entry(FAMILIES, family, "family"), validate_size(n)
    y = _as_statistics("noisy_statistics", noisy_statistics)
    low, high = distribution.record_range
    checked = distribution.validate_bounds(bounds) if bounds is not None else None
    if checked is not None:  # a record outside the bounds contributes zero
        low, high = min(checked[0], 0.0), max(checked[1], 0.0)
    return np.clip(y, n * low, n * high)


@dataclass(frozen=True, eq=False)
class ConjugatePosterior(Posterior):
    """Conjugate posterior of θ in each of many trials; build it with `conjugate_posterior`."""

    family: str
    parameters: Floats = field(repr=False)  # hyperparameters in the order of the prior, shape (trials, h)

    def mean(self) -> Floats:
        """Return the posterior mean of θ, shape (trials,), or (trials, k) for the multinomial."""
        first, second = self._marginals()
        if self._model.marginal == "normal":
            return first
        return first / (first + second) if self._is_beta else first / second

    def std(self) -> Floats:
        """Return the standard deviation of θ, with the shape of `mean`."""
        first, second = self._marginals()
        if self._model.marginal == "normal":
            return np.sqrt(second)
        if self._is_beta:
            return np.sqrt(first * second / (first + second + 1.0)) / (first + second)
        return np.sqrt(first) / second

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of θ in each trial, shape (trials, m), or (trials,) for a single probability in (0, 1).

        For the multinomial, these are quantiles of the Beta marginals, with a last axis of categories.
        """
        p = validate_probabilities(probabilities)
        first, second = (each.reshape(len(each), *(1,) * p.ndim, *each.shape[1:]) for each in self._marginals())
        p = p.reshape((*p.shape, *(1,) * (first.ndim - 1 - p.ndim)))
        if self._is_beta:
            return special.betaincinv(first, second, p)
        if self._model.marginal == "normal":
            return first + np.sqrt(second) * special.ndtri(p)
        return special.gammaincinv(first, p) / second

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of values ≤ θ in each trial: the PIT value if θ generated the trial.

        `theta` has shape (trials,) or (trials, m). For the multinomial it has a last axis of categories, and the values
        are those of the Beta marginals. The axis of trials may be omitted for one trial.
        """
        values = FAMILIES[self.family].validate_parameters(theta)
        cells = self.parameters.shape[1:] if self._model.is_vector else ()
        trials = len(self.parameters)
        if values.ndim == len(cells) and trials == 1:
            values = values[None]
        plain_axes = values.ndim - len(cells)
        if plain_axes not in (1, 2) or len(values) != trials or values.shape[plain_axes:] != cells:
            shape = ", ".join(str(length) for length in (trials, *cells))
            raise ValueError(
                f"theta must have shape ({shape}), or this with one more axis after the first, got {values.shape}; "
                "pass one row per trial"
            )
        first, second = (marginal.reshape(trials, *(1,) * (plain_axes - 1), *cells) for marginal in self._marginals())
        if self._is_beta:
            return special.betainc(first, second, values)
        if self._model.marginal == "normal":
            return special.ndtr((values - first) / np.sqrt(second))
        return special.gammainc(first, second * values)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent draws of θ, shape (trials, size), or (trials, size, k) for the multinomial."""
        size = validate_integer("size", size, advice="pass the number of draws per trial")
        distribution = FAMILIES[self.family]
        draws = np.stack([distribution.draw_parameters(rng, row, size) for row in self.parameters])
        return draws if self._model.is_vector else draws[..., 0]

    @property
    def _model(self) -> Family:
        return FAMILIES[self.family]

    @property
    def _is_beta(self) -> bool:
        return self._model.marginal == "beta"

    def _marginals(self) -> tuple[Floats, Floats]:
        """Return the two parameters of the Beta, Gamma or Normal distribution of θ, or of each of its components."""
        if self._model.is_vector:
            # Sum the other categories, because total - parameter cancels.
            others = 1.0 - np.eye(self.parameters.shape[1])
            return self.parameters, weighted_sum(self.parameters, others)
        return self.parameters[:, 0], self.parameters[:, 1]


def conjugate_posterior(family: Family | str, prior: ArrayLike, n: int, statistics: ArrayLike) -> ConjugatePosterior:
    """Return the conjugate posterior of θ in each trial, given `statistics` as the exact sums of all `n` records.

    Parameters
    ----------
    family : Family or str
        An entry of `FAMILIES` or its key.
    prior : array_like, shape (h,)
        Hyperparameters: Beta(alpha, beta) for the binomial, Dir(alpha₁, …, alphaₖ) for the multinomial, Gamma(shape,
        rate) for exponential and Poisson, N(mean, variance) for normal.
    n : int
        Number of records, ≥ 1.
    statistics : array_like, shape (trials, d), or (trials,) or () if d = 1
        Exact sums s, or noisy sums that `naive_statistics` has clipped.

    Returns
    -------
    ConjugatePosterior

    Privacy
    -------
    The posterior has the guarantee of the release `statistics`, because it is post-processing: ε-DP for noisy sums of
    records that are bounded or truncated at bounds, and none for other sums.

    Raises
    ------
    ValueError
        If an argument is invalid, or a posterior is improper because noisy statistics were not clipped.

    Examples
    --------
    >>> posterior = conjugate_posterior("exponential", (8, 2), n=100, statistics=[25.0, 50.0])
    >>> posterior.mean().round(3), posterior.cdf([4.0, 2.0]).round(3)
    (array([4.   , 2.077]), array([0.513, 0.36 ]))
    >>> posterior.sample(np.random.default_rng(1), size=3).shape
    (2, 3)
    """
    distribution = find_entry(FAMILIES, family, "family")
    parameters = distribution.posterior(prior, _as_statistics("statistics", statistics), n)
    if not np.all(parameters[:, distribution.any_sign :] > 0):
        raise ValueError(
            f"statistics must be possible sums of {n} records, got a posterior with a parameter "
            "<= 0; clip noisy statistics with naive_statistics"
        )
    return ConjugatePosterior(distribution.name, parameters)


def _as_statistics(name: str, statistics: ArrayLike) -> Floats:
    values = real_array(name, statistics)
    if values.ndim < 2:
        values = values.reshape(-1, 1)
    if values.ndim != 2 or values.size == 0 or not np.all(np.isfinite(values)):
        raise ValueError(
            f"{name} must be finite, of shape (trials, d) or (trials,), got shape {values.shape}; "
            "pass one row per trial"
        )
    return values
