"""Interface to the files of a store by key, in a local folder or an object store.

Only a session may write. A later session permanently revokes the write access of earlier ones (*fencing*), even if a
process was suspended during a write; see `LocalFiles` and `ObjectFiles`.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from pipeline.errors import BadInputError, StoreAccessError
from pipeline.faults import explain, is_expired, is_transient
from pipeline.stores.local_files import LocalFiles
from pipeline.stores.locations import is_local
from pipeline.stores.object_files import ObjectFiles


class Batch(Protocol):
    """Writes that become durable together: values first, then the files that commit the values."""

    def put(self, key: str, content: bytes) -> None:
        """Write a file that becomes durable by `finish`."""

    def depend(self, key: str) -> None:
        """Make a file that another writer has written durable together with this batch."""

    def put_last(self, key: str, content: bytes) -> None:
        """Write a file that becomes visible only after every `put` of the batch is durable."""

    def finish(self) -> None:
        """Make every `put` durable, then make every `put_last` visible."""

    def discard(self) -> None:
        """Discard every `put_last`."""


class Files(Protocol):
    """Files of a store by key; writes require a session, and raise `SessionSupersededError` if it is fenced."""

    url: str

    def read(self, key: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""

    def read_many(self, keys: Iterable[str]) -> dict[str, bytes | None]:
        """Return the contents of files by key."""

    def read_part(self, key: str, start: int, stop: int | None = None) -> bytes | None:
        """Return a part of a file, or None if the file does not exist; a negative start counts from the end."""

    def exists(self, key: str) -> bool:
        """Return True if the file exists."""

    def require_folders(self, folders: Iterable[str]) -> None:
        """Raise `BadInputError` if a folder, or one that contains it in the store, is a link or another file."""

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files in a folder, or an empty list if the folder does not exist."""

    def create(self, key: str, content: bytes) -> bool:
        """Write a new file, which requires no session; return False if the file exists already."""

    def put(self, key: str, content: bytes, durable: bool = True) -> None:
        """Write a file; if `durable`, a power loss leaves the old or the new content."""

    def remove(self, keys: Iterable[str]) -> None:
        """Remove files durably; absent files are ignored."""

    def remove_uncommitted(self, keys: Iterable[str]) -> None:
        """Remove files that an earlier, uncommitted attempt may have left, unless each search would take a request."""

    def flush(self, keys: Iterable[str]) -> None:
        """Make written files durable."""

    def begin(self) -> None:
        """Prepare the session's writes."""

    def end(self) -> None:
        """Remove the temporary files of the session; the session cannot write afterwards."""

    def fence_others(self) -> None:
        """Make every write of other sessions fail, and remove their temporary files."""

    def batch(self, expected: Mapping[str, Any] | None = None) -> Batch:
        """Return a new batch; `expected` is the result of `versions` for files that other sessions may replace."""

    def versions(self, keys: Iterable[str]) -> dict[str, Any]:
        """Read the version of each file, for `batch`, and then check that the session is not superseded."""


def open_files(url: str, session: str | None = None) -> Files:
    """Return the files of a folder or of an object store, read-only or for the session with the given identifier."""
    return LocalFiles(url, session) if is_local(url) else ObjectFiles(url, session)


@contextmanager
def accessing(url: str) -> Iterator[None]:
    """Convert errors of the file system or the network to `StoreAccessError`."""
    try:
        yield
    except BadInputError:  # an unreachable address, for example, raises this error
        raise
    except Exception as error:
        if not (isinstance(error, OSError) or is_transient(error) or is_expired(error)):
            raise
        raise StoreAccessError(f"cannot read the store {url}: {explain(error)}; nothing was changed") from error
