"""Classification of errors on access to the files of a store."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import BadInputError, StoreAccessError
from pipeline.faults import explain, is_expired, is_transient


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
