"""Numbers of one method in the cells of a panel, as computed from trials, or read from a file that is shipped."""

import base64
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.blocks.evaluate import KINDS
from studies.claims import signed_ks_distance

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CellMeans:
    """Means of a measure in one cell over ok trials by component, and the trials, or the first ones, if they are known.

    Attributes
    ----------
    mean, error, n : array, shape (component,)
        Mean, its Monte Carlo error, and number of trials; NaN, NaN and 0 for a component without trials.
    trials : array, shape (component, trial), or None
        Values, NaN in trials that are not ok.
    """

    mean: Array
    error: Array
    n: Array
    trials: Array | None = field(default=None, repr=False)

    @classmethod
    def of(cls, trials: Array) -> "CellMeans":
        """Return the means of values, shape (component, trial)."""
        present = ~np.isnan(trials)
        n = present.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(present, trials, 0.0).sum(axis=1) / n
            squares = np.where(present, trials - mean[:, None], 0.0) ** 2
            error = np.where(n > 1, np.sqrt(squares.sum(axis=1) / n / (n - 1)), np.nan)
        return cls(mean, error, n.astype(float), trials)

    def select(self, components: NDArray[np.bool_]) -> "CellMeans":
        """Return the means of some components."""
        trials = self.trials[components] if self.trials is not None else None
        return CellMeans(self.mean[components], self.error[components], self.n[components], trials)


@dataclass(frozen=True)
class MethodSummary:
    """Numbers of one method by cell, in the order of the cells of a panel.

    Attributes
    ----------
    counts : mapping of str to array, shape (cell,)
        Numbers of trials that are ok, failed and pending; the others do not apply, or were not asked for.
    means : mapping of str to array, shape (cell, 2)
        Measure -> mean over trials of averages over components, and its Monte Carlo error; NaN without trials.
    components : mapping of str to array, shape (cell, 3, component)
        Measure of which methods are compared by ratios -> mean, error and number of trials of each component.
    distances, n_values : mapping of str to array, shape (cell + 1, component, 2) and (cell + 1, component)
        Measure of quantiles u -> signed Kolmogorov-Smirnov distances of u and of |2u − 1| to the uniform distribution,
        and numbers of quantiles, NaN and 0 without any; the last row is for the quantiles of all cells together, if
        more than one cell has some. `UniformityTest` defines the sign.
    trials : mapping of str to array, shape (cell, component, trial)
        Values of measures of `components`, NaN in trials that are not ok: of all trials, or of the first ones that are
        compared by trial; no measure if they are not known.
    """

    counts: Mapping[str, Array]
    means: Mapping[str, Array]
    components: Mapping[str, Array] = field(repr=False)
    distances: Mapping[str, Array] = field(repr=False)
    n_values: Mapping[str, Array] = field(repr=False)
    trials: Mapping[str, Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, status: NDArray[Any], averaged: Mapping[str, Array], compared: Iterable[str], uniform: Mapping[str, Array]
    ) -> "MethodSummary":
        """Return the summary of trials: status, shape (cell, trial), and values, shape (cell, component, trial)."""
        tested = {measure: [_distances(cell) for cell in _with_all_cells(uniform[measure])] for measure in uniform}
        trials = {measure: averaged[measure] for measure in compared}
        means = {measure: [CellMeans.of(cell) for cell in values] for measure, values in trials.items()}
        return cls(
            {kind: np.isin(status, statuses).sum(axis=1).astype(float) for kind, statuses in KINDS.items()},
            {measure: np.array([_mean_of_trials(cell) for cell in values]) for measure, values in averaged.items()},
            {
                measure: np.array([(cell.mean, cell.error, cell.n) for cell in cells])
                for measure, cells in means.items()
            },
            {measure: np.array([distances for distances, _ in rows]) for measure, rows in tested.items()},
            {measure: np.array([n for _, n in rows], float) for measure, rows in tested.items()},
            trials,
        )

    @property
    def is_applied(self) -> bool:
        """True if the method applies to a cell."""
        return any(counts.any() for counts in self.counts.values())

    def in_cells(self, measure: str) -> list[CellMeans]:
        """Return the means of a measure of `components` in each cell."""
        trials = self.trials.get(measure)
        return [
            CellMeans(mean, error, n, None if trials is None else trials[cell])
            for cell, (mean, error, n) in enumerate(self.components[measure])
        ]

    def with_first_trials(self, n_trials: Mapping[str, int]) -> "MethodSummary":
        """Return the summary with the first trials only of some measures."""
        kept = {key: array[..., : n_trials.get(key, array.shape[-1])] for key, array in self.trials.items()}
        return replace(self, trials=kept)

    def select(self, cells: Sequence[int]) -> "MethodSummary":
        """Return the summary in some cells; tests of all cells together remain only if these are all cells."""
        rows = {name: [*cells, *[-1] * n_pooled] for name, (_, n_pooled) in _SHAPES.items()}
        selected = {name: {key: array[rows[name]] for key, array in getattr(self, name).items()} for name in _SHAPES}
        for measure, n in selected["n_values"].items():
            n[-1] *= n[:-1].sum() == self.n_values[measure][:-1].sum()
        return MethodSummary(**selected, trials={key: array[list(cells)] for key, array in self.trials.items()})

    def to_json(self, paired: Collection[str] = (), n_trials: int = 0) -> dict[str, Any]:
        """Return all numbers, with the first trials of the measures `paired`, as JSON values."""
        summaries = {
            name: {key: _list(array.tolist()) for key, array in getattr(self, name).items()} for name in _SHAPES
        }
        return {**summaries, "trials": {key: _to_text(self.trials[key][..., :n_trials]) for key in paired}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], n_cells: int) -> "MethodSummary":
        """Return the summary of JSON values; raise KeyError, TypeError or ValueError for other ones."""
        arrays = {name: {key: np.array(rows, float) for key, rows in value[name].items()} for name in _SHAPES}
        for name, (ndim, n_pooled) in _SHAPES.items():
            for array in arrays[name].values():
                if array.ndim != ndim or len(array) != n_cells + n_pooled:
                    raise ValueError(f"{name} must have {n_cells + n_pooled} rows and {ndim} axes, got {array.shape}")
        components = {key: arrays["components"][key].shape[-1] for key in value["trials"]}
        trials = {key: _from_text(text).reshape(n_cells, components[key], -1) for key, text in value["trials"].items()}
        return cls(**arrays, trials=trials)


