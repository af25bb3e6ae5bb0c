"""The series exp(−a·√(1 − t)) = Σⱼ pⱼtʲ, whose coefficients are the pmf of an integer random variable N.

√(1 − t) = 1 − Σ bⱼtʲ with all bⱼ ≥ 0, so that pⱼ ≥ 0, and t = 1 gives Σ pⱼ = 1. As exp(−a·√s) is the Laplace transform
of a²/(2Z²), Z standard normal (Lévy's distribution), N is a Poisson variable with this random mean, and

    pⱼ = (a/√π)·(a/2)^ν·K_ν(a)/j!,   ν = j − ½,

which extends p to real powers. N is unimodal, as a Poisson mixture over a unimodal distribution (Holgate), and
pⱼ ~ a/(2√π)·j^(−3/2) for j ≫ a²: most powers are of the order a².

References
----------
DLMF: NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov, 5.11 (Stirling's series), 10.41 (Debye's
expansion), 10.32 (integrals of K). Holgate, "The modality of some compound Poisson distributions", Biometrika 57, 1970.
Gautschi, "Orthogonal polynomials: computation and approximation", Oxford 2004, section 1.5.2 (Gauss rules for sums).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh_tridiagonal

from mechanisms.arguments import Floats
from mechanisms.jit import kernel

HEAD = 512  # power from which Debye's expansion is used, with an error of 1e-14; smaller powers use a recurrence
VARIATION = 0.5  # largest change of ln p within a group


def power_series(a: float) -> PowerSeries:
    """Return the coefficients of the series of exp(−a·√(1 − t)).

    From 4(1 − t)f'' = a²f + 2f' it follows that 4(j + 1)(j + 2)·pⱼ₊₂ = a²pⱼ + 2(j + 1)(2j + 1)·pⱼ₊₁. All terms are
    positive, so rounding errors do not grow. The ratios pⱼ₊₁/pⱼ do not underflow as p₀ = exp(−a) does.
    """
    logs, ratio = [-a], a / 2
    for j in range(HEAD - 1):
        logs.append(math.log(ratio))
        ratio = (a * (a / ratio) + 2 * (j + 1) * (2 * j + 1)) / (4 * (j + 1) * (j + 2))
    head = np.cumsum(logs)
    head.flags.writeable = False
    return PowerSeries(a, head)


@dataclass(frozen=True, eq=False)
class PowerSeries:
    """Coefficients pⱼ of exp(−a·√(1 − t)), created by `power_series`."""

    a: float
    _head: Floats = field(repr=False)

    def log_coefficients(self, powers: ArrayLike) -> Floats:
        """Return ln pⱼ for integers j ≥ 0, from `HEAD` on for real j, with an error of 1e-14·max(1, |ln pⱼ|)."""
        return _log_coefficients(np.asarray(powers, dtype=np.float64), self.a, self._head)

    def first_power(self, stop: int, log_bound: float) -> int:
        """Return the last j < `stop` up to the mode with ln(j·pⱼ) ≤ `log_bound`, a bound on ln Σ pᵢ, i < j."""
        return int(_first_power(float(stop), log_bound, self.a, self._head))

    def groups(self, first: int, stop: int, ratio: float) -> tuple[Floats, Floats, Floats]:
        """Divide the powers from `first` up to `stop` into groups in which p is nearly constant.

        Group l of the returned arrays contains the powers starts[l], ..., stops[l] − 1, whose ln p are at most
        log_tops[l]; stops/starts is at most `ratio` unless it has one power.
        """
        return _cut(float(first), float(stop), ratio, self.a, self._head)


def sum_rule(size: int, n_nodes: int) -> tuple[Floats, Floats]:
    """Return nodes in [0, size − 1] and weights that sum polynomials of degree < 2·n_nodes over 0, ..., size − 1.

    This is the Gauss rule of the discrete Chebyshev polynomials (Gautschi, section 1.5.2).
    """
    i = np.arange(1.0, min(size, n_nodes))
    if not i.size:
        return np.full(1, (size - 1) / 2), np.full(1, float(size))
    off_diagonal = 0.5 * size * i * np.sqrt((1 - (i / size) ** 2) / (4 * i * i - 1))
    nodes, vectors = eigh_tridiagonal(np.full(i.size + 1, (size - 1) / 2), off_diagonal)
    return nodes, size * vectors[0] ** 2


@kernel
def _log_coefficient(j, a, head):
    if j < HEAD:
        return head[int(j)]
    # With R = √(ν² + a²), ν·asinh(ν/a) − R (Debye) and j·ln j − j (Stirling) are combined into small terms.
    order = j - 0.5
    radius = math.hypot(order, a)
    share = a / (order + radius) * a
    q = (order / radius) ** 2
    s = 1.0 / radius
    d1 = (5 * q - 3) / 24
    d2 = (1 + q * (5 * q - 6)) / 16
    d3 = (q * (4779 + q * (5525 * q - 9945)) - 375) / 5760
    d4 = (13 + q * (q * (1062 + q * (565 * q - 1356)) - 284)) / 128
    debye = s * (d1 + s * (d2 + s * (d3 + s * d4)))  # logarithm of the series of DLMF 10.41.4
    stirling = (1 / 12 - (1 / 360 - 1 / (1260 * j * j)) / (j * j)) / j
    growth = order * (math.log1p(0.5 * share / order) + math.log1p(-0.5 / j))
    return math.log(a / (2 * j)) + 0.5 * (1 - math.log(math.pi * radius)) - share + growth + debye - stirling


@kernel
def _log_coefficients(powers, a, head):
    result = np.empty(powers.size)
    for i in range(powers.size):
        result[i] = _log_coefficient(powers[i], a, head)
    return result


@kernel
def _mode(stop, a, head):
    """Return the last power j <= stop with p_j >= p_(j-1), by bisection."""
    low, high = 0.0, stop + 1.0
    while high - low > 1.0:
        middle = np.floor(0.5 * (low + high))  # np.floor returns a float, unlike math.floor
        if _log_coefficient(middle, a, head) >= _log_coefficient(middle - 1.0, a, head):
            low = middle
        else:
            high = middle
    return low


@kernel
def _first_power(stop, log_bound, a, head):
    # Up to the mode p increases, and so does j·p_j >= p_0 + ... + p_(j-1).
    low, high = 0.0, min(stop, _mode(stop, a, head) + 1.0)
    while high - low > 1.0:
        middle = np.floor(0.5 * (low + high))  # np.floor returns a float, unlike math.floor
        if _log_coefficient(middle, a, head) + math.log(middle) <= log_bound:
            low = middle
        else:
            high = middle
    return low


@kernel
def _cut(first, stop, ratio, a, head):
    ends, log_tops = [first], [0.0]
    mode, start = _mode(stop, a, head), first
    while start < stop:
        end = min(max(start + 1.0, math.floor(start * ratio)), stop)
        left, right = _log_coefficient(start, a, head), _log_coefficient(end - 1.0, a, head)
        while abs(right - left) > VARIATION:
            end = start + max(1.0, math.floor(0.5 * (end - start)))
            right = _log_coefficient(end - 1.0, a, head)
        ends.append(end)
        log_tops.append(_log_coefficient(mode, a, head) if start <= mode < end else max(left, right))
        start = end
    return np.array(ends[:-1]), np.array(ends[1:]), np.array(log_tops[1:])
