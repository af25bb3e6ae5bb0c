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
from typing import Any

import numpy as np
from scipy import special

from mechanisms.core.arguments import Floats
from mechanisms.core.jit import kernel
from mechanisms.inference.families import EXPONENTIAL, NORMAL, POISSON
from mechanisms.inference.release_model import ReleaseModel

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(64)
_WINDOW = 46.0  # nats below the maximum, where a density is negligible
_RESOLVED = 40.0  # largest product of frequency and width that the nodes resolve
_LARGEST_NODES = 1 << 21  # largest number of steps of a line integral
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


def _arguments(model: ReleaseModel, theta: Floats, y: float) -> tuple[Any, ...]:
    """Return the arguments of the compiled functions."""
    assert model.bounds is not None
    a, b = map(float, model.bounds)
    theta = np.ascontiguousarray(theta, dtype=np.float64)
    below, above = np.zeros((2, theta.size))
    if model.entry.code == EXPONENTIAL:
        with np.errstate(divide="ignore"):
            below, above = np.log(-np.expm1(-theta * a)), -theta * b
    elif model.entry.code == NORMAL:
        below, above = special.log_ndtr(a - theta), special.log_ndtr(theta - b)
    # Tilted Poisson distributions have at most 20 standard deviations, of at most √b.
    size = int(min(b - a + 1.0, 40.0 * math.sqrt(b) + 400.0)) if model.entry.code == POISSON else _NODES.size
    noise, clamps = (model.noise.power, float(model.noise.scale)), model.outside == "clamp"
    return model.entry.code, theta, below, above, a, b, clamps, model.n, float(y), noise, size


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
def _tilt(record, slope, origin):
    """Fill the tilted distribution of one contribution, with density ∝ e^{slope·(c − origin)}."""
    # `record` is (kind, θ, a, b, atoms, log probabilities of the atoms, values, weights), of which the last two are
    # filled. Return the number of values within the bounds, the log moment generating function, mean and variance about
    # `origin`, and the probabilities of the two atoms.
    kind, theta, a, b, first, second, log_first, log_second, x, weight = record
    size = _fill_points(kind, theta, slope, origin, a, b, x, weight)
    log_first += slope * (first - origin)
    log_second += slope * (second - origin)
    top = max(log_first, log_second)
    for i in range(size):
        top = max(top, weight[i])
    p_first, p_second = math.exp(log_first - top), math.exp(log_second - top)
    total = p_first + p_second
    mean = p_first * (first - origin) + p_second * (second - origin)
    for i in range(size):
        weight[i] = math.exp(weight[i] - top)
        total += weight[i]
        mean += weight[i] * (x[i] - origin)
    mean /= total
    variance = p_first * (first - origin - mean) ** 2 + p_second * (second - origin - mean) ** 2
    for i in range(size):
        variance += weight[i] * (x[i] - origin - mean) ** 2
        weight[i] /= total
    return size, top + math.log(total), mean, variance / total, p_first / total, p_second / total


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
def _interval_transform(kind, theta, slope, origin, log_mass, a, b, t):
    """Return E[e^{it(x − origin)}; a ≤ x ≤ b] for the tilted density, at frequencies that the nodes do not resolve."""
    tilted = (kind, theta, slope, origin, log_mass)
    found = _boundary(*tilted, a, t) - _boundary(*tilted, b, t)
    centre = theta + slope
    if kind == NORMAL and a < centre <= b:
        core = slope * (theta - origin) + 0.5 * slope * slope - log_mass - 0.5 * t * t
        found += math.exp(core) * _turn(t * (centre - origin))
    return found


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
def _log_term(record, n, y, rate, inside, i):
    """Return the log of the part of p(y) where `inside` records lie within the bounds, and i others at the 2nd atom."""
    kind, theta, a, b, first, second, log_first, log_second, _, _ = record
    m = n - inside
    term = math.lgamma(n + 1.0) - math.lgamma(i + 1.0) - math.lgamma(m - i + 1.0)
    if i > 0:
        term += i * log_second
    if i < m:
        term += (m - i) * log_first
    z = y - (m - i) * first - i * second
    if inside == 0:
        return term - abs(z) * rate
    middle = min(max(z, a), b)
    return term + _log_add(
        _log_interval(kind, theta, rate, a, middle) - z * rate, _log_interval(kind, theta, -rate, middle, b) + z * rate
    )


