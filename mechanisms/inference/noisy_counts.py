"""Posteriors given several noisy values of the same counts: cells, their total, and repeated releases of either.

`NoisyCounts` states the values of k counts x₁, …, xₖ, and `mechanisms.tables` computes the posterior of the counts.

==================================  ==========================================  ===================================
family                              prior of the counts                         θ given the counts
==================================  ==========================================  ===================================
binomial, multinomial               Dirichlet-multinomial, given the public n   Dir(α + x)
binomial, multinomial, n unknown    xⱼ ~ NB(αⱼ, mean = 1e10·αⱼ)                 Dir(α + x)
poisson with exposures E            xⱼ ~ NB(shape, mean = shape·Eⱼ/rate)        θⱼ ~ Gamma(shape + xⱼ, rate + Eⱼ)
==================================  ==========================================  ===================================

The prior for unknown n is negligibly different from Π Γ(xⱼ + αⱼ)/xⱼ!, with p(n) ∝ Γ(n + A)/n! and A = Σ αⱼ: flat if
A = 1. Negative binomial counts with one scale have shares θ ~ Dir(α) that are independent of n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from mechanisms.core.arguments import Floats, describe, find_entry, real_array, require_generator
from mechanisms.core.noise import Exact, Noise, require_replacement
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee, Neighbouring, validate_relation
from mechanisms.core.privacy_parameters import validate_size
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.core.sums import weighted_sum
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.families import MODELS, Family
from mechanisms.inference.methods import Choice
from mechanisms.inference.release_model import is_unlikely
from mechanisms.inference.release_posterior import ReleasePosterior
from mechanisms.tables import Prior, TablePosterior, Theta, dirichlet_multinomial, negative_binomial, table_posterior
from mechanisms.tables.likelihoods import Seen, Suppressed
from mechanisms.tables.posterior import redraw_underflowed
from mechanisms.tables.tree import k_norm_constant

_DRAWS = 4, 5_000  # numbers of chains and of independent draws per chain
_PAIRS = 1 << 17  # largest number of pairs of a count and the total with which θ is not drawn if n is unknown
_VAGUE = 1e10  # mean over shape of the prior of counts if n is unknown
_FAR = 1e6  # largest distance of a value from the possible counts, in scales of pure noise

_SMALLEST = float(np.finfo(np.float64).tiny)

Measurement: TypeAlias = tuple[int, float, Noise | Exact, Seen]  # (node, value, noise, format); node k is the total


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """Noisy values of k counts, one per count, and further values of the same counts and of their total.

    Parameters
    ----------
    family : Family or str
        "binomial", whose counts are ones and zeros; "multinomial"; or "poisson" with `exposure`. Other families have
        sums, see `SumRelease`.
    y : float, or array_like of shape (k,)
        Value of each count, of any size and sign, NaN for a count without one; the number of ones for the binomial.
    noise : Noise, EXACT, or a sequence with one per count
        Distribution of the noise of `y`.
    n : int, optional
        Number of records, public, ≥ 1; None with `exposure`, and for counts of all categories with the improper priors
        Γ(x + α)/x!.
    exposure : float or array_like of shape (k,), optional
        Exposure E > 0 of Poisson counts with mean θ·E, such as person-years. Each count then has its own θ.
    seen : str, Suppressed, Rounded, RandomRounded, SmallRounded, or a sequence with one per count
        Format of `y`: "value", "clipped" at 0, or those of `mechanisms.tables`, of which the last two are those of
        counts without noise, `EXACT`.
    more : sequence of tuple
        Further values, each ``(node, value, noise)`` or ``(node, value, noise, seen)``, with independent noise, which
        k-norm noise is not; the node is the index of a count, or "total". The counts of binomial records are ones, 0,
        and zeros, 1.
    relation : Neighbouring
        Neighbouring relation of the guarantee.

    Attributes
    ----------
    measured : tuple of tuple
        All values, each as ``(node, value, noise, seen)``, where node k is the total.
    guarantee : Guarantee, ConcentratedGuarantee or None
        Guarantee of all values together.

    Raises
    ------
    ValueError
        If an argument is invalid, or the arguments do not suit the family or each other.

    See Also
    --------
    SumRelease : noisy sum of records, which also has the posterior of a single release of counts.

    Examples
    --------
    >>> from mechanisms import Noise, NoisyCounts
    >>> noise = Noise("gaussian", 3.0)
    >>> further = [("total", 57.0, noise), (0, 28.4, noise)]
    >>> cells = NoisyCounts("multinomial", [30.2, 9.1, 14.8], noise, n=55, more=further)
    >>> cells.posterior((1, 1, 1)).mean().round(3)
    array([0.529, 0.187, 0.285])
    >>> rate = NoisyCounts("poisson", 21.4, noise, exposure=53.4).posterior((1, 1))
    >>> f"{rate.mean():.3f} ± {rate.std():.3f}; {rate.guarantee}"
    '0.409 ± 0.103; 0.0555556-zCDP'
    """

    family: Family | str
    y: ArrayLike
    noise: Noise | Exact | Sequence[Noise | Exact]
    n: int | None = None
    exposure: ArrayLike | None = None
    seen: Seen | Sequence[Seen] = "value"
    more: Sequence[tuple[Any, ...]] = ()
    relation: Neighbouring = Neighbouring.REPLACE_ONE
    measured: tuple[Measurement, ...] = field(init=False, repr=False)
    _log_constant: float = field(init=False, repr=False)  # to add to ln p(y), for k-norm noise replaced by geometric

    def __post_init__(self) -> None:
        family = find_entry(MODELS, self.family, "family")
        y = np.array(real_array("y", self.y))
        y.flags.writeable = False
        relation = validate_relation(self.relation)
        _require_counts(family, self.exposure)
        if self.exposure is not None and self.n is not None:
            raise ValueError(f"n must be None with exposure, got {self.n}; pass one of them")
        n = None if self.n is None else validate_size(self.n)
        _require_one_value_per_count(y, 1 if family.name == "binomial" else max(y.size, 1))
        exposure = None if self.exposure is None else _exposures(self.exposure, y.size)
        arguments = {"family": family.name, "y": y, "n": n, "relation": relation, "exposure": exposure}
        for name, argument in arguments.items():
            object.__setattr__(self, name, argument)
        noises, log_constant = self._noises_and_constant()
        formats = _per_count("seen", self.seen, y.size)
        published = [*zip(range(y.size), y.ravel().tolist(), noises, formats, strict=True), *map(_further, self.more)]
        object.__setattr__(self, "measured", tuple(self._measure(*entries) for entries in published))
        object.__setattr__(self, "_log_constant", log_constant)
        with_value = {node for node, _ in self._published()}
        if n is None and exposure is None and self.k not in with_value and len(with_value) < self.k:
            rule = "n must be given unless all counts or their total have values"
            raise ValueError(f"{rule}, got None; pass n or the total")

    @property
    def entry(self) -> Family:
        """Entry of the family in `MODELS`."""
        return MODELS[self.family]  # type: ignore[index]  # a name after construction

    @property
    def k(self) -> int:
        """Number of counts."""
        return 2 if self.family == "binomial" else np.size(self.y)

    @property
    def is_scalar(self) -> bool:
        """True if θ is a number."""
        return self.family == "binomial" or (self.exposure is not None and np.ndim(self.y) == 0)

    @property
    def noises(self) -> frozenset[Noise | Exact]:
        """Distributions of the noise that inference assumes."""
        return frozenset(noise for _, _, noise, _ in self.measured)

    @property
    def guarantee(self) -> Guarantee | ConcentratedGuarantee | None:
        """Guarantee of all values together, ε-DP or ρ-zCDP; None if a value has no noise, or none is published.

        A public n is not part of it: under addition or removal, n has no guarantee.
        One record changes one count by one under addition or removal, and two under replacement; for Poisson counts,
        it may also be replaced by one that is not counted. Losses of pure and of Gaussian noise are bounded separately.
        """
        losses = np.zeros((2, self.k + 1))
        for node, noise in self._published():
            if isinstance(noise, Exact):
                return None
            of_value = noise.guarantee(1.0)
            if isinstance(of_value, Guarantee):
                losses[0, node] += of_value.epsilon
            else:
                losses[1, node] += of_value.rho
        of_total, largest = losses[:, -1], -np.sort(-losses[:, :-1], axis=1)[:, :2]
        one_count, two_counts = largest[:, 0] + of_total, largest.sum(axis=1)
        if self.relation is Neighbouring.ADD_OR_REMOVE_ONE:
            epsilon, rho = one_count
        elif self.exposure is not None:
            epsilon, rho = np.maximum(one_count, two_counts)
        else:
            epsilon, rho = two_counts
        if not losses.any():
            return None
        if not losses[1].any():
            return Guarantee(float(epsilon), relation=self.relation)
        return ConcentratedGuarantee(float(rho + 0.5 * epsilon**2), relation=self.relation)

    def _published(self) -> list[tuple[int, Noise | Exact]]:
        """Return the node and the noise of each value that was published, if only as suppressed."""
        return [
            (node, noise)
            for node, value, noise, form in self.measured
            if isinstance(form, Suppressed) or not np.isnan(value)
        ]

    def is_surprising(self, y: ArrayLike | None = None) -> bool:
        """Return True if a value is so far outside the possible counts that the noise hardly explains it.

        `y`, which the methods of a `ReleaseModel` take, changes nothing: the object contains all values.
        """
        most = np.inf if self.n is None else self.n
        noisy = [(value, noise) for _, value, noise, _ in self.measured if isinstance(noise, Noise)]
        return any(is_unlikely(noise, abs(value - min(max(value, 0.0), most))) for value, noise in noisy)

    def posterior(self, prior: ArrayLike | None, rng: np.random.Generator | None = None) -> ReleasePosterior:
        """Return the exact posterior of θ and of the counts.

        Parameters
        ----------
        prior : array_like, shape (h,)
            Hyperparameters: Beta(alpha, beta) for the binomial, Dir(alpha₁, …, alphaₖ) for the multinomial, and
            Gamma(shape, rate) for the rates of Poisson counts.
        rng : numpy.random.Generator, optional
            Random generator for the shares θ of an unknown n, which are drawn given the counts unless counts are small.

        Returns
        -------
        ReleasePosterior
            Posterior whose `guarantee` is that of all values together, and whose `table` is the posterior of the
            counts.

        Raises
        ------
        ValueError
            If the prior is invalid or does not have one alpha per count, `rng` is missing, or no counts are possible.

        Examples
        --------
        >>> from mechanisms import Noise, NoisyCounts
        >>> noise = Noise("gaussian", 2.0)
        >>> shares = NoisyCounts("multinomial", [41.3, 38.6, 22.9], noise)  # n is unknown
        >>> shares.posterior((1, 1, 1), np.random.default_rng(1)).mean().round(2)
        array([0.4 , 0.37, 0.23])
        """
        hyperparameters = self.entry.validate_prior(self.entry.require_prior(prior))
        if self.family == "multinomial":
            _require_one_value_per_count(np.asarray(self.y), len(hyperparameters))
        if self.n is None and self.exposure is None:
            require_generator(rng, "shares of an unknown n")
        if self.exposure is not None:
            distribution, table = self._rates(*hyperparameters)
        else:
            distribution, table = self._shares(hyperparameters, rng)
        drawn = ", and shares are drawn given the counts" if isinstance(distribution, DrawnPosterior) else ""
        choice = Choice("exact", f"counts on a tree have a posterior by convolutions{drawn}")
        return ReleasePosterior(self, np.atleast_1d(self.y), self.guarantee, choice, distribution, table)

    def _noises_and_constant(self) -> tuple[list[Noise | Exact], float]:
        """Return the noise of each value of `y`, and a constant to add to ln p(y).

        Given n, k-norm noise is geometric noise, but for this constant.
        """
        y = np.asarray(self.y)
        noises = _per_count("noise", self.noise, y.size)
        for noise in noises:
            if not isinstance(noise, Noise | Exact):
                raise ValueError(f"noise must be a Noise, EXACT or one per count, got {describe(noise)}; pass a Noise")
            require_replacement(noise, self.relation)
        k_norm = [noise for noise in noises if isinstance(noise, Noise) and noise.sums_to_zero]
        if not k_norm:
            return noises, 0.0
        if len(set(noises)) > 1:
            rule = "noise must be k-norm for all counts or for none, of one scale"
            raise ValueError(f"{rule}, got {len(set(noises))} distributions; pass one")
        if self.family != "multinomial":
            raise ValueError(f"family must be multinomial for k-norm noise, got {self.family}; pass geometric noise")
        if y.sum() != self.n:
            rule = f"k-norm noise must be that of all counts, with sum n = {self.n}"
            raise ValueError(f"{rule}, got the sum {y.sum():g}; pass geometric noise and n")
        scale = k_norm[0].scale
        return [Noise("geometric", scale)] * y.size, k_norm_constant(scale, self.k)

    def _measure(self, node: Any, value: Any, noise: Noise | Exact, form: Any) -> Measurement:
        """Return a published value as a measurement of node k, the total, or of a count."""
        k = self.k
        index = k if isinstance(node, str) and node == "total" else node
        if not (isinstance(index, int | np.integer) and (0 <= index < k or node == "total")):
            raise ValueError(f"node must be 'total' or a count from 0 to {k - 1}, got {node!r}; pass one of them")
        number = real_array("value in more", value)
        if number.ndim > 0 or np.isinf(number):
            rule = "value in more must be one finite number, or NaN"
            raise ValueError(f"{rule}, got {describe(number)} for node {node!r}; pass one number per node")
        return int(index), float(number), noise, form

    def _rates(self, shape: float, rate: float) -> tuple[Posterior, TablePosterior]:
        """Return the posteriors of Poisson rates and of their counts."""
        exposures: Any = self.exposure
        priors = [negative_binomial(shape, shape * exposure / rate) for exposure in exposures]
        table = solve_counts(self.k, self.measured, priors, None)
        return Rates(table, shape, rate + np.array(exposures), self.is_scalar), table

    def _shares(self, alpha: tuple[float, ...], rng: np.random.Generator | None) -> tuple[Posterior, TablePosterior]:
        """Return the posteriors of shares and of the counts; shares are drawn if n is unknown and counts are large."""
        if self.n is not None:
            table = solve_counts(self.k, self.measured, dirichlet_multinomial(alpha), self.n)
            table = replace(table, log_marginal_likelihood=table.log_marginal_likelihood + self._log_constant)
        else:
            table = solve_counts(self.k, self.measured, [negative_binomial(a, _VAGUE * a) for a in alpha], None)
            sizes = [table.pmf(node)[0].size for node in range(table.parents.size)]
            if sizes[int(np.flatnonzero(table.parents < 0)[0])] * sum(sizes) > _PAIRS:
                assert rng is not None
                shapes = np.array(alpha) + table.sample(rng, _DRAWS[0] * _DRAWS[1])[:, : self.k]
                draws = redraw_underflowed(rng, rng.standard_gamma(shapes), shapes)
                shares = (draws / draws.sum(axis=1, keepdims=True)).reshape(*_DRAWS, self.k)
                return DrawnPosterior(shares[..., 0] if self.is_scalar else shares), table
        theta = Theta(table, np.arange(self.k))
        return (theta.marginals[0] if self.is_scalar else theta), table  # type: ignore[return-value]


def solve_counts(
    k: int, measured: Sequence[Measurement], prior: Prior | Sequence[Prior], n: int | None
) -> TablePosterior:
    """Return the posterior of k counts, the leaves 0, …, k − 1 of a tree; node k is their total.

    A second value of a node is that of a new parent, of which the node is the only child.
    """
    values, parents = np.full(k + 1, np.nan).tolist(), [*([k] * k), -1]
    noises: list[Noise | Exact | None] = [None] * (k + 1)
    formats: list[Seen] = ["value"] * (k + 1)
    top, log_constant = list(range(k + 1)), 0.0
    for node, published, noise, form in measured:
        value = published
        if isinstance(noise, Noise) and noise.power == 1 and form in ("value", "clipped"):
            reach = np.floor(_FAR * noise.scale)  # further away, the likelihood has the same shape, but for rounding
            value = float(np.clip(published, -reach, np.inf if n is None else n + reach))
            log_constant -= np.nan_to_num(abs(published - value)) / noise.scale
        if noises[node] is None:
            values[node], noises[node], formats[node] = value, noise, form
        else:
            parents.append(parents[top[node]])
            parents[top[node]] = top[node] = len(values)
            values, noises, formats = [*values, value], [*noises, noise], [*formats, form]
    table = table_posterior(values, noises, parents, prior, n=n, seen=formats)
    return replace(table, log_marginal_likelihood=table.log_marginal_likelihood + log_constant)


@dataclass(frozen=True, eq=False)
class Rates(Posterior):
    """Posterior of Poisson rates given a table: mixtures of Gamma(shape + c, rate) over the marginals of counts c."""

    table: TablePosterior = field(repr=False)
    shape: float
    rate: Floats = field(repr=False)  # of the posterior given the count, shape (k,)
    is_scalar: bool = False  # True if results have no axis of components

    def mean(self) -> Floats | float:
        """Return the posterior mean of each rate."""
        return self._shaped((self.shape + self.table.mean()[: self.rate.size]) / self.rate)

    def std(self) -> Floats | float:
        """Return the posterior standard deviation of each rate."""
        k = self.rate.size
        return self._shaped(np.sqrt(self.shape + self.table.mean()[:k] + self.table.std()[:k] ** 2) / self.rate)

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of rates ≤ θ; `theta` broadcasts with the rates on its last axis."""
        values = real_array("theta", theta)
        values, _ = np.broadcast_arrays(values[..., None] if self.is_scalar else values, self.rate)
        return self._shaped(np.stack([self._cdf(j, values[..., j]) for j in range(self.rate.size)], axis=-1))

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of each rate, for probabilities in (0, 1)."""
        p, columns = validate_probabilities(probabilities), []
        for j, rate in enumerate(self.rate):
            shapes = self.shape + self.table.pmf(j)[0][[0, -1]]
            low, high = (special.gammaincinv(shape, p.ravel()) / rate for shape in shapes)
            columns.append([self._quantile(j, *limits) for limits in zip(p.ravel(), low, high, strict=True)])
        return self._shaped(np.moveaxis(np.reshape(columns, (self.rate.size, *p.shape)), 0, -1))

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent joint draws of the rates: first of the counts, then of θ."""
        counts = self.table.sample(rng, size)[:, : self.rate.size]
        return self._shaped(rng.standard_gamma(self.shape + counts) / self.rate)

    def _cdf(self, j: int, theta: Any) -> Floats:
        counts, weights = self.table.pmf(j)
        x = self.rate[j] * np.maximum(theta, 0.0)
        return weighted_sum(special.gammainc(self.shape + counts, np.asarray(x)[..., None]), weights)

    def _quantile(self, j: int, probability: float, low: float, high: float) -> float:
        """Return the quantile between `low` and `high`, or 0.0 if it is below the smallest positive number."""
        if self._cdf(j, _SMALLEST) >= probability:
            return 0.0
        limits = np.log(max(0.999 * low, _SMALLEST)), np.log(max(1.001 * high, 2.0 * _SMALLEST))
        log_quantile = optimize.brentq(lambda log: self._cdf(j, np.exp(log)) - probability, *limits, xtol=1e-13)
        return float(np.exp(log_quantile))

    def _shaped(self, values: Floats) -> Any:
        return values[..., 0][()] if self.is_scalar else values


