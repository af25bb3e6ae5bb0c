"""Access to stores for reading or changing them."""

import os

from pipeline.errors import BadInputError, IncompleteStoreError, command
from pipeline.stores.store import ResultStore


def open_complete(store: str | os.PathLike[str]) -> ResultStore:
    """Open a store, and require that its creation was finished."""
    opened, path = ResultStore.open(store), os.fspath(store)
    if not opened.complete:
        raise IncompleteStoreError(
            f"the creation of the store {path} was interrupted; finish it with: {command('resume', path)}"
        )
    return opened


def open_to_change(store: str | os.PathLike[str], *, damaged: bool = False) -> ResultStore:
    """Open a store that a session will change; `damaged` has the meaning of `ResultStore.open`."""
    opened = ResultStore.open(store, damaged=damaged)
    if opened.is_compact:
        raise BadInputError(
            f"the store {opened.url} is compact and can only be read; run, resume, extend or repair the store from "
            "which it was made, and write another compact store"
        )
    if not damaged:
        opened.asked  # noqa: B018 - raises if the records of the sessions are lost, before a session adds another one
    return opened
