"""Tests of audits of releases from partitions: sensitivities, density ratios and joint losses."""

import math
import tracemalloc

import numpy as np
import pytest

from mechanisms.audit.partitions import adversarial_posteriors, probability_distributions, quantile_distributions
from mechanisms.core.exact_losses import audit_distributions
from mechanisms.core.privacy import Guarantee
from mechanisms.regression.partition_prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, partition_probability
from mechanisms.regression.partition_quantile import partition_quantile
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.statistics import partition_statistics
from tests.mechanisms.refusals import assert_refused

M, SIZE = 8, 30
PRIORS = {
    "flat": FlatPrior(),
    "zellner": ZellnerPrior(g=240.0),
    "conjugate": ConjugatePrior(),
    "semi-conjugate": SemiConjugatePrior(),
}
NOISY = [name for name, method in PROBABILITY_METHODS.items() if method.has_noise]


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((M * SIZE, 2))
    y = 1.0 + 2.0 * x[:, 0] - x[:, 1] + rng.standard_normal(M * SIZE)
    return x, y, rng.permutation(np.repeat(np.arange(M), SIZE))


@pytest.mark.parametrize(("k", "error_variance"), [(0, 1.0), (1, 1.0), (2, 1.0), (1, None), (2, None)])
@pytest.mark.parametrize("name", PRIORS)
def test_adversarial_row_attains_sensitivities_and_affects_one_partition(name, k, error_variance):
    x, y, labels = rows()
    pair = adversarial_posteriors(x, y, labels, k, PRIORS[name], error_variance, row=5)
    target, truth = labels[5], (1.0, 2.0, -1.0)[k]
    p = pair.cdf([truth])
    others = np.arange(M) != target
    np.testing.assert_allclose(p[0, others], p[1, others], rtol=0, atol=0 if name != "semi-conjugate" else 1e-12)
    for method in NOISY:
        mechanism = partition_probability(method, M, 0.25)
        low, high = mechanism.aggregate(p)
        assert abs(high - low)[0] == pytest.approx(mechanism.sensitivity, rel=1e-9)
        assert abs(high - low)[0] <= mechanism.sensitivity * (1 + 1e-12)
    powered = adversarial_posteriors(x, y, labels, k, PRIORS[name], error_variance, power=M, row=5)
    q = powered.quantile([0.1])[..., 0]
    quantile = partition_quantile("quantile", M, 1.0, (0.5, 0.5))
    change = quantile.clipped_mean(q[1], 0.0, 8.0) - quantile.clipped_mean(q[0], 0.0, 8.0)
    assert change == pytest.approx(2 * 8.0 / M, rel=1e-9)
    assert change / quantile.noise_scale(8.0) == pytest.approx(0.5, rel=1e-9)


def test_random_rows_do_not_exceed_sensitivity():
    rng = np.random.default_rng(2)
    x, y, labels = rows()
    base = partition_statistics(x, y, labels)
    for _ in range(40):
        other_x, other_y = x.copy(), y.copy()
        row = int(rng.integers(M * SIZE))
        other_x[row], other_y[row] = rng.standard_cauchy(2) * 10.0, rng.standard_cauchy() * 100.0
        moved = partition_statistics(other_x, other_y, labels)
        p, q = (coefficient_posterior(each, 1, PRIORS["zellner"], 1.0).cdf([1.9, 2.0]) for each in (base, moved))
        for method in NOISY:
            mechanism = partition_probability(method, M, 0.25)
            assert np.abs(mechanism.aggregate(p) - mechanism.aggregate(q)).max() <= mechanism.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.25, 3.0])
