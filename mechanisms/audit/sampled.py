"""Statistical lower bound on the privacy loss of a sampler, from its draws alone, and samplers of mechanisms.

A sampler is a function ``(dataset, num_samples) -> samples`` of raw records, as testers that estimate a divergence from
samples expect, such as those of DP-Auditorium. Exact audits (`mechanisms.core.exact_losses`) check the formulas of a
mechanism; this bound checks the code of a sampler, which draws from two neighbouring data sets x and x'. From the first
half of the draws, an event E is chosen that is likely at x and unlikely at x'. In the second half, the occurrences of E
are counted. With confidence 1 − α, Clopper–Pearson limits of level α/2 each give

    ε ≥ ln( (lower limit of Pr[M(x) ∈ E] − δ) / upper limit of Pr[M(x') ∈ E] ).

For a correct sampler of an (ε, δ)-DP mechanism this bound exceeds ε with probability at most α, however many events are
candidates, because only the chosen event is counted in the second half. A bound below ε is no proof of privacy: other
data sets or events may have a larger loss.

**Candidates** are unions of bins with the largest ratios of frequencies, single outputs, and declared events. If there
are few distinct outputs, each is a bin. Otherwise bins are intervals between quantiles of each component, and of all
components together if these bins contain many draws. Each output, or value of one component, that occurs repeatedly is
a candidate by itself: a mechanism that publishes a record with a small probability is detected by that output. Bounds
of m single outputs or declared events in the first half have the level α/m, so that an event is not chosen because it
is one of many.

References
----------
Clopper & Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26,
1934. Ding, Wang, Wang, Zhang & Kifer, "Detecting violations of differential privacy", CCS 2018 (choice of the event on
separate draws). Kong, Medina, Ribero & Syed, "DP-Auditorium: a large scale library for auditing differential privacy",
IEEE S&P 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from mechanisms.core.arguments import Floats, Integers, find_entry, returned_array, validate_integer, validate_number
from mechanisms.core.conjugate import validate_prior
from mechanisms.core.noise import calibrated_noise
from mechanisms.core.privacy_parameters import validate_delta, validate_epsilon
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.registry import MECHANISMS
from mechanisms.inference.families import FAMILIES, Bounds, Family
from mechanisms.inference.publish import validate_data
from mechanisms.inference.release_model import ReleaseModel

Sampler = Callable[[ArrayLike, int], NDArray[Any]]


def count_sampler(
    rng: np.random.Generator, mechanism: Mechanism | str, prior: ArrayLike, epsilon: float, delta: float = 1e-8
) -> Sampler:
    """Return a sampler of released counts that takes the raw categorical records.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the draws; successive calls of the sampler continue the stream.
    mechanism : Mechanism or str
        An entry of `MECHANISMS` or its key, or a custom mechanism.
    prior : array_like, shape (k,)
        Dirichlet parameters, one per category.
    epsilon, delta : float
        Privacy parameters of the mechanism; some mechanisms ignore δ.

    Returns
    -------
    callable
        Maps ``(dataset, num_samples)`` to released counts, int64 of shape ``(num_samples, k)``. The data set has shape
        ``(n,)`` and contains categories 0 to k − 1. An invalid argument raises ValueError.

    Privacy
    -------
    Each row has the guarantee of the mechanism; the privacy loss of `num_samples` rows is `num_samples` times as large.

    Raises
    ------
    ValueError
        If the prior, ε or δ is invalid.

    Examples
    --------
    >>> sampler = count_sampler(np.random.default_rng(1), "geometric", [1, 1], 1.0)
    >>> sampler([0, 1, 1, 0, 1, 1, 1, 0], 3)
    array([[3, 5], [5, 3], [2, 6]])
    """
    entry, alpha = find_entry(MECHANISMS, mechanism, "mechanism"), validate_prior(prior)
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)

    def sample(dataset: ArrayLike, num_samples: int) -> Integers:
        counts = np.bincount(_categories(dataset, alpha.size), minlength=alpha.size)
        distribution = entry.build(alpha, counts, epsilon, delta)
        return distribution.sample(rng, _size(num_samples))

    return sample


def statistics_sampler(
    rng: np.random.Generator, family: Family | str, epsilon: float, bounds: Bounds | None = None
) -> Sampler:
    """Return a sampler of noisy sufficient statistics that takes the raw records.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the draws; successive calls of the sampler continue the stream.
    family : Family or str
        An entry of `FAMILIES` or its key.
    epsilon : float
        Privacy loss per release in nats, finite and > 0.
    bounds : tuple of float, optional
        Public bounds outside which records are dropped; see `Family.validate_bounds`.

    Returns
    -------
    callable
        Maps ``(dataset, num_samples)`` to noisy statistics, float64 of shape ``(num_samples, d)``, for a data set
        accepted by `publish_sums`. An invalid argument raises ValueError.

    Privacy
    -------
    Each row is ε-DP in real arithmetic; `num_samples` rows together are (num_samples·ε)-DP. The rounding of doubles
    leaks information (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012):
    use `publish_sums` for real data.

    Raises
    ------
    ValueError
        If ε or the bounds are invalid.

    Examples
    --------
    >>> sampler = statistics_sampler(np.random.default_rng(1), "poisson", 1.0, bounds=(0, 9))
    >>> sampler([3, 1, 4, 12], 2).round(2)
    array([[ 8.22], [28.81]])
    """
    model = find_entry(FAMILIES, family, "family")
    noise = calibrated_noise("laplace", model.sensitivity(bounds), epsilon)

    def sample(dataset: ArrayLike, num_samples: int) -> Floats:
        records, n = validate_data(dataset, model)
        s = ReleaseModel(model.name, n, noise, bounds).statistic(records)
        return s + noise.sample(rng, (_size(num_samples), s.size))

    return sample


def _categories(dataset: ArrayLike, k: int) -> Integers:
    """Return one or more records as integers from 0 to k − 1, after checking them."""
    records = np.asarray(dataset)
    if records.ndim != 1 or not records.size:
        raise ValueError(f"dataset must have shape (n,) with n >= 1, got {records.shape}; give one category per record")
    allowed = np.isin(records, np.arange(k))
    if not allowed.all():
        record = np.flatnonzero(~allowed)[0]
        raise ValueError(f"dataset must contain categories 0 to {k - 1}, got another in record {record}; recode them")
    return records.astype(np.int64)


def _size(num_samples: int) -> int:
    return validate_integer("num_samples", num_samples, advice="pass the number of draws")


_MAX_BINS = 200
_QUANTILE_BINS = 64
_LEAST_PER_BIN = 20  # draws in the mean bin of all columns; an event of many small bins is chosen by chance
_MIN_SAMPLES = 200
_MIN_REPEATS = 5  # smallest number of occurrences of an output that is a bin, among many outputs


@dataclass(frozen=True)
class SampledBound:
    """Lower bound on the privacy loss of a sampler at one pair of neighbours."""

    epsilon: float  # lower bound in nats; 0 if the draws show no loss
    delta: float  # of the stated guarantee
    confidence: float  # lower bound on the probability that `epsilon` does not exceed the true loss
    occurrences: tuple[int, int]  # of the chosen event, at the data set where it is likely and at the neighbour
    n_samples: int  # number of draws per data set in which the event was counted


def sampled_bound(
    sampler: Sampler,
    dataset: ArrayLike,
    neighbour: ArrayLike,
    n_samples: int,
    delta: float = 0.0,
    confidence: float = 0.999,
    events: Sequence[Callable[[Floats], ArrayLike]] = (),
) -> SampledBound:
    """Return a statistical lower bound on the privacy loss of a sampler.

    Parameters
    ----------
    sampler : callable
        Maps ``(dataset, num_samples)`` to samples, one draw per row; see `mechanisms.count_sampler`.
    dataset, neighbour : array_like
        Two neighbouring data sets in the form that the sampler accepts, such as the witness of an exact audit, in any
        order.
    n_samples : int
        Number of draws per data set, ≥ 200. The first half of the draws determines the event, and the data set at which
        the event is likely.
    delta : float
        In [0, 1).
    confidence : float
        1 − α, in (0, 1).
    events : sequence of callable
        Further candidates: functions of draws, shape (n, c), that return True for draws in the event, shape (n,).

    Raises
    ------
    ValueError
        If an argument is invalid, or the samples have the wrong shape or contain NaN.

    Examples
    --------
    Bounds for geometric noise that is calibrated to ε = 1 and to ε = 2:

    >>> from mechanisms import count_sampler
    >>> rng = np.random.default_rng(1)
    >>> for epsilon in (1.0, 2.0):
    ...     sampler = count_sampler(rng, "geometric", [1, 1], epsilon)
    ...     print(round(sampled_bound(sampler, [0, 0, 1, 1], [0, 1, 1, 1], 20_000).epsilon, 2))
    0.92
    1.88
    """
    n_samples = validate_integer("n_samples", n_samples, _MIN_SAMPLES, "use more draws")
    delta = validate_number("delta", delta, "in [0, 1)", lambda value: 0.0 <= value < 1.0, "pass that of the guarantee")
    confidence = validate_number("confidence", confidence, "in (0, 1)", lambda p: 0.0 < p < 1.0, "choose e.g. 0.999")
    half, alpha = n_samples // 2, 1.0 - confidence
    draws = [_rows(sampler(data, 2 * half), 2 * half) for data in (dataset, neighbour)]
    choices = [choice for bins in _divide(draws, half, events) for choice in _choose(bins, half, delta, alpha)]
    _, likely, unlikely = max(choices, key=lambda choice: choice[0])
    epsilon = float(_lower_bounds(np.array([likely]), np.array([unlikely]), half, delta, alpha)[0])
    return SampledBound(epsilon, delta, confidence, (likely, unlikely), half)


def _lower_bounds(likely: Integers, unlikely: Integers, size: int, delta: float, alpha: float) -> Floats:
    """Return, for each event, a lower bound ≥ 0 on ε from the numbers of occurrences of the event at two neighbours."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = np.where(likely == 0, 0.0, stats.beta.ppf(alpha / 2, likely, size - likely + 1))
        upper = np.where(unlikely == size, 1.0, stats.beta.ppf(1 - alpha / 2, unlikely + 1, size - unlikely))
        return np.maximum(np.log(np.maximum(lower - delta, 0.0) / upper), 0.0)


