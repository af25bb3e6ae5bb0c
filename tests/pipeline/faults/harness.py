"""Laboratory of fault scenarios: it starts processes, disturbs and kills them, resumes the run and judges the store.

The processes are forked from a server that has imported all modules, so that they start in a fraction of a second. With
root privileges they can run on simulated hosts, with networks that can be cut and disks that can fill.
"""

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import psutil
import yaml

from tests.pipeline.faults.file_operations import Permanently, crash_at, disturb
from tests.pipeline.faults.study import WHOLE, Failed, Outcome, Part, describe, n_committed, unequal, write_study

PATIENCE = 300.0  # timeout in seconds, long enough for a busy machine
LOCAL_CLUSTER = {"module": "distributed", "class": "LocalCluster"}
_CONTEXT = multiprocessing.get_context("forkserver")
_PRELOADED = ["studies.cli", "pipeline.runs.run"]
_IMPORTS = [*_PRELOADED, "dask.__main__", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker"]
_NAMESPACES = {"net": 0x40000000, "mnt": 0x00020000}


class NotPossibleError(RuntimeError):
    """Error for a fault that this machine does not allow, for example for lack of privileges."""


def wait_until(condition: Callable[[], Any], what: str = "a condition", seconds: float = PATIENCE) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)
    return found


def write_profile(folder: Path, **profile: Any) -> str:
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"profiles": {"lab": profile}}))
    return f"{folder / 'cluster.yaml'}:lab"


