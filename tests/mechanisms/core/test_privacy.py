"""Tests of guarantees and of the ranges of their parameters."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.core.privacy import (
    ConcentratedGuarantee,
    Guarantee,
    Neighbouring,
    RenyiGuarantee,
    Status,
    require_proved,
)
from mechanisms.core.privacy_parameters import validate_epsilon, validate_order
from tests.mechanisms.refusals import assert_refused


@pytest.mark.parametrize("epsilon", [5e-324, 1e-320, 9e-101, 1.1e100, 1e308])
def test_epsilon_out_of_range_raises(epsilon):
    assert_refused(lambda: validate_epsilon(epsilon), r"epsilon must be in \[1e-100, 1e100\], got ")
    assert (validate_epsilon(1e-100), validate_epsilon(1e100)) == (1e-100, 1e100)


def test_guarantees_are_frozen_values():
    assert RenyiGuarantee(2, 0.5) == RenyiGuarantee(2.0, 0.5, Neighbouring.REPLACE_ONE)
    assert Guarantee(1.0) == Guarantee(1.0, 0.0, Neighbouring.REPLACE_ONE)
    assert (Guarantee(1.0).is_pure, Guarantee(1.0, 1e-8).is_pure) == (True, False)
    assert validate_order(1) == 1.0
    for guarantee in (Guarantee(1.0), RenyiGuarantee(2, 0.5)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            guarantee.epsilon = 2.0


def test_guarantees_store_floats():
    assert type(Guarantee(1).epsilon) is type(Guarantee(1).delta) is float
    assert Guarantee(Fraction(1, 2)) == Guarantee(np.float64(0.5), 0)
    assert type(ConcentratedGuarantee(Fraction(1, 2)).rho) is float


CONJECTURED = (Guarantee(1.0, 1e-8, status=Status.CONJECTURED), RenyiGuarantee(2, 0.5, status=Status.CONJECTURED))


def test_status_is_proved_by_default():
    assert Guarantee(1.0).status is RenyiGuarantee(2, 0.5).status is Status.PROVED
    assert Guarantee(1.0, 1e-8) != CONJECTURED[0]


@pytest.mark.parametrize("arguments", [(Guarantee, 1.0), (RenyiGuarantee, 2, 0.5)])
def test_invalid_status_raises(arguments):
    with pytest.raises(ValueError, match=r"status must be Status.PROVED or Status.CONJECTURED, got 'proved'; pass"):
        arguments[0](*arguments[1:], status="proved")


@pytest.mark.parametrize("guarantee", CONJECTURED)
def test_require_proved_rejects_conjectured_guarantees_by_default(guarantee):
    assert_refused(lambda: require_proved(guarantee), r"a guarantee must be proved, got .*, conjectured; pass ano")
    require_proved(guarantee, allow_conjectured=True)
    require_proved(Guarantee(1.0))


ADDED = Neighbouring.ADD_OR_REMOVE_ONE


@pytest.mark.parametrize(
    ("guarantee", "text"),
    [
        (Guarantee(0.5), "0.5-DP"),
        (Guarantee(0.5, 1e-8), "(0.5, 1e-08)-DP"),
        (RenyiGuarantee(1, 1e-8), "(1, 1e-08)-RDP"),
        (ConcentratedGuarantee(0.5), "0.5-zCDP"),
        (Guarantee(1.0, relation=ADDED), "1-DP under add/remove"),
        (RenyiGuarantee(2, 0.5, ADDED), "(2, 0.5)-RDP under add/remove"),
        (ConcentratedGuarantee(0.1, ADDED), "0.1-zCDP under add/remove"),
        (CONJECTURED[0], "(1, 1e-08)-DP, conjectured"),
        (CONJECTURED[1], "(2, 0.5)-RDP, conjectured"),
    ],
)
def test_texts_state_relations_other_than_replacement_and_conjectures(guarantee, text):
    assert str(guarantee) == text
