"""Discrete Gaussian noise on the lattice of counts: the counterpart of `k_norm` for zero-concentrated privacy.

Neighbouring counts differ by w = eⱼ − eᵢ, ‖w‖² = 2, a vector of the lattice of integer vectors with sum zero. The
release is r = c + v with

    Pr[v] = exp(−‖v‖²/(2σ²)) / Z   for all integer vectors v with Σv = 0.

These v are k independent discrete Gaussian variables given that their sum is 0. The variance of this correlated noise
is about (1 − 1/k)·σ²; independent noise with the same guarantee has σ².

**Zero-concentrated.** D_λ(c + v ‖ c' + v) is ln(Σ exp(−‖v − λw‖²/(2σ²))/Z)/(λ − 1) + λ‖w‖²/(2σ²). The sum of a Gaussian
over a shifted lattice is at most that over the lattice itself, with equality for integer λ. So the mechanism is ρ-zCDP
with ρ = 1/σ², and for no smaller ρ (Canonne, Kamath & Steinke 2020, theorem 4, with this lattice in place of Zᵏ).

**Exact profile.** The loss at v is (1 − (vⱼ − vᵢ))/σ². With t = vⱼ − vᵢ and u = vᵢ + vⱼ, vᵢ² + vⱼ² = (t² + u²)/2 and t
≡ u mod 2, so Pr[t] ∝ exp(−t²/(4σ²))·A(t mod 2). A(p) is the sum over all u of parity p of exp(−u²/(4σ²)) times the
weight of the other entries, which sum to −u. So all pairs of neighbours have the same privacy loss distribution, and
computing it needs no enumeration of vectors.

**Tail.** As in theorem 4 of Canonne, Kamath & Steinke, E exp(xt) ≤ exp(x²σ²) for every x, so that Pr[t ≤ −R] ≤
exp(−R²/(4σ²)). A table of the losses of |t| < R therefore omits at most this probability of losses > 0, and δ of a
mechanism includes it (`omitted_mass`). Calibration extends the table until this mass is far below δ.

**Sampler.** Given the sum s of the m remaining entries, the next entry v has probability ∝ exp(−v²/(2σ²))·Z_{m−1}(s −
v), where Z_m(s) is the sum of exp(−‖v‖²/(2σ²)) over m integers with sum s. Adding 1 to every entry adds m to s and
multiplies all weights by the same number, so tables for s = 0, …, m − 1 are sufficient.

References
----------
Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020. Joseph & Yu, "Some
constructions of private, efficient, and optimal K-norm and elliptic Gaussian noise", COLT 2024, and Lebeda, "Better
Gaussian mechanism using correlated noise", SOSA 2025 (correlated noise, under addition and removal of a record).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
from scipy.stats import chi2

from mechanisms.core.arguments import Floats, Integers, validate_number, validate_positive
from mechanisms.core.calibrate import bisect
from mechanisms.core.conjugate import require_at_most
from mechanisms.core.exact_scales import sum_zero_sampler
from mechanisms.core.jit import kernel
from mechanisms.core.metadata import Style
from mechanisms.core.privacy import approximate_guarantee
from mechanisms.core.privacy_parameters import validate_delta, validate_epsilon
from mechanisms.core.privacy_profile import PrivacyProfile, losses_profile
from mechanisms.counts.candidates import MAX_STREAMED, MAX_TABLE
from mechanisms.counts.k_norm import clipped_vectors
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.noise import NoisyCounts

REACH = 10.0  # standard deviations beyond which noise has probability below 1e-22
_SMOOTH = 2.5  # standard deviation from which a sum over integers equals the integral up to 1e-26
_MARGIN = 1e-9
_OUTWARD = 1.0 + 2.0**-50  # bound on the relative error of a loss, which matters if a likely loss is close to ε
_LEAST_DELTA = 1e-250  # probabilities of a table remain normal doubles
_TAIL_DELTA = 1e-12  # δ below which the table of losses extends beyond REACH
_UNDERFLOW = 1e-290  # bound on the sum of the probabilities in a table that underflow
_LARGEST_STD = 100_000.0  # records; the exact profile has about 30 losses per unit of the standard deviation
_OMITTED = 1e-13


@lru_cache(maxsize=256)  # one number per entry; trials and audits share it
def calibrate_noise_std(epsilon: float, delta: float, k: int) -> float:
    """Return the smallest σ, in records, for which the lattice noise is (ε, δ)-DP, for δ in [1e-250, 1)."""
    # Bisection on the exact δ(ε) has a margin of one part in 10⁹ of δ for rounding and for the omitted mass. A σ above
    # 100,000 records is refused.
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)
    requirement, advice = f">= {_LEAST_DELTA:g} for this noise", "choose a larger delta, or k-norm"
    validate_number("delta", delta, requirement, lambda value: value >= _LEAST_DELTA, advice)
    reach = REACH if delta >= _TAIL_DELTA else math.sqrt(-2.0 * math.log(delta)) + 4.0

    def suffices(noise_std: float) -> bool:
        losses, probabilities = loss_distribution(k, noise_std, reach)
        for rounding, limit in ((1.0, delta * (1.0 - _MARGIN)), (_OUTWARD, delta)):
            excess = np.maximum(losses * rounding - epsilon, 0.0)
            if np.sum((probabilities * -np.expm1(-excess))[excess > 0]) > limit:
                return False
        return True

    low = high = 1.0
    while not suffices(high):
        high *= 2.0
        if high > _LARGEST_STD:
            raise ValueError(
                f"epsilon and delta must allow noise of at most {_LARGEST_STD:,.0f} records, got {epsilon:g} and "
                f"{delta:g}; use larger values, or k-norm, which has no such limit"
            )
    while suffices(low) and low > 1e-3:
        low /= 2.0
    return bisect(lambda noise_std: not suffices(noise_std), low, high)[1]


@lru_cache(maxsize=64)  # an audit asks for the same losses at each δ
def loss_distribution(k: int, noise_std: float, reach: float = REACH) -> tuple[Floats, Floats]:
    """Return the losses (1 − t)/σ², t = vⱼ − vᵢ up to `reach` standard deviations √2·σ, and their probabilities."""
    last = _last_difference(noise_std, reach)
    t = np.arange(-last, last + 1)
    rest = log_coset_sum(k - 2, t, noise_std)  # the other entries have the sum −u
    parts = np.exp(rest - np.square(t) / (4.0 * noise_std**2) - rest.max())
    parity = np.array([parts[t % 2 == 0].sum(), parts[t % 2 == 1].sum()])
    weights = np.exp(-np.square(t) / (4.0 * noise_std**2)) * parity[t % 2]
    return (1 - t) / noise_std**2, weights / weights.sum()


def omitted_mass(noise_std: float, reach: float = REACH) -> float:
    """Return an upper bound on the probability of losses > 0 that `loss_distribution` omits or rounds to zero."""
    beyond = _last_difference(noise_std, reach) + 1
    return max(math.exp(-((beyond / noise_std) ** 2) / 4.0), _UNDERFLOW)


def _last_difference(noise_std: float, reach: float) -> int:
    """Return the largest |t| in a table of losses."""
    return math.ceil(math.sqrt(2.0) * reach * noise_std) + 2


def log_coset_sum(m: int, sums: Integers, noise_std: float) -> Floats:
    """Return ln Z_m(s), the log sum of exp(−‖v‖²/(2σ²)) over integer vectors of m entries with sum s."""
    # For large σ, by Poisson summation, Z_m(s) = (2πσ²)^((m − 1)/2)/√m · exp(−s²/(2mσ²))·(1 + O(exp(−π²σ²))).
    if m == 0:
        return np.where(sums == 0, 0.0, -np.inf)
    if noise_std >= _SMOOTH or m == 1:
        scale = (m - 1) / 2 * math.log(2 * math.pi * noise_std**2) - 0.5 * math.log(m)
        return scale - np.square(sums) / (2.0 * m * noise_std**2)
    reach = math.ceil(30 * noise_std) + int(np.abs(sums).max(initial=0)) + 1
    weights = np.exp(-np.square(np.arange(-reach, reach + 1)) / (2.0 * noise_std**2))
    total = weights
    for _ in range(m - 1):
        total = np.convolve(total, weights)
    with np.errstate(divide="ignore"):
        return np.log(total[total.size // 2 + sums])


@dataclass(frozen=True)
class LatticeGaussianNoise:
    """Discrete Gaussian noise of k components with sum zero; see `VectorNoise` for its methods.

    **Privacy.** 1/σ²-zCDP (proved) under replacement of one record, with n public, for the lattice vector and all its
    post-processing; `NoisyCounts.profile` is exact. Draws are for simulation; `mechanisms.publish_counts` draws
    exactly.
    """

    k: int
    noise_std: float  # σ, in records

    def __post_init__(self) -> None:
        validate_positive("noise_std", self.noise_std, "use calibrate_noise_std")
        _conditional_tables(self.k, self.noise_std)  # raises ValueError if they are too large

    def n_uniforms(self, k: int) -> int:
        return k - 1

    def vectors(self, counts: Integers, uniforms: Floats) -> Integers:
        vectors = np.empty((len(uniforms), counts.size), dtype=np.int64)
        _draw_lattice(counts, _conditional_tables(counts.size, self.noise_std), uniforms, vectors)
        return vectors

    def clipped(self, counts: Integers, near: bool) -> tuple[Integers, Floats]:
        """Return clipped lattice vectors; the omitted ones have a total probability of at most 1e-13."""
        distance = None
        if near:
            longest = self.noise_std * math.sqrt(chi2.isf(_OMITTED, counts.size - 1)) + counts.size
            distance = math.ceil(math.sqrt(counts.size) * longest / 2)
        vectors = clipped_vectors(counts, distance)
        return vectors, _log_weights(counts, vectors, self.noise_std)

    def profile(self, sensitivity: int) -> PrivacyProfile:
        """Return the exact profile of the vector, a bound for projected counts; δ includes the omitted mass."""
        assert sensitivity == 2
        omitted = omitted_mass(self.noise_std)
        return losses_profile(*loss_distribution(self.k, self.noise_std), omitted=omitted)


@lru_cache(maxsize=64)  # trials share the tables of their noise
def _conditional_tables(k: int, noise_std: float) -> Floats:
    """Return Pr[next entry ≤ v] at index [m, s, v + reach], if m entries with sum s remain, 0 ≤ s < m ≤ k."""
    reach = math.ceil(REACH * noise_std) + k + 1
    n_entries = (k + 1) * k * (2 * reach + 1)
    if n_entries > MAX_TABLE:
        raise ValueError(f"tables must have at most {MAX_TABLE:,} entries, got {n_entries:,}; use a larger epsilon")
    v = np.arange(-reach, reach + 1)
    tables = np.ones((k + 1, k, v.size))
    for m in range(2, k + 1):
        for s in range(m):
            logs = log_coset_sum(m - 1, s - v, noise_std) - np.square(v) / (2.0 * noise_std**2)
            cumulative = np.cumsum(np.exp(logs - logs.max()))
            tables[m, s] = cumulative / cumulative[-1]
    tables.flags.writeable = False
    return tables


def _log_weights(counts: Integers, vectors: Integers, noise_std: float) -> Floats:
    """Return the log probability that clip(c + v, 0, n) equals each row s of `vectors`.

    Entries of s in (0, n) equal those of c + v. An entry 0 of s comes from a value −x ≤ 0 of c + v, and an entry n from
    a value n + y ≥ n, with Σx − Σy = Σs − n. The probability is a sum over Σy of the product of two convolutions.
    """
    n, k, precision = int(counts.sum()), counts.size, -0.5 / noise_std**2
    squares, beyond, codes = _describe_vectors(counts, n, vectors)
    logs = precision * squares
    extra = math.ceil(REACH * noise_std) + 1
    steps = np.arange(int(beyond.max()) + extra + 1)
    patterns = {
        pattern: [[i for i in range(k) if mask >> i & 1] for mask in divmod(pattern, 1 << k)]
        for pattern in np.unique(codes).tolist()
        if pattern > 0
    }
    n_convolutions = sum(max(len(entries) - 1, 0) for sides in patterns.values() for entries in sides)
    advice = "use a larger epsilon or delta, fewer categories, or k-norm"
    require_at_most(MAX_STREAMED, "terms of convolutions", n_convolutions * steps.size**2, n, k, advice)
    for pattern, (lowered, raised) in patterns.items():
        below = _log_tails(precision * np.square(counts[lowered, None] + steps))
        above = _log_tails(precision * np.square(n - counts[raised, None] + steps[: extra + 1]))
        rows = codes == pattern
        logs[rows] += _log_matched(below, above)[beyond[rows]]
    return logs - log_coset_sum(k, np.zeros(1, dtype=np.int64), noise_std)


@kernel
def _describe_vectors(counts, n, vectors):
    """Return squared distances from the counts without entries 0 and n, sums beyond n, and bits of entries 0 and n."""
    n_rows, k = vectors.shape
    squares, beyond = np.zeros(n_rows, dtype=np.int64), np.full(n_rows, -n)
    codes = np.zeros(n_rows, dtype=np.int64)  # k bits that mark entries 0, then k bits that mark entries n
    for row in range(n_rows):
        for category in range(k):
            entry = vectors[row, category]
            beyond[row] += entry
            if entry == 0:
                codes[row] += 1 << (k + category)
            elif entry == n:
                codes[row] += 1 << category
            else:
                squares[row] += (entry - counts[category]) ** 2
    return squares, beyond, codes


def _log_tails(logs: Floats) -> Floats:
    """Return the log of the convolution of the rows exp(logs); without rows, that of a point mass at 0."""
    if not len(logs):
        return np.where(np.arange(logs.shape[1]) == 0, 0.0, -np.inf)
    return reduce(_log_convolve, logs)


def _log_convolve(a: Floats, b: Floats) -> Floats:
    """Return ln Σ_x exp(a[x] + b[m − x]) for 0 ≤ m < a.size."""
    padded = np.pad(b[::-1], (0, b.size - 1), constant_values=-np.inf)
    return np.ascontiguousarray(_log_matched(padded, a)[::-1])


@kernel
def _log_matched(below, above):
    """Return ln Σ_y exp(above[y] + below[m + y]) for all m for which m + y is in range."""
    out = np.empty(below.size - above.size + 1)
    for m in range(out.size):
        top = -math.inf
        for y in range(above.size):
            top = max(top, above[y] + below[m + y])
        total = 0.0
        for y in range(above.size):
            if above[y] > -math.inf:
                total += math.exp(above[y] + below[m + y] - top)
        out[m] = top + math.log(total)
    return out


@kernel
def _draw_lattice(counts, tables, uniforms, vectors):
    n_trials, k = vectors.shape
    reach = tables.shape[2] // 2
    for trial in range(n_trials):
        remaining = 0
        for i in range(k - 1):
            m = k - i
            shift = remaining // m
            table = tables[m, remaining - shift * m]
            v = min(np.searchsorted(table, uniforms[trial, i], side="right"), table.size - 1) - reach + shift
            vectors[trial, i] = counts[i] + v
            remaining -= v
        vectors[trial, k - 1] = counts[k - 1] + remaining


DISCRETE_GAUSSIAN = Mechanism(
    name="discrete-gaussian",
    note="Discrete Gaussian noise on the lattice of counts, calibrated by its exact privacy profile, projected.",
    release=lambda prior, counts, epsilon, delta: NoisyCounts(
        prior, counts, LatticeGaussianNoise(counts.size, calibrate_noise_std(epsilon, delta, counts.size))
    ),
    uses_prior=False, guarantee=approximate_guarantee, needs_delta=True, symmetric=True, origin="baseline",
    variant="correlated",
    exact_noise=lambda k, epsilon, delta: sum_zero_sampler("gaussian", calibrate_noise_std(epsilon, delta, k), k),
    style=Style("olive", "+"),
)  # fmt: skip
