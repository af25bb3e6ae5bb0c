"""Cost of the pipeline at scale: many blocks, many workers, many trials.

Run with ``python tests/benchmarks/bench_scale.py blocks|utilisation|summary``. With ``blocks --quick``, at most 10,000
blocks are run; with ``--smallest``, each mode takes seconds.

* ``blocks``: 1,000 to 100,000 blocks of a trivial kernel are planned, run by two worker processes, and resumed after
  half of them are lost. Neither the time per block nor the memory of the driver, a separate process, should grow.
* ``utilisation``: 64 worker processes run blocks that sleep for a second; the result is the ratio of the total duration
  of the blocks to the total time of the workers.
* ``summary``: stores of 10⁶ and 10⁷ trials in 100 cells, and of 10⁷ trials in one cell, are summarised, each in its own
  process. One cell is the worst layout for memory: its quantiles need all of its trials at once.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

import dask
import numpy as np
from distributed import LocalCluster
from distributed.utils import get_mp_context
from measuring import SMALLEST, in_new_process, peak_megabytes, write_profile

import pipeline
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import Outcome
from pipeline.clusters.cluster import connect
from pipeline.clusters.profiles import load_profile
from pipeline.declare.source import find_study
from pipeline.declare.study import Study
from pipeline.execution.checks import refuse_workers_without_store
from pipeline.execution.execute import execute
from pipeline.execution.tasks import registered
from pipeline.execution.work import PendingWork, Task
from pipeline.runs.estimate import make_plan
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.creation import create_empty_store
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from pipeline.store.sessions.lease import Session

SHAPES = ((10, 100), (1_000, 1), (100, 100), (10_000, 1), (1_000, 100), (100_000, 1))  # (cells, blocks per cell)
SUMMARIES = ((10**6, 100), (10**7, 100), (10**7, 1))  # (trials in total, cells)
N_WORKERS, ROUNDS = (2, 2) if SMALLEST else (64, 20)
QUIET = {  # settings for 64 workers on two cores: fork start method and infrequent system monitoring
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}
STUDY_FILE = """
import time
from pipeline import Factor, Measure, Method, Panel, Study

def simulate(cell, streams):
    time.sleep({seconds})

def evaluate(data, setting, streams):
    return {{"x": streams.uniforms(1)[:, 0]}}

panel = Panel("p", "a panel", simulate, (Method("a", evaluate),), (Measure("x", "a number"),),
              (Factor("n", (1,), "number of the cell", "int"),), method_dim=None, trials=1, block_trials={size})
