"""Tests of methods that users add to studies: ranks of chains, foreign methods, files, stores, and bad input."""

import itertools
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml
from distributed import LocalCluster
from scipy import special, stats

import pipeline
from mechanisms import Guarantee
from mechanisms.inference.exact_posterior import exact_posterior
from pipeline import BadInputError
from pipeline.declare.streams import Streams
from pipeline.store.result_store import ResultStore
from studies import STUDIES, Intervals, OwnMethod
from studies.own_methods import Draws, evaluate_trials
from tests.studies import foreign_methods

LEVEL = 1e-3
CHAINS = OwnMethod("chains", "posterior", lambda rng, model, prior, y: None, chains=True)
SMALL = {"n": [20], "epsilon": [0.1], "algorithm": ["naive"]}
FILE = """
import numpy as np
from studies import OwnMethod

def fit(rng, model, prior, y):
    return rng.beta(*prior, 200)

METHOD = OwnMethod("mine", "posterior", fit, lambda cell: cell["family"] == "binomial")
OTHER = OwnMethod("other", "posterior", fit, lambda cell: cell["family"] == "binomial")
"""
COUNTS = "--panel", "binomial", "--set", "n=20", "--set", "algorithm=naive", "--trials", "20"
NAIVE = "--set algorithm=naive"


def autoregressive(rng, n_chains, n_draws, correlation):
    """Return AR(1) chains that start from their stationary distribution, N(0, 1)."""
    noise = rng.normal(size=(n_draws, n_chains)) * np.sqrt(1 - correlation**2)
    noise[0] /= np.sqrt(1 - correlation**2)
    for before, after in itertools.pairwise(noise):
        after += correlation * before
    return noise.T


def ranks_of(correlation, chains, n_trials=1_500, scale=1.0):
    """Return ranks and quantiles of normal truths among chains of their distribution, times a scale."""
    rng = np.random.default_rng(3)
    own = replace(CHAINS, chains=chains)
    rows = []
    for _ in range(n_trials):
        values = scale * autoregressive(rng, 2, 400, correlation)
        draws, truth = Draws.of(own, values if chains else values.ravel(), 1), rng.normal(size=1)
        rows.append((draws.ranks(truth, rng.random(1))[0], draws.pit(truth, rng.random(1))[0]))
    return np.transpose(rows)


