"""Tests of audits of noisy sums against random records, integrals by mpmath, and guarantees under both relations."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from mechanisms import FAMILIES, Guarantee, Neighbouring, audit_sums
from mechanisms.core.noise import Noise
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.inference.laplace import BOUNDS
from tests.mechanisms.refusals import assert_refused

REPLACED, ADDED = Neighbouring
CASES = list(itertools.product(FAMILIES, Neighbouring))
SENSITIVITIES = {"binomial": (1, 1), "multinomial": (2, 1), "exponential": (3, 3), "poisson": (9, 9), "normal": (3, 2)}


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_loss_is_epsilon_and_larger_with_less_noise(name, relation):
    family, bounds = FAMILIES[name], BOUNDS.get(name)
    sensitivity = family.sensitivity(bounds, relation)
    assert sensitivity == SENSITIVITIES[name][relation is ADDED]
    scale = sensitivity / 0.7
    stated = Guarantee(sensitivity / scale, relation=relation)
    assert stated.relation is relation
    found = audit_sums(family, scale, bounds, relation, epsilons=(stated.epsilon,))
    assert found.epsilon == pytest.approx(0.7, rel=1e-12)
    assert found.check(stated).holds
    weak = audit_sums(family, 0.95 * scale, bounds, relation)
    assert not weak.check(stated).holds


def test_addition_compares_the_empty_data_set():
    for name in FAMILIES:
        found = audit_sums(name, 1.0, BOUNDS.get(name), ADDED)
        assert (found.witness.dataset.size, len(found.witness.neighbour)) == (0, 1)


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("bounds", [(5e49, 1e50), (-1e50, 1e50), (2.0**53, 2.0**53 + 2), (1e-50, 3e-50), (-3.0, -1.0)])
@pytest.mark.parametrize("name", ["normal", "normal-unknown-variance"])
def test_loss_is_exact_at_huge_and_tiny_bounds(name, bounds, outside):
    """The loss at scale Δ is 1, where Δ is the sensitivity of the release, and larger with 1 % less noise."""
    c = [Fraction(v) for v in bounds]
    c += [Fraction(0)] if outside == "drop" else []
    square = name != "normal"
    sensitivity = 2.25 if square else float(max(abs(x - y) for x in c for y in c))
    found = audit_sums(name, sensitivity, bounds, outside=outside)
    assert found.epsilon == pytest.approx(1.0, rel=1e-12)
    assert audit_sums(name, 0.99 * sensitivity, bounds, outside=outside).epsilon > 1.009


def test_loss_of_sums_is_stated_for_a_public_unit():
    assert audit_sums("normal", 1e50, (5e49, 1e50)).epsilon == 1.0


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("bounds", [(-2.0, 1.0), (0.1, 0.3), (-0.4, 0.2), (1.0, 4.0)])
@pytest.mark.parametrize("scales", [(1.0,), (1.0, 1.0), (2.0, 0.7), (0.3, 5.0)])
def test_loss_with_squares_is_the_largest_over_a_grid(bounds, relation, outside, scales):
    """With one scale per component, the loss is the supremum over a fine grid of records in and outside the bounds."""
    grid = np.concatenate([[bounds[0] - 1, bounds[1] + 1], np.linspace(*bounds, 2001)])
    c = ReleaseModel("normal-unknown-variance", 1, Noise("laplace", 1.0), bounds, outside).contributions(grid)
    weights = np.broadcast_to(scales, 2)
    others = np.append(c, 0.0) if relation is ADDED else c
    first = c if relation is REPLACED else np.zeros(1)
    changes = np.abs(first[:, None] - others) / weights[0] + np.abs(first[:, None] ** 2 - others**2) / weights[1]
    found = audit_sums("normal-unknown-variance", scales, bounds, relation, outside=outside)
    assert changes.max() <= found.epsilon * (1 + 1e-12)
    assert found.epsilon <= changes.max() * (1 + 1e-5)


def test_clamped_records_lose_less_than_dropped_ones():
    assert audit_sums("normal", 1.0, (2.0, 3.0)).epsilon == 3.0
    assert audit_sums("normal", 1.0, (2.0, 3.0), outside="clamp").epsilon == 1.0


def test_guarantee_under_another_relation_raises():
    for audited, stated in ((REPLACED, ADDED), (ADDED, REPLACED)):
        found = audit_sums(FAMILIES["binomial"], 1.0, relation=audited)
        with pytest.raises(ValueError, match="a guarantee must be checked under its own relation"):
            found.check(Guarantee(1.0, 0.0, stated))


@pytest.mark.slow
@pytest.mark.parametrize(("relation", "moves"), [(REPLACED, (1, 1)), (ADDED, (1,))])
def test_profile_equals_integration_of_the_densities(relation, moves):
    """The privacy profile equals an integral of the noise densities, shifted by a replacement or an addition."""
    scale, epsilons = 0.8, (0.0, 0.4, 1.1, 2.4)
    found = audit_sums(FAMILIES["multinomial"], scale, relation=relation, epsilons=epsilons)
    for epsilon in epsilons:

        def excess(*point, at=epsilon):
            p = mpmath.exp(-sum(abs(z) for z in point) / scale)
            q = mpmath.exp(-sum(abs(z - m) for z, m in zip(point, moves, strict=True)) / scale)
            return max(p - mpmath.exp(at) * q, mpmath.mpf(0)) / (2 * scale) ** len(moves)

        if len(moves) == 1:
            edge = (1 - scale * epsilon) / 2
            exact = mpmath.quad(excess, [-40, 0, edge]) if edge > 0 else mpmath.mpf(0)
            assert found.deltas[epsilon] == pytest.approx(float(exact), abs=1e-9)
        else:
            grid = np.linspace(-12, 12, 3001)
            p = np.exp(-np.abs(grid) / scale) / (2 * scale)
            q = np.exp(-np.abs(grid - 1) / scale) / (2 * scale)
            rough = np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q, q), 0).sum() * (grid[1] - grid[0]) ** 2
            assert found.deltas[epsilon] == pytest.approx(rough, abs=3e-5)


def test_profile_of_sums_with_squares_is_the_largest_of_all_records():
    """Of a grid of pairs of records, δ is the mean of that of the sum over the loss of the noisy squares."""
    scales, epsilons, grid = np.array([0.5, 0.2]), (0.5, 2.16, 3.0), np.linspace(-1.0, 1.0, 41)
    u = (np.arange(2_000) + 0.5) / 2_000
    noise = np.where(u < 0.5, np.log(2 * u), -np.log(2 * (1 - u)))  # quantiles of Laplace noise of scale 1

    def delta(epsilon, moved, squares):
        remaining = epsilon - (np.abs(noise - squares) - np.abs(noise))
        inside = np.where(remaining > -moved, -np.expm1((remaining - moved) / 2), -np.expm1(np.minimum(remaining, 0)))
        return np.where(remaining < moved, inside, 0).mean()

    found = audit_sums("normal-unknown-variance", scales, (-3.0, 3.0), epsilons=epsilons)
    for epsilon in epsilons:
        pairs = itertools.combinations(grid, 2)
        largest = max(delta(epsilon, *np.abs([x - z, x * x - z * z] / scales)) for x, z in pairs)
        assert largest - 1e-6 < found.deltas[epsilon] < largest + 1e-4
    assert not found.check(Guarantee(2.16, 0.825)).holds
    precise = audit_sums("normal-unknown-variance", (1e6, 1e-6), (-3.0, 3.0), epsilons=(1.0,))
    assert precise.deltas[1.0] == pytest.approx(1.0, abs=1e-9)


def test_invalid_arguments_raise():
    assert_refused(lambda: audit_sums("binomial", 0.0), "noise_scale must be a finite number > 0, got 0")
    assert_refused(lambda: audit_sums("binomial", 1.0, epsilons=(-1.0,)), "epsilons must be finite and >= 0, got -1")
    assert_refused(lambda: audit_sums("poisson", 1.0), "bounds must be")
    assert_refused(lambda: audit_sums("binomial", (1.0, 2.0)), "noise_scale must be one number, got 2; pass one scale")
