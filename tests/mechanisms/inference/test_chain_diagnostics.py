"""Tests of R-hat and effective sample sizes: comparison with ArviZ."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from mechanisms.core.chain_diagnostics import diagnose_chains
from tests.mechanisms.refusals import assert_refused


def autoregressions(rng, phi, n_chains, n_draws):
    """Return chains of autoregressive processes with coefficients `phi`, shape (phi.size, n_chains, n_draws)."""
    chains = rng.normal(size=(phi.size, n_chains, n_draws))
    for t in range(1, n_draws):
        chains[..., t] += phi[:, None] * chains[..., t - 1]
    return chains


@pytest.mark.parametrize(("n_chains", "n_draws"), [(2, 1_000), (4, 251), (3, 97), (2, 20)])
def test_diagnostics_equal_those_of_arviz(n_chains, n_draws):
    phi = np.repeat([-0.8, 0.0, 0.5, 0.9, 0.99, 0.999], 8)
    chains = autoregressions(np.random.default_rng(1), phi, n_chains, n_draws)
    chains[::4] += np.arange(n_chains)[:, None]
    rhat, ess = diagnose_chains(chains)
    axes = {"chain_axis": -2, "draw_axis": -1}
    np.testing.assert_allclose(rhat, array_stats.rhat(chains, method="split", **axes), rtol=1e-12)
    expected = array_stats.ess(chains, method="mean", **axes)
    if n_draws > 20:
        np.testing.assert_allclose(ess, expected, rtol=1e-9)
    else:  # chains too short for the sequence to end, where ArviZ keeps the last autocorrelation even if it is negative
        assert np.mean(np.isclose(ess, expected, rtol=1e-9)) > 0.8
    assert not np.allclose(rhat, array_stats.rhat(chains, method="identity", **axes), rtol=1e-3)


def test_result_does_not_depend_on_the_number_of_sets(monkeypatch):
    chains = autoregressions(np.random.default_rng(2), np.full(12, 0.7), 2, 200)
    together = diagnose_chains(chains.reshape(3, 4, 2, 200))
    monkeypatch.setattr("mechanisms.core.chain_diagnostics._BLOCK", 1)
    for found, expected in zip(diagnose_chains(chains), together, strict=True):
        assert expected.shape == (3, 4)
        np.testing.assert_allclose(found, expected.ravel(), rtol=1e-12)


def test_effective_sample_size_of_an_autoregression():
    """The effective sample size is N(1 − φ)/(1 + φ), within 20 % on average over sets of chains."""
    for phi in (0.0, 0.5, 0.9):
        _, ess = diagnose_chains(autoregressions(np.random.default_rng(3), np.full(50, phi), 2, 4_000))
        assert ess.mean() == pytest.approx(8_000 * (1 - phi) / (1 + phi), rel=0.2)


def test_diagnostics_do_not_depend_on_the_unit():
    chains = autoregressions(np.random.default_rng(4), np.array([0.9]), 2, 500)
    for found, expected in zip(diagnose_chains(chains * 2.0**-60), diagnose_chains(chains), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e9])
def test_constant_chains_have_no_rhat(value):
    chains = np.full((2, 100), value)
    chains[1, 50] = np.nextafter(value, 2.0 * value)
    rhat, ess = diagnose_chains(chains)
    assert np.isnan(rhat)
    assert ess == 200


@pytest.mark.parametrize("shape", [(10,), (2, 7), (3, 2, 0)])
def test_short_chains_are_refused(shape):
    assert_refused(lambda: diagnose_chains(np.zeros(shape)), "draws must have shape")
