"""The commands ``regress`` and ``partition``: regressions on a user's table."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pipeline.errors import BadInputError
from studies.commands.options import (
    TABLE,
    Level,
    format_level,
    load_cluster,
    option,
    parse_assignments,
    parse_column_numbers,
    parse_numbers,
    require_level,
    split_features,
    takes,
)
from studies.commands.output import print_table, require_file, say, writing
from studies.commands.spending import RELEASE, open_account, write_plot

if TYPE_CHECKING:
    from studies.regression.regression_table import Prepared


@takes("features", "na", "plot", *RELEASE, "cluster")
def regress(
    table: Annotated[str | None, TABLE] = None,
    target: Annotated[str | None, option("Response column.")] = None,
    epsilon: Annotated[float | None, option("Privacy loss of the release, in nats.")] = None,
    delta: Annotated[float | None, option("Release with Gaussian noise and (epsilon, delta)-DP.")] = None,
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
    method: Annotated[str, option("auto, normal-covariates, noise-aware or data-augmentation.")] = "auto",
    missing: Annotated[
        Literal["refuse", "drop"],
        option(
            "Rows with missing cells: refuse the table, or drop them; the number of complete rows is then public, and "
            "neighbours have the same missing rows."
        ),
    ] = "refuse",
    level: Level = 0.95,
    release: Annotated[Path | None, option("File with a printed release; infer from it, and spend nothing.")] = None,
    output: Annotated[Path | None, option("File for the results, .json, .csv or .nc.")] = None,
    **given: Any,
) -> None:
    """Release private regression coefficients with intervals, after a forecast of their widths.

    If the release does not resolve the error, its interval is an upper bound. If it does not resolve the spread of a
    feature, intervals rest on the prior, and a line says so.
    """
    import numpy as np

    from mechanisms.regression.private_regression import regression_from_release
    from studies.own_data.private_table import parse_markers
    from studies.regression.regression_table import (  # needs Dask arrays
        describe_neighbours,
        dump_release,
        load_release,
        prepare,
        release_regression,
        specify_intervals,
        write_posterior,
    )

    require_level(level)
    seed = given["rehearsal"]
    account = open_account(given)
    kept = (table, release, given["ledger"])
    require_file("output", output, ".json", ".csv", ".nc", kept=kept)
    require_file("plot", given["plot"], ".svg", ".png", kept=kept)
    if release is not None:
        if table is not None or seed is not None or account.ledger is not None:
            raise BadInputError(
                "a table, --seed and --ledger must be omitted with --release, which contains the columns, and spends "
                "nothing; omit them"
            )
        released, box, drops_missing = load_release(release)
        chosen, rng = method, np.random.default_rng()
    else:
        if table is None or target is None or epsilon is None:
            raise BadInputError("a table, --target and --epsilon must be given, or --release; see --help")
        prepared = prepare(
            table,
            target,
            split_features(given["features"]),
            ranges=_parse_ranges(ranges),
            levels=parse_assignments(levels, "NAME=V1,V2", "list its values once, as {}=V1,V2"),
            guesses=_parse_guesses(guesses),
            markers=parse_markers(given["na"]),
            epsilon=epsilon,
            delta=delta,
            method=method,
            level=level,
            cluster=load_cluster(given["cluster"]),
            rehearsal=seed is not None,
            drops_missing=missing == "drop",
        )
        box, chosen = prepared.box, prepared.method
        what = f"regression of {target} from {table}" + (", complete rows only" if missing == "drop" else "")
        checked = account.release(prepared.guarantee, what)
        _show_forecast(prepared, level, seed is not None)
        account.confirm(what, prepared.guarantee)
        drops_missing = missing == "drop"
        released, rng = release_regression(prepared, drops_missing, checked)
        say(f"release: {dump_release(released, box, drops_missing)}")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            posterior = regression_from_release(rng, released, box, chosen)
    except ValueError as error:
        raise BadInputError(f"{error}; the release is valid: pass its line in a file to --release") from error
    values = posterior.to_dict(level)
    rows = (
        (name, *(f"{number:.4g}" for number in numbers.values())) for name, numbers in values["coefficients"].items()
    )
    print_table(("coefficient", "mean", "sd", "low", "high"), rows)
    if values["error_bound"] is not None:
        bound = f"{values['error_bound']:.4g} ({format_level(level)})"
        say(f"standard deviation of the error <= {bound}: the release does not resolve it")
    if posterior.unresolved_features:
        names = ", ".join(posterior.unresolved_features)
        say(
            f"the release does not resolve the spread of {names}: intervals of the slopes rest on the prior, and are "
            "too narrow if a range is 30 times too wide"
        )
    say(f"{format_level(level)} intervals, n = {released.n:,}, {posterior.method}, {released.noise.name} noise")
    for one in caught:
        say(f"warning: {one.message}")
    if released.guarantee is None:
        say("rehearsal: noise from a seed does not protect real data; do not publish these values")
    else:
        say(f"guarantee of the release: {released.guarantee} ({describe_neighbours(released, drops_missing)})")
    for line in account.lines() if release is None else ():
        say(line)
    if output is not None:
        with writing(output, "the values above are released"):
            write_posterior(posterior, output, level, drops_missing)
        say(f"values: {output}")
    if given["plot"] is not None:
        write_plot(given["plot"], specify_intervals(posterior, level, drops_missing))


@takes("features", "na", *RELEASE, "cluster")
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
    **given: Any,
) -> None:
    """Release posterior probabilities or quantiles of a regression coefficient, and print the privacy loss."""
    from studies.own_data.private_table import parse_markers
    from studies.regression.partition_table import Request, release_table  # needs Dask arrays

    require_file("output", output, ".csv", ".json", kept=(table, given["ledger"]))
    account = open_account(given)
    request = Request(
        target=target,
        coefficient=coefficient,
        n_partitions=partitions,
        epsilon=epsilon,
        cutoffs=parse_numbers("cutoffs", cutoffs),
        probabilities=parse_numbers("probabilities", probabilities),
        method=method,
        features=split_features(given["features"]),
        intercept=not no_intercept,
        prior=prior,
        error_variance=error_variance,
        split=parse_numbers("split", split, "vector") if split else (),
        start=mu,
        share=theta,
        ranges=_parse_ranges(ranges),
        allowed_failure=allow_failure,
        markers=parse_markers(given["na"]),
    )
    guarantee, noise = request.guarantee(), request.describe_noise()
    if guarantee is not None:
        account.check(guarantee)
    what = f"partition of {table}, coefficient {coefficient} of {target}"
    released = release_table(
        table,
        request,
        account.seed,
        load_cluster(given["cluster"]),
        ledger=account.ledger and account.ledger.with_label(what),
        confirm=lambda: account.confirm(what, guarantee, f"{noise}\n"),
    )
    print_table(released.values.columns, released.formatted())
    for line in (*released.lines, noise, *account.lines()):
        say(line)
    if output is not None:
        with writing(output, f"the values above are {'rehearsed' if released.rehearsal else 'released'}"):
            released.write(output)
        say(f"values: {output}")


def _parse_ranges(words: list[str] | None) -> dict[str, tuple[float, float]]:
    """Return public ranges by column from words such as ``income=0:100000``."""
    ranges = parse_column_numbers("range", words, "COLUMN=LOW:HIGH", "income=0:100000")
    return {column: (low, high) for column, (low, high) in ranges.items()}


def _parse_guesses(words: list[str] | None) -> dict[str, tuple[float, float] | float]:
    """Return public guesses by column from words such as ``age=20:70`` or ``smoker=0.2``."""
    guesses = parse_column_numbers("guess", words, "COLUMN=LOW:HIGH or COLUMN=P", "age=20:70", sizes=(1, 2))
    return {column: ends[0] if len(ends) == 1 else (ends[0], ends[1]) for column, ends in guesses.items()}


def _show_forecast(prepared: "Prepared", level: float, is_rehearsal: bool) -> None:
    """Print the guarantee and the expected widths, which are public."""
    verb = "a release would spend" if is_rehearsal else "the release spends"
    say(f"{prepared.n_rows:,} rows; {verb} {prepared.guarantee}, {prepared.noise.name} noise")
    names, ends = ("intercept", *prepared.box.names[:-1]), (prepared.forecast.low, prepared.forecast.high)
    shown = ", ".join(
        f"{name} {low:.3g}" + (f" to {high:.3g}" if f"{high:.3g}" != f"{low:.3g}" else "")
        for name, low, high in zip(names, *ends, strict=True)
    )
    say(f"expected widths of {format_level(level)} intervals: {shown}")
    say(f"they assume {prepared.forecast.assumptions}")
