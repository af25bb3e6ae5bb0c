"""Likelihood of a noisy sum of n bounded contributions, by inversion of its Laplace transform.

Let M(λ) = E[e^{λc}] be the moment generating function of one contribution c given θ, and N(λ) the transform of the
noise density. With κ(λ) = n·ln M(λ) − λy,

    p(y | θ) = 1/(2π) ∫ e^{κ(l + it)}·N(l + it) dt

on any vertical line with real part l on which N is analytic. The line passes near the saddle point, so that the
integrand hardly oscillates and the relative error is small at any distance of y from the mean. The trapezoidal rule
with step 2π/P then has an error of e^{−30}, relative to the integral of the modulus: by Poisson's formula it adds the
values of the tilted density at y + kP, and P follows from Chernoff bounds. Integer sums need one period of the
integrand, with the transform of the noise at the integers.

Laplace noise has poles at ±L, L = 1/scale. If the saddle point is next to or beyond a pole, the line is moved beyond
it, and the residue M(±L)ⁿ·e^{∓Ly}, which is E[e^{∓(y − s)L}], is added. It is the likelihood itself if y lies outside
the range of s.

A contribution may equal an atom, a bound or 0, with a large probability. Then the integrand decreases slowly, as the
density of y has kinks. The terms of p(y | θ) in which at most one record lies within the bounds are therefore summed
in closed form, and the line integral contains only the others.

A tilted contribution is represented by its values: all integers with a probability above e^{−46} of the largest, or 64
Gauss–Legendre nodes where the density exceeds e^{−46} of its maximum. Frequencies that these nodes do not resolve use
the transform of the interval, for normal records by the complex error function.

References
----------
Daniels, "Saddlepoint approximations in statistics", Annals of Mathematical Statistics 25(4), 1954. Abate & Whitt, "The
Fourier-series method for inverting transforms of probability distributions", Queueing Systems 10, 1992. Weideman,
"Computation of the complex error function", SIAM Journal on Numerical Analysis 31(5), 1994.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from mechanisms.core.arguments import Floats
from mechanisms.core.jit import inlined_kernel, kernel
from mechanisms.inference.families import EXPONENTIAL, NORMAL, POISSON
from mechanisms.inference.release_model import ReleaseModel

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(64)
_WINDOW = 46.0  # nats below the maximum, where a density is negligible
_RESOLVED = 40.0  # largest product of frequency and width that the nodes resolve
_LARGEST_NODES = 1 << 21  # largest number of steps of a line integral
_FRESH, _CHECKED = 64, 16  # numbers of steps after which phases are computed anew, and the end is checked
_LONG = 1 << 13  # number of steps after which a line integral ends if its value is known to be negligible
_NOTHING = 1e-9  # part of the likelihood that is then negligible
_TOLERANCE = 1e-6  # largest omitted part of a line integral, relative to the likelihood
_FIRST_CUT, _CUTS = 8.0, 20  # smallest product of a cut-off frequency and the width, and number of cut-offs
_GAUSSIAN_REACH = 9.5  # scales of Gaussian noise, or their inverses, beyond which it is negligible


def _error_function_table(n: int) -> tuple[float, Floats]:
    """Return the length and the coefficients of Weideman's rational approximation of w(z) = e^{−z²}·erfc(−iz)."""
    m, length = 2 * n, math.sqrt(n / math.sqrt(2.0))
    t = length * np.tan(np.arange(1 - m, m) * np.pi / (2 * m))
    values = np.append(0.0, np.exp(-(t**2)) * (length**2 + t**2))
    return length, np.ascontiguousarray(np.real(np.fft.fft(np.fft.fftshift(values)))[1 : n + 1][::-1] / (2 * m))


_LENGTH, _COEFFICIENTS = _error_function_table(48)


def log_likelihood(model: ReleaseModel, theta: Floats, y: float) -> tuple[Floats, Floats, int]:
    """Return ln p(y | θ) up to a constant, and a bound on its error, both of shape (m,), and the number of steps.

    The constant is that of the noise: ln p(y | θ) ≤ 0. Most time is that of the steps of line integrals.
    """
    return _log_likelihoods(*_arguments(model, theta, y))


def log_bound(model: ReleaseModel, theta: Floats, y: float) -> Floats:
    """Return an upper bound of ln p(y | θ), shape (m,), at a small cost; 0 unless the noise is real Laplace noise."""
    if model.noise.power != 1 or model.entry.code == POISSON:
        return np.zeros(theta.size)
    return np.minimum(_log_bounds(*_arguments(model, theta, y)), 0.0)


