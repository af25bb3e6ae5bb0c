"""Tests of the command ``benchmark``: verdicts, exit codes, references, resumption and bad input."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline import Scale
from pipeline.declare.method_files import find_method
from pipeline.store.datasets import open_panel
from pipeline.store.result_store import ResultStore
from studies import STUDIES
from studies.benchmark import computation, shipped, times
from studies.benchmark import results as benchmark_results
from studies.benchmark import run as benchmark_run
from studies.benchmark.run import compute
from studies.benchmark.uniformity import LARGE_DEVIATION, detectable_deviation

FILE = """
import time
from mechanisms.inference.exact_posterior import exact_posterior
from studies import OwnMethod

def exact(rng, model, prior, y):
    return exact_posterior(model, prior, y).sample(rng, 400)

def narrow(rng, model, prior, y):
    draws, mean = exact(rng, model, prior, y), exact_posterior(model, prior, y).mean()
    return mean + 0.6 * (draws - mean)

def failing(rng, model, prior, y):
    if y[0] > model.n / 2:
        raise RuntimeError("no convergence")
    return exact(rng, model, prior, y)

def hanging(rng, model, prior, y):
    if y[0] > model.n / 2:
        time.sleep(60)
    return exact(rng, model, prior, y)

def is_binomial(cell):
    return cell["family"] == "binomial"

METHOD = OwnMethod("mine", "posterior", exact, is_binomial, note="The exact posterior.")
NARROW = OwnMethod("narrow", "posterior", narrow, is_binomial)
FAILING = OwnMethod("failing", "posterior", failing, is_binomial)
HANGING = OwnMethod("hanging", "posterior", hanging, is_binomial)
NOWHERE = OwnMethod("nowhere", "posterior", exact, lambda cell: False)
TAKEN = OwnMethod("naive", "posterior", exact, is_binomial)
"""
SEED, REFERENCES = 17, shipped.FOLDER
QUICK = Scale(250, ("binomial",), {"n": (20,), "epsilon": (0.1, 1.0), "algorithm": ("exact", "marginal", "naive")})
OWN = "benchmark", "mine.py", "--store", "bench"


def with_quick(monkeypatch, **scales):
    """Replace the studies of the benchmark by some of them with other quick scales."""
    studies = {name.replace("_", "-"): scale for name, scale in scales.items()}
    monkeypatch.setattr(
        computation, "STUDIES", {name: replace(STUDIES[name], quick=scale) for name, scale in studies.items()}
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to a folder with the file, reduce two studies to one panel with few cells, and ship no references."""
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "shipped")
    values = {"n": (20,), "epsilon": (1.0,), "prior": ((1.0, 1.0),), "algorithm": ("exact", "gibbs-exact")}
    with_quick(monkeypatch, calibration=QUICK, exact_inference=Scale(250, ("binomial",), values))
    return tmp_path


def rows_of(out):
    """Return the rows of the table of ranks as lists of cells."""
    table = out.splitlines()
    return [re.split(r" {2,}", line.strip()) for line in table if line.startswith(("calibration", "exact-inference"))]


def planned(file="mine.py", store="bench", **options):
    """Return the runs and the omitted panels of a benchmark at quick scale."""
    return computation.plan_benchmark(find_method(file), store, **{"scale": "quick", **options})


def run_reference(folder="reference", **changes):
    options = {"trials": 250, "panels": ["binomial"], "values": QUICK.values, **changes}
    return pipeline.run(STUDIES["calibration"], f"{folder}/calibration.zarr", **options)


def run_shipped(folder, trials):
    """Run exact-inference in a folder, with more cells than the study has here."""
    values = {"n": (10, 20), "epsilon": (1.0, 3.0), "prior": ((1.0, 1.0),)}
    path = f"{folder}/exact-inference.zarr"
    pipeline.run(STUDIES["exact-inference"], path, trials=trials, panels=["binomial"], values=values, progress=False)
    return str(folder)


@pytest.fixture(scope="module")
def many_references(tmp_path_factory):
    """Return a folder with a store of 250 trials."""
    return run_shipped(tmp_path_factory.mktemp("many"), 250)


