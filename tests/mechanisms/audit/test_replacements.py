"""Tests of audits of GLMs against closed forms and mpmath, and of the guarantees of the mechanisms."""

import itertools
import math
from dataclasses import replace
from functools import cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.audit.replacements import audit_replacements, critical_order, replacement_distributions
from mechanisms.core.conversions import pure_renyi
from mechanisms.core.exact_losses import audit_distributions
from mechanisms.core.privacy import RenyiGuarantee
from mechanisms.draws.glm_mechanisms import LINKS, GlmMechanism, glm_mechanism
from mechanisms.draws.worst_case import candidate_records, limiting_case, shared_records
from tests.mechanisms.draws.test_glm_mechanisms import EXACT
from tests.mechanisms.marks import exhaustive, in_turn

SIGNS = [[1.0, 1], [-1.0, 1]]


def distribution(precision, power=1.0, link="logistic", radius=math.inf, norm_bound=1.0):
    return GlmMechanism("distribution", precision, power, radius, LINKS[link], norm_bound, None)


def opposite_signs(order, precision):
    """Return the Rényi divergence D_λ between the posteriors given one record, +1 or −1, for integer λ.

    With the normal density φ of precision κ, p = 2φ(w)σ(w), q = 2φ(w)σ(−w) and p/q = e^w. The identity
    σ(w)e^w = e^w − σ(w) implies ∫ φσe^(kw) = e^(k²/(2κ)) − ∫ φσe^((k−1)w).
    """
    integral = 0.5
    for k in range(1, order):
        integral = math.exp(k * k / (2 * precision)) - integral
    return math.log(2 * integral) / (order - 1)


@pytest.mark.parametrize("precision", [0.02, 0.5, 1.0, 30.0, 1e4])
def test_closed_form_of_one_record(precision):
    orders = [2, 3, 4] if precision > 0.1 else [2, 3]
    found = audit_replacements(distribution(precision), SIGNS, orders=orders)
    for order in orders:
        assert found.renyi[order] == pytest.approx(opposite_signs(order, precision), rel=1e-9)
    assert found.evidence == "quadrature"
    assert found.epsilon == math.inf
    assert found.n_pairs == 1


def test_closed_form_of_one_record_with_other_norms():
    """The divergence depends on the norm bound c and the precision κ only through c²/κ."""
    found = audit_replacements(distribution(9.0, norm_bound=3.0), [[3.0, 1], [3.0, 0]], orders=[3])
    assert found.renyi[3] == pytest.approx(opposite_signs(3, 1.0), rel=1e-10)


@pytest.mark.parametrize("dimension", [1, 2])
def test_normal_limit(dimension):
    """For a small power ρ, at which the posterior is nearly normal, the Rényi divergence D_λ tends to λ(cρ)²/(2κ)."""
    candidates = [[sign, *[0.0] * (dimension - 1), 1] for sign in (1.0, -1.0)]
    found = audit_replacements(distribution(2.0, power=1e-4), candidates, orders=[1, 2, 5])
    for order, divergence in found.renyi.items():
        assert divergence == pytest.approx(order * 1e-8 / 4, rel=1e-4)


@cache
def log_likelihood(link, x, y, w):
    return EXACT[link](x * w, y)


