"""Tests that after each fault, every trial is committed with the right bits, stored as failed, or pending."""

import numpy as np
import pytest
import zarr

from pipeline.blocks.evaluate import Status
from pipeline.runs.run import run
from tests.pipeline.faults.harness import NotPossibleError
from tests.pipeline.faults.scenarios import SCENARIOS
from tests.pipeline.faults.study import METHODS, Part, undisturbed, unequal, write_study

# slow or redundant faults and faults that need idle cores are injected by `python -m tests.fault_table` only
LEFT_OUT = {
    "trial holds the lock",
    "time limit with threads",
    "workers killed",
    "workers paused",
    "simulation kills",
    "all trials kill",
    "out of memory",
    "trial sleeps",
    "trial loops",
    "extension killed",
}


# faults that other tests of the gate inject, within one process or at random
EXHAUSTIVE = {
    "cut chunk",
    "missing chunk",
    "damaged coordinate",
    "another version",
    "transient errors",
    "expired credential",
    "missing module",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in EXHAUSTIVE else ())
        for name in SCENARIOS
        if name not in LEFT_OUT
    ],
)
def test_fault(name, tmp_path):
    try:
        outcome = SCENARIOS[name](tmp_path)
    except NotPossibleError as reason:
        pytest.skip(str(reason))
    assert outcome.right, outcome


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the path of a store that is computed without faults."""
    folder = tmp_path_factory.mktemp("whole")
    return run(str(write_study(folder)), folder / "s.zarr", panels=["p"]).url


PART = Part(("p",))


def test_an_undisturbed_store_is_equal(whole):
    assert unequal(whole, {}, PART) == ""
    assert len(undisturbed(PART)) == 7


@pytest.mark.slow
@pytest.mark.parametrize("array", ["p/x", "p/square", "p/status", "p/error", "p/n", "p/trial"])
def test_one_changed_value_is_detected(whole, array):
    """The comparison of stores fails if one value is changed (negative control)."""
    stored = zarr.open_group(whole, mode="r+")[array]
    place = (1,) * stored.ndim
    before = stored[place]
    changed = {"f": lambda: np.nextafter(before, 9), "i": lambda: before + 1}.get(stored.dtype.kind, lambda: "words")()
    stored[place] = changed
    assert unequal(whole, {}, PART) == array
    stored[place] = before
    assert unequal(whole, {}, PART) == ""


def test_failure_that_is_not_stored_is_detected(whole):
    failed = {("p", 1, METHODS[0], 2): Status.KILLED}
    assert unequal(whole, failed, PART) == "p/error, p/status, p/x"
