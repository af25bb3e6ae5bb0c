"""Files of a store in a local folder.

A file is written to the session's folder of temporary files and then renamed. Fencing removes that folder, so that
every later rename of the session fails. A separate check before each write could race with the fencing.

The folder may come from somebody else, so no symbolic link in it is followed: a link in the place of a folder is
refused, and a link in the place of a file is damage, which a rename replaces.
"""

import ctypes
import errno
import os
import re
import shutil
import stat
import sys
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from pipeline.errors import BadInputError, SessionSupersededError
from pipeline.faults import retried
from pipeline.store.files.locations import SESSIONS, STATE

_WRITING = f"{STATE}/writing"
_PIECE = 2**16  # bytes of the first read of a file, with which most files end
_NOT_A_FILE = (errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ESPIPE)  # folder, link, socket, pipe
_MOST_CHECKED, _MOST_ATTEMPTS = 10_000, 100


class LocalFiles:
    """Files of a store in a folder; `ObjectFiles` has the same methods for an object store."""

    def __init__(self, url: str, session: str | None = None) -> None:
        if session and not re.fullmatch(r"[\w-]+", session):
            raise BadInputError(f"the identifier of a session must not leave the store {url}, got {session!r}")
        self.url = url
        self._session = session
        self._temporary = f"{url}/{_WRITING}/{session or ''}"
        self._writer, self._numbers = uuid.uuid4().hex, count()  # for names of temporary files
        self._checked = {""}  # folders that are no links

    def read(self, key: str) -> bytes | None:
        """Return a file, None if it does not exist, or empty bytes if it is not a regular file."""
        try:
            return retried(self._read, key)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in _NOT_A_FILE:
                return b""
            raise

    def _read(self, key: str) -> bytes:
        # without O_NONBLOCK, opening a pipe would block
        descriptor = os.open(self._path(key, True), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:  # few system calls, since each takes a fifth of the time of a scan
            content = os.pread(descriptor, _PIECE, 0)
            if content and len(content) < _PIECE:
                return content
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                return b""
            while (left := state.st_size - len(content)) > 0 and (part := os.pread(descriptor, left, len(content))):
                content += part
            return content
        finally:
            os.close(descriptor)

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return the contents of files by key."""
        return {key: self.read(key) for key in keys}

    def require_folders(self, folders: Iterable[str]) -> None:
        """Raise `BadInputError` if a folder, or one that contains it in the store, is a link or another file."""
        for folder in (*folders, SESSIONS, _WRITING):
            try:
                mode = os.lstat(self._path(f"{folder}/")).st_mode
            except FileNotFoundError:
                continue
            except NotADirectoryError:
                mode = 0
            if not stat.S_ISDIR(mode):
                raise BadInputError(f"{self.url}/{folder} must be a folder, got another file; remove it")

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files in a folder, or an empty list if the folder does not exist."""
        try:
            return sorted(retried(os.listdir, self._path(f"{folder}/")))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def create(self, key: str, content: bytes) -> bool:
        """Write a new file, which requires no session; return False if the file exists already."""
        path = self._path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            _write_new(path, content, durable=True)
        except FileExistsError:
            return False
        return True

    def put(self, key: str, content: bytes, durable: bool = True) -> None:
        """Write a file atomically; if `durable`, a power loss leaves the old or the new content."""
        temporary = self.write_temporary(content)
        if durable:
            self.sync(temporary)
        self.rename(temporary, key)

    def sync(self, path: str) -> None:
        """Make the content of one file durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove files durably, if they exist: each is renamed into the session's folder, which fails after fencing."""
        folders = set()
        for key in keys:
            temporary, path = self._temporary_name(), self._path(key)
            try:
                os.rename(path, temporary)
            except (FileNotFoundError, NotADirectoryError):
                self._require_session()
                continue
            _destroy(temporary)
            folders.add(os.path.dirname(path))
        if folders:
            self._make_durable(folders)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove files that belong to no session; absent files are ignored."""
        for key in keys:
            _destroy(self._path(key))

    def destroy(self) -> None:
        """Remove the folder of the store, as far as its files can be removed."""
        shutil.rmtree(self.url, ignore_errors=True)

    def require_fencing(self) -> None:
        """Do nothing: a file system can rename folders."""

    def remove_uncommitted(self, keys: Iterable[str]) -> None:
        """Remove files that an earlier, uncommitted attempt may have left."""
        self.remove([key for key in keys if os.path.lexists(self._path(key))])

    def begin(self) -> None:
        """Create the session's folder of temporary files."""
        os.makedirs(self._path(f"{_WRITING}/{self._session}"))

    def end(self) -> None:
        """Remove the temporary files of the session; the session cannot write afterwards."""
        shutil.rmtree(self._temporary, ignore_errors=True)

    def fence_earlier(self) -> None:
        """Make every write of earlier sessions fail, and remove their temporary files.

        A later session has already fenced this one if this one was suspended for its lease after it began.
        """
        assert self._session is not None, "only a session writes"
        number = self._session.partition("-")[0]
        for name in self.names(_WRITING):
            path = self._path(f"{_WRITING}/{name}")
            if name == self._session or (name[0].isdigit() and name.partition("-")[0] > number):
                continue
            if not name.startswith("fenced-"):
                fenced = self._path(f"{_WRITING}/fenced-{uuid.uuid4().hex}")
                with suppress(FileNotFoundError):
                    os.rename(path, fenced)
                path = fenced
            for is_last in (*[False] * _MOST_ATTEMPTS, True):
                try:
                    _destroy(path)
                    break
                except OSError as error:  # a client of a network file system may create files by a cached handle
                    if is_last or error.errno != errno.ENOTEMPTY:
                        raise

    def versions(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the versions of files that other sessions may replace, for `batch`: none, since renames are fenced."""
        return {}

    def batch(self, expected: Mapping[str, Any] | None = None) -> "_LocalBatch":
        """Return a new batch; versions are not checked."""
        return _LocalBatch(self)

    def write_temporary(self, content: bytes) -> str:
        """Write a temporary file and return its path."""
        return retried(self._write_temporary, content)

    def _write_temporary(self, content: bytes) -> str:
        path = self._temporary_name()
        try:
            _write_new(path, content)
        except FileNotFoundError:
            self._require_session()
            raise
        return path

    def rename(self, temporary: str, key: str) -> None:
        """Rename a temporary file to its final name."""
        retried(self._rename, temporary, key)

    def _rename(self, temporary: str, key: str) -> None:
        path = self._path(key)
        try:
            os.replace(temporary, path)
        except IsADirectoryError:
            removed = self._temporary_name()
            os.rename(path, removed)
            _destroy(removed)
            os.replace(temporary, path)
        except FileNotFoundError:
            self._require_session()
            os.makedirs(os.path.dirname(path), exist_ok=True)
            try:
                os.replace(temporary, path)
            except FileNotFoundError:  # an earlier attempt may have renamed the file before it failed
                self._require_session()
                raise OSError(errno.EAGAIN, "a temporary file has disappeared", path) from None

    def flush(self, keys: Iterable[str]) -> None:
        """Make written files, or temporary ones by path, durable; after an error, they must be written again."""
        paths = {os.path.join(self.url, key) for key in keys}
        self._make_durable(paths | {os.path.dirname(path) for path in paths})

    def _make_durable(self, paths: Iterable[str]) -> None:
        """Flush files and folders, by one system call for the whole file system where it is available."""
        if _SYNCFS is not None:
            descriptor = os.open(self.url, os.O_RDONLY)
            try:
                if _SYNCFS(descriptor) == 0:
                    return
                if ctypes.get_errno() != errno.ENOSYS:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), self.url)
            finally:
                os.close(descriptor)
        for path in paths:
            self.sync(path)

    def _path(self, key: str, is_read: bool = False) -> str:
        """Return the path of a file in the store; raise `BadInputError` if a link would be followed to its folder."""
        folder = key.rpartition("/")[0]
        if folder not in self._checked:
            self._refuse_links(folder, is_read)
        return f"{self.url}/{key}"

    def _refuse_links(self, folder: str, is_read: bool) -> None:
        inner = ""
        for name in folder.split("/"):
            inner = f"{inner}/{name}" if inner else name
            if inner in self._checked:
                continue
            try:
                mode = os.lstat(f"{self.url}/{inner}").st_mode
            except (FileNotFoundError, NotADirectoryError):
                if is_read:
                    raise
                return
            if name in ("", ".", "..") or stat.S_ISLNK(mode):
                raise BadInputError(
                    f"a store must not contain links, which may lead to files outside of it, got {self.url}/{inner}; "
                    "replace the link by the folder to which it leads, if you trust the store"
                )
            self._checked.add(inner)
        if len(self._checked) > _MOST_CHECKED:
            self._checked = {""}

    def _temporary_name(self) -> str:
        assert self._session is not None, "only a session writes"
        return f"{self._temporary}/{self._writer}-{os.getpid()}-{next(self._numbers)}"  # a fork copies the counter

    def _require_session(self) -> None:
        if not os.path.isdir(self._temporary):
            raise SessionSupersededError(self.url, is_store_missing=not os.path.isdir(self._path(SESSIONS)))


class _LocalBatch:
    """Writes that become durable together with files of others, and last the files of `put_last`, which commit them."""

    def __init__(self, files: LocalFiles) -> None:
        self._files = files
        self._written: list[str] = []
        self._last: list[tuple[str, str]] = []

    def put(self, key: str, content: bytes, statuses: Collection[str] = ()) -> None:
        self._files.put(key, content, durable=False)
        self._written.append(key)

    def depend(self, key: str) -> None:
        self._written.append(key)

    def put_last(self, key: str, content: bytes) -> None:
        self._last.append((self._files.write_temporary(content), key))

    def finish(self) -> None:
        if not (self._written or self._last):
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


def _write_new(path: str, content: bytes, durable: bool = False) -> None:
    """Write a new file, or none after an error: an empty record would count as that of an active session."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        try:
            written = os.write(descriptor, content)
            while written < len(content):  # a write may end early, as before a full disk
                written += os.write(descriptor, content[written:])
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def _destroy(path: str) -> None:
    """Remove a file or folder if it exists, without following links."""
    with suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


# system call that flushes a file system, or None if it is unavailable
_SYNCFS = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None) if sys.platform.startswith("linux") else None
