"""Creation and growth of the store of a session."""

from collections.abc import Mapping
from typing import Any

from pipeline.declare.study import Study, includes
from pipeline.errors import BadInputError
from pipeline.store.layout.template import write_template
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions.lease import Session


def create_empty_store(session: Session, study: Study, attributes: Mapping[str, Any]) -> ResultStore:
    """Write the template of a study, also after an interrupted creation; no block is written before the root."""
    return ResultStore(session.files, write_template(session.files, study, attributes))


def grow_store(
    store: ResultStore, session: Session, study: Study, attributes: Mapping[str, Any] | None = None
) -> ResultStore:
    """Extend the arrays, whose chunks do not move; readers see the old store until the root is replaced.

    Raise BadInputError, before anything is written, for a study without some of the stored trials, values or methods.
    """
    if not includes(study.spec(), store.spec):
        raise BadInputError(
            f"the store {store.url} has trials, values or methods that are not asked for, and would be lost; choose "
            "another --store path, or extend the store"
        )
    return ResultStore(session.files, write_template(session.files, study, {**store.attributes, **(attributes or {})}))
