"""Table of fault scenarios: each runs a small study, injects a fault, continues, and compares the store bit by bit.

`SCENARIOS` maps the name of a scenario to a function of its working folder. A function with the decorator `scenario`
injects the fault, checks requirements in its laboratory, and returns the command whose message a user sees.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from pathlib import Path

from pipeline.blocks.evaluate import Status
from pipeline.store.result_store import ResultStore
from tests.pipeline.faults.file_operations import cut, flip
from tests.pipeline.faults.harness import LOCAL_CLUSTER, Laboratory, Program, wait_until, write_profile
from tests.pipeline.faults.study import METHODS, N_TRIALS, WHOLE, Failed, FailingTrials, Outcome, Part, unequal
from tests.pipeline.helpers import file_stamps

SCENARIOS: dict[str, Callable[[Path], Outcome]] = {}
BUSY = "is being written by another session"
ONE_PANEL = Part(("p",))
N_ROUNDS = 2
KILLED_OPERATIONS = sorted(random.Random(15).sample(range(80), 8))


def scenario(
    name: str,
    fault: str,
    part: Part = WHOLE,
    failed: Failed | None = None,
    seconds: float = 0.0,
    failing: FailingTrials | None = None,
) -> Callable[[Callable[[Laboratory], Program]], Callable[[Path], Outcome]]:
    """Add a function to the scenarios.

    Parameters
    ----------
    name, fault : str
        Name of the scenario, and description of the fault in the table.
    part, failed : Part, mapping
        Part of the study in the final store, and its failed trials.
    seconds, failing
        Parameters of the study; see `write_study`.
    """

    def register(inject: Callable[[Laboratory], Program]) -> Callable[[Path], Outcome]:
        @wraps(inject)
        def run(folder: Path) -> Outcome:
            with Laboratory(folder, seconds, failing) as lab:
                return lab.judge(fault, inject(lab), failed, part)

        SCENARIOS[name] = run
        return run

    return register


# Processes and networks


@scenario("workers killed", "6 workers killed mid-block", seconds=0.06)
def kill_workers(lab):
    """Kill a worker during a block, six times; a supervisor restarts the workers.

    A trial whose worker is killed three times in succession would get the status "killed", so there is time to commit
    its block between the kills.
    """
    lab.start_cluster()
    run = lab.command("run")
    for _ in range(6):
        lab.kill_busy_worker()
        lab.worker()
        lab.wait_for_trials(min(lab.n_committed + 24, N_TRIALS))
    lab.check("killed amid the run", run.runs)
    lab.expect_exit(run, 0)
    return run


@scenario("scheduler killed", "scheduler killed and started again", seconds=0.06)
def kill_scheduler(lab):
    """Kill the scheduler, start it again on the same port with new workers, and resume the run."""
    scheduler = lab.scheduler()
    workers = [lab.worker() for _ in range(2)]
    run = lab.command("run")
    lab.wait_for_trials(40)
    lab.kill(scheduler)
    lab.expect_exit(run, 3)
    lab.check("some are left", lab.n_committed < N_TRIALS)
    advice = "the connection to the scheduler was lost; restart the scheduler, then resume / "
    lab.check("says what to do", run.message.startswith(advice))
    for worker in workers:
        worker.finish()
    lab.start_cluster()
    lab.expect_codes([0], ("resume",))
    return run


@scenario("driver killed", "driver killed 3 times", seconds=0.06)
def kill_driver(lab):
    """Kill the driver of a run on a cluster three times, and resume the run after each kill."""
    lab.start_cluster()
    committed = [0]
    for name in ("run", "resume", "resume"):
        driver = lab.command(name)
        lab.wait_for_trials(committed[-1] + 1)
        lab.kill(driver)
        lab.check(f"{name}: killed", driver.process.exitcode == -signal.SIGKILL)
        committed.append(lab.n_committed)
    lab.check("killed amid the run", committed[-1] < N_TRIALS and committed == sorted(committed))
    (resume,) = lab.expect_codes([0], ("resume",))
    return resume


@scenario("worker stopped", "worker stopped for 7 s (heartbeat timeout: 3 s)", seconds=0.1)
def stop_worker(lab):
    """Suspend a worker for longer than the scheduler's timeout, and then let it continue."""
    lab.start_cluster(**{"worker-ttl": "3s"})
    run = lab.command("run")
    lab.wait_for_trials(40)
    pid = lab.take_busy_worker()
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(7)
    finally:
        os.kill(pid, signal.SIGCONT)
    lab.expect_exit(run, 0)
    return run


