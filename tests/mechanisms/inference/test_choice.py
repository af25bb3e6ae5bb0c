"""Tests of the choice of an inference method and of its draws."""

from functools import partial

import numpy as np
import pytest

from mechanisms import private_posterior
from mechanisms.core.noise import Noise
from mechanisms.inference import methods
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.methods import INFERENCE_METHODS, Choice, choose_method, fit_release
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.refusals import assert_refused

LAPLACE = Noise("laplace", 2.0)


def fit(seed, model, prior, y, **run):
    return fit_release(np.random.default_rng(seed), model, prior, y, choose_method(model, prior), **run)


CASES = [
    (ReleaseModel("binomial", 1_000_000, LAPLACE), (1, 1), "exact"),
    (ReleaseModel("binomial", 10**9, LAPLACE), (1, 1), "gibbs-exact"),
    (ReleaseModel("multinomial", 1_000, LAPLACE), (1,) * 10, "exact"),
    (ReleaseModel("multinomial", 1_000_000, LAPLACE), (1,) * 3, "exact"),
    (ReleaseModel("multinomial", 10**9, LAPLACE), (1,) * 100, "exact"),
    (ReleaseModel("multinomial", 10**9, Noise("laplace", 1e6)), (1,) * 3, "gibbs-exact"),
    (ReleaseModel("poisson", 10_000, LAPLACE, (0, 9), "clamp"), (1, 1), "exact"),
    (ReleaseModel("exponential", 100, LAPLACE, (0, 1)), (1, 1), "exact"),
    (ReleaseModel("exponential", 1_000_000, LAPLACE, (0, 1)), (1, 1), "exact"),
    (ReleaseModel("normal", 100, Noise("laplace", 1e-3), (0, 1)), (0, 1), "exact"),
    (ReleaseModel("normal-unknown-variance", 10, LAPLACE, (0, 1)), (0, 1, 1, 1), "data-augmentation"),
]


@pytest.mark.parametrize(("model", "prior", "method"), CASES)
def test_exact_method_is_chosen(model, prior, method):
    choice = choose_method(model, prior)
    assert choice.method == method
    assert choice.method in INFERENCE_METHODS


def test_normal_approximations_support_the_unit_variance_only():
    for variance in (1.0, 4.0):
        model = ReleaseModel("normal", 10, LAPLACE, (0, 1), variance=variance)
        for name in ("gibbs", "gibbs-collapsed", "gibbs-published", "marginal"):
            assert INFERENCE_METHODS[name].supports(model) is (variance == 1.0)
        assert INFERENCE_METHODS["exact"].supports(model)


def test_no_normal_approximation_is_chosen():
    model = ReleaseModel("normal-unknown-variance", 10**6, LAPLACE, (0, 1))
    assert_refused(lambda: choose_method(model, (0, 1, 1, 1)), r"n must be at most 100,000 for draws of records")


def test_improper_priors_are_refused():
    with pytest.raises(ValueError, match="choose a proper prior"):
        choose_method(ReleaseModel("normal", 10, LAPLACE, (0, 1)), (0, np.inf))


@pytest.mark.parametrize(("scale", "shift", "is_fine"), [(1.0, 0.0, True), (4.0, 0.0, False), (1.0, 1.0, False)])
def test_chains_that_differ_are_reported(scale, shift, is_fine):
    """Ranks of folded draws also find differences of scale, which split R-hat misses."""
    draws = np.random.default_rng(3).normal(size=(4, 1_000))
    draws[0] = shift + scale * draws[0]
    found = DrawnPosterior(draws).diagnostics()
    assert (DrawnPosterior(draws).problem() is None) == is_fine
    assert (found["rhat"][0] <= 1.01) == is_fine
    assert DrawnPosterior(np.exp(draws)).diagnostics()["rhat"] > found["rhat"] - 1e-3


def test_scales_next_to_the_ends_are_compared():
    """Chains next to 1 that differ only in the spread of their log odds have a larger R-hat on that scale."""
    log_odds = 4.0 + np.random.default_rng(4).normal(size=(4, 1_000)) * np.array([[1.0], [1.0], [1.0], [1.3]])
    theta = 1.0 / (1.0 + np.exp(-log_odds))
    found = DrawnPosterior(theta).diagnostics()["rhat"]
    np.testing.assert_allclose(found, DrawnPosterior(np.exp(log_odds)).diagnostics()["rhat"], rtol=1e-3)
    assert found > DrawnPosterior(theta - 1.0).diagnostics()["rhat"] + 1e-3
    assert found > 1.01


def test_chains_with_nan_are_reported():
    draws = np.random.default_rng(3).normal(size=(4, 1_000, 2))
    draws[1, 7, 1] = np.nan
    found = DrawnPosterior(draws).diagnostics()
    assert found["rhat"][0] < 1.01
    assert found["rhat"][1] == np.inf
    assert found["ess_bulk"][1] == found["ess_tail"][1] == 0.0
    assert "got inf and 0" in DrawnPosterior(draws).problem()


@pytest.mark.slow
def test_chains_that_do_not_mix_are_warned_of(monkeypatch):
    monkeypatch.setattr(methods, "_LONGEST", 0)  # no longer chains
    model = ReleaseModel("multinomial", 10**8, Noise("laplace", 2e6))
    with pytest.warns(RuntimeWarning, match="chains must have R-hat <= 1.01 and at least 400 effective draws"):
        fit(3, model, (1, 1, 1), [5e7, 3e7, 2.5e7])


@pytest.mark.slow
def test_chains_that_have_not_converged_are_replaced_by_longer_ones(monkeypatch):
    """With a conjugate prior, incomes far below the width of their range mix slowly; longer chains end the warning."""
    incomes, prior = np.random.default_rng(2).lognormal(10.4, 0.6, 100), (5e5, 1 / 3, 1.0, 0.1 * 5e5**2)
    release = partial(
        private_posterior, incomes, "normal-unknown-variance", prior, 20.0, bounds=(0, 1e6), outside="clamp"
    )
    posterior = release(rehearsal_seed=2)
    assert posterior.distribution.draws.shape[1] > 5_000
    assert posterior.distribution.problem() is None
    for limit in ("_LONGEST", "_MAX_DRAWN"):
        with monkeypatch.context() as patch:
            patch.setattr(methods, limit, 0)
            with pytest.warns(RuntimeWarning, match="chains must have R-hat <= 1.01"):
                assert release(rehearsal_seed=2).distribution.draws.shape[1] == 5_000


def test_methods_with_a_fixed_number_of_draws_are_not_repeated():
    """100 draws are too few for `problem`; no longer run gives more, and the loop over longer runs did not end."""
    model, choice = ReleaseModel("binomial", 100, LAPLACE), Choice("ops", "")
    with pytest.warns(RuntimeWarning, match="at least 400 effective draws"):
        posterior = fit_release(np.random.default_rng(1), model, (1, 1), np.array([50.0]), choice)
    assert posterior.draws.shape == (1, 100)


def test_rounding_errors_of_exact_posteriors_are_reported():
    """The noise explains y = −32 neither by a dropped record nor by one that is at most −34."""
    model = ReleaseModel("normal", 1, Noise("gaussian", 1.5), (-34.0, -15.0))
    with pytest.warns(RuntimeWarning, match="may have a relative error of 1, as the noise hardly explains y"):
        fit(1, model, (-56.5, 0.01), [-32.1])
