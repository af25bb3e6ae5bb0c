"""Originals of copies: whether they may be copied, and the chunks that their blocks have committed."""

import os
from collections.abc import Mapping

from pipeline.blocks.evaluate import Status
from pipeline.errors import BadInputError, BusyStoreError, command, counted
from pipeline.store.codec.chunk_digests import remove_checksum
from pipeline.store.codec.chunks import Region
from pipeline.store.files.locations import exists_remotely, is_local
from pipeline.store.read import committed_chunks, reading
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from pipeline.store.sessions.records import last_number


def refuse_copy(source: ResultStore, url: str) -> None:
    """Raise `BadInputError` for a store with pending trials, or a location to which no copy of it can be written."""
    inner, outer = (os.path.realpath(one) if is_local(one) else one for one in (url, source.url))
    if f"{inner}/".startswith(f"{outer}/"):
        raise BadInputError(f"the copy must be outside of the store {source.url}, got {url}; choose another path")
    if ResultStore.exists(url) or (os.path.lexists(url) if is_local(url) else exists_remotely(url)):
        raise BadInputError(f"{url} exists; choose a path for the copy at which nothing exists")
    n_pending = sum(count_by_status(source, panel, as_stored=True)[Status.PENDING] for panel in source.spec["panels"])
    if n_pending:
        raise BadInputError(
            f"a store must be complete to be copied, got {counted(n_pending, 'pending trial')} in {source.url}; "
            f"compute them with: {command('resume', source.url)}"
        )


def require_unchanged(numbers: Mapping[ResultStore, int]) -> None:
    """Raise `BusyStoreError` if a session has begun after the one with a number, by store."""
    for source, number in numbers.items():
        if last_number(source.files) != number:
            raise BusyStoreError(
                f"another session began on the store {source.url} meanwhile; repeat the command when it has ended"
            )


def variables_of(source: ResultStore) -> list[tuple[str, str]]:
    """Return panel and name of each variable that is no coordinate."""
    return [(panel, name) for panel, names in source.chunk_digests.variables.items() for name in ("status", *names)]


def chunks_to_copy(source: ResultStore, panel: str, name: str, region: Region) -> dict[str, bytes | None]:
    """Return the encoded chunks of a region as their blocks committed them, statuses with their digests."""
    with reading(source):
        if name != "status":
            return committed_chunks(source, panel, name, region)
        contents = source.files.read_many(source.chunks.keys(panel, name, region))
        source.chunk_digests.statuses(contents)
    return contents


def coordinate_chunks(source: ResultStore) -> dict[str, bytes | None]:
    """Read the encoded chunks of all coordinates of a store, and check them."""
    found: dict[str, bytes | None] = {}
    for path, document in source.metadata.items():
        panel, _, name = path.partition("/")
        if document["node_type"] == "array" and name not in ("status", *source.chunk_digests.variables[panel]):
            region = (slice(None),) * len(document["shape"])
            contents = source.files.read_many(source.chunks.keys(panel, name, region))
            with reading(source):
                for key, content in contents.items():
                    remove_checksum(content or b"", key)
            found |= contents
    return found
