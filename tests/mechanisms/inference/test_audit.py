"""Tests of audits of noisy sums against random records, integrals by mpmath, and guarantees under both relations."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from mechanisms import FAMILIES, Guarantee, Neighbouring, audit_sums
from mechanisms.inference.noisy_statistics import laplace_guarantee, laplace_scale

REPLACED, ADDED = Neighbouring
BOUNDS = {"exponential": (0.5, 3.0), "poisson": (2.0, 9.0), "normal": (-1.0, 2.0)}
CASES = list(itertools.product(FAMILIES, Neighbouring))
SENSITIVITIES = {
    "binomial": (1, 1),
    "multinomial": (2, 1),
    "exponential": (3, 3),
    "poisson": (9, 9),
    "normal": (3, 2),
}


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_loss_is_epsilon_and_larger_with_less_noise(name, relation):
    family, bounds = FAMILIES[name], BOUNDS.get(name)
    sensitivity = family.sensitivity(bounds, relation)
    assert sensitivity == SENSITIVITIES[name][relation is ADDED]
    scale = laplace_scale(sensitivity, 0.7)
    stated = laplace_guarantee(sensitivity, scale, relation)
    assert stated.relation is relation
    found = audit_sums(family, scale, bounds, relation, epsilons=(stated.epsilon,))
    assert found.epsilon == pytest.approx(0.7, rel=1e-12)
    assert found.check(stated).holds
    weak = audit_sums(family, 0.95 * scale, bounds, relation)
    assert not weak.check(stated).holds


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_loss_is_largest_at_extreme_records(name, relation):
    family, bounds = FAMILIES[name], BOUNDS.get(name)
    rng, largest = np.random.default_rng(1), audit_sums(family, 1.0, bounds, relation).epsilon
    theta = [[0.2, 0.5, 0.3]] if name == "multinomial" else [[0.4]]
    seen = 0.0
    for _ in range(300):
        size = 4
        if name == "multinomial":
            records = rng.multinomial(1, theta[0], size=size).astype(float)
        elif name == "binomial":
            records = rng.integers(0, 2, size).astype(float)
        elif name == "poisson":
            records = rng.poisson(6.0, size).astype(float)
        else:
            records = rng.normal(0, 3, size) if name == "normal" else rng.exponential(2.0, size)
        other = np.concatenate([records[: size - 2], records[size - 1 :]])
        first = records[: size - 1] if relation is REPLACED else records
        sums = [family.statistics(data, bounds)[1] for data in (first, other)]
        seen = max(seen, np.abs(sums[0] - sums[1]).sum())
    assert 0.8 * largest < seen <= largest


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
            grid = np.linspace(-16, 16, 4001)
            p = np.exp(-np.abs(grid) / scale) / (2 * scale)
            q = np.exp(-np.abs(grid - 1) / scale) / (2 * scale)
            rough = np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q, q), 0).sum() * (grid[1] - grid[0]) ** 2
            assert found.deltas[epsilon] == pytest.approx(rough, abs=3e-5)


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="noise_scale must be a finite number > 0, got 0"):
        audit_sums(FAMILIES["binomial"], 0.0)
    with pytest.raises(ValueError, match="epsilons must be finite and >= 0, got -1"):
        audit_sums(FAMILIES["binomial"], 1.0, epsilons=(-1.0,))
    with pytest.raises(ValueError, match="bounds must be"):
        audit_sums(FAMILIES["poisson"], 1.0)
