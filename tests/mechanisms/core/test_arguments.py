"""Tests of all functions whose arguments must be integers, real numbers, or arrays of real numbers."""

import warnings
from fractions import Fraction

import dask.array as da
import numpy as np
import pytest

from mechanisms.audit.counts import audit_counts, count_distributions, require_auditable
from mechanisms.audit.sampled import count_sampler
from mechanisms.core.arguments import is_real, real_array, record_array, validate_integer
from mechanisms.core.conjugate import (
    balanced_counts,
    enumerate_candidates,
    posterior,
    validate_counts,
    validate_prior,
)
from mechanisms.core.noise import Noise, calibrated_noise
from mechanisms.core.privacy import ConcentratedGuarantee, Guarantee, RenyiGuarantee
from mechanisms.core.privacy_parameters import validate_size
from mechanisms.counts.bound_calibration import bound_scale, require_bound
from mechanisms.counts.calibration import calibrate
from mechanisms.counts.discrete_gaussian import LatticeGaussianNoise
from mechanisms.counts.hamming import calibrate_hamming, hamming_loss, require_hamming
from mechanisms.counts.noise import geometric_counts, laplace_counts
from mechanisms.counts.optimal import optimal_distribution, require_solvable
from mechanisms.counts.registry import MECHANISMS
from mechanisms.counts.sensitivity import Rule
from mechanisms.draws.gaussian_counts import gaussian_mechanism
from mechanisms.draws.glm_mechanisms import glm_mechanism
from mechanisms.draws.glm_sampling import STEPS_PER_PRODUCT, laplace_approximation, sample_glm
from mechanisms.draws.tempered import calibrate_renyi, renyi_sampler
from mechanisms.draws.worst_case import candidate_records, shared_records
from mechanisms.inference.one_posterior_sample import OnePosteriorSampling
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.regression.keyed_partition import keyed_partition
from mechanisms.regression.partition_probability import partition_probability
from mechanisms.regression.partition_quantile import partition_quantile
from mechanisms.regression.statistics import draw_partition, partition_sizes, partition_statistics
from tests.mechanisms.inference.enumeration import binomial_mixture
from tests.mechanisms.inference.laplace import conjugate_posterior, sample_gibbs

RNG = np.random.default_rng(1)
ROWS = partition_statistics([[0.0], [1.0], [3.0]], [0.0, 1.0, 2.0], [0, 0, 0])
GLM = glm_mechanism("true-posterior", n=3, beta=1.0, order=2, epsilon=1)
RECORDS = np.array([[1.0], [-1.0], [1.0]]), np.array([1.0, 0.0, 0.0])
APPROXIMATION = laplace_approximation(*RECORDS, GLM)

