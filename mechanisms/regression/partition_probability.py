"""Private posterior probabilities of a regression coefficient, from disjoint partitions of the rows (P2, chapter 3).

Each of M partitions has a posterior probability p_j = Pr[β_k ≤ b | its rows]. Replacing one row changes one p_j, to any
value in [0, 1]. The release is an aggregate of all p_j plus Laplace noise η, rescaled to the posterior given all rows:

=====================  =====================  ===================================  ==============================
name                   aggregate A            released                             noise scale
=====================  =====================  ===================================  ==============================
`normality`            mean p_j               Φ(√M·Φ⁻¹(A + η))                     1/(Mε)
`normality-corrected`  mean p_j               Φ(√(2M)·Φ⁻¹(A + η))                  1/(Mε)
`fisher`               −2 Σ ln max(p_j, p*)   F̄(A + η), F̄ the tail of χ²(2M)       −2 ln p*/ε
`fisher-corrected`     as `fisher`            Φ(Φ⁻¹(F̄(A + η + 2Mp*))/κ)            −2 ln p*/ε
`fisher-published`     as `fisher`            F̄(A + η)                             −2 ln p*/(Mε): not private
=====================  =====================  ===================================  ==============================

Methods whose name ends in ``-noiseless`` omit the noise. A + η is clamped to [0, 1] if A is a mean, and to [0, ∞) if A
is a sum.

**The factor √(2M).** Let the posterior of each partition have variance v. The posterior means of the partitions vary
about the mean β̂ given all rows with variance v(1 − 1/M), so A is about Φ((b − β̂)/√(v(2 − 1/M))), while the posterior
probability given all rows is Φ((b − β̂)/√(v/M)). The ratio of the normal scores is √(2M − 1). P2 neglects the variance
of the means and uses the factor √M, so that its scores are too small by a factor of about √2.

**The factor κ.** For a cutoff b at z posterior standard deviations from the centre, −2 ln Φ(u + z/√M), u ~ N(0, 1),
decreases on average by 2κz/√M, with κ = ∫ φ(u)²/Φ(u) du over Φ(u) > p*, which is .903 at p* = 0. The sum of M such
terms has the standard deviation 2√M, so the normal score of the sum changes by κz if the posterior score changes by z.
Clipping at p* reduces each term by 2p* on average. Given β̂, the corrected score has a standard deviation of .217
(`normality-corrected`) or .475 (`fisher-corrected`), which biases the mean slightly towards ½.

References
----------
P2, equations 3.9, 3.10, 3.15 and 3.16. Nissim, Raskhodnikova & Smith, "Smooth sensitivity and sampling in private data
analysis", STOC 2007 (sample and aggregate). Fisher, "Statistical Methods for Research Workers", 1932.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import integrate, special

from mechanisms.core.arguments import (
    Floats,
    find_entry,
    real_array,
    require_generator,
    validate_integer,
    validate_number,
)
from mechanisms.core.metadata import Entry, Style, register
from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import validate_epsilon


@dataclass(frozen=True)
class PartitionMethod(Entry):
    """Method that releases an aggregate of partitions, with noise or without."""

    _: KW_ONLY
    base: str = ""  # name of the corresponding method with noise
    has_noise: bool = True  # False for variants that isolate the error due to partitioning
    is_private: bool = True  # each released value is ε-DP


Variant = TypeVar("Variant", bound=PartitionMethod)


def with_noiseless(*methods: Variant) -> dict[str, Variant]:
    """Return methods by name, each followed by its variant without noise."""
    found: list[Variant] = []
    note = "Not private: without noise."
    for method in methods:
        base, name = replace(method, base=method.name), f"{method.name}-noiseless"
        found += [base, replace(base, name=name, note=note, has_noise=False, is_private=False)]
    return register(type(methods[0]).__module__, *found)


@dataclass(frozen=True)
class ProbabilityMethod(PartitionMethod):
    """Aggregation of the probabilities p_j, and post-processing of the noisy aggregate."""

    _: KW_ONLY
    is_mean: bool  # the aggregate is a mean, in [0, 1], not a sum, in [0, ∞)
    is_corrected: bool = False  # the released normal score has slope 1
    divides_noise: bool = False  # the noise is too small by the factor M, as published


@lru_cache(maxsize=64)  # an integral per number, which all trials share
def score_slope(least_probability: float) -> float:
    """Return κ, the change of the normal score of Fisher's sum per unit change of the posterior normal score."""

    def integrand(u: float) -> float:
        return math.exp(-u * u - math.log(2.0 * math.pi) - float(special.log_ndtr(u)))

    start = max(float(special.ndtri(least_probability)), -38.0)
    return float(integrate.quad(integrand, start, 38.0, epsabs=0.0, epsrel=1e-11, limit=200)[0])


PROBABILITY_METHODS = with_noiseless(
    ProbabilityMethod(
        "normality", "Normal distribution function of the normal score of the mean probability, times √M.",
        is_mean=True, origin="paper", paper="P2", style=Style("vermilion", "s")),
    ProbabilityMethod(
        "normality-corrected",
        "As normality, with the factor √(2M), which includes the scatter of the partitions' means.",
        is_mean=True, is_corrected=True, style=Style("blue", "o")),
    ProbabilityMethod(
        "fisher", "Tail of a χ² distribution at the sum of -2 log p, with noise for the true sensitivity of the sum.",
        is_mean=False, origin="paper", paper="P2", style=Style("orange", "^")),
    ProbabilityMethod(
        "fisher-corrected", "As fisher, with a corrected slope.",
        is_mean=False, is_corrected=True, style=Style("purple", "D")),
    ProbabilityMethod(
        "fisher-published", "Not private: the noise is too small by a factor equal to the number of partitions.",
        is_mean=False, is_private=False, divides_noise=True,
        origin="paper", paper="P2", variant="as printed", style=Style("brown", "v")),
)  # fmt: skip
"""Methods by name, each followed by its variant without noise."""


