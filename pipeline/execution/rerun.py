"""Comparison of stored trials with recomputed ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from distributed import Client

from pipeline.blocks.evaluate import Block, Outcome, Status, evaluate_block
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.panel import Panel, Setting
from pipeline.declare.study import Study
from pipeline.errors import BadInputError
from pipeline.execution.in_flight import TasksInFlight
from pipeline.execution.shipping import shipped_task
from pipeline.execution.tasks import on_worker
from pipeline.stores.store import ResultStore


@dataclass(frozen=True)
class Rerun:
    """Stored and recomputed outcome of one trial under one setting."""

    panel: Panel
    setting: Setting
    computed: Outcome
    stored: Outcome
    is_asked: bool = True

    @property
    def is_stored(self) -> bool:
        """True if the store contains the trial."""
        return self.stored.status[0] != Status.PENDING

    @property
    def differing(self) -> tuple[str, ...]:
        """Names of measures that differ in any bit, per-cell ones for an ok trial only; all if the statuses differ."""
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
    def largest_difference(self) -> str:
        """Description of the largest relative difference between the outcomes."""
        worst = 0.0
        for name, before in self.stored.values.items():
            if before.dtype.kind == "f":
                scale = np.maximum(np.abs(before), np.finfo(float).tiny)
                apart = np.abs(self.computed.values[name] - before) / scale
                worst = max(worst, float(apart[~np.isnan(apart)].max(initial=0.0)))
        return f"largest relative difference {worst:.2g}" if worst else "one of the outcomes failed or has no number"

    @property
    def equal(self) -> bool:
        """True if both outcomes are bit-identical."""
        return not self.differing


def rerun_trial(store: ResultStore, study: Study, panel_name: str, cell: Mapping[str, Any], trial: int) -> list[Rerun]:
    """Recompute one trial from its key, under every setting except those under which it was killed or timed out."""
    panel = study.panel(panel_name)
    names = [factor.name for factor in panel.factors]
    if set(cell) != set(names):
        if not names:
            raise BadInputError(f"panel {panel.name} has no factors, so its cell must be empty, got {cell}")
        raise BadInputError(
            f"a cell of panel {panel.name} must specify exactly the factors {', '.join(names)}, got {cell}"
        )
    wanted = {factor.name: factor.cast(cell[factor.name]) for factor in panel.factors}
    cells = panel.cells()
    if wanted not in cells:
        raise BadInputError(
            f"panel {panel.name} has no cell {wanted}; allowed values are {store.spec['panels'][panel.name]['factors']}"
        )
    if not 0 <= trial < panel.n_trials:
        raise BadInputError(f"trial must be in 0 ... {panel.n_trials - 1}, got {trial}")
    block = Block(panel.name, cells.index(wanted), range(trial, trial + 1))
    stored = [(setting, store.read(panel, block, setting)) for setting in panel.settings()]
    excluded = (Status.TIMED_OUT, Status.KILLED)
    safe = [setting for setting, outcome in stored if outcome.status[0] not in excluded]
    with one_thread():  # workers use one thread too; the last bits of a matrix product depend on the number of threads
        computed = dict(zip([setting.label for setting in safe], evaluate_block(study, block, safe), strict=True))
    is_own = not store.others(panel.name)[block.cell, trial // panel.block_trials]
    return [
        Rerun(panel, setting, computed.get(setting.label, outcome), outcome, is_asked=bool(trial < limit) and is_own)
        for (setting, outcome), limit in zip(stored, store.asked_trials(panel)[block.cell], strict=True)
    ]


def refuse_other_numbers(client: Client, run: str, store: ResultStore, study: Study) -> None:
    """Recompute one committed trial per panel and method; raise `BadInputError` if a number differs."""
    in_flight = TasksInFlight(client)
    names: list[str] = []
    for panel in study.panels:
        for method in panel.methods:
            committed = (
                (block, k)
                for k, setting in enumerate(panel.settings())
                if setting.method == method
                for block in store.committed(panel, setting)
            )
            for block, k in islice(committed, 1):
                in_flight.submit(len(names), compare_numbers, run, block, k)
                names.append(f"panel {panel.name}, method {method.name}")
    problem = in_flight.first_problem(
        lambda at: f"{names[at]} terminates its worker, but the store contains its results",
        "the same holds for {} more methods",
    )
    if problem:
        raise BadInputError(
            f"{problem}; use the package versions and kind of processor that the store records, or choose another "
            "--store path"
        )


@on_worker
def compare_numbers(run: str, block: Block, setting: int) -> str:
    """Recompute one setting of a block on a worker; describe differences from the store, or return an empty string."""
    study, store = shipped_task(run).stored()
    panel = study.panel(block.panel)
    chosen = panel.settings()[setting]
    again = Rerun(panel, chosen, evaluate_block(study, block, [chosen])[0], store.read(panel, block, chosen))
    if again.equal:
        return ""
    return (
        f"panel {panel.name}, {chosen.label}, trial {block.trials.start} gives numbers that differ from the stored "
        f"ones: {again.largest_difference}"
    )
