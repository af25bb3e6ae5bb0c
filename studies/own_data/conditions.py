"""Questions about the cells of one column: conditions, categories and bins, which are public and read no data.

`pipeline.tables.cells` defines which cells equal a literal, and their order. The question and each cell alone decide,
never other cells.
"""

import bisect
import itertools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pandas as pd

from pipeline.errors import BadInputError, as_bad_input, suggest
from pipeline.tables.cells import Literal, encode_numbers, match_literals, parse_decimal
from studies.own_data.private_table import show_names

OTHER = "other"
"""Category of the values that the user did not declare, so that they neither fail nor appear."""

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(r"""([^<>!=]+)(<=|>=|!=|==?|<|>)(\s*(?:'[^']*'|"[^"]*")\s*|[^<>=]+)""")
_EXACT = Context(prec=1_100)  # digits of sums of doubles
_LONGEST = 30  # characters of an edge in a label that is not rounded


@dataclass(frozen=True)
class Condition:
    """Condition on the cells of a column, such as ``age>=65``."""

    column: str
    sign: str  # one of <, <=, >, >=, = and !=
    literal: Literal

    @classmethod
    def parse(cls, text: str, path: str) -> "Condition":
        """Return a condition from its text; raise BadInputError for another form, with the columns of the table."""
        form = _FORM.fullmatch(text)
        if form is None:
            raise BadInputError(
                f"where must have the form COLUMN=VALUE, or !=, <, <=, >, >=, got {text!r}; e.g. 'age>=65', with a "
                f"column of {path}: {show_names(path)}"
            )
        column, sign, value = (part.strip() for part in form.groups())
        if value[:1] == "!" or (value[:1] in ("'", '"') and (len(value) < 2 or value[-1] != value[0])):
            raise BadInputError(
                f"where must have a value without ! or a quote at its start, got {text!r}; e.g. 'sex!=f'"
            )
        with as_bad_input("where"):
            literal = Literal.parse(value)
        if sign in _ORDERS and (value[0] in "'\"" or parse_decimal(literal.text) is None):
            raise BadInputError(f"where must compare with a number for {sign}, got {text!r}; e.g. 'age>=65'")
        return cls(column, "=" if sign == "==" else sign, literal)

    def encode(self, words: pd.Series) -> np.ndarray:
        """Return 1 for the cells that satisfy the condition, 0 for others and NaN for missing ones, shape (n,)."""
        if self.is_ordered:
            is_ordered, bound = _ORDERS[self.sign], parse_decimal(self.literal.text)

            def compare(word: str) -> float | None:
                number = parse_decimal(word)
                return None if number is None else float(is_ordered(number, bound))

            return encode_numbers(words, compare)
        codes = match_literals(words, [self.literal])
        return codes if self.sign == "!=" else 1.0 - codes

    @property
    def is_ordered(self) -> bool:
        """True for a condition on the order of numbers, False for one on equality."""
        return self.sign in _ORDERS

    def require_level(self, levels: Sequence[Literal]) -> None:
        """Raise BadInputError if the value equals none of the public levels of the column, which no cell decides."""
        if not self.is_ordered and not any(self.literal.overlaps(level) for level in levels):
            names = [level.text for level in levels]
            raise BadInputError(
                f"where must compare {self.column} with one of its public levels {', '.join(names)}, got "
                f"{self.literal.text}; {suggest(self.literal.text, names)}check --where and --levels"
            )

    def __str__(self) -> str:
        """Return the rule that decides about each cell."""
        if self.is_ordered:
            return f"cells of {self.column} whose exact decimal number is {self.sign} {self.literal.text}"
        cell_text = f"number {self.literal.text}, in plain decimal form"
        if self.literal.number is None:
            cell_text = f"text {self.literal.text!r}"
        return f"cells of {self.column} that {'do not equal' if self.sign == '!=' else 'equal'} the {cell_text}"


def parse_categories(name: str, given: str) -> tuple[Literal, ...]:
    """Return the public categories of a list; raise BadInputError if one cell could equal two of them."""
    with as_bad_input(name):
        literals = Literal.parse_list(given)
    for first, second in itertools.combinations(literals, 2):
        if first.overlaps(second):
            raise BadInputError(
                f"{name} must be distinct, got {first.text!r} and {second.text!r}, which equal the same cells; give "
                "each once"
            )
    return literals


def label_categories(literals: Sequence[Literal]) -> tuple[str, ...]:
    """Return the labels of categories, with one for all other values unless the user declared it."""
    labels = tuple(literal.text for literal in literals)
    return labels if OTHER in labels else (*labels, OTHER)


def encode_categories(words: pd.Series, literals: Sequence[Literal]) -> np.ndarray:
    """Return the index of the label of each cell in `label_categories`, NaN for missing cells, shape (n,)."""
    labels = label_categories(literals)
    codes = match_literals(words, literals)
    return np.where(codes == len(literals), labels.index(OTHER), codes)


def parse_edges(given: str) -> tuple[Decimal, ...]:
    """Return the ascending edges E1:E2:… of bins as exact numbers."""
    edges = tuple(parse_decimal(word.strip()) for word in given.split(":"))
    finite = [edge for edge in edges if edge is not None and _is_usual(edge)]
    if len(finite) < len(edges) or not all(a < b for a, b in itertools.pairwise(finite)):
        raise BadInputError(f"edges must be ascending numbers, such as 1000 or -0.5, got {given!r}; e.g. 0:20:40")
    return tuple(finite)


def _is_usual(edge: Decimal) -> bool:
    """Return True for a number between those of doubles with at most 300 digits, so that arithmetic is exact."""
    return edge.is_finite() and (not edge or abs(edge.adjusted()) < 330) and len(edge.as_tuple().digits) <= 300


def divide_range(low: Decimal, high: Decimal, n_bins: int) -> tuple[Decimal, ...]:
    """Return the edges of bins of equal width between the ends of a range, without rounding."""
    with localcontext(_EXACT):
        return tuple(low + (high - low) * j / n_bins for j in range(n_bins + 1))


def label_bins(edges: Sequence[Decimal]) -> tuple[str, ...]:
    """Return the labels of the bins [a, b) between edges; both outer bins are unbounded."""
    shown = _format_edges(edges)
    inner = (f"{low} to {high}" for low, high in itertools.pairwise(shown))
    return (f"< {shown[0]}", *inner, f">= {shown[-1]}")


def encode_bins(words: pd.Series, edges: Sequence[Decimal]) -> np.ndarray:
    """Return the index of the bin of each cell, whose exact number decides, NaN for missing cells, shape (n,)."""

    def find(word: str) -> float | None:
        number = parse_decimal(word)
        return None if number is None else float(bisect.bisect_right(edges, number))

    return encode_numbers(words, find)


def _format_edges(edges: Sequence[Decimal]) -> list[str]:
    """Return distinct texts of edges: all digits, or, of long ones, at least 6 significant digits."""
    exact = {edge: f"{edge.normalize(_EXACT):,f}" for edge in edges}
    rounded = (
        [text if len(text) <= _LONGEST else f"{edge:,.{n_digits}g}" for edge, text in exact.items()]
        for n_digits in itertools.count(6)
    )
    return next(texts for texts in rounded if len(set(texts)) == len(edges))
