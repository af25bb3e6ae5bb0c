"""Tests of the searches for parameters against known boundaries."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.core.calibrate import bisect, first_private, largest_below


@given(st.floats(1e-6, 1e6))
def test_bisection_ends_at_the_doubles_around_a_boundary(boundary):
    low, high = bisect(lambda x: x < boundary, 0.0, 2e6)
    assert low < boundary <= high
    assert high == math.nextafter(low, math.inf)


@pytest.mark.parametrize(("tolerance", "width"), [({"relative": 0.01}, 0.02), ({"absolute": 0.1}, 0.1)])
def test_bisection_ends_at_a_tolerance(tolerance, width):
    asked = []
    low, high = bisect(lambda x: asked.append(x) or x < 1.7, 0.0, 2.0, **tolerance)
    assert low < 1.7 <= high
    assert width / 4 < high - low <= width
    assert 0.0 not in asked
    assert 2.0 not in asked


def test_bisection_towards_zero_ends():
    low, high = bisect(lambda x: False, 0.0, 1.0)
    assert (low, high) == (0.0, 2.0**-200)


def test_first_private_value_of_a_grid():
    assert first_private(lambda x: x <= 3, [5, 4, 3, 2]) == (3, 4)
    assert first_private(lambda x: x <= 9, [5, 4]) == (5, 5)
    with pytest.raises(AssertionError, match="no parameter is private down to 4"):
        first_private(lambda x: False, [5, 4])


@pytest.mark.parametrize("boundary", [1e-3, 0.5, 0.999, 1.0, 3.0])
def test_largest_private_parameter_is_below_the_boundary(boundary):
    found = largest_below(lambda x: x <= boundary, 1.0, 1e-10)
    assert min(boundary, 1.0) * (1 - 2e-10) <= found < min(boundary, 1.0)


def test_largest_private_parameter_is_that_of_the_upper_interval():
    """If the loss is not monotone, the interval that is found first from above counts."""
    found = largest_below(lambda x: x <= 0.2 or 0.5 <= x <= 0.6, 1.0, 1e-10)
    assert found == pytest.approx(0.6, rel=1e-9)
