"""Functions that run, submit, resume and extend studies.

Invalid values, clusters and stores raise an error before anything is written.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from pipeline.blocks.evaluate import Status
from pipeline.clusters.cluster import connect, has_nannies
from pipeline.clusters.profiles import Profile, load_profile
from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from pipeline.execution.execute import execute
from pipeline.execution.handover import hand_over
from pipeline.execution.probe import refuse_unfit_workers, refuse_workers_without_store
from pipeline.execution.rerun import refuse_other_numbers
from pipeline.execution.shipping import shipped
from pipeline.execution.work import PendingWork, Receipt, Task
from pipeline.faults import retried
from pipeline.resolve import named_source, refuse_edited, refuse_other_spec, study_of
from pipeline.stores.locations import normalise_location
from pipeline.stores.provenance import describe, now
from pipeline.stores.sessions import Session, number_of
from pipeline.stores.store import ResultStore
from pipeline.submission import Submission, abandon, close, find_abandoned, record_of

Progress = Callable[[PendingWork], Callable[[Receipt], None]]


def run(
    study: Study | StudySource | str,
    store: str | os.PathLike[str],
    *,
    trials: int | None = None,
    seed: int | None = None,
    panels: Iterable[str] = (),
    values: Mapping[str, Iterable[Any]] | None = None,
    cluster: str | None = None,
    time_limit: float | None = None,
    allow_failures: bool = False,
    accept_edited_study: bool = False,
    progress: Progress | None = None,
) -> ResultStore:
    """Run a study, or continue an earlier run with the same spec.

    Parameters
    ----------
    study : Study, StudySource or str
        A study, or ``module:object``, or the path of a ``.py`` file with ``STUDY``.
    store : path
        Path or URL of the results: a new location, or a store with the same spec.
    trials, seed, panels, values
        See `Study.configure`.
    cluster : str, optional
        ``FILE`` or ``FILE:PROFILE``; threads of this process by default.
    time_limit : float, optional
        Maximum time per block in seconds; trials that exceed it are isolated and stored as timed out. Requires a
        cluster of worker processes.
    allow_failures : bool
        True to continue with a method that fails on all trials. By default the run stops after 100 failed trials of
        a panel and setting, or 10 that terminated their worker, if none was ok; the others remain pending.
    accept_edited_study : bool
        True to continue a store after its study file was edited; the session records the new hash. For a study without
        a file, integer versions are compared, and one committed trial of each method is recomputed.
    progress : callable, optional
        Called with the pending work; returns a function that is called with each receipt.

    Returns
    -------
    ResultStore
        The store; `open_results` opens its datasets.

    Raises
    ------
    BadInputError
        If values, cluster or store are invalid, before anything is written.
    ExecutionError
        If the run cannot continue; committed work is kept.

    Examples
    --------
    >>> import tempfile
    >>> from pipeline import open_results
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = run(
    ...         STUDIES["hellinger-accuracy"], f"{folder}/s.zarr", trials=50, panels=["k2"], values={"n": [10, 20]}
    ...     )
    ...     dict(open_results(store.url)["k2"].sizes)
    {'n': 2, 'mechanism': 12, 'trial': 50}
    """
    options = _Options(load_profile(cluster), progress, time_limit, allow_failures)
    source, configured, existing = _configured(study, store, trials, seed, panels, values, accept_edited_study)
    return _run(source, configured, store, existing, options)


def submit(
    study: Study | StudySource | str,
    store: str | os.PathLike[str],
    *,
    cluster: str,
    trials: int | None = None,
    seed: int | None = None,
    panels: Iterable[str] = (),
    values: Mapping[str, Iterable[Any]] | None = None,
    allow_failures: bool = False,
    accept_edited_study: bool = False,
) -> tuple[Submission, int] | None:
    """Submit a study to a scheduler that computes it independently of this process.

    Parameters
    ----------
    study, store, trials, seed, panels, values, accept_edited_study
        See `run`.
    cluster : str
        Profile with the address of a scheduler.
    allow_failures : bool
        True to compute all trials of a block even if the first 100 failed.

    Returns
    -------
    submission : Submission
        The submission, which `pipeline.submission.find_submission` returns for the store.
    n_tasks : int
        Number of submitted tasks. If no work is pending, None is returned instead of the tuple.

    Raises
    ------
    BadInputError
        As in `run`; also for a cluster that stops with this process, and for a store with an open submission.

    Notes
    -----
    Submitted tasks are not monitored: work that terminates its worker more often than the scheduler allows, or that
    cannot be written, remains pending. `resume` computes it and isolates the failing trials. The last task closes the
    submission, which is recorded as finished only if no work is pending.
    """
    profile = load_profile(cluster)
    if not profile.outlives_client:
        raise BadInputError(
            f"cluster must be a profile with the address of a running scheduler, got {profile.name}; use run, or "
            "start one with 'dask scheduler'"
        )
    source, configured, existing = _configured(study, store, trials, seed, panels, values, accept_edited_study)
    works = _pending(configured, existing)
    if works is not None and not works:
        return None
    options = _Options(profile, allow_failures=allow_failures)
    with _session(source, configured, store, existing, options, submitted=cluster) as (client, opened, task, session):
        works = _current(works, configured, existing, opened, task)
        n_tasks = hand_over(client, task, works, session.detach, close, allow_failures)
        return Submission.from_record(session.record), n_tasks


def resume(
    store: str | os.PathLike[str],
    *,
    study: StudySource | Study | str | None = None,
    retry: Collection[Status] = (),
    cluster: str | None = None,
    time_limit: float | None = None,
    allow_failures: bool = False,
    accept_edited_study: bool = False,
    progress: Progress | None = None,
) -> ResultStore:
    """Compute the pending trials of a store.

    Parameters
    ----------
    store : path
        A store.
    study : StudySource, Study or str, optional
        Study of the store. By default the one that the store references, if it is built in, registered by an installed
        package, or in a file that this user has run before.
    retry : collection of Status
        Statuses of trials to recompute with the same random numbers, such as `FAILURES`.
    cluster, time_limit, allow_failures, accept_edited_study, progress
        See `run`.

    Returns
    -------
    ResultStore
        The store.

    Raises
    ------
    BadInputError
        If the store does not exist, or its study is not found, is not trusted, has a different version, was edited, or
        gives different numbers.

    Examples
    --------
    >>> import tempfile
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = run(STUDIES["gibbs-traces"], f"{folder}/s.zarr", panels=["binomial"]).url
    ...     resume(path).complete
    True
    """
    options = _Options(load_profile(cluster), progress, time_limit, allow_failures, retry)
    existing = ResultStore.open(store)
    source, configured = study_of(existing, study, accept_edited_study)
    return _run(source, configured, store, existing, options)


def extend(
    store: str | os.PathLike[str],
    *,
    trials: int | None = None,
    values: Mapping[str, Iterable[Any]] | None = None,
    panels: Iterable[str] = (),
    study: StudySource | Study | str | None = None,
    cluster: str | None = None,
    time_limit: float | None = None,
    allow_failures: bool = False,
    accept_edited_study: bool = False,
    progress: Progress | None = None,
) -> ResultStore:
    """Add trials, factor values or methods to a store; stored numbers do not change.

    Parameters
    ----------
    store : path
        A store.
    trials : int, optional
        Total number of trials per cell, including stored ones.
    values : mapping, optional
        New factor values and method names; stored ones may be repeated.
    panels : iterable of str
        Panels to extend; by default, all panels with the given factors.
    study, cluster, time_limit, allow_failures, accept_edited_study, progress
        See `resume`.

    Returns
    -------
    ResultStore
        The store. A repeated call after an interruption continues the extension.

    Raises
    ------
    BadInputError
        As in `resume`; also for fewer trials than stored, or new values of outputs, which are computed in one call.

    Examples
    --------
    >>> import tempfile
    >>> from pipeline import open_results
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/s.zarr"
    ...     chosen = {"n": [10, 20], "mechanism": ["smooth"]}
    ...     store = run(STUDIES["hellinger-accuracy"], path, trials=50, panels=["k2"], values=chosen)
    ...     store = extend(path, trials=80, values={"mechanism": ["laplace"]})
    ...     dict(open_results(path)["k2"].sizes)
    {'n': 2, 'mechanism': 2, 'trial': 80}
    """
    options = _Options(load_profile(cluster), progress, time_limit, allow_failures)
    existing = ResultStore.open(store)
    source, configured = study_of(existing, study, accept_edited_study)
    return _run(
        source, configured.extended(source.load(), trials, values or {}, tuple(panels)), store, existing, options
    )


@dataclass(frozen=True)
class _Options:
    """Options of a computation."""

    profile: Profile
    progress: Progress | None = None
    time_limit: float | None = None
    allow_failures: bool = False
    retry: Collection[Status] = ()

    def __post_init__(self) -> None:
        if self.time_limit is not None and not 0 < self.time_limit < float("inf"):
            raise BadInputError(f"the time limit of a block must be > 0 seconds, got {self.time_limit}")


def _configured(
    study: Study | StudySource | str,
    store: str | os.PathLike[str],
    trials: int | None,
    seed: int | None,
    panels: Iterable[str],
    values: Mapping[str, Iterable[Any]] | None,
    accept_edited_study: bool,
) -> tuple[StudySource, Study, ResultStore | None]:
    """Return the source of a study, the configured study, and the existing store or None."""
    source = named_source(study)
    configured = source.load().configure(trials, seed, panels, values)
    existing = ResultStore.open(store) if ResultStore.exists(store) else None
    if existing is not None:
        refuse_other_spec(existing, configured)
        if not accept_edited_study:
            refuse_edited(existing, source)
    source.remember()
    return source, configured, existing


def _run(
    source: StudySource,
    study: Study,
    path: str | os.PathLike[str],
    existing: ResultStore | None,
    options: _Options,
) -> ResultStore:
    """Compute pending work for `run`, `resume` and `extend`, after validation of the input."""
    works = _pending(study, existing, options.retry)
    if existing is not None and works is not None and not works:
        return existing
    with _session(source, study, path, existing, options) as (client, store, task, _):
        works = _current(works, study, existing, store, task, options.retry)
        on_receipt = options.progress(works) if options.progress is not None else lambda receipt: None
        execute(
            client,
            task,
            works,
            on_receipt,
            options.time_limit,
            profile=options.profile,
            allow_failures=options.allow_failures,
        )
    return store


def _pending(study: Study, existing: ResultStore | None, retry: Collection[Status] = ()) -> PendingWork | None:
    """Return the pending work of a store with the spec of the study, or None if there is no such store."""
    return PendingWork(study, existing, retry) if existing is not None and existing.holds(study) else None


def _current(
    works: PendingWork | None,
    study: Study,
    existing: ResultStore | None,
    store: ResultStore,
    task: Task,
    retry: Collection[Status] = (),
) -> PendingWork:
    """Return the pending work in the session of a task; scan the store again if another session wrote since."""
    number = number_of(task.session)
    if works is not None and number == works.last_session + 1:
        return works
    is_new = existing is None and number == 1
    return PendingWork(study, None if is_new else store, retry)


@contextmanager
def _session(
    source: StudySource,
    study: Study,
    path: str | os.PathLike[str],
    existing: ResultStore | None,
    options: _Options,
    submitted: str | None = None,
) -> Iterator[tuple[Any, ResultStore, Task, Session]]:
    """Connect to the cluster, check it, begin a session, and create or extend the store.

    Nothing is written before the checks of the cluster have passed. If the name of a profile is given as `submitted`,
    the caller detaches the session.
    """
    abandoned = find_abandoned(existing) if existing is not None else None
    profile, is_limited, url = options.profile, options.time_limit is not None, normalise_location(path)
    with connect(profile) as client:
        if is_limited and not has_nannies(client):
            raise BadInputError(
                "a time limit requires worker processes with nannies, which can be terminated and restarted; got "
                f"profile {profile.name}, choose another --cluster"
            )
        task = Task(source, url, sha256(canonical_json(study.spec())), announced=is_limited)
        with shipped(client, task, handed_over=submitted is not None):
            refuse_unfit_workers(client, task.run, source, study.spec())
            if existing is not None and existing.complete:
                refuse_other_numbers(client, task.run, existing, study.from_spec(existing.spec))
            record = {"profile": profile.name, **source.attributes, **describe(source.file)}
            if submitted is not None:
                record |= record_of(task.run, submitted, profile)
            if existing is not None and abandoned is not None:
                abandon(existing, abandoned)
            session = Session.begin(url, record)
            try:
                store = _prepared(session, source, study, existing)
                task = replace(task, session=session.id)
                refuse_workers_without_store(client, task)
                yield client, store, task, session
                if submitted is None:
                    session.end({"finished": now()})
            except BaseException:
                with suppress(OSError):  # such as a full disk
                    session.end()
                raise


def _prepared(session: Session, source: StudySource, study: Study, existing: ResultStore | None) -> ResultStore:
    """Create or extend the store of a session to match the spec of a study."""
    url = session.files.url
    try:
        store = ResultStore.open(url, session.id) if ResultStore.exists(url) else None
        if (store.spec if store else None) != (existing.spec if existing else None):
            raise BadInputError(f"another session changed the store {url} at the same time; try again")
        if store is None or not store.complete:
            return retried(ResultStore.create, session, study, {**source.attributes, "created": now()})
        return store if store.holds(study) else retried(store.grow, session, study)
    except OSError as error:
        raise BadInputError(f"cannot write to the store {url}: {error.strerror or error}") from error
