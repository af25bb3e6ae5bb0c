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
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from mechanisms.arguments import validate_integer, validate_positive
from mechanisms.glm.mechanisms import GlmMechanism, glm_mechanism, validate_design
from mechanisms.privacy import GaussianGuarantee
from mechanisms.privacy_parameters import validate_size
from mechanisms.renyi.gaussian_dp import gaussian_mu

__all__ = ["LEAST_DRAWS", "LangevinChain", "forecast_draws", "gaussian_glm", "langevin_chain", "last_langevin"]

Array = NDArray[np.float64]

LEAST_DRAWS = 20.0
"""Number of effective draws below which intervals from published iterates are refused."""

_START = 0.01  # part of the distance between start and mode that remains after the steps of `last_langevin`
_ROUNDS = 60  # of the bisection of the power


@dataclass(frozen=True)
class LangevinChain:
    """Noisy Langevin chain; all parameters are public. Build it with `langevin_chain` or `last_langevin`.

    Attributes
    ----------
    n : int
        Number of records.
    precision : float
        Precision κ > 0 of the normal prior.
    power : float
        Power ρ of the likelihood, in (0, 1].
    step : float
        Step size η, in (0, 4/(κ + M)].
    n_steps : int
        Number of steps T ≥ 1.
    norm_bound : float
        Upper bound c > 0 on ‖x‖₂.
    """

    n: int
    precision: float
    power: float
    step: float
    n_steps: int
    norm_bound: float

    @property
    def smoothness(self) -> float:
        """Upper bound M on the curvature of U."""
        return _smoothness(self.n, self.precision, self.power, self.norm_bound)

    @property
    def contraction(self) -> float:
        """Factor q < 1 by which the mean of a step contracts."""
        return max(abs(1.0 - self.step * self.precision / 2), abs(1.0 - self.step * self.smoothness / 2))

    @property
    def last_guarantee(self) -> GaussianGuarantee:
        """Guarantee of the last iterate, under replace-one with n public."""
        q, slope = self.contraction, self.norm_bound * self.power
        remaining = q**self.n_steps
        ratio = (1.0 - remaining) / (1.0 + remaining) * (1.0 + q) / (1.0 - q)
        return GaussianGuarantee(slope * math.sqrt(self.step * min(ratio, self.n_steps)))

    @property
    def guarantee(self) -> GaussianGuarantee:
        """Guarantee of all iterates together, under replace-one with n public."""
        return GaussianGuarantee(self.norm_bound * self.power * math.sqrt(self.step * self.n_steps))

    def sample(self, rng: np.random.Generator, design: ArrayLike, labels: ArrayLike, n_chains: int = 1) -> Array:
        """Return the iterates of independent chains, shape (n_chains, n_steps, d).

        `design` has shape (n, d), with rows of norm ≤ `norm_bound`, and `labels` are 0 or 1, shape (n,).

        Privacy
        -------
        The guarantees hold per chain, for normal noise; noise in double precision is for simulation only.
        """
        X, y = validate_design(design, labels, self.norm_bound)
        if len(X) != self.n:
            raise ValueError(f"records must be {self.n}, as the plan states, got {len(X)}; plan for their number")
        n_chains = validate_integer("n_chains", n_chains)
        weights, iterates = np.zeros((n_chains, X.shape[1])), np.empty((n_chains, self.n_steps, X.shape[1]))
        for step in range(self.n_steps):
            moved = weights + self.step / 2 * self.drift(weights, X, y)
            weights = moved + math.sqrt(self.step) * rng.standard_normal(weights.shape)
            iterates[:, step] = weights
        return iterates

    def drift(self, weights: Array, design: Array, labels: Array) -> Array:
        """Return −∇U at weights of shape (..., d), for records that have been validated."""
        return self.power * ((labels - expit(weights @ design.T)) @ design) - self.precision * weights


def langevin_chain(
    n: int, beta: float, n_steps: int, step: float, power: float = 1.0, norm_bound: float = 1.0
) -> LangevinChain:
    """Return a chain with the given step size and number of steps.

    Parameters
    ----------
    n : int
        Number of records, public, ≥ 1.
    beta : float
        Prior precision per record, finite and > 0: the prior is N(0, (n·beta)⁻¹I).
    n_steps : int
        Number of steps, ≥ 1.
    step : float
        Step size η, in (0, 4/(κ + M)].
    power : float
        Power of the likelihood, in (0, 1].
    norm_bound : float
        Upper bound on ‖x‖₂ of every record, chosen independently of the data.

    Returns
    -------
    LangevinChain

    Raises
    ------
    ValueError
        If an argument is invalid; for a step that is too large, with the largest one.

    Examples
    --------
    >>> chain = langevin_chain(n=1000, beta=0.01, n_steps=100, step=0.005)
    >>> print(chain.guarantee, chain.last_guarantee)
    0.707107-GDP 0.580352-GDP
    """
    n, precision = validate_size(n), validate_positive("beta", beta, "choose it independently of the data") * n
    norm_bound = validate_positive("norm_bound", norm_bound, "choose it independently of the data")
    if not 0 < validate_positive("power", power, "choose at most 1") <= 1:
        raise ValueError(f"power must be in (0, 1], got {power}; choose at most 1")
    largest = 4.0 / (precision + _smoothness(n, precision, power, norm_bound))
    if validate_positive("step", step, f"choose at most {largest:g}") > largest:
        raise ValueError(f"step must be at most 4/(kappa + M) = {largest:g}, got {step:g}; choose a smaller one")
    return LangevinChain(n, precision, power, step, validate_integer("n_steps", n_steps), norm_bound)


