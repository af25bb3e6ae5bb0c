"""Study for tests of faults: the study file, the results without faults, and comparisons with them."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import zarr

from pipeline.blocks.evaluate import FAILURES, Status
from pipeline.declare.source import find_study
from tests.pipeline.helpers import compute_into, read_arrays

METHODS = ("a", "b")
N_CELLS = {"p": 8, "q": 4}
N_TRIALS = sum(N_CELLS.values()) * len(METHODS) * 10
FailingTrials = Mapping[tuple[int, str, int], str]
Failed = Mapping[tuple[str, int, str, int], Status]


@dataclass(frozen=True)
class Part:
    """Part of the study to run: panels, number of cells (the first ones), and number of trials."""

    panels: tuple[str, ...] = tuple(N_CELLS)
    n_cells: int | None = None
    trials: int = 10

    @property
    def words(self) -> list[str]:
        cells = [] if self.n_cells is None else ["--set", "n=" + ",".join(map(str, range(self.n_cells)))]
        return [*(word for panel in self.panels for word in ("--panel", panel)), *cells, "--trials", str(self.trials)]


WHOLE = Part()

_FILE = """
import os
import re
import signal
import time
from pathlib import Path

import numpy as np

from pipeline import Factor, Measure, Method, Panel, Study

SECONDS, FAILING, BUSY = 0.0, {}, ""


def misbehave(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "exit":
        os._exit(0)
    elif how == "segfault":
        signal.raise_signal(signal.SIGSEGV)  # in this thread; os.kill may return before the process ends
    elif how == "some memory":
        held = np.ones(2**25)  # 256 MB
        time.sleep(0.3)
    elif how == "memory":
        held = [np.ones(2**21) for _ in range(256)]  # 4 GB in arrays of 16 MB
        time.sleep(5)
    elif how == "raise":
        raise ArithmeticError("no number")
    elif how == "sleep":
        time.sleep(3600)
    elif how == "loop":
        while True:
            pass
    elif how == "lock":
        re.match("(a+)+$", "a" * 64 + "b")  # one call that does not end and holds the GIL


def meet(n, name, trials):
    for trial in trials:
        misbehave(FAILING.get((n, name, trial), ""))


def simulate(cell, streams):
    meet(cell["n"], "simulate", streams.trials)
    return cell["n"], streams.uniforms(3)


def evaluate(name):
    def method(data, setting, streams):
        n, uniforms = data
        mark = Path(BUSY, str(os.getpid()))
        if BUSY:
            mark.touch()  # marks a worker that is computing a block
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
"""


def write_study(folder: Path, seconds: float = 0.0, failing: FailingTrials | None = None) -> Path:
    """Write the study file, and return its path.

    Parameters
    ----------
    folder : Path
        Folder for the file; its subfolder ``busy`` contains one file per process that is computing a block.
    seconds : float
        Time that a method takes per block.
    failing : mapping
        Mapping from cell (of both panels), method or ``simulate``, and trial to the kind of failure.
    """
    (folder / "busy").mkdir(exist_ok=True)
    head = f"SECONDS, FAILING, BUSY = {seconds}, {dict(failing or {})}, {str(folder / 'busy')!r}"
    path = folder / "disturbed.py"
    text = _FILE.replace('SECONDS, FAILING, BUSY = 0.0, {}, ""', head)
    assert text != _FILE
    path.write_text(text)
    return path


@lru_cache
def undisturbed(part: Part = WHOLE) -> dict[str, np.ndarray]:
    """Return the arrays, by path, of a store that is computed without faults."""
    values = {} if part.n_cells is None else {"n": range(part.n_cells)}
    with tempfile.TemporaryDirectory() as folder:
        study = find_study(str(write_study(Path(folder))), {}).load()
        study = study.configure(trials=part.trials, panels=part.panels, values=values)
        return read_arrays(compute_into(Path(folder, "whole.zarr"), study).url)


def unequal(store: Path, failed: Failed, part: Part = WHOLE) -> str:
    """Compare a store with an undisturbed one, bit by bit.

    Parameters
    ----------
    store : Path
        The store.
    failed : mapping
        Expected failure status by panel, cell, method and trial; all other trials must equal `undisturbed`.
    part : Part
        Part of the study that was run.

    Returns
    -------
    str
        Names of arrays that are not bit-identical; empty if all are.
    """
    wanted = {name: values.copy() for name, values in undisturbed(part).items()}
    for (panel, n, method, trial), status in failed.items():
        place = n, METHODS.index(method)
        wanted[f"{panel}/x"][(*place, trial)] = np.nan
        wanted[f"{panel}/status"][(*place, trial)] = status
        if not (wanted[f"{panel}/status"][place] == Status.OK).any():
            wanted[f"{panel}/square"][place] = np.nan
    found = read_arrays(store)
    if found.keys() != wanted.keys():
        return "arrays: " + ", ".join(sorted(found.keys() ^ wanted.keys()))
    for name in [name for name in found if name.endswith("/error")]:  # for errors, only their presence is compared
        wanted[name] = np.isin(wanted[name.replace("error", "status")], FAILURES)
        found[name] = found[name] != ""
    return ", ".join(name for name in found if not _same_bits(found[name], wanted[name]))


@dataclass(frozen=True)
class Outcome:
    """Outcome of a fault.

    Attributes
    ----------
    fault : str
        Description of the fault.
    seen : str
        Exit code and message of the affected command.
    state : str
        Final state of the store, or the violated requirements.
    right : bool
        True if all requirements hold: each trial has the right bits or a stored failure, and messages are correct.
    """

    fault: str
    seen: str
    state: str
    right: bool


def describe(failed: Failed, part: Part) -> str:
    """Describe a store in which exactly the trials of `failed` have failed."""
    n_trials = sum(part.n_cells or N_CELLS[panel] for panel in part.panels) * len(METHODS) * part.trials
    text = f"{n_trials - len(failed)} of {n_trials} trials ok, bit by bit"
    if not failed:
        return text
    names = {status.name.lower().replace("_", " ") for status in failed.values()}
    return f"{text}; {len(failed)} {' or '.join(sorted(names))}, and no other"


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(np.array_equal(one.view("u8"), other.view("u8")) if one.dtype.kind == "f" else (one == other).all())


def n_committed(store: Path) -> int:
    """Return the number of committed trials, which is 0 if there is no store."""
    if not (store / "zarr.json").exists():
        return 0
    root = zarr.open_group(store, mode="r")
    return sum(int((np.asarray(root[f"{p}/status"][...]) != 0).sum()) for p in N_CELLS if f"{p}/status" in root)
