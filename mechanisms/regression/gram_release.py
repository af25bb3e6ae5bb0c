"""Noisy Gram matrices of clamped records with public bounds, for private linear regression.

A record (x, y) of d covariates and a response is mapped to u ∈ [−1, 1]^p, p = d + 1, by clamping each column to its
public bounds, and by centring and scaling them. With z = (1, u), of m = p + 1 entries, the statistic of n records is

    G = Σ z zᵀ,   G₀₀ = n, public.

Its entries are XᵀX, Xᵀy and yᵀy of the scaled columns with an intercept. ‖z‖² ≤ m, so z/√m lies in the unit ball, in
which expected squared noises are stated.

========  =======================================  ==================================  =========================
noise     density of the noise M                   sensitivity Δ                       guarantee
========  =======================================  ==================================  =========================
laplace   ∝ exp(−Σ_{i≤j} |M_ij|/b), without M₀₀    Δ₁ = p(p+2)²/(2(p+1))               ε-DP with b = Δ₁/ε
gaussian  ∝ exp(−‖M‖_F²/(2σ²)), without M₀₀        Δ_F = m·√2                          ρ-zCDP with σ = Δ_F/√(2ρ)
k-norm    ∝ exp(−‖M‖_K/b), with M₀₀                m, in ‖M‖_K = max(tr M₊, tr M₋)     ε-DP with b = m/ε
========  =======================================  ==================================  =========================

*Proof of Δ₁.* For two records u, v let a = (u + v)/2 and h = (u − v)/2, so |aᵢ| + |hᵢ| ≤ 1. Entries change by 2hᵢ,
4aᵢhᵢ and 2(aᵢhⱼ + hᵢaⱼ). Let A = |a| and H = |h|. The sum of absolute changes is at most 2ΣH + 2ΣAᵢHᵢ + 2(ΣA)(ΣH), with
equality if a, h ≥ 0, and it increases in A, so Aᵢ = 1 − Hᵢ. Given ΣH, it is concave in H, so all Hᵢ are equal to
some h: 2p[h(p+2) − h²(p+1)], which has its maximum Δ₁ at h = (p+2)/(2(p+1)). The bound is attained.

*Proof of Δ_F.* ‖zzᵀ − wwᵀ‖_F² = ‖z‖⁴ + ‖w‖⁴ − 2(z·w)² ≤ 2m². *Proof for k-norm.* tr (zzᵀ − wwᵀ)₊ is the largest trace
of P(zzᵀ − wwᵀ) over projections P, at most zᵀPz ≤ m; likewise the negative part.

A release of real data rounds u to multiples of 2⁻¹⁶, which keeps it in the box: entries of G are integers in units of
2⁻³², the sensitivities hold without a margin, and OpenDP draws integer noise. K-norm noise has no such sampler, and
its rounding is not bounded: it is for simulation only.

References
----------
Hardt & Talwar, "On the geometry of differential privacy", STOC 2010 (K-norm noise). Canonne, Kamath & Steinke, "The
discrete Gaussian for differential privacy", NeurIPS 2020 (zCDP of independent discrete Gaussians).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers, find_repeated, real_array, validate_integer, validate_positive
from mechanisms.core.calibrate import bisect
from mechanisms.core.conversions import concentrated_epsilon
from mechanisms.core.exact_scales import laplace_scale_for, require_scale
from mechanisms.core.jit import kernel
from mechanisms.core.noise import Noise
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee
from mechanisms.core.privacy_parameters import validate_delta, validate_epsilon
from mechanisms.regression.k_norm_matrix import draw_k_norm
from mechanisms.release import CheckedRelease

NoiseName = Literal["laplace", "gaussian", "k-norm"]

NOISE_CODES = {"laplace": 0, "gaussian": 1, "k-norm": 2}
"""Number of each noise in the kernels."""

BITS = 16
"""Scaled columns of real data are multiples of 2^−BITS."""

RESERVED_NAMES = ("intercept", "error_variance")
"""Names of results of a regression that are no slopes, which no feature may have."""

_LARGEST_BOUND = 1e50  # squares and ratios of half-widths neither overflow nor underflow
_GROUP = 512  # rows whose integers are in the cache at once


@dataclass(frozen=True)
class PublicBox:
    """Public bounds low < high of p columns, the last of which is the response; they must not depend on the records."""

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @classmethod
    def of(cls, bounds: Mapping[str, Sequence[float]]) -> PublicBox:
        """Return the box of columns with pairs of bounds."""
        return cls(tuple(map(str, bounds)), *(tuple(float(pair[k]) for pair in bounds.values()) for k in (0, 1)))

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.low) == len(self.high) >= 2:
            raise ValueError(f"bounds must be of at least 2 columns, got {len(self.low)}; pass a pair per column")
        repeated = find_repeated(self.names)
        if repeated is not None:
            raise ValueError(
                f"columns must have different names, got {repeated} twice, such as a column A=B and the level B of a "
                "column A; rename one"
            )
        for name in self.names[:-1]:
            if name in RESERVED_NAMES:
                others = " and ".join(RESERVED_NAMES)
                raise ValueError(f"features must not have the names of other results, {others}, got {name}; rename it")
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            if not 0.0 < high - low < math.inf:
                raise ValueError(
                    f"bounds of {name} must be finite numbers LOW < HIGH, got {low:g} and {high:g}; choose a range "
                    "that is plausible without looking at the data, and values outside it are clamped"
                )
            if not (max(abs(low), abs(high)) <= _LARGEST_BOUND and high - low >= 1.0 / _LARGEST_BOUND):
                raise ValueError(
                    f"bounds of {name} must be at most {_LARGEST_BOUND:g} in size and {1.0 / _LARGEST_BOUND:g} apart, "
                    f"got {low:g} and {high:g}; change the unit"
                )

    @property
    def p(self) -> int:
        """Number of columns, with the response."""
        return len(self.names)

    @cached_property
    def middle(self) -> Floats:
        """Midpoint of each column."""
        return np.add(self.low, self.high) / 2.0

    @cached_property
    def half(self) -> Floats:
        """Half of the width of each column."""
        return np.subtract(self.high, self.low) / 2.0

    def scale(self, records: ArrayLike) -> Floats:
        """Return clamped records in [−1, 1], shape (n, p)."""
        return np.clip((np.asarray(records, dtype=np.float64) - self.middle) / self.half, -1.0, 1.0)

    def unscale(self, draws: Floats) -> Floats:
        """Return (β₀, β, σ²) in the units of the columns, given those of scaled columns, shape (..., p + 1)."""
        slopes = draws[..., 1:-1] * (self.half[-1] / self.half[:-1])
        intercept = (
            self.middle[-1] + self.half[-1] * draws[..., :1] - (slopes * self.middle[:-1]).sum(-1, keepdims=True)
        )
        return np.concatenate([intercept, slopes, draws[..., -1:] * self.half[-1] ** 2], axis=-1)


def scaled_records(records: ArrayLike, p: int) -> Floats:
    """Return clamped and scaled records, shape (n, p), in C order."""
    u = np.ascontiguousarray(real_array("records", records))
    if u.ndim != 2 or u.shape[1] != p or not len(u) or not np.abs(u).max() <= 1.0:  # also refuses NaN
        raise ValueError(
            f"records must be in [-1, 1], of shape (n, {p}), n >= 1, got shape {u.shape}; use PublicBox.scale"
        )
    return u


@dataclass(frozen=True)
class GramNoise:
    """Symmetric noise on a Gram matrix of m = p + 1 columns."""

    name: NoiseName
    scale: float  # b, or σ for Gaussian noise, in units of scaled columns; > 0
    p: int  # number of columns without the intercept

    def __post_init__(self) -> None:
        if self.name not in NOISE_CODES:
            raise ValueError(f"noise must be one of {', '.join(NOISE_CODES)}, got {self.name!r}; choose one of them")
        validate_positive("scale", self.scale, "use calibrated_gram_noise")
        validate_integer("p", self.p, 1, "pass the number of columns")

    @property
    def sensitivity(self) -> float:
        """Sensitivity Δ if one record is replaced, in the norm of the noise."""
        if self.name == "laplace":
            return float(laplace_sensitivity(self.p))
        return (self.p + 1) * math.sqrt(2.0) if self.name == "gaussian" else self.p + 1.0

    @property
    def variance(self) -> float:
        """Variance of an entry of the diagonal; off it, the same with Laplace noise, and half with Gaussian noise."""
        if self.name == "k-norm":
            raise ValueError("noise must be laplace or gaussian to have a known variance, got k-norm; simulate it")
        return Noise(self.name, self.scale).density_variance

    @property
    def guarantee(self) -> Guarantee | ConcentratedGuarantee:
        """Guarantee of one release under replacement of one record."""
        if self.name == "k-norm":
            return Guarantee(self.sensitivity / self.scale)
        return Noise(self.name, self.scale).guarantee(self.sensitivity)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return `size` noise matrices, shape (size, m, m)."""
        m = self.p + 1
        if self.name == "k-norm":
            return self.scale * draw_k_norm(rng, m, size)
        i, j = np.triu_indices(m)
        i, j = i[1:], j[1:]
        shape, noise = (size, i.size), np.zeros((size, m, m))
        if self.name == "laplace":
            drawn = rng.laplace(scale=self.scale, size=shape)
        else:
            drawn = rng.normal(size=shape) * np.where(i == j, self.scale, self.scale / math.sqrt(2.0))
        noise[:, i, j] = noise[:, j, i] = drawn
        return noise


