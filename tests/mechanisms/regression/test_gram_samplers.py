"""Tests of the samplers of regression coefficients given a noisy Gram matrix."""

import numpy as np
import pytest
from scipy import stats

from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.regression import gram_kernels
from mechanisms.regression.gram_kernels import NoisyGram, _diagonalise
from mechanisms.regression.gram_priors import ConjugatePrior, RegressionPrior
from mechanisms.regression.gram_release import NOISE_CODES, GramNoise, GramRelease, calibrated_gram_noise, release_gram
from mechanisms.regression.gram_samplers import (
    GRAM_METHODS,
    normal_statistic,
    regression_of,
    sample_gram,
    simulate_gram,
)
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.regression.scaled_records import gram_from, k_norm


def joint_draw(rng, method, p, n):
    """Return parameters from the prior of a method, and a statistic from its joint model."""
    mu, psi = GRAM_METHODS[method].prior().sample(rng, p)
    if method.startswith("noise-aware"):
        return regression_of(mu, psi), normal_statistic(rng, mu, psi, n)
    if method == "data-augmentation":
        return regression_of(mu, psi), gram_from(np.clip(rng.multivariate_normal(mu, psi, n), -1, 1))
    return regression_of(mu, psi), simulate_gram(rng, mu, psi, n)


def ranks(method, noise, p, n, n_trials, of_records=False, **lengths):
    """Return the posterior quantiles of the true parameters, or of those of the records, shape (n_trials, p + 1)."""
    rng, pits = np.random.default_rng(1), []
    lengths = {"n_chains": 1, "n_burn_in": 200, "n_draws": 100, **lengths}
    if not isinstance(noise, GramNoise):
        noise = calibrated_gram_noise(noise, p, 1.0, 1e-6 if noise == "gaussian" else None)
    for _ in range(n_trials):
        truth, gram = joint_draw(rng, method, p, n)
        if of_records or method == "normal-covariates-records":
            mean = gram[0, 1:] / n
            truth = regression_of(mean, gram[1:, 1:] / n - np.outer(mean, mean))
        draws = sample_gram(rng, method, release_gram(rng, gram, noise), **lengths)
        pits.append((draws[..., : p + 1].reshape(-1, p + 1) < truth).mean(axis=0))
    return np.array(pits)


EXACT = [name for name, entry in GRAM_METHODS.items() if not entry.is_control]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "noise", "p", "n", "n_trials", "level", "lengths"),
    [
        ("normal-covariates", "laplace", 2, 10, 80, 1e-4, {}),
        ("noise-aware", "gaussian", 2, 10, 80, 1e-4, {}),
        ("data-augmentation", "laplace", 2, 10, 80, 1e-4, {}),
        ("normal-covariates-records", "laplace", 2, 30, 80, 1e-4, {}),  # of the estimates without privacy
        *exhaustive(
            ("normal-covariates", "k-norm", 2, 10, 80, 1e-4, {}),
            ("noise-aware", "laplace", 2, 10, 80, 1e-4, {}),
            ("normal-covariates", "gaussian", 2, 10, 80, 1e-4, {}),
            ("data-augmentation", "gaussian", 2, 10, 80, 1e-4, {}),
            *((method, "laplace", 2, n, 300, 1e-3 / 30, {}) for method in EXACT for n in (10, 100)),
            ("normal-covariates", "laplace", 6, 1_000, 100, 1e-3 / 7, {"n_draws": 200, "thinning": 100}),
        ),
    ],
)
def test_exact_methods_have_uniform_quantiles_in_their_own_model(method, noise, p, n, n_trials, level, lengths):
    for column in ranks(method, noise, p, n, n_trials, **lengths).T:
        assert stats.kstest(column, "uniform").pvalue > level


