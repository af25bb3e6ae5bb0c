"""Reading and writing the files of a store by key, in a local folder or an object store.

Only a session may write, and another session can take that right away for good (*fencing*), even from a process that
was suspended in the middle of a write:

* In a folder, a file is written in the session's own folder of temporary files and then renamed. Fencing removes that
  folder, so every later rename fails: there is no gap between a check and the write that it permits.
* In an object store, a session is superseded once the next session's record exists. A status is written only where
  there is none, and a chunk whose block may grow only if it is still the one that was seen before the session was
  checked.
"""

import ctypes
import errno
import os
import shutil
import stat
import sys
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import fsspec

from pipeline.errors import SessionSupersededError
from pipeline.faults import retried
from pipeline.stores.places import is_local

STATE = ".dpstudies"
"""Folder of a store for what is not Zarr: the root's copy, sessions, temporary files."""
SESSIONS = f"{STATE}/sessions"
_WRITING = f"{STATE}/writing"


class Batch(Protocol):
    """Writes that become durable together: first what others depend on, then what commits it."""

    def put(self, key: str, content: bytes) -> None:
        """Write a file."""

    def put_last(self, key: str, content: bytes) -> None:
        """Write a file that becomes visible once every `put` of the batch is durable."""

    def finish(self) -> None:
        """Make every `put` durable, then every `put_last` visible."""

    def discard(self) -> None:
        """Forget every `put_last`."""


