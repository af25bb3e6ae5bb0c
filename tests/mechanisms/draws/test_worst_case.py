"""Tests of data sets whose divergences approach the bound of P3's Theorem 16, and of the records that audits use."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.special import expit

from mechanisms.audit.replacements import audit_replacements
from mechanisms.draws.glm_mechanisms import LINKS, GlmMechanism, glm_mechanism
from mechanisms.draws.worst_case import (
    LARGEST_SHARE_1D,
    candidate_records,
    limiting_case,
    shared_records,
    validate_dimension,
)
from tests.mechanisms.refusals import assert_refused


def share(case, n, precision, order=2.0, power=1.0, c=1.0):
    """Return the ratio of the divergence, computed by quadrature, to the bound 2c²ρ²λ/κ."""
    mechanism = GlmMechanism("distribution", precision, power, math.inf, LINKS["logistic"], c, None)
    found = audit_replacements(mechanism, case.candidates, [[*case.shared, n - 1]], [order])
    return found.renyi[order] / (2 * (c * power) ** 2 * order / precision)


def test_largest_difference_of_slopes_in_one_dimension():
    """The derived largest difference of two records' slopes, at the weight 4.03, equals the largest on a grid."""
    records = np.linspace(-1, 1, 801)
    weights = np.concatenate([np.linspace(0, 10, 1001), np.linspace(10, 500, 200)])
    slopes = records * expit(-records * weights[:, None])
    spread = slopes.max(axis=1) - slopes.min(axis=1)
    assert spread.max() <= 2 * math.sqrt(LARGEST_SHARE_1D)
    assert (spread.max() / 2) ** 2 == pytest.approx(LARGEST_SHARE_1D, rel=1e-5)
    assert weights[spread.argmax()] == pytest.approx(4.03, abs=0.02)


def test_shared_records_have_the_largest_mode():
    """The mode W of the shared records solves max over lengths s of sσ(−sW) = βW, so no mode is larger."""
    lengths = np.linspace(1e-3, 1, 20_001)
    for beta in (1e-4, 1e-2, 0.3, 5.0):
        case = limiting_case(beta, 2)
        pushes = lengths * expit(-lengths * case.mode)
        assert pushes.max() == pytest.approx(beta * case.mode, rel=1e-6)
        assert lengths[pushes.argmax()] == pytest.approx(case.shared[0], abs=2e-3)


@pytest.mark.parametrize("c", [1.0, 3.0])
@pytest.mark.parametrize("power", [1.0, 0.2])
@pytest.mark.parametrize("beta", [0.5, 1e-2, 1e-4])
@pytest.mark.parametrize("dimension", [1, 2])
def test_divergences_approach_limits(dimension, beta, power, c):
    """At a large precision, the ratio of the divergence to the bound agrees with its limit."""
    case = limiting_case(beta, dimension, c, power)
    precision = 3000.0 * c * c
    assert share(case, precision / beta, precision, 2.0, power, c) == pytest.approx(case.share, rel=5e-3)


def test_bound_is_tight_only_in_two_dimensions():
    """As β → 0, the ratio of the divergence to the bound tends to 1 in two dimensions, and to 0.27648 in one."""
    for precision, order in ((1.0, 1.0), (10.0, 10.0)):
        shares = [share(limiting_case(beta, 2), precision / beta, precision, order) for beta in (1e-3, 1e-5, 1e-7)]
        assert shares == sorted(shares)
        assert 0.999 < shares[-1] < 1
    one = [limiting_case(beta, 1).share for beta in np.logspace(-9, 3, 40)]
    assert np.all(np.diff(one) <= 1e-9)
    assert one[-1] == pytest.approx(0.25, rel=1e-6)
    assert one[0] == pytest.approx(LARGEST_SHARE_1D, rel=1e-5)
    assert max(one) < LARGEST_SHARE_1D
    two = [limiting_case(beta, 2).share for beta in np.logspace(-9, 3, 40)]
    assert np.all(np.diff(two) < 0)
    assert two[-1] == pytest.approx(0.25, rel=1e-2)
    assert 0.99999 < two[0] < 1


def test_limits_scale_with_norm_bound():
    """Limits of the ratio at the norm bound c equal those at the norm bound 1 with β/c² in place of β."""
    for dimension in (1, 2):
        plain, scaled = limiting_case(0.01, dimension), limiting_case(0.09, dimension, norm_bound=3.0)
        assert scaled.share == pytest.approx(plain.share, rel=1e-6)
        assert scaled.mode == pytest.approx(plain.mode / 3, rel=1e-3)


@pytest.mark.parametrize("dimension", [1, 2])
@pytest.mark.parametrize("n", [2, 3, 1000])
def test_shared_records(dimension, n):
    mechanism = glm_mechanism("glm-diffused", n, 0.01, 2, 0.1, norm_bound=0.7)
    kinds = shared_records(mechanism, n, dimension)
    assert list(kinds) == ["separable", "weak", *["weaker"][: 2 - dimension], "balanced"]
    for rows in kinds.values():
        assert rows.shape[1] == dimension + 2
        assert rows[:, -1].sum() == n - 1
        assert np.linalg.norm(rows[:, :dimension], axis=1).max() <= 0.7
    assert np.ptp(kinds["balanced"][:, -1]) <= 1
    assert shared_records(mechanism, 1, dimension) == {"none": None}


def test_candidate_records():
    np.testing.assert_array_equal(
        candidate_records(2.0, 1, 2, labels=(0, 1)), [[-2.0, 0.0], [2.0, 0.0], [-2.0, 1.0], [2.0, 1.0]]
    )
    circle = candidate_records(0.5, 2, 8, shares=(0.1, 1.0))
    assert circle.shape == (16, 3)
    np.testing.assert_allclose(np.linalg.norm(circle[:, :2], axis=1), np.repeat([0.05, 0.5], 8), rtol=1e-12)


def test_invalid_dimensions_raise():
    for function in (validate_dimension, partial(limiting_case, 1.0), lambda d: candidate_records(1.0, d, 3)):
        for dimension in (0, 3):
            assert_refused(partial(function, dimension), f"x must have 1 or 2 dimensions, got {dimension}")
