"""The command ``partition``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.errors import BadInputError
from studies.commands.shared import parse_numbers, print_table, require_file, say, split_names, takes, writing
from studies.commands.spending import confirm, open_account


@takes("ledger", "budget", "yes", "rehearsal", "cluster")
def partition(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table: .zarr, .parquet, .csv or .csv.gz.")],
    target: Annotated[str, typer.Option(help="Response column.")],
    coefficient: Annotated[str, typer.Option(help="Column of the coefficient, or 'intercept'.")],
    partitions: Annotated[int, typer.Option(metavar="M", help="Number of partitions of the rows.")],
    epsilon: Annotated[float, typer.Option(help="Privacy loss per released value, in nats; losses add up.")],
    cutoffs: Annotated[
        str, typer.Option(metavar="B1,B2", help="Release the posterior probabilities that the coefficient is <= B.")
    ] = "",
    probabilities: Annotated[
        str, typer.Option(metavar="P1,P2", help="Release the posterior quantiles at probabilities P.")
    ] = "",
    method: Annotated[
        str | None, typer.Option(help="Method; by default normality-corrected, or quantile-centred.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(metavar="A,B", help="Explanatory columns; all others by default.")
    ] = None,
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="Omit the intercept.")] = False,
    prior: Annotated[
        str,
        typer.Option(
            metavar="NAME[:X]",
            help="zellner:G (default: number of rows), flat, conjugate:V or semi-conjugate:V (default variance: 1000).",
        ),
    ] = "zellner",
    error_variance: Annotated[float | None, typer.Option(help="Error variance, if known.")] = None,
    split: Annotated[
        str, typer.Option(metavar="E1:E2", help="Parts of epsilon, one per step of the release of a quantile.")
    ] = "",
    mu: Annotated[
        float | None,
        typer.Option(help="Start of the search for bounds of a quantile; by default 1, or the ratio of the ranges."),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="COLUMN=LOW:HIGH",
            help="Public range of the target and of the coefficient's column; give one --range for each.",
        ),
    ] = None,
    allow_failure: Annotated[
        float,
        typer.Option(
            metavar="P", help="Largest allowed probability of a misplaced clipping interval; 0.01 by default."
        ),
    ] = 0.01,
    theta: Annotated[
        float | None,
        typer.Option(
            help="Fraction of the partitions with quantiles in the bounds, for method quantile; 0.8 by default."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File for the values, .csv or .json.")] = None,
    **given: Any,
) -> None:
    """Release posterior probabilities or quantiles of a regression coefficient, and print the privacy loss."""
    from studies.regression.partition_table import (  # imported here, because no other command needs Dask arrays
        Request,
        release_table,
    )

    require_file("output", output, ".csv", ".json")
    account = open_account(given["ledger"], given["budget"], given["rehearsal"])
    request = Request(
        target=target,
        coefficient=coefficient,
        n_partitions=partitions,
        epsilon=epsilon,
        cutoffs=parse_numbers("cutoffs", "float", cutoffs.split(",")),
        probabilities=parse_numbers("probabilities", "float", probabilities.split(",")),
        method=method,
        features=None if features is None else tuple(filter(None, split_names([features]))),
        intercept=not no_intercept,
        prior=prior,
        error_variance=error_variance,
        split=parse_numbers("split", "vector", [split])[0] if split else (),
        start=mu,
        share=theta,
        ranges=parse_ranges(ranges or []),
        allowed_failure=allow_failure,
    )
    guarantee, noise = request.guarantee(), request.describe_noise()
    if guarantee is not None:
        account.check(guarantee)

    def approve() -> None:
        assert guarantee is not None  # release_table refuses methods without a guarantee
        what = f"partition of {table}, coefficient {coefficient} of {target}"
        if not given["yes"]:
            confirm(f"{noise}\nRelease the {what}, with a privacy loss of {guarantee}?")
        if entry := account.entry(guarantee, what):
            entry()

    released = release_table(table, request, given["rehearsal"], given["cluster"], approve)
    print_table(released.values.columns, released.formatted())
    for line in (*released.lines, noise, *account.lines()):
        say(line)
    if output is not None:
        with writing(output, f"the values above are {'rehearsed' if released.rehearsal else 'released'}"):
            released.write(output)
        say(f"values: {output}")


def parse_ranges(words: list[str]) -> dict[str, tuple[float, float]]:
    """Return public ranges by column from words such as ``income=0:100000``."""
    ranges = {}
    for word in words:
        column, _, ends = word.rpartition("=")
        values: tuple[float, ...] = parse_numbers("range", "vector", [ends])[0] if column and ends else ()
        if len(values) != 2:
            raise BadInputError(f"range must have the form COLUMN=LOW:HIGH, got {word}; e.g. income=0:100000")
        ranges[column] = (values[0], values[1])
    return ranges
