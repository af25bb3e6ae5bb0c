"""Checks of the workers of a cluster before a study runs.

A worker must have the same code as this process (package versions, and source of this project's packages), since
results are reproducible only with the same code. It must also read and write the same folder or bucket.
"""

import hashlib
import importlib.util
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import Client

from pipeline.clusters.cluster import UnreachableSchedulerError
from pipeline.errors import BadInputError
from pipeline.redact import format_error
from pipeline.store.files.locations import exists_remotely, is_local, normalise_location, probe_name
from pipeline.store.sessions.records import PACKAGES, versions

OWN_PACKAGES = ("mechanisms", "pipeline", "studies")


def check_workers(client: Client, store: str | None = None) -> dict[str, list[str]]:
    """Compare every worker with this process, exchange files at a store, and return the failed checks by address."""
    try:
        faults, able = _version_faults(client)
    except (OSError, AttributeError, KeyError) as error:  # a client without connection has no scheduler, or no answers
        raise UnreachableSchedulerError(
            "the connection to the scheduler was lost before its workers were checked: "
            f"{format_error(error)}; restart the scheduler, then check again"
        ) from error
    if able:
        for worker, faults_of_worker in _source_faults(client, able).items():
            faults[worker] += faults_of_worker
        for worker, fault in (_store_faults(client, store, able) if store is not None else {}).items():
            faults[worker].append(fault)
    return dict(sorted(faults.items()))


def _version_faults(client: Client) -> tuple[dict[str, list[str]], list[str]]:
    """Compare package versions on workers with those here, without code; also return workers that unpickle code."""
    here = {**versions(), "python": ".".join(map(str, sys.version_info))}
    answers = client.get_versions(check=False, packages=["dpstudies", *PACKAGES])["workers"]
    faults: dict[str, list[str]] = {}
    able = []
    for worker in client.nthreads():
        if worker not in answers:
            faults[worker] = ["python does not respond"]
            continue
        there = answers[worker]["packages"]
        faults[worker] = [
            f"{name} {there.get(name) or 'is not installed'}, here {here[name]}"
            for name in ("python", "dpstudies", *PACKAGES)
            if there.get(name) != here[name]
        ]
        able += [worker] if there.get("python") == here["python"] else []
    return faults, able


def _source_faults(client: Client, workers: list[str]) -> dict[str, list[str]]:
    """Compare the sources of this project's packages on workers with those of this process."""
    here = hash_sources(OWN_PACKAGES)
    with _by_value():
        answers = client.run(hash_sources, OWN_PACKAGES, workers=workers, on_error="return")
    return {
        worker: [format_error(there)]
        if isinstance(there, BaseException)
        else [
            f"package {name} {'has other code' if there[name] else 'does not import'}"
            for name in OWN_PACKAGES
            if there[name] != here[name]
        ]
        for worker, there in answers.items()
    }


def hash_sources(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the SHA-256 of the names and contents of each package's Python files, or "" for a missing package."""
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


def require_shared(client: Client, store: str) -> None:
    """Raise BadInputError if a worker cannot read and write the files of this process at a store; nothing is left."""
    for worker, fault in _store_faults(client, store, list(client.nthreads())).items():
        raise BadInputError(f"worker {worker}: {fault}; choose a --store that all machines can open")


def _store_faults(client: Client, store: str, workers: list[str]) -> dict[str, str]:
    """Return, for each worker that cannot use the location of a store, the reason."""
    run = uuid.uuid4().hex
    place = _probe_place(normalise_location(store))
    # left if this process is killed; a folder with these files only counts as empty
    ours = f"{place}/{probe_name('client', run)}"
    theirs = {worker: f"{place}/{probe_name(k, run)}" for k, worker in enumerate(workers)}
    faults: dict[str, str] = {}

    def on_each(function: Any, *args: Any) -> None:
        with _by_value():
            for worker, path in theirs.items():
                fault = client.run(function, path, *args, workers=[worker], on_error="return")[worker]
                if fault is not None:
                    faults.setdefault(worker, fault if isinstance(fault, str) else format_error(fault))

    try:
        write_probe(ours, run)
    except Exception as error:
        raise BadInputError(
            f"this process cannot write to {place}: {format_error(error)}; choose another --store"
        ) from error
    try:
        on_each(exchange_probes, ours, run)
        for worker, path in theirs.items():
            if worker not in faults and read_probe(path) != run:
                faults[worker] = f"its files in {place} are not visible to this process: the folder is not shared"
    finally:
        on_each(remove_probe)
        for path in (ours, *theirs.values()):
            remove_probe(path)
    return faults


def _probe_place(store: str) -> str:
    """Return the path of a store or, if it does not exist, of its nearest existing parent folder."""
    if not is_local(store):
        return store if exists_remotely(store) else store.rpartition("/")[0]
    path = Path(store)
    return str(next(place for place in (path, *path.parents) if place.exists()))


def exchange_probes(path: str, ours: str, run: str) -> str | None:
    """Read the client's probe file on a worker, and write a second one; return an error message, or None on success."""
    probe = read_probe(ours)
    if probe != run:
        return f"does not see the files of this process in {ours.rpartition('/')[0]}: the folder is not shared"
    write_probe(path, run)
    return None


def write_probe(path: str, run: str) -> None:
    """Write a probe file that contains the identifier of a run."""
    files, name = _folder_of(path)
    files.create(name, run.encode())


def read_probe(path: str) -> str | None:
    """Return the content of a probe file, or None if it does not exist."""
    files, name = _folder_of(path)
    content = files.read(name)
    return None if content is None else content.decode()


def remove_probe(path: str) -> None:
    """Remove a probe file if it exists."""
    files, name = _folder_of(path)
    files.delete([name])


def _folder_of(path: str) -> tuple[Any, str]:
    """Return the files of the folder of a probe file, and its name in the folder."""
    from pipeline.store.files.access import open_files  # here, so that workers without it report its absence

    folder, _, name = path.rpartition("/")
    return open_files(folder or "/"), name


@contextmanager
def _by_value() -> Iterator[None]:
    """Pickle the functions of this module by value, because workers may have an older version of it, or none."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
