"""Helpers of the pipeline tests: raw arrays and files of a store, and outcomes by name."""

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import zarr
from obstore.store import MemoryStore, from_url
from threadpoolctl import threadpool_info
from zarr.storage import ObjectStore

from pipeline import BadInputError, Measure, Method, Panel, Study
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import Block, Status, evaluate_block
from pipeline.execution.work import PendingWork
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.creation import create_empty_store, grow_store
from pipeline.store.files.locations import STATE, is_local
from pipeline.store.files.object_clients import list_paths, open_objects
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import COMMITTED, block_states
from pipeline.store.sessions.lease import Session
from pipeline.store.sessions.records import SESSION_COPIES
from tests.pipeline.faults.file_operations import CrashError, crash_at

WRITING = f"{STATE}/writing"
TOY_FILE = Path(__file__).with_name("toy.py")

STUDY_TEXT = """
from pipeline import Factor, Measure, Method, Panel, Study
{head}

def simulate(cell, streams):
    return streams.uniforms(1)[:, 0]

def evaluate(data, setting, streams):
    {before}
    return {{"x": {x}}}

METHODS, MEASURES, SIZES = (Method("m", evaluate),), (Measure("x", "a number"),), (Factor("n", {n}, "size", "int"),)
PANEL = Panel("p", "a panel", simulate, METHODS, MEASURES, SIZES, trials={trials}, block_trials={block_trials})
STUDY = Study("mine", "Mine", "To test.", (PANEL,), seed=1)
"""


def write_study_file(path, x="data", before="pass", head="", n=(1,), trials=4, block_trials=2):
    """Write the file of a study of one method, and return its path.

    The file has the code of the values `x`, of a statement `before` them, and of statements at its head.
    """
    values = {"x": x, "before": before, "head": head, "n": n, "trials": trials, "block_trials": block_trials}
    Path(path).write_text(STUDY_TEXT.format(**values))
    return str(path)


def edit(path, old="OFFSET = 0", new="OFFSET = 100"):
    """Replace a text of a file, which occurs once."""
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def read_arrays(store):
    """Return all arrays of a store by path, read by Zarr without the pipeline."""
    members = zarr.open_group(zarr_store(store), mode="r").members(max_depth=None)
    return {name: np.asarray(item[...]) for name, item in members if isinstance(item, zarr.Array)}


def zarr_store(store):
    """Return what Zarr and xarray open for a store: the path of a folder, or an `ObjectStore` of objects."""
    url = os.fspath(store)
    if is_local(url):
        return url
    if not url.startswith("memory:"):
        return ObjectStore(from_url(url, client_options={"allow_http": True}), read_only=True)
    copy, (objects, path) = MemoryStore(), open_objects(url)  # xarray requires a group at the root
    for place in list_paths(objects, path):
        copy.put(place.removeprefix(f"{path}/"), objects.get(place).bytes())
    return ObjectStore(copy, read_only=True)


def list_objects(url, part=""):
    """Return the client of a bucket, and the metadata of all objects in it whose key contains `part`, by key."""
    objects, _ = open_objects(url)
    listed = objects.list().collect()
    return objects, {entry["path"]: entry for entry in listed if part in entry["path"]}


def object_keys(url, part=""):
    return sorted(list_objects(url, part)[1])


def assert_equal_arrays(one, other, n_least=4):
    """Assert that two stores have bit-identical arrays, except for error texts, in which tracebacks name files."""
    first, second = read_arrays(one), read_arrays(other)
    assert first.keys() == second.keys()
    assert len(first) >= n_least
    for name, values in first.items():
        if not name.endswith("/error"):
            np.testing.assert_array_equal(values, second[name], err_msg=name, strict=True)


def count_status(ds):
    """Count the trials of a panel by status, from its variable."""
    return {status: int((ds["status"] == status).sum()) for status in Status}


def chunk_file(store, panel, variable, *position):
    path = Path(store, panel, variable, "c", *map(str, position))
    assert path.is_file(), path
    return path


def file_stamps(store):
    """Return content and time of each file of a store, without the copies of session records, which grow."""
    files = (path for path in Path(store).rglob("*") if path.is_file() and path != Path(store, SESSION_COPIES))
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def run_python(*words, seconds=120, **options):
    """Run a new interpreter, whose working folder need not be this one, and return the ended process."""
    options = {"capture_output": True, "text": True, "errors": "replace", "check": False, **options}
    options["env"] = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **options.get("env", {})}
    return subprocess.run([sys.executable, *map(str, words)], timeout=seconds, **options)


COMMAND = ("-c", "from studies.cli import main; main()")
"""Words that, with `run_python`, run a command of dpstudies in an interpreter of its own."""


@contextmanager
def unchanged(*folders):
    """Assert that no file in some folders is written, removed or replaced."""

    def state():
        return [(file_stamps(folder), sorted(Path(folder).rglob("*"))) for folder in folders]

    before = state()
    yield
    assert state() == before


@contextmanager
def refusal(*texts, error=BadInputError):
    """Assert that an error in one line is raised, with these texts and without the secret of the tests, hush."""
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    assert [text for text in texts if text not in message] == [], message
    assert "\n" not in message
    assert "hush" not in message


class OtherError(BaseException):
    """An exception that is no Exception."""


def draw_uniforms(cell, streams):
    return streams.uniforms(1)[:, 0]


def returns_data(data, setting, streams):
    return {"x": data}


