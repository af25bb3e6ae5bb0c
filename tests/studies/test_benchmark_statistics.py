"""Tests of the statistics of benchmarks: adjusted tests of calibration, and paired relative losses."""

from itertools import product

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from studies import STUDIES
from studies.benchmark.compared_panel import ComparedPanel
from studies.benchmark.figures import figures_of
from studies.benchmark.losses import compare_losses
from studies.benchmark.method_summary import CellMeans, MethodSummary
from studies.benchmark.results import BenchmarkResults, FitCost, MethodResult, PanelResult
from studies.benchmark.tables import describe_rejected, show_ratio
from studies.benchmark.uniformity import (
    LARGE_DEVIATION,
    LEVEL,
    adjust,
    count_tests,
    detectable_deviation,
    judge_tests,
    run_tests,
    trials_to_detect,
)
from studies.claims import ks_p_value, signed_ks_distance
from tests.statistical import assert_mean_within, assert_rejects


@pytest.mark.parametrize("name", [name for name in STUDIES if any(panel.accepts for panel in STUDIES[name].panels)])
def test_studies_that_accept_methods_name_existing_measures_and_values(name):
    study, criteria = STUDIES[name], STUDIES[name].criteria
    accepting = [panel for panel in study.panels if panel.accepts]
    measures = {measure.name for panel in accepting for measure in panel.measures}
    assert criteria.loss
    assert measures >= set(criteria.names)
    for panel in accepting:
        axes = {axis.name: axis.values for axis in (*panel.factors, *panel.outputs)}
        for dim, values in criteria.exact.get(panel.name, {}).items():
            assert set(values) <= set(axes.get(dim, values))
            assert dim in axes
    assert set(criteria.exact) <= {panel.name for panel in accepting}


def test_adjusted_p_values_equal_those_of_holm():
    p_values = np.random.default_rng(1).random(20) ** 3
    order = np.argsort(p_values)
    expected = np.minimum(1, np.maximum.accumulate((20 - np.arange(20)) * p_values[order]))
    np.testing.assert_allclose(np.array(adjust(list(p_values)))[order], expected)


def power(sd, n, n_tests, repetitions=400):
    """Return the rejections, 0 or 1, of tests of the levels of central intervals of posteriors with a relative sd."""
    truths = np.random.default_rng(2).normal(size=(repetitions, n))
    levels = np.abs(2 * stats.norm.cdf(truths / sd) - 1)
    return np.array([ks_p_value(row) < LEVEL / n_tests for row in levels], float)


