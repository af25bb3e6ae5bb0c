"""Functions that run, submit, resume and extend studies.

Invalid values, clusters and stores raise an error before anything is written.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pipeline.blocks.evaluate import Status
from pipeline.declare.source import StudySource
from pipeline.declare.study import Study, Values
from pipeline.errors import BadInputError
from pipeline.execution.handover import hand_over
from pipeline.growth import grow, with_trials
from pipeline.options import OTHERS_THAN_UNTIL, RunOptions
from pipeline.progress import Progress
from pipeline.resolve import named_source, refuse_edited, refuse_other_spec, study_of
from pipeline.stores.asked import read_goal
from pipeline.stores.complete import open_to_change
from pipeline.stores.store import ResultStore
from pipeline.submission import Submission, close
from pipeline.writing import Computation, compute_pending, session_on


def run(
    study: Study | StudySource | str,
    store: str | os.PathLike[str],
    *,
    trials: int | Mapping[str, int] | None = None,
    seed: int | None = None,
    panels: Iterable[str] = (),
    values: Values | None = None,
    cluster: str | None = None,
    time_limit: float | None = None,
    until: str | None = None,
    at_most: int | None = None,
    within: float | None = None,
    allow_failures: bool = False,
    accept_edited_study: bool = False,
    progress: Progress | bool = True,
) -> ResultStore:
    """Run a study, or continue an earlier run with the same spec.

    Parameters
    ----------
    study : Study, StudySource or str
        A study, ``module:object``, or the path of a ``.py`` file that defines ``STUDY``.
    store : path
        Path or URL of the results: a new location, or a store with the same spec.
    trials, seed, panels, values
        See `Study.configure`.
    cluster : str, optional
        ``FILE`` or ``FILE:PROFILE``; threads of this process by default.
    time_limit : float, optional
        Maximum time per block in seconds; trials that exceed it by themselves are stored as timed out. Blocks are then
        computed in child processes of the workers, and the first block of each includes its compilation.
    until : str, optional
        Target at which the run stops, instead of a number of trials: ``mcse(hellinger) <= 0.0005`` for a measure or a
        statistic of it (``hellinger_median``), ``<= 1%`` for an error relative to the estimate,
        ``mcse(hellinger[smooth] - hellinger[laplace]) <= 0.001`` for paired differences of means, or ``claims`` until
        every claim is decided. Trials are added to the cells and methods that need them, at least 100 each.
    at_most : int, optional
        Maximum number of trials per cell of a run with `until`; by default the number that the study declares.
    within : float, optional
        Maximum time of a run with `until`, in seconds.
    allow_failures : bool
        True to continue with a method that fails on all trials. By default the run stops after 100 failed trials of
        a panel and setting, or 10 that terminated their worker, if none was ok; the other trials remain pending.
    accept_edited_study : bool
        True to continue a store after its study file was edited; the session records the new hash. Failed trials are
        recomputed, and other stored trials do not change. For a study without a file, integer versions are compared,
        and one committed trial of each method is recomputed.
    progress : callable or bool
        True for a progress bar if standard error is a terminal or the code runs in a notebook. A callable is called
        with the pending work, and returns a function that is called with each receipt.

    Returns
    -------
    ResultStore
        The store; `open_results` opens its datasets.

    Raises
    ------
    BadInputError
        If a value, the cluster or the store is invalid. Nothing has been written in this case.
    ExecutionError
        If the run cannot continue; committed work is kept.
    TargetNotReachedError
        If the trials or the time were spent before the target of `until` was reached; all asked trials are committed.

    Examples
    --------
    >>> import tempfile
    >>> from pipeline import open_results
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = run(
    ...         STUDIES["hellinger-accuracy"], f"{folder}/s.zarr", trials=50, panels=["k2"], values={"n": [10, 20]}
    ...     )
    ...     dict(open_results(store)["k2"].sizes)
    {'n': 2, 'mechanism': 17, 'trial': 50}
    """
    options = RunOptions(
        trials=trials,
        seed=seed,
        panels=panels,
        values=values,
        cluster=cluster,
        time_limit=time_limit,
        until=until,
        at_most=at_most,
        within=within,
        allow_failures=allow_failures,
        accept_edited_study=accept_edited_study,
        progress=progress,
    )
    return _compute(_configured(study, store, options))


def submit(
    study: Study | StudySource | str,
    store: str | os.PathLike[str],
    *,
    cluster: str,
    trials: int | Mapping[str, int] | None = None,
    seed: int | None = None,
    panels: Iterable[str] = (),
    values: Values | None = None,
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
        The submission, which `pipeline.submission.find_submission` also returns for the store.
    n_tasks : int
        Number of submitted tasks. If no work is pending, None is returned instead of the tuple.

    Raises
    ------
    BadInputError
        As in `run`, and also for a cluster that stops with this process or a store with an open submission.

    Notes
    -----
    Submitted tasks are not monitored: work that terminates its worker more often than the scheduler allows, or that
    cannot be written, remains pending. `resume` computes it and isolates the failing trials. The last task closes the
    submission, which is recorded as finished only if no work is pending.
    """
    options = RunOptions(
        trials=trials,
        seed=seed,
        panels=panels,
        values=values,
        cluster=cluster,
        allow_failures=allow_failures,
        accept_edited_study=accept_edited_study,
    )
    if not options.profile.outlives_client:
        raise BadInputError(
            f"cluster must be a profile with the address of a running scheduler, got {options.profile.name}; use 'run' "
            "instead, or start a scheduler with 'dask scheduler'"
        )
    computation = replace(_configured(study, store, options), is_submitted=True)
    if computation.pending is not None and not computation.pending:
        return None
    with session_on(computation) as (client, opened, task, session):
        n_tasks = hand_over(client, task, computation.work(opened, task), session.detach, close, allow_failures)
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
    progress: Progress | bool = True,
) -> ResultStore:
    """Compute the pending trials of a store, and continue an interrupted run with `until` towards its target.

    Parameters
    ----------
    store : path
        A store.
    study : StudySource, Study or str, optional
        Study of the store; by default the one that the store references, if it is built in, registered by an installed
        package, or defined in a file that this user has run before.
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
    TargetNotReachedError
        As in `run`, for an interrupted run with `until`, whose time starts anew.

    Examples
    --------
    >>> import tempfile
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = run(STUDIES["gibbs-traces"], f"{folder}/s.zarr", panels=["binomial"]).url
    ...     resume(path).complete
    True
    """
    options = RunOptions(
        cluster=cluster,
        time_limit=time_limit,
        retry=retry,
        allow_failures=allow_failures,
        accept_edited_study=accept_edited_study,
        progress=progress,
    )
    existing = open_to_change(store)
    source, configured = study_of(existing, study, accept_edited_study)
    goal = read_goal(existing.sessions)
    if goal is not None and goal.is_open:
        options = replace(options, until=goal.until, at_most=goal.at_most, within=goal.within, panels=goal.panels)
    return _compute(Computation(source, configured, store, existing, options))


