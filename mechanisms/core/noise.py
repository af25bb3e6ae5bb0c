"""Distributions of the noise that is added to released statistics, shared by mechanisms and inference.

A release is y = s + Z with a statistic s of d components. Laplace and Gaussian noise is real. Two-sided geometric noise
is an integer per component, and K-norm noise is an integer vector with sum zero. Up to a constant,

    ln p(z) = −Σⱼ |zⱼ/scale|^power / power,  power = 2 for Gaussian noise and 1 otherwise.

``discrete-gaussian`` noise is Gaussian noise on integer vectors, with the guarantee of Gaussian noise for integer
statistics. `EXACT` stands for a value without noise.

The guarantee of Gaussian noise is ρ-zCDP with ρ = Δ²/(2·scale²). K-norm noise is two-sided geometric noise given that
its sum is zero. The statistic must have a public sum, such as the counts of n records. If one record is replaced,
two counts change by one, so Δ = 2 and scale = 2/ε.

References
----------
Dwork, McSherry, Nissim & Smith, "Calibrating noise to sensitivity in private data analysis", TCC 2006. Ghosh,
Roughgarden & Sundararajan, "Universally utility-maximizing privacy mechanisms", SIAM Journal on Computing 41(6), 2012.
Hardt & Talwar, "On the geometry of differential privacy", STOC 2010: the K-norm mechanism. Bun & Steinke, "Concentrated
differential privacy: simplifications, extensions, and lower bounds", TCC 2016: Gaussian noise. Canonne, Kamath &
Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.core.arguments import Floats, Integers, validate_positive
from mechanisms.core.exact_scales import ExactSampler, require_scale, sum_zero_sampler
from mechanisms.core.jit import kernel
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee, Neighbouring
from mechanisms.core.privacy_parameters import validate_epsilon, validate_sensitivity

_SMALLEST = 5e-324  # the smallest positive number: no loss is rounded to 0


@dataclass(frozen=True)
class RoundedShape:
    """Distribution of one component of symmetric noise Z, rounded to an integer."""

    from_uniforms: Callable[[Floats, float], Floats]  # (uniforms, scale) -> Z, which is not rounded yet
    log_equal: Callable[[Integers, float], Floats]  # (d >= 0, scale) -> ln Pr[round(Z) = d]
    log_tail: Callable[[Integers, float], Floats]  # (d >= 1, scale) -> ln Pr[round(Z) >= d]

    def log_at_least(self, d: Integers, scale: float) -> Floats:
        """Return ln Pr[round(Z) ≥ d], accurate in both tails; Pr[round(Z) ≥ d] = 1 − Pr[round(Z) ≥ 1 − d]."""
        log_tail = self.log_tail(np.maximum(d, 1 - d), scale)
        return np.where(d >= 1, log_tail, np.log1p(-np.exp(log_tail)))


@dataclass(frozen=True)
class NoiseShape:
    """Distribution of noise up to its scale."""

    log_normaliser: Callable[[float, int], float]  # (scale, number of components) -> `Noise.log_normaliser`
    draw: Callable[[np.random.Generator, float, tuple[int, ...]], Floats]  # (generator, scale, shape) -> draws
    power: int = 1  # of the residual in the log density
    is_integer: bool = False
    sums_to_zero: bool = False  # the components of a draw sum to zero
    rounded: RoundedShape | None = None
    exact: Callable[[float, int], ExactSampler] | None = None  # (scale, number of components) -> sampler by OpenDP


@dataclass(frozen=True)
class Noise:
    """Distribution of the noise of one release.

    Parameters
    ----------
    name : {"laplace", "geometric", "gaussian", "k-norm", "discrete-gaussian"}
        Distribution. The sensitivity Δ of the statistic is in the norm of the table; discrete Gaussian noise is
        Gaussian noise on integer vectors.

        ==========  ==============================  ===================  ========================
        name        support                         sensitivity Δ        guarantee of one release
        ==========  ==============================  ===================  ========================
        laplace     real vectors                    ℓ₁                   (Δ/scale)-DP
        geometric   integer vectors                 ℓ₁                   (Δ/scale)-DP
        k-norm      integer vectors with sum zero   ℓ₁                   (Δ/scale)-DP
        gaussian    real vectors                    ℓ₂                   Δ²/(2·scale²)-zCDP
        ==========  ==============================  ===================  ========================
    scale : float
        Scale of the noise, finite and > 0, in units of the statistic; the standard deviation of Gaussian noise, and
        about that of discrete Gaussian noise.

    Raises
    ------
    ValueError
        If the name is unknown or the scale is invalid.

    Examples
    --------
    >>> noise = Noise("laplace", 2.0)
    >>> noise.log_prob([[0.0, 0.0], [2.0, -2.0]]).round(3)
    array([-2.773, -4.773])
    >>> print(noise.guarantee(1.0))
    0.5-DP
    """

    name: str
    scale: float

    def __post_init__(self) -> None:
        if self.name not in NOISES:
            raise ValueError(f"noise must be one of {', '.join(NOISES)}, got {self.name!r}; choose one of them")
        if not (type(self.scale) is float and 0.0 < self.scale < math.inf):  # the common case first
            validate_positive("scale", self.scale, "use calibrated_noise")

    @property
    def power(self) -> int:
        """Power of the residual in the log density: 2 for Gaussian noise, 1 otherwise."""
        return NOISES[self.name].power

    @property
    def is_pure(self) -> bool:
        """True if the guarantee of a release is pure DP; the guarantee of Gaussian noise is zCDP."""
        return self.power == 1

    @property
    def is_integer(self) -> bool:
        """True if draws are integer vectors; the statistic must then be an integer vector, too."""
        return NOISES[self.name].is_integer

    @property
    def sums_to_zero(self) -> bool:
        """True if the components of a draw sum to zero."""
        return NOISES[self.name].sums_to_zero

    @property
    def density_variance(self) -> float:
        """Variance of a real number whose log density is `log_weight` up to a constant."""
        return self.scale * self.scale * (2.0 if self.power == 1 else 1.0)

    def log_weight(self, residuals: ArrayLike) -> Floats:
        """Return the log density of components z = y − s, any shape, minus its maximum, which is attained at 0."""
        z = np.abs(residuals) / self.scale
        return -z if self.power == 1 else -0.5 * z * z

    def log_prob(self, residuals: ArrayLike) -> Floats:
        """Return the log density or log probability, shape (...), of vectors z = y − s; −∞ outside the support.

        Parameters
        ----------
        residuals : array_like, shape (..., d)
        """
        z = np.asarray(residuals, dtype=np.float64)
        log_prob = self.log_weight(z).sum(axis=-1) - self.log_normaliser(z.shape[-1])
        possible = np.ones(z.shape[:-1], dtype=bool)
        if self.is_integer:
            possible &= np.all(z == np.floor(z), axis=-1)
        if self.sums_to_zero:
            possible &= z.sum(axis=-1) == 0
        return np.where(possible, log_prob, -np.inf)

    def log_normaliser(self, d: int) -> float:
        """Return the log of the integral, or of the sum, of exp(Σ log_weight) over vectors of d ≥ 1 components."""
        return NOISES[self.name].log_normaliser(self.scale, d)

    def sample(self, rng: np.random.Generator, shape: Sequence[int]) -> Floats:
        """Draw float64 vectors of noise along the last axis of an array of the given shape (..., d).

        Examples
        --------
        >>> Noise("k-norm", 4.0).sample(np.random.default_rng(1), (2, 3)).sum(axis=1)
        array([0., 0.])
        """
        return NOISES[self.name].draw(rng, self.scale, tuple(shape))

    @property
    def rounded(self) -> RoundedShape:
        """Distribution of one rounded component."""
        shape = NOISES[self.name].rounded
        if shape is None:
            raise ValueError(f"noise must be laplace or geometric to be rounded, got {self.name}; choose one of them")
        return shape

    def exact_sampler(self, d: int) -> ExactSampler:
        """Return the exact sampler of a vector of d ≥ 1 integers, int64, for releases of real data.

        Raises
        ------
        ValueError
            If the noise has no exact sampler, or the scale is too large.

        Privacy
        -------
        Draws are exact. A sampler needs `mechanisms.release.ExactNoise`, which only an entered release has.
        `laplace_scale_for` rounds a scale upwards.
        """
        exact = NOISES[self.name].exact
        if exact is None:
            known = ", ".join(name for name, shape in NOISES.items() if shape.exact)
            raise ValueError(f"noise must have an exact sampler, got {self.name}; use one of {known}")
        return exact(require_scale(self.scale), d)

    def guarantee(
        self, sensitivity: float, relation: Neighbouring = Neighbouring.REPLACE_ONE
    ) -> Guarantee | ConcentratedGuarantee:
        """Return the guarantee of a release: (Δ/scale)-DP, or Δ²/(2·scale²)-zCDP for Gaussian noise.

        Parameters
        ----------
        sensitivity : float
            Sensitivity Δ, the largest change of the statistic between neighbours, in ℓ₁, or in ℓ₂ for Gaussian noise.
        relation : Neighbouring
            Neighbouring relation of the sensitivity, and of the guarantee.

        Raises
        ------
        ValueError
            If the sensitivity is not finite and > 0, or the noise is K-norm noise and records are added or removed.

        Examples
        --------
        >>> print(Noise("gaussian", 2.0).guarantee(1.0))
        0.125-zCDP
        """
        require_replacement(self, relation)
        loss = validate_sensitivity(sensitivity) / self.scale
        if self.is_pure:
            return Guarantee(max(loss, _SMALLEST), relation=relation)
        return ConcentratedGuarantee(max(0.5 * loss * loss, _SMALLEST), relation)


@dataclass(frozen=True)
class Exact:
    """Absence of noise; the only instance is `EXACT`."""

    def __repr__(self) -> str:
        return "EXACT"


EXACT = Exact()  # noise of a published value that is not noisy, such as an invariant


def require_replacement(noise: Noise | Exact, relation: Neighbouring) -> None:
    """Raise ValueError for K-norm noise under addition or removal, which changes the sum of the counts."""
    if isinstance(noise, Noise) and noise.sums_to_zero and relation is Neighbouring.ADD_OR_REMOVE_ONE:
        rule = "relation must be REPLACE_ONE for k-norm noise, as the sum is public"
        raise ValueError(f"{rule}, got {relation.name}; use geometric noise")


def calibrated_noise(name: str, sensitivity: float, loss: float) -> Noise:
    """Return noise with the scale at which a release has a given privacy loss.

    Parameters
    ----------
    name : {"laplace", "geometric", "gaussian", "k-norm", "discrete-gaussian"}
    sensitivity : float
        Sensitivity Δ in ℓ₁, or in ℓ₂ for Gaussian noise, finite and > 0.
    loss : float
        ε in nats, or ρ of ρ-zCDP for Gaussian noise; finite and > 0.

    Returns
    -------
    Noise
        Noise of scale Δ/ε, or Δ/√(2ρ) for Gaussian noise.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> calibrated_noise("k-norm", 2.0, 0.1), calibrated_noise("gaussian", 1.0, 0.02)
    (Noise(name='k-norm', scale=20.0), Noise(name='gaussian', scale=5.0))
    """
    change = validate_sensitivity(sensitivity)
    if Noise(name, 1.0).is_pure:
        return Noise(name, change / validate_epsilon(loss))
    return Noise(name, change / math.sqrt(2.0 * ConcentratedGuarantee(loss).rho))


def _draw_geometric(rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Floats:
    """Draw integers with Pr[z] ∝ exp(−|z|/scale), as the difference of two geometric variables."""
    require_scale(scale)  # draws of larger scales exceed 64 bits, where NumPy returns the largest integer
    success = -math.expm1(-1.0 / scale)
    return (rng.geometric(success, shape) - rng.geometric(success, shape)).astype(np.float64)


def _draw_k_norm(rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Floats:
    """Draw geometric noise given that its sum is zero, by rejection."""
    # d − 1 geometric components, with the negative of their sum S as the last, are accepted with probability
    # exp(−|S|/scale), at a rate of about 0.6/√d at every scale.
    d = shape[-1]
    drawn = np.empty((math.prod(shape[:-1]), d))
    pending = np.arange(len(drawn))
    while pending.size:
        free = _draw_geometric(rng, scale, (pending.size, d - 1))
        last = -free.sum(axis=1)
        accepted = rng.standard_exponential(pending.size) * scale >= np.abs(last)
        drawn[pending[accepted]] = np.column_stack([free, last])[accepted]
        pending = pending[~accepted]
    return drawn.reshape(shape)


@lru_cache(maxsize=256)  # one number per entry, for each evaluation of a density
def k_norm_log_normaliser(k: int, epsilon: float) -> float:
    """Return ln Z, Z = Σ exp(−ε·½‖v‖₁) over integer vectors v with k entries and Σv = 0; at k = 2, Z = coth(ε/2).

    Z is the sum of `k_norm_log_weights` over (1 − q)^(k − 1), q = exp(−ε): see the proof in `mechanisms.counts.k_norm`.
    """
    return float(special.logsumexp(k_norm_log_weights(k, epsilon))) - (k - 1) * math.log(-math.expm1(-epsilon))


def k_norm_log_weights(k: int, epsilon: float) -> Floats:
    """Return ln(C(k − 1, j)²·qʲ), q = exp(−ε), for j = 0, ..., k − 1."""
    j = np.arange(k, dtype=np.float64)
    return 2.0 * (special.gammaln(float(k)) - special.gammaln(j + 1.0) - special.gammaln(k - j)) - epsilon * j


def _draw_discrete_gaussian(rng: np.random.Generator, scale: float, shape: tuple[int, ...]) -> Floats:
    """Draw integers with Pr[z] ∝ exp(−z²/(2·scale²)) by rejection from geometric noise of scale ⌊scale⌋ + 1."""
    width = math.floor(scale) + 1.0
    drawn = np.empty(math.prod(shape))
    pending = np.arange(drawn.size)
    while pending.size:
        z = _draw_geometric(rng, width, (pending.size,))
        accepted = rng.standard_exponential(pending.size) >= 0.5 * ((np.abs(z) - scale * scale / width) / scale) ** 2
        drawn[pending[accepted]] = z[accepted]
        pending = pending[~accepted]
    return drawn.reshape(shape)


def _discrete_gaussian_log_normaliser(scale: float, d: int) -> float:
    """Return d·ln Σ_z exp(−z²/(2·scale²)); for scales above 1 by Poisson's summation formula."""
    j = np.arange(1.0, 11.0)
    if scale > 1.0:
        log_sum = 0.5 * math.log(2.0 * math.pi) + math.log(scale) + math.log1p(
            2.0 * float(np.exp(-2.0 * (math.pi * scale * j) ** 2).sum())
        )  # fmt: skip
    else:
        log_sum = math.log1p(2.0 * float(np.exp(-0.5 * (j / scale) ** 2).sum()))
    return d * log_sum