def laplace_sensitivity(p: int) -> Fraction:
    """Return the sensitivity of the Gram matrix of p scaled columns in the norm of Laplace noise, which is attained."""
    return Fraction(p * (p + 2) ** 2, 2 * (p + 1))


def calibrated_gram_noise(name: NoiseName, p: int, epsilon: float, delta: float | None = None) -> GramNoise:
    """Return the noise with which a Gram matrix is released with ε-DP or, by zCDP, with (ε, δ)-DP if it is Gaussian.

    `publish_gram` draws Laplace noise of this scale, rounded up to a scale that is exact (`laplace_scale_for`).
    """
    sensitivity = GramNoise(name, 1.0, p).sensitivity
    if name == "gaussian":
        std = sensitivity / math.sqrt(2.0 * largest_rho(epsilon, delta))
        return GramNoise(name, std * (1 + 1e-12), p)  # rounded up
    if delta is not None:
        raise ValueError(f"delta must be omitted with {name} noise, got {delta}; use it with gaussian")
    return GramNoise(name, sensitivity / validate_epsilon(epsilon), p)


@lru_cache  # a study asks for the same ρ in each trial
def largest_rho(epsilon: float, delta: float | None) -> float:
    """Return the largest ρ for which ρ-zCDP implies (ε, δ)-DP."""
    spent, delta = validate_epsilon(epsilon), validate_delta(delta)
    return bisect(lambda rho: concentrated_epsilon(rho, delta) <= spent, 0.0, spent, relative=1e-15)[0]


