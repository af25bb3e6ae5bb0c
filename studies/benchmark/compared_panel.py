"""One panel with the summaries of all methods that are compared in its cells, wherever their numbers come from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pipeline import Criteria, Panel
from pipeline.declare.factors import format_values
from pipeline.results.conversions import stored_audits
from studies.benchmark.method_summary import MethodSummary
from studies.styles import not_private

ALL_DATA = "all data"
"""Label of the cell of a panel without factors."""


@dataclass(frozen=True)
class ComparedPanel:
    """Panel on some of its cells, with the measures that its study compares, and the summaries of methods."""

    study: str
    panel: Panel
    criteria: Criteria
    coordinates: Mapping[str, xr.DataArray] = field(repr=False)  # values of each factor; vectors are text
    summaries: Mapping[str, MethodSummary] = field(default_factory=dict, repr=False)  # by method
    attributes: Mapping[str, Any] = field(default_factory=dict, repr=False)  # of the dimension of the methods
    own: str = ""  # the method of the user, which is the first one
    origin: str = ""  # of the numbers of the references, as text
    most_paired: Mapping[str, int] = field(default_factory=dict)  # measure -> limited number of trials to compare
    n_not_converged: int = 0  # trials of the own method with a component whose R-hat is above `LARGEST_RHAT`

    @property
    def title(self) -> str:
        """Names of the study and the panel."""
        return f"{self.study}, {self.panel.name}"

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods; the own one is first."""
        return tuple(self.summaries)

    @property
    def references(self) -> tuple[str, ...]:
        """Names of all other methods."""
        return tuple(name for name in self.summaries if name != self.own)

    @cached_property
    def coordinate(self) -> xr.DataArray:
        """Names of the methods, with the stored attributes on privacy and audits."""
        return xr.DataArray(list(self.methods), dims="method", name="method", attrs=dict(self.attributes))

    @cached_property
    def without_privacy(self) -> list[str]:
        """Names of methods that are marked as not private."""
        return not_private(self.coordinate.to_dataset(name="method"), "method")

    @property
    def audits(self) -> Mapping[str, Mapping[str, Any]]:
        """Stored audits by method; empty if the study audits no methods."""
        return stored_audits(self.coordinate.to_dataset(name="method"), "method")

    @property
    def audit(self) -> Mapping[str, Any]:
        """Stored audit of the own method; empty if the study audits no methods."""
        return self.audits.get(self.own, {})

    @cached_property
    def cells(self) -> list[dict[str, Any]]:
        """Values of the factors in each cell; vectors are text."""
        values = [coordinate.values.tolist() for coordinate in self.coordinates.values()]
        return [dict(zip(self.coordinates, combination, strict=True)) for combination in product(*values)]

    @cached_property
    def labels(self) -> list[str]:
        """Cells as text."""
        return [", ".join(format_values(cell)) or ALL_DATA for cell in self.cells]

    @cached_property
    def data_groups(self) -> NDArray[np.int64]:
        """Index of the data of each cell: cells that differ in factors of methods only have the same data."""
        n_settings = int(np.prod([len(factor.values) for factor in self.panel.method_factors], dtype=int))
        return np.arange(len(self.cells)) // n_settings

    def has(self, measure: str) -> bool:
        """Return True if the panel has a measure."""
        return any(declared.name == measure for declared in self.panel.measures)

    def describe(self, measure: str) -> str:
        """Return the name and the meaning of a measure."""
        return f"{measure}, {next(declared.meaning for declared in self.panel.measures if declared.name == measure)}"

    def components(self, measure: str) -> list[dict[str, Any]]:
        """Return the values of the output axes in each component of a measure, [{}] for a scalar one."""
        declared = next(declared for declared in self.panel.measures if declared.name == measure)
        axes = self.panel.outputs if declared.dims else ()
        names = [axis.name for axis in axes]
        return [dict(zip(names, combination, strict=True)) for combination in product(*(axis.values for axis in axes))]

    @property
    def loss(self) -> str:
        """Measure by which the methods are ranked; empty if the panel has none."""
        return self.criteria.loss_of(self.panel)

    @property
    def width(self) -> str:
        """Measure of the width of intervals; empty if the panel has none."""
        return self.criteria.width if self.has(self.criteria.width) else ""

    @property
    def averaged(self) -> list[str]:
        """Measures whose means are shown."""
        criteria = self.criteria
        names = dict.fromkeys((*criteria.loss, self.loss, criteria.covered, criteria.width, criteria.distance))
        return list(filter(self.has, names))

    @property
    def uniform(self) -> list[str]:
        """Measures that are uniform in the cells of the panel in which a posterior is exact; none in other panels."""
        return list(filter(self.has, self.criteria.uniform)) if self.panel.name in self.criteria.exact else []

    def is_exact(self, measure: str) -> NDArray[np.bool_]:
        """Return True where a measure of an exact posterior is uniform, shape (cell, component)."""
        exact = self.criteria.exact[self.panel.name]
        cells = np.array([_is_named(exact, cell) for cell in self.cells], bool)
        components = np.array([_is_named(exact, component) for component in self.components(measure)], bool)
        return cells[:, None] & components

    def with_methods(self, ds: xr.Dataset) -> "ComparedPanel":
        """Return the panel with the methods of a stored one on the same cells, and their attributes."""
        by = self.panel.method_dim or ""
        new = [name for name in ds[by].values.tolist() if name not in self.summaries]
        return self.with_summaries({name: self._summarise(ds.sel({by: name})) for name in new}, ds[by].attrs)

    def with_summaries(self, summaries: Mapping[str, MethodSummary], attributes: Mapping[str, Any]) -> "ComparedPanel":
        """Return the panel with further methods, except for those that apply to no cell, and their attributes.

        Audits, and the names of methods that are not private, are those of all methods.
        """
        applied = {name: summary for name, summary in summaries.items() if name == self.own or summary.is_applied}
        further = replace(self, summaries={**self.summaries, **applied}, attributes=attributes)
        audits = {**further.audits, **self.audits}
        names = dict.fromkeys([*further.without_privacy, *self.without_privacy])
        joined = {"audits": json.dumps(audits) if audits else "", "not_private": "\n".join(names)}
        return replace(further, attributes={**attributes, **{name: text for name, text in joined.items() if text}})

    def _summarise(self, ds: xr.Dataset) -> MethodSummary:
        """Return the summary of the trials of one method."""
        status = ds["status"].transpose(*self.coordinates, "trial").values.reshape(len(self.cells), -1)

        def values(measure: str) -> NDArray[np.float64]:
            """Return values, shape (cell, component, trial), NaN in trials that are not ok; one trial if per cell."""
            per_trial = [dim for dim in ds[measure].dims if dim == "trial"]
            array = ds[measure].transpose(*self.coordinates, ..., *per_trial)
            n_trials = array.sizes["trial"] if per_trial else 1
            return array.values.reshape(len(self.cells), -1, n_trials).astype(float)

        return MethodSummary.of(
            status,
            {measure: values(measure) for measure in self.averaged},
            [measure for measure in (self.loss, self.width) if measure],
            {measure: np.where(self.is_exact(measure)[..., None], values(measure), np.nan) for measure in self.uniform},
        )


def panel_of(study: str, panel: Panel, criteria: Criteria, ds: xr.Dataset) -> ComparedPanel:
    """Return a panel on the cells of a stored one, without methods."""
    dims = [factor.name for factor in (*panel.factors, *panel.method_factors)]
    return ComparedPanel(study, panel, criteria, {dim: ds[dim] for dim in dims})


def _is_named(values: Mapping[str, Sequence[Any]], cell: Mapping[str, Any]) -> bool:
    """Return True if each factor of a cell, or axis of a component, has one of the values that are named for it."""
    return all(cell[name] in allowed for name, allowed in values.items() if name in cell)
