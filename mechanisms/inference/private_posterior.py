"""Posterior of a parameter in one call, from private records or from a noisy sum that is already public.

`private_posterior` releases a noisy sum of the records and infers θ from it; `posterior_from_release` only infers, from
a `SumRelease` or from `NoisyCounts`, which it builds. No inference method involves a normal approximation: posteriors
are exact where they are affordable, otherwise from a sampler of the exact model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, describe, find_entry, real_array
from mechanisms.core.noise import NOISES, Exact, Noise, calibrated_noise
from mechanisms.core.privacy import Guarantee, Neighbouring, validate_relation
from mechanisms.core.privacy_parameters import validate_epsilon, validate_size
from mechanisms.inference.families import MODELS, NORMAL, Bounds, Family
from mechanisms.inference.methods import Choice, choose_method, rehearse
from mechanisms.inference.noisy_counts import NoisyCounts
from mechanisms.inference.publish import release_sums, validate_data
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior
from mechanisms.inference.sum_release import SumRelease, infer_by
from mechanisms.release import Hook, LedgerLike, Rehearsal, check_release
from mechanisms.tables.likelihoods import SCALES, Seen

_NEAR = 1e-6  # distance from an integer of the product of a proportion and the number of records
_PRECISE = 50.0  # epsilon above which exact posteriors of bounded records may take too long
_PURE = [name for name in NOISES if Noise(name, 1.0).is_pure]


def posterior_from_release(
    y: ArrayLike, family: Family | str, prior: ArrayLike | None = None, *, n: int | None = None,
    epsilon: float | None = None, relation: Neighbouring = Neighbouring.REPLACE_ONE,
    noise: str | Noise | Exact | Sequence[Noise | Exact] = "laplace", seen: Seen | Sequence[Seen] | None = None,
    more: Sequence[tuple[Any, ...]] = (), exposure: ArrayLike | None = None, proportion: bool = False,
    variance: float | None = None, bounds: Bounds | None = None, outside: Literal["drop", "clamp"] = "drop",
    parameter_range: tuple[Any, Any] | None = None, rng: np.random.Generator | None = None,
) -> ReleasePosterior:  # fmt: skip
    """Return the posterior of θ given a noisy sum of n records, or noisy counts.

    This function builds a `SumRelease` or `NoisyCounts` from noise that is stated by the privacy loss, and from
    proportions. Counts with `seen`, `more`, `exposure`, one noise per count or an unknown n are `NoisyCounts`.

    Parameters
    ----------
    y : float, or array_like of shape (d,)
        Release, of any size and sign: k noisy counts for the multinomial, the noisy sums of the standardised records
        and of their squares if the variance is unknown, see `ReleaseModel`, otherwise the noisy sum. With `exposure`,
        one noisy count or k of them.
    family : Family or str
        Family or its name:

        =======================  =============================  ==============================================
        family                   prior                          θ
        =======================  =============================  ==============================================
        binomial                 Beta(alpha, beta)              probability of a one
        multinomial              Dir(alpha₁, …, alphaₖ)         probabilities of k categories
        exponential              Gamma(shape, rate)             rate
        poisson                  Gamma(shape, rate)             mean of a record; rates of counts with exposure
        normal                   N(mean, variance)              mean; pass the known variance of a record
        normal-unknown-variance  one of two: `ReleaseModel`     mean and variance of a record
        =======================  =============================  ==============================================

        If records of unknown variance are clamped, θ is the mean and the variance of a clamped record.

    prior : array_like, shape (h,)
        Hyperparameters; see the table. None is the default prior of the family normal-unknown-variance,
        (m, h, 1, h/3, 2), where m is the midpoint of the bounds and h half of their width.
    n : int, optional
        Number of records, public, ≥ 1; None for counts of all categories with the improper priors Γ(x + α)/x!.
    epsilon : float, optional
        Privacy loss of the release in nats, > 0, under `relation`, if the scale of the noise is Δ/ε, where Δ is
        `ReleaseModel.sensitivity`: for a histogram, 2 if a record is replaced, and 1 if it is added or removed.
    relation : Neighbouring
        Neighbouring relation of `epsilon` and of the guarantee.
    noise : str, Noise, EXACT, or a sequence with one per count
        Name of the distribution, "laplace", "geometric" or "k-norm", given `epsilon`; otherwise a distribution with its
        scale, such as ``Noise("gaussian", standard_deviation)``, or ``Noise("laplace", standard_deviation / 2**0.5)``.
    seen : str, Suppressed, Rounded, RandomRounded, SmallRounded, or a sequence with one per count, optional
        Format of a count: "value" (default), "clipped" at 0, or those of `mechanisms.tables`, of which the last two are
        those of counts without noise, `EXACT`.
    more : sequence of tuple, optional
        Further values of the same counts, each ``(node, value, noise)`` or ``(node, value, noise, seen)``, with
        independent noise, which k-norm noise is not; the node is the index of a count, or "total". The counts of
        binomial records are ones, 0, and zeros, 1.
    exposure : float or array_like of shape (k,), optional
        Exposure E > 0 of Poisson counts with mean θ·E, such as person-years. Each count then has its own θ.
    proportion : bool
        True if `y` contains noisy proportions of n records, whose noise has the scale Δ/(n·ε), or that of `noise`.
    variance : float, optional
        Known variance of a record, > 0, which the family normal needs.
    bounds : tuple of float, optional
        Public bounds of the release; None for counts.
    outside : {"drop", "clamp"}
        Contribution of a record outside the bounds to the release: 0, or the nearest bound.
    parameter_range : tuple, optional
        Limits of θ to which the prior is restricted, such as the bounds for a mean; see `ReleaseModel`.
    rng : numpy.random.Generator, optional
        Random generator for a sampler, and for shares of an unknown n; other posteriors do not need one.

    Returns
    -------
    ReleasePosterior
        Posterior whose `guarantee` is that of all values together, and whose `table` is the posterior of the counts.

    Raises
    ------
    ValueError
        If an argument is invalid, the family does not support it, no exact method is affordable, or `rng` is missing.

    Warns
    -----
    UserWarning
        If noisy counts look like proportions, as they lie between 0 and 1, or noisy proportions like percentages.

    Examples
    --------
    >>> posterior = posterior_from_release(63.7, "binomial", (1, 1), n=100, epsilon=0.5)
    >>> posterior
    ReleasePosterior(binomial, n=100, noise=laplace(2), mean=0.6343, std=0.05493, method=exact, guarantee=0.5-DP)
    >>> rate = posterior_from_release(21.4, "poisson", (1, 1), exposure=53.4, noise=Noise("gaussian", 3.0))
    >>> f"{rate.mean():.3f} ± {rate.std():.3f}; {rate.guarantee}"
    '0.409 ± 0.103; 0.0555556-zCDP'
    """
    entry = find_entry(MODELS, family, "family")
    y, relation = real_array("y", y), validate_relation(relation)
    n = None if n is None else validate_size(n)
    has_counts = seen is not None or len(more) > 0 or exposure is not None
    release: SumRelease | NoisyCounts
    if isinstance(noise, str | Noise) and not has_counts and n is not None:
        known_variance = _require_variance(entry, variance)
        sensitivity = entry.sensitivity(bounds, relation, outside)
        scaled_noise = _with_scale(noise, epsilon, sensitivity, n if proportion else None)
        model = ReleaseModel(entry.name, n, scaled_noise, bounds, outside, parameter_range, known_variance)
        release = SumRelease(_as_counts(entry, y, n, proportion, scaled_noise), model, relation)
    else:
        if exposure is None and entry.is_truncated:
            _refuse_sum(entry, n, seen, more, noise)
        if proportion and (has_counts or n is None):
            _refuse_proportion(n, seen, more)
        if outside != "drop":
            raise ValueError(f"outside must be drop for counts, which have no bounds, got {outside!r}; omit it")
        if any(limit is not None for limit in (bounds, parameter_range, variance)):
            raise ValueError("bounds, parameter_range and variance must be None for counts, got others; omit them")
        sensitivity = 1.0 if relation is Neighbouring.ADD_OR_REMOVE_ONE or y.size == 1 else 2.0
        scaled_noise = _with_scale(noise, epsilon, sensitivity, n if proportion else None)
        if n is not None and seen is None:
            y = _as_counts(entry, y, n, proportion, scaled_noise)
        release = NoisyCounts(entry, y, scaled_noise, n, exposure, "value" if seen is None else seen, more, relation)
    if proportion and release.is_surprising():
        problem = f"the noise hardly explains proportions so far from those of {n:,} records"
        warn(f"{problem}; check n, epsilon, and that they are not percentages", stacklevel=2)
    return release.posterior(prior, rng)


def private_posterior(
    records: ArrayLike, family: Family | str, prior: ArrayLike | None = None, epsilon: float | None = None, *,
    n: int | None = None, variance: float | None = None, bounds: Bounds | None = None,
    outside: Literal["drop", "clamp"] = "drop", parameter_range: tuple[Any, Any] | None = None,
    rehearsal_seed: int | None = None, ledger: LedgerLike | None = None, before_release: Hook | None = None,
) -> ReleasePosterior:  # fmt: skip
    """Release the noisy sum of private records, and return the posterior of θ given the release.

    Parameters
    ----------
    records : array_like, shape (n,), or (n, k) for the multinomial
        Private records, one per row, one-hot for the multinomial; with `n`, their sum instead: the number of ones, or k
        counts. Messages and the result contain neither, but a message may contain the index of the first invalid row.
    family : Family or str
        Family or its name:

        =======================  =============================  ==============================
        family                   prior                          θ
        =======================  =============================  ==============================
        binomial                 Beta(alpha, beta)              probability of a one
        multinomial              Dir(alpha₁, …, alphaₖ)         probabilities of k categories
        exponential              Gamma(shape, rate)             rate
        poisson                  Gamma(shape, rate)             mean of a record
        normal                   N(mean, variance)              mean
        normal-unknown-variance  one of two: `ReleaseModel`     mean and variance of a record
        =======================  =============================  ==============================

        If records of unknown variance are clamped, θ is the mean and the variance of a clamped record.

    prior : array_like, shape (h,)
        Hyperparameters; see the table. They must not depend on the records. None is the default prior of the family
        normal-unknown-variance, (m, h, 1, h/3, 2), where m is the midpoint of the bounds and h half of their width.
    epsilon : float
        Privacy loss in nats, finite and > 0; required.
    n : int, optional
        Number of records, public, if `records` is the sum of binomial or multinomial records.
    variance : float, optional
        Known variance of a record, public, > 0, which the family normal needs.
    bounds : tuple of float, optional
        Public bounds [a, b] for unbounded records, which must not depend on the records, except by `publish_bounds`.
    outside : {"drop", "clamp"}
        Contribution of a record outside the bounds: 0, or the nearest bound. Inference takes either into account.
    parameter_range : tuple, optional
        Public limits of θ to which the prior is restricted; see `ReleaseModel`.
    rehearsal_seed : int, optional
        Seed of a rehearsal, which is reproducible and not private.
    ledger, before_release : optional
        Ledger of all releases from these records, or its path, in which this one is entered before the noise is drawn,
        and a function that is called in between; see `mechanisms.release.check_release`.

    Privacy
    -------
    ε-DP (proved) under replacement of one record; the number of records is public. `publish_sums` draws the noise with
    entropy of the operating system, and inference uses only the release. Every call is a separate release. A rehearsal
    has no guarantee.

    Raises
    ------
    ValueError
        If an argument is invalid, the ledger has less left than ε, no exact method is affordable, or chains do not
        converge in a rehearsal on public numbers, before any noise is drawn.
    ModuleNotFoundError
        If OpenDP is not installed.

    Notes
    -----
    The release is rounded to a fine grid, but inference assumes continuous Laplace noise of the same scale. The
    likelihood has no error for integer records; for other records `mechanisms.inference.publish` states the error. A
    sampler draws with fresh entropy, or with a seed derived from `rehearsal_seed`.

    Examples
    --------
    >>> posterior = private_posterior([52, 31, 17], "multinomial", (1, 1, 1), epsilon=1.0, n=100)
    >>> print(posterior.guarantee, posterior.method, posterior.release.shape)
    1-DP exact (3,)
    >>> times = [0.3, 1.2, 0.1, 0.8, 2.5, 0.4, 0.6, 1.9, 0.2, 0.7]
    >>> rehearsal = private_posterior(times, "exponential", (2, 2), 1.0, bounds=(0, 3), rehearsal_seed=1)
    >>> print(f"{rehearsal.mean():.4f} ± {rehearsal.std():.4f}", rehearsal.guarantee)
    0.9197 ± 0.5669 None
    """
    drawn = release_records(
        records, family, prior, epsilon, n=n, variance=variance, bounds=bounds, outside=outside,
        parameter_range=parameter_range, rehearsal_seed=rehearsal_seed, ledger=ledger, before_release=before_release,
    )  # fmt: skip
    return drawn.infer()


@dataclass(frozen=True, eq=False)
class DrawnRelease:
    """Release of private records whose posterior has not been computed; all attributes are public."""

    release: SumRelease
    guarantee: Guarantee | None  # None for a rehearsal
    prior: ArrayLike
    choice: Choice
    rng: np.random.Generator
    n_draws: int  # per chain of a sampler

    def infer(self) -> ReleasePosterior:
        """Return the posterior given the release."""
        posterior = infer_by(self.choice, self.release, self.prior, self.rng, self.n_draws)
        return replace(posterior, guarantee=self.guarantee)


def release_records(
    records: ArrayLike, family: Family | str, prior: ArrayLike | None = None, epsilon: float | None = None, *,
    n: int | None = None, variance: float | None = None, bounds: Bounds | None = None,
    outside: Literal["drop", "clamp"] = "drop", parameter_range: tuple[Any, Any] | None = None,
    rehearsal_seed: int | None = None, ledger: LedgerLike | None = None, before_release: Hook | None = None,
) -> DrawnRelease:  # fmt: skip
    """Return the release of `private_posterior`, after all checks that its posterior can be computed."""
    entry = find_entry(MODELS, family, "family")
    loss = validate_epsilon(epsilon)  # type: ignore[arg-type]  # raises an error for None
    release = check_release(Guarantee(loss), "private_posterior", rehearsal_seed, ledger, before_release)
    data, size = validate_data(records, entry, n)
    known_variance = _require_variance(entry, variance)
    noise = calibrated_noise("laplace", entry.sensitivity(bounds, outside=outside), loss)
    model = ReleaseModel(entry.name, size, noise, bounds, outside, parameter_range, known_variance)
    prior = model.require_prior(prior)
    if entry.is_vector and data.shape[1] != np.size(prior):
        raise ValueError(f"prior must have {data.shape[1]} numbers, got {prior!r}; pass one per category")
    if entry.is_vector and noise.scale < SCALES[0]:  # before anything is spent: the posterior would refuse it
        raise ValueError(
            f"epsilon must give noise of a scale >= {SCALES[0]:g} to counts of categories, got {loss:g}; choose a "
            "smaller one"
        )
    choice = choose_method(model, prior)
    n_draws = rehearse(model, prior, choice) if _may_fail(model, choice, loss) else 0  # before anything is spent
    rng = release.generator("private_posterior") if isinstance(release, Rehearsal) else np.random.default_rng()
    published = release_sums(model, data, loss, release)
    public = SumRelease(published.noisy, replace(model, noise=Noise("laplace", published.noise_scale)))
    return DrawnRelease(public, published.guarantee, prior, choice, rng, n_draws)


def _require_variance(family: Family, variance: float | None) -> float:
    """Return the variance of a record, which is 1 for families that do not need one."""
    if family.code == NORMAL and variance is None:
        raise ValueError("variance must be known for normal records, got None; pass it, or use normal-unknown-variance")
    return 1.0 if variance is None else variance


def _with_scale(noise: Any, epsilon: float | None, sensitivity: float, n: int | None) -> Any:
    """Return the noise of sums: of a name by ε, or as given; with `n`, given noise is that of a proportion of n."""
    match noise:
        case str():
            return _noise_by_epsilon(noise, epsilon, sensitivity)
        case _ if epsilon is not None:
            raise ValueError(f"epsilon must be None if noise has a scale, got {epsilon}; pass one of them")
        case list() | tuple() | np.ndarray():
            return [_with_scale(noise_of_count, None, sensitivity, n) for noise_of_count in noise]
        case Noise() if n is not None:
            if noise.is_integer:
                rule = "noise of a proportion must be laplace or gaussian"
                raise ValueError(f"{rule}, got {noise.name}; pass counts, n * y")
            return replace(noise, scale=n * noise.scale)
        case Noise() | Exact():
            return noise
        case _:
            rule = "noise must be a name, a Noise, EXACT or one per count"
            raise ValueError(f"{rule}, got {describe(noise)}; pass e.g. Noise('gaussian', standard_deviation)")


def _noise_by_epsilon(name: str, epsilon: float | None, sensitivity: float) -> Noise:
    if name not in _PURE:
        names = ", ".join(_PURE)
        raise ValueError(f"noise must be one of {names} with epsilon, got {name!r}; pass Noise(name, scale)")
    if epsilon is None:
        raise ValueError("epsilon must be given if noise has no scale, got None; pass it or Noise(name, scale)")
    return calibrated_noise(name, sensitivity, epsilon)


def _refuse_sum(family: Family, n: int | None, seen: Any, more: Sequence[Any], noise: Any) -> None:
    """Raise ValueError for a family whose releases are sums, if arguments state counts, or n is missing."""
    if not isinstance(noise, str | Noise):
        argument = "noise per count"
    elif len(more) > 0:
        argument = "more"
    elif seen is not None:
        argument = "seen"
    else:
        assert n is None
        remedy = "pass n, or exposure for a Poisson count" if family.name == "poisson" else "pass n"
        raise ValueError(f"n must be the number of records for the {family.name} family, got None; {remedy}")
    rule = f"binomial, multinomial, or poisson with exposure for {argument}"
    raise ValueError(f"family must be {rule}, got {family.name}; combine sums before inference")


def _refuse_proportion(n: int | None, seen: Any, more: Sequence[Any]) -> None:
    """Raise ValueError for proportions whose n is unknown, or which have a format, further values or an exposure."""
    if n is None:
        argument = "n=None"
    elif seen is not None:
        argument = "seen"
    else:
        argument = "more" if len(more) > 0 else "exposure"
    raise ValueError(f"proportion must be False with {argument}, got True; pass counts, n * y")


def _as_counts(family: Family, y: Floats, n: int, proportion: bool, noise: Any) -> Floats:
    """Return released counts, given counts or proportions; warn if counts look like proportions."""
    if proportion and family.is_truncated:
        raise ValueError(f"proportion must be False for the {family.name} family, got True; pass the noisy sum")
    if proportion:
        if not (isinstance(noise, Exact) or (isinstance(noise, Noise) and noise.is_integer)):
            return n * y
        # a proportion of integers is a multiple of 1/n up to rounding
        return np.where(np.abs(n * y - np.rint(n * y)) < _NEAR, np.rint(n * y), n * y)
    if not family.is_truncated and n > 1 and y.size and np.all(np.abs(y) < 1) and y.sum() > 0:
        problem = f"the release of {n:,} records lies between 0 and 1, and is read as a noisy count"
        warn(f"{problem}; pass proportion=True if it is a noisy proportion", stacklevel=3)
    return y


def _may_fail(model: ReleaseModel, choice: Choice, epsilon: float) -> bool:
    """Return True if chains may not converge, or an exact posterior may take too long."""
    if choice.entry.is_sampler or model.bounds is None:
        return choice.entry.is_sampler
    return epsilon > _PRECISE
