"""Resolution of a store's study: lookup, trust check, and comparison with the store."""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pipeline.blocks.evaluate import FAILURES, Status
from pipeline.declare.importing import append_to_path
from pipeline.declare.local_modules import MODULES, with_modules
from pipeline.declare.method_files import MethodFile, read_records, stored_method
from pipeline.declare.source import StudySource, enable_sibling_imports, named_source, stored_source
from pipeline.declare.study import Study, differences, stored_codes
from pipeline.declare.trusted_files import is_trusted_file
from pipeline.errors import BadInputError, command
from pipeline.store.layout.root import AUDITS
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from pipeline.store.sessions.recorded_goal import read_goal

_DIGITS = 12  # number of digits of a hash in messages


def study_of(
    store: ResultStore,
    study: StudySource | Study | str | None = None,
    accept_edited_study: bool = False,
    methods: Sequence[MethodFile] = (),
    only_reads: bool = False,
) -> tuple[StudySource, Study]:
    """Return the source of a store's study, by default the referenced one, and the study with the stored spec.

    An edited file is refused unless the user accepts the edit or, if no trial is computed (`only_reads`), has run or
    named it.

    Methods that a user added to the study are those of their recorded files, or those of the same name in `methods`.
    """
    source = _trusted_source(store, accept_edited_study, only_reads) if study is None else named_source(study)
    files = _stored_methods(store, (*source.methods, *methods), accept_edited_study)
    source = replace(source, methods=tuple(files))
    if not (accept_edited_study or only_reads):
        _refuse_edited_methods(store, source)
    source.refuse_stale()
    declared = source.load()
    if declared.name != store.spec["study"]:
        raise BadInputError(
            f"the store {store.url} contains study {store.spec['study']}, got {declared.name}; name the stored study"
        )
    configured = declared.from_spec(store.spec)
    refuse_other_spec(store, configured)
    if not (accept_edited_study or only_reads):
        refuse_edited(store, source)
    source.trust()
    return source, configured


def _trusted_source(store: ResultStore, accept_edited_study: bool, only_reads: bool) -> StudySource:
    """Return the source that a store references; raise `BadInputError` for code that this user has not run.

    If the user accepts the edit, a file is trusted of which the user has run the version that the store records.
    """
    reference = store.attributes.get("study_reference", "")
    if not isinstance(reference, str) or not (reference.endswith(".py") or ":" in reference):
        raise BadInputError(f"the store {store.url} has no reference to its study; name the study with --study")
    source = stored_source(reference)
    is_known = _has_run_recorded(store, source)
    if is_known and not (accept_edited_study or only_reads or source.is_trusted):
        refuse_edited(store, source)
    if is_known and only_reads and not source.is_trusted:
        raise BadInputError(
            f"{_edited_files(store, source)} was edited since you ran it; restore the file, or, to use "
            f"the edited code, add --study {shlex.quote(reference)}"
        )
    if not source.is_trusted and not (is_known and accept_edited_study):
        code = f"{reference} (SHA-256 {source.sha256[:_DIGITS]}...)" if source.sha256 else reference
        raise BadInputError(
            f"the store {store.url} references the study {code}, which is neither built in nor registered by an "
            f"installed package, and which you have not run before; if you trust the code, add --study "
            f"{shlex.quote(reference)}"
        )
    enable_sibling_imports(source)
    return source


def _has_run_recorded(store: ResultStore, source: StudySource) -> bool:
    """Return True if this user has run the version of a study file that a store records, at the same path."""
    record = _last_record(store)
    recorded = [record.get("study_code_sha256"), with_modules(record.get("study_file_sha256", ""), _modules(record))]
    return source.file is not None and any(digest and is_trusted_file(digest, source.file) for digest in recorded)


def _modules(record: Mapping[str, Any]) -> dict[str, str]:
    """Return name -> SHA-256 of the file of each local module in a record, which somebody else may have written."""
    with suppress(ValueError, TypeError, AttributeError):
        return {str(name): str(digest) for name, digest in json.loads(record.get(MODULES, "{}")).items()}
    return {}