def p_values(ranks, pit):
    return stats.chisquare(np.bincount(ranks.astype(int) // 5, minlength=20)).pvalue, stats.kstest(
        pit, "uniform"
    ).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
def test_ranks_of_autocorrelated_chains_are_uniform(correlation):
    assert min(p_values(*ranks_of(correlation, chains=True))) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(("correlation", "chains", "scale"), [(0.99, False, 1.0), (0.95, True, 0.6), (0.0, False, 0.6)])
def test_ranks_of_wrong_or_undeclared_draws_are_not_uniform(correlation, chains, scale):
    """Chains that are declared independent fail, and so do draws with a smaller standard deviation."""
    assert max(p_values(*ranks_of(correlation, chains, scale=scale))) < LEVEL


def chain_of_posterior(rng, model, prior, y):
    """Return AR(1) chains whose stationary distribution is the exact posterior."""
    ordered = np.sort(exact_posterior(model, prior, y).sample(rng, 4_000))
    uniforms = special.ndtr(autoregressive(rng, 4, 300, 0.9))
    return ordered[(uniforms * ordered.size).astype(int)]


AUTOREGRESSIVE = OwnMethod("autoregressive", "posterior", chain_of_posterior, foreign_methods.is_binomial, chains=True)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """Return the summary of the foreign methods on the data of `calibration`, and the values of `naive`."""
    own = [getattr(foreign_methods, name) for name in ("METROPOLIS", "ABC", "NARROW")]
    study = STUDIES["calibration"].with_methods(*own, AUTOREGRESSIVE)
    store = tmp_path_factory.mktemp("own") / "s.zarr"
    pipeline.run(study, store, panels=["binomial"], values=SMALL, trials=200)
    return xr.open_zarr(store, group="binomial").load(), study.panel("binomial").statistics


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metropolis", "abc", "autoregressive"])
def test_right_foreign_methods_are_calibrated(calibrated, name):
    ds, statistics = calibrated
    summary = pipeline.summarise(ds, statistics).sel(algorithm=name).squeeze()
    assert (int(summary.n_ok), int(summary.n_failed)) == (200, 0)
    assert min(summary.pit_p.item(), summary.rank_p.item()) > LEVEL


def test_over_confident_method_is_not_calibrated(calibrated):
    ds, statistics = calibrated
    summary = pipeline.summarise(ds, statistics).sel(algorithm="narrow").squeeze()
    assert max(summary.pit_p.item(), summary.rank_p.item()) < LEVEL


def test_diagnostics_are_those_of_chains_only(calibrated):
    ds, _ = calibrated
    assert (ds.rhat.sel(algorithm="metropolis") < 1.2).mean() > 0.9
    assert (ds.ess.sel(algorithm="metropolis") < 800).all()
    assert ds.rhat.sel(algorithm=["abc", "narrow"]).isnull().all()


def test_existing_methods_keep_their_bits(calibrated, run_panel):
    published = run_panel(STUDIES["calibration"], "binomial", trials=200, **SMALL)
    measures = ["pit", "rank", "mmd2", "status"]
    xr.testing.assert_identical(
        calibrated[0].sel(algorithm=["naive"])[measures].drop_attrs(), published[measures].drop_attrs()
    )


@pytest.mark.slow
def test_program_of_another_language_is_calibrated_and_fails_by_trial(run_panel):
    """A program that hangs or prints no JSON fails its trials, each with one line."""

    def hang(rng, model, prior, y):
        return foreign_methods.call(rng, model, prior, y, "import time; time.sleep(60)", 0.2)

    def print_garbage(rng, model, prior, y):
        return foreign_methods.call(rng, model, prior, y, "print('no numbers')")

    others = [OwnMethod(f.__name__, "posterior", f, foreign_methods.is_binomial) for f in (hang, print_garbage)]
    study = STUDIES["calibration"].with_methods(foreign_methods.PROGRAM, *others)
    ds = run_panel(study, "binomial", trials=10, allow_failures=True, **SMALL).squeeze()
    assert (ds.status.sel(algorithm="program") == 1).all()
    assert stats.kstest(ds.pit.sel(algorithm="program"), "uniform").pvalue > LEVEL
    assert (ds.status.sel(algorithm=["hang", "print_garbage"]) == 2).all()
    first = {name: str(ds.error.sel(algorithm=name).values[0]).splitlines()[0] for name in ("hang", "print_garbage")}
    assert "TimeoutExpired" in first["hang"]
    assert "JSONDecodeError" in first["print_garbage"]


def posterior_of_normal(rng, model, prior, y):
    return exact_posterior(model, prior, y)


@pytest.mark.slow
def test_posterior_is_as_good_as_its_draws(run_panel):
    """An exact posterior has the distance of its draws and right coverage; `NARROW` has not."""
    exact = OwnMethod("mine", "posterior", posterior_of_normal, foreign_methods.is_binomial)
    study = STUDIES["exact-inference"].with_methods(exact, foreign_methods.NARROW)
    values = {"n": [100], "epsilon": [1.0], "prior": [(1.0, 1.0)], "algorithm": ["exact", "mine", "narrow"]}
    ds = run_panel(study, "binomial", trials=200, **values).squeeze()
    assert (ds.status == 1).all()
    distance = ds.distance.mean("trial").sel(algorithm=["exact", "mine", "narrow"]).values
    assert distance[1] < 1.2 * distance[0] < 0.5 * distance[2]
    np.testing.assert_array_equal(ds.pit.sel(algorithm="mine"), ds.pit.sel(algorithm="exact"))
    assert ds.covered.mean("trial").sel(algorithm="narrow") < 0.9 < ds.covered.mean("trial").sel(algorithm="mine")


@pytest.mark.slow
def test_several_components_have_ranks_and_joint_coverage(run_panel):
    def fit(rng, model, prior, y):
        return exact_posterior(model, prior, y).sample(rng, 300)

    study = STUDIES["exact-inference"].with_methods(OwnMethod("mine", "posterior", fit, lambda cell: cell["n"] == 10))
    values = {"n": [10], "epsilon": [1.0], "noise": ["laplace"], "algorithm": ["mine"]}
    ds = run_panel(study, "multinomial-3", trials=100, **values).squeeze()
    assert (ds.status == 1).all()
    for levels in (ds.pit.values.ravel(), ds.joint.values):
        assert stats.kstest(levels, "uniform").pvalue > LEVEL / 3 > stats.kstest(levels**3, "uniform").pvalue


@pytest.mark.slow
def test_tables_accept_draws_and_intervals(run_panel):
    """Draws of the exact posterior have its width; intervals have no quantiles."""
    from mechanisms.tables import table_posterior

    def draw(rng, table, prior):
        return table_posterior(table.values, table.noise, table.parents, prior, seen=table.seen).sample(rng, 1_000)

    def bound(rng, table, prior):
        values = np.nan_to_num(table.values)
        return Intervals(values, values - 10, values + 10)

    study = STUDIES["noisy-tables"].with_methods(OwnMethod("drawn", "table", draw), OwnMethod("bounds", "table", bound))
    values = {"noise_std": [2.0], "published": ["value"], "algorithm": ["tree", "drawn", "bounds"]}
    ds = run_panel(study, "formats", trials=10, **values).squeeze()
    assert (ds.status == 1).all()
    widths = ds.width.mean("trial").sel(part="leaf")
    np.testing.assert_allclose(widths.sel(algorithm="drawn"), widths.sel(algorithm="tree"), rtol=0.05)
    assert (ds.width.sel(algorithm="bounds") == 20).all()
    assert ds.pit.sel(algorithm="bounds").isnull().all()
    assert not ds.pit.sel(algorithm="drawn", part="leaf").isnull().any()


@pytest.mark.slow
def test_regressions_of_own_records_receive_their_prior(run_panel):
    """Draws of the prior itself are calibrated if it is the prior of the records, whatever the release."""
    from mechanisms.regression.gram_priors import ConjugatePrior, RegressionPrior
    from mechanisms.regression.gram_samplers import regression_of

    def draw(rng, release, box, prior):
        return np.array([regression_of(*prior.sample(rng, box.p)) for _ in range(100)])

    def other(rng, release, box, prior):
        return draw(rng, release, box, RegressionPrior() if isinstance(prior, ConjugatePrior) else ConjugatePrior())

    own = [
        OwnMethod(f"{name}-{records}", "regression", fit, lambda cell: cell["noise"] == "laplace", records=records)
        for name, fit in (("right", draw), ("other", other))
        for records in ("exact", "conjugate")
    ]
    study = STUDIES["regression-inference"].with_methods(*own)
    ds = run_panel(study, "calibration", trials=100, n=[10], algorithm=[method.name for method in own]).squeeze()
    assert (ds.status.sel(track="approximate") == 5).all()
    variances = ds.pit.sel(track="pure", component="variance")
    p = {method.name: stats.kstest(variances.sel(algorithm=method.name), "uniform").pvalue for method in own}
    assert min(p["right-exact"], p["right-conjugate"]) > LEVEL > max(p["other-exact"], p["other-conjugate"])


def draw_zero(rng, X, y, epsilon, delta):
    return rng.normal(size=X.shape[1]) / epsilon


@pytest.mark.slow
def test_private_draws_run_where_they_have_a_guarantee(run_panel):
    """A method that needs δ runs in `private-mcmc`, and is refused in `renyi-logistic`, which has δ = 0."""
    method = OwnMethod("mine", "draw", draw_zero, guarantee=lambda e, d: Guarantee(e, d) if d else None)
    study = STUDIES["private-mcmc"].with_methods(method)
    ds = run_panel(study, "simulated", trials=10, epsilon=[1.0], beta=[0.1], mechanism=["mine"])
    assert (ds.status == 1).all()
    assert (ds.n_used == 1).all()
    with pytest.raises(BadInputError, match="mine must support a cell of study renyi-logistic, got none"):
        STUDIES["renyi-logistic"].with_methods(method)
    pure = replace(method, guarantee=lambda e, d: Guarantee(e))
    study = STUDIES["renyi-logistic"].with_methods(pure)
    ds = run_panel(study, "abalone-splits", trials=5, epsilon=[1.0], order=[10.0], mechanism=["mine"])
    assert (ds.status == 1).all()


@pytest.mark.parametrize(
    ("guarantee", "message"),
    [
        (lambda e, d: Guarantee(2 * e, d), r"must be at most \(0.1, 1e-06\)-DP .*, got \(0.2, 1e-06\)-DP"),
        (lambda e, d: 1.0, "must be a Guarantee or None, got float"),
        (lambda e, d: 1 / 0, "guarantee of mine raised ZeroDivisionError"),
    ],
)
def test_larger_or_invalid_guarantees_are_refused(guarantee, message):
    with pytest.raises(BadInputError, match=message):
        STUDIES["private-mcmc"].with_methods(OwnMethod("mine", "draw", draw_zero, guarantee=guarantee))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((3, 200)), r"must return draws of shape \(draws\), got \(3, 200\)"),
        (np.zeros(20), "must return at least 100 draws, got 20"),
        (np.r_[np.zeros(200), np.nan, np.inf], "draws of mine must be finite, got 2 that are not"),
        (["a"] * 200, "must be an array of real numbers"),
        (None, "must be an array of real numbers"),
    ],
)
def test_invalid_draws_fail_their_trial_only(values, message):
    own = OwnMethod("mine", "posterior", lambda rng, model, prior, y: None)
    streams = Streams(1, "s", "p", "mine", {}, range(3))

    def evaluate(i, rng, uniforms):
        return {"pit": Draws.of(own, values if i == 1 else np.arange(200), 1).pit(np.ones(1), uniforms)[0]}

    measures = evaluate_trials(evaluate, 1, streams)
    assert [bool(error) for error in measures["error"]] == [False, True, False]
    assert re.search(message, measures["error"][1])
    assert np.isfinite(measures["pit"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "counts"}, "kind of mine must be one of posterior, table, regression, draw, got 'counts'"),
        ({"kind": "draw"}, r"fit of mine must take \(rng, X, y, epsilon, delta\) for kind draw"),
        ({"kind": "table"}, r"fit of mine must take \(rng, table, prior\) for kind table"),
        ({"fit": 1}, "fit and supports of mine must be functions"),
        ({"kind": "draw", "fit": draw_zero}, "mine of kind draw must state a guarantee, got none"),
        ({"records": "own"}, "records of mine must be one of clamped, exact, normal, conjugate, got 'own'"),
    ],
)
def test_invalid_declarations_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        OwnMethod(**{"name": "mine", "kind": "posterior", "fit": lambda rng, model, prior, y: None, **options})


