"""Tests of the numbers, the order and the equality of cells of text, which depend on each cell only."""

import random
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import BadInputError
from pipeline.tables.cells import (
    CellError,
    Literal,
    encode_numbers,
    match_literals,
    parse_decimal,
    parse_double,
    parse_numbers,
    without_markers,
)
from pipeline.tables.formats import Columns, find_parts, find_source, read_part

NUMBERS = (
    *("0", "-0", "1", "+1", "1.0", "01", "007", ".5", "5.", "1e3", "1E-3", "2E1", "0.1", "1e-161", "-1e140"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1" + 30 * "0"),
    *("4.9e-324", "2e-324", "1.7976931348623157e308", "1.8e308", "1e400", "-1e400", "9" * 400, "1e-400", "0e99999"),
    *("1e99999999999999999999", "-1e99999999999999999999", "1e-99999999999999999999", "True", "false", " 3 ", "\t4\t"),
)
TEXTS = (
    "x",
    "NA",
    "None",
    "null",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1_0",
    "0x10",
    "1d5",
    "1 2",
    "--1",
    "e5",
    "1e",
    "１",
)


def numbers_of(tmp_path, column):
    """Return the numbers that a table with one column of these cells contains, as read in one part."""
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{cell},1\n" for cell in column))
    source = find_source(str(tmp_path / "t.csv"))
    (part,) = find_parts(source, "t.csv", ["a", "b"])
    return read_part(source, "t.csv", part, Columns(("a", "b")))[:, 0]


@pytest.mark.parametrize("cell", NUMBERS)
def test_number_is_the_nearest_double_within_the_range_of_doubles(tmp_path, cell):
    exact = Fraction(0)
    if "99999" not in cell and cell not in ("True", "false"):
        exact = Fraction(cell.strip())
        nearest = exact.numerator / exact.denominator if abs(exact) < 10**308 else None
        if nearest is not None:
            assert parse_double(cell.strip()) == nearest
    number = parse_double(cell.strip())
    assert abs(number) <= sys.float_info.max
    (read,) = numbers_of(tmp_path, [cell])
    assert read == number


@pytest.mark.slow
def test_number_of_a_cell_does_not_depend_on_the_other_cells(tmp_path):
    """Columns of integers, of floats, of Booleans and of huge numbers are read by different paths of pandas."""
    order = random.Random(1)
    alone = {cell: numbers_of(tmp_path, [cell])[0] for cell in NUMBERS}
    for size in (2, 2, 2, 3, 5, len(NUMBERS)):
        for _ in range(40):
            column = order.sample(NUMBERS, size)
            assert numbers_of(tmp_path, column).tolist() == [alone[cell] for cell in column]


@pytest.mark.parametrize("text", TEXTS)
def test_text_in_a_column_of_numbers_is_refused_without_it(tmp_path, text):
    for column in ([text], ["1", text, "2.5"], ["True", text]):
        with pytest.raises(BadInputError) as caught:
            numbers_of(tmp_path, column)
        place = f"column 'a' must be a finite number, got something else in data row {column.index(text) + 1}; "
        assert place in str(caught.value)
        assert (
            text not in str(caught.value).replace("data row", "").replace("else", "").replace("1,000", "")
            or len(text) == 1
        )
        assert caught.value.__cause__ is None


@given(st.lists(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers())), st.integers(0, 2**70))
def test_numbers_and_their_order_are_exact(values, bound):
    words = pd.Series([repr(value) for value in values], dtype=object, name="a")
    assert parse_numbers(words).tolist() == [
        min(max(float(Fraction(value)), -sys.float_info.max), sys.float_info.max) if abs(value) < 1e308 else value
        for value in values
    ]
    is_at_most = encode_numbers(words, lambda word: float(parse_decimal(word) <= Decimal(bound)))
    assert is_at_most.tolist() == [Fraction(repr(value)) <= bound for value in values]


