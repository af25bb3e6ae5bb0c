"""Gaussian mechanism on counts, with a draw from the posterior that treats the noisy counts as data (P3, section 5.1).

Counts c of n records in k categories receive independent N(0, σ²) noise and are projected onto the simplex of total n,

    c̃ = argmin { ‖c + σz − v‖₂ : v ≥ 0, Σv = n },   θ ~ Dir(α + c̃).

The projection depends only on the part of σz with sum 0. For k = 2 that is one number, and the mechanism is that of
P3: the number of successes with N(0, σ²/2) noise, clamped to [0, n].

**Privacy.** Replacing one record changes c by eᵢ − eⱼ, with norm Δ = √2 (the number of successes by Δ = 1). Two normal
distributions with equal variance have D_λ = λΔ²/(2σ²). P3 cites Mironov (2017) for twice this value, λΔ²/σ²:

==================  ============  ==========================================================
name                σ²            Rényi divergence of order λ
==================  ============  ==========================================================
`gaussian`          λΔ²/ε         ε/2 (published variance)
`gaussian-tight`    λΔ²/(2ε)      ε
==================  ============  ==========================================================

These are the values before the projection. Projection and draw are post-processing and do not increase them.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi Differential Privacy Mechanisms for Posterior Sampling", NeurIPS 2017, section
5.1. Mironov, "Rényi differential privacy", CSF 2017, proposition 7. Foulds, Geumlek, Welling & Chaudhuri, "On the
theory and practice of privacy-preserving Bayesian data analysis", UAI 2016: the mechanism, with Laplace noise.
Duchi, Shalev-Shwartz, Singer & Chandra, "Efficient projections onto the l1-ball", ICML 2008: the projection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.conjugate import validate_counts, validate_prior
from mechanisms.jit import kernel
from mechanisms.metadata import Entry, Style, find_entry
from mechanisms.privacy import RenyiGuarantee, validate_epsilon, validate_order, validate_size
from mechanisms.protocols import OutputDistribution
from mechanisms.renyi.divergence import cell_renyi

__all__ = [
    "GAUSSIAN_MECHANISMS",
    "GaussianCounts",
    "GaussianDraw",
    "GaussianMethod",
    "gaussian_mechanism",
    "project_counts",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GaussianMethod(Entry):
    """Calibration of the Gaussian mechanism.

    Attributes
    ----------
    name, note, origin, paper, variant, style
        See `Entry`.
    variance : float
        Variance of the noise relative to the smallest variance that is (λ, ε)-RDP.
    """

    variance: float = field(kw_only=True)


GAUSSIAN_MECHANISMS: dict[str, GaussianMethod] = {
    method.name: method
    for method in (
        GaussianMethod(
            "gaussian",
            "Gaussian noise with the published variance.",
            variance=2.0,
            origin="baseline",
            paper="P3",
            style=Style("green", "^"),
        ),
        GaussianMethod(
            "gaussian-tight",
            "Gaussian noise with half the published variance.",
            variance=1.0,
            origin="baseline",
            paper="P3",
            variant="half the variance",
            style=Style("green", ">", "dashed"),
        ),
    )
}
"""Calibrations by name."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_TAIL = 12.0  # standard deviations; the noise exceeds them with probability 1e-32
_NEGLIGIBLE = 45.0  # the posterior density is truncated at exp(-45) of its maximum
_MOST_PIECES = 1 << 16
_TOLERANCE = 1e-11