@pytest.mark.slow
@pytest.mark.parametrize(("p", "n"), [*exhaustive((2, 10)), (3, 12)])
def test_posterior_without_noise_equals_importance_sampling(p, n):
    """Draws from the conjugate posterior with a flat prior, weighted by the ratio of the priors, are an oracle."""
    rng = np.random.default_rng(p)
    records = rng.multivariate_normal(np.full(p, 0.2), 0.05 * np.eye(p) + 0.02, n)
    gram, mean = gram_from(records), records.mean(axis=0)
    scatter = gram[1:, 1:] - n * np.outer(mean, mean)
    size = 100_000
    psi = stats.invwishart(n - 1, scatter).rvs(size, random_state=rng)
    lower = np.linalg.cholesky(psi)
    mu = mean + (lower @ rng.normal(size=(size, p, 1)))[..., 0] / np.sqrt(n)
    numbers = RegressionPrior().hyperparameters(p)
    log_weights = np.array([gram_kernels._log_prior(numbers, m, factor) for m, factor in zip(mu, lower, strict=True)])
    log_weights -= (np.log(np.diagonal(lower, axis1=1, axis2=2)) * -(1 + np.arange(p))).sum(axis=1)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    expected, found = (
        regression_of(mu, psi),
        sample_gram(rng, "naive", GramRelease(gram, n, GramNoise("laplace", 1.0, p)), None, 4, 500, 2_000, 20)[
            ..., : p + 1
        ].reshape(-1, p + 1),
    )
    effective = 1.0 / (weights**2).sum()
    assert effective > 2_000
    for q in (0.1, 0.5, 0.9):
        cuts = np.quantile(found, q, axis=0)
        shares = (weights[:, None] * (expected < cuts)).sum(axis=0)
        assert (np.abs(shares - q) < 5 * np.sqrt(q * (1 - q) * (1 / effective + 1 / 1_500))).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["normal-covariates", *exhaustive("data-augmentation")])
def test_chains_of_five_covariates_mix_with_ten_records(method):
    """Weights of conjugate proposals are unbounded there, and their chains had R-hat 1.88."""
    rng = np.random.default_rng(20_263)
    release = release_gram(
        rng, simulate_gram(rng, np.full(6, 0.1), 0.05 * np.eye(6), 10), calibrated_gram_noise("laplace", 6, 1.0)
    )
    rhat = DrawnPosterior(sample_gram(rng, method, release)).diagnostics()["rhat"]
    assert rhat.max() <= 1.05


def test_naive_draws_vary_if_the_scatter_of_a_release_is_not_definite():
    """Draws of σ² far below double precision would have no R-hat."""
    noisy = np.array([[1e5, 2e4, 1e4], [2e4, 4e3, 1e3], [1e4, 1e3, 5e2]])
    release = GramRelease(noisy, 100_000, GramNoise("laplace", 5.0, 2))
    draws = sample_gram(np.random.default_rng(1), "naive", release, None, 2, 200, 150)
    assert np.isfinite(DrawnPosterior(draws).diagnostics()["rhat"]).all()
    assert np.ptp(draws, axis=(0, 1)).min() > 1e-12


def test_priors_belong_to_methods():
    release = GramRelease(np.diag([30.0, 5.0, 5.0]), 30, GramNoise("laplace", 1.0, 2))
    with pytest.raises(ValueError, match="prior must be a ConjugatePrior for noise-aware-published, got RegressionP"):
        sample_gram(np.random.default_rng(1), "noise-aware-published", release, RegressionPrior())


@pytest.mark.slow
def test_quantiles_of_true_parameters_are_not_those_of_the_records():
    """Draws of the parameters are too wide for the regression of the records, which the test above would detect."""
    pits = ranks("normal-covariates", GramNoise("laplace", 0.01, 2), 2, 30, 60, of_records=True)
    assert min(stats.kstest(column, "uniform").pvalue for column in pits.T) < 1e-4


@pytest.mark.exhaustive
def test_conjugate_draw_without_correction_is_detected():
    """With ten records, the published pairing of a normal statistic and a conjugate posterior is no joint model."""
    pits = ranks("noise-aware-uncorrected", "laplace", 2, 10, 2_000, n_draws=200, thinning=20)
    assert stats.kstest(pits[:, -1], "uniform").pvalue < 1e-3


def test_ignored_noise_is_detected():
    pits = ranks("naive", "laplace", 2, 10, 80)
    assert max(stats.kstest(column, "uniform").statistic for column in pits.T) > 0.2


@pytest.mark.slow
def test_moments_of_the_statistic():
    """The mean and covariance of Σuᵢ and Σuᵢuⱼ are those of simulated records."""
    rng = np.random.default_rng(1)
    mu, psi = ConjugatePrior().sample(rng, 3)
    z = np.column_stack([np.ones(40_000), rng.multivariate_normal(mu, psi, 40_000)])
    one = np.stack([z[:, i] * z[:, j] for i, j in zip(*np.triu_indices(4), strict=True)], axis=1)
    index = list(zip(*np.triu_indices(4), strict=True))[1:]
    first = np.array([j - 1 if i == 0 else i - 1 for i, j in index])
    second = np.array([-1 if i == 0 else j - 1 for i, j in index])
    mean, covariance = np.empty(9), np.empty((9, 9))
    gram_kernels._fill_moments(1, mu, psi, first, second, mean, covariance)
    centred = one[:, 1:] - mean
    assert (np.abs(centred.mean(axis=0)) < 5 * centred.std(axis=0) / 200).all()
    products = centred[:, :, None] * centred[:, None, :]
    assert (np.abs(products.mean(axis=0) - covariance) < 5 * products.std(axis=0) / 200).all()
    assert (np.abs(products.mean(axis=0) - 1.05 * covariance) > 5 * products.std(axis=0) / 200).any()


