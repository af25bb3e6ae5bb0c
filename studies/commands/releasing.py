"""The command that releases values of a table."""

from pathlib import Path
from typing import Annotated

import typer

from pipeline.declare.factors import require_integer
from pipeline.errors import BadInputError
from studies.commands.shared import Cluster, make_table, parse_numbers, print_table, say, split_names


def partition(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A table: .zarr, .parquet or .csv.")],
    target: Annotated[str, typer.Option("--target", help="The column that is explained.")],
    coefficient: Annotated[str, typer.Option("--coefficient", help="Of which column, or 'intercept'.")],
    partitions: Annotated[int, typer.Option("--partitions", metavar="M", help="How many partitions of the rows.")],
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy loss of each value, in nats; they add up.")],
    cutoffs: Annotated[
        str, typer.Option("--cutoffs", metavar="B1,B2", help="Release the posterior probabilities of being <= B.")
    ] = "",
    probabilities: Annotated[
        str, typer.Option("--probabilities", metavar="P1,P2", help="Release the posterior quantiles at P.")
    ] = "",
    method: Annotated[
        str | None, typer.Option("--method", help="normality-corrected or quantile-centred by default.")
    ] = None,
    features: Annotated[
        str | None, typer.Option("--features", metavar="A,B", help="Columns that explain; all others by default.")
    ] = None,
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="Leave the intercept out.")] = False,
    prior: Annotated[
        str,
        typer.Option(
            "--prior",
            metavar="NAME[:X]",
            help="zellner:G (all rows by default), flat, conjugate:V or semi-conjugate:V (variance of each, 1000).",
        ),
    ] = "zellner",
    error_variance: Annotated[float | None, typer.Option("--error-variance", help="Where it is known.")] = None,
    split: Annotated[
        str, typer.Option("--split", metavar="E1:E2", help="How a quantile's epsilon is divided among its steps.")
    ] = "",
    mu: Annotated[
        float | None, typer.Option("--mu", help="Where the search for a quantile's bounds begins; at 1 by default.")
    ] = None,
    theta: Annotated[
        float | None,
        typer.Option("--theta", help="Share of the partitions' quantiles within bounds, of quantile; 0.8."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Of division and noise, drawn anew by default; who knows it knows the noise."),
    ] = None,
    cluster: Cluster = None,
    output: Annotated[Path | None, typer.Option("--output", help="A .csv or .json file for the values, too.")] = None,
) -> None:
    """Release posterior probabilities or quantiles of a regression coefficient, and say what budget they spend."""
    from studies.regression.partition_table import (  # Dask arrays, which no other command need wait for
        Request,
        release_table,
    )

    if seed is not None:
        require_integer("--seed", seed, 0, 2**63 - 1)
    if output is not None and (output.suffix not in (".csv", ".json") or not output.parent.is_dir()):
        raise BadInputError(f"output must be a .csv or .json file in a folder that exists, got {output}")
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
    )
    released = release_table(table, request, seed, cluster)
    shown = make_table(*released.values.columns)
    for row in released.values.itertuples(index=False):
        shown.add_row(*(f"{value:.10g}" if isinstance(value, float) else str(value) for value in row))
    print_table(shown)
    for line in released.lines:
        say(line)
    if output is not None:
        try:
            released.write(output)
        except OSError as error:
            raise BadInputError(f"cannot write {output}: {error.strerror}; the values above are released") from error
        say(f"values: {output}")
