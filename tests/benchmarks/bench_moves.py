"""Moves between modules of `mechanisms` in one call of `Mechanism.build`.

A move is a call from a function in one module to a function in another. Numba kernels, whose machine code makes no
Python calls, and generated methods of dataclasses are not counted.

    python tests/benchmarks/bench_moves.py
"""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from mechanisms import MECHANISMS

GOALS = {"geometric": 10, "smooth": 30}


def trace_calls(call: Callable[[], Any], note: Callable[[Any], None]) -> None:
    """Call `note` with the frame of each Python function that is called during a call."""
    sys.setprofile(lambda frame, event, argument: note(frame) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)


def count_moves(call: Callable[[], Any]) -> Counter[tuple[str, str]]:
    """Return the number of calls between each pair of modules of `mechanisms` during a call."""
    moves: Counter[tuple[str, str]] = Counter()

    def note(frame: Any) -> None:
        if frame.f_back is None:
            return
        source, target = (each.f_globals.get("__name__", "") for each in (frame.f_back, frame))
        generated = frame.f_code.co_filename == "<string>"
        if target.startswith("mechanisms") and source.startswith("mechanisms") and source != target and not generated:
            moves[source, target] += 1

    trace_calls(call, note)
    return moves


def build_moves(name: str) -> Counter[tuple[str, str]]:
    """Return the moves of a build after another one at other counts and ε, which compiles the kernels."""
    mechanism = MECHANISMS[name]
    mechanism.build([1.0, 1.0, 1.0], [4, 3, 3], 0.9, 1e-8)
    return count_moves(lambda: mechanism.build([1.0, 1.0, 1.0], [5, 3, 2], 1.0, 1e-8))


if __name__ == "__main__":
    for name in GOALS:
        moves = build_moves(name)
        assert moves.total() <= GOALS[name], moves
        print(f"{name}: {moves.total()} moves among {len({each for move in moves for each in move})} modules")
        for (source, target), times in moves.most_common():
            print(f"  {times:3d}  {source} -> {target}")
