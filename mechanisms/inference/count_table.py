"""Posteriors given several noisy values of the same counts: cells, their total, and repeated releases of either.

`CountTable` states a model with k counts x₁, …, xₖ, and `mechanisms.tables` computes their posterior.

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

from mechanisms.core.arguments import Floats, describe, real_array
from mechanisms.core.noise import Exact, Noise
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee, Neighbouring
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.core.sums import weighted_sum
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.families import MODELS, Family
from mechanisms.inference.release_model import is_unlikely
from mechanisms.tables import Prior, TablePosterior, Theta, dirichlet_multinomial, negative_binomial, table_posterior
from mechanisms.tables.formats import Seen, Suppressed
from mechanisms.tables.tree import k_norm_constant

_DRAWS = 4, 5_000  # numbers of chains and of independent draws per chain
_PAIRS = 1 << 17  # largest number of pairs of a count and the total with which θ is not drawn if n is unknown
_VAGUE = 1e10  # mean over shape of the prior of counts if n is unknown
_FAR = 1e6  # largest distance of a value from the possible counts, in scales of pure noise

Measurement: TypeAlias = tuple[int, float, Noise | Exact, Seen]  # (node, value, noise, format); node k is the total


def solve_counts(
    k: int, measured: Sequence[Measurement], prior: Prior | Sequence[Prior], n: int | None
) -> TablePosterior:
    """Return the posterior of k counts, the leaves 0, …, k − 1 of a tree; node k is their total.

    A second value of a node is that of a new parent, of which the node is the only child.
    """
    values, parents = np.full(k + 1, np.nan).tolist(), [*([k] * k), -1]
    noise: list[Noise | Exact | None] = [None] * (k + 1)
    seen: list[Seen] = ["value"] * (k + 1)
    top = list(range(k + 1))
    for node, value, one, form in measured:
        if noise[node] is None:
            values[node], noise[node], seen[node] = value, one, form
        else:
            parents.append(parents[top[node]])
            parents[top[node]] = top[node] = len(values)
            values, noise, seen = [*values, value], [*noise, one], [*seen, form]
    return table_posterior(values, noise, parents, prior, n=n, seen=seen)


@dataclass(frozen=True)
class CountTable:
    """Model of noisy values of k counts and of their total."""

    family: str
    n: int | None  # public number of records
    k: int
    measured: tuple[Measurement, ...]
    exposure: tuple[float, ...] | None  # of each Poisson count
    is_scalar: bool  # True if θ is a number
    relation: Neighbouring = Neighbouring.REPLACE_ONE
    log_constant: float = 0.0  # to add to ln p(y), for K-norm noise replaced by geometric noise

    @property
    def entry(self) -> Family:
        """Entry of the family in `MODELS`."""
        return MODELS[self.family]

    @property
    def guarantee(self) -> Guarantee | ConcentratedGuarantee | None:
        """Guarantee of all values together, ε-DP or ρ-zCDP; None if a value has no noise.

        One record changes one count by one under addition or removal, and two under replacement; for Poisson counts,
        it may also be replaced by one that is not counted. Losses of pure and of Gaussian noise are bounded separately.
        """
        losses = np.zeros((2, self.k + 1))
        for node, _, noise, _ in self.measured:
            if isinstance(noise, Exact):
                return None
            losses[int(not noise.is_pure), node] += noise.scale ** -float(noise.power) / noise.power
        total, largest = losses[:, -1], -np.sort(-losses[:, :-1], axis=1)[:, :2]
        one, two = largest[:, 0] + total, largest.sum(axis=1)
        if self.relation is Neighbouring.ADD_OR_REMOVE_ONE:
            epsilon, rho = one
        else:
            epsilon, rho = np.maximum(one, two) if self.exposure else two
        if rho == 0.0:
            return Guarantee(float(epsilon), relation=self.relation)
        return ConcentratedGuarantee(float(rho + 0.5 * epsilon**2), relation=self.relation)

    def is_surprising(self, release: ArrayLike) -> bool:
        """Return True if a value is so far outside the possible counts that the noise hardly explains it."""
        most = np.inf if self.n is None else self.n
        given = [(value, noise) for _, value, noise, _ in self.measured if isinstance(noise, Noise)]
        return any(is_unlikely(noise, abs(value - min(max(value, 0.0), most))) for value, noise in given)

    def posterior(self, prior: ArrayLike, rng: np.random.Generator | None) -> tuple[Posterior, TablePosterior]:
        """Return the posteriors of θ and of the counts; without n, that of θ is exact for small counts only."""
        first, priors = tuple(self.entry.validate_prior(prior)), None
        if self.exposure is not None:
            priors = [negative_binomial(first[0], first[0] * one / first[1]) for one in self.exposure]
        elif self.n is None:
            priors = [negative_binomial(one, _VAGUE * one) for one in first]
        table = solve_counts(self.k, self.measured, priors or dirichlet_multinomial(first), self.n)
        if self.exposure is not None:
            return Rates(table, first[0], first[1] + np.array(self.exposure), self.is_scalar), table
        if self.n is not None:
            table = replace(table, log_marginal_likelihood=table.log_marginal_likelihood + self.log_constant)
        else:
            sizes = [table.pmf(node)[0].size for node in range(table.parents.size)]
            if sizes[int(np.flatnonzero(table.parents < 0)[0])] * sum(sizes) > _PAIRS:
                assert rng is not None
                draws = rng.standard_gamma(np.array(first) + table.sample(rng, _DRAWS[0] * _DRAWS[1])[:, : self.k])
                shares = (draws / draws.sum(axis=1, keepdims=True)).reshape(*_DRAWS, self.k)
                return DrawnPosterior(shares[..., 0] if self.is_scalar else shares), table
        theta = Theta(table, np.arange(self.k))
        return (theta.marginals[0] if self.is_scalar else theta), table  # type: ignore[return-value]


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
            columns.append([
                optimize.brentq(lambda x, q=q, j=j: self._cdf(j, x) - q, 0.999 * a, 1.001 * b, xtol=1e-300, rtol=1e-13)
                for q, a, b in zip(p.ravel(), low, high, strict=True)
            ])  # fmt: skip
        return self._shaped(np.moveaxis(np.reshape(columns, (self.rate.size, *p.shape)), 0, -1))

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent joint draws of the rates: first of the counts, then of θ."""
        counts = self.table.sample(rng, size)[:, : self.rate.size]
        return self._shaped(rng.standard_gamma(self.shape + counts) / self.rate)

    def _cdf(self, j: int, theta: Any) -> Floats:
        counts, weights = self.table.pmf(j)
        x = self.rate[j] * np.maximum(theta, 0.0)
        return weighted_sum(special.gammainc(self.shape + counts, np.asarray(x)[..., None]), weights)

    def _shaped(self, values: Floats) -> Any:
        return values[..., 0][()] if self.is_scalar else values