@pytest.fixture(scope="module")
def few_references(tmp_path_factory):
    """Return the bytes of a shipped file of 3 trials, and the folder of its store."""
    folder = tmp_path_factory.mktemp("few")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "FOLDER", folder)
        assert "exact-inference" in shipped.write_shipped(run_shipped(folder, 3))[0]
    return (folder / "exact-inference.json.gz").read_bytes(), folder


@pytest.fixture
def without_costs(monkeypatch):
    """Omit the measurement of seconds and memory, and of first trials, which repeat fits."""
    monkeypatch.setattr(benchmark_run, "measure_costs", lambda *_: {})
    monkeypatch.setattr("pipeline.runs.session.refuse_defects", lambda *_: None)


@pytest.fixture
def shipped_file(few_references, folder):
    """Ship references of 3 trials and return their path."""
    path = shipped.FOLDER / "exact-inference.json.gz"
    path.parent.mkdir()
    path.write_bytes(few_references[0])
    return path


EXACT = "--study", "exact-inference"
SHIPPED_LINE = "exact-inference: other methods are computed as well, since "


def test_an_overconfident_posterior_is_not_calibrated(command, folder):
    code, out, err = command("benchmark", "mine.py:NARROW", "--store", "bench")
    assert code == 1
    assert f"{SHIPPED_LINE}no results are shipped\n" in err
    cells = {
        "calibration": ("n=20, epsilon=0.1", "n=20, epsilon=1"),
        "exact-inference": ("n=20, epsilon=1, prior=1:1",),
    }
    stated = {study: {f"{cell} (intervals too narrow)" for cell in labels} for study, labels in cells.items()}
    verdicts = dict(re.findall(r"[iI]n \d of \d cells? of ([a-z-]+), binomial: (.*?)\. ", out))
    assert {study: set(text.split("; ")) for study, text in verdicts.items()} == stated
    assert "Tested cells: 3 not calibrated, 0 passed, 0 undecided." in out
    counted = ["not calibrated (2 of 2 cells)", "not calibrated (1 of 1 cell)"]
    assert [row[2] for row in rows_of(out)] == counted  # without a rank
    assert "s per fit (one cell)  peak memory (one cell)" in out
    assert out.splitlines()[-1] == "page: bench/benchmark-narrow.html"
    page = (folder / "bench/benchmark-narrow.html").read_text()
    assert "narrow is not calibrated in 2 of 2 cells" in page
    assert page.count("not calibrated (intervals too narrow)</td>") == 3  # in the tables of cells
    assert "Seconds and memory: in n=20, epsilon=1. References:" in page
    for panel, reason in (
        ("calibration, multinomial", "narrow supports none of its cells"),
        ("exact-inference, edge", "not part of the quick scale; add --scale full"),
    ):
        assert f"<li>{panel}: {reason}</li>" in page
    assert page.count("<figure id=") == 3


@pytest.mark.slow
@pytest.mark.usefixtures("without_costs")
def test_draws_of_the_exact_posterior_pass_and_are_ranked_and_a_second_call_computes_nothing(command, folder):
    code, out, _ = command(*OWN)
    assert (code, "No deviation of mine from calibration was found in " in out) == (0, True)
    ranks = {row[0]: row[2:4] for row in rows_of(out)}
    assert ranks.keys() == {"calibration", "exact-inference"}
    assert all(re.fullmatch(r"[123] of [23]", rank) for rank, _ in ranks.values())
    assert ranks["calibration"][1] == "undecided (2 of 2 cells)"  # with 250 trials per cell
    assert ranks["exact-inference"][1] == "undecided (1 of 1 cell)"
    assert "Tested cells: 0 not calibrated, 0 passed, 3 undecided." in out
    assert re.search(r"they detect a deviation .* one of 0\.\d\d in all cells of a panel, and one of 0\.\d\d", out)
    page = (folder / "bench/benchmark-mine.html").read_text()
    assert "naive</th>" in page
    assert "not calibrated" in page  # that is naive
    assert "needs no guarantee of its own" in page
    needed = re.findall(r"calibrated to 0.15\?</td>.*?(\d+)</td></tr>", page)
    assert [300 < int(n_trials) < 450 for n_trials in needed] == [True, True]
    assert "undecided (would detect 0.1" in page
    store = ResultStore.open("bench/calibration.zarr")
    sessions = len(store.sessions)
    again, repeated, _ = command(*OWN)
    assert (again, len(ResultStore.open("bench/calibration.zarr").sessions)) == (0, sessions)
    assert rows_of(repeated) == rows_of(out)


