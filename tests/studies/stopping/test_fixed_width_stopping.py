"""Tests of the study of stopping rules: its rule is that of the pipeline, and its intervals are normal intervals."""

import numpy as np
import xarray as xr
from scipy.stats import t

from pipeline.precision.stopping import required_trials
from studies.stopping.fixed_width_stopping import STUDY, _stop
from tests.statistical import assert_mean_within, assert_rejects


def test_rule_stops_at_the_first_assessed_size_with_a_small_error():
    errors = 1 / np.sqrt(np.arange(1, 2001))  # of draws whose spread is known
    assert _stop(errors, 100, 0.05) == required_trials(100, errors[99] / 0.05) == 400
    assert _stop(errors, 2, 0.05) == 400
    assert _stop(errors, 500, 0.05) == 500
    assert _stop(errors, 100, 0.001) == 2000  # all available draws


def test_coverage_of_intervals_of_fixed_size_is_that_of_the_t_distribution(results):
    """The coverage of 1.96 standard errors of 200 normal draws is P(|t| <= 1.96) with 199 degrees of freedom."""
    ds = results("coverage").sel(distribution="normal", needed=200, minimum=2)
    exact = 1 - 2 * t.sf(1.959963984540054, 199)
    assert_mean_within(ds["covered"].sel(rule="fixed-size").values, exact)
    assert_rejects(assert_mean_within, ds["covered"].sel(rule="fixed-width").values, exact)  # two draws do not suffice


def test_lost_coverage_is_the_paired_difference(results):
    ds = results("coverage")
    fixed, width = (ds["covered"].sel(rule=rule) for rule in ("fixed-size", "fixed-width"))
    np.testing.assert_array_equal(ds["lost"].sel(rule="fixed-width"), fixed - width)


def test_figure_states_the_distribution_and_the_needed_draws():
    ds = xr.Dataset({f"covered_{name}": (("minimum", "rule"), np.full((2, 1), 0.9)) for name in ("mean", "mcse")})
    ds = ds.assign_coords(minimum=[2, 100], rule=["fixed-width"])
    (plot,) = STUDY.figures[0].draw({"coverage": ds.expand_dims(distribution=["exponential"], needed=[150, 200])})
    assert plot.titles == ["exponential draws, 150 needed"]