@kernel
def _log_terms(record, n, y, rate, inside):
    """Return the log of the part of p(y) where `inside` records, 0 or 1, lie within the bounds: log-concave terms."""
    m = n - inside
    low, high = (m if record[6] == -math.inf else 0), m
    while low < high:
        middle = (low + high) // 2
        if _log_term(record, n, y, rate, inside, middle + 1) > _log_term(record, n, y, rate, inside, middle):
            low = middle + 1
        else:
            high = middle
    top = total = _log_term(record, n, y, rate, inside, low)
    for step in (-1, 1):
        i = low + step
        while 0 <= i <= m:
            term = _log_term(record, n, y, rate, inside, i)
            if term < top - _WINDOW or term == -math.inf:
                break
            total = _log_add(total, term)
            i += step
    return total


@kernel
def _noise_transform(power, is_lattice, scale, rest, slope, t):
    """Return the transform of the noise density at slope + it, relative to its value or bound at t = 0."""
    # For Gaussian noise the factor e^{slope²·scale²/2} is omitted. At integers, y = m + `rest` with integer m, and the
    # factor e^{−λm} and the largest term are omitted.
    if power == 2:
        if not is_lattice:
            return math.exp(-0.5 * (scale * t) ** 2) * _turn(scale * scale * slope * t)
        found, centre = 0.0 + 0.0j, rest - slope * scale * scale
        least = abs(math.floor(centre + 0.5) - centre) / scale
        s = math.floor(centre - _GAUSSIAN_REACH * scale) - 1.0
        while s <= centre + _GAUSSIAN_REACH * scale + 1.0:
            z = abs(s - centre) / scale
            found += math.exp(-0.5 * (z - least) * (z + least)) * _turn(-t * s)
            s += 1.0
        return found
    rate = 1.0 / scale
    if not is_lattice:
        return 2.0 * rate / (complex(rate - slope, -t) * complex(rate + slope, t))
    nearest = min(rest, 1.0 - rest) * rate
    below = math.exp(nearest - rest * rate) / (1.0 - math.exp(slope - rate) * _turn(t))
    after = math.exp(nearest - (1.0 - rest) * rate - slope) / _turn(t)
    return below + after / (1.0 - math.exp(-slope - rate) / _turn(t))


@kernel
def _period(record, n, origin, slope, now, sd, low, high, variance):
    """Return a distance from 0 beyond which n tilted contributions about `origin`, plus normal noise, hardly lie."""
    reach = 0.0
    for side in (-1.0, 1.0):
        shortest = -low if side < 0.0 else high
        for k in (0.004, 0.015, 0.06, 0.25, 1.0, 3.0, 8.0):
            step = side * k / sd
            further = _tilt(record, slope + step, origin)[1]
            rise = n * (further - now) + variance * step * (slope + 0.5 * step)
            shortest = min(shortest, (rise + 32.0) / abs(step))
        reach = max(reach, shortest)
    return reach


