"""Rényi-DP posterior sampling from a Dirichlet posterior (P3, section 3): release of one draw of a tempered posterior.

With prior Dir(α), counts c of n private records and counts u of public records, if any, the draw is from Dir(η + s·c),
for a coefficient in (0, 1]:

================  ===========================  =====================  ===================
name              posterior                    η                      s
================  ===========================  =====================  ===================
`direct`          α + u + c (Algorithm 1)      α + u                  1
`diffused`        α + r(u + c) (Algorithm 2)   α + r·u                r, the coefficient
`concentrated`    α/m + u + c (Algorithm 3)    α/m + u                1, m the coefficient
================  ===========================  =====================  ===================

**Exact divergence.** Replacing a record of category i by one of category j leaves n − 1 shared records with counts c°.
With x = η + s·c° the distributions are P = Dir(x + s·eᵢ) and Q = Dir(x + s·eⱼ). Their totals are equal, so that

    D_λ(P‖Q) = F₊(xᵢ) + F₋(xⱼ),   F₊(x) = `cell_renyi`(x, s),   F₋(x) = `cell_renyi`(x + s, −s).

Both are s²·∫ k(t)·ψ₁(y ± ts) dt over [0, λ], y the first argument, with kernel k(t) = t for t ≤ 1 and
(λ − t)/(λ − 1) for t > 1. They are decreasing and convex in x, as is the trigamma function ψ₁. For k ≥ 3 categories the
n − 1 records may all lie in a third category, and D is largest at xᵢ = ηᵢ, xⱼ = ηⱼ. Over i ≠ j it is largest at the two
smallest entries of η, in one of their two orders. For k = 2, D is convex in the number of shared records in the first
category, and the maximum is at an end, with all in one category. So 2 or 4 evaluations give the supremum over all
neighbours, for every n.

The supremum is finite for λ < λ* = 1 + min(η)/s. From λ* on, the mixed parameter ηⱼ − (λ−1)s of an empty category is
not positive. The supremum increases with the coefficient. For m this holds because η decreases. For r the derivative is
λ times a second divided difference of t ↦ tψ(αᵢ + tr), ψ the digamma function, which is convex where αᵢ + tr > 0, as
−zψ₂(z) ≤ 2ψ₁(z). Hence bisection finds the largest coefficient for a target. It exists for every target, because the
supremum vanishes with the coefficient.

**Partly public data** ("such as after a data breach", P3, Extensions). The table above protects the n records that
are still private in a release that used all records. If the public records are known before the release, their counts
can be added to the prior, α + u. **Releasing a statistic**. A function of the draw is post-processing and has the same
guarantee. The schemes of P3 for both cases are in an appendix that is not part of its published text.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi Differential Privacy Mechanisms for Posterior Sampling", NeurIPS 2017, sections 3
and 5.1. Dimitrakakis, Nelson, Mitrokotsa & Rubinstein, "Robust and private Bayesian inference", ALT 2014: direct
sampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.conjugate import validate_prior
from mechanisms.metadata import Entry, Style, find_entry
from mechanisms.privacy import RenyiGuarantee, validate_epsilon, validate_order, validate_size
from mechanisms.protocols import OutputDistribution
from mechanisms.renyi.divergence import cell_renyi

__all__ = ["RENYI_SAMPLERS", "DirichletDraw", "RenyiMethod", "RenyiSampling", "calibrate_renyi", "renyi_sampler"]

Floats = NDArray[np.float64]

_MARGIN = 1e-12  # relative change of a coefficient that changes the divergence by more than its rounding error


@dataclass(frozen=True)
class RenyiMethod(Entry):
    """Weighting of prior and records by a coefficient.

    Attributes
    ----------
    name, note, origin, paper, variant, style
        See `Entry`.
    weights : callable
        Maps the coefficient to the weights of prior and records.
    is_tunable : bool
        True if the weights depend on the coefficient, so that the method can be calibrated to a budget.
    """

    weights: Callable[[float], tuple[float, float]] = field(kw_only=True, repr=False)
    is_tunable: bool = field(default=True, kw_only=True)


RENYI_SAMPLERS: dict[str, RenyiMethod] = {
    method.name: method
    for method in (
        RenyiMethod(
            "direct",
            "One draw of the posterior itself.",
            weights=lambda coefficient: (1.0, 1.0),
            is_tunable=False,
            origin="paper",
            paper="P3",
            style=Style("purple", "D", "dash-dotted"),
        ),
        RenyiMethod(
            "diffused",
            "One draw of a posterior in which each record has a smaller weight.",
            weights=lambda coefficient: (1.0, coefficient),
            origin="paper",
            paper="P3",
            style=Style("blue", "o"),
        ),
        RenyiMethod(
            "concentrated",
            "One draw of a posterior in which the prior has a larger weight.",
            weights=lambda coefficient: (1.0 / coefficient, 1.0),
            origin="paper",
            paper="P3",
            style=Style("vermilion", "s"),
        ),
    )
}
"""Methods by name; each draw is private at orders below its critical order."""


@dataclass(frozen=True)
class RenyiSampling:
    """Posterior sampler for data sets of n private records; build it with `calibrate_renyi` or `renyi_sampler`.

    Attributes
    ----------
    name : str
        A key of `RENYI_SAMPLERS`.
    prior : tuple of float
        α.
    n : int
        Number of private records.
    coefficient : float
        r or m, in (0, 1]; 1 for `direct`.
    public_counts : tuple of int
        u; zeros if no record is public.
    """

    name: str
    prior: tuple[float, ...]
    n: int
    coefficient: float
    public_counts: tuple[int, ...]

    @property
    def start(self) -> Floats:
        """Dirichlet parameters η without private records, shape (k,)."""
        prior_weight, record_weight = RENYI_SAMPLERS[self.name].weights(self.coefficient)
        return prior_weight * np.array(self.prior) + record_weight * np.array(self.public_counts)

    @property
    def step(self) -> float:
        """Weight s of a record."""
        return RENYI_SAMPLERS[self.name].weights(self.coefficient)[1]

    @property
    def critical_order(self) -> float:
        """Smallest order λ* with an infinite divergence."""
        return 1.0 + float(self.start.min()) / self.step

    def posterior(self, counts: ArrayLike) -> Floats:
        """Return the Dirichlet parameters of the sampled distribution.

        Parameters
        ----------
        counts : array_like, shape (..., k)
            c, integers ≥ 0 with sum n on the last axis: counts of the private records.

        Returns
        -------
        ndarray of float64, shape (..., k)

        Raises
        ------
        ValueError
            If counts are invalid.
        """
        c = np.asarray(counts, dtype=np.float64)
        if c.ndim < 1 or c.shape[-1] != len(self.prior) or not np.all((c >= 0) & (c == np.floor(c))):
            raise ValueError(
                f"counts must be integers >= 0 in {len(self.prior)} categories on the last axis, got shape {c.shape}; "
                "pass one count per category"
            )
        if not np.all(c.sum(axis=-1) == self.n):
            raise ValueError(f"counts must sum to the {self.n} private records, got a different sum; correct them or n")
        return self.start + self.step * c

    def at(self, counts: ArrayLike) -> DirichletDraw:
        """Return the distribution of a draw θ at one data set, with counts of shape (k,) as in `posterior`."""
        parameters = self.posterior(counts)
        if parameters.ndim != 1:
            raise ValueError(f"counts must have shape ({len(self.prior)},), got {parameters.shape}; pass one data set")
        return DirichletDraw(self, parameters)

    def renyi_epsilon(self, order: float) -> float:
        """Return the largest Rényi divergence of one draw over all neighbours, in nats; inf from `critical_order` on.

        Parameters
        ----------
        order : float
            λ, finite and ≥ 1.

        Raises
        ------
        ValueError
            If `order` is invalid.
        """
        start, step = self.start, self.step
        low, second = np.sort(start)[:2]
        shared = (self.n - 1) * step if start.size == 2 else 0.0
        losing = np.array([low, second, low + shared, second + shared])  # category of the replaced record
        gaining = np.array([second + shared, low + shared, second, low])  # category of its replacement
        lam = validate_order(order)
        return float((cell_renyi(losing, step, lam) + cell_renyi(gaining + step, -step, lam)).max())

    def guarantee(self, order: float) -> RenyiGuarantee:
        """Return the guarantee of one draw at an order below `critical_order`; raise ValueError at other orders."""
        spent = self.renyi_epsilon(validate_order(order))
        if math.isinf(spent):
            raise ValueError(
                f"order must be < {self.critical_order:g} for {self.name} with coefficient {self.coefficient:g}, got "
                f"{order:g}; choose a smaller order or coefficient"
            )
        return RenyiGuarantee(order, spent)


@dataclass(frozen=True, eq=False, repr=False)
class DirichletDraw(OutputDistribution):
    """Distribution of a draw θ at one data set; build it with `RenyiSampling.at`.

    Attributes
    ----------
    mechanism : RenyiSampling
    parameters : ndarray of float64, shape (k,)
        Dirichlet parameters, private.
    """

    mechanism: RenyiSampling
    parameters: Floats

    def __repr__(self) -> str:
        return f"DirichletDraw({self.mechanism!r})"

    def guarantee(self, order: float) -> RenyiGuarantee:
        """Return the guarantee of one draw; see `RenyiSampling.guarantee`."""
        return self.mechanism.guarantee(order)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw θ, shape (size, k).

        Privacy
        -------
        `guarantee` for one draw, replace-one with n public; the Rényi epsilons of several draws add up. The guarantee
        holds for draws in real arithmetic. The rounding of doubles leaks information, so use these draws for
        simulation, not for the protection of data.
        """
        return rng.dirichlet(self.parameters, size)

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log density of θ > 0, shape (..., k), as an array of shape (...)."""
        log_theta = np.log(np.asarray(values, dtype=np.float64))
        log_beta = special.gammaln(self.parameters).sum() - special.gammaln(self.parameters.sum())
        return log_theta @ (self.parameters - 1.0) - log_beta


def renyi_sampler(
    name: RenyiMethod | str, prior: ArrayLike, n: int, coefficient: float, public_counts: ArrayLike | None = None
) -> RenyiSampling:
    """Return the mechanism with a given coefficient.

    Parameters
    ----------
    name : RenyiMethod or str
        An entry of `RENYI_SAMPLERS` or its key.
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0, k ≥ 2; for k = 2 the parameters of a Beta distribution.
    n : int
        Number of private records, ≥ 1, public.
    coefficient : float
        r or m, in (0, 1]; 1 for `direct`.
    public_counts : array_like, shape (k,), optional
        u, integers ≥ 0: counts of records that need no protection.

    Returns
    -------
    RenyiSampling

    Privacy
    -------
    `RenyiSampling.guarantee`, at every order below `RenyiSampling.critical_order`.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> whole = renyi_sampler("direct", [6, 12], n=100, coefficient=1)
    >>> print(whole.critical_order, whole.guarantee(2), whole.guarantee(6.9), whole.renyi_epsilon(7))
    7.0 (2, 0.19129)-RDP (6.9, 1.39264)-RDP inf
    """
    name = find_entry(RENYI_SAMPLERS, name).name
    alpha = validate_prior(prior)
    n = validate_size(n)
    if not isinstance(coefficient, Real) or not 0 < coefficient <= 1:
        raise ValueError(f"coefficient must be in (0, 1], got {coefficient}; pass 1 for the posterior itself")
    if not RENYI_SAMPLERS[name].is_tunable and coefficient != 1:
        raise ValueError(f"coefficient must be 1 for {name}, got {coefficient}; choose diffused or concentrated")
    public = np.zeros(alpha.size) if public_counts is None else np.asarray(public_counts, dtype=np.float64)
    if public.shape != alpha.shape or not np.all((public >= 0) & (public == np.floor(public)) & np.isfinite(public)):
        raise ValueError(
            f"public_counts must be {alpha.size} integers >= 0, got {public_counts!r}; pass one count per category"
        )
    return RenyiSampling(
        name, tuple(alpha.tolist()), int(n), float(coefficient), tuple(public.astype(np.int64).tolist())
    )


def calibrate_renyi(
    name: RenyiMethod | str,
    prior: ArrayLike,
    n: int,
    order: float,
    epsilon: float,
    public_counts: ArrayLike | None = None,
) -> RenyiSampling:
    """Return the mechanism with the largest coefficient that is (λ, ε)-RDP.

    Parameters
    ----------
    name, prior, n, public_counts
        As in `renyi_sampler`.
    order : float
        λ, finite and ≥ 1.
    epsilon : float
        Bound on the Rényi divergence of one draw in nats, finite and > 0.

    Returns
    -------
    RenyiSampling
        With `renyi_epsilon(order)` ≤ ε. If the posterior itself is (λ, ε)-RDP, the coefficient is 1.

    Privacy
    -------
    (λ, ε)-RDP for one draw, replace-one with n public. The coefficient depends on public quantities only.

    Raises
    ------
    ValueError
        If an argument is invalid, or `direct`, which has no coefficient, exceeds the target.

    Notes
    -----
    The largest coefficient is found by bisection and reduced by a relative 1e-12, so that the divergence is at most ε
    also in real arithmetic, even if the mixed parameter is as small as its rounding error. For ε above about 27/(λ−1)
    the coefficient is equal in double precision to that of an infinite divergence, and the divergence is below ε.

    P3 (Corollary 2) takes the supremum over ηQ = ηP ± (r, 0) from the corners ηP, including ηQ that are not posteriors
    of any data. This bounds the supremum from above. For two categories the two agree for λ ≥ 2, if α > r. For smaller
    λ or more categories the bound is larger. For α ≤ r it is infinite even at orders below λ*.

    Examples
    --------
    >>> budget = np.exp(-2)
    >>> for name in ("diffused", "concentrated"):
    ...     print(name, round(calibrate_renyi(name, [6, 12], 100, order=2, epsilon=budget).coefficient, 6))
    diffused 0.838452
    concentrated 0.714208
    """
    name = find_entry(RENYI_SAMPLERS, name).name
    order, epsilon = validate_order(order), validate_epsilon(epsilon)
    whole = renyi_sampler(name, prior, n, 1.0, public_counts)
    spent = whole.renyi_epsilon(order)
    if spent <= epsilon:
        return whole
    if not RENYI_SAMPLERS[name].is_tunable:
        raise ValueError(
            f"epsilon must be >= {spent:.6g} at order {order:g} for {name}, got {epsilon:g}; the divergence of {name} "
            f"is finite at orders below {whole.critical_order:g} only, use diffused or concentrated for other targets"
        )

    def weakened(coefficient: float) -> RenyiSampling:
        return RenyiSampling(name, whole.prior, whole.n, coefficient, whole.public_counts)

    low, high = 0.5, 1.0
    while weakened(low).renyi_epsilon(order) > epsilon:
        low, high = low / 2, low
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if weakened(middle).renyi_epsilon(order) <= epsilon else (low, middle)
    return weakened(low * (1 - _MARGIN))
