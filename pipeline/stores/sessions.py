"""Sessions: exclusive write access to a store, and the records of past sessions.

Sessions are numbered. Once the previous session is over, a process begins the next one by creating its record, which
only one process can do. A session is over when its record states an end, when its process no longer exists (checked on
the same machine), or when its heartbeat has not changed for `LEASE_SECONDS`. The clock of the waiting process measures
this time; clocks of different machines are never compared. The new session then fences earlier sessions, so that a
process suspended past its lease cannot write when it resumes.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from pipeline.errors import BadInputError, BusyStoreError, SessionSupersededError, command
from pipeline.stores.files import Files, open_files
from pipeline.stores.locations import SESSIONS
from pipeline.stores.provenance import now
from pipeline.stores.root import seal, unseal

HEARTBEAT_SECONDS = 5.0
LEASE_SECONDS = 60.0
_MOST_ATTEMPTS = 100
_POLL_SECONDS = 0.5
_ENDED: set[str] = set()  # identifiers of sessions of this process that have ended


class Session:
    """Exclusive write access to a store; call `begin` to acquire and `end` to release it.

    Attributes
    ----------
    id : str
        Identifier of the session, which workers require to write to the store.
    files : Files
        Files of the store that the session may write.
    record : dict
        Record of the session, as stored.
    """

    def __init__(self, number: int, files: Files, record: Mapping[str, Any]) -> None:
        self.id: str = record["id"]
        self.files = files
        self._number = number
        self.record = dict(record)
        self._over = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="dpstudies-heartbeat", daemon=True)

    @classmethod
    def begin(cls, url: str, record: Mapping[str, Any]) -> "Session":
        """Begin the next session of a store.

        Parameters
        ----------
        url : str
            Location of the store, which need not exist yet.
        record : mapping
            JSON values to record.

        Raises
        ------
        BusyStoreError
            If another session is active.
        BadInputError
            If the location is not writable.
        """
        reader = open_files(url)
        try:
            for _ in range(_MOST_ATTEMPTS):
                number = require_idle(reader)
                begun = cls._attempt(url, number + 1, {**record, "detached": False})
                if begun is not None:
                    break
            else:
                raise BusyStoreError(f"other sessions keep starting on the store {url}; try again later")
        except OSError as error:
            raise BadInputError(f"cannot write to the store {url}: {error.strerror or error}") from error
        begun.files.fence_others()
        begun._heart.start()
        return begun

    @classmethod
    def _attempt(cls, url: str, number: int, record: Mapping[str, Any]) -> "Session | None":
        identifier = f"{number:06}-{uuid.uuid4().hex[:12]}"
        files = open_files(url, identifier)
        files.begin()
        complete = {"id": identifier, "started": now(), **record, "process": _this_process()}
        if files.create(_key(number), seal(complete)):
            return cls(number, files, complete)
        files.end()
        return None

    def update(self, fields: Mapping[str, Any]) -> None:
        """Add fields to the record."""
        self.record |= fields
        self.files.put(_key(self._number), seal(self.record))

    def end(self, fields: Mapping[str, Any] | None = None) -> None:
        """Release the store and add fields to the record; later calls have no effect."""
        if "ended" in self.record:
            return
        self._stop()
        _ENDED.add(self.id)  # the session is over even if its record cannot be written, as on a full disk
        try:
            self.update({**(fields or {}), "ended": now()})
            self.files.remove([_beat_key(self._number)])
        except SessionSupersededError:
            pass
        finally:
            self.files.end()

    def detach(self) -> None:
        """Stop the heartbeat, and keep the session open beyond this process, until `close_detached` ends it."""
        self.update({"detached": True})
        self._stop()

    def __enter__(self) -> "Session":
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the store."""
        self.end()

    def _stop(self) -> None:
        self._over.set()
        if self._heart.is_alive():
            self._heart.join()

    def _beat(self) -> None:
        count = 0
        while not self._over.wait(HEARTBEAT_SECONDS):
            count += 1
            try:
                self.files.put(_beat_key(self._number), str(count).encode(), durable=False)
            except SessionSupersededError:
                return  # the next write of the session raises the error
            except Exception:  # clients of object stores have various errors; the next heartbeat retries
                continue


