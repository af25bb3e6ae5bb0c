"""Dask clusters: start or reach the cluster of a profile, and hand out a Client.

Every worker thread computes with one BLAS and OpenMP thread, and in processes that are started here with one numba
thread, since trials are the parallelism. Local profiles listen on the loopback interface only, and so do dashboards
wherever a profile does not say otherwise: who reaches one can read what runs.
"""

import copy
import importlib
import importlib.util
import inspect
import logging
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask
from distributed import Client, LocalCluster, SSHCluster, Worker, WorkerPlugin
from distributed.security import Security
from distributed.utils import silence_logging_cmgr
from threadpoolctl import threadpool_limits

from pipeline.clusters.profiles import THREADS, Profile, load_profile
from pipeline.errors import BadInputError, unknown

__all__ = [
    "ONE_THREAD",
    "THREADS",
    "Launch",
    "Profile",
    "UnreachableSchedulerError",
    "available_cores",
    "connect",
    "has_nannies",
    "job_script",
    "load_profile",
    "make_launch",
    "reach",
    "reach_scheduler",
]

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
_CONNECT_SECONDS = 10
_ASK_SECONDS = 5
_HERE = "127.0.0.1:0"
# a terminal sends Ctrl-C to the workers, too: it is for the driver, which stops them
_IGNORE_INTERRUPT = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
# before it joins: the scheduler counts on a worker from then on
_IMPORT_TASKS = "import pipeline.execution.tasks"


class UnreachableSchedulerError(BadInputError):
    """No scheduler answers at the address of a profile."""


@dataclass(frozen=True)
class Launch:
    """The call that starts a cluster: the profile's, and what it leaves to be decided here.

    Attributes
    ----------
    factory : callable
        The cluster's class.
    kind : {"local", "ssh", "batch", "kubernetes", "other"}
        What is known of it; ``batch`` is any class of dask-jobqueue.
    args, kwargs : tuple, dict
        What it is called with.
    plugin_env : dict
        Environment that the class cannot give to its workers: a plugin does.
    """

    factory: Any
    kind: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    plugin_env: dict[str, str]


