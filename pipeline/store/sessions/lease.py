"""Exclusive write access to a store: one session at a time, which a later one may supersede.

Sessions are numbered. Once the previous session is over, a process begins the next one by creating its record, which
only one process can do. A session is over when its record states an end, when its process no longer exists (checked on
the same machine and boot, where the process is identified by its number and by its start in ticks since boot), or when
its heartbeat has not changed for `LEASE_SECONDS`. The waiting process measures this time by its monotonic clock, so
neither steps of a clock nor clocks of different machines matter. The new session then fences earlier sessions: in a
folder every later write of theirs fails, in an object store every conditional one (`ObjectFiles`). Such a write raises
`SessionSupersededError`, which ends the run at once or with the next heartbeat; blocks that are not committed stay
pending.
"""

import json
import logging
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

from pipeline.errors import BadInputError, BusyStoreError, SessionSupersededError, StoreAccessError, command
from pipeline.faults import explain
from pipeline.store.files.access import Files, open_files
from pipeline.store.files.locations import SESSIONS
from pipeline.store.layout.root import seal
from pipeline.store.sessions.records import (
    intact_record,
    last_number,
    now,
    put_copies,
    read_copies,
    read_record,
    record_key,
)

HEARTBEAT_SECONDS = 5.0
LEASE_SECONDS = 60.0
_MOST_ATTEMPTS = 100
_POLL_SECONDS = 0.5
_LOG = logging.getLogger(__name__)
# Identifiers of ended sessions of this process. Only `Session.end` adds to it. It is global because a record of a
# session cannot be written on a full disk, and other sessions of the process must know.
_ENDED: set[str] = set()


