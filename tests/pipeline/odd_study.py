"""Study of methods that raise, return or do something odd, for tests of statuses; also used as a study file.

Each panel has a method `odd` and a method `plain` on the same four trials of one block. `CASES` states the statuses
that `odd` must have, o for ok and ! for failed; those of `plain` are ok, unless the simulation is odd.
"""

import asyncio
import concurrent.futures
import decimal
import errno
import os
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import xarray as xr

from pipeline import Factor, Measure, Method, Panel, Study
from pipeline.errors import BadInputError, ExecutionError
from pipeline.execution.in_flight import TransientError

ODD = 1
"""Trial that is odd."""
LEVELS = (0.1, 0.5)


class PanicError(BaseException):
    """Exception that is no `Exception`, such as those of extensions written in Rust."""


def panicking(*names):
    """Return an exception whose methods or properties of these names raise `PanicError`."""

    def panic(*_):
        raise PanicError("panic")

    is_property = {"__traceback__", "__class__"}
    members = {name: property(panic) if name in is_property else panic for name in names}
    return type("PanickingError", (Exception,), members)()


class UnpicklableError(Exception):
    def __init__(self):
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class UncallableError(Exception):
    def __init__(self, first, second):
        super().__init__("cannot be unpickled")


class NamelessMeta(type):
    @property
    def __name__(cls):
        raise PanicError("no name")


class NamelessError(Exception, metaclass=NamelessMeta):
    def __str__(self):
        raise PanicError("no text")


class OddText(str):
    def __len__(self):
        raise PanicError("no length")


class OddTextError(Exception):
    def __str__(self):
        return OddText("odd")


class Length(float):
    units = "cm"


class Quantity:
    units = "cm"

    def __array__(self, dtype=None, copy=None):
        return np.ones(4)


@dataclass(frozen=True)
class Case:
    """Odd method: a function of the data and the streams that returns the values, and the statuses of its trials."""

    values: Callable
    statuses: str = "oooo"
    cause: str = ""
    measure: dict = field(default_factory=dict)


def raising(error):
    """Return a case whose odd trial raises the exception that a function returns."""

    def values(data, streams):
        if ODD in streams.trials:
            raise error()
        return data["x"]

    return Case(values, "o!oo")


def recurse(depth=0):
    return recurse(depth + 1)


def recurse_in_turn():
    return (lambda: recurse_in_turn())()


def calling(function):
    return Case(lambda data, streams: (function(), data["x"])[1])


def returning(convert, statuses="oooo", cause="", **measure):
    """Return a case whose values are those of the trials, converted by a function."""
    return Case(lambda data, streams: convert(data["x"], streams.trials), statuses, cause, measure)


def chained():
    error = ValueError("first")
    error.__cause__ = error.__context__ = error
    return error


def forked(child):
    """Return a case that forks; the function runs in the child process, which then continues if it returns."""

    def values(data, streams):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            identifier = os.fork()
        if identifier == 0:
            child()
        else:
            os.waitpid(identifier, 0)
        return data["x"]

    return Case(values)


def mutated(data, streams):
    values = data["x"] + data["more"].pop()
    data["x"] = data["more"] = values
    return values


def written(data, streams):
    data["x"] *= 2
    return data["x"]


def print_much():
    print("x" * 1000, "\udcff".encode(errors="replace"), flush=True)
    print("x" * 1000, file=sys.stderr)


def start_threads():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    thread = threading.Thread(target=recurse)
    threading.excepthook, before = lambda args: None, threading.excepthook
    thread.start()
    thread.join()
    threading.excepthook = before


def change_state():
    np.seterr(all="ignore")
    random.seed(1)
    os.chdir("/")
    os.environ["DPSTUDIES_ODD"] = "1"
    sys.setrecursionlimit(2000)


def masked(x, trials):
    return np.ma.masked_array(x, [trial == ODD for trial in trials])


def with_missing(x, trials, missing):
    return [missing if trial == ODD else value for value, trial in zip(x, trials, strict=True)]


def reversed_series(x, trials):
    return pd.Series(x, index=list(trials))[::-1]


def labelled(levels, dims=("level", "trial")):
    return lambda x, trials: xr.DataArray(np.stack([x, x + 1]), dims=dims, coords={"level": list(levels)})


