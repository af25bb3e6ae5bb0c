"""Random streams keyed by the identity of a trial, independent of the division of work.

The key of a stream is the SHA-256 of a canonical JSON string: study seed, study, panel, role, the names and canonical
values of the factors involved, the trial (null for `Streams.uniforms`), and labels. A trial therefore draws the same
numbers for any block size, batch, worker, scheduler and order of the grid, and after the study is extended.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from pipeline.declare.factors import Value
from pipeline.declare.seed_states import N_WORDS, ReadySeed, seed_states

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
_TRIALS_AT_ONCE = 2**12  # trials whose states are computed together, which take half a megabyte


def canonical_json(value: object) -> str:
    """Return a value as JSON in the canonical form of keys and hashes."""
    return _CANONICAL.encode(value)


def sha256(text: str) -> str:
    """Return the SHA-256 of a string in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Streams:
    """Random streams of one role, the simulation or a method, over consecutive trials.

    Attributes
    ----------
    seed, study, panel : int and str
        Seed of the study, and names of the study and the panel.
    role : str
        ``"data"`` for the simulation, or the name of a method, or its `stream_key` if it has one.
    values : mapping of str to value
        Values of the factors that the role depends on, by name, or by the `stream_key` of a factor (`Panel.keyed`):
        those of the cell for ``"data"``, and of the cell and the method factors that it uses for a method. Constants,
        outputs and other method factors are not part of the key, and neither are versions and numbers of trials.
    trials : range
        Consecutive trials.

    Notes
    -----
    The key is divided into eight unsigned 32-bit words that seed a `numpy.random.SeedSequence`; the number of words is
    fixed, since a SeedSequence maps some keys of unequal length to the same state. The bit generator is PCG64DXSM.

    Each call of `uniforms`, `generators` or `seeds` restarts its stream. A second call on the same object would repeat
    earlier draws and therefore raises ValueError. Draw all numbers in one call, or pass a different label to each
    further call; the label becomes part of the key.

    Examples
    --------
    >>> whole = Streams(1, "s", "p", "data", {"n": 5}, range(0, 4))
    >>> part = Streams(1, "s", "p", "data", {"n": 5}, range(2, 4))
    >>> first, noise = whole.uniforms(3), whole.uniforms(3, label="noise")
    >>> bool((first[2:] == part.uniforms(3)).all()), bool((first == noise).any())
    (True, False)
    >>> [rng.random() for rng in whole.generators()][3] == next(part.single(3).generators()).random()
    True
    """

    seed: int
    study: str
    panel: str
    role: str
    values: Mapping[str, Value]
    trials: range
    _drawn: set[tuple[str, str | None]] = field(default_factory=set, init=False, repr=False, compare=False)

    def single(self, trial: int) -> "Streams":
        """Return the streams of a single trial, with the same draws as in a range of trials."""
        return Streams(self.seed, self.study, self.panel, self.role, self.values, range(trial, trial + 1))

    def generators(self, label: str | None = None) -> Iterator[np.random.Generator]:
        """Return an iterator over one Generator per trial, for a variable number of draws (about 2 µs per trial).

        A label selects a separate stream; raise ValueError if the method was called before with the same label.
        """
        self._claim("generators", label)
        return self._iterate_generators(() if label is None else (label,))

    def uniforms(self, n_uniforms: int, label: str | None = None) -> np.ndarray:
        """Draw exactly `n_uniforms` numbers per trial from one stream, which is advanced to the first trial.

        Parameters
        ----------
        n_uniforms : int
            Number of uniforms per trial, > 0. A different number gives different draws.
        label : str, optional
            Label that selects a separate, independent stream.

        Returns
        -------
        ndarray of float64, shape (trial, n_uniforms)
            Draws from the uniform distribution on [0, 1).

        Raises
        ------
        ValueError
            If the method was called before with the same label.
        """
        self._claim("uniforms", label)
        bit_generator = self._common_bit_generator(label)
        bit_generator.advance(self.trials.start * n_uniforms)  # random() takes one 64-bit word per double
        return np.random.Generator(bit_generator).random((len(self.trials), n_uniforms))

    def seeds(self, label: str | None = None) -> list[int]:
        """Return one seed per trial for a program with random numbers of its own, such as R or Stan.

        Parameters
        ----------
        label : str, optional
            Label that selects separate seeds.

        Returns
        -------
        list of int
            Integers in 1 ... 2**31 - 1, one per trial. Two of 10,000 trials have the same seed with probability 2 %.

        Raises
        ------
        ValueError
            If the method was called before with the same label.

        Examples
        --------
        >>> import subprocess, sys
        >>> program = "import random, sys; print(random.Random(int(sys.argv[1])).random())"
        >>> def draw(streams):
        ...     commands = [[sys.executable, "-c", program, str(seed)] for seed in streams.seeds()]
        ...     return [float(subprocess.check_output(command)) for command in commands]
        >>> streams = Streams(1, "s", "p", "external", {}, range(2))
        >>> draw(streams)[1] == draw(streams.single(1))[0]
        True
        """
        self._claim("seeds", label)
        # two items after the trial, so that the keys differ from those of generators
        words = self._words(self.trials, "seeds", label or "")
        return [1 + int(first) % (2**31 - 1) for first in words[:, 0]]

    def _iterate_generators(self, labels: tuple[str, ...]) -> Iterator[np.random.Generator]:
        """Yield one Generator per trial; the states of many trials are computed together."""
        for start in range(0, len(self.trials), _TRIALS_AT_ONCE):
            words = self._words(self.trials[start : start + _TRIALS_AT_ONCE], *labels)
            for entropy, state in zip(words, seed_states(words), strict=True):
                yield np.random.Generator(np.random.PCG64DXSM(ReadySeed(entropy, state)))

    def _common_bit_generator(self, label: str | None = None) -> np.random.PCG64DXSM:
        """Return the bit generator of the stream that all trials share, at its beginning."""
        words = self._words([None], *([] if label is None else [label]))
        return np.random.PCG64DXSM(np.random.SeedSequence(words[0]))

    def _words(self, trials: Iterable[int | None], *labels: str) -> np.ndarray:
        """Return the hashes of the keys of trials, or of the common stream, as words, shape (trial, `N_WORDS`)."""
        shared = canonical_json([self.seed, self.study, self.panel, self.role, sorted(self.values.items())])
        last = "".join(f",{canonical_json(label)}" for label in labels)
        hashed = hashlib.sha256(f"{shared[:-1]},".encode())  # up to the trial, all keys are equal
        digests = []
        for trial in trials:
            key = hashed.copy()
            key.update(f"{'null' if trial is None else trial}{last}]".encode())  # JSON of a trial, without its encoder
            digests.append(key.digest())
        return np.frombuffer(b"".join(digests), "<u4").reshape(-1, N_WORDS)

    def _claim(self, call: str, label: str | None) -> None:
        """Raise ValueError for a second draw from the same stream."""
        if label is not None and (not isinstance(label, str) or not label):
            raise ValueError(f"the label of Streams.{call} must be a non-empty string, got {label!r}")
        if (call, label) in self._drawn:
            labelled = "" if label is None else f" with the label {label!r}"
            raise ValueError(
                f"Streams.{call} was called twice{labelled} in role {self.role!r} of panel {self.panel}, and would "
                "return overlapping draws; draw all numbers in one call, or give each further call a different label"
            )
        self._drawn.add((call, label))