def test_references_that_are_read_leave_time_for_trials_that_decide_on_calibration(folder, monkeypatch):
    def trials(**options):
        return {
            (run.name, panel.name): panel.trials for run in planned(**options)[0] for panel in run.plan.study.panels
        }

    fewer = replace(QUICK, trials=100)
    with_quick(monkeypatch, calibration=fewer)
    run_reference(values={**QUICK.values, "algorithm": ("naive",)})  # 250 trials
    assert trials() == {("calibration", "binomial"): 100}  # others are computed in the same run
    assert trials(reference="reference") == {("calibration", "binomial"): 250}
    assert trials(reference="reference", trials=120) == {("calibration", "binomial"): 120}
    monkeypatch.setattr(computation, "STUDIES", STUDIES)
    monkeypatch.setattr(shipped, "FOLDER", REFERENCES)
    (fewest, needed) = sorted(set(trials().values()))
    n_tests = 2 * (6 + 12 + 2)  # of u and of |2u - 1|, in cells and in all cells of a panel together
    assert detectable_deviation(needed, n_tests) <= LARGE_DEVIATION < detectable_deviation(needed - 20, n_tests)
    assert fewest == 100  # in the panel without tests
    assert trials(studies=["calibration"]) == {("calibration", "binomial"): needed}
    assert set(trials(recompute=True).values()) == {100}


@pytest.mark.slow
@pytest.mark.usefixtures("without_costs")
def test_an_interrupted_benchmark_resumes(command):
    assert command(*OWN, "--trials", "30", "--study", "calibration")[0] == 0
    code, out, _ = command(*OWN, "--trials", "30")
    assert (code, len(rows_of(out))) == (0, 2)
    assert len(ResultStore.open("bench/calibration.zarr").sessions) == 1


@pytest.mark.parametrize("kind", ["posterior", "table", "regression", "draw", "mechanism"])
def test_the_file_of_each_kind_has_a_plan_in_all_studies(command, monkeypatch, kind):
    monkeypatch.setattr(computation, "STUDIES", STUDIES)
    assert command("new", kind, "my_method")[0] == 0
    runs, omitted = planned("my_method.py")
    assert runs
    assert [panel.reason for panel in omitted if panel.panel == "csv"] == ["computed on demand only"] * (kind == "draw")


def test_a_method_that_fails_in_some_trials_shows_its_failures(command):
    code, out, _ = command("benchmark", "mine.py:FAILING", "--store", "bench", "--study", "exact-inference")
    assert code == 1
    failed = int(rows_of(out)[0][-1])
    assert 50 < failed < 200
    assert f"{250 - failed} trials of failing are ok, {failed} failed." in out
    assert "failed trials are left out of ranks; their causes: dpstudies errors " in out


def test_chains_that_have_not_converged_are_stated(command, folder, shipped_file):
    """Chains that stay at independent draws of the posterior pass every test of calibration."""
    (folder / "stuck.py").write_text(
        f"{FILE}\nimport numpy as np\n"
        "def stuck(rng, model, prior, y):\n"
        "    starts = np.ravel(exact(rng, model, prior, y))[:4]\n"
        "    return starts[:, None] + 1e-4 * rng.standard_normal((4, 200)).cumsum(axis=1)\n"
        "STUCK = OwnMethod('stuck', 'posterior', stuck, is_binomial, chains=True)\n"
    )
    code, out, _ = command(
        "benchmark", "stuck.py:STUCK", "--store", "stuck", "--trials", "20", "--study", "exact-inference"
    )
    assert code == 0
    assert re.search(r"In (1\d|20) of them chains have not converged \(R-hat above 1.01\)", out)
    code, out, _ = command("benchmark", "mine.py", "--store", "mine", "--trials", "20", "--study", "exact-inference")
    assert "converged" not in out


