"""Tests of MMD² against the double sum over pairs and against closed forms of its expectation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.inference import mmd
from mechanisms.inference.mmd import mmd2
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within, assert_rejects


def double_sum(x, y, bandwidth=1.0):
    """Return MMD² as a sum over all pairs in extended precision."""
    x, y = (np.asarray(draws, dtype=np.longdouble) / bandwidth for draws in (x, y))
    within = [
        (np.exp(-((z[:, None] - z) ** 2) / 2).sum() - z.size) / np.longdouble(z.size * (z.size - 1)) for z in (x, y)
    ]
    return float(within[0] + within[1] - 2 * np.exp(-((x[:, None] - y) ** 2) / 2).mean())


SAMPLES = {
    "posteriors": lambda rng: (rng.beta(400, 600, 900), rng.beta(410, 590, 700)),
    "close": lambda rng: (rng.beta(4e4, 6e4, 900), rng.beta(4e4, 6e4, 700)),
    "unit interval": lambda rng: (rng.random(500), rng.random(800) ** 2),
    "rates": lambda rng: (rng.gamma(8, 0.5, 600), rng.gamma(9, 0.5, 600)),
    "wide": lambda rng: (rng.uniform(-148, 148, 400), rng.uniform(-150, 100, 500)),
    "sorted": lambda rng: (rng.uniform(-160, 160, 400), rng.uniform(-150, 100, 500)),
    "apart": lambda rng: (rng.normal(0, 1, 300), rng.normal(1e6, 1, 200)),
    "outlier": lambda rng: (np.append(rng.random(300), 1e308), np.append(rng.random(200), -1e308)),
    "far from zero": lambda rng: (1e6 + rng.random(300), 1e6 + rng.random(200)),
    "ties": lambda rng: (rng.integers(0, 3, 200), rng.integers(0, 400, 300)),
    "constant": lambda rng: (np.zeros(5), np.zeros(4)),
    "two and two": lambda rng: (np.array([0.0, 1.0]), np.array([0.5, 2.5])),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SAMPLES)
@pytest.mark.parametrize("bandwidth", [1.0, *exhaustive(0.03)])
def test_mmd2_equals_double_sum(case, bandwidth):
    x, y = (np.clip(draws, -1e306, 1e306) / bandwidth for draws in SAMPLES[case](np.random.default_rng(7)))
    assert abs(mmd2(x, y) - double_sum(x, y)) < 2e-15
    assert abs(mmd2(x, y) - mmd2(y, x)) < 1e-15


def test_wrong_bandwidth_differs():
    x, y = SAMPLES["rates"](np.random.default_rng(7))
    assert abs(mmd2(x / 1.05, y / 1.05) - double_sum(x, y)) > 1e-6


def test_small_values_are_accurate():
    """MMD² of samples that differ by 1e-6, about 1e-12, is accurate to one part in a thousand."""
    x = np.linspace(0.4, 0.6, 1001)
    n, shift = x.size, 1e-6
    moments = np.mean(x - x.mean()) ** 2 + np.var(x)
    found = mmd2(x, x + shift) + 2 / (n - 1) * (1 - _mean_kernel(x))
    assert found == pytest.approx(shift**2 * (1 - 3 * moments), rel=1e-3)


def _mean_kernel(x):
    z = x.astype(np.longdouble)
    return float(np.exp(-((z[:, None] - z) ** 2) / 2).mean())


@pytest.mark.parametrize("cutoff", [2.0, 4.0, 6.0])
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_cosine_sum_error_is_within_bound(cutoff, scale):
    """At small cutoffs, the error of the cosine sum is far above rounding, but within the stated bound."""
    rng = np.random.default_rng(5)
    x, y = scale * rng.random(300), scale * rng.random(200) ** 2
    distance = max(x.max(), y.max()) - min(x.min(), y.min())
    bound = 4 * (2.01 * math.exp(-(cutoff**2) / 2) + math.erfc(cutoff / math.sqrt(2)))
    error = abs(mmd._mmd2_by_frequencies(x, y, distance, cutoff) - double_sum(x, y))
    assert 1e-14 < error < bound


def expected_mmd2(shift, std):
    """Return the expected MMD² of samples from N(0, std²) and N(shift, std²) with bandwidth 1."""
    spread = 1 + 2 * std**2
    return 2 / math.sqrt(spread) * -math.expm1(-(shift**2) / (2 * spread))


def own_pairs(samples):
    """Return, for each row, the bias of a mean over all pairs of draws that includes each draw with itself."""
    return np.array([(1 - np.exp(-((z[:, None] - z) ** 2) / 2).mean()) / (z.size - 1) for z in samples])


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_mmd2_is_unbiased(shift):
    rng = np.random.default_rng(11)
    x, y = rng.normal(0, 0.4, (4000, 60)), rng.normal(shift, 0.4, (4000, 40))
    found = mmd2(x, y)
    assert_mean_within(found, expected_mmd2(shift, 0.4))
    if shift:
        assert_rejects(assert_mean_within, found, 1.05 * expected_mmd2(shift, 0.4))
    # The biased estimate includes pairs of each draw with itself.
    assert_rejects(assert_mean_within, found + own_pairs(x) + own_pairs(y), expected_mmd2(shift, 0.4))


draws = st.lists(st.floats(-20, 20), min_size=2, max_size=30).map(np.array)


@settings(deadline=None, max_examples=60)
@given(x=draws, y=draws, shift=st.floats(-1000, 1000))
def test_is_invariant_to_order_and_shift(x, y, shift):
    found = mmd2(x, y)
    assert abs(mmd2(x[::-1], np.roll(y, 1)) - found) < 1e-14
    assert abs(mmd2(x + shift, y + shift) - found) < 1e-11  # shifted draws have rounding errors of 1e-13
    assert -4 / (min(x.size, y.size)) <= found <= 2 + 1e-12


def test_trials_are_rows():
    rng = np.random.default_rng(3)
    x, y = rng.random((2, 3, 50)), rng.random((2, 3, 40))
    found = mmd2(x, y)
    assert found.shape == (2, 3)
    assert found[1, 2] == mmd2(x[1, 2], y[1, 2])
    assert mmd2(np.zeros((0, 5)), np.zeros((0, 5))).shape == (0,)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1.0], [1.0, 2.0], "x must have at least 2 draws"),
        ([1.0, 2.0], 3.0, "y must have at least 2 draws"),
        ([1.0, np.nan], [1.0, 2.0], "x must be finite, got nan"),
        ([[1.0, 2.0]], [1.0, 2.0], "same leading axes"),
    ],
)
def test_invalid_input_raises(x, y, message):
    assert_refused(lambda: mmd2(x, y), message)
