"""Summaries that record the number of values behind the statistics that a check reads."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray
from xarray.core import indexing

from pipeline.declare.factors import ENDS, N_VALUES, STANDARD_STATISTICS
from pipeline.declare.panel import Panel


class ValueCounts:
    """Numbers of values behind the statistics of ragged measures that were read from recording summaries.

    Positions at which a ragged measure has no value are those to which it does not apply, such as the padding of
    shorter rows. They do not count, unless no position that is read has a value.
    """

    def __init__(self, needed: int) -> None:
        self._needed = needed  # number of values that a statistic needs
        self._fewest: dict[tuple[str, str], int] = {}  # panel and measure -> fewest values, 0 if none has any

    def record(self, panel: Panel, summary: xr.Dataset) -> xr.Dataset:
        """Return a summary whose statistics of fewer values than needed are arrays that record the positions read.

        A panel without trials has one exact value at a position, or none, and is returned unchanged.
        """
        if panel.trials is None:
            return summary
        recording = {}
        for measure in panel.measures:
            counts = summary.variables.get(f"{measure.name}_{N_VALUES}")
            if measure.ragged and counts is not None and (counts.values < self._needed).any():
                declared = (statistic.name for statistic in panel.statistics if statistic.measure == measure.name)
                for label in (*STANDARD_STATISTICS, *ENDS, *declared):
                    name = f"{measure.name}_{label}"
                    if name in summary:
                        recording[name] = self._recording((panel.name, measure.name), summary[name].variable, counts)
        return summary.assign(recording) if recording else summary

    def few(self) -> str:
        """Return the sentence that a statistic that was read has too few values, or an empty string."""
        for (panel, measure), n_values in self._fewest.items():
            if n_values < self._needed:
                return f"{measure} of panel {panel} has {n_values} values at a position, needed: {self._needed}."
        return ""

    def note(self, measure: tuple[str, str], counts: np.ndarray) -> None:
        """Record that statistics of a measure were read at positions with these numbers of values."""
        if counts.size:
            known = self._fewest.get(measure, 0)
            positive = [*([known] if known else []), *counts[counts > 0].tolist()]
            self._fewest[measure] = min(positive, default=0)

    def _recording(self, measure: tuple[str, str], variable: xr.Variable, counts: xr.Variable) -> xr.Variable:
        array = _RecordingArray(self, measure, variable.values, counts.set_dims(variable.sizes).values)
        lazily: Any = indexing.LazilyIndexedArray(array)  # as xarray reads files
        lazy = indexing.MemoryCachedArray(indexing.CopyOnWriteArray(lazily))
        return xr.Variable(variable.dims, lazy, variable.attrs)


class _RecordingArray(BackendArray):
    """Array, read lazily by xarray, that records the numbers of values at the positions that are read."""

    def __init__(self, recorder: ValueCounts, measure: tuple[str, str], values: np.ndarray, counts: np.ndarray) -> None:
        self.shape, self.dtype = values.shape, values.dtype
        self._recorder, self._measure, self._values, self._counts = recorder, measure, values, counts

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def __deepcopy__(self, memo: Mapping[int, Any]) -> "_RecordingArray":
        return self  # copies have the same recorder

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        values, counts = self._values, self._counts
        for axis in reversed(range(len(key))):  # one by one: NumPy would combine several arrays of positions
            at = (*(slice(None),) * axis, key[axis])
            values, counts = values[at], counts[at]
        self._recorder.note(self._measure, np.asarray(counts))
        return np.array(values)