@pytest.mark.parametrize(
    ("name", "supports", "message"),
    [
        ("naive", lambda cell: True, "an added method must have a name of its own, got naive"),
        ("data", lambda cell: True, "must not be named 'data'"),
        ("a,b", lambda cell: True, "the name of an added method must consist of"),
        ("mine", lambda cell: False, "method mine must support a cell of study calibration, got none"),
        ("mine", lambda cell: cell["missing"], "supports of mine raised KeyError: 'missing'"),
        ("mine", lambda cell: "yes", "supports of mine must return True or False, got str"),
    ],
)
def test_methods_that_cannot_be_added_are_refused(name, supports, message):
    with pytest.raises(BadInputError, match=message):
        STUDIES["calibration"].with_methods(OwnMethod(name, "posterior", foreign_methods.reject, supports))


def test_kinds_that_no_panel_accepts_are_refused():
    with pytest.raises(BadInputError, match="noisy-tables accepts methods of kind table, got abc of kind posterior"):
        STUDIES["noisy-tables"].with_methods(foreign_methods.ABC)
    with pytest.raises(BadInputError, match="gibbs-traces accepts no methods of users, got abc"):
        STUDIES["gibbs-traces"].with_methods(foreign_methods.ABC)
    with pytest.raises(BadInputError, match="must have a name and a kind, got int"):
        STUDIES["calibration"].with_methods(1)