@pytest.mark.slow
def test_trials_beyond_a_time_limit_fail_and_no_seconds_are_measured(command, shipped_file):
    code, out, _ = command("benchmark", "mine.py:HANGING", *OWN[2:], *EXACT, "--trials", "3", "--time-limit", "3")
    row = rows_of(out)[0]
    assert (code, int(row[-1]) in (1, 2), "kB" in "".join(row)) == (1, True, False)


@pytest.mark.slow
def test_shipped_references_are_not_computed_again_and_recompute_computes_them(command, folder, many_references):
    shipped.write_shipped(many_references)
    for options, methods, origin in (
        (("--store", "bench"), ["narrow"], "shipped with dpstudies"),
        (("--store", "whole", "--recompute"), ["exact", "gibbs-exact", "narrow"], "computed in this run"),
    ):
        code, out, err = command("benchmark", "mine.py:NARROW", *EXACT, *options)
        assert (code, SHIPPED_LINE in err, rows_of(out)[0][2]) == (1, False, "not calibrated (1 of 1 cell)")
        assert rows_of(out)[0][5]  # seconds per fit
        stored = open_panel(ResultStore.open(f"{options[1]}/exact-inference.zarr"), "binomial")
        assert stored["algorithm"].values.tolist() == methods
        page = (folder / options[1] / "benchmark-narrow.html").read_text()
        assert f"References: {origin}" in page
        assert page.count("<figure id=") == 3
        assert "gibbs-exact</th>" in page
    page = (folder / "bench/benchmark-narrow.html").read_text()
    assert "(250 trials per cell, score of the first 250 paired, width of the first 250 paired)" in page


@pytest.mark.slow
@pytest.mark.usefixtures("without_costs")
def test_numbers_of_shipped_references_equal_those_of_their_store(folder):
    shipped.write_shipped(run_shipped("reference", 60))
    values = {"n": (10, 20), "epsilon": (1.0,), "prior": ((1.0, 1.0),)}  # in another order than cells of the store
    quick = Scale(60, ("binomial",), values)
    panels = []
    for name, reference in (("paired", "reference"), ("shipped", None)):
        computation.STUDIES["exact-inference"] = replace(STUDIES["exact-inference"], quick=quick)
        runs, _ = planned(store=name, reference=reference, studies=["exact-inference"])
        panels += compute(runs, "posterior").panels
    paired, unpaired = panels
    assert paired.compared.methods == unpaired.compared.methods
    for stored, read in zip(paired.methods, unpaired.methods, strict=True):
        assert read.uniformity.in_cell("n=20, epsilon=1, prior=1:1").tests
        is_own = stored.method == "mine"
        assert [t for t in stored.uniformity.tests if is_own or not t.is_pooled] == list(read.uniformity.tests)
        for measure in ("covered", "width", "distance", "absent"):
            assert stored.mean(measure) == pytest.approx(read.mean(measure), abs=0, rel=0, nan_ok=True)
        for relative in ("relative", "relative_width"):
            of_store, of_file = getattr(stored, relative), getattr(read, relative)
            np.testing.assert_allclose(of_file.ratio, of_store.ratio, rtol=1e-12, atol=1e-6)
            assert (of_file.mean_error > 0) == (of_store.mean_error > 0)


