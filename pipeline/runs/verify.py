"""Verification of a store: checksums of all chunks, and comparison of blocks with recomputed values."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import Block, Outcome, Status, evaluate_block
from pipeline.clusters.cluster import connect
from pipeline.clusters.user_cluster import ClusterChoice, choose_cluster
from pipeline.declare.panel import Panel
from pipeline.declare.source import StudySource
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, Damage, ExecutionError, StoreAccessError
from pipeline.execution.checks import Rerun
from pipeline.execution.child import Step
from pipeline.execution.execute import Window
from pipeline.execution.in_flight import TasksInFlight
from pipeline.execution.isolate import End, children_of
from pipeline.execution.tasks import on_worker, registered, registered_task
from pipeline.execution.work import Task, Work
from pipeline.execution.worker_runs import RUNS
from pipeline.runs.resolve import study_of
from pipeline.store.commit import Planned
from pipeline.store.health import check_blocks, check_sessions, check_template, invalidate
from pipeline.store.result_store import ResultStore, open_to_change, require_complete
from pipeline.store.scan.states import blocks_of_others, requested_trials
from pipeline.store.sessions.lease import Session
from pipeline.store.sessions.records import describe, now

_BATCH = 64


@dataclass(frozen=True)
class StoreProblem:
    """Damage found in a store."""

    where: str  # panel, cell, setting and trials
    variable: str
    damage: Damage


@dataclass(frozen=True)
class Verification:
    """Result of a verification; blocks are counted once per setting."""

    n_read: int = 0  # committed blocks that were read in full
    n_computed: int = 0
    n_pending: int = 0
    problems: tuple[StoreProblem, ...] = ()


@on_worker
def check_batch(run: str, session: str, batch: Sequence[tuple[Work, bool]]) -> Verification:
    """Check blocks on a worker and recompute some of them; repair them if `session` is not empty."""
    task = registered_task(run, session)
    study, store = task.opened()
    settings = [(study.panel(work.block.panel), work.block, k) for work, _ in batch for k in work.settings]
    chunks = [(panel, block, panel.settings()[k]) for panel, block, k in settings]
    # a repair may replace chunks that blocks share, so it reads each block when its turn comes
    groups = [[setting] for setting in chunks] if session else [chunks]
    checks = chain.from_iterable(check_blocks(store, group) for group in groups)
    are_computed = [is_computed for work, is_computed in batch for _ in work.settings]
    return _total(
        [
            _check_setting(task, panel, block, k, damage, stored, is_computed)
            for (panel, block, k), is_computed, (damage, stored) in zip(settings, are_computed, checks, strict=True)
        ]
    )


def _check_setting(
    task: Task,
    panel: Panel,
    block: Block,
    k: int,
    damage: Mapping[str, Damage],
    stored: Outcome | None,
    is_computed: bool,
) -> Verification:
    """Repair a damaged setting of a block, or compare an undamaged one with recomputed numbers if `is_computed`."""
    (study, store), setting = task.opened(), panel.settings()[k]
    where = f"{panel.describe(block.cell, (k,))}, trials {block.trials.start}-{block.trials.stop - 1}"
    problems = tuple(StoreProblem(where, name, of_variable) for name, of_variable in damage.items())
    if damage and task.session:
        invalidate(store, panel, block, setting, damage)
    if stored is None:
        return Verification(n_pending=int(not damage), problems=problems)
    is_repeatable = not setting.method.unseeded
    if not (is_computed and is_repeatable) or np.isin(stored.status, [Status.KILLED, Status.TIMED_OUT]).any():
        return Verification(n_read=1, problems=problems)
    again = Rerun(panel, setting, _recompute(task, study, block, k), stored)
    differing = again.differing
    if not differing:
        return Verification(n_read=1, n_computed=1, problems=problems)
    different = Damage("different", again.largest_difference)
    problems += tuple(StoreProblem(where, name, different) for name in differing)
    if task.session:
        with task.writer().commit([Planned(panel, block, [setting], [setting])]) as commit:
            commit.write(panel, block, setting, again.computed)
    return Verification(n_read=1, n_computed=1, problems=problems)


def _total(verifications: Sequence[Verification]) -> Verification:
    """Return the verification of all blocks together."""
    return Verification(
        sum(part.n_read for part in verifications),
        sum(part.n_computed for part in verifications),
        sum(part.n_pending for part in verifications),
        tuple(problem for part in verifications for problem in part.problems),
    )


def _recompute(task: Task, study: Study, block: Block, k: int) -> Outcome:
    """Compute a setting of a block again, in a child process if this one has computed trials of the study.

    Numbers that are constant within a process, such as the hash of a text, differ in another one.
    """
    if not RUNS.has_computed(study.name):
        return evaluate_block(study, block, [study.panel(block.panel).settings()[k]])[0]
    reply = children_of(task, study)(Step(block, (k,)))
    if isinstance(reply, End):
        raise ExecutionError(f"{reply.reason} during verification; verify again, for example with --sample 0")
    outcome: Outcome = reply[0]
    return outcome


def verify(
    store: str | os.PathLike[str],
    *,
    sample: int | None = 100,
    seed: int = 0,
    repair: bool = False,
    study: StudySource | Study | str | None = None,
    cluster: ClusterChoice = None,
    accept_edited_study: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check every chunk of a store, and recompute `sample` blocks chosen at random with `seed`, or all for None.

    With `repair`, reset damaged blocks to pending, which `resume` computes; rewrite damaged coordinates, metadata and
    root; and replace blocks whose numbers differ from the recomputed ones. `progress` is called with the number of
    checked blocks and the total. Blocks with a killed or timed-out trial, and of methods with `unseeded`, are not
    recomputed. See `pipeline.resume`.

    Blocks are recomputed in another process than the one that computed them, so that numbers which are constant within
    a process are found: the hash of a text (unless ``PYTHONHASHSEED`` fixes it), `id`, or a generator without a seed.
    """
    if sample is not None and sample < 0:
        raise BadInputError(f"the number of blocks to recompute must be >= 0, got {sample}")
    opened = (open_to_change if repair else ResultStore.open)(store, damaged=True)
    source, configured = study_of(opened, study, accept_edited_study)
    require_complete(opened, store)
    n_blocks = sum(1 for _ in _requested_work(configured, opened))
    rng = np.random.default_rng(seed)
    chosen = None if sample is None else set(rng.choice(n_blocks, min(sample, n_blocks), replace=False).tolist())
    works = enumerate(_requested_work(configured, opened))
    checks = ((work, chosen is None or number in chosen) for number, work in works)
    chosen_cluster = choose_cluster(cluster)
    n_done = 0
    parts: list[Verification] = []
    with connect(chosen_cluster) as client:
        of_sessions = check_sessions(opened)  # before the session of a repair adds a record
        with (
            _repairing(opened, source, chosen_cluster.name) if repair else nullcontext((opened, "")) as (held, session)
        ):
            of_template = check_template(held, configured, repair=repair)
            if repair:
                of_sessions = check_sessions(held, repair=True) | of_sessions
            task = Task(source, held.url, held.attributes["spec_sha256"], session)
            with registered(client, task), TasksInFlight(client) as in_flight:
                for n_checked, part in _check_all(in_flight, task, checks, Window(client, chosen_cluster)):
                    parts.append(part)
                    n_done += n_checked
                    if progress is not None:
                        progress(n_done, n_blocks)
    of_store = (of_template | of_sessions).items()
    problems = tuple(StoreProblem(panel or "store", name, damage) for (panel, name), damage in of_store)
    return _total([Verification(problems=problems), *parts])