class Records(NamedTuple):
    """Family of the records, and their bounds."""

    kind: int
    low: float
    high: float
    clamps: bool  # True if records outside the bounds contribute the nearest bound, not 0


def _arguments(model: ReleaseModel, theta: Floats, y: float) -> tuple[Any, ...]:
    """Return the arguments of the compiled functions."""
    assert model.bounds is not None
    a, b = map(float, model.bounds)
    theta = np.ascontiguousarray(theta, dtype=np.float64)
    log_outside = np.zeros((2, theta.size))  # log probabilities of records below and above the bounds
    if model.entry.code == EXPONENTIAL:
        with np.errstate(divide="ignore"):
            log_outside[:] = np.log(-np.expm1(-theta * a)), -theta * b
    elif model.entry.code == NORMAL:
        log_outside[:] = special.log_ndtr(a - theta), special.log_ndtr(theta - b)
    # Tilted Poisson distributions have at most 20 standard deviations, of at most √b.
    size = int(min(b - a + 1.0, 40.0 * math.sqrt(b) + 400.0)) if model.entry.code == POISSON else _NODES.size
    records = Records(model.entry.code, a, b, model.outside == "clamp")
    noise = model.noise.power, float(model.noise.scale)
    return records, theta, log_outside, model.n, float(y), noise, size


class Contribution(NamedTuple):
    """Distribution of the contribution of one record: two atoms, and values within the bounds."""

    kind: int  # identifier of the family
    theta: float
    low: float  # bounds
    high: float
    first: float  # atoms, one or both of which may have no probability
    second: float
    log_first: float  # log probabilities of the atoms
    log_second: float
    x: Floats  # values within the bounds, and their weights, which are filled for each tilt
    weight: Floats


class Tilted(NamedTuple):
    """Contribution with density ∝ e^{slope·(c − origin)}."""

    slope: float
    origin: float
    size: int  # number of values within the bounds
    log_mgf: float  # log of the moment generating function about the origin
    mean: float  # about the origin
    variance: float
    p_first: float  # probabilities of the atoms
    p_second: float


class LineNoise(NamedTuple):
    """Noise as seen from a sum next to the release."""

    power: int
    is_lattice: bool  # True if integer sums have a transform with the period 2π
    scale: float
    rest: float  # y minus the integer next to it, on a lattice


class Line(NamedTuple):
    """Integrand on a vertical line: n tilted contributions and noise."""

    contribution: Contribution
    tilted: Tilted
    n: int
    noise: LineNoise
    peels: bool  # True if the terms with at most one record within the bounds are omitted


class Phases(NamedTuple):
    """Values of e^{it(x − origin)} at the next frequency, which are products of those at the frequency before."""

    values: NDArray[np.complex128]
    turns: NDArray[np.complex128]  # their factors from one frequency to the next
    step: NDArray[np.int64]  # number of the frequency of the values, shape (1,)


class LineIntegral(NamedTuple):
    """Integral over a line, relative to the factor of the integrand at its centre."""

    value: float
    error: float  # bound on omitted frequencies
    of_modulus: float  # integral of the modulus of the integrand
    has_ended: bool  # False if it was given up, as its value is known to be negligible


@kernel
def _w(z):
    """Return w(z) = exp(−z²)·erfc(−iz) for Im z ≥ 0."""
    below = _LENGTH - 1j * z
    ratio = (_LENGTH + 1j * z) / below
    total = 0.0 + 0.0j
    for coefficient in _COEFFICIENTS:
        total = total * ratio + coefficient
    return (2.0 * total / below + 1.0 / math.sqrt(math.pi)) / below


@kernel
def _turn(angle):
    return complex(math.cos(angle), math.sin(angle))


@kernel
def _log_density(kind, theta, x):
    if kind == EXPONENTIAL:
        return math.log(theta) - theta * x
    return -0.5 * (x - theta) ** 2 - 0.5 * math.log(2.0 * math.pi)


@kernel
def _window(kind, theta, slope, a, b):
    """Return the part of [a, b] where the density times e^{slope·x} is not negligible, and its largest point."""
    if kind == EXPONENTIAL:
        rate = theta - slope
        width = min(b - a, _WINDOW / max(abs(rate), 1e-300))
        return (a, a + width, a) if rate >= 0.0 else (b - width, b, b)
    mode = min(max(theta + slope, a), b)
    z = abs(mode - theta - slope)
    reach = 2.0 * _WINDOW / (math.sqrt(z * z + 2.0 * _WINDOW) + z)
    return max(a, mode - reach), min(b, mode + reach), mode