TABLES = """
from mechanisms.tables import table_posterior
from studies import OwnMethod

def exact(rng, table, prior):
    posterior = table_posterior(table.values, table.noise, table.parents, prior, seen=table.seen)
    return posterior.sample(rng, 400)

def has_prior(cell):
    return cell.get("noise") != "k-norm" and bool(cell.keys() & {"leaves", "published", "k"})

METHOD = OwnMethod("exact", "table", exact, has_prior)
"""


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_costs")
@pytest.mark.parametrize(
    ("text", "name", "trials", "is_right"),
    [(FILE, "METHOD", 40, True), (TABLES, "METHOD", 10, True), (FILE, "NARROW", 100, False)],
    ids=["posterior", "table", "overconfident"],
)
def test_only_wrong_posteriors_are_reported_as_wrong_in_twenty_repetitions(
    folder, monkeypatch, text, name, trials, is_right
):
    """At a family-wise level of 0.001, a right one would be in a repetition with a probability of at most 0.02."""
    (folder / "exact.py").write_text(text)
    monkeypatch.setattr(computation, "STUDIES", STUDIES)
    monkeypatch.setattr(shipped, "FOLDER", REFERENCES)
    kind, reported = find_method(f"exact.py:{name}").load().kind, []
    for seed in range(20):
        runs, _ = planned(f"exact.py:{name}", f"bench-{seed}", trials=trials, seed=seed)
        assert all(run.reference is not None for run in runs)  # no other method is computed
        results = compute(runs, kind)
        assert (len(results.uniformity.tests) > 30, results.n_failed) == (True, 0)
        reported.append(results.is_calibrated)
    assert reported == [is_right] * 20


PAIRED = {"score": 3, "width": 3}


def test_other_data_are_not_paired_with_shipped_trials(shipped_file):
    seed = shipped.read_shipped("exact-inference").spec["seed"]
    for chosen, paired in ((None, PAIRED), (seed, PAIRED), (7, {})):
        runs, _ = planned(studies=["exact-inference"], seed=chosen)
        assert runs[0].reference.panels["binomial"].n_paired == paired


@pytest.mark.slow
@pytest.mark.usefixtures("without_costs")
@pytest.mark.parametrize(("trials", "n_shipped"), [(60, 300), (100, 60)])
def test_errors_of_shipped_trials_equal_those_of_the_same_trials_of_a_store(
    many_references, monkeypatch, trials, n_shipped
):
    monkeypatch.setattr(shipped, "_is_paired", lambda *_: True)
    # the means of 250 shipped trials and of 60 may have other smallest ones
    monkeypatch.setattr(benchmark_results, "best_references", lambda panel, _: ["exact"] * len(panel.cells))
    monkeypatch.setattr(shipped, "_N_PAIRED", n_shipped)
    shipped.write_shipped(many_references)
    panels = []
    for name, reference, n in (("paired", many_references, 60), ("shipped", None, trials)):
        runs, _ = planned(store=name, reference=reference, studies=["exact-inference"], trials=n)
        panels += compute(runs, "posterior").panels
    of_store, of_file = panels
    assert "score of the first 60 paired, width of" in of_file.compared.origin or n_shipped > 60
    for relative in ("relative", "relative_width"):
        for expected, result in zip(of_store.methods, of_file.methods, strict=True):
            pair = getattr(expected, relative), getattr(result, relative)
            for name in ("ratio", "error", "mean", "mean_error", "n", "fixed"):
                np.testing.assert_allclose(*(getattr(value, name) for value in pair), rtol=1e-5, atol=1e-6)
    assert of_file.own.relative_width.n.tolist() == [60]


def test_tests_of_all_cells_are_dropped_if_some_cells_are_not_compared(shipped_file):
    (summary, *_) = shipped.read_shipped("exact-inference").panels["binomial"].summaries.values()
    assert summary.n_values["pit"][:, 0].tolist() == [3, 3, 3, 3, 12]
    assert summary.select(range(4)).n_values["pit"][:, 0].tolist() == [3, 3, 3, 3, 12]
    assert summary.select([3, 1]).n_values["pit"][:, 0].tolist() == [3, 3, 0]
    assert summary.select([3, 1]).counts["ok"].tolist() == [3, 3]


