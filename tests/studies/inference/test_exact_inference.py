"""Tests of the study `exact-inference`."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.methods import INFERENCE_METHODS
from pipeline import Streams
from pipeline.blocks.evaluate import Block, evaluate_block
from studies.inference.exact_inference import STUDY
from studies.inference.exact_trials import (
    ENOUGH_DRAWS,
    LARGEST_RHAT,
    LONGEST,
    N_BURN_IN,
    N_CHAINS,
    N_DRAWS,
    Chains,
    joint_coverage,
    lengthen_chains,
    sample_each,
)


def test_inapplicable_settings_have_no_results(results):
    ds = results("multinomial-3")
    assert (ds.status.sel(algorithm="gibbs", noise="k-norm") == 5).all()
    assert (ds.status.sel(algorithm="gibbs-exact") == 1).all()
    clamped = results("exponential").sel(outside="clamp")
    assert (clamped.status.sel(algorithm="marginal") == 5).all()
    assert (clamped.status.sel(algorithm="data-augmentation") == 1).all()


def test_exact_methods_have_uniform_quantiles(results):
    """PIT values of exact methods, over all cells, pass a Kolmogorov–Smirnov test; shifted ones do not."""
    for name, method in (
        ("binomial", "gibbs-exact"),
        ("multinomial-3", "gibbs-exact"),
        ("normal", "data-augmentation"),
    ):
        ds = results(name)
        ds = ds.isel(component=0) if "component" in ds.dims else ds
        pit = ds["pit"].sel(algorithm=method).values.ravel()
        assert stats.kstest(pit, "uniform").pvalue > 1e-6
        assert stats.kstest(pit**4, "uniform").pvalue < 1e-6


def test_exact_samplers_are_nearer_than_normal_approximations(results):
    ds = results("binomial").sel(prior="0.5:50")
    distance = ds["distance"].mean(["n", "epsilon", "trial"])
    assert distance.sel(algorithm="gibbs") > 3 * distance.sel(algorithm="gibbs-exact")
    assert distance.sel(algorithm="data-augmentation") < 2 * distance.sel(algorithm="gibbs-exact")


def test_panels_have_enough_trials_for_ranks():
    assert all(panel.trials >= 1_500 for panel in STUDY.panels if panel.name != "edge")


def test_joint_coverage_detects_a_wrong_correlation():
    """The test of joint coverage rejects uncorrelated draws of two correlated parameters with correct margins."""
    rng, n_trials = np.random.default_rng(1), 2_000
    centre = rng.normal(size=(n_trials, 2))
    correlated = np.linalg.cholesky([[1.0, 0.9], [0.9, 1.0]])
    theta = centre + rng.normal(size=(n_trials, 2)) @ correlated.T
    reference = centre + 3.0
    noise = rng.normal(size=(n_trials, 500, 2))
    exact = joint_coverage(centre[:, None] + noise @ correlated.T, theta, reference)
    independent = joint_coverage(centre[:, None] + noise, theta, reference)
    assert stats.kstest(exact, "uniform").pvalue > 1e-6
    assert stats.kstest(independent, "uniform").pvalue < 1e-6


def _chains(rng, correlation, calls):
    """Return a sampler of autoregressive chains with a given correlation, which appends its lengths to `calls`."""

    def sample(n_chains, n_burn_in, n_draws):
        calls.append((n_burn_in, n_draws))
        draws = rng.normal(size=(n_chains, n_burn_in + n_draws))
        for t in range(1, n_burn_in + n_draws):
            draws[:, t] += correlation * draws[:, t - 1]
        return DrawnPosterior(draws[:, n_burn_in:])

    return sample


@pytest.mark.parametrize("correlation", [0.0, 0.95, 0.9999])
def test_chains_are_lengthened_until_they_suffice(correlation):
    """Chains are repeated with more iterations, up to the longest, and keep their number of draws."""
    calls = []
    sample = _chains(np.random.default_rng(1), correlation, calls)
    first = np.ones((N_CHAINS, N_DRAWS, 1))
    found = lengthen_chains(sample, Chains(first, np.array([1.0]), np.array([2_000.0]), 1))
    assert found.draws is first
    assert not calls
    found = lengthen_chains(sample, Chains(first, np.array([2.0]), np.array([2_000.0 * (1 - correlation)]), 1))
    assert calls == [(N_BURN_IN * m, N_DRAWS * m) for m in sorted({n // N_DRAWS for _, n in calls})]
    assert 1 < found.thinning <= 16
    assert found.draws.shape == (N_CHAINS, N_DRAWS, 1)
    assert found.suffice == (correlation < 0.99)
    if correlation == 0.9999:
        assert found.thinning == LONGEST


@pytest.mark.parametrize("fails_at", [1, 2])
def test_errors_of_samplers_are_recorded_per_trial(fails_at):
    """A sampler that raises in its first or a repeated run fails its trial; the others have all measures."""
    panel = STUDY.panel("binomial")
    cell = {"n": 10, "epsilon": 0.1, "prior": (1.0, 1.0)}
    streams = Streams(1, "s", "p", "data", cell, range(3))
    releases = panel.simulate(cell, streams)

    calls = [0, 0, 0]

    def fit(rng, model, prior, y, **lengths):
        i = int(np.flatnonzero(releases.noisy[:, 0] == y[0])[0])
        calls[i] += 1
        if i == 1 and calls[i] == fails_at:
            raise ValueError("no draw was accepted")
        draws = rng.normal(size=(N_CHAINS, lengths["n_draws"]))
        return DrawnPosterior(draws + (10.0 * np.arange(N_CHAINS)[:, None] if calls[i] == 1 else 0.0))

    entry = replace(INFERENCE_METHODS["gibbs-exact"], fit=fit)
    found = sample_each(entry, releases, {}, Streams(1, "s", "p", "gibbs-exact", cell, range(3)))
    assert found["error"].tolist() == ["", "no draw was accepted", ""]
    assert (found["rhat"][[0, 2]] < 1.01).all()
    assert (found["thinning"][[0, 2]] > 1).all()


def test_independent_draws_have_the_diagnostics_of_independence(results):
    ds = results("binomial").sel(algorithm=["exact", "marginal"])
    assert (ds["rhat"] == 1).all()
    assert (ds["ess"] == N_CHAINS * N_DRAWS).all()
    assert (ds["thinning"] == 1).all()


def test_chains_of_exact_samplers_suffice(results):
    """All chains but a few have a small R-hat and enough effective draws, also if the posterior has two modes."""
    for name in ("binomial", "normal", "poisson", "normal-unknown-variance"):
        ds = results(name).sel(algorithm="data-augmentation")
        short = ((ds["rhat"] >= LARGEST_RHAT) | (ds["ess"] < ENOUGH_DRAWS)).mean("trial")
        assert float(short.max()) <= 0.1


def test_distances_of_scalar_models_are_measured_in_every_25th_trial(results):
    assert results("poisson").distance.sel(algorithm="data-augmentation").isel(trial=0).notnull().all()
    (setting,) = (chosen for chosen in STUDY.panel("poisson").settings() if chosen.method.name == "data-augmentation")
    (outcome,) = evaluate_block(STUDY, Block("poisson", 0, range(24, 27)), [setting])
    assert np.isfinite(outcome.values["distance"]).tolist() == [False, True, False]
