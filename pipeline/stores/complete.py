"""Access to stores for reading or changing them, and classification of errors of lazy reads, without xarray."""

import os
import traceback

from zarr.storage import FsspecStore, LocalStore

from pipeline.errors import BadInputError, IncompleteStoreError, StoreAccessError, UnreadableStoreError, command
from pipeline.faults import explain, is_expired, is_transient
from pipeline.stores.store import ResultStore


def open_complete(store: str | os.PathLike[str]) -> ResultStore:
    """Open a store, and require that its creation was finished.

    Raises
    ------
    BadInputError
        If there is no store.
    IncompleteStoreError
        If the creation of the store was interrupted.
    """
    opened, path = ResultStore.open(store), os.fspath(store)
    if not opened.complete:
        raise IncompleteStoreError(
            f"the creation of the store {path} was interrupted; finish it with: {command('resume', path)}"
        )
    return opened


def open_to_change(store: str | os.PathLike[str], *, damaged: bool = False) -> ResultStore:
    """Open a store that a session will change; `damaged` has the meaning of `ResultStore.open`.

    Raises
    ------
    BadInputError
        If there is no store, or the store is compact.
    """
    opened = ResultStore.open(store, damaged=damaged)
    if opened.is_compact:
        raise BadInputError(
            f"the store {opened.url} is compact and can only be read; run, resume, extend or repair the store from "
            "which it was made, and write another compact store"
        )
    return opened


def classify_read_error(error: BaseException) -> UnreadableStoreError | StoreAccessError | None:
    """Convert an error of a lazy read to an error of the pipeline; return None for other errors.

    Parameters
    ----------
    error : BaseException
        Error with its traceback, raised while values of an opened data set were loaded.

    Returns
    -------
    UnreadableStoreError, StoreAccessError or None
        `UnreadableStoreError` for damage, `StoreAccessError` for errors of the file system or network.

    Examples
    --------
    >>> classify_read_error(ValueError("unrelated")) is None
    True
    """
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not any(name.startswith("zarr.") for name in modules):
        return None
    if isinstance(error, OSError) or is_transient(error) or is_expired(error):
        return StoreAccessError(f"cannot read the store: {explain(error)}; nothing was changed")
    if any(name.startswith("zarr.core.codec_pipeline") for name in modules):
        reason = " ".join(str(error).split()) or type(error).__name__
        return UnreadableStoreError(
            f"a chunk of the store cannot be read ({reason}); find it with: {command('verify', _location(error))}"
        )
    return None


def _location(error: BaseException) -> str:
    """Return the path or URL of the store that Zarr was reading, which its errors do not contain."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        found = getattr(getattr(frame.f_locals.get("self"), "store_path", None), "store", None)
        if isinstance(found, LocalStore):
            return str(found.root)
        if isinstance(found, FsspecStore):
            return str(found.fs.unstrip_protocol(found.path))
    return "STORE"
