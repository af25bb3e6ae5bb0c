"""Cases of parametrised tests that only the exhaustive checks make."""

import pytest

REPEATED = (pytest.mark.slow, pytest.mark.exhaustive)
"""Marks of a slow repetition of an ordinary test."""


def exhaustive(*cases):
    """Return cases, each a value or a tuple of values, for the exhaustive checks only."""
    values = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*each, marks=pytest.mark.exhaustive) for each in values]


def in_turn(cases, every=2):
    """Return all cases: one of `every` for the gate, and the others, which it represents, for the exhaustive checks."""
    return [exhaustive(case)[0] if place % every else case for place, case in enumerate(cases)]
