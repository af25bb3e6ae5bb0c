"""Values of published tables: their noise and formats, stated per row in columns or once for the whole file."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from mechanisms.core.noise import EXACT, Exact, Noise
from mechanisms.tables import RandomRounded, Rounded, SmallRounded, Suppressed
from mechanisms.tables.likelihoods import Seen
from pipeline.errors import BadInputError, suggest, unknown
from pipeline.tables.cells import map_distinct, parse_decimal, parse_double

_SCALES: dict[str, Callable[[float], float]] = {
    "gaussian": math.sqrt,
    "discrete-gaussian": math.sqrt,
    "laplace": lambda variance: math.sqrt(0.5 * variance),
    "geometric": lambda variance: 0.5 / math.asinh(1.0 / math.sqrt(2.0 * variance)),
}
"""Scale of the noise as a function of its variance: 2·scale² for Laplace and 1/(2·sinh²(1/(2·scale))) for geometric."""

_TINY = sys.float_info.min  # stands for positive numbers that underflow
_MAKERS: dict[str, Callable[[float], Seen]] = {
    "suppressed": Suppressed,
    "rounded": lambda base: Rounded(_integer(base)),
    "random-rounded": lambda base: RandomRounded(_integer(base)),
    "small-rounded": lambda base: SmallRounded(_integer(base)),
}
GRAMMAR = "value, clipped, suppressed:T, rounded:B, random-rounded:B or small-rounded:B"
"""Texts of formats, with the threshold T of published values and the base B of rounding."""


class Published(NamedTuple):
    """Published values with their formats and noise, one entry per row."""

    values: np.ndarray  # NaN if blank
    seen: list[Seen]
    noise: list[Noise | Exact | None]  # None if not measured
    variance: np.ndarray  # of the noise; NaN if not measured

    def without(self, rows: np.ndarray) -> Published:
        """Return the values with those of some rows as not measured."""
        return Published(
            np.where(rows, np.nan, self.values),
            ["value" if row else form for form, row in zip(self.seen, rows, strict=True)],
            [None if row else kind for kind, row in zip(self.noise, rows, strict=True)],
            np.where(rows, np.nan, self.variance),
        )


def _integer(number: float) -> int:
    if number != math.floor(number) or abs(number) > 2.0**52:
        raise ValueError(
            f"base must be an integer of at most 2**52, got {number:g}; pass the base to which values are rounded"
        )
    return int(number)


def parse_format(text: str) -> Seen | None:
    """Return the format that a text states; None if it states none."""
    if text in ("value", "clipped"):
        return text
    name, colon, number = text.partition(":")
    value = parse_double(number)
    if name not in _MAKERS or not colon or value is None:
        return None
    try:
        return _MAKERS[name](value)
    except ValueError as error:
        raise BadInputError(f"format {text}: {error}") from None


def read_published(
    frame: pd.DataFrame, value: str, noise: str, stated: dict[str, str | float | None], seen: str | None,
    taken: Sequence[str],
) -> Published:  # fmt: skip
    """Return the values of a column, with noise from `stated`, a variance, sd or epsilon, and formats from `seen`.

    The column ``seen`` has formats by default, unless it is `taken`.
    """
    if noise not in _SCALES:
        raise BadInputError(unknown("noise", noise, _SCALES))
    numbers = read_numbers(frame[value], value)
    formats = _formats(frame, "seen" if seen is None and "seen" in frame.columns and "seen" not in taken else seen)
    is_random = np.array([isinstance(form, RandomRounded | SmallRounded) for form in formats], bool)
    is_suppressed = np.array([isinstance(form, Suppressed) for form in formats], bool)
    is_measured = ~np.isnan(numbers) | is_suppressed
    if not is_measured.any():
        raise BadInputError(f"{value} must be given for at least one cell, got none; check the column")
    name, amounts, texts = _amounts(frame, stated, bool(is_random[is_measured].all()))
    _check_amounts(name, amounts, texts, is_measured & ~is_random)
    amounts = np.where(np.isnan(amounts) & is_random, 0.0, amounts)
    kinds = {amount: _noise(noise, name, amount) for amount in np.unique(amounts[is_measured])}
    noises = [kinds[amount] if measured else None for amount, measured in zip(amounts, is_measured, strict=True)]
    variance = amounts**2 if name == "sd" else 2.0 / np.square(amounts) if name == "epsilon" else amounts
    return Published(numbers, formats, noises, np.where(is_measured, variance, np.nan))


def _formats(frame: pd.DataFrame, seen: str | None) -> list[Seen]:
    """Return the format of each row, by a column, or one for all."""
    if seen is not None and not isinstance(seen, str):
        raise BadInputError(f"seen must be {GRAMMAR}, or a column, got {seen!r}; pass it as text")
    if seen is not None and seen not in frame.columns:
        form = parse_format(seen)
        if form is None:
            columns = ", ".join(map(str, frame.columns))
            raise BadInputError(f"seen must be {GRAMMAR}, or a column, got {seen}; columns are {columns}")
        return [form] * len(frame)
    if seen is None:
        return ["value"] * len(frame)
    text = frame[seen].astype(object).where(frame[seen].notna(), "").astype(str).str.strip()
    known = {cell: parse_format(cell or "value") for cell in text.unique()}
    bad = np.array([known[cell] is None for cell in text])
    refuse(seen, bad, text.to_numpy(), f"{GRAMMAR}, or blank", "blank is value")
    return [known[cell] or "value" for cell in text]


def _amounts(
    frame: pd.DataFrame, stated: dict[str, str | float | None], is_random: bool
) -> tuple[str, np.ndarray, str | list[str]]:
    """Return how the noise is stated, the number of each row, and their texts, or that of one number for all."""
    named = {name: statement for name, statement in stated.items() if statement is not None}
    if len(named) > 1:
        raise BadInputError(f"noise must be stated once, got {' and '.join(named)}; pass one of them")
    if not named and is_random and "variance" not in frame.columns:
        return "variance", np.zeros(len(frame)), "0"
    name, statement = next(iter(named.items()), ("variance", "variance"))
    if isinstance(statement, str) and statement in frame.columns:
        return name, read_numbers(frame[statement], statement, _parse_amount), frame[statement].astype(str).tolist()
    if not isinstance(statement, str | int | float | np.number):
        raise BadInputError(f"{name} must be a column or a number, got {statement!r}; pass the name of a column")
    number = _parse_amount(statement.strip()) if isinstance(statement, str) else float(statement)
    columns = ", ".join(map(str, frame.columns))
    if number is None and not named:
        raise BadInputError(
            f"the noise must be stated, got no column variance among {columns}; give variance, sd or epsilon as a "
            "column or a number, variance 0 for exact counts"
        )
    if number is None or not math.isfinite(number):
        hint = suggest(str(statement), list(map(str, frame.columns)), most=1)
        raise BadInputError(
            f"{name} must be a column or a finite number such as 1000 or 0.5, got {str(statement)!r}; {hint}columns "
            f"are {columns}"
        )
    return name, np.full(len(frame), number), str(statement)


def _parse_amount(text: str) -> float | None:
    """Return the finite double that a number stands for; it is 0 only if the number is."""
    number = parse_double(text)
    if number == 0.0 and parse_decimal(text):  # underflow
        return -_TINY if text.startswith("-") else _TINY
    return number


def _check_amounts(name: str, amounts: np.ndarray, texts: str | list[str], is_needed: np.ndarray) -> None:
    """Raise BadInputError for numbers that state no noise."""
    refuse(name, is_needed & np.isnan(amounts), texts, "given for a value", "add it")
    if name == "epsilon":
        allowed = (amounts >= 1e-12) & (amounts <= 1e60) | np.isnan(amounts)
        refuse(name, ~allowed, texts, "from 1e-12 to 1e60", "state exact counts by variance 0")
        return
    refuse(name, amounts < 0.0, texts, ">= 0", "0 states an exact count")
    least, most = (1e-50, 1e12) if name == "sd" else (1e-100, 1e24)
    refuse(name, amounts > most, texts, f"at most {most:g}", "check the units")
    refuse(name, (amounts > 0.0) & (amounts < least), texts, f"0 or >= {least:g}", "check the units")


def _noise(noise: str, name: str, amount: float) -> Noise | Exact:
    """Return the distribution with a variance, a standard deviation, or, of Laplace and geometric noise, 1/epsilon."""
    if name == "epsilon":
        if noise not in ("laplace", "geometric"):
            raise BadInputError(f"noise must be laplace or geometric with epsilon, got {noise}; pass sd or variance")
        return Noise(noise, 1.0 / amount)
    if amount == 0.0:
        return EXACT
    return Noise(noise, _SCALES[noise](amount * amount if name == "sd" else amount))


def read_numbers(column: pd.Series, name: str, parse: Callable[[str], float | None] = parse_double) -> np.ndarray:
    """Return a column as numbers, NaN if blank; the number of a cell does not depend on other cells."""
    text = column.astype(str).str.strip()
    blank = column.isna().to_numpy() | (text == "").to_numpy()
    numbers = np.where(blank, np.nan, map_distinct(text, parse))
    refuse(name, ~blank & ~np.isfinite(numbers), column.to_numpy(), "a finite number or blank", "correct it")
    return numbers


def refuse(name: str, is_bad: np.ndarray, given: np.ndarray | Sequence[str], allowed: str, remedy: str) -> None:
    """Raise BadInputError for the first marked row; `given` has a value per row, or is one text for all rows."""
    if is_bad.any():
        row = int(np.argmax(is_bad))
        shown = given if isinstance(given, str) else f"{given[row]!s} in data row {row + 1}"
        raise BadInputError(f"{name} must be {allowed}, got {shown}; {remedy}")
