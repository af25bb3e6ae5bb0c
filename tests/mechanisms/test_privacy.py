"""Guarantees and the ranges of their parameters."""

import dataclasses

import pytest

from mechanisms.privacy import (
    Guarantee,
    Neighbouring,
    RenyiGuarantee,
    validate_delta,
    validate_epsilon,
    validate_order,
)


@pytest.mark.parametrize("epsilon", [0, -1.0, float("nan"), float("inf"), None, "one", [1, 2]])
def test_invalid_epsilon_raises(epsilon):
    with pytest.raises(ValueError, match="epsilon must be a finite number > 0, got ") as caught:
        validate_epsilon(epsilon)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-320, 9e-101, 1.1e100, 1e308])
def test_epsilon_out_of_range_raises(epsilon):
    with pytest.raises(ValueError, match=r"epsilon must be in \[1e-100, 1e100\], got "):
        validate_epsilon(epsilon)
    assert (validate_epsilon(1e-100), validate_epsilon(1e100)) == (1e-100, 1e100)


@pytest.mark.parametrize("delta", [0, 1, -1e-9, 1.5, float("nan"), None, "small"])
def test_invalid_delta_raises(delta):
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\), got ") as caught:
        validate_delta(delta)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("order", [0.999, 0, -2.0, float("nan"), float("inf"), None, "two", [2, 3]])
def test_invalid_order_raises(order):
    with pytest.raises(ValueError, match="order must be a finite number >= 1, got ") as caught:
        validate_order(order)
    assert "\n" not in str(caught.value)


def test_renyi_guarantee_is_a_frozen_value():
    assert RenyiGuarantee(2, 0.5) == RenyiGuarantee(2.0, 0.5, Neighbouring.REPLACE_ONE)
    assert str(RenyiGuarantee(1, 1e-8)) == "(1, 1e-08)-RDP"
    assert validate_order(1) == 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        RenyiGuarantee(2, 0.5).order = 3
    for arguments in ((0.5, 1.0), (2, 0.0), (2, float("inf")), (float("inf"), 1.0)):
        with pytest.raises(ValueError, match="must be"):
            RenyiGuarantee(*arguments)


def test_guarantee_is_a_frozen_value():
    assert Guarantee(1.0) == Guarantee(1.0, 0.0, Neighbouring.REPLACE_ONE)
    assert Guarantee(1.0).is_pure
    assert not Guarantee(1.0, 1e-8).is_pure
    assert (str(Guarantee(0.5)), str(Guarantee(0.5, 1e-8))) == ("0.5-DP", "(0.5, 1e-08)-DP")
    with pytest.raises(dataclasses.FrozenInstanceError):
        Guarantee(1.0).epsilon = 2.0


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 1.0), (1.0, -0.1), (float("inf"), 0.0)])
def test_invalid_guarantee_raises(epsilon, delta):
    with pytest.raises(ValueError, match="must be"):
        Guarantee(epsilon, delta)
