"""Likelihoods of published values given the true count, for all noise distributions and formats.

The noisy value is Y = x + z. An agency publishes Y itself ("value"), max(Y, 0) ("clipped"), nothing if Y < T
(`Suppressed`), or the nearest multiple of a base (`Rounded`). The likelihood of the count x is

    p(y − x) if Y is known,   Pr[low ≤ x + z ≤ high] if only an interval of Y is known.

Without noise (`EXACT`), the published value restricts x to one value or to an interval. Counts that are rounded at
random to a multiple of b (`RandomRounded`, and for small counts only `SmallRounded`) have the likelihood

    max(0, 1 − |y − x|/b),   for small counts with 0 ≤ x ≤ b and y = 0 or y = b.

References
----------
Seeman, Reimherr & Slavković, "Exact privacy guarantees for Markov chain implementations of the exponential mechanism
with artificial atoms", 2021, and "Formal privacy for partially private data", 2022: post-processing loses information.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import special

from mechanisms.core.arguments import Floats, Integers, describe, validate_integer, validate_positive
from mechanisms.core.noise import Exact, Noise

FAR = 1 << 60  # bound of a count without a bound
LARGEST = 1 << 52  # largest absolute value and largest given count, below which half-integers are exact
SCALES = 1e-60, 1e12  # smallest and largest scale of noise
_NARROW = 1e-4  # width in scales of an interval below which probabilities are densities times widths
_WIDE = 1e4  # scale of discrete Gaussian noise above which its distribution function is an integral
_LONG = 1 << 16  # range of counts beyond which sums of discrete Gaussian noise leave out gaps
_CODES: dict[Any, int] = {"laplace": 0, "geometric": 1, "gaussian": 2, "discrete-gaussian": 3}
_DISCRETE, _RANDOM = 3, 4  # codes of discrete Gaussian noise, and of random rounding, whose scale is the base
GAUSSIAN = 4  # smallest `kind` of smooth likelihoods, see `Factors`
RANDOM = 2 * _RANDOM  # `kind` of random rounding
_TIES = ("even", "up", "away")


@dataclass(frozen=True)
class Suppressed:
    """Format of a value that is published only if it is at least a threshold; NaN states that it was suppressed.

    Noisy values, or with `EXACT` counts, below the threshold are suppressed. It is > 0 and at most 2⁵².

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
        if validate_positive("threshold", self.threshold, "pass the smallest value that is published") > LARGEST:
            raise ValueError(f"threshold must be at most 2**52, got {self.threshold}; check the units")