@scenario("worker stopped for good", "worker process stopped for good", seconds=0.1)
def stop_worker_for_good(lab):
    """Suspend one of two worker processes of a local cluster, and do not let it continue."""
    lab.profile = write_profile(lab.folder, **LOCAL_CLUSTER, kwargs={"n_workers": 2})
    run = lab.command("run")
    os.kill(lab.take_busy_worker(), signal.SIGSTOP)
    stopped = time.monotonic()
    text = "has not responded for 20 s: its process was suspended, and is restarted"
    wait_until(lambda: text in run.output or not run.runs, "the message", 60)
    seconds = time.monotonic() - stopped
    lab.check(f"message after {seconds:.0f} s", seconds < 45 and text in run.output)
    lab.check("exit 0", run.finish() == 0)
    return run


@scenario("worker cut off", "worker's network cut for 7 s and restored", seconds=0.1)
def cut_off_worker(lab):
    """Disconnect a worker on another host for longer than the scheduler's timeout, and then reconnect it."""
    near, far = lab.two_hosts()
    _, cut_off = lab.start_cluster((near, far), **{"worker-ttl": "3s"})
    run = lab.command("run")
    lab.wait_for_trials(1)  # before, first trials are evaluated twice
    wait_until(lambda: (lab.folder / "busy" / str(cut_off.pid)).exists(), "a block on the far worker")
    near.call("net", "ip", "link", "set", "near", "down")
    n_before = lab.n_committed
    time.sleep(7)
    near.call("net", "ip", "link", "set", "near", "up")
    lab.check("other workers continued", run.runs and lab.n_committed > n_before)
    lab.expect_exit(run, 0)
    return run


# Sessions


@scenario("two drivers", "3 drivers on one store, 2 of which create it", seconds=0.2)
def start_two_drivers(lab):
    """Start two drivers of one store at the same time, and a third one later; only one may write at a time."""
    runs = [lab.command("run") for _ in range(2)]
    lab.wait_for_trials(40)
    runs.append(lab.command("run"))
    codes = [run.finish() for run in runs]
    refused = [run for run in runs if run.process.exitcode == 2]
    sessions = ResultStore.open(lab.store).sessions
    lab.check(f"exit 0, or refused with exit 2, got {codes}", set(codes) == {0, 2})
    lab.check("the one that came amid the work is refused", codes[2] == 2)
    lab.check("refused in one line", all(BUSY in run.output and run.output.count("\n") == 1 for run in refused))
    in_turn = all(former["ended"] <= latter["started"] for former, latter in pairwise(sessions))
    lab.check("refused only for a live session", len(sessions) == codes.count(0) and in_turn)
    return runs[2]


@scenario("extension killed", f"extend killed at its file operations {KILLED_OPERATIONS}")
def kill_extension(lab):
    """Kill ``dpstudies extend`` at random file operations, during and between writes, and repeat it."""
    lab.expect_codes([0], ("run", "--trials", 6, "--set", "n=0,1,2,3"))
    extension = ("extend", "--trials", 10, "--set", "n=0,1,2,3,4,5,6,7", "--panel", "p")
    for number in KILLED_OPERATIONS:
        killed = lab.command(*extension, dies_at=number).finish()
        lab.check(f"killed at operation {number}", killed == -signal.SIGKILL)
    last, _ = lab.expect_codes([0, 0], extension, ("extend", "--trials", 10))
    return last


@scenario("submission", "client gone after submit, then 2 workers killed", seconds=0.06)
def submit(lab):
    """Submit a study, and kill two workers after the submitting process has ended."""
    lab.start_cluster()
    submission = lab.command("submit")
    lab.expect_exit(submission, 0)
    lab.check("most is done without the client", lab.n_committed < N_TRIALS / 2)
    for _ in range(2):
        lab.kill_busy_worker()
        lab.worker()
    lab.wait_for_trials(N_TRIALS)
    lab.check("nothing is left", lab.dpstudies("resume", lab.store).finish() == 0)
    return submission


# Trials that terminate their worker or do not return


def add_failing_trials(name, fault, failing, status=Status.KILLED, n_trials=4, limit=None, on_processes=True):
    """Add a scenario that runs two cells with failing trials, and compares the statuses with the expected ones."""
    part = Part(("p",), 2, n_trials)
    failed = {
        ("p", cell, method, trial): status
        for cell, phase, trial in failing
        for method in (METHODS if phase == "simulate" else (phase,))
    }

    @scenario(name, fault, part, failed, failing=failing)
    def run_failing_trials(lab):
        if on_processes:
            arguments = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}
            lab.profile = write_profile(lab.folder, **LOCAL_CLUSTER, kwargs=arguments)
        run = lab.command("run", *part.words, *(() if limit is None else ("--time-limit", limit)))
        lab.expect_exit(run, 1)
        return run


