"""Files of a store in an object store.

A session is superseded once the record of the next session exists. Writes are conditional where another session could
have replaced an object meanwhile: a status is written only if none exists; a chunk of a new block replaces another one
only if no status of the block exists, as after a task that was stopped; a chunk of a block that may grow, a status that
is replaced, and the files of the template only if they have the version that was read before the session was checked.
Removals, as of a repair, are not conditional: one that is being sent while a later session begins may remove its
object, whose block is then pending.
"""

import errno
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from pipeline.errors import SessionSupersededError
from pipeline.store.files.locations import SESSIONS, STATE
from pipeline.store.files.object_clients import (
    Answer,
    delete,
    get,
    get_version,
    list_paths,
    open_objects,
    put_if,
    request,
    require_conditional_writes,
)

_MOST_WAITING, _MOST_BYTES = 64, 2**28  # numbers of objects that are written concurrently, and of their bytes


class ObjectFiles:
    """Files of a store in an object store, with the methods of `LocalFiles`."""

    def __init__(self, url: str, session: str | None = None) -> None:
        self.url = url
        self._session = session
        self._objects, self._root = open_objects(url)

    def read(self, key: str) -> bytes | None:
        """Return an object, or None if it does not exist."""
        return get(self._objects, self._path(key))

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return the contents of objects, read concurrently."""
        return _concurrently(self.read, keys)

    def require_folders(self, folders: Iterable[str]) -> None:
        """Do nothing: an object store has no folders."""

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the objects in a folder, or an empty list if the folder does not exist."""
        listing = request(self._objects.list_with_delimiter, self._path(folder).rstrip("/"))
        paths = [*listing["common_prefixes"], *(entry["path"] for entry in listing["objects"])]
        return sorted(path.rpartition("/")[2] for path in paths)

    def create(self, key: str, content: bytes) -> bool:
        """Write a new object, which requires no session; return False if the object exists already."""
        return put_if(self._objects, self._path(key), content, None) or self.read(key) == content

    def put(self, key: str, content: bytes, durable: bool = True) -> None:
        """Write an object; the write is always durable."""
        self.require_session()
        request(self._objects.put, self._path(key), content)

    def put_many(
        self, contents: Mapping[str, bytes], expected: Mapping[str, Any], statuses: Mapping[str, Collection[str]]
    ) -> None:
        """Write objects concurrently, those in `expected` only if they still have that version.

        `statuses` has the keys that commit each object: if one of them exists, the object replaces no other one.
        """
        self.require_session()

        def write(key: str) -> None:
            try:
                if statuses[key]:
                    self.replace(key, contents[key], None)
                    return
            except OSError as error:
                if error.errno != errno.EAGAIN or any(map(self.read, statuses[key])):
                    raise
            if key in expected:
                self.replace(key, contents[key], expected[key])
            else:
                request(self._objects.put, self._path(key), contents[key])

        _concurrently(write, contents)

    def replace(self, key: str, content: bytes, version: Mapping[str, str] | None) -> None:
        """Replace an object of a known version, or write one that does not exist (None)."""
        if not put_if(self._objects, self._path(key), content, version) and self.read(key) != content:
            self.require_session()
            raise OSError(errno.EAGAIN, "an object changed while its block was computed", self.url)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove objects; absent objects are ignored."""
        if chosen := list(keys):
            self.require_session()
            self.delete(chosen)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects that belong to no session; absent objects are ignored."""
        _concurrently(lambda key: delete(self._objects, self._path(key)), keys)

    def destroy(self) -> None:
        """Remove all objects of the store, as far as the object store responds."""
        with suppress(OSError):
            request(self._objects.delete, list_paths(self._objects, self._root))

    def require_fencing(self) -> None:
        """Raise `BadInputError` unless a later session can make the writes of this one fail."""
        require_conditional_writes(self.url, f"{STATE}/probe-{uuid.uuid4().hex}")

    def remove_uncommitted(self, keys: Iterable[str]) -> None:
        """Do nothing: such objects are rare, verification finds them, and each check would require a request."""

    def flush(self, keys: Iterable[str]) -> None:
        """Do nothing: written objects are durable."""

    def begin(self) -> None:
        """Do nothing: writes of objects are atomic."""

    def end(self) -> None:
        """Do nothing: there are no temporary files."""

    def fence_earlier(self) -> None:
        """Do nothing: the record of this session fences the earlier ones."""

    def versions(self, keys: Iterable[str]) -> dict[str, dict[str, str] | None]:
        """Read the version of each object (None if it does not exist), then check that the session is current."""
        read_versions = _concurrently(lambda key: get_version(self._objects, self._path(key)), keys)
        if read_versions:
            self.require_session()
        return read_versions

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
        self._statuses: dict[str, Collection[str]] = {}
        self._last: dict[str, bytes] = {}

    def put(self, key: str, content: bytes, statuses: Collection[str] = ()) -> None:
        self._waiting[key], self._statuses[key] = content, statuses
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
            files, contents, expected = self._files, self._last, self._expected
            _concurrently(lambda key: files.replace(key, contents[key], expected.get(key)), contents)
        self._last = {}

    def discard(self) -> None:
        self._waiting, self._last = {}, {}

    def _write_waiting(self) -> None:
        if self._waiting:
            self._files.put_many(self._waiting, self._expected, self._statuses)
            self._waiting, self._statuses = {}, {}


def _concurrently(function: Callable[[str], Answer], keys: Iterable[str]) -> dict[str, Answer]:
    """Return the results of a function by key; raise its first error once all calls have ended."""
    chosen = list(keys)
    with ThreadPoolExecutor(_MOST_WAITING) as pool:
        return dict(zip(chosen, pool.map(function, chosen), strict=True))
