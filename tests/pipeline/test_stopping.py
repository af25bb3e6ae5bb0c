"""Tests of stopping rules, estimates with standard errors, and error levels of looks."""

import math

import numpy as np
import pytest
from scipy import stats

from pipeline import Factor, Look, Measure, Statistic, claim, verdict
from pipeline.declare.claims import level_share
from pipeline.precision.stopping import SKEWED_TRIALS, confidence_sequence, next_trials, required_trials
from pipeline.precision.targets import parse_target, resolve_target
from pipeline.results.summaries import estimate_mean, estimate_quantiles
from tests.pipeline.helpers import make_study
from tests.pipeline.precision_study import STUDY


def test_shares_of_all_looks_sum_to_one():
    shares = [level_share(look) for look in range(1, 100_000)]
    assert 1 - 1e-4 < sum(shares) < 1


@claim("tested", "The mean is 0.", kind="self-check", level=0.01, needs={"p": {}})
def tested(look):
    return verdict(True, f"at level {look.level}")


def test_thresholds_of_a_look_spend_its_share():
    """At a whole run, thresholds are those declared; at a look, the tail probability is the share of the level."""
    whole, third = Look(tested, {}), Look(tested, {}, level_share(3))
    assert (whole.critical(5.0), whole.level) == (5.0, 0.01)
    assert third.level == 0.01 * level_share(3)
    tail = math.erfc(third.critical(5.0) / math.sqrt(2))
    assert tail == pytest.approx(level_share(3) * math.erfc(5 / math.sqrt(2)), rel=1e-6)
    assert whole.critical(5.0) == 5.0


def looks_that_reject(spending):
    """Return the fraction of experiments without effect that are rejected at one of eight doubling looks."""
    rng = np.random.default_rng(20261123)
    sizes = 100 * 2 ** np.arange(8)
    rejected = np.zeros(4000, bool)
    sums = np.zeros(rejected.size)
    for number, (before, size) in enumerate(zip([0, *sizes], sizes, strict=False), start=1):
        sums += rng.normal(0, math.sqrt(size - before), rejected.size)
        limit = Look(tested, {}, level_share(number)).critical(2.0) if spending else 2.0
        rejected |= abs(sums) / math.sqrt(size) > limit
    return rejected.mean(), math.sqrt(rejected.mean() * (1 - rejected.mean()) / rejected.size)


def test_optional_stopping_keeps_the_level_with_spending_and_not_without():
    level = math.erfc(2 / math.sqrt(2))
    rate, error = looks_that_reject(spending=True)
    assert rate <= level + 5 * error
    rate, error = looks_that_reject(spending=False)
    assert rate > level + 5 * error


def test_confidence_sequence_is_wider_than_a_fixed_interval_and_grows_slowly():
    widths = [confidence_sequence(n) for n in (100, 1000, 10**6)]
    assert 1.96 < widths[0] < widths[1] < widths[2] < 5
    assert confidence_sequence(100, level=0.01) > widths[0]


@pytest.mark.parametrize(("n", "ratio"), [(100, 1.3), (1000, 1.01), (7, 500.0), (100, math.inf)])
def test_next_round_reaches_the_required_number_within_a_factor_of_two(n, ratio):
    wanted = next_trials(n, ratio)
    assert n < wanted <= 2 * n
    assert wanted == min(2 * n, required_trials(n, ratio))
    assert next_trials(n, 0.0) == n


@pytest.mark.parametrize("n_events", [1, 10, 99, 250, 999])
def test_minimum_by_skewness_is_the_closed_form_for_events(n_events):
    """The squared skewness of n draws with the mean p is (1 - 2p)²/(p(1 - p)), so that about 100 events are needed."""
    share, n = n_events / 1000, 1000
    found = estimate_mean(np.repeat([1.0, 0.0], [n_events, n - n_events]))
    errors, least = [found.error], [SKEWED_TRIALS * found.skewness**2]
    assert least[0] == pytest.approx(SKEWED_TRIALS * (1 - 2 * share) ** 2 / (share * (1 - share)), rel=1e-9)
    assert errors[0] == pytest.approx(math.sqrt(share * (1 - share) / (n - 1)))
    assert (least[0] <= n) == (min(n_events, n - n_events) >= 79)


def target_of(text, study=STUDY):
    return resolve_target(parse_target(text), study)["p"]


def test_rare_events_are_reached_at_about_a_hundred():
    study = make_study(print, measures=(Measure("y", "an event", dtype="bool"),), trials=10)
    for n, is_reached in ((20_000, False), (110_000, True)):
        assert target_of("mcse(y) <= 0.5", study).assess([np.arange(n) % 1000 == 0]).is_reached == is_reached


def test_relative_precision_of_zero_and_of_a_fraction_without_events_is_unknown():
    """Constant draws have an absolute precision; a fraction that is 0 so far is not certain, with its error of 0."""
    assert target_of("mcse(x) <= 1").assess([np.zeros(100)]).is_constant
    assert target_of("mcse(x) <= 1%").assess([np.zeros(100)]).ratio == math.inf
    assert target_of("mcse(x) <= 1%").assess([np.full(100, 0.1)]).is_constant
    below = target_of("mcse(x_above) <= 1").assess([np.linspace(0, 0.4, 100)])
    assert (below.error, below.is_reached, below.ratio) == (0.0, False, math.inf)