def add_hanging_trial(name, fault, how, n_trials=1, on_processes=True):
    failing = {(1, "a", n_trials - 1): how}
    fault = f"{fault}, time limit 2 s"
    add_failing_trials(name, fault, failing, Status.TIMED_OUT, n_trials, limit=2, on_processes=on_processes)


add_failing_trials("trial kills", "a trial kills its worker", {(1, "a", 2): "kill"})
add_failing_trials("simulation kills", "a trial's simulation kills its worker", {(1, "simulate", 2): "kill"})
ALL_KILL = {(1, "a", trial): "kill" for trial in range(4)}
add_failing_trials("all trials kill", "all trials of a cell kill their worker", ALL_KILL)
add_failing_trials("out of memory", "a trial takes 4 GB, its worker may have 1", {(1, "b", 0): "memory"}, n_trials=1)
add_hanging_trial("trial sleeps", "a trial sleeps for ever", "sleep", n_trials=4)
add_hanging_trial("trial loops", "a trial loops for ever", "loop")
add_hanging_trial("trial holds the lock", "a trial holds the interpreter's lock for ever", "lock")
ON_THREADS = "a trial holds the lock for ever on threads"
add_hanging_trial("time limit with threads", ON_THREADS, "lock", n_trials=4, on_processes=False)


# Disks and files


@scenario("full disk", "disk full, then made larger")
def fill_disk(lab):
    """Run on a disk of 0.5 MB until the disk is full, enlarge the disk, and resume the run."""
    disk = lab.mount_disk("500k")
    run = lab.command("run")
    lab.expect_exit(run, 3)
    lab.check(f"some are committed, got {lab.n_committed}", 0 < lab.n_committed < N_TRIALS)
    lab.check("names the reason", "No space left on device" in run.message)
    lab.host.call("mnt", "mount", "-o", "remount,size=50m", disk)
    lab.expect_codes([0], ("resume",))
    return run


@scenario("read-only store", "store on a read-only disk")
def write_protect_disk(lab):
    """Run and resume on a read-only disk, and then make the disk writable."""
    disk = lab.mount_disk("50m")
    lab.command("run", dies_at=200).finish()
    before = file_stamps(lab.visible_store)
    lab.host.call("mnt", "mount", "-o", "remount,ro", disk)
    resume = lab.command("resume")
    other = lab.dpstudies("run", lab.study, "--store", disk / "other.zarr")
    codes = [resume.finish(), other.finish()]
    lab.check(f"exit 2 or 3, got {codes}", set(codes) <= {2, 3})
    lab.check("names the reason", "Read-only file system" in resume.message and str(disk) in other.message)
    lab.check("no traceback", "Traceback" not in resume.output + other.output)
    lab.check("the store is not changed", file_stamps(lab.visible_store) == before)
    lab.check("no other store", not lab.visible_store.with_name("other.zarr").exists())
    lab.host.call("mnt", "mount", "-o", "remount,rw", disk)
    lab.expect_codes([0], ("resume",))
    return resume


@scenario("another version", "store of another version of the study")
def change_version(lab):
    """Change the version of a study, and resume its store."""
    text = lab.study.read_text()
    lab.command("run", dies_at=200).finish()
    before = file_stamps(lab.store)
    lab.study.write_text(text.replace("seed=1)", "seed=1, version=2)"))
    # without --study, the edited file is refused
    resume, _ = lab.expect_codes([2, 2], ("resume", "--study", lab.study), ("run",))
    lab.check("names what changed", "version: stored 1, now 2" in resume.message)
    lab.check("nothing is changed", file_stamps(lab.store) == before)
    lab.study.write_text(text)
    lab.expect_codes([0], ("resume",))
    return resume


DAMAGED_CHUNKS = ("p/x/c/1/0/2", "p/square/c/2/1", "p/error/c/3/1/1", "p/status/c/4/0/0", "q/status/c/0/1/2")
ONE_FAILED = {(panel, 3, "b", 6): Status.FAILED for panel in ("p", "q")}


