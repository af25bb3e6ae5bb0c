"""Gibbs sampler for noisy binomial and multinomial counts, with the conditional distributions of the exact model.

Algorithm 1 of P4 (`mechanisms.inference.gibbs`) draws the counts from a normal approximation. Here the counts are
integers, drawn from their conditional distribution in the model itself:

    c | θ, y   for a pair of categories i, j with t = cᵢ + cⱼ records, x = cᵢ has the pmf
               p(x) ∝ C(t, x)·(θᵢ/θⱼ)ˣ·p(yᵢ | x)·p(yⱼ | t − x) on 0, …, t,
    θ | c      the conjugate posterior.

The binomial model is one pair, with t = n and a single release. The pmf is log-concave, because the binomial
coefficient and the density of the noise are: ln p has decreasing increments. Draws are by rejection from a hat with a
constant centre and geometric tails (Devroye, "Non-Uniform Random Variate Generation", 1986, chapter X). With the mode m
and points l < m < r,

    ln p(x) ≤ ln p(m)                                        on l < x < r,
    ln p(x) ≤ ln p(r) + (x − r)·[ln p(r + 1) − ln p(r)]      on x ≥ r, and likewise on x ≤ l.

The points are chosen so that ln p falls by about 1 between m and each of them, or by more between neighbours. The hat
then has at most a few times the mass of p, wherever the noise has its kinks. A draw requires searches for the mode and
the points, which start from guesses, and O(1) evaluations of p.

References
----------
P4, section 3.2: the model, and the sampler with normal approximations.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from mechanisms.core.arguments import Floats
from mechanisms.core.jit import kernel
from mechanisms.inference.drawn_posterior import Chain, sampler
from mechanisms.inference.release_model import ReleaseModel

_MAX_TRIES = 1_000  # reached only for NaN, as the hat has at most a few times the mass of p
_DROP = 1.0  # intended decrease of ln p, in nats, from the mode to the start of a tail
_LEAST_DROP, _LARGEST_DROP = 0.3, 2.5  # accepted range of this decrease
_TABLE = 1 << 16  # size of the table of log factorials, beyond which Stirling's series is used
_MOST_RECORDS = 10**13  # beyond, ln n! has an error above 0.03 nats, the rounding of its size n·ln n
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@sampler
def sample_gibbs_exact(model: ReleaseModel, prior: Floats, y: Floats, starts: Floats) -> Chain:
    """Draw θ from the exact posterior given noisy counts of the binomial or multinomial family.

    If y carries no information on the counts, successive θ have autocorrelation n/(n + Σα), where α are the parameters
    of the prior: chains mix slowly if the variance of the noise is much larger than n. An iteration pairs each category
    with the one that has the largest θ, which constrains the others least. All vectors of counts can be reached. The
    choice depends on θ only, so an iteration leaves the conditional distribution of the counts invariant.
    """
    if model.entry.is_truncated:
        raise ValueError(f"family must be binomial or multinomial, got {model.family!r}; use sample_data_augmentation")
    if model.n > _MOST_RECORDS:
        raise ValueError(
            f"n must be at most {_MOST_RECORDS:,} for draws of counts, as log factorials have no digits beyond, got "
            f"{model.n:,}; pass the number of records"
        )
    run = _run_multinomial if model.entry.is_vector else _run_binomial
    noise = model.noise.power, 1.0 / model.noise.scale
    return run, (prior, model.n, y, *noise, _log_factorials(min(model.n + 1, _TABLE)))


@lru_cache(maxsize=8)  # trials share their n
def _log_factorials(size: int) -> Floats:
    """Return ln 0!, …, ln (size − 1)!."""
    table = special.gammaln(np.arange(1.0, size + 1.0))
    table.flags.writeable = False
    return table


@kernel
def _log_factorial(x, table):
    """Return ln x! for an integer x, from the table or by Stirling's series, whose first omitted term is 1/(360x³)."""
    if x < table.size:
        return table[int(x)]
    return (x + 0.5) * math.log(x) - x + _HALF_LOG_2PI + 1.0 / (12.0 * x)


@kernel
def _log_noise(x, centre, power, rate):
    """Return the log density, up to a constant, of the noise if the count is x and the release is `centre`."""
    z = abs(x - centre) * rate
    return -z if power == 1 else -0.5 * z * z


@kernel
def _log_pmf(x, pmf):
    total, log_odds, first, second, paired, power, rate, table = pmf
    value = x * log_odds - _log_factorial(x, table) - _log_factorial(total - x, table)
    value += _log_noise(x, first, power, rate)
    return value + _log_noise(x, second, power, rate) if paired else value