def test_claims_are_judged_without_added_methods():
    """A failed added method does not change the verdict of a claim about all methods of a panel."""
    from pipeline.results.verdicts import without_added

    method = OwnMethod("mine", "draw", draw_zero, guarantee=lambda e, d: Guarantee(e))
    study = STUDIES["renyi-logistic"].with_methods(method)
    names = [method.name for method in study.panel("abalone").methods]
    summary = xr.Dataset(coords={"mechanism": names})
    parts = without_added(study, study.claims[0], {"abalone": summary})
    assert parts["abalone"].mechanism.values.tolist() == names[:-1]


@pytest.fixture
def stores(command):
    """Write a file with two methods, a store that had one from the start, and one that gains it."""
    Path("mine.py").write_text(FILE)
    assert command("run", "calibration", "--add", "mine.py", *COUNTS, "--store", "whole.zarr")[0] == 0
    assert command("run", "calibration", *COUNTS, "--store", "grown.zarr")[0] == 0
    before = xr.open_zarr("grown.zarr", group="binomial").load()
    assert command("extend", "grown.zarr", "--add", "mine.py:METHOD")[0] == 0
    return before


@pytest.mark.slow
def test_extended_store_equals_one_run_from_the_start(command, stores):
    whole, grown = (xr.open_zarr(path, group="binomial").load() for path in ("whole.zarr", "grown.zarr"))
    xr.testing.assert_identical(whole, grown)
    assert ResultStore.open("whole.zarr").spec == ResultStore.open("grown.zarr").spec
    xr.testing.assert_identical(grown.sel(algorithm=["naive"]).drop_attrs(), stores.drop_attrs())
    assert command("resume", "grown.zarr")[0] == 0
    code, out, _ = command("verify", "grown.zarr")
    assert (code, "0 problems" in out) == (0, True)
    assert command("report", "grown.zarr")[0] == 0
    assert "mine" in Path("grown.html").read_text()
    code, _, err = command("extend", "grown.zarr", "--add", "mine.py")  # nothing is left to do
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_plan_and_submit_take_added_methods_and_compute_the_numbers_of_a_run(command):
    Path("mine.py").write_text(FILE)
    words = "calibration", "--add", "mine.py", *COUNTS
    assert command("run", *words, "--store", "here.zarr")[0] == 0
    code, out, _ = command("plan", *words)
    assert (code, "\n80 evaluations" in f"\n{out}") == (0, True)  # of naive and the added method
    with LocalCluster(1, processes=True, threads_per_worker=1, dashboard_address=None) as cluster:
        profiles = {"profiles": {"there": {"address": cluster.scheduler_address}}}
        Path("cluster.yaml").write_text(yaml.safe_dump(profiles))
        assert command("submit", *words, "--store", "there.zarr", "--cluster", "there")[0] == 0
        assert command("status", "there.zarr", "--cluster", "there", "--watch", "--every", "0.2")[0] == 0
    here, there = (xr.open_zarr(path, group="binomial").load() for path in ("here.zarr", "there.zarr"))
    assert there.algorithm.values.tolist() == ["naive", "mine"]
    xr.testing.assert_identical(here, there)