STUDY = Study("scale", "Scale", "To be large.", (panel,), seed=1)
"""


def write_study(folder: Path, seconds: float = 0.0, size: int = 1) -> str:
    """Write a study file whose blocks sleep for a given time."""
    (folder / "scale.py").write_text(STUDY_FILE.format(seconds=seconds, size=size))
    return str(folder / "scale.py")


@contextmanager
def started(folder: Path, n_workers: int) -> Iterator[str]:
    """Start single-threaded worker processes and a scheduler in this process; yield their cluster file."""
    with dask.config.set(QUIET):
        get_mp_context().set_forkserver_preload(["pipeline.runs.run"])  # modules that are imported once for all workers
        options = {
            "n_workers": n_workers,
            "threads_per_worker": 1,
            "memory_limit": 0,
            "dashboard_address": "127.0.0.1:0",
        }
        with LocalCluster(**options) as cluster:
            yield write_profile(folder, address=cluster.scheduler_address)


@contextmanager
def timed(found: dict[str, float], name: str) -> Iterator[None]:
    """Add the wall-clock time of the enclosed block, and the processor time of this process in it, to `found`."""
    start, used = time.perf_counter(), time.process_time()
    yield
    found[name], found[f"{name} cpu"] = time.perf_counter() - start, time.process_time() - used


def drive_blocks(n_cells: int, n_blocks: int) -> dict[str, float]:
    """Time the phases of a run: planning, computing, counting pending blocks after half are deleted, and resuming."""
    found: dict[str, float] = {}
    cells, trials = range(1, n_cells + 1), n_blocks
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), f"{name}/s.zarr"
        study = write_study(folder)
        with started(folder, 2) as cluster:
            # This run imports all modules before the measured calls.
            pipeline.run(study, folder / "first.zarr", trials=10, cluster=cluster)
            with timed(found, "plan"):
                make_plan(find_study(study, {}).load().configure(trials, values={"n": cells}), pilot_seconds=1)
            with timed(found, "run"):
                pipeline.run(study, path, trials=trials, values={"n": cells}, cluster=cluster)
            for chunk in islice(Path(path, "p/status/c").glob("*/*"), 0, None, 2):
                chunk.unlink()
            with timed(found, "count"):
                counts = count_by_status(ResultStore.open(path), "p")
            assert counts[pipeline.Status.PENDING] == len(cells) * trials // 2
            with timed(found, "resume"):
                store = pipeline.resume(path, cluster=cluster)
        assert len(PendingWork(find_study(study, {}).load().from_spec(store.spec), store)) == 0
    return found | {"megabytes": peak_megabytes()}


def drive_utilisation() -> dict[str, float]:
    """Measure the utilisation of workers that run sleeping blocks.

    The workers open the store and collect garbage before the measurement, because the first full collection of a new
    process takes 0.1 s of processor time, or 3 s in total for 64 processes on two cores.
    """
    seconds: list[float] = []
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = find_study(write_study(folder, seconds=1.0), {})
        study = source.load().configure(1, values={"n": range(1, N_WORKERS * ROUNDS + 1)})
        url = str(folder / "s.zarr")
        with started(folder, N_WORKERS) as cluster, Session.begin(url, {}) as session:
            profile, store = load_profile(cluster), create_empty_store(session, study, source.attributes)
            task = Task(source, url, store.attributes["spec_sha256"], session.id)
            with connect(profile) as client, registered(client, task):
                client.wait_for_workers(N_WORKERS, timeout=600)
                refuse_workers_without_store(client, task)
                client.run(gc.collect)
                works = PendingWork(study, store)
                with timed(found, "wall"):
                    execute(client, task, works, lambda receipt: seconds.append(receipt.seconds), profile)
    return found | {"blocks": len(seconds), "utilisation": sum(seconds) / (N_WORKERS * found["wall"])}


def make_store(folder: Path, n_trials: int, n_cells: int) -> str:
    """Write a store of `n_trials` trials in total, in blocks of 10,000 trials, without a cluster."""
    source, rng = find_study(write_study(folder, size=10_000), {}), np.random.default_rng(1)
    study: Study = source.load().configure(n_trials // n_cells, values={"n": range(1, n_cells + 1)})
    panel = study.panels[0]
    with Session.begin(f"{folder}/s.zarr", {}) as session:
        store = create_empty_store(session, study, source.attributes)
        planned = [Planned(panel, block, panel.settings()) for block in iterate_blocks(panel)]
        with BlockWriter(store).commit(planned) as commit:
            for one in planned:
                n = len(one.block.trials)
                outcome = Outcome({"x": rng.normal(size=n)}, np.ones(n, np.int8), np.full(n, "", object))
                commit.write(panel, one.block, one.settings[0], outcome)
    return store.url


def drive_summary(path: str) -> dict[str, float]:
    found: dict[str, float] = {}
    with timed(found, "seconds"):
        summary = pipeline.summarise(pipeline.open_results(path)["p"].to_dataset())
    assert np.all(np.abs(summary["x_mean"]) < 6 * summary["x_mcse"])
    return found | {"trials": float(summary["n_ok"].sum()), "megabytes": peak_megabytes()}


drive = partial(in_new_process, ["pipeline.runs.run"])


def print_blocks(shapes: Sequence[tuple[int, int]]) -> None:
    print(f"{'cells x blocks':>15} {'plan':>9}" + "".join(f"{what:>32}" for what in ("run", "count", "resume half")))
    for n_cells, n_blocks in shapes:
        found, n = drive(drive_blocks, n_cells, n_blocks), n_cells * n_blocks
        columns = [f"{n_cells:>8,} x {n_blocks:<4} {found['plan']:7.1f} s"]
        for name, each in (("run", n), ("count", n), ("resume", n / 2)):
            wall, cpu = found[name], found[f"{name} cpu"]
            columns.append(f"{wall:7.1f} s {wall / each * 1e3:5.2f} ms (cpu {cpu / each * 1e3:5.2f} ms)")
        print(" ".join(columns), f"{found['megabytes']:5.0f} MB", flush=True)


def print_utilisation() -> None:
    found = drive(drive_utilisation)
    print(f"{N_WORKERS} workers, {found['blocks']:,} blocks of 1 s in {found['wall']:.2f} s")
    print(f"processor time of driver and scheduler: {found['wall cpu'] / found['blocks'] * 1e3:.2f} ms per block")
    print(f"utilisation: {found['utilisation']:.3f} (target: >= .95)")


def print_summary() -> None:
    for n_trials, n_cells in ((10**5, 10),) if SMALLEST else SUMMARIES:
        with tempfile.TemporaryDirectory() as folder:
            found = drive(drive_summary, make_store(Path(folder), n_trials, n_cells))
        seconds = f"{found['seconds']:.2f} s (cpu {found['seconds cpu']:.2f} s)"
        print(f"{n_trials:>12,} trials, {n_cells:>3} cells: {seconds}, peak {found['megabytes']:.0f} MB", flush=True)
    print("target: <= 10 s, and <= 250 MB")


def main() -> None:
    match [word for word in sys.argv[1:] if word != "--smallest"]:
        case ["blocks", *words]:
            print_blocks([(2, 10)] if SMALLEST else SHAPES[: -2 if "--quick" in words else None])
        case ["utilisation"]:
            print_utilisation()
        case ["summary"]:
            print_summary()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