@kernel
def _increment(x, pmf):
    """Return ln p(x) − ln p(x − 1), which decreases in x."""
    total, log_odds, first, second, paired, power, rate, _ = pmf
    value = math.log((total - x + 1.0) / x) + log_odds
    value += _log_noise(x, first, power, rate) - _log_noise(x - 1.0, first, power, rate)
    if paired:
        value += _log_noise(x, second, power, rate) - _log_noise(x - 1.0, second, power, rate)
    return value


@kernel
def _guess_mode(pmf):
    """Return a number near the mode: that of a normal approximation, or for Laplace noise nearly the mode itself."""
    total, log_odds, first, second, paired, power, rate, _ = pmf
    sources = 2.0 if paired else 1.0
    if power == 2:
        mean = total / (1.0 + math.exp(-log_odds))
        precision, weight = 1.0 / (1.0 + mean) + 1.0 / (1.0 + total - mean), min(rate * rate, 1e300)
        return (precision * mean + weight * (first + second if paired else first)) / (precision + sources * weight)
    # Below and above the kinks, the noise adds a constant to the log odds of a binomial distribution.
    mode, left = (total + 1.0) / (1.0 + math.exp(-log_odds)), min(first, second) if paired else first
    if mode < left:
        return min(left, (total + 1.0) / (1.0 + math.exp(-log_odds - sources * rate)))
    right = max(first, second) if paired else first
    return mode if mode <= right else max(right, (total + 1.0) / (1.0 + math.exp(sources * rate - log_odds)))


@kernel
def _find_mode(pmf):
    """Return the mode, and the decreases of ln p from it to the next points, infinite if such a point has p = 0."""
    # The mode is the largest x with ln p(x) ≥ ln p(x − 1), or 0. Doubling steps from a guess bracket it for bisection.
    total = pmf[0]
    x = math.floor(min(max(_guess_mode(pmf), 1.0), total))
    low, high, step = 0.0, total + 1.0, 1.0  # the increment is ≥ 0 at low, or low is 0, and < 0 at high
    low_slope, high_slope = np.inf, np.inf
    while high - low > 1.0:
        slope = _increment(x, pmf)
        if slope >= 0.0:
            low, low_slope = x, slope
        else:
            high, high_slope = x, -slope
        if low > 0.0 and high <= total:
            x = math.floor(0.5 * (low + high))
        else:
            x = min(low + step, total) if low > 0.0 else max(high - step, 1.0)
            step *= 2.0
    return low, low_slope, high_slope


@kernel
def _bound_tail(mode, side, slope, curvature, peak, pmf):
    """Return the start of a tail, the drop of ln p from the mode to the start, the gap, and the mass of the hat."""
    # `side` is −1 for the left tail and 1 for the right. The gap is the decrease of ln p at the next step, the smallest
    # in the tail. The hat is constant if the tail ends within 1/gap points; otherwise it is constant on the first unit
    # and falls exponentially beyond. The mass is 0 if the tail contains no point.
    total = pmf[0]
    low, high = 0.0, total + 1.0  # the drop is too small at low and too large at high, if that is in the range
    # The first width is that at which a parabola with this slope and curvature has fallen by _DROP.
    width = math.ceil(2.0 * _DROP / (slope + math.sqrt(slope * slope + 2.0 * _DROP * curvature)))
    end = total - mode if side > 0.0 else mode
    if end < 1.0:
        return (total + 1.0 if side > 0.0 else -1.0), np.inf, 0.0, 0.0
    while True:
        width = min(width, end)
        start = mode + side * width
        drop = peak - _log_pmf(start, pmf)
        if drop > _LARGEST_DROP and width > 1.0:
            high = width
        elif drop < _LEAST_DROP and width < end and width + 1.0 < high:
            low = width
        else:
            break
        width = max(math.floor(0.5 * (low + high)), 1.0) if high <= end else 2.0 * width
    points = end - width + 1.0
    if points == 1.0:
        return start, drop, 0.0, math.exp(-drop)
    gap = -side * _increment(start + 1.0 if side > 0.0 else start, pmf)
    return start, drop, gap, math.exp(-drop) * (points if gap * points < 1.0 else 1.0 + 1.0 / gap)


@kernel
def _propose_from_tail(rng, side, start, gap, points):
    """Return a proposal from a tail, possibly out of range, and the log of its hat relative to the first point."""
    if gap * points < 1.0:
        return start + side * math.floor(rng.random() * points), 0.0
    if rng.random() * (1.0 + gap) < gap:
        return start, 0.0
    fall = rng.standard_exponential()
    return start + side * (1.0 + math.floor(fall / gap)), -fall