@pytest.mark.parametrize(
    ("literal", "cells"),
    [
        ("20", ["20", "20.0", "20.000"]),
        ("20.0", ["20", "20.0", "20.000"]),
        ("2E1", ["2E1"]),
        ("2_0", []),
        ("020", ["020"]),
        ("+20", ["+20"]),
        ("'20'", ["20"]),
        ('"20.0"', ["20.0"]),
        ("1", ["1", "1.0"]),
        ("01", []),
        ("-0", ["0", "-0"]),
        (".5", []),
        ("0.5", ["0.50"]),
        ("9007199254740997", ["9007199254740997"]),
        ("9007199254740996", ["9007199254740996"]),
        ("0.1", ["0.1"]),
        ("NA", ["NA"]),
        ("None", ["None"]),
        ("nan", ["nan"]),
        (" north ", ["north"]),
        ("True", ["True"]),
    ],
)
def test_cells_that_equal_a_literal(literal, cells):
    words = ["20", "20.0", "20.000", "2E1", "020", "+20", "1", "1.0", "0", "-0", "0.50", "9007199254740997"]
    words += ["9007199254740996", "0.1", "0.1000000000000000055", "NA", "None", "nan", "north", "North", "True"]
    codes = match_literals(pd.Series(words), [Literal.parse(literal)])
    assert [word for word, code in zip(words, codes, strict=True) if code == 0] == cells


def test_literals_of_a_list_may_be_quoted():
    literals = Literal.parse_list("a, 'b, c' ,\"2\",2.50")
    assert [(literal.text, literal.number) for literal in literals] == [
        ("a", None),
        ("b, c", None),
        ("2", None),
        ("2.50", "2.5"),
    ]
    for empty in ("", "a,", ",a", "a,''", "a,,b"):
        with pytest.raises(ValueError, match="must not be empty"):
            Literal.parse_list(empty)


@pytest.mark.parametrize(
    ("first", "second", "overlaps"),
    [("1", "1.0", True), ("1", "'1'", True), ("1", "'1.0'", True), ("'1'", "'1.0'", False), ("1", "01", False)],
)
def test_literals_overlap_if_a_cell_equals_both(first, second, overlaps):
    pair = [Literal.parse(text) for text in (first, second)]
    assert pair[0].overlaps(pair[1]) is pair[1].overlaps(pair[0]) is overlaps
    words = pd.Series(["1", "1.0", "01"])
    both = [match_literals(words, [literal]) == 0 for literal in pair]
    assert np.logical_and(*both).any() == overlaps


def test_markers_are_literals_and_empty_cells_are_missing():
    words = pd.Series(["-9", "-9.0", " NA ", "", "  ", None, "na", "9"], dtype=object)
    assert without_markers(words, ()).isna().tolist() == [False, False, False, True, True, True, False, False]
    markers = [Literal.parse(text) for text in ("-9", "NA")]
    assert without_markers(words, markers).isna().tolist() == [True, True, True, True, True, True, False, False]


def test_error_names_the_first_invalid_cell():
    with pytest.raises(CellError) as caught:
        parse_numbers(pd.Series(["1", None, "x", "y"], name="a"))
    assert (caught.value.column, caught.value.row) == ("a", 2)


def test_words_for_true_in_another_case_are_text_whatever_the_other_cells(tmp_path):
    for column in (["tRue"] * 10, ["tRue"] * 9 + ["1"], ["fALSE", "True"]):
        with pytest.raises(BadInputError, match="in data row 1;"):
            numbers_of(tmp_path, column)
    assert numbers_of(tmp_path, ["True", "false", "1"]).tolist() == [1, 0, 1]


def test_text_is_compared_beyond_a_zero_byte():
    words = pd.Series(["a\0b", "a", "c"], dtype=object)
    assert match_literals(words, [Literal.parse("a")]).tolist() == [1, 0, 1]
    with pytest.raises(CellError):
        parse_numbers(pd.Series(["20", "20\0x"], dtype=object, name="a"))