def make_launch(profile: Profile) -> Launch:
    """Return the call that starts the cluster of a profile; starts nothing.

    Raises
    ------
    BadInputError
        If the class is not installed, or an argument is not one that can be used.

    Examples
    --------
    >>> launch = make_launch(THREADS)
    >>> launch.kind, launch.kwargs["processes"], launch.kwargs["dashboard_address"]
    ('local', False, '127.0.0.1:0')
    """
    factory = _find_class(profile)
    kwargs = copy.deepcopy(dict(profile.kwargs))
    env = {**ONE_THREAD, **profile.env}
    if factory is LocalCluster:
        in_process = not kwargs.get("processes", True)
        kwargs = {**_local_defaults(in_process), **kwargs}
        if not in_process:
            kwargs["env"] = {**env, **kwargs.get("env", {})}
            # a task that kills its worker comes back at once; pipeline.execution.execute finds the guilty trials
            kwargs.setdefault("scheduler_kwargs", {})["allowed_failures"] = 0
        return Launch(factory, "local", profile.args, kwargs, dict(profile.env) if in_process else {})
    if factory is SSHCluster:
        for options in ("scheduler_options", "worker_options"):
            kwargs[options] = {"dashboard_address": _HERE, **kwargs.get(options, {})}
        kwargs.setdefault("silence_logs", logging.CRITICAL)
        return Launch(factory, "ssh", profile.args, kwargs, env)
    if hasattr(factory, "job_cls"):
        launch = Launch(factory, "batch", profile.args, _batch_arguments(factory, kwargs, env), {})
        try:
            job = _example_job(launch)
        except (TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise BadInputError(f"profile {profile.name} must be what {profile.class_name} takes: {reason}") from error
        # the class matches workers to jobs by this number, and forgets the one that it computes itself
        launch.kwargs["processes"] = job.worker_processes
        return launch
    if profile.module.startswith("dask_kubernetes"):
        allowed = [name for name, p in inspect.signature(factory).parameters.items() if p.kind != p.VAR_KEYWORD]
        for key in kwargs:
            if key not in allowed:
                raise BadInputError(f"profile {profile.name}: {unknown('argument', key, allowed)}")
        kwargs.setdefault("quiet", True)
        if "env" in kwargs:
            raise BadInputError(f"profile {profile.name}: env must stand beside kwargs, not in them; move it")
        if "custom_cluster_spec" in kwargs:  # which says all of the pods, and makes the class ignore env
            return Launch(factory, "kubernetes", profile.args, kwargs, env)
        return Launch(factory, "kubernetes", profile.args, {**kwargs, "env": env}, {})
    return Launch(factory, "other", profile.args, kwargs, env)


def _local_defaults(in_process: bool) -> dict[str, Any]:
    return {
        "dashboard_address": _HERE,
        "worker_dashboard_address": _HERE,
        "silence_logs": logging.CRITICAL,  # what happens to tasks is for pipeline.execution.execute to say
        "threads_per_worker": available_cores() if in_process else 1,
        **({} if in_process else {"preload": [_IGNORE_INTERRUPT, _IMPORT_TASKS]}),
    }


def _batch_arguments(factory: Any, kwargs: dict[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Add the environment and the dashboards' place to what the profile gives, or else the user's ``jobqueue.yaml``."""
    section = kwargs.get("config_name") or factory.job_cls.config_name

    def given(name: str, default: Any) -> Any:
        found = kwargs.get(name)
        return dask.config.get(f"jobqueue.{section}.{name.replace('_', '-')}", default) if found is None else found

    exports = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    return {
        **kwargs,
        "job_script_prologue": [*exports, *given("job_script_prologue", [])],
        "worker_extra_args": ["--dashboard-address", _HERE, *map(str, given("worker_extra_args", []))],
        "scheduler_options": {"dashboard_address": _HERE, **given("scheduler_options", {})},
    }


def job_script(launch: Launch) -> str:
    """Return what a batch system gets for a job of workers; submits none, and starts no scheduler."""
    return _example_job(launch).job_script()


def _example_job(launch: Launch) -> Any:
    """Return a job of a batch system that is not submitted."""
    of_the_cluster = inspect.signature(launch.factory).parameters.keys() - {"config_name", "interface", "protocol"}
    of_the_job = {name: value for name, value in launch.kwargs.items() if name not in of_the_cluster}
    return launch.factory.job_cls("tcp://SCHEDULER:PORT", name="NAME", **of_the_job)


def _find_class(profile: Profile) -> Any:
    try:
        found = getattr(importlib.import_module(profile.module), profile.class_name)
        if found is SSHCluster and importlib.util.find_spec("asyncssh") is None:
            raise ModuleNotFoundError("No module named 'asyncssh'", name="asyncssh")
    except (ImportError, AttributeError, ValueError) as error:
        missing = (getattr(error, "name", None) or "").partition(".")[0]
        hint = (
            "; pip install 'dpstudies[cluster]'" if missing in ("dask_jobqueue", "dask_kubernetes", "asyncssh") else ""
        )
        raise BadInputError(
            f"profile {profile.name} must name an installed cluster class, got {profile.module}.{profile.class_name}: "
            f"{error}{hint}"
        ) from error
    return found


class OneThreadPerTask(WorkerPlugin):
    """Limit BLAS and OpenMP to one thread in each worker."""

    name = "dpstudies-one-thread-per-task"

    def setup(self, worker: Worker) -> None:
        """Set the limit for the life of the worker."""
        self._limits = threadpool_limits(1)

    def teardown(self, worker: Worker) -> None:
        """Restore what was set before, which matters to a worker that lives in the user's process."""
        self._limits.restore_original_limits()


class Environment(WorkerPlugin):
    """Set environment variables in each worker before it loads a study."""

    name = "dpstudies-environment"

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = dict(env)

    def setup(self, worker: Worker) -> None:
        """Set the variables for the life of the worker."""
        self._before = {name: os.environ.get(name) for name in self.env}
        os.environ.update(self.env)

    def teardown(self, worker: Worker) -> None:
        """Restore what was set before, which matters to a worker that lives in the user's process."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def connect(profile: Profile) -> Iterator[Client]:
    """Start or reach the cluster of a profile, and prepare its workers; stop what was started at the end.

    Raises
    ------
    BadInputError
        If the cluster's class does not exist or does not start, no scheduler answers, or no worker comes.
    """
    plugin_env = make_launch(profile).plugin_env if profile.address is None else {}
    with reach(profile) as client:
        try:
            if plugin_env:
                client.register_plugin(Environment(plugin_env))
            client.register_plugin(OneThreadPerTask())
        except Exception as error:
            raise BadInputError(
                f"workers of profile {profile.name} cannot load dpstudies: {type(error).__name__}: {error}; install "
                "the same version there"
            ) from error
        yield client


@contextmanager
def reach(profile: Profile) -> Iterator[Client]:
    """Do what `connect` does, but leave workers as they are: they may have other code, or none.

    Raises
    ------
    BadInputError
        See `connect`.
    """
    # an in-process worker warns of long garbage collections and event loops held by kernels: neither is a fault here
    settings: dict[str, Any] = {
        "distributed.comm.timeouts.connect": f"{_CONNECT_SECONDS}s",
        "distributed.admin.tick.limit": "1h",
        "distributed.admin.low-level-log-length": 10,  # a scheduler here would keep the last 1,000 batches a worker
        # an adaptive cluster asks for one thread per so many seconds of queued work; tasks take about a second
        "distributed.adaptive.target-duration": "1s",
    }
    if profile.class_name == "LocalCluster":  # a nanny that starts its worker again is not to be given up
        settings["distributed.deploy.lost-worker-timeout"] = "1000d"
    # the limit of the thread that holds one first wins in its process, so this thread takes it for local workers
    with dask.config.set(settings), threadpool_limits(1), silence_logging_cmgr(logging.CRITICAL):
        if profile.address is not None:
            client = _reach_address(profile)
            try:
                _await_worker(client, profile)
                yield client
            finally:
                client.close()
            return
        cluster = _start(profile)
        try:
            with Client(cluster, set_as_default=False) as client:
                _await_worker(client, profile)
                yield client
        finally:
            cluster.close()


@contextmanager
def reach_scheduler(profile: Profile) -> Iterator[Client]:
    """Reach the scheduler of a profile with an address, which need not have workers, to ask about its tasks.

    Raises
    ------
    UnreachableSchedulerError
        If no scheduler answers.
    """
    timeout = {"distributed.comm.timeouts.connect": f"{_ASK_SECONDS}s"}
    with dask.config.set(timeout), silence_logging_cmgr(logging.CRITICAL):
        client = _reach_address(profile, _ASK_SECONDS)
        try:
            yield client
        finally:
            client.close()


def has_nannies(client: Client) -> bool:
    """Whether every worker is a process that a nanny starts again when it is killed, as time limits need."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return bool(workers) and all(worker["nanny"] for worker in workers)


def _await_worker(client: Client, profile: Profile) -> None:
    wanted = [client.submit(os.getpid, pure=False)] if profile.adapt else []  # an adaptive cluster waits for a task
    try:
        client.wait_for_workers(1, timeout=profile.wait)
    except TimeoutError as error:
        raise BadInputError(
            f"no worker has joined the cluster of profile {profile.name} (waited {profile.wait:g} s): start one with "
            "'dask worker', correct the profile, or let it wait longer by its key wait"
        ) from error
    finally:
        client.cancel(wanted)


def _reach_address(profile: Profile, seconds: float | None = None) -> Client:
    seconds = _CONNECT_SECONDS if seconds is None else seconds
    try:
        security = Security(**profile.security) if profile.security else None
    except (TypeError, ValueError, OSError) as error:
        raise BadInputError(
            f"the security of profile {profile.name} must be what distributed.Security takes: {error}"
        ) from error
    try:
        return Client(profile.address, security=security, timeout=seconds, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UnreachableSchedulerError(
            f"no scheduler answers at {profile.address} (waited {seconds} s): start one with "
            f"'dask scheduler', or correct the address or security of profile {profile.name}"
        ) from error


def _start(profile: Profile) -> Any:
    launch = make_launch(profile)
    cluster = None
    try:
        cluster = launch.factory(*launch.args, **launch.kwargs)
        if profile.adapt:
            cluster.adapt(**profile.adapt)
        elif profile.scale is not None:
            cluster.scale(profile.scale)
    except Exception as error:
        if cluster is not None:
            cluster.close()
        reason = " ".join(str(error).split())
        raise BadInputError(f"the cluster of profile {profile.name} did not start: {reason}") from error
    return cluster


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