class Program:
    """Process started by a scenario, with its output in a file."""

    def __init__(self, process: Any, log: Path) -> None:
        self.process, self.pid, self.log = process, process.pid, log

    def finish(self, seconds: float = PATIENCE) -> int:
        """Wait until the process ends, and return its exit code."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise TimeoutError(f"{self.log.name} did not end within {seconds:g} s; output: {self.output[-1000:]}")
        return self.process.exitcode

    @property
    def runs(self) -> bool:
        return self.process.exitcode is None

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def message(self) -> str:
        """Messages of the command, without the address of the dashboard."""
        lines = self.output.strip().splitlines() or [""]
        errors = [line.removeprefix("dpstudies: ") for line in lines if line.startswith("dpstudies: ")]
        return " / ".join(line for line in errors if not line.startswith("dashboard: ")) or lines[-1]


@dataclass(frozen=True)
class Host:
    """Local machine, or a simulated host: its address, and a process that is in its namespaces."""

    address: str = "127.0.0.1"
    pid: int | None = None

    def call(self, kind: str, *words: Any) -> None:
        """Run a system command in a namespace of the host (``net`` or ``mnt``)."""
        namespace = {"net": "net", "mnt": "mount"}[kind]
        command = ["nsenter", "-t", str(self.pid), f"--{namespace}", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        if done.returncode:
            raise NotPossibleError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


THIS_HOST = Host()


class Laboratory:
    """Study, store and processes of one scenario; a context manager that ends all processes and their children on exit.

    Parameters
    ----------
    folder : Path
        Working folder of the processes, with their logs.
    seconds, failing
        Parameters of the study; see `write_study`.

    Attributes
    ----------
    profile : str
        Profile of the cluster on which commands compute, or "" for threads.
    host : Host
        Host of the scheduler and of commands.
    checks : dict
        Requirements that the scenario has checked.
    """

    def __init__(self, folder: Path, seconds: float = 0.0, failing: Mapping[tuple[int, str, int], str] | None = None):
        self.folder, self.store = folder, folder / "s.zarr"
        self.study = write_study(folder, seconds, failing)
        self.profile, self.host, self.checks = "", THIS_HOST, dict[str, bool]()
        self._port = 0
        self._programs: list[Program] = []
        self._killed: list[psutil.Process] = []
        self._holders: list[subprocess.Popen] = []

    def __enter__(self) -> "Laboratory":
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            self._remember(program.pid)
        for process in self._killed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for program in self._programs:
            program.process.join(10)
        psutil.wait_procs(self._killed, timeout=10)
        for holder in self._holders:
            holder.kill()
            holder.wait(10)

    # Processes

    def start(
        self,
        main: str,
        words: Iterable[Any],
        host: Host = THIS_HOST,
        settings: Mapping[str, Any] | None = None,
        dies_at: int | None = None,
        disturbed: Mapping[str, Any] | None = None,
    ) -> Program:
        """Start ``dpstudies`` or ``dask`` with Dask settings.

        With `dies_at`, the process kills itself after `dies_at` successful file operations: during the write of a
        temporary file, or in place of a rename, removal or flush. For `disturbed`, see `disturb`.
        """
        _CONTEXT.set_forkserver_preload([__name__, *_IMPORTS])
        log = self.folder / f"{len(self._programs)}-{main}.log"
        log.touch()
        arguments = (main, list(map(str, words)), str(log), dict(settings or {}), host.pid, dies_at, disturbed)
        process = _CONTEXT.Process(target=_run_main, args=arguments)
        process.start()
        self._programs.append(Program(process, log))
        return self._programs[-1]

    def dpstudies(self, *words: Any, **options: Any) -> Program:
        """Start the command ``dpstudies`` on the host of the laboratory; `start` documents the options."""
        return self.start("dpstudies", words, self.host, **options)

    def command(self, name: str, *words: Any, **options: Any) -> Program:
        """Start a command on the store, which computes on the cluster of the laboratory if there is one."""
        target = (self.study, "--store", self.store) if name in ("run", "submit") else (self.store,)
        cluster = ("--cluster", self.profile) if self.profile else ()
        return self.dpstudies(name, *target, *words, *cluster, **options)

    def scheduler(self, host: Host = THIS_HOST, **settings: Any) -> Program:
        """Start a scheduler, on the same port as an earlier one."""
        self.host = host
        self._port = self._port or free_ports()[0]
        self.profile = write_profile(self.folder, address=self._address)
        words = ["scheduler", "--host", host.address, "--port", self._port, "--dashboard-address", "127.0.0.1:0"]
        return self.start("dask", words, host, {f"distributed.scheduler.{key}": settings[key] for key in settings})

    def worker(self, host: Host = THIS_HOST, more: Iterable[str] = (), **options: Any) -> Program:
        """Start a worker with one thread and no nanny process."""
        words = ["worker", self._address, "--host", host.address, "--nthreads", "1", "--no-nanny"]
        return self.start("dask", [*words, "--dashboard-address", "127.0.0.1:0", *more], host, **options)

    def start_cluster(self, hosts: Iterable[Host] = (THIS_HOST, THIS_HOST), **settings: Any) -> list[Program]:
        """Start a scheduler and one worker per host; return the workers."""
        first, *others = hosts
        self.scheduler(first, **settings)
        return [self.worker(host) for host in (first, *others)]

    def kill(self, program: Program, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process; its child processes continue until the scenario ends."""
        if number == signal.SIGKILL:
            self._remember(program.pid)
        with suppress(ProcessLookupError):  # the process may just have ended
            os.kill(program.pid, number)
        if number == signal.SIGKILL:
            program.process.join(10)

    def take_busy_worker(self) -> int:
        """Wait for a worker process that computes a block, and return its process id."""

        def look() -> int:
            marks = [int(mark.name) for mark in (self.folder / "busy").iterdir()]
            return next((pid for pid in marks if psutil.pid_exists(pid)), 0)

        return wait_until(look, "a process in the middle of a block")

    def kill_busy_worker(self) -> None:
        pid = self.take_busy_worker()
        os.kill(pid, signal.SIGKILL)
        (self.folder / "busy" / str(pid)).unlink(missing_ok=True)

    def _remember(self, pid: int) -> None:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            self._killed += [*process.children(recursive=True), process]

    @property
    def _address(self) -> str:
        return f"tcp://{self.host.address}:{self._port}"

    # Simulated hosts and disks

    def apart(self, *kinds: str, address: str = THIS_HOST.address) -> Host:
        """Start a process in new namespaces (``net``, ``mnt``), which exist as long as the process."""
        if os.geteuid() != 0 or sys.platform != "linux":
            raise NotPossibleError("separate networks and disks require Linux and root; run as root on Linux")
        flags = {"net": "--net", "mnt": "--mount"}
        command = ["unshare", *(flags[kind] for kind in kinds), "sleep", "600"]
        holder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._holders.append(holder)

        def is_apart() -> bool:
            if holder.poll() is not None:
                raise NotPossibleError(f"namespaces are not allowed: unshare exited with {holder.returncode}")
            return all(os.readlink(f"/proc/{holder.pid}/ns/{k}") != os.readlink(f"/proc/self/ns/{k}") for k in kinds)

        wait_until(is_apart, "namespaces", 10)
        return Host(address, holder.pid)

    def two_hosts(self, *kinds: str) -> tuple[Host, Host]:
        """Return two simulated hosts that a network connects."""
        near = self.apart("net", *kinds, address="192.0.2.1")
        far = self.apart("net", *kinds, address="192.0.2.2")
        near.call("net", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", far.pid)
        for host, name in ((near, "near"), (far, "far")):
            host.call("net", "ip", "addr", "add", f"{host.address}/24", "dev", name)
            for link in (name, "lo"):
                host.call("net", "ip", "link", "set", link, "up")
        return near, far

    def mount_disk(self, size: str) -> Path:
        """Mount a disk for the store, which only later commands see, and return its folder."""
        disk = self.folder / "disk"
        disk.mkdir()
        self.host, self.store = self.apart("mnt"), disk / "s.zarr"
        self.host.call("mnt", "mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk)
        return disk

    # Requirements

    def check(self, requirement: str, is_met: Any) -> None:
        self.checks[requirement] = bool(is_met) and self.checks.get(requirement, True)

    def expect_exit(self, program: Program, code: int, name: str = "") -> None:
        """Wait until a command ends, and require its exit code and that it prints no traceback."""
        ended = program.finish()
        self.check(f"{name or 'command'}: exit {code}, got {ended}", ended == code)
        self.check(f"{name or 'command'}: no traceback", "Traceback" not in program.output)

    def expect_codes(self, codes: Iterable[int], *commands: tuple[Any, ...]) -> list[Program]:
        """Run commands on the store in turn, require their exit codes, and return them."""
        programs, ended = [], []
        for name, *words in commands:
            programs.append(self.command(name, *words))
            ended.append(programs[-1].finish())
        self.check(f"exit codes {list(codes)}, got {ended}", ended == list(codes))
        return programs

    @property
    def visible_store(self) -> Path:
        """Path by which this process reaches the store."""
        return self.store if self.host.pid is None else Path(f"/proc/{self.host.pid}/root/{self.store}")

    @property
    def n_committed(self) -> int:
        return n_committed(self.visible_store)

    def wait_for_trials(self, number: int) -> None:
        wait_until(lambda: self.n_committed >= number, "commits")

    def judge(self, fault: str, met: Program, failed: Failed | None = None, part: Part = WHOLE) -> Outcome:
        """Compare the final store with an undisturbed one, and return the outcome with the violated requirements."""
        wrong = [f"violated: {text}" for text, is_met in self.checks.items() if not is_met]
        if not self.visible_store.exists():
            wrong.append("no store")
        elif differing := unequal(self.visible_store, failed or {}, part):
            wrong.append(f"differs: {differing}")
        state = "; ".join(wrong) or describe(failed or {}, part)
        return Outcome(fault, f"exit {met.process.exitcode}: {met.message}", state, not wrong)


@contextmanager
def dask_processes(
    folder: Path, *environments: Mapping[str, str], protocol: str = "tcp", options: Iterable[str] = ()
) -> Iterator[str]:
    """Run ``dask scheduler``, and a ``dask worker`` for each environment, as new interpreters; yield the address."""
    address = f"{protocol}://127.0.0.1:{free_ports()[0]}"
    common = ["--dashboard-address", "127.0.0.1:0", "--host", "127.0.0.1", *options]
    commands: list[tuple[Mapping[str, str], list[str]]] = [({}, ["scheduler", "--port", address.rpartition(":")[2]])]
    commands += [(environment, ["worker", address, "--nthreads", "1", "--no-nanny"]) for environment in environments]
    started: list[subprocess.Popen] = []
    try:
        for environment, words in commands:
            with open(folder / f"{len(started)}.log", "w") as log:
                command = [sys.executable, "-m", "dask", *words, *common]
                variables = {**os.environ, **environment}
                started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=variables))
        wait_until(lambda: _listens(address), "a scheduler that listens")
        yield address
    finally:
        for process in reversed(started):
            end(process)


