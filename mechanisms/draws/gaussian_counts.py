"""Gaussian mechanism on counts, followed by a draw from the posterior given the noisy counts (P3, section 5.1).

The counts c of n records in k categories receive independent noise σz, z ~ N(0, I). The noisy counts are projected onto
the vectors ≥ 0 with sum n, and θ is drawn from the conjugate posterior that treats the projected counts c̃ as data:

    c̃ = argmin { ‖c + σz − v‖₂ : v ≥ 0, Σv = n },   θ ~ Dir(α + c̃).

The projection depends only on the component of σz with sum 0. For k = 2 this component is one number, and the mechanism
is that of P3: N(0, σ²/2) noise is added to the number of successes, and the result is clamped to [0, n].

**Privacy.** Replacing one record changes c by eᵢ − eⱼ, with norm Δ = √2 (the number of successes by Δ = 1). Two normal
distributions with variance σ² and means at distance Δ have D_λ = λΔ²/(2σ²). P3 cites Mironov (2017) for twice this
value, λΔ²/σ²:

==================  ============  ==========================================================
name                σ²            Rényi divergence of order λ
==================  ============  ==========================================================
`gaussian`          λΔ²/ε         ε/2 (published variance)
`gaussian-tight`    λΔ²/(2ε)      ε
==================  ============  ==========================================================

These are the values before the projection. Projection and draw are post-processing and do not increase them.

References
----------
P3, section 5.1. Mironov, "Rényi differential privacy", CSF 2017, proposition 7. Foulds, Geumlek, Welling & Chaudhuri,
"On the theory and practice of privacy-preserving Bayesian data analysis", UAI 2016: the mechanism, with Laplace noise.
Duchi, Shalev-Shwartz, Singer & Chandra, "Efficient projections onto the l1-ball", ICML 2008: the projection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.core.arguments import Floats, Integers, find_entry, is_real, real_array, validate_integer
from mechanisms.core.conjugate import validate_counts, validate_prior
from mechanisms.core.metadata import Entry, Style, register
from mechanisms.core.privacy import ConcentratedGuarantee, RenyiGuarantee
from mechanisms.core.privacy_parameters import validate_epsilon, validate_order, validate_size
from mechanisms.core.protocols import OutputDistribution
from mechanisms.draws.dirichlet_divergence import mixture_kl

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_TAIL = 12.0  # truncation of the noise, in standard deviations; larger noise has a probability below 1e-32
_LARGE = 1e12  # size of noisy counts beyond which they have few digits left for n


@dataclass(frozen=True, kw_only=True)
class GaussianMethod(Entry):
    """Rule that sets the noise variance of the Gaussian mechanism."""

    variance: float  # ratio to the smallest variance for which the mechanism is (λ, ε)-RDP


GAUSSIAN_MECHANISMS: dict[str, GaussianMethod] = register(
    __name__,
    GaussianMethod(
        "gaussian", "Gaussian noise with the published variance.",
        variance=2.0, origin="baseline", paper="P3", style=Style("green", "^")),
    GaussianMethod(
        "gaussian-tight", "Gaussian noise with half the published variance.",
        variance=1.0, origin="baseline", paper="P3", variant="half the variance", style=Style("green", ">")),
)  # fmt: skip
"""Calibrations by name."""


@dataclass(frozen=True)
class GaussianCounts:
    """Gaussian mechanism for data sets of n records; build it with `gaussian_mechanism`."""

    prior: tuple[float, ...]  # Dirichlet parameters α
    n: int
    noise_std: float  # σ, in records

    def renyi_epsilon(self, order: float) -> float:
        """Return the Rényi divergence λ/σ² between noisy counts of neighbours, a bound on the divergence of θ."""
        return validate_order(order) / self.noise_std**2

    def guarantee(self, order: float) -> RenyiGuarantee:
        """Return the Rényi guarantee of one release at the given order."""
        return RenyiGuarantee(order, self.renyi_epsilon(order))

    @property
    def concentrated_guarantee(self) -> ConcentratedGuarantee:
        """Guarantee of ρ-zCDP with ρ = 1/σ², which bounds the divergences of all orders."""
        return ConcentratedGuarantee(self.noise_std**-2)

    def from_uniforms(self, uniforms: ArrayLike, counts: ArrayLike) -> Floats:
        """Return projected noisy counts; uniforms in (0, 1) and counts, shape (..., k), broadcast.

        A release has `guarantee`, under replace-one with n public, for exact normal noise; draws in doubles are for
        simulation.
        """
        normals = special.ndtri(real_array("uniforms", uniforms))
        return project_counts(real_array("counts", counts) + self.noise_std * normals, self.n)

    def at(self, counts: ArrayLike) -> GaussianDraw:
        """Return the distribution of a draw θ for one data set, given its counts: integers ≥ 0, shape (k,), sum n."""
        return GaussianDraw(self, validate_counts(counts, k=len(self.prior), n=self.n))

    def successes_distribution(self, successes: int) -> tuple[Floats, Floats]:
        """Return quadrature nodes and probabilities for the released number of successes, for k = 2.

        The first and last values are the atoms 0 and n. The sum of probability·f(value) equals E[f] to about 1e-13 for
        functions f as smooth as 1/B(α + c̃).
        """
        if len(self.prior) != 2:
            raise ValueError(f"prior must have 2 categories for this distribution, got {len(self.prior)}; use sample")
        if not (is_real(successes) and 0 <= successes <= self.n and successes == int(successes)):
            raise ValueError(f"successes must be an integer from 0 to {self.n}, got an invalid value; pass a count")
        std = self.noise_std / math.sqrt(2.0)
        low, high = max(0.0, successes - _TAIL * std), min(float(self.n), successes + _TAIL * std)
        # panels are as narrow as the noise and as the peak of 1/B(α + c̃)
        width = min(4.0 * std, math.sqrt(self.n + sum(self.prior)))
        edges = np.linspace(low, high, 2 + int((high - low) / width))
        half = (edges[1] - edges[0]) / 2
        values = ((edges[:-1, None] + half) + half * _NODES).ravel()
        density = np.exp(-(((values - successes) / std) ** 2) / 2) / (std * math.sqrt(2.0 * math.pi))
        ends = special.ndtr(np.array([-successes, successes - self.n]) / std)
        masses = np.concatenate([ends[:1], density * np.tile(half * _WEIGHTS, edges.size - 1), ends[1:]])
        return np.concatenate([[0.0], values, [float(self.n)]]), masses / masses.sum()

    def posterior_kl(self, successes: int) -> float:
        """Return KL(true posterior ‖ distribution of θ) at c₁ = `successes`, for k = 2, with relative error 1e-9."""
        values, probabilities = self.successes_distribution(successes)
        alpha, beta = self.prior
        posterior = alpha + successes, beta + self.n - successes
        components = alpha + values, beta + self.n - values
        return mixture_kl(posterior, components, values - successes, probabilities)


@dataclass(frozen=True, eq=False)
class GaussianDraw(OutputDistribution):
    """Distribution of a draw θ for one data set; build it with `GaussianCounts.at`."""

    mechanism: GaussianCounts
    counts: Integers = field(repr=False)

    def guarantee(self, order: float) -> RenyiGuarantee:
        """Return the Rényi guarantee of one draw at an order; see `GaussianCounts.guarantee`."""
        return self.mechanism.guarantee(order)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return draws of θ, shape (size, k), each with independent noise; the divergences of the draws add up."""
        shape = validate_integer("size", size, least=0), self.counts.size
        noisy = self.counts + self.mechanism.noise_std * rng.standard_normal(shape)
        released = project_counts(noisy, self.mechanism.n)
        return np.stack([rng.dirichlet(parameters) for parameters in np.array(self.mechanism.prior) + released])

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log density, shape (...), of θ > 0, shape (..., 2), by quadrature; defined for k = 2 only."""
        theta = np.log(np.asarray(values, dtype=np.float64))[..., None]
        released, probabilities = self.mechanism.successes_distribution(int(self.counts[0]))
        first, second = self.mechanism.prior[0] + released, self.mechanism.prior[1] + self.mechanism.n - released
        log_densities = (first - 1) * theta[..., 0, :] + (second - 1) * theta[..., 1, :] - special.betaln(first, second)
        return special.logsumexp(log_densities, b=probabilities, axis=-1)


def gaussian_mechanism(
    name: GaussianMethod | str, prior: ArrayLike, n: int, order: float, epsilon: float
) -> GaussianCounts:
    """Return the mechanism with the noise variance that the calibration `name` prescribes for (λ, ε)-RDP.

    Parameters
    ----------
    name : GaussianMethod or str
        An entry of `GAUSSIAN_MECHANISMS` or its key.
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0.
    n : int
        Number of records, ≥ 1, public.
    order : float
        Order λ, finite and ≥ 1.
    epsilon : float
        Bound on the Rényi divergence in nats, finite and > 0.

    Privacy
    -------
    A release is (λ, ε)-RDP under replace-one with n public; with `gaussian` it is even (λ, ε/2)-RDP.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    Noise variance of the number of successes, and guarantee:

    >>> for name in GAUSSIAN_MECHANISMS:
    ...     release = gaussian_mechanism(name, [6, 12], n=100, order=2, epsilon=0.5)
    ...     print(name, round(release.noise_std**2 / 2, 6), release.guarantee(2))
    gaussian 4.0 (2, 0.25)-RDP
    gaussian-tight 2.0 (2, 0.5)-RDP
    """
    method = find_entry(GAUSSIAN_MECHANISMS, name)
    alpha = validate_prior(prior)
    n = validate_size(n)
    variance = method.variance * validate_order(order) / validate_epsilon(epsilon)
    return GaussianCounts(tuple(alpha.tolist()), int(n), math.sqrt(variance))


def project_counts(noisy: ArrayLike, n: float) -> Floats:
    """Return the nearest points max(noisy − t, 0) with sum n over the last axis, in Euclidean distance."""
    y = np.asarray(noisy, dtype=np.float64)
    top = y.max(axis=-1, keepdims=True)
    y = y - np.where(np.abs(top) > _LARGE, top, 0.0)  # a common shift has no effect, but on the digits left for n
    descending = -np.sort(-y, axis=-1)
    thresholds = (np.cumsum(descending, axis=-1) - n) / np.arange(1, y.shape[-1] + 1)
    n_positive = np.maximum(np.count_nonzero(descending > thresholds, axis=-1)[..., None], 1)
    return np.maximum(y - np.take_along_axis(thresholds, n_positive - 1, axis=-1), 0.0)
