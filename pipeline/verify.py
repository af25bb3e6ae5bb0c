"""Verify a store: read every chunk against its checksum, and compute blocks again, bit by bit.

What cannot be read, or is gone, holds no number any more: it returns to what is pending. What can be read but differs
is reported, and changed only on request.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pipeline.blocks.evaluate import Status, evaluate_block
from pipeline.blocks.plan import iterate_blocks
from pipeline.clusters.cluster import connect
from pipeline.clusters.profiles import load_profile
from pipeline.declare.source import StudySource
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, IncompleteStoreError
from pipeline.execution.flight import ExecutionError, Flight
from pipeline.execution.rerun import Rerun
from pipeline.execution.work import Task, Work
from pipeline.run import study_of
from pipeline.stores.store import ResultStore

_BATCH = 64


@dataclass(frozen=True)
class Flaw:
    """Something of a store that is not as it must be.

    Attributes
    ----------
    where : str
        Panel, cell, setting and trials.
    variable : str
        The variable.
    problem : str
        ``unreadable: ...`` or ``missing``, which is pending now; ``mended: ...``, which the spec decides and was
        written anew; or ``different: ...``.
    """

    where: str
    variable: str
    problem: str

    @property
    def kind(self) -> str:
        """The first word of the problem."""
        return self.problem.partition(":")[0]


@dataclass(frozen=True)
class Verification:
    """What was found in a store.

    Attributes
    ----------
    n_read, n_computed : int
        Committed blocks of a setting of which every chunk was read, and those that were computed again.
    n_pending : int
        Blocks of a setting that were not committed.
    flaws : tuple of Flaw
        What is wrong.
    """

    n_read: int
    n_computed: int
    n_pending: int
    flaws: tuple[Flaw, ...]


@dataclass(frozen=True)
class _Check:
    """What workers do with a batch: read it, compute what is wanted again, and mend."""

    task: Task
    repair: bool

    def __call__(self, batch: Sequence[tuple[Work, bool]]) -> Verification:
        study, store = self.task.opened()
        n_read = n_computed = n_pending = 0
        flaws: list[Flaw] = []
        for work, is_computed in batch:
            panel = study.panel(work.block.panel)
            for k in work.settings:
                setting = panel.settings()[k]
                trials = work.block.trials
                cell = [f"{name}={value}" for name, value in panel.cells()[work.block.cell].items()]
                where = ", ".join([panel.name, *cell, setting.label, f"trials {trials.start}-{trials.stop - 1}"])
                damage = store.damage(panel, work.block, setting)
                if damage:
                    store.revoke(panel, work.block, setting, damage)
                    flaws += [Flaw(where, name, problem) for name, problem in damage.items()]
                    continue
                stored = store.read(panel, work.block, setting)
                if (stored.status == Status.PENDING).any():
                    n_pending += 1
                    continue
                n_read += 1
                deadly = np.isin(stored.status, [Status.KILLED, Status.TIMED_OUT]).any()
                if not is_computed or deadly:
                    continue
                n_computed += 1
                again = Rerun(panel, setting, evaluate_block(study, work.block, [setting])[0], stored)
                flaws += [Flaw(where, name, f"different: {again.largest_difference}") for name in again.differing]
                if again.differing and self.repair:
                    store.write(panel, work.block, setting, again.computed)
        return Verification(n_read, n_computed, n_pending, tuple(flaws))


def verify(
    store: str | os.PathLike[str],
    *,
    sample: int | None = 100,
    seed: int = 0,
    repair: bool = False,
    study: StudySource | Study | str | None = None,
    cluster: str | None = None,
    accept_edited_study: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check every chunk of a store, and compute some or all of its blocks again.

    Parameters
    ----------
    store : path
        A store. Its unreadable and missing chunks return to what is pending; `resume` computes them.
    sample : int or None
        How many blocks to compute again, chosen at random; None for all.
    seed : int
        Of the choice.
    repair : bool
        Whether blocks that differ are replaced by what the code computes now.
    study, cluster, accept_edited_study
        See `pipeline.resume`.
    progress : callable, optional
        Called with the number of blocks that are done, and of all.

    Returns
    -------
    Verification
        What was found.

    Raises
    ------
    BadInputError
        As `pipeline.resume`.

    Notes
    -----
    A block of which a trial killed or outlasted its worker is read, but not computed again.
    """
    if sample is not None and sample < 0:
        raise BadInputError(f"the number of blocks to compute again must be >= 0, got {sample}")
    opened = ResultStore.open(store)
    source, configured = study_of(opened, study, accept_edited_study)
    if not opened.complete:
        raise IncompleteStoreError(
            f"the store {store} was interrupted while it was created; finish it with: dpstudies resume {store}"
        )
    n_blocks = sum(len(panel.cells()) * -(-panel.n_trials // panel.block_trials) for panel in configured.panels)
    rng = np.random.default_rng(seed)
    chosen = None if sample is None else set(rng.choice(n_blocks, min(sample, n_blocks), replace=False).tolist())
    check = _Check(Task(source, opened.url, opened.attributes["spec_sha256"]), repair)
    batches = _batches(_checks(configured, chosen), _BATCH)
    mended = tuple(Flaw(panel, name, problem) for (panel, name), problem in opened.mend(configured).items())
    found: list[Verification] = []
    n_done = 0
    with connect(load_profile(cluster)) as client:
        flight = Flight(client, check.task.run)
        window = 2 * max(1, sum(client.nthreads().values()))
        for batch in islice(batches, window):
            flight.submit(len(batch), check, batch)
        while len(flight):
            for landed in flight.wait():
                if landed.fate is not None:
                    raise ExecutionError("a worker died while it verified; verify again, perhaps with --sample 0")
                found.append(landed.result)
                n_done += landed.payload
                if progress is not None:
                    progress(n_done, n_blocks)
                for batch in islice(batches, 1):
                    flight.submit(len(batch), check, batch)
    return Verification(
        sum(one.n_read for one in found),
        sum(one.n_computed for one in found),
        sum(one.n_pending for one in found),
        mended + tuple(flaw for one in found for flaw in one.flaws),
    )


def _checks(study: Study, chosen: set[int] | None) -> Iterator[tuple[Work, bool]]:
    """Yield every block with all its settings, and whether it is computed again."""
    number = 0
    for panel in study.panels:
        settings = tuple(range(len(panel.settings())))
        for block in iterate_blocks(panel):
            yield Work(block, settings), chosen is None or number in chosen
            number += 1


def _batches(checks: Iterator[tuple[Work, bool]], size: int) -> Iterator[list[tuple[Work, bool]]]:
    while batch := list(islice(checks, size)):
        yield batch
