"""Provenance of a store and of a folder of stores: sessions, versions, machines, and revisions of the source."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.store.sessions.records import describe
from studies.report.results import Results, StudyResults

Rows = list[tuple[str, str]]
_SOFTWARE = "The dpstudies developers. dpstudies: a laboratory for differentially private Bayesian inference"


def describe_store(results: StudyResults) -> Rows:
    """Return the provenance of a store: its identity and its sessions."""
    store, attributes = results.store, results.store.attributes
    return [
        ("Store", store.url),
        ("Study", str(attributes.get("study_reference", "unknown"))),
        ("Seed", str(attributes["seed"])),
        ("Spec (SHA-256)", attributes["spec_sha256"]),
        ("Created", str(attributes.get("created", "unknown"))),
        (
            "Sessions",
            "; ".join(map(_describe_session, results.sessions and results.records)) or "their records were lost",
        ),
        *_describe_sessions(results.sessions),
    ]


def describe_folder(folder: str | os.PathLike[str], results: Results) -> Rows:
    """Return the provenance of a folder of stores, and of the code that writes their page."""
    sessions = [session for result in results.values() for session in result.sessions]
    started = [session["started"] for session in sessions]
    return [
        ("Folder", os.path.abspath(folder)),
        *([("Dates", f"{min(started)} to {max(started)}")] if started else []),
        *_describe_sessions(sessions),
        ("Page written by", _revision(describe(__file__))),
    ]


def cite(runs: Iterable[StudyResults]) -> str:
    """Return the citation of the software, as in CITATION.cff, with store, seed, spec and commits of each run."""
    records: list[str] = []
    versions: list[str] = []
    for run in runs:
        attributes = run.store.attributes
        versions += filter(None, map(version_of, run.sessions))
        commits = _distinct(_revision(session).replace(" with", ", with") for session in run.sessions) or "unknown"
        name = run.store.url.rstrip("/").rpartition("/")[2]
        records.append(f"{name} (seed {attributes['seed']}, spec {attributes['spec_sha256'][:12]}, commit {commits})")
    return f"{_SOFTWARE}, version {_distinct(versions) or 'unknown'}. {'; '.join(records)}."


def version_of(session: Mapping[str, Any]) -> str:
    """Return the version of this package in the record of a session; empty if the record has none."""
    versions = session.get("versions")
    return str(versions.get("dpstudies", "")) if isinstance(versions, dict) else ""


def _describe_sessions(sessions: Sequence[Mapping[str, Any]]) -> Rows:
    """Return the distinct commands, versions, machines and revisions of the sessions."""
    if not sessions:
        return []
    try:
        return [
            ("Command", _distinct(session["command"] for session in sessions)),
            (
                "Versions",
                _distinct(", ".join(f"{k} {v}" for k, v in session["versions"].items()) for session in sessions),
            ),
            (
                "Machine",
                _distinct("{platform}, {cpu_count} cores, host {host}".format_map(session) for session in sessions),
            ),
            ("Linear algebra", _distinct(", ".join(session["blas"]) for session in sessions)),
            ("Source revision", _distinct(map(_revision, sessions))),
        ]
    except (KeyError, TypeError, AttributeError):  # the records of a store may come from somebody else
        return [("Machine", "not in the records of the sessions")]


def _distinct(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _revision(session: Mapping[str, Any]) -> str:
    commit = str(session.get("git_commit", "not under version control"))
    return commit + (" with changes" if session.get("git_dirty") else "")


def _describe_session(session: Mapping[str, Any]) -> str:
    if "damaged" in session:
        return f"the record {session['damaged']} is damaged"
    profile = session.get("profile", "unknown profile")
    return f"{session['started']} to {session.get('finished', 'interrupted')} ({profile})"
