"""New store that appears at its location once all of its files are written."""

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pipeline.errors import BadInputError
from pipeline.store.copies.sources import require_unchanged
from pipeline.store.files.access import Files, open_files
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.files.locations import COPYING, ROOT, STATE, is_local
from pipeline.store.layout.root import COPY, metadata_files
from pipeline.store.result_store import ResultStore


@contextmanager
def new_store(
    url: str, n_sessions: int, root: bytes, numbers: Mapping[ResultStore, int]
) -> Iterator[tuple[Files, Any]]:
    """Yield the files of a store and a batch of writes; the store appears at `url` if the context succeeds."""
    place, lock = url, -1
    try:
        if is_local(url):
            folder, name = os.path.split(url)
            _remove_leftovers(folder, f".{name}.")
            place = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.partial")
        # in an object store, the record of a later session would supersede this one
        files = open_files(place, f"{n_sessions:06}-copy")
        files.require_fencing()
        if place == url:
            _claim(files)
        try:
            files.begin()
            if is_local(url):
                lock = _lock(place)
            batch = files.batch()
            put_all(batch.put, {**metadata_files(root), COPY: root})
            yield files, batch
            require_unchanged(numbers)
            batch.finish()
            files.put(ROOT, root)  # last
            files.end()
            if place == url:
                files.remove([COPYING])
            else:
                os.rename(place, url)
                with suppress(OSError):  # the copy is complete; some network file systems cannot sync a folder
                    LocalFiles(url).sync(os.path.dirname(url))
        except BaseException:
            files.destroy()
            raise
        finally:
            if lock >= 0:
                os.close(lock)
    except OSError as error:
        raise BadInputError(f"cannot write to {url}: {error.strerror or error}; choose another path") from error


def _claim(files: Files) -> None:
    """Mark a location in an object store as that of a copy; sessions are refused there from now on."""
    refusal = f"another process is writing to {files.url}, or was stopped while it wrote a copy; choose another path"
    if not files.create(COPYING, uuid.uuid4().hex.encode()):
        raise BadInputError(refusal)
    if files.names("") != [STATE] or files.names(STATE) != [os.path.basename(COPYING)]:  # a session began before
        files.delete([COPYING])
        raise BadInputError(refusal)


def put_all(put: Callable[[str, bytes], None], contents: Mapping[str, bytes | None]) -> None:
    """Write all files that have a content."""
    for key, content in contents.items():
        if content is not None:
            put(key, content)


def _remove_leftovers(folder: str, prefix: str) -> None:
    """Remove the partial copies of killed processes; a running process has locked its folder."""
    for name in os.listdir(folder):
        if re.fullmatch(re.escape(prefix) + r"[0-9a-f]{32}\.partial", name):
            path = os.path.join(folder, name)
            with suppress(OSError):  # a link, or the folder of a running process
                lock = _lock(path)
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _lock(folder: str) -> int:
    """Lock a folder until the returned descriptor is closed; raise OSError if another process has locked it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
