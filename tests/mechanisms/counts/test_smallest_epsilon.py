"""Tests of the exact privacy loss of every mechanism that releases counts, at the smallest supported ε."""

import pytest

from mechanisms.audit.counts import audit_counts
from mechanisms.core.privacy_parameters import SMALLEST_EPSILON, validate_resolved_epsilon
from mechanisms.counts.bound_calibration import bound_scale
from mechanisms.counts.calibration import calibrate
from mechanisms.counts.hamming import calibrate_hamming
from mechanisms.counts.optimal import optimal_distribution
from mechanisms.counts.registry import MECHANISMS
from mechanisms.counts.sensitivity import Rule

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


@pytest.mark.parametrize(
    "call",
    [
        *(lambda e, m=mechanism: m.build([1, 1], [2, 1], e, 1e-8) for mechanism in MECHANISMS.values()),
        lambda e: calibrate(Rule.SMOOTH, [1, 1], 3, e),
        lambda e: calibrate_hamming(3, 2, e),
        lambda e: bound_scale([1, 1], 3, e),
        lambda e: optimal_distribution([1, 1], 3, e),
        lambda e: audit_counts("geometric", [1, 1], 3, e),
        validate_resolved_epsilon,
    ],
)
@pytest.mark.parametrize("epsilon", [1e-17, 0.999 * SMALLEST_EPSILON])
def test_epsilon_below_the_smallest_raises(call, epsilon):
    with pytest.raises(ValueError, match="epsilon must be >= 1e-08 in double") as caught:
        call(epsilon)
    assert "\n" not in str(caught.value)
