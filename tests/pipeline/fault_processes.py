"""Real processes for tests of faults: commands, schedulers and workers, each stopped by its process id.

The processes are forked from a server that has imported all modules, so that they start in a fraction of a second. With
root privileges they can run in separate namespaces, with networks that can be cut and disks that can fill.
"""

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import psutil
import yaml

from tests.pipeline.crashes import crash_at
from tests.pipeline.disturbances import disturb

PATIENCE = 300.0  # timeout in seconds, long enough for a busy machine
_CONTEXT = multiprocessing.get_context("forkserver")
_PRELOADED = ["studies.cli", "pipeline.runs.run"]
_IMPORTS = [*_PRELOADED, "dask.__main__", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker"]
_NAMESPACES = {"net": 0x40000000, "mnt": 0x00020000}


class NotPossibleError(RuntimeError):
    """Error for a fault that this machine does not allow, for example for lack of privileges."""


def wait_until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)
    return found


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


class Machines:
    """Processes of one scenario; a context manager that ends all of them and their children on exit.

    Parameters
    ----------
    folder : Path
        Working folder of the processes, with their logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs: list[Program] = []
        self._others: list[psutil.Process] = []
        self._holders: list[subprocess.Popen] = []

    def __enter__(self) -> "Machines":
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            self._remember(program.pid)
        for process in self._others:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        for program in self._programs:
            program.process.join(10)
        psutil.wait_procs(self._others, timeout=10)
        for holder in self._holders:
            holder.kill()
            holder.wait(10)

    def start(
        self,
        main: str,
        words: Iterable[str],
        settings: Mapping[str, Any] | None = None,
        inside: int | None = None,
        dies_at: int | None = None,
        disturbed: Mapping[str, Any] | None = None,
    ) -> Program:
        """Start ``dpstudies`` or ``dask`` with Dask settings, optionally inside the namespaces of another process.

        With `dies_at`, the process kills itself after `dies_at` successful file operations: during the write of a
        temporary file, or in place of a rename, removal or flush. For `disturbed`, see
        `tests.pipeline.disturbances.disturb`.
        """
        _CONTEXT.set_forkserver_preload([__name__, *_IMPORTS])
        log = self.folder / f"{len(self._programs)}-{main}.log"
        log.touch()
        arguments = (main, list(map(str, words)), str(log), dict(settings or {}), inside, dies_at, disturbed)
        process = _CONTEXT.Process(target=_run_main, args=arguments)
        process.start()
        self._programs.append(Program(process, log))
        return self._programs[-1]

    def dpstudies(self, *words: Any, **options: Any) -> Program:
        """Start the command ``dpstudies``; `start` documents the options."""
        return self.start("dpstudies", words, **options)

    def scheduler(self, port: int, host: str = "127.0.0.1", inside: int | None = None, **settings: Any) -> Program:
        words = ["scheduler", "--host", host, "--port", str(port), "--dashboard-address", "127.0.0.1:0"]
        return self.start("dask", words, {f"distributed.scheduler.{k}": v for k, v in settings.items()}, inside)

    def worker(
        self,
        port: int,
        scheduler: str = "127.0.0.1",
        host: str = "",
        inside: int | None = None,
        more: Iterable[str] = (),
        **options: Any,
    ) -> Program:
        """Start a worker with one thread and no nanny process."""
        words = ["worker", f"tcp://{scheduler}:{port}", "--host", host or scheduler, "--nthreads", "1", "--no-nanny"]
        words += ["--dashboard-address", "127.0.0.1:0", *more]
        return self.start("dask", words, {}, inside, **options)

    def kill(self, program: Program, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process; its child processes continue until the scenario ends."""
        if number == signal.SIGKILL:
            self._remember(program.pid)
        with suppress(ProcessLookupError):  # the process may just have ended
            os.kill(program.pid, number)
        if number == signal.SIGKILL:
            program.process.join(10)

    def _remember(self, pid: int) -> None:
        try:
            process = psutil.Process(pid)
            self._others += [*process.children(recursive=True), process]
        except psutil.NoSuchProcess:
            pass

    def host(self, *kinds: str) -> int:
        """Start a process in new namespaces (``net``, ``mnt``), which exist as long as the process; return its id."""
        if os.geteuid() != 0 or sys.platform != "linux":
            raise NotPossibleError("separate networks and disks require Linux and root; run as root on Linux")
        flags = {"net": "--net", "mnt": "--mount"}
        command = ["unshare", *(flags[kind] for kind in kinds), "sleep", "600"]
        holder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._holders.append(holder)

        def apart() -> bool:
            if holder.poll() is not None:
                raise NotPossibleError(f"namespaces are not allowed: unshare exited with {holder.returncode}")
            return all(os.readlink(f"/proc/{holder.pid}/ns/{k}") != os.readlink(f"/proc/self/ns/{k}") for k in kinds)

        wait_until(apart, "namespaces", 10)
        return holder.pid


def inside(pid: int, kind: str, *words: Any) -> None:
    """Run a system command in a namespace of a process."""
    command = ["nsenter", "-t", str(pid), f"--{ {'net': 'net', 'mnt': 'mount'}[kind] }", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise NotPossibleError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


def two_hosts(lab: Machines, *kinds: str) -> tuple[int, int]:
    """Connect two simulated hosts, 192.0.2.1 and 192.0.2.2, by a network; return the process ids of both."""
    near, far = lab.host("net", *kinds), lab.host("net", *kinds)
    inside(near, "net", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", far)
    for host, name, address in ((near, "near", "192.0.2.1"), (far, "far", "192.0.2.2")):
        inside(host, "net", "ip", "addr", "add", f"{address}/24", "dev", name)
        for link in (name, "lo"):
            inside(host, "net", "ip", "link", "set", link, "up")
    return near, far


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_profile(folder: Path, **profile: Any) -> str:
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"profiles": {"lab": profile}}))
    return f"{folder / 'cluster.yaml'}:lab"


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
        crash_at(_Patch, dies_at, _die)
    disturb(**(disturbed or {}))
    sys.argv = [main, *words]
    if main == "dask":
        from dask.__main__ import main as run
    else:
        from distributed.utils import get_mp_context

        get_mp_context().set_forkserver_preload(_PRELOADED)
        from studies.cli import main as run
    run()


class _Patch:
    setattr = staticmethod(setattr)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
