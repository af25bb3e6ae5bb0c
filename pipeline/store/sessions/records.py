"""Records of the sessions of a store: one file per session, and one file with a copy of each.

A record names the process that writes, what it computes, and for how long. A store may come from somebody else, so that
a record counts only if its checksum, its number and the types of its fields are right.
"""

import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import numpy as np
import threadpoolctl

from pipeline.declare.local_modules import MODULES
from pipeline.declare.method_files import METHODS
from pipeline.errors import Damage
from pipeline.redact import redact_text
from pipeline.store.files.access import Files
from pipeline.store.files.locations import SESSIONS, STATE
from pipeline.store.layout.root import seal, unseal
from pipeline.store.sessions.costs import COSTS, PEAKS, is_costs, is_peaks

PACKAGES = ("numpy", "scipy", "numba", "dask", "distributed", "xarray", "zarr")
SESSION_COPIES = f"{STATE}/sessions.json"  # copies of all records by number
REQUESTED = "asked"
"""Key of the numbers of trials asked for in the record of a session."""
_IDENTIFIER = re.compile(r"[0-9]{6}-[0-9a-f]{12}")  # part of a path
_NUMBER, _RECORD = re.compile("[1-9][0-9]{0,5}"), re.compile(r"[0-9]{6}\.json")  # other files are not records
_TIME = re.compile(r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ", re.ASCII)
_FIELDS: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(["started", "ended", "finished", "cancelled"], lambda value: _TIME.fullmatch(value)),
    **dict.fromkeys(["profile", "command", "until", "unmet", "stopped"], lambda value: isinstance(value, str)),
    **dict.fromkeys(
        ["study_reference", "study_file_sha256", "study_code_sha256", MODULES, METHODS],
        lambda value: isinstance(value, str),
    ),
    **dict.fromkeys(["at_most", "within", "cpu_count"], lambda value: value is None or abs(value) < 2**63),
    "panels": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    REQUESTED: lambda value: isinstance(value, dict),
    COSTS: is_costs,
    PEAKS: is_peaks,
}
"""Tests of the fields of a record that this package reads; they raise TypeError for some other types."""


def now() -> str:
    """Return the current UTC time, to the second, in ISO 8601 format."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def version(package: str) -> str:
    """Return the version of an installed package, whose metadata are read once per process."""
    return metadata.version(package)


def versions() -> dict[str, str]:
    """Return the versions of packages that results may depend on."""
    packages = {name: version(name) for name in ("dpstudies", *PACKAGES)}
    return {**packages, "python": platform.python_version()}


def describe(study_file: str | None) -> dict[str, Any]:
    """Describe this process for the history of a store: command without secrets, versions, machine and git commit."""
    extensions = cast(dict[str, Any], np.show_config(mode="dicts"))["SIMD Extensions"]
    return {
        "command": redact_text(" ".join([Path(sys.argv[0]).name, *sys.argv[1:]])),
        "versions": versions(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "cpu_features": [*extensions["baseline"], *extensions["found"]],
        "blas": sorted({f"{pool['internal_api']} {pool['version']}" for pool in threadpoolctl.threadpool_info()}),
        **({} if study_file is None else _git(Path(study_file))),
    }


def _git(file: Path) -> dict[str, Any]:
    """Return the git commit of a file's repository and its dirty state, or an empty dict if the file is not tracked."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(file.parent), *words], capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)
        return {"git_commit": git("rev-parse", "HEAD"), "git_dirty": bool(git("status", "--porcelain", "--", ":/"))}
    except (OSError, subprocess.SubprocessError):
        return {}


def number_of(identifier: str) -> int:
    """Return the number of a session."""
    return int(identifier.partition("-")[0])


def last_number(files: Files) -> int:
    """Return the number of the latest session of a store, or 0 if there is none."""
    return max([0, *_numbers(files), *read_copies(files)])


def sessions_of(files: Files) -> list[dict[str, Any]]:
    """Return the records of a store's sessions in order; for a lost record, only the key of its file."""
    copies, present = read_copies(files), _numbers(files)
    contents = files.read_many(map(record_key, present))
    return [
        intact_record(number, contents.get(record_key(number))) or copies.get(number) or {"damaged": record_key(number)}
        for number in range(1, max([0, *copies, *present]) + 1)
    ]