def _require_counts(family: Family, exposure: ArrayLike | None) -> None:
    """Raise ValueError unless the family, with exposures or without, is one of counts."""
    if exposure is not None and family.name != "poisson":
        raise ValueError(f"family must be poisson for exposure, got {family.name}; pass n instead")
    if exposure is None and family.is_truncated:
        rule = "family must be binomial, multinomial, or poisson with exposure"
        raise ValueError(f"{rule}, got {family.name}; use SumRelease")


def _require_one_value_per_count(y: Floats, n_values: int) -> None:
    if y.size != n_values or y.ndim > 1 or np.isinf(y).any():
        raise ValueError(f"y must have one finite value per count, {n_values}, got {describe(y)}; pass NaN for others")


def _per_count(name: str, argument: Any, n_values: int) -> list[Any]:
    """Return one entry per value of `y`, of one entry or a sequence."""
    entries = list(argument) if isinstance(argument, list | tuple | np.ndarray) else [argument] * n_values
    if len(entries) != n_values:
        raise ValueError(
            f"{name} must be one or one per count, got {len(entries)} for {n_values} counts; pass {n_values}"
        )
    return entries


def _further(entry: Any) -> tuple[Any, Any, Noise | Exact, Any]:
    """Return node, value, noise and format of an entry of `more`, of which the noise is checked."""
    if not (isinstance(entry, tuple | list) and len(entry) in (3, 4)):
        raise ValueError(f"more must be a list of (node, value, noise, seen), got {describe(entry)}; pass tuples")
    node, value, noise, form = (*entry, "value")[:4]
    if not isinstance(noise, Noise | Exact):
        rule = "noise in more must be a Noise or EXACT"
        raise ValueError(f"{rule}, got {describe(noise)} for node {node!r}; pass a Noise")
    if isinstance(noise, Noise) and noise.sums_to_zero:
        rule = "noise in more must not be k-norm, which is that of all counts together"
        raise ValueError(f"{rule}, got it for node {node!r}; pass geometric noise of this scale for each count")
    return node, value, noise, form


def _exposures(exposure: ArrayLike, n_values: int) -> tuple[float, ...]:
    """Return the exposure of each count."""
    exposures = real_array("exposure", exposure)
    if exposures.ndim > 1 or exposures.size not in (1, n_values):
        rule = f"exposure must be one number, or one per count, {n_values}"
        raise ValueError(f"{rule}, got {describe(exposures)}; pass {n_values}")
    if not np.all(np.isfinite(exposures) & (exposures > 0)):
        raise ValueError(f"exposure must be finite and > 0, got {describe(exposure)}; pass one, or one per count")
    return tuple(np.broadcast_to(exposures, (n_values,)).tolist())