@dataclass(frozen=True)
class Rounded:
    """Format of a value that is rounded to the nearest multiple of a base from 2 to 2⁵², without chance.

    Values in the middle of two multiples are rounded to the "even" multiple, "up", or "away" from zero. Other formats
    are `RandomRounded`, which rounds to either multiple next to a count, and `SmallRounded`, which rounds small counts
    only.

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
        _validate_base(self.base)
        if self.ties not in _TIES:
            raise ValueError(f"ties must be one of {', '.join(_TIES)}, got {describe(self.ties)}; choose one of them")


@dataclass(frozen=True)
class RandomRounded:
    """Format of a count without noise that is rounded at random to a multiple of a base b from 2 to 2⁵².

    A multiple of b stays. Another count x at the distance r from the nearer multiple becomes that multiple with
    probability 1 − r/b, and the multiple on its other side with probability r/b, so that the mean is x. With b = 3,
    these are 2/3 and 1/3, as Statistics New Zealand uses them.

    Raises
    ------
    ValueError
        If the base is invalid.

    Examples
    --------
    >>> from mechanisms.core.noise import EXACT
    >>> from mechanisms.tables import table_posterior, uniform
    >>> table_posterior([3.0], EXACT, [-1], uniform(9), seen=RandomRounded(3)).pmf(0)[1].round(2)
    array([0.11, 0.22, 0.33, 0.22, 0.11])
    """

    base: int

    def __post_init__(self) -> None:
        _validate_base(self.base)


@dataclass(frozen=True)
class SmallRounded:
    """Format of a count without noise of which 1 to b − 1 are rounded at random to 0 or b, and others are published.

    The probability of b is assumed to be x/b, and that of 0 is 1 − x/b. This is an assumption: some programs, such as
    R's SmallCountRounding, choose the rounded cells by an algorithm. A total that was not rounded itself but is the sum
    of rounded cells is no measurement; pass NaN.

    Raises
    ------
    ValueError
        If the base is invalid.

    Examples
    --------
    >>> from mechanisms.core.noise import EXACT
    >>> from mechanisms.tables import table_posterior, uniform
    >>> table_posterior([0.0], EXACT, [-1], uniform(9), seen=SmallRounded(5)).pmf(0)[1].round(2)
    array([0.33, 0.27, 0.2 , 0.13, 0.07])
    """

    base: int

    def __post_init__(self) -> None:
        _validate_base(self.base)


def _validate_base(base: int) -> None:
    """Raise ValueError for a base that is no integer from 2 to `LARGEST`."""
    if validate_integer("base", base, 2, "pass the base to which values are rounded") > LARGEST:
        raise ValueError(f"base must be at most 2**52, got {base}; check the units")


FORMATS = Suppressed | Rounded | RandomRounded | SmallRounded
Seen: TypeAlias = str | Suppressed | Rounded | RandomRounded | SmallRounded
NoiseLike: TypeAlias = Noise | Exact | None


def node_name(names: Sequence[str] | None, i: int) -> str:
    """Return the name of a node in messages."""
    return f"node {i}" if names is None else names[i]


class Factors(NamedTuple):
    """Likelihoods of nodes as functions of the count; all arrays have one entry per node.

    `kind` is −1 without a likelihood, 2c for a known noisy value `low` and 2c + 1 for an interval from `low` to `high`,
    c being the noise distribution, or random rounding to `low` with the base `scale`. Counts outside `least` to `most`
    are impossible.
    """

    kind: Integers
    scale: Floats
    log_sum: Floats  # log normaliser of discrete Gaussian noise
    low: Floats
    high: Floats
    least: Integers
    most: Integers
    is_limited: np.ndarray  # True for values without noise, which limit the count

    def log(self, node: Any, counts: Floats | Integers) -> Floats:
        """Return the log likelihood of one count per entry of `node`, an index, without the limits of the counts."""
        kind, *columns = (column[node] for column in self[:5])
        kinds = np.flatnonzero(np.bincount(np.ravel(kind) + 1)) - 1
        if kinds.size == 1:
            return _log_of(int(kinds[0]), counts, *columns)
        kind, counts, *columns = np.broadcast_arrays(kind, counts, *columns)
        log_likelihood = np.zeros(kind.shape)
        for code in kinds[kinds >= 0]:
            is_code = kind == code
            log_likelihood[is_code] = _log_of(int(code), counts[is_code], *(column[is_code] for column in columns))
        return log_likelihood

    @property
    def is_gaussian(self) -> bool:
        """True if all values are known and have Gaussian or discrete Gaussian noise."""
        return bool(np.isin(self.kind, [GAUSSIAN, 2 * _DISCRETE]).all())

    def gaussian_terms(self) -> Floats:
        """Return the terms that are subtracted from −u²/2 in log likelihoods with Gaussian noise, shape (2, nodes)."""
        is_discrete = self.kind == 2 * _DISCRETE
        log_scale = np.where(is_discrete, self.log_sum, np.log(self.scale))
        return np.array([log_scale, np.where(is_discrete, 0.0, 0.5 * math.log(2.0 * math.pi))])

    def slope(self, node: Integers, counts: Floats) -> Floats:
        """Return the derivative of the log likelihood at real counts, by central differences."""
        step = np.maximum(0.5, np.where(self.kind[node] == RANDOM, 0.0, 1e-3 * self.scale[node]))
        with np.errstate(invalid="ignore"):  # counts that are impossible
            return (self.log(node, counts + step) - self.log(node, counts - step)) / (2.0 * step)

    def deviation(self) -> Floats:
        """Return the standard deviation of the noise, with that of the interval of an uncertain value.

        It is at least 1/√12, that of rounding to integers: less noise says no more about a count.
        """
        is_geometric, half_rate = self.kind // 2 == _CODES["geometric"], np.minimum(0.5 / self.scale, 100.0)
        pure = np.where(is_geometric, 1.0 / (math.sqrt(2.0) * np.sinh(half_rate)), math.sqrt(2.0) * self.scale)
        of_noise = np.where(
            self.kind < GAUSSIAN, pure, np.where(self.kind == RANDOM, self.scale / math.sqrt(6.0), self.scale)
        )
        width = np.where((self.kind % 2 == 1) & np.isfinite(self.low), self.high - self.low, 0.0)
        return np.sqrt(np.maximum(of_noise**2 + width**2 / 12.0, 1.0 / 12.0))

    def ranges(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest value of each node, before it was published; NaN if not measured."""
        last = np.where(self.kind % 2 == 1, self.high, self.low)
        has_noise = (self.kind >= 0) & ~self.is_limited
        low = np.where(self.is_limited, self.least, np.where(has_noise, self.low, np.nan))
        return low, np.where(self.is_limited, self.most, np.where(has_noise, last, np.nan))

    def centre(self) -> Floats:
        """Return a count of high likelihood per node; NaN without a likelihood."""
        low = np.where(np.isfinite(self.low), self.low, self.high - self.scale)
        middle = np.where(self.kind < 0, np.nan, 0.5 * (low + np.where(self.kind % 2, self.high, low)))
        return np.where(self.most < FAR, 0.5 * (np.maximum(self.least, 0) + self.most), middle)


