"""Creation and growth of the store of a session."""

from collections.abc import Mapping
from typing import Any

from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from pipeline.store.layout.root import read_root
from pipeline.store.layout.template import root_attributes, write_template
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions.lease import Session


def create_empty_store(session: Session, study: Study, attributes: Mapping[str, Any]) -> ResultStore:
    """Write the template of a study, or complete an interrupted creation; no block is written before the root."""
    files = session.files
    begun = read_root(files)
    if begun is not None:
        if begun.attributes["spec_sha256"] != root_attributes(study)["spec_sha256"]:
            raise BadInputError(f"{files.url} contains an unfinished store with a different spec; choose another path")
        attributes = begun.attributes  # attributes written by the session that began to create the store
    return ResultStore(files, write_template(files, study, attributes))


def grow_store(
    store: ResultStore, session: Session, study: Study, attributes: Mapping[str, Any] | None = None
) -> ResultStore:
    """Extend the arrays, whose chunks do not move; readers see the old store until the root is replaced."""
    return ResultStore(session.files, write_template(session.files, study, {**store.attributes, **(attributes or {})}))