WIDE = {"dims": ("level",)}
CASES = {
    # exceptions
    "base-exception": raising(lambda: PanicError("panic")),
    "system-exit": raising(lambda: SystemExit(0)),
    "keyboard-interrupt": raising(KeyboardInterrupt),
    "generator-exit": raising(GeneratorExit),
    "cancelled": raising(asyncio.CancelledError),
    "future-cancelled": raising(concurrent.futures.CancelledError),
    "stop-iteration": raising(StopIteration),
    "stop-async-iteration": raising(StopAsyncIteration),
    "memory": raising(MemoryError),
    "group": raising(lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError("one")])),
    "disk": raising(lambda: OSError(errno.EIO, "input/output error")),
    "full": raising(lambda: OSError(errno.ENOSPC, "no space")),
    "timeout": raising(TimeoutError),
    "connection": raising(ConnectionResetError),
    "end-of-file": raising(EOFError),
    "bad-input": raising(lambda: BadInputError("bad")),
    "execution": raising(lambda: ExecutionError("stop")),
    "transient": raising(lambda: TransientError("again")),
    "unprintable": raising(lambda: panicking("__str__", "__repr__")),
    "hostile-attributes": raising(lambda: panicking("__getattribute__")),
    "hostile-traceback": raising(lambda: panicking("__traceback__")),
    "hostile-class": raising(lambda: panicking("__class__")),
    "hostile-name": raising(NamelessError),
    "hostile-text": raising(OddTextError),
    "unpicklable": raising(UnpicklableError),
    "uncallable": raising(lambda: UncallableError(1, 2)),
    "surrogate": raising(lambda: ValueError("file \udcff")),
    "null": raising(lambda: ValueError("a\0b\n\n")),
    "empty": raising(lambda: ValueError("")),
    "long-text": raising(lambda: ValueError("x" * 10**7)),
    "chained": raising(chained),
    "recursion": Case(lambda data, streams: recurse() if ODD in streams.trials else data["x"], "o!oo"),
    "recursion-in-turn": Case(lambda data, streams: recurse_in_turn() if ODD in streams.trials else data["x"], "o!oo"),
    # values
    "list": returning(lambda x, trials: x.tolist()),
    "tuple": returning(lambda x, trials: tuple(x)),
    "float32": returning(lambda x, trials: x.astype("f4")),
    "wide-float": returning(lambda x, trials: x.astype(np.longdouble)),
    "boolean": returning(lambda x, trials: x > 0),
    "objects": returning(lambda x, trials: x.astype(object)),
    "text": returning(lambda x, trials: [str(value) for value in x], "!!!!", "x must be real numbers, got dtype <U"),
    "generator": returning(lambda x, trials: (one for one in x), "!!!!"),
    "masked": returning(masked, "o!oo", "x is masked or missing"),
    "masked-rows": returning(
        lambda x, trials: list(masked(np.stack([x, x], axis=1), [(t, t) for t in trials])), **WIDE
    ),
    "masked-items": returning(
        lambda x, trials: with_missing(x, trials, np.ma.masked), "o!oo", "x is masked or missing"
    ),
    "masked-ragged": returning(masked, ragged=True),
    "masked-integers": returning(
        lambda x, trials: masked(x, trials).astype(int), "o!oo", "x is masked or missing", dtype="int64"
    ),
    "pandas-missing": returning(
        lambda x, trials: pd.array(with_missing(x.astype(int), trials, None), dtype="Int64"),
        "o!oo",
        "x is masked or missing",
    ),
    "none-item": returning(lambda x, trials: with_missing(x, trials, None), "o!oo", "x is masked or missing"),
    "no-time": returning(lambda x, trials: with_missing(x, trials, pd.NaT), "o!oo", "x is masked or missing"),
    "series": returning(lambda x, trials: pd.Series(x, index=list(trials))),
    "series-in-other-order": returning(reversed_series),
    "frame-in-other-order": returning(
        lambda x, trials: pd.DataFrame({0.5: x, 0.1: x + 1}), "!!!!", "x must have the values of level", **WIDE
    ),
    "dimensions-in-other-order": returning(labelled(LEVELS), **WIDE),
    "coordinates-in-other-order": returning(labelled(LEVELS[::-1]), "!!!!", "x must have the values of level", **WIDE),
    "other-dimensions": returning(labelled(LEVELS, ("level", "draw")), "!!!!", "x must have the dimensions", **WIDE),
    "decimals": returning(lambda x, trials: [decimal.Decimal(str(one)) for one in x], "!!!!", "x must be real numbers"),
    "units": returning(lambda x, trials: Quantity(), "!!!!", "x must be plain numbers, got Quantity"),
    "units-of-items": returning(
        lambda x, trials: with_missing(x, trials, Length(1.0)),
        "o!oo",
        "x must be plain numbers, got Length, whose unit",
    ),
    "units-of-objects": returning(
        lambda x, trials: np.array(with_missing(x, trials, Length(1.0)), object), "o!oo", "x must be plain numbers"
    ),
    "large-integers": returning(lambda x, trials: [2**63 + 1] * len(x), dtype="uint64"),
    # actions
    "fork-exits": forked(lambda: os._exit(0)),
    "fork-raises": forked(recurse),
    "fork-leaves": forked(lambda: sys.exit(3)),
    "fork-returns": forked(lambda: None),
    "subprocess": calling(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)),
    "threads": calling(start_threads),
    "prints": calling(print_much),
    "mutates-containers": Case(mutated),
    "mutates-arrays": Case(written, "!!!!", "read-only"),
    "fewer-nested-calls": calling(lambda: sys.setrecursionlimit(60)),
    "global-state": calling(change_state),
}
SIMULATIONS = {
    f"simulate-{name}": CASES[name] for name in ("base-exception", "keyboard-interrupt", "generator-exit", "surrogate")
}


def exiting(data, streams):
    if ODD in streams.trials:
        os._exit(0)
    return data["x"]


KILLING = {"exits": Case(exiting, "okoo")}


def simulate(cell, streams):
    return {"x": np.array(streams.trials) + 1.0, "more": [1.0]}


def simulate_oddly(case):
    def simulate_case(cell, streams):
        data = simulate(cell, streams)
        return {**data, "x": case.values(data, streams)}

    return simulate_case


def make_panel(name, case, simulation=simulate):
    is_wide = "dims" in case.measure

    def odd(data, setting, streams):
        return {"x": data["x"] if simulation is not simulate else case.values(data, streams)}

    def plain(data, setting, streams):
        return {"x": np.stack([data["x"]] * 2, axis=1) if is_wide else data["x"]}

    outputs = (Factor("level", LEVELS, "level"),) if is_wide else ()
    measures = (Measure("x", "a number", **case.measure),)
    methods = (Method("odd", odd), Method("plain", plain))
    return Panel(name, "", simulation, methods, measures, outputs=outputs, trials=4, block_trials=4)


STUDY = Study(
    "odd",
    "Odd methods",
    "To end each trial with the right status.",
    (
        *(make_panel(name, case) for name, case in CASES.items()),
        *(make_panel(name, case, simulate_oddly(case)) for name, case in SIMULATIONS.items()),
        *(replace(make_panel(name, case), on_demand=True) for name, case in KILLING.items()),
    ),
    seed=1,
)
