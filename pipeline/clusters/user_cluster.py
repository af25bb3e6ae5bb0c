"""Clusters of the user: a client or a cluster object of Dask, which a run uses and leaves open."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import dask
from distributed import Client, Security, SpecCluster, Worker, get_worker, rejoin, secede
from distributed.deploy.cluster import Cluster

from pipeline.clusters.profiles import THREADS, Profile, load_profile
from pipeline.errors import BadInputError
from pipeline.redact import format_error, redact_text, short_repr

_DISTRIBUTED = ("dask.distributed", "distributed")  # schedulers by their names in Dask's configuration


@dataclass(frozen=True, eq=False)
class UserCluster:
    """Client or cluster object of the user, or Dask's current client."""

    # `distributed.Client`, an object with the address of a scheduler, or the worker that runs the present task
    handle: Any = field(repr=False)
    is_current: bool = False  # True if no cluster was named
    name: ClassVar[str] = "Dask client"  # in the records of sessions, in place of a profile
    wait: ClassVar[float] = Profile.wait

    @property
    def label(self) -> str:
        """Phrase for messages."""
        if self.is_current:
            return "Dask's current client"
        return "the given client" if isinstance(self.handle, Client) else "the given cluster"

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        is_linked = isinstance(self.handle, Client | Worker)
        return str(self.handle.scheduler.address if is_linked else self.handle.scheduler_address)

    @property
    def outlives_process(self) -> bool:
        """True if the scheduler continues after this process has ended."""
        cluster = getattr(self.handle, "cluster", None) if isinstance(self.handle, Client | Worker) else self.handle
        if cluster is None:
            return not self.address.startswith("inproc://")
        return not isinstance(cluster, SpecCluster) and not getattr(cluster, "shutdown_on_close", True)


ChosenCluster: TypeAlias = Profile | UserCluster
ClusterChoice: TypeAlias = str | os.PathLike[str] | ChosenCluster | Client | Cluster | None
"""Type of the argument ``cluster`` of Python functions, see `choose_cluster`."""


def choose_cluster(choice: ClusterChoice) -> ChosenCluster:
    """Return the cluster of an argument: a profile by its name or file, or a client or cluster object of Dask.

    For None, return Dask's current client or, without one, threads of this process. Commands call `load_profile`
    instead, which takes no client.
    """
    if isinstance(choice, ChosenCluster):
        return choice
    if isinstance(choice, str | os.PathLike):
        return load_profile(os.fspath(choice))
    if choice is None:
        current = _current_client()
        return THREADS if current is None else _usable(UserCluster(current, is_current=True))
    if isinstance(choice, Client) or isinstance(getattr(choice, "scheduler_address", None), str):
        return _usable(UserCluster(choice))
    raise BadInputError(
        "cluster must be a profile (NAME, FILE or FILE:PROFILE), a distributed.Client or a Dask cluster, got "
        f"{type(choice).__name__} {short_repr(choice)}"
    )


def _current_client() -> Client | Worker | None:
    """Return the client whose scheduler `dask.compute` would use here, in a task the worker, or None."""
    configured = dask.config.get("scheduler", None)
    if isinstance(configured, Client):
        return configured
    if configured is not None and str(configured).lower() not in _DISTRIBUTED:
        return None  # the user has named another scheduler of Dask
    with suppress(ValueError):
        return get_worker()
    with suppress(ValueError):
        return Client.current()
    return None


def _usable(cluster: UserCluster) -> UserCluster:
    """Return a cluster of the user; raise `BadInputError` if it is asynchronous or not connected."""
    handle, remedy = cluster.handle, "; or pass cluster='threads'" if cluster.is_current else ""
    if _is_in_event_loop() if isinstance(handle, Worker) else getattr(handle, "asynchronous", False):
        raise BadInputError(
            f"{cluster.label} must be synchronous, got an asynchronous {type(handle).__name__} in its event loop; call "
            f"this function in a thread, with asyncio.to_thread{remedy}"
        )
    state = getattr(handle, "status", "running")  # text, or an enumeration
    status = str(getattr(state, "name", state))
    if status != "running":
        raise BadInputError(f"{cluster.label} must be running, got status {status}; create a new one{remedy}")
    return cluster


def _is_in_event_loop() -> bool:
    """Return True in a coroutine, such as that of an asynchronous task."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def open_client(cluster: UserCluster) -> Iterator[Client]:
    """Yield the client of the user, which stays open, or another one of the same scheduler, which is closed."""
    handle = cluster.handle
    if isinstance(handle, Client):
        yield handle
        return
    try:
        if isinstance(handle, Worker):
            # `get_client` and `worker_client` would make theirs the default client of the process
            client = Client(handle.scheduler.address, security=_as_client(handle.security), set_as_default=False)
        else:
            client = Client(handle, set_as_default=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInputError(
            f"no scheduler responds at {redact_text(cluster.address)} of {cluster.label}: {format_error(error)}; start "
            "the cluster again"
        ) from error
    with closing(client):
        yield client


def _as_client(security: Security) -> Security:
    """Return the security of a worker for a client; ``dask worker --tls-cert`` sets a certificate for workers only."""
    of_client = copy(security)
    if of_client.tls_client_cert is None:
        of_client.tls_client_cert, of_client.tls_client_key = security.tls_worker_cert, security.tls_worker_key
    return of_client


@contextmanager
def released_thread() -> Iterator[None]:
    """Leave the thread of the present Dask task, if there is one, to other tasks, as `dask.compute` does."""
    try:
        secede()
    except (ValueError, KeyError, AttributeError):  # not in a task, or its thread was released before
        yield
        return
    try:
        yield
    finally:
        rejoin()
