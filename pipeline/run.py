"""Run a study into a store, go on with one that is not finished, and recompute single trials.

Everything that can be refused is refused before anything is written: the study's values, the cluster, the store.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pipeline.cluster import connect, load_profile
from pipeline.errors import BadInputError
from pipeline.evaluate import Block, Outcome, Status, evaluate_block
from pipeline.execute import Receipt, Work, execute, pending_work
from pipeline.panel import Panel, Setting
from pipeline.provenance import describe, now
from pipeline.source import StudySource, find_study, source_of
from pipeline.store import ResultStore
from pipeline.study import Study, differences

Progress = Callable[[list[Work]], Callable[[Receipt], None]]


def run(
    study: Study | StudySource | str,
    store: str | os.PathLike[str],
    *,
    trials: int | None = None,
    seed: int | None = None,
    panels: Iterable[str] = (),
    values: Mapping[str, Iterable[Any]] | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> ResultStore:
    """Run a study, or go on where an earlier run with the same spec stopped.

    Parameters
    ----------
    study : Study, StudySource or str
        A study, or ``module:object``, or the path of a ``.py`` file with ``STUDY``.
    store : path
        Where the results go: a folder that does not exist, or the store of the same spec.
    trials, seed, panels, values
        See `Study.configure`.
    cluster : str, optional
        ``FILE`` or ``FILE:PROFILE``; threads of this process by default.
    progress : callable, optional
        Called with the pending work, returns what is called with each receipt.

    Returns
    -------
    ResultStore
        The store; `open_results` opens its data sets.

    Raises
    ------
    BadInputError
        For values, a cluster or a store that cannot be used, before anything is written.
    ExecutionError
        If the run cannot go on. What was committed is kept.

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
    source = _source(study)
    configured = source.load().configure(trials, seed, panels, values)
    profile = load_profile(cluster)
    existing = ResultStore.open(store) if ResultStore.exists(store) else None
    if existing is not None:
        _refuse_other_spec(existing, configured)
    return _run(source, configured, store, existing, profile, progress)


