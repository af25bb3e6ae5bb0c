"""The command ``regress``."""

import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipeline.errors import BadInputError
from studies.commands.releasing import parse_ranges
from studies.commands.shared import (
    Level,
    parse_values,
    print_table,
    require_file,
    require_level,
    say,
    split_names,
    takes,
    writing,
)
from studies.commands.spending import confirm, open_account, write_plot


@takes("plot", "ledger", "budget", "yes", "rehearsal", "cluster")
def regress(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="A table: .zarr, .parquet, .csv or .csv.gz.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Response column.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy loss of the release, in nats.")] = None,
    delta: Annotated[float | None, typer.Option(help="Release with Gaussian noise and (epsilon, delta)-DP.")] = None,
    features: Annotated[
        str | None, typer.Option(metavar="A,B", help="Explanatory columns; all others by default.")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="COLUMN=LOW:HIGH",
            help="Public range of the target and of each numeric feature; values outside are clamped.",
        ),
    ] = None,
    levels: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=A,B", help="Public levels of a column of text; others count as 'other'."),
    ] = None,
    method: Annotated[str, typer.Option(help="auto, normal-covariates, noise-aware or data-augmentation.")] = "auto",
    missing: Annotated[
        Literal["refuse", "drop"],
        typer.Option(help="Rows with missing values: refuse the table, or drop them; n is then public."),
    ] = "refuse",
    level: Level = 0.95,
    release: Annotated[
        Path | None, typer.Option(help="File with a printed release; infer from it, and spend nothing.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File for the results, .json, .csv or .nc.")] = None,
    **given: Any,
) -> None:
    """Release private regression coefficients with intervals, after a forecast of their widths."""
    import numpy as np

    from mechanisms.regression.private_regression import regression_from_release
    from studies.regression.regression_table import (  # imported here, because it needs Dask arrays
        RegressionRequest,
        dump_release,
        load_release,
        prepare,
        release_regression,
        specify_intervals,
        write_posterior,
    )

    require_level(level)
    seed = given["rehearsal"]
    account = open_account(given["ledger"], given["budget"], seed)
    require_file("output", output, ".json", ".csv", ".nc")
    require_file("plot", given["plot"], ".svg", ".png")
    if release is not None:
        if table is not None or seed is not None or account.ledger is not None:
            raise BadInputError(
                "a table, --seed and --ledger must be omitted with --release, which contains the columns, and spends "
                "nothing; omit them"
            )
        released, box = load_release(release)
        chosen, rng = method, np.random.default_rng()
    else:
        if table is None or target is None or epsilon is None:
            raise BadInputError("a table, --target and --epsilon must be given, or --release; see --help")
        request = RegressionRequest(
            target,
            epsilon,
            None if features is None else tuple(filter(None, split_names([features]))),
            delta,
            parse_ranges(ranges or []),
            {name: tuple(given) for name, given in parse_values(levels).items()},
            method,
            missing == "drop",
            level,
        )
        prepared = prepare(table, request, given["cluster"], rehearsal=seed is not None)
        box, chosen = prepared.box, prepared.method
        account.check(prepared.guarantee)
        _show_forecast(prepared, seed is not None)
        what = f"regression of {target} from {table}"
        if seed is None and not given["yes"]:
            confirm(f"Release the {what}, with a privacy loss of {prepared.guarantee}?")
        entry = account.entry(prepared.guarantee, what)
        released, rng, n_dropped = release_regression(prepared, seed, entry)
        say(f"release: {dump_release(released, box)}")
        if n_dropped:
            say(f"{n_dropped:,} rows with missing values were dropped; n = {released.n:,} is public")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            posterior = regression_from_release(rng, released, box, chosen)
    except ValueError as error:
        raise BadInputError(f"{error}; the release is valid: pass its line in a file to --release") from error
    coefficients = posterior.to_dict(level)["coefficients"]
    rows = ((name, *(f"{value:.4g}" for value in values.values())) for name, values in coefficients.items())
    print_table(("coefficient", "mean", "sd", "low", "high"), rows)
    say(f"{100 * level:g} % intervals, n = {released.n:,}, {posterior.method}, {released.noise.name} noise")
    for one in caught:
        say(f"warning: {one.message}")
    if released.guarantee is None:
        say("rehearsal: noise from a seed does not protect real data; do not publish these values")
    else:
        say(f"guarantee of the release: {released.guarantee} ({released.guarantee.relation.value})")
    for line in account.lines() if release is None else ():
        say(line)
    if output is not None:
        with writing(output, "the values above are released"):
            write_posterior(posterior, output, level)
        say(f"values: {output}")
    if given["plot"] is not None:
        write_plot(given["plot"], specify_intervals(posterior, level))


def _show_forecast(prepared, rehearsal: bool) -> None:  # type: ignore[no-untyped-def]
    """Print the guarantee and the expected widths, which are public."""
    verb = "a release would spend" if rehearsal else "the release spends"
    say(f"{prepared.table.rows.shape[0]:,} rows; {verb} {prepared.guarantee}, {prepared.noise.name} noise")
    widths = zip(("intercept", *prepared.box.names[:-1]), prepared.expected, strict=False)
    shown = ", ".join(f"{name} {width:.3g}" for name, width in widths)
    say(f"expected widths of {100 * prepared.request.level:g} % intervals: {shown}")
