"""Rényi-DP sampling of Dirichlet posteriors (P3, section 3): release of one draw from a tempered posterior.

Let Dir(α) be the prior, c the counts of n private records, and u the counts of public records, if there are any. The
draw is from Dir(η + s·c), where η and s depend on a coefficient in (0, 1]:

================  ===========================  =====================  ===================
name              posterior                    η                      s
================  ===========================  =====================  ===================
`direct`          α + u + c (Algorithm 1)      α + u                  1
`diffused`        α + r(u + c) (Algorithm 2)   α + r·u                r, the coefficient
`concentrated`    α/m + u + c (Algorithm 3)    α/m + u                1, m the coefficient
================  ===========================  =====================  ===================

**Exact divergence.** Replacing a record of category i by one of category j leaves n − 1 shared records with counts c°.
With x = η + s·c°, the distributions are P = Dir(x + s·eᵢ) and Q = Dir(x + s·eⱼ). Their totals are equal, so that

    D_λ(P‖Q) = F₊(xᵢ) + F₋(xⱼ),   F₊(x) = `cell_renyi`(x, s),   F₋(x) = `cell_renyi`(x + s, −s).

Both are equal to s²·∫ k(t)·ψ₁(y ± ts) dt over [0, λ], where y is the first argument of `cell_renyi`, and the kernel is
k(t) = t for t ≤ 1 and (λ − t)/(λ − 1) for t > 1. They are decreasing and convex in x, as is the trigamma function ψ₁.
For k ≥ 3 categories the n − 1 shared records may all lie in a third category, and D is largest at xᵢ = ηᵢ, xⱼ = ηⱼ.
Among all pairs i ≠ j it is largest for the two smallest entries of η, in one of their two orders. For k = 2, D is
convex in the number of shared records in the first category, so it is largest if all shared records are in one
category. So 2 or 4 evaluations give the supremum over all neighbours, for every n.

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
P3, sections 3 and 5.1. Dimitrakakis, Nelson, Mitrokotsa & Rubinstein, "Robust and private Bayesian inference", ALT
2014: direct sampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.core.arguments import Floats, find_entry, real_array, validate_integer, validate_number
from mechanisms.core.calibrate import bisect, first_private
from mechanisms.core.conjugate import validate_prior
from mechanisms.core.metadata import Entry, Style, register
from mechanisms.core.privacy import RenyiGuarantee
from mechanisms.core.privacy_parameters import validate_epsilon, validate_order, validate_size
from mechanisms.core.protocols import OutputDistribution
from mechanisms.draws.dirichlet_divergence import cell_renyi

_OUTWARD = 1.0 + 2.0**-49  # shifts the mixed parameter by eight units in the last place of λs
_LARGER = 1.0 + 1e-13  # bound on the relative error of the quadrature
_MARGIN = 1e-12  # this relative change of a coefficient changes the divergence by more than the rounding error


@dataclass(frozen=True, kw_only=True)
class RenyiMethod(Entry):
    """Rule that weights the prior and the records by a coefficient; `mechanisms.calibrate_renyi` applies it."""

    # coefficient -> weights of the prior and of the records
    weights: Callable[[float], tuple[float, float]] = field(repr=False)
    # the weights depend on the coefficient, so it can be calibrated to a budget
    is_tunable: bool = True


RENYI_SAMPLERS: dict[str, RenyiMethod] = register(
    __name__,
    RenyiMethod(
        "direct", "One draw of the posterior itself.",
        weights=lambda coefficient: (1.0, 1.0), is_tunable=False,
        origin="paper", paper="P3", style=Style("purple", "D")),
    RenyiMethod(
        "diffused", "One draw of a posterior in which each record has a smaller weight.",
        weights=lambda coefficient: (1.0, coefficient), origin="paper", paper="P3", style=Style("blue", "o")),
    RenyiMethod(
        "concentrated", "One draw of a posterior in which the prior has a larger weight.",
        weights=lambda coefficient: (1.0 / coefficient, 1.0),
        origin="paper", paper="P3", style=Style("vermilion", "s")),
)  # fmt: skip
"""Methods by name; one draw has a Rényi guarantee at every order below its critical order."""


@dataclass(frozen=True)
class RenyiSampling:
    """Posterior sampler for data sets of n private records; build it with `calibrate_renyi` or `renyi_sampler`."""

    name: str  # key of `RENYI_SAMPLERS`
    prior: tuple[float, ...]  # Dirichlet parameters α
    n: int
    coefficient: float  # r or m, in (0, 1]; 1 for `direct`
    public_counts: tuple[int, ...]  # u; zeros if no record is public

    @property
    def start(self) -> Floats:
        """Dirichlet parameters η in the absence of private records, shape (k,)."""
        prior_weight, record_weight = RENYI_SAMPLERS[self.name].weights(self.coefficient)
        return prior_weight * np.array(self.prior) + record_weight * np.array(self.public_counts)

    @property
    def step(self) -> float:
        """Weight s of each private record in the Dirichlet parameters."""
        return RENYI_SAMPLERS[self.name].weights(self.coefficient)[1]

    @property
    def critical_order(self) -> float:
        """Smallest order λ* at which the divergence is infinite."""
        return 1.0 + float(self.start.min()) / self.step

    def posterior(self, counts: ArrayLike) -> Floats:
        """Return the parameters η + s·c, shape (..., k), of the Dirichlet distribution from which θ is drawn."""
        c = real_array("counts", counts)
        if c.ndim < 1 or c.shape[-1] != len(self.prior) or not np.all((c >= 0) & (c == np.floor(c))):
            raise ValueError(
                f"counts must be integers >= 0 in {len(self.prior)} categories, got shape {c.shape}; pass one each"
            )
        if not np.all(c.sum(axis=-1) == self.n):
            raise ValueError(f"counts must sum to the {self.n} private records, got another sum; correct them")
        return self.start + self.step * c

    def at(self, counts: ArrayLike) -> DirichletDraw:
        """Return the distribution of a draw θ for one data set, given its counts, shape (k,); see `posterior`."""
        parameters = self.posterior(counts)
        if parameters.ndim != 1:
            raise ValueError(f"counts must have shape ({len(self.prior)},), got {parameters.shape}; pass one data set")
        return DirichletDraw(self, parameters)

    def renyi_epsilon(self, order: float) -> float:
        """Return the largest Rényi divergence of one draw over all neighbours; inf at orders ≥ `critical_order`."""
        start, step = self.start, self.step
        low, second = np.sort(start)[:2]
        shared = (self.n - 1) * step if start.size == 2 else 0.0
        losing = np.array([low, second, low + shared, second + shared])  # category of the replaced record
        gaining = np.array([second + shared, low + shared, second, low])  # category of its replacement
        lam = validate_order(order)
        return float((cell_renyi(losing, step, lam) + cell_renyi(gaining + step, -step, lam)).max())

    def guarantee(self, order: float) -> RenyiGuarantee:
        """Return the guarantee of one draw at an order below `critical_order`; raise ValueError at other orders.

        The divergence is rounded upwards: it is evaluated at an order that is larger by more than the rounding error of
        the parameters, which is large relative to the mixed parameter near the critical order.
        """
        spent = self.renyi_epsilon(validate_order(order) * _OUTWARD) * _LARGER
        if math.isinf(spent):
            raise ValueError(
                f"order must be < {self.critical_order:g} for {self.name} with coefficient {self.coefficient:g}, got "
                f"{order:g}; choose a smaller order or coefficient"
            )
        return RenyiGuarantee(order, spent)


@dataclass(frozen=True, eq=False)
class DirichletDraw(OutputDistribution):
    """Distribution of a draw θ for one data set; build it with `RenyiSampling.at`."""

    mechanism: RenyiSampling
    parameters: Floats = field(repr=False)

    def guarantee(self, order: float) -> RenyiGuarantee:
        """Return the guarantee of one draw; see `RenyiSampling.guarantee`."""
        return self.mechanism.guarantee(order)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` draws of θ, shape (size, k), for simulation; each has `guarantee` in real arithmetic."""
        return rng.dirichlet(self.parameters, validate_integer("size", size, least=0))

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log density, shape (...), of θ > 0, shape (..., k)."""
        log_theta = np.log(np.asarray(values, dtype=np.float64))
        log_beta = special.gammaln(self.parameters).sum() - special.gammaln(self.parameters.sum())
        return log_theta @ (self.parameters - 1.0) - log_beta


def renyi_sampler(
    name: RenyiMethod | str, prior: ArrayLike, n: int, coefficient: float, public_counts: ArrayLike | None = None
) -> RenyiSampling:
    """Return the sampler with the coefficient r or m in (0, 1], given the counts of records that need no protection."""
    name = find_entry(RENYI_SAMPLERS, name).name
    alpha = validate_prior(prior)
    n = validate_size(n)
    advice = "pass 1 for the posterior itself"
    coefficient = validate_number("coefficient", coefficient, "in (0, 1]", lambda value: 0.0 < value <= 1.0, advice)
    if not RENYI_SAMPLERS[name].is_tunable and coefficient != 1:
        raise ValueError(f"coefficient must be 1 for {name}, got {coefficient}; choose diffused or concentrated")
    public = np.zeros(alpha.size) if public_counts is None else real_array("public_counts", public_counts)
    # Doubles represent all integers up to 2**53.
    if public.shape != alpha.shape or not np.all((public >= 0) & (public == np.floor(public)) & (public < 2**53)):
        raise ValueError(
            f"public_counts must be {alpha.size} integers >= 0 and < 2**53, got {public_counts!r}; pass counts"
        )
    return RenyiSampling(name, tuple(alpha.tolist()), n, coefficient, tuple(public.astype(np.int64).tolist()))


def calibrate_renyi(
    name: RenyiMethod | str,
    prior: ArrayLike,
    n: int,
    order: float,
    epsilon: float,
    public_counts: ArrayLike | None = None,
) -> RenyiSampling:
    """Return the posterior sampler with the largest coefficient for which one draw is (λ, ε)-RDP.

    Parameters
    ----------
    name : str
        Name in `RENYI_SAMPLERS`.
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0; Beta parameters for k = 2.
    n : int
        Number of private records, ≥ 1, public.
    order : float
        Order λ, finite and ≥ 1.
    epsilon : float
        Bound on the Rényi divergence of one draw in nats, finite and > 0.
    public_counts : array_like, shape (k,), optional
        Counts of records that need no protection; 0 by default.

    Returns
    -------
    RenyiSampling
        Mechanism with `renyi_epsilon(order)` ≤ ε. If a draw from the posterior itself is (λ, ε)-RDP, the coefficient
        is 1.

    Privacy
    -------
    One draw is (λ, ε)-RDP under replace-one with n public. The coefficient depends on public quantities only.

    Raises
    ------
    ValueError
        If an argument is invalid, or if `name` is `direct`, which has no coefficient, and its divergence exceeds ε.

    Notes
    -----
    The largest coefficient is found by bisection and reduced by a relative 1e-12, so that the divergence is at most ε
    also in real arithmetic, even if the mixed parameter is as small as its rounding error. For ε above about 27/(λ−1),
    the coefficient is, in double precision, equal to the one at which the divergence becomes infinite, and the
    divergence of the returned mechanism is below ε.

    P3 (Corollary 2) takes the supremum over pairs of parameter vectors, a corner ηP and ηQ = ηP ± (r, 0), including ηQ
    that are the posterior parameters of no data set. The result is an upper bound on the supremum over data sets. For
    two categories and λ ≥ 2 it is equal to that supremum if α > r. For smaller λ or more categories it is larger. For
    α ≤ r it is infinite even at orders below λ*.

    Examples
    --------
    The largest coefficients r and m for ε = e⁻²:

    >>> import math
    >>> budget = math.exp(-2)
    >>> for name in ("diffused", "concentrated"):
    ...     print(name, round(calibrate_renyi(name, [6, 12], 100, order=2, epsilon=budget).coefficient, 6))
    diffused 0.838452
    concentrated 0.714208
    """
    name = find_entry(RENYI_SAMPLERS, name).name
    order, epsilon = validate_order(order), validate_epsilon(epsilon)
    sampler = renyi_sampler(name, prior, n, 1.0, public_counts)
    spent = sampler.renyi_epsilon(order)
    if spent <= epsilon:
        return sampler
    if not RENYI_SAMPLERS[name].is_tunable:
        raise ValueError(
            f"epsilon must be >= {spent:.6g} at order {order:g} for {name}, got {epsilon:g}; the divergence of {name} "
            f"is finite at orders below {sampler.critical_order:g} only, use diffused or concentrated for other targets"
        )

    def is_private(coefficient: float) -> bool:
        return replace(sampler, coefficient=coefficient).renyi_epsilon(order) <= epsilon

    low, high = first_private(is_private, (2.0**-power for power in count(1)))
    return replace(sampler, coefficient=bisect(is_private, low, max(high, 2 * low))[0] * (1 - _MARGIN))
