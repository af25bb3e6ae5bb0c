"""Cases of parametrised tests that only the exhaustive checks make."""

import pytest

REPEATED = (pytest.mark.slow, pytest.mark.exhaustive)
"""Marks of a slow repetition of an ordinary test."""


def exhaustive(*cases):
    """Return cases, each a value or a tuple of values, for the exhaustive checks only."""
    values = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*each, marks=pytest.mark.exhaustive) for each in values]


def in_turn(cases, every=2):
    """Return every second, or other, case, and the rest, of which the gate has a representative, for these checks."""
    return [exhaustive(case)[0] if place % every else case for place, case in enumerate(cases)]