def end(process: subprocess.Popen) -> None:
    """Let a process terminate, or kill it."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def _listens(address: str) -> bool:
    host, port = address.rpartition("/")[2].split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def free_ports(n: int = 1) -> list[int]:
    """Return ports on which nothing listens."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(n)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _run_main(
    main: str,
    words: list[str],
    log: str,
    settings: dict[str, Any],
    host: int | None,
    dies_at: int | None,
    disturbed: Mapping[str, Any] | None,
) -> None:
    """Run the console script of a command in this process, and write its output to a file."""
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), stream)
    os.chdir(Path(log).parent)
    for kind, flag in _NAMESPACES.items() if host is not None else ():
        if os.readlink(f"/proc/{host}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"):
            handle = os.open(f"/proc/{host}/ns/{kind}", os.O_RDONLY)
            if ctypes.CDLL(None, use_errno=True).setns(handle, flag):
                raise OSError(ctypes.get_errno(), f"cannot enter the namespace {kind}")
    os.chdir(Path(log).parent)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # workers of a local cluster are forked from a server, as quickly as these processes
    scratch = {"temporary-directory": str(Path(log).parent / "scratch")}
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver", **scratch, **settings})
    if dies_at is not None:
        crash_at(Permanently, dies_at, _die)
    disturb(**(disturbed or {}))
    sys.argv = [main, *words]
    if main == "dask":
        from dask.__main__ import main as run
    else:
        from distributed.utils import get_mp_context

        get_mp_context().set_forkserver_preload(_PRELOADED)
        from studies.cli import main as run
    run()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
