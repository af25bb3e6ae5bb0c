"""The Dirichlet–multinomial model; Beta–binomial is the case of two categories.

The prior is Dir(α) with α in R₊^k; given the counts c in N^k of n records, the posterior is Dir(α + c). Private
releases replace c by other counts c' of n records; the possible c' are called *candidates*. Pairs of neighbouring data
sets are listed once per equivalence class under permutations of exchangeable categories.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers, real_array, validate_integer
from mechanisms.core.jit import kernel
from mechanisms.core.privacy_parameters import MOST_RECORDS, validate_size

MAX_ENUMERATED = 50_000_000  # largest number of candidates stored in memory
MAX_PRIOR = 1e12  # largest entry of a prior; beyond it, one record is below the rounding error of the posterior


def validate_prior(prior: ArrayLike, k: int | None = None) -> Floats:
    """Return the Dirichlet parameters as a new float64 array if they are a proper prior with entries ≤ `MAX_PRIOR`."""
    alpha = np.array(real_array("prior", prior))
    _require_categories("prior", alpha, k)
    is_proper = np.isfinite(alpha) & (alpha > 0)
    if not is_proper.all():
        place = np.argmin(is_proper)
        raise ValueError(
            f"prior must have positive finite entries, got {alpha[place]} at position {place}; use e.g. 1.0"
        )
    if alpha.max() > MAX_PRIOR:
        raise ValueError(f"prior must have entries <= {MAX_PRIOR:g}, got {alpha.max()}; choose a weaker prior")
    return alpha


def validate_counts(counts: ArrayLike, k: int | None = None, n: int | None = None) -> Integers:
    """Return the counts as a new int64 array if they are a histogram of n ≥ 1 records; 3.0 is accepted, 2.5 is not.

    `validate_size` limits n.
    """
    values = real_array("counts", counts)
    _require_categories("counts", values, k)
    is_count = (values >= 0) & (values < 2**53) & (values == np.floor(values))  # doubles represent integers up to 2**53
    if not is_count.all():
        raise ValueError(
            f"counts must be integers >= 0, got an invalid value at position {np.argmin(is_count)}; "
            "pass the number of records in each category"
        )
    records = values.astype(np.int64)
    total = int(values.sum())  # in doubles, as many large counts wrap around int64
    if total < 1:
        raise ValueError(f"counts must sum to at least 1, got {total}; pass the counts of at least one record")
    if total > MOST_RECORDS:
        validate_size(total)  # raises ValueError
    if n is not None and total != n:
        raise ValueError(f"counts must sum to {n}, got {total}; correct the counts or the number of records")
    return records


def _require_categories(name: str, values: Floats, k: int | None) -> None:
    if values.ndim != 1 or values.size < 2:
        raise ValueError(
            f"{name} must be one-dimensional with at least 2 categories, got shape {values.shape}; pass one for each"
        )
    if k is not None and values.size != k:
        raise ValueError(f"{name} must have {k} categories, got {values.size}; pass one number per category")


def balanced_counts(n: int, k: int) -> Integers:
    """Return counts of `n` records that are as equal as possible across `k` categories.

    The first n mod k categories contain one record more than the others.

    Parameters
    ----------
    n : int
        Number of records, ≥ 1.
    k : int
        Number of categories, ≥ 2.

    Returns
    -------
    ndarray of int64, shape (k,)

    Raises
    ------
    ValueError
        If n < 1 or k < 2.

    Examples
    --------
    >>> balanced_counts(11, 4)
    array([3, 3, 3, 2])
    """
    n, k = validate_problem(n, k)
    counts = np.full(k, n // k, dtype=np.int64)
    counts[: n % k] += 1
    return counts


def posterior(prior: ArrayLike, counts: ArrayLike) -> Floats:
    """Return the parameters of the posterior Dir(α + c) for one or more count vectors.

    Parameters
    ----------
    prior : array_like, shape (k,)
        Dirichlet parameters, finite and > 0.
    counts : array_like, shape (..., k)
        Counts ≥ 0.

    Returns
    -------
    ndarray of float64, shape (..., k)

    Raises
    ------
    ValueError
        If the prior is not proper, the last axes differ, or a count is negative or not finite.

    Examples
    --------
    >>> posterior([1, 1], [[3, 2], [0, 5]])
    array([[4., 3.],
           [1., 6.]])
    """
    alpha = validate_prior(prior)
    values = real_array("counts", counts)
    if values.ndim == 0 or values.shape[-1] != alpha.size:
        raise ValueError(
            f"counts must have {alpha.size} categories on their last axis, got shape {values.shape}; pass one each"
        )
    if not np.all((values >= 0) & np.isfinite(values)):
        raise ValueError("counts must be finite and >= 0, got an invalid value; pass one count per category")
    return alpha + values


def count_candidates(n: int, k: int) -> int:
    """Return |R| = C(n + k − 1, k − 1), the number of count vectors of `n` records in `k` categories."""
    return math.comb(n + k - 1, k - 1)


def enumerate_candidates(n: int, k: int) -> Integers:
    """Return all count vectors of `n` records in `k` categories, in lexicographic order.

    Parameters
    ----------
    n, k : int
        As in `balanced_counts`.

    Returns
    -------
    ndarray of int64, shape (|R|, k)

    Raises
    ------
    ValueError
        If n < 1, k < 2, or there are more than `MAX_ENUMERATED` candidates.

    Examples
    --------
    >>> enumerate_candidates(2, 3)
    array([[0, 0, 2], [0, 1, 1], [0, 2, 0], [1, 0, 1], [1, 1, 0], [2, 0, 0]])
    """
    return tabulate_candidates(*validate_problem(n, k))


def tabulate_candidates(n: int, k: int) -> Integers:
    """Return the result of `enumerate_candidates` for valid integers."""
    require_at_most(MAX_ENUMERATED, "candidates to enumerate", count_candidates(n, k), n, k)
    candidates = np.empty((count_candidates(n, k), k), dtype=np.int64)
    _fill_candidates(n, candidates)
    return candidates


def count_completions(n: int, k: int) -> Integers:
    """Return the numbers of count vectors of 0, …, `n` records in 1, …, `k` categories, shape (k, n + 1)."""
    sizes = np.ones((k, n + 1), dtype=np.int64)  # sizes[later, rest] = C(rest + later, later)
    for later in range(1, k):
        np.cumsum(sizes[later - 1], out=sizes[later])
    return sizes


def rank_candidates(counts: ArrayLike, n: int, k: int) -> Integers:
    """Return the row indices of count vectors in the result of `enumerate_candidates`."""
    values = np.asarray(counts)
    if (
        values.shape[-1:] != (k,)
        or not np.all((values >= 0) & (values == np.floor(values)))
        or not np.all(values.sum(axis=-1) == n)
    ):
        raise ValueError(f"counts must be {k} integers >= 0 with sum {n}, got invalid values; pass counts of n records")
    require_at_most(MAX_ENUMERATED, "candidates to enumerate", count_candidates(n, k), n, k)
    after = values.astype(np.int64)[..., ::-1].cumsum(axis=-1)[..., ::-1]  # records in a category and later ones
    sizes, later = count_completions(n, k), np.arange(k)[::-1]
    # Candidates with the same counts before a category and fewer records in it precede the counts.
    return (sizes[later[:-1], after[..., :-1]] - sizes[later[:-1], after[..., 1:]]).sum(axis=-1)


def validate_problem(n: int, k: int) -> tuple[int, int]:
    """Return the numbers of records and of categories as ints, after checking their ranges."""
    return validate_size(n), validate_integer("k", k, least=2, advice="use 2 for a binomial")


def require_at_most(
    limit: int, what: str, got: int, n: int, k: int, advice: str = "use fewer records, or merge categories"
) -> None:
    """Raise ValueError if a problem of n records in k categories has more than `limit` of `what`."""
    if got > limit:
        raise ValueError(f"there must be at most {limit:,} {what}, got {got:,} (n = {n}, k = {k}); {advice}")


@kernel
def _fill_candidates(n, candidates):
    n_rows, k = candidates.shape
    current = np.zeros(k, dtype=np.int64)
    current[k - 1] = n
    for row in range(n_rows):
        for category in range(k):
            candidates[row, category] = current[category]
        # Successor: one record moves to the category left of the last occupied one, the other records to the end.
        last = k - 1
        while last > 0 and current[last] == 0:
            last -= 1
        if last > 0:
            moved = current[last] - 1
            current[last] = 0
            current[last - 1] += 1
            current[k - 1] = moved


def neighbouring_pairs(labels: Floats, candidates: Integers) -> tuple[Integers, Integers]:
    """Return all pairs of data sets that differ in one replaced record, one pair per equivalence class.

    Pairs are equivalent if they differ by a permutation of categories with equal labels. `candidates` are from
    `enumerate_candidates`. Return the D data sets of the pairs, in lexicographic order, and pairs of their indices, (P,
    2).
    """
    k = labels.size
    n = int(candidates[0].sum())
    classes = np.unique(labels, return_inverse=True)[1]
    ordered = np.all((np.diff(candidates, axis=1) >= 0) | (np.diff(classes) != 0), axis=1)
    # Only adjacent categories of one class are compared, so equivalent data sets may remain. The canonical forms below
    # remove the duplicates.
    starts = candidates[ordered]
    unit = np.eye(k, dtype=np.int64)
    second = np.concatenate([starts + unit[j] - unit[i] for i, j in permutations(range(k), 2)])
    first = np.tile(starts, (len(second) // len(starts), 1))[(second >= 0).all(axis=1)]
    second = second[(second >= 0).all(axis=1)]
    forms = np.stack([canonical_pairs(first, second, classes, n), canonical_pairs(second, first, classes, n)])
    # Of the two orders of a pair, take the lexicographically smaller form.
    differs = forms[0] != forms[1]
    place = np.argmax(differs, axis=1)
    rows = np.arange(len(first))
    swap = forms[1, rows, place] < forms[0, rows, place]
    return _decode(np.where(swap[:, None], forms[1], forms[0]), n)


def adding_pairs(labels: Floats, candidates: Integers) -> tuple[Integers, Integers]:
    """Return the pairs of data sets of n (first) and n + 1 records, one per class, as in `neighbouring_pairs`."""
    k, larger = labels.size, int(candidates[0].sum()) + 1
    classes = np.unique(labels, return_inverse=True)[1]
    first = np.repeat(candidates, k, axis=0)
    second = first + np.tile(np.eye(k, dtype=np.int64), (len(candidates), 1))
    return _decode(canonical_pairs(first, second, classes, larger), larger)


def canonical_pairs(first: Integers, second: Integers, classes: Integers, n: int) -> Integers:
    """Return a canonical form of pairs (c, c') of at most n records under permutations of categories of one class.

    Each category is encoded as one number, and the numbers of each class 0, 1, ... are sorted.
    """
    joint = first * (n + 1) + second
    for label in range(int(classes.max()) + 1):
        members = np.flatnonzero(classes == label)
        joint[:, members] = np.sort(joint[:, members], axis=1)
    return joint


def _decode(forms: Integers, n: int) -> tuple[Integers, Integers]:
    """Return the distinct data sets of pairs in canonical form, and the distinct pairs as indices of these sets."""
    unique = np.unique(forms, axis=0)
    ends = np.concatenate([unique // (n + 1), unique % (n + 1)])
    datasets, inverse = np.unique(ends, axis=0, return_inverse=True)
    return datasets, inverse.reshape(2, -1).T.copy()
