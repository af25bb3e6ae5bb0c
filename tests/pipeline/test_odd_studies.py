"""Tests that every trial ends with the right status, whatever a method or a simulation raises, returns or does."""

import subprocess
import sys

import numpy as np
import pytest

from pipeline.stores.results import open_results
from tests.pipeline import odd_study

SECONDS = 60
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
    words = [sys.executable, str(program), str(folder / "s.zarr"), cluster, *panels]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=SECONDS)
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