@contextmanager
def _repairing(opened: ResultStore, source: StudySource, profile: str) -> Iterator[tuple[ResultStore, str]]:
    """Begin a session that repairs a store; yield the store opened for it, and its identifier."""
    record = {"profile": profile, **source.attributes, **describe(source.file), "repaired": True}
    with Session.begin(opened.url, record) as session:
        yield ResultStore.open(opened.url, session.id, damaged=True), session.id
        session.end({"finished": now()})


def _check_all(
    in_flight: TasksInFlight, task: Task, checks: Iterator[tuple[Work, bool]], window: Window
) -> Iterator[tuple[int, Verification]]:
    """Check blocks on the workers; yield the numbers of blocks of finished batches, and their verifications."""
    batches = iter(lambda: list(islice(checks, _BATCH)), [])

    def fill() -> None:
        window.update()
        for batch in islice(batches, max(0, window.n_tasks - len(in_flight))):
            in_flight.submit(len(batch), check_batch, task.run, task.session, batch)

    fill()
    for result in in_flight.results():
        if result.is_lost:
            raise ExecutionError("a worker died during verification; verify again, for example with --sample 0")
        if result.transient:
            raise StoreAccessError(result.transient)
        yield result.payload, result.value
        fill()


def _requested_work(study: Study, store: ResultStore) -> Iterator[Work]:
    """Yield every block that a store asks for with the settings for which its trials are asked for."""
    for panel in study.panels:
        requested, others = requested_trials(store, panel), blocks_of_others(store, panel.name)
        for block in iterate_blocks(panel):
            start = block.trials.start
            settings = np.flatnonzero(start < requested[block.cell])
            if settings.size and not others[block.cell, start // panel.block_trials]:
                yield Work(block, tuple(settings.tolist()))