@kernel
def _log_likelihood(record, n, y, power, scale, spent):
    """Return ln p(y | θ) up to a constant, and a bound on its error from omitted frequencies."""
    is_integer, rate = record[0] == POISSON, 1.0 / scale
    low, high = min(record[2], record[4]), max(record[3], record[4])
    rest, gaussian = 0.0, scale * scale if power == 2 else 0.0
    is_lattice = is_integer and (power == 1 or scale < 1.0)
    m = y
    if is_lattice:
        m = math.floor(min(max(y, n * low), n * high)) if power == 1 else math.floor(y)
        rest = y - m
    origin = m / n
    log_residue = -math.inf
    if power == 2:
        slope, _ = _saddle(record, n, origin, y - m, gaussian, -math.inf, math.inf, 0.5, 0.0)
        gap = math.inf
    else:
        slope, log_residue, gap, sd = _laplace_line(record, n, y, m, rate, n * low, n * high)
        if gap == 0.0:
            return log_residue, 0.0
    _, now, _, variance, p_first, p_second = _tilt(record, slope, origin)
    if power == 2:
        sd = math.sqrt(n * variance + gaussian)
    # The omitted factor of the line integral: e^{κ} at its centre.
    log_scale = n * now + 0.5 * gaussian * slope * slope
    if is_lattice and power == 1:
        log_scale -= min(rest, 1.0 - rest) * rate
    elif is_lattice:
        # The largest term is at k; the density at the integer next to y is a constant.
        k, next_to_y = math.floor(rest - slope * gaussian + 0.5), math.floor(rest + 0.5)
        log_scale = n * now - slope * k - 0.5 * (next_to_y - k) * (2.0 * rest - next_to_y - k) / gaussian
    peels = power == 1 and not is_integer and (n <= 12 or n * math.log(max(p_first + p_second, 1e-300)) > -44.0)
    log_peeled = -math.inf
    if peels:
        log_peeled = _log_add(_log_terms(record, n, y, rate, 0), _log_terms(record, n, y, rate, 1))
        if log_residue > -math.inf:
            _, _, _, _, q_first, q_second = _tilt(record, math.copysign(rate, slope), origin)
            share, inside = q_first + q_second, max(1.0 - q_first - q_second, 0.0)
            # The probability that at least two records lie within the bounds.
            several = 1.0 - math.exp((n - 1.0) * math.log(max(share, 1e-300))) * (share + n * inside)
            log_residue += math.log(max(several, 1e-300))
    log_known = _log_add(log_peeled, log_residue)
    if log_known > log_scale + _WINDOW:
        return log_known, 0.0
    known = math.exp(log_known - log_scale)
    reach = _period(record, n, origin, slope, now, sd, n * low - m, n * high - m, gaussian)
    reach += _GAUSSIAN_REACH * scale if power == 2 else 36.0 / gap
    noise = power, is_lattice, scale, rest
    is_nothing = peels and _log_several(record, n, scale) <= log_peeled + math.log(_NOTHING)
    integral, error, gross = _line_integral(record, n, origin, slope, noise, peels, reach, known, is_nothing, spent)
    if error < 0.0:  # the integral has not ended, and it cancels the residue
        return log_peeled, _NOTHING
    # If the noise hardly explains the distance of y from all likely sums, the integral cancels down to its rounding.
    rounding = 1e-15 * max(known, gross)
    total = max(known + integral, rounding)
    return log_scale + math.log(total), (error + rounding) / total


@kernel
def _saddle(record, n, origin, rest, gaussian, low, high, tolerance, least_sd):
    """Return λ in (low, high) where the mean of the tilted sum, plus normal noise, is near `rest`, and their sd."""
    # The mean is within `tolerance` standard deviations of `rest`. `gaussian` is the variance of normal noise.
    slope, sd = 0.0, least_sd
    for k in range(200):
        _, _, mean, spread, _, _ = _tilt(record, slope, origin)
        apart, total = n * mean + gaussian * slope - rest, n * spread + gaussian
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
def _laplace_line(record, n, y, m, rate, low, high):
    """Return λ at the centre of the line, the log residue, the distance to the next pole, and the sd of the sum."""
    # The distance is 0 if the residue is the likelihood.
    origin, rest = m / n, y - m
    side, excess, spreads = 0.0, np.empty(2), np.empty(2)
    if y >= high or y <= low:
        side = 1.0 if y >= high else -1.0
        return 0.0, n * _tilt(record, side * rate, origin)[1] - side * rate * rest, 0.0, 0.0
    least_sd = 0.5 if record[0] == POISSON else 1e-3 * (high - low) / n
    slope, sd = 0.0, least_sd
    for k in range(2):
        _, _, mean, variance, _, _ = _tilt(record, (2 * k - 1) * rate, origin)
        excess[k], spreads[k] = (2 * k - 1) * (n * mean - rest), max(math.sqrt(n * variance), least_sd)
    if min(excess[0], excess[1]) <= 0.0:
        side = 1.0 if excess[1] <= 0.0 else -1.0
    else:
        slope, sd = _saddle(record, n, origin, rest, 0.0, -rate, rate, 0.25, least_sd)
        end = 1 if slope > 0.0 else 0
        if rate - abs(slope) < 1.0 / sd and excess[end] < 1.5 * spreads[end]:  # or the integral cancels the residue
            side = 2.0 * end - 1.0
    if side == 0.0:  # the distance to a pole limits the step
        largest = rate - min(0.5 * rate, 1.0 / sd)
        slope = min(max(slope, -largest), largest)
        return slope, -math.inf, rate - abs(slope), sd
    _, now, _, variance, _, _ = _tilt(record, side * rate, origin)
    sd = max(math.sqrt(n * variance), least_sd)
    for far in (2.0, 4.0, 8.0):
        slope = side * (rate + far / sd)
        if n * (_tilt(record, slope, origin)[1] - now) - side * far / sd * rest < -_WINDOW:
            return slope, n * now - side * rate * rest, 0.0, sd
    gap = 2.0 / sd
    for _ in range(200):  # the variance may increase with the tilt
        slope = side * (rate + gap)
        _, further, _, variance, _, _ = _tilt(record, slope, origin)
        if n * (further - now) - side * gap * rest < 3.0:
            break
        gap *= 0.5
    return slope, n * now - side * rate * rest, gap, max(math.sqrt(n * variance), least_sd)


