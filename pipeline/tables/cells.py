"""Values of the cells of tables: text, the numbers that text stands for, and literals that are compared with cells.

A value depends on its cell only, never on the other cells of its column, and not on the version of a library.

* A cell is *missing* if it is empty, null, or NaN of a numeric type.
* A *number* is a decimal number with an optional exponent, such as ``-1.5e3``, or ``True`` or ``False``, which are 1
  and 0. It stands for the nearest double; beyond the range of doubles, for the largest or smallest one.
* A cell in *plain decimal form* has an optional minus sign, digits without leading zeros, and optionally a point with
  digits: 20 and 20.0, but neither 020, +20, 2E1 nor 2_0.
* A *literal* in plain decimal form equals the cells in plain decimal form with exactly its value, of any number of
  digits. Another literal, and one in quotes, equals the cells with its text. Surrounding spaces do not count.
* The order of cells compares the exact decimal numbers.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import pandas as pd

NOT_PUBLIC = "this message depends on the records: do not publish it"
"""Warning at the end of messages about the cells of a table, which no guarantee covers."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_BOOLEANS = {"True": "1", "TRUE": "1", "true": "1", "False": "0", "FALSE": "0", "false": "0"}
_LIST_ITEM = re.compile(r"""\s*('[^']*'|"[^"]*"|[^,]*)\s*(,|\Z)""")
_LARGEST = sys.float_info.max


class CellError(ValueError):
    """Error for a cell that cannot be read as its column is; `row` is its index in a part of the table."""

    def __init__(self, column: str, row: int, requirement: str) -> None:
        super().__init__(column, row, requirement)
        self.column, self.row, self.requirement = column, row, requirement


def parse_double(text: str) -> float | None:
    """Return the finite double that a number stands for; None for other text."""
    text = _BOOLEANS.get(text, text)
    if not _NUMBER.fullmatch(text):
        return None
    return min(max(float(text), -_LARGEST), _LARGEST)


def parse_decimal(text: str) -> Decimal | None:
    """Return the exact number; ±∞ or ±0 if its exponent has more than 18 digits; None for other text."""
    text = _BOOLEANS.get(text, text)
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        mantissa, _, exponent = text.lower().partition("e")
        sign = "-" if mantissa.startswith("-") else ""
        is_large = not exponent.startswith("-") and Decimal(mantissa) != 0
        return Decimal(sign + ("Infinity" if is_large else "0"))


def parse_numbers(words: pd.Series) -> np.ndarray:
    """Return the numbers of a column of text, NaN for missing cells; raise CellError for other text."""
    return encode_numbers(words, parse_double)


def encode_numbers(words: pd.Series, function: Callable[[str], float | None]) -> np.ndarray:
    """Return a function of the cells of a column of text, NaN for missing cells; raise CellError where it is None."""
    numbers = map_distinct(words, function)
    invalid = np.isnan(numbers) & words.notna().to_numpy()
    if invalid.any():
        raise CellError(str(words.name), int(invalid.argmax()), "a finite number")
    return numbers


def map_distinct(words: pd.Series, function: Callable[[str], float | None]) -> np.ndarray:
    """Return the values of a function of text, shape (n,), which is called once per distinct text.

    Missing cells, and values None of the function, are NaN. The texts are compared by Python, because some versions of
    pandas compare them up to a zero byte only.
    """
    is_missing = words.isna().to_numpy()
    places: dict[str, int] = {}
    codes = np.fromiter((places.setdefault(word, len(places)) for word in words.tolist()), np.intp, len(words))
    values = [function(word) if isinstance(word, str) else None for word in places]
    numbers = np.array([*values, None], dtype=np.float64)  # None becomes NaN
    return numbers[np.where(is_missing, -1, codes)]


@dataclass(frozen=True)
class Literal:
    """Text that is compared with cells; `number` is its shortest plain decimal form, None if it compares as text."""

    text: str
    number: str | None = None

    @classmethod
    def parse(cls, written: str) -> "Literal":
        """Return a literal from a word, whose quotes are removed; raise ValueError if it is empty."""
        text, is_quoted = written.strip(), False
        if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
            text, is_quoted = text[1:-1].strip(), True
        if not text:
            raise ValueError(f"a value must not be empty, got {written!r}; a cell without text is missing")
        return cls(text, None if is_quoted or not _PLAIN.fullmatch(text) else _shorten(text))

    @classmethod
    def parse_list(cls, written: str) -> tuple["Literal", ...]:
        """Return the literals of a list with commas, which may stand within quotes."""
        return tuple(cls.parse(word) for word in _split(written))

    def overlaps(self, other: "Literal") -> bool:
        """Return True if there is a cell that equals both literals."""
        if self.number is None and other.number is None:
            return self.text == other.text
        first, second = (literal.number or _plain_number(literal.text) for literal in (self, other))
        return first == second


def match_literals(words: pd.Series, literals: Sequence[Literal]) -> np.ndarray:
    """Return the index of the literal that equals each cell, their number for other cells, NaN for missing ones."""
    texts = {literal.text: index for index, literal in enumerate(literals) if literal.number is None}
    numbers = {literal.number: index for index, literal in enumerate(literals) if literal.number is not None}

    def match(word: str) -> int:
        if word in texts:
            return texts[word]
        index = numbers.get(_shorten(word))
        return len(literals) if index is None or not _PLAIN.fullmatch(word) else index

    return map_distinct(words, match)


def without_markers(words: pd.Series, markers: Sequence[Literal]) -> pd.Series:
    """Return text without surrounding spaces, and None for empty cells and for those that equal a marker."""
    stripped = words.str.strip()
    stripped = stripped.where(stripped.notna() & (stripped != ""), None)
    if not markers:
        return stripped
    return stripped.where(match_literals(stripped, markers) == len(markers), None)


def _split(written: str) -> Iterator[str]:
    """Yield the words of a list, which are separated by commas that do not stand within quotes."""
    position, has_next = 0, True
    while has_next:
        item = _LIST_ITEM.match(written, position)
        assert item is not None  # every text up to a comma is an item
        yield item[1]
        position, has_next = item.end(), item[2] == ","


def _shorten(text: str) -> str:
    """Return the shortest plain decimal form of a number in plain decimal form; other text may change, too."""
    shortest = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if shortest == "-0" else shortest


def _plain_number(text: str) -> str | None:
    return _shorten(text) if _PLAIN.fullmatch(text) else None