def make_study(*methods, name="s", **panel):
    """Return a study of one panel `p`, by default with 8 trials of uniform data; methods may be plain functions."""
    methods = tuple(one if isinstance(one, Method) else Method(one.__name__, one) for one in methods)
    default = {"simulate": draw_uniforms, "measures": (Measure("x", "a number"),), "trials": 8}
    return Study(name, "S", "To test.", (Panel("p", "a panel", methods=methods, **default | panel),), seed=1)


def panel_of(study, name, **changes):
    """Return the study with a single panel, some of whose attributes are replaced."""
    return replace(study, panels=(replace(study.panel(name), **changes),))


def evaluate_all(study, panel_name, size=None):
    """Evaluate a panel without a store: {(cell values, setting label): {name: array over trials}}."""
    panel = study.panel(panel_name)
    if size is not None:
        panel = replace(panel, block_trials=size)
    found = {}
    for k, cell in enumerate(panel.cells()):
        blocks = [block for block in iterate_blocks(panel) if block.cell == k]
        parts = [evaluate_block(study, block, panel.settings()) for block in blocks]
        for setting, outcomes in zip(panel.settings(), zip(*parts, strict=True), strict=True):
            arrays = {
                m.name: np.concatenate([o.values[m.name] for o in outcomes])
                if m.per_trial and panel.trials is not None
                else outcomes[0].values[m.name]
                for m in panel.measures
            }
            arrays["status"] = np.concatenate([o.status for o in outcomes])
            arrays["error"] = np.concatenate([o.error for o in outcomes])
            found[tuple(sorted(cell.items())), setting.label] = arrays
    return found


def assert_contained(part, whole):
    """Assert that results of `evaluate_all` are bit-identical in other results, which may have more cells."""
    assert part
    for key, arrays in part.items():
        for name, values in arrays.items():
            np.testing.assert_array_equal(values, whole[key][name], err_msg=f"{key} {name}", strict=True)


def evaluate_one(study, panel_name, method, trials, cell=0):
    """Return the outcome of the first setting of a method for some trials of a cell."""
    panel = study.panel(panel_name)
    setting = next(setting for setting in panel.settings() if setting.method.name == method)
    return evaluate_block(study, Block(panel_name, cell, trials), [setting])[0]


@contextmanager
def created(path, study, **attributes):
    """Create a store without results, opened for writing in a session that ends with the context."""
    with Session.begin(os.fspath(path), {}) as session:
        yield create_empty_store(session, study, {"study_reference": "", **attributes})


def create_store(path, study, **attributes):
    """Create a store without results, and end its session."""
    with created(path, study, **attributes):
        return ResultStore.open(path)


def grow(path, study):
    """Grow a store to a larger study without computing trials, and end the session."""
    with Session.begin(os.fspath(path), {}) as session:
        return grow_store(ResultStore.open(path, session.id), session, study)


def interrupt_creation(path, study):
    """Begin to create a store, and fail at the tenth file operation."""
    with Session.begin(os.fspath(path), {}) as session, pytest.MonkeyPatch.context() as patch:
        crash_at(patch, 9, once=True)
        with pytest.raises(CrashError):
            create_empty_store(session, study, {})


def compute_into(path, study):
    """Create a store and compute all of its blocks in this process."""
    with created(path, study) as store:
        for panel in study.panels:
            planned = [Planned(panel, block, panel.settings()) for block in iterate_blocks(panel)]
            with BlockWriter(store).commit(planned) as commit:
                for one in planned:
                    outcomes = evaluate_block(study, one.block, one.settings)
                    for setting, outcome in zip(one.settings, outcomes, strict=True):
                        commit.write(panel, one.block, setting, outcome)
    return ResultStore.open(path)


@contextmanager
def writing(path):
    """Open a store for writing, in a session that ends with the context."""
    with Session.begin(os.fspath(path), {}) as session:
        yield ResultStore.open(path, session.id)


def commit_block(store, study, panel, block, settings=None, stale=()):
    """Compute and commit some settings of one block to a store opened for a session."""
    settings = panel.settings() if settings is None else settings
    with BlockWriter(store).commit([Planned(panel, block, settings, stale)]) as commit:
        for setting, outcome in zip(settings, evaluate_block(study, block, settings), strict=True):
            commit.write(panel, block, setting, outcome)


def blas_threads():
    """Return the numbers of threads of the BLAS libraries of this process."""
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def compute_pending(store, study, retry=()):
    """Compute and commit the pending blocks of a store opened for a session, one after the other."""
    for work in PendingWork(study, store, retry):
        panel = study.panel(work.block.panel)
        settings, stale = ([panel.settings()[k] for k in chosen] for chosen in (work.settings, work.stale))
        commit_block(store, study, panel, work.block, settings, stale)


def interrupted(act, *arguments, n_receipts=1, error=KeyboardInterrupt, **options):
    """Call a function that runs a study, and interrupt it after a number of receipts, as Ctrl-C does."""
    receipts = count(1)

    def take(receipt):
        if next(receipts) == n_receipts:
            raise error

    with pytest.raises(error):
        act(*arguments, progress=lambda works: take, **options)


def note_works(noted):
    """Return a progress callback that appends the work items of a run to a list."""

    def progress(works):
        noted.extend(works)
        return lambda receipt: None

    return progress


def temporary_files(store):
    return [path for path in Path(store, WRITING).rglob("*") if path.is_file()]


def pending(store, panel, retry=()):
    """Return a mask of the blocks and settings to compute."""
    return block_states(store, panel, retry) != COMMITTED
