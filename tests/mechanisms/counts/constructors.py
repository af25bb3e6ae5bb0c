"""Constructors of releases from lists, and of releases with a given scale, for tests."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from mechanisms.core.noise import Noise
from mechanisms.counts import exponential, hamming, permute_and_flip, power_mixture
from mechanisms.counts.discrete_gaussian import LatticeGaussianNoise
from mechanisms.counts.k_norm import KNormNoise
from mechanisms.counts.mechanism import CountRelease
from mechanisms.counts.noise import IndependentNoise, NoisyCounts


def convert(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a constructor that also accepts lists as the prior and the counts."""

    @wraps(make)
    def converted(prior, counts, *parameters):
        return make(np.array(prior, dtype=np.float64), np.array(counts, dtype=np.int64), *parameters)

    return converted


exponential_mechanism = convert(exponential.exponential_mechanism)
flip_counts = convert(permute_and_flip.permute_and_flip)
hamming_mechanism = convert(hamming.HammingMechanism)
power_mixture_mechanism = convert(power_mixture.power_mixture_mechanism)
k_norm_counts = convert(lambda prior, counts, epsilon: NoisyCounts(prior, counts, KNormNoise(epsilon)))
discrete_gaussian_counts = convert(
    lambda prior, counts, noise_std: NoisyCounts(prior, counts, LatticeGaussianNoise(counts.size, noise_std))
)


@dataclass(frozen=True, repr=False, eq=False)
class StatedRelease(CountRelease):
    """Released counts with given log probabilities, which cannot be drawn."""

    prior: np.ndarray
    counts: np.ndarray
    logs: np.ndarray

    n_uniforms = 0

    def from_uniforms(self, uniforms):
        raise NotImplementedError

    def expected_hellinger(self):
        raise NotImplementedError

    def log_pmf(self):
        return self.logs


def vectors_from(release, uniforms):
    """Return the noisy vectors that a release projects to counts, given its uniforms."""
    return release.noise.vectors(release.counts, uniforms[:, : -release.k])


def draw_vectors(release, seed, size):
    return vectors_from(release, np.random.default_rng(seed).random((size, release.n_uniforms)))


@convert
def projected_counts(prior, counts, noise_scale, noise):
    return NoisyCounts(prior, counts, IndependentNoise(Noise(noise, noise_scale)))
