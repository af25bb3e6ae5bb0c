"""Cases of parametrised tests that only the exhaustive checks make."""

import pytest


def exhaustive(*cases):
    """Return cases, each a value or a tuple of values, for the exhaustive checks only."""
    values = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*each, marks=pytest.mark.exhaustive) for each in values]


def in_turn(cases):
    """Return every other case, and the others, of which the gate has a representative, for the exhaustive checks."""
    return [exhaustive(case)[0] if place % 2 else case for place, case in enumerate(cases)]