def _stored_methods(store: ResultStore, named: Sequence[MethodFile], accept_edited: bool) -> Iterator[MethodFile]:
    """Yield the files of the added methods of a store; raise `BadInputError` for code that this user has not run.

    Files that the user has not named are not imported. An edited one is accepted if the user has run its recorded code.
    """
    by_name = {file.load().name: file for file in named}
    last = _last_methods(_history(store))
    for record in (last[method["name"]] for method in read_records(store.attributes)):
        if record["name"] in by_name:
            yield by_name[record["name"]]
            continue
        file = stored_method(record["file"], record["object"])
        has_run_recorded = is_trusted_file(record["code"], file.path)
        if has_run_recorded and not file.is_trusted and not accept_edited:
            raise _edited(store, file, record["code"])
        if not (has_run_recorded or file.is_trusted):
            again = command("extend", store.url, "--add", f"{file.path}:{file.object}")
            raise BadInputError(
                f"the store {store.url} references the method file {file.path}, which you have not run before; if you "
                f"trust the code, run: {again}"
            )
        append_to_path(os.path.dirname(file.path))
        yield file


def _edited_methods(records: Sequence[Mapping[str, Any]], source: StudySource) -> Iterator[tuple[MethodFile, str]]:
    """Yield the files of added methods with other code than the last record that has them, and the recorded hash."""
    codes = {name: method["code"] for name, method in _last_methods(records).items()}
    for file in source.methods:
        recorded = codes.get(file.load().name, file.code)
        if recorded != file.code:
            yield file, recorded


def _refuse_edited_methods(store: ResultStore, source: StudySource) -> None:
    """Raise `BadInputError` if the code of an added method differs from that which computed its ok trials or audit."""
    for file, recorded in _edited_methods(_history(store), source):
        method = file.load().name
        audits = json.loads(store.attributes.get(AUDITS, "{}"))
        if _has_ok_trials(store, method) or any(method in by_method for by_method in audits.values()):
            raise _edited(store, file, recorded)


def _has_ok_trials(store: ResultStore, method: str = "") -> bool:
    """Return True if a trial of a store is ok, or one of a method that is named."""
    from pipeline.store.datasets import open_panel  # slow import

    if not store.complete:
        return False
    if not method:
        return any(count_by_status(store, panel)[Status.OK] for panel in store.spec["panels"])
    for name, panel in store.spec["panels"].items():
        if method in panel["method_order"]:
            status = open_panel(store, name, lazy=True)["status"]
            by = next(dim for dim in status.dims if status[dim].values.tolist() == panel["method_order"])
            if (status.sel({by: method}) == Status.OK).any():
                return True
    return False


def _edited(store: ResultStore, file: MethodFile, recorded: str) -> BadInputError:
    """Return the error for a method file with other code than a store records."""
    return BadInputError(
        f"the method file {file.path} was edited: the SHA-256 of its code is {file.code[:_DIGITS]}..., and "
        f"{recorded[:_DIGITS]}... in the store {store.url}; restore the file, choose another store, or accept the "
        "edit with --accept-edited-study of run, resume, extend, verify or trial"
    )


def accept_edited_methods(store: ResultStore, source: StudySource, study: Study, accept: bool) -> Study:
    """Return a study with the stored hashes of the code of added methods; refuse edited ones unless accepted."""
    if not accept:
        _refuse_edited_methods(store, source)
    codes = {name: stored_codes(panel) for name, panel in store.spec["panels"].items()}
    return replace(study, panels=tuple(panel.with_codes(codes.get(panel.name, {})) for panel in study.panels))


