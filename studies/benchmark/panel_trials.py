"""Trials of all methods of a panel, from the store of the own method and, if it is apart, from that of references."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pipeline import Criteria, Panel, Status
from pipeline.declare.factors import format_value, format_values
from pipeline.results.conversions import stored_audits
from pipeline.store.datasets import open_panel
from pipeline.store.result_store import ResultStore
from studies.styles import not_private

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PanelTrials:
    """Trials of the methods of a panel on the same simulated data, with the measures that its study compares."""

    study: str
    panel: Panel  # with the own method
    criteria: Criteria
    own: str
    datasets: Mapping[str, xr.Dataset] = field(repr=False)  # by method, on the same cells; the own method is first
    attributes: Mapping[str, Any] = field(default_factory=dict)  # of the dimension of the methods

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods; the own one is first."""
        return tuple(self.datasets)

    @property
    def references(self) -> tuple[str, ...]:
        """Names of all other methods."""
        return self.methods[1:]

    @cached_property
    def coordinate(self) -> xr.DataArray:
        """Names of the methods, with the stored attributes on privacy and audits."""
        return xr.DataArray(list(self.methods), dims="method", name="method", attrs=dict(self.attributes))

    @cached_property
    def without_privacy(self) -> frozenset[str]:
        """Names of methods that are marked as not private."""
        return frozenset(not_private(self.coordinate.to_dataset(name="method"), "method"))

    @property
    def audit(self) -> Mapping[str, Any]:
        """Stored audit of the own method; empty if the study audits no methods."""
        return stored_audits(self.coordinate.to_dataset(name="method"), "method").get(self.own, {})

    @cached_property
    def cell_dims(self) -> tuple[str, ...]:
        """Dimensions of the cells: factors of the data, then those of methods."""
        return tuple(factor.name for factor in (*self.panel.factors, *self.panel.method_factors))

    @cached_property
    def cells(self) -> list[dict[str, Any]]:
        """Values of the factors in each cell; vectors are text."""
        ds = self.datasets[self.own]
        return [
            dict(zip(self.cell_dims, values, strict=True))
            for values in product(*(ds[dim].values.tolist() for dim in self.cell_dims))
        ]

    @cached_property
    def labels(self) -> list[str]:
        """Cells as text; "all data" in a panel with one cell."""
        return [", ".join(format_values(cell)) or "all data" for cell in self.cells]

    @cached_property
    def data_groups(self) -> NDArray[np.int64]:
        """Index of the data of each cell: cells that differ in factors of methods only have the same data."""
        n_settings = int(np.prod([len(factor.values) for factor in self.panel.method_factors], dtype=int))
        return np.arange(len(self.cells)) // n_settings

    @cached_property
    def outputs(self) -> list[str]:
        """Components of the measures as text, [""] for scalars only."""
        values = [axis.values for axis in self.panel.outputs]
        return [", ".join(map(format_value, combination)) for combination in product(*values)]

    def has(self, measure: str) -> bool:
        """Return True if the panel has a measure."""
        return any(declared.name == measure for declared in self.panel.measures)

    def describe(self, measure: str) -> str:
        """Return the name and the meaning of a measure."""
        return f"{measure}, {next(declared.meaning for declared in self.panel.measures if declared.name == measure)}"

    def values(self, method: str, measure: str) -> Array:
        """Return values, shape (cell, component, trial), NaN in trials that are not ok; one trial if per cell.

        A scalar measure has one component.
        """
        array = self.datasets[method][measure].transpose(*self.cell_dims, ..., *self._trial(measure))
        n_trials = array.sizes["trial"] if self._trial(measure) else 1
        return array.values.reshape(len(self.cells), -1, n_trials).astype(float)

    def components(self, measure: str) -> list[str]:
        """Return the components of a measure as text."""
        declared = next(declared for declared in self.panel.measures if declared.name == measure)
        return self.outputs if declared.dims else [""]

    def _trial(self, measure: str) -> tuple[str, ...]:
        return ("trial",) if "trial" in self.datasets[self.own][measure].dims else ()

    def count(self, method: str, *statuses: Status) -> NDArray[np.int64]:
        """Return the number of trials with one of some statuses, shape (cell,)."""
        status = self.datasets[method]["status"].transpose(*self.cell_dims, "trial").values
        return np.isin(status, statuses).reshape(len(self.cells), -1).sum(axis=1)


def read_trials(
    study: str, panel: Panel, criteria: Criteria, own: str, store: ResultStore, reference: ResultStore | None
) -> PanelTrials:
    """Read the trials of a panel; `reference` has the other methods on at least the same cells and trials."""
    by, own_ds = panel.method_dim or "", open_panel(store, panel.name, lazy=False)
    datasets = {own: own_ds.sel({by: own})}
    other_ds = own_ds
    if reference is not None:
        other_ds = open_panel(reference, panel.name, lazy=False)
        dims = [factor.name for factor in (*panel.factors, *panel.method_factors)]
        other_ds = other_ds.sel({dim: own_ds[dim].values for dim in dims}).isel(trial=slice(own_ds.sizes["trial"]))
    for name in other_ds[by].values.tolist():
        if name != own and (other_ds["status"].sel({by: name}) != Status.NOT_APPLICABLE).any():
            datasets[name] = other_ds.sel({by: name})
    attributes = {
        **other_ds[by].attrs,
        **{key: own_ds[by].attrs[key] for key in ("audits",) if key in own_ds[by].attrs},
    }
    return PanelTrials(study, panel, criteria, own, datasets, attributes)


def is_named(values: Mapping[str, Sequence[Any]], cell: Mapping[str, Any]) -> bool:
    """Return True if each factor of a cell has one of the values that are named for it."""
    return all(cell[name] in allowed for name, allowed in values.items() if name in cell)
