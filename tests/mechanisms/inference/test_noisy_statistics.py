"""Tests of the distribution of noisy statistics, and of their exact privacy loss in every family."""

import numpy as np
import pytest
from scipy import stats

from mechanisms.inference.families import FAMILIES
from tests.mechanisms.inference.laplace import statistic

# Bounds, and the two records whose exchange changes the statistic most.
WORST = {
    "binomial": (None, 0, 1),
    "multinomial": (None, (1, 0, 0), (0, 0, 1)),
    "exponential": ((0.5, 2.0), 2.0, 3.0),
    "poisson": ((1, 4), 4, 0),
    "normal": ((-1.0, 2.0), -1.0, 2.0),
}
OTHERS = {name: [second] * 3 for name, (_, _, second) in WORST.items()}


def largest_loss(name, noise_scale):
    """Return the loss sup_y ln p(y|s)/p(y|s') = |s − s'|/b for the most distant neighbouring statistics s and s'."""
    bounds, first, second = WORST[name]
    s = statistic(name, [first, *OTHERS[name]], bounds)
    neighbour = statistic(name, [second, *OTHERS[name]], bounds)
    y = np.stack([s, neighbour, s - 100.0, s + 100.0])
    attained = stats.laplace.logpdf(y, s, noise_scale) - stats.laplace.logpdf(y, neighbour, noise_scale)
    closed_form = np.abs(s - neighbour).sum() / noise_scale
    assert np.abs(attained).max(axis=0).sum() == pytest.approx(closed_form, rel=1e-9)
    return closed_form


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("name", FAMILIES)
def test_privacy_loss_equals_budget(name, epsilon):
    sensitivity = FAMILIES[name].sensitivity(WORST[name][0])
    assert largest_loss(name, sensitivity / epsilon) == pytest.approx(epsilon, rel=1e-12)
    assert largest_loss(name, 0.95 * sensitivity / epsilon) > epsilon * 1.05