def _last_methods(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return name -> method in the last record that has it."""
    return {method["name"]: method for record in records for method in read_records(record)}


def _history(store: ResultStore) -> list[Mapping[str, Any]]:
    """Return the attributes of the root, and the records of all sessions."""
    return [store.attributes, *store.sessions]


def _last_record(store: ResultStore) -> Mapping[str, Any]:
    """Return the last record of a store that has the hashes of a study file, or an empty mapping."""
    return next((record for record in reversed(_history(store)) if "study_code_sha256" in record), {})


def _is_edited(record: Mapping[str, Any], source: StudySource) -> bool:
    """Return True if the code of a study file differs from the recorded one; comments and docstrings are no code."""
    if source.code_sha256 is None or record.get("study_code_sha256", source.code_sha256) == source.code_sha256:
        return False
    return (record.get("study_file_sha256"), _modules(record)) != (source.sha256, source.module_files)


def is_recorded(store: ResultStore, source: StudySource) -> bool:
    """Return True if the last session of a store, or its root, has the present code of a study and its methods."""
    return not (_is_edited(_last_record(store), source) or any(_edited_methods(_history(store), source)))


def _edited_files(store: ResultStore, source: StudySource) -> str:
    """Return the file of an edited study, or the first edited module that it imports if the file is unchanged."""
    record, present = _last_record(store), source.module_files
    recorded = _modules(record)
    edited = sorted(name for name in {*recorded, *present} if recorded.get(name) != present.get(name))
    if record.get("study_file_sha256") != source.sha256 or not edited:
        return f"the study file {source.file}"
    return f"the module {edited[0]} of the study file {source.file}"


def refuse_edited(store: ResultStore, source: StudySource) -> None:
    """Raise `BadInputError` if the code of a study file differs from that which computed the ok trials of a store."""
    record, now = _last_record(store), source.code_sha256
    if now is None or not _is_edited(record, source):
        return
    if _has_ok_trials(store):
        named = "" if _has_run_recorded(store, source) else f"--study {shlex.quote(source.reference or '')} "
        of_run = " (run: without --study)" if named else ""
        recorded = record["study_code_sha256"]
        raise BadInputError(
            f"{_edited_files(store, source)} was edited: the SHA-256 of its code is {now[:_DIGITS]}..., "
            f"and {recorded[:_DIGITS]}... in the last session of the store {store.url}; restore the file, or increase "
            f"a version in it and choose another --store, or accept the edit with {named}--accept-edited-study{of_run}"
        )


def failures_to_recompute(store: ResultStore, source: StudySource) -> tuple[Status, ...]:
    """Return the statuses of failed trials if no session with the present files has finished since their last edit."""
    for record in reversed(_history(store)):
        if _is_edited(record, source) or any(_edited_methods([record], source)):
            return FAILURES
        if "finished" in record and not record.get("repaired"):
            break
    return ()


def refuse_other_spec(store: ResultStore, study: Study) -> None:
    """Raise `BadInputError` with the first difference if the specs of a study and a store differ."""
    differing = differences(store.spec, study.spec())
    if not differing:
        return
    more = f", and {len(differing) - 1} more" if len(differing) > 1 else ""
    if not store.complete:
        raise BadInputError(
            f"the creation of the store {store.url} with a different spec ({differing[0]}{more}) was interrupted; "
            f"finish it with: {command('resume', store.url)}, or choose another --store path"
        )
    if _without_numbers(store.spec) != _without_numbers(study.spec()):
        raise BadInputError(
            f"the store {store.url} was created with a different spec or code version ({differing[0]}{more}); "
            "choose another --store path, or use the original spec and code"
        )
    extension = f"{command('extend', store.url)} --trials N"
    if read_goal(store.sessions) is not None:
        raise BadInputError(
            f"the store {store.url} has the numbers of trials of a run until a target ({differing[0]}{more}); continue "
            f"it with the same --until, or ask for a number with: {extension}"
        )
    addition = "" if store.run_part is not None else f", or add some with: {extension}"
    raise BadInputError(
        f"the store {store.url} has other numbers of trials ({differing[0]}{more}); continue with the stored ones: "
        f"{command('resume', store.url)}{addition}"
    )


def _without_numbers(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec in which panels with trials have no number of trials."""
    return {
        **spec,
        "panels": {name: {**panel, "trials": panel["trials"] is None} for name, panel in spec["panels"].items()},
    }
