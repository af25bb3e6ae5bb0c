"""Dask clusters by name: read ``cluster.yaml``, start or reach the cluster, and hand out a Client.

Every worker thread computes with one BLAS and OpenMP thread, and in processes that are started here with one numba
thread, since trials are the parallelism. Local profiles
listen on the loopback interface only.
"""

import copy
import importlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import yaml
from distributed import Client, Worker, WorkerPlugin
from distributed.security import Security
from threadpoolctl import threadpool_limits

from pipeline.errors import BadInputError, unknown

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
_KEYS = ("module", "class", "args", "kwargs", "address", "security", "scale", "adapt", "env")
_CONNECT_SECONDS = 10
_WORKER_SECONDS = 60
# a terminal sends Ctrl-C to the workers, too: it is for the driver, which stops them
_IGNORE_INTERRUPT = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


@dataclass(frozen=True)
class Profile:
    """How to get a cluster: start one of a class, or reach a scheduler at an address.

    Attributes
    ----------
    name : str
        Name of the profile.
    module, class_name : str
        Where the cluster's class is, such as ``distributed`` and ``LocalCluster``.
    args, kwargs : tuple, dict
        What it is called with.
    address : str or None
        Address of a running scheduler; then no cluster is started.
    security : dict
        Arguments of `distributed.Security`, for an address with TLS.
    scale : int or None
        Workers to ask for.
    adapt : dict
        Arguments of the cluster's ``adapt``.
    env : dict
        Environment of worker processes, beside `ONE_THREAD`.
    """

    name: str
    module: str = "distributed"
    class_name: str = "LocalCluster"
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None
    security: Mapping[str, Any] = field(default_factory=dict)
    scale: int | None = None
    adapt: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


THREADS = Profile("threads", kwargs={"processes": False, "n_workers": 1})


def load_profile(choice: str | None) -> Profile:
    """Return the profile that ``--cluster`` names.

    Parameters
    ----------
    choice : str or None
        ``FILE`` or ``FILE:PROFILE``; None for the built-in `THREADS`, for which no file is read. Without a profile the
        file's only one is taken, or the one that its key ``default`` names.

    Raises
    ------
    BadInputError
        If the file cannot be read, or holds a key that is not known.
    """
    if choice is None:
        return THREADS
    path, _, name = choice.partition(":")
    try:
        document = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise BadInputError(f"cannot read the cluster file {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} must be YAML: {' '.join(str(error).split())}") from error
    document = _mapping(document, path)
    for key in document:
        if key not in ("default", "profiles"):
            raise BadInputError(f"{path}: {unknown('key', str(key), ('default', 'profiles'))}")
    profiles = _mapping(document.get("profiles"), f"{path}: profiles")
    if not profiles:
        raise BadInputError(f"{path}: profiles must name at least one profile, got none")
    name = name or str(document.get("default", "")) or (next(iter(profiles)) if len(profiles) == 1 else "")
    if not name:
        raise BadInputError(f"{path} has several profiles: {', '.join(profiles)}; choose one with {path}:NAME")
    if name not in profiles:
        raise BadInputError(f"{path}: {unknown('profile', name, profiles)}")
    return _profile(name, _mapping(profiles[name], f"{path}: profile {name}"), f"{path}: profile {name}")


def _profile(name: str, given: Mapping[str, Any], where: str) -> Profile:
    for key in given:
        if key not in _KEYS:
            raise BadInputError(f"{where}: {unknown('key', str(key), _KEYS)}")
    if ("address" in given) == ("class" in given):
        raise BadInputError(f"{where} must have either an address or a module and class, got {', '.join(given)}")
    address = given.get("address")
    if address is not None and not re.fullmatch(r"[a-z]+://.+:\d+", str(address)):
        raise BadInputError(f"{where}: address must be like tcp://127.0.0.1:8786, got {address!r}")
    for key in ("args", "kwargs", "scale", "adapt", "env"):
        if address is not None and key in given:
            raise BadInputError(f"{where}: {key} is for a cluster that is started, not for an address; remove it")
    if "scale" in given and "adapt" in given:
        raise BadInputError(f"{where} must have scale or adapt, got both")
    scale = given.get("scale")
    if scale is not None and (not isinstance(scale, int) or isinstance(scale, bool) or scale < 1):
        raise BadInputError(f"{where}: scale must be a whole number >= 1, got {scale!r}")
    if not isinstance(given.get("args", []), list):
        raise BadInputError(f"{where}: args must be a list, got {given['args']!r}")
    env = {str(key): str(value) for key, value in _mapping(given.get("env", {}), f"{where}: env").items()}
    return Profile(
        name,
        module=str(given.get("module", "distributed")),
        class_name=str(given.get("class", "")),
        args=tuple(given.get("args", ())),
        kwargs=_mapping(given.get("kwargs", {}), f"{where}: kwargs"),
        address=address,
        security=_mapping(given.get("security", {}), f"{where}: security"),
        scale=scale,
        adapt=_mapping(given.get("adapt", {}), f"{where}: adapt"),
        env=env,
    )


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInputError(f"{where} must be a mapping, got {value!r}")
    return value


