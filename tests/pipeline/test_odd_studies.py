"""Tests that every trial ends with the right status, whatever a method or a simulation raises, returns or does."""

import numpy as np
import pytest

from pipeline.store.datasets import open_results
from tests.pipeline import odd_study
from tests.pipeline.faults.harness import LOCAL_CLUSTER, write_profile
from tests.pipeline.helpers import run_python

PROGRAM = """
import sys, pipeline
if __name__ == "__main__":
    store, cluster, *panels = sys.argv[1:]
    pipeline.run({file!r}, store, cluster=cluster, panels=panels, progress=False)
"""
SYMBOLS = {"o": 1, "!": 2, "k": 4}


def run_apart(folder, cluster, *panels):
    """Run the study in a process of its own, which must end within the time limit; return its results."""
    program = folder / "run.py"
    program.write_text(PROGRAM.format(file=odd_study.__file__))
    done = run_python(program, folder / "s.zarr", cluster, *panels)
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: panel.to_dataset().load() for name, panel in open_results(folder / "s.zarr").children.items()}


@pytest.fixture(scope="module")
def on_threads(tmp_path_factory):
    return run_apart(tmp_path_factory.mktemp("odd"), "threads")


def check_case(results, name, case, plain="oooo"):
    ds = results[name]
    for method, symbols in (("odd", case.statuses), ("plain", plain)):
        statuses = np.array([SYMBOLS[symbol] for symbol in symbols])
        one = ds.sel(algorithm=method)
        np.testing.assert_array_equal(one.status, statuses)
        errors = one.error.values
        np.testing.assert_array_equal(errors != "", statuses != 1)
        assert all(len(text.encode()) < 50_000 for text in errors)
        assert all(case.cause in text for text in errors[statuses != 1])
    values = ds.x.sel(algorithm="plain").values.reshape(4, -1).astype(float)
    kept = np.array(list(plain)) == "o"
    np.testing.assert_array_equal(values[kept], np.repeat(np.arange(1.0, 5)[:, None], values.shape[1], axis=1)[kept])
    if ds.x.dtype.kind == "f":
        is_missing = ds.x.isnull().values.reshape(2, 4, -1).any(axis=2)
        missing = [] if "ragged" not in name else [(0, odd_study.ODD)]
        np.testing.assert_array_equal(np.argwhere(is_missing & (ds.status == 1).values).tolist(), missing)
        assert is_missing[ds.status != 1].all()


@pytest.mark.parametrize("name", odd_study.CASES)
def test_odd_method_ends_with_the_right_statuses(on_threads, name):
    check_case(on_threads, name, odd_study.CASES[name])


@pytest.mark.parametrize("name", odd_study.SIMULATIONS)
def test_odd_simulation_ends_with_the_right_statuses(on_threads, name):
    check_case(on_threads, name, odd_study.SIMULATIONS[name], odd_study.SIMULATIONS[name].statuses)


PROCESSES = (
    "base-exception",
    "keyboard-interrupt",
    "generator-exit",
    "unpicklable",
    "surrogate",
    "masked",
    "fork-returns",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "simulations"),
    [
        (("keyboard-interrupt", "fork-returns"), ()),
        pytest.param(PROCESSES, tuple(odd_study.SIMULATIONS), marks=pytest.mark.exhaustive),
    ],
)
def test_statuses_on_processes(tmp_path, names, simulations):
    """Trials that end their process are isolated, and later blocks are computed in child processes."""
    cases = {**{name: odd_study.CASES[name] for name in names}, **odd_study.KILLING}
    profile = write_profile(tmp_path, **LOCAL_CLUSTER, kwargs={"n_workers": 1})
    results = run_apart(tmp_path, profile, *cases, *simulations)
    for name, case in cases.items():
        check_case(results, name, case)
    for name in simulations:
        case = odd_study.SIMULATIONS[name]
        check_case(results, name, case, case.statuses)