def validate_count(name: str, value: Any, advice: str) -> int:
    """Return `value` as an int if it is an integer from 0 to `LARGEST`; a message ends with `advice`."""
    count = validate_integer(name, value, 0, advice)
    if count > LARGEST:
        raise ValueError(f"{name} must be at most 2**52, got {describe(value)}; {advice}")
    return count


def refuse_large(values: Floats, names: Sequence[str] | None) -> None:
    """Raise ValueError for a value that is infinite or beyond `LARGEST`."""
    if (bad := np.abs(values) > LARGEST).any():
        i = int(np.argmax(bad))
        raise ValueError(f"values must be finite or NaN, and at most 2**52 in absolute value, got {values[i]:g} for "
                         f"{node_name(names, i)}; a value that was not measured is NaN, blank in a file")  # fmt: skip


def likelihoods(
    values: Floats, noise: Sequence[NoiseLike], seen: Sequence[Seen], names: Sequence[str] | None = None
) -> Factors:
    """Return the likelihoods of published values, one per node, after checking them; `names` are those in messages."""
    m = values.size
    factors = Factors(
        kind=np.full(m, -1), scale=np.ones(m), log_sum=np.zeros(m), low=np.full(m, -np.inf), high=np.full(m, np.inf),
        least=np.zeros(m, np.int64), most=np.full(m, FAR), is_limited=np.zeros(m, bool),
    )  # fmt: skip
    groups: dict[tuple[Any, Seen], list[int]] = {}
    for i, (node_noise, form) in enumerate(zip(noise, seen, strict=True)):
        groups.setdefault((node_noise.name if isinstance(node_noise, Noise) else node_noise, form), []).append(i)
    for (noise_name, form), members in groups.items():
        nodes = np.array(members)
        nodes = nodes[isinstance(form, Suppressed) | ~np.isnan(values[nodes])]
        published = _Published(noise_name, form, nodes, values[nodes], names)
        published.check_noise()
        if isinstance(form, RandomRounded | SmallRounded):
            random = nodes[published.is_random()]
            factors.kind[random], factors.scale[random], factors.low[random] = RANDOM, form.base, values[random]
        first, last, is_interval = published.intervals()
        if published.is_exact:
            published.refuse(last < 0.0, "an exact count must be >= 0", "check the table")
            factors.least[nodes], factors.is_limited[nodes] = np.maximum(first, 0.0), True
            factors.most[nodes] = np.minimum(last, float(FAR))
        else:
            factors.kind[nodes] = 2 * _CODES.get(noise_name, 0) + is_interval
            factors.low[nodes], factors.high[nodes] = first, last
            factors.scale[nodes] = [getattr(noise[int(i)], "scale", 1.0) for i in nodes]
            _refuse_scales(factors.scale, nodes, names)
    for width in np.unique(factors.scale[factors.kind // 2 == _DISCRETE]):
        factors.log_sum[factors.scale == width] = Noise("discrete-gaussian", float(width)).log_normaliser(1)
    return factors


class _Published(NamedTuple):
    """Published values of nodes with the same format and the same distribution of noise."""

    noise_name: Any  # name of noise, EXACT, or None if there is none
    form: Seen
    nodes: Integers
    y: Floats
    names: Sequence[str] | None

    @property
    def is_exact(self) -> bool:
        return isinstance(self.noise_name, Exact)

    @property
    def is_integer(self) -> bool:
        """True if values are integers before they are rounded or suppressed."""
        return self.is_exact or (isinstance(self.noise_name, str) and Noise(self.noise_name, 1.0).is_integer)

    def refuse(self, bad: np.ndarray | bool, requirement: str, remedy: str) -> None:
        """Raise ValueError if a value is bad."""
        bad = np.broadcast_to(bad, self.nodes.shape)
        if bad.any():
            first = int(np.argmax(bad))
            got = "None" if self.noise_name is None else f"{self.y[first]:.16g}"
            raise ValueError(f"{requirement}, got {got} for {node_name(self.names, self.nodes[first])}; {remedy}")

    def check_noise(self) -> None:
        """Raise ValueError for noise that has no likelihood, or that cannot give the values."""
        self.refuse(self.noise_name is None, "noise must be given for a measured node", "pass EXACT or Noise")
        is_unknown = isinstance(self.noise_name, str) and self.noise_name not in _CODES
        self.refuse(is_unknown, f"noise {self.noise_name!r} must be that of all children of one node with an exact "
                    "total", "pass n or EXACT for the total, or geometric noise")  # fmt: skip
        subject = "an exact count" if self.is_exact else f"a value with {self.noise_name} noise"
        is_fraction = self.is_integer & (self.y != np.floor(self.y)) & ~np.isnan(self.y)
        self.refuse(is_fraction, f"{subject} must be an integer", "check the noise")

    def intervals(self) -> tuple[Floats, Floats, np.ndarray]:
        """Return the ends of the values before they were published, and True for those that are not single values."""
        match self.form:
            case Suppressed():
                return self._suppressed(self.form)
            case Rounded():
                return self._rounded(self.form)
            case RandomRounded() | SmallRounded():
                return self._rounded_at_random(self.form)
            case "clipped":
                self.refuse(self.y < 0.0, "a clipped value must be >= 0", "it is no clipped value")
                is_interval = self.y == 0.0
                return np.where(is_interval, -np.inf, self.y), self.y, is_interval
        return self.y, self.y, np.zeros(self.nodes.size, bool)

    def _suppressed(self, form: Suppressed) -> tuple[Floats, Floats, np.ndarray]:
        self.refuse(self.y < form.threshold, f"a value must be missing or >= the threshold {form.threshold:g}",
                    "a suppressed value is NaN, blank in a file")  # fmt: skip
        is_interval = np.isnan(self.y)
        below = math.ceil(form.threshold) - 1 if self.is_integer else form.threshold
        return np.where(is_interval, -np.inf, self.y), np.where(is_interval, below, self.y), is_interval

    def _rounded(self, form: Rounded) -> tuple[Floats, Floats, np.ndarray]:
        multiple, half = np.round(self.y / form.base), 0.5 * form.base
        self.refuse(self.y / form.base != multiple, f"a value rounded to the nearest must be a multiple of {form.base}",
                    "check the base, or state another format, such as random rounding")  # fmt: skip
        first, last, every = self.y - half, self.y + half, np.ones(self.nodes.size, bool)
        if self.is_integer:  # ends in the middle of two multiples belong to one of them
            has_low = {"even": multiple % 2 == 0, "up": every, "away": multiple > 0}[form.ties]
            has_high = {"even": multiple % 2 == 0, "up": ~every, "away": multiple < 0}[form.ties]
            first = np.ceil(first) + ((first == np.ceil(first)) & ~has_low)
            last = np.floor(last) - ((last == np.floor(last)) & ~has_high)
        return first, last, every

    def _rounded_at_random(self, form: RandomRounded | SmallRounded) -> tuple[Floats, Floats, np.ndarray]:
        """Return the smallest and largest counts; their likelihoods may be unequal, see `is_random`."""
        y, base = self.y, float(form.base)
        self.refuse(not self.is_exact, "counts that are rounded at random must have no noise", "state another format")
        single_values = np.zeros(self.nodes.size, bool)
        if isinstance(form, RandomRounded):
            self.refuse(y % base != 0.0, f"a value rounded at random must be a multiple of {form.base}",
                        "check the base, or state another format, such as rounding of small counts only")  # fmt: skip
            return y - base + 1.0, y + base - 1.0, single_values
        self.refuse((y > 0.0) & (y < base), f"a count must be 0 or >= {form.base} if smaller ones are rounded",
                    "check the base, or state another format, such as random rounding of all counts")  # fmt: skip
        return np.where(y == base, 1.0, y), np.where(y == 0.0, base - 1.0, y), single_values

    def is_random(self) -> np.ndarray:
        """Return True for values of a random format whose counts have unequal likelihoods."""
        if isinstance(self.form, SmallRounded):
            return (self.y == 0.0) | (self.y == self.form.base)
        return np.ones(self.nodes.size, bool)


def _refuse_scales(scale: Floats, nodes: Integers, names: Sequence[str] | None) -> None:
    """Raise ValueError for a scale of noise that is too small or too large."""
    bad = (scale[nodes] < SCALES[0]) | (scale[nodes] > SCALES[1])
    if bad.any():
        i = nodes[np.argmax(bad)]
        raise ValueError(
            f"scale must be from {SCALES[0]:g} to {SCALES[1]:g}, got {scale[i]:g} for {node_name(names, i)}; check "
            "the units of the noise"
        )


def _log_of(
    kind: int, counts: Floats | Integers, scale: Floats, log_sum: Floats, low: Floats, high: Floats
) -> Floats:  # fmt: skip
    """Return log likelihoods of one kind."""
    if kind < 0:
        return np.zeros(np.broadcast_shapes(np.shape(scale), np.shape(counts)))
    if kind % 2:
        return _log_interval(kind // 2, low - counts, high - counts, scale)
    return _log_point(kind // 2, low - counts, scale, log_sum)


def _log_point(code: int, z: Floats, scale: Floats, log_sum: Floats) -> Floats:
    """Return the log density, or log probability, of noise z."""
    u = z / scale
    if code == _RANDOM:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(1.0 - np.abs(u), 0.0))
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
    a, step = np.where(finite, a, 0.0), 1.0 if code in (1, 3) else 0.0
    width = (b - a + step) / scale
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if code < 2:  # sums without cancellation; on both sides of 0, of the shares below and above
            q = np.exp(-step / scale)
            around_zero = np.log((-np.expm1(-(b + step) / scale) - q * np.expm1(a / scale)) / (1.0 + q))
            inside = np.where(b < 0.0, upper + np.log(-np.expm1(-width)), around_zero)
        else:
            below = _log_cdf(code, a - step, scale)
            inside = upper + np.log(-np.expm1(np.minimum(below - upper, 0.0)))
            u = 0.5 * (a + b) / scale  # a narrow interval: the density at its middle, with the next term
            bend = (width * width - (step / scale) ** 2) * (u * u - 1.0) / 24.0
            density = -0.5 * u * u - 0.5 * math.log(2.0 * math.pi) + np.log(width) + np.log1p(np.maximum(bend, -0.5))
            inside = np.where(width < _NARROW, density, inside)
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
    """Return ln Pr[noise ≤ z] of discrete Gaussian noise by sums over tables, one per scale and run of close values."""
    log_cdf = np.empty(z.shape)
    for width in np.unique(scale):
        has_width = scale == width
        k = np.floor(z[has_width]).astype(np.int64)
        if width > _WIDE:
            log_cdf[has_width] = _log_cdf_wide(z[has_width], width)
            continue
        # terms further than `reach` below an end are below 1e-18 of the term at that end
        reach = int(10.0 * width) + 20
        k = np.minimum(k, reach)
        place: Integers | slice = slice(None)
        runs = [k]
        if np.ptp(k) > _LONG:
            k, place = np.unique(k, return_inverse=True)
            runs = np.split(k, np.flatnonzero(np.diff(k) > reach) + 1)
        log_sum, parts = Noise("discrete-gaussian", width).log_normaliser(1), []
        for run in runs:
            grid = np.arange(min(int(run.min()), -1) - reach, int(run.max()) + 1)
            table = np.logaddexp.accumulate(-0.5 * (grid / width) ** 2) - log_sum
            parts.append(np.minimum(table[run - grid[0]], 0.0))
        log_cdf[has_width] = np.concatenate(parts)[place]
    return log_cdf


def _log_cdf_wide(z: Floats, scale: float) -> Floats:
    """Return ln Pr[noise ≤ z] of discrete Gaussian noise of a large scale, by the Euler–Maclaurin formula.

    Σ f(i) over i ≤ k is the integral to a = k + ½ minus f′(a)/24; at u = a/scale, the relative error is about
    u⁴/(800·scale⁴).
    """
    u = (np.floor(z) + 0.5) / scale
    log_integral = special.log_ndtr(u)
    share = u * np.exp(-0.5 * u * u - 0.5 * math.log(2.0 * math.pi) - log_integral) / (24.0 * scale * scale)
    return np.minimum(log_integral + np.log1p(np.maximum(share, -0.5)), 0.0)