@pytest.mark.slow
def test_edited_file_is_refused_and_its_comments_are_not(command, refused, stores):
    Path("mine.py").write_text(FILE + "# a comment\n")
    assert command("resume", "whole.zarr")[0] == 0
    Path("mine.py").write_text(FILE.replace("200", "300") + "open('executed', 'w').close()\n")
    for words in (
        ("resume", "whole.zarr"),
        ("verify", "whole.zarr"),
        ("report", "whole.zarr"),
        ("run", "calibration", "--add", "mine.py", *COUNTS, "--store", "whole.zarr"),
        ("extend", "whole.zarr", "--add", "mine.py"),
    ):
        code, _, err = command(*words)
        assert (code, err.count("\n"), "the method file" in err, "was edited" in err) == (2, 1, True, True)
        assert Path("executed").exists() == ("--add" in words)  # code runs only if the user names its file
    refused("resume", "whole.zarr", "--accept-edited-study", message="gives numbers that differ from the stored ones")
    Path("mine.py").write_text(FILE + "UNUSED = 1\n")
    assert command("resume", "whole.zarr", "--accept-edited-study")[0] == 0
    for words in (("resume",), ("verify",), ("report",)):  # the edit is recorded
        assert command(*words, "whole.zarr")[0] == 0
    Path("mine.py").unlink()
    refused("resume", "whole.zarr", message="cannot read the method file")


