"""Noisy Langevin chains for Bayesian logistic regression, whose finite number of steps has a privacy guarantee.

The target is p(w) ∝ exp(−U(w)), U(w) = −ρ·Σ ln p(yᵢ | xᵢ·w) + κ‖w‖²/2, with records ‖xᵢ‖ ≤ c. The chain starts at 0,
and a step of size η is

    w ← w − (η/2)·∇U(w) + N(0, η·I).

U is κ-strongly convex and M-smooth, M = κ + ρnc²/4. Replacing a record changes ∇U by at most 2cρ in norm, and so the
mean of a step by at most ηcρ.

**Every iterate is published.** A step is a Gaussian mechanism with sensitivity ηcρ and standard deviation √η, so T
steps are μ-GDP with μ² = Tηc²ρ².

**The last iterate is published.** For η ≤ 4/(κ + M), the mean of a step is a contraction with the factor q = max(|1 −
ηκ/2|, |1 − ηM/2|), and the last of T iterates is μ-GDP with

    μ² = ηc²ρ²·(1 − q^T)/(1 + q^T)·(1 + q)/(1 − q).

This is the theorem of Bok, Su & Altschuler in our parameters. For a quadratic U with curvature κ, an iterate is
normal with variance η(1 − q^(2T))/(1 − q²), replacement shifts its mean by up to ηcρ(1 − q^T)/(1 − q), and the
formula is exact. As T → ∞, μ² tends to 4c²ρ²/κ − ηc²ρ² if η ≤ 4/(κ + M), less than the (2cρ)²/κ of an exact draw
(Gopi, Lee & Liu).

The proof uses only that the distance between the means for neighbours is at most q times the distance between the
states, plus ηcρ. It therefore also holds, with a larger last term, if the means are rounded.

**Effective draws.** For a quadratic U at stationarity, iterates have the autocorrelation (1 − ηκⱼ/2)^t in a direction
of curvature κⱼ. T iterates thus have the information of about T·(ηκⱼ/4)/(1 − ηκⱼ/4) independent draws on the mean. In
units of the budget, with μ²/2 = Tηc²ρ²/2, these are κⱼ/(2c²ρ²)/(1 − ηκⱼ/4) draws per unit of μ²/2.

References
----------
Wang, Fienberg & Smola, "Privacy for free: posterior sampling and stochastic gradient Monte Carlo", ICML 2015. Bok, Su &
Altschuler, "Shifted interpolation for differential privacy", ICML 2024, theorem 4.2. Gopi, Lee & Liu, "Private convex
optimization via exponential mechanism", COLT 2022. Dong, Roth & Su, "Gaussian differential privacy", JRSS B 84, 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from mechanisms.core.arguments import Floats, real_array, validate_integer, validate_number, validate_positive
from mechanisms.core.calibrate import bisect
from mechanisms.core.conversions import gaussian_mu
from mechanisms.core.privacy import GaussianGuarantee
from mechanisms.core.privacy_parameters import validate_size
from mechanisms.draws.glm_mechanisms import validate_design

LEAST_DRAWS = 20.0  # number of effective draws below which intervals from published iterates are refused
_START = 0.01  # part of the distance between start and mode that remains after the steps of `last_langevin`
_MOST_STEPS = 1_000_000  # of `last_langevin`
_TINY = 5e-324


@dataclass(frozen=True)
class LangevinChain:
    """Noisy Langevin chain; all parameters are public. Build it with `langevin_chain` or a planner of this module."""

    n: int
    precision: float  # κ > 0, of the normal prior
    power: float  # ρ of the likelihood, in (0, 1]
    step: float  # η, in (0, 4/(κ + M)]
    n_steps: int  # T ≥ 1
    norm_bound: float  # c > 0, on ‖x‖₂
    last_only: bool = False  # only the last iterate is published

    @property
    def smoothness(self) -> float:
        """Upper bound M on the curvature of U."""
        return public_smoothness(self.n, self.precision, self.power, self.norm_bound)

    @property
    def gap(self) -> float:
        """1 − q > 0, where q is the factor by which the mean of a step contracts."""
        return min(self.step * self.precision / 2, 2.0 - self.step * self.smoothness / 2)

    @property
    def guarantee(self) -> GaussianGuarantee:
        """Guarantee of the published iterates, the last or all, under replace-one with n public."""
        factor = float(self.n_steps)
        if self.last_only:
            gap = max(self.gap, _TINY)
            factor = min(math.tanh(-0.5 * self.n_steps * math.log1p(-gap)) * (2.0 - gap) / gap, factor)
        return GaussianGuarantee(self.norm_bound * self.power * math.sqrt(self.step * factor))

    def sample(
        self, rng: np.random.Generator, design: ArrayLike, labels: ArrayLike, n_chains: int = 1, *, every: int = 1
    ) -> Floats:
        """Return iterates at multiples of `every` of independent chains; the guarantee is per chain, for normal noise.

        The shape is (n_chains, n_steps // every, d), or (n_chains, 1, d) for the last iterate. Rows of `design` have
        norm ≤ `norm_bound`, and `labels` are 0 or 1. Noise in double precision is for simulation only.
        """
        X, y = validate_design(design, labels, self.norm_bound)
        if len(X) != self.n:
            raise ValueError(f"records must be {self.n}, as the plan states, got {len(X)}; plan for their number")
        n_chains = validate_integer("n_chains", n_chains)
        weights = np.zeros((n_chains, X.shape[1]))
        every = self.n_steps if self.last_only else validate_integer("every", every)
        iterates = np.empty((n_chains, self.n_steps // every, X.shape[1]))
        for step in range(1, self.n_steps + 1):
            moved = weights + self.step / 2 * self.drift(weights, X, y)
            weights = moved + math.sqrt(self.step) * rng.standard_normal(weights.shape)
            if step % every == 0:
                iterates[:, step // every - 1] = weights
        return iterates

    def drift(self, weights: Floats, design: Floats, labels: Floats) -> Floats:
        """Return −∇U at weights of shape (..., d), for records that have been validated."""
        return self.power * ((labels - expit(weights @ design.T)) @ design) - self.precision * weights


def langevin_chain(
    n: int, beta: float, n_steps: int, step: float, norm_bound: float = 1.0, *, last_only: bool = False
) -> LangevinChain:
    """Return a chain for the posterior, prior precision n·beta; its step size is in (0, 4/(κ + M)]."""
    n, precision, norm_bound = _validate_target(n, beta, norm_bound)
    largest = 4.0 / (precision + public_smoothness(n, precision, 1.0, norm_bound))
    requirement = f"> 0 and at most 4/(kappa + M) = {largest:g}"
    step = validate_number("step", step, requirement, lambda value: 0.0 < value <= largest, "choose another one")
    return LangevinChain(n, precision, 1.0, step, validate_integer("n_steps", n_steps), norm_bound, last_only)


def last_langevin(n: int, beta: float, epsilon: float, delta: float, norm_bound: float = 1.0) -> LangevinChain:
    """Return the chain ``langevin-last``, whose last iterate is (ε, δ)-DP without an assumption on convergence.

    The step size is 1/(κ + M), the number of steps reduces the distance between start and mode by a factor of 100, and
    the power is the largest one, at most 1, for which the guarantee holds; all depend on the arguments only.
    """
    target = gaussian_mu(epsilon, delta)
    n, precision, norm_bound = _validate_target(n, beta, norm_bound)

    def chain(power: float) -> LangevinChain:
        step = 1.0 / (precision + public_smoothness(n, precision, power, norm_bound))
        n_steps = min(math.log(_START) / math.log1p(-max(step * precision / 2, _TINY)), 2.0 * _MOST_STEPS)
        return LangevinChain(n, precision, power, step, math.ceil(n_steps), norm_bound, last_only=True)

    calibrated = chain(1.0)
    if calibrated.guarantee.mu > target:
        low = min(1.0, target * math.sqrt(precision) / (2.0 * norm_bound))  # sufficient for an exact draw
        low, high = low * (1.0 - 1e-12), min(1.0, 1.2 * low)
        calibrated = chain(bisect(lambda power: chain(power).guarantee.mu <= target, low, high)[0])
    if calibrated.n_steps > _MOST_STEPS:
        raise ValueError(f"the chain must end within {_MOST_STEPS:,} steps, got beta = {beta:g}; choose a larger beta")
    return calibrated


def published_langevin(n: int, beta: float, epsilon: float, delta: float, norm_bound: float = 1.0) -> LangevinChain:
    """Return the chain ``langevin``, all of whose iterates together are (ε, δ)-DP; the power is 1.

    It has the smallest number of steps that spend the budget at a step size of at most 2/(κ + M).
    """
    mu = gaussian_mu(epsilon, delta) * (1.0 - 1e-12)
    n, precision, norm_bound = _validate_target(n, beta, norm_bound)
    length = (mu / norm_bound) ** 2  # ηT
    curvature = precision + public_smoothness(n, precision, 1.0, norm_bound)
    n_steps = max(1, math.ceil(length * curvature / 2))
    return LangevinChain(n, precision, 1.0, length / n_steps, n_steps, norm_bound)


def forecast_draws(curvatures: ArrayLike, mu: float, step: float = 0.0) -> Floats:
    """Return effective draws for the mean at curvatures κⱼ > 0 of U, if all iterates are μ-GDP, at c = ρ = 1."""
    curved = np.asarray(real_array("curvatures", curvatures))
    if not np.all(np.isfinite(curved) & (curved > 0)):
        raise ValueError("curvatures must be finite and > 0, got others; pass public bounds on the curvatures of U")
    if not (0 <= step < math.inf and np.all(curved * step < 4.0)):
        raise ValueError(f"step must be in [0, 4/curvature), got {step:g}; choose a smaller one")
    return GaussianGuarantee(mu).rho * curved / 2.0 / (1.0 - step * curved / 4.0)


def plan_intervals(chain: LangevinChain, d: int) -> float:
    """Return the effective draws per direction that a chain has for any data; refuse fewer than `LEAST_DRAWS`.

    The smallest curvature of U is at least that of the prior, κ, and the mean curvature is at most κ + ρnc²/(4d). The
    forecast does not include the steps from the start to the bulk of the posterior.
    """
    mean = chain.precision + chain.power * chain.n * chain.norm_bound**2 / (4.0 * validate_integer("d", d))
    n_steps = 1 if chain.last_only else chain.n_steps
    mu = math.sqrt(n_steps * chain.step)  # in units of cρ
    least, most = forecast_draws([chain.precision, mean], mu, chain.step).tolist()
    if least < LEAST_DRAWS:
        raise ValueError(
            f"intervals need {LEAST_DRAWS:g} effective draws per direction, got {least:.3g} (at most {most:.3g}); use "
            "a larger epsilon"
        )
    return least


def public_smoothness(n: int, precision: float, power: float, norm_bound: float) -> float:
    """Return the upper bound M = κ + ρnc²/4 on the curvature of U, which depends on public quantities only."""
    return precision + power * n * norm_bound**2 / 4.0


def _validate_target(n: int, beta: float, norm_bound: float) -> tuple[int, float, float]:
    """Return n, the precision κ = n·beta and the norm bound, after checking that they are valid."""
    size = validate_size(n)
    precision = validate_positive("beta", beta, "choose it independently of the data") * size
    return size, precision, validate_positive("norm_bound", norm_bound, "choose it independently of the data")
