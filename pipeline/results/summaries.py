"""Summaries of results over trials: means, standard deviations and quantiles with Monte Carlo standard errors.

Every summary contains the numbers of ok, failed and pending trials, and of the values of each measure. The memory
required is bounded by the trials of one cell and setting: Dask arrays are read a few cells at a time, or block by block
if a cell is large, into one array per measure, which is sorted in place.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.special import betaincinv

from pipeline.blocks.arrays import cast_values
from pipeline.blocks.evaluate import KINDS, Status
from pipeline.blocks.returned import as_numbers
from pipeline.declare.factors import ENDS, N_VALUES, QUANTILES, STANDARD_STATISTICS, Statistic
from pipeline.errors import BadInputError, as_bad_input
from pipeline.redact import format_error
from pipeline.results.proportions import LEVEL, constant_error, proportion_interval
from pipeline.store.codec.missing import DECLARED
from pipeline.store.codec.regions import slabs

_READ_BYTES = 2**20  # number of bytes per read of a variable
_COLUMN_BYTES = 2**26  # number of bytes of a measure in a cell that are reduced together (at least one output)

_Region = dict[Hashable, slice]


class Mean(NamedTuple):
    """Mean of draws along their last axis, its Monte Carlo standard error, their standard deviation and skewness."""

    mean: np.ndarray
    error: np.ndarray
    sd: np.ndarray
    skewness: np.ndarray


def estimate_mean(draws: np.ndarray, overwrite: bool = False) -> Mean:
    """Return the mean of draws along the last axis with its error; NaN, which pads ragged rows, is omitted.

    If draws may be overwritten, no array of their size is allocated, and the skewness is NaN.
    """
    missing = np.isnan(draws)
    n = missing.shape[-1] - np.count_nonzero(missing, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):  # the error of infinite draws is NaN
        mean = np.sum(draws, axis=-1, where=~missing) / n if missing.any() else draws.sum(axis=-1) / n
        deviations = np.subtract(draws, mean[..., None], out=draws if overwrite else None)
        np.copyto(deviations, 0.0, where=missing)
        powers = np.multiply(deviations, deviations, out=deviations if overwrite else None)
        squares = powers.sum(axis=-1)
        skewness = np.full(mean.shape, np.nan)
        if not overwrite:
            powers *= deviations  # a power of 3 takes four times as long
            skewness = powers.sum(axis=-1) * n**0.5 / squares**1.5
        variance = squares / np.maximum(n - 1, 0)
        return Mean(mean, np.sqrt(variance / n), np.sqrt(variance), skewness)


def estimate_quantiles(ordered: np.ndarray, probabilities: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return sample quantiles, by linear interpolation, of draws in ascending order, and their standard errors.

    The error is half the distance between the order statistics at the levels one standard deviation below and above a
    probability, which follow from a Beta distribution; it is NaN for fewer than two draws. Order statistics of discrete
    draws are often equal there, although the quantile is not certain. Their distance at four standard deviations,
    divided by eight, is then the error.
    """
    n = ordered.shape[-1]
    if not n:
        unknown = np.full((*ordered.shape[:-1], len(probabilities)), np.nan)
        return unknown, unknown
    estimates = _between(ordered, (n - 1) * np.array(probabilities))
    if n == 1:
        return estimates, np.full(estimates.shape, np.nan)
    errors = _distances(ordered, probabilities, 1) / 2
    if not errors.all():
        errors = np.where(errors == 0, _distances(ordered, probabilities, 4) / 8, errors)
    return estimates, errors


def _distances(ordered: np.ndarray, probabilities: Sequence[float], n_sds: int) -> np.ndarray:
    """Return the distances of order statistics `n_sds` standard deviations below and above quantiles."""
    ends = _between(ordered, np.array([_ranks(ordered.shape[-1], probability, n_sds) for probability in probabilities]))
    return ends[..., 1] - ends[..., 0]


@lru_cache(maxsize=1024)  # one entry serves most cells, which have the same number of trials
def _ranks(n: int, probability: float, n_sds: int) -> tuple[float, ...]:
    """Return the zero-based ranks `n_sds` standard deviations below and above the rank of a quantile of `n` draws."""
    tail = {1: 0.1586552539, 4: 3.16712418e-05}[n_sds]
    levels = betaincinv(n * probability + 1, n * (1 - probability) + 1, [tail, 1 - tail])
    return tuple(np.clip(n * levels - 0.5, 0, n - 1).tolist())