@dataclass(frozen=True)
class GaussianCounts:
    """Gaussian mechanism for data sets of n records; build it with `gaussian_mechanism`.

    Attributes
    ----------
    prior : tuple of float
        α.
    n : int
        Number of records.
    noise_std : float
        σ, in records.
    """

    prior: tuple[float, ...]
    n: int
    noise_std: float

    def renyi_epsilon(self, order: float) -> float:
        """Return λΔ²/(2σ²), Δ² = 2, the Rényi divergence of the noisy counts of neighbours; that of θ is no larger."""
        return validate_order(order) / self.noise_std**2

    def guarantee(self, order: float) -> RenyiGuarantee:
        """Return the guarantee of one release at an order."""
        return RenyiGuarantee(order, self.renyi_epsilon(order))

    def from_uniforms(self, uniforms: ArrayLike, counts: ArrayLike) -> Floats:
        """Return projected noisy counts.

        Parameters
        ----------
        uniforms : array_like, shape (..., k)
            Independent uniforms in (0, 1), from which the noise is computed by inversion.
        counts : array_like, shape (..., k)
            c; the shapes broadcast.

        Returns
        -------
        ndarray of float64, shape (..., k)
            Real numbers ≥ 0 with sum n.

        Privacy
        -------
        `guarantee`, replace-one with n public, for exact normals. The rounding of doubles leaks information, so use
        these draws for simulation, not for the protection of data.
        """
        return self._release(special.ndtri(np.asarray(uniforms, dtype=np.float64)), counts)

    def _release(self, normals: Floats, counts: ArrayLike) -> Floats:
        return project_counts(np.asarray(counts, dtype=np.float64) + self.noise_std * normals, self.n)

    def at(self, counts: ArrayLike) -> GaussianDraw:
        """Return the distribution of a draw θ at one data set, with integers ≥ 0 of shape (k,) and sum n."""
        return GaussianDraw(self, validate_counts(counts, k=len(self.prior), n=self.n))

    def successes_distribution(self, successes: int) -> tuple[Floats, Floats]:
        """Return the distribution of the released number of successes for k = 2 on quadrature nodes.

        Parameters
        ----------
        successes : int
            c₁, in [0, n]: count of the first category.

        Returns
        -------
        values : ndarray of float64, shape (m,)
            The atoms 0 and n are first and last; between them are the nodes of the density.
        probabilities : ndarray of float64, shape (m,)
            Probabilities with sum 1; Σ probability·f(value) is E[f] to about 1e-13, for f as smooth as 1/B(α + c̃).

        Raises
        ------
        ValueError
            If there are more than two categories, or `successes` is invalid.

        Examples
        --------
        >>> values, probabilities = gaussian_mechanism("gaussian", [6, 12], 100, 2, 1e-6).successes_distribution(38)
        >>> print(round(probabilities[0], 3), round(probabilities[-1], 3), round(values @ probabilities, 2))
        0.489 0.483 49.66
        """
        self._require_two_cells()
        if not (0 <= successes <= self.n and successes == int(successes)):
            raise ValueError(f"successes must be an integer from 0 to {self.n}, got an invalid value; pass a count")
        std = self.noise_std / math.sqrt(2.0)
        low, high = max(0.0, successes - _TAIL * std), min(float(self.n), successes + _TAIL * std)
        # panels as narrow as the noise and as the peak of 1/B(α + c̃)
        width = min(4.0 * std, math.sqrt(self.n + sum(self.prior)))
        edges = np.linspace(low, high, 2 + int((high - low) / width))
        half = (edges[1] - edges[0]) / 2
        values = ((edges[:-1, None] + half) + half * _NODES).ravel()
        density = np.exp(-(((values - successes) / std) ** 2) / 2) / (std * math.sqrt(2.0 * math.pi))
        ends = special.ndtr(np.array([-successes, successes - self.n]) / std)
        masses = np.concatenate([ends[:1], density * np.tile(half * _WEIGHTS, edges.size - 1), ends[1:]])
        return np.concatenate([[0.0], values, [float(self.n)]]), masses / masses.sum()

    def posterior_kl(self, successes: int) -> float:
        """Return KL(true posterior ‖ distribution of a draw θ) for k = 2, by quadrature.

        Parameters
        ----------
        successes : int
            c₁, in [0, n].

        Returns
        -------
        float
            In nats, with a relative error below 1e-9.

        Raises
        ------
        ValueError
            As `successes_distribution`.

        Notes
        -----
        Let d = c̃₁ − c₁, φ the log odds of θ and φ̄ its posterior mean. The density of the draw relative to the posterior
        Beta(a, b) is r(φ) = E[exp(d·(φ − φ̄) − J(a+d, a) − J(b−d, b))] over the noise, J as in
        `mechanisms.renyi.divergence`. The integral ∫ p·(r − 1 − ln r) dφ over the range where the posterior density p
        is not negligible has a non-negative integrand. The probability of a draw outside this range is added to
        account for ∫ p·(r − 1) there.

        Examples
        --------
        >>> for name in GAUSSIAN_MECHANISMS:
        ...     print(name, round(gaussian_mechanism(name, [6, 12], 100, 2, 0.1).posterior_kl(38), 6))
        gaussian 0.064244
        gaussian-tight 0.022277
        """
        values, probabilities = self.successes_distribution(successes)
        alpha, beta = self.prior
        a, b = alpha + successes, beta + self.n - successes
        moved = values - successes
        start = np.array([[a], [b]]) + np.array([[1.0], [-1.0]]) * moved
        exponents = -cell_renyi(start, np.array([[-1.0], [1.0]]) * moved, 1.0).sum(axis=0)
        mean, mode = special.digamma(a) - special.digamma(b), math.log(a / b)
        log_peak = -a * math.log1p(b / a) - b * math.log1p(a / b) - special.betaln(a, b)
        reach = [_reach(a, b, side) for side in (-1.0, 1.0)]
        previous, n_pieces = math.nan, 8
        while n_pieces < _MOST_PIECES:
            edges = np.linspace(-reach[0], reach[1], n_pieces + 1)
            half = (edges[1] - edges[0]) / 2
            away = ((edges[:-1, None] + half) + half * _NODES).ravel()  # φ - mode
            gaps = np.empty(away.size)
            _fill_gaps(away + (mode - mean), moved, exponents, probabilities, gaps)
            terms = np.exp(log_peak + _log_relative_density(away, a, b)) * gaps
            inside = float(half * (terms.reshape(n_pieces, -1) @ _WEIGHTS).sum())
            if abs(inside - previous) <= _TOLERANCE * inside:
                break
            previous, n_pieces = inside, 2 * n_pieces
        else:
            raise ArithmeticError(f"no convergence with {n_pieces} pieces: {self}")
        low, high = special.expit(np.array([mode - reach[0], -mode - reach[1]]))
        first, second = alpha + values, beta + self.n - values
        return inside + float(
            probabilities @ (special.betainc(first, second, low) + special.betainc(second, first, high))
        )

    def _require_two_cells(self) -> None:
        if len(self.prior) != 2:
            raise ValueError(
                f"prior must have 2 categories for the distribution of the draw, got {len(self.prior)}; use sample"
            )


