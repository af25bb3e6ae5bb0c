"""Tests that memory, reads, Dask chunks and round trips do not grow with the number of blocks."""

import gc
import math
import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import zarr
from distributed import Client

import pipeline
from pipeline import Factor, Measure
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import Status
from pipeline.execution.work import PendingWork
from pipeline.store import datasets
from pipeline.store.codec import regions
from pipeline.store.codec.chunk_digests import ABSENT
from pipeline.store.codec.regions import iterate_slabs
from pipeline.store.files import local_files
from pipeline.store.files.locations import SESSIONS
from pipeline.store.scan.states import ok_trials
from tests.pipeline.faults.file_operations import call_before
from tests.pipeline.helpers import commit_block, count_status, create_store, panel_of, writing
from tests.pipeline.toy import STUDY

pytestmark = pytest.mark.slow  # this file takes half a minute or more

BYTES_PER_BLOCK = 200


def study_of(n_cells, n_blocks, **changes):
    cells = Factor("n", tuple(range(n_cells)), "number of the cell", "int")
    return panel_of(STUDY, "single", trials=n_blocks, block_trials=1, factors=(cells,), **changes)


def create(path, study, has_chunks=False):
    """Create a store of pending trials, on request with a status chunk for each block, as after an extension."""
    store = create_store(path, study)
    if has_chunks:
        n_cells, n_blocks = len(study.panels[0].cells()), study.panels[0].n_trials
        region = (slice(0, 1),) * 3
        (content,) = store.chunks.encode("single", "status", [region], np.zeros((1, 1, 1), "int8")).values()
        for cell in range(n_cells):
            (path / f"single/status/c/{cell}/0").mkdir(parents=True)
            for block in range(n_blocks):
                key = f"single/status/c/{cell}/0/{block}"
                digests = ABSENT * len(store.chunk_digests.variables["single"])
                (path / key).write_bytes(store.chunk_digests.bind(key, content, digests))
    return store


@pytest.fixture
def reads(monkeypatch):
    """Return the list of the keys of all files of stores that are read from now on."""
    keys = []
    call_before(monkeypatch, "read", lambda files, key: keys.append(key))
    return keys


def growth(tmp_path, shapes, has_chunks=True):
    """Return the memory per additional block, in bytes, of the list of pending blocks."""
    peaks = [least_peak(tmp_path / f"{index}.zarr", shape, has_chunks) for index, shape in enumerate(shapes)]
    return (peaks[1] - peaks[0]) / (math.prod(shapes[1]) - math.prod(shapes[0]))


def least_peak(path, shape, has_chunks):
    """Return the least peak memory, in bytes, of several lists of pending blocks of a store.

    The first fills the caches of Zarr and NumPy; threads of earlier tests may allocate memory during any of them.
    """
    study, peaks = study_of(*shape), []
    store = create(path, study, has_chunks)
    study.panels[0].cells()  # caches the values of cells, which belong to the study
    for _ in range(2):
        gc.collect()
        tracemalloc.start()
        assert sum(len(work.block.trials) for work in PendingWork(study, store)) == math.prod(shape)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return min(peaks)


@pytest.mark.parametrize(
    "has_chunks",
    [pytest.param(True, id="with chunks"), pytest.param(False, id="without", marks=pytest.mark.exhaustive)],
)
@pytest.mark.parametrize("shapes", [((1, 100), (1, 900)), ((100, 1), (900, 1))], ids=["blocks", "cells"])
def test_memory_of_pending_work(tmp_path, monkeypatch, shapes, has_chunks):
    monkeypatch.setattr(regions, "SLAB_CHUNKS", 20)
    monkeypatch.setattr(local_files, "_MOST_CHECKED", 20)
    assert growth(tmp_path, shapes, has_chunks) < BYTES_PER_BLOCK