def count_table(
    family: Family, y: Floats, k: int, n: int | None, noise: Noise | Exact | Sequence[Noise | Exact],
    seen: Seen | Sequence[Seen] | None, exposure: ArrayLike | None, more: Sequence[tuple[Any, ...]],
    relation: Neighbouring,
) -> CountTable:  # fmt: skip
    """Return the model of the released counts y and of the values of `more`, after checking them."""
    n_values = 1 if family.name == "binomial" else k
    if y.size != n_values or y.ndim > 1 or np.isinf(y).any():
        raise ValueError(f"y must have one finite value per count, {n_values}, got {describe(y)}; pass NaN for others")
    kinds, formats = _each("noise", noise, n_values), _each("seen", "value" if seen is None else seen, n_values)
    given: list[tuple[Any, ...]] = list(zip(range(n_values), y.ravel().tolist(), kinds, formats, strict=True))
    for one in more:
        if not (isinstance(one, tuple | list) and len(one) in (3, 4)):
            raise ValueError(f"more must be a list of (node, value, noise, seen), got {describe(one)}; pass tuples")
        given.append((*one, "value")[:4])
    measured, log_constant = [], 0.0
    for node, value, kind, form in given:
        place = k if isinstance(node, str) and node == "total" else node
        if not (isinstance(place, int | np.integer) and (0 <= place < k or node == "total")):
            raise ValueError(f"node must be 'total' or a count from 0 to {k - 1}, got {node!r}; pass one of them")
        number = float(real_array("value", value))
        if isinstance(kind, Noise) and kind.power == 1 and form in ("value", "clipped"):
            reach = np.floor(_FAR * kind.scale)  # further away, the likelihood depends on rounding alone
            number = float(np.clip(number, -reach, np.inf if n is None else n + reach))
        if isinstance(kind, Noise) and kind.sums_to_zero:
            if node not in range(n_values) or family.name != "multinomial" or y.sum() != n:
                raise ValueError("k-norm noise must be that of all counts, with sum n; pass geometric noise and n")
            log_constant = k_norm_constant(kind.scale, k)
            kind = Noise("geometric", kind.scale)  # the same, given n
        measured.append((int(place), number, kind, form))
    nodes = {place for place, number, _, form in measured if isinstance(form, Suppressed) or not np.isnan(number)}
    if n is None and exposure is None and k not in nodes and len(nodes) < k:
        raise ValueError("n must be given unless all counts or their total have values, got None; pass n or the total")
    exposures: tuple[float, ...] | None = None
    if exposure is not None:
        values = np.broadcast_to(real_array("exposure", exposure), (k,))
        if not np.all(np.isfinite(values) & (values > 0)):
            raise ValueError(f"exposure must be finite and > 0, got {describe(exposure)}; pass one, or one per count")
        exposures = tuple(values.tolist())
    is_scalar = family.name == "binomial" or (exposure is not None and y.ndim == 0)
    return CountTable(family.name, n, k, tuple(measured), exposures, is_scalar, relation, log_constant)


def _each(name: str, given: Any, k: int) -> list[Any]:
    """Return one entry per count, of one entry or a sequence of k."""
    entries = list(given) if isinstance(given, list | tuple | np.ndarray) else [given] * k
    if len(entries) != k:
        raise ValueError(f"{name} must be one or one per count, got {len(entries)} for {k} counts; pass {k}")
    return entries
