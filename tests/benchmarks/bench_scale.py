"""Cost of the pipeline at scale: many blocks, many workers, many trials.

Run with ``python tests/benchmarks/bench_scale.py blocks|utilisation|summary``, and with ``blocks --quick`` up to 10,000
blocks; with ``--smallest`` all of them shrink to seconds.

* ``blocks``: 1,000 to 100,000 blocks of a trivial kernel are planned, run by two worker processes, and resumed with
  half of them lost. Neither the time per block nor the memory of the driver, which has its own process, should grow.
* ``utilisation``: 64 worker processes and blocks that sleep for a second; the ratio of the blocks' seconds to the
  workers' seconds.
* ``summary``: stores of 10⁶ and 10⁷ trials in 100 cells, and of 10⁷ trials in one cell, are summarised, each in its own
  process. One cell is the worst layout for memory: its quantiles need all of its trials at once.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import dask
import numpy as np
import yaml
from distributed import LocalCluster
from distributed.utils import get_mp_context

import pipeline
from pipeline.aggregate import count_status
from pipeline.blocks.evaluate import Outcome
from pipeline.blocks.plan import iterate_blocks, make_plan
from pipeline.clusters.cluster import connect
from pipeline.clusters.profiles import load_profile
from pipeline.declare.source import find_study
from pipeline.declare.study import Study
from pipeline.execution.execute import execute
from pipeline.execution.shipping import shipped
from pipeline.execution.work import PendingWork, Task
from pipeline.stores.commits import Planned
from pipeline.stores.sessions import Session
from pipeline.stores.store import ResultStore

SMALLEST = "--smallest" in sys.argv[1:]
SHAPES = ((10, 100), (1_000, 1), (100, 100), (10_000, 1), (1_000, 100), (100_000, 1))  # cells, blocks per cell
SUMMARIES = ((10**6, 100), (10**7, 100), (10**7, 1))  # total number of trials, cells
N_WORKERS, ROUNDS = (2, 2) if SMALLEST else (64, 20)
QUIET = {  # settings for 64 workers on two cores: forked, and with rare self-monitoring
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
    """Write a study file whose blocks sleep."""
    (folder / "scale.py").write_text(STUDY_FILE.format(seconds=seconds, size=size))
    return str(folder / "scale.py")


@contextmanager
def started(folder: Path, n_workers: int) -> Iterator[str]:
    """Start single-threaded worker processes and a scheduler in this process; yield their cluster file."""
    with dask.config.set(QUIET):
        get_mp_context().set_forkserver_preload(["pipeline.run"])  # imported once for all workers
        options = {
            "n_workers": n_workers,
            "threads_per_worker": 1,
            "memory_limit": 0,
            "dashboard_address": "127.0.0.1:0",
        }
        with LocalCluster(**options) as cluster:
            profile = {"address": cluster.scheduler_address}
            (folder / "cluster.yaml").write_text(yaml.safe_dump({"profiles": {"bench": profile}}))
            yield f"{folder}/cluster.yaml"


def peak_megabytes() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def timed(found: dict[str, float], name: str) -> Iterator[None]:
    """Record the wall-clock seconds of a block of code, and the processor seconds of this process."""
    start, used = time.perf_counter(), time.process_time()
    yield
    found[name], found[f"{name} cpu"] = time.perf_counter() - start, time.process_time() - used


def drive_blocks(n_cells: str, n_blocks: str) -> dict[str, float]:
    """Plan, run, lose half of the blocks, count and resume."""
    found: dict[str, float] = {}
    cells, trials = range(1, int(n_cells) + 1), int(n_blocks)
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), f"{name}/s.zarr"
        study = write_study(folder)
        with started(folder, 2) as cluster:
            pipeline.run(study, folder / "first.zarr", trials=10, cluster=cluster)  # one-time imports
            with timed(found, "plan"):
                make_plan(find_study(study, {}).load().configure(trials, values={"n": cells}), pilot_seconds=1)
            with timed(found, "run"):
                pipeline.run(study, path, trials=trials, values={"n": cells}, cluster=cluster)
            for chunk in islice(Path(path, "p/status/c").glob("*/*"), 0, None, 2):
                chunk.unlink()
            with timed(found, "count"):
                counts = count_status(pipeline.open_results(path)["p"].to_dataset())
            assert counts[pipeline.Status.PENDING] == len(cells) * trials // 2
            with timed(found, "resume"):
                store = pipeline.resume(path, cluster=cluster)
        assert len(PendingWork(find_study(study, {}).load().from_spec(store.spec), store)) == 0
    return found | {"megabytes": peak_megabytes()}


def drive_utilisation() -> dict[str, float]:
    """Measure sleeping blocks on workers that have started and loaded the study."""
    seconds: list[float] = []
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = find_study(write_study(folder, seconds=1.0), {})
        study = source.load().configure(1, values={"n": range(1, N_WORKERS * ROUNDS + 1)})
        url = str(folder / "s.zarr")
        with started(folder, N_WORKERS) as cluster, Session.begin(url, {}) as session:
            profile, store = load_profile(cluster), ResultStore.create(session, study, source.attributes)
            task = Task(source, url, store.attributes["spec_sha256"], session.id)
            with connect(profile) as client, shipped(client, task):
                client.wait_for_workers(N_WORKERS, timeout=600)
                client.run(lambda: bool(task.opened()))
                works = PendingWork(study, store)
                with timed(found, "wall"):
                    execute(client, task, works, lambda receipt: seconds.append(receipt.seconds), profile=profile)
    return found | {"blocks": len(seconds), "utilisation": sum(seconds) / (N_WORKERS * found["wall"])}


def make_store(folder: Path, n_trials: int, n_cells: int) -> str:
    """Write a store of `n_trials` trials in total, in blocks of 10,000 trials, without a cluster."""
    source, rng = find_study(write_study(folder, size=10_000), {}), np.random.default_rng(1)
    study: Study = source.load().configure(n_trials // n_cells, values={"n": range(1, n_cells + 1)})
    panel = study.panels[0]
    with Session.begin(f"{folder}/s.zarr", {}) as session:
        store = ResultStore.create(session, study, source.attributes)
        planned = [Planned(panel, block, panel.settings()) for block in iterate_blocks(panel)]
        with store.commit(planned) as commit:
            for one in planned:
                n = len(one.block.trials)
                outcome = Outcome({"x": rng.normal(size=n)}, np.ones(n, np.int8), np.full(n, "", object))
                commit.write(panel, one.block, one.settings[0], outcome)
    return store.url


def drive_summary(path: str) -> dict[str, float]:
    """Summarise a store."""
    found: dict[str, float] = {}
    with timed(found, "seconds"):
        summary = pipeline.summarise(pipeline.open_results(path)["p"].to_dataset())
    assert np.all(np.abs(summary["x_mean"]) < 6 * summary["x_mcse"])
    return found | {"trials": float(summary["n_ok"].sum()), "megabytes": peak_megabytes()}


DRIVERS = {"blocks": drive_blocks, "utilisation": drive_utilisation, "summary": drive_summary}


def drive(mode: str, *words: str) -> dict[str, float]:
    """Call a driver in a new process."""
    command = [sys.executable, __file__, "drive", mode, *words, *(["--smallest"] if SMALLEST else [])]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def print_blocks(shapes: Sequence[tuple[int, int]]) -> None:
    """Print seconds, milliseconds per block, and the driver's processor time per block."""
    print(f"{'cells x blocks':>15} {'plan':>9}" + "".join(f"{what:>32}" for what in ("run", "count", "resume half")))
    for n_cells, n_blocks in shapes:
        found, n = drive("blocks", str(n_cells), str(n_blocks)), n_cells * n_blocks
        columns = [f"{n_cells:>8,} x {n_blocks:<4} {found['plan']:7.1f} s"]
        for name, each in (("run", n), ("count", n), ("resume", n / 2)):
            wall, cpu = found[name], found[f"{name} cpu"]
            columns.append(f"{wall:7.1f} s {wall / each * 1e3:5.2f} ms (cpu {cpu / each * 1e3:5.2f} ms)")
        print(" ".join(columns), f"{found['megabytes']:5.0f} MB", flush=True)