def read_record(files: Files, number: int) -> dict[str, Any] | None:
    """Return the record of a session, or its copy."""
    return intact_record(number, files.read(record_key(number))) or read_copies(files).get(number)


def read_copies(files: Files) -> dict[int, dict[str, Any]]:
    """Return the valid copies of the records by number; none if their file is damaged."""
    copies = {
        int(name): record
        for name, record in (unseal(files.read(SESSION_COPIES)) or {}).items()
        if _NUMBER.fullmatch(name)
    }
    return {number: record for number, record in copies.items() if _is_valid(number, record)}


def record_files(records: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """Return the files of records of ended sessions, which are numbered from 1."""
    numbered = {n: {**record, "id": f"{n:06}{record['id'][6:]}"} for n, record in enumerate(records, start=1)}
    copies = {str(number): record for number, record in numbered.items()}
    return {record_key(number): seal(record) for number, record in numbered.items()} | {SESSION_COPIES: seal(copies)}


def has_copies(files: Files) -> bool:
    """Return True if the file with the copies of the records, which every session writes, is intact."""
    return unseal(files.read(SESSION_COPIES)) is not None


def is_lost(record: Mapping[str, Any]) -> bool:
    """Return True for a record that is damaged and has no copy, and that no repair has replaced."""
    return "damaged" in record and "id" not in record


def check_records(files: Files, *, repair: bool = False) -> dict[str, Damage]:
    """Check, and optionally repair, the records of all sessions and their copies; return the damage by name."""
    problems: dict[str, Damage] = {}
    records, copies = sessions_of(files), read_copies(files)
    of_copies = SESSION_COPIES.rpartition("/")[2]
    if not records:
        problems[of_copies] = Damage("lost")
    elif not has_copies(files):
        lost = f"the copies of the records are lost, and those after session {len(records)} may be"
        problems[of_copies] = Damage("damaged", lost)
    for number, record in enumerate(records, start=1):
        content = files.read(record_key(number))
        if intact_record(number, content) is None:
            state = "missing" if content is None else "damaged"
            name = f"session {number:06}.json"
            problems[name] = Damage("damaged", f"the record is {state}; its copy is intact")
            if is_lost(record):
                problems[name] = Damage("lost")
                record |= {"id": f"{number:06}-lost", "ended": now()}
            if repair:
                files.put(record_key(number), seal(record))
        if number not in copies and "ended" in record:  # a process that was killed may not have copied its record
            problems.setdefault(of_copies, Damage("damaged", "records are missing in their copy"))
    if repair and problems:
        put_copies(files, dict(enumerate(records, start=1)))
    return problems


def put_copies(files: Files, records: Mapping[int, Mapping[str, Any]]) -> None:
    """Write the file with the copies of all records."""
    files.put(SESSION_COPIES, seal({str(number): record for number, record in records.items()}))


def intact_record(number: int, content: bytes | None) -> dict[str, Any] | None:
    """Return a record, or None if its file is missing or damaged, or cannot be from this session and package."""
    record = unseal(content)
    return record if _is_valid(number, record) else None


def record_key(number: int) -> str:
    """Return the key of the record of a session."""
    return f"{SESSIONS}/{number:06}.json"


def _is_valid(number: int, record: Any) -> bool:
    match record:
        case {"id": str(identifier), "damaged": str(), "ended": str()}:
            return identifier == f"{number:06}-lost"
        case {
            "id": str(identifier),
            "started": str(),
            "process": {"host": str(), "machine": str(), "pid": int(pid), "created": int() | float(), **further},
        } if isinstance(further.get("start_ticks"), int | None):
            is_own = identifier.startswith(f"{number:06}-") and _IDENTIFIER.fullmatch(identifier) is not None
            with suppress(TypeError):
                are_right = all(is_right(record[name]) for name, is_right in _FIELDS.items() if name in record)
                return is_own and 0 < pid < 2**31 and are_right
    return False


def _numbers(files: Files) -> list[int]:
    return [int(name[:6]) for name in files.names(SESSIONS) if _RECORD.fullmatch(name) and name[:6].strip("0")]