@pytest.mark.parametrize("name", NOISY)
def test_density_ratio_of_the_released_probability(name, epsilon):
    """The loss of a released probability is ε even at clamped values; that of `fisher-published` is M·ε."""
    x, y, labels = rows()
    p = adversarial_posteriors(x, y, labels, 1, PRIORS["zellner"], 1.0).cdf(2.0)
    mechanism = partition_probability(name, M, epsilon)
    found = audit_distributions(probability_distributions(mechanism, p, [[0, 1]]))
    if name == "fisher-published":
        assert mechanism.guarantee() is None
        assert found.epsilon == pytest.approx(M * epsilon, rel=1e-9)
        assert not found.check(Guarantee(epsilon)).holds
    else:
        assert found.epsilon == pytest.approx(epsilon, rel=1e-9)
        assert found.check(mechanism.guarantee()).holds
        assert not found.check(Guarantee(0.95 * epsilon)).holds


@pytest.mark.parametrize("name", NOISY)
def test_distributions_agree_with_released_draws(name):
    """The empirical cdf of draws agrees with the cumulative sums of the audited distribution."""
    mechanism = partition_probability(name, 4, 0.8)
    p = np.array([[0.2, 0.9, 0.5, 0.4], [1.0, 0.9, 0.5, 0.4]])
    distributions = probability_distributions(mechanism, p, [[0, 1]])
    distribution = np.exp(distributions.log_pmf(0))
    drawn = mechanism.release(np.random.default_rng(3), np.broadcast_to(p[0][:, None], (20_000, 4, 1)))[:, 0]
    order = np.argsort(distributions.outputs, kind="stable")
    values, cumulative = distributions.outputs[order], np.cumsum(distribution[order])
    for value, mass in list(zip(values, cumulative, strict=True))[3:-3:5]:
        share = np.mean(drawn <= value)
        near = distribution[order][np.searchsorted(values, value)]
        assert share == pytest.approx(mass, abs=near + 5 * math.sqrt(0.25 / 20_000))


def test_distributions_of_many_data_sets_are_computed_one_by_one():
    """A table of all distributions, here 3 GB, was held in memory."""
    p = np.random.default_rng(1).random((20_000, 2))
    tracemalloc.start()
    found = probability_distributions(partition_probability("normality", 2, 1.0), p, [[0, 1]])
    assert np.exp(found.log_pmf(1)).sum() == pytest.approx(1.0)
    assert tracemalloc.get_traced_memory()[1] < 1e8
    tracemalloc.stop()


def test_joint_loss_of_bounds_and_mean():
    """The joint loss of bounds and mean, over all sets of four quantiles from five values, is at most the total ε."""
    values = np.array([-9.0, -1.5, 0.0, 1.5, 9.0])
    tuples = np.array(np.meshgrid(*[np.arange(5)] * 4, indexing="ij")).reshape(4, -1).T
    tuples = tuples[np.all(np.diff(tuples, axis=1) >= 0, axis=1)]
    places = {tuple(each): i for i, each in enumerate(tuples)}
    pairs = {
        (min(i, j), max(i, j))
        for each, i in places.items()
        for slot in range(4)
        for value in range(5)
        if (j := places[tuple(sorted((*each[:slot], *each[slot + 1 :], value)))]) != i
    }
    for split in ((0.5, 0.5), (0.9, 0.1)):
        method = partition_quantile("quantile", 4, 1.0, split, doublings=2)
        found = audit_distributions(quantile_distributions(method, values[tuples], sorted(pairs)))
        assert found.check(Guarantee(1.0)).holds
        assert found.epsilon > split[1]
        assert not found.check(Guarantee(0.95 * found.epsilon)).holds


def test_unsupported_mechanisms_raise():
    exact = partition_probability("fisher-noiseless", 2, 1.0)
    assert_refused(lambda: probability_distributions(exact, [[0, 1]], [[0, 0]]), "have noise")
    centred = partition_quantile("quantile-centred", 2, 1.0, (0.3, 0.3, 0.4))
    message = "must be quantile or quantile-exact, got quantile-centred"
    assert_refused(lambda: quantile_distributions(centred, [[0.0, 1.0]], [[0, 0]]), message)
