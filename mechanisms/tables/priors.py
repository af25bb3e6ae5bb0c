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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.arguments import describe, real_array, validate_integer, validate_positive
from mechanisms.tables.formats import FAR

__all__ = [
    "Prior", "PriorGrid", "Weights", "dirichlet_multinomial", "leaf_weights", "negative_binomial", "poisson", "uniform"
]  # fmt: skip

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Prior:
    """Prior of one count, or of all leaves of a table; built by the functions of `mechanisms.tables`."""

    name: str
    parameters: tuple[Any, ...]

    def __repr__(self) -> str:
        shown = [f"{one:g}" if isinstance(one, float) else f"{one}" for one in self.parameters]
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class PriorGrid:
    """Weighted priors, one of which all leaves have; built by `fit_prior`.

    Parameters
    ----------
    priors : tuple of Prior
        Points of the grid.
    weights : tuple of float
        Posterior probability of each point.
    """

    priors: tuple[Prior, ...]
    weights: tuple[float, ...]

    def __repr__(self) -> str:
        best = self.priors[int(np.argmax(self.weights))]
        return f"PriorGrid({len(self.priors)} priors, best {best} with weight {max(self.weights):.2g})"


def negative_binomial(shape: float, mean: float) -> Prior:
    """Return the negative binomial prior: a Poisson count whose mean has a gamma distribution.

    Parameters
    ----------
    shape : float
        r, finite and > 0; the variance is mean + mean²/r.
    mean : float
        Mean of the count, finite and > 0.

    Returns
    -------
    Prior

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> negative_binomial(0.6, 12)
    negative_binomial(0.6, 12)
    """
    return Prior("negative_binomial", tuple(
        validate_positive(name, value, "pass a finite number > 0") for name, value in (("shape", shape), ("mean", mean))
    ))  # fmt: skip


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
    return Prior("poisson", (validate_positive("mean", mean, "pass a finite number > 0"),))


def uniform(upper: int | None = None) -> Prior:
    """Return the uniform prior on 0, …, `upper`; without `upper` it is improper, and a value must bound the count.

    Raises
    ------
    ValueError
        If `upper` is not an integer ≥ 0.

    Examples
    --------
    >>> uniform(10)
    uniform(10)
    """
    return Prior("uniform", (None if upper is None else validate_integer("upper", upper, 0),))


def dirichlet_multinomial(alpha: ArrayLike) -> Prior:
    """Return the prior of counts whose shares of a public total are θ ~ Dir(α).

    Parameters
    ----------
    alpha : float or array_like
        α, finite and > 0: one for all leaves, or one per leaf in the order of the nodes.

    Returns
    -------
    Prior

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


@dataclass(frozen=True, eq=False, repr=False)
class Weights:
    """Log weights of the leaves, ln Γ(x + r) − ln x! + x·rate + constant, without ln Γ(x + r) for a Poisson prior.

    All arrays have one entry per leaf; r is 0 for a Poisson prior and 1 for a uniform prior.
    """

    r: Floats
    rate: Floats
    constant: Floats
    upper: Integers
    is_dirichlet: NDArray[np.bool_]
    is_improper: NDArray[np.bool_]

    def log(self, leaf: Integers, x: Floats | Integers, convex: bool = True) -> Floats:
        """Return log weights; without `convex`, r < 1 is replaced by 1, which makes them log-concave."""
        r = self.r[leaf] if convex else np.where(self.r[leaf] > 0, np.maximum(self.r[leaf], 1.0), 0.0)
        plain = np.all(r == 1.0)
        gamma = 0.0 if plain else np.where(r > 0, special.gammaln(x + np.where(r > 0, r, 1.0)), 0.0)
        gamma = gamma if plain else gamma - special.gammaln(x + 1.0)
        return gamma + x * self.rate[leaf] + self.constant[leaf]


def leaf_weights(prior: Prior | Sequence[Prior], leaves: Integers) -> Weights:
    """Return the weights of the leaves after checking that there is one prior, or one per leaf."""
    n = leaves.size
    r, rate, constant = np.ones(n), np.zeros(n), np.zeros(n)
    upper, dirichlet, improper = np.full(n, FAR, np.int64), np.zeros(n, bool), np.zeros(n, bool)
    many: list[Any] = (
        [prior] if isinstance(prior, Prior) else list(prior) if isinstance(prior, list | tuple) else [prior]
    )
    for one in many:
        if not isinstance(one, Prior):
            raise ValueError(f"prior must be a prior or one per leaf, got {describe(one)}; use e.g. uniform()")
    if len(many) not in (1, n):
        raise ValueError(f"prior must be one or one per leaf, got {len(many)} for {n} leaves; pass {n}")
    parts = [(many[0], slice(None))] if len(many) == 1 else [(one, slice(i, i + 1)) for i, one in enumerate(many)]
    for one, where in parts:
        p = one.parameters
        if one.name == "negative_binomial":
            r[where], rate[where] = p[0], -np.log1p(p[0] / p[1])
            constant[where] = -p[0] * np.log1p(p[1] / p[0]) - special.gammaln(p[0])
        elif one.name == "poisson":
            r[where], rate[where], constant[where] = 0.0, np.log(p[0]), -p[0]
        elif one.name == "uniform":
            if p[0] is None:
                improper[where] = True
            else:
                upper[where], constant[where] = p[0], -np.log(p[0] + 1.0)
        else:
            if len(p) not in (1, n if where == slice(None) else 1):
                raise ValueError(f"alpha must have one entry or one per leaf, got {len(p)} for {n} leaves; pass {n}")
            r[where] = p
            constant[where], dirichlet[where], improper[where] = -special.gammaln(p), True, True
    return Weights(r, rate, constant, upper, dirichlet, improper)