@kernel
def _fill_points(kind, theta, slope, origin, a, b, x, log_weight):
    """Fill values within [a, b] and the logs of their probabilities times e^{slope·(x − origin)}; return the number."""
    if kind != POISSON:
        low, high, _ = _window(kind, theta, slope, a, b)
        half = 0.5 * (high - low)
        for i in range(_NODES.size):
            x[i] = low + half * (1.0 + _NODES[i])
            log_density = _log_density(kind, theta, x[i])
            log_weight[i] = log_density + slope * (x[i] - origin) + math.log(half * _NODE_WEIGHTS[i])
        return _NODES.size
    log_mean = math.log(theta) + slope
    mode = b if log_mean > 40.0 else min(max(math.floor(math.exp(log_mean)), a), b)
    low = high = mode
    drop = 0.0
    while low > a and drop > -_WINDOW and mode - low < x.size:
        drop += math.log(low) - log_mean
        low -= 1.0
    drop = 0.0
    while high < b and drop > -_WINDOW and high - low + 1.0 < x.size:
        high += 1.0
        drop += log_mean - math.log(high)
    size = int(min(high - low + 1.0, x.size))
    for i in range(size):
        x[i] = low + i
        log_weight[i] = x[i] * math.log(theta) - theta - math.lgamma(x[i] + 1.0) + slope * (x[i] - origin)
    return size


@kernel
def _log_poisson_sum(theta, x, step):
    """Return ln of the sum of the Poisson pmf from x in the direction `step` = ±1, in which its terms decrease."""
    if x < 0.0:
        return -math.inf
    log_first = x * math.log(theta) - theta - math.lgamma(x + 1.0)
    weight, total = 1.0, 0.0
    while x >= 0.0 and weight > 1e-20 * total:
        total += weight
        weight *= theta / (x + 1.0) if step > 0.0 else x / theta
        x += step
    return log_first + math.log(total)


@kernel
def _poisson_tails(theta, a, b):
    """Return the log probabilities of x < a and of x > b."""
    if a - 1.0 <= theta:
        below = _log_poisson_sum(theta, a - 1.0, -1.0)
    else:
        below = math.log1p(-math.exp(_log_poisson_sum(theta, a, 1.0)))
    if b + 1.0 >= theta:
        return below, _log_poisson_sum(theta, b + 1.0, 1.0)
    return below, math.log1p(-math.exp(_log_poisson_sum(theta, b, -1.0)))


@kernel
def _tilt(contribution, slope, origin):
    """Return the tilted contribution, and fill its values within the bounds and their probabilities."""
    x, weight = contribution.x, contribution.weight
    kind, theta, low, high = contribution.kind, contribution.theta, contribution.low, contribution.high
    first, second = contribution.first - origin, contribution.second - origin
    size = _fill_points(kind, theta, slope, origin, low, high, x, weight)
    log_first, log_second = contribution.log_first + slope * first, contribution.log_second + slope * second
    top = max(log_first, log_second)
    for i in range(size):
        top = max(top, weight[i])
    p_first, p_second = math.exp(log_first - top), math.exp(log_second - top)
    total = p_first + p_second
    mean = p_first * first + p_second * second
    for i in range(size):
        weight[i] = math.exp(weight[i] - top)
        total += weight[i]
        mean += weight[i] * (x[i] - origin)
    mean /= total
    variance = p_first * (first - mean) ** 2 + p_second * (second - mean) ** 2
    for i in range(size):
        variance += weight[i] * (x[i] - origin - mean) ** 2
        weight[i] /= total
    log_mgf = top + math.log(total)
    return Tilted(slope, origin, size, log_mgf, mean, variance / total, p_first / total, p_second / total)


@kernel
def _boundary(kind, theta, slope, origin, log_mass, end, t):
    """Return a function of one end of an interval whose difference transforms the tilted density, without its core."""
    height = math.exp(_log_density(kind, theta, end) + slope * (end - origin) - log_mass)
    phase = _turn(t * (end - origin))
    if kind == EXPONENTIAL:
        return height * phase / complex(theta - slope, -t)
    z = complex(t, end - theta - slope) / math.sqrt(2.0)
    return math.sqrt(0.5 * math.pi) * height * phase * (_w(z) if z.imag >= 0.0 else -_w(-z))


@kernel
def _log_interval(kind, theta, slope, low, high):
    """Return the log of the integral of the density times e^{slope·x} over [low, high]."""
    if high <= low:
        return -math.inf
    low, high, mode = _window(kind, theta, slope, low, high)
    half, top = 0.5 * (high - low), _log_density(kind, theta, mode) + slope * mode
    total = 0.0
    for i in range(_NODES.size):
        x = low + half * (1.0 + _NODES[i])
        total += _NODE_WEIGHTS[i] * math.exp(_log_density(kind, theta, x) + slope * x - top)
    return top + math.log(half * total) if half > 0.0 else -math.inf