def extend(
    store: str | os.PathLike[str],
    *,
    trials: int | None = None,
    values: Mapping[str, Iterable[Any]] | None = None,
    panels: Iterable[str] = (),
    study: StudySource | Study | str | None = None,
    cluster: str | None = None,
    time_limit: float | None = None,
    until: str | None = None,
    at_most: int | None = None,
    within: float | None = None,
    allow_failures: bool = False,
    accept_edited_study: bool = False,
    progress: Progress | bool = True,
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
    until, at_most, within
        See `run`; by default at most the stored number of trials, if it is larger than the declared one.
    study, cluster, time_limit, allow_failures, accept_edited_study, progress
        See `resume`.

    Returns
    -------
    ResultStore
        The store. A repeated call after an interruption continues the extension.

    Raises
    ------
    BadInputError
        As in `resume`, and also for fewer trials than stored, or for new values of outputs, since all values of an
        output are computed in one call.

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
    options = RunOptions(
        trials=trials,
        panels=panels,
        values=values,
        cluster=cluster,
        time_limit=time_limit,
        until=until,
        at_most=at_most,
        within=within,
        allow_failures=allow_failures,
        accept_edited_study=accept_edited_study,
        progress=progress,
    )
    if until is not None and values:
        raise BadInputError(OTHERS_THAN_UNTIL)
    existing, asked = open_to_change(store), None
    source, configured = study_of(existing, study, accept_edited_study)
    if until is None:
        names = tuple(options.panels)
        configured = configured.extended(source.load(), trials, values or {}, names)
        if trials is not None:  # the panels ask for all trials from now on
            asked = {name: one for name, one in existing.asked.items() if names and name not in names}
    return _compute(Computation(source, configured, store, existing, options, asked))


def _configured(study: Study | StudySource | str, store: str | os.PathLike[str], options: RunOptions) -> Computation:
    """Return the computation of a configured study into a new or existing store."""
    source = named_source(study)
    configured = source.load().configure(options.trials, options.seed, options.panels, options.values)
    existing = open_to_change(store) if ResultStore.exists(store) else None
    is_held = existing is not None and existing.complete
    if options.until is not None:  # the numbers of trials are stored ones, or grow from one
        stored = existing.spec["panels"] if existing is not None and is_held else {}
        trials = {panel.name: stored.get(panel.name, {}).get("trials") or 1 for panel in configured.panels}
        configured = with_trials(configured, trials)
    if existing is not None and (is_held or options.until is None):
        refuse_other_spec(existing, configured)
        if not options.accept_edited_study:
            refuse_edited(existing, source)
    source.remember()
    return Computation(source, configured, store, existing, replace(options, panels=()), asked={})


def _compute(computation: Computation) -> ResultStore:
    """Compute the pending work, or rounds of work until a goal is reached."""
    return compute_pending(computation) if computation.options.until is None else grow(computation)
