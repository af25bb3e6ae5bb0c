"""Simulated crashes of a process at an arbitrary file operation on a local store."""

import threading
from collections.abc import Callable
from typing import Any

from pipeline.store.files.local_files import LocalFiles

_HEARTBEAT = "dpstudies-heartbeat"  # writes to this folder depend on time and are not counted


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
    write, rename, remove = LocalFiles.write_temporary, LocalFiles.rename, LocalFiles.remove

    def step(name: str, before: Callable[[], Any] = lambda: None) -> None:
        if threading.current_thread().name == _HEARTBEAT or (once and ended):
            return
        with lock:
            if len(done) == number:
                before()
                ended.append(name)
                end()
            done.append(name)

    def write_or_end(files: LocalFiles, content: bytes) -> str:
        step("write", lambda: write(files, content[: len(content) // 2]))
        return write(files, content)

    def rename_or_end(files: LocalFiles, temporary: str, key: str) -> None:
        step(f"rename {key}")
        rename(files, temporary, key)

    def remove_or_end(files: LocalFiles, keys: Any) -> None:
        for key in keys:
            step(f"remove {key}")
            remove(files, [key])

    def flush_or_end(files: LocalFiles, paths: Any) -> None:
        step("flush")

    patch.setattr(LocalFiles, "write_temporary", write_or_end)
    patch.setattr(LocalFiles, "rename", rename_or_end)
    patch.setattr(LocalFiles, "remove", remove_or_end)
    patch.setattr(LocalFiles, "flush", flush_or_end)
    return done