@kernel
def _log_add(first, second):
    top = max(first, second)
    return top if top == -math.inf else top + math.log(math.exp(first - top) + math.exp(second - top))


@kernel
def _log_term(contribution, n, y, rate, inside, i):
    """Return the log of the part of p(y) where `inside` records lie within the bounds, and i others at the 2nd atom."""
    kind, theta, a, b = contribution.kind, contribution.theta, contribution.low, contribution.high
    m = n - inside
    term = math.lgamma(n + 1.0) - math.lgamma(i + 1.0) - math.lgamma(m - i + 1.0)
    if i > 0:
        term += i * contribution.log_second
    if i < m:
        term += (m - i) * contribution.log_first
    z = y - (m - i) * contribution.first - i * contribution.second
    if inside == 0:
        return term - abs(z) * rate
    middle = min(max(z, a), b)
    return term + _log_add(
        _log_interval(kind, theta, rate, a, middle) - z * rate, _log_interval(kind, theta, -rate, middle, b) + z * rate
    )


@kernel
def _log_terms(contribution, n, y, rate, inside):
    """Return the log of the part of p(y) where `inside` records, 0 or 1, lie within the bounds: log-concave terms."""
    m = n - inside
    low, high = (m if contribution.log_first == -math.inf else 0), m
    while low < high:
        middle = (low + high) // 2
        here = _log_term(contribution, n, y, rate, inside, middle)
        if _log_term(contribution, n, y, rate, inside, middle + 1) > here:
            low = middle + 1
        else:
            high = middle
    top = total = _log_term(contribution, n, y, rate, inside, low)
    for step in (-1, 1):
        i = low + step
        while 0 <= i <= m:
            term = _log_term(contribution, n, y, rate, inside, i)
            if term < top - _WINDOW or term == -math.inf:
                break
            total = _log_add(total, term)
            i += step
    return total


@kernel
def _noise_transform(noise, slope, t):
    """Return the transform of the noise density at slope + it, relative to its value or bound at t = 0."""
    # For Gaussian noise the factor e^{slope²·scale²/2} is omitted. At integers, y = m + `rest` with integer m, and the
    # factor e^{−λm} and the largest term are omitted.
    scale, rest = noise.scale, noise.rest
    if noise.power == 2:
        if not noise.is_lattice:
            return math.exp(-0.5 * (scale * t) ** 2) * _turn(scale * scale * slope * t)
        transform, centre = 0.0 + 0.0j, rest - slope * scale * scale
        least = abs(math.floor(centre + 0.5) - centre) / scale
        s = math.floor(centre - _GAUSSIAN_REACH * scale) - 1.0
        while s <= centre + _GAUSSIAN_REACH * scale + 1.0:
            z = abs(s - centre) / scale
            transform += math.exp(-0.5 * (z - least) * (z + least)) * _turn(-t * s)
            s += 1.0
        return transform
    rate = 1.0 / scale
    if not noise.is_lattice:
        return 2.0 * rate / (complex(rate - slope, -t) * complex(rate + slope, t))
    nearest = min(rest, 1.0 - rest) * rate
    below = math.exp(nearest - rest * rate) / (1.0 - math.exp(slope - rate) * _turn(t))
    after = math.exp(nearest - (1.0 - rest) * rate - slope) / _turn(t)
    return below + after / (1.0 - math.exp(-slope - rate) / _turn(t))


@kernel
def _period(contribution, n, tilted, sd, low, high, variance):
    """Return a distance from 0 beyond which n tilted contributions about the origin, plus normal noise, hardly lie."""
    slope, reach = tilted.slope, 0.0
    for side in (-1.0, 1.0):
        shortest = -low if side < 0.0 else high
        for k in (0.004, 0.015, 0.06, 0.25, 1.0, 3.0, 8.0):
            step = side * k / sd
            further = _tilt(contribution, slope + step, tilted.origin).log_mgf
            rise = n * (further - tilted.log_mgf) + variance * step * (slope + 0.5 * step)
            shortest = min(shortest, (rise + 32.0) / abs(step))
        reach = max(reach, shortest)
    return reach


