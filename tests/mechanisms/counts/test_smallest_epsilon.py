"""Tests of the exact privacy loss of every mechanism that releases counts, at the smallest supported ε."""

import pytest

from mechanisms.audit.counts import audit_counts
from mechanisms.core.privacy_parameters import SMALLEST_EPSILON
from mechanisms.counts.registry import MECHANISMS

# discrete-gaussian refuses noise of more than 100,000 records
PRIVATE = [name for name, mechanism in MECHANISMS.items() if mechanism.is_private and name != "discrete-gaussian"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize(("prior", "n"), [((1.0, 1.0), 30), ((0.3, 2.0, 5.0), 6), ((1.0, 1.0, 1.0), 8)])
def test_loss_is_resolved_at_the_smallest_epsilon(name, prior, n):
    """The loss is at most ε, and for exactly calibrated mechanisms equal to ε, to one part in 10⁶."""
    found = audit_counts(name, prior, n, SMALLEST_EPSILON)
    assert found.epsilon <= SMALLEST_EPSILON * (1 + 1e-6)
    assert found.rounding < 1e-5 * SMALLEST_EPSILON
    assert found.check(MECHANISMS[name].guarantee(SMALLEST_EPSILON, 1e-8)).holds
    if MECHANISMS[name].calibrate is not None:
        assert found.epsilon >= SMALLEST_EPSILON * (1 - 1e-6)
