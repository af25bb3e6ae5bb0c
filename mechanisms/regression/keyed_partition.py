"""Random partition of rows by a keyed permutation, computed chunk by chunk without a permutation in memory.

A keyed permutation π of {0, …, n − 1} maps row i to the position π(i), and partition j contains the rows with
π(i) mod M = j. Sizes differ by at most one; the first n mod M partitions are larger. A table can be read in any order,
in chunks of any size and by any number of workers; the same key always gives the same partition.

A position left·2^b + right is represented by the pair (left, right) in {0, …, a − 1} × {0, …, 2^b − 1}. Given b, a is
the smallest integer with a·2^b ≥ n; a and 2^b are near √n and at least 256. π is a Feistel network on these pairs.
Rounds alternate

    left ← left + ⌊a·F(right)/2³²⌋ mod a,   right ← right xor ⌊F(left)/2^(32 − b)⌋,

where F is a hash with a 32-bit key per round. Positions ≥ n are permuted repeatedly until they are below n (cycle
walking), which gives a permutation of the rows.

Notes
-----
The partition is pseudo-random. The 384-bit key gives at most 2³⁸⁴ partitions, and the theory of such networks assumes
random functions F (four rounds: Luby & Rackoff). The twelve rounds used here pass statistical tests that four rounds
fail. The permutation is not cryptographically secure, and privacy does not depend on it.

References
----------
Luby & Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", SIAM J. Comput. 17(2), 1988.
Black & Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002 (Feistel networks on a × b, cycle walking).
Mitchell, Stokes, Frank & Holmes, "Bandwidth-optimal random shuffling for GPUs", ACM TOPC 9(1), 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mechanisms.core.arguments import validate_integer
from mechanisms.core.jit import kernel

MOST_ROWS = 2**32
"""Largest number of rows n, since positions are 32-bit integers."""

_ROUNDS = 12
_LEAST_BITS = 8
_BATCH = 512  # number of rows per batch; a batch fits in the L1 cache


@dataclass(frozen=True, eq=False)
class KeyedPartition:
    """Assignment of rows to partitions; draw one with `keyed_partition`."""

    n_rows: int
    n_partitions: int
    keys: NDArray[np.uint32] = field(repr=False)  # one per round; the number of rounds is even

    def labels(self, first: int, count: int) -> NDArray[np.int32]:
        """Return the partition labels, from 0 to M − 1, of consecutive rows."""
        bits = max(_LEAST_BITS, (self.n_rows - 1).bit_length() // 2)
        n_left = max(2**_LEAST_BITS, -(-self.n_rows >> bits))
        labels = np.empty(count, dtype=np.int32)
        _label(first, self.n_rows, self.n_partitions, n_left, bits, self.keys, labels)
        return labels


def keyed_partition(rng: np.random.Generator, n_rows: int, n_partitions: int) -> KeyedPartition:
    """Draw a partition of n rows into M parts of almost equal size; `rng` draws its key only.

    The partition does not depend on the data, and for every key, replacing a row changes only one part. Guarantees that
    hold for every fixed partition therefore hold for this one, and the key may be public.
    """
    n_rows, n_partitions = validate_integer("n_rows", n_rows), validate_integer("n_partitions", n_partitions)
    if n_rows > MOST_ROWS:
        raise ValueError(f"n_rows must be an integer in [1, 2^32], got {n_rows}; split larger tables")
    if n_partitions > min(n_rows, 2**31 - 1):
        raise ValueError(f"n_partitions must be an integer in [1, n = {n_rows}], got {n_partitions}; choose another")
    return KeyedPartition(n_rows, n_partitions, rng.integers(2**32, size=_ROUNDS, dtype=np.uint32))


@kernel
def _label(first, n_rows, n_partitions, n_left, bits, keys, labels):
    """Fill `labels` with the partition labels of consecutive rows, starting with row `first`."""
    left, right = np.empty(_BATCH, np.uint32), np.empty(_BATCH, np.uint32)
    places = np.empty(_BATCH, np.int64)
    mask = (1 << bits) - 1
    for start in range(0, labels.size, _BATCH):
        count = min(_BATCH, labels.size - start)
        for i in range(count):
            row = first + start + i
            left[i], right[i], places[i] = row >> bits, row & mask, start + i
        while count > 0:
            _mix(left[:count], right[:count], n_left, bits, keys)
            n_walking = 0
            for i in range(count):
                position = (np.int64(left[i]) << bits) | np.int64(right[i])
                if position < n_rows:
                    labels[places[i]] = position % n_partitions
                else:
                    left[n_walking], right[n_walking], places[n_walking] = left[i], right[i], places[i]
                    n_walking += 1
            count = n_walking


@kernel
def _mix(left, right, n_left, bits, keys):
    """Apply the Feistel rounds to (left, right), in branch-free 32-bit arithmetic that compiles to vector code."""
    n, shift = np.uint32(n_left), np.uint32(32 - bits)
    for k in range(0, keys.size, 2):
        key, next_key = keys[k], keys[k + 1]
        for i in range(left.size):
            moved = np.uint32(left[i] + np.uint32((np.uint64(_hash(right[i], key)) * np.uint64(n)) >> np.uint64(32)))
            left[i] = np.uint32(moved - n) if moved >= n else moved
        for i in range(left.size):
            right[i] = np.uint32(right[i] ^ np.uint32(_hash(left[i], next_key) >> shift))


@kernel
def _hash(value, key):
    """Return F(value), by two multiplications with Wellons' low-bias constants; the high bits are mixed best."""
    mixed = np.uint32(np.uint32(value ^ key) * np.uint32(0x7FEB352D))
    return np.uint32(np.uint32(mixed ^ np.uint32(mixed >> np.uint32(15))) * np.uint32(0x846CA68B))