@kernel
def _log_likelihood(contribution, n, y, power, scale, spent):
    """Return ln p(y | θ) up to a constant, and a bound on its error from omitted frequencies."""
    is_integer, rate = contribution.kind == POISSON, 1.0 / scale
    low = n * min(contribution.low, contribution.first)
    high = n * max(contribution.high, contribution.second)
    gaussian = scale * scale if power == 2 else 0.0
    is_lattice = is_integer and (power == 1 or scale < 1.0)
    m = y
    if is_lattice:
        m = math.floor(min(max(y, low), high)) if power == 1 else math.floor(y)
    noise = LineNoise(power, is_lattice, scale, y - m)
    origin, log_residue = m / n, -math.inf
    if power == 2:
        slope, sd = _saddle(contribution, n, origin, y - m, gaussian, -math.inf, math.inf, 0.5, 0.0)
        gap = math.inf
    else:
        slope, log_residue, gap, sd = _laplace_line(contribution, n, y, m, rate, low, high)
        if gap == 0.0:
            return log_residue, 0.0
    tilted = _tilt(contribution, slope, origin)
    if power == 2:
        sd = math.sqrt(n * tilted.variance + gaussian)
    log_scale = _log_factor(tilted, n, noise)
    share = tilted.p_first + tilted.p_second
    peels = power == 1 and not is_integer and (n <= 12 or n * math.log(max(share, 1e-300)) > -44.0)
    log_peeled = -math.inf
    if peels:
        few = _log_terms(contribution, n, y, rate, 0), _log_terms(contribution, n, y, rate, 1)
        log_peeled = _log_add(few[0], few[1])
        if n == 1:  # no other terms
            return log_peeled, 0.0
        if log_residue > -math.inf:
            log_residue += _log_probability_of_several(contribution, n, math.copysign(rate, slope), origin)
    log_known = _log_add(log_peeled, log_residue)
    if log_known > log_scale + _WINDOW:
        return log_known, 0.0
    known = math.exp(log_known - log_scale)
    reach = _period(contribution, n, tilted, sd, low - m, high - m, gaussian)
    further = 1.0 if y > m else 0.0  # y may be next to m + 1, which is further from the smallest sum than m
    if power == 2:
        reach += _GAUSSIAN_REACH * scale + further
    else:
        reach += max(36.0 / gap, 32.0 / gap + further)
    is_negligible = peels and _log_several(contribution, n, scale) <= log_peeled + math.log(_NOTHING)
    tilted = _tilt(contribution, slope, origin)  # the values are those of another tilt
    line = Line(contribution, tilted, n, noise, peels)
    integral = _line_integral(line, reach, known, is_negligible, spent)
    if not integral.has_ended:  # it cancels the residue
        return log_peeled, _NOTHING
    # If the noise hardly explains the distance of y from all likely sums, the integral cancels down to its rounding.
    rounding = 1e-15 * max(known, integral.of_modulus)
    total = max(known + integral.value, rounding)
    return log_scale + math.log(total), (integral.error + rounding) / total


@kernel
def _log_factor(tilted, n, noise):
    """Return the log of the omitted factor of a line integral: of e^{κ} at its centre."""
    if noise.is_lattice and noise.power == 1:
        return n * tilted.log_mgf - min(noise.rest, 1.0 - noise.rest) * (1.0 / noise.scale)
    gaussian = noise.scale * noise.scale if noise.power == 2 else 0.0
    if not noise.is_lattice:
        return n * tilted.log_mgf + 0.5 * gaussian * tilted.slope * tilted.slope
    # The largest term is at k; the density at the integer next to y is a constant.
    k, next_to_y = math.floor(noise.rest - tilted.slope * gaussian + 0.5), math.floor(noise.rest + 0.5)
    drop = 0.5 * (next_to_y - k) * (2.0 * noise.rest - next_to_y - k) / gaussian
    return n * tilted.log_mgf - tilted.slope * k - drop


@kernel
def _log_probability_of_several(contribution, n, slope, origin):
    """Return the log of the probability that at least two of n tilted records lie within the bounds."""
    tilted = _tilt(contribution, slope, origin)
    share, inside = tilted.p_first + tilted.p_second, max(1.0 - tilted.p_first - tilted.p_second, 0.0)
    several = 1.0 - math.exp((n - 1.0) * math.log(max(share, 1e-300))) * (share + n * inside)
    return math.log(max(several, 1e-300))


@kernel
def _saddle(contribution, n, origin, rest, gaussian, low, high, tolerance, least_sd):
    """Return λ in (low, high) where the mean of the tilted sum, plus normal noise, is near `rest`, and their sd."""
    # The mean is within `tolerance` standard deviations of `rest`. `gaussian` is the variance of normal noise.
    slope, sd = 0.0, least_sd
    for k in range(200):
        tilted = _tilt(contribution, slope, origin)
        apart, total = n * tilted.mean + gaussian * slope - rest, n * tilted.variance + gaussian
        sd = max(math.sqrt(total), least_sd)
        if abs(apart) <= tolerance * sd:
            break
        if apart > 0.0:
            high = slope
        else:
            low = slope
        slope -= apart / max(total, 1e-300)
        if math.isfinite(low) and math.isfinite(high) and (k % 4 == 3 or not low < slope < high):
            slope = 0.5 * (low + high)
    return slope, sd


