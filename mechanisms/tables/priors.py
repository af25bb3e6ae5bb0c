"""Priors of the counts at the leaves of a table: products of weights w(x) at x = 0, 1, 2, ….

======================  ==========================================  ============================================
prior                   w(x) up to a constant                       use
======================  ==========================================  ============================================
negative_binomial       Γ(x + r)/x!·qˣ, q = mean/(mean + r)         counts of unknown, unequal size (Poisson–gamma)
poisson                 meanˣ/x!                                    counts of similar, known size
uniform                 1 for x ≤ upper                             no prior information
dirichlet_multinomial   Γ(x + α)/x!, given the total                shares θ ~ Dir(α) of a public total
======================  ==========================================  ============================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.core.arguments import Floats, Integers, describe, real_array, validate_positive
from mechanisms.tables.likelihoods import FAR, validate_count


@dataclass(frozen=True)
class Prior:
    """Prior of one count, or of all leaves of a table; built by the functions of `mechanisms.tables`."""

    name: str
    parameters: tuple[Any, ...]

    def __repr__(self) -> str:
        numbers = [number for number in self.parameters if number is not None]
        shown = [f"{number:g}" if isinstance(number, float) else f"{number}" for number in numbers]
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class PriorGrid:
    """Weighted priors, one of which all leaves have; built by `fit_prior`.

    Parameters
    ----------
    priors : tuple of Prior
        Points of the grid.
    weights : tuple of float
        Posterior probability of each point given the measurements of the table.
    prior_weights : tuple of float
        Probability of each point before the measurements: the density of the hyperprior times the area of the point.
        They sum to less than 1 if the grid omits points that the measurements exclude. Empty for equal probabilities.
    scale : float, optional
        Scale of the hyperprior of the mean, the median standard deviation of the noise of a leaf.
    """

    priors: tuple[Prior, ...]
    weights: tuple[float, ...]
    prior_weights: tuple[float, ...] = ()
    scale: float | None = None

    @property
    def before(self) -> Floats:
        """Probability of each point before the measurements."""
        return np.array(self.prior_weights or [1.0 / len(self.priors)] * len(self.priors))

    @property
    def information(self) -> float:
        """Kullback-Leibler divergence in nats of the posterior of the point from its hyperprior."""
        weights, before = np.array(self.weights), self.before
        kept = weights > 0.0
        return float((weights[kept] * np.log(weights[kept] / before[kept])).sum())

    def quantile(self, parameter: int, probability: float) -> float:
        """Return the smallest value of a parameter, 0 or 1, with at least a posterior probability up to it."""
        values = np.array([prior.parameters[parameter] for prior in self.priors])
        order = np.argsort(values, kind="stable")
        cumulative = np.cumsum(np.array(self.weights)[order])
        return float(values[order][min(int(np.searchsorted(cumulative, probability)), values.size - 1)])

    def __repr__(self) -> str:
        if self.scale is None:
            best = self.priors[int(np.argmax(self.weights))]
            return f"PriorGrid({len(self.priors)} priors, best {best} with weight {max(self.weights):.2g})"
        ends = [[self.quantile(parameter, p) for p in (0.025, 0.5, 0.975)] for parameter in (1, 0)]
        mean, shape = (f"{middle:.2g} ({low:.2g} to {high:.2g})" for low, middle, high in ends)
        return f"fitted negative binomial, mean {mean}, shape {shape}, hyperprior of scale {self.scale:.2g}"


@dataclass(frozen=True)
class GroupGrids:
    """Independent grids of priors, one per group of leaves below the roots; built by `fit_prior`.

    Parameters
    ----------
    nodes : tuple of int
        Nodes below whose parents, the roots, the groups are.
    grids : tuple of PriorGrid
        Grid of each group, with weights given the measurements in the group; a table mixes the points by their
        probabilities before all its measurements. All grids have the same number of points.
    """

    nodes: tuple[int, ...]
    grids: tuple[PriorGrid, ...]

    def __repr__(self) -> str:
        return f"GroupGrids({len(self.nodes)} groups, {len(self.grids[0].priors)} priors each)"


def negative_binomial(shape: float, mean: float) -> Prior:
    """Return the negative binomial prior: a Poisson count whose mean has a gamma distribution.

    Shape r and mean are finite and > 0; the variance is mean + mean²/r.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> negative_binomial(0.6, 12)
    negative_binomial(0.6, 12)
    """
    return Prior("negative_binomial", (_positive("shape", shape), _positive("mean", mean)))


def poisson(mean: float) -> Prior:
    """Return the Poisson prior with a mean that is finite and > 0.

    Raises
    ------
    ValueError
        If the mean is invalid.

    Examples
    --------
    >>> poisson(12)
    poisson(12)
    """
    return Prior("poisson", (_positive("mean", mean),))


def _positive(name: str, value: float) -> float:
    return validate_positive(name, value, "pass a finite number > 0")


def uniform(upper: int | None = None) -> Prior:
    """Return the uniform prior on 0, …, `upper`; without `upper` it is improper, and a value must bound the count.

    Raises
    ------
    ValueError
        If `upper` is not an integer from 0 to 2⁵².

    Examples
    --------
    >>> uniform(10)
    uniform(10)
    """
    return Prior("uniform", (None if upper is None else validate_count("upper", upper, "pass a bound of the count"),))


def dirichlet_multinomial(alpha: ArrayLike) -> Prior:
    """Return the prior of counts whose shares of a public total are θ ~ Dir(α).

    α is finite and > 0: one for all leaves, or one per leaf in the order of the nodes.

    Raises
    ------
    ValueError
        If an entry is invalid.

    Examples
    --------
    >>> dirichlet_multinomial(0.5)
    dirichlet_multinomial(0.5)
    """
    values = real_array("alpha", alpha)
    if values.ndim > 1 or values.size == 0 or not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(f"alpha must be finite numbers > 0, one or one per leaf, got {describe(alpha)}; check alpha")
    return Prior("dirichlet_multinomial", tuple(values.ravel().tolist()))


class Weights(NamedTuple):
    """Log weights of leaves, ln Γ(x + r) − ln Γ(r) − ln x! + x·rate + constant, or −ln x! + … for a Poisson prior.

    All arrays have one entry per node; r is 0 for a Poisson prior and 1 for a uniform prior and for inner nodes.
    """

    r: Floats
    rate: Floats
    constant: Floats
    upper: Integers
    is_dirichlet: np.ndarray
    is_improper: np.ndarray

    def log(self, x: Floats | Integers, is_exact: Any = True) -> Floats:
        """Return log weights at x, of shape (nodes, …); if not `is_exact`, r < 1 is 1, which makes them log-concave."""
        r, rate, constant = (column.reshape(-1, *[1] * (np.ndim(x) - 1)) for column in self[:3])
        r = np.where(is_exact | (r == 0.0), r, np.maximum(r, 1.0))
        log_weight = np.zeros(np.broadcast_shapes(r.shape, np.shape(x)))
        has_coefficient = (r != 1.0).ravel()
        if has_coefficient.any():
            counts = np.broadcast_to(x, log_weight.shape)[has_coefficient]
            log_weight[has_coefficient] = log_coefficient(r[has_coefficient], counts)
        return log_weight + x * rate + constant

    def log_ratio(self, x: Floats) -> Floats:
        """Return ln w(x + 1) − ln w(x), at one x per node, of the log-concave weights."""
        return self.rate + np.where(self.r == 0.0, -np.log1p(x), np.log1p((np.maximum(self.r, 1.0) - 1.0) / (x + 1.0)))

    def mean(self) -> Floats:
        """Return about the mean of each prior; r if it is improper."""
        falls = (self.r > 0.0) & (self.rate < 0.0)
        mean = np.where(self.r == 0.0, np.exp(np.minimum(self.rate, 600.0)), self.r)
        return np.where(falls, self.r / np.where(falls, np.expm1(-np.minimum(self.rate, 0.0)), 1.0), mean)


def log_coefficient(r: Floats, x: Floats | Integers) -> Floats:
    """Return ln Γ(x + r) − ln Γ(r) − ln x!, or −ln x! if r is 0, at counts x, for columns r."""
    at: Any = ...
    if x.max() < x.size - 1 and np.all(r == r.flat[0]):  # many equal counts
        at, r, x = x.astype(np.int64), r.flat[:1], np.arange(x.max() + 1.0)
    # by the beta function, as the difference of gamma functions has no digits for a large r
    beta = -special.betaln(np.where(r > 0.0, r, 1.0), x + 1.0) - np.log(x + np.where(r > 0.0, r, 1.0))
    return np.where(r > 0.0, beta, -special.gammaln(x + 1.0))[at]


def leaf_weights(prior: Prior | Sequence[Prior], leaves: Integers, size: int) -> Weights:
    """Return the weights of leaves, for `size` nodes, after checking that there is one prior, or one per leaf."""
    priors: Sequence[Any] = prior if isinstance(prior, list | tuple) else [prior]
    rows: list[tuple[Any, ...]] = []
    for leaf_prior in priors:
        if not isinstance(leaf_prior, Prior):
            raise ValueError(f"prior must be a prior or one per leaf, got {describe(leaf_prior)}; use e.g. uniform()")
        a = leaf_prior.parameters
        if leaf_prior.name == "negative_binomial":
            rows.append((a[0], -np.log1p(a[0] / a[1]), -a[0] * np.log1p(a[1] / a[0]), FAR, False, False))
        elif leaf_prior.name == "poisson":
            rows.append((0.0, np.log(a[0]), -a[0], FAR, False, False))
        elif leaf_prior.name == "uniform":
            rows.append((1.0, 0.0, 0.0, FAR, False, True) if a[0] is None else
                        (1.0, 0.0, -np.log(a[0] + 1.0), a[0], False, False))  # fmt: skip
        else:
            rows += [(alpha, 0.0, 0.0, FAR, True, True) for alpha in a]
    if len(rows) not in (1, leaves.size) or len(rows) != len(priors) > 1:
        raise ValueError(
            f"prior, or alpha, must be one or one per leaf, got {len(rows)} for {leaves.size} leaves; pass "
            f"{leaves.size}"
        )
    columns = [np.full(size, default) for default in (1.0, 0.0, 0.0, FAR, False, False)]
    for column, values in zip(columns, zip(*rows, strict=True), strict=True):
        column[leaves] = values
    return Weights(*columns)
