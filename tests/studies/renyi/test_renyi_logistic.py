"""Tests of the study `renyi-logistic`."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from mechanisms.draws.glm_mechanisms import glm_mechanism
from mechanisms.draws.glm_sampling import laplace_approximation
from studies.data import Classification, load, split
from studies.renyi import logistic_trials
from studies.renyi.logistic_trials import draw_weights
from studies.renyi.renyi_logistic import STUDY
from tests.statistical import assert_mean_within, assert_rejects


def classification(n=60, d=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = (rng.random(n) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(np.int8)
    return Classification("toy", X, y, X, y, ("a", "b"), ("0", "1"), "")


def test_data_convergence_and_grid(summaries, results):
    for panel in summaries:
        ds = results(panel)
        assert (ds.n_train == 2784).all()
        assert (ds.n_columns == 9).all()
        assert (ds.data_digest == int(load("abalone").digest[:15], 16)).all()
        assert (ds.rhat < 1.01).all()
        assert (ds.ess >= 400).all()
        assert ((ds.test_error > 0.2) & (ds.test_error < 0.8)).all()
    assert [panel.name for panel in STUDY.panels if panel.on_demand] == ["csv"]
    for panel in STUDY.panels:
        if panel.name == "abalone-strong":
            continue
        assert panel.trials == 50
        assert panel.spec()["method_factors"]["order"] == [1, 10, 100]
        np.testing.assert_allclose(np.log(panel.spec()["method_factors"]["epsilon"]), range(-5, 4))


def test_unused_factors_do_not_change_results(results):
    ds = results("abalone")
    assert len(np.unique(ds.test_nll.sel(mechanism="true-posterior"))) == 27
    assert len(np.unique(ds.test_nll.sel(mechanism="ops"))) == 54
    assert len(np.unique(ds.test_nll.sel(mechanism="glm-diffused"))) == 108


@pytest.mark.slow
def test_draws_follow_the_posterior_and_are_independent():
    """In two dimensions, moments of draws agree with quadrature, but not with those under another prior."""
    data = classification()
    target = glm_mechanism("true-posterior", 60, 0.02, 1, 1.0)
    X, y = data.train_x, data.train_y.astype(float)
    approximation = laplace_approximation(X, y, target)
    axis = np.linspace(-6, 6, 401)
    grid = approximation.mean + np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    logs = -np.logaddexp(0, -(grid @ X.T) * (2 * y - 1)).sum(axis=1) - 0.5 * target.precision * (grid**2).sum(axis=1)
    distribution = np.exp(logs - logs.max())
    distribution /= distribution.sum()
    sets = [draw_weights(np.random.default_rng(seed), data, target, 25) for seed in range(40)]
    draws = np.concatenate([each.weights for each in sets])
    centre = distribution @ grid
    for j in range(2):
        assert_mean_within(draws[:, j], centre[j])
        assert_mean_within((draws[:, j] - centre[j]) ** 2, float(distribution @ (grid[:, j] - centre[j]) ** 2))
    # draws that share chains are independent: the mean of a set has the variance of independent draws
    means = np.stack([each.weights.mean(axis=0) for each in sets])
    scaled = 25 * (means - centre) ** 2 / (distribution @ (grid - centre) ** 2)
    assert_mean_within(np.concatenate([scaled.ravel(), scaled.ravel()[:20]]), 1.0)
    other = glm_mechanism("true-posterior", 60, 0.1, 1, 1.0)
    wrong = np.concatenate([draw_weights(np.random.default_rng(seed), data, other, 25).weights for seed in range(40)])
    variance = float(distribution @ (grid[:, 0] - centre[0]) ** 2)
    assert_rejects(assert_mean_within, (wrong[:, 0] - centre[0]) ** 2, variance)


@pytest.mark.slow
def test_chains_that_do_not_converge_fail_their_trials(monkeypatch, run_panel):
    monkeypatch.setattr(logistic_trials, "LARGEST_RHAT", 1.0)
    monkeypatch.setattr(logistic_trials, "_MOST_STEPS", 1200)
    ds = run_panel(STUDY, "abalone", trials=2, order=[1], epsilon=[1.0], mechanism=["glm-diffused"])
    assert (ds.status == 2).all()
    assert "did not converge in 1,200 steps: split R-hat must be < 1.0, got 1.0" in ds.error.values.ravel()[0]


def test_test_error_and_likelihood_follow_their_definitions():
    data = split(load("abalone"))
    weights = np.random.default_rng(0).standard_normal((3, 9))
    error, nll = logistic_trials.score_draw(weights, data)
    for k, w in enumerate(weights):
        p = 1 / (1 + np.exp(-data.test_x @ w))
        assert error[k] == np.mean((p > 0.5) != data.test_y)
        expected = -np.mean(data.test_y * np.log(p) + (1 - data.test_y) * np.log(1 - p))
        assert nll[k] == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_user_csv_file(command, tmp_path):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 60))
    bought = np.where(a + rng.logistic(size=60) > 0, "yes", "no")
    frame = pd.DataFrame({"a": a, "b": b, "kind": rng.choice(["red", "blue", "green"], 60), "bought": bought})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    words = ["--set", "data=mine.csv", "--set", "target=bought", "--set", "epsilon=1,3", "--set", "order=2"]
    code, _, err = command("run", "renyi-logistic", "--panel", "csv", *words, "--trials", 3, "--store", "s.zarr")
    assert code == 0, err
    ds = xr.open_zarr("s.zarr", group="csv")
    assert ds.test_error.shape == (1, 2, 6, 3)
    assert (ds.n_train == 40).all()
    assert command("report", "s.zarr")[0] == 0
    assert "on the user" in (tmp_path / "s.html").read_text()


RECORDS = "1,2,1\n3,4,0\n5,6,0\n1,1,1\n"


@pytest.mark.parametrize(
    ("records", "values", "message"),
    [
        (None, "target=bought", "cannot read mine.csv"),
        (RECORDS, "target=bougth", "did you mean bought"),
        (RECORDS, "target=bought beta=0", "beta must be a finite number > 0"),
        (RECORDS, "target=bought order=0.5", "order must be a finite number >= 1"),
        (RECORDS, "target=bought epsilon=-1", "epsilon must be a finite number"),
    ],
)
def test_invalid_input_is_reported_before_writing(refused, tmp_path, records, values, message):
    if records is not None:
        (tmp_path / "mine.csv").write_text(f"a,b,bought\n{records}")
    given = [part for word in ("data=mine.csv", *values.split()) for part in ("--set", word)]
    refused("run", "renyi-logistic", "--panel", "csv", *given, "--store", "s.zarr", message=message)