@kernel
def draw_split(rng, total, log_odds, first, second, paired, power, rate, table):
    """Draw x with p(x) ∝ C(total, x)·exp(x·log_odds)·p(first | x)·p(second | x), x = 0, …, total."""
    # The noise has the log density −(rate·|z|)^power/power, with maxima at x = `first` and, if `paired`, at `second`;
    # `table` contains ln 0!, ln 1!, …. Return NaN if no proposal was accepted.
    if total == 0.0:
        return 0.0
    if math.isnan(log_odds):  # which would index the table
        return np.nan
    pmf = (total, log_odds, first, second, paired, power, rate, table)
    mode, left_slope, right_slope = _find_mode(pmf)
    peak = _log_pmf(mode, pmf)
    curvature = 1.0 / (1.0 + mode) + 1.0 / (1.0 + total - mode)
    if power == 2:
        curvature += (2.0 if paired else 1.0) * rate * rate
    left, left_drop, left_gap, left_mass = _bound_tail(mode, -1.0, left_slope, curvature, peak, pmf)
    right, right_drop, right_gap, right_mass = _bound_tail(mode, 1.0, right_slope, curvature, peak, pmf)
    centre_mass = right - left - 1.0
    mass = centre_mass + right_mass + left_mass
    for _ in range(_MAX_TRIES):
        u, fall = rng.random() * mass, rng.standard_exponential()
        if u < centre_mass:
            x, bound = left + 1.0 + math.floor(u), peak
            # ln p is above its chord between the mode and the start of a tail.
            chord = right_drop * (x - mode) / (right - mode) if x > mode else left_drop * (mode - x) / (mode - left)
            if fall >= chord:
                return x
        elif u < centre_mass + right_mass:
            x, bound = _propose_from_tail(rng, 1.0, right, right_gap, total - right + 1.0)
            bound += peak - right_drop
        else:
            x, bound = _propose_from_tail(rng, -1.0, left, left_gap, left + 1.0)
            bound += peak - left_drop
        if 0.0 <= x <= total and bound - fall <= _log_pmf(x, pmf):
            return x
    return math.nan


@kernel
def _draw_log_gamma(rng, shape):
    """Draw ln G for G ~ Gamma(shape), even if G underflows: G = G'·U^(1/shape) with G' ~ Gamma(shape + 1)."""
    if shape < 1.0:
        return math.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential() / shape
    return math.log(rng.standard_gamma(shape))


@kernel
def _draw_beta(rng, alpha, beta):
    """Draw θ ~ Beta(alpha, beta), and return θ and its log odds ln(θ/(1 − θ))."""
    if alpha < 1.0 or beta < 1.0:
        log_odds = _draw_log_gamma(rng, alpha) - _draw_log_gamma(rng, beta)
        return 1.0 / (1.0 + math.exp(-log_odds)), log_odds
    first, second = rng.standard_gamma(alpha), rng.standard_gamma(beta)
    return first / (first + second), math.log(first / second)


@kernel
def _run_binomial(rng, start, prior, n, noisy, power, rate, table, n_burn_in, draws):
    theta = start[0]
    log_odds = math.log(max(theta, 1e-300)) - math.log(max(1.0 - theta, 1e-300))
    for iteration in range(-n_burn_in, len(draws)):
        # Draw the count given θ and y, then θ given the count.
        s = draw_split(rng, float(n), log_odds, noisy[0], 0.0, False, power, rate, table)
        if math.isnan(s):
            return n_burn_in + iteration
        theta, log_odds = _draw_beta(rng, prior[0] + s, prior[1] + (n - s))
        if iteration >= 0:
            draws[iteration, 0] = theta
    return None


@kernel
def _run_multinomial(rng, start, prior, n, noisy, power, rate, table, n_burn_in, draws):
    k = start.size
    log_theta, counts = np.empty((2, k))
    for j in range(k):
        log_theta[j] = math.log(max(start[j], 1e-300))
        counts[j] = math.floor(n * start[j])
    counts[np.argmax(start)] += n - counts.sum()
    for iteration in range(-n_burn_in, len(draws)):
        # Draw the counts given θ and y, in pairs of the pivot with each other category.
        pivot = np.argmax(log_theta)
        for j in range(k):
            if j == pivot:
                continue
            total = counts[j] + counts[pivot]
            log_odds = log_theta[j] - log_theta[pivot]
            x = draw_split(rng, total, log_odds, noisy[j], total - noisy[pivot], True, power, rate, table)
            if math.isnan(x):
                return n_burn_in + iteration
            counts[j] = x
            counts[pivot] = total - x
        # Draw θ given the counts.
        largest = -np.inf
        for j in range(k):
            log_theta[j] = _draw_log_gamma(rng, prior[j] + counts[j])
            largest = max(largest, log_theta[j])
        if iteration >= 0:
            mass = 0.0
            for j in range(k):
                draws[iteration, j] = math.exp(log_theta[j] - largest)
                mass += draws[iteration, j]
            for j in range(k):
                draws[iteration, j] /= mass
    return None
