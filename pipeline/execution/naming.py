"""Keys of tasks, which Dask's dashboard displays."""

from collections.abc import Sequence

from pipeline.declare.factors import format_values
from pipeline.declare.study import Study
from pipeline.execution.work import Work

_LONGEST = 60


def task_key(study: Study, works: Sequence[Work], run: str, number: int) -> str:
    """Return the key of a task for work items of one panel, of the form ``study/panel-cell-trials-run-number``.

    The dashboard groups tasks by the part of the key before the first hyphen-separated word that does not consist of
    letters, that is, by study and panel. There are no groups per cell, because Dask queues tasks for future workers
    only in large groups, and because the scheduler stores the name of every group.
    """
    block = works[0].block
    panel = study.panel(block.panel)
    values = ",".join(format_values(panel.cells()[block.cell]))
    values = values if len(values) <= _LONGEST else f"{values[: _LONGEST - 3]}..."
    n_cells = len({work.block.cell for work in works})
    more = f"+{n_cells - 1}" if n_cells > 1 else ""
    span = f"{block.trials.start}..{works[-1].block.trials.stop - 1}" if n_cells == 1 else f"{len(works)}-blocks"
    head = f"{study.name}/{panel.name}".replace("-", "_")
    return f"{head}-({values}){more}-{span}-{run}-{number}"
