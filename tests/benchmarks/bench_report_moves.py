"""The way of a store in `report`: functions and modules that receive it, or a data set opened from it.

A stay is a function of this project that is called with the store or with such a data set as an argument, counted once.
The modules are those of the stays. A return is a first stay in a module that the store has visited and left before.

    python tests/benchmarks/bench_report_moves.py [STORE]
"""

import sys
import tempfile
from collections.abc import Callable
from typing import Any

import xarray as xr
from bench_moves import trace_calls
from measuring import SMALLEST

import pipeline
from pipeline.runs.resolve import study_of
from pipeline.store.result_store import ResultStore, open_complete
from studies import STUDIES
from studies.report import write_report

SIZE = {"trials": 20, "values": {"n": [10, 20], "mechanism": ["smooth", "laplace"]}} if SMALLEST else {"trials": 100}
GOALS = {"stays": 20, "modules": 12, "returns": 8}


def follow(call: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return module and name of each function that receives a store or its data, in the order of their first calls."""
    stays: dict[tuple[str, str], None] = {}

    def note(frame: Any) -> None:
        code, module = frame.f_code, frame.f_globals.get("__name__", "")
        if not module.startswith(("pipeline", "studies")) or code.co_filename == "<string>":
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(_is_store(frame.f_locals.get(name)) for name in names):
            stays[module, code.co_qualname] = None

    trace_calls(call, note)
    return list(stays)


def _is_store(value: Any) -> bool:
    """Return True for a store, and for a data set or variable with trials; a summary has none."""
    return isinstance(value, ResultStore) or (isinstance(value, xr.Dataset | xr.DataArray) and "trial" in value.dims)


def count_ways(stays: list[tuple[str, str]]) -> dict[str, int]:
    """Return the numbers of stays, modules and returns."""
    path = [module for module, _ in stays]
    visits = [module for k, module in enumerate(path) if k == 0 or path[k - 1] != module]
    return {"stays": len(stays), "modules": len(set(path)), "returns": len(visits) - len(set(visits))}


def measure(path: str, folder: str) -> list[tuple[str, str]]:
    """Return the stays of the store at a path, from `write_report`."""
    store = open_complete(path)
    _, study = study_of(store, STUDIES.get(store.spec["study"]), only_reads=True)
    write_report(store, study, f"{folder}/first.html")  # imports
    store = open_complete(path)
    return follow(lambda: write_report(store, study, f"{folder}/report.html"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        given = [word for word in sys.argv[1:] if word != "--smallest"] or [
            pipeline.run(STUDIES["hellinger-accuracy"], f"{folder}/s.zarr", panels=["k2"], **SIZE).url
        ]
        stays = measure(given[0], folder)
    print(", ".join(f"{n} {name} (goal {GOALS[name]})" for name, n in count_ways(stays).items()))
    for module, name in stays:
        print(f"  {module}.{name}")