def repair(lab, codes):
    """Verify, repair, resume and verify again, with these exit codes; return the first command."""
    before = file_stamps(lab.store)
    (verify,) = lab.expect_codes(codes[:1], ("verify", "--sample", 0))
    lab.check("verify without repair changes nothing", file_stamps(lab.store) == before)
    lab.expect_codes(codes[1:], ("verify", "--sample", 0, "--repair"), ("resume",), ("verify",))
    return verify


def add_damage(name, fault, harm):
    """Add a scenario that damages one chunk of each kind, reads the status, and repairs the store."""

    @scenario(name, fault, failed=ONE_FAILED, failing={(3, "b", 6): "raise"})
    def damage_chunks(lab):
        lab.command("run").finish()
        for chunk in DAMAGED_CHUNKS:
            harm(lab.store / chunk)
        lab.expect_codes([3], ("status",))
        verify = repair(lab, [3, 3, 1, 0])
        for panel, variable, *_ in (chunk.split("/") for chunk in DAMAGED_CHUNKS):
            if harm is not Path.unlink or variable != "status":  # trials without a status count as pending
                lines = verify.output.splitlines()
                is_named = any(line.startswith(f"{panel}, ") and f": {variable} is " in line for line in lines)
                lab.check(f"names {panel}/{variable}", is_named)
        return verify


add_damage("flipped bit", "a bit flipped in 5 chunks", flip)
add_damage("cut chunk", "5 chunks cut off", cut)
add_damage("missing chunk", "5 chunks removed", Path.unlink)


@scenario("damaged coordinate", "coordinates: a bit flipped, a chunk removed")
def damage_coordinates(lab):
    """Flip a bit in a chunk of one coordinate, and remove a chunk of another one."""
    lab.command("run").finish()
    flip(lab.store / "p/n/c/0")
    (lab.store / "q/trial/c/0").unlink()
    verify = repair(lab, [3, 0, 0, 0])
    lab.check("names both", all(f"{name} is damaged: " in verify.output for name in ("p: n", "q: trial")))
    return verify


@scenario("damaged root", "a bit flipped in the root")
def damage_root(lab):
    """Flip a bit of the root metadata, read the status, and repair the store."""
    lab.command("run").finish()
    root = lab.store / "zarr.json"
    text = root.read_text()
    root.write_text(text.replace('"fill_value": 0', '"fill_value": 1', 1))
    assert json.loads(root.read_text()) != json.loads(text)
    status, *_ = lab.expect_codes([3, 0, 0], ("status",), ("verify", "--sample", 0, "--repair"), ("status",))
    lab.check("says what to do", "its copy is intact; restore it with: dpstudies verify" in status.message)
    lab.check("the root is the old one", root.read_text() == text)
    return status


# Concurrent writers, and slow and failing file systems

EXTENDED = Part(("p",), 3, 10)


@scenario("two extensions", f"two different extensions at once, {N_ROUNDS} times", EXTENDED)
def extend_twice_at_once(lab):
    """Start two different extensions of a store at once, on a file system that delays renames at random."""
    lab.profile = write_profile(lab.folder, **LOCAL_CLUSTER, kwargs={"processes": False})
    for number in range(N_ROUNDS):
        lab.store = lab.folder / f"{number}.zarr"
        run = lab.dpstudies("run", lab.study, "--store", lab.store, *Part(("p",), 2, 5).words)
        lab.expect_exit(run, 0, f"round {number}: run")
        options = (("--set", "n=0,1,2"), ("--trials", 10))
        extensions = [lab.command("extend", *words, disturbed={"renames_take": 0.02}) for words in options]
        codes = [extension.finish() for extension in extensions]
        lab.check(f"round {number}: exit 0 or refused, got {codes}", set(codes) <= {0, 2} and 0 in codes)
        refused = [extension for extension in extensions if extension.process.exitcode == 2]
        lab.check(f"round {number}: refused in one line", all(BUSY in extension.message for extension in refused))
        whole = lab.dpstudies("extend", lab.store, "--set", "n=0,1,2", "--trials", 10)
        lab.expect_exit(whole, 0, f"round {number}: extend")
        verify = lab.dpstudies("verify", lab.store, "--all")
        lab.expect_exit(verify, 0, f"round {number}: verify")
        lab.check(f"round {number}: all numbers right", not unequal(lab.store, {}, EXTENDED))
    return verify


@scenario("extension during a run", "extend during a run", ONE_PANEL, seconds=0.4)
def extend_during_run(lab):
    """Try to extend a store during a run that computes its shorter last blocks, and extend it after the run."""
    run = lab.command("run", "--panel", "p", "--trials", 7, disturbed={"renames_take": 0.01})
    lab.wait_for_trials(2)
    early = lab.command("extend", "--trials", 10)
    lab.expect_exit(early, 2, "extend while the run is alive")
    lab.check("in one line", BUSY in early.message)
    lab.expect_exit(run, 0)
    lab.expect_codes([0], ("extend", "--trials", 10))
    return early


