"""Tests of audits of continuous distributions against closed forms, quadrature and enumeration."""

import math

import numpy as np
import pytest
from scipy import special, stats

from mechanisms.audit.densities import (
    audit_densities,
    audit_posteriors,
    audit_sampling,
    beta_distributions,
    gaussian_distributions,
)
from mechanisms.core.exact_losses import OutputDistributions
from mechanisms.core.privacy import Guarantee, RenyiGuarantee
from mechanisms.draws.gaussian_counts import gaussian_mechanism
from mechanisms.draws.tempered import RENYI_SAMPLERS, RenyiSampling, calibrate_renyi, renyi_sampler
from tests.mechanisms.refusals import assert_refused


def enumerate_two_categories(mechanism):
    """Return the posteriors given each data set of n records in two categories, and all pairs of neighbours."""
    ones = np.arange(mechanism.n + 1)
    counts = np.stack([ones, mechanism.n - ones], axis=1)
    return mechanism.posterior(counts), np.stack([ones[:-1], ones[1:]], axis=1)


@pytest.mark.parametrize("name", RENYI_SAMPLERS)
@pytest.mark.parametrize("prior", [(6.0, 12.0), (1.0, 1.0), (0.3, 0.7), (0.05, 40.0)])
@pytest.mark.parametrize("n", [1, 4, 25])
def test_closed_form_quadrature_and_supremum_agree(name, prior, n):
    """The largest divergences by three methods agree, from order 1 to just below the critical order."""
    mechanism = renyi_sampler(name, prior, n, 1.0 if name == "direct" else 0.3)
    gap = mechanism.critical_order - 1
    orders = [1.0, 1 + 0.1 * gap, 1 + 0.5 * gap, 1 + 0.98 * gap]
    parameters, pairs = enumerate_two_categories(mechanism)
    closed = audit_posteriors(parameters, pairs, orders)
    quadrature = audit_densities(beta_distributions(parameters, pairs, orders[-1]), orders)
    brute = audit_sampling(mechanism, orders)
    for order in orders:
        assert quadrature.renyi[order] == pytest.approx(closed.renyi[order], rel=1e-8)
        assert brute.renyi[order] == closed.renyi[order]
        assert mechanism.renyi_epsilon(order) == pytest.approx(closed.renyi[order], rel=1e-12)
        assert closed.check(mechanism.guarantee(order)).holds
        assert quadrature.check(mechanism.guarantee(order)).holds
    assert (closed.evidence, quadrature.evidence) == ("closed form", "quadrature")
    assert closed.n_pairs == quadrature.n_pairs == n


def test_audits_reject_five_percent_more_weight():
    """Audits by closed form and by quadrature reject a sampler that gives records 5 % too much weight."""
    stated = calibrate_renyi("diffused", (1.0, 2.0), 10, order=2, epsilon=0.1)
    wrong = RenyiSampling("diffused", stated.prior, stated.n, 1.05 * stated.coefficient, stated.public_counts)
    parameters, pairs = enumerate_two_categories(wrong)
    for found in (
        audit_posteriors(parameters, pairs, [2]),
        audit_densities(beta_distributions(parameters, pairs, 2), [2]),
    ):
        verdict = found.check(stated.guarantee(2))
        assert not verdict.holds
        assert verdict.text.startswith("broken: stated (2, 0.1)-RDP, reaches 0.109991; worst ratio at ")


@pytest.mark.parametrize("name", ["diffused", "concentrated"])
@pytest.mark.parametrize("prior", [(1.0, 0.5, 2.0), (2.0, 2.0, 2.0, 1.0)])
@pytest.mark.parametrize("public", [None, 3])
def test_calibrated_mechanisms_attain_stated_epsilon(name, prior, public):
    counts = None if public is None else (public, *(0 for _ in prior[1:]))
    mechanism = calibrate_renyi(name, prior, 4, order=3, epsilon=0.05, public_counts=counts)
    verdict = audit_sampling(mechanism, [3]).check(RenyiGuarantee(3, 0.05))
    assert verdict.holds
    assert abs(verdict.slack) < 1e-12
    assert not audit_sampling(mechanism, [3]).check(RenyiGuarantee(3, 0.0499)).holds


def test_pure_loss_of_posteriors_is_infinite():
    """The pure loss of a posterior sampler is infinite, and the witness is a category whose density ratio diverges."""
    found = audit_sampling(renyi_sampler("direct", (1.0, 1.0), 3, 1.0), [1.5])
    assert found.epsilon == math.inf
    verdict = found.check(Guarantee(100.0))
    assert not verdict.holds
    first, second = (np.asarray(each) for each in (found.witness.dataset, found.witness.neighbour))
    j = int(np.argmin(first - second))
    assert f"probability of category {j} close to 0" in verdict.text
    ratios = [
        stats.beta(*first[[j, 1 - j]]).logpdf(x) - stats.beta(*second[[j, 1 - j]]).logpdf(x)
        for x in (1e-3, 1e-9, 1e-100)
    ]
    assert np.all(np.diff(ratios) > 10)