def test_memory_test_detects_reading_all_chunks_at_once(tmp_path):
    assert growth(tmp_path, ((1, 100), (1, 900))) > BYTES_PER_BLOCK


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((), ()), ((7,), (2,)), ((3, 2500), (1, 2)), ((1100, 2, 3), (1, 1, 3)), ((2, 1001, 3), (1, 1, 1))],
)
def test_slabs_cover_an_array_once(shape, chunks):
    array = zarr.create_array({}, shape=shape, chunks=chunks, dtype="i1")
    cover, grid = np.zeros(shape, int), np.zeros(array.cdata_shape, int)
    for part, region in iterate_slabs(array):
        cover[region] += 1
        grid[part] += 1
        assert grid[part].size <= 1000
        assert all(along.start % size == 0 for along, size in zip(region, chunks, strict=True))
    assert (cover == 1).all()
    assert (grid == 1).all()


def test_each_status_is_read_once(tmp_path, reads):
    study = study_of(30, 20)
    store = create(tmp_path / "s.zarr", study)
    reads.clear()
    assert len(PendingWork(study, store)) == 600
    asked = sorted(key for key in reads if not key.startswith(SESSIONS))
    assert asked == sorted(f"single/status/c/{cell}/0/{block}" for cell in range(30) for block in range(20))


def test_committed_trial_is_found_in_the_last_cells(tmp_path, reads):
    """The last cells, which are computed first, are read first, so that a committed trial is found early."""
    study = study_of(2_500, 1)
    path, panel = create(tmp_path / "s.zarr", study).url, study.panels[0]
    first = next(iterate_blocks(panel))
    with writing(path) as store:
        commit_block(store, study, panel, first)
    reads.clear()
    assert next(ok_trials(store, panel, panel.settings()[0])) == first
    assert 0 < len(reads) <= 1000
    assert f"single/status/c/{first.cell}/0/0" in reads


@pytest.mark.parametrize(("shape", "expected"), [((1, 3_000), 100), ((3_000, 1), 100), ((10, 9), 90)])
def test_dask_chunks_are_consecutive_blocks(tmp_path, shape, expected):
    create(tmp_path / "s.zarr", study_of(*shape))
    ds = pipeline.open_results(tmp_path / "s.zarr")["single"].to_dataset()
    assert ds["status"].data.npartitions == ds["heads"].data.npartitions == expected
    assert count_status(ds)[Status.PENDING] == math.prod(shape)


def test_dask_chunks_fit_into_memory(tmp_path, monkeypatch):
    """Blocks are merged into Dask chunks up to the memory limit; a larger block remains a chunk of its own."""
    monkeypatch.setattr(datasets, "_DASK_BYTES", 2_400)
    for points, expected in ((100, 200), (200, 600), (400, 600)):
        axis = Factor("point", tuple(range(points)), "a point", "int")
        measure = Measure("curve", "a curve", dims=("point",))
        create(tmp_path / f"{points}.zarr", study_of(1, 600, outputs=(axis,), measures=(measure,)))
        ds = pipeline.open_results(tmp_path / f"{points}.zarr")["single"].to_dataset()
        assert ds["curve"].data.npartitions == expected


def test_round_trips_to_the_scheduler(tmp_path, monkeypatch):
    """Blocks are sent in batches, and the number of workers is queried at most once per second."""
    calls = Counter()

    def counted(name):
        method = getattr(Client, name)

        def call(client, *arguments, **options):
            calls[name] += 1
            return method(client, *arguments, **options)

        monkeypatch.setattr(Client, name, call)

    for name in ("nthreads", "submit"):
        counted(name)
    study, started = study_of(40, 10), time.monotonic()
    pipeline.run(study, tmp_path / "s.zarr")
    # two checks list the workers before the run, which counts their threads at its start and once a second
    assert 1 <= calls["nthreads"] <= 3 + (time.monotonic() - started)
    assert calls["submit"] <= 200  # 400 blocks: batches become smaller towards the end of the run
