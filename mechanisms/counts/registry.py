"""Registry of the mechanisms that release counts, and thereby a Dirichlet posterior.

An entry is a `mechanisms.counts.mechanism.Mechanism`. To add a mechanism, define it in a separate file and add it to
`MECHANISMS`; the tests are parametrised over the registry.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). P1: "Differentially Private Bayesian Inference" (draft).
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from mechanisms.counts.bound_calibration import bound_scale, require_bound
from mechanisms.counts.calibration import Calibration, calibrate, require_calibratable
from mechanisms.counts.discrete_gaussian import DiscreteGaussianCounts, discrete_gaussian_counts
from mechanisms.counts.exponential import exponential_mechanism
from mechanisms.counts.flip_calibration import calibrate_flip, require_flip_calibratable
from mechanisms.counts.gaussian_lattice import calibrate_noise_std
from mechanisms.counts.hamming import HammingMechanism, hamming_mechanism
from mechanisms.counts.hamming_loss import calibrate_hamming, hamming_loss, require_hamming
from mechanisms.counts.k_norm import KNormCounts, k_norm_counts
from mechanisms.counts.mechanism import Build, Mechanism
from mechanisms.counts.minimax_post_processing import MAX_EPSILON as MINIMAX_EPSILON
from mechanisms.counts.minimax_post_processing import MinimaxCounts, minimax_counts, require_post_processable
from mechanisms.counts.noise import CountNoise, NoisyCounts, geometric_counts, histogram_sensitivity, laplace_counts
from mechanisms.counts.optimal import MAX_EPSILON, require_solvable
from mechanisms.counts.optimal_counts import OptimalCounts, optimal_counts
from mechanisms.counts.permute_and_flip import PermuteAndFlip, permute_and_flip, require_flippable
from mechanisms.counts.product_limits import require_product_distributions
from mechanisms.counts.projected_noise import ProjectedCounts, projected_counts
from mechanisms.counts.release import CountRelease
from mechanisms.counts.scales import SENSITIVITIES, Sensitivity
from mechanisms.counts.sensitivity import Rule, global_sensitivity
from mechanisms.exact_noise import integer_gaussian, integer_laplace, laplace_scale_for, sum_zero
from mechanisms.metadata import Style
from mechanisms.privacy import approximate_guarantee, pure_guarantee

__all__ = ["MECHANISMS", "is_built_in"]


def _exponential(sensitivity: Sensitivity) -> Build:
    def release(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> CountRelease:
        scale = sensitivity.evaluate(prior, counts, epsilon, delta)
        return exponential_mechanism(prior, counts, sensitivity.share * epsilon, scale)

    return release


def _exact(rule: Rule) -> Build:
    def release(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> CountRelease:
        calibration = calibrate(rule, prior, int(counts.sum()), epsilon)
        return exponential_mechanism(prior, counts, calibration.rate, calibration.sensitivity(counts))

    return release


def _calibrate_hamming(prior: NDArray[np.float64], n: int, epsilon: float) -> Calibration:
    rate, loss = _hamming_rate_and_loss(n, len(prior), epsilon)
    return Calibration(Rule.HAMMING, tuple(prior.tolist()), n, epsilon, math.nan, rate, loss)


@lru_cache(maxsize=4096)
def _hamming_rate_and_loss(n: int, k: int, epsilon: float) -> tuple[float, float]:
    rate = calibrate_hamming(n, k, epsilon)
    return rate, hamming_loss(n, k, rate).loss


def _varying_bound(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> CountRelease:
    scale = bound_scale(prior, int(counts.sum()), epsilon).sensitivity(counts)
    return exponential_mechanism(prior, counts, epsilon, scale)


def _laplace(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> NoisyCounts:
    return laplace_counts(prior, counts, histogram_sensitivity(counts.size) / epsilon)


def _laplace_dimension(
    prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
) -> NoisyCounts:
    return laplace_counts(prior, counts, counts.size / epsilon)


def _geometric(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> NoisyCounts:
    return geometric_counts(prior, counts, histogram_sensitivity(counts.size) / epsilon)


def _hamming_exact(
    prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
) -> HammingMechanism:
    return hamming_mechanism(prior, counts, calibrate_hamming(int(counts.sum()), counts.size, epsilon))


def _optimal(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> OptimalCounts:
    return optimal_counts(prior, counts, epsilon)


def _k_norm(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> KNormCounts:
    return k_norm_counts(prior, counts, epsilon)


def _discrete_gaussian(
    prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
) -> DiscreteGaussianCounts:
    return discrete_gaussian_counts(prior, counts, calibrate_noise_std(epsilon, delta, counts.size))


def _k_norm_minimax(
    prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
) -> MinimaxCounts:
    return minimax_counts(prior, counts, epsilon)


def _projected(noise: CountNoise) -> Build:
    def release(prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float) -> ProjectedCounts:
        return projected_counts(prior, counts, 2.0 / epsilon, noise)

    return release


def _permute_and_flip(
    prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
) -> PermuteAndFlip:
    return permute_and_flip(prior, counts, epsilon / 2.0, global_sensitivity(prior, int(counts.sum())))


def _permute_and_flip_exact(
    prior: NDArray[np.float64], counts: NDArray[np.int64], epsilon: float, delta: float
) -> PermuteAndFlip:
    calibration = calibrate_flip(prior, int(counts.sum()), epsilon)
    return permute_and_flip(prior, counts, calibration.rate, calibration.sensitivity(counts))


def _exact_geometric(k: int, epsilon: float, delta: float) -> NDArray[np.int64]:
    return integer_laplace(laplace_scale_for(histogram_sensitivity(k), epsilon), k - 1)


def _exact_geometric_projected(k: int, epsilon: float, delta: float) -> NDArray[np.int64]:
    return integer_laplace(laplace_scale_for(2, epsilon), k)


def _exact_k_norm(k: int, epsilon: float, delta: float) -> NDArray[np.int64]:
    return sum_zero(integer_laplace, laplace_scale_for(2, epsilon), k)


def _exact_discrete_gaussian(k: int, epsilon: float, delta: float) -> NDArray[np.int64]:
    return sum_zero(integer_gaussian, calibrate_noise_std(epsilon, delta, k), k)


MECHANISMS: dict[str, Mechanism] = {
    **{
        name: Mechanism(
            name=name,
            note=sensitivity.note,
            origin=sensitivity.origin,
            paper=sensitivity.paper,
            variant=sensitivity.variant,
            style=sensitivity.style,
            release=_exponential(sensitivity),
            guarantee=sensitivity.guarantee,
            needs_delta=sensitivity.needs_delta,
            require=require_product_distributions,
            min_categories=sensitivity.min_categories,
            symmetric=True,
        )
        for name, sensitivity in SENSITIVITIES.items()
    },
    **{
        f"{rule.value}-exact": Mechanism(
            name=f"{rule.value}-exact",
            note=(
                f"Exponential mechanism on the {rule.value} sensitivity, with the largest exponent whose exact loss is "
                "ε."
            ),
            release=_exact(rule),
            guarantee=pure_guarantee,
            require=require_calibratable,
            symmetric=True,
            calibrate=partial(calibrate, rule),
            style=style,
        )
        for rule, style in (
            (Rule.SMOOTH, Style("blue", "h")),
            (Rule.VARYING, Style("purple", "d")),
            (Rule.GLOBAL, Style("green", ">")),
        )
    },
    "varying-bound": Mechanism(
        name="varying-bound",
        note="Exponential mechanism on a varying sensitivity, calibrated by a proof that holds for every size.",
        release=_varying_bound,
        guarantee=pure_guarantee,
        require=require_bound,
        symmetric=True,
        style=Style("purple", "2"),
    ),
    "laplace": Mechanism(
        name="laplace",
        note="Laplace noise on k - 1 counts, scaled to the sensitivity of the histogram: 1 at k = 2, otherwise 2.",
        release=_laplace,
        uses_prior=False,
        guarantee=pure_guarantee,
        origin="baseline",
        style=Style("vermilion", "s"),
    ),
    "laplace-dimension": Mechanism(
        name="laplace-dimension",
        note="Laplace noise on k - 1 counts, scaled to the dimension k as in P0; more noise than necessary.",
        release=_laplace_dimension,
        uses_prior=False,
        guarantee=pure_guarantee,
        origin="baseline",
        paper="P0",
        style=Style("orange", "v"),
    ),
    "geometric": Mechanism(
        name="geometric",
        note="Two-sided geometric noise on k - 1 counts, scale as laplace (Ghosh et al. 2012); the loss at k = 2 is ε.",
        release=_geometric,
        uses_prior=False,
        guarantee=pure_guarantee,
        origin="baseline",
        variant="Ghosh et al.",
        exact_noise=_exact_geometric,
        style=Style("sky", "P"),
    ),
    "hamming-exact": Mechanism(
        name="hamming-exact",
        note="Exponential mechanism on the number of replaced records; the largest exponent whose exact loss is ε.",
        release=_hamming_exact,
        uses_prior=False,
        guarantee=pure_guarantee,
        require=require_hamming,
        symmetric=True,
        calibrate=_calibrate_hamming,
        style=Style("olive", "*"),
    ),
    "optimal": Mechanism(
        name="optimal",
        note="Linear program for small n: minimises the worst-case distance, then the distance at balanced data.",
        release=_optimal,
        guarantee=pure_guarantee,
        require=require_solvable,
        max_epsilon=MAX_EPSILON,
        evaluation="program",
        symmetric=True,
        style=Style("brown", "<"),
    ),
    "k-norm": Mechanism(
        name="k-norm",
        note="K-norm noise on the lattice of counts (Hardt & Talwar 2010), projected; at k = 2 it equals geometric.",
        release=_k_norm,
        uses_prior=False,
        guarantee=pure_guarantee,
        symmetric=True,
        min_categories=3,  # at k = 2 this mechanism equals `geometric`
        origin="baseline",
        variant="Hardt & Talwar",
        exact_noise=_exact_k_norm,
        style=Style("crimson", "H"),
    ),
    "k-norm-minimax": Mechanism(
        name="k-norm-minimax",
        note="K-norm noise for small n, post-processed by a linear program for nearly the smallest worst case.",
        release=_k_norm_minimax,
        guarantee=pure_guarantee,
        require=require_post_processable,
        max_epsilon=MINIMAX_EPSILON,
        evaluation="program",
        symmetric=True,
        style=Style("crimson", "8"),
    ),
    **{
        f"{noise.value}-projected": Mechanism(
            name=f"{noise.value}-projected",
            note=f"{title} noise on all k counts, projected to counts of n records.",
            release=_projected(noise),
            uses_prior=False,
            guarantee=pure_guarantee,
            evaluation="vectors",
            exact_noise=exact_noise,
            symmetric=True,
            origin="baseline",
            style=style,
        )
        for noise, title, style, exact_noise in (
            (CountNoise.GEOMETRIC, "Two-sided geometric", Style("sky", "1"), _exact_geometric_projected),
            (CountNoise.LAPLACE, "Laplace", Style("vermilion", "3"), None),
        )
    },
    "permute-and-flip": Mechanism(
        name="permute-and-flip",
        note="Permute-and-flip on the global sensitivity (McKenna & Sheldon 2020).",
        release=_permute_and_flip,
        guarantee=pure_guarantee,
        require=require_flippable,
        symmetric=True,
        origin="baseline",
        variant="McKenna & Sheldon",
        style=Style("teal", "4"),
    ),
    "permute-and-flip-exact": Mechanism(
        name="permute-and-flip-exact",
        note="Permute-and-flip on the smooth sensitivity, with the largest exponent found whose exact loss is ε.",
        release=_permute_and_flip_exact,
        guarantee=pure_guarantee,
        require=require_flip_calibratable,
        symmetric=True,
        calibrate=calibrate_flip,
        style=Style("teal", "x"),
    ),
    "discrete-gaussian": Mechanism(
        name="discrete-gaussian",
        note="Discrete Gaussian noise on the lattice of counts, calibrated by its exact privacy profile, projected.",
        release=_discrete_gaussian,
        uses_prior=False,
        guarantee=approximate_guarantee,
        needs_delta=True,
        symmetric=True,
        origin="baseline",
        variant="correlated",
        exact_noise=_exact_discrete_gaussian,
        style=Style("olive", "+"),
    ),
}

_BUILT_IN = dict(MECHANISMS)


def is_built_in(mechanism: Mechanism) -> bool:
    """Return True for the unmodified mechanisms of this package, whose fields are verified by the tests.

    Examples
    --------
    >>> from dataclasses import replace
    >>> is_built_in(MECHANISMS["smooth"]), is_built_in(replace(MECHANISMS["smooth"], needs_delta=False))
    (True, False)
    """
    return _BUILT_IN.get(mechanism.name) is mechanism