def test_shipped_files_have_the_same_bytes_again(shipped_file, few_references):
    content, store_folder = few_references
    shipped_file.unlink()
    assert shipped.write_shipped(store_folder)[0] == {"exact-inference": shipped_file}
    assert shipped_file.read_bytes() == content


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": {"n": (20,), "algorithm": ("exact",)}}, "not stored, now present; run the study again"),
        ({"seed": SEED}, "must have the present spec, got seed: stored 17"),
        ({"share": "1/2"}, "must be complete, got pending trials in binomial; resume it"),
    ],
)
def test_stores_that_are_not_complete_or_present_are_not_shipped(folder, options, message):
    options = {"values": {"n": (20,), "prior": ((1.0, 1.0),)}, **options}
    study = STUDIES["exact-inference"]
    pipeline.run(study, "other/exact-inference.zarr", trials=3, panels=["binomial"], progress=False, **options)
    written, omitted = shipped.write_shipped("other")
    assert (written, message in omitted["exact-inference"]) == ({}, True)
    assert "there is no store other/calibration.zarr" in omitted["calibration"]
    assert not shipped.FOLDER.exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "version: stored 2, now 1"),
        ({"factors": {"n": [10], "epsilon": [1.0], "prior": [[1.0, 1.0]]}}, "panels.binomial.n: 20 is absent"),
        ({"methods": {"exact": {"version": 9, "uses": []}}}, "panels.binomial.methods.data-augmentation: not stored"),
        ({"panels": {}}, "panel binomial is absent"),
        ({"criteria": {"loss": ["width"]}}, "criteria differ"),
        ({"trials": 1}, ""),
    ],
)
def test_shipped_references_that_do_not_fit_are_computed(command, shipped_file, changes, reason):
    value = json.loads(gzip.decompress(shipped_file.read_bytes()))
    for name, change in changes.items():
        part = value["spec"] if name in value["spec"] else value["spec"]["panels"]["binomial"]
        part[name] = change
    value["panels"] = {name: value["panels"][name] for name in value["spec"]["panels"]}
    shipped_file.write_bytes(gzip.compress(json.dumps(value).encode()))
    runs, _ = planned(studies=["exact-inference"])
    assert runs[0].not_shipped.startswith(reason and f"the shipped results do not fit ({reason}")
    assert (runs[0].reference is None) == bool(reason)
    if "version" in changes:
        code, _, err = command(*OWN, *EXACT, "--trials", "30")
        assert (code, f"{SHIPPED_LINE}{runs[0].not_shipped}\n" in err) == (0, True)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "text", "shape", "panels"])
def test_damaged_shipped_references_are_refused_in_one_line(refused, folder, shipped_file, damage):
    content = shipped_file.read_bytes()
    value = json.loads(gzip.decompress(content))
    if damage == "shape":
        value["panels"]["binomial"]["coordinates"][0][1].pop()
    if damage == "panels":
        value["panels"] = {}
    flipped = bytes([*content[:400], content[400] ^ 1, *content[401:]])
    again = gzip.compress(json.dumps(value).encode())
    shipped_file.write_bytes({"truncated": content[:-9], "flipped": flipped, "text": b"{}"}.get(damage, again))
    refused(*OWN, *EXACT, message=f"the shipped references {shipped_file} must be readable, got ")
    assert planned(recompute=True)[0]


@pytest.mark.slow
@pytest.mark.usefixtures("without_costs")
def test_references_of_a_store_are_paired_by_trial_and_not_computed_again(command):
    run_reference(trials=30)
    words = "--study", "calibration", "--trials", "30"
    code, out, _ = command(*OWN, *words, "--reference", "reference")
    assert code == 0
    own = open_panel(ResultStore.open("bench/calibration.zarr"), "binomial")
    assert own["algorithm"].values.tolist() == ["mine"]
    assert command("benchmark", "mine.py", "--store", "whole", *words)[0] == 0
    whole = open_panel(ResultStore.open("whole/calibration.zarr"), "binomial")
    np.testing.assert_array_equal(own["pit"].sel(algorithm="mine"), whole["pit"].sel(algorithm="mine"))
    stored = open_panel(ResultStore.open("reference/calibration.zarr"), "binomial")
    np.testing.assert_array_equal(stored["mmd2"], whole["mmd2"].sel(algorithm=stored["algorithm"].values))
    _, repeated, _ = command("benchmark", "mine.py", "--store", "whole", *words)
    assert rows_of(out)[0][:5] == rows_of(repeated)[0][:5]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seed": SEED}, "seed: stored 17, now 20181203"),
        ({"trials": 100}, "panels.binomial.trials: stored 100, now 250"),
        ({"values": {"n": (20,), "epsilon": (0.1,)}}, "panels.binomial.epsilon: 1.0 is absent"),
        ({"panels": ["multinomial"], "values": {"n": (20,)}}, "panel binomial is absent"),
    ],
)
def test_a_reference_that_does_not_fit_is_refused(refused, folder, changes, reason):
    values = {"algorithm": ("naive",), **changes.get("values", {"n": (20,), "epsilon": (0.1, 1.0)})}
    run_reference(**{**changes, "values": values})
    refused(*OWN, "--study", "calibration", "--reference", "reference", message=f"does not fit ({reason})")


