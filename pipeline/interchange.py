"""Results as pandas and ArviZ take them: a long table, and a tree with a group of posterior draws."""

from collections.abc import Hashable, Sequence

import pandas as pd
import xarray as xr

from pipeline.blocks.evaluate import FAILURES, Status
from pipeline.errors import BadInputError, unknown

_ACCOUNTS = ("status", "error")


def to_pandas(ds: xr.Dataset, variables: Sequence[str] = ()) -> pd.DataFrame:
    """Return results as a long table: one row a cell, setting, trial and output position.

    Parameters
    ----------
    ds : xarray.Dataset
        One panel, as `open_results` or ``xr.open_zarr`` gives it, or its summary. Select first what is wanted: the
        table is in memory.
    variables : sequence of str
        Which measures, and ``"error"`` where its text is wanted; all measures by default. A measure that lacks some
        dimension of the others is repeated along it.

    Returns
    -------
    pandas.DataFrame
        A column for each dimension, for each constant, for each variable, and ``status``, where there is one, as a
        category: ``ok``, ``failed``, ``pending`` ... Rows of trials that are not ok are there, too.

    Raises
    ------
    BadInputError
        If there is no such variable.

    Examples
    --------
    >>> ds = xr.Dataset({"x": ("trial", [1.0, 3.0]), "status": ("trial", [1, 2])}, {"trial": [0, 1], "epsilon": 0.5})
    >>> print(to_pandas(ds).to_string(index=False))
     trial  epsilon   x status
         0      0.5 1.0     ok
         1      0.5 3.0 failed
    """
    measures = [str(name) for name in ds.data_vars if name not in _ACCOUNTS]
    for name in variables:
        if name not in ds.data_vars:
            raise BadInputError(unknown("variable", name, [*measures, *(n for n in _ACCOUNTS if n in ds)]))
    chosen = [name for name in variables or measures if name != "status"]
    kept = ds[[*chosen, *(name for name in ("status",) if name in ds)]].compute()
    constants = {name: kept[name].item() for name in kept.coords if kept[name].ndim == 0}
    table = kept.drop_vars(constants).to_dataframe().reset_index() if kept.dims else _one_row(kept)
    names = [name for name in table.columns if name not in kept.data_vars]
    table = table.assign(**{str(name): value for name, value in constants.items()})
    if "status" in kept:
        labels = {int(status): status.name.lower() for status in Status}
        table["status"] = pd.Categorical(table["status"].map(labels), categories=list(labels.values()))
    return table[[*names, *constants, *kept.data_vars]]


def to_arviz(ds: xr.Dataset, draw: str = "trial", chain: str | None = None) -> xr.DataTree:
    """Return results as ArviZ takes them: an `xarray.DataTree` with a group ``posterior``.

    Parameters
    ----------
    ds : xarray.Dataset
        One panel, as `open_results` or ``xr.open_zarr`` gives it. Select first what is wanted, as by
        ``ds.sel(iteration=slice(101, None))``.
    draw : str
        The dimension that becomes ``draw``: ``"iteration"`` of traces, or ``"trial"`` for independent replicates.
    chain : str, optional
        The dimension that becomes ``chain``; one chain by default.

    Returns
    -------
    xarray.DataTree
        In ``posterior`` the measures that have both dimensions, which come first; others in ``constant_data``, if
        there are any. Trials that are not ok in every cell and setting are left out, and counted by the attributes
        ``n_ok``, ``n_failed`` and ``n_pending`` of ``posterior``. What does not apply is NaN, a whole number 0.

    Raises
    ------
    BadInputError
        If there is no such dimension, no measure that has both, or no trial that is ok.

    Examples
    --------
    >>> ds = xr.Dataset({"x": ("trial", [1.0, 2.0, 3.0]), "status": ("trial", [1, 2, 1])})
    >>> posterior = to_arviz(ds).posterior
    >>> posterior.x.dims, posterior.x.values.tolist(), posterior.attrs["n_failed"]
    (('chain', 'draw'), [[1.0, 3.0]], 1)
    """
    renamed = {draw: "draw"} if chain is None else {chain: "chain", draw: "draw"}
    for dim in renamed:
        if dim not in ds.dims:
            raise BadInputError(unknown("dimension", dim, ds.dims))
    if chain == draw:
        raise BadInputError(f"chain and draw must be two dimensions, got {draw} for both")
    ds, counts = _without_failures(ds)
    measures = ds.drop_vars(_ACCOUNTS, errors="ignore")
    is_drawn = {name: set(renamed) <= set(variable.dims) for name, variable in measures.data_vars.items()}
    if not any(is_drawn.values()):
        raise BadInputError(f"some measure must have the dimensions {' and '.join(renamed)}, got none; choose others")
    drawn = measures[[name for name, is_one in is_drawn.items() if is_one]].rename(renamed)
    if chain is None:
        drawn = drawn.expand_dims(chain=[0])
    groups = {"posterior": drawn.transpose("chain", "draw", ...).assign_attrs(counts)}
    rest = [name for name, is_one in is_drawn.items() if not is_one]
    if rest:
        groups["constant_data"] = measures[rest]
    return xr.DataTree.from_dict({name: group.compute() for name, group in groups.items()})


def _without_failures(ds: xr.Dataset) -> tuple[xr.Dataset, dict[Hashable, int]]:
    """Return the trials that are ok wherever they apply, and how many are; a panel without trials counts as one."""
    status = ds["status"].compute()
    elsewhere = [dim for dim in status.dims if dim != "trial"]
    is_pending = (status == Status.PENDING).any(elsewhere)
    has_failed = status.isin(list(FAILURES)).any(elsewhere) & ~is_pending
    is_ok = (status == Status.OK).any(elsewhere) & ~is_pending & ~has_failed
    if not is_ok.any():
        raise BadInputError(
            "some trial must be ok in every cell and setting, got none; select cells and settings first"
        )
    counts: dict[Hashable, int] = {
        name: int(mask.sum()) for name, mask in (("n_ok", is_ok), ("n_failed", has_failed), ("n_pending", is_pending))
    }
    return (ds.isel(trial=is_ok.values) if "trial" in status.dims else ds), counts


def _one_row(ds: xr.Dataset) -> pd.DataFrame:
    """Return a data set without dimensions as a table of one row."""
    return pd.DataFrame({str(name): [variable.item()] for name, variable in ds.data_vars.items()})
