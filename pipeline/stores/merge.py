"""Shares of a run: disjoint parts of its blocks, computed into stores of their own, and joined into one store.

The store of a share has the spec, shape and streams of the whole run. Its root names the share, and the blocks of other
shares are not asked for. All settings of a block belong to one share, and shares differ by at most one block.
"""

import json
import os
from collections.abc import Callable, Sequence

from pipeline.blocks.evaluate import Status
from pipeline.errors import BadInputError, StoreAccessError, command
from pipeline.stores.compact import committed_chunks, coordinate_chunks, new_store, put_all, refuse_destination
from pipeline.stores.locations import normalise_location
from pipeline.stores.regions import iterate_slabs
from pipeline.stores.root import seal_root
from pipeline.stores.sessions import is_lost, record_files, require_idle
from pipeline.stores.share import SHARE, Share
from pipeline.stores.store import ResultStore, open_complete


def merge(stores: Sequence[str | os.PathLike[str]], destination: str | os.PathLike[str]) -> ResultStore:
    """Join the stores of all shares of a run into one store, whose arrays are those of the undivided run.

    Parameters
    ----------
    stores : sequence of path
        Stores of the shares in any order, which are only read.
    destination : path
        Path or URL of the joined store, at which nothing may exist.

    Returns
    -------
    ResultStore
        The joined store, with the records of all sessions; it can be extended like any other.

    Raises
    ------
    BadInputError
        If a store is no share, shares belong to different runs or code, overlap, are missing or incomplete, a session
        writes to one of them, or the destination exists. Nothing has been written in this case.
    UnreadableStoreError
        If a share is damaged; nothing remains at the destination.

    Examples
    --------
    >>> import tempfile
    >>> from pipeline import open_results, run
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     how = {"panels": ["k2"], "values": {"n": [10, 20]}, "trials": 50}
    ...     parts = [
    ...         run(STUDIES["hellinger-accuracy"], f"{folder}/{k}.zarr", share=f"{k}/2", **how) for k in (1, 2)
    ...     ]
    ...     whole = run(STUDIES["hellinger-accuracy"], f"{folder}/whole.zarr", **how)
    ...     open_results(merge(parts, f"{folder}/s.zarr"))["k2"].identical(open_results(whole)["k2"])
    True
    """
    if not stores:
        raise BadInputError("merge requires the stores of all shares, got none")
    sources, url = [open_complete(store) for store in stores], normalise_location(destination)
    _refuse(sources)
    for source in sources:
        refuse_destination(source, url)
    numbers = {source: require_idle(source.files) for source in sources}
    first = sources[0]
    attributes = {name: value for name, value in first.attributes.items() if name != SHARE}
    root = seal_root(json.dumps({**json.loads(first.root_content), "attributes": attributes}).encode())
    records = [{**one, SHARE: str(source.share)} for source in sources for one in source.sessions if not is_lost(one)]
    with new_store(url, len(records), root, numbers) as (_, batch):
        for panel in first.spec["panels"]:
            for name in ("status", "error", *first.spec["panels"][panel]["measures"]):
                _join(sources, panel, name, batch.put)
        put_all(batch.put, coordinate_chunks(first) | record_files(records))
    return ResultStore.open(url)


def _join(sources: Sequence[ResultStore], panel: str, name: str, put: Callable[[str, bytes], None]) -> None:
    """Copy the committed chunks of a variable; shares may have the same per-cell chunk, which must be equal."""
    for _, region in iterate_slabs(sources[0].array(panel, name)):
        found: dict[str, bytes] = {}
        for source in sources:
            for key, content in committed_chunks(source, panel, name, region).items():
                if content is not None and found.setdefault(key, content) != content:
                    raise StoreAccessError(
                        f"{key} differs between the shares {sources[0].url} and {source.url}, which were computed by "
                        "different code; compute them again with one version"
                    )
        put_all(put, found)


def _refuse(sources: Sequence[ResultStore]) -> None:
    """Raise `BadInputError` unless the stores are all shares of one run, and complete."""
    shares: dict[Share, ResultStore] = {}
    first = sources[0]
    for source in sources:
        if source.share is None:
            raise BadInputError(f"{source.url} is not a share; merge takes the stores of run --share K/M")
        for name, what in (("spec_sha256", "spec"), ("study_code_sha256", "study file")):
            if source.attributes.get(name) != first.attributes.get(name):
                raise BadInputError(
                    f"the shares {first.url} and {source.url} are of different runs: their {what} differs"
                )
        if first.share is not None and source.share.count != first.share.count:
            raise BadInputError(
                f"shares of one run have one count, got {first.share} in {first.url} and {source.share} in {source.url}"
            )
        if source.share in shares:
            raise BadInputError(
                f"shares must not overlap, got {source.share} in both {shares[source.share].url} and {source.url}"
            )
        shares[source.share] = source
        if n_pending := sum(source.count(panel)[Status.PENDING] for panel in source.spec["panels"]):
            raise BadInputError(
                f"the share {source.url} has {n_pending:,} pending trials; compute them with: "
                f"{command('resume', source.url)}"
            )
    count = next(iter(shares)).count
    missing = [str(share) for k in range(count) if (share := Share(k + 1, count)) not in shares]
    if missing:
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        raise BadInputError(f"all {count:,} shares are required, but {', '.join(missing[:3])}{more} are missing")