@kernel
def _laplace_line(contribution, n, y, m, rate, low, high):
    """Return λ at the centre of the line, the log residue, the distance to the next pole, and the sd of the sum."""
    # The distance is 0 if the residue is the likelihood.
    origin, rest = m / n, y - m
    side, excess, spreads = 0.0, np.empty(2), np.empty(2)
    if y >= high or y <= low:
        side = 1.0 if y >= high else -1.0
        return 0.0, n * _tilt(contribution, side * rate, origin).log_mgf - side * rate * rest, 0.0, 0.0
    least_sd = 0.5 if contribution.kind == POISSON else 1e-3 * (high - low) / n
    slope, sd = 0.0, least_sd
    for k in range(2):
        at_pole = _tilt(contribution, (2 * k - 1) * rate, origin)
        excess[k] = (2 * k - 1) * (n * at_pole.mean - rest)
        spreads[k] = max(math.sqrt(n * at_pole.variance), least_sd)
    if min(excess[0], excess[1]) <= 0.0:
        side = 1.0 if excess[1] <= 0.0 else -1.0
    else:
        slope, sd = _saddle(contribution, n, origin, rest, 0.0, -rate, rate, 0.25, least_sd)
        end = 1 if slope > 0.0 else 0
        if rate - abs(slope) < 1.0 / sd and excess[end] < 1.5 * spreads[end]:  # or the integral cancels the residue
            side = 2.0 * end - 1.0
    if side == 0.0:  # the distance to a pole limits the step
        largest = rate - min(0.5 * rate, 1.0 / sd)
        slope = min(max(slope, -largest), largest)
        return slope, -math.inf, rate - abs(slope), sd
    at_pole = _tilt(contribution, side * rate, origin)
    log_residue = n * at_pole.log_mgf - side * rate * rest
    sd = max(math.sqrt(n * at_pole.variance), least_sd)
    for far in (2.0, 4.0, 8.0):
        slope = side * (rate + far / sd)
        rise = n * (_tilt(contribution, slope, origin).log_mgf - at_pole.log_mgf)
        if rise - side * far / sd * rest < -_WINDOW:
            return slope, log_residue, 0.0, sd
    gap, variance = 2.0 / sd, at_pole.variance
    for _ in range(200):  # the variance may increase with the tilt
        slope = side * (rate + gap)
        beyond = _tilt(contribution, slope, origin)
        variance = beyond.variance
        if n * (beyond.log_mgf - at_pole.log_mgf) - side * gap * rest < 3.0:
            break
        gap *= 0.5
    return slope, log_residue, gap, max(math.sqrt(n * variance), least_sd)


@kernel
def _log_several(contribution, n, scale):
    """Return the log of a bound on the part of p(y) where at least two records lie within the bounds.

    Given all others and the noise, whose density has the omitted factor 1/(2·scale), one of n records has at most the
    largest density, and one of n − 1 others lies within the bounds with at most n − 1 times the probability of one.
    """
    kind, theta, a, b = contribution.kind, contribution.theta, contribution.low, contribution.high
    _, _, mode = _window(kind, theta, 0.0, a, b)
    log_pairs = math.log(n * max(n - 1.0, 1e-300) * 2.0 * scale)
    return log_pairs + _log_density(kind, theta, mode) + _log_interval(kind, theta, 0.0, a, b)


@kernel
def _frequencies(reach, is_lattice):
    """Return the distance of frequencies, and their largest number: the half of a period for integer sums."""
    if not is_lattice:
        return 2.0 * math.pi / reach, _LARGEST_NODES
    nodes = max(math.ceil(reach), 15.0)
    nodes += 1.0 - nodes % 2.0  # odd, so that 0 is the only node without a conjugate
    return 2.0 * math.pi / nodes, int(min(0.5 * (nodes + 1.0), float(_LARGEST_NODES)))


@kernel
def _spread_inside(line):
    """Return the width of the tilted density within the bounds, and a bound on |t| times its transform."""
    contribution, tilted = line.contribution, line.tilted
    kind, theta, x = contribution.kind, contribution.theta, contribution.x
    if kind == POISSON:
        return x[tilted.size - 1] - x[0], 0.0
    low, high, mode = _window(kind, theta, tilted.slope, contribution.low, contribution.high)
    log_height = _log_density(kind, theta, mode) + tilted.slope * (mode - tilted.origin) - tilted.log_mgf
    return high - low, 2.0 * math.exp(log_height)


