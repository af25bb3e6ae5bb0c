"""Tests of mechanisms from a distribution of noise, and of mechanisms that can only be sampled."""

import math
from dataclasses import replace
from functools import partial

import cloudpickle
import numpy as np
import pytest
from scipy import special, stats

from mechanisms import MECHANISMS, Guarantee, Mechanism, audit_counts, geometric_counts, noise_mechanism
from mechanisms.core.conjugate import enumerate_candidates
from mechanisms.counts.noise_mechanism import REACH
from pipeline import open_results, run
from studies import STUDIES
from tests.mechanisms.counts.enumeration import frequencies_of
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_mean_within

GEOMETRIC = noise_mechanism("mine", log_pmf=lambda z, epsilon: -abs(z) * epsilon / 2, guarantee=Guarantee)


def skewed(z, epsilon):
    """Return asymmetric noise: −1 with probability ½, 0 with ¼, 2 with ¼, unnormalised."""
    return np.select([z == -1, (z == 0) | (z == 2)], [np.log(2.0) + 7, 7.0], -np.inf)


@pytest.mark.parametrize("counts", [(3, 5), (0, 9), (2, 1, 3), (0, 0, 4, 1)])
def test_geometric_noise_gives_the_release_of_the_registered_mechanism(counts):
    mine = GEOMETRIC.build(np.ones(len(counts)), counts, 0.7)
    theirs = geometric_counts(np.ones(len(counts)), counts, 2 / 0.7)
    np.testing.assert_allclose(mine.log_pmf(), theirs.log_pmf(), rtol=1e-11)
    assert mine.expected_hellinger() == pytest.approx(theirs.expected_hellinger(), rel=1e-11)
    uniforms = np.random.default_rng(1).random((2000, len(counts) - 1))
    assert np.array_equal(mine.from_uniforms(uniforms), theirs.from_uniforms(uniforms))


def test_pmf_of_asymmetric_noise_equals_enumeration():
    counts, n = (1, 2, 1), 4
    release = noise_mechanism("skewed", log_pmf=skewed).build(np.ones(3), counts, 1.0)
    expected = dict.fromkeys(map(tuple, enumerate_candidates(n, 3).tolist()), 0.0)
    noise = {-1: 0.5, 0: 0.25, 2: 0.25}
    for first, p in noise.items():
        for second, q in noise.items():
            a = min(max(counts[0] + first, 0), n)
            b = min(max(counts[1] + second, 0), n - a)
            expected[a, b, n - a - b] += p * q
    np.testing.assert_allclose(release.pmf(), list(expected.values()), atol=1e-13)
    frequencies = frequencies_of(release.sample(np.random.default_rng(2), 20_000), n, 3)
    possible = release.pmf() > 0
    assert frequencies[~possible].sum() == 0
    assert_frequencies(frequencies[possible], release.pmf()[possible], wrong=np.roll(release.pmf()[possible], 1))


def test_draws_invert_the_distribution_function():
    """The noise is the smallest z with F(z) > u, also at the ends of the steps of F."""
    release = noise_mechanism("skewed", log_pmf=skewed).build(np.ones(2), (10, 10), 1.0)
    u = np.array([[0.0], [0.25], [0.499], [0.5001], [0.7499], [0.7501], [1 - 2.0**-53]])
    assert release.from_uniforms(u)[:, 0].tolist() == [9, 9, 9, 10, 10, 12, 12]


def test_audit_finds_the_loss_of_noise_that_is_too_small():
    """The exact loss of discrete noise with tails 1/z² at k = 2 is the largest log ratio of its probabilities."""
    heavy = noise_mechanism("heavy", log_pmf=lambda z, epsilon: -2 * np.log(1 + epsilon * abs(z)))
    found = audit_counts(heavy, [1, 1], n=12, epsilon=1.0)
    z = np.arange(-REACH, REACH + 1)
    log_pmf = -2 * np.log(1.0 + abs(z))
    log_pmf -= special.logsumexp(log_pmf)
    assert found.epsilon == pytest.approx(2 * np.log(2), rel=1e-12)
    assert found.check(heavy.guarantee(1.0)).holds is False
    assert found.check(Guarantee(1.4)).holds
    release = heavy.build([1, 1], (3, 9), 1.0)
    assert release.pmf()[12] == pytest.approx(np.exp(log_pmf[z >= 9]).sum(), rel=1e-9)  # enumerated from (0, n)


