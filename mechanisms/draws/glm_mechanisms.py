"""Rényi-DP posterior sampling for binary regression with a normal prior: the mechanisms of P3, section 4.

Records are (xᵢ, yᵢ) with ‖xᵢ‖₂ ≤ c and yᵢ ∈ {0, 1}, and the prior of the weights is N(0, (nβ)⁻¹I). A mechanism releases
one draw from

    p(w) ∝ exp(ρ·Σ ln p(yᵢ | xᵢ·w) − κ‖w‖²/2)   on ‖w‖ ≤ R.

The mechanisms differ in the precision κ, the power ρ and the radius R, which is infinite unless stated:

* ``glm-concentrated`` (Algorithm 4): κ = n·max(2c²λ/(nε), β), ρ = 1;
* ``glm-diffused`` (Algorithm 5): κ = nβ, ρ = min(1, √(εnβ/(2c²λ)));
* ``glm-gdp``: as ``glm-diffused``, with ρ = min(1, μ√(nβ)/(2c)) for the largest μ that implies (ε, δ)-DP;
* ``ops`` (one posterior sample, OPS; Wang et al. 2015): κ = nβ, R = c/β, ρ = min(1, εβ/(4c²)), which is pure ε-DP;
* ``ops-tight``: the same with twice the power, ρ = min(1, εβ/(2c²)), which is also ε-DP;
* ``ops-renyi``: ``ops-tight`` with the largest pure ε′ for which the Rényi divergence of order λ is at most ε;
* ``true-posterior``: κ = nβ, ρ = 1, without a privacy guarantee.

**Proof of the Rényi bound.** With a canonical link, replacing one record changes ∇ ln p(w) by at most 2cρ in norm, as
the slope |y − E[y]| is at most 1. The density is κ-strongly log-concave, so it satisfies a logarithmic Sobolev
inequality with constant 1/κ, and Herbst's argument gives D_λ ≤ λ(2cρ)²/(2κ) = 2c²ρ²λ/κ for all λ ≥ 1. With κ = nβ and
ρ = 1 this is P3's Theorem 16, with general ρ its Theorem 17. By the same two properties, a draw is (2cρ/√κ)-GDP (Gopi,
Lee & Liu, theorem 4), which implies this bound at every order.

**Counterexamples.** The logistic link is the canonical one. P3 lists the probit and the complementary log-log link as
examples, but their slopes are unbounded.
The probit log-likelihood of a misclassified record falls like −η²/2 − ln|η|, so (λ−1)·ρc²w²/2 reaches κw²/2 and D_λ is
infinite for λ ≥ 1 + κ/(ρc²). The complementary log-log likelihood falls like −exp(η), so D_λ is infinite for every λ >
1. Both links are available without a guarantee, for audits only. All three log-likelihoods are concave in η.

**Factor 2 in the published ρ.** On ‖w‖ ≤ c/β a logistic log-likelihood ranges over an interval of length c²/β, as
ln(1 + e^t) − ln(1 + e^−t) = t. Replacing a record changes the unnormalised ln p(w) by at most ρc²/β, and the log
normaliser by at most as much. The loss is therefore at most 2ρc²/β, while Wang et al. bound it by 4ρc²/β. The truncated
density is also κ-strongly log-concave, so the Rényi bound above also holds on the ball. If OPS were calibrated by this
bound, it would be ``glm-diffused`` truncated to a ball. For ``ops-renyi``, whose calibration does not use it,
`GlmMechanism.renyi_epsilon` is a small fraction of ε.

References
----------
P3, section 4 and 5.2. McCullagh & Nelder, "Generalized linear models", 2nd edition, 1989, section 4.3: the links.
Minami, Arai, Sato & Nakagawa, "Differential privacy without sensitivity", NeurIPS 2016. Wang, Fienberg & Smola,
"Privacy for free: posterior sampling and stochastic gradient Monte Carlo", ICML 2015. Gopi, Lee & Liu, "Private convex
optimization via exponential mechanism", COLT 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit, log_ndtr

from mechanisms.core.arguments import Floats, find_entry, real_array, record_array, validate_positive
from mechanisms.core.conversions import gaussian_mu, pure_epsilon_for, pure_renyi
from mechanisms.core.metadata import Entry, Registered, Style, register
from mechanisms.core.privacy import GaussianGuarantee, Guarantee, RenyiGuarantee
from mechanisms.core.privacy_parameters import validate_epsilon, validate_order, validate_size


@dataclass(frozen=True)
class Link(Registered):
    """Link function between the probability of the label 1 and the linear predictor η = x·w."""

    name: str
    canonical: bool  # the slope is y − E[y], as P3's theorems assume
    tail: Literal["linear", "quadratic", "exponential"]  # growth of −ln p(y | η) with |η| if y is misclassified
    log_likelihood: Callable[[Floats, Floats], Floats] = field(repr=False)  # (predictors, labels 0 or 1) -> ln p(y | η)


def _margin(predictors: Floats, labels: Floats) -> Floats:
    """Return η for the label 1 and −η for the label 0; symmetric links depend on η and y only through this margin."""
    return np.where(labels > 0.5, predictors, -predictors)


def _cloglog_log_likelihood(predictors: Floats, labels: Floats) -> Floats:
    with np.errstate(over="ignore"):  # infinite for η ≥ 710, where the label 0 has probability 0
        rate = np.exp(predictors)
    tiny = rate < 1e-300  # ln(1 − exp(−rate)) equals η in double precision
    log_success = np.where(tiny, predictors, np.log(-np.expm1(-np.where(tiny, 1.0, rate))))
    return np.where(labels > 0.5, log_success, -rate)


LINKS: dict[str, Link] = register(
    __name__,
    Link("logistic", True, "linear", lambda predictors, labels: log_expit(_margin(predictors, labels))),
    Link("probit", False, "quadratic", lambda predictors, labels: log_ndtr(_margin(predictors, labels))),
    Link("cloglog", False, "exponential", _cloglog_log_likelihood),
)
"""Links by name."""


@dataclass(frozen=True, kw_only=True)
class GlmMethod(Entry):
    """Rule that sets the target distribution of a draw; `glm_mechanism` applies it."""

    # (n, beta, order, epsilon, norm_bound) -> (precision, power, radius)
    set_target: Callable[[int, float, float, float, float], tuple[float, float, float]] = field(repr=False)
    # kind of guarantee; None if not private
    budget: Literal["renyi", "pure", "gaussian"] | None = "renyi"
    logistic_only: bool = False  # the bound on the loss holds for the logistic link only

    @property
    def is_private(self) -> bool:
        """True if a draw has a privacy guarantee, provided that the link is canonical."""
        return self.budget is not None

    @property
    def uses(self) -> tuple[str, ...]:
        """Names, among "order", "epsilon" and "delta", of the arguments on which the target distribution depends."""
        names = {"renyi": ("order", "epsilon"), "pure": ("epsilon",), "gaussian": ("epsilon", "delta"), None: ()}
        return names[self.budget]


@dataclass(frozen=True)
class GlmMechanism:
    """Target distribution of one released draw, with the guarantee of the draw."""

    name: str  # key in `GLM_MECHANISMS`
    precision: float  # κ > 0, of the normal prior
    power: float  # ρ of the likelihood, in (0, 1]
    radius: float  # R > 0 of the ball to which the weights are restricted; inf if they are not restricted
    link: Link
    norm_bound: float  # c > 0, on ‖x‖₂
    guarantee: RenyiGuarantee | Guarantee | GaussianGuarantee | None  # of one draw; None if not private

    def renyi_epsilon(self, order: float) -> float:
        """Return an upper bound on the Rényi divergence between neighbours in nats; inf for a non-canonical link."""
        order = validate_order(order)
        if not self.link.canonical:
            return math.inf
        bounds = [2.0 * (self.norm_bound * self.power) ** 2 * order / self.precision]
        if math.isfinite(self.radius):
            bounds.append(pure_renyi(2.0 * self.norm_bound * self.radius * self.power, order))
        return min(bounds)


def _diffused(n: int, beta: float, order: float, epsilon: float, c: float) -> tuple[float, float, float]:
    return n * beta, min(1.0, math.sqrt(epsilon * n * beta / (2.0 * c * c * order))), math.inf


def _ops(n: int, beta: float, epsilon: float, c: float, bound: float) -> tuple[float, float, float]:
    return n * beta, min(1.0, epsilon * beta / (bound * c * c)), c / beta


GLM_MECHANISMS: dict[str, GlmMethod] = register(
    __name__,
    GlmMethod(
        "glm-concentrated", "One draw of the weights, with a stronger normal prior.",
        set_target=lambda n, beta, order, epsilon, c: (max(2.0 * c * c * order / epsilon, n * beta), 1.0, math.inf),
        origin="paper", paper="P3", style=Style("vermilion", "s")),
    GlmMethod(
        "glm-diffused",
        "One draw of the weights, with the likelihood raised to a power; also (λ', ελ'/λ)-RDP for all λ'.",
        set_target=_diffused, origin="paper", paper="P3", style=Style("blue", "o")),
    GlmMethod(
        "glm-gdp",
        "As glm-diffused, with the largest power for which the draw is (ε, δ)-DP by Gaussian differential privacy.",
        set_target=_diffused, budget="gaussian", style=Style("purple", "D")),
    GlmMethod(
        "ops", "One draw of the weights in a ball; the privacy loss is at most half of the stated ε.",
        set_target=lambda n, beta, order, epsilon, c: _ops(n, beta, epsilon, c, bound=4.0),
        budget="pure", logistic_only=True, origin="baseline", paper="P3", style=Style("green", "^")),
    GlmMethod(
        "ops-tight", "As ops, with twice the power, which has the same guarantee.",
        set_target=lambda n, beta, order, epsilon, c: _ops(n, beta, epsilon, c, bound=2.0),
        budget="pure", logistic_only=True, style=Style("green", ">")),
    GlmMethod(
        "ops-renyi", "As ops-tight, at the largest pure ε' that implies the Rényi guarantee.",
        set_target=lambda n, beta, order, epsilon, c: _ops(n, beta, pure_epsilon_for(order, epsilon), c, bound=2.0),
        logistic_only=True, style=Style("green", "v")),
    GlmMethod(
        "true-posterior", "Not private: the posterior itself, for any ε.",
        set_target=lambda n, beta, order, epsilon, c: (n * beta, 1.0, math.inf),
        budget=None, origin="reference", style=Style("grey", "X")),
)  # fmt: skip
"""Methods by name."""


def glm_mechanism(
    name: GlmMethod | str,
    n: int,
    beta: float,
    order: float,
    epsilon: float,
    norm_bound: float = 1.0,
    link: Link | str = "logistic",
    *,
    delta: float | None = None,
) -> GlmMechanism:
    """Return the mechanism with the precision, power and radius that a method prescribes for a privacy loss of ε.

    Parameters
    ----------
    name : GlmMethod or str
        An entry of `GLM_MECHANISMS` or its key.
    n : int
        Number of records, public, ≥ 1.
    beta : float
        Prior precision per record, finite and > 0: the prior is N(0, (n·beta)⁻¹I).
    order : float
        Finite order λ ≥ 1 of the Rényi guarantee; order 1 is the Kullback–Leibler divergence. ``glm-gdp``, ``ops``,
        ``ops-tight`` and ``true-posterior`` do not depend on it.
    epsilon : float
        Bound on the Rényi divergence of this order in nats, finite and > 0. For ``ops`` and ``ops-tight``, bound on
        the pure privacy loss; for ``glm-gdp``, the ε of (ε, δ)-DP.
    norm_bound : float
        Upper bound c on ‖x‖₂ of every record, finite and > 0. It must be chosen independently of the data.
    link : Link or str
        An entry of `LINKS` or its key.
    delta : float, optional
        The δ of (ε, δ)-DP, in (0, 1), which ``glm-gdp`` needs.

    Privacy
    -------
    Replace-one with n public. One draw is (λ, ε)-RDP for ``glm-concentrated``, ``glm-diffused`` and ``ops-renyi``,
    ε-DP for ``ops`` and ``ops-tight``, and μ-GDP for ``glm-gdp``. This holds for the logistic link only, for records
    within `norm_bound` and for exact draws. The elliptical slice sampler of `mechanisms.draws.glm_sampling`, like the
    slice sampler of P3, is a Markov chain without a proof for a finite number of steps: measured convergence does not
    bound what its last state reveals. `mechanisms.draws.langevin.last_langevin` has the guarantee of ``glm-gdp`` for a
    finite chain, at a cost of one gradient per step.

    Raises
    ------
    ValueError
        If an argument is invalid, or an OPS mechanism is combined with a link other than the logistic.

    Examples
    --------
    >>> release = glm_mechanism("glm-diffused", n=2784, beta=0.001, order=1, epsilon=0.1)
    >>> print(round(release.power, 4), round(release.precision, 3), release.guarantee)
    0.3731 2.784 (1, 0.1)-RDP
    >>> print(round(glm_mechanism("glm-concentrated", n=2784, beta=0.001, order=1, epsilon=0.1).precision, 6))
    20.0
    """
    method, function = find_entry(GLM_MECHANISMS, name), find_entry(LINKS, link, "link")
    n = validate_size(n)
    for argument, value in (("beta", beta), ("norm_bound", norm_bound)):
        validate_positive(argument, value, "choose it independently of the data")
    order, epsilon = validate_order(order), validate_epsilon(epsilon)
    mu = gaussian_mu(epsilon, delta) if method.budget == "gaussian" else 0.0  # type: ignore[arg-type]  # refuses None
    if method.logistic_only and function.name != "logistic":
        raise ValueError(f"{method.name} must have the logistic link, got {function.name}; its bound needs it")
    try:
        budget = (1.0, mu**2 / 2) if method.budget == "gaussian" else (order, epsilon)
        precision, power, radius = method.set_target(n, beta, *budget, norm_bound)
    except (OverflowError, ZeroDivisionError):
        precision, power, radius = math.inf, 0.0, math.inf
    if not (math.isfinite(precision) and power > 0 and math.isfinite(norm_bound * norm_bound)):
        raise ValueError(
            f"the prior precision must be finite and the power > 0, got {precision:g} and {power:g}; use a larger "
            "epsilon or beta, or a smaller norm_bound"
        )
    guarantee: RenyiGuarantee | Guarantee | GaussianGuarantee | None = RenyiGuarantee(order, epsilon)
    if method.budget == "pure":
        guarantee = Guarantee(epsilon)
    if method.budget == "gaussian":
        guarantee = GaussianGuarantee(mu if power < 1 else min(mu, 2.0 * norm_bound / math.sqrt(precision)))
    if not method.is_private or not function.canonical:
        guarantee = None
    return GlmMechanism(method.name, precision, power, radius, function, norm_bound, guarantee)


def validate_design(design: ArrayLike, labels: ArrayLike, norm_bound: float = 1.0) -> tuple[Floats, Floats]:
    """Return records as arrays, the design C-contiguous, if norms of rows are ≤ `norm_bound` and labels 0 or 1."""
    X, y = np.ascontiguousarray(real_array("design", design)), record_array("labels", labels)
    if X.ndim != 2 or not X.size or y.shape != (len(X),):
        raise ValueError(f"records must have shapes (n, d) and (n,), got {X.shape} and {y.shape}; pass one per row")
    finite = np.isfinite(X).all(axis=1)
    if not finite.all():
        raise ValueError(f"records must be finite, got a non-finite value in row {np.argmin(finite)}; drop the row")
    bad = (y != 0) & (y != 1)
    if bad.any():
        row = np.flatnonzero(bad)[0]
        raise ValueError(f"labels must be 0 or 1, got an invalid value in row {row}; recode the labels")
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    if norms.max() > norm_bound * (1.0 + 1e-9):
        row = int(norms.argmax())
        raise ValueError(f"rows must have norm <= {norm_bound:g}, got a larger one in row {row}; scale them")
    return X, y