_SHAPES = {"counts": (1, 0), "means": (2, 0), "components": (3, 0), "distances": (3, 1), "n_values": (2, 1)}
"""Fields that are shipped -> numbers of axes, and of rows for all cells together."""


def _to_text(trials: Array) -> str:
    """Return values in single precision as text, a third of the size of their decimals."""
    return base64.b64encode(trials.astype("<f4").tobytes()).decode()


def _from_text(text: str) -> Array:
    return np.frombuffer(base64.b64decode(text, validate=True), "<f4").astype(float)


def _list(value: Any) -> Any:
    """Return nested lists of numbers with None for NaN and without the point of integers."""
    if isinstance(value, list):
        return [_list(entry) for entry in value]
    return None if math.isnan(value) else int(value) if value.is_integer() else value


def _mean_of_trials(values: Array) -> tuple[float, float]:
    """Return the mean of values, shape (component, trial), over their averages in trials, with its error."""
    present = ~np.isnan(values)
    n_present = present.sum(axis=0)
    averages = np.where(present, values, 0.0).sum(axis=0)[n_present > 0] / n_present[n_present > 0]
    n = averages.size
    return (
        float(averages.mean()) if n else math.nan,
        float(averages.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan,
    )


def _with_all_cells(quantiles: Array) -> list[Array]:
    """Return quantiles, shape (component, trial), of each cell, and of all cells if a component has them in several."""
    n_cells, n_components, n_trials = quantiles.shape
    in_several = (~np.isnan(quantiles)).any(axis=2).sum(axis=0) > 1
    pooled = quantiles.transpose(1, 0, 2).reshape(n_components, n_cells * n_trials)
    return [*quantiles, np.where(in_several[:, None], pooled, np.nan)]


def _distances(quantiles: Array) -> tuple[list[tuple[float, float]], list[int]]:
    """Return the signed distances of quantiles and of levels by component, and the numbers of quantiles."""
    present = [values[~np.isnan(values)] for values in quantiles]
    distances = [
        (signed_ks_distance(values), signed_ks_distance(np.abs(2.0 * values - 1.0)))
        if values.size
        else (math.nan, math.nan)
        for values in present
    ]
    return distances, [values.size for values in present]