@pytest.mark.parametrize(
    "log_pmf",
    [lambda z, e: 0.0, lambda z, e: np.full(z.shape, np.nan), lambda z, e: np.full(z.shape, -np.inf)],
    ids=["shape", "NaN", "impossible"],
)
def test_invalid_log_pmf_is_refused_on_one_line(log_pmf):
    wrong = noise_mechanism("wrong", log_pmf=log_pmf)
    assert_refused(lambda: wrong.build([1, 1], [1, 1], 1.0), "log_pmf must return 200,001 log probabilities")


def test_noise_mechanism_states_a_conjecture_by_default_and_limits_n():
    mine = noise_mechanism("mine", log_pmf=skewed)
    assert str(mine.guarantee(1.0)) == "1-DP, conjectured"
    assert (mine.supports(REACH, 2), mine.supports(REACH + 1, 2)) == (True, False)
    assert cloudpickle.loads(cloudpickle.dumps(mine)).name == "mine"


def binomial(rng, counts, epsilon, delta, size):
    first = rng.binomial(counts.sum(), 0.5, size)
    return np.column_stack([first, counts.sum() - first])


def test_sampler_gives_releases_that_do_not_depend_on_their_batch():
    mechanism = Mechanism("draws", sampler=binomial, guarantee=lambda epsilon, delta: Guarantee(epsilon))
    release = mechanism.build([1, 1], [7, 3], 1.0)
    uniforms = np.random.default_rng(1).random((3000, 1))
    whole = release.from_uniforms(uniforms)
    assert np.array_equal(whole[7:9], release.from_uniforms(uniforms[7:9]))
    for draws in (whole, release.sample(np.random.default_rng(3), 3000)):
        right, wrong = (stats.binom.pmf(np.arange(11), 10, share) for share in (0.5, 0.55))
        assert_frequencies(np.bincount(draws[:, 0], minlength=11), right, wrong=wrong)
    assert str(release.guarantee) == "1-DP"
    for compute in (release.log_pmf, release.expected_hellinger):
        assert_refused(compute, "can only be sampled")


@pytest.mark.parametrize("drawn", [[[1.0, 9.0]], [[1, 8]], [[-1, 11]], [1, 9]], ids=["dtype", "sum", "sign", "shape"])
def test_invalid_draws_of_a_sampler_are_refused(drawn):
    mechanism = Mechanism("draws", sampler=lambda *args: np.array(drawn), guarantee=lambda epsilon, delta: None)
    with pytest.raises(ValueError, match="a sampler must return integers >= 0"):
        mechanism.build([1, 1], [7, 3], 1.0).sample(np.random.default_rng(1), 1)


def test_mechanism_without_release_and_sampler_is_refused():
    with pytest.raises(ValueError, match="must have a release or a sampler"):
        Mechanism("none", guarantee=lambda epsilon, delta: None).build([1, 1], [1, 1], 1.0)
    assert all(mechanism.sampler is None for mechanism in MECHANISMS.values())