def _log_one_minus_exp(x: float) -> float:
    """Return ln(1 − exp(−x)) for x > 0, accurate even if exp(−x) is close to zero or one."""
    return math.log(-math.expm1(-x)) if x < 1.0 else math.log1p(-math.exp(-x))


def _laplace_log_equal(away: Integers, scale: float) -> Floats:
    """Return ln Pr[|Z − d| < ½] for Laplace noise Z and d ≥ 0, without subtracting distribution functions."""
    side = -(away - 0.5) / scale + (math.log(0.5) + _log_one_minus_exp(1.0 / scale))
    return np.where(away == 0, _log_one_minus_exp(0.5 / scale), side)


def _geometric_log_equal(away: Integers, scale: float) -> Floats:
    """Return ln Pr[Z = d] = ln((1 − q)/(1 + q)) + d·ln q for geometric noise Z, q = exp(−1/scale), d ≥ 0."""
    return -away / scale + (_log_one_minus_exp(1.0 / scale) - math.log1p(math.exp(-1.0 / scale)))


@kernel
def _laplace_from_uniforms(uniforms, scale):
    """Return Laplace noise by inversion, for uniforms of shape (trials, components)."""
    noise = np.empty(uniforms.shape)
    for trial in range(uniforms.shape[0]):
        for category in range(uniforms.shape[1]):
            u = uniforms[trial, category]
            # Inverse distribution function, separately in each tail: 1 − u is exact for u ≥ ½.
            if u == 0.0:
                noise[trial, category] = -np.inf
            elif u < 0.5:
                noise[trial, category] = scale * math.log(2.0 * u)
            else:
                noise[trial, category] = -scale * math.log(2.0 * (1.0 - u))
    return noise