@dataclass(frozen=True, eq=False)
class GramRelease:
    """Noisy Gram matrix; all attributes are public."""

    noisy: Floats  # G + M, shape (m, m); the first entry is n, unless the noise is k-norm
    n: int
    noise: GramNoise  # that inference assumes
    guarantee: Guarantee | None = field(kw_only=True, default=None)  # of replacing one record; None for a rehearsal

    def to_dict(self) -> dict[str, object]:
        """Return the release as values for JSON, from which `from_dict` restores it."""
        stated = None if self.guarantee is None else {"epsilon": self.guarantee.epsilon, "delta": self.guarantee.delta}
        return {"n": self.n, "noise": asdict(self.noise), "guarantee": stated, "noisy": self.noisy.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> GramRelease:
        """Return a release from the values of `to_dict`; raise ValueError if they are not such values."""
        try:
            noise = GramNoise(**values["noise"])  # type: ignore[arg-type]
            stated = values["guarantee"]
            guarantee = None if stated is None else Guarantee(**stated)  # type: ignore[arg-type]
            noisy = np.array(values["noisy"], dtype=np.float64)
            n = validate_integer("n", values["n"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a release must have n, noise, guarantee and noisy, got an error: {error}") from error
        if noisy.shape != (noise.p + 1, noise.p + 1) or not np.isfinite(noisy).all() or np.any(noisy != noisy.T):
            raise ValueError(f"noisy must be a finite symmetric matrix of {noise.p + 1} columns, got {noisy.shape}")
        return cls(noisy, n, noise, guarantee=guarantee)


def gram_sums(box: PublicBox, records: ArrayLike) -> tuple[Integers, int]:
    """Return G − without its first entry − in units of 2⁻³², shape (m, m), and the number of rows with missing values.

    Rows with missing or infinite values are skipped, and G₀₀ counts the others.
    """
    rows = np.ascontiguousarray(records, dtype=np.float64)
    sums = np.zeros((box.p + 1, box.p + 1), dtype=np.int64)
    _add_rows(rows, box.middle, box.half, sums)
    return sums, len(rows) - int(sums[0, 0])


@kernel
def _add_rows(rows, middle, half, sums):
    """Add rows in groups that fit into the cache, column by column, so that the sums are vectorised over rows."""
    p = rows.shape[1]
    q, complete = np.empty((p, _GROUP), np.int32), np.empty(_GROUP, np.bool_)
    for start in range(0, rows.shape[0], _GROUP):
        size = min(_GROUP, rows.shape[0] - start)
        complete[:] = True
        for i in range(p):
            centre, width = middle[i], half[i]
            for row in range(size):
                x = rows[start + row, i]
                u = (x - centre) / width
                u = u if u < 1.0 else 1.0
                u = u if u > -1.0 else -1.0
                q[i, row] = np.int32(np.rint(u * 2.0**BITS))
                complete[row] &= np.isfinite(x)
        for row in range(size):
            sums[0, 0] += complete[row]
            if not complete[row]:
                q[:, row] = 0
        for i in range(p):
            total = np.int64(0)
            for row in range(size):
                total += q[i, row]
            sums[0, i + 1] += total << BITS
            for j in range(i, p):
                total = np.int64(0)
                for row in range(size):
                    total += np.int64(q[i, row]) * np.int64(q[j, row])
                sums[i + 1, j + 1] += total
    for i in range(p + 1):
        for j in range(i):
            sums[i, j] = sums[j, i]


def release_gram(rng: np.random.Generator, gram: ArrayLike, noise: GramNoise) -> GramRelease:
    """Return a simulated release of a Gram matrix in double precision, without a guarantee."""
    exact = real_array("gram", gram)
    return GramRelease(exact + noise.sample(rng, 1)[0], round(float(exact[0, 0])), noise)


def publish_gram(sums: Sequence[Sequence[int]] | Integers, noise: GramNoise, release: CheckedRelease) -> GramRelease:
    """Release the sums of `gram_sums` over all records, with integer noise of OpenDP.

    The guarantee of `release` is proved: sensitivities hold for the rounded records, and scales are rounded up. That of
    Laplace noise follows from the guarantee, and Gaussian `noise` must be calibrated for it.
    """
    if noise.name == "k-norm":
        raise ValueError("noise must be laplace or gaussian for real data, got k-norm; its rounding has no bound")
    p, unit, n, scale = noise.p, 2 ** (2 * BITS), int(sums[0][0]), noise.scale
    i, j = (index[1:] for index in np.triu_indices(p + 1))
    if noise.name == "laplace":
        sensitivity = math.ceil(laplace_sensitivity(p) * unit)
        whole_scale = laplace_scale_for(sensitivity, release.guarantee.epsilon)
        drawn, scale = release.enter().laplace(whole_scale, i.size), whole_scale / unit
    else:
        drawn = np.empty(i.size, dtype=np.int64)
        stds = [math.nextafter(scale * unit * factor, math.inf) * (1 + 2**-50) for factor in (1.0, math.sqrt(0.5))]
        require_scale(max(stds))
        exact = release.enter()
        for at, std in zip((i == j, i != j), stds, strict=True):
            drawn[at] = exact.gaussian(std, int(at.sum()))
    noisy = np.zeros((p + 1, p + 1))
    noisy[0, 0] = n
    for row, column, z in zip(i.tolist(), j.tolist(), drawn.tolist(), strict=True):
        noisy[row, column] = noisy[column, row] = (int(sums[row][column]) + z) / unit
    return GramRelease(noisy, n, GramNoise(noise.name, scale, p), guarantee=release.guarantee)