BAD = {
    "absent.py": "cannot read the method file",
    "mine.py:ABSENT": "unknown object of ",
    "mine.py:NOWHERE": "nowhere must support a cell of calibration or exact-inference at quick scale",
    "mine.py:TAKEN": "must have a name of its own, got naive",
    "mine.py --study noisy-tables": "unknown study that accepts methods of kind posterior",
    "mine.py --reference empty": "--reference must be a folder with a store of calibration",
    "mine.py --reference bench": "--reference must be another folder than --store",
    "mine.py --recompute --reference x": "--recompute cannot be combined with --reference; omit one",
    "mine.py --trials 0": "trials must be",
    "mine.py --time-limit 0": "the time limit of a block must be > 0 seconds, got 0.0",
    "mine.py --store s3://bucket/bench": "--store must be a local folder for stores and a page",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_refused_in_one_line_before_anything_is_written(refused, folder, line):
    refused("benchmark", "--store", "bench", *line.split(), message=BAD[line])  # the last --store counts


@pytest.mark.usefixtures("without_costs")
@pytest.mark.parametrize("options", [("20",), pytest.param(("120", "--recompute"), marks=pytest.mark.slow)])
def test_an_edited_method_is_refused_once_it_has_ok_trials(command, refused, folder, shipped_file, options):
    words = *OWN, *EXACT, "--trials", *options
    (folder / "mine.py").write_text(FILE.replace(".sample(rng, 400)", ".samples(rng, 400)"))
    code, _, err = command(*words)
    assert (code, "AttributeError" in err) == (3, True)
    (folder / "mine.py").write_text(FILE)
    assert command(*words)[0] == 0
    assert command(*words)[0] == 0
    (folder / "mine.py").write_text(FILE.replace("400", "401"))
    refused(*OWN, message="was edited")
    message = "--store must be a folder of the benchmark of narrow, got bench with that of mine; choose another"
    refused("benchmark", "mine.py:NARROW", *OWN[2:], message=message)


def test_counts_are_ranked_by_distance_and_audited(command, folder, monkeypatch):
    values = {"n": (20,), "mechanism": ("smooth", "laplace")}
    with_quick(monkeypatch, hellinger_accuracy=Scale(200, ("k2",), values))
    for name, scale, code, evidence in (("good", 2.0, 0, "audited to n = "), ("weak", 0.5, 1, "broken: loses ")):
        (folder / f"{name}.py").write_text(
            "from dataclasses import replace\nfrom mechanisms import MECHANISMS, geometric_counts\n"
            "def release(prior, counts, epsilon, delta):\n"
            f"    return geometric_counts(prior, counts, noise_scale={scale} / epsilon)\n"
            f"MECHANISM = replace(MECHANISMS['geometric'], name='{name}', release=release)\n"
        )
        got, out, _ = command("benchmark", f"{name}.py", "--store", name)
        page = (folder / name / f"benchmark-{name}.html").read_text()
        verdict = "The stated guarantee of weak is broken, so that it has no rank." if code else "was not tested."
        assert (got, verdict in out, f"{verdict}</b>" in page) == (code, True, True)
        assert bool(re.search(r"hellinger-accuracy +k2 +\d of 3 +not tested", out)) == (code == 0)
        assert evidence in out
        assert evidence in page
    (folder / "drawn.py").write_text(
        "from mechanisms import Guarantee, Mechanism\n"
        "def draw(rng, counts, epsilon, delta, size):\n"
        "    noise, n = rng.integers(-1, 2, size=size), counts.sum()\n"
        "    first = (counts[0] + noise).clip(0, n)\n"
        "    return __import__('numpy').column_stack([first, n - first])\n"
        "MECHANISM = Mechanism('drawn', sampler=draw, guarantee=lambda epsilon, delta: Guarantee(epsilon))\n"
    )
    _, out, _ = command("benchmark", "drawn.py", "--store", "drawn")
    assert "Its stated guarantee was not audited, since drawn has no exact distribution of its releases" in out


@pytest.mark.slow
def test_private_draws_are_ranked_by_utility_and_not_audited(command, folder, monkeypatch):
    values = {"beta": {"simulated": (0.1,)}, "epsilon": (10.0,), "mechanism": ("true-posterior", "glm-gdp")}
    with_quick(monkeypatch, private_mcmc=Scale(10, ("simulated", "abalone"), values))
    timed, measure = [], times.seconds_per_trial
    monkeypatch.setattr(
        times, "seconds_per_trial", lambda *call: timed.append((call[1].name, call[3].method.name)) or measure(*call)
    )
    assert command("new", "draw", "my_draw")[0] == 0
    code, out, _ = command("benchmark", "my_draw.py", "--store", "draws", "--study", "private-mcmc")
    assert code == 0
    assert re.search(r"private-mcmc +simulated +\d of \d", out)
    assert "declared by the method, and not audited" in (folder / "draws/benchmark-my_draw.html").read_text()
    assert timed.count(("abalone", "my_draw")) == 1
    assert ("abalone", "true-posterior") not in timed  # a method of a panel that computes each apart may take minutes


@pytest.mark.slow
def test_tables_and_regressions_are_ranked_by_interval_score(command, monkeypatch):
    monkeypatch.setattr("pipeline.runs.session.refuse_defects", lambda *_: None)
    tables = {"k": (10,), "epsilon": (1.0,), "noise": ("geometric",), "algorithm": ("tree", "naive")}
    regressions = {
        "n": {"calibration": (10, 1_000), "one-feature": (1_000,)},
        "epsilon": {"one-feature": (1.0,)},
        "track": ("pure",),
        "records": {"one-feature": ("inside",)},
        "algorithm": ("normal-covariates", "naive"),
    }
    with_quick(
        monkeypatch,
        noisy_tables=Scale(8, ("mechanisms",), tables),
        regression_inference=Scale(30, ("calibration", "one-feature"), regressions),
    )
    for kind in ("table", "regression"):
        assert command("new", kind, f"my_{kind}")[0] == 0
    code, out, _ = command("benchmark", "my_table.py", "--store", "table")
    assert (code, "8 trials of my_table are ok, 0 failed." in out) == (0, True)
    assert re.search(r"noisy-tables +mechanisms +2 of 3 +undecided \(1 of 1 cell\) +1\.\d+ ± 0\.\d+ ", out)
    code, out, _ = command("benchmark", "my_regression.py", "--store", "regression")
    assert (code, "60 trials of my_regression are ok, 0 failed." in out) == (0, True)  # it does not support 10 records
    assert re.search(r"regression-inference +calibration +(2 of 2 +)?undecided \(1 of 1 cell\) ", out)
    page = Path("regression/benchmark-my_regression.html").read_text()
    assert "Seconds and memory: in n=1000, epsilon=1, records=own, track=pure" in page  # not for 10 records
    assert re.search(r"normal-covariates</th><td[^>]*>[12] of 2</td><td[^>]*>not tested</td><td[^>]*>\d", page)
    assert "Calibration is not tested: the data of this panel are not drawn from the assumed model" in page
    assert re.search(
        r"my_regression</th><td[^>]*>[12] of 2</td><td[^>]*>not tested</td><td[^>]*>\d\.\d+ ± 0\.\d+</td>", page
    )
