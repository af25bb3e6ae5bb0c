"""Audits of distributions with densities: Dirichlet posteriors by their closed form, densities on the line by quadrature.

A distribution with a density f is handed to the audit engine as the masses f(x)·w at the nodes x and weights w of a quadrature
rule: Σ p^λ·q^(1−λ) over nodes is then the quadrature of the integral, and the engine's Rényi curve is that of the
densities, with the evidence "quadrature". Outputs of positive probability are nodes of weight 1.

The pure loss on nodes is only the loss of those nodes. For the distributions here it is infinite: the ratio of two Dirichlet
densities or of two normal ones has no bound, and the audits say so. So no pure ε is stated, and none is audited.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.audit import Audit, OutputDistributions, Witness, audit_distributions
from mechanisms.conjugate import enumerate_candidates
from mechanisms.neighbours import neighbouring_pairs
from mechanisms.privacy import validate_order
from mechanisms.renyi.divergence import dirichlet_renyi
from mechanisms.renyi.gaussian_counts import GaussianCounts
from mechanisms.renyi.sampling import RenyiSampling

__all__ = ["audit_densities", "audit_posteriors", "audit_sampling", "beta_distributions", "gaussian_distributions"]

Floats = NDArray[np.float64]

_NEGLIGIBLE = 45.0  # integrands are followed to exp(-45) of their peak
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def audit_posteriors(parameters: ArrayLike, pairs: ArrayLike, orders: Sequence[float]) -> Audit:
    """Compare Dirichlet distributions, by the closed form of the Rényi divergence.

    Parameters
    ----------
    parameters : array_like, shape (D, k)
        One distribution a data set, finite and > 0.
    pairs : array_like of int, shape (P, 2)
        Which data sets are neighbours, each unordered pair once; both directions are compared.
    orders : sequence of float
        λ, finite and ≥ 1, at least one.

    Returns
    -------
    Audit
        Its pure loss is infinite, as that of any two different Dirichlet distributions: the witness is the pair with the largest
        divergence at the last order, and the cell whose probability must fall to 0. Its evidence is "closed form".

    Raises
    ------
    ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> found = audit_posteriors([[6.0, 8.0], [7.0, 7.0], [8.0, 6.0]], [[0, 1], [1, 2]], orders=[1, 2, 7])
    >>> print({order: round(spent, 4) for order, spent in found.renyi.items()}, found.epsilon)
    {1.0: 0.1554, 2.0: 0.3159, 7.0: inf} inf
    """
    distributions = np.asarray(parameters, dtype=np.float64)
    lam = [validate_order(order) for order in orders]
    if not lam:
        raise ValueError("orders must hold at least one order, got none; choose some, such as 2")
    index = OutputDistributions(distributions, distributions, np.asarray(pairs), distributions.__getitem__).pairs
    both = np.concatenate([index, index[:, ::-1]])
    divergences = [dirichlet_renyi(distributions[both[:, 0]], distributions[both[:, 1]], order) for order in lam]
    first, second = (distributions[i] for i in both[int(np.argmax(divergences[0]))])
    cell = int(np.argmin(first - second))
    return Audit(
        epsilon=math.inf,
        witness=Witness(first, second, f"a draw with probability of cell {cell} close to 0", math.inf),
        deltas={},
        renyi={order: float(values.max()) for order, values in zip(lam, divergences, strict=True)},
        n_pairs=len(index),
        n_outputs=0,
        evidence="closed form",
    )


def audit_sampling(mechanism: RenyiSampling, orders: Sequence[float]) -> Audit:
    """Compare one draw at all neighbours of a mechanism, by the closed form.

    Parameters
    ----------
    mechanism : RenyiSampling
    orders : sequence of float
        λ, finite and ≥ 1.

    Returns
    -------
    Audit
        See `audit_posteriors`; over every data set of the mechanism's n private records.

    Raises
    ------
    ValueError
        If an order is not allowed, or the data sets are too many to enumerate.

    Examples
    --------
    >>> from mechanisms.renyi.sampling import calibrate_renyi
    >>> mechanism = calibrate_renyi("diffused", [1, 2, 3], n=5, order=2, epsilon=0.1)
    >>> print(audit_sampling(mechanism, [2]).check(mechanism.guarantee(2)).text)
    within (2, 0.1)-RDP: reaches 0.1, slack 0
    """
    candidates = enumerate_candidates(mechanism.n, len(mechanism.prior))
    datasets, pairs = neighbouring_pairs(np.arange(1.0, len(mechanism.prior) + 1), candidates)
    return audit_posteriors(mechanism.posterior(datasets), pairs, orders)


def audit_densities(distributions: OutputDistributions, orders: Sequence[float]) -> Audit:
    """Compare distributions on the nodes of a quadrature rule, whose densities have ratios without bound.

    Parameters
    ----------
    distributions : OutputDistributions
        Masses at nodes: `beta_distributions`, `gaussian_distributions`, or others built alike.
    orders : sequence of float
        λ, finite and ≥ 1.

    Returns
    -------
    Audit
        With an infinite pure loss, and the ratio at the node where it is largest as its witness.

    Raises
    ------
    ValueError
        As `audit_distributions`: among others if a distribution's masses do not sum to 1, for the rule does not fit.
    """
    return replace(audit_distributions(distributions, orders=orders), epsilon=math.inf, evidence="quadrature")


def beta_distributions(parameters: ArrayLike, pairs: ArrayLike, order: float) -> OutputDistributions:
    """Return Beta distributions as masses at quadrature nodes that suit their divergences at orders up to `order`.

    Parameters
    ----------
    parameters : array_like, shape (D, 2)
        One distribution a data set, finite and > 0.
    pairs : array_like of int, shape (P, 2)
        Which data sets are neighbours.
    order : float
        The largest order at which they are to be compared, below the one from which a divergence is infinite.

    Returns
    -------
    OutputDistributions
        The outputs are the log odds φ of θ, at which a distribution has the density e^(aφ)/(1 + e^φ)^(a+b)/B(a, b).

    Raises
    ------
    ValueError
        If an argument is not allowed, or a divergence at `order` is infinite.

    Notes
    -----
    In φ = sinh τ the integrands p^λ·q^(1−λ) fall double-exponentially, however small a parameter is, and all their
    poles have |Im τ| = π/2: the trapezoidal rule converges like exp(−π²/h) once the step h is well below their width,
    which is at least 2/√(a+b) in φ.

    Examples
    --------
    >>> distributions = beta_distributions([[0.5, 2.5], [1.5, 1.5], [2.5, 0.5]], [[0, 1], [1, 2]], order=1.4)
    >>> quadrature, closed_form = audit_densities(distributions, [1.4]), audit_posteriors(distributions.datasets, distributions.pairs, [1.4])
    >>> print(round(quadrature.renyi[1.4], 9), round(closed_form.renyi[1.4], 9))
    3.897723833 3.897723833
    """
    distributions, lam = np.asarray(parameters, dtype=np.float64), validate_order(order)
    index = np.asarray(pairs)
    first, second = (distributions[np.concatenate([index[:, i], index[:, 1 - i]])] for i in (0, 1))
    smallest = min(float((first + (lam - 1) * (first - second)).min()), float(distributions.min()))
    if not smallest > 0:
        raise ValueError(f"order must be below that of an infinite divergence, got {order}; choose a smaller one")
    total = float(distributions.sum(axis=1).max())
    step = min(1 / 32, 1 / (4 * math.sqrt(total)))
    n_steps = math.ceil(math.asinh((_NEGLIGIBLE + total) / smallest) / step)
    tau = step * np.arange(-n_steps, n_steps + 1)
    phi, log_weights = np.sinh(tau), math.log(step) + np.log(np.cosh(tau))

    def log_pmf(i: int) -> Floats:
        a, b = distributions[i]
        return a * phi - (a + b) * np.logaddexp(0.0, phi) - special.betaln(a, b) + log_weights

    return OutputDistributions(distributions, phi, index, log_pmf)


def gaussian_distributions(mechanism: GaussianCounts) -> OutputDistributions:
    """Return the distributions of the released number of successes at k = 2, as masses at quadrature nodes.

    Parameters
    ----------
    mechanism : GaussianCounts
        Of two cells.

    Returns
    -------
    OutputDistributions
        Of the data sets with 0 to n successes. The outputs are 0 and n, which have positive probability, and the nodes
        between them.

    Raises
    ------
    ValueError
        If there are more than two cells.

    Examples
    --------
    The published variance spends half of ε; clamping hides nothing where no clamped value is likely:

    >>> from mechanisms.renyi.gaussian_counts import gaussian_mechanism
    >>> for name in ("gaussian", "gaussian-tight"):
    ...     distributions = gaussian_distributions(gaussian_mechanism(name, [1, 1], 40, order=2, epsilon=0.5))
    ...     print(name, round(audit_densities(distributions, [2]).renyi[2], 9))
    gaussian 0.25
    gaussian-tight 0.5
    """
    if len(mechanism.prior) != 2:
        raise ValueError(
            f"mechanism must have 2 cells, got {len(mechanism.prior)}; audit the noise of more by its proof"
        )
    n, std = mechanism.n, mechanism.noise_std / math.sqrt(2.0)
    edges = np.linspace(0.0, n, 2 + int(n / (2.0 * std)))
    half = edges[1] / 2
    inner = ((edges[:-1, None] + half) + half * _NODES).ravel()
    log_weights = np.log(np.tile(half * _WEIGHTS, edges.size - 1)) - math.log(std * math.sqrt(2.0 * math.pi))

    def log_pmf(successes: int) -> Floats:
        ends = special.log_ndtr(np.array([-successes, successes - n]) / std)
        density = -(((inner - successes) / std) ** 2) / 2 + log_weights
        return np.concatenate([ends[:1], density, ends[1:]])

    datasets = np.arange(n + 1)
    return OutputDistributions(
        datasets, np.concatenate([[0.0], inner, [float(n)]]), np.stack([datasets[:-1], datasets[1:]], 1), log_pmf
    )
