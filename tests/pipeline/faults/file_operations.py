"""Faults of file operations: crashes, transient errors, slow renames, short leases, power failures and damage."""

import errno
import hashlib
import json
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from pipeline.faults import ObjectStoreError
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.sessions import lease as lease_module

_HEARTBEAT = "dpstudies-heartbeat"  # writes to this folder depend on time and are not counted


class Permanently:
    """Replacement of methods until the process ends, in place of ``pytest.MonkeyPatch``."""

    setattr = staticmethod(setattr)


def call_before(patch: Any, name: str, act: Callable[..., object]) -> None:
    """Call `act` with the arguments of a method of `LocalFiles` before each of its calls."""
    method = getattr(LocalFiles, name)

    def preceded(*arguments: Any) -> Any:
        act(*arguments)
        return method(*arguments)

    patch.setattr(LocalFiles, name, preceded)


class CrashError(Exception):
    """Simulated end of the process."""


def crash() -> None:
    raise CrashError


def crash_at(patch: Any, number: int, end: Callable[[], None] = crash, once: bool = False) -> list[str]:
    """Let the first `number` file operations succeed, and call `end` in place of all later ones.

    Operations are writes of temporary files, renames, removals of single files, and flushes. An interrupted write
    leaves half of its content. Unflushed data are not lost, because the machine keeps running.

    Parameters
    ----------
    patch : pytest.MonkeyPatch, or an object with a ``setattr`` method
        Object that replaces methods of `LocalFiles`.
    number : int
        Number of operations that succeed.
    end : callable
        Function that does not return.
    once : bool
        Call `end` for one operation only, after which the process continues.

    Returns
    -------
    list of str
        Completed operations; the list grows during the test.
    """
    done: list[str] = []
    ended: list[str] = []
    lock = threading.Lock()  # the counter is shared by worker threads
    write, remove = LocalFiles.write_temporary, LocalFiles.remove

    def step(name: str, before: Callable[[], Any] = lambda: None) -> None:
        if threading.current_thread().name == _HEARTBEAT or (once and ended):
            return
        with lock:
            if len(done) == number:
                before()
                ended.append(name)
                end()
            done.append(name)

    def write_half_or_end(files: LocalFiles, content: bytes) -> None:
        step("write", lambda: write(files, content[: len(content) // 2]))

    def remove_or_end(files: LocalFiles, keys: Any) -> None:
        for key in keys:
            step(f"remove {key}")
            remove(files, [key])

    call_before(patch, "write_temporary", write_half_or_end)
    call_before(patch, "rename", lambda files, temporary, key: step(f"rename {key}"))
    patch.setattr(LocalFiles, "remove", remove_or_end)
    patch.setattr(LocalFiles, "flush", lambda files, paths: step("flush"))
    return done


def flip(chunk: Path) -> None:
    """Flip a bit in the middle of a file."""
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)


def cut(chunk: Path) -> None:
    """Remove the second half of a file."""
    os.truncate(chunk, chunk.stat().st_size // 2)


def disturb(
    renames_take: float = 0, fails_every: int = 0, lease: float = 0, unsynced: str = "", expires_after: int = 0
) -> None:
    """Disturb file operations of this process until the process ends.

    Parameters
    ----------
    renames_take : float
        Maximum delay of a rename in seconds; delays are uniform.
    fails_every : int
        File operations fail with ESTALE, one in `fails_every` on average and never two in a row, at random: with a
        fixed period, a task with that many operations fails at every attempt.
    lease : float
        Lease of sessions in seconds.
    expires_after : int
        Number of file operations after which all later ones fail, as in an object store with expired credentials.
    unsynced : str
        Folder shared by all processes, which records renames until a flush; see `lose_power`.
    """
    if unsynced:
        note_unsynced(Path(unsynced), Permanently)
    if renames_take:
        call_before(Permanently, "rename", lambda *_: time.sleep(random.uniform(0, renames_take)))
    if fails_every:
        lock, gaps = threading.Lock(), (fails_every // 2, fails_every + fails_every // 2)
        left = random.randint(*gaps)

        def fail(*_: Any) -> None:
            nonlocal left
            with lock:
                left = left - 1 if left > 0 else random.randint(*gaps)
                fails = left == 0
            if fails:
                raise OSError(errno.ESTALE, "Stale file handle")

        for name in ("_read", "_write_temporary", "_rename", "flush"):
            call_before(Permanently, name, fail)
    if expires_after:
        operations = count(1)

        def expire(*_: Any) -> None:
            if next(operations) > expires_after:
                raise ObjectStoreError("HTTP status 400 (ExpiredToken): the token has expired", "ExpiredToken", 400)

        for name in ("_read", "_write_temporary", "_rename"):
            call_before(Permanently, name, expire)
    if lease:
        lease_module.LEASE_SECONDS, lease_module.HEARTBEAT_SECONDS = lease, lease / 10


def lose_power(unsynced: Path, rng: random.Random, part: Callable[[str], bool] = lambda path: True) -> int:
    """Undo a random subset of the unflushed renames and removals; files with unflushed content may become empty.

    All writing processes must have been killed before. Only files whose path is in a `part` are changed.

    Returns
    -------
    int
        Number of renames and removals that were undone, plus the number of emptied files.
    """
    n_lost = 0
    for note in sorted((path for path in unsynced.iterdir() if path.name[0] != "."), reverse=True):  # latest first
        path, before, is_durable, written = json.loads(note.read_text())
        note.unlink()
        now = _digest(Path(path)) if Path(path).is_file() else None
        if not part(path) or now != written:  # replaced by an undisturbed process
            continue
        fate = rng.choice(["lost", "kept", "kept" if is_durable else "empty"])
        n_lost += fate != "kept"
        if fate == "lost" and before is None:
            Path(path).unlink(missing_ok=True)
        elif fate != "kept":
            Path(path).write_bytes(bytes.fromhex(before) if fate == "lost" else b"")
    return n_lost


def note_unsynced(folder: Path, patch: Any) -> None:
    """Note renames and removals in a folder until they are flushed; `patch` replaces methods of `LocalFiles`."""
    folder.mkdir(exist_ok=True)
    written, durable = set(), set()
    write, remove, make_durable, sync = (
        getattr(LocalFiles, name) for name in ("_write_temporary", "remove", "_make_durable", "sync")
    )

    def noted_write(files, content):
        written.add(temporary := write(files, content))
        return temporary

    def write_note(path, is_durable, written):
        before = path.read_bytes().hex() if path.is_file() else None
        note = folder / f".{uuid.uuid4().hex}"
        note.write_text(json.dumps([str(path), before, is_durable, written]))
        note.rename(folder / f"{time.monotonic_ns():020}-{note.name[1:]}")  # a rename is atomic, so that a kill is safe

    def note_rename(files, temporary, key):
        write_note(Path(files.url, key), temporary in durable, _digest(Path(temporary)))

    def noted_remove(files, keys):
        keys = list(keys)
        for path in (Path(files.url, key) for key in keys):
            if path.is_file():
                write_note(path, True, None)
        remove(files, keys)

    def noted_make_durable(files, paths):
        noted, contents = [path for path in folder.iterdir() if path.name[0] != "."], set(written)
        make_durable(files, paths)
        durable.update(contents)
        for note in noted:
            note.unlink(missing_ok=True)  # another process may have removed the note

    def noted_sync(files, path):
        sync(files, path)
        durable.add(path)

    patch.setattr(LocalFiles, "_write_temporary", noted_write)
    call_before(patch, "_rename", note_rename)
    patch.setattr(LocalFiles, "remove", noted_remove)
    patch.setattr(LocalFiles, "_make_durable", noted_make_durable)
    patch.setattr(LocalFiles, "sync", noted_sync)


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()
