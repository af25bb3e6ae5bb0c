"""The command ``benchmark``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.declare.method_files import find_method
from pipeline.errors import command
from studies.commands.options import (
    AllowFailures,
    Seed,
    TimeLimit,
    Trials,
    argument,
    option,
    path_word,
    require_persistent,
)
from studies.output import ERRORS, fail, print_table, say, writing

_SCALE = "quick, or full: all trials and values of the studies."


def benchmark(
    method: Annotated[str, argument("METHOD", "A file FILE.py or FILE.py:NAME, see 'new'.", callback=path_word)],
    store: Annotated[str, option("DIR", "Folder for the stores and the page.", callback=require_persistent)],
    scale: Annotated[Literal["quick", "full"], option(_SCALE)] = "quick",
    reference: Annotated[
        str | None, option("DIR", "Folder with stores of other methods, which are paired by trial.")
    ] = None,
    recompute: Annotated[bool, option("--recompute", "Compute all methods; read no shipped results.")] = False,
    study: Annotated[list[str] | None, option("STUDY", "Only this study; may be repeated.")] = None,
    trials: Trials = None,
    seed: Seed = None,
    time_limit: TimeLimit = None,
    allow_failures: AllowFailures = False,
) -> None:
    """Rank your method among others, in all studies of its kind.

    One page has the ranks, and tests of its calibration. The exit code is 1 if the method is not calibrated, fails in
    a trial, or breaks its guarantee.
    """
    from studies.benchmark.computation import plan_benchmark
    from studies.benchmark.page import (
        require_own_page,
        state_failures,
        state_guarantee,
        state_verdict,
        write_benchmark,
    )
    from studies.benchmark.run import compute, describe_runs
    from studies.benchmark.tables import list_own_ranks, state_sensitivity
    from studies.folders import store_path

    file = find_method(method)
    runs, omitted = plan_benchmark(
        file, store, scale, reference, study or (), trials, seed, recompute, allow_failures, time_limit
    )
    own = file.load()
    page = Path(store, f"benchmark-{own.name}.html")
    require_own_page(page, store)
    computed = {run.name for run in runs}
    for name in dict.fromkeys(panel.study for panel in omitted if panel.study not in computed):
        say(f"{own.name} supports no cell of {name} at {scale} scale")
    for run in runs:
        if run.not_shipped:
            ERRORS.print(f"{run.name}: other methods are computed as well, since {run.not_shipped}")
    try:
        results = compute(runs, own.kind)
    except KeyboardInterrupt:
        words = [
            ("--scale", scale),
            ("--reference", reference),
            ("--trials", trials),
            ("--seed", seed),
            ("--time-limit", time_limit),
            *(("--study", name) for name in study or ()),
        ]
        repeated = [word for name, value in words if value is not None for word in (name, value)]
        repeated += ["--recompute"] * recompute + ["--allow-failures"] * allow_failures
        again = command("benchmark", method, "--store", store, *repeated)
        fail(f"committed blocks are kept; continue with: {again}", 130)
        raise typer.Exit(130) from None
    with writing(page):
        write_benchmark(results, own, page, store, omitted, describe_runs(runs))
    print_table(*list_own_ranks(results))
    texts = [state_verdict(results), state_guarantee(results, own), state_failures(results)]
    for text in [*texts, *[state_sensitivity(results)] * bool(results.uniformity.tests)]:
        say(text)
    for name in dict.fromkeys(panel.compared.study for panel in results.panels if panel.own.count("failed")):
        say(f"failed trials are left out of ranks; their causes: {command('errors', store_path(store, name))}")
    say(f"page: {page}")
    is_good = results.is_calibrated and not results.n_failed and not results.has_broken_guarantee
    raise typer.Exit(0 if is_good else 1)
