"""Isolation of trials in child processes of a worker, whose exit code and duration are certain.

Blocks with a time limit are computed in this way, and those whose worker was lost, with all later ones of the run.

A block whose child process terminates or exceeds the time limit is computed setting by setting, and then trial by
trial. A trial that terminates two processes by itself gets the status killed, and a trial that exceeds the limit by
itself the status timed out, so that the status of a trial depends on this trial only. Causes on the side of the machine
are repeated, and then leave the block pending.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
from dask.utils import format_bytes
from distributed import get_worker

from pipeline.blocks.evaluate import ENDED_COST, STATUS_MESSAGES, Block, Outcome, Status, join, unevaluated
from pipeline.clusters.launch import ONE_THREAD
from pipeline.declare.panel import Panel
from pipeline.declare.study import Study
from pipeline.execution.child import Request, Step
from pipeline.execution.in_flight import TransientError
from pipeline.execution.work import Task, Work
from pipeline.execution.worker_runs import RUNS

_POLL_SECONDS = 0.05
_START_SECONDS = 300.0
_EXIT_SECONDS = 5.0
_MOST_ATTEMPTS = 3  # attempts of a step whose process terminates for a reason other than its trials
_MEMORY_FRACTION = 0.95  # of the memory limit of a worker, as for the worker itself in Dask


@dataclass(frozen=True)
class End:
    """End of a child process during a step: the status of the trial that causes it, if it does, and the reason."""

    status: Status
    reason: str
    by_trial: bool = True
    """False for a cause on the side of the machine."""
    at_share: bool = False
    """True if the process exceeded only its share of the memory of the worker."""


# computes a step, in a new process if the second argument is True
Compute = Callable[[Step, bool], list[Outcome] | End]


def isolate(compute: Compute, panel: Panel, work: Work, budget: int | None) -> list[Outcome]:
    """Return the outcomes of the settings of a work item, with a status of its own for each trial."""
    block, settings = work.block, work.settings
    ends: dict[Step, End] = {}

    def attempt(step: Step) -> list[Outcome] | End:
        result = compute(step, False)
        if isinstance(result, End):
            ends[step] = result
        return result

    def alone(step: Step) -> list[Outcome] | End:
        """Compute the step of a single trial, which terminates two processes if it is killed."""
        result = ends.get(step) or attempt(step)
        return compute(step, True) if isinstance(result, End) and result.status != Status.TIMED_OUT else result

    together = attempt(Step(block, settings, budget if len(block.trials) > 1 else None))
    if not isinstance(together, End):
        return together
    ends_in_data = isinstance(attempt(Step(block)), End)
    outcomes: dict[int, Outcome | None] = dict.fromkeys(settings)
    for k in settings if len(settings) > 1 else ():
        if not (ends_in_data and panel.applies(panel.cells()[block.cell], panel.settings()[k])):
            result = attempt(Step(block, (k,), budget if len(block.trials) > 1 else None))
            outcomes[k] = None if isinstance(result, End) else result[0]
    singly = [k for k in settings if outcomes[k] is None]
    parts: dict[int, dict[int, Outcome]] = {k: {} for k in singly}
    spent, any_ok = Counter[int](), set[int]()
    for trial in block.trials:
        single = Block(block.panel, block.cell, range(trial, trial + 1))
        tried = [k for k in singly if budget is None or k in any_ok or spent[k] < budget]
        data = alone(Step(single)) if tried and ends_in_data else []
        for k in singly:
            if k not in tried:
                parts[k][trial] = unevaluated(panel, 1, Status.PENDING, "")
                continue
            result = data if isinstance(data, End) else alone(Step(single, (k,)))
            is_ended = isinstance(result, End)
            outcome = unevaluated(panel, 1, result.status, result.reason) if isinstance(result, End) else result[0]
            parts[k][trial] = outcome
            spent[k] += ENDED_COST if is_ended else int(outcome.status[0] == Status.FAILED)
            any_ok |= {k} if outcome.status[0] == Status.OK else set()
    return [outcomes[k] or join(panel, parts[k]) for k in settings]


class Children:
    """Child processes of a worker process for one run, each of which computes one step at a time.

    Threads share the memory of the worker; a step that needs more than its share is repeated with all of it, one such
    step at a time, while others continue with their shares.
    """

    def __init__(self, task: Task, study: Study, memory: int, n_threads: int) -> None:
        self._task, self._spec = task, study.spec()
        self._memory, self._share, self._n_threads = memory, memory // n_threads, n_threads
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._lock, self._large = threading.Lock(), threading.Lock()
        self._is_closed = False

    def __call__(self, request: Request, is_new: bool = False) -> Any:
        """Compute a request in a child process, or in a new one; return its reply, or the `End` of the process."""
        reason = ""
        for _ in range(_MOST_ATTEMPTS):
            result = self._attempt(request, self._share, is_new)
            if isinstance(result, End) and result.at_share:
                with self._large:
                    result = self._attempt(request, self._memory, is_new=True)
            if not isinstance(result, End) or result.by_trial:
                return result
            reason = result.reason
            if self._is_closed:
                break
        raise TransientError(reason)

    def close(self) -> None:
        """End all child processes."""
        self._is_closed = True
        for child in list(self._all):
            child.end()

    def _attempt(self, request: Request, memory: int, is_new: bool) -> Any:
        with self._lock:
            child = self._idle.pop() if self._idle and not is_new else None
        if child is None:
            child = Child()
            self._all.add(child)
            problem = child.load(self._task, self._spec)
            if problem:
                self._remove(child)
                return End(Status.PENDING, problem, by_trial=False)
        try:
            result = child.compute(request, self._task.time_limit, memory, self._memory)
        except BaseException:
            self._remove(child)
            raise
        with self._lock:
            is_kept = not isinstance(result, End) and len(self._idle) < self._n_threads and not self._is_closed
            self._idle += [child] if is_kept else []
        if not is_kept:
            self._remove(child)
        if self._is_closed and isinstance(result, End):
            return End(Status.PENDING, "the run was stopped", by_trial=False)
        return result

    def _remove(self, child: "Child") -> None:
        child.end()
        self._all.discard(child)


class Child:
    """Child process with a fresh interpreter and one-thread libraries; see `pipeline.execution.child`."""

    def __init__(self) -> None:
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from pipeline.execution.child import serve; serve({os.getpid()})"
        )
        theirs, requests = os.pipe()
        replies, other = os.pipe()
        # a child process ends with the thread that started it, so this thread must be none of Dask's
        self._process = _starter.submit(
            subprocess.Popen,
            [sys.executable, "-c", code],
            stdin=theirs,
            stdout=other,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,
        ).result()
        os.close(theirs)
        os.close(other)
        self._requests, self._replies = Connection(requests, readable=False), Connection(replies, writable=False)

    def load(self, task: Task, spec: object) -> str:
        """Load the study; return a one-line error message, or an empty string on success."""
        try:
            self._requests.send((task.source, spec))
            if self._replies.poll(_START_SECONDS):
                problem = self._replies.recv()
                return f"a child process of a worker cannot load the study: {problem}" if problem else ""
            return f"a child process of a worker did not load the study within {_START_SECONDS:g} s"
        except (EOFError, OSError):
            return f"a child process of a worker terminated while it loaded the study: {self._describe_exit()}"

    def compute(self, request: Request, limit: float | None, memory: int, all_memory: int) -> Any:
        """Return the reply within `limit` seconds and `memory` bytes; after an `End` the process is of no use."""
        n_kills, waited, before = _count_kernel_kills(), 0.0, time.monotonic()
        try:
            self._requests.send(request)
            while not self._replies.poll(_POLL_SECONDS):
                now = time.monotonic()
                waited, before = waited + min(now - before, 10 * _POLL_SECONDS), now
                if memory and self._used_memory() > memory * _MEMORY_FRACTION:
                    reason = f"this trial exceeded the memory limit of its worker, {format_bytes(all_memory)}"
                    return End(Status.KILLED, reason, at_share=memory < all_memory)
                if limit is not None and waited > limit and not self._replies.poll():
                    return End(Status.TIMED_OUT, STATUS_MESSAGES[Status.TIMED_OUT])
                if self._process.poll() is not None and not self._replies.poll():
                    raise EOFError
            return self._replies.recv()
        except (EOFError, OSError):
            reason = self._describe_exit()
        if self._process.returncode == -signal.SIGKILL and _count_kernel_kills() != n_kills:
            return End(Status.PENDING, "the memory of a machine of the cluster is full", by_trial=False)
        return End(Status.KILLED, f"{STATUS_MESSAGES[Status.KILLED]}: {reason}")

    def end(self) -> None:
        """Terminate the process and the processes that it started."""
        if self._requests.closed:  # another process may have its identifier
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        self._requests.close()
        self._replies.close()

    def _used_memory(self) -> int:
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def _describe_exit(self) -> str:
        try:
            code = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "its output was closed"
        with suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
        return f"exit code {code}"


_starter = ThreadPoolExecutor(1, thread_name_prefix="dpstudies-children")


def children_of(task: Task, study: Study) -> Children:
    """Return the child processes of a run in this worker process."""

    def start() -> Children:
        worker = get_worker()
        return Children(task, study, worker.memory_manager.memory_limit or 0, worker.state.nthreads)

    return RUNS.children(task.run, start)


def _count_kernel_kills() -> int:
    """Return the number of processes that the kernel of this machine has killed for lack of memory, or 0 if unknown."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/vmstat").read_text().partition("oom_kill ")[2].split()[0])
    return 0
