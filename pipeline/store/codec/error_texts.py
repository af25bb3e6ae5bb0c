"""Stored errors of trials: the error, and a last line with the command that reruns its trial."""

import shlex

import numpy as np

from pipeline.blocks.evaluate import Block, Outcome
from pipeline.declare.factors import format_value
from pipeline.declare.panel import Panel


def stored_errors(panel: Panel, block: Block, outcome: Outcome) -> np.ndarray:
    """Return the stored errors of the trials of a block, empty texts for trials that did not fail."""
    texts = zip(outcome.error, block.trials, strict=True)
    lines = [f"{text}\n{_rerun_line(panel, block, trial)}" if text else "" for text, trial in texts]
    return np.array(lines, np.dtypes.StringDType())


def _rerun_line(panel: Panel, block: Block, trial: int) -> str:
    """Return the last line of a stored error, which contains the command that reruns its trial."""
    values = panel.cells()[block.cell].items()
    cell = "".join(f" --cell {shlex.quote(f'{name}={format_value(value)}')}" for name, value in values)
    return f"again: dpstudies trial STORE --panel {panel.name}{cell} --trial {trial}"


def without_rerun(error: str) -> str:
    """Return a stored error without its last line."""
    return error.rpartition("\n")[0]


def cause_of(error: str) -> str:
    """Return the cause of a failed trial from its stored error: the first line, or that before the last one.

    Stores of version 0.2 have a traceback without a line before it; its last line is the cause.
    """
    lines = without_rerun(error).splitlines() or [""]
    return lines[-1] if lines[0].startswith("Traceback ") else lines[0]