# Calls with an integer ≥ 3, whose results for 3.0 and 3 are equal.
TAKE_AN_INTEGER = {
    "balanced_counts": lambda n: balanced_counts(n, 2),
    "balanced_counts, k": lambda n: balanced_counts(9, n),
    "enumerate_candidates": lambda n: enumerate_candidates(n, 2),
    "enumerate_candidates, k": lambda n: enumerate_candidates(2, n),
    "audit_counts": lambda n: audit_counts("geometric", [1, 1], n, 1.0).epsilon,
    "audit_counts, threads": lambda n: audit_counts("geometric", [1, 1], 4, 1.0, n_threads=n).epsilon,
    "count_distributions": lambda n: count_distributions("geometric", [1, 1], n, 1.0).outputs,
    "require_auditable": lambda n: require_auditable(n, [1.0, 1.0]),
    "bound_scale": lambda n: bound_scale([1, 1], n, 1.0).n,
    "require_bound": lambda n: require_bound(n, 2),
    "calibrate": lambda n: calibrate(Rule.SMOOTH, [1, 1], n, 1.0).rate,
    "require_hamming": lambda n: require_hamming(n, 3),
    "calibrate_hamming": lambda n: calibrate_hamming(n, 3, 1.0),
    "calibrate_hamming, k": lambda n: calibrate_hamming(5, n, 1.0),
    "hamming_loss": lambda n: hamming_loss(n, 3, 0.7)[0],
    "hamming_loss, k": lambda n: hamming_loss(5, n, 0.7)[0],
    "optimal_distribution": lambda n: optimal_distribution([1, 1], n, 1.0).n,
    "require_solvable": lambda n: require_solvable(n, 2),
    "validate_size": validate_size,
    "glm_mechanism": lambda n: glm_mechanism("ops", n, 0.1, 2, 1.0).precision,
    "sample_glm, chains": lambda n: (
        sample_glm(RNG, *RECORDS, GLM, APPROXIMATION, STEPS_PER_PRODUCT, n_chains=n).weights.shape
    ),
    "sample_glm, steps": lambda n: (
        sample_glm(
            RNG, *RECORDS, GLM, APPROXIMATION, n * (STEPS_PER_PRODUCT // 3) if is_real(n) and n == 3 else n, n_chains=1
        ).weights.shape
    ),
    "candidate_records": lambda n: candidate_records(1.0, 1, n),
    "shared_records": lambda n: shared_records(GLM, n, 1)["separable"],
    "binomial_mixture": lambda n: binomial_mixture((1, 1), n, 1.0, 1.0).n,
    "BinomialMixture.sample": lambda n: binomial_mixture((1, 1), 5, 1.0, 1.0).sample(RNG, n).shape,
    "sample_gibbs": lambda n: sample_gibbs(RNG, "binomial", (1, 1), n, [1.0], 1.0, n_draws=5).shape,
    "conjugate_posterior": lambda n: conjugate_posterior("binomial", (1, 1), n, [1.0]).mean(),
    "ConjugatePosterior.sample": lambda n: conjugate_posterior("binomial", (1, 1), 3, [1.0]).sample(RNG, n).shape,
    "OnePosteriorSampling": lambda n: OnePosteriorSampling((1, 1), n, 1.0, True).power,
    "CountRelease.sample": lambda n: geometric_counts([1, 1], [1, 2], 1.0).sample(RNG, n).shape,
    "count_sampler": lambda n: count_sampler(RNG, MECHANISMS["geometric"], [1, 1], 1.0)([0, 1], n).shape,
    "keyed_partition, rows": lambda n: keyed_partition(RNG, n, 1).n_rows,
    "keyed_partition, partitions": lambda n: keyed_partition(RNG, 9, n).n_partitions,
    "partition_probability": lambda n: partition_probability("normality", n, 1.0).noise_scale,
    "PartitionProbability.guarantee": lambda n: partition_probability("normality", 5, 1.0).guarantee(n),
    "partition_quantile": lambda n: partition_quantile("quantile", n, 1.0, (0.5, 0.5)).n_partitions,
    "partition_quantile, doublings": lambda n: partition_quantile("quantile", 4, 1.0, (0.5, 0.5), doublings=n).search,
    "PartitionQuantile.guarantee": lambda n: partition_quantile("quantile", 5, 1.0, (0.5, 0.5)).guarantee(n),
    "partition_sizes": lambda n: partition_sizes(9, n),
    "draw_partition": lambda n: draw_partition(np.random.default_rng(1), n, 1),
    "partition_statistics": lambda n: partition_statistics([[1.0]], [1.0], [0], n).n_rows,
    "gaussian_mechanism": lambda n: gaussian_mechanism("gaussian", [1, 1], n, 2, 1.0).n,
    "GaussianDraw.sample": lambda n: gaussian_mechanism("gaussian", [1, 1], 3, 2, 1.0).at([1, 2]).sample(RNG, n).shape,
    "renyi_sampler": lambda n: renyi_sampler("direct", [1, 1], n, 1).n,
    "RenyiDraw.sample": lambda n: renyi_sampler("direct", [1, 1], 3, 1).at([1, 2]).sample(RNG, n).shape,
    "calibrate_renyi": lambda n: calibrate_renyi("diffused", [1, 1], n, 2, 0.1).coefficient,
}
NOT_INTEGERS = (
    2.5, "3", "three", None, float("nan"), float("inf"), 3 + 0j, True, [3], np.array([3]), np.arange(99.0), -1
)  # fmt: skip


@pytest.mark.parametrize("name", TAKE_AN_INTEGER)
def test_integer_valued_floats_are_accepted(name):
    call = TAKE_AN_INTEGER[name]
    expected = call(3)
    for same in (3.0, np.int32(3), np.float32(3)):
        assert np.array_equal(call(same), expected)


@pytest.mark.parametrize("name", TAKE_AN_INTEGER)
def test_other_values_than_integers_raise(name):
    for value in NOT_INTEGERS:
        if value is None and name == "partition_statistics":
            continue  # None is allowed, and selects the largest label
        with pytest.raises(ValueError, match=r"must be an integer >= \d, got") as caught:
            TAKE_AN_INTEGER[name](value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "make",
    [
        lambda e: Guarantee(e),
        lambda e: RenyiGuarantee(2, e),
        lambda e: RenyiGuarantee(e, 1.0),
        lambda e: Guarantee(1.0, e),
        lambda e: calibrated_noise("laplace", 1.0, e),
        lambda e: calibrated_noise("laplace", e, 1.0),
        lambda e: laplace_counts([1, 1], [1, 1], e),
        lambda e: renyi_sampler("diffused", [1, 1], 3, e),
        lambda e: glm_mechanism("ops", 3, e, 2, 1.0),
        lambda e: ConcentratedGuarantee(e),
        lambda e: Noise("laplace", e),
        lambda e: Noise("laplace", 1.0).guarantee(e),
        lambda e: LatticeGaussianNoise(2, e),
    ],
)
def test_other_values_than_real_numbers_raise(make):
    for value in ("1.0", "0.5", 0.5 + 0j, True, None, [0.5], np.array([0.5]), np.arange(0.5, 99), float("nan")):
        with pytest.raises(ValueError, match="must be") as caught:
            make(value)
        assert "\n" not in str(caught.value)


def test_guarantees_store_floats():
    assert type(Guarantee(1).epsilon) is type(Guarantee(1).delta) is float
    assert Guarantee(Fraction(1, 2)) == Guarantee(np.float64(0.5), 0)
    assert type(ConcentratedGuarantee(Fraction(1, 2)).rho) is float
    assert str(ConcentratedGuarantee(Fraction(1, 2))) == "0.5-zCDP"


@pytest.mark.parametrize(
    "call",
    [
        validate_counts,
        validate_prior,
        lambda values: posterior([1, 1], values),
        lambda values: renyi_sampler("direct", [1, 1], 3, 1).posterior(values),
        lambda values: renyi_sampler("direct", [1, 1], 3, 1, values),
        lambda values: gaussian_mechanism("gaussian", [1, 1], 3, 2, 1.0).from_uniforms([0.5, 0.5], values),
        lambda values: ReleaseModel("multinomial", 3, Noise("laplace", 1.0)).validate_release((1, 1), values),
        lambda values: OnePosteriorSampling((1, 1), 3, 1.0, True).beta_parameters(values),
        lambda values: conjugate_posterior("binomial", (1, 1), 3, values),
        lambda values: geometric_counts([1, 1], values, 1.0),
    ],
)
@pytest.mark.parametrize(
    "values", [["1", "2"], [1 + 0j, 2 + 0j], np.array([1 + 3j, 2]), [True, False], [[1], [1, 2]], [1, None]], ids=repr
)
def test_arrays_of_other_values_raise_without_their_values(call, values):
    with pytest.raises(ValueError, match="must be an array of real numbers, got") as caught:
        call(values)
    message = str(caught.value)
    assert "\n" not in message
    assert not any(digit in message for digit in "123")


def test_checks_of_single_values():
    assert [is_real(value) for value in (1, 1.5, np.int8(2), np.array(3.0), Fraction(1, 3))] == [True] * 5
    assert [is_real(value) for value in ("1", 1j, True, np.True_, None, [1.0], np.array("1"))] == [False] * 7
    assert validate_integer("n", Fraction(6, 2)) == 3
    assert real_array("x", [Fraction(1, 2), 1]).tolist() == [0.5, 1.0]
    array = np.zeros(2)
    assert real_array("x", array) is array


class Wrapper:
    """Object that converts to a masked array, as a Dask array with masked chunks does."""

    def __array__(self, dtype=None, copy=None):
        return np.ma.array([1.0, 0.0, 1.0], mask=[1, 0, 0])


@pytest.mark.parametrize("convert", [real_array, record_array])
@pytest.mark.parametrize(
    "values",
    [
        np.ma.array([1.0, 2.0], mask=[0, 1]),
        [np.ma.array([1.0, 0.0], mask=[1, 0]), np.ma.array([0.0, 1.0])],
        [np.ma.array(5, mask=1), 6],
        ([np.ma.masked, 0.0],),
        Wrapper(),
        da.ma.masked_array(da.from_array(np.ones(3)), np.array([True, False, False])),
        np.array([np.ma.masked, 1.0], dtype=object),
    ],
    ids=["array", "rows", "scalar", "nested", "wrapper", "lazy", "objects"],
)
def test_masked_entries_are_refused_wherever_they_are(convert, values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="got masked entries"):
            convert("records", values)
