"""Masked entries of arrays that functions of users return."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mechanisms import Noise, audit_counts, geometric_counts, noise_mechanism, sampled_bound
from mechanisms.core.arguments import returned_array
from mechanisms.core.exact_losses import OutputDistributions, audit_distributions
from mechanisms.core.privacy import Neighbouring
from mechanisms.counts.draws import compare_draws
from mechanisms.counts.mechanism import CountRelease, Mechanism, SampledCounts
from mechanisms.tables import negative_binomial, table_posterior

RNG = np.random.default_rng(1)


def _masked(values: Any) -> Any:
    """Return `values` with the last entry masked, whose number stays below the mask."""
    array = np.ma.masked_array(values)
    array[..., -1] = np.ma.masked
    return array


def _own_distribution() -> None:
    logs = np.log([[0.5, 0.5], [0.4, 0.6]])
    audit_distributions(OutputDistributions(np.arange(2), np.arange(2), np.array([[0, 1]]), lambda i: _masked(logs[i])))


def _own_noise() -> None:
    mechanism = noise_mechanism("masked", log_pmf=lambda z, epsilon: _masked(-epsilon * abs(z)))
    audit_counts(mechanism, prior=[1, 1], n=5, epsilon=1.0)


def _own_draws() -> None:
    def sampler(rng: np.random.Generator, counts: Any, epsilon: float, delta: float, size: int) -> Any:
        return _masked(np.tile(counts, (size, 1)))

    SampledCounts(np.ones(2), np.array([2, 3]), 1.0, 0.0, sampler).sample(RNG, 4)


def _own_samples() -> None:
    sampled_bound(lambda data, size: _masked(np.zeros(size)), 0, 1, n_samples=200)


def _own_event() -> None:
    sampled_bound(
        lambda data, size: np.full(size, float(data)), 0, 1, n_samples=200, events=[lambda x: _masked(x[:, 0] > 0)]
    )


def _own_function_of_counts() -> None:
    posterior = table_posterior([2.0, 3.0], Noise("geometric", 1.0), [-1, -1], negative_binomial(1.0, 2.0))
    posterior.evaluate(lambda draws: _masked(draws[:, 0]), RNG, 10)


class _MaskedRelease(CountRelease):
    """Geometric noise whose log-pmf has a masked last entry."""

    n_uniforms = 0

    def __init__(self, prior: Any, counts: Any) -> None:
        self.prior, self.counts = prior, counts

    def from_uniforms(self, uniforms: Any) -> Any:
        raise NotImplementedError

    def expected_hellinger(self) -> float:
        raise NotImplementedError

    def log_pmf(self) -> Any:
        return _masked(geometric_counts(self.prior, self.counts, 1.0).log_pmf())


def _own_mechanism(relation: Neighbouring) -> None:
    mechanism = Mechanism(
        "masked",
        "",
        release=lambda prior, counts, epsilon, delta: _MaskedRelease(prior, counts),
        guarantee=lambda epsilon, delta: None,
    )
    audit_counts(mechanism, prior=[1, 1], n=5, epsilon=1.0, relation=relation)


def _own_pmf_of_draws() -> None:
    compare_draws(np.array([[0, 1], [1, 0]]), _masked(np.log([0.5, 0.5])))


@pytest.mark.parametrize(
    "use",
    [
        _own_distribution,
        _own_noise,
        partial(_own_mechanism, Neighbouring.REPLACE_ONE),
        partial(_own_mechanism, Neighbouring.ADD_OR_REMOVE_ONE),
        _own_draws,
        _own_samples,
        _own_event,
        _own_function_of_counts,
        _own_pmf_of_draws,
    ],
)
def test_masked_entries_of_own_functions_are_refused(use: Callable[[], None]) -> None:
    with pytest.raises(ValueError, match="must return an array without a mask, got masked entries"):
        use()


@pytest.mark.parametrize("values", [[0.5, 1.0], (1, 2), np.ma.masked_array([1.0, 2.0]), np.array([True, False])])
def test_arrays_without_masked_entries_are_returned(values: Any) -> None:
    np.testing.assert_array_equal(returned_array("function", values), np.asarray(values))
