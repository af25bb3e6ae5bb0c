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

from mechanisms.core.arguments import Floats, validate_integer
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.core.sums import weighted_sum
from mechanisms.inference.families import FAMILIES, Family
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.trials import per_trial, validate_statistics


def naive_statistics(model: ReleaseModel, noisy_statistics: ArrayLike, within: bool = True) -> Floats:
    """Clip every component of noisy statistics, shape (trials, d), to the range of the sum of n records.

    If y is a noisy sum of the records `within` public bounds, the range is [n·min(a, 0), n·max(b, 0)]. P4 does not
    specify its naive method for y outside the support of s, where the conjugate update may be improper. Statistics are
    not rounded, and the clipped components of a multinomial may have a sum other than n.
    """
    low, high = model.contribution_range() if within else model.entry.record_range
    return np.clip(validate_statistics("noisy_statistics", noisy_statistics), model.n * low, model.n * high)


@dataclass(frozen=True, eq=False)
class ConjugatePosterior(Posterior):
    """Conjugate posterior of θ in each of many trials; build it with `conjugate_posterior`."""

    family: str
    parameters: Floats = field(repr=False)  # hyperparameters in the order of the prior, shape (trials, h)

    def mean(self) -> Floats:
        """Return the posterior mean of θ, shape (trials,), or (trials, k) for the multinomial."""
        return self._model.marginal.mean(*self._parameters())

    def std(self) -> Floats:
        """Return the standard deviation of θ, with the shape of `mean`."""
        return self._model.marginal.std(*self._parameters())

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of θ in each trial, shape (trials, m), or (trials,) for a single probability in (0, 1).

        For the multinomial, these are quantiles of the Beta marginals, with a last axis of categories.
        """
        p = validate_probabilities(probabilities)
        first, second = (
            parameter.reshape(len(parameter), *(1,) * p.ndim, *parameter.shape[1:]) for parameter in self._parameters()
        )
        return self._model.marginal.quantile(first, second, p.reshape((*p.shape, *(1,) * (first.ndim - 1 - p.ndim))))

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of values ≤ θ in each trial: the PIT value if θ generated the trial.

        `theta` has shape (trials,) or (trials, m). For the multinomial it has a last axis of categories, and the values
        are those of the Beta marginals. The axis of trials may be omitted for one trial.
        """
        trials, cells = len(self.parameters), self.parameters.shape[1:] if self._model.is_vector else ()
        values = per_trial("theta", self._model.validate_parameters(theta), trials, cells)
        plain_axes = values.ndim - len(cells)
        first, second = (
            parameter.reshape(trials, *(1,) * (plain_axes - 1), *cells) for parameter in self._parameters()
        )
        return self._model.marginal.cdf(first, second, values)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent draws of θ, shape (trials, size), or (trials, size, k) for the multinomial."""
        size = validate_integer("size", size, advice="pass the number of draws per trial")
        draws = np.stack([self._model.draw_parameters(rng, row, size) for row in self.parameters])
        return draws if self._model.is_vector else draws[..., 0]

    @property
    def _model(self) -> Family:
        return FAMILIES[self.family]

    def _parameters(self) -> tuple[Floats, Floats]:
        """Return the two parameters of the distribution of θ, or of each of its components."""
        if self._model.is_vector:
            # Sum the other categories, because total - parameter cancels.
            others = 1.0 - np.eye(self.parameters.shape[1])
            return self.parameters, weighted_sum(self.parameters, others)
        return self.parameters[:, 0], self.parameters[:, 1]


def conjugate_posterior(model: ReleaseModel, prior: ArrayLike, statistics: ArrayLike) -> ConjugatePosterior:
    """Return the conjugate posterior of θ in each trial, given `statistics` as the exact sums of all n records.

    The statistics, shape (trials, d), or (trials,) or () if d = 1, are exact sums s, or noisy sums that
    `naive_statistics` has clipped. The posterior is post-processing of them, and has the same guarantee.
    """
    parameters = model.entry.posterior(prior, validate_statistics("statistics", statistics), model.n)
    if not np.all(parameters[:, model.entry.any_sign :] > 0):
        raise ValueError(f"statistics must be possible sums of {model.n} records, got others; use naive_statistics")
    return ConjugatePosterior(model.family, parameters)
