"""Tests of the tables on a page: rows of comparisons, and verdicts on audited losses."""

import math

import pytest
import xarray as xr

from mechanisms.core.metadata import Entry
from studies.regression.page_tables import compare_coverage, compare_ranges
from studies.tables import AuditedLoss, compare_methods, duration, largest_loss, plus_minus, show_mean

REGISTRY = {name: Entry(name, origin="paper", paper="P0") for name in ("a", "b", "c")}


def summary(**means):
    """Return the summary of a panel in which the method `c` has the note that it is not private."""
    coordinate = ("algorithm", list(means), {"not_private": "c"})
    values = {f"x_{name}": ("algorithm", [number] * len(means)) for name, number in (("mean", 0.0), ("mcse", 0.01))}
    return xr.Dataset({**values, "x_mean": ("algorithm", list(means.values()))}, {"algorithm": coordinate})


def test_comparison_has_the_stored_methods_of_the_registry_in_its_order():
    columns = {
        "first": (summary(c=0.5, other=1.0, a=0.25), show_mean("x")),
        "second": (summary(a=math.nan, b=math.nan), show_mean("x")),
    }
    table = compare_methods("title", "caption", "algorithm", [REGISTRY], columns)
    assert table.heads == ("algorithm", "from", "first", "second")
    assert table.rows == [("a", "P0", "0.250 ± 0.010", ""), ("c (not private)", "P0", "0.500 ± 0.010", "")]


def test_coverage_of_regression_states_where_intervals_hold():
    """Coverage within two standard errors of 0.95 holds; sizes that a method does not have are left out."""
    covered = [[0.80, 0.93, 0.91], [0.96, 0.91, math.nan], [0.95, 0.95, 0.95]]
    summary = xr.Dataset(
        {"covered_mean": (("algorithm", "n"), covered), "covered_mcse": ((), 0.015)},
        {"algorithm": ["dp-gd", "binagg", "non-private"], "n": [10, 100, 1_000]},
    ).expand_dims(records=["inside"], track=["pure"], epsilon=[1.0], component=["slope-1"])
    table = compare_coverage("pure", {"one-feature": summary})
    assert table.heads == ("method", "inside")
    assert table.rows == [("dp-gd", "100 (0.91 at 1,000)"), ("binagg", "10 (0.91 at 100)")]
    assert not compare_coverage("approximate", {"one-feature": summary}).rows
    assert not compare_coverage("pure", {}).rows


def test_coverage_in_wide_ranges_is_that_at_epsilon_1():
    cells = {"n": [1_000], "place": ["end"], "range_factor": [3.0], "track": ["pure"], "epsilon": [1.0, 2.0]}
    covered = xr.Dataset({"covered_mean": 0.5}).expand_dims(
        algorithm=["naive"], component=["slope-1", "variance"], **cells
    )
    covered["covered_mean"] = covered["covered_mean"] + 0.25 * (covered["epsilon"] == 1.0)
    table = compare_ranges("pure", {"ranges": covered})
    assert table.rows == [("1,000", "end", "3", "", "", "0.75 / 0.75")]
    assert "at ε = 1" in table.caption.partition(". ")[0]
    assert not compare_ranges("pure", {"ranges": covered.drop_sel(epsilon=1.0)}).rows


@pytest.mark.parametrize(
    ("share", "is_private", "holds", "found", "slack"),
    [
        (0.75, True, None, "holds", "25.00%"),
        (1.0, True, None, "holds", "0.00%"),
        (1.01, True, None, "broken", "none"),
        (1.01, False, None, "not private", "none"),
        (0.5, False, None, "within here", "50.00%"),
        (1.2, True, True, "holds", "none"),  # by its δ
        (1.2, True, False, "broken", "none"),
    ],
)
def test_verdict_on_an_audited_loss(share, is_private, holds, found, slack):
    cells = AuditedLoss("a", "ε-DP", share, share, 3, "n = 2", is_private, holds).cells
    assert cells == ("a", "ε-DP", found, f"{share:.4f}", f"{share:.6f}", slack, "3", "n = 2")


def test_mechanism_without_audits_is_not_judged():
    missing = xr.DataArray([math.nan], {"n": [1]}, ("n",))
    cells = AuditedLoss("a", "ε-DP", *largest_loss([(missing, 1.0)])).cells
    assert cells == ("a", "ε-DP", "not audited", "", "", "", "0", "")


def test_numbers_and_times_are_formatted():
    numbers = ((0.061383, 0.000314), (12.3, 0.0), (math.nan, 1.0), (4.18, 0.2))
    assert [plus_minus(*pair) for pair in numbers] == ["0.06138 ± 0.00031", "12.3", "", "4.18 ± 0.20"]
    assert [duration(seconds) for seconds in (7.0, 840.0)] == ["7 s", "14 min 0 s"]
