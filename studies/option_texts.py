"""Values of options from their texts, with the checks that need nothing else."""

from collections.abc import Collection
from decimal import Decimal
from typing import Any, Literal

from pipeline.declare.factors import Factor, require_integer
from pipeline.errors import BadInputError


def split_names(names: list[str] | None) -> list[str]:
    """Return the names given by a repeatable option, split at commas."""
    return [name.strip() for listed in names or [] for name in listed.split(",")]


def split_features(features: str | None) -> tuple[str, ...] | None:
    """Return the columns given by ``--features``; None without this option."""
    return None if features is None else tuple(filter(None, split_names([features])))


def parse_assignments(assignments: list[str] | None, form: str, twice: str) -> dict[str, str]:
    """Return the values given by a repeatable option, by name; `twice` is the remedy for a repeated name."""
    values: dict[str, str] = {}
    for assignment in assignments or []:
        name, equals, text = assignment.partition("=")
        if not equals or not name or not text:
            raise BadInputError(f"a value must be given as {form}, got {assignment!r}")
        if name in values:
            raise BadInputError(f"{name} is given twice; {twice.format(name)}")
        values[name] = text
    return values


def parse_numbers(name: str, text: str, kind: Literal["float", "vector"] = "float") -> tuple[float, ...]:
    """Return the numbers of an option, separated by commas or, in a vector, by colons; none for an empty list."""
    if not text and kind == "float":
        return ()
    values: Any = Factor(name, tuple(text.split(",")) if kind == "float" else (text,), "", kind).values
    return values if kind == "float" else values[0]


def parse_column_numbers(
    name: str, words: list[str] | None, form: str, example: str, sizes: Collection[int] = (2,)
) -> dict[str, tuple[float, ...]]:
    """Return the numbers of a repeatable option of the form ``COLUMN=LOW:HIGH`` by column."""
    values: dict[str, tuple[float, ...]] = {}
    for word in words or []:
        column, _, ends = word.rpartition("=")
        numbers = find_numbers(ends) if column else ()
        if len(numbers) not in sizes or column in values:
            raise BadInputError(
                f"{name} must have the form {form}, with finite numbers such as 1000 or -0.5, once per column, got "
                f"{word!r}; e.g. {example}"
            )
        values[column] = numbers
    return values


def parse_ranges(words: list[str] | None) -> dict[str, tuple[float, float]]:
    """Return public ranges by column from words such as ``income=0:100000``."""
    ranges = parse_column_numbers("range", words, "COLUMN=LOW:HIGH", "income=0:100000")
    return {column: (low, high) for column, (low, high) in ranges.items()}


def find_numbers(text: str) -> tuple[float, ...]:
    """Return the finite numbers of a text, separated by colons; none if the text has another form."""
    try:
        return parse_numbers("numbers", text, "vector")
    except BadInputError:
        return ()


def require_level(level: float) -> None:
    """Raise BadInputError unless the ends of an interval with a probability are quantiles in (0, 1)."""
    if not 0.0 < level < (1.0 + level) / 2.0 < 1.0:  # the ends are rounded
        raise BadInputError(f"level must be in (0, 1) and not round to 1, got {level!r}; choose e.g. 0.95")


def format_level(level: float) -> str:
    """Return the probability of intervals in percent, with all of its digits."""
    return f"{(100 * Decimal(repr(level))).normalize():f} %"


def require_seed(seed: int | None) -> None:
    """Raise BadInputError unless a seed is a non-negative integer of 63 bits, or None."""
    if seed is not None:
        require_integer("--seed", seed, 0, 2**63 - 1)
