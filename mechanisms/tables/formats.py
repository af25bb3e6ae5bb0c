"""Likelihoods of published values given the true count, for all noise distributions and formats.

The noisy value is Y = x + z. An agency publishes Y itself ("value"), max(Y, 0) ("clipped"), nothing if Y < T
(`Suppressed`), or the nearest multiple of a base (`Rounded`). The likelihood of the count x is

    p(y − x) if Y is known,   Pr[low ≤ x + z ≤ high] if only an interval of Y is known.

Without noise (`EXACT`), the published value restricts x to one value or to an interval.

References
----------
Seeman, Reimherr & Slavković, "Exact privacy guarantees for Markov chain implementations of the exponential mechanism
with artificial atoms", 2021, and "Formal privacy for partially private data", 2022: post-processing loses information.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from mechanisms.arguments import describe, validate_integer, validate_positive
from mechanisms.noise import Exact, Noise

__all__ = ["Factors", "Rounded", "Seen", "Suppressed", "likelihoods"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FAR = 1 << 60  # bound of a count without a bound
_NONE, _POINT, _INTERVAL = 0, 1, 2
_CODES = {"laplace": 0, "geometric": 1, "gaussian": 2, "discrete-gaussian": 3}
_TIES = ("even", "up", "away")


@dataclass(frozen=True)
class Suppressed:
    """Format of a value that is published only if it is at least a threshold; NaN states that it was suppressed.

    Parameters
    ----------
    threshold : float
        T, finite and > 0: noisy values below T, or with `EXACT` counts below T, are suppressed.

    Raises
    ------
    ValueError
        If the threshold is invalid.

    Examples
    --------
    >>> Suppressed(11)
    Suppressed(threshold=11)
    """

    threshold: float

    def __post_init__(self) -> None:
        validate_positive("threshold", self.threshold, "pass the smallest value that is published")


@dataclass(frozen=True)
class Rounded:
    """Format of a value that is rounded to the nearest multiple of a base.

    Parameters
    ----------
    base : int
        Base, at least 2.
    ties : {"even", "up", "away"}, default "even"
        Values in the middle of two multiples are rounded to the even multiple, up, or away from zero.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> Rounded(5)
    Rounded(base=5, ties='even')
    """

    base: int
    ties: str = "even"

    def __post_init__(self) -> None:
        validate_integer("base", self.base, 2, "pass the base to which values are rounded")
        if self.ties not in _TIES:
            raise ValueError(f"ties must be one of {', '.join(_TIES)}, got {describe(self.ties)}; choose one of them")

    def limits(self, value: float) -> tuple[float, float, bool, bool]:
        """Return the ends of the interval that is rounded to `value`, and whether each end belongs to it."""
        multiple, half = round(value / self.base), self.base / 2
        low = high = multiple % 2 == 0
        if self.ties == "up":
            low, high = True, False
        elif self.ties == "away":
            low, high = multiple > 0, multiple < 0
        return value - half, value + half, low, high


Seen: TypeAlias = str | Suppressed | Rounded


@dataclass(frozen=True, eq=False, repr=False)
class Factors:
    """Likelihoods of the nodes of a table as functions of the count; all arrays have one entry per node.

    `kind` is 0 without a likelihood, 1 for a known noisy value `low`, 2 for an interval from `low` to `high`. `code`
    is the noise distribution. Counts outside `least` to `most` are impossible.
    """

    kind: Integers
    code: Integers
    scale: Floats
    low: Floats
    high: Floats
    least: Integers
    most: Integers
    limited: NDArray[np.bool_]  # values without noise, which limit the count
    _label: Integers = field(init=False)  # of kind and noise; −1 without a likelihood
    _log_sum: Floats = field(init=False)  # log normaliser of discrete Gaussian noise

    def __post_init__(self) -> None:
        label = np.where(self.kind == _NONE, -1, 2 * self.code + self.kind - 1)
        scales, index = np.unique(self.scale, return_inverse=True)
        normalisers = np.array([Noise("discrete-gaussian", float(one)).log_normaliser(1) for one in scales])
        object.__setattr__(self, "_label", label)
        object.__setattr__(self, "_log_sum", np.where(self.code == 3, normalisers[index], 0.0))

    def log(self, node: Integers, counts: Floats | Integers) -> Floats:
        """Return the log likelihood of one count per entry of `node`, without the limits of the counts."""
        shape = np.broadcast_shapes(node.shape, counts.shape)
        label = self._label[node]
        if label.size and (label == label.flat[0]).all():
            return self._log(int(label.flat[0]), node, counts)
        found = np.zeros(shape)
        label, nodes, at = np.broadcast_to(label, shape), np.broadcast_to(node, shape), np.broadcast_to(counts, shape)
        for one in np.unique(label):
            which = label == one
            found[which] = self._log(int(one), nodes[which], at[which])
        return found

    def _log(self, label: int, node: Integers, counts: Floats | Integers) -> Floats:
        """Return the log likelihood for nodes with equal kinds of values and of noise."""
        if label < 0:
            return np.zeros(np.broadcast_shapes(node.shape, counts.shape))
        low, scale = self.low[node], self.scale[node]
        if label % 2 == 0:
            return _log_point(label // 2, low - counts, scale, self._log_sum[node])
        return _log_interval(label // 2, low - counts, self.high[node] - counts, scale)

    def slope(self, node: Integers, counts: Floats) -> Floats:
        """Return the derivative of the log likelihood at real counts, by central differences."""
        step = np.maximum(0.5, 1e-3 * self.scale[node])
        after, before = self.log(node, counts + step), self.log(node, counts - step)
        return np.subtract(after, before) / (2.0 * step)

    def centre(self) -> Floats:
        """Return a count of high likelihood per node; NaN without a likelihood."""
        low, high = np.where(np.isfinite(self.low), self.low, self.high - self.scale), self.high
        middle = np.where(self.kind == _POINT, low, 0.5 * (low + high))
        middle = np.where(self.kind == _NONE, np.nan, middle)
        return np.where(self.most < FAR, 0.5 * (np.maximum(self.least, 0) + self.most), middle)


def likelihoods(
    values: Floats, noise: Sequence[Noise | Exact | None], seen: Sequence[Seen], names: Sequence[str] | None = None
) -> Factors:
    """Return the likelihoods of published values, one per node; `names` replace "node i" in messages."""
    m = values.size
    kind, code, scale = np.zeros(m, np.int64), np.zeros(m, np.int64), np.ones(m)
    low, high = np.full(m, -np.inf), np.full(m, np.inf)
    least, most = np.zeros(m, np.int64), np.full(m, FAR, np.int64)
    limited, plain = np.zeros(m, bool), {}
    for i in range(m):
        one, form = noise[i], seen[i]
        key = (id(one), id(form))
        if key not in plain:
            if one is not None and not isinstance(one, Noise | Exact):
                raise ValueError(
                    f"noise must be a Noise or EXACT, got {describe(one)} for {_name(names, i)}; pass Noise"
                )
            if not (isinstance(form, Suppressed | Rounded) or form in ("value", "clipped")):
                raise ValueError(
                    f"seen must be 'value', 'clipped', Suppressed or Rounded, got {describe(form)} for "
                    f"{_name(names, i)}; choose one of them"
                )
            if isinstance(one, Noise) and one.name not in _CODES:
                raise ValueError(
                    f"noise {one.name!r} must be that of all children of one node with an exact total, got it for "
                    f"{_name(names, i)}; pass n or EXACT for the total, or geometric noise"
                )
            plain[key] = (isinstance(one, Noise) and one.is_integer) or isinstance(one, Exact)
        value, is_integer = values[i], plain[key]
        if math.isnan(value) and not isinstance(form, Suppressed):
            continue
        if one is None:
            raise ValueError(f"noise must be given for a measured node, got None for {_name(names, i)}; pass EXACT")
        if is_integer and not math.isnan(value) and value != math.floor(value):
            what = "an invariant" if isinstance(one, Exact) else f"a value with {one.name} noise"
            raise ValueError(f"{what} must be an integer, got {value} for {_name(names, i)}; check the noise")
        kind[i], low[i], high[i] = _interval(value, form, is_integer, _name(names, i))
        if isinstance(one, Exact):
            first, last = (low[i], low[i]) if kind[i] == _POINT else (low[i], high[i])
            if last < 0:
                raise ValueError(f"an invariant must be >= 0, got {value:g} for {_name(names, i)}; check the table")
            kind[i], least[i], most[i] = _NONE, int(max(first, 0)), int(min(last, FAR))
            low[i], high[i], limited[i] = -np.inf, np.inf, True
        else:
            code[i], scale[i] = _CODES[one.name], one.scale
    return Factors(kind, code, scale, low, high, least, most, limited)


def _name(names: Sequence[str] | None, i: int) -> str:
    return f"node {i}" if names is None else names[i]


def _interval(value: float, form: Seen, is_integer: bool, name: str) -> tuple[int, float, float]:
    """Return the kind of the likelihood and the interval of the noisy value."""
    if isinstance(form, Suppressed):
        if math.isnan(value):
            return _INTERVAL, -np.inf, math.ceil(form.threshold) - 1 if is_integer else form.threshold
        if value < form.threshold:
            raise ValueError(
                f"a value with Suppressed({form.threshold:g}) must be NaN or >= the threshold, got {value:g} for "
                f"{name}; pass NaN for a suppressed value"
            )
    elif isinstance(form, Rounded):
        if value / form.base != round(value / form.base):
            raise ValueError(f"a rounded value must be a multiple of {form.base}, got {value:g} for {name}; check base")
        low, high, has_low, has_high = form.limits(value)
        if is_integer:
            low, high = (
                math.ceil(low) + (low == math.ceil(low) and not has_low),
                math.floor(high) - (high == math.floor(high) and not has_high),
            )
        return _INTERVAL, low, high
    elif form == "clipped":
        if value < 0:
            raise ValueError(f"a clipped value must be >= 0, got {value:g} for {name}; pass seen='value'")
        if value == 0:
            return _INTERVAL, -np.inf, 0.0
    return _POINT, value, value


def _log_point(code: int, z: Floats, scale: Floats, log_sum: Floats) -> Floats:
    """Return the log density, or log probability, of noise z."""
    u = z / scale
    if code == 0:
        return -np.abs(u) - np.log(2.0 * scale)
    if code == 1:
        return -np.abs(u) + np.log(np.tanh(0.5 / scale))
    if code == 2:
        return -0.5 * u * u - np.log(scale) - 0.5 * math.log(2.0 * math.pi)
    return -0.5 * u * u - log_sum


def _log_interval(code: int, a: Floats, b: Floats, scale: Floats) -> Floats:
    """Return ln Pr[a ≤ z ≤ b]; `a` and `b` are integers for integer noise, and `a` may be −∞."""
    flip = a > -b  # the interval is mostly positive: the noise is symmetric
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    upper = _log_cdf(code, b, scale)
    finite = np.isfinite(a)
    if not finite.any():
        return upper
    below = _log_cdf(code, np.where(finite, a, 0.0) - (code in (1, 3)), scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = upper + np.log(-np.expm1(np.minimum(below - upper, 0.0)))
    return np.where(finite, np.where(np.isnan(inside), -np.inf, inside), upper)


def _log_cdf(code: int, z: Floats, scale: Floats) -> Floats:
    """Return ln Pr[noise ≤ z], with a small relative error in the lower tail."""
    u = z / scale
    if code == 2:
        return special.log_ndtr(u)
    if code == 3:
        return _log_cdf_discrete(z, np.broadcast_to(scale, z.shape))
    q = np.exp(-1.0 / scale) if code == 1 else 1.0
    step = 1.0 / scale if code == 1 else 0.0
    negative = u - np.log1p(q) if code == 1 else u - math.log(2.0)
    positive = np.log1p(-np.exp(-np.maximum(u, 0.0) - step) / (1.0 + q))
    return np.where(z < 0, negative, positive)


def _log_cdf_discrete(z: Floats, scale: Floats) -> Floats:
    """Return ln Pr[noise ≤ z] of discrete Gaussian noise by sums over tables, one per scale."""
    found = np.empty(z.shape)
    for one in np.unique(scale):
        which = scale == one
        k = np.floor(z[which]).astype(np.int64)
        # terms further than `reach` below an end are below 1e-18 of the term at that end
        reach = int(10.0 * one) + 20
        last = min(int(k.max()), reach)
        first = min(int(k.min()), -1) - reach
        grid = np.arange(first, max(last, first) + 1)
        table = np.logaddexp.accumulate(-0.5 * (grid / one) ** 2) - Noise("discrete-gaussian", one).log_normaliser(1)
        found[which] = np.minimum(table[np.minimum(k, last) - first], 0.0)
    return found