@scenario("driver suspended", "driver stopped past its lease", ONE_PANEL, seconds=0.05)
def suspend_driver(lab):
    """Suspend a driver past its lease, let another driver extend and complete the store, and wake the first one."""
    run = lab.command("run", "--panel", "p", "--trials", 7, disturbed={"lease": 2.0})
    lab.wait_for_trials(8)
    os.kill(run.pid, signal.SIGSTOP)
    try:
        lab.expect_exit(lab.command("extend", "--trials", 10, disturbed={"lease": 2.0}), 0, "extend after the lease")
    finally:
        os.kill(run.pid, signal.SIGCONT)
    lab.expect_exit(run, 3)
    lab.check("it says why", "another session has taken over the store" in run.message)
    return run


@scenario("transient errors", "ESTALE at every tenth file operation", seconds=0.01)
def fail_transiently(lab):
    """Let one in ten file operations of two workers and the driver fail once with ESTALE."""
    disturbed = {"fails_every": 10}
    lab.scheduler()
    for _ in range(2):
        lab.worker(disturbed=disturbed)
    run = lab.command("run", disturbed=disturbed)
    lab.expect_exit(run, 0)
    lab.expect_exit(lab.dpstudies("verify", lab.store, "--all", disturbed=disturbed), 0, "verify, with errors")
    return run


# Workers on another host


@scenario("expired credential", "credential of the workers expired", seconds=0.05)
def let_credential_expire(lab):
    """Let the credentials of two workers expire during a run, start other workers, and resume the run."""
    hosts = lab.two_hosts()
    lab.scheduler(hosts[0])
    workers = [lab.worker(host, disturbed={"expires_after": 150}) for host in hosts]
    run = lab.command("run")
    lab.expect_exit(run, 3)
    lab.check("some were committed", lab.n_committed > 0)
    lab.check("says what to do", "renew the credentials in the environment of the workers" in run.message)
    for worker, host in zip(workers, hosts, strict=True):
        lab.kill(worker)
        lab.worker(host)
    lab.expect_codes([0], ("resume",))
    return run


@scenario("workers paused", "all workers paused for memory")
def pause_workers(lab):
    """Limit the memory of two workers so that both pause, and follow the printed advice."""
    hosts = lab.two_hosts()
    lab.scheduler(hosts[0])
    workers = [lab.worker(host, more=("--memory-limit", "60MB")) for host in hosts]
    run = lab.command("run")
    wait_until(lambda: "every worker is paused" in run.output, "a warning about the workers")
    lab.check("the run waits", run.runs)
    lab.kill(run, signal.SIGINT)
    code = run.finish()
    lab.check(f"Ctrl-C: exit 130, got {code}", code == 130)
    lab.check("says what to set", "set a larger memory_limit or fewer threads per worker" in run.output)
    for worker in workers:
        lab.kill(worker)
    lab.worker(hosts[1])
    lab.expect_codes([0], ("run",))  # the workers may pause before the store is created
    return run


_IMPORTING_SIMULATION = """
import sys
sys.path.insert(0, {helpers!r})

def simulate(cell, streams):
    import only_the_driver_has_it
"""


@scenario("missing module", "a module is missing on the worker", ONE_PANEL)
def hide_module(lab):
    """Hide a module that the study imports lazily from the only worker, so that its tasks fail."""
    helpers = lab.folder / "helpers"
    helpers.mkdir()
    (helpers / "only_the_driver_has_it.py").touch()
    head = _IMPORTING_SIMULATION.format(helpers=str(helpers))
    lab.study.write_text(lab.study.read_text().replace("\ndef simulate(cell, streams):\n", head))
    near, far = lab.two_hosts("mnt")
    lab.scheduler(near)
    far.call("mnt", "mount", "-t", "tmpfs", "none", helpers)
    worker = lab.worker(far)
    run = lab.command("run", "--panel", "p")
    lab.expect_exit(run, 2)
    lab.check("names the module", "lacks only_the_driver_has_it" in run.message)
    lab.check("nothing is written", not lab.store.exists())
    lab.kill(worker)
    far.call("mnt", "umount", helpers)
    lab.worker(far)
    lab.expect_codes([0], ("run", "--panel", "p"))
    return run
