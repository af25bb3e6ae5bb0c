"""Tests of small functions that format and parse the texts of commands, pages and figures."""

import numpy as np
import pytest
import xarray as xr

from pipeline import claim, verdict
from studies.commands.options import parse_time
from studies.commands.summaries import _parse_where
from studies.figures.labels import _spread
from studies.figures.plot import rows_of
from studies.figures.vega import _log_ticks, _tabulate
from studies.output import format_size
from studies.report.page import _shorten, state_finding
from studies.report.selections import _inert
from studies.report.summaries import _aligned


def test_times_have_units():
    assert (parse_time("30min"), parse_time("1.5h"), parse_time(None)) == (1800.0, 5400.0, None)


def test_sizes_have_three_digits_and_a_unit():
    assert (format_size(999_400), format_size(999_600)) == ("999 kB", "1 MB")


def test_selected_values_are_grouped_by_name():
    assert _parse_where(["n=100,300,mechanism=smooth"]) == {"n": ["100", "300"], "mechanism": ["smooth"]}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([0.5, 12.25], ["0.500", "12.250"]), ([1e-9, 1.0], ["1e-09", "1"]), ([7, 1000], ["7", "1,000"])],
)
def test_columns_have_equal_decimals_within_four_powers_of_ten(numbers, expected):
    assert _aligned(numbers) == expected


def test_cells_are_inert_in_spreadsheets():
    assert (_inert("=1+1"), _inert("smooth"), _inert(-1.5)) == ("'=1+1", "smooth", -1.5)


def test_images_lose_parts_without_effect():
    text = b'<text class="tick" x="1.234" fill-opacity="0.12" opacity="1">0.345</text>'
    short = b'<text x="1.2" fill-opacity="0.12">0.345</text>'
    assert _shorten(b'<g><path d="M0,0h9Z"/>' + text + b"</g>") == b"<g>" + short + b"</g>"


def test_sentence_of_a_finding_has_its_correction():
    @claim("positive", "All means are positive.", kind="addition", needs={"p": {}})
    def positive(look):
        return verdict(False, "The smallest mean is -0.1.")

    stated = state_finding(positive, positive.judge({}))
    assert stated == "Does not hold: All means are positive. The smallest mean is -0.1."


def test_records_are_embedded_as_columns():
    records = [{"x": 1, "series": "a"}, {"x": 3}, {"series": "a"}]
    assert _tabulate(records) == {"x": [1, 3, None], "series": [["a"], 0, None, 0]}


def test_rows_of_a_summary_name_their_series():
    ds = xr.Dataset({"loss_mean": (("n", "m"), [[1.0, 2.0]])}, {"n": [10], "m": ["a", "b"]})
    assert rows_of(ds, "n", "m", y="loss_mean").to_dict("list") == {"x": [10, 10], "series": ["a", "b"], "y": [1, 2]}


def test_logarithmic_ticks_are_round():
    assert _log_ticks(0.03, 2.0) == [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
    assert _log_ticks(0.9, 3.1) == [1.0, 1.5, 2.0, 3.0]


def test_labels_are_at_least_a_line_apart():
    assert _spread(np.array([50.0, 52.0, 10.0]), 100).tolist() == [44.5, 57.5, 10.0]
