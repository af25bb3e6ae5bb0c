"""The command ``infer``: posteriors of published noisy tables."""

from pathlib import Path
from typing import Annotated

from studies.commands.options import Level, argument, option


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
    """Infer the true counts of a published noisy table.

    Every cell and total has an interval. Several rows of one cell are measurements with independent noise. Equal
    values without noise, such as one rounding printed twice, count once.
    """
    from studies.own_data.published_posterior import InferenceOptions, answer_inference

    answer_inference(
        InferenceOptions(
            file, levels, value, variance, sd, epsilon, noise, seen, totals, prior, level, draws, seed, output
        )
    )