def test_error_of_a_declared_fraction_is_binomial():
    """Its relative error is √(1.5/100)/2 for 100 pairs of groups of two, since four events have the kurtosis 2.5."""
    rng = np.random.default_rng(1)
    target = target_of("mcse(x_above) <= 1")
    squares = [target.assess([rng.normal(0.5, 1.0, 400)]).error ** 2 for _ in range(200)]
    mean, error = np.mean(squares), np.std(squares, ddof=1) / 200**0.5
    assert abs(mean - 0.25 / 400) <= 5 * error
    assert abs(mean - 1.3 * 0.25 / 400) > 5 * error
    spread = np.std(np.sqrt(squares)) / mean**0.5  # 0.15 with 20 pairs, with which runs stop too soon
    assert abs(spread - 0.061) <= 5 * 0.061 / (2 * 200) ** 0.5


def test_error_of_a_declared_median_is_seldom_too_small():
    """The median of n normal draws has the error √(π/2n); a jackknife over 100 groups is below half of it in 0.19."""
    rng, middle = np.random.default_rng(1), Statistic("middle", "x", "median", np.median)
    study = make_study(print, trials=9, statistics=(middle,))
    target = resolve_target(parse_target("mcse(x_middle) <= 0.12"), study)["p"]
    found = [target.assess([rng.normal(size=200)]) for _ in range(100)]
    assert sum(precision.error < (np.pi / 1600) ** 0.5 for precision in found) <= 2
    assert target.assess([rng.normal(size=200)]).is_reached
    assert not target.assess([rng.normal(size=199) / 10]).is_reached


def test_statistic_with_an_axis_has_an_error_for_each_output_and_value():
    levels = Factor("level", (0.25, 0.5), "level")
    below = Statistic(
        "below", "x", "fractions below", lambda x: np.mean(x[:, None] < levels.values, axis=0), axis=levels
    )
    measures, outputs = (Measure("x", "a number", dims=("place",)),), (Factor("place", (1, 2), "place", "int"),)
    study = make_study(print, trials=9, statistics=(below,), measures=measures, outputs=outputs)
    target = target_of("mcse(x_below) <= 0.05", study)
    draws = np.random.default_rng(1).uniform(size=(400, 2))
    draws[1:, 1] /= 2.5  # the fraction of the second output below 0.5 is nearly 1
    precision = target.assess([draws])
    assert (precision.n, precision.estimate) in {
        (400, np.mean(draws[:, k] < level)) for k in (0, 1) for level in (0.25, 0.5)
    }
    assert precision.error == pytest.approx((precision.estimate * (1 - precision.estimate) / 400) ** 0.5, rel=0.3)


def test_quantiles_have_the_error_of_order_statistics():
    draws = np.random.default_rng(2).normal(size=500)
    precision = target_of("mcse(x_q95) <= 1").assess([draws])
    assert precision.error == estimate_quantiles(np.sort(draws), [0.95])[1][0]
    assert precision.estimate == np.quantile(draws, 0.95)


def test_quantiles_of_discrete_draws_have_an_error_if_the_adjacent_order_statistics_are_equal():
    draws = np.repeat([0.0, 1.0], [58, 42])
    precision = target_of("mcse(x_median) <= 0.01").assess([draws])
    assert precision.error == 1 / 8
    assert not precision.is_reached
    assert not precision.is_constant
    assert target_of("mcse(x_median) <= 0.01").assess([np.zeros(100)]).is_constant


def test_final_medians_of_discrete_draws_are_rarely_wrong():
    """Fewer than 2 % of runs with Bernoulli(.48) draws end with the median 1; with errors of zero, 11 % did."""
    rng, target, n_runs = np.random.default_rng(3), target_of("mcse(x_median) <= 0.01"), 300
    medians = []
    for _ in range(n_runs):
        draws, n = (rng.random(10_000) < 0.48).astype(float), 100
        while n < draws.size and not (precision := target.assess([draws[:n]])).is_reached:
            n = min(next_trials(n, precision.ratio), draws.size)
        medians.append(np.median(draws[:n]))
    assert np.count_nonzero(medians) <= stats.binom.ppf(1 - 1e-6, n_runs, 0.02)


def test_widest_output_counts_and_relative_bounds_follow_the_estimate():
    study = make_study(
        print,
        measures=(Measure("y", "a vector", dims=("k",)),),
        outputs=(Factor("k", (0, 1), "entry", "int"),),
        statistics=(Statistic("sum", "y", "a sum", np.sum),),
        trials=10,
    )
    draws = np.random.default_rng(3).normal([1.0, 100.0], [0.1, 1.0], (400, 2))
    absolute, relative = (target_of(f"mcse(y) <= {bound}", study).assess([draws]) for bound in ("0.01", "0.1%"))
    assert absolute.estimate == pytest.approx(100, abs=1)
    assert relative.estimate == pytest.approx(1, abs=0.1)
    assert relative.bound == pytest.approx(0.001 * relative.estimate)