@dataclass(frozen=True, eq=False, repr=False)
class GaussianDraw(OutputDistribution):
    """Distribution of a draw θ at one data set; build it with `GaussianCounts.at`.

    Attributes
    ----------
    mechanism : GaussianCounts
    counts : ndarray of int64, shape (k,)
        c, private.
    """

    mechanism: GaussianCounts
    counts: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"GaussianDraw({self.mechanism!r})"

    def guarantee(self, order: float) -> RenyiGuarantee:
        """Return the guarantee of one draw; see `GaussianCounts.guarantee`."""
        return self.mechanism.guarantee(order)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Draw θ, shape (size, k), each from counts with independent noise; the divergences of the draws add up.

        Privacy
        -------
        As `GaussianCounts.from_uniforms`.
        """
        released = self.mechanism._release(rng.standard_normal((size, self.counts.size)), self.counts)
        return np.stack([rng.dirichlet(parameters) for parameters in np.array(self.mechanism.prior) + released])

    def log_prob(self, values: ArrayLike) -> Floats:
        """Return the log density of θ > 0, shape (..., 2), as an array of shape (...); by quadrature, for k = 2."""
        theta = np.log(np.asarray(values, dtype=np.float64))[..., None]
        released, probabilities = self.mechanism.successes_distribution(int(self.counts[0]))
        first, second = self.mechanism.prior[0] + released, self.mechanism.prior[1] + self.mechanism.n - released
        each = (first - 1) * theta[..., 0, :] + (second - 1) * theta[..., 1, :] - special.betaln(first, second)
        return special.logsumexp(each, b=probabilities, axis=-1)


def gaussian_mechanism(
    name: GaussianMethod | str, prior: ArrayLike, n: int, order: float, epsilon: float
) -> GaussianCounts:
    """Return the mechanism with the variance that `name` prescribes for (λ, ε)-RDP.

    Parameters
    ----------
    name : GaussianMethod or str
        An entry of `GAUSSIAN_MECHANISMS` or its key.
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0.
    n : int
        Number of records, ≥ 1, public.
    order : float
        λ, finite and ≥ 1.
    epsilon : float
        Bound on the Rényi divergence in nats, finite and > 0.

    Returns
    -------
    GaussianCounts

    Privacy
    -------
    (λ, ε)-RDP, replace-one with n public; `gaussian` is (λ, ε/2)-RDP.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
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
    """Return the nearest points, in Euclidean distance, with entries ≥ 0 and sum n.

    Parameters
    ----------
    noisy : array_like, shape (..., k)
        Finite.
    n : float
        > 0.

    Returns
    -------
    ndarray of float64, shape (..., k)
        max(noisy − t, 0), with t such that the sum is n.

    Examples
    --------
    >>> project_counts([[3.0, 5.0], [-4.0, 12.0], [5.0, 7.0]], 10)
    array([[ 4., 6.], [ 0., 10.], [ 4., 6.]])
    """
    y = np.asarray(noisy, dtype=np.float64)
    descending = -np.sort(-y, axis=-1)
    thresholds = (np.cumsum(descending, axis=-1) - n) / np.arange(1, y.shape[-1] + 1)
    n_positive = np.count_nonzero(descending > thresholds, axis=-1)[..., None]
    return np.maximum(y - np.take_along_axis(thresholds, n_positive - 1, axis=-1), 0.0)


def _log_relative_density(away: Floats, a: float, b: float) -> Floats:
    """Return the log density of the log odds of Beta(a, b) at mode + away, relative to the mode."""
    share = a / (a + b)
    near = np.log1p(np.expm1(np.minimum(away, 1.0)) * share)
    far = np.logaddexp(math.log1p(-share), math.log(share) + np.maximum(away, 1.0))
    return a * away - (a + b) * np.where(away < 1.0, near, far)


def _reach(a: float, b: float, side: float) -> float:
    """Return a distance from the mode where the density of the log odds is negligible, within a factor of 1.5."""
    reach = math.sqrt(1 / a + 1 / b)
    while _log_relative_density(np.array(side * reach), a, b) > -_NEGLIGIBLE:
        reach *= 1.5
    return reach


@kernel
def _fill_gaps(deviations, moved, exponents, probabilities, gaps):
    """Fill `gaps` with r − 1 − ln r, where r is the mean of exp(moved·deviation + exponent)."""
    for i in range(deviations.size):
        ratio, excess = 0.0, 0.0
        for j in range(moved.size):
            exponent = moved[j] * deviations[i] + exponents[j]
            ratio += probabilities[j] * math.exp(exponent)
            excess += probabilities[j] * math.expm1(exponent)
        gaps[i] = excess - (math.log1p(excess) if excess > -0.5 else math.log(ratio))