def _between(ordered: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Interpolate between order statistics at zero-based ranks on the last axis; equal infinite draws are one."""
    below = np.floor(ranks).astype(int)
    low, high = ordered[..., below], ordered[..., np.minimum(below + 1, ordered.shape[-1] - 1)]
    with np.errstate(invalid="ignore"):
        return np.where((low == high) | (ranks == below), low, low + (ranks - below) * (high - low))


def _reduce(draws: np.ndarray) -> np.ndarray:
    r"""Return the `STANDARD_STATISTICS` of draws, shape (\*points, n), on a new last axis; the array is overwritten."""
    draws.sort(axis=-1)
    levels = list(QUANTILES.values())
    if np.isnan(draws[..., -1]).any():
        quantiles = np.empty((2, *draws.shape[:-1], len(levels)))
        for index in np.ndindex(draws.shape[:-1]):
            n = int(np.searchsorted(draws[index], np.nan))  # NaN is sorted to the end
            quantiles[(slice(None), *index)] = estimate_quantiles(draws[index][:n], levels)
    else:
        quantiles = np.stack(estimate_quantiles(draws, levels))
    mean, error, sd, _ = estimate_mean(draws, overwrite=True)
    return np.concatenate([np.stack([mean, error, sd], axis=-1), *quantiles], axis=-1)


def compute_statistic(statistic: Statistic, draws: np.ndarray) -> np.ndarray:
    """Return a declared statistic of draws as floats; raise BadInputError if its function raises or returns others."""
    label = f"statistic {statistic.name} of {statistic.measure}"
    try:
        computed = statistic.function(draws.copy())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit, which would end a command as if it had succeeded
        raise BadInputError(f"{label} raised {format_error(error).rstrip('.: ')}; correct its function") from error
    axis = statistic.axis
    with as_bad_input():
        array, is_missing = as_numbers(label, computed, {} if axis is None else {axis.name: axis.values})
        if array.shape != _lengths(statistic):
            raise BadInputError(f"{label} must have shape {_lengths(statistic)}, got {array.shape}")
        if is_missing.any():
            raise BadInputError(f"{label} must be numbers, got masked or missing ones; return NaN if it is undefined")
        return cast_values(label, array, "float64")[0]


def _slabs(sizes: Mapping[Hashable, int], n_bytes: int, room: int) -> Iterator[_Region]:
    """Divide a grid with `n_bytes` per point into regions of one point or of at most `room` bytes."""
    for region in slabs([range(size) for size in sizes.values()], max(1, room // max(1, n_bytes))):
        yield dict(zip(sizes, region, strict=True))


def _pieces(variable: xr.DataArray) -> Iterator[slice]:
    """Divide the trials of a variable into slices of whole Dask chunks, each of about `_READ_BYTES` bytes."""
    n_trials = variable.sizes["trial"]
    chunk = max(variable.chunksizes.get("trial", (1,)), default=1)
    step = chunk * max(1, _READ_BYTES * n_trials // max(1, chunk * variable.nbytes))
    for start in range(0, n_trials, step):
        yield slice(start, min(start + step, n_trials))


def _read_ok(variable: xr.DataArray, status: xr.DataArray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return the draws of ok trials, shape (point, output, trial), and their number per point."""
    n_trials, n_points = variable.sizes["trial"], status.size // status.sizes["trial"]
    draws = np.empty((n_points, variable.size // (n_points * n_trials), n_trials), dtype)
    ends = np.zeros(n_points, int)
    for trials in _pieces(variable):
        ok = status.isel(trial=trials).values.reshape(n_points, -1) == Status.OK
        values = variable.isel(trial=trials).values.reshape(*draws.shape[:2], -1)
        for k in range(n_points):
            ok_values = values[k][:, ok[k]]
            draws[k, :, ends[k] : ends[k] + ok_values.shape[1]] = ok_values
            ends[k] += ok_values.shape[1]
    return draws, ends


class _Measure:
    """Summary of one per-trial measure, filled cell by cell; `grid` are the dimensions of the cells and settings."""

    def __init__(
        self, variable: xr.DataArray, grid: Sequence[Hashable], statistics: Sequence[Statistic], is_event: bool
    ) -> None:
        self._dims = [dim for dim in variable.dims if dim != "trial"]
        self._outputs = [dim for dim in self._dims if dim not in grid]
        self._variable = variable.transpose(*grid, *self._outputs, "trial")
        self._statistics = statistics
        # further statistics receive values in the dtype that the panel declares
        declared = np.dtype(variable.attrs.get(DECLARED, variable.dtype))
        self._dtype = declared if statistics else np.dtype(float)
        self._is_event = is_event or declared.kind == "b"
        shape = self._variable.shape[:-1]
        self._found = np.empty((*shape, len(STANDARD_STATISTICS)))
        self._n_values = np.zeros(shape, int)
        self._further = [np.full((*shape, *_lengths(statistic)), np.nan) for statistic in statistics]

    @property
    def n_bytes(self) -> int:
        sizes = self._variable.sizes
        return self._dtype.itemsize * int(np.prod([sizes[dim] for dim in (*self._outputs, "trial")], dtype=np.int64))

    def reduce(self, region: _Region, status: xr.DataArray) -> None:
        """Summarise the measure in a region of the grid, given the statuses of the trials in this region."""
        sizes = {dim: self._variable.sizes[dim] for dim in self._outputs}
        for outputs in _slabs(sizes, self._dtype.itemsize * status.size, _COLUMN_BYTES):
            at = region | outputs
            draws, ends = _read_ok(self._variable.isel(at), status, self._dtype)
            place = tuple(at.values())
            for statistic, array in zip(self._statistics, self._further, strict=True):
                statistics_of_points = np.full((*draws.shape[:2], *_lengths(statistic)), np.nan)
                for point, output in product(np.flatnonzero(ends), range(draws.shape[1])):
                    statistics_of_points[point, output] = compute_statistic(
                        statistic, draws[point, output, : ends[point]]
                    )
                array[place] = statistics_of_points.reshape(array[place].shape)
            standard = np.full((*draws.shape[:2], len(STANDARD_STATISTICS)), np.nan)
            n_values = np.zeros(draws.shape[:2], int)
            for end in np.unique(ends[ends > 0]):
                same = ends == end
                part = (draws[..., :end] if same.all() else draws[same, :, :end]).astype(float, copy=False)
                n_values[same] = end - np.count_nonzero(np.isnan(part), axis=-1)
                standard[same] = _reduce(part)
            self._found[place] = standard.reshape(self._found[place].shape)
            self._n_values[place] = n_values.reshape(self._n_values[place].shape)

    def summaries(self) -> dict[str, xr.Variable]:
        """Return the variables of all statistics, the standard ones and those that the panel declares."""
        variable, name, result = self._variable, self._variable.name, {}
        kept = {key: value for key, value in variable.attrs.items() if key != DECLARED}
        meaning = variable.attrs.get("long_name", name)
        standard = dict(zip(STANDARD_STATISTICS, np.moveaxis(self._found, -1, 0), strict=True))
        if self._is_event:
            standard = _with_interval(standard, self._n_values)
        for label, array in standard.items():
            words = f"{label} of {LEVEL:.0%} interval for the mean" if label in ENDS else label
            result[f"{name}_{label}"] = self._labelled(array, {**kept, "long_name": f"{words} of {meaning}"})
        counted = {"long_name": f"number of values of {meaning}", "units": "1"}
        result[f"{name}_{N_VALUES}"] = self._labelled(self._n_values, counted)
        for statistic, array in zip(self._statistics, self._further, strict=True):
            attributes = {"long_name": statistic.meaning, "units": statistic.unit}
            more = [] if statistic.axis is None else [statistic.axis.name]
            result[f"{name}_{statistic.name}"] = self._labelled(array, attributes, *more)
        return result

    def _labelled(self, array: np.ndarray, attributes: Mapping[str, str], *more: str) -> xr.Variable:
        return xr.Variable((*self._variable.dims[:-1], *more), array, attributes).transpose(*self._dims, *more)


def _with_interval(standard: Mapping[str, np.ndarray], n: np.ndarray) -> dict[str, np.ndarray]:
    """Return the statistics of events with the ends of an interval; the error is not 0 if none or all of n occurred."""
    mean, error = standard["mean"], standard["mcse"]
    ends = proportion_interval(np.round(mean * n), n)
    events = {"mean": mean, "mcse": np.where(error == 0, constant_error(n), error)}
    return {
        **events,
        **dict(zip(ENDS, ends, strict=True)),
        **{name: standard[name] for name in STANDARD_STATISTICS[2:]},
    }


def _restored(variable: xr.Variable) -> xr.Variable:
    """Return a measure that is not per trial, in its declared dtype if this represents all values exactly."""
    declared, values = np.dtype(variable.attrs.get(DECLARED, variable.dtype)), variable.values
    if declared.kind == "f" or values.dtype.kind != "f" or (np.abs(values) < 2**53).all():  # False for NaN
        values = values.astype(declared)
    attributes = {key: value for key, value in variable.attrs.items() if key != DECLARED}
    return xr.Variable(variable.dims, values, attributes, variable.encoding)


def _lengths(statistic: Statistic) -> tuple[int, ...]:
    return () if statistic.axis is None else (len(statistic.axis.values),)


def summarise(ds: xr.Dataset, statistics: Sequence[Statistic] = (), events: Collection[str] = ()) -> xr.Dataset:
    """Summarise the results of a panel over its trials.

    Parameters
    ----------
    ds : xarray.Dataset
        One panel, as returned by `open_results` or ``xr.open_zarr``. Dask arrays are loaded block by block.
    statistics : sequence of Statistic
        Further statistics, usually `Panel.statistics`.
    events : collection of str
        Measures that are 0 or 1, usually `Panel.events`; those of dtype bool always are.

    Returns
    -------
    xarray.Dataset
        Summary in memory, without the trial dimension. For each per-trial measure ``X``: ``X_mean``, its Monte Carlo
        standard error ``X_mcse``, ``X_sd``, and ``X_q05 X_q25 X_median X_q75 X_q95``, each with an ``_mcse``;
        ``X_name`` for each statistic. ``X_n_values`` is the number of values that they use: that of the ok trials
        without missing values of ragged measures. Events also have ``X_low`` and ``X_high``, the ends of a 95 %
        interval for their probability (`pipeline.results.proportions`). If none or all of n > 1 values are events,
        ``X_mcse`` is the standard deviation of the posterior Beta(1/2, n + 1/2), not 0. Other measures are unchanged;
        they have their declared dtype unless a value is missing, or an integer beyond 2⁵³. ``n_ok``, ``n_failed``
        (failed, timed out or killed) and ``n_pending`` are numbers of trials.

    Examples
    --------
    >>> ds = xr.Dataset({"x": ("trial", [1.0, 3.0, np.nan]), "status": ("trial", [1, 1, 2])})
    >>> summary = summarise(ds)
    >>> float(summary.x_mean), float(summary.x_mcse), int(summary.n_ok), int(summary.n_failed)
    (2.0, 1.0, 2, 1)
    >>> ds = xr.Dataset({"covered": ("trial", [True] * 100), "status": ("trial", [1] * 100)})
    >>> summary = summarise(ds)
    >>> [round(float(summary[f"covered_{name}"]), 3) for name in ("mean", "mcse", "low", "high")]
    [1.0, 0.007, 0.964, 1.0]
    """
    status = ds["status"] if "trial" in ds["status"].dims else ds["status"].expand_dims("trial")
    grid = {dim: size for dim, size in status.sizes.items() if dim != "trial"}
    status = status.transpose(*grid, "trial")
    others = {str(name): variable for name, variable in ds.data_vars.items() if name not in ("status", "error")}
    measures = {
        name: _Measure(
            others.pop(name),
            list(grid),
            [statistic for statistic in statistics if statistic.measure == name],
            name in events,
        )
        for name in list(others)
        if "trial" in others[name].dims
    }
    counts = np.zeros((*grid.values(), len(Status)), int)
    largest = max([status.sizes["trial"], *(measure.n_bytes for measure in measures.values())])
    for region in _slabs(grid, largest, _READ_BYTES):
        part = status.isel(region)
        part = part.load() if part.nbytes <= _READ_BYTES else part  # larger parts are read block by block, per measure
        for trials in _pieces(part):
            flags = part.isel(trial=trials).values
            counts[tuple(region.values())] += np.stack([(flags == status).sum(axis=-1) for status in Status], axis=-1)
        for measure in measures.values():
            measure.reduce(region, part)
    result = {
        f"n_{kind}": xr.Variable(
            list(grid), counts[..., list(members)].sum(axis=-1), {"long_name": f"trials that are {kind}", "units": "1"}
        )
        for kind, members in KINDS.items()
    }
    for measure in measures.values():
        result |= measure.summaries()
    further = [f"{statistic.measure}_{statistic.name}" for statistic in statistics]
    result |= {name: result.pop(name) for name in further}  # last, in the order of their declaration
    result |= {name: _restored(variable.variable) for name, variable in others.items()}
    coords = {name: coord.variable.load() for name, coord in ds.coords.items() if "trial" not in coord.dims}
    for axis in (statistic.axis for statistic in statistics if statistic.axis is not None):
        coords[axis.name] = xr.Variable(axis.name, list(axis.values), {"long_name": axis.meaning, "units": axis.unit})
    dims = {dim for variable in result.values() for dim in variable.dims}
    coords = {name: coord for name, coord in coords.items() if dims.issuperset(coord.dims)}
    return xr.Dataset(result, coords, ds.attrs).compute()  # variables: labelled arrays would be aligned one by one
