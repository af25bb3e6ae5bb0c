"""Audits of distributions with densities: Dirichlet posteriors in closed form, univariate densities by quadrature.

A density f is represented by the masses f(x)·w at the nodes x with weights w of a quadrature rule. Then
Σ p^λ·q^(1−λ) over the nodes is the quadrature of the integral, and the audited Rényi curve is that of the densities,
with the evidence "quadrature". Atoms, outputs with positive probability, are nodes with weight 1.

The largest ratio over the nodes is only a lower bound on the pure loss. For the distributions here the pure loss is
infinite, as ratios of two Dirichlet or two normal densities are unbounded. The audits report it as inf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.core.arguments import Floats
from mechanisms.core.conjugate import enumerate_candidates, neighbouring_pairs
from mechanisms.core.exact_losses import Audit, OutputDistributions, Witness, audit_distributions
from mechanisms.core.privacy_parameters import validate_order
from mechanisms.draws.dirichlet_divergence import dirichlet_renyi
from mechanisms.draws.gaussian_counts import GaussianCounts
from mechanisms.draws.tempered import RenyiSampling

_NEGLIGIBLE = 45.0  # integrands are truncated at exp(-45) of their maximum
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def audit_posteriors(parameters: ArrayLike, pairs: ArrayLike, orders: Sequence[float]) -> Audit:
    """Audit the Dirichlet distributions of neighbouring data sets by the closed form of the Rényi divergence."""
    # Each unordered pair is listed once, and both directions are compared. The pure loss is infinite, as for any two
    # different Dirichlet distributions. The witness is the pair with the largest divergence at the first order; its
    # output is the category whose probability tends to 0 where the density ratio diverges.
    distributions = np.asarray(parameters, dtype=np.float64)
    lam = [validate_order(order) for order in orders]
    if not lam:
        raise ValueError("orders must contain at least one order, got none; pass e.g. [2]")
    index = OutputDistributions(distributions, distributions, np.asarray(pairs), distributions.__getitem__).pairs
    ordered_pairs = np.concatenate([index, index[:, ::-1]])
    of_first, of_second = distributions[ordered_pairs[:, 0]], distributions[ordered_pairs[:, 1]]
    divergences = [dirichlet_renyi(of_first, of_second, order) for order in lam]
    first, second = (distributions[i] for i in ordered_pairs[int(np.argmax(divergences[0]))])
    category = int(np.argmin(first - second))
    witness = Witness(first, second, f"a draw with probability of category {category} close to 0", math.inf)
    renyi = {order: float(values.max()) for order, values in zip(lam, divergences, strict=True)}
    return Audit(math.inf, witness, {}, renyi, len(index), n_outputs=0, evidence="closed form")


def audit_sampling(mechanism: RenyiSampling, orders: Sequence[float]) -> Audit:
    """Audit one posterior draw over all data sets of n private records by the closed form of the Rényi divergence."""
    candidates = enumerate_candidates(mechanism.n, len(mechanism.prior))
    datasets, pairs = neighbouring_pairs(np.arange(1.0, len(mechanism.prior) + 1), candidates)
    return audit_posteriors(mechanism.posterior(datasets), pairs, orders)


def audit_densities(distributions: OutputDistributions, orders: Sequence[float]) -> Audit:
    """Audit densities that are represented by masses at quadrature nodes; their pure loss is infinite."""
    return replace(audit_distributions(distributions, orders=orders), epsilon=math.inf, evidence="quadrature")


def beta_distributions(parameters: ArrayLike, pairs: ArrayLike, order: float) -> OutputDistributions:
    """Represent Beta distributions, shape (D, 2), by masses at quadrature nodes, for divergences up to `order`.

    The outputs are the log odds φ of θ, with density e^(aφ)/(1 + e^φ)^(a+b)/B(a, b). With φ = sinh τ the integrands
    p^λ·q^(1−λ) decay double-exponentially, and all their poles have |Im τ| = π/2. The trapezoidal rule converges like
    exp(−π²/h) once the step h is well below the width of the integrands, which is at least 2/√(a+b) in φ.
    """
    distributions, lam = np.asarray(parameters, dtype=np.float64), validate_order(order)
    index = np.asarray(pairs)
    first, second = (distributions[np.concatenate([index[:, i], index[:, 1 - i]])] for i in (0, 1))
    smallest = min(float((first + (lam - 1) * (first - second)).min()), float(distributions.min()))
    if not smallest > 0:
        raise ValueError(f"order must give finite divergences, got {order}; choose a smaller order")
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
    """Represent the distributions of the released number of successes, for k = 2, by masses at quadrature nodes.

    The outputs 0 and n have positive probability. Clamping reduces no divergence if clamped values are improbable.
    """
    if len(mechanism.prior) != 2:
        raise ValueError(f"mechanism must have 2 categories, got {len(mechanism.prior)}; use its closed-form guarantee")
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
