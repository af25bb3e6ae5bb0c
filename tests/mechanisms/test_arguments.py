"""Bad values of the arguments of all functions: one table of values per kind, and one table of valid calls.

Each function of `CALLS` is called with each bad value in place of each argument whose name is in `KINDS`.
"""

import inspect
import math
from fractions import Fraction
from functools import partial

import dask.array as da
import numpy as np
import pytest

import mechanisms as m
from mechanisms.audit.counts import count_distributions, require_auditable
from mechanisms.core.arguments import is_real, real_array, record_array, returned_array, validate_integer
from mechanisms.core.conjugate import validate_counts, validate_prior
from mechanisms.core.conversions import concentrated_epsilon, pure_epsilon_for, pure_renyi
from mechanisms.core.privacy_parameters import SMALLEST_EPSILON, validate_size
from mechanisms.counts.bound_calibration import bound_scale, require_bound
from mechanisms.counts.calibration import calibrate
from mechanisms.counts.discrete_gaussian import LatticeGaussianNoise
from mechanisms.counts.draws import compare_draws
from mechanisms.counts.hamming import calibrate_hamming, hamming_loss, require_hamming
from mechanisms.counts.mechanism import Mechanism, SampledCounts, validate
from mechanisms.counts.optimal import optimal_distribution, require_solvable
from mechanisms.counts.permute_and_flip import calibrate_flip
from mechanisms.counts.registry import MECHANISMS
from mechanisms.counts.sensitivity import Rule
from mechanisms.draws.glm_mechanisms import validate_design
from mechanisms.draws.glm_sampling import STEPS_PER_PRODUCT, laplace_approximation, sample_glm
from mechanisms.draws.langevin import langevin_chain, last_langevin
from mechanisms.draws.penalty import published_penalty
from mechanisms.draws.tempered import renyi_sampler
from mechanisms.draws.worst_case import candidate_records, limiting_case, shared_records
from mechanisms.inference.families import MODELS
from mechanisms.inference.methods import INFERENCE_METHODS
from mechanisms.inference.one_posterior_sample import N_DRAWS, OnePosteriorSampling
from mechanisms.regression.keyed_partition import keyed_partition
from mechanisms.regression.partition_prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.sparse_vector import SparseVector
from mechanisms.regression.statistics import draw_partition, partition_sizes, partition_statistics
from mechanisms.tables import negative_binomial, poisson, table_posterior, uniform
from tests.mechanisms.counts.constructors import StatedRelease
from tests.mechanisms.inference.enumeration import binomial_mixture
from tests.mechanisms.inference.laplace import conjugate_posterior, sample_gibbs, statistic
from tests.mechanisms.refusals import assert_refused

RNG, LAPLACE = np.random.default_rng(1), m.Noise("laplace", 1.0)
NO_NUMBER = ("1.0", "three", True, np.True_, 0.5 + 0j, [0.5], np.array([0.5]), np.arange(0.5, 99), math.nan)
NO_REAL = ("1.0", True, np.True_, 1.0 + 0.5j, math.nan, None)
NO_ARRAY = (["1", "2"], [1 + 0j, 2 + 0j], np.array([1 + 3j, 2]), [True, False], [[1], [1, 2]], [1, None])
NO_INTEGER = (*NO_NUMBER, None, 2.5, math.inf, -1, 3 + 0j, "3", [3], np.array([3]), np.arange(99.0))
NOT_POSITIVE = (*NO_NUMBER, None, 0, -1.0, math.inf, 10**400)
NO_DELTA = (*NO_NUMBER, None, 1, -0.1, -1e-9, 1.5)
NO_ORDER = (*NO_NUMBER, None, 0.999, 0, -2.0, math.inf)

