"""Checks of a cluster before a study runs there: whether each worker is fit for the work.

A worker is fit if it has the same code as this process (versions of packages, and the text of our own), and reads and
writes the same folder or bucket. Numbers are the same on workers with the same code only.
"""

import hashlib
import importlib.util
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import fsspec.core
from distributed import Client

from pipeline.redact import told
from pipeline.errors import BadInputError
from pipeline.stores.places import is_local, normal_place
from pipeline.stores.provenance import PACKAGES, versions

OWN_PACKAGES = ("mechanisms", "pipeline", "studies")
_OF_PYTHON = re.compile("python ")


@dataclass(frozen=True)
class WorkerCheck:
    """Result of the checks of one worker.

    Attributes
    ----------
    address : str
        Its address.
    faults : tuple of str
        Reasons why it is unfit; none if all is well.
    """

    address: str
    faults: tuple[str, ...]


def check_workers(client: Client, store: str | None = None) -> list[WorkerCheck]:
    """Compare every worker with this process.

    Parameters
    ----------
    client : distributed.Client
        From `pipeline.clusters.cluster.reach`: workers need not have our packages.
    store : str, optional
        Path or URL of a store, which need not exist; each worker must read what this process writes there, and write
        what this process reads. Nothing is left behind.

    Returns
    -------
    list of WorkerCheck
        One per worker, by address.

    Raises
    ------
    BadInputError
        If this process itself cannot write there.
    """
    faults = _version_faults(client)
    # code objects do not travel between versions of Python
    able = [worker for worker, found in faults.items() if not any(_OF_PYTHON.match(fault) for fault in found)]
    if able:
        for worker, found in _source_faults(client, able).items():
            faults[worker] += found
        for worker, fault in (_store_faults(client, store, able) if store is not None else {}).items():
            faults[worker].append(fault)
    return [WorkerCheck(worker, tuple(found)) for worker, found in sorted(faults.items())]


def _version_faults(client: Client) -> dict[str, list[str]]:
    """Compare versions, which ships no code."""
    here = {**versions(), "python": ".".join(map(str, sys.version_info))}
    answers = client.get_versions(check=False, packages=["dpstudies", *PACKAGES])["workers"]
    faults: dict[str, list[str]] = {}
    for worker in client.scheduler_info(n_workers=-1)["workers"]:
        if worker not in answers:
            faults[worker] = ["python does not answer"]
            continue
        there = answers[worker]["packages"]
        faults[worker] = [
            f"{name} {there.get(name) or 'is not installed'}, here {here[name]}"
            for name in ("python", "dpstudies", *PACKAGES)
            if there.get(name) != here[name]
        ]
    return faults


def _source_faults(client: Client, workers: list[str]) -> dict[str, list[str]]:
    """Compare the text of our own packages."""
    here = hash_sources(OWN_PACKAGES)
    with _by_value():
        answers = client.run(hash_sources, OWN_PACKAGES, workers=workers, on_error="return")
    return {
        worker: [told(there)]
        if isinstance(there, BaseException)
        else [
            f"package {name} {'has other code' if there[name] else 'does not import'}"
            for name in OWN_PACKAGES
            if there[name] != here[name]
        ]
        for worker, there in answers.items()
    }


def hash_sources(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the SHA-256 of each package's Python files, their names and texts; empty where there is no such package.

    Examples
    --------
    >>> [len(value) for value in hash_sources(("pipeline", "no_such_package")).values()]
    [64, 0]
    """
    hashes = {}
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            hashes[package] = ""
            continue
        folder = Path(spec.origin).parent
        total = hashlib.sha256()
        for file in sorted(folder.rglob("*.py"), key=lambda file: file.relative_to(folder).as_posix()):
            text = file.read_bytes()
            total.update(f"{file.relative_to(folder).as_posix()}\n{len(text)}\n".encode())
            total.update(text)
        hashes[package] = total.hexdigest()
    return hashes


def _store_faults(client: Client, store: str, workers: list[str]) -> dict[str, str]:
    """Return why workers cannot use the place of a store, as far as they cannot."""
    run = uuid.uuid4().hex
    place = _probe_place(normal_place(store))
    # named as what a writer that died leaves behind in a store, so that the next run removes it if this one dies
    ours = f"{place}/cluster-check.{run}.partial"
    theirs = {worker: f"{place}/cluster-check-{k}.{run}.partial" for k, worker in enumerate(workers)}
    faults: dict[str, str] = {}

    def on_each(function: Any, *args: Any) -> None:
        with _by_value():
            for worker, path in theirs.items():
                found = client.run(function, path, *args, workers=[worker], on_error="return")[worker]
                if found is not None:
                    faults.setdefault(worker, found if isinstance(found, str) else told(found))

    try:
        write_probe(ours, run)
    except Exception as error:
        raise BadInputError(f"this process cannot write to {place}: {told(error)}; choose another --store") from error
    try:
        on_each(exchange_probes, ours, run)
        for worker, path in theirs.items():
            if worker not in faults and read_probe(path) != run:
                faults[worker] = f"what it writes to {place} is not seen here: the folder is not shared"
    finally:
        on_each(remove_probe)
        for path in (ours, *theirs.values()):
            remove_probe(path)
    return faults


def _probe_place(store: str) -> str:
    """Return the store if it exists, else the nearest folder or prefix above it: a run makes the ones between."""
    if not is_local(store):
        try:
            files, path = fsspec.core.url_to_fs(store)
            inside = files.exists(path)
        except Exception as error:
            raise BadInputError(f"cannot look into {store}: {told(error)}; choose another --store") from error
        return store if inside else store.rpartition("/")[0]
    path = Path(store)
    return str(next(place for place in (path, *path.parents) if place.exists()))


def exchange_probes(path: str, ours: str, run: str) -> str | None:
    """Read the client's probe and write one's own, on a worker; return what is wrong."""
    found = read_probe(ours)
    if found != run:
        return f"does not see what this process writes to {ours.rpartition('/')[0]}: the folder is not shared"
    write_probe(path, run)
    return None


def write_probe(path: str, run: str) -> None:
    """Write a probe."""
    files, place = fsspec.core.url_to_fs(path)
    files.pipe_file(place, run.encode())


def read_probe(path: str) -> str | None:
    """Return what a probe holds, None where there is none."""
    files, place = fsspec.core.url_to_fs(path)
    try:
        return files.cat_file(place).decode()
    except FileNotFoundError:
        return None


def remove_probe(path: str) -> None:
    """Remove a probe, if it is there."""
    files, place = fsspec.core.url_to_fs(path)
    with suppress(FileNotFoundError):
        files.rm_file(place)


@contextmanager
def _by_value() -> Iterator[None]:
    """Send functions of this module by value: a worker may have an older one, or none."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