def print_utilisation() -> None:
    """Print the share of the workers' time that was spent in blocks."""
    found = drive("utilisation")
    print(f"{N_WORKERS} workers, {found['blocks']:,} blocks of 1 s in {found['wall']:.2f} s")
    print(f"processor time of driver and scheduler: {found['wall cpu'] / found['blocks'] * 1e3:.2f} ms per block")
    print(f"utilisation: {found['utilisation']:.3f} (target: >= .95)")


def print_summary() -> None:
    """Print time and memory of summaries."""
    for n_trials, n_cells in ((10**5, 10),) if SMALLEST else SUMMARIES:
        with tempfile.TemporaryDirectory() as folder:
            found = drive("summary", make_store(Path(folder), n_trials, n_cells))
        seconds = f"{found['seconds']:.2f} s (cpu {found['seconds cpu']:.2f} s)"
        print(f"{n_trials:>12,} trials, {n_cells:>3} cells: {seconds}, peak {found['megabytes']:.0f} MB", flush=True)
    print("target: <= 10 s, and <= 250 MB")


def main() -> None:
    """Print the results of one mode."""
    match [word for word in sys.argv[1:] if word != "--smallest"]:
        case ["drive", mode, *words]:
            print(json.dumps(DRIVERS[mode](*words)))
        case ["blocks", *words]:
            print_blocks(SHAPES[:1] if SMALLEST else SHAPES[: -2 if "--quick" in words else None])
        case ["utilisation"]:
            print_utilisation()
        case ["summary"]:
            print_summary()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
