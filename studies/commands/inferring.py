"""The command ``infer``: posteriors of published noisy tables."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from pipeline.declare.factors import require_integer
from pipeline.errors import BadInputError
from studies.commands.options import (
    Level,
    argument,
    find_numbers,
    format_level,
    option,
    require_level,
    require_seed,
    split_names,
)
from studies.commands.output import print_table, progress_bar, require_file, say, writing

if TYPE_CHECKING:
    import pandas as pd

    from mechanisms.tables import Prior

_SHOWN = 20  # largest number of cells that are printed
_LARGEST = 10**8  # largest number of counts in all draws


def infer(
    file: Annotated[str, argument("FILE", "CSV file with one row per cell and level; may be .gz.")],
    levels: Annotated[
        str,
        option("A,B", "Columns of the levels, from the coarsest to the finest; a blank level is the total over it."),
    ],
    value: Annotated[str, option("Column of the noisy counts; blank if not measured.")] = "value",
    variance: Annotated[
        str | None,
        option("COLUMN|X", "Variance of the noise, 0 for exact counts; the column variance unless stated otherwise."),
    ] = None,
    sd: Annotated[str | None, option("COLUMN|X", "Standard deviation of the noise, instead of its variance.")] = None,
    epsilon: Annotated[
        str | None, option("COLUMN|X", "Privacy loss of each value; laplace or geometric noise of scale 1/epsilon.")
    ] = None,
    noise: Annotated[str, option("gaussian, discrete-gaussian, laplace or geometric.")] = "gaussian",
    seen: Annotated[
        str | None,
        option(
            "COLUMN|FORMAT",
            "Format of the values: value, clipped (negative ones are 0), suppressed:T (blank below T), rounded:B "
            "(nearest multiple of B), random-rounded:B, or small-rounded:B (1 to B-1 become 0 or B at random); the "
            "column seen, if there is one, unless stated otherwise.",
        ),
    ] = None,
    totals: Annotated[
        str, option("independent, with noise or rounding of their own, or sums of the published cells.")
    ] = "independent",
    prior: Annotated[
        str,
        option(
            "NAME[:X]",
            "Of the counts of the finest level: auto (fitted to the table), negative-binomial:SHAPE:MEAN, "
            "poisson:MEAN or uniform.",
        ),
    ] = "auto",
    level: Level = 0.95,
    draws: Annotated[int, option("N", "Write N joint draws of all counts, which add up.")] = 0,
    seed: Annotated[int | None, option("Seed of the draws.")] = None,
    output: Annotated[Path | None, option("File for all cells and draws, .csv or .nc.")] = None,
) -> None:
    """Infer the true counts of a published table with noise, with intervals for every cell and total.

    Several rows of one cell are measurements with independent noise. Equal values without noise, such as one rounding
    printed twice, count once.
    """
    from mechanisms.tables import fit_prior, table_posterior
    from studies.data.table_csv import read_table_csv

    require_level(level)
    require_integer("--draws", draws, 0, 10**6)
    require_seed(seed)
    require_file("output", output, ".csv", ".nc")
    if draws and output is None:
        raise BadInputError(f"--output must be given with --draws, got {draws} draws without a file; name a file")
    chosen = _parse_prior(prior)
    named = split_names([levels])
    own = {"value", "mean", "sd", "low", "high"}
    if output is not None and output.suffix == ".nc":
        own |= {"cell", "draw", "draws"}
    elif draws:
        own |= {f"draw{k + 1}" for k in range(draws)}
    for name in named:
        if name in own:
            raise BadInputError(f"--levels must not be names of columns of the results, got {name}; rename the column")
        if output is not None and output.suffix == ".nc" and not all(ord(letter) < 256 for letter in name):
            raise BadInputError(f"--levels must be names in Latin-1 for a .nc file, got {name}; write a .csv file")
    if output is not None and output.exists() and Path(file).exists() and output.samefile(file):
        raise BadInputError(f"--output must be another file than the table, got {output}; name a new file")
    stated = {"variance": variance, "sd": sd, "epsilon": epsilon}
    table = read_table_csv(file, named, value=value, noise=noise, seen=seen, totals=totals, **stated)
    if draws * table.values.size > _LARGEST:
        raise BadInputError(f"--draws must be at most {_LARGEST // table.values.size:,} for this table, got {draws:,}")
    for text in table.warnings:
        say(f"warning: {text}")
    try:
        with progress_bar("fitting the prior") as show, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            arguments = table.values, table.noise, table.parents
            fitted = chosen or fit_prior(*arguments, seen=table.seen, names=table.names, progress=show)
            show(text="computing the posterior")
            posterior = table_posterior(*arguments, fitted, seen=table.seen, names=table.names)
            low, high = posterior.interval(level)
            drawn = posterior.sample(np.random.default_rng(seed), draws) if draws else None
    except ValueError as error:
        raise BadInputError(f"{file}: {error}") from error
    moments = {"mean": posterior.mean(), "sd": posterior.std()}
    frame = table.labels.assign(value=table.published, **moments, low=low, high=high)
    shown = frame.head(_SHOWN).map(lambda one: one if isinstance(one, str) else "" if np.isnan(one) else f"{one:.4g}")
    print_table(frame.columns, shown.to_numpy().tolist())
    if len(frame) > _SHOWN:
        say(f"and {len(frame) - _SHOWN:,} more cells{'; pass --output for all' if output is None else ''}")
    say(f"{format_level(level)} intervals, {len(frame):,} cells, {noise} noise, prior {posterior.prior}")
    for warning in caught:
        say(f"warning: {warning.message}")
    if output is not None:
        with writing(output, "the values above are valid"):
            _write(output, frame, drawn)
        say(f"values: {output}")


def _parse_prior(given: str) -> "Prior | None":
    """Return the prior of an option; None for ``auto``."""
    from mechanisms.tables import negative_binomial, poisson, uniform

    name, *words = given.split(":")
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
        raise BadInputError(f"prior must be valid, got {given!r}: {error}") from None


def _write(path: Path, frame: "pd.DataFrame", draws: np.ndarray | None) -> None:
    """Write one row per cell, with its draws in further columns of CSV or a further dimension of NetCDF."""
    import pandas as pd

    if path.suffix == ".nc":
        dataset = frame.rename_axis("cell").to_xarray()
        (dataset if draws is None else dataset.assign(draws=(("draw", "cell"), draws))).to_netcdf(path)
        return
    if draws is not None:
        columns = pd.DataFrame(draws.T, columns=[f"draw{k + 1}" for k in range(len(draws))])
        frame = pd.concat([frame, columns], axis=1)
    frame.to_csv(path, index=False)
