"""One store of all parts of a run.

The store of a part has the spec, shape and streams of the whole run; its root names the part, and the blocks of other
parts are not asked for.
"""

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from textwrap import shorten
from typing import Any

from pipeline.declare.local_modules import MODULES
from pipeline.errors import BadInputError, StoreAccessError, command
from pipeline.store.codec.regions import iterate_slabs
from pipeline.store.copies.new_store import new_store, put_all
from pipeline.store.copies.sources import chunks_to_copy, coordinate_chunks, refuse_copy, variables_of
from pipeline.store.files.locations import normalise_location
from pipeline.store.layout.root import seal_root
from pipeline.store.result_store import ResultStore, open_complete
from pipeline.store.scan.run_part import RUN_PART, RunPart
from pipeline.store.sessions.lease import require_idle
from pipeline.store.sessions.records import is_lost, record_files

_EQUAL_IN_PARTS: dict[str, list[tuple[str, ...]]] = {
    "spec": [("spec_sha256",)],
    "study file": [("study_code_sha256",), ("study_file_sha256", MODULES)],  # before 0.4, code had another hash
    "store format": [("store_format",)],
}
"""Words -> alternative attributes of the root that are equal in all parts of a run."""


def merge(stores: Sequence[str | os.PathLike[str]], destination: str | os.PathLike[str]) -> ResultStore:
    """Join the stores of all shares of a run into one store, whose arrays are those of the undivided run.

    Parameters
    ----------
    stores : sequence of path
        Stores of the shares in any order, which are only read.
    destination : path
        Path or URL of the joined store, at which nothing may exist. It has the records of all sessions, and can be
        extended like any other.

    Raises
    ------
    BadInputError
        If a store is no share, shares belong to different runs or code, overlap, are missing or incomplete, a session
        writes to one of them, or the destination exists. Nothing has been written in this case.
    UnreadableStoreError
        If a share is damaged; nothing remains at the destination.

    Warns
    -----
    UserWarning
        If sessions of the shares recorded different versions of packages, or instructions of processors, which `resume`
        and `extend` compare by recomputed numbers.

    Examples
    --------
    >>> import tempfile
    >>> from pipeline import run
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     study, how = STUDIES["gibbs-traces"], {"panels": ["binomial"]}
    ...     parts = [run(study, f"{folder}/{k}.zarr", share=f"{k}/2", **how) for k in (1, 2)]
    ...     merge(parts, f"{folder}/s.zarr").run_part is None
    True
    """
    if not stores:
        raise BadInputError("merge requires the stores of all shares, got none")
    sources, url = [open_complete(store) for store in stores], normalise_location(destination)
    for source in sources:
        refuse_copy(source, url)
    _refuse_other_runs(sources)
    _warn_of_other_machines(sources, url)
    numbers = {source: require_idle(source.files) for source in sources}
    first = sources[0]
    attributes = {name: value for name, value in first.attributes.items() if name != RUN_PART}
    root = seal_root(json.dumps({**json.loads(first.root.content), "attributes": attributes}).encode())
    records = [
        {**record, RUN_PART: str(source.run_part)}
        for source in sources
        for record in source.sessions
        if not is_lost(record)
    ]
    with new_store(url, len(records), root, numbers) as (_, batch):
        for panel, name in variables_of(first):
            _join(sources, panel, name, batch.put)
        put_all(batch.put, coordinate_chunks(first) | record_files(records))
    return ResultStore.open(url)


def _refuse_other_runs(sources: Sequence[ResultStore]) -> None:
    """Raise `BadInputError` unless the stores are all parts of one run."""
    stores: dict[RunPart, ResultStore] = {}
    first = sources[0]
    for source in sources:
        if source.run_part is None:
            raise BadInputError(f"{source.url} is not a share; merge takes the stores of run --share K/M")
        for what, alternatives in _EQUAL_IN_PARTS.items():
            if not any(_are_equal(source.attributes, first.attributes, names) for names in alternatives):
                raise BadInputError(
                    f"the shares {first.url} and {source.url} are of different runs: their {what} differs; compute "
                    "both with one study and one version of dpstudies"
                )
        if first.run_part is not None and source.run_part.count != first.run_part.count:
            raise BadInputError(
                f"shares of one run have one count, got {first.run_part} in {first.url} and {source.run_part} in "
                f"{source.url}"
            )
        if source.run_part in stores:
            raise BadInputError(
                f"shares must not overlap, got {source.run_part} in both {stores[source.run_part].url} and {source.url}"
            )
        stores[source.run_part] = source
    count = next(iter(stores)).count
    missing = [str(part) for k in range(count) if (part := RunPart(k + 1, count)) not in stores]
    if missing:
        more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        raise BadInputError(f"all {count:,} shares are required; missing: {', '.join(missing[:3])}{more}")


def _warn_of_other_machines(sources: Sequence[ResultStore], url: str) -> None:
    """Warn if sessions recorded different versions of packages, or instructions of processors, and name them."""
    known: list[set[str]] = []
    for record in (record for source in sources for record in source.sessions):
        with suppress(KeyError, TypeError, AttributeError):  # a lost record, or one of somebody else
            known.append({*map(" ".join, record["versions"].items()), *map(str, record["cpu_features"])})
    if known and (differing := known[0].union(*known) - known[0].intersection(*known)):
        names = shorten(", ".join(sorted(differing)), 300, placeholder=" ...")
        text = f"sessions of the shares had different versions or instructions: {names}; compare numbers with: "
        warnings.warn(text + command("verify", url), stacklevel=3)


def _join(sources: Sequence[ResultStore], panel: str, name: str, put: Callable[[str, bytes], None]) -> None:
    """Copy the committed chunks of a variable; parts may have the same per-cell chunk, which must be equal."""
    for _, region in iterate_slabs(sources[0].array(panel, name)):
        found: dict[str, bytes] = {}
        for source in sources:
            for key, content in chunks_to_copy(source, panel, name, region).items():
                if content is not None and found.setdefault(key, content) != content:
                    raise StoreAccessError(
                        f"{key} differs between the shares {sources[0].url} and {source.url}, which were computed by "
                        "different code; compute them again with one version"
                    )
        put_all(put, found)


def _are_equal(first: Mapping[str, Any], second: Mapping[str, Any], names: Sequence[str]) -> bool:
    return all(first.get(name) == second.get(name) for name in names)