def number_of(identifier: str) -> int:
    """Return the number of a session.

    Examples
    --------
    >>> number_of("000012-0a1b2c3d4e5f")
    12
    """
    return int(identifier.partition("-")[0])


def last_number(files: Files) -> int:
    """Return the number of the latest session of a store, or 0 if there is none."""
    return max(_numbers(files), default=0)


def require_idle(files: Files) -> int:
    """Wait until the latest session of a store is over, and return its number, or 0 if there is none.

    Raises
    ------
    BusyStoreError
        If the session is active.
    """
    number = last_number(files)
    if number:
        _await_end(files, number)
    return number


def sessions_of(files: Files) -> list[dict[str, Any]]:
    """Return the records of a store's sessions in order; for a damaged record, only the key of its file."""
    keys = [_key(number) for number in _numbers(files)]
    contents = files.read_many(keys)
    return [unseal(contents[key]) or {"damaged": key} for key in keys]


def close_detached(url: str, identifier: str, fields: Mapping[str, Any]) -> bool:
    """End a detached session of a store, so that its later writes fail; return False if it was already over."""
    reader = open_files(url)
    number = last_number(reader)
    record = unseal(reader.read(_key(number))) if number else None
    if not record or record["id"] != identifier or not record.get("detached") or "ended" in record:
        return False
    files = open_files(url, record["id"])
    Session(number, files, record).end(fields)
    return True


def _numbers(files: Files) -> list[int]:
    stems = (name.partition(".") for name in files.names(SESSIONS))
    return [int(stem) for stem, _, ending in stems if ending == "json" and stem.isdigit()]


def _key(number: int) -> str:
    return f"{SESSIONS}/{number:06}.json"


def _beat_key(number: int) -> str:
    return f"{SESSIONS}/{number:06}.beat"


def _await_end(files: Files, number: int) -> None:
    """Wait until a session is over; raise BusyStoreError as soon as the session is known to be active."""
    deadline, last = time.monotonic() + LEASE_SECONDS, files.read(_beat_key(number))
    while True:
        record = unseal(files.read(_key(number)))
        state = _state(record)
        if state == "over":
            return
        if record is not None and record.get("detached"):
            raise BusyStoreError(
                f"the store {files.url} is being written by a submission of {record['started']}; follow it with: "
                f"{command('status', files.url)}, or end it with: {command('cancel', files.url)}"
            )
        if state == "running" or files.read(_beat_key(number)) != last:
            raise BusyStoreError(
                f"the store {files.url} is being written by {_describe(record)}; wait until it ends, or stop it"
            )
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL_SECONDS)


def _describe(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "another session"
    process = record["process"]
    return f"another session ({process['host']}, process {process['pid']}, since {record['started']})"


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "created": psutil.Process().create_time(),
    }


def _machine() -> str:
    """Return an identifier of this machine, of its current boot and of its PID namespace."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return json.dumps([socket.gethostname(), psutil.boot_time()])


def _state(record: Mapping[str, Any] | None) -> str:
    """Return ``over``, ``running``, or ``unknown`` for a process that is suspended, detached or on another machine."""
    if record is None:
        return "unknown"
    if "ended" in record or record["id"] in _ENDED:
        return "over"
    process = record["process"]
    if record["detached"] or process["machine"] != _machine():
        return "unknown"
    try:
        found = psutil.Process(process["pid"])
        if abs(found.create_time() - process["created"]) > 1 or found.status() == psutil.STATUS_ZOMBIE:
            return "over"
        return "unknown" if found.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) else "running"
    except psutil.NoSuchProcess:
        return "over"