@pytest.mark.slow
def test_files_that_this_user_has_not_run_are_refused(command, refused, stores, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("DPSTUDIES_HOME", str(tmp_path_factory.mktemp("elsewhere")))
    again = re.search(r"if you trust the code, run: dpstudies (.*)", refused("resume", "whole.zarr"))[1]
    assert command(*again.split())[0] == 0
    assert command("resume", "whole.zarr")[0] == 0


BAD = {
    "calibration --add nothing.py": "cannot read the method file",
    "calibration --add mine.txt": "got 'mine.txt'; write an example with: dpstudies new posterior",
    "calibration --add empty.py": "none is declared here; write an example with: dpstudies new posterior",
    "calibration --add raises.py": "cannot load the method file ",
    "calibration --add mine.py:OTHERS": "did you mean OTHER?",
    "calibration --add mine.py:fit": "must be a studies.OwnMethod or a mechanisms.Mechanism, got function",
    "calibration --add mine.py --add mine.py": "a name of its own, got mine",
    "calibration --add broken.py": "line 1: SyntaxError",
    "calibration --add wrong.py": "line 2: ValueError: kind of mine must be one of",
    "noisy-tables --add mine.py": "accepts methods of kind table, got mine of kind posterior",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_files_are_refused_before_anything_is_written(refused, line):
    Path("mine.py").write_text(FILE)
    Path("broken.py").write_text("METHOD = (\n")
    Path("empty.py").write_text("x = 1\n")
    Path("raises.py").write_text("raise KeyError('no')\n")
    Path("wrong.py").write_text("from studies import OwnMethod\nMETHOD = OwnMethod('mine', 'sum', print)\n")
    Path("cluster.yaml").write_text("profiles: {there: {address: 'tcp://127.0.0.1:1'}}")
    for name, options in {"run": "--store s.zarr", "submit": "--store s.zarr --cluster there", "plan": ""}.items():
        refused(name, *line.split(), *options.split(), message=BAD[line])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("np.zeros((3, 3, 3))", r"wrong.py:5: ValueError: fit of mine must return draws of shape \(draws\), got"),
        ("'draws'", "wrong.py:5: ValueError: fit of mine must be an array of real numbers"),
        ("model.scale", "wrong.py:6: AttributeError: 'ReleaseModel' object has no attribute 'scale'"),
    ],
    ids=["shape", "kind", "raised"],
)
def test_wrong_results_are_reported_with_the_file_of_the_user(command, result, message):
    Path("wrong.py").write_text(f"""import numpy as np
from studies import OwnMethod


def fit(rng, model, prior, y):
    return {result}


METHOD = OwnMethod("mine", "posterior", fit, lambda cell: cell["family"] == "binomial")
""")
    assert command("run", "calibration", "--add", "wrong.py", *COUNTS, "--store", "s.zarr")[0] == 1
    assert re.search(message, command("errors", "s.zarr")[1])


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--until", "mcse(pit) <= 1"), ("--panel", "binomial")])
def test_extension_by_methods_is_of_all_panels(refused, stores, words):
    message = "--add of an extension cannot be combined with --until or --panel"
    refused("extend", "grown.zarr", "--add", "mine.py:OTHER", *words, message=message)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["posterior", "table", "regression", "draw"])
def test_new_files_run_without_editing(command, printed, kind):
    out = printed("new", kind, "mine")
    assert len(Path("mine.py").read_text().splitlines()) <= 40
    (line,) = re.findall(r": dpstudies (run .*)", out)
    small = {
        "posterior": COUNTS,
        "table": shlex.split(f"--panel formats --trials 2 --set noise_std=5 --set published=value {NAIVE}"),
        "regression": shlex.split(
            f"--panel one-feature --trials 2 --set n=1000 --set epsilon=1 --set track=pure {NAIVE}"
        ),
        "draw": shlex.split("--panel simulated --trials 2 --set mechanism=glm-gdp"),
    }
    assert command("run", line.split()[1], "--add", "mine.py", *small[kind], "--store", "mine.zarr")[0] == 0
    panel = small[kind][1]
    ds = xr.open_zarr("mine.zarr", group=panel).load()
    dim = "mechanism" if kind == "draw" else "algorithm"
    assert set(np.unique(ds.status.sel({dim: "mine"}))) <= {1, 5}
    assert command("report", "mine.zarr")[0] == 0
    assert "mine" in Path("mine.html").read_text()
