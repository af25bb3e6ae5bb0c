"""Posterior of a published noisy table (``dpstudies infer``): request, prior, posterior and output."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mechanisms.core.noise import Noise
from mechanisms.tables import Prior, fit_prior, negative_binomial, poisson, table_posterior, uniform
from pipeline.declare.factors import require_integer
from pipeline.errors import BadInputError, counted
from studies.option_texts import find_numbers, format_level, require_level, require_seed, split_names
from studies.output import format_numbers, print_table, progress_bar, require_file, say, writing
from studies.own_data.published_table import NoisyTable, read_table_csv

_SHOWN = 20  # largest number of cells that are printed
_LARGEST = 10**8  # largest number of counts in all draws


@dataclass(frozen=True)
class InferenceOptions:
    """Options of the command ``infer``, by the names of its arguments; see its help."""

    file: str
    levels: str
    value: str
    variance: str | None
    sd: str | None
    epsilon: str | None
    noise: str
    seen: str | None
    totals: Any  # checked by `read_table`
    prior: str
    level: float
    draws: int
    seed: int | None
    output: Path | None


def answer_inference(options: InferenceOptions) -> None:
    """Read a published table, and print and write the posterior of its counts."""
    prior, columns = _check(options)
    table = _read(options, columns)
    for text in table.warnings:
        say(f"warning: {text}")
    try:
        with progress_bar("fitting the prior") as show, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            arguments = table.values, table.noise, table.parents
            fitted_prior = prior or fit_prior(*arguments, seen=table.seen, names=table.names, progress=show)
            show(text="computing the posterior")
            posterior = table_posterior(*arguments, fitted_prior, seen=table.seen, names=table.names)
            low, high = posterior.interval(options.level)
            draws = posterior.sample(np.random.default_rng(options.seed), options.draws) if options.draws else None
    except ValueError as error:
        raise BadInputError(f"{options.file}: {error}") from error
    frame = table.labels.assign(value=table.published, mean=posterior.mean(), sd=posterior.std(), low=low, high=high)
    _show(options, table, frame, fitted_prior)
    for warning in caught:
        say(f"warning: {warning.message}")
    if options.output is not None:
        with writing(options.output, "the values above are valid"):
            _write(options.output, frame, draws)
        say(f"values: {options.output}")


def _check(options: InferenceOptions) -> tuple[Prior | None, list[str]]:
    """Return the prior, None if it is to be fitted, and the columns of the levels, before the table is read."""
    output, draws = options.output, options.draws
    require_level(options.level)
    require_integer("--draws", draws, 0, 10**6)
    require_seed(options.seed)
    require_file("output", output, ".csv", ".nc")
    if draws and output is None:
        raise BadInputError(f"--output must be given with --draws, got {draws} draws without a file; name a file")
    prior, columns = _parse_prior(options.prior), split_names([options.levels])
    result_columns = {"value", "mean", "sd", "low", "high"}
    if output is not None and output.suffix == ".nc":
        result_columns |= {"cell", "draw", "draws"}
    elif draws:
        result_columns |= {f"draw{k + 1}" for k in range(draws)}
    for name in columns:
        if name in result_columns:
            raise BadInputError(f"--levels must not be names of columns of the results, got {name}; rename the column")
        if output is not None and output.suffix == ".nc" and not all(ord(letter) < 256 for letter in name):
            raise BadInputError(f"--levels must be names in Latin-1 for a .nc file, got {name}; write a .csv file")
    if output is not None and output.exists() and Path(options.file).exists() and output.samefile(options.file):
        raise BadInputError(f"--output must be another file than the table, got {output}; name a new file")
    return prior, columns


def _read(options: InferenceOptions, columns: list[str]) -> NoisyTable:
    """Return the published table, which is small enough for the draws that are asked for."""
    table = read_table_csv(
        options.file,
        columns,
        value=options.value,
        variance=options.variance,
        sd=options.sd,
        epsilon=options.epsilon,
        noise=options.noise,
        seen=options.seen,
        totals=options.totals,
    )
    if options.draws * table.values.size > _LARGEST:
        largest = _LARGEST // table.values.size
        raise BadInputError(f"--draws must be at most {largest:,} for this table, got {options.draws:,}")
    return table


def _show(options: InferenceOptions, table: NoisyTable, frame: pd.DataFrame, prior: Any) -> None:
    """Print the published values and their noise, and the posterior of the first cells."""
    n_values = int((~np.isnan(table.published)).sum())
    say(f"release: {n_values:,} published values of {options.file}; noise: {_describe_noise(options.noise, table)}")
    print_table(frame.columns, _format_cells(frame.head(_SHOWN), len(table.labels.columns)))
    if len(frame) > _SHOWN:
        say(f"and {len(frame) - _SHOWN:,} more cells{'; pass --output for all' if options.output is None else ''}")
    say(f"inference: {format_level(options.level)} intervals, {counted(len(frame), 'cell')}")
    say(f"prior: {_describe_prior(prior)}")


def _format_cells(frame: pd.DataFrame, n_labels: int) -> list[list[str]]:
    """Return labels, published values with all digits, and numbers with two digits of the smallest deviation."""
    deviations = frame["sd"].to_numpy()
    width = float(deviations[deviations > 0].min(initial=np.inf))
    rows = []
    for labels, (value, mean, sd, low, high) in zip(
        frame.iloc[:, :n_labels].to_numpy().tolist(), frame.iloc[:, n_labels:].to_numpy(float), strict=True
    ):
        published = "" if np.isnan(value) else f"{value:,.10g}"
        rows.append([*labels, published, *format_numbers((mean, sd), width), f"{low:,.0f}", f"{high:,.0f}"])
    return rows


def _describe_prior(prior: Any) -> str:
    """Return the prior of a count of the finest level in words; a fitted one has the means and spreads it mixes."""
    if isinstance(prior, Prior):
        if prior.name == "negative_binomial":
            shape, mean = prior.parameters
            return f"negative binomial counts with mean {mean:,g} and shape {shape:,g}"
        return f"Poisson counts with mean {prior.parameters[0]:,g}" if prior.name == "poisson" else "uniform counts"
    shapes, means = np.array([each.parameters for each in prior.priors]).T
    ends = [_spread(values, prior.weights) for values in (means, np.sqrt(means + means**2 / shapes))]
    return (
        f"negative binomial counts at the finest level, fitted to the table: mean {ends[0]}, standard deviation "
        f"{ends[1]}"
    )


def _spread(values: np.ndarray, weights: Sequence[float]) -> str:
    """Return the median of weighted values, and their 95 % interval, as text."""
    order = np.argsort(values)
    cumulative = np.cumsum(np.array(weights)[order])
    at = np.minimum(np.searchsorted(cumulative, [0.025, 0.5, 0.975]), values.size - 1)
    low, middle, high = (f"{round(value, 1 - math.floor(math.log10(value))):,.10g}" for value in values[order][at])
    return f"{middle} ({low} to {high})"


def _describe_noise(name: str, table: NoisyTable) -> str:
    """Return the noise of the values in words, with the smallest and the largest scale."""
    scales = sorted({noise.scale for noise in table.noise if isinstance(noise, Noise)})
    if not scales:
        return "none"
    return f"{name} of scale {scales[0]:.4g}" + (f" to {scales[-1]:.4g}" if len(scales) > 1 else "")


def _parse_prior(text: str) -> Prior | None:
    """Return the prior of an option; None for ``auto``."""
    name, *words = text.split(":")
    makers = {"auto": (0, lambda: None), "negative-binomial": (2, negative_binomial), "poisson": (1, poisson)}
    n, make = {**makers, "uniform": (0, uniform)}.get(name, (-1, uniform))
    try:
        numbers = find_numbers(":".join(words)) if words else ()
        if len(numbers) != n:
            raise ValueError(
                "it must be auto, negative-binomial:SHAPE:MEAN, poisson:MEAN or uniform, with finite numbers such as "
                "0.5 or 1000"
            )
        return make(*numbers)  # type: ignore[operator]
    except ValueError as error:
        raise BadInputError(f"prior must be valid, got {text!r}: {error}") from None


def _write(path: Path, frame: pd.DataFrame, draws: np.ndarray | None) -> None:
    """Write one row per cell, with its draws in further columns of CSV or a further dimension of NetCDF."""
    if path.suffix == ".nc":
        dataset = frame.rename_axis("cell").to_xarray()
        (dataset if draws is None else dataset.assign(draws=(("draw", "cell"), draws))).to_netcdf(path)
        return
    if draws is not None:
        columns = pd.DataFrame(draws.T, columns=[f"draw{k + 1}" for k in range(len(draws))])
        frame = pd.concat([frame, columns], axis=1)
    frame.to_csv(path, index=False)