class Files(Protocol):
    """Files of a store by key; writes need a session, and raise `SessionSupersededError` once it was fenced."""

    url: str

    def read(self, key: str) -> bytes | None:
        """Return the content of a file, None where there is none."""

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return the contents of files."""

    def exists(self, key: str) -> bool:
        """Return whether there is a file."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; none where there is no folder."""

    def create(self, key: str, content: bytes) -> bool:
        """Write a file that must not exist yet, without a session; return False where it exists."""

    def put(self, key: str, content: bytes) -> None:
        """Write a file."""

    def remove(self, keys: Iterable[str]) -> None:
        """Remove files durably; absent ones are ignored."""

    def remove_leftovers(self, keys: Iterable[str]) -> None:
        """Remove files that an attempt which was never committed may have left, where it costs no request to ask."""

    def flush(self, keys: Iterable[str]) -> None:
        """Make written files durable."""

    def begin(self) -> None:
        """Prepare the session's writes."""

    def end(self) -> None:
        """Remove temporary files of the session; no write is possible afterwards."""

    def fence_others(self) -> None:
        """Make every write of other sessions fail, and remove their temporary files."""

    def batch(self, expected: Mapping[str, Any] | None = None) -> Batch:
        """Return a new batch; `expected` holds what `versions` returned for files that others may have replaced."""

    def versions(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the version of each file, for `batch`; then check that the session was not superseded."""


def open_files(url: str, session: str | None = None) -> Files:
    """Return the files of a store, for reading, or for the writes of a session.

    Parameters
    ----------
    url : str
        Folder, or URL of an object store.
    session : str, optional
        Identifier of the session that writes.
    """
    return LocalFiles(url, session) if is_local(url) else ObjectFiles(url, session)


class LocalFiles:
    """Files of a store in a folder; see `Files`."""

    def __init__(self, url: str, session: str | None = None) -> None:
        self.url = url
        self._session = session
        self._temporary = os.path.join(url, _WRITING, session or "")

    def read(self, key: str) -> bytes | None:
        """Return the content of a file, None where there is none; empty for what is no regular file."""
        return retried(self._read, key)

    def _read(self, key: str) -> bytes | None:
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NONBLOCK)  # a pipe would block
        except (FileNotFoundError, NotADirectoryError):
            return None
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            return file.read() if stat.S_ISREG(status.st_mode) else b""

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return the contents of files."""
        return {key: self.read(key) for key in keys}

    def exists(self, key: str) -> bool:
        """Return whether there is a file."""
        try:
            retried(os.stat, self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; none where there is no folder."""
        try:
            return sorted(retried(os.listdir, self._path(folder)))
        except FileNotFoundError:
            return []

    def create(self, key: str, content: bytes) -> bool:
        """Write a file that must not exist yet, without a session; return False where it exists."""
        path = self._path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        return True

    def put(self, key: str, content: bytes) -> None:
        """Write a file; readers see the old one or the new one."""
        self.rename(self.write_temporary(content), key)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove files durably; absent ones are ignored. A rename into the session's folder, so that it is fenced."""
        removed = False
        for key in keys:
            temporary = self._temporary_name()
            try:
                os.rename(self._path(key), temporary)
            except (FileNotFoundError, NotADirectoryError):
                self._require_session()
                continue
            os.unlink(temporary)
            removed = True
        if removed:
            self.flush([])

    def remove_leftovers(self, keys: Iterable[str]) -> None:
        """Remove files that an attempt which was never committed has left."""
        self.remove([key for key in keys if os.path.lexists(self._path(key))])

    def begin(self) -> None:
        """Create the session's folder of temporary files."""
        os.makedirs(self._temporary)

    def end(self) -> None:
        """Remove temporary files of the session; no write is possible afterwards."""
        shutil.rmtree(self._temporary, ignore_errors=True)

    def fence_others(self) -> None:
        """Make every write of other sessions fail, and remove their temporary files."""
        for name in self.names(_WRITING):
            path = self._path(f"{_WRITING}/{name}")
            if path == self._temporary:
                continue
            if not name.startswith("fenced-"):
                fenced = self._path(f"{_WRITING}/fenced-{uuid.uuid4().hex}")
                with suppress(FileNotFoundError):
                    os.rename(path, fenced)
                path = fenced
            while os.path.isdir(path):  # a client of a network file system may create files through a cached handle
                shutil.rmtree(path, ignore_errors=True)

    def versions(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return nothing: renames are fenced."""
        return {}

    def batch(self, expected: Mapping[str, Any] | None = None) -> "_LocalBatch":
        """Return a new batch."""
        return _LocalBatch(self)

    def write_temporary(self, content: bytes) -> str:
        """Write a temporary file, and return its path."""
        path = self._temporary_name()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileNotFoundError:
            self._require_session()
            raise
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
        except OSError:
            with suppress(OSError):
                os.unlink(path)
            raise
        return path

    def rename(self, temporary: str, key: str) -> None:
        """Give a temporary file its final name."""
        path = self._path(key)
        try:
            os.replace(temporary, path)
        except FileNotFoundError:
            self._require_session()
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                os.replace(temporary, path)
            except FileNotFoundError:
                self._require_session()
                raise

    def flush(self, keys: Iterable[str]) -> None:
        """Make written files durable: one call for the file system on Linux, elsewhere one per file and folder."""
        if _SYNCFS is not None:
            descriptor = os.open(self.url, os.O_RDONLY)
            try:
                if _SYNCFS(descriptor) and ctypes.get_errno() != errno.ENOSYS:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), self.url)
            finally:
                os.close(descriptor)
            return
        paths = {self._path(key) for key in keys}
        for path in paths | {os.path.dirname(path) for path in paths}:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _path(self, key: str) -> str:
        return os.path.join(self.url, key)

    def _temporary_name(self) -> str:
        assert self._session is not None, "only a session writes"
        return os.path.join(self._temporary, uuid.uuid4().hex)

    def _require_session(self) -> None:
        if not os.path.isdir(self._temporary):
            raise SessionSupersededError(self.url)


class _LocalBatch:
    def __init__(self, files: LocalFiles) -> None:
        self._files = files
        self._written: list[str] = []
        self._last: list[tuple[str, str]] = []

    def put(self, key: str, content: bytes) -> None:
        self._files.put(key, content)
        self._written.append(key)

    def put_last(self, key: str, content: bytes) -> None:
        self._last.append((self._files.write_temporary(content), key))

    def finish(self) -> None:
        if not self._last:
            return
        self._files.flush([*self._written, *(temporary for temporary, _ in self._last)])
        for temporary, key in self._last:
            self._files.rename(temporary, key)
        self._written, self._last = [], []

    def discard(self) -> None:
        for temporary, _ in self._last:
            with suppress(OSError):
                os.unlink(temporary)
        self._last = []


class ObjectFiles:
    """Files of a store in an object store; see `Files`.

    Conditional writes are those of S3. Elsewhere a session is only checked before it writes.
    """

    def __init__(self, url: str, session: str | None = None) -> None:
        self.url = url
        self._session = session
        self._files, self._root = fsspec.url_to_fs(url, use_listings_cache=False)
        protocols = self._files.protocol
        self._is_conditional = "s3" in ((protocols,) if isinstance(protocols, str) else protocols)

    def read(self, key: str) -> bytes | None:
        """Return the content of an object, None where there is none."""
        try:
            return retried(self._files.cat_file, self._path(key))
        except FileNotFoundError:
            return None

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return the contents of objects, read concurrently."""
        paths = {self._path(key): key for key in keys}
        found = retried(self._cat, list(paths)) if paths else {}
        contents: dict[str, bytes | None] = {}
        for path, key in paths.items():
            contents[key] = None if isinstance(found[path], FileNotFoundError) else found[path]
        return contents

    def _cat(self, paths: list[str]) -> dict[str, Any]:
        found = self._files.cat(paths, on_error="return")
        for content in found.values():
            if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                raise content
        return found

    def exists(self, key: str) -> bool:
        """Return whether there is an object."""
        return self._files.isfile(self._path(key))

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder, sorted; none where there is no folder."""
        try:
            found = self._files.ls(self._path(folder), detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def create(self, key: str, content: bytes) -> bool:
        """Write an object that must not exist yet, without a session; return False where it exists."""
        return self.put_if(key, content, None)

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        self._require_session()
        self._files.pipe_file(self._path(key), content)

    def put_if(self, key: str, content: bytes, version: Any) -> bool:
        """Write an object if its version is still the one given, None for absent; return whether it was."""
        path = self._path(key)
        if not self._is_conditional:
            if version is None and self._files.exists(path):
                return False
            self._files.pipe_file(path, content)
            return True
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        try:
            self._files.pipe_file(path, content, **condition)
        except OSError as error:
            response = getattr(error.__cause__, "response", {})
            if response.get("ResponseMetadata", {}).get("HTTPStatusCode") in (409, 412):
                return False
            raise
        return True

    def remove(self, keys: Iterable[str]) -> None:
        """Remove objects; absent ones are ignored."""
        for k, key in enumerate(keys):
            if k == 0:
                self._require_session()
            with suppress(FileNotFoundError):
                self._files.rm_file(self._path(key))

    def remove_leftovers(self, keys: Iterable[str]) -> None:
        """Do nothing: verification notices the rare leftover, and each question costs a request."""

    def flush(self, keys: Iterable[str]) -> None:
        """Do nothing: what was written is durable."""

    def begin(self) -> None:
        """Prepare nothing: an object appears whole, or not at all."""

    def end(self) -> None:
        """Remove nothing: there are no temporary files."""

    def fence_others(self) -> None:
        """Do nothing: the record of this session fences the others."""

    def versions(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the entity tag of each object, None where there is none; then check the session."""
        found = {}
        for key in keys:
            try:
                found[key] = self._files.info(self._path(key), refresh=True).get("ETag")
            except FileNotFoundError:
                found[key] = None
        if found:
            self._require_session()
        return found

    def batch(self, expected: Mapping[str, Any] | None = None) -> "_ObjectBatch":
        """Return a new batch."""
        return _ObjectBatch(self, expected or {})

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _require_session(self) -> None:
        assert self._session is not None, "only a session writes"
        number = int(self._session.partition("-")[0])
        if self.exists(f"{SESSIONS}/{number + 1:06}.json"):
            raise SessionSupersededError(self.url)


class _ObjectBatch:
    def __init__(self, files: ObjectFiles, expected: Mapping[str, Any]) -> None:
        self._files, self._expected = files, expected
        self._last: list[tuple[str, bytes]] = []
        self._is_checked = False

    def put(self, key: str, content: bytes) -> None:
        if not self._is_checked:
            self._files._require_session()
            self._is_checked = True
        if key not in self._expected:
            self._files._files.pipe_file(self._files._path(key), content)
        elif not self._files.put_if(key, content, self._expected[key]):
            self._refuse()

    def put_last(self, key: str, content: bytes) -> None:
        self._last.append((key, content))

    def finish(self) -> None:
        if self._last:
            self._files._require_session()
        for key, content in self._last:
            if not self._files.put_if(key, content, self._expected.get(key)):
                self._refuse()
        self._last = []

    def discard(self) -> None:
        self._last = []

    def _refuse(self) -> None:
        """Raise for an object that another session, or an earlier attempt at the same task, has replaced."""
        self._files._require_session()
        raise OSError(errno.EAGAIN, "an object changed while its block was computed", self._files.url)


def _find_syncfs() -> Any:
    """Return the system call that writes a file system's buffers, None where there is none."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


_SYNCFS = _find_syncfs()
