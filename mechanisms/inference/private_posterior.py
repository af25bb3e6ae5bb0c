"""Posterior of a parameter in one call, from private records or from a noisy sum that is already public.

`private_posterior` releases a noisy sum of the records and infers θ from it; `posterior_from_release` only infers.
`choose_method` chooses the inference method, which involves no normal approximation: exact posteriors where they are
affordable, otherwise a sampler of the exact model.

If records of unknown variance are clamped, the posterior is that of the mean and the variance of a clamped record. They
are what the release measures: the share of the records that the normal distribution places outside the bounds is
an assumption, which is wrong for skewed records, and with it the mean before clamping.

The family for amounts such as incomes is normal-unknown-variance. Under its default prior, (m, 1/3, 1, h²/10) for
bounds with midpoint m and half-width h, the median of the standard deviation is 0.38·h, and the prior weighs as much as
a third of a record for the mean and two records for the variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, describe, real_array, require_generator
from mechanisms.core.metadata import find_entry
from mechanisms.core.noise import NOISES, Exact, Noise, calibrated_noise
from mechanisms.core.privacy import Guarantee, Neighbouring, validate_relation
from mechanisms.core.privacy_parameters import validate_epsilon, validate_size
from mechanisms.inference.count_table import CountTable, count_table
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.families import MODELS, NORMAL, Bounds, Family
from mechanisms.inference.methods import Choice, choose_method, fit_release, rehearse
from mechanisms.inference.publish import release_sums, validate_data
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.inference.release_posterior import ReleasePosterior
from mechanisms.release import Hook, LedgerLike, Rehearsal, check_release
from mechanisms.tables import Theta
from mechanisms.tables.formats import Seen

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
        normal-unknown-variance  mean, strength, shape, scale   mean and variance of a record
        =======================  =============================  ==============================================

    prior : array_like, shape (h,)
        Hyperparameters; see the table. None is the default prior of the family normal-unknown-variance,
        (m, 1/3, 1, h²/10), where m is the midpoint of the bounds and h half of their width.
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
        independent noise; the node is the index of a count, or "total". The counts of binomial records are ones, 0, and
        zeros, 1.
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
    release, relation = real_array("y", y), validate_relation(relation)
    used = {"n=None": n is None, "seen": seen is not None, "more": len(more) > 0, "exposure": exposure is not None}
    used["noise per count"] = not isinstance(noise, str | Noise)
    several = [name for name, value in used.items() if value]
    if several:
        _refuse_sums(entry, several, n, exposure, proportion, (bounds, parameter_range, variance))
        unscaled, prior = None, _prior(entry, prior)
        sensitivity = 1.0 if relation is Neighbouring.ADD_OR_REMOVE_ONE or release.size == 1 else 2.0
    else:
        unscaled = _unscaled(entry, n, bounds, outside, parameter_range, variance)  # type: ignore[arg-type]
        prior, sensitivity = _prior(entry, prior, unscaled), unscaled.sensitivity(relation)
    found = _with_scale(noise, epsilon, sensitivity, relation, n if proportion else None)
    if n is not None and seen is None:
        release = _counts(entry, release, n, proportion, isinstance(found, Noise) and found.is_integer)
    if unscaled is not None:
        model: ReleaseModel | CountTable = replace(unscaled, noise=found)
    else:
        k = release.size if exposure is not None else 2 if entry.name == "binomial" else np.size(prior)
        model = count_table(entry, release, k, n, found, seen, exposure, more, relation)
    if proportion and model.is_surprising(release):
        problem = f"the noise hardly explains proportions so far from those of {n:,} records"
        warn(f"{problem}; check n, epsilon, and that they are not percentages", stacklevel=2)
    if isinstance(model, ReleaseModel):
        return _infer(model, prior, release, choose_method(model, prior), model.guarantee(relation), rng)
    if n is None and exposure is None:
        rng = require_generator(rng, "shares of an unknown n")
    distribution, table = model.posterior(prior, rng)
    drawn = ", and shares are drawn given the counts" if isinstance(distribution, DrawnPosterior) else ""
    choice = Choice("exact", f"counts on a tree have a posterior by convolutions{drawn}")
    return ReleasePosterior(model, np.atleast_1d(release), model.guarantee, choice, distribution, table)


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
        normal-unknown-variance  mean, strength, shape, scale   mean and variance of a record
        =======================  =============================  ==============================

    prior : array_like, shape (h,)
        Hyperparameters; see the table. They must not depend on the records. None is the default prior of the family
        normal-unknown-variance, (m, 1/3, 1, h²/10), where m is the midpoint of the bounds and h half of their width.
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
        and a function that is called in between; see `publish_sums`.

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
    entry = find_entry(MODELS, family, "family")
    loss = validate_epsilon(epsilon)  # type: ignore[arg-type]  # raises an error for None
    release = check_release(Guarantee(loss), "private_posterior", rehearsal_seed, ledger, before_release)
    data, size = validate_data(records, entry, n)
    unscaled = _unscaled(entry, size, bounds, outside, parameter_range, variance)
    model = replace(unscaled, noise=calibrated_noise("laplace", unscaled.sensitivity(), loss))
    prior = _prior(entry, prior, model)
    if entry.is_vector and data.shape[1] != np.size(prior):
        raise ValueError(f"prior must have {data.shape[1]} numbers, got {prior!r}; pass one per category")
    choice = choose_method(model, prior)
    n_draws = rehearse(model, prior, choice) if _may_fail(model, choice, loss) else 0  # before anything is spent
    rng = release.generator("private_posterior") if isinstance(release, Rehearsal) else np.random.default_rng()
    released = release_sums(model, data, loss, release)
    model = replace(model, noise=Noise("laplace", released.noise_scale))
    return _infer(model, prior, released.noisy, choice, released.guarantee, rng, n_draws)


def _unscaled(
    family: Family, n: int, bounds: Bounds | None, outside: Any, parameter_range: Any, variance: float | None
) -> ReleaseModel:
    """Return the model with Laplace noise of scale 1, after checking that the variance is given if it must be."""
    if family.code == NORMAL and variance is None:
        raise ValueError("variance must be known for normal records, got None; pass it, or use normal-unknown-variance")
    noise = Noise("laplace", 1.0)
    return ReleaseModel(family.name, n, noise, bounds, outside, parameter_range, 1.0 if variance is None else variance)


def _with_scale(noise: Any, epsilon: float | None, sensitivity: float, relation: Neighbouring, n: int | None) -> Any:
    """Return the noise of sums: of a name by ε, or as given; with `n`, given noise is that of a proportion of n."""
    if isinstance(noise, str):
        if noise not in _PURE:
            names = ", ".join(_PURE)
            raise ValueError(f"noise must be one of {names} with epsilon, got {noise!r}; pass Noise(name, scale)")
        if epsilon is None:
            raise ValueError("epsilon must be given if noise has no scale, got None; pass it or Noise(name, scale)")
        noise = calibrated_noise(noise, sensitivity, epsilon)
    elif epsilon is not None:
        raise ValueError(f"epsilon must be None if noise has a scale, got {epsilon}; pass one of them")
    elif isinstance(noise, list | tuple | np.ndarray):
        return [_with_scale(one, None, sensitivity, relation, n) for one in noise]
    elif isinstance(noise, Exact):
        return noise
    elif not isinstance(noise, Noise):
        rule = "noise must be a name, a Noise, EXACT or one per count"
        raise ValueError(f"{rule}, got {describe(noise)}; pass e.g. Noise('gaussian', standard_deviation)")
    elif n is not None:
        if noise.is_integer:
            raise ValueError(f"noise of a proportion must be laplace or gaussian, got {noise.name}; pass counts, n * y")
        noise = replace(noise, scale=n * noise.scale)
    if noise.sums_to_zero and relation is Neighbouring.ADD_OR_REMOVE_ONE:
        raise ValueError("relation must be REPLACE_ONE for k-norm noise, as the sum is public; use geometric noise")
    return noise


def _refuse_sums(
    family: Family, used: list[str], n: int | None, exposure: Any, proportion: bool, limits: tuple[Any, ...]
) -> None:
    """Raise ValueError if arguments for several values, or for unknown n, do not suit the family or each other."""
    if exposure is not None and family.name != "poisson":
        raise ValueError(f"family must be poisson for exposure, got {family.name}; pass n instead")
    if exposure is None and family.is_truncated:
        if used == ["n=None"]:
            remedy = "pass n, or exposure for a Poisson count" if family.name == "poisson" else "pass n"
            raise ValueError(f"n must be the number of records for the {family.name} family, got None; {remedy}")
        rule = f"binomial, multinomial, or poisson with exposure for {used[-1]}"
        raise ValueError(f"family must be {rule}, got {family.name}; combine sums before inference")
    if exposure is not None and n is not None:
        raise ValueError(f"n must be None with exposure, got {n}; pass one of them")
    if proportion and used != ["noise per count"]:
        raise ValueError(f"proportion must be False with {used[0]}, got True; pass counts, n * y")
    if any(limit is not None for limit in limits):
        raise ValueError("bounds, parameter_range and variance must be None for counts, got others; omit them")
    if n is not None:
        validate_size(n)


def _prior(family: Family, prior: ArrayLike | None, model: ReleaseModel | None = None) -> ArrayLike:
    """Return the prior, or the default prior of the model if it is None."""
    if prior is not None:
        return prior
    if not family.has_square:
        names = ", ".join(family.hyperparameters)
        raise ValueError(f"prior ({names}) must be given for the {family.name} family, got None; pass its numbers")
    assert model is not None
    middle, half_width = model.units()
    return middle, 1.0 / 3.0, 1.0, 0.1 * half_width**2


def _counts(family: Family, y: Floats, n: int, proportion: bool, is_integer: bool) -> Floats:
    """Return released counts, given counts or proportions; warn if counts look like proportions."""
    if proportion and family.is_truncated:
        raise ValueError(f"proportion must be False for the {family.name} family, got True; pass the noisy sum")
    if proportion:  # a proportion of integers is a multiple of 1/n up to rounding
        return np.where(np.abs(n * y - np.rint(n * y)) < _NEAR, np.rint(n * y), n * y) if is_integer else n * y
    if not family.is_truncated and n > 1 and y.size and np.all(np.abs(y) < 1) and y.sum() > 0:
        problem = f"the release of {n:,} records lies between 0 and 1, and is read as a noisy count"
        warn(f"{problem}; pass proportion=True if it is a noisy proportion", stacklevel=3)
    return y


def _may_fail(model: ReleaseModel, choice: Choice, epsilon: float) -> bool:
    """Return True if chains may not converge, or an exact posterior may take too long."""
    if choice.entry.is_sampler or model.bounds is None:
        return choice.entry.is_sampler
    return epsilon > _PRECISE


def _infer(
    model: ReleaseModel, prior: ArrayLike, y: Floats, choice: Choice, guarantee: Any, rng: Any, n_draws: int = 5_000
) -> ReleasePosterior:
    """Return the posterior given a release; that of records that are clamped, if their variance is unknown."""
    if choice.entry.is_sampler:
        require_generator(rng, f"the sampler {choice.method}")
    release = np.array(y, dtype=np.float64, ndmin=1)
    release.flags.writeable = False
    distribution = fit_release(rng, model, prior, release, choice, n_draws=n_draws)
    if isinstance(distribution, DrawnPosterior) and model.entry.has_square and model.outside == "clamp":
        distribution = DrawnPosterior(model.released_moments(distribution.draws))
    table = distribution.table if isinstance(distribution, Theta) else None
    return ReleasePosterior(model, release, guarantee, choice, distribution, table)