class Session:
    """Exclusive write access to a store, from `begin` to `end`; workers require its `id` to write to the store."""

    def __init__(self, number: int, files: Files, record: Mapping[str, Any]) -> None:
        self.id: str = record["id"]
        self.files = files
        self._number = number
        self.record = dict(record)
        self._over, self._is_superseded = threading.Event(), False
        self._heart = threading.Thread(target=self._beat, name="dpstudies-heartbeat", daemon=True)

    @classmethod
    def begin(cls, url: str, record: Mapping[str, Any]) -> "Session":
        """Begin the next session of a store, which need not exist yet; `record` has JSON values to record."""
        reader = open_files(url)
        try:
            for _ in range(_MOST_ATTEMPTS):
                number = require_idle(reader)
                if number == 0:
                    reader.require_fencing()
                begun = cls._attempt(url, number + 1, record)
                if begun is not None:
                    break
            else:
                raise BusyStoreError(f"other sessions keep starting on the store {url}; try again later")
        except OSError as error:
            raise BadInputError(
                f"cannot write to the store {url}: {explain(error)}; check the path and the disk"
            ) from error
        try:
            begun.files.fence_earlier()
        except OSError as error:
            begun.end()
            raise StoreAccessError(f"cannot remove files of an earlier session from {url}: {explain(error)}") from error
        begun._heart.start()
        return begun

    @classmethod
    def _attempt(cls, url: str, number: int, record: Mapping[str, Any]) -> "Session | None":
        identifier = _new_identifier(number)
        files = open_files(url, identifier)
        complete = {"id": identifier, "started": now(), **record, "process": _this_process()}
        is_created = False
        try:
            files.begin()
            is_created = files.create(record_key(number), seal(complete))
        finally:
            if not is_created:
                files.end()
        if not is_created:
            return None
        try:
            copies = read_copies(files)
            earlier = [
                earlier_number for earlier_number in range(1, number) if earlier_number not in copies
            ]  # a process may end before it copies
            contents = files.read_many(map(record_key, earlier))
            intact = {
                earlier_number: stored
                for earlier_number in earlier
                if (stored := intact_record(earlier_number, contents[record_key(earlier_number)]))
            }
            put_copies(files, {**intact, **copies, number: complete})
        except OSError:
            files.remove([record_key(number)])
            files.end()
            raise
        return cls(number, files, complete)

    def update(self, fields: Mapping[str, Any]) -> None:
        """Add fields to the record, unless another process has ended the session."""
        self._refuse_ended()
        self.record |= fields
        put_copies(self.files, {**read_copies(self.files), self._number: self.record})
        self.files.put(record_key(self._number), seal(self.record))

    def end(self, fields: Mapping[str, Any] | None = None) -> None:
        """Release the store and add fields to the record; later calls have no effect."""
        if "ended" in self.record:
            return
        self._over.set()
        if self._heart.is_alive():
            self._heart.join()
        _ENDED.add(self.id)  # the session is over even if its record cannot be written, as on a full disk
        try:
            self.update({**(fields or {}), "ended": now()})
            self.files.remove([_beat_key(self._number)])
        except SessionSupersededError:
            pass
        finally:
            self.files.end()

    def require_active(self) -> None:
        """Raise `SessionSupersededError` if a heartbeat found that another process has ended the session."""
        if self._is_superseded:
            raise SessionSupersededError(self.files.url)

    def __enter__(self) -> "Session":
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the store."""
        self.end()

    def _refuse_ended(self) -> None:
        if "ended" in (read_record(self.files, self._number) or ()):
            raise SessionSupersededError(self.files.url)

    def _beat(self) -> None:
        count = 0
        while not self._over.wait(HEARTBEAT_SECONDS):
            count += 1
            try:
                self._refuse_ended()
                self.files.put(_beat_key(self._number), str(count).encode(), durable=False)
            except SessionSupersededError:
                self._is_superseded = True
                return
            except Exception:  # whatever failed, the next heartbeat retries
                continue


def _new_identifier(number: int) -> str:
    return f"{number:06}-{uuid.uuid4().hex[:12]}"


def require_idle(files: Files) -> int:
    """Wait until the latest session of a store is over, and return its number, or 0 if there is none."""
    number = last_number(files)
    if number:
        _await_end(files, number)
    return number


def end_session(url: str, identifier: str, fields: Mapping[str, Any]) -> bool:
    """End the latest session of a store in place of its process, which then fails; False if it was already over."""
    reader = open_files(url)
    number = last_number(reader)
    record = read_record(reader, number) if number else None
    if not record or record["id"] != identifier or "ended" in record:
        return False
    # in a folder of temporary files of its own, because that of the process may be missing
    files = open_files(url, _new_identifier(number))
    try:
        files.begin()
        if last_number(reader) != number:
            return False
        Session(number, files, record).update({**fields, "ended": now()})
        files.remove([_beat_key(number)])
    except SessionSupersededError:  # another session has begun meanwhile
        return False
    finally:
        files.end()
    open_files(url, identifier).end()
    return True


def _beat_key(number: int) -> str:
    return f"{SESSIONS}/{number:06}.beat"


def _await_end(files: Files, number: int) -> None:
    """Wait until a session is over; raise BusyStoreError as soon as the session is known to be active."""
    deadline, last, is_announced = time.monotonic() + LEASE_SECONDS, files.read(_beat_key(number)), False
    while True:
        record = read_record(files, number)
        # a session that cannot write its record removes it
        if record is None and files.read(record_key(number)) is None:
            return
        state = _state(record)
        if state == "over":
            return
        if state == "running" or files.read(_beat_key(number)) != last:
            remedy = "wait until it ends, or stop it"
            if record is not None and "submission" in record:
                remedy = f"follow it with: {command('status', '--watch', files.url)}, or end it with: "
                remedy += command("cancel", files.url)
            raise BusyStoreError(f"the store {files.url} is being written by {_describe(record)}; {remedy}")
        if time.monotonic() > deadline:
            return
        if not is_announced:
            _LOG.info("waiting up to %g s for a heartbeat of %s", LEASE_SECONDS, _describe(record))
            is_announced = True
        time.sleep(_POLL_SECONDS)


def _describe(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "another session, whose record is damaged"
    process = record["process"]
    if "submission" in record:
        return f"a submission of {record['started']} (driven on {process['host']}, process {process['pid']})"
    return f"another session ({process['host']}, process {process['pid']}, since {record['started']})"


def _this_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "created": psutil.Process().create_time(),  # read by versions before 0.4
        "start_ticks": _start_ticks(os.getpid()),
    }


def _start_ticks(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot, or None where the system does not state it.

    A step of the clock changes the time of day at which a process started (proc(5): it is computed), but not its ticks.
    """
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def _has_restarted(process: Mapping[str, Any], created: float) -> bool | None:
    """Return True if another process has the number of a recorded one, or None if it is unknown."""
    ticks, recorded = _start_ticks(process["pid"]), process.get("start_ticks")
    if ticks is not None and recorded is not None:
        return ticks != recorded
    if abs(created - process["created"]) <= 1:
        return False
    return True if ticks is None else None  # the record of an earlier version, and perhaps a step of the clock


def _machine() -> str:
    """Return an identifier of this machine, of its current boot and of its PID namespace."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return json.dumps([socket.gethostname(), psutil.boot_time()])


def _state(record: Mapping[str, Any] | None) -> str:
    """Return ``over``, ``running``, or ``unknown`` for a process that is suspended or on another machine."""
    if record is None:
        return "unknown"
    if "ended" in record or record["id"] in _ENDED:
        return "over"
    process = record["process"]
    if process["machine"] != _machine():
        return "unknown"
    try:
        running = psutil.Process(process["pid"])
        has_restarted, status = _has_restarted(process, running.create_time()), running.status()
        if has_restarted or status == psutil.STATUS_ZOMBIE:
            return "over"
        is_suspended = status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        return "unknown" if is_suspended or has_restarted is None else "running"
    except psutil.NoSuchProcess:
        return "unknown" if _is_hidden(process["pid"]) else "over"


def _is_hidden(pid: int) -> bool:
    """Return True for a process of another user whose existence the system hides, as with the option ``hidepid``."""
    try:
        os.kill(pid, 0)  # no signal is sent
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