@inlined_kernel
def _atoms_transform(line, t):
    """Return the part of E[e^{it(c − origin)}] of the atoms."""
    contribution, tilted = line.contribution, line.tilted
    transform = tilted.p_first * _turn(t * (contribution.first - tilted.origin))
    if tilted.p_second > 0.0:
        transform += tilted.p_second * _turn(t * (contribution.second - tilted.origin))
    return transform


@kernel
def _integers_transform(line, t):
    """Return the part of E[e^{it(c − origin)}] of integers within the bounds, a polynomial in e^{it}."""
    x, weight = line.contribution.x, line.contribution.weight
    turn, transform = _turn(t), 0.0 + 0.0j
    for i in range(line.tilted.size - 1, -1, -1):
        transform = transform * turn + weight[i]
    return transform * _turn(t * (x[0] - line.tilted.origin))


@inlined_kernel
def _nodes_transform(line, j, t, phases):
    """Return the part of E[e^{it(c − origin)}] of nodes within the bounds, and advance their phases to the next t."""
    x, weight, size, values = line.contribution.x, line.contribution.weight, line.tilted.size, phases.values
    if phases.step[0] != j or j % _FRESH == 0:
        for i in range(size):
            values[i] = _turn(t * (x[i] - line.tilted.origin))
    transform = 0.0 + 0.0j
    for i in range(size):
        transform += weight[i] * values[i]
        values[i] *= phases.turns[i]
    phases.step[0] = j + 1
    return transform


@kernel
def _interval_transform(line, t):
    """Return the part of E[e^{it(c − origin)}] of the bounds, at frequencies that the nodes do not resolve."""
    contribution, tilted = line.contribution, line.tilted
    theta, slope, low, high = contribution.theta, tilted.slope, contribution.low, contribution.high
    density = contribution.kind, theta, slope, tilted.origin, tilted.log_mgf
    transform = _boundary(*density, low, t) - _boundary(*density, high, t)
    centre = theta + slope
    if contribution.kind == NORMAL and low < centre <= high:
        core = slope * (theta - tilted.origin) + 0.5 * slope * slope - tilted.log_mgf - 0.5 * t * t
        transform += math.exp(core) * _turn(t * (centre - tilted.origin))
    return transform


@inlined_kernel
def _inside_transform(line, width, j, t, phases):
    """Return the part of E[e^{it(c − origin)}] of the bounds at the frequency t, which has number j."""
    if line.contribution.kind == POISSON:
        return _integers_transform(line, t)
    if t * width < _RESOLVED:
        return _nodes_transform(line, j, t, phases)
    return _interval_transform(line, t)


@inlined_kernel
def _power_of_transform(line, atoms, inside):
    """Return φⁿ, φ = `atoms` + `inside`, without the terms of at most one record within the bounds if line peels."""
    n, phi = line.n, atoms + inside
    power = np.exp(n * np.log(phi)) if abs(phi) > 0.0 else 0.0 + 0.0j
    if line.peels and abs(atoms) > 0.0:
        power -= np.exp((n - 1.0) * np.log(atoms)) * (atoms + n * inside)
    return power


@kernel
def _omitted_bound(line, largest_inside, factor, t):
    """Return a bound on the part of the integral beyond t, relative to its factor.

    The transform has at most the modulus of the atoms plus `largest_inside`, which decreases as 1/t.
    """
    n = line.n
    bound = line.tilted.p_first + line.tilted.p_second + largest_inside
    modulus = math.exp(n * math.log(bound))
    if line.peels:
        several = math.exp((n - 2.0) * math.log(bound)) * 0.5 * n * (n - 1.0) * largest_inside**2
        modulus = min(several, modulus)
    return modulus * abs(factor) * t / math.pi


@inlined_kernel
def _add_to_cut_offs(smoothed, level, cut, t, amount):
    """Add a term of the integral at the frequency t to those with smooth cut-offs at cut, 2·cut, … from `level` on."""
    eighth_power = (t / cut) ** 8
    for k in range(level, smoothed.size):
        smoothed[k] += amount * (math.exp(-36.0 * eighth_power) if eighth_power > 1e-17 else 1.0)
        eighth_power /= 256.0


