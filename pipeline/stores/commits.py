"""Commits of blocks: values are written and made durable before the statuses that make them visible."""

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
    """Block, with the settings to compute on it.

    Attributes
    ----------
    panel : Panel
        Panel of the block.
    block : Block
        Cell and trials.
    settings : sequence of Setting
        Settings to compute.
    stale : sequence of Setting
        Those of the settings whose status chunk exists and must be removed before they are recomputed.
    """

    panel: Panel
    block: Block
    settings: Sequence[Setting]
    stale: Sequence[Setting] = ()

    @property
    def may_grow(self) -> bool:
        """True if the block is shorter than `Panel.block_trials`, so that an extension would rewrite its chunks."""
        return self.panel.trials is not None and len(self.block.trials) < self.panel.block_trials

    @property
    def n_dims(self) -> dict[str, int]:
        """Number of output dimensions of each per-trial variable."""
        return {"error": 0, **{m.name: len(m.dims) for m in self.panel.measures if m.per_trial}}


class Commit:
    """Commit of blocks, created before the blocks are computed; the blocks are durable and visible after `finish`.

    Parameters
    ----------
    files : Files
        Files of the store, opened for a session.
    chunks : Chunks
        Arrays of the store.
    present : set of str
        Keys of the durable per-cell chunks that this process has found or written.
    planned : sequence of Planned
        Blocks to commit.

    Notes
    -----
    `write` writes values; `finish` flushes them once for all blocks and then writes the statuses. If the process dies
    before that, all blocks remain pending.
    """

    def __init__(self, files: Files, chunks: Chunks, present: set[str], planned: Sequence[Planned]) -> None:
        self._files, self._chunks, self._present = files, chunks, present
        self._of_cells: set[str] = set()  # chunks that are not durable yet, so no other commit may rely on them
        for name in ("status", "error"):  # status first: a committed block must keep its error texts
            files.remove([key for one in planned for key in _keys(chunks, one, one.stale, {name: 0})])
        growing = [one for one in planned if one.may_grow]
        self._batch = files.batch(
            files.versions([key for one in growing for key in _keys(chunks, one, one.settings, one.n_dims)])
        )

    def write(self, panel: Panel, block: Block, setting: Setting, outcome: Outcome) -> None:
        """Write the outcome of one setting on one block.

        The outcome is written at every value of the method factors that the setting does not use.
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
        """Make the values durable, then make the statuses visible."""
        self._batch.finish()
        self._present |= self._of_cells

    def discard(self) -> None:
        """Discard the prepared statuses; the blocks remain pending."""
        self._batch.discard()

    def _put(self, panel: str, name: str, regions: Sequence[Region], values: np.ndarray) -> None:
        for key, content in self._chunks.encode(panel, name, regions, values).items():
            self._batch.put(key, content)

    def _is_needed(self, panel: str, name: str, region: Region) -> bool:
        """Return True if a per-cell chunk must be written, because it is missing or damaged."""
        (key,) = self._chunks.keys(panel, name, region)
        if key in self._present or key in self._of_cells:
            return False
        content = self._files.read(key)
        try:
            self._chunks.decode(panel, name, region, {key: content})
        except DamagedChunkError:  # a power loss may leave an incomplete file
            content = None
        self._of_cells.add(key)
        if content is not None:
            self._batch.depend(key)
        return content is None


def _keys(chunks: Chunks, planned: Planned, settings: Iterable[Setting], n_dims: Mapping[str, int]) -> Iterator[str]:
    """Yield the keys of per-trial chunks; `n_dims` maps variables to their numbers of output dimensions."""
    panel, block = planned.panel, planned.block
    for setting in settings:
        for position in positions(panel, block.cell, setting):
            for name, count in n_dims.items():
                yield from chunks.keys(panel.name, name, region_of(panel, position, block.trials, count))


def rerun_line(panel: Panel, block: Block, trial: int) -> str:
    """Return the last line of a stored error, which contains the command that reruns its trial."""
    values = panel.cells()[block.cell].items()
    cell = "".join(f" --cell {shlex.quote(f'{name}={format_value(value)}')}" for name, value in values)
    return f"again: dpstudies trial STORE --panel {panel.name}{cell} --trial {trial}"


def _with_rerun(panel: Panel, block: Block, error: np.ndarray) -> np.ndarray:
    lines = [
        f"{text}\n{rerun_line(panel, block, trial)}" if text else ""
        for text, trial in zip(error, block.trials, strict=True)
    ]
    return np.array(lines, object)
