"""Posterior given one noisy sum of records of an exponential family.

If records of unknown variance are clamped, the posterior is that of the mean and the variance of a clamped record. They
are what the release measures: the share of the records that the normal distribution places outside the bounds is
an assumption, which is wrong for skewed records, and with it the mean before clamping.

The family for amounts such as incomes is normal-unknown-variance. Its default prior, for bounds with midpoint m and
half-width h, is weak at all scales of the records, as the bounds may be far too wide: the standard deviation σ of a
record is lognormal with median h/3 and 95 % between h/150 and 17·h, and the mean of a clamped record given σ is uniform
between the bounds. A conjugate prior would not do, since it states that the mean is a few σ from m.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import real_array, require_generator
from mechanisms.core.noise import require_replacement
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee, Neighbouring, validate_relation
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.methods import Choice, choose_method, fit_release
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior
from mechanisms.tables import Theta


@dataclass(frozen=True, eq=False)
class SumRelease:
    """Released noisy sum of the contributions of n records.

    Parameters
    ----------
    noisy_statistics : float, or array_like of shape (d,)
        Release, of any size and sign: k noisy counts for the multinomial, the noisy sums of the standardised records
        and of their squares if the variance is unknown, see `ReleaseModel`, otherwise the noisy sum.
    model : ReleaseModel
        Family, number of records, bounds and noise.
    relation : Neighbouring
        Neighbouring relation of the guarantee.

    Attributes
    ----------
    guarantee : Guarantee or ConcentratedGuarantee
        Guarantee of the release, by the scale of its noise.

    Raises
    ------
    ValueError
        If the release is not finite or does not have one value per statistic, if it is not an integer although the
        noise is, or if the relation does not suit the noise.

    See Also
    --------
    NoisyCounts : several values of the same counts, and counts of an unknown number of records.
    posterior_from_release : posterior in one call, given the privacy loss instead of the noise.

    Examples
    --------
    >>> from mechanisms import Noise, ReleaseModel, SumRelease
    >>> model = ReleaseModel("poisson", 100, Noise("geometric", 5.0), bounds=(0, 6), outside="clamp")
    >>> release = SumRelease(172, model)
    >>> print(release.guarantee, release.posterior((2, 1)).interval(0.9)[0].round(2))
    1.2-DP 1.49
    """

    noisy_statistics: ArrayLike
    model: ReleaseModel
    relation: Neighbouring = Neighbouring.REPLACE_ONE

    def __post_init__(self) -> None:
        if not isinstance(self.model, ReleaseModel):
            raise ValueError(f"model must be a ReleaseModel, got a {type(self.model).__name__}; pass one")
        require_replacement(self.model.noise, validate_relation(self.relation))
        statistics = real_array("noisy_statistics", self.noisy_statistics)
        # the release of a multinomial has any number of categories until its prior is known
        d = statistics.size if self.model.entry.is_vector else 1 + self.model.entry.has_square
        release = self.model.validate_noisy_statistics(statistics, d)
        release.flags.writeable = False
        object.__setattr__(self, "noisy_statistics", release)

    @property
    def guarantee(self) -> Guarantee | ConcentratedGuarantee:
        """Guarantee of the release, by the scale of its noise."""
        return self.model.guarantee(self.relation)

    def is_surprising(self) -> bool:
        """Return True if the release is so far outside the range of the statistic that noise hardly explains it."""
        return self.model.is_surprising(self.noisy_statistics)

    def posterior(self, prior: ArrayLike | None = None, rng: np.random.Generator | None = None) -> ReleasePosterior:
        """Return the posterior of θ given the release, by the method that `choose_method` chooses.

        Parameters
        ----------
        prior : array_like, shape (h,)
            Hyperparameters; see `ReleaseModel`. None is the default prior of the family normal-unknown-variance,
            (m, h, 1, h/3, 2), where m is the midpoint of the bounds and h half of their width.
        rng : numpy.random.Generator, optional
            Random generator for a sampler; exact posteriors do not need one.

        Returns
        -------
        ReleasePosterior
            Posterior of θ; that of the mean and the variance of a clamped record if records of unknown variance are
            clamped.

        Raises
        ------
        ValueError
            If the prior is invalid, no exact method is affordable, or `rng` is missing.

        Warns
        -----
        RuntimeWarning
            If chains have not converged, or the posterior may be inaccurate.

        Examples
        --------
        >>> from mechanisms import Noise, ReleaseModel, SumRelease
        >>> SumRelease(63.7, ReleaseModel("binomial", 100, Noise("laplace", 2.0))).posterior((1, 1))
        ReleasePosterior(binomial, n=100, noise=laplace(2), mean=0.6343, std=0.05493, method=exact, guarantee=0.5-DP)
        """
        prior = self.model.require_prior(prior)
        return infer_by(choose_method(self.model, prior), self, prior, rng)


def infer_by(
    choice: Choice, release: SumRelease, prior: ArrayLike, rng: np.random.Generator | None, n_draws: int = 5_000
) -> ReleasePosterior:
    """Return the posterior by a chosen method, of which a sampler draws `n_draws` per chain."""
    if choice.entry.is_sampler:
        require_generator(rng, f"the sampler {choice.method}")
    model, y = release.model, np.asarray(release.noisy_statistics)
    distribution = fit_release(rng, model, prior, y, choice, n_draws=n_draws)
    if isinstance(distribution, DrawnPosterior) and model.entry.has_square and model.outside == "clamp":
        distribution = DrawnPosterior(model.released_moments(distribution.draws))
    table = distribution.table if isinstance(distribution, Theta) else None
    return ReleasePosterior(model, y, release.guarantee, choice, distribution, table)
