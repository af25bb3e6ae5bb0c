"""Initial states of bit generators for many keys at once, with the bits of `numpy.random.SeedSequence`.

A SeedSequence mixes eight words of entropy into a pool of four words, and generates the state from the pool, all in
unsigned 32-bit arithmetic (M. E. O'Neill, "Developing a seed_seq alternative",
https://www.pcg-random.org/posts/developing-a-seed_seq-alternative.html). One takes about 10 µs in NumPy; here, each
step is an array operation over all keys. NumPy guarantees that the algorithm does not change.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence
from numpy.typing import NDArray

_Words = NDArray[np.uint32]
N_WORDS = 8
"""Words of entropy per key."""
_POOL, _STATE = 4, 8  # words of the pool, and of the state of PCG64DXSM
_SHIFT = np.uint32(16)
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)  # multipliers of `_mix`


def _hash_constants(first: int, multiplier: int, n_constants: int) -> _Words:
    """Return the powers of a multiplier, times the first constant, that successive hashes use; shape (constant, 1)."""
    constants = [first * pow(multiplier, power, 2**32) % 2**32 for power in range(n_constants)]
    return np.array(constants, np.uint32)[:, None]


# one hash per word of the pool, one per ordered pair of them, and one per word of the pool and word beyond the pool
_MIXING = _hash_constants(0x43B0D7E5, 0x931E8875, _POOL + _POOL * (_POOL - 1) + (N_WORDS - _POOL) * _POOL + 1)
_GENERATION = _hash_constants(0x8B51F9DD, 0x58F38DED, _STATE + 1)


def _hash(words: _Words, constants: _Words) -> _Words:
    """Return hashes of words; each row has its constant, and the one after it is the multiplier."""
    hashed = (words ^ constants[:-1]) * constants[1:]
    return hashed ^ (hashed >> _SHIFT)


def _mix(pool: _Words, hashed: _Words) -> _Words:
    """Return words of the pool with hashed words mixed into them."""
    mixed = _LEFT * pool - _RIGHT * hashed
    return mixed ^ (mixed >> _SHIFT)


def seed_states(entropy: np.ndarray) -> np.ndarray:
    """Return four 64-bit words of state for each row of eight 32-bit words of entropy, shape (key, 4)."""
    words = np.ascontiguousarray(entropy.T, np.uint32)  # shape (word, key)
    pool = _hash(words[:_POOL], _MIXING[: _POOL + 1])
    n_hashes = _POOL
    for source in range(_POOL):
        others = [k for k in range(_POOL) if k != source]
        hashed = _hash(pool[source], _MIXING[n_hashes : n_hashes + _POOL])
        pool[others] = _mix(pool[others], hashed)
        n_hashes += _POOL - 1
    for source in range(_POOL, N_WORDS):
        pool = _mix(pool, _hash(words[source], _MIXING[n_hashes : n_hashes + _POOL + 1]))
        n_hashes += _POOL
    state = _hash(np.concatenate([pool] * (_STATE // _POOL)), _GENERATION)
    return np.ascontiguousarray(state.T, "<u4").view("<u8").astype(np.uint64)


class ReadySeed(ISpawnableSeedSequence):
    """Seed sequence of a key whose state for PCG64DXSM is computed; NumPy's SeedSequence answers all other requests."""

    def __init__(self, entropy: np.ndarray, state: np.ndarray) -> None:
        self._words, self._state = entropy, state

    @cached_property
    def _sequence(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(self._words.tolist())

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """Return words of the state of a bit generator."""
        if dtype is np.uint64 and n_words == len(self._state):
            return self._state
        return self._sequence.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> Any:
        """Return further seed sequences, as NumPy's SeedSequence does."""
        return self._sequence.spawn(n_children)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of NumPy's SeedSequence, such as `entropy`."""
        return getattr(self._sequence, name)

    def __reduce__(self) -> Any:
        """Return NumPy's SeedSequence for copies and other processes."""
        return self._sequence.__reduce__()