# Kind: (text of the error, bad values, a valid value).
KINDS = {
    "integer": (r"must be an integer >= \d+, got", (*NO_INTEGER, 0), 3),
    "natural": (r"must be an integer >= \d+, got", NO_INTEGER, 3),
    "number": (r"must .*, got .*; ", NO_REAL, 1.0),
    "error_variance": (r"must .*, got .*; ", (*NO_REAL, []), 1.0),
    "dimension": ("x must have 1 or 2 dimensions, got", (*NO_REAL, np.arange(99.0), 0, 3), 1),
    "coefficient": ("coefficient must be in (0, 1], got", (*NO_NUMBER, None, 0, 1.5), 1.0),
    "positive": ("must be .*finite.*> 0, got", NOT_POSITIVE, 1.0),
    "epsilon": (
        r"epsilon must be (a finite number > 0|in \[1e-100, 1e100\]), got",
        (*NOT_POSITIVE, 1e-101, 1.1e100),
        1.0,
    ),
    "resolved": (
        "epsilon must be (a finite number > 0|>= 1e-08)",
        (*NOT_POSITIVE, 1e-17, 0.999 * SMALLEST_EPSILON),
        1.0,
    ),
    "delta": (r"delta must be in \(0, 1\), got", (*NO_DELTA, 0), 0.5),
    "delta_or_zero": (r"delta must be in \(0, 1\), got", NO_DELTA, 0.5),
    "order": ("order must be a finite number >= 1, got", NO_ORDER, 2.0),
    "prior": (
        "prior must",
        (*NO_ARRAY, 1.0, [1.0], [[1.0, 1.0]], [1, 0], [1, -1], [1, math.nan], [math.inf, 1]),
        [1, 1],
    ),
    "counts": (
        "counts must",
        (*NO_ARRAY, [3], [3, -1], [2.5, 2.5], [math.nan, 5], [math.inf, 5], [1e300, 5], [0, 0], "ab"),
        [1, 2],
    ),
    "array": ("must be an array of real numbers, got", (*NO_ARRAY, np.ma.array([1.0, 2.0], mask=[0, 1])), [1, 2]),
    "relation": (
        "relation must be a Neighbouring, got .*; look up names",
        ("replace-one", "add-remove", None),
        m.Neighbouring.REPLACE_ONE,
    ),
    "name": (r"must be one of \w.*, got ", ("unknown", 3, None), "laplace"),
    "rehearsal_seed": ("rehearsal_seed must be an integer >= 0", ("a", -1, 1.5, math.nan, True, [1]), 3),
    "rng": ("rng must be a numpy Generator for", (7, np.random.RandomState(1)), RNG),
}
KIND_OF = {
    **{kind: kind for kind in KINDS},
    **dict.fromkeys(("n", "k", "n_threads", "size", "n_chains", "n_draws", "n_samples"), "integer"),
    **dict.fromkeys(("n_rows", "n_partitions", "n_values", "doublings", "n_steps", "count", "times"), "integer"),
    **dict.fromkeys(("num_samples", "n_releases"), "integer"),
    **dict.fromkeys(
        ("scale", "noise_scale", "noise_std", "sensitivity", "beta", "norm_bound", "rho", "mu"), "positive"
    ),
    **dict.fromkeys(("inverse_temperature", "start"), "positive"),
    **dict.fromkeys(("power", "share"), "number"),
    **dict.fromkeys(("family", "mechanism", "rule"), "name"),
    "n_burn_in": "natural",
}


def valid(*names, **others):
    """Return arguments with the valid values of their kinds, and others."""
    return {name: KINDS[KIND_OF[name]][2] for name in names} | others


def replaced(values, place, value):
    return (*values[:place], value, *values[place + 1 :])


ROWS = partition_statistics([[0.0], [1.0], [2.0], [3.0]], [0.9, 3.1, 5.0, 7.2], [0, 0, 0, 0])
GLM = m.glm_mechanism("true-posterior", n=3, beta=1.0, order=2, epsilon=1)
RECORDS = np.array([[1.0], [-1.0], [1.0]]), np.array([1.0, 0.0, 0.0])
APPROXIMATION = laplace_approximation(*RECORDS, GLM)
HYPERPARAMETERS = {
    name: (1.0,) * (3 if model.is_vector else len(model.hyperparameters)) for name, model in MODELS.items()
}
PARAMETERS = {"multinomial": [0.5, 0.25, 0.25], "normal-unknown-variance": [0.5, 0.5]}
BOUNDED = [name for name, model in MODELS.items() if model.is_truncated]