@pytest.mark.parametrize("epsilon", [0.02, 0.5, 3.0])
@pytest.mark.parametrize("order", [1.0, 2.0, 6.0])
def test_published_variance_has_half_the_divergence_of_the_tight_one(epsilon, order):
    """For large n, where clamping is negligible, the tight variance has the divergence ε, the published one ε/2."""
    n = math.ceil(20 * math.sqrt(order / epsilon)) + 2 * math.ceil(order)
    for name, share in (("gaussian", 0.5), ("gaussian-tight", 1.0)):
        release = gaussian_mechanism(name, (1, 1), n, order, epsilon)
        found = audit_densities(gaussian_distributions(release), [order])
        assert found.renyi[order] == pytest.approx(share * epsilon, rel=1e-9)
        assert found.check(RenyiGuarantee(order, epsilon)).holds
        assert found.check(release.guarantee(order)).holds
        assert not found.check(RenyiGuarantee(order, 0.95 * share * epsilon)).holds


@pytest.mark.parametrize("n", [1, 2, 5])
def test_clamping_reduces_divergence_for_small_n(n):
    """For small n, the divergence equals that of clamped noise by definition, and is smaller than without clamping."""
    release = gaussian_mechanism("gaussian-tight", (1, 1), n, 2, 0.3)
    found = audit_densities(gaussian_distributions(release), [2]).renyi[2]
    distribution = stats.norm(scale=release.noise_std / math.sqrt(2))
    nodes, weights = np.polynomial.legendre.leggauss(100)
    y = n * (1 + nodes) / 2

    def plain(c, other):
        inside = n / 2 * weights @ (distribution.pdf(y - c) ** 2 / distribution.pdf(y - other))
        return math.log(
            inside
            + distribution.cdf(-c) ** 2 / distribution.cdf(-other)
            + distribution.sf(n - c) ** 2 / distribution.sf(n - other)
        )

    expected = max(max(plain(c, c + 1), plain(c + 1, c)) for c in range(n))
    assert found == pytest.approx(expected, rel=1e-10)
    assert found < 0.3 * 0.99


def test_divergence_of_draw_is_far_below_that_of_noisy_counts():
    """The divergence of a draw of θ alone, a mixture over the noise, is far below that of the noisy counts."""
    n, order = 12, 2.0
    release = gaussian_mechanism("gaussian-tight", (6.0, 12.0), n, order, 0.5)
    parts = [release.successes_distribution(c) for c in range(n + 1)]
    tau = np.linspace(-4.5, 4.5, 721)
    phi, log_weights = np.sinh(tau), np.log(np.cosh(tau) * (tau[1] - tau[0]))

    def log_pmf(c):
        values, probabilities = parts[c]
        a, b = 6.0 + values[:, None], 12.0 + n - values[:, None]
        logs = a * phi - (a + b) * np.logaddexp(0, phi) - special.betaln(a, b)
        return special.logsumexp(logs, axis=0, b=probabilities[:, None]) + log_weights

    ones = np.arange(n + 1)
    found = audit_densities(OutputDistributions(ones, phi, np.stack([ones[:-1], ones[1:]], axis=1), log_pmf), [order])
    assert found.check(release.guarantee(order)).holds
    assert 0.05 < found.renyi[order] < 0.4 * 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audit_posteriors([[1, 2], [2, 1]], [[0, 1]], []), "orders must contain at least one order"),
        (lambda: audit_posteriors([[1, 2], [2, 1]], [[0, 1]], [0.5]), "order must be a finite number >= 1"),
        (lambda: audit_posteriors([[1, 2], [2, 1]], [[0, 2]], [2]), "pairs must index the 2 data sets"),
        (lambda: audit_posteriors([[1, 0], [2, 1]], [[0, 1]], [2]), "a must be finite and > 0, got 0.0"),
        (lambda: beta_distributions([[1, 2], [2, 1]], [[0, 1]], 2), "order must give finite divergences, got 2"),
        (lambda: beta_distributions([[1, 2], [2, 1]], [[0, 1]], 0.5), "order must be a finite number >= 1"),
        (
            lambda: gaussian_distributions(gaussian_mechanism("gaussian", (1, 1, 1), 5, 2, 1.0)),
            "mechanism must have 2 categories",
        ),
    ],
)
def test_invalid_arguments_raise(call, message):
    assert_refused(call, message)
