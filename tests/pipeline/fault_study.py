"""A study to be disturbed: its file, its numbers when nobody disturbs it, and the comparison of a store with them."""

import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import zarr

from pipeline.evaluate import Status
from pipeline.source import find_study
from tests.pipeline.helpers import compute_into, read_arrays

METHODS = ("a", "b")
N_CELLS = {"p": 8, "q": 4}
TRIALS = 10
Guilty = Mapping[tuple[int, str, int], str]

_FILE = '''
import os
import re
import signal
import time
from pathlib import Path

import numpy as np

from pipeline import Factor, Measure, Method, Panel, Study

SECONDS, GUILTY, BUSY = 0.0, {}, ""


def misbehave(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "memory":
        held = [np.ones(2**21) for _ in range(256)]  # 4 GB, in pieces of 16 MB
        time.sleep(5)
    elif how == "sleep":
        time.sleep(3600)
    elif how == "loop":
        while True:
            pass
    elif how == "lock":
        re.match("(a+)+$", "a" * 64 + "b")  # one call that never ends, and never lets another thread run


def meet(n, name, trials):
    for trial in trials:
        misbehave(GUILTY.get((n, name, trial), ""))


def simulate(cell, streams):
    meet(cell["n"], "simulate", streams.trials)
    return cell["n"], streams.uniforms(3)


def evaluate(name):
    def method(data, setting, streams):
        n, uniforms = data
        mark = Path(BUSY, str(os.getpid()))
        if BUSY:
            mark.touch()  # whoever kills workers finds one that is in the middle of a block
        meet(n, name, streams.trials)
        time.sleep(SECONDS)
        if BUSY:
            mark.unlink(missing_ok=True)
        return {"x": (uniforms + streams.uniforms(3)).sum(axis=1), "square": n * n}

    return method


def panel(name, n_cells):
    return Panel(
        name,
        "a panel",
        simulate,
        (Method("a", evaluate("a")), Method("b", evaluate("b"))),
        (Measure("x", "a number"), Measure("square", "of the size", per_trial=False)),
        (Factor("n", tuple(range(n_cells)), "size", "int"),),
        trials=10,
        block_trials=4,
    )


STUDY = Study("disturbed", "Disturbed", "To be disturbed.", (panel("p", 8), panel("q", 4)), seed=1)
'''


def write_study(folder: Path, seconds: float = 0.0, guilty: Guilty | None = None) -> Path:
    """Write the study's file, and return it.

    Parameters
    ----------
    folder : Path
        Where. Its folder ``busy`` will hold a file for each process that is in the middle of a block.
    seconds : float
        How long a method takes on a block.
    guilty : mapping
        Cell (both panels), method or ``simulate``, and trial of what misbehaves, and how.
    """
    (folder / "busy").mkdir(exist_ok=True)
    head = f"SECONDS, GUILTY, BUSY = {seconds}, {dict(guilty or {})}, {str(folder / 'busy')!r}"
    path = folder / "disturbed.py"
    text = _FILE.replace('SECONDS, GUILTY, BUSY = 0.0, {}, ""', head)
    assert text != _FILE
    path.write_text(text)
    return path


@lru_cache
def undisturbed(trials: int = TRIALS, panels: tuple[str, ...] = tuple(N_CELLS)) -> dict[str, np.ndarray]:
    """Return every array of a store that nobody disturbed, by its path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "whole.py")
        path.write_text(_FILE)
        study = find_study(str(path), {}).load().configure(trials=trials, panels=panels)
        return read_arrays(compute_into(Path(folder, "whole.zarr"), study).url)


def unequal(store: Path, expected: Mapping[str, np.ndarray], failed: Mapping[tuple[str, int, str, int], Status]) -> str:
    """Compare a store bit by bit.

    Parameters
    ----------
    store : Path
        The store.
    expected : mapping
        The arrays of `undisturbed`.
    failed : mapping
        Panel, cell, method and trial of what must have failed, and how. All others must be as in `expected`.

    Returns
    -------
    str
        The arrays that differ in a bit, empty if none does.
    """
    wanted = {name: values.copy() for name, values in expected.items()}
    for (panel, n, method, trial), status in failed.items():
        place = n, METHODS.index(method)
        wanted[f"{panel}/x"][(*place, trial)] = np.nan
        wanted[f"{panel}/status"][(*place, trial)] = status
        if not (wanted[f"{panel}/status"][place] == Status.OK).any():
            wanted[f"{panel}/square"][place] = np.nan
    found = read_arrays(store)
    if found.keys() != wanted.keys():
        return "arrays: " + ", ".join(sorted(found.keys() ^ wanted.keys()))
    for name in [name for name in found if name.endswith("/error")]:  # the words are for people: whether there are any
        wanted[name] = np.isin(wanted[name.replace("error", "status")], [Status.KILLED, Status.TIMED_OUT])
        found[name] = found[name] != ""
    return ", ".join(name for name in found if not _same_bits(found[name], wanted[name]))


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(np.array_equal(one.view("u8"), other.view("u8")) if one.dtype.kind == "f" else (one == other).all())


def n_committed(store: Path) -> int:
    """How many trials of a store are committed, 0 where there is no store yet."""
    if not (store / "zarr.json").exists():
        return 0
    root = zarr.open_group(store, mode="r")
    return sum(int((np.asarray(root[f"{p}/status"][...]) != 0).sum()) for p in N_CELLS if f"{p}/status" in root)