def mpmath_divergence(mechanism, first, second, shared, order, reach):
    """Return the Rényi divergence D_λ in one dimension by quadrature in 20-digit arithmetic."""
    link = mechanism.link.name
    with mpmath.workdps(20):
        nodes, weights = np.arange(-reach, reach + 1e-9, 0.1), itertools.repeat(0.1)
        if reach == mechanism.radius:
            nodes, weights = (reach * part for part in np.polynomial.legendre.leggauss(60))
        sums = [mpmath.mpf(0)] * 3
        for w, weight in zip(map(mpmath.mpf, nodes), weights, strict=False):
            common = sum(count * log_likelihood(link, x, y, w) for x, y, count in shared)
            common = mechanism.power * common - mechanism.precision * w**2 / 2
            here, there = (mechanism.power * log_likelihood(link, *record, w) for record in (first, second))
            p, q = mpmath.exp(common + here), mpmath.exp(common + there)
            mixed = p * (here - there) if order == 1 else p * mpmath.exp((order - 1) * (here - there))
            sums = [total + weight * term for total, term in zip(sums, (p, q, mixed), strict=True)]
        if order == 1:
            return float(sums[2] / sums[0] + mpmath.log(sums[1] / sums[0]))
        return float((mpmath.log(sums[2]) - order * mpmath.log(sums[0])) / (order - 1) + mpmath.log(sums[1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "orders", "reach"),
    [
        (distribution(0.5, power=0.7), (1, 2.5, 12), 35),
        (distribution(3.0, radius=1.5), (1, 3), 1.5),
        (distribution(2.0, link="probit"), (1, 2.6), 20),
        (distribution(1.0, link="cloglog"), (1,), 12),
        *exhaustive((distribution(1.0, power=0.5, link="probit"), (1, 2.8), 35)),
    ],
)
def test_divergences_equal_mpmath(mechanism, orders, reach):
    shared, candidates = [[0.8, 1, 3], [-0.6, 1, 2], [0.9, 0, 1]], [[0.9, 1], [0.7, 0]]
    found = audit_replacements(mechanism, candidates, shared, orders)
    for order in orders:
        both = [mpmath_divergence(mechanism, *pair, shared, order, reach) for pair in (candidates, candidates[::-1])]
        assert found.renyi[order] == pytest.approx(max(both), rel=1e-8)
        assert abs(found.renyi[order] / (1.05 * max(both)) - 1) > 0.01


def test_two_dimensions_factorise():
    """If the shared records are orthogonal to the replaced one, they do not affect the divergence."""
    candidates, weak = [[0.0, 1, 1], [0.0, -1, 1]], [[1.0, 0, 1, 40], [-0.3, 0, 1, 1000], [0.2, 0, 0, 7]]
    found = audit_replacements(distribution(0.8), candidates, weak, [2, 3, 4])
    for order, divergence in found.renyi.items():
        assert divergence == pytest.approx(opposite_signs(int(order), 0.8), rel=1e-9)


@pytest.mark.parametrize("angle", [0.3, 0.8, 2.0])
def test_divergences_are_invariant_to_rotation(angle):
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    candidates = np.array([[0.9, 0.2, 1], [-0.4, 0.7, 0], [0.1, -0.99, 1]])
    shared = np.array([[1.0, 0.0, 1, 30], [0.3, 0.6, 0, 12]])
    turned, others = candidates.copy(), shared.copy()
    turned[:, :2], others[:, :2] = candidates[:, :2] @ turn.T, shared[:, :2] @ turn.T
    plain = audit_replacements(distribution(1.3), candidates, shared, [1, 4])
    rotated = audit_replacements(distribution(1.3), turned, others, [1, 4])
    assert rotated.renyi[1] == pytest.approx(plain.renyi[1], rel=1e-7)
    assert rotated.renyi[4] == pytest.approx(plain.renyi[4], rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dimension", "link"),
    [*((1, link) for link in LINKS), (2, "logistic"), *exhaustive((2, "probit"), (2, "cloglog"))],
)
def test_larger_boxes_and_finer_nodes_agree(dimension, link):
    mechanism = distribution(2.0, power=0.8, link=link)
    order = {"logistic": 6.0, "probit": 2.5, "cloglog": 1.0}[link]
    candidates = candidate_records(1.0, dimension, 4, labels=(0, 1), shares=(1.0,))
    for shared in (None, [[0.7, *[0.1] * (dimension - 1), 1, 5]]):
        found = audit_replacements(mechanism, candidates, shared, [order])
        for reach in (8.0, 16.0):
            wide = audit_distributions(
                replacement_distributions(mechanism, candidates, shared, reach=reach), orders=[order]
            )
            assert wide.n_pairs == found.n_pairs == math.comb(len(candidates), 2)
            if reach == 16.0 or dimension == 2:
                assert wide.renyi[order] == pytest.approx(found.renyi[order], rel=1e-6)


def test_counts_are_repetitions():
    once = [[0.4, 1, 1.0]] * 3 + [[-1.0, 0, 1.0]] * 2
    assert audit_replacements(distribution(1.0), SIGNS, once, [2]).renyi[2] == pytest.approx(
        audit_replacements(distribution(1.0), SIGNS, [[0.4, 1, 3], [-1.0, 0, 2]], [2]).renyi[2], rel=1e-10
    )


def test_huge_number_of_shared_records():
    """The divergence due to one replaced record is accurate to 1 % if the neighbours share 10¹² other records."""
    found = audit_replacements(distribution(1.0), SIGNS, [[1.0, 1, 5e11], [-1.0, 1, 5e11]], [1, 2])
    for order, divergence in found.renyi.items():
        assert divergence == pytest.approx(order / (2 * (1 + 1e12 / 4)), rel=1e-2)


def test_divergences_do_not_depend_on_candidate_order():
    found = [
        audit_replacements(distribution(1.0), rows, [[0.3, 1, 9]], [1, 3]).renyi
        for rows in itertools.permutations([[1.0, 1], [-0.5, 1], [0.2, 0]])
    ]
    assert all(one[3] == pytest.approx(found[0][3], rel=1e-9) for one in found)


@given(
    st.floats(0.05, 100),
    st.floats(0.05, 1),
    st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([0, 1]), st.integers(1, 10_000)), max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_logistic_divergences_are_within_the_bound(precision, power, records):
    """For one-dimensional x, D_λ increases with λ, and is at most 0.2765 times the bound 2c²ρ²λ/κ."""
    shared = [list(record) for record in records] or None
    candidates = candidate_records(1.0, 1, 7)
    renyi = audit_replacements(distribution(precision, power), candidates, shared, [1, 1.5, 3, 8]).renyi
    assert np.all(np.diff(list(renyi.values())) >= -1e-9 * renyi[8])
    for order, divergence in renyi.items():
        assert 0 <= divergence <= 0.27649 * 2 * power**2 * order / precision


@pytest.mark.parametrize(("precision", "power", "c"), [(1.0, 1.0, 1.0), (3.0, 0.5, 2.0), (0.2, 0.1, 1.0)])
def test_critical_order_of_probit(precision, power, c):
    """Divergences for weights in growing intervals converge below the critical order, and grow as predicted otherwise.

    With (λ−1)ρc² = κ + δ the integrand grows like exp(δw²/2), so that D_λ on [−B, B] grows like δB²/(2(λ−1)).
    """
    mechanism = distribution(precision, power, "probit", norm_bound=c)
    limit = critical_order(mechanism)
    assert limit == pytest.approx(1 + precision / (power * c**2))
    candidates = [[c, 1], [-c, 1]]
    reaches = np.array([20.0, 40.0, 80.0]) / math.sqrt(precision)
    steps = limit - 1
    orders = [1 + 0.9 * steps, limit, 1 + 1.1 * steps, 1 + 2 * steps]
    grown = [
        audit_distributions(replacement_distributions(mechanism, candidates, reach=r), orders=orders).renyi
        for r in reaches
    ]
    finite = audit_replacements(mechanism, candidates, orders=orders[:1]).renyi[orders[0]]
    assert grown[-1][orders[0]] == pytest.approx(finite, rel=1e-7)
    for order in orders[1:]:
        assert grown[0][order] + 0.1 < grown[1][order] < grown[2][order] - 0.1
    delta = (orders[-1] - 1) * power * c**2 - precision
    gained = grown[2][orders[-1]] - grown[1][orders[-1]]
    assert gained == pytest.approx(delta * (reaches[2] ** 2 - reaches[1] ** 2) / 2 / (orders[-1] - 1), rel=0.02)
    for order in orders[1:]:
        with pytest.raises(ValueError, match=r"orders must be below .* with the probit link"):
            audit_replacements(mechanism, candidates, orders=[order])


def test_divergences_of_complementary_log_log_are_infinite():
    """For weights in [−B, B] and λ > 1, D_λ grows like e^B; the Kullback–Leibler divergence converges."""
    mechanism, candidates = distribution(1.0, link="cloglog"), [[1.0, 1], [1.0, 0]]
    assert critical_order(mechanism) == 1
    audits = [
        audit_distributions(replacement_distributions(mechanism, candidates, reach=r), orders=[1, 1.1, 5])
        for r in (6.0, 8.0, 10.0)
    ]
    for order, tolerance in ((1.1, 0.2), (5, 0.02)):
        for found, reach in zip(audits, (6.0, 8.0, 10.0), strict=True):
            quadratic = reach**2 / 2 / (order - 1)
            assert found.renyi[order] == pytest.approx(math.exp(reach) - quadratic, rel=tolerance)
    assert audits[2].renyi[1] == pytest.approx(audit_replacements(mechanism, candidates).renyi[1], rel=1e-7)
    with pytest.raises(ValueError, match="orders must be below 1 with the cloglog link"):
        audit_replacements(mechanism, candidates, orders=[1.001])
    weak = distribution(1.0, power=0.01, link="cloglog")  # tempering does not make the divergence finite
    grown = [
        audit_distributions(replacement_distributions(weak, candidates, reach=r), orders=[2]).renyi[2]
        for r in (8, 10, 12)
    ]
    assert grown[0] < grown[1] / 3 < grown[2] / 9


def test_probit_exceeds_the_bound_at_finite_orders():
    """With one record, D_λ exceeds the bound at some λ below the critical order; with 20 or more, already at λ = 1."""
    assert audit_replacements(distribution(1.0, link="probit"), SIGNS, orders=[1.9, 1.99]).renyi == pytest.approx(
        {1.9: 3.172869, 1.99: 5.336787}, rel=1e-6
    )
    for n, breaks in ((2, False), (20, True), (1000, True)):
        found = audit_replacements(distribution(0.3, link="probit"), [[0.5, 1], [-1.0, 1]], [[0.1, 1, n - 1]])
        assert (found.renyi[1] > 2 / 0.3) == breaks
    assert audit_replacements(distribution(1.0, link="cloglog"), [[1.0, 1], [1.0, 0]], [[0.1, 1, 999]]).renyi[1] > 20


def test_critical_order_of_every_link():
    assert critical_order(distribution(1.0)) == math.inf
    assert critical_order(distribution(1.0, link="probit", radius=3.0)) == math.inf
    assert {link: critical_order(distribution(6.0, 0.5, link, norm_bound=2.0)) for link in LINKS} == {
        "logistic": math.inf,
        "probit": 4.0,
        "cloglog": 1.0,
    }


@pytest.mark.parametrize(("n", "beta", "power"), [(1, 0.1, 1.0), (1, 10.0, 0.3), (40, 1.0, 1.0), (1000, 10.0, 1.0)])
def test_loss_on_a_ball(n, beta, power):
    """For weights in a ball, the loss equals that on a fine grid, and is at most 2c²ρ/β, or c²ρ/β for n = 1."""
    mechanism = distribution(n * beta, power, radius=1 / beta)
    shared = [[1.0, 1, n - 1]] if n > 1 else None
    found = audit_replacements(mechanism, candidate_records(1.0, 1, 9), shared, [1, 2, 10])
    w = np.linspace(-1 / beta, 1 / beta, 200_001)
    log_sigmoid = -np.logaddexp(0, -w), -np.logaddexp(0, w)
    distributions = [power * ((n - 1) * log_sigmoid[0] + one) - n * beta * w**2 / 2 for one in log_sigmoid]
    distributions = [one - one.max() - np.log(np.trapezoid(np.exp(one - one.max()), w)) for one in distributions]
    assert found.epsilon == pytest.approx(np.abs(distributions[0] - distributions[1]).max(), rel=1e-6)
    bound = 2 * power / beta
    assert found.epsilon <= bound
    if n == 1:
        assert found.epsilon == pytest.approx(bound / 2, rel=1e-9)
    assert abs(found.witness.output) == 1 / beta
    for order, divergence in found.renyi.items():
        assert divergence <= min(pure_renyi(found.epsilon, order), 2 * power**2 * order / (n * beta))
    if (n, beta) == (1000, 10.0):
        assert 0.74 * bound < found.epsilon < 0.75 * bound


NAMES = ("glm-concentrated", "glm-diffused")
ONE_DIMENSION = ((1, 1, 0.5, 2, 0.1), (1, 30, 0.01, 10, 1.0), (1, 3000, 0.001, 1, 0.05), (1, 10_000, 0.0001, 50, 5.0))
TWO_DIMENSIONS = ((2, 300, 0.01, 2, 0.5), (2, 3000, 0.001, 10, 1.0))
GRID = in_turn((name, *case) for name in NAMES for case in ONE_DIMENSION)
GRID += exhaustive((NAMES[1], *TWO_DIMENSIONS[1]), (NAMES[0], *TWO_DIMENSIONS[0]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dimension", "n", "beta", "order", "epsilon"), GRID)
def test_divergences_are_within_guarantees(name, dimension, n, beta, order, epsilon):
    mechanism = glm_mechanism(name, n, beta, order, epsilon)
    case = limiting_case(mechanism.precision / n, dimension, power=mechanism.power)
    candidates = np.concatenate([candidate_records(1.0, dimension, 9, shares=(1.0,)), case.candidates])
    for shared in shared_records(mechanism, n, dimension).values():
        found = audit_replacements(mechanism, candidates, shared, [1, order, 3 * order])
        assert found.check(RenyiGuarantee(order, epsilon)).holds
        for other, spent in found.renyi.items():
            assert spent <= mechanism.renyi_epsilon(other)


def test_five_percent_more_power_exceeds_guarantee():
    """With β = 1e-7, 5 % more power violates the nearly tight guarantee; with β = 1e-3, 100 % more power does."""
    for beta, n, factor in ((1e-7, 10**8, 1.05), (1e-3, 10**5, 2.0)):
        mechanism = glm_mechanism("glm-diffused", n, beta, order=2, epsilon=0.1)
        case = limiting_case(beta, 2, power=mechanism.power)
        shared = [[*case.shared, n - 1]]
        valid = audit_replacements(mechanism, case.candidates, shared, [2]).check(mechanism.guarantee)
        stronger = replace(mechanism, power=factor * mechanism.power)
        invalid = audit_replacements(stronger, case.candidates, shared, [2]).check(mechanism.guarantee)
        assert valid.holds
        assert not invalid.holds
        assert invalid.text.startswith("broken: stated (2, 0.1)-RDP, reaches ")


def test_probit_exceeds_guarantee():
    """The divergence of Algorithm 5 with a probit link is finite and above its bound at some order."""
    logistic = glm_mechanism("glm-diffused", 1000, 0.001, order=1, epsilon=2.0)
    probit = glm_mechanism("glm-diffused", 1000, 0.001, order=1, epsilon=2.0, link="probit")
    shared = [[0.1, 1, 999]]
    for mechanism, holds in ((logistic, True), (probit, False)):
        found = audit_replacements(mechanism, [[0.5, 1], [-1.0, 1]], shared)
        assert found.check(logistic.guarantee).holds == holds


@pytest.mark.parametrize(
    ("candidates", "shared", "message"),
    [
        ([[1.0, 1]], None, r"candidates must have shape \(k, d \+ 1\), k >= 2, got \(1, 2\)"),
        ([1.0, 1], None, r"candidates must have shape .* got \(2,\)"),
        (np.full((2, 4), 0.1), None, "x must have 1 or 2 dimensions, got 3"),
        ([[1.5, 1], [0.0, 1]], None, "rows must have norm <= 1, got a larger one in row 0"),
        ([[1.0, 2], [0.0, 1]], None, "labels must be 0 or 1, got an invalid value in row 0"),
        (SIGNS, [[1.0, 1]], r"shared records must have shape \(m, 3\), got \(1, 2\)"),
        (SIGNS, [[1.0, 1, 0]], r"counts of shared records must be finite and > 0, got \[0.0\]"),
        (SIGNS, [[1.0, 1, np.inf]], "counts of shared records must be finite and > 0"),
        (SIGNS, [[2.0, 1, 3]], "rows must have norm <= 1, got a larger one in row 0"),
    ],
)
def test_invalid_records_raise(candidates, shared, message):
    for function in (audit_replacements, lambda *records: replacement_distributions(*records, reach=3.0)):
        with pytest.raises(ValueError, match=message):
            function(distribution(1.0), candidates, shared)


@pytest.mark.slow
def test_other_invalid_arguments_raise():
    with pytest.raises(ValueError, match="x must have 1 dimension if weights are restricted to a ball, got 2"):
        audit_replacements(distribution(1.0, radius=2.0), [[0.0, 1, 1], [1.0, 0, 1]])
    with pytest.raises(ValueError, match=r"order must be a finite number >= 1, got 0\.5"):
        audit_replacements(distribution(1.0), SIGNS, orders=[0.5])
    for reach in (0.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="reach must be a finite number > 0"):
            replacement_distributions(distribution(1.0), SIGNS, reach=reach)
    thin = [[1 / math.sqrt(2), 1 / math.sqrt(2), 1, 5e9], [-1 / math.sqrt(2), -1 / math.sqrt(2), 1, 5e9]]
    with pytest.raises(ValueError, match="did not converge within"):
        audit_replacements(distribution(1e-3), [[1.0, 0, 1], [0.0, 1, 1]], thin)
