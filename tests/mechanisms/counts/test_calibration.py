"""Tests of the exact calibration against enumeration of all data sets, pairs and outputs."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.core.conjugate import balanced_counts, count_candidates, enumerate_candidates, neighbouring_pairs
from mechanisms.counts import calibration
from mechanisms.counts.calibration import MAX_CALIBRATED, MAX_RECORDS, calibrate, require_calibratable
from mechanisms.counts.candidates import enumerate_rows
from mechanisms.counts.exponential import exponential_mechanism
from mechanisms.counts.registry import MECHANISMS
from mechanisms.counts.sensitivity import Rule, smoothed_scales
from tests.mechanisms.counts.enumeration import Enumerated
from tests.mechanisms.marks import in_turn
from tests.mechanisms.refusals import assert_refused

RULES = (Rule.SMOOTH, Rule.VARYING, Rule.GLOBAL)
CASES = [
    ((1.0, 1.0), 1),
    ((1.0, 1.0), 30),
    ((0.01, 100.0), 20),
    ((1e-3, 1e3), 9),
    ((5.0, 0.3), 17),
    ((1.0, 10**-1.0625, 0.9999999999999994), 1),  # the local sensitivity rises by less than rounding errors
    ((1.0, 1.0, 1.0), 9),
    ((0.3, 2.0, 5.0), 7),
    ((2.0, 0.1, 2.0), 7),
    ((1.0, 1.0, 1.0, 1.0), 4),
    ((0.01, 100.0, 3.0, 0.01), 4),
    ((1.0, 1.0, 1.0, 1.0, 1.0), 2),
]


EPSILONS = [0.05, 0.7, 1.0, 6.0, 30.0]
PROBLEMS = [  # cases in which each rule occurs with each prior and with each epsilon
    (prior, n, rule, EPSILONS[(case + 2 * place) % 5])
    for case, (prior, n) in enumerate(CASES)
    for place, rule in enumerate(RULES)
]


@pytest.mark.parametrize(("prior", "n", "rule", "epsilon"), PROBLEMS)
def test_calibrated_loss_equals_epsilon(prior, n, rule, epsilon):
    found = calibrate(rule, prior, n, epsilon)
    assert (found.rule, found.prior, found.n, found.epsilon) == (rule, prior, n, epsilon)
    assert (found.gamma == 0) == (rule is Rule.GLOBAL)
    assert epsilon * (1 - 1e-6) <= found.loss <= epsilon
    everything = Enumerated(prior, n)
    scales = everything.scales(rule, found.gamma)
    np.testing.assert_allclose([found.sensitivity(c) for c in everything.datasets], scales, rtol=1e-8)
    loss = everything.loss(found.rate / scales)
    assert epsilon * (1 - 2e-6) <= loss <= epsilon * (1 + 1e-7)  # the log gammas of the reference have fewer digits
    assert everything.loss(1.01 * found.rate / scales) > epsilon  # negative control


@pytest.mark.parametrize(
    ("rule", "prior", "n", "epsilon"),
    [
        (Rule.GLOBAL, (1.0, 1.0, 1.0), 8, 0.1),
        (Rule.SMOOTH, (1e-3, 1e3), 1, 0.01),
        (Rule.VARYING, (1e-3, 1e3), 1, 0.001),
        (Rule.GLOBAL, (1.0, 1.0, 1.0), 8, 1e-4),
        (Rule.SMOOTH, (1.0, 1.0), 20, 1e-6),
        (Rule.VARYING, (1.0, 1.0, 1.0), 8, 1e-6),
        (Rule.GLOBAL, (1.0, 1.0), 20, 1000.0),
        (Rule.SMOOTH, (1e-3, 1e3), 1, 1000.0),
    ],
)
def test_search_tolerates_rounding(rule, prior, n, epsilon):
    """The calibrated loss is within one part in 10⁶ of ε, despite the rounding errors of log normalisers."""
    found = calibrate(rule, prior, n, epsilon)
    assert epsilon * (1 - 1e-6) <= found.loss <= epsilon


SMALL = [((1.0, 1.0), 12, 1.0), ((0.01, 100.0), 12, 0.3), ((1.0, 1.0, 1.0), 5, 12.0), ((3.0, 0.1, 1.0, 0.1), 3, 2.0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "prior", "n", "epsilon"), in_turn((rule, *problem) for problem in SMALL for rule in RULES)
)
def test_no_larger_rate_is_private(prior, n, epsilon, rule):
    """The loss exceeds ε at each larger rate on a grid; one rate would not suffice, as the loss may not be monotone."""
    found = calibrate(rule, prior, n, epsilon)
    everything = Enumerated(prior, n)
    scales = everything.scales(rule, found.gamma)
    scores = everything.distances / scales[:, None]
    brackets = [float(np.ptp(scores[d] - scores[c])) for c, d in everything.pairs]
    top = 2 * epsilon / max(brackets)
    assert found.rate <= top * (1 + 1e-9)
    grid = np.linspace(found.rate * (1 + 1e-6), top * 1.001, 300)
    assert min(everything.loss(m / scales) for m in grid) > epsilon * (1 - 1e-9)


@pytest.mark.slow
@given(
    rule=st.sampled_from(RULES),
    prior=st.integers(2, 4).flatmap(lambda k: st.lists(st.floats(-3, 3).map(lambda x: 10**x), min_size=k, max_size=k)),
    n=st.integers(1, 5),
    log_epsilon=st.floats(-2, 1.5),
)
@settings(deadline=None, derandomize=True, max_examples=30)
def test_calibrated_loss_equals_epsilon_at_any_prior(rule, prior, n, log_epsilon):
    epsilon = 10**log_epsilon
    found = calibrate(rule, prior, n, epsilon)
    everything = Enumerated(prior, n)
    scales = np.array([found.sensitivity(c) for c in everything.datasets])
    loss = everything.loss(found.rate / scales)
    assert epsilon * (1 - 1e-5) - 1e-9 <= loss <= epsilon * (1 + 1e-6) + 1e-9
    if rule is not Rule.SMOOTH:  # the rate proved in the papers is a lower bound
        assert found.rate >= epsilon / (2 * (1 + found.gamma)) * (1 - 1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_mechanism_has_the_calibrated_rate_at_every_data_set(rule):
    prior, n, epsilon = (0.5, 2.0, 2.0), 6, 0.8
    found = calibrate(rule, prior, n, epsilon)
    everything = Enumerated(prior, n)
    scales = everything.scales(rule, found.gamma)
    distributions = []
    for c, scale in zip(everything.datasets, scales, strict=True):
        release = MECHANISMS[f"{rule.value}-exact"].build(prior, c, epsilon, 1e-8)
        assert release.inverse_temperature == pytest.approx(found.rate / scale, rel=1e-9)
        distributions.append(release.log_pmf())
    loss = max(float((distributions[c] - distributions[d]).max()) for c, d in everything.pairs)
    assert epsilon * (1 - 1e-6) <= loss <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("rule", [Rule.SMOOTH, Rule.VARYING])
def test_inverse_temperature_is_larger_than_published(rule):
    """For a uniform prior and n = 100, the calibrated inverse temperature is over 1.5 times that of `smooth`."""
    found = calibrate(rule, [1, 1], 100, 1.0)
    balanced = balanced_counts(100, 2)
    release = MECHANISMS["smooth"].build([1, 1], balanced, 1.0, 1e-8)
    assert found.rate / found.sensitivity(balanced) > 1.5 * release.inverse_temperature


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("prior", "n"), CASES)
def test_bound_on_the_loss_of_a_pair_holds(rule, prior, n):
    found = calibrate(rule, prior, n, 2.0)
    alpha, candidates = np.array(prior), enumerate_candidates(n, len(prior))
    datasets, pairs = neighbouring_pairs(alpha, candidates)
    scale = smoothed_scales(rule, alpha, datasets, found.gamma)
    arguments = alpha, enumerate_rows(n, alpha.size), datasets, pairs, scale, found.rate
    log_pmfs = [exponential_mechanism(alpha, c, found.rate, s).log_pmf() for c, s in zip(datasets, scale, strict=True)]
    for pair, (first, second) in enumerate(pairs.tolist()):
        loss = float(np.abs(log_pmfs[first] - log_pmfs[second]).max())
        assert pair in calibration._doubtful_pairs(*arguments, loss)


def test_bound_decides_about_most_pairs():
    found = calibrate(Rule.SMOOTH, [1, 1, 1], 60, 1.0)
    alpha, candidates = np.ones(3), enumerate_candidates(60, 3)
    datasets, pairs = neighbouring_pairs(alpha, candidates)
    scale = smoothed_scales(Rule.SMOOTH, alpha, datasets, found.gamma)
    doubtful = calibration._doubtful_pairs(alpha, enumerate_rows(60, 3), datasets, pairs, scale, found.rate, found.loss)
    assert 0 < doubtful.size < 0.1 * len(pairs)


def test_calibration_is_cached():
    found = calibrate(Rule.SMOOTH, [1, 1], 20, 1.0)
    assert calibrate(Rule.SMOOTH, (1.0, 1.0), 20, 1) is found
    assert calibrate(Rule.SMOOTH, np.ones(2), np.int64(20), np.float64(1.0)) is found
    assert calibrate(Rule.SMOOTH, [1, 1], 20, 1.1) is not found
    assert calibrate(Rule.VARYING, [1, 1], 20, 1.0) is not found
    calibration._calibrate.cache_clear()
    again = calibrate(Rule.SMOOTH, [1, 1], 20, 1.0)
    assert (again.gamma, again.rate, again.loss) == (found.gamma, found.rate, found.loss)


def decisions(everything, scales, epsilon, too_small_slopes=False):
    """Return the decisions about the rates of a search, by the pruned predicate and by evaluating all pairs."""
    pairs = everything.pairs[everything.pairs[:, 0] < everything.pairs[:, 1]]
    scores = everything.distances / scales[:, None]
    gaps = np.array([[(scores[d] - scores[c]).max(), (scores[c] - scores[d]).max()] for c, d in pairs])
    pruned = calibration._PrivateRates(dict(enumerate(everything.distances)), pairs, gaps, scales, epsilon)
    found = []

    def is_private(rate):
        if too_small_slopes:
            pruned._slopes = pruned._slopes / 2
        found.append((pruned(rate), bool(everything.loss(rate / scales) <= epsilon)))
        return found[-1][1]

    top = 2 * epsilon / gaps.sum(axis=1).max()
    calibration.largest_below(is_private, top * (1 + 1e-9), 1e-7)
    return np.array(found)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
@pytest.mark.parametrize(("prior", "n"), [((1.0, 1.0), 30), ((0.3, 2.0, 5.0), 7), ((0.01, 100.0), 20)])
def test_bounds_on_normalisers_do_not_change_decisions(prior, n, epsilon):
    everything = Enumerated(prior, n)
    found = decisions(everything, everything.scales(Rule.SMOOTH, 0.05), epsilon)
    np.testing.assert_array_equal(*found.T)
    assert set(found[:, 0]) == {True, False}


def test_invalid_bounds_on_normalisers_change_decisions():
    """With too small slopes, the lower bound on ln Z is invalid and hides pairs that exceed ε (negative control)."""
    everything = Enumerated((0.3, 2.0, 5.0), 7)
    found = decisions(everything, everything.scales(Rule.SMOOTH, 0.05), 1.0, too_small_slopes=True)
    assert (found[:, 0] & ~found[:, 1]).any()


def test_invalid_input_raises():
    pass_a_rule = "rule must be Rule.SMOOTH, Rule.VARYING or Rule.GLOBAL, got {}; pass a Rule"
    for arguments, message in (
        (("local", [1, 1], 5, 1.0), pass_a_rule.format("'local'")),
        (("smooth", [1, 1], 5, 1.0), pass_a_rule.format("'smooth'")),
        ((Rule.HAMMING, [1, 1], 5, 1.0), "rule must be Rule.SMOOTH, Rule.VARYING or Rule.GLOBAL"),
        ((Rule.SMOOTH, [1, 1], MAX_RECORDS + 1, 1.0), "at most 10,000 records .* got 10,001"),
        ((Rule.SMOOTH, [1, 1, 1], 315, 1.0), "at most 50,000 candidates"),
        ((Rule.SMOOTH, [1, 1, 1], 400, 1.0), "at most 50,000 candidates .* got 80,601"),
        ((Rule.SMOOTH, [1, 1, 1, 1], 600, 1.0), r"got 36,361,101 \(n = 600, k = 4\); use varying-bound"),
    ):
        assert_refused(partial(calibrate, *arguments), message)
    require_calibratable(MAX_RECORDS, 2)
    require_calibratable(314, 3)
    assert count_candidates(314, 3) < MAX_CALIBRATED < count_candidates(315, 3)
    for rule in RULES:
        refuse = partial(MECHANISMS[f"{rule.value}-exact"].validate, [1.0] * 3, [400, 0, 0], 1.0, 1e-8)
        assert_refused(refuse, "at most 50,000 candidates")
    assert_refused(lambda: calibrate(Rule.SMOOTH, [1, 1], 20, 1.0).sensitivity([1, 2]), "counts must sum to 20, got 3")
