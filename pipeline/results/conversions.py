"""Conversion of results to pandas and ArviZ."""

import json
from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd
import xarray as xr

from pipeline.blocks.evaluate import FAILURES, Status
from pipeline.errors import BadInputError, require_known

_ACCOUNTS = ("status", "error")


def stored_audits(ds: xr.Dataset, by: Hashable) -> dict[str, dict[str, Any]]:
    """Return the results of `pipeline.Method.audit` by method, from the attributes of a stored dimension."""
    return json.loads(ds[by].attrs.get("audits", "{}"))


def audit_column(by: Hashable) -> str:
    """Return the name of the column with the verdicts of audits on the methods of a dimension."""
    return f"{by}_audit"


def to_pandas(ds: xr.Dataset, variables: Sequence[str] = ()) -> pd.DataFrame:
    """Convert results to a long table with one row per cell, setting, trial and output.

    Parameters
    ----------
    ds : xarray.Dataset
        One panel, as returned by `open_results` or ``xr.open_zarr``, or its summary.
    variables : sequence of str
        Measures, and optionally ``"error"``; all measures by default. Measures are broadcast along the dimensions of
        the other measures.

    Returns
    -------
    pandas.DataFrame
        Table in memory, with one column per dimension, constant and variable, and ``status``, if present, as a
        categorical: ``ok``, ``failed``, ``pending``, and so on. Rows of trials that are not ok are included. If the run
        audited methods, ``X_audit`` next to the dimension ``X`` of the methods is the verdict on the row's method, such
        as ``broken``, ``holds`` or ``unaudited``; it is empty for methods without an audit.

    Examples
    --------
    >>> ds = xr.Dataset({"x": ("trial", [1.0, 3.0]), "status": ("trial", [1, 2])}, {"trial": [0, 1], "epsilon": 0.5})
    >>> print(to_pandas(ds).to_string(index=False))
     trial  epsilon   x status
         0      0.5 1.0     ok
         1      0.5 3.0 failed
    """
    measures = [str(name) for name in ds.data_vars if name not in _ACCOUNTS]
    require_known("variable", variables, [*measures, *(name for name in _ACCOUNTS if name in ds)])
    chosen = [name for name in variables or measures if name != "status"]
    kept = ds[[*chosen, *(name for name in ("status",) if name in ds)]].compute()
    constants = {name: kept[name].item() for name in kept.coords if kept[name].ndim == 0}
    table = (
        kept.drop_vars(constants).to_dataframe().reset_index()
        if kept.dims
        else pd.DataFrame([{str(name): variable.item() for name, variable in kept.data_vars.items()}])
    )
    names = [name for name in table.columns if name not in kept.data_vars]
    table = table.assign(**{str(name): value for name, value in constants.items()})
    if "status" in kept:
        labels = {int(status): status.name.lower() for status in Status}
        table["status"] = pd.Categorical(table["status"].map(labels), categories=list(labels.values()))
    table = table[[*names, *constants, *kept.data_vars]]
    for name in (*names, *constants):
        if audits := stored_audits(kept, name):
            verdicts = table[name].map({method: audit["verdict"] for method, audit in audits.items()}).fillna("")
            table.insert(table.columns.get_loc(name) + 1, audit_column(name), verdicts)
    return table


def to_arviz(ds: xr.Dataset, draw: str = "trial", chain: str | None = None) -> xr.DataTree:
    """Convert results to an `xarray.DataTree` for ArviZ, with a group ``posterior``.

    Parameters
    ----------
    ds : xarray.Dataset
        One panel, as returned by `open_results` or ``xr.open_zarr``, or a part of it.
    draw, chain : str, optional
        Dimensions to rename to ``draw``, such as ``"iteration"`` for traces, and to ``chain``; one chain by default.

    Returns
    -------
    xarray.DataTree
        ``posterior`` contains the measures with both dimensions, chain and draw first, of the trials that are ok in
        every cell and setting; its attributes ``n_ok``, ``n_failed`` and ``n_pending`` are numbers of trials. Values
        for settings that do not apply to a cell are missing. ``constant_data`` contains the other measures, if any.

    Raises
    ------
    BadInputError
        If a dimension does not exist, no measure has both dimensions, or no trial is ok.

    Examples
    --------
    >>> ds = xr.Dataset({"x": ("trial", [1.0, 2.0, 3.0]), "status": ("trial", [1, 2, 1])})
    >>> posterior = to_arviz(ds).posterior
    >>> posterior.x.dims, posterior.x.values.tolist(), posterior.attrs["n_failed"]
    (('chain', 'draw'), [[1.0, 3.0]], 1)
    """
    renamed = {draw: "draw"} if chain is None else {chain: "chain", draw: "draw"}
    require_known("dimension", renamed, ds.dims)
    if chain == draw:
        raise BadInputError(f"chain and draw must be different dimensions, got {draw} for both")
    ds, counts = _without_failures(ds)
    measures = ds.drop_vars(_ACCOUNTS, errors="ignore")
    is_drawn = {name: set(renamed) <= set(variable.dims) for name, variable in measures.data_vars.items()}
    if not any(is_drawn.values()):
        raise BadInputError(
            f"a measure must have the dimensions {' and '.join(renamed)}, got none; choose other dimensions"
        )
    drawn = measures[[name for name, is_one in is_drawn.items() if is_one]].rename(renamed)
    if chain is None:
        drawn = drawn.expand_dims(chain=[0])
    groups = {"posterior": drawn.transpose("chain", "draw", ...).assign_attrs(counts)}
    rest = [name for name, is_one in is_drawn.items() if not is_one]
    if rest:
        groups["constant_data"] = measures[rest]
    return xr.DataTree.from_dict({name: group.compute() for name, group in groups.items()})


def _without_failures(ds: xr.Dataset) -> tuple[xr.Dataset, dict[Hashable, int]]:
    """Return the trials that are ok in all settings that apply, and the numbers of ok, failed and pending trials."""
    status = ds["status"].compute()
    elsewhere = [dim for dim in status.dims if dim != "trial"]
    is_pending = (status == Status.PENDING).any(elsewhere)
    has_failed = status.isin(list(FAILURES)).any(elsewhere) & ~is_pending
    applies = ~(status == Status.NOT_APPLICABLE).any([dim for dim in status.dims if dim == "trial"])
    is_left_out = ((status == Status.NOT_ASKED_FOR) & applies).any(elsewhere)
    is_ok = (status == Status.OK).any(elsewhere) & ~is_pending & ~has_failed & ~is_left_out
    if not is_ok.any():
        raise BadInputError(
            "at least one trial must be ok in every cell and setting, got none; select cells and settings first"
        )
    counts: dict[Hashable, int] = {
        name: int(mask.sum()) for name, mask in (("n_ok", is_ok), ("n_failed", has_failed), ("n_pending", is_pending))
    }
    return (ds.isel(trial=is_ok.values) if "trial" in status.dims else ds), counts