class _Division(NamedTuple):
    """Division of the outputs into numbered sets, of which the last contains all other outputs."""

    labels: list[Integers]  # numbers of the sets that contain the draws, for each data set
    size: int
    n_singles: int  # number of candidates if each set is one; 0 if unions of sets are


def _choose(bins: _Division, half: int, delta: float, alpha: float) -> Iterator[tuple[float, int, int]]:
    """Yield the event of a division with the largest lower bound in the first half, for both orders of the data sets.

    The event is given by this bound, and its occurrences in the second half where it is likely and unlikely.
    """
    first, second = (np.bincount(label[:half], minlength=bins.size) for label in bins.labels)
    for p, q, later in ((first, second, bins.labels), (second, first, bins.labels[::-1])):
        order = np.argsort(-(p + 0.5) / (q + 0.5), kind="stable")
        likely, unlikely = (draws[order] if bins.n_singles else np.cumsum(draws[order]) for draws in (p, q))
        bounds = _lower_bounds(likely, unlikely, half, delta, alpha / max(bins.n_singles, 1))
        best = int(np.argmax(bounds))
        event = np.isin(np.arange(bins.size), order[best] if bins.n_singles else order[: best + 1])
        here, there = (int(event[label[half:]].sum()) for label in later)
        yield float(bounds[best]), here, there


