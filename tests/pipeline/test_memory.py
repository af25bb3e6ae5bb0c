"""Tests that summaries and counts allocate memory for one cell only."""

import gc
import tracemalloc

import dask.array
import numpy as np
import pytest
import xarray as xr

from pipeline import Factor, open_results, summarise
from pipeline.blocks.evaluate import Block, Status, evaluate_block
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from tests.pipeline.helpers import count_status, create_store, panel_of, writing
from tests.pipeline.toy import STUDY

MEGABYTE = 2**20
N = 2_000_000


def peak_of(function, *arguments):
    """Return the result of a call, and the peak number of bytes allocated during the call."""
    gc.collect()
    tracemalloc.start()
    try:
        return function(*arguments), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lazy_cell(n_trials, n_outputs=1, chunk=100_000):
    """Return one cell of lazily generated normal draws in which each tenth trial has failed."""

    def draw(shape, block_info=None):
        start = block_info[None]["array-location"][0][0] if block_info else 0
        return np.random.default_rng(start).normal(size=shape)

    chunks = (tuple([chunk] * (n_trials // chunk)), (n_outputs,))
    draws = dask.array.map_blocks(
        lambda block_info=None: draw(block_info[None]["chunk-shape"], block_info), chunks=chunks, dtype=float
    )
    status = dask.array.map_blocks(
        lambda k: np.where(k % 10, 1, 2).astype(np.int8), dask.array.arange(n_trials, chunks=chunk)
    )
    return xr.Dataset({"x": (("trial", "level"), draws), "status": ("trial", status)})


@pytest.mark.slow
def test_summary_needs_memory_for_one_cell():
    """A summary allocates eight bytes per trial of one cell, and a few megabytes for reading and reduction."""
    summarise(lazy_cell(1_000, chunk=500))  # imports modules
    summary, peak = peak_of(summarise, lazy_cell(N))
    assert int(summary["n_ok"]) == N * 9 // 10
    assert peak < 8 * N + 8 * MEGABYTE


@pytest.mark.slow
def test_summary_of_large_outputs_is_divided(monkeypatch):
    n_trials, n_outputs, n_held = 100_000, 16, 4
    monkeypatch.setattr("pipeline.results.summaries._COLUMN_BYTES", 8 * n_trials * n_held)
    ds = lazy_cell(n_trials, n_outputs, chunk=20_000)
    summary, peak = peak_of(summarise, ds)
    assert peak < 8 * n_trials * n_outputs  # all outputs together would need more memory
    monkeypatch.undo()
    xr.testing.assert_identical(summary, summarise(ds.load()))


def large_study(n_cells=100, n_trials=10**6, block_trials=10**5):
    cells = Factor("n", tuple(range(n_cells)), "number of the cell", "int")
    return panel_of(STUDY, "single", factors=(cells,), trials=n_trials, block_trials=block_trials)


def test_count_of_a_hundred_million_pending_trials(tmp_path):
    """Trials count as pending if their chunk is absent, or if the budget was exhausted before they were tried."""
    study = large_study()
    create_store(tmp_path / "s.zarr", study)
    panel, block = study.panels[0], Block("single", 50, range(10**5, 2 * 10**5))
    with (
        writing(tmp_path / "s.zarr") as store,
        BlockWriter(store).commit([Planned(panel, block, panel.settings())]) as commit,
    ):
        (outcome,) = evaluate_block(study, block, panel.settings())
        outcome.status[:10] = [0, 2, 2, 3, 4, 5, 0, 0, 0, 0]
        commit.write(panel, block, panel.settings()[0], outcome)
    counts, peak = peak_of(count_by_status, store, "single")
    ok = 10**5 - 10
    assert [counts[status] for status in Status] == [10**8 - ok - 5, ok, 2, 1, 1, 1, 0]
    assert sum(counts.values()) == 10**8
    assert peak < 16 * MEGABYTE


def test_opening_a_store_reads_no_trial_coordinate(tmp_path):
    create_store(tmp_path / "s.zarr", large_study(1))
    tree, peak = peak_of(open_results, tmp_path / "s.zarr")
    assert peak < 4 * MEGABYTE  # the trial coordinate needs 8 MB
    ds = tree["single"].to_dataset()
    raw = xr.open_zarr(tmp_path / "s.zarr", group="single")
    xr.testing.assert_identical(ds["trial"].load(), raw["trial"].load())
    assert ds["trial"].dtype == np.int64
    assert int(ds["trial"].sel(trial=7)) == 7


@pytest.mark.parametrize("name", [panel.name for panel in STUDY.panels])
def test_count_equals_the_stored_statuses(complete_store, name):
    opened = ResultStore.open(complete_store)
    assert count_by_status(opened, name) == count_status(open_results(complete_store)[name].to_dataset())
    panel = STUDY.panel(name)
    n_positions = int(np.prod([len(axis.values) for axis in (*panel.factors, *panel.method_axes)]))
    assert sum(count_by_status(opened, name).values()) == n_positions * panel.n_trials