def test_log_pmf_gets_the_parameters_of_its_signature():
    """Noise that depends on k and δ has the distribution of noise with these numbers filled in."""
    received = []

    def log_pmf(z, epsilon, *, delta, k):
        received.append((epsilon, delta, k))
        return -abs(z) * epsilon / k + np.log1p(delta) * (z == 0)

    filled = noise_mechanism("filled", log_pmf=lambda z, e: -abs(z) * e / 3 + np.log1p(0.1) * (z == 0))
    named = noise_mechanism("named", log_pmf=log_pmf, guarantee=Guarantee)
    release = named.build([1, 1, 1], [3, 2, 4], 0.7, 0.1)
    np.testing.assert_array_equal(release.log_pmf(), filled.build([1, 1, 1], [3, 2, 4], 0.7).log_pmf())
    named.build([1, 1], [3, 2], 0.7, 0.1)
    assert received == [(0.7, 0.1, 3), (0.7, 0.1, 2)]
    assert (str(named.guarantee(0.7, 0.1)), filled.needs_delta) == ("(0.7, 0.1)-DP", False)
    assert str(noise_mechanism("default", log_pmf=log_pmf).guarantee(0.7, 0.1)) == "(0.7, 0.1)-DP, conjectured"
    assert_refused(lambda: named.build([1, 1], [3, 2], 0.7), "delta")


def test_arguments_of_a_partial_function_are_kept():
    def log_pmf(z, epsilon, k):
        return -abs(z) * epsilon / k

    kept = noise_mechanism("kept", log_pmf=partial(log_pmf, k=5)).build([1, 1], [3, 2], 1.0)
    expected = noise_mechanism("expected", log_pmf=lambda z, e: -abs(z) * e / 5).build([1, 1], [3, 2], 1.0)
    np.testing.assert_array_equal(kept.log_pmf(), expected.log_pmf())


@pytest.mark.parametrize("log_pmf", [lambda z: -abs(z), lambda z, epsilon, n: -abs(z) * epsilon / n])
def test_log_pmf_with_other_parameters_is_refused(log_pmf):
    with pytest.raises(ValueError, match=r"log_pmf must take \(z, epsilon\), and k and delta by name .*, got \(z"):
        noise_mechanism("wrong", log_pmf=log_pmf)


# Samplers

UNIT_PRIOR, COUNTS = np.ones(2), np.array([30, 20])


def sampled(scale=1.0):
    """Return the geometric mechanism on two counts as a sampler whose distribution is not available."""

    def sampler(rng, counts, epsilon, delta, size):
        success, n = -math.expm1(-epsilon / scale), int(counts.sum())
        first = np.clip(counts[0] + rng.geometric(success, size) - rng.geometric(success, size), 0, n)
        return np.stack([first, n - first], axis=1)

    return Mechanism("mine", "Mine.", sampler=sampler, guarantee=lambda epsilon, delta: Guarantee(epsilon, 0.0))


@pytest.mark.slow
def test_sampler_is_compared_in_a_study(tmp_path):
    """The mean distance that a study stores for a sampler of `geometric` agrees with the exact mean."""
    published = STUDIES["hellinger-accuracy"]
    study = replace(published, panels=(published.panel("k2"),), claims=(), figures=(), errata=())
    study = study.with_methods(sampled())
    run(study, tmp_path / "s.zarr", trials=4_000, values={"n": [100], "mechanism": ["geometric", "mine"]})
    ds = open_results(tmp_path / "s.zarr")["k2"].to_dataset().isel(n=0).load()
    mine = ds.sel(mechanism="mine")
    exact = ds.expected_hellinger.sel(mechanism="geometric").item()
    assert np.isnan(mine.expected_hellinger)
    assert_mean_within(mine.hellinger.values, exact, wrong=1.2 * exact)  # negative control: 10 standard errors away


def test_exact_audit_of_a_sampler_is_refused():
    message = "can only be sampled, and has no pmf; audit it by sampled_bound"
    assert_refused(lambda: audit_counts(sampled(), [1, 1], 5, 1.0), message)


@pytest.mark.parametrize("uniforms", [np.zeros(2), np.zeros((3, 2)), np.ones((3, 1)), np.full((3, 1), np.nan)])
def test_invalid_uniforms_are_refused(uniforms):
    release = sampled().build(UNIT_PRIOR, COUNTS, 1.0)
    assert_refused(lambda: release.from_uniforms(uniforms), r"uniforms must (be in \[0, 1\)|have shape)")
    assert release.from_uniforms(np.zeros((0, 1))).shape == (0, 2)