@kernel
def _log_several(record, n, scale):
    """Return the log of a bound on the part of p(y) where at least two records lie within the bounds.

    Given all others and the noise, whose density has the omitted factor 1/(2·scale), one of n records has at most the
    largest density, and one of n − 1 others lies within the bounds with at most n − 1 times the probability of one.
    """
    kind, theta, a, b = record[0], record[1], record[2], record[3]
    _, _, mode = _window(kind, theta, 0.0, a, b)
    log_pairs = math.log(n * max(n - 1.0, 1e-300) * 2.0 * scale)
    return log_pairs + _log_density(kind, theta, mode) + _log_interval(kind, theta, 0.0, a, b)


@kernel
def _line_integral(record, n, origin, slope, noise, peels, reach, known, is_nothing, spent):
    """Return 1/(2π) of the line integral relative to its factor at t = 0, its error, and that of its modulus.

    The error is negative if the integral has not ended after `_LONG` steps, and is known to be nothing.
    """
    power, is_lattice, scale, _ = noise
    kind, theta, a, b, first, second, _, _, x, weight = record
    size, log_total, _, variance, p_first, p_second = _tilt(record, slope, origin)
    steps = _LARGEST_NODES
    h = 2.0 * math.pi / reach
    if is_lattice:
        nodes = max(math.ceil(reach), 15.0)
        nodes += 1.0 - nodes % 2.0  # odd, so that 0 is the only node without a conjugate
        h, steps = 2.0 * math.pi / nodes, int(min(0.5 * (nodes + 1.0), float(steps)))
    sd = math.sqrt(variance)
    share, negligible = p_first + p_second, math.exp(-_WINDOW / n)
    width, highest = x[size - 1] - x[0], 0.0
    if kind != POISSON:
        low, high, mode = _window(kind, theta, slope, a, b)
        width = high - low
        highest = 2.0 * math.exp(_log_density(kind, theta, mode) + slope * (mode - origin) - log_total)
    total, gross, omitted, t, j = 0.0, 0.0, 0.0, 0.0, 0
    unit = h / (2.0 * math.pi)
    # Integrals with smooth cut-offs at frequencies 2^k·_FIRST_CUT/width: that of the next one shows their errors.
    spin, turns, following = np.empty(x.size, np.complex128), np.exp(1j * h * (x - origin)), 0
    filtered, level, cut = np.zeros(_CUTS), 0, _FIRST_CUT / width if width > 0.0 else math.inf
    while j < steps:
        if is_nothing and j >= _LONG:
            return 0.0, -1.0, 0.0
        spent[0] += 1
        t = j * h
        base = p_first * _turn(t * (first - origin))
        if p_second > 0.0:
            base += p_second * _turn(t * (second - origin))
        inner = 0.0 + 0.0j
        if kind == POISSON:
            turn = _turn(t)
            for i in range(size - 1, -1, -1):
                inner = inner * turn + weight[i]
            inner *= _turn(t * (x[0] - origin))
        elif t * width < _RESOLVED:
            if j != following or j % 64 == 0:
                for i in range(size):
                    spin[i] = _turn(t * (x[i] - origin))
            for i in range(size):
                inner += weight[i] * spin[i]
                spin[i] *= turns[i]
            following = j + 1
        else:
            inner = _interval_transform(kind, theta, slope, origin, log_total, a, b, t)
        phi = base + inner
        modulus = abs(phi)
        if not peels and modulus < negligible:
            if power == 2 and not is_lattice and t * scale > _GAUSSIAN_REACH:
                return unit * total, 0.0, unit * gross
            if kind != POISSON and share + highest / t < negligible:
                return unit * total, 0.0, unit * gross
            j += max(1, int(min((negligible - modulus) / (sd * h), 1e9))) if sd > 0.0 else steps
            continue
        term = np.exp(n * np.log(phi)) if modulus > 0.0 else 0.0 + 0.0j
        if peels:
            if abs(base) > 0.0:
                term -= np.exp((n - 1.0) * np.log(base)) * (base + n * inner)
            elif n == 1:
                term = 0.0 + 0.0j
        factor = _noise_transform(*noise, slope, t)
        term *= factor if j == 0 else 2.0 * factor
        total += term.real
        gross += abs(term)
        while kind != POISSON and t >= cut and level < _CUTS:
            change = unit * abs(filtered[level] - filtered[level - 1])
            if level > 0 and change <= _TOLERANCE * (known + unit * abs(filtered[level])):
                return unit * filtered[level], change, unit * gross
            level, cut = level + 1, 2.0 * cut
        power_of_share = (t / cut) ** 8
        for k in range(level, _CUTS):
            filtered[k] += term.real * (math.exp(-36.0 * power_of_share) if power_of_share > 1e-17 else 1.0)
            power_of_share /= 256.0
        if j % 16 == 15:
            if power == 2 and not is_lattice and t * scale > _GAUSSIAN_REACH:
                return unit * total, 0.0, unit * gross
            if kind != POISSON:
                bound = share + highest / t
                modulus = math.exp(n * math.log(bound))
                if peels:
                    several = math.exp((n - 2.0) * math.log(bound)) * 0.5 * n * (n - 1.0) * (highest / t) ** 2
                    modulus = min(several, modulus)
                omitted = modulus * abs(factor) * t / math.pi
                if omitted <= _TOLERANCE * (known + unit * total):
                    return unit * total, omitted, unit * gross
        j += 1
    return unit * total, omitted, unit * gross


