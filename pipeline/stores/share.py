"""Share of the blocks of a run, which is computed into a store of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.errors import BadInputError

SHARE = "share"
"""Attribute of the root of a store with a share."""
_MOST = 100_000
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio: consecutive products modulo 2⁶⁴ are spread out


@dataclass(frozen=True)
class Share:
    """One of `count` disjoint shares of the blocks of a run, which differ by at most one block.

    Blocks are dealt in the order of a multiplicative hash of their number, so that a share has blocks of all cells.
    """

    number: int  # from 1
    count: int

    @classmethod
    def parse(cls, text: str) -> "Share":
        """Return the share for a text such as ``3/100``; raise BadInputError for another text."""
        found = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", str(text), re.ASCII)
        if found is None or not int(found[1]) <= int(found[2]) <= _MOST:
            raise BadInputError(f"a share must be K/M with 1 <= K <= M <= {_MOST:,}, such as 3/100, got {text!r}")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def others(self, panel: str, shapes: Mapping[str, tuple[int, int]]) -> np.ndarray:
        """Return a mask of the blocks of other shares, from the shape (cell, block) of each panel in order."""
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
