"""Pairs of neighbouring data sets, one per equivalence class under permutations of exchangeable categories."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from mechanisms.arguments import Floats, Integers


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
