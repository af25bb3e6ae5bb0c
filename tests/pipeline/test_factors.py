"""Tests of the values of factors: one canonical form for all notations, and one-line errors for invalid values."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import Measure, Method, Panel, Study
from pipeline.declare.factors import Factor, format_value
from pipeline.declare.streams import canonical_json
from pipeline.errors import BadInputError, unknown
from pipeline.store.layout.template import make_template, root_attributes
from tests.pipeline.helpers import refusal

WRITTEN = [
    ("float", 1.0, [1, 1.0, "1", "1.0", " 1e0", np.float64(1), np.float32(1), np.int64(1)]),
    ("float", 0.0, [0, "-0", -0.0]),  # so that equal values have equal random streams
    ("int", 300, [300, 300.0, "300", " 300 ", np.int64(300), np.float64(300)]),
    ("int", 2**53 + 1, [2**53 + 1, str(2**53 + 1)]),  # which floats cannot represent
    ("str", "x", ["x"]),
    ("vector", (1.0, 0.5), ["1:0.5", "1.0: 5e-1", (1, 0.5), [1.0, "0.5"], np.array([1.0, 0.5])]),
    ("vector", (0.0, 1.0), ["-0:1"]),
]
BAD = {
    "float": ["", "one", "nan", "inf", math.nan, -math.inf, None, True, [1.0], 1j, 10**400, b"\xff"],
    "int": ["", "1.5", "1e3", 1.5, math.inf, math.nan, "nan", None, False, [1], 1j],
    "str": ["", 1, None, ["x"], b"x"],
    "vector": [(), [], np.array([]), "", ":", "1:", "1:x", "1:nan", (1.0, math.inf), None, [[1.0]], [True], "1:2:one"],
}


@pytest.mark.parametrize(
    ("kind", "expected", "value"), [(kind, expected, value) for kind, expected, ways in WRITTEN for value in ways]
)
def test_canonical_form(kind, expected, value):
    cast = Factor("a", (expected,), "", kind).cast(value)
    assert cast == expected
    assert Factor("a", (value,), "", kind).values == (expected,)
    # random streams depend on the string; equality is not enough, since 1 == 1.0 == np.float64(1)
    assert canonical_json(cast) == canonical_json(expected)
    assert type(cast) is type(expected)


def test_canonical_text_distinguishes_types():
    """Without a cast, the canonical texts of 1 and 1.0 differ (negative control)."""
    assert canonical_json(1) != canonical_json(1.0)


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in BAD.items() for value in values])
def test_invalid_values_are_rejected_in_one_line(kind, value):
    valid = next(expected for written, expected, _ in WRITTEN if written == kind)
    factor = Factor("a", (valid,), "", kind)
    with refusal() as caught:
        factor.cast(value)
    assert str(caught.value).startswith("a must be ")
    assert str(caught.value).endswith(f"got {value!r}")
    assert caught.value.__cause__ is None


def test_error_message_names_the_expected_type():
    with pytest.raises(BadInputError, match=r"^n must be an integer, got '1\.5'$"):
        Factor("n", ("1.5",), "", "int")
    with pytest.raises(BadInputError, match=r"^prior must be finite numbers separated by ':', such as 1:1, got 'x'$"):
        Factor("prior", ("x",), "", "vector")


@pytest.mark.parametrize(
    ("kind", "values"),
    [("float", (1, "1.0")), ("int", (2, 3, "2")), ("vector", ("1:2", (1.0, 2.0))), ("str", ("x", "x")), ("float", ())],
)
def test_missing_values_and_duplicates_after_the_cast_are_refused(kind, values):
    expected = "distinct values, got" if values else "at least one value, got none"
    with pytest.raises(BadInputError, match=f"a must have {expected}"):
        Factor("a", values, "", kind)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((10, np.int32(20)), "int"),
        ((10, 20.0), "float"),
        (("normal", "exponential"), "str"),
        (("1", "x"), "str"),
        (("1", "2.5"), "float"),
        (((1, 1), [2, 2]), "vector"),
    ],
)
def test_type_is_inferred_from_the_values(values, kind):
    factor = Factor("a", values, "")
    assert factor == Factor("a", values, "", kind)
    assert factor.with_values(values[:1]).kind == kind
    with pytest.raises(BadInputError, match="a must be a finite number, got True"):
        Factor("a", (True,), "")


def test_values_keep_their_order():
    assert Factor("a", ("3", 1, 2.0), "").values == (3.0, 1.0, 2.0)


def test_with_values_casts_and_checks():
    factor = Factor("n", (1,), "records", "int", unit="person")
    changed = factor.with_values(["5", 6.0])
    assert changed == Factor("n", (5, 6), "records", "int", unit="person")
    with pytest.raises(BadInputError, match="n must be an integer"):
        factor.with_values([0.5])


def test_value_of_a_constant():
    assert Factor("a", (2,), "").value == 2.0
    with pytest.raises(ValueError, match="too many values"):
        _ = Factor("a", (2, 3), "").value


FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = {
    "float": FINITE,
    "vector": st.lists(FINITE, min_size=1, max_size=5).map(tuple),
    "int": st.integers(-(10**15), 10**15),
}


@given(st.sampled_from(list(VALUES)), st.data())
def test_formatted_values_are_parsed_to_equal_values(kind, data):
    value = data.draw(VALUES[kind])
    assert Factor("a", (value,), "", kind).cast(format_value(value)) == value


def test_unknown_names_suggest_similar_ones():
    assert unknown("key", "adress", ["address", "env"]) == (
        "unknown key 'adress'; did you mean address? Allowed: address, env"
    )
    assert unknown("key", "zzz", ["address"]) == "unknown key 'zzz'; allowed: address"


@pytest.mark.parametrize("name", ["../x", "a/b", "zarr.json", "", ".x", "a\nb", "a b", "x" * 101, "\ud800", None, 7])
def test_names_that_are_no_file_names_are_rejected(name):
    """Names of panels, measures, factors and dimensions are parts of paths in a store."""
    panel = {"meaning": "m", "simulate": print, "methods": (Method("a", print),), "measures": (Measure("x", "m"),)}
    declarations = [
        lambda: Factor(name, (1,), "m"),
        lambda: Measure(name, "m"),
        lambda: Panel(name, **panel),
        lambda: Panel("p", **panel, method_dim=name) if name is not None else Factor(name, (1,), "m"),
    ]
    for declare in declarations:
        with pytest.raises(BadInputError, match="must consist of 1 to 100 letters") as caught:
            declare()
        assert str(caught.value).isprintable()
    assert Factor("ε.1-b_", (1,), "m").name == "ε.1-b_"


@pytest.mark.parametrize("label", ["", "\x1b[2J", "two\nlines", "\ud800", None, b"x"])
def test_labels_with_control_characters_are_rejected(label):
    for declare in (lambda: Method(label, print), lambda: Factor("a", (label,), "m", "str")):
        with pytest.raises(BadInputError, match="control characters") as caught:
            declare()
        assert str(caught.value).isprintable()


class Pair(NamedTuple):
    one: int
    other: int


ODD = [
    None,
    2.5,
    10**9,
    True,
    b"x",
    object(),
    [1],
    {},
    Pair(1, 2),
    int,
    float("nan"),
    print,
    np.int64(3),
    np.array([3]),
    "\ud800",
]
FIELDS = {
    "Factor": ("meaning", "unit", "values", "kind", "stream_key"),
    "Measure": ("meaning", "unit", "dims", "dtype"),
    "Method": ("uses", "version", "note", "stream_key"),
    "Panel": ("meaning", "factors", "methods", "measures", "outputs", "trials", "block_trials", "version"),
    "Study": ("name", "title", "aim", "panels", "seed", "version", "claims", "figures", "papers"),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_fields_of_other_types_are_rejected_in_one_line_or_stored(kind):
    """Every value of a field is refused when it is declared, or can be written to a store."""
    refused = []
    for field, value in itertools.product(FIELDS[kind], ODD):
        changed = {name: {} for name in FIELDS} | {kind: {field: value}}
        try:
            factor = Factor(**{"name": "n", "values": (1,), "meaning": "m"} | changed["Factor"])
            measure = Measure(**{"name": "x", "meaning": "m"} | changed["Measure"])
            method = Method(**{"name": "a", "evaluate": print} | changed["Method"])
            parts = {"factors": (factor,), "methods": (method,), "measures": (measure,), "trials": 2, "simulate": print}
            panel = Panel(**{"name": "p", "meaning": "m", **parts} | changed["Panel"])
            words = {"name": "s", "title": "t", "aim": "a", "panels": (panel,), "seed": 1}
            study = Study(**words | changed["Study"]).configure()
        except BadInputError as error:
            refused.append(str(error))
        else:
            make_template(study, root_attributes(study))
    assert all(map(str.isprintable, refused))
    assert len(refused) > len(FIELDS[kind]) * len(ODD) / 2


def test_blocks_and_factors_that_are_too_large_are_rejected():
    """The memory of a block and the number of values are forecast, before they are listed."""
    parts = {"simulate": print, "methods": (Method("a", print),), "trials": 10}
    with refusal("block of panel p must take at most 536,870,912 bytes per method, got 40,0"):
        Panel("p", "m", measures=(Measure("x", "m"),), block_trials=10**9, **parts)
    with pytest.raises(BadInputError, match="level must have at most 1,000,000 values, got more"):
        Factor("level", range(10**8), "m", "int")
    outputs = (Factor("i", range(10**4), "m", "int"), Factor("j", range(10**4), "m", "int"))
    with pytest.raises(BadInputError, match="800,000,000 bytes of measures each; choose fewer"):
        Panel("p", "m", measures=(Measure("x", "m", dims=("i", "j")),), outputs=outputs, **parts)
    with pytest.raises(BadInputError, match=r"block_trials must be an integer, got 2\.5"):
        Panel("p", "m", measures=(Measure("x", "m"),), block_trials=2.5, **parts)
