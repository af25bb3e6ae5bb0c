"""Tests of the conversion to pandas and ArviZ: included and excluded trials, and diagnostics."""

import numpy as np
import pytest
import xarray as xr
from arviz_stats.base import array_stats

import pipeline
from pipeline import BadInputError, Factor, Measure, Method, to_arviz, to_pandas
from tests.pipeline.helpers import make_study

N, TRIALS, ITERATIONS = (1, 2), 6, 50


def simulate(cell, streams):
    return np.stack([rng.standard_normal(ITERATIONS).cumsum() / cell["n"] for rng in streams.generators()])


def walk(data, setting, streams):
    return {"x": data, "last": data[:, -1], "n_steps": ITERATIONS}


def fail_fourth(data, setting, streams):
    error = np.array(["the fourth fails" if trial == 3 else "" for trial in streams.trials], object)
    return {"x": -data, "last": -data[:, -1], "n_steps": ITERATIONS, "error": error}


STUDY = make_study(
    Method("walk", walk),
    Method("frail", fail_fourth),
    name="walks",
    simulate=simulate,
    measures=(
        Measure("x", "position", dims=("iteration",)),
        Measure("last", "last position"),
        Measure("n_steps", "number of steps", dtype="int64", per_trial=False),
    ),
    factors=(Factor("n", N, "size", "int"),),
    outputs=(Factor("iteration", tuple(range(1, ITERATIONS + 1)), "step", "int"),),
    constants=(Factor("epsilon", (0.5,), "privacy loss"), Factor("prior", ("1:2",), "prior", "vector")),
    method_dim="kind",
    trials=TRIALS,
    block_trials=2,
    validate=lambda cell, setting: (cell["n"], setting["kind"]) != (2, "frail"),
)


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    """Return lazy results in which the method `frail` fails for a trial at n = 1 and does not apply at n = 2."""
    store = tmp_path_factory.mktemp("walks") / "s.zarr"
    pipeline.run(STUDY, store)
    return pipeline.open_results(store)["p"].to_dataset()


@pytest.fixture
def arviz_stats():
    pytest.importorskip("arviz_base")
    import arviz_stats

    return arviz_stats


def test_table_has_a_row_per_trial_and_setting(ds):
    table = to_pandas(ds)
    assert len(table) == len(N) * 2 * TRIALS * ITERATIONS
    assert list(table.columns) == ["n", "kind", "trial", "iteration", "epsilon", "prior", *table.columns[6:]]
    assert set(table.columns[6:]) == {"x", "last", "n_steps", "status"}
    counts = table[table.iteration == 1].groupby(["n", "kind"])["status"].value_counts()
    assert counts[counts > 0].to_dict() == {
        (1, "frail", "ok"): 5,
        (1, "frail", "failed"): 1,
        (1, "walk", "ok"): 6,
        (2, "walk", "ok"): 6,
        (2, "frail", "not_applicable"): 6,
    }
    one = table[(table.n == 2) & (table.kind == "walk") & (table.trial == 4)].set_index("iteration")
    expected = ds.sel(n=2, kind="walk", trial=4)
    np.testing.assert_array_equal(one.x, expected.x)
    assert (one["last"] == float(expected["last"])).all()
    assert set(zip(table.epsilon, table.prior, strict=True)) == {(0.5, "1:2")}
    assert set(table.n_steps[table.status != "not_applicable"]) == {ITERATIONS}


def test_table_of_chosen_measures(ds):
    table = to_pandas(ds, ["last", "error"])
    assert len(table) == len(N) * 2 * TRIALS
    assert list(table.columns) == ["n", "kind", "trial", "epsilon", "prior", "last", "error", "status"]
    assert "killed" in table.status.cat.categories  # all statuses are
    failed = table[table.status == "failed"]
    assert failed[["n", "kind", "trial"]].values.tolist() == [[1, "frail", 3]]
    assert failed.error.item().startswith("the fourth fails")
    with pytest.raises(BadInputError, match="unknown variable 'lst'; did you mean last"):
        to_pandas(ds, ["lst"])


def test_table_agrees_with_the_summary(ds):
    """Means computed by pandas equal those of `summarise`; the table has one row per cell and method."""
    table = to_pandas(ds, ["last"])
    means = table[table.status == "ok"].groupby(["n", "kind"])["last"].mean()
    summary = to_pandas(pipeline.summarise(ds), ["last_mean", "n_failed"]).set_index(["n", "kind"])
    assert len(summary) == 4
    np.testing.assert_allclose(summary.last_mean[means.index], means, rtol=1e-12)
    assert summary.n_failed.to_dict()[1, "frail"] == 1
    assert "status" not in summary


def test_table_of_a_scalar(ds):
    one = ds[["last", "status"]].isel(n=0, kind=0, trial=0)
    table = to_pandas(one)
    assert (len(table), table.status.item(), table["last"].item()) == (1, "ok", float(one["last"]))