def _divide(draws: Sequence[Floats], half: int, events: Sequence[Callable[[Floats], ArrayLike]]) -> Iterator[_Division]:
    """Yield the divisions: distinct outputs if there are few, else bins and repeated values; then declared events."""
    pooled = np.concatenate([draw[:half] for draw in draws])
    columns = [slice(None), *(slice(i, i + 1) for i in range(pooled.shape[1]) if pooled.shape[1] > 1)]
    if len(np.unique(pooled, axis=0)) <= _MAX_BINS:
        yield _bin(draws, pooled, [np.unique(column) for column in pooled.T])
        columns = []
    for chosen in columns:
        first, parts = pooled[:, chosen], [draw[:, chosen] for draw in draws]
        d = first.shape[1]
        n_bins = max(2, round(_QUANTILE_BINS ** (1 / d)))  # per column
        if n_bins**d <= max(2 * _QUANTILE_BINS, half // _LEAST_PER_BIN):
            levels = np.linspace(0, 1, n_bins + 1)[1:-1]
            yield _bin(parts, first, [np.unique(np.quantile(column, levels)) for column in first.T])
        values, counts = np.unique(first, axis=0, return_counts=True)
        atoms = values[counts >= _MIN_REPEATS]
        if len(atoms):
            yield _Division([_find_rows(atoms, part) for part in parts], len(atoms) + 1, len(atoms) + 1)
    for event in events:
        yield _Division([_occurs(event, draw) for draw in draws], 2, 2 * len(events))


def _bin(draws: Sequence[Floats], pooled: Floats, edges: Sequence[Floats]) -> _Division:
    """Return the division of draws into the bins between edges, per column, that contain pooled rows."""
    codes = np.unique(_encode(pooled, edges))
    return _Division([_find(codes, _encode(draw, edges)) for draw in draws], codes.size + 1, 0)


def _find(codes: Integers, code: Integers) -> Integers:
    """Return the places of numbers among ascending `codes`, which is their size for others."""
    place = np.minimum(np.searchsorted(codes, code), codes.size - 1)
    return np.where(codes[place] == code, place, codes.size)


def _find_rows(atoms: Floats, rows: Floats) -> Integers:
    """Return the places of rows among `atoms`, which is their number for others."""
    inverse = np.unique(np.concatenate([atoms, rows]), axis=0, return_inverse=True)[1].reshape(-1)
    place = np.full(inverse.size, len(atoms))
    place[inverse[: len(atoms)]] = np.arange(len(atoms))
    return place[inverse[len(atoms) :]]


def _occurs(event: Callable[[Floats], ArrayLike], rows: Floats) -> Integers:
    """Return 1 for the rows in a declared event, and 0 for all others."""
    occurs = returned_array("an event", event(rows))
    if occurs.shape != (len(rows),) or occurs.dtype != np.bool_:
        raise ValueError(
            f"an event must return {len(rows)} Booleans, got {occurs.dtype}, {occurs.shape}; return one per draw"
        )
    return occurs.astype(np.int64)


def _encode(rows: Floats, edges: Sequence[Floats]) -> Integers:
    """Return one number per row, which identifies the interval between `edges` that contains each entry of the row."""
    code = np.zeros(len(rows), dtype=np.int64)
    # odd factors keep the first columns, if numbers exceed 64 bits
    for column, edge in zip(rows.T, edges, strict=True):
        code = code * ((edge.size + 1) | 1) + np.searchsorted(edge, column, side="right")
    return code


def _rows(samples: ArrayLike, size: int) -> Floats:
    rows = returned_array("a sampler", samples).astype(np.float64, copy=False)
    if rows.ndim not in (1, 2) or len(rows) != size or np.any(np.isnan(rows)):
        raise ValueError(f"samples must be {size} rows without NaN, got shape {rows.shape}; return one draw per row")
    return rows.reshape(size, -1)
