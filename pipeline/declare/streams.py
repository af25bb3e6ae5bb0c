"""Random streams that depend on what a trial is, never on how the work was divided.

The key of a stream is the SHA-256 of a canonical JSON text: study seed, study, panel, role, the names and values of the
factors involved, and the trial. Values are in canonical form (`factors`). So a trial draws the same numbers for any
block size, batch, worker, scheduler and order of the grid, and in a study that was extended.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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

    `uniforms` and `generators` start their stream anew each time. A second call on the same object would return
    numbers that were drawn before, and raises: draw all numbers in one call, or give each further call a label of its
    own, which becomes part of the key.

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
        """Return the streams of one trial alone; its draws are those of this trial among others."""
        return Streams(self.seed, self.study, self.panel, self.role, self.values, range(trial, trial + 1))

    def generators(self, label: str | None = None) -> Iterator[np.random.Generator]:
        """Return an iterator over one Generator per trial, for an unknown number of draws (about 20 µs each).

        Parameters
        ----------
        label : str, optional
            Name of a further call; the generators of each label are independent of all others.

        Raises
        ------
        ValueError
            If it was called before with this label, or without one.
        """
        self._claim("generators", label)
        return (np.random.Generator(self._bit_generator(trial, label)) for trial in self.trials)

    def uniforms(self, n_uniforms: int, label: str | None = None) -> np.ndarray:
        """Draw exactly `n_uniforms` numbers per trial from one stream that is advanced to the first trial.

        Parameters
        ----------
        n_uniforms : int
            Number of uniforms per trial, > 0. Another number gives other draws.
        label : str, optional
            Name of a further call; the draws of each label are independent of all others.

        Returns
        -------
        ndarray of float64, shape (trial, n_uniforms)
            Uniform on [0, 1).

        Raises
        ------
        ValueError
            If it was called before with this label, or without one.
        """
        self._claim("uniforms", label)
        bit_generator = self._bit_generator(None, label)
        bit_generator.advance(self.trials.start * n_uniforms)  # random() takes one 64-bit word per double
        return np.random.Generator(bit_generator).random((len(self.trials), n_uniforms))

    def _bit_generator(self, trial: int | None, label: str | None = None) -> np.random.PCG64DXSM:
        labels = [] if label is None else [label]
        key = canonical_json(
            [self.seed, self.study, self.panel, self.role, sorted(self.values.items()), trial, *labels]
        )
        words = np.frombuffer(hashlib.sha256(key.encode()).digest(), dtype="<u4")
        return np.random.PCG64DXSM(np.random.SeedSequence([int(word) for word in words]))

    def _claim(self, way: str, label: str | None) -> None:
        """Refuse to draw from the same stream twice."""
        if label is not None and (not isinstance(label, str) or not label):
            raise ValueError(f"the label of Streams.{way} must be a non-empty string, got {label!r}")
        if (way, label) in self._drawn:
            given = "" if label is None else f" with the label {label!r}"
            raise ValueError(
                f"Streams.{way} was called twice{given} in role {self.role!r} of panel {self.panel}, and would return "
                "overlapping draws; draw all numbers in one call, or give each further call its own label"
            )
        self._drawn.add((way, label))