@kernel
def _line_integral(line, reach, known, is_negligible, spent):
    """Return 1/(2π) of the integral over a line, whose transform has the period `reach` in y.

    It ends where the rest is negligible in comparison with the `known` part of the likelihood, relative to the same
    factor, and after `_LONG` steps if all of it is.
    """
    contribution, tilted, noise = line.contribution, line.tilted, line.noise
    is_poisson = contribution.kind == POISSON
    h, n_frequencies = _frequencies(reach, noise.is_lattice)
    unit, sd = h / (2.0 * math.pi), math.sqrt(tilted.variance)
    width, height = _spread_inside(line)
    share, negligible = tilted.p_first + tilted.p_second, math.exp(-_WINDOW / line.n)
    noise_end = _GAUSSIAN_REACH if noise.power == 2 and not noise.is_lattice else math.inf
    turns = np.exp(1j * h * (contribution.x - tilted.origin))
    phases = Phases(np.empty_like(turns), turns, np.zeros(1, np.int64))
    # Integrals with smooth cut-offs at frequencies 2^k·_FIRST_CUT/width: that of the next one shows their errors.
    smoothed, level, cut = np.zeros(_CUTS), 0, _FIRST_CUT / width if width > 0.0 else math.inf
    total, of_modulus, omitted, j = 0.0, 0.0, 0.0, 0
    while j < n_frequencies:
        if is_negligible and j >= _LONG:
            return LineIntegral(0.0, 0.0, 0.0, False)
        spent[0] += 1
        t = j * h
        atoms, inside = _atoms_transform(line, t), _inside_transform(line, width, j, t, phases)
        modulus = abs(atoms + inside)
        if not line.peels and modulus < negligible:
            if t * noise.scale > noise_end or (not is_poisson and share + height / t < negligible):
                return LineIntegral(unit * total, 0.0, unit * of_modulus, True)
            # the modulus changes by at most sd per unit of frequency
            j += max(1, int(min((negligible - modulus) / (sd * h), 1e9))) if sd > 0.0 else n_frequencies
            continue
        factor = _noise_transform(noise, tilted.slope, t)
        term = _power_of_transform(line, atoms, inside) * (factor if j == 0 else 2.0 * factor)
        total += term.real
        of_modulus += abs(term)
        if not is_poisson:
            while t >= cut and level < _CUTS:
                if level > 0:
                    change = unit * abs(smoothed[level] - smoothed[level - 1])
                    if change <= _TOLERANCE * (known + unit * abs(smoothed[level])):
                        return LineIntegral(unit * smoothed[level], change, unit * of_modulus, True)
                level, cut = level + 1, 2.0 * cut
            _add_to_cut_offs(smoothed, level, cut, t, term.real)
        if j % _CHECKED == _CHECKED - 1:
            if t * noise.scale > noise_end:
                return LineIntegral(unit * total, 0.0, unit * of_modulus, True)
            if not is_poisson:
                omitted = _omitted_bound(line, height / t, factor, t)
                if omitted <= _TOLERANCE * (known + unit * total):
                    return LineIntegral(unit * total, omitted, unit * of_modulus, True)
        j += 1
    return LineIntegral(unit * total, omitted, unit * of_modulus, True)


@kernel
def _contribution(records, theta, log_below, log_above, x, weight):
    """Return the distribution of a contribution, given the log probabilities of records outside the bounds."""
    kind, a, b = records.kind, records.low, records.high
    if records.clamps:
        return Contribution(kind, theta, a, b, a, b, log_below, log_above, x, weight)
    return Contribution(kind, theta, a, b, 0.0, 0.0, _log_add(log_below, log_above), -math.inf, x, weight)


@kernel
def _log_likelihoods(records, theta, log_outside, n, y, noise, size):
    """Return log likelihoods, bounds of their errors, and the number of steps, from the log probabilities outside."""
    log_likelihoods, error = np.empty((2, theta.size))
    spent = np.zeros(1, np.int64)
    x, weight = np.empty((2, size))
    for k in range(theta.size):
        below, above = log_outside[0, k], log_outside[1, k]
        if records.kind == POISSON:
            below, above = _poisson_tails(theta[k], records.low, records.high)
        contribution = _contribution(records, theta[k], below, above, x, weight)
        log_likelihoods[k], error[k] = _log_likelihood(contribution, n, y, *noise, spent)
    return log_likelihoods, error, spent[0]


@kernel
def _log_bounds(records, theta, log_outside, n, y, noise, size):
    """Return upper bounds of the log likelihoods, the terms of 0 and 1 records and a bound of others."""
    bounds, scale = np.empty(theta.size), noise[1]
    x, weight = np.empty((2, size))
    for k in range(theta.size):
        contribution = _contribution(records, theta[k], log_outside[0, k], log_outside[1, k], x, weight)
        rate = 1.0 / scale
        few = _log_add(_log_terms(contribution, n, y, rate, 0), _log_terms(contribution, n, y, rate, 1))
        bounds[k] = _log_add(few, _log_several(contribution, n, scale))
    return bounds
