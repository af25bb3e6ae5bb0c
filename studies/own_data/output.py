"""Output that all commands for own data share: the release itself, its guarantee, and figures.

The release is printed once its noise is drawn, before the posterior: as text, or as JSON if that is asked.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mechanisms.core.privacy import Guarantee
from pipeline.errors import BadInputError, unreadable_reason
from pipeline.tables.formats import require_regular
from studies.output import ERRORS, OUTPUT, OutputError, is_output_closed, print_json, say, writing

_NEAR_END = 0.8  # distance of a noisy mean from the middle of its range, in half-widths, above which a warning is due


def print_release(
    statistics: Iterable[tuple[str, float]], noise: str, as_json: bool, json_values: Mapping[str, Any]
) -> None:
    """Print the released statistics, by name, with their noise; or all that a reader needs to infer from them.

    No digit is omitted, as a release cannot be drawn again. If standard output is closed or cannot be written, such as
    on a full disk, standard error has the release, which is spent.
    """
    shown = ", ".join(f"{name} {float(statistic)!r}" for name, statistic in statistics)
    show = partial(print_json, json_values) if as_json else partial(say, f"release: {shown}; noise: {noise}")
    _print_at_once(show, f"release: {json.dumps(json_values)}")


def print_range(low: float, high: float, loss: float, is_rehearsal: bool) -> None:
    """Print a range that was found in the records, which is a release of its own; it is text also with ``--json``."""
    line = (
        f"{'rehearsed' if is_rehearsal else 'released'} range: {low!r} to {high!r}, found with --bounds-epsilon "
        f"{loss:g}; --range {low!r}:{high!r} repeats no search"
    )
    _print_at_once(partial(say, line), line)


def _print_at_once(show: Callable[[], None], line: str) -> None:
    """Print a release, or a line with it to standard error if standard output is closed or cannot be written."""
    if is_output_closed():
        ERRORS.print(line)
        return
    try:
        show()
        OUTPUT.file.flush()
    except OutputError:
        ERRORS.print(line)
        raise


@contextmanager
def keeping_release(json_values: Mapping[str, Any], is_json_printed: bool) -> Iterator[None]:
    """State how to repeat an inference that fails or is interrupted, given the printed release, which is spent.

    Standard error has the release as JSON, unless standard output has.
    """
    try:
        yield
    except BaseException as error:
        if not is_json_printed:
            ERRORS.print(f"release: {json.dumps(json_values)}")
        remedy = "the release is valid: pass its line in a file to --release FILE, which infers from it"
        if isinstance(error, ValueError):
            raise BadInputError(f"{error}; {remedy}") from error
        ERRORS.print(f"dpstudies: {remedy}")
        raise


@contextmanager
def reading_release(path: Path, source: str) -> Iterator[None]:
    """Raise BadInputError if a file cannot be read, or does not contain the release that a command prints."""
    try:
        require_regular(str(path))
        yield
    except OSError as error:
        raise BadInputError(f"cannot read {path}: {error.strerror}; give the file that {source} printed") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
        reason = "other content"
        if isinstance(error, UnicodeError | json.JSONDecodeError):
            reason = f"another file: {unreadable_reason(error)}"
        elif isinstance(error, KeyError):
            reason = f"no {error.args[0]}"
        raise BadInputError(
            f"{path} must contain the release that {source} prints, got {reason}; give the file with it"
        ) from error


def read_release(path: Path) -> dict[str, Any]:
    """Return the values of a release in a file: those of the first line with JSON, or of a file of results."""
    text = path.read_text()
    if text.startswith("{\n"):
        return json.loads(text)["release"]
    lines = [line.strip().removeprefix("release:") for line in text.splitlines()]
    return json.loads(next(line for line in lines if line.strip().startswith("{")))


def refuse_with_release(release: Path | None, **others: object) -> None:
    """Raise BadInputError if options that read or spend are given with ``--release``."""
    stated = [name for name, value in others.items() if value not in (None, [])]
    if release is not None and stated:
        raise BadInputError(
            f"{' and '.join(stated)} must be omitted with --release, which contains the question, and spends nothing; "
            "omit them"
        )


def warn_near_end(
    column: str, scaled_mean: float, noise_std: float, ends: tuple[float, float], unit: str = ""
) -> list[str]:
    """Return a warning if the noisy mean of a column, scaled so that its range is [-1, 1], is near an end of it."""
    # at a mean beyond 0.8, at least half of the values are in the outermost fifth of the range, by Markov's inequality
    if abs(scaled_mean) - 2.0 * noise_std <= _NEAR_END:
        return []
    end = f"{ends[int(scaled_mean > 0.0)]:,g} {unit}".rstrip()
    return [
        f"warning: the noisy mean of {column} is near the end {end} of its range, as if many values were outside, or "
        "the range too wide; values outside count as the end"
    ]


def state_guarantee(
    guarantee: Guarantee | None, n_rows: int, remark: str = "", drops_missing: bool = False
) -> list[str]:
    """Return the lines on the guarantee of a release, None for a rehearsal, and on its neighbouring tables."""
    stated = "none: a rehearsal with a seed is not private and must not be published; nothing is spent"
    if guarantee is not None:
        stated = f"{guarantee} ({guarantee.status.value}){remark}"
    public = f"the number of rows, {n_rows:,}, is public"
    if drops_missing:
        public = describe_dropped(n_rows)
    return [f"guarantee: {stated}", f"neighbours: one row is replaced; {public}"]


def describe_dropped(n_rows: int) -> str:
    """Return what a guarantee assumes if only complete rows are released, of which there are `n_rows`."""
    return f"rows with missing cells are dropped: n = {n_rows:,} is public, and neighbours have the same ones"


def guarantee_values(guarantee: Guarantee | None) -> dict[str, float] | None:
    """Return a guarantee as values for JSON; None for a rehearsal."""
    return None if guarantee is None else {"epsilon": guarantee.epsilon, "delta": guarantee.delta}


def write_plot(plot: Path, specification: Mapping[str, Any]) -> None:
    """Write a figure of released values as SVG or PNG."""
    from studies.figures.conversion import convert

    with writing(plot, "the values above are valid"):
        plot.write_bytes(convert("svg" if plot.suffix == ".svg" else "png", dict(specification)))
    say(f"plot: {plot}")
