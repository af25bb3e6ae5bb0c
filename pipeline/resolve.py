"""The study of a store: found by what the store names or the user does, trusted, and compared with what is stored."""

import shlex

from pipeline.declare.known import is_known
from pipeline.declare.source import StudySource, enable_sibling_imports, find_study, source_of, stored_source
from pipeline.declare.study import Study, differences
from pipeline.errors import BadInputError
from pipeline.stores.store import ResultStore

_DIGITS = 12  # of a hash, as a message shows it


def study_of(
    store: ResultStore, study: StudySource | Study | str | None = None, accept_edited_study: bool = False
) -> tuple[StudySource, Study]:
    """Return the study of a store, as the store configures it.

    Parameters
    ----------
    store : ResultStore
        The store.
    study : StudySource, Study or str, optional
        Its study; by default the one that the store names, if its code is trusted (`StudySource.is_trusted`).
    accept_edited_study : bool
        Whether a study file may differ from the one that computed the store last: where the user says so, and where
        nothing is computed, only read.

    Raises
    ------
    BadInputError
        If it is not found or not trusted, the code is of another version than the store, or its file was edited.
    """
    source = _trusted_source(store, accept_edited_study) if study is None else named_source(study)
    declared = source.load()
    if declared.name != store.spec["study"]:
        raise BadInputError(f"the store {store.url} holds study {store.spec['study']}, got {declared.name}")
    configured = declared.from_spec(store.spec)
    refuse_other_spec(store, configured)
    if not accept_edited_study:
        refuse_edited(store, source)
    source.remember()
    return source, configured


def _trusted_source(store: ResultStore, accept_edited_study: bool) -> StudySource:
    """Return the source that a store names, which may be from elsewhere; refuse code that the user has not run."""
    reference = store.attributes.get("study_reference", "")
    if not isinstance(reference, str) or not (reference.endswith(".py") or ":" in reference):
        raise BadInputError(f"the store {store.url} does not know where its study is; name it with --study")
    source = stored_source(reference)
    if not source.is_trusted:
        recorded = _recorded_hash(store)
        if not accept_edited_study and recorded and source.file and is_known(recorded, source.file):
            refuse_edited(store, source)  # the user's own file, in another version
        code = f"{reference} (SHA-256 {source.sha256[:_DIGITS]}...)" if source.sha256 else reference
        raise BadInputError(
            f"the store {store.url} names the study {code}, which is neither built in nor registered by an installed "
            f"package, and which you have not run before; if you trust its code, add --study {shlex.quote(reference)}"
        )
    enable_sibling_imports(source)
    return source


def _recorded_hash(store: ResultStore) -> str | None:
    """Return the hash of the study file that computed a store last; None if no session had a file."""
    history = [store.attributes, *store.sessions]
    hashes = [one["study_file_sha256"] for one in history if "study_file_sha256" in one]
    return hashes[-1] if hashes else None


def refuse_edited(store: ResultStore, source: StudySource) -> None:
    """Refuse a study file that differs from the one that computed a store last: old and new numbers may not mix."""
    recorded, now = _recorded_hash(store), source.sha256
    if recorded is not None and now is not None and recorded != now:
        name = shlex.quote(source.reference or "")
        raise BadInputError(
            f"the study file {source.file} was edited: its SHA-256 is {now[:_DIGITS]}..., and {recorded[:_DIGITS]}... "
            f"in the last session of the store {store.url}; restore the file, or raise a version in it and choose "
            f"another --store, or accept the edit with --study {name} --accept-edited-study"
        )


def named_source(study: Study | StudySource | str) -> StudySource:
    """Return the source of a study that the user named; BadInputError if there is none."""
    if isinstance(study, StudySource):
        return study
    if not isinstance(study, Study | str):
        raise BadInputError(f"a study must be a Study, a .py file or module:object, got {study!r}")
    return source_of(study) if isinstance(study, Study) else find_study(study, {})


def refuse_other_spec(store: ResultStore, study: Study) -> None:
    """Refuse a configured study whose spec is not that of the store; the error names the first difference."""
    found = differences(store.spec, study.spec())
    if found:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise BadInputError(
            f"the store {store.url} was made with another spec or code version ({found[0]}{more}); "
            "choose another --store path, or use what made it"
        )
