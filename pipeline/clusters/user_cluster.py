"""Clusters of the user: a client or a cluster object of Dask, which a run uses and leaves open."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import dask
from distributed import Client, SpecCluster, get_client, rejoin, secede
from distributed.deploy.cluster import Cluster

from pipeline.clusters.profiles import THREADS, Profile, load_profile
from pipeline.errors import BadInputError
from pipeline.redact import format_error, redact_text, short_repr

_DISTRIBUTED = ("dask.distributed", "distributed")  # schedulers by their names in Dask's configuration


@dataclass(frozen=True, eq=False)
class UserCluster:
    """Client or cluster object of the user, or Dask's current client."""

    handle: Any = field(repr=False)  # `distributed.Client`, or an object with the address of a scheduler
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
        is_client = isinstance(self.handle, Client)
        return str(self.handle.scheduler.address if is_client else self.handle.scheduler_address)

    @property
    def outlives_process(self) -> bool:
        """True if the scheduler continues after this process has ended."""
        cluster = self.handle.cluster if isinstance(self.handle, Client) else self.handle
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


def _current_client() -> Client | None:
    """Return the client that `dask.compute` would use here, in a task that of its worker, or None."""
    if dask.config.get("scheduler", None) not in (None, *_DISTRIBUTED):
        return None  # the user has named another scheduler
    try:
        return get_client()
    except ValueError:
        return None


def _usable(cluster: UserCluster) -> UserCluster:
    """Return a cluster of the user; raise `BadInputError` if it is asynchronous or not connected."""
    handle, remedy = cluster.handle, "; or pass cluster='threads'" if cluster.is_current else ""
    if getattr(handle, "asynchronous", False):
        raise BadInputError(
            f"{cluster.label} must be synchronous, got an asynchronous {type(handle).__name__} in its event loop; call "
            f"this function in a thread, with asyncio.to_thread{remedy}"
        )
    status = str(getattr(handle.status, "name", handle.status))
    if status != "running":
        raise BadInputError(f"{cluster.label} must be running, got status {status}; create a new one{remedy}")
    return cluster


@contextmanager
def open_client(cluster: UserCluster) -> Iterator[Client]:
    """Yield the client of the user, which stays open, or a client of its own for a cluster object, which is closed."""
    if isinstance(cluster.handle, Client):
        yield cluster.handle
        return
    try:
        client = Client(cluster.handle, set_as_default=False)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInputError(
            f"no scheduler responds at {redact_text(cluster.address)} of {cluster.label}: {format_error(error)}; start "
            "the cluster again"
        ) from error
    with closing(client):
        yield client


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