class OneThreadPerTask(WorkerPlugin):
    """Limit BLAS and OpenMP to one thread in each worker."""

    name = "dpstudies-one-thread-per-task"

    def setup(self, worker: Worker) -> None:
        """Set the limit for the life of the worker."""
        self._limits = threadpool_limits(1)

    def teardown(self, worker: Worker) -> None:
        """Restore what was set before, which matters to a worker that lives in the user's process."""
        self._limits.restore_original_limits()


@contextmanager
def connect(profile: Profile) -> Iterator[Client]:
    """Start or reach the cluster of a profile; stop what was started at the end.

    Raises
    ------
    BadInputError
        If the cluster's class does not exist or does not start, or no scheduler answers.
    """
    # an in-process worker warns of long garbage collections and event loops held by kernels: neither is a fault here
    settings = {"distributed.comm.timeouts.connect": f"{_CONNECT_SECONDS}s", "distributed.admin.tick.limit": "1h"}
    # the limit of the thread that holds one first wins in its process, so this thread takes it for local workers
    with dask.config.set(settings), threadpool_limits(1):
        if profile.address is not None:
            client = _reach(profile)
            try:
                _prepare(client, profile)
                yield client
            finally:
                client.close()
            return
        cluster = _start(profile)
        try:
            with Client(cluster, set_as_default=False) as client:
                _prepare(client, profile)
                yield client
        finally:
            cluster.close()


def _prepare(client: Client, profile: Profile) -> None:
    """Wait for a first worker, and limit the threads of each that is there or will come."""
    try:
        client.wait_for_workers(1, timeout=_WORKER_SECONDS)
    except TimeoutError as error:
        raise BadInputError(
            f"no worker has joined the cluster of profile {profile.name} (waited {_WORKER_SECONDS} s): start one with "
            "'dask worker', or correct the profile"
        ) from error
    client.register_plugin(OneThreadPerTask())


def _reach(profile: Profile) -> Client:
    try:
        security = Security(**profile.security) if profile.security else None
    except (TypeError, ValueError, OSError) as error:
        raise BadInputError(
            f"the security of profile {profile.name} must be what distributed.Security takes: {error}"
        ) from error
    try:
        return Client(profile.address, security=security, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise BadInputError(
            f"no scheduler answers at {profile.address} (waited {_CONNECT_SECONDS} s): start one with "
            f"'dask scheduler', or correct the address in profile {profile.name}"
        ) from error


def _start(profile: Profile) -> Any:
    try:
        cluster_class = getattr(importlib.import_module(profile.module), profile.class_name)
    except (ImportError, AttributeError) as error:
        raise BadInputError(
            f"profile {profile.name} must name an installed cluster class, got {profile.module}.{profile.class_name}: "
            f"{error}"
        ) from error
    kwargs = copy.deepcopy(dict(profile.kwargs))
    env = {**ONE_THREAD, **profile.env}
    if (profile.module, profile.class_name) == ("distributed", "LocalCluster"):
        quiet = {"silence_logs": logging.CRITICAL}  # what happens to tasks is for pipeline.execute to say
        kwargs = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0", **quiet, **kwargs}
        kwargs.setdefault("threads_per_worker", 1 if kwargs.get("processes", True) else available_cores())
        if kwargs.get("processes", True):
            kwargs["env"] = {**env, **kwargs.get("env", {})}
            kwargs.setdefault("preload", [_IGNORE_INTERRUPT])
            # a task that kills its worker comes back at once; pipeline.execute finds the guilty trials
            kwargs.setdefault("scheduler_kwargs", {})["allowed_failures"] = 0
    elif profile.env:
        kwargs["env"] = {**profile.env, **kwargs.get("env", {})}
    try:
        cluster = cluster_class(*profile.args, **kwargs)
        if profile.adapt:
            cluster.adapt(**profile.adapt)
        elif profile.scale is not None:
            cluster.scale(profile.scale)
    except Exception as error:
        raise BadInputError(f"the cluster of profile {profile.name} did not start: {error}") from error
    return cluster


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