@pytest.mark.parametrize("name", NOISE_CODES)
def test_kernels_have_the_density_of_the_noise(name):
    rng, noise = np.random.default_rng(1), GramNoise(name, 1.7, 2)
    drawn = noise.sample(rng, 2)
    releases = [NoisyGram(NOISE_CODES[name], 1.7, matrix, 3) for matrix in drawn]
    found = [gram_kernels._log_noise(release, np.zeros((3, 3)), np.empty((3, 3))) for release in releases]
    upper = drawn[:, *np.triu_indices(3)][:, 1:]
    expected = {
        "laplace": -np.abs(upper).sum(axis=1) / 1.7,
        "gaussian": -(drawn**2).sum(axis=(1, 2)) / (2 * 1.7**2),
        "k-norm": -k_norm(drawn) / 1.7,
    }[name]
    np.testing.assert_allclose(found, expected)


@pytest.mark.slow
def test_without_noise_all_methods_agree():
    """With noise of a thousandth of a record, posterior means agree with the conjugate posterior."""
    rng = np.random.default_rng(1)
    records = rng.multivariate_normal([0.1, -0.1], [[0.04, 0.02], [0.02, 0.05]], 1_000)
    gram = gram_from(records)
    release = GramRelease(gram, 1_000, GramNoise("laplace", 0.05, 2))
    exact = sample_gram(rng, "naive", release, None, 1, 100, 4_000)[0, :, :3]
    for method in ("normal-covariates", "noise-aware"):
        draws = sample_gram(rng, method, release, None, 2, 1_000, 1_000, 40)[..., :3].reshape(-1, 3)
        assert (np.abs(draws.mean(axis=0) - exact.mean(axis=0)) < 0.3 * exact.std(axis=0)).all()
        assert np.allclose(draws.std(axis=0), exact.std(axis=0), rtol=0.15)


def test_few_records_and_unsupported_noise_are_refused():
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="n must be at least 4 for 1 features, got 3; use fewer"):
        sample_gram(rng, "normal-covariates", GramRelease(np.eye(3), 3, GramNoise("laplace", 1.0, 2)))
    with pytest.raises(ValueError, match="noise must be one of laplace, gaussian for noise-aware, got k-norm"):
        sample_gram(rng, "noise-aware", GramRelease(np.eye(3), 30, GramNoise("k-norm", 1.0, 2)))


@pytest.mark.parametrize("size", [2, 3, 7])
def test_eigenvalues_equal_those_of_lapack(size):
    """Dense, diagonal, degenerate and badly scaled matrices."""
    rng, found = np.random.default_rng(1), []
    for trial in range(500):
        dense = rng.normal(size=(size, size))
        rotation = np.linalg.qr(dense)[0]
        matrix = [
            dense + dense.T,
            np.diag(np.diag(dense)),
            np.outer(dense[0], dense[0]),
            rotation @ np.diag(rng.choice([1.0, -2.0], size)) @ rotation.T,
            np.diag(10.0 ** rng.integers(-20, 10, size)) + 1e-12 * (dense + dense.T),
        ][trial % 5]
        matrix = (matrix + matrix.T) / 2
        expected = np.linalg.eigvalsh(matrix)
        _diagonalise(work := matrix.copy())
        found.append(np.abs(np.sort(np.diag(work)) - expected).max() / np.abs(expected).max())
    assert max(found) < 1e-13


def test_normal_statistics_are_drawn_for_moments_that_are_nearly_singular():
    """Slopes and errors of the prior may differ by many orders of magnitude; deviations are those of the moments."""
    n, slope, sigma = 100_000, 3e3, 1e-3
    psi = np.array([[1.0, slope], [slope, slope**2 + sigma**2]])
    rng = np.random.default_rng(1)
    drawn = np.array([normal_statistic(rng, np.zeros(2), psi, n) for _ in range(2_000)])
    np.testing.assert_array_equal(drawn, drawn.swapaxes(1, 2))
    expected = np.array([n, n * psi[0, 0], n * psi[1, 1]]), np.array([0.0, np.sqrt(2 * n), np.sqrt(2 * n) * psi[1, 1]])
    diagonal = np.diagonal(drawn, axis1=1, axis2=2)
    errors = expected[1] / np.sqrt(len(drawn))
    assert (np.abs(diagonal.mean(axis=0) - expected[0]) <= 5.0 * errors).all()
    assert (np.abs(diagonal.std(axis=0) - expected[1]) <= 5.0 * errors).all()