@kernel
def _geometric_from_uniforms(uniforms, scale):
    """Return two-sided geometric noise by inversion, for uniforms of shape (trials, components)."""
    noise = np.empty(uniforms.shape)
    q = math.exp(-1.0 / scale)
    for trial in range(uniforms.shape[0]):
        for category in range(uniforms.shape[1]):
            u = uniforms[trial, category]
            # The smallest z with F(z) > u: F(z) = q^(−z)/(1 + q) below zero, 1 − q^(z+1)/(1 + q) from zero on.
            if u == 0.0:
                noise[trial, category] = -np.inf
            elif u * (1.0 + q) < q:
                noise[trial, category] = min(np.floor(scale * math.log(u * (1.0 + q))) + 1.0, -1.0)
            else:
                noise[trial, category] = max(np.floor(-scale * math.log((1.0 - u) * (1.0 + q))), 0.0)
    return noise


NOISES: dict[str, NoiseShape] = {
    "laplace": NoiseShape(
        lambda scale, d: d * math.log(2.0 * scale), lambda rng, scale, shape: rng.laplace(scale=scale, size=shape),
        rounded=RoundedShape(
            _laplace_from_uniforms, _laplace_log_equal, lambda d, scale: math.log(0.5) - np.subtract(d, 0.5) / scale)),
    "geometric": NoiseShape(
        lambda scale, d: -d * math.log(math.tanh(0.5 * (1.0 / scale))), _draw_geometric, is_integer=True,
        rounded=RoundedShape(
            _geometric_from_uniforms, _geometric_log_equal,
            lambda d, scale: -d / scale - math.log1p(math.exp(-1.0 / scale))),
        exact=lambda scale, d: lambda noise: noise.laplace(scale, d)),
    "gaussian": NoiseShape(
        lambda scale, d: d * (0.5 * math.log(2.0 * math.pi) + math.log(scale)),
        lambda rng, scale, shape: rng.normal(scale=scale, size=shape), power=2),
    "k-norm": NoiseShape(
        lambda scale, d: k_norm_log_normaliser(d, 2.0 * (1.0 / scale)), _draw_k_norm, is_integer=True,
        sums_to_zero=True, exact=lambda scale, d: sum_zero_sampler("laplace", scale, d)),
    "discrete-gaussian": NoiseShape(
        _discrete_gaussian_log_normaliser, _draw_discrete_gaussian, power=2, is_integer=True,
        exact=lambda scale, d: lambda noise: noise.gaussian(scale, d)),
}  # fmt: skip
"""Noise distributions by name."""