@pytest.mark.parametrize("sd", [0.6, 0.8])
def test_the_stated_deviation_is_detected_with_probability_of_at_least_nine_tenths(sd):
    grid = np.linspace(0.001, 4, 2_000)
    deviation = np.max(np.abs(np.abs(2 * stats.norm.cdf(grid * sd) - 1) - np.abs(2 * stats.norm.cdf(grid) - 1)))
    n = trials_to_detect(deviation, 50)
    assert detectable_deviation(n, 50) == pytest.approx(deviation, rel=0.02)
    detected = power(sd, n, 50)
    assert detected.mean() + 3 * np.sqrt(0.9 * 0.1 / detected.size) >= 0.9
    # controls: a quarter of the trials does not suffice, and a right posterior is not rejected
    assert power(sd, n // 4, 50).mean() < 0.5
    assert not power(1.0, n, 50).any()


@pytest.mark.parametrize("n_tests", [1, 10, 1_000, 100_000])
def test_the_stated_number_of_trials_detects_a_large_deviation(n_tests):
    n = trials_to_detect(LARGE_DEVIATION, n_tests)
    assert detectable_deviation(n, n_tests) <= LARGE_DEVIATION < detectable_deviation(n - 20, n_tests)


def test_signed_distances_equal_enumerated_one_sided_deviations():
    for quantiles in product((0.1, 0.3, 0.45, 0.8, 0.95), repeat=3):
        too_large = max(u - np.mean(np.array(quantiles) < u) for u in quantiles)
        too_small = max(np.mean(np.array(quantiles) <= u) - u for u in quantiles)
        expected = too_large if too_large >= too_small else -too_small
        assert signed_ks_distance(np.array(quantiles)) == pytest.approx(expected, abs=1e-15)


N, EPSILON = (10, 100, 1_000), (0.1, 1.0)


def result_of(quantiles):
    """Return the result of a method with quantiles of the truth, shape (6, trial), in a panel of six cells."""
    values = np.array(quantiles)[:, None, :]
    summary = MethodSummary.of(np.zeros(values[:, 0].shape), {}, [], {"pit": values})
    study, coordinates = STUDIES["calibration"], {"n": xr.DataArray([*N], dims="n")}
    coordinates["epsilon"] = xr.DataArray([*EPSILON], dims="epsilon")
    compared = ComparedPanel(
        "calibration", study.panel("binomial"), study.criteria, coordinates, {"mine": summary}, own="mine"
    )
    tests = run_tests(compared, "mine")
    assert count_tests(compared, np.ones(6, bool)) == len(tests) == 14  # two per cell, and two of all cells together
    return MethodResult(compared, "mine", judge_tests(tests), None, None, FitCost())


def truths(n):
    """Return standard normal truths with an empirical distribution that deviates by 1/(2n) only."""
    return stats.norm.ppf((np.arange(n) + 0.5) / n)


@pytest.mark.parametrize(
    ("sd", "shift", "direction"),
    [
        (0.6, 0.0, "intervals too narrow"),
        (1.6, 0.0, "intervals too wide"),
        (1.0, 0.7, "biased up"),
        (1.0, -0.7, "biased down"),
    ],
)
def test_a_wrong_posterior_of_one_cell_is_not_calibrated_there_with_its_direction(sd, shift, direction):
    wrong = stats.norm.cdf((np.random.default_rng(8).normal(size=500) - shift) / sd)
    result = result_of([wrong, *np.random.default_rng(9).random((5, 500))])
    assert result.calibration == "not calibrated (1 of 6 cells)"
    assert describe_rejected(result) == f"1 of 6 cells of calibration, binomial: n=10, epsilon=0.1 ({direction})"
    assert [tests.verdict for tests in result.uniformity.by_cell.values()] == ["not calibrated", *["passed"] * 5]


def test_verdicts_of_panels_count_cells_and_state_deviations_of_all_cells_together():
    right, narrow = np.random.default_rng(10).random((6, 500)), stats.norm.cdf(truths(500) / 0.5)
    few = np.where(np.arange(500) < 100, right, np.nan)
    assert result_of(right).calibration == "passed"
    assert result_of(few).calibration == "undecided (6 of 6 cells)"
    assert result_of([*right[:4], *few[4:]]).calibration == "undecided (2 of 6 cells)"
    several = result_of([*[narrow] * 5, few[0]])
    assert several.calibration == "not calibrated (5 of 6 cells)"
    assert describe_rejected(several).endswith("n=100, epsilon=0.1 (intervals too narrow); 2 more")
    slight = result_of([stats.norm.cdf(truths(500) / 0.85)] * 6)
    assert slight.calibration == "not calibrated (all cells together)"
    assert describe_rejected(slight) == "all cells of calibration, binomial together (intervals too narrow)"
    assert {tests.verdict for tests in slight.uniformity.by_cell.values()} == {"passed"}
    for result, alone in ((slight, "; they alone reject mine in calibration, binomial"), (several, "")):
        figure, *_ = figures_of(
            BenchmarkResults("mine", "posterior", [PanelResult(result.compared, [result])], result.family)
        )
        assert figure.caption.endswith(f" Tests of all cells together are not shown{alone}.")


def test_a_cell_with_a_deviation_of_an_eighth_never_passes():
    verdicts = {}
    for n in (50, 100, 200, 300, 350, 400, 500, 1_000):
        quantiles = (np.arange(n) + 0.5) / n * 0.87  # their distribution function deviates by 0.13
        result = result_of(
            [np.append(quantiles, np.full(1_000 - n, np.nan)), *np.random.default_rng(n).random((5, 1_000))]
        )
        verdicts[n] = next(iter(result.uniformity.by_cell.values())).verdict
    assert "passed" not in verdicts.values()
    assert (verdicts[100], verdicts[500]) == ("undecided", "not calibrated")


def simulated(rng, n=200):
    """Return losses of two methods, shape (component, trial), that share most of their variation."""
    shared = rng.gamma(4.0, size=(3, n)) * rng.gamma(9.0, size=n)
    return shared * rng.gamma(100.0, size=(3, n)) / 100.0 * 1.2, shared * rng.gamma(100.0, size=(3, n)) / 100.0


def compare(losses, bases, groups):
    return compare_losses(list(map(CellMeans.of, losses)), [b if b is None else CellMeans.of(b) for b in bases], groups)


def without_trials(loss):
    means = CellMeans.of(loss)
    return CellMeans(means.mean, means.error, means.n)


def test_errors_of_relative_losses_are_those_of_paired_trials():
    rng, scaled, unpaired = np.random.default_rng(3), [], []
    for _ in range(400):
        (loss, base), (other, _) = simulated(rng), simulated(rng)
        relative = compare([loss, loss], [base, base], np.zeros(2, int))  # two settings on the same data
        scaled.append(((relative.mean - 1.2) / relative.mean_error) ** 2)
        assert relative.mean_error == pytest.approx(relative.error[0])
        apart = compare([loss], [other / 1.2], np.zeros(1, int))
        unpaired.append(((relative.mean - 1.2) / apart.mean_error) ** 2)
    assert_mean_within(scaled, 1.0)
    assert_rejects(assert_mean_within, unpaired, 1.0)  # control: errors that ignore the pairing


def test_errors_without_trials_of_the_base_are_those_of_independent_trials_and_too_large_for_the_same_data():
    rng = np.random.default_rng(5)
    scaled = {"independent": [], "same": [], "ignored": [], "components": []}

    def add(name, relative, ratio):
        scaled[name].append(((relative.mean - ratio) / relative.mean_error) ** 2)

    same, apart = np.zeros(2, int), np.arange(2)
    for _ in range(400):
        (loss, base), (_, other) = simulated(rng), simulated(rng, 300)
        own, bases = [CellMeans.of(loss[:1])] * 2, [without_trials(other[:1]), without_trials(other[:1] * 2)]
        # two settings on the same data
        add("independent", compare_losses(own, bases, same), 0.9)
        add("ignored", compare_losses(own, bases, apart), 0.9)
        add("components", compare_losses([CellMeans.of(loss)], [without_trials(other)], same[:1]), 1.2)
        relative = compare_losses([CellMeans.of(loss)], [without_trials(base)], same[:1])
        add("same", relative, 1.2)
        assert relative.mean == pytest.approx(compare([loss], [base], same[:1]).mean, abs=1e-12)
        assert 0 < relative.fixed[0] < relative.error[0]
        assert relative.n.tolist() == [200]
    assert_mean_within(scaled["independent"], 1.0)
    assert_rejects(assert_mean_within, scaled["ignored"], 1.0)  # control: cells on the same data as independent ones
    for name in ("components", "same"):  # conservative
        assert np.mean(scaled[name]) < 1.0 + 5 * np.std(scaled[name]) / 20
    assert np.mean(scaled["same"]) < 0.5


def test_relative_losses_of_methods_without_trials_are_1_for_the_base_itself():
    loss, base = map(without_trials, simulated(np.random.default_rng(6)))
    relative = compare_losses([base, loss], [base, base], np.arange(2))
    assert (relative.ratio[0], relative.error[0]) == (1.0, 0.0)
    expected = np.hypot((loss.error / base.mean).mean(), (loss.mean * base.error / base.mean**2).mean())
    assert relative.error[1] == relative.fixed[1] == pytest.approx(expected)
    assert relative.mean_error == pytest.approx(expected / 2)


def test_relative_losses_use_the_trials_of_both_methods_and_need_a_base():
    rng = np.random.default_rng(4)
    loss, base = simulated(rng, 50)
    failed, pending = loss.copy(), base.copy()
    failed[:, :10], pending[:, 40:] = np.nan, np.nan
    groups = np.arange(3)
    relative = compare([failed, loss, loss], [pending, None, base], groups)
    shared = compare([loss[:, 10:40]], [base[:, 10:40]], groups[:1])
    assert relative.ratio[0] == pytest.approx(shared.ratio[0])
    assert relative.error[0] == pytest.approx(shared.error[0])
    assert relative.n.tolist() == [30, 0, 50]
    assert np.isnan(relative.ratio).tolist() == [False, True, False]
    assert relative.n_cells == 2
    assert show_ratio(relative).endswith(" (2 of 3 cells)")
    assert "cells" not in show_ratio(compare([loss], [base], groups[:1]))
    around_zero = rng.normal(size=(1, 50))
    assert not compare([base[:1]], [around_zero], groups[:1]).n_cells  # its mean is not beyond 3 errors of 0
    numerator = compare([around_zero], [base[:1]], groups[:1])
    assert abs(numerator.mean) < 5 * numerator.mean_error


def test_relative_losses_are_not_biased_by_cells_in_which_losses_have_heavy_tails():
    rng, means, resolved, groups = np.random.default_rng(7), [], [], np.arange(10)
    for _ in range(400):
        base, tail = rng.gamma(9.0, size=(10, 1, 30)) / 9.0, rng.gamma(0.2, size=(10, 1, 30)) / 0.2
        loss = np.where(groups[:, None, None] < 5, base, 4.0 * tail)
        relative = compare(loss, base, groups)
        assert relative.n_cells == 10
        means.append(relative.mean)
        resolved.append(relative.ratio[relative.ratio > 3.0 * relative.error].mean())
    assert_mean_within(means, 2.5)
    assert_rejects(assert_mean_within, resolved, 2.5)  # control: without cells in which the loss is not far from 0
