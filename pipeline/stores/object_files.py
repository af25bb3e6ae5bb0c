"""Files of a store in an object store.

A session is superseded once the record of the next session exists. Writes are conditional where another session could
have replaced an object meanwhile: a status is written only if none exists, and a chunk of a block that may grow only if
it has the version that was read before the session was checked.
"""

import errno
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import fsspec

from pipeline.errors import SessionSupersededError
from pipeline.faults import retried
from pipeline.stores.locations import SESSIONS

_MOST_WAITING, _MOST_BYTES = 64, 2**28  # numbers of objects that are written concurrently, and of their bytes


class ObjectFiles:
    """Files of a store in an object store, with the methods of `LocalFiles`; writes are conditional on S3 only."""

    def __init__(self, url: str, session: str | None = None) -> None:
        self.url = url
        self._session = session
        self._is_conditional = url.partition("://")[0] in ("s3", "s3a")
        # by default, s3fs requests the size of an object before its content, to read large objects in parts
        options = {"max_concurrency": 1} if self._is_conditional else {}
        self._files, self._root = fsspec.url_to_fs(url, use_listings_cache=False, **options)

    def read(self, key: str) -> bytes | None:
        """Return an object, or None if it does not exist."""
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
        """Return True if the object exists."""
        return self._files.isfile(self._path(key))

    def require_folders(self, folders: Iterable[str]) -> None:
        """Do nothing: an object store has no folders."""

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the objects in a folder, or an empty list if the folder does not exist."""
        try:
            found = self._files.ls(self._path(folder), detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def create(self, key: str, content: bytes) -> bool:
        """Write a new object, which requires no session; return False if the object exists already."""
        # if the response to a write is lost, its repetition finds the object
        return retried(self._put_if, key, content, None) or self.read(key) == content

    def put(self, key: str, content: bytes, durable: bool = True) -> None:
        """Write an object; the write is always durable."""
        self.require_session()
        self._files.pipe_file(self._path(key), content)

    def put_many(self, contents: Mapping[str, bytes]) -> None:
        """Write objects concurrently."""
        self.require_session()
        self._files.pipe({self._path(key): content for key, content in contents.items()})

    def replace(self, key: str, content: bytes, version: Any) -> None:
        """Replace an object of a known version."""
        if not self._put_if(key, content, version) and self.read(key) != content:
            self.require_session()
            raise OSError(errno.EAGAIN, "an object changed while its block was computed", self.url)

    def _put_if(self, key: str, content: bytes, version: Any) -> bool:
        """Write an object if it has `version` or, for None, if it does not exist; otherwise return False."""
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
        """Remove objects; absent objects are ignored."""
        for k, key in enumerate(keys):
            if k == 0:
                self.require_session()
            with suppress(FileNotFoundError):
                self._files.rm_file(self._path(key))

    def remove_uncommitted(self, keys: Iterable[str]) -> None:
        """Do nothing: such objects are rare, verification finds them, and each check would require a request."""

    def flush(self, keys: Iterable[str]) -> None:
        """Do nothing: written objects are durable."""

    def begin(self) -> None:
        """Do nothing: writes of objects are atomic."""

    def end(self) -> None:
        """Do nothing: there are no temporary files."""

    def fence_others(self) -> None:
        """Do nothing: the record of this session fences the others."""

    def versions(self, keys: Iterable[str]) -> dict[str, Any]:
        """Read the entity tag of each object (None if it does not exist), then check that the session is current."""
        found = {}
        for key in keys:
            try:
                found[key] = self._files.info(self._path(key), refresh=True).get("ETag")
            except FileNotFoundError:
                found[key] = None
        if found:
            self.require_session()
        return found

    def batch(self, expected: Mapping[str, Any] | None = None) -> "_ObjectBatch":
        """Return a new batch."""
        return _ObjectBatch(self, expected or {})

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def require_session(self) -> None:
        """Raise `SessionSupersededError` if another session has begun."""
        assert self._session is not None, "only a session writes"
        number = int(self._session.partition("-")[0])
        # one request: `exists` would list the objects after the record was not found
        if self.read(f"{SESSIONS}/{number + 1:06}.json") is not None:
            raise SessionSupersededError(self.url)


class _ObjectBatch:
    """Batch as in a folder, written concurrently; objects with a known version, and the last ones, are conditional."""

    def __init__(self, files: ObjectFiles, expected: Mapping[str, Any]) -> None:
        self._files, self._expected = files, expected
        self._waiting: dict[str, bytes] = {}
        self._last: dict[str, bytes] = {}

    def put(self, key: str, content: bytes) -> None:
        if key in self._expected:
            self._files.replace(key, content, self._expected[key])
            return
        self._waiting[key] = content
        if len(self._waiting) == _MOST_WAITING or sum(map(len, self._waiting.values())) > _MOST_BYTES:
            self._write_waiting()

    def depend(self, key: str) -> None:
        pass  # written objects are already durable

    def put_last(self, key: str, content: bytes) -> None:
        self._last[key] = content

    def finish(self) -> None:
        self._write_waiting()
        if self._last:
            self._files.require_session()
            with ThreadPoolExecutor(min(_MOST_WAITING, len(self._last))) as pool:
                writes = [
                    pool.submit(self._files.replace, key, content, self._expected.get(key))
                    for key, content in self._last.items()
                ]
            for write in writes:
                write.result()
        self._last = {}

    def discard(self) -> None:
        self._waiting, self._last = {}, {}

    def _write_waiting(self) -> None:
        if self._waiting:
            self._files.put_many(self._waiting)
            self._waiting = {}