@pytest.mark.parametrize("chain", [None, "trial"])
def test_diagnostics_of_arviz_equal_those_of_arrays(ds, chain, arviz_stats):
    selected = ds.sel(n=1).drop_vars("n")
    tree = (to_arviz(selected, draw="iteration", chain="trial") if chain else to_arviz(selected)).copy()
    posterior = tree.posterior
    assert posterior.attrs == {**ds.attrs, "n_ok": 5, "n_failed": 1, "n_pending": 0}
    walks = selected.x.sel(kind="walk").values
    kept = np.array([0, 1, 2, 4, 5])  # the fourth trial failed in one method
    if chain:
        assert posterior.x.dims[:2] == ("chain", "draw")
        assert posterior.chain.values.tolist() == kept.tolist()
        np.testing.assert_array_equal(posterior.x.sel(kind="walk").transpose("chain", "draw"), walks[kept])
        name, values = "x", walks[kept]
        assert set(tree["constant_data"].data_vars) == {"last", "n_steps"}
    else:
        assert posterior.sizes["draw"] == 5
        name, values = "last", walks[None, kept, -1]
        assert set(tree["constant_data"].data_vars) == {"n_steps"}
    of_walk = tree.sel(kind="walk")
    for diagnostic in ("ess", "mcse"):
        found = float(getattr(arviz_stats, diagnostic)(of_walk, var_names=[name])[name])
        expected = float(getattr(array_stats, diagnostic)(values, chain_axis=0, draw_axis=1))
        assert found == pytest.approx(expected, rel=1e-12, nan_ok=True)
    if chain:
        found = float(arviz_stats.rhat(of_walk, var_names=["x"]).x)
        assert found == pytest.approx(float(array_stats.rhat(values, chain_axis=0, draw_axis=1)), rel=1e-12)
        table = arviz_stats.summary(tree, var_names=["x"], round_to="none")
        assert table.index.tolist() == ["x[walk]", "x[frail]"]
        assert table["mean"].iloc[0] == pytest.approx(values.mean(), rel=1e-12)
        assert table["mean"].iloc[1] == pytest.approx(-values.mean(), rel=1e-12)


def test_settings_that_do_not_apply_are_nan(ds):
    posterior = to_arviz(ds).posterior
    assert np.isnan(posterior["last"].sel(n=2, kind="frail")).all()
    assert np.isfinite(posterior["last"].sel(n=2, kind="walk")).all()
    assert posterior.sizes["draw"] == 5


def test_traces_of_the_gibbs_study(tmp_path, arviz_stats):
    """In a panel without trials, starting points are converted to chains, and iterations to draws."""
    from studies import STUDIES

    pipeline.run(STUDIES["gibbs-traces"], tmp_path / "s.zarr", panels=["binomial"])
    traces = pipeline.open_results(tmp_path / "s.zarr")["binomial"].to_dataset()
    tree = to_arviz(traces.sel(iteration=slice(101, None)), draw="iteration", chain="start")
    values = traces.theta.values[:, 100:]
    assert values.shape == (3, 400)
    expected = array_stats.rhat(values, chain_axis=0, draw_axis=1)
    assert float(arviz_stats.rhat(tree).theta) == pytest.approx(float(expected), rel=1e-12)
    assert tree["constant_data"].truth.item() == traces.truth.item()
    assert tree.posterior.attrs["n_ok"] == 1


def made(status, dims=("kind", "trial")):
    return xr.Dataset({"x": (dims, np.zeros(np.shape(status))), "status": (dims, status)})


def test_trials_are_counted_once(ds):
    """A trial that fails in one setting counts as failed; other trials that are pending in one count as pending."""
    asked = [[1, 2, 0, 1, 1, 1], [1, 1, 2, 4, 6, 1]]  # 6: not asked for
    posterior = to_arviz(made([*asked, [5, 5, 6, 6, 6, 6]])).posterior  # the last setting does not apply
    assert [posterior.attrs[name] for name in ("n_ok", "n_failed", "n_pending")] == [2, 2, 1]
    assert posterior.sizes["draw"] == 2


@pytest.mark.parametrize(
    ("message", "status", "given"),
    [
        ("unknown dimension 'draws'", [[1, 1]], {"draw": "draws"}),
        ("unknown dimension 'chain'", [[1, 1]], {"chain": "chain"}),
        ("chain and draw must be different dimensions, got trial for both", [[1, 1]], {"chain": "trial"}),
        ("at least one trial must be ok in every cell and setting, got none", [[1, 2], [3, 1]], {}),
        ("at least one trial must be ok in every cell and setting, got none", [[5, 6]], {}),
    ],
)
def test_unusable_trials_are_rejected(message, status, given):
    with pytest.raises(BadInputError, match=message):
        to_arviz(made(status), **given)


def test_dimension_without_measures_is_rejected(ds):
    with pytest.raises(BadInputError, match="a measure must have the dimensions iteration, got none"):
        to_arviz(ds.drop_vars("x"), draw="iteration")