@kernel
def _log_likelihoods(kind, theta, below, above, a, b, clamps, n, y, noise, size):
    """Return log likelihoods, bounds of their errors, and the number of steps, from the log probabilities outside."""
    found, error = np.empty((2, theta.size))
    spent = np.zeros(1, np.int64)
    x, weight = np.empty((2, size))
    for k in range(theta.size):
        low, high = _poisson_tails(theta[k], a, b) if kind == POISSON else (below[k], above[k])
        atoms = (a, b, low, high) if clamps else (0.0, 0.0, _log_add(low, high), -math.inf)
        found[k], error[k] = _log_likelihood((kind, theta[k], a, b, *atoms, x, weight), n, y, *noise, spent)
    return found, error, spent[0]


@kernel
def _log_bounds(kind, theta, below, above, a, b, clamps, n, y, noise, size):
    """Return upper bounds of the log likelihoods, the terms of 0 and 1 records and a bound of others."""
    found, scale = np.empty(theta.size), noise[1]
    x, weight = np.empty((2, size))
    for k in range(theta.size):
        low, high = below[k], above[k]
        atoms = (a, b, low, high) if clamps else (0.0, 0.0, _log_add(low, high), -math.inf)
        record = (kind, theta[k], a, b, *atoms, x, weight)
        few = _log_add(_log_terms(record, n, y, 1.0 / scale, 0), _log_terms(record, n, y, 1.0 / scale, 1))
        found[k] = _log_add(few, _log_several(record, n, scale))
    return found