def last_langevin(n: int, beta: float, epsilon: float, delta: float, norm_bound: float = 1.0) -> LangevinChain:
    """Return the chain ``langevin-last``, whose last iterate is (ε, δ)-DP without an assumption on convergence.

    The step size is 1/(κ + M), and the number of steps reduces the distance between start and mode by a factor of 100.
    The power is the largest one, at most 1, for which the guarantee holds. All are computed from the arguments.

    Parameters
    ----------
    n, beta, norm_bound
        As in `langevin_chain`.
    epsilon : float
        Privacy loss in nats, finite and > 0.
    delta : float
        In (0, 1).

    Returns
    -------
    LangevinChain

    Examples
    --------
    >>> chain = last_langevin(n=2784, beta=0.001, epsilon=1.0, delta=1e-6)
    >>> print(round(chain.power, 3), chain.n_steps, chain.last_guarantee)
    0.2 477 0.236704-GDP
    """
    target = gaussian_mu(epsilon, delta)
    n, precision = validate_size(n), validate_positive("beta", beta, "choose it independently of the data") * n
    norm_bound = validate_positive("norm_bound", norm_bound, "choose it independently of the data")

    def chain(power: float) -> LangevinChain:
        step = 1.0 / (precision + _smoothness(n, precision, power, norm_bound))
        n_steps = math.ceil(math.log(_START) / math.log1p(-step * precision / 2))
        return LangevinChain(n, precision, power, step, n_steps, norm_bound)

    if chain(1.0).last_guarantee.mu <= target:
        return chain(1.0)
    low, high = 0.0, 1.0  # the chain at `low` satisfies the guarantee
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if chain(middle).last_guarantee.mu <= target else (low, middle)
    return chain(low)


def gaussian_glm(n: int, beta: float, epsilon: float, delta: float, norm_bound: float = 1.0) -> GlmMechanism:
    """Return the mechanism ``glm-gdp``: the target of ``glm-diffused``, calibrated by Gaussian differential privacy.

    The negative log density is κ-strongly convex, and that of a neighbour differs by a 2cρ-Lipschitz function, so one
    exact draw is (2cρ/√κ)-GDP (Gopi, Lee & Liu 2022). Arguments are as in `last_langevin`.

    Examples
    --------
    >>> print(gaussian_glm(n=2784, beta=0.001, epsilon=1.0, delta=1e-6).guarantee)
    0.236704-GDP
    """
    mu = gaussian_mu(epsilon, delta)
    target = glm_mechanism("glm-diffused", n, beta, 1.0, mu**2 / 2, norm_bound)
    stated = min(mu, 2.0 * norm_bound * target.power / math.sqrt(target.precision))
    return GlmMechanism(
        "glm-gdp", target.precision, target.power, target.radius, target.link, norm_bound, GaussianGuarantee(stated)
    )


def forecast_draws(curvatures: ArrayLike, mu: float, step: float = 0.0, norm_bound: float = 1.0) -> Array:
    """Return the number of effective draws, for the mean, of a chain that publishes all iterates under μ-GDP.

    Parameters
    ----------
    curvatures : array_like, shape (d,)
        Curvatures κⱼ > 0 of U, or public bounds on them; ρ = 1.
    mu : float
        Budget μ > 0.
    step : float
        Step size; 0 for the limit of small steps.
    norm_bound : float
        Upper bound on ‖x‖₂.

    Returns
    -------
    ndarray of float64, shape (d,)
        Intervals need at least `LEAST_DRAWS` in each direction.

    Examples
    --------
    >>> mu = gaussian_mu(1.0, 1e-6)
    >>> print(forecast_draws([250.0, 2.5], mu).round(3))
    [3.502 0.035]
    """
    curved = np.asarray(curvatures, dtype=np.float64)
    if not np.all(curved * step < 4.0):
        raise ValueError(f"step must be below 4/curvature, got {step:g}; choose a smaller one")
    return GaussianGuarantee(mu).rho * curved / (2.0 * norm_bound**2) / (1.0 - step * curved / 4.0)


def _smoothness(n: int, precision: float, power: float, norm_bound: float) -> float:
    return precision + power * n * norm_bound**2 / 4.0
