"""Reading and writing the files of a store by key, in a local folder or an object store.

Only a session may write, and another session can take that right away for good (*fencing*), even from a process that
was suspended in the middle of a write; `LocalFiles` and `ObjectFiles` say how.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pipeline.stores.local_files import LocalFiles
from pipeline.stores.locations import is_local
from pipeline.stores.object_files import ObjectFiles


class Batch(Protocol):
    """Writes that become durable together: first what others depend on, then what commits it."""

    def put(self, key: str, content: bytes) -> None:
        """Write a file."""

    def depend(self, key: str) -> None:
        """Make a file durable with the batch that another writer has written."""

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

    def put(self, key: str, content: bytes, durable: bool = True) -> None:
        """Write a file; if it is durable, a power loss leaves the old content or the new one."""

    def remove(self, keys: Iterable[str]) -> None:
        """Remove files durably; absent ones are ignored."""

    def remove_uncommitted(self, keys: Iterable[str]) -> None:
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
