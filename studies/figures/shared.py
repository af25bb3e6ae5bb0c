"""Looks and labels of the methods in figures."""

from collections.abc import Iterable

import xarray as xr

from studies.styles import Look, Styles, complete_styles, label_method, stored_audits


def looks_of(styles: Styles, by: str, parts: Iterable[xr.Dataset]) -> dict[str, Look]:
    """Return the looks by label of each method in the summaries; see `complete_styles` and `label_method`."""
    parts = list(parts)
    names = [name for ds in parts for name in ds[by].values.tolist()]
    audits = {name: found for ds in parts for name, found in stored_audits(ds, by).items() if name in names}
    styles = complete_styles(styles, names, [name for name, found in audits.items() if found["verdict"] == "broken"])
    labels = {(label_method(ds, by, name), name) for ds in parts for name in ds[by].values.tolist()}
    return {label: look for name, look in styles.items() for label, labelled in sorted(labels) if labelled == name}


def with_labels(ds: xr.Dataset, by: str) -> xr.Dataset:
    """Return a summary whose methods are named by their labels."""
    return ds.assign_coords({by: [label_method(ds, by, name) for name in ds[by].values.tolist()]})
