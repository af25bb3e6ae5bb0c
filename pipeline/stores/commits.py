"""Commits: the values of some blocks first, made durable once, then the statuses that make them visible."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.blocks.evaluate import Block, Outcome, Status
from pipeline.declare.factors import format_value
from pipeline.declare.panel import Panel, Setting
from pipeline.errors import DamagedChunkError
from pipeline.stores.chunks import Chunks, Region
from pipeline.stores.files import Files
from pipeline.stores.regions import positions, region_of


@dataclass(frozen=True)
class Planned:
    """A block that is about to be computed.

    Attributes
    ----------
    panel : Panel
        Its panel.
    block : Block
        Cell and trials.
    settings : sequence of Setting
        The settings that are computed.
    stale : sequence of Setting
        Those of them whose status chunk exists, and must be removed first.
    """

    panel: Panel
    block: Block
    settings: Sequence[Setting]
    stale: Sequence[Setting] = ()

    @property
    def may_grow(self) -> bool:
        """Whether a later extension continues the block, so that its chunks get other content."""
        return self.panel.trials is not None and len(self.block.trials) < self.panel.block_trials

    @property
    def n_dims(self) -> dict[str, int]:
        """Variables per trial, each with its number of output dimensions."""
        return {"error": 0, **{m.name: len(m.dims) for m in self.panel.measures if m.per_trial}}


class Commit:
    """The commit of some blocks: begun before they are computed, durable and visible after `finish`.

    Parameters
    ----------
    files : Files
        Files of the store, for a session.
    chunks : Chunks
        Its arrays.
    present : set of str
        Keys of chunks per cell that this process has found or written, and made durable.
    planned : sequence of Planned
        The blocks.

    Notes
    -----
    Values are written as they come, statuses in `finish`, after one flush for all blocks. A process that dies in
    between leaves all of them pending.
    """

    def __init__(self, files: Files, chunks: Chunks, present: set[str], planned: Sequence[Planned]) -> None:
        self._files, self._chunks, self._present = files, chunks, present
        self._of_cells: set[str] = set()  # no other commit may rely on them before this one has made them durable
        for name in ("status", "error"):  # in this order: a block that is committed keeps the texts of its errors
            files.remove([key for one in planned for key in _keys(chunks, one, one.stale, {name: 0})])
        growing = [one for one in planned if one.may_grow]
        self._batch = files.batch(
            files.versions([key for one in growing for key in _keys(chunks, one, one.settings, one.n_dims)])
        )

    def write(self, panel: Panel, block: Block, setting: Setting, outcome: Outcome) -> None:
        """Write the outcome of one setting on one block.

        A setting that does not use some method factor is written at each of that factor's values.
        """
        is_ok = bool((outcome.status == Status.OK).any())
        at = list(positions(panel, block.cell, setting))
        for measure in panel.measures:
            trials = block.trials if measure.per_trial else None
            regions = [region_of(panel, position, trials, len(measure.dims)) for position in at]
            if not measure.per_trial:
                regions = [region for region in regions if is_ok and self._is_needed(panel.name, measure.name, region)]
            self._put(panel.name, measure.name, regions, outcome.values[measure.name])
        regions = [region_of(panel, position, block.trials, 0) for position in at]
        error = _with_rerun(panel, block, outcome.error).astype(np.dtypes.StringDType())
        if (error != "").any():
            self._put(panel.name, "error", regions, error)
        else:
            keys = [key for region in regions for key in self._chunks.keys(panel.name, "error", region)]
            self._files.remove_uncommitted(keys)
        for key, content in self._chunks.encode(panel.name, "status", regions, outcome.status).items():
            self._batch.put_last(key, content)

    def finish(self) -> None:
        """Make the values durable, then the statuses visible."""
        self._batch.finish()
        self._present |= self._of_cells

    def discard(self) -> None:
        """Remove what was prepared; the blocks stay pending."""
        self._batch.discard()

    def _put(self, panel: str, name: str, regions: Sequence[Region], values: np.ndarray) -> None:
        for key, content in self._chunks.encode(panel, name, regions, values).items():
            self._batch.put(key, content)

    def _is_needed(self, panel: str, name: str, region: Region) -> bool:
        """Return whether to write the value of a cell: committed blocks depend on it, so none is replaced."""
        (key,) = self._chunks.keys(panel, name, region)
        if key in self._present or key in self._of_cells:
            return False
        content = self._files.read(key)
        try:
            self._chunks.decode(panel, name, region, {key: content})
        except DamagedChunkError:  # a power loss may leave a file without its content
            content = None
        self._of_cells.add(key)
        if content is not None:
            self._batch.depend(key)
        return content is None


def _keys(chunks: Chunks, planned: Planned, settings: Iterable[Setting], n_dims: Mapping[str, int]) -> Iterator[str]:
    """Yield keys of chunks per trial, of some settings and variables with their numbers of output dimensions."""
    panel, block = planned.panel, planned.block
    for setting in settings:
        for position in positions(panel, block.cell, setting):
            for name, count in n_dims.items():
                yield from chunks.keys(panel.name, name, region_of(panel, position, block.trials, count))


def rerun_line(panel: Panel, block: Block, trial: int) -> str:
    """Return the last line of a stored error: the command that computes its trial again; STORE stands for the path."""
    values = panel.cells()[block.cell].items()
    cell = "".join(f" --cell {shlex.quote(f'{name}={format_value(value)}')}" for name, value in values)
    return f"again: dpstudies trial STORE --panel {panel.name}{cell} --trial {trial}"


def _with_rerun(panel: Panel, block: Block, error: np.ndarray) -> np.ndarray:
    lines = [
        f"{text}\n{rerun_line(panel, block, trial)}" if text else ""
        for text, trial in zip(error, block.trials, strict=True)
    ]
    return np.array(lines, object)
