"""Tests of the study `private-mcmc`."""

import math

import numpy as np
import pytest

from mechanisms import glm_mechanism
from mechanisms.core.conversions import concentrated_epsilon, gaussian_epsilon, gaussian_mu
from mechanisms.draws.chains import private_chain
from studies.renyi.logistic_trials import MECHANISMS, SPLITS, exact_target, grid_draws, relative_energy
from tests.statistical import assert_mean_within, assert_rejects


@pytest.mark.slow
def test_all_methods_spend_the_same_budget():
    for epsilon in (0.1, 1.0, 10.0):
        setting = {"beta": 1e-3, "epsilon": epsilon, "delta": 1e-6}
        for name in ("glm-diffused", "glm-concentrated"):
            target, size = exact_target(name, 2784, setting)
            rho = target.renyi_epsilon(1.0)
            assert size == 1
            assert (
                concentrated_epsilon(rho, 1e-6) == pytest.approx(epsilon, rel=1e-6) or epsilon == 10.0
            )  # true posterior
            assert concentrated_epsilon(rho, 1e-6) <= epsilon * (1 + 1e-9)
        for name in ("glm-gdp", *SPLITS):
            target, size = exact_target(name, 2784, setting)
            spent = gaussian_epsilon(math.sqrt(size) * target.guarantee.mu, 1e-6)
            assert spent == pytest.approx(epsilon, rel=1e-6) or target.power == 1.0
            assert spent <= epsilon * (1 + 1e-9)
        for name in ("langevin-last", "langevin", "penalty"):
            chain = private_chain(name, 2784, 9, 1e-3, epsilon, 1e-6)
            assert chain.guarantee.mu <= gaussian_mu(epsilon, 1e-6)


def test_relative_energy_of_exact_draws_is_the_inverse_of_their_number():
    rng = np.random.default_rng(1)
    for k in (1, 4):
        draws, references = rng.standard_normal((400, k, 3)), rng.standard_normal((400, 200, 3))
        pairs = list(zip(draws, references, strict=True))
        assert_mean_within(np.array([relative_energy(*pair) for pair in pairs]), 1 / k)
        shifted = [relative_energy(one + 1.0, reference) for one, reference in pairs]
        assert_rejects(assert_mean_within, np.array(shifted), 1 / k)


def test_grid_draws_have_the_moments_of_a_normal_posterior():
    """With records at 0 the posterior is the prior."""
    target = glm_mechanism("true-posterior", 4, 0.5, 1, 1.0)
    draws = grid_draws(np.random.default_rng(2), np.zeros((4, 2)), np.zeros(4), target, 40_000)
    assert_mean_within(draws[:, 0], 0.0)
    variance = 0.5 * (1 + 0.3**2 / 12)  # uniform within cells of width 0.3
    assert_mean_within(draws[:, 1] ** 2, variance, wrong=1.05 * variance)


def test_stored_draws(results):
    ds = results("abalone")
    assert ds.mechanism.values.tolist() == list(MECHANISMS)
    assert ((ds.test_error > 0.1) & (ds.test_error < 0.9)).all()
    assert (ds.n_used.sel(mechanism="glm-gdp-16") == 16).all()
    assert len(np.unique(ds.energy.sel(mechanism="true-posterior"))) == 4
    simulated = results("simulated")
    planned = simulated.planned.sel(mechanism="langevin", beta=0.1)
    assert planned.values.tolist() == [0.0, 1.0]
