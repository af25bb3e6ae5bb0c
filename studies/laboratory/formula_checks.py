"""Numbers that demonstrate errors in printed formulas that no study covers; each takes milliseconds."""

import math

import numpy as np
from scipy import integrate, special, stats

from mechanisms import FAMILIES
from mechanisms.conjugate import count_candidates
from studies.laboratory.results import Results

_RATE, _BOUNDS, _N = 4.0, (0.00633, 0.9222), 1_000
_RECORDS = f"{_N:,} exponential records of rate {_RATE:g}, bounds {_BOUNDS[0]} and {_BOUNDS[1]}"


def candidates(results: Results) -> str:
    """Count the candidates for more than two categories."""
    return f"k = 3, n = 100: {count_candidates(100, 3):,} candidates; k = 4, n = 600: {count_candidates(600, 4):,}."


def gamma(results: Results) -> str:
    """Compute the log normaliser of a Beta distribution."""
    integral, _ = integrate.quad(lambda theta: theta**5 * (1 - theta) ** 11, 0, 1)
    printed = special.gamma(6) + special.gamma(12) - special.gamma(18)
    return (
        f"Beta(6, 12): ln of the integral of its kernel is {math.log(integral):.4f} by quadrature, "
        f"{special.betaln(6, 12):.4f} with ln Γ, and {printed:.4g} as printed."
    )


def trigamma(results: Results) -> str:
    """Compute the variance of a log probability."""
    distribution = stats.beta(6, 12)
    first, second = (distribution.expect(lambda theta, power=power: np.log(theta) ** power) for power in (1, 2))
    right, wrong = (float(special.polygamma(order, 6) - special.polygamma(order, 18)) for order in (1, 0))
    return (
        f"Variance of ln θ under Beta(6, 12): {second - first**2:.5f} by quadrature, {right:.5f} by the trigamma "
        f"function, {wrong:.5f} by the digamma function."
    )


def kernel_mass(results: Results) -> str:
    """Integrate the density of a truncated record."""
    mass, _ = integrate.quad(lambda x: math.exp(-_RATE * x), *_BOUNDS)
    return (
        f"An exponential record of rate {_RATE:g} between {_BOUNDS[0]} and {_BOUNDS[1]}: the printed density "
        f"integrates to {mass * math.exp(-mass):.4f}, with the logarithm to {mass * math.exp(-math.log(mass)):.4f}."
    )


def random_sum(results: Results) -> str:
    """Compute the mean of the sum of the records within bounds."""
    share, mean, _ = (float(each[1]) for each in FAMILIES["exponential"].region_moments(_RATE, _BOUNDS))
    inside, _ = integrate.quad(lambda x: x * _RATE * math.exp(-_RATE * x), *_BOUNDS)
    return (
        f"{_RECORDS}: expected sum of those inside {_N * inside:.2f} by quadrature, "
        f"n·q·μ̂ = {_N * share * mean:.2f}, n·q = {_N * share:.2f}."
    )


def shared_regions(results: Results) -> str:
    """Compute the covariance of the sums in two regions."""
    share, mean, variance = FAMILIES["exponential"].region_moments(_RATE, _BOUNDS)
    own = _N * (share * variance + share * (1 - share) * mean**2)
    cross = -_N * share[1] * share[2] * mean[1] * mean[2]
    return (
        f"{_RECORDS}: the sums in the middle and above have the covariance {cross:.3f}, a correlation of "
        f"{cross / math.sqrt(own[1] * own[2]):.3f}; as printed 0."
    )


def normal_variance(results: Results) -> str:
    """Compute the variance of a sum of records."""
    n, theta = 1_000, 0.3
    one = theta * (1 - theta)
    return (
        f"Binomial, n = {n:,}, θ = {theta}, s = {n * theta:g}: variance of s {stats.binom(n, theta).var():.1f} "
        f"exactly, n·Σ = {n * one:.1f}, s·Σ = {n * theta * one:.1f}."
    )


def wald(results: Results) -> str:
    """Integrate the Wald density."""
    scale = 4.0
    kernel, _ = integrate.quad(lambda t: math.exp(-scale * (t - 1) ** 2 / (2 * t)) / math.sqrt(t**3), 0, math.inf)
    printed, right = scale / math.sqrt(2 * math.pi), math.sqrt(scale / (2 * math.pi))
    return (
        f"Mean 1, γ = {scale:g}: the printed density integrates to {printed * kernel:.4f}, the correct one to "
        f"{right * kernel:.4f}."
    )


def sum_of_quantiles(results: Results) -> str:
    """Compare the mean and the sum of the stored quantiles."""
    stored = results["partition-quantile"].summaries if "partition-quantile" in results else {}
    ds, name = stored.get("default"), "quantile-noiseless"
    if ds is None or 0.5 not in ds["p"].values or name not in ds["algorithm"].values:
        return "The store of partition-quantile, with its panel default at p = 0.5, is missing."
    one = ds.sel(algorithm=name).sel(p=0.5)
    n_partitions = int(ds["n"]) // int(ds["partition_size"])
    mean, error, slope = (
        float(one["slope_quantile_mean"]),
        float(one["slope_quantile_mcse"]),
        str(ds["coefficients"].item()),
    )
    return (
        f"{n_partitions} partitions, true slope {slope.split(':')[1]}, p = 0.5: the mean of the partitions' quantiles "
        f"is {mean:.4f} (Monte Carlo standard error {error:.1g}), their sum, as printed, {n_partitions * mean:.2f}."
    )
