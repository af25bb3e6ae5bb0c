"""The commands ``regress`` and ``partition``: regressions on a user's table."""

from pathlib import Path
from typing import Annotated, Literal

from studies.commands.options import (
    TABLE,
    Budget,
    Cluster,
    Features,
    Json,
    Ledger,
    Level,
    MissingTexts,
    Plot,
    RehearsalSeed,
    Yes,
    option,
)


def regress(
    table: Annotated[str | None, TABLE] = None,
    target: Annotated[str | None, option("Response column.")] = None,
    epsilon: Annotated[float | None, option("Privacy loss of the release, in nats.")] = None,
    delta: Annotated[
        float | None, option("Release with Gaussian noise and (epsilon, delta)-DP; well below 1/n.")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        option(
            "--range",
            "COLUMN=LOW:HIGH",
            "Public range of the target and of each numeric feature, of which records may fill a tenth. Values outside "
            "are clamped, which biases coefficients: with 0.7 % of the responses clamped, 95 % intervals given 100,000 "
            "rows cover with probability 0.86.",
        ),
    ] = None,
    levels: Annotated[
        list[str] | None,
        option(
            "COLUMN=A,B",
            "Public levels of a column, compared with its cells as the values of count --where. The first is the "
            "reference, and values that are not listed count as it, unless 'other' is the last level.",
        ),
    ] = None,
    guesses: Annotated[
        list[str] | None,
        option(
            "--guess",
            "COLUMN=LOW:HIGH",
            "Public guess of the part of its range over which a column is spread, or COLUMN=P of the share of a level "
            "or of ones; it narrows the forecast of widths, on which a refusal depends.",
        ),
    ] = None,
    method: Annotated[
        str,
        option("normal-covariates, noise-aware, or, for clamped normal columns without --levels, data-augmentation."),
    ] = "normal-covariates",
    missing: Annotated[
        Literal["refuse", "drop"],
        option(
            "Rows with missing cells: refuse the table, or drop them; the number of complete rows is then public, and "
            "neighbours have the same missing rows."
        ),
    ] = "refuse",
    level: Level = 0.95,
    release: Annotated[
        Path | None,
        option(
            "File with a release that --json printed, or --output FILE.json wrote; infer from it, and spend nothing."
        ),
    ] = None,
    output: Annotated[Path | None, option("File for the results, .json, .csv or .nc.")] = None,
    features: Features = None,
    na: MissingTexts = None,
    plot: Plot = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    rehearsal: RehearsalSeed = None,
    json: Json = False,
    cluster: Cluster = None,
) -> None:
    """Release private regression coefficients with intervals.

    A forecast of their widths is printed before. If the release does not resolve the error, its interval is an upper
    bound. If it does not resolve the spread of a feature, intervals rest on the prior, and a line says so.
    """
    from studies.own_data.option_groups import BudgetOptions, ColumnOptions, OutputOptions
    from studies.own_data.regression import RegressionOptions, answer_regression  # needs Dask arrays

    answer_regression(
        RegressionOptions(
            columns=ColumnOptions(table, target, features, na),
            epsilon=epsilon,
            delta=delta,
            ranges=ranges,
            levels=levels,
            guesses=guesses,
            method=method,
            missing=missing,
            level=level,
            release=release,
            cluster=cluster,
            budget=BudgetOptions(ledger, budget, yes, rehearsal),
            output=OutputOptions(json=json, plot=plot, path=output),
        )
    )


def partition(
    table: Annotated[str, TABLE],
    target: Annotated[str, option("Response column.")],
    coefficient: Annotated[str, option("Column of the coefficient, or 'intercept'.")],
    partitions: Annotated[int, option("M", "Number of partitions of the rows.")],
    epsilon: Annotated[float, option("Privacy loss per released value, in nats; losses add up.")],
    cutoffs: Annotated[str, option("B1,B2", "Release the posterior probabilities that the coefficient is <= B.")] = "",
    probabilities: Annotated[str, option("P1,P2", "Release the posterior quantiles at probabilities P.")] = "",
    method: Annotated[str | None, option("Method; by default normality-corrected, or quantile-centred.")] = None,
    no_intercept: Annotated[bool, option("--no-intercept", "Omit the intercept.")] = False,
    prior: Annotated[
        str,
        option(
            "NAME[:X]",
            "zellner:G (default: number of rows), flat, conjugate:V or semi-conjugate:V (default variance: 1000).",
        ),
    ] = "zellner",
    error_variance: Annotated[float | None, option("Error variance, if known.")] = None,
    split: Annotated[str, option("E1:E2", "Parts of epsilon, one per step of the release of a quantile.")] = "",
    mu: Annotated[
        float | None, option("Start of the search for bounds of a quantile; by default 1, or the ratio of the ranges.")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        option(
            "--range",
            "COLUMN=LOW:HIGH",
            "Public range of the target and of the coefficient's column; give one --range for each.",
        ),
    ] = None,
    allow_failure: Annotated[
        float, option("P", "Largest allowed probability of a misplaced clipping interval; 0.01 by default.")
    ] = 0.01,
    theta: Annotated[
        float | None,
        option("Fraction of the partitions with quantiles in the bounds, for method quantile; 0.8 by default."),
    ] = None,
    output: Annotated[Path | None, option("File for the values, .csv or .json.")] = None,
    features: Features = None,
    na: MissingTexts = None,
    ledger: Ledger = None,
    budget: Budget = None,
    yes: Yes = False,
    rehearsal: RehearsalSeed = None,
    json: Json = False,
    cluster: Cluster = None,
) -> None:
    """Release posterior probabilities or quantiles of a coefficient.

    The privacy loss is printed.
    """
    from studies.own_data.option_groups import BudgetOptions, ColumnOptions, OutputOptions
    from studies.own_data.partition import answer_partition  # needs Dask arrays
    from studies.own_data.partition_request import PartitionOptions

    answer_partition(
        PartitionOptions(
            columns=ColumnOptions(table, target, features, na),
            coefficient=coefficient,
            partitions=partitions,
            epsilon=epsilon,
            cutoffs=cutoffs,
            probabilities=probabilities,
            method=method,
            no_intercept=no_intercept,
            prior=prior,
            error_variance=error_variance,
            split=split,
            mu=mu,
            ranges=ranges,
            allow_failure=allow_failure,
            theta=theta,
            cluster=cluster,
            budget=BudgetOptions(ledger, budget, yes, rehearsal),
            output=OutputOptions(json=json, path=output),
        )
    )
