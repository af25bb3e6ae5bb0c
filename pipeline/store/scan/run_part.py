"""Part of the blocks of a run that a store asks for, if several jobs compute the run without a scheduler.

The option ``--share K/M`` names it, and the root of the store has it in the attribute ``share``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.errors import BadInputError

RUN_PART = "share"
"""Attribute of the root of a store with a part of a run."""
_MOST_PARTS = 100_000
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio: consecutive products modulo 2⁶⁴ are spread out


@dataclass(frozen=True)
class RunPart:
    """One of `count` disjoint parts of the blocks of a run, which differ by at most one block and mix the cells."""

    number: int  # from 1
    count: int

    @classmethod
    def parse(cls, text: str) -> "RunPart":
        """Return the part for a text such as ``3/100``; raise BadInputError for another text."""
        form = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", str(text), re.ASCII)
        if form is None or not int(form[1]) <= int(form[2]) <= _MOST_PARTS:
            raise BadInputError(f"a share must be K/M with 1 <= K <= M <= {_MOST_PARTS:,}, such as 3/100, got {text!r}")
        return cls(int(form[1]), int(form[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def others(self, panel: str, shapes: Mapping[str, tuple[int, int]]) -> np.ndarray:
        """Return a mask of the blocks of other parts, from the shape (cell, block) of each panel in order."""
        before = 0
        for name, shape in shapes.items():
            if name == panel:
                break
            before += shape[0] * shape[1]
        with np.errstate(over="ignore"):
            order = np.argsort(np.arange(shapes[panel][0] * shapes[panel][1], dtype=np.uint64) * _GOLDEN)
        dealt = np.empty(len(order), np.int64)
        dealt[order] = np.arange(before, before + len(order))
        return (dealt % self.count != self.number - 1).reshape(shapes[panel])
