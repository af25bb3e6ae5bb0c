"""Comparison of draws of counts with the distribution that their release states.

An exact audit (`mechanisms.audit.counts`) checks the formula `CountRelease.log_pmf`, but users and studies release
draws. `compare_draws` tests the hypothesis that draws follow a pmf, and `audit_draws` applies it to both samplers of a
release, `from_uniforms` and `sample`, at several data sets.

**Level.** The p-value is valid for every pmf and every number of draws N, without an approximation: events are fixed by
N and the stated pmf before the draws are seen. Under the hypothesis, the occurrences of an event E in N independent
draws are binomial, so the probability Pr[X ≥ x] at the observed x is at most α with probability at most α. This holds
for expected counts of any size, and an output of stated probability 0 has the p-value 0. By the union bound, the
smallest of m such p-values, multiplied by m, is a p-value. The events are of six families of equal weight:

* each single output, which is observed too often, and all other outputs;
* the j least likely outputs, for each j, which pools rare outputs, and the j most likely ones;
* for each category, a released count of at most x, and of at least x, for each x;
* equal draws, and unequal ones, in disjoint pairs of draws: successive draws of one call, and draws at one position of
  two calls. They reveal dependence between draws, such as a fixed seed within a sampler.

Stated probabilities are increased by one part in 10⁹ (`mechanisms.core.exact_losses.ROUNDING`), so that their rounding
does not count against the draws.

`from_uniforms` must also compute draw i from row i of the uniforms only: draws of rows in another order, and of single
rows, must be the same draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from mechanisms.core.arguments import Floats, Integers, returned_array
from mechanisms.core.conjugate import balanced_counts, count_candidates, enumerate_candidates, rank_candidates
from mechanisms.core.exact_losses import ROUNDING, Witness
from mechanisms.counts.mechanism import CountRelease, Mechanism, validate_draws

T = TypeVar("T")

LEVEL = 1e-6
"""Largest probability that an audit rejects correct samplers of a mechanism."""

_N_FAMILIES = 6
_UNNORMALISED = 1e-11  # error of the sum of a pmf that audits accept, and so of the probability of all other outputs


@dataclass(frozen=True)
class DrawComparison:
    """Result of a comparison of draws with a stated distribution.

    Attributes
    ----------
    p_value : float
        At most α with probability at most α if the draws are independent and follow the distribution.
    n_draws : int
        Number of draws.
    event : str
        Event with the smallest p-value, with its observed and stated frequency.
    """

    p_value: float
    n_draws: int
    event: str


class _Family(NamedTuple):
    """Events with their stated probabilities and their occurrences in independent trials."""

    occurrences: Integers
    probabilities: Floats
    trials: Literal["draws", "pairs"]
    name: Callable[[int], str]  # of an event, given its place


def compare_draws(draws: Integers, log_pmf: Floats) -> DrawComparison:
    """Compare draws with a distribution by exact binomial tests; see the module for the events and the level.

    Parameters
    ----------
    draws : ndarray of int64, shape (N, k)
        An even number N ≥ 2 of released counts of n records. The halves should be drawn by separate calls.
    log_pmf : ndarray of float64, shape (|R|,)
        Stated log probabilities in the order of `mechanisms.enumerate_candidates`.

    Raises
    ------
    ValueError
        If the shapes are wrong, or a draw does not have n records.

    Examples
    --------
    >>> from mechanisms import MECHANISMS
    >>> release = MECHANISMS["geometric"].build([1, 1], [3, 7], epsilon=1.0)
    >>> draws = release.sample(np.random.default_rng(1), 1000)
    >>> compare_draws(draws, release.log_pmf()).p_value
    1.0
    >>> print(compare_draws(np.tile([3, 7], (1000, 1)), release.log_pmf()).event)
    output [3, 7] in 1,000 of 1,000 draws, stated 46.21 %
    """
    if draws.ndim != 2 or not len(draws) or len(draws) % 2:
        raise ValueError(f"draws must have shape (N, k) with an even N >= 2, got {draws.shape}; pass one draw per row")
    if draws.dtype.kind not in "iu":
        raise ValueError(f"draws must be integers, got {draws.dtype}; pass released counts")
    n, k = int(draws[0].sum()), draws.shape[1]
    log_pmf = returned_array("log_pmf", log_pmf)
    if log_pmf.shape != (count_candidates(n, k),):
        raise ValueError(
            f"log_pmf must have shape ({count_candidates(n, k)},), got {log_pmf.shape}; pass one per output"
        )
    if np.isnan(log_pmf).any() or np.any(log_pmf > 1e-9):
        raise ValueError("log_pmf must be log probabilities, got NaN or a number > 0; normalise the distribution")
    best, event = np.inf, ""
    for family in _families(draws, np.exp(log_pmf), n):
        n_trials = len(draws) // (2 if family.trials == "pairs" else 1)
        tails = _upper_tails(family.occurrences, n_trials, family.probabilities)
        place = int(np.argmin(tails))
        p_value = float(tails[place]) * tails.size * _N_FAMILIES
        if p_value < best:
            best, observed, stated = p_value, family.occurrences[place], 100.0 * family.probabilities[place]
            event = f"{family.name(place)} in {observed:,} of {n_trials:,} {family.trials}, stated {stated:.4g} %"
    return DrawComparison(min(best, 1.0), len(draws), event)


def _upper_tails(occurrences: Integers, n_trials: int, probabilities: Floats) -> Floats:
    """Return Pr[X ≥ occurrences] for binomial X, or 1 where the occurrences are not more than expected."""
    p = np.minimum(probabilities * (1.0 + ROUNDING), 1.0)
    tails, excess = np.ones(p.size), occurrences > n_trials * p
    tails[excess] = betainc(occurrences[excess], n_trials - occurrences[excess] + 1, p[excess])
    return tails


def _families(draws: Integers, pmf: Floats, n: int) -> Iterator[_Family]:
    """Yield the families of events; sums of probabilities have small relative errors, so they begin with small ones."""
    size, k = draws.shape
    outputs, ranks = enumerate_candidates(n, k), rank_candidates(draws, n, k)
    counts = np.bincount(ranks, minlength=pmf.size)
    yield _Family(counts, pmf, "draws", lambda place: f"output {outputs[place].tolist()}")
    others = np.maximum(1.0 - pmf, 0.0) + _UNNORMALISED
    yield _Family(size - counts, others, "draws", lambda place: f"outputs other than {outputs[place].tolist()}")
    order = np.argsort(pmf, kind="stable")
    for extreme, places in (("least", order), ("most", order[::-1])):
        sums = np.cumsum(counts[places]), np.cumsum(pmf[places])
        yield _Family(*sums, "draws", partial(_name_union, extreme))
    masses = [np.bincount(column, weights=pmf, minlength=n + 1) for column in outputs.T]
    observed = [np.bincount(column, minlength=n + 1) for column in draws.T]
    sides = [np.concatenate([_from_both_ends(column) for column in columns]) for columns in (observed, masses)]
    yield _Family(sides[0], sides[1], "draws", lambda place: _name_marginal(place, n))
    half, equal = size // 2, float(pmf @ pmf)
    successive, across = int((ranks[::2] == ranks[1::2]).sum()), int((ranks[:half] == ranks[half:]).sum())
    names = [f"{kind} draws of {pair}" for pair in ("one call", "two calls") for kind in ("equal", "unequal")]
    unequal = max(1.0 - equal, 0.0) + _UNNORMALISED
    yield _Family(
        np.array([successive, half - successive, across, half - across]), np.array([equal, unequal, equal, unequal]),
        "pairs", names.__getitem__,
    )  # fmt: skip


def _from_both_ends(values: Floats | Integers) -> Floats | Integers:
    """Return the sums of the entries up to each place, then the sums of the entries from each place."""
    return np.concatenate([np.cumsum(values), np.cumsum(values[::-1])[::-1]])


def _name_union(extreme: str, place: int) -> str:
    return f"one of the {place + 1:,} {extreme} likely outputs" if place else f"the {extreme} likely output"


def _name_marginal(place: int, n: int) -> str:
    """Return the name of an event of `_from_both_ends` for the counts of each category, 0 to n."""
    category, side, value = np.unravel_index(place, (place // (2 * (n + 1)) + 1, 2, n + 1))
    return f"a count of at {'least' if side else 'most'} {value} in category {category}"


SIZES = (100_000, 30_000, 10_000, 3_000, 1_000)
"""Numbers of draws per sampler and data set in an audit: the largest for which the time suffices."""

Sampler = Literal["from_uniforms", "sample"]

_SAMPLERS: tuple[Sampler, ...] = ("from_uniforms", "sample")
_COMPARISONS = len(_SAMPLERS) + 1  # per data set, with that of short calls
_SHORT_CALLS = 200  # number of calls of `sample` for one draw, and for three, of which the first and the last count
_SHORT_SHARE = 0.2  # largest share of the time for short calls, without which they are omitted
_LONGEST_MESSAGE = 200
_BATCH, _BATCH_UNIFORMS = 10_000, 2_000_000  # largest numbers of draws and of uniforms per call
_SINGLE = 16  # number of rows that are also drawn one by one
_MARGIN = 1.5  # ratio of the largest expected time of draws to that predicted from fewer
_PILOT = 0.25  # largest expected share of the remaining time for the draws that predict it from ten times fewer


@dataclass(frozen=True, eq=False)
class DrawsAudit:
    """Result of an audit of the draws of a mechanism.

    Attributes
    ----------
    agree : bool or None
        False if draws do not follow the stated distribution at one data set or more; None if they were not compared at
        all data sets and do not deviate at the others.
    n_draws : int
        Number of compared draws per data set; 0 if `agree` is None.
    text : str
        Summary in one line.
    deviating : ndarray of int64, shape (k,), or None
        First data set at which draws do not follow the stated distribution.
    """

    agree: bool | None
    n_draws: int
    text: str
    deviating: Integers | None = None


class _InvalidDrawsError(Exception):
    """A sampler raised an error, returned something other than counts, or mixed the rows of its uniforms."""


class _TimeOverError(Exception):
    """The time of an audit ended."""


def compared_datasets(n: int, k: int, witness: Witness) -> list[Integers]:
    """Return the distinct data sets of an audit of draws.

    All records are in the first or in the last category, or the counts are balanced; further data sets are the
    neighbours of `witness`, which have the largest loss.
    """
    unit = np.eye(k, dtype=np.int64)
    datasets = n * unit[0], n * unit[-1], balanced_counts(n, k), witness.dataset, witness.neighbour
    return [np.array(counts) for counts in dict.fromkeys(tuple(np.asarray(counts).tolist()) for counts in datasets)]


def audit_draws(
    mechanism: Mechanism, prior: ArrayLike, datasets: Sequence[Integers], epsilon: float, delta: float,
    rng: np.random.Generator, seconds: float, level: float = LEVEL,
) -> DrawsAudit:  # fmt: skip
    """Compare draws of a mechanism with its stated distribution, by both samplers of a release.

    Parameters
    ----------
    mechanism, prior, epsilon, delta
        A mechanism with a pmf, and the arguments of `Mechanism.build`.
    datasets : sequence of ndarray of int64, shape (k,)
        Counts at which draws are compared, of one or several numbers of records; see `compared_datasets`.
    rng : numpy.random.Generator
        Source of the uniforms. The result depends on it and on the number of draws only.
    seconds : float
        Time for the comparison, which determines the number of draws before they are drawn; see `SIZES`. One call of a
        sampler or of the pmf is not interrupted.
    level : float
        Largest probability, over all data sets and both samplers, that draws of correct samplers are rejected, if
        their uniforms and the stated distribution are exact.

    Raises
    ------
    ValueError
        If the mechanism does not support the arguments, or its pmf cannot be computed.

    Examples
    --------
    >>> from mechanisms import MECHANISMS
    >>> datasets = [np.array([10, 0]), np.array([5, 5])]
    >>> rng = np.random.default_rng(1)
    >>> print(audit_draws(MECHANISMS["geometric"], [1, 1], datasets, 1.0, 1e-8, rng, seconds=60.0).text)
    draws agree: 200,000 at each of 2 data sets, level 1e-06
    """
    deadline, size, reason = time.perf_counter() + seconds, SIZES[0], ""
    pilot, *generators = rng.spawn(1 + len(datasets))
    deviations: list[tuple[Integers, str]] = []
    try:
        releases = [mechanism.build(prior, counts, epsilon, delta) for counts in datasets]
        size = _affordable_size(releases, pilot, deadline)
        for release, generator in zip(releases, generators, strict=True):
            deviation = _deviation(release, generator, size, level / (_COMPARISONS * len(datasets)), deadline)
            if deviation:
                deviations.append((release.counts, deviation))
    except _TimeOverError:
        least = f"a comparison of {SIZES[-1]:,} draws by each sampler at {len(datasets)} data sets"
        reason = f"{least} takes more than {max(seconds, 0):.2g} s"
    except MemoryError:
        reason = "the memory does not suffice"
    return _summarise(deviations, reason, len(_SAMPLERS) * size, f"{len(datasets)} data sets, level {level:g}")


def _summarise(deviations: Sequence[tuple[Integers, str]], reason: str, n_draws: int, extent: str) -> DrawsAudit:
    """Return the result of an audit from the data sets with deviations, and the reason if it is incomplete."""
    if deviations:
        (counts, deviation), *others = deviations
        also = f" and {len(others)} other{'s' * (len(others) > 1)}" if others else ""
        text = f"draws do not follow the stated distribution at {counts.tolist()}{also}: {deviation}"
        return DrawsAudit(False, n_draws, f"{text} ({n_draws:,} draws at each of {extent})", counts)
    if reason:
        return DrawsAudit(None, 0, f"draws not compared: {reason}")
    return DrawsAudit(True, n_draws, f"draws agree: {n_draws:,} at each of {extent}")


def _deviation(release: CountRelease, rng: np.random.Generator, size: int, level: float, deadline: float) -> str:
    """Return the first deviation of the draws of a release from its pmf; empty if there is none at `level`."""
    log_pmf = release.log_pmf()
    for sampler in _SAMPLERS:
        try:
            if sampler == "from_uniforms":
                _require_rowwise(release, rng, min(size, _batch(release)))
            draws = np.concatenate(list(_batches(release, sampler, rng, size, deadline)))
        except _InvalidDrawsError as error:
            return str(error)
        comparison = compare_draws(draws, log_pmf)
        if comparison.p_value <= level:
            return f"{sampler} draws {comparison.event}"
    try:
        draws = _draw_in_short_calls(release, rng, deadline)
    except _InvalidDrawsError as error:
        return str(error)
    comparison = compare_draws(draws, log_pmf)
    if comparison.p_value <= level:
        return f"sample, called for one draw or three, draws {comparison.event}"
    return ""


def _draw_in_short_calls(release: CountRelease, rng: np.random.Generator, deadline: float) -> Integers:
    """Return draws of calls for one draw, and first and last draws of calls for three, as many as the time allows."""
    start = time.perf_counter()
    _draw(release, "sample", rng, 3)  # compiles kernels
    elapsed = time.perf_counter() - start
    n_calls = _SHORT_CALLS if 2 * _SHORT_CALLS * elapsed <= _SHORT_SHARE * (deadline - start) else 2
    single = [_draw(release, "sample", rng, 1) for _ in range(n_calls)]
    _require_time(deadline)
    ends = [_draw(release, "sample", rng, 3)[[0, 2]] for _ in range(n_calls // 2)]
    return np.concatenate([*single, *ends])


def _batches(
    release: CountRelease, sampler: Sampler, rng: np.random.Generator, size: int, deadline: float
) -> Iterator[Integers]:
    """Yield draws in batches, the same for both halves of the draws, until the time ends."""
    batch = _batch(release)
    for _ in range(2):
        for start in range(0, size // 2, batch):
            _require_time(deadline)
            yield _draw(release, sampler, rng, min(batch, size // 2 - start))


def _require_time(deadline: float) -> None:
    if time.perf_counter() > deadline:
        raise _TimeOverError


def _batch(release: CountRelease) -> int:
    """Return the largest number of draws per call."""
    return max(1, min(_BATCH, _BATCH_UNIFORMS // max(_guarded("n_uniforms", lambda: int(release.n_uniforms)), 1)))


def _draw(release: CountRelease, sampler: Sampler, rng: np.random.Generator, size: int) -> Integers:
    """Return draws of a sampler; raise _InvalidDrawsError if it fails or they are not counts of n records."""
    if sampler == "from_uniforms":
        return _from_uniforms(release, _uniforms(release, rng, size))
    return _valid(sampler, lambda: release.sample(rng, size), release, size)


def _uniforms(release: CountRelease, rng: np.random.Generator, size: int) -> Floats:
    return _guarded("n_uniforms", lambda: rng.random((size, release.n_uniforms)))


def _from_uniforms(release: CountRelease, uniforms: Floats) -> Integers:
    return _valid("from_uniforms", lambda: release.from_uniforms(uniforms.copy()), release, len(uniforms))


def _valid(sampler: Sampler, draw: Callable[[], ArrayLike], release: CountRelease, size: int) -> Integers:
    drawn = _guarded(sampler, draw)
    try:
        return validate_draws(drawn, size, release.n, release.k)
    except ValueError as error:
        raise _InvalidDrawsError(f"{sampler}: {error}") from error


def _guarded(name: str, compute: Callable[[], T]) -> T:
    """Return a result of the code of a mechanism; raise _InvalidDrawsError if it raises an error."""
    try:
        return compute()
    except MemoryError:
        raise
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_MESSAGE]
        raise _InvalidDrawsError(f"{name} raises {message}") from error


def _require_rowwise(release: CountRelease, rng: np.random.Generator, size: int) -> None:
    """Raise _InvalidDrawsError unless draw i depends on row i of the uniforms only, in two orders and one by one."""
    uniforms, order = _uniforms(release, rng, size), rng.permutation(size)
    draws = _from_uniforms(release, uniforms)
    single = [_from_uniforms(release, uniforms[i : i + 1]) for i in range(min(_SINGLE, size))]
    if not np.array_equal(np.concatenate(single), draws[: len(single)]):
        raise _InvalidDrawsError("from_uniforms draws other counts from a row of uniforms alone than among other rows")
    if not np.array_equal(_from_uniforms(release, uniforms[order]), draws[order]):
        raise _InvalidDrawsError("from_uniforms draws other counts from rows of uniforms in another order")


def _affordable_size(releases: Sequence[CountRelease], rng: np.random.Generator, deadline: float) -> int:
    """Return the largest of `SIZES` for which the time suffices."""
    seconds = sum(_seconds_per_draw(release, rng, deadline) for release in releases)
    affordable = [size for size in SIZES if _MARGIN * size * seconds <= deadline - time.perf_counter()]
    if not affordable:
        raise _TimeOverError
    return affordable[0]


def _seconds_per_draw(release: CountRelease, rng: np.random.Generator, deadline: float) -> float:
    """Return the time of a draw by both samplers, from up to 1,000 draws; 0 if draws are invalid."""
    size = 1
    try:
        while True:
            # The shorter of two times, because the first use of a sampler, or of a branch of it, compiles kernels.
            elapsed = min(_time_draws(release, rng, size, deadline) for _ in range(2))
            if size >= SIZES[-1] or 10 * elapsed > _PILOT * (deadline - time.perf_counter()):
                return elapsed / size
            size *= 10
    except _InvalidDrawsError:
        return 0.0


def _time_draws(release: CountRelease, rng: np.random.Generator, size: int, deadline: float) -> float:
    """Return the time of draws by both samplers."""
    _require_time(deadline)
    start = time.perf_counter()
    for sampler in _SAMPLERS:
        _draw(release, sampler, rng, size)
    return time.perf_counter() - start