@dataclass(frozen=True)
class PartitionRelease:
    """Release of aggregates of partitions with fixed public parameters.

    Guarantees hold under replacement of one row, with n and the partition of the rows fixed, for noise in real
    arithmetic: use the draws of `release` for simulation. The posteriors of partitions must not reject rows because of
    their values, which would reveal information about them.
    """

    method: PartitionMethod
    n_partitions: int  # M
    epsilon: float  # of one released value, in nats

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.method.name

    @property
    def shared_loss(self) -> float:
        """Part of `epsilon` for a step that all values share."""
        return 0.0

    def guarantee(self, n_values: int = 1) -> Guarantee | None:
        """Return the joint guarantee of releasing `n_values` values, by basic composition; None if not private."""
        n_values = validate_integer("n_values", n_values)
        if not self.method.is_private:
            return None
        return Guarantee(self.shared_loss + n_values * (self.epsilon - self.shared_loss))


@dataclass(frozen=True)
class PartitionProbability(PartitionRelease):
    """Release of probabilities; build it with `partition_probability`."""

    method: ProbabilityMethod
    least_probability: float  # threshold p*, to which the ``fisher`` methods clip smaller probabilities
    sensitivity: float  # largest change of the aggregate when one row is replaced
    noise_scale: float  # of the Laplace noise; 0 without noise

    @property
    def loss(self) -> float:
        """Privacy loss per cutoff in nats: sensitivity divided by noise scale; inf without noise."""
        return self.sensitivity / self.noise_scale if self.noise_scale else math.inf

    def terms(self, probabilities: ArrayLike) -> Floats:
        """Return what each partition contributes to the aggregate, given the p_j at c cutoffs, shape (..., M, c)."""
        p = real_array("probabilities", probabilities)
        if p.ndim < 2 or p.shape[-2] != self.n_partitions:
            raise ValueError(
                f"probabilities must have shape (..., {self.n_partitions}, c), got {p.shape}; pass one per partition"
            )
        if not np.all((p >= 0) & (p <= 1)):
            partition = np.argwhere(~((p >= 0) & (p <= 1)))[0, -2]
            raise ValueError(f"probabilities must be in [0, 1], got another in partition {partition}; check them")
        return p if self.method.is_mean else -2.0 * np.log(np.maximum(p, self.least_probability))

    def aggregate(self, probabilities: ArrayLike) -> Floats:
        """Return the aggregate before noise is added, shape (..., c)."""
        terms = self.terms(probabilities)
        return terms.mean(axis=-2) if self.method.is_mean else terms.sum(axis=-2)

    def postprocess(self, noisy: ArrayLike) -> Floats:
        """Return the probabilities that correspond to noisy aggregates, with the same shape, by post-processing."""
        found, M, is_corrected = np.asarray(noisy, dtype=np.float64), self.n_partitions, self.method.is_corrected
        if self.method.is_mean:
            factor = 2.0 if is_corrected else 1.0
            return special.ndtr(math.sqrt(factor * M) * special.ndtri(np.clip(found, 0.0, 1.0)))
        least = self.least_probability
        tail = special.chdtrc(2.0 * M, np.maximum(found + 2.0 * M * least if is_corrected else found, 0.0))
        return special.ndtr(special.ndtri(tail) / score_slope(least)) if is_corrected else tail

    def release(self, rng: np.random.Generator | None, probabilities: ArrayLike) -> Floats:
        """Release the posterior probability at each cutoff, shape (..., c), given those of M partitions, (..., M, c).

        The values are 0 or 1 if the noisy aggregate is out of range. `rng` may be None for variants without noise. The
        loss of ``fisher-published`` is M·ε per cutoff, because P2 divides the sensitivity of a sum by M.
        """
        found = self.aggregate(probabilities)
        if self.noise_scale:
            found = found + require_generator(rng, f"the noise of {self.name}").laplace(
                scale=self.noise_scale, size=found.shape
            )
        return self.postprocess(found)


def partition_probability(
    name: ProbabilityMethod | str, n_partitions: int, epsilon: float, least_probability: float = 0.001
) -> PartitionProbability:
    """Return a release method with noise calibrated to a privacy loss of ε per cutoff.

    Parameters
    ----------
    name : ProbabilityMethod or str
        An entry of `PROBABILITY_METHODS` or its key.
    n_partitions : int
        Number of partitions M ≥ 1.
    epsilon : float
        Privacy loss per cutoff in nats, finite and > 0; not used without noise.
    least_probability : float
        Threshold p* in (0, 1), to which the ``fisher`` methods clip smaller probabilities.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> method = partition_probability("fisher", 1000, epsilon=0.25)
    >>> print(round(method.sensitivity, 3), round(method.noise_scale, 3), method.guarantee())
    13.816 55.262 0.25-DP
    """
    method = find_entry(PROBABILITY_METHODS, name)
    advice = "choose e.g. 0.001"
    least = validate_number("least_probability", least_probability, "in (0, 1)", lambda p: 0.0 < p < 1.0, advice)
    M = validate_integer("n_partitions", n_partitions, advice="pass the number of partitions")
    epsilon = validate_epsilon(epsilon)
    sensitivity = 1.0 / M if method.is_mean else -2.0 * math.log(least)
    scale = sensitivity / epsilon if method.has_noise else 0.0
    if method.divides_noise:
        scale /= M
    return PartitionProbability(method, M, epsilon, least, sensitivity, scale)
