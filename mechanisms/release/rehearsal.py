"""Releases that are reproducible and not private."""

from dataclasses import dataclass

import numpy as np

from mechanisms.core.arguments import validate_integer


@dataclass(frozen=True)
class Rehearsal:
    """Seed of a release that is reproducible, not private, and enters nothing in a ledger."""

    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", validate_integer("rehearsal_seed", self.seed, 0))

    def generator(self, label: str) -> np.random.Generator:
        """Return the generator of a part of the rehearsal, whose stream is not that of ``default_rng(seed)``.

        Data that are simulated with the same seed, of which ``default_rng([seed, 0])`` has the stream too, are
        independent of it.
        """
        return np.random.default_rng([int.from_bytes(label.encode(), "big"), self.seed])