def steps(n):
    """Return the number of steps of a chain, a multiple of `STEPS_PER_PRODUCT` for the valid 3."""
    return n * (STEPS_PER_PRODUCT // 3) if is_real(n) and n == 3 else n


# Name: (function, valid arguments). Integers are 3, or larger numbers, whose results for 3.0 and 3 are equal.
CALLS = {
    "Guarantee": (m.Guarantee, valid("epsilon", "relation")),
    "Guarantee, delta": (lambda delta_or_zero: m.Guarantee(1.0, delta_or_zero), valid("delta_or_zero")),
    "RenyiGuarantee": (m.RenyiGuarantee, valid("order", "epsilon", "relation")),
    "ConcentratedGuarantee": (m.ConcentratedGuarantee, valid("relation", rho=0.5)),
    "Noise": (m.Noise, valid("name", "scale")),
    "Noise.guarantee": (lambda sensitivity: LAPLACE.guarantee(sensitivity), valid("sensitivity")),
    "calibrated_noise": (partial(m.calibrated_noise, loss=1.0), valid("name", "sensitivity")),
    "calibrated_noise, epsilon": (lambda epsilon: m.calibrated_noise("laplace", 1.0, epsilon), valid("epsilon")),
    "calibrated_noise, rho": (lambda rho: m.calibrated_noise("gaussian", 1.0, rho), valid(rho=0.5)),
    "pure_renyi": (partial(pure_renyi, order=2.0), valid("epsilon")),
    "pure_epsilon_for": (lambda epsilon: pure_epsilon_for(2.0, epsilon), valid("epsilon")),
    "concentrated_epsilon": (concentrated_epsilon, valid("delta", rho=0.1)),
    "approximate_epsilon": (lambda delta: m.approximate_epsilon([2.0], [0.1], delta), valid("delta")),
    "Ledger.spend": (lambda times: m.Ledger().spend(m.Guarantee(1.0), times), valid("times")),
    "balanced_counts": (m.balanced_counts, valid("n", "k")),
    "enumerate_candidates": (m.enumerate_candidates, valid("n", "k")),
    "posterior": (partial(m.posterior, counts=[1, 2]), valid("prior")),
    "validate_prior": (validate_prior, valid("prior")),
    "validate_counts": (validate_counts, valid("counts")),
    "validate_size": (validate_size, valid("n")),
    "validate": (
        lambda resolved, delta=None, **how: validate(epsilon=resolved, delta=delta, **how),
        valid("resolved", "delta", prior=[1.0, 1.0], counts=[3, 2]),
    ),
    "audit_counts": (
        lambda resolved=1.0, **how: m.audit_counts(epsilon=resolved, **how).epsilon,
        valid("prior", "n", "resolved", "delta", "n_threads", "relation", mechanism="geometric"),
    ),
    "count_distributions": (
        lambda resolved, **how: count_distributions(epsilon=resolved, **how).outputs,
        valid("prior", "n", "resolved", "delta", mechanism="geometric"),
    ),
    "require_auditable": (lambda n: require_auditable(n, [1.0, 1.0]), valid("n")),
    "audit_sums": (lambda **how: m.audit_sums(noise_scale=1.0, **how).epsilon, valid("relation", family="binomial")),
    "Mechanism.stated": (lambda relation: MECHANISMS["geometric"].stated(1.0, relation=relation), valid("relation")),
    "Family.sensitivity": (lambda relation: MODELS["normal"].sensitivity((-1.0, 1.0), relation), valid("relation")),
    "sampled_bound": (
        lambda n_samples: m.sampled_bound(lambda data, size: np.zeros(size), 0, 1, n_samples).n_samples,
        valid(n_samples=300),
    ),
    **{
        f"{name}.{call.__name__}": (
            lambda resolved, delta=None, call=call, **how: call(epsilon=resolved, delta=delta, **how),
            valid("resolved", "delta", prior=[1.0, 1.0], counts=[3, 2]),
        )
        for name, mechanism in MECHANISMS.items()
        for call in (mechanism.build, mechanism.validate)
    },
    "laplace_counts": (m.laplace_counts, valid("prior", "counts", "noise_scale")),
    "geometric_counts": (m.geometric_counts, valid("prior", "counts", "noise_scale")),
    "CountRelease.sample": (
        lambda natural: m.geometric_counts([1, 1], [1, 2], 1.0).sample(RNG, natural).shape,
        valid("natural"),
    ),
    "LatticeGaussianNoise": (lambda noise_std: LatticeGaussianNoise(2, noise_std), valid(noise_std=0.5)),
    "bound_scale": (lambda prior, n, resolved: bound_scale(prior, n, resolved).n, valid("prior", "n", "resolved")),
    "require_bound": (require_bound, valid("n", "k")),
    "calibrate_flip": (
        lambda prior, n, resolved: calibrate_flip(prior, n, resolved).rate,
        valid("prior", "resolved", n=5),
    ),
    "calibrate": (
        lambda prior, n, resolved: calibrate(Rule.SMOOTH, prior, n, resolved).rate,
        valid("prior", "n", "resolved"),
    ),
    "optimal_distribution": (
        lambda prior, n, resolved: optimal_distribution(prior, n, resolved).n,
        valid("prior", "n", "resolved"),
    ),
    "require_solvable": (require_solvable, valid("n", "k")),
    "require_hamming": (require_hamming, valid("n", "k")),
    "calibrate_hamming": (lambda n, k, resolved: calibrate_hamming(n, k, resolved), valid("n", "k", "resolved")),
    "hamming_loss": (
        lambda inverse_temperature, **how: hamming_loss(**how, inverse_temperature=inverse_temperature)[0],
        valid("n", "k", "inverse_temperature"),
    ),
    "count_sampler": (partial(m.count_sampler, RNG), valid("prior", "epsilon", "delta", mechanism="geometric")),
    "count_sampler, samples": (
        lambda num_samples: m.count_sampler(RNG, "geometric", [1, 1], 1.0)([0, 1], num_samples).shape,
        valid("num_samples"),
    ),
    "statistics_sampler": (partial(m.statistics_sampler, RNG), valid("epsilon", family="binomial")),
    "publish_counts": (
        m.publish_counts,
        valid("epsilon", "rehearsal_seed", mechanism="discrete-gaussian", counts=[3, 4], delta=2.0**-10),
    ),
    "publish_sums": (
        partial(m.publish_sums, data=[0, 1]),
        valid("epsilon", "rehearsal_seed", "relation", family="binomial"),
    ),
    "publish_bounds": (lambda epsilon: m.publish_bounds(np.ones(500), epsilon, rehearsal_seed=1), valid("epsilon")),
    "private_posterior": (
        partial(m.private_posterior, [0, 1], prior=(1, 1)),
        valid("epsilon", "rehearsal_seed", family="binomial"),
    ),
    "posterior_from_release": (
        lambda n=None, epsilon=None, **how: m.posterior_from_release(
            3.0, prior=(1, 1), n=n, epsilon=epsilon, **how
        ).mean(),
        valid("n", "epsilon", "relation", family="binomial"),
    ),
    "private_logistic": (
        partial(m.private_logistic, *RECORDS),
        valid("epsilon", "norm_bound", "rehearsal_seed", delta=2.0**-10, beta=0.25),
    ),
    "private_chain": (
        lambda **how: m.private_chain(d=1, **how),
        valid("n", "epsilon", "delta", name="langevin-last", beta=0.25),
    ),
    "glm_mechanism": (m.glm_mechanism, valid("n", "order", "epsilon", "norm_bound", name="ops", beta=0.5)),
    "GlmMechanism.renyi_epsilon": (lambda order: GLM.renyi_epsilon(order), valid("order")),
    "sample_glm": (
        lambda n_chains, n_steps: (
            sample_glm(RNG, *RECORDS, GLM, APPROXIMATION, steps(n_steps), n_chains=n_chains).weights.shape
        ),
        valid("n_chains", "n_steps"),
    ),
    "langevin_chain": (
        lambda n, beta, n_steps: langevin_chain(n, beta, n_steps, 0.01),
        valid("n", "n_steps", beta=0.5),
    ),
    "last_langevin": (last_langevin, valid("n", "epsilon", "delta", beta=0.5)),
    "published_penalty": (lambda **how: published_penalty(d=1, **how), valid("n", "epsilon", "delta", beta=0.5)),
    "limiting_case": (
        lambda positive, beta, norm_bound, dimension: limiting_case(beta, dimension, norm_bound, positive),
        valid("norm_bound", "positive", "dimension", beta=0.5),
    ),
    "candidate_records": (lambda count: candidate_records(1.0, 1, count), valid("count")),
    "shared_records": (lambda n: shared_records(GLM, n, 1)["separable"], valid("n")),
    "renyi_sampler": (lambda **how: renyi_sampler(**how).n, valid("prior", "n", "coefficient", name="direct")),
    "calibrate_renyi": (
        lambda **how: m.calibrate_renyi(name="diffused", **how).coefficient,
        valid("prior", "n", "order", epsilon=0.125),
    ),
    "RenyiSampling.renyi_epsilon": (
        lambda order: renyi_sampler("direct", [9, 9], 3, 1.0).renyi_epsilon(order),
        valid("order"),
    ),
    "RenyiSampling.posterior": (
        lambda counts: renyi_sampler("direct", [1, 1], 3, 1.0).posterior(counts),
        valid("counts"),
    ),
    "RenyiDraw.sample": (
        lambda natural: renyi_sampler("direct", [1, 1], 3, 1).at([1, 2]).sample(RNG, natural).shape,
        valid("natural"),
    ),
    "gaussian_mechanism": (m.gaussian_mechanism, valid("prior", "n", "order", "epsilon", name="gaussian")),
    "GaussianDraw.sample": (
        lambda natural: m.gaussian_mechanism("gaussian", [1, 1], 3, 2, 1.0).at([1, 2]).sample(RNG, natural).shape,
        valid("natural"),
    ),
    **{
        name: (call, valid("array"))
        for name, call in {
            "validate_prior, array": lambda array: validate_prior(array),
            "validate_counts, array": lambda array: validate_counts(array),
            "geometric_counts, array": lambda array: m.geometric_counts([1, 1], array, 1.0),
            "posterior, counts": lambda array: m.posterior([1, 1], array),
            "renyi_sampler, public": lambda array: renyi_sampler("direct", [1, 1], 3, 1, array),
            "GaussianCounts.from_uniforms": lambda array: m.gaussian_mechanism(
                "gaussian", [1, 1], 3, 2, 1.0
            ).from_uniforms([[0.5, 0.5]], array),
            "ReleaseModel.validate_release": lambda array: m.ReleaseModel("multinomial", 3, LAPLACE).validate_release(
                (1, 1), array
            ),
            "OnePosteriorSampling.beta_parameters": lambda array: OnePosteriorSampling(
                (1, 1), 3, 1.0, True
            ).beta_parameters(array),
            "conjugate_posterior, array": lambda array: conjugate_posterior("binomial", (1, 1), 3, array),
        }.items()
    },
    "sample_gibbs": (
        lambda n: sample_gibbs(np.random.default_rng(1), "binomial", (1, 1), n, [1.0], 1.0, n_draws=5),
        valid("n"),
    ),
    "binomial_mixture": (lambda n: binomial_mixture((1, 1), n, 1.0, 1.0).n, valid("n")),
    "BinomialMixture.sample": (
        lambda size: binomial_mixture((1, 1), 5, 1.0, 1.0).sample(RNG, size).shape,
        valid("size"),
    ),
    "conjugate_posterior": (lambda n: conjugate_posterior("binomial", (1, 1), n, [1.0]).mean(), valid("n")),
    "ConjugatePosterior.sample": (
        lambda size: conjugate_posterior("binomial", (1, 1), 3, [1.0]).sample(RNG, size).shape,
        valid("size"),
    ),
    "OnePosteriorSampling": (
        lambda n, epsilon: OnePosteriorSampling((1, 1), n, epsilon, True).power,
        valid("n", "epsilon"),
    ),
    "ReleaseModel": (m.ReleaseModel, valid("n", family="binomial", noise=LAPLACE)),
    **{
        name: (
            lambda method=method, **how: (
                method.fit(how.pop("rng"), m.ReleaseModel("binomial", 9, LAPLACE), (1, 1), [3.0], **how).draws.shape
            ),
            valid("n_chains", "n_draws", "n_burn_in", rng=np.random.default_rng(1)),
        )
        for name, method in INFERENCE_METHODS.items()
        if method.is_sampler
    },
    **{
        f"{family}.prior[{place}]": (
            lambda number, family=family, place=place: MODELS[family].validate_prior(
                replaced(HYPERPARAMETERS[family], place, number)
            ),
            valid("number"),
        )
        for family in MODELS
        for place in range(len(HYPERPARAMETERS[family]))
    },
    **{
        f"{family}.theta": (
            lambda number, family=family: MODELS[family].validate_parameters(
                replaced(PARAMETERS.get(family, [0.5]), 0, number)
            ),
            valid(number=0.5),
        )
        for family in MODELS
    },
    **{
        f"{family}.bounds[{place}]": (
            lambda number, family=family, place=place: MODELS[family].validate_bounds(
                replaced((0.0, 9.0), place, number)
            ),
            valid(number=(0.0, 9.0)[place]),
        )
        for family in BOUNDED
        for place in range(2)
    },
    **{
        f"ReleaseModel({name}[{place}])": (
            lambda number, name=name, place=place: m.ReleaseModel(
                "normal",
                10,
                LAPLACE,
                **{"bounds": (0.0, 5.0), "parameter_range": (0.0, 5.0), name: replaced((0.0, 5.0), place, number)},
            ),
            valid(number=(0.0, 5.0)[place]),
        )
        for name in ("bounds", "parameter_range")
        for place in range(2)
    },
    "ZellnerPrior": (lambda positive: ZellnerPrior(positive), valid(positive=4.0)),
    **{
        f"{prior.__name__}({name})": (lambda number, prior=prior, name=name: prior(**{name: number}), valid("number"))
        for prior in (ConjugatePrior, SemiConjugatePrior)
        for name in ("mean", "precision", "shape", "rate")
    },
    "coefficient_posterior": (
        lambda error_variance=None, power=1.0: coefficient_posterior(
            ROWS, 1, FlatPrior(), error_variance, power
        ).mean(),
        valid("error_variance", "power"),
    ),
    "SparseVector": (SparseVector, valid("n_values", "epsilon", "start", "doublings", share=0.5)),
    "keyed_partition": (
        lambda n_rows, n_partitions: keyed_partition(RNG, n_rows, n_partitions).n_partitions,
        valid("n_partitions", n_rows=9),
    ),
    "partition_probability": (m.partition_probability, valid("n_partitions", "epsilon", name="normality")),
    "PartitionProbability.guarantee": (
        lambda n_releases: m.partition_probability("normality", 5, 1.0).guarantee(n_releases),
        valid("n_releases"),
    ),
    "partition_quantile": (
        lambda epsilon, **how: m.partition_quantile(epsilon=epsilon, split=(0.5, 0.5), **how).search,
        valid("n_partitions", "epsilon", "start", "doublings", name="quantile"),
    ),
    "PartitionQuantile.guarantee": (
        lambda n_releases: m.partition_quantile("quantile", 5, 1.0, (0.5, 0.5)).guarantee(n_releases),
        valid("n_releases"),
    ),
    "partition_sizes": (partition_sizes, valid("size", n=9)),
    "draw_partition": (lambda n: draw_partition(np.random.default_rng(1), n, 1), valid("n")),
    "partition_statistics": (
        lambda n_partitions=None: partition_statistics([[1.0]], [1.0], [0], n_partitions).n_rows,
        valid("n_partitions"),
    ),
    "poisson": (lambda positive: poisson(positive), valid(positive=2.0)),
    "negative_binomial": (lambda positive: negative_binomial(positive, 1.0), valid(positive=2.0)),
    "negative_binomial, mean": (lambda positive: negative_binomial(1.0, positive), valid(positive=2.0)),
    "uniform": (lambda natural=None: uniform(natural), valid("natural")),
    "table_posterior": (
        lambda natural=None: table_posterior([3.0, 2.0], LAPLACE, [1, -1], poisson(2.0), n=natural).mean(),
        valid("natural"),
    ),
}
ARGUMENTS = [(name, argument) for name, (_, valid) in CALLS.items() for argument in valid if argument in KIND_OF]


def is_optional(function, argument):
    """Return True if None is the default of an argument."""
    parameter = inspect.signature(function).parameters.get(argument)
    return parameter is not None and parameter.default is None


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_bad_values_are_refused_in_one_line(name, argument):
    function, valid = CALLS[name]
    message, values, _ = KINDS[KIND_OF[argument]]
    for value in values:
        if value is None and is_optional(function, argument):
            continue
        text = assert_refused(lambda value=value: function(**valid | {argument: value}), message)
        assert len(text) < (300 if KIND_OF[argument] in ("integer", "natural") else 600)
        assert KIND_OF[argument] != "positive" or argument in ("positive", "start") or argument in text
        if argument == "array":  # of private numbers
            assert not any(digit in text for digit in "123")


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_equal_numbers_of_other_types_are_accepted(name, argument):
    function, valid = CALLS[name]
    expected, kind = function(**valid), KIND_OF[argument]
    if kind in ("integer", "natural"):
        for convert in (float, np.int32, np.float32):
            np.testing.assert_equal(function(**valid | {argument: convert(valid[argument])}), expected)
    elif is_real(valid[argument]):
        function(**valid | {argument: np.float32(valid[argument])})


SECRET = 4321.5
SECRETS = {
    "counts": lambda: MECHANISMS["geometric"].build((1, 1), (SECRET, 1), 1.0),
    "counts-text": lambda: validate_counts(f"{SECRET}"),
    "published-negative": lambda: m.publish_counts("k-norm", [4321, -3], 1.0),
    "published-fraction": lambda: m.publish_counts("k-norm", [4321, 0.5], 1.0),
    "posterior": lambda: m.posterior((1, 1), (-SECRET, 1)),
    "tempered": lambda: OnePosteriorSampling((1, 1), 10, 1.0, True).from_uniforms(np.zeros((1, N_DRAWS)), [SECRET]),
    "renyi": lambda: renyi_sampler("diffused", (1, 1), 10, 0.5).at((SECRET, 1)),
    "renyi-sum": lambda: renyi_sampler("diffused", (1, 1), 10, 0.5).at((4321, 1)),
    "gaussian": lambda: m.gaussian_mechanism("gaussian", (1, 1), 10, 2, 0.5).at((SECRET, 1)),
    "gaussian-count": lambda: m.gaussian_mechanism("gaussian", (1, 1), 10, 2, 0.5).successes_distribution(SECRET),
    "records": lambda: statistic("poisson", [1.0, SECRET], (0.0, 9.0)),
    "labels": lambda: validate_design([[0.5]], [SECRET]),
    "rows": lambda: validate_design([[SECRET]], [1]),
    "probabilities": lambda: m.partition_probability("normality", 2, 1.0).aggregate([[0.5], [SECRET]]),
    "dataset": lambda: m.count_sampler(np.random.default_rng(1), "geometric", (1, 1), 1.0)([0, 4321], 1),
    "statistics": lambda: conjugate_posterior("binomial", (1, 1), 10, [-SECRET]),
}


@pytest.mark.parametrize("case", SECRETS)
def test_messages_do_not_contain_private_values(case):
    text = assert_refused(SECRETS[case], ".")
    assert "4321" not in text
    assert "4320" not in text


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


MASKED = {
    "array": np.ma.array([1.0, 2.0], mask=[0, 1]),
    "rows": [np.ma.array([1.0, 0.0], mask=[1, 0]), np.ma.array([0.0, 1.0])],
    "scalar": [np.ma.array(5, mask=1), 6],
    "nested": ([np.ma.masked, 0.0],),
    "wrapper": Wrapper(),
    "lazy": da.ma.masked_array(da.from_array(np.ones(3)), np.array([True, False, False])),
    "objects": np.array([np.ma.masked, 1.0], dtype=object),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("convert", [real_array, record_array])
@pytest.mark.parametrize("name", MASKED)
def test_masked_entries_are_refused_wherever_they_are(convert, name):
    assert_refused(lambda: convert("records", MASKED[name]), "got masked entries")


def masked(values):
    """Return `values` with the last entry masked, whose number stays below the mask."""
    array = np.ma.masked_array(values)
    array[..., -1] = np.ma.masked
    return array


OWN_MECHANISM = Mechanism(
    "masked",
    release=lambda prior, counts, *_: StatedRelease(
        prior, counts, masked(m.geometric_counts(prior, counts, 1.0).log_pmf())
    ),
    guarantee=lambda epsilon, delta: None,
)
OWN_NOISE = m.noise_mechanism("masked", log_pmf=lambda z, epsilon: masked(-epsilon * abs(z)))
OWN_LOGS = np.log([[0.5, 0.5], [0.4, 0.6]])
OWN_FUNCTIONS = {
    "distribution": lambda: m.audit_distributions(
        m.OutputDistributions(np.arange(2), np.arange(2), np.array([[0, 1]]), lambda i: masked(OWN_LOGS[i]))
    ),
    "noise": lambda: m.audit_counts(OWN_NOISE, [1, 1], 5, 1.0),
    **{
        relation.name: partial(m.audit_counts, OWN_MECHANISM, [1, 1], 5, 1.0, relation=relation)
        for relation in m.Neighbouring
    },
    "draws": lambda: SampledCounts(
        np.ones(2), np.array([2, 3]), 1.0, 0.0, lambda rng, counts, *_: masked(np.tile(counts, (4, 1)))
    ).sample(RNG, 4),
    "samples": lambda: m.sampled_bound(lambda data, size: masked(np.zeros(size)), 0, 1, n_samples=200),
    "event": lambda: m.sampled_bound(
        lambda data, size: np.full(size, float(data)), 0, 1, n_samples=200, events=[lambda x: masked(x[:, 0] > 0)]
    ),
    "function of counts": lambda: table_posterior(
        [2.0, 3.0], m.Noise("geometric", 1.0), [-1, -1], negative_binomial(1.0, 2.0)
    ).evaluate(lambda draws: masked(draws[:, 0]), RNG, 10),
    "pmf of draws": lambda: compare_draws(np.array([[0, 1], [1, 0]]), masked(np.log([0.5, 0.5]))),
}


@pytest.mark.parametrize("name", OWN_FUNCTIONS)
def test_masked_entries_of_own_functions_are_refused(name):
    assert_refused(OWN_FUNCTIONS[name], "must return an array without a mask, got masked entries")


@pytest.mark.parametrize("values", [[0.5, 1.0], (1, 2), np.ma.masked_array([1.0, 2.0]), np.array([True, False])])
def test_arrays_without_masked_entries_are_returned(values):
    np.testing.assert_array_equal(returned_array("function", values), np.asarray(values))
