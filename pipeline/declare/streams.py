"""Random streams that depend on what a trial is, never on how the work was divided.

The key of a stream is the SHA-256 of a canonical JSON text: study seed, study, panel, role, the names and values of the
factors involved, and the trial. Values are in canonical form (`factors`). So a trial draws the same numbers for any
block size, batch, worker, scheduler and order of the grid, and in a study that was extended.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.declare.factors import Value


def canonical_json(value: object) -> str:
    """Write a value as JSON in the one form that keys and hashes use.

    Examples
    --------
    >>> canonical_json({"b": (1.0, 2), "a": "x"})
    '{"a":"x","b":[1.0,2]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def sha256(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Streams:
    """The random streams of one role over a run of trials.

    Attributes
    ----------
    seed : int
        The study's seed.
    study, panel : str
        Their names.
    role : str
        ``"data"`` for the simulation, a method's name for that method.
    values : mapping of str to value
        The factors that the role depends on.
    trials : range
        The trials that are wanted, consecutive.

    Notes
    -----
    The key is cut into eight unsigned 32-bit words, all of which seed a `numpy.random.SeedSequence`; the number of
    words is fixed, since a SeedSequence merges some keys of unequal length. The bit generator is PCG64DXSM.

    Both ways to draw return the same numbers each time they are called: draw all that a role needs in one call.

    Examples
    --------
    >>> whole = Streams(1, "s", "p", "data", {"n": 5}, range(0, 4))
    >>> part = Streams(1, "s", "p", "data", {"n": 5}, range(2, 4))
    >>> bool((whole.uniforms(3)[2:] == part.uniforms(3)).all())
    True
    >>> [rng.random() for rng in whole.generators()][3] == next(part.single(3).generators()).random()
    True
    """

    seed: int
    study: str
    panel: str
    role: str
    values: Mapping[str, Value]
    trials: range

    def single(self, trial: int) -> "Streams":
        """Return the streams of one trial alone."""
        return Streams(self.seed, self.study, self.panel, self.role, self.values, range(trial, trial + 1))

    def _bit_generator(self, trial: int | None) -> np.random.PCG64DXSM:
        key = canonical_json([self.seed, self.study, self.panel, self.role, sorted(self.values.items()), trial])
        words = np.frombuffer(hashlib.sha256(key.encode()).digest(), dtype="<u4")
        return np.random.PCG64DXSM(np.random.SeedSequence([int(word) for word in words]))

    def generators(self) -> Iterator[np.random.Generator]:
        """Yield a Generator for each trial, for methods that draw an unknown amount (about 20 µs each)."""
        for trial in self.trials:
            yield np.random.Generator(self._bit_generator(trial))

    def uniforms(self, n_uniforms: int) -> np.ndarray:
        """Draw exactly `n_uniforms` numbers a trial from one stream that is advanced to the first trial.

        Parameters
        ----------
        n_uniforms : int
            How many uniforms a trial takes, > 0. Another number gives other draws.

        Returns
        -------
        ndarray of float64, shape (trial, n_uniforms)
            Uniform on [0, 1).
        """
        bit_generator = self._bit_generator(None)
        bit_generator.advance(self.trials.start * n_uniforms)  # random() takes one 64-bit word a double
        return np.random.Generator(bit_generator).random((len(self.trials), n_uniforms))
