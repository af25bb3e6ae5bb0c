"""Interface to the files of a store by key, in a local folder or an object store.

Only a session may write. A later session permanently revokes the write access of earlier ones (*fencing*), even if a
process was suspended during a write; see `LocalFiles` and `ObjectFiles`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import StoreAccessError
from pipeline.faults import explain
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.files.locations import is_local
from pipeline.store.files.object_files import ObjectFiles

Files = LocalFiles | ObjectFiles
"""Files of a store by key; writes require a session, and raise `SessionSupersededError` if it is fenced."""


def open_files(url: str, session: str | None = None) -> Files:
    """Return the files of a folder or of an object store, read-only or for the session with the given identifier."""
    return LocalFiles(url, session) if is_local(url) else ObjectFiles(url, session)


@contextmanager
def accessing(url: str) -> Iterator[None]:
    """Convert errors of the file system or the network to `StoreAccessError`."""
    try:
        yield
    except OSError as error:
        raise StoreAccessError(
            f"cannot read the store {url}: {explain(error)}; make it readable, and repeat"
        ) from error