def resume(
    store: str | os.PathLike[str],
    *,
    study: StudySource | Study | str | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> ResultStore:
    """Compute what a store does not hold yet.

    Parameters
    ----------
    store : path
        A store.
    study : StudySource, Study or str, optional
        Its study, where the store cannot find it by itself.
    cluster, progress
        See `run`.

    Returns
    -------
    ResultStore
        The store.

    Raises
    ------
    BadInputError
        If there is no store, its study is not found, or is of another version, or gives other numbers.
    """
    existing = ResultStore.open(store)
    source, configured = study_of(existing, study)
    return _run(source, configured, store, existing, load_profile(cluster), progress)


def study_of(store: ResultStore, study: StudySource | Study | str | None = None) -> tuple[StudySource, Study]:
    """Return the study of a store, as the store configures it.

    Raises
    ------
    BadInputError
        If it is not found, or the code is of another version than the store.
    """
    if study is not None:
        source = _source(study)
    else:
        reference = store.attributes.get("study_reference", "")
        if not reference:
            raise BadInputError(f"the store {store.url} does not know where its study is; name it with --study")
        source = find_study(reference, {})
    declared = source.load()
    if declared.name != store.spec["study"]:
        raise BadInputError(f"the store {store.url} holds study {store.spec['study']}, got {declared.name}")
    configured = declared.from_spec(store.spec)
    _refuse_other_spec(store, configured)
    return source, configured


@dataclass(frozen=True)
class Rerun:
    """One trial of one setting, computed again beside what is stored."""

    panel: Panel
    setting: Setting
    computed: Outcome
    stored: Outcome

    @property
    def is_stored(self) -> bool:
        """Whether the store holds the trial."""
        return self.stored.status[0] != Status.PENDING

    @property
    def differing(self) -> tuple[str, ...]:
        """The measures that differ in a bit, all if statuses do; what is not per trial counts if the trial is ok."""
        if self.computed.status[0] != self.stored.status[0]:
            return tuple(measure.name for measure in self.panel.measures)
        is_ok = self.stored.status[0] == Status.OK
        return tuple(
            measure.name
            for measure in self.panel.measures
            if measure.per_trial or is_ok
            for one, other in [(self.stored.values[measure.name], self.computed.values[measure.name])]
            if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        )

    @property
    def equal(self) -> bool:
        """Whether both are the same, bit by bit."""
        return not self.differing


def rerun_trial(store: ResultStore, study: Study, panel_name: str, cell: Mapping[str, Any], trial: int) -> list[Rerun]:
    """Compute one trial again from its key, under every setting but those that killed or outlasted their worker.

    Parameters
    ----------
    store : ResultStore
        Where it is stored.
    study : Study
        The store's study, from `study_of`.
    panel_name : str
        The panel.
    cell : mapping
        The value of every data factor.
    trial : int
        The trial, 0 for the first.

    Raises
    ------
    BadInputError
        If there is no such panel, cell or trial.
    """
    panel = study.panel(panel_name)
    names = [factor.name for factor in panel.factors]
    if set(cell) != set(names):
        raise BadInputError(f"the cell of panel {panel.name} must give {', '.join(names) or 'nothing'}, got {cell}")
    wanted = {factor.name: factor.cast(cell[factor.name]) for factor in panel.factors}
    cells = panel.cells()
    if wanted not in cells:
        raise BadInputError(
            f"panel {panel.name} has no cell {wanted}; its values are {store.spec['panels'][panel.name]['factors']}"
        )
    if not 0 <= trial < panel.n_trials:
        raise BadInputError(f"trial must be in 0 ... {panel.n_trials - 1}, got {trial}")
    block = Block(panel.name, cells.index(wanted), range(trial, trial + 1))
    stored = [(setting, store.read(panel, block, setting)) for setting in panel.settings()]
    deadly = (Status.TIMED_OUT, Status.KILLED)
    safe = [setting for setting, outcome in stored if outcome.status[0] not in deadly]
    with threadpool_limits(1):  # as in a worker: the bits of a matrix product depend on it
        computed = dict(zip([setting.label for setting in safe], evaluate_block(study, block, safe), strict=True))
    return [Rerun(panel, setting, computed.get(setting.label, outcome), outcome) for setting, outcome in stored]


def _source(study: Study | StudySource | str) -> StudySource:
    if isinstance(study, StudySource):
        return study
    if not isinstance(study, Study | str):
        raise BadInputError(f"a study must be a Study, a .py file or module:object, got {study!r}")
    return source_of(study) if isinstance(study, Study) else find_study(study, {})


def _refuse_other_spec(store: ResultStore, study: Study) -> None:
    found = differences(store.spec, study.spec())
    if found:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise BadInputError(
            f"the store {store.url} was made with another spec or code version ({found[0]}{more}); "
            "choose another --store path, or use what made it"
        )


def _run(
    source: StudySource,
    study: Study,
    path: str | os.PathLike[str],
    existing: ResultStore | None,
    profile: Any,
    progress: Progress | None,
) -> ResultStore:
    """Do the work of `run` and `resume` once all input is known to be good."""
    works: list[Work] | None = None
    if existing is not None and existing.complete:
        works = pending_work(study, existing)
        if not works:
            return existing
        with threadpool_limits(1):
            _refuse_other_numbers(existing, study)
    with connect(profile) as client:
        store = existing
        if store is None or not store.complete:
            try:
                store = ResultStore.create(path, study, {**source.attributes, "created": now(), "sessions": []})
            except OSError as error:
                raise BadInputError(f"cannot create the store {path}: {error.strerror or error}") from error
        store.sweep()
        session = {"started": now(), "profile": profile.name, **source.attributes, **describe(source.file)}
        sessions = store.attributes["sessions"]
        store.update(sessions=[*sessions, session])
        works = pending_work(study, store) if works is None else works
        on_receipt = progress(works) if progress is not None else lambda receipt: None
        execute(client, source, study, store, works, on_receipt)
        store.update(sessions=[*sessions, {**session, "finished": now()}])
    return store


def _refuse_other_numbers(store: ResultStore, study: Study) -> None:
    """Recompute one committed trial of each panel and method: numbers that differ are not to be mixed."""
    for panel in study.panels:
        for method in panel.methods:
            committed = (
                (block, setting)
                for setting in panel.settings()
                if setting.method == method
                for block in store.committed(panel, setting)
            )
            for block, setting in islice(committed, 1):
                again = Rerun(
                    panel, setting, evaluate_block(study, block, [setting])[0], store.read(panel, block, setting)
                )
                if not again.equal:
                    raise BadInputError(
                        f"panel {panel.name}, {setting.label}, trial {block.trials.start} gives other numbers than the "
                        f"store holds: {_largest_difference(again)}; run with the versions and on the kind of "
                        "processor that the store records, or choose another --store path"
                    )


def _largest_difference(rerun: Rerun) -> str:
    worst = 0.0
    for name, before in rerun.stored.values.items():
        if before.dtype.kind == "f":
            scale = np.maximum(np.abs(before), np.finfo(float).tiny)
            apart = np.abs(rerun.computed.values[name] - before) / scale
            worst = max(worst, float(apart[~np.isnan(apart)].max(initial=0.0)))
    return f"largest relative difference {worst:.2g}" if worst else "one of them failed or has no number"
