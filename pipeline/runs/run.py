"""Functions that run, resume and extend studies.

Invalid values, clusters and stores raise an error before anything is written.
"""

import os
from collections.abc import Collection, Iterable

from pipeline.blocks.evaluate import Status
from pipeline.clusters.user_cluster import ClusterChoice
from pipeline.declare.method_files import find_method
from pipeline.declare.study import Values
from pipeline.runs.adaptive import AdaptiveRun
from pipeline.runs.resolve import study_of
from pipeline.runs.run_plan import (
    ProgressLike,
    RunOptions,
    RunPlan,
    StudyLike,
    Trials,
    plan_extension,
    plan_resumption,
    plan_run,
)
from pipeline.runs.session import compute_pending
from pipeline.store.result_store import ResultStore, open_to_change


def run(
    study: StudyLike,
    store: str | os.PathLike[str],
    *,
    trials: Trials = None,
    seed: int | None = None,
    panels: Iterable[str] = (),
    values: Values | None = None,
    cluster: ClusterChoice = None,
    time_limit: float | None = None,
    until: str | None = None,
    at_most: int | None = None,
    within: float | None = None,
    share: str | None = None,
    allow_failures: bool = False,
    accept_edited_study: bool = False,
    progress: ProgressLike = True,
) -> ResultStore:
    """Run a study, or continue an earlier run with the same spec.

    Parameters
    ----------
    study : Study, StudySource or str
        A study, the name of a registered one, ``module:object``, or the path of a ``.py`` file that defines ``STUDY``.
    store : path
        Path or URL of the results: a new location, or a store with the same spec.
    trials, seed, panels, values
        See `Study.configure`.
    cluster : str, distributed.Client or Dask cluster, optional
        Profile (``NAME``, ``FILE`` or ``FILE:PROFILE``), or a client or cluster object of Dask, which is left open.
        By default Dask's current client, which a printed line names, or without one threads of this process.
    time_limit : float, optional
        Maximum time per block in seconds, including compilation in its process. A block that exceeds it is computed
        again by setting and then by trial, with the same limit each; trials that exceed it are stored as timed out.
    until : str, optional
        Target at which the run stops, instead of a number of trials: ``mcse(hellinger) <= 0.0005`` for a measure or a
        statistic of it (``hellinger_median``), ``<= 1%`` for an error relative to the estimate,
        ``mcse(hellinger[smooth] - hellinger[laplace]) <= 0.001`` for paired differences of means, or ``claims`` until
        every claim is decided. Trials are added to the cells and methods that need them, at least 100 each.
    at_most, within : int and float, optional
        Maximum number of trials per cell, by default the declared one, and maximum time in seconds of a run with
        `until`.
    share : str, optional
        ``K/M`` to compute the Kth of M disjoint shares of the blocks into a store of its own; see `merge`.
    allow_failures : bool
        True to continue with a method that fails on all trials. By default the run stops after 100 failed trials of
        a panel and setting, or 10 that terminated their worker or timed out, if none was ok; the other trials remain
        pending.
    accept_edited_study : bool
        True to continue a store after its study file was edited. Failed trials are recomputed, and other stored trials
        do not change. For a study without a file, one committed trial of each method is recomputed.
    progress : callable or bool
        True for a progress bar on a terminal or in a notebook, or a callable that is called with the pending work, and
        returns a function that is called with each receipt.

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
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = run("hellinger-accuracy", f"{folder}/s.zarr", trials=50, panels=["k2"], values={"n": [10]})
    ...     store.complete
    True
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
        share=share,
        allow_failures=allow_failures,
        accept_edited_study=accept_edited_study,
        progress=progress,
    )
    return carry_out(plan_run(study, store, options))


def resume(
    store: str | os.PathLike[str],
    *,
    study: StudyLike | None = None,
    cluster: ClusterChoice = None,
    time_limit: float | None = None,
    retry: Collection[Status] = (),
    allow_failures: bool = False,
    accept_edited_study: bool = False,
    progress: ProgressLike = True,
) -> ResultStore:
    """Compute the pending trials of a store, and continue an interrupted run with `until` towards its target.

    Parameters
    ----------
    store : path
        A store.
    study : StudySource, Study or str, optional
        By default the study that the store references, if it is built in, registered by an installed package, or
        defined in a file that this user has run before.
    retry : collection of Status
        Statuses of trials to recompute with the same random numbers, such as `FAILURES`. Failed trials are also
        recomputed if the study file was edited since; if other trials are ok, this needs `accept_edited_study`.
    cluster, time_limit, allow_failures, accept_edited_study, progress
        See `run`.

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
    ...     resume(run(STUDIES["gibbs-traces"], f"{folder}/s.zarr", panels=["binomial"])).complete
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
    return carry_out(plan_resumption(existing, source, configured, options))


def extend(
    store: str | os.PathLike[str],
    *,
    study: StudyLike | None = None,
    trials: Trials = None,
    panels: Iterable[str] = (),
    values: Values | None = None,
    add: Iterable[str] = (),
    cluster: ClusterChoice = None,
    time_limit: float | None = None,
    until: str | None = None,
    at_most: int | None = None,
    within: float | None = None,
    allow_failures: bool = False,
    accept_edited_study: bool = False,
    progress: ProgressLike = True,
) -> ResultStore:
    """Add trials, factor values or methods to a store; stored numbers do not change.

    A repeated call after an interruption continues the extension.

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
    add : iterable of str
        Files of own methods, ``FILE.py`` or ``FILE.py:NAME``, which join the stored ones in every panel that accepts
        them; see `Study.with_methods`.
    until, at_most, within
        See `run`; by default at most the stored number of trials, if it is larger than the declared one.
    study, cluster, time_limit, allow_failures, accept_edited_study, progress
        See `resume`.

    Raises
    ------
    BadInputError
        As in `resume`, and also for fewer trials than stored, or for new values of outputs, since all values of an
        output are computed in one call.

    Examples
    --------
    >>> import tempfile
    >>> from studies import STUDIES
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     chosen = {"n": [10], "mechanism": ["smooth"]}
    ...     store = run(STUDIES["hellinger-accuracy"], f"{folder}/s.zarr", trials=5, panels=["k2"], values=chosen)
    ...     extend(store, trials=8).spec["panels"]["k2"]["trials"]
    8
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
    return carry_out(plan_extension(study, store, options, [find_method(target) for target in add]))


def carry_out(plan: RunPlan) -> ResultStore:
    """Compute the pending work of a plan, or rounds of work until its target."""
    return compute_pending(plan) if plan.options.until is None else AdaptiveRun(plan).run()
