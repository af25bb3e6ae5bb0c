"""Tests of user code: the files in the README, and packages that register studies and mechanisms."""

import itertools
import json
import os
import re
import sys
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import pipeline
from mechanisms import MECHANISMS, audit_counts
from mechanisms.core.conjugate import count_candidates
from mechanisms.counts.draws import DrawsAudit
from pipeline import claim, verdict
from pipeline.declare.source import find_study, load_object
from pipeline.errors import BadInputError
from pipeline.runs.verify import verify
from pipeline.store.result_store import ResultStore
from studies import MODULES, STUDIES
from studies.audits import REGISTERED, Question, audit_named
from studies.counts import added_mechanisms
from studies.counts.added_mechanisms import audited_sizes, rank_added
from studies.counts.hellinger_accuracy import accuracy
from studies.counts.page_tables import compare_accuracy
from studies.figures.defaults import default_figures
from studies.report import load_summaries, write_report
from studies.styles import INK, MECHANISM_STYLES, describe_audit, label_method, looks_of, stored_audits
from tests.pipeline.helpers import COMMAND, run_python
from tests.readme import ROOT
from tests.statistical import assert_frequencies, assert_mean_within, assert_rejects
from tests.studies.test_cli import STUDY_FILE


def with_mechanisms(panel, *mechanisms):
    """Return a panel of `hellinger-accuracy` with mechanisms of a user."""
    (added,) = replace(STUDIES["hellinger-accuracy"], panels=(panel,), claims=()).with_methods(*mechanisms).panels
    return added


def files_of_readme():
    """Return the files that the guide to the pipeline shows, as contents by name."""
    found = re.findall(
        r"<!-- file: (\S+) -->\n```python\n(.*?)```\n", (ROOT / "pipeline/README.md").read_text(), re.DOTALL
    )
    assert [name for name, _ in found] == ["claims_on_coverage.py", "my_mechanism.py", "my_study.py", "my_coverage.py"]
    return dict(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write the files of the guide to a folder; unload their modules after the tests."""
    folder, path = tmp_path_factory.mktemp("mine"), list(sys.path)
    for name, text in files_of_readme().items():
        (folder / name).write_text(text)
    yield folder
    sys.path[:] = path
    sys.modules.pop("my_mechanism", None)


@pytest.fixture
def mechanism(folder):
    return load_object(f"{folder}/my_mechanism.py:MECHANISM")


def enumerated_distribution(counts, truth):
    """Return the distribution of the first count under randomised response, by enumeration of all responses."""
    n = sum(counts)
    distribution = np.zeros(n + 1)
    for honest in itertools.product([True, False], repeat=n):
        reported = sum(is_honest == (record < counts[0]) for record, is_honest in enumerate(honest))
        estimate = (reported - n * (1 - truth)) / (2 * truth - 1)
        distribution[round(min(max(estimate, 0), n))] += np.prod(np.where(honest, truth, 1 - truth))
    return distribution


@pytest.mark.slow
def test_figure_of_the_readme_study_shows_each_value_of_the_method_factor(command):
    """The median, which does not use the factor, is in each facet."""
    text = (ROOT / "pipeline/README.md").read_text().partition("<!-- example: my_means.py -->\n```python\n")[2]
    Path("my_means.py").write_text(text.partition("```")[0])
    assert command("run", "my_means.py", "--store", "means.zarr", "--trials", 20)[0] == 0
    assert command("report", "means.zarr")[0] == 0
    summaries = load_summaries("means.zarr")
    (plot,) = find_study("my_means.py", {}).load().figures[0].draw(summaries)
    shown = plot.rows.groupby("axes")["series"].agg(set).to_dict()
    assert shown == {f"trimmed: {share}": {"median", "trimmed"} for share in ("0", "0.1", "0.25")}


@pytest.mark.slow
def test_study_of_the_first_readme_runs(command):
    text = (ROOT / "README.md").read_text().partition("```python\n# location.py; then: ")[2].partition("```")[0]
    commands, _, code = text.partition("\n")
    Path("location.py").write_text(code)
    for words in commands.split(" && "):
        assert command(*words.split()[1:])[0] == 0, words
    errors = load_summaries("location.zarr")["exponential"]["deviation_mean"]
    assert (errors.sel(algorithm="mean") < errors.sel(algorithm="largest half")).all()


@pytest.mark.parametrize("counts", [(4, 3), (0, 6), (7, 0)])
def test_distribution_of_the_readme_mechanism_matches_its_draws(mechanism, counts):
    epsilon, n = 1.3, sum(counts)
    release = mechanism.build([1, 2], counts, epsilon, 1e-8)
    truth = np.exp(epsilon) / (1 + np.exp(epsilon))
    distribution = release.pmf()
    np.testing.assert_allclose(distribution, enumerated_distribution(counts, truth), rtol=1e-12)
    draws = release.from_uniforms(np.random.default_rng(1).random((100_000, release.n_uniforms)))
    assert (draws.sum(axis=1) == n).all()
    observed, possible = np.bincount(draws[:, 0], minlength=n + 1), distribution > 0
    assert observed.sum() == observed[possible].sum()
    wrong = 0.95 * distribution[possible] + 0.05 / possible.sum()
    assert_frequencies(observed[possible], distribution[possible], wrong=wrong)


@pytest.mark.slow
def test_audit_of_the_readme_mechanism(command, printed, refused, folder, mechanism):
    target, at = f"{folder}/my_mechanism.py:MECHANISM", ("--n", "100", "--epsilon", "1")
    out = printed("audit", target, "--prior", "1:1", *at)
    assert "within" in out
    assert f"{audit_counts(mechanism, [1, 1], 100, 1.0).epsilon:.3f}" == "0.736"
    assert "0.7358" in out
    refused("audit", target, "--prior", "1:1:1", *at, message="takes 2 categories, got 3")
    for n in ("1", "100"):  # negative control: a larger probability of a true response
        dishonest = files_of_readme()["my_mechanism.py"].replace("math.exp(-epsilon)", "math.exp(-2 * epsilon)")
        Path("wrong.py").write_text(dishonest)
        code, out, _ = command("audit", "wrong.py:MECHANISM", "--prior", "1:1", "--n", n, "--epsilon", "1")
        assert (code, "BROKEN" in out) == (1, True)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return results of the panel `k2` of `hellinger-accuracy` at few values of n and with few trials."""
    store = tmp_path_factory.mktemp("published") / "s.zarr"
    pipeline.run(STUDIES["hellinger-accuracy"], store, panels=["k2"], values={"n": [20, 40]}, trials=200)
    return xr.open_zarr(store, group="k2").load()


def _exact_coverage(n, epsilon, p, noise):
    """Return the coverage of intervals at the true parameter p, by a sum over counts and a fine grid of noise."""
    levels = (np.arange(20_000) + 0.5) / 20_000
    counts = np.arange(n + 1)
    noisy = counts[:, None] + stats.laplace.ppf(levels, scale=1 / epsilon)
    share = np.clip(noisy, 0.5, n - 0.5) / n
    half = 1.96 * np.sqrt(share * (1 - share) / n + noise * 2 / (epsilon * n) ** 2)
    return float(stats.binom.pmf(counts, n, p) @ (abs(share - p) <= half).mean(axis=1))


def test_example_of_the_readme_draws_a_line_at_its_nominal_coverage(folder):
    study = find_study(f"{folder}/my_coverage.py", MODULES).load()
    assert "the nominal value, 0.95" in default_figures(study)[0].caption


@pytest.mark.slow
def test_new_study_of_the_readme(command, folder):
    assert command("run", f"{folder}/my_coverage.py", "--store", "coverage.zarr")[0] == 0
    ds = xr.open_zarr("coverage.zarr", group="wald").load()
    assert dict(ds.covered.sizes) == {"n": 2, "epsilon": 2, "algorithm": 2, "trial": 2000}
    for n, epsilon, (name, noise) in itertools.product((100, 1000), (0.1, 1.0), (("naive", 0), ("aware", 1))):
        covered = ds.covered.sel({"n": n, "epsilon": epsilon, "algorithm": name}).values.astype(np.int64)
        assert_frequencies(np.bincount(covered, minlength=2), _complement(_exact_coverage(n, epsilon, 0.3, noise)))
    # Negative control: draws of the last case, distribution of the first.
    first = _complement(_exact_coverage(100, 0.1, 0.3, 0))
    assert_rejects(assert_frequencies, np.bincount(covered, minlength=2), first)
    assert command("report", "coverage.zarr")[0] == 0


def _complement(share):
    return np.array([1 - share, share])


@pytest.mark.slow
@pytest.mark.parametrize(("share", "verdict"), [(0.2, "passed"), (0.0, "failed"), (0.05, "undecided")])
def test_claim_of_the_readme_is_decided_by_its_errors(folder, share, verdict):
    """The claim on undercoverage passes, fails or is undecided, by the share of intervals that miss."""
    summary = xr.Dataset(
        {"covered_mean": (("algorithm", "n"), [[1 - share]]), "covered_mcse": (("algorithm", "n"), [[0.01]])},
        {"algorithm": ["Wald"], "n": [10]},
    )
    claim = load_object(f"{folder}/claims_on_coverage.py:wald_undercovers")
    assert claim.judge({"main": summary}).verdict == verdict


def test_extended_study_of_the_readme(command, printed, folder, published, tmp_path):
    """In the README's extended study, built-in methods have the same bits as in the built-in study."""
    words = ("--set", "n=20,40", "--trials", "200", "--store", "my.zarr")
    assert command("run", f"{folder}/my_study.py", *words)[0] == 0
    mine = xr.open_zarr("my.zarr", group="k2").load()
    names = published.mechanism.values.tolist()
    assert mine.mechanism.values.tolist() == [*names, "randomised-response"]
    measures = ["hellinger", "expected_hellinger", "multiplier", "gamma", "audited_epsilon", "status"]
    xr.testing.assert_identical(mine.sel(mechanism=names)[measures].drop_attrs(), published[measures].drop_attrs())
    new = mine.sel(mechanism="randomised-response")
    assert (new.status == 1).all()
    for n in (20, 40):
        assert_mean_within(new.hellinger.sel(n=n), float(new.expected_hellinger.sel(n=n)))
    assert stored_audits(mine, "mechanism")["randomised-response"]["n"] == 40
    out = printed("report", "my.zarr", "--figures", "figures")
    assert "reproduced: With 2 categories, geometric noise" not in out  # the claim needs other n
    assert "randomised-response" in Path("figures/accuracy-k2.svg").read_text()
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    assert command("resume", "../my.zarr")[0] == 0
    code, out, _ = command("trial", "../my.zarr", "--panel", "k2", "--cell", "n=40", "--trial", "7")
    assert (code, "DIFFERENT" in out) == (0, False)


GEOMETRIC = MECHANISMS["geometric"]
BROKEN = replace(GEOMETRIC, name="ten-times", release=lambda p, c, e, d: GEOMETRIC.release(p, c, 10 * e, d))
HONEST = replace(GEOMETRIC, name="half", release=lambda p, c, e, d: GEOMETRIC.release(p, c, e / 2, d))


def altered(name, **methods):
    """Return the mechanism `geometric` under another name and with other methods of its releases."""

    def build(prior, counts, epsilon, delta):
        right = copy(GEOMETRIC.release(prior, counts, epsilon, delta))
        return type("Altered", (type(right),), methods)(*vars(right).values())

    return replace(GEOMETRIC, name=name, release=build)


def refuse_pmf(self):
    raise ValueError("no pmf\nis known")


def draw_truth(self, uniforms):
    return np.tile(self.counts, (len(uniforms), 1))


UNKNOWN, TRUTH = altered("no-pmf", log_pmf=refuse_pmf), altered("truth", from_uniforms=draw_truth)


@pytest.mark.slow
def test_run_audits_added_mechanisms_and_the_page_shows_it(command, tmp_path):
    """Store, legend, tables and page show that a mechanism is broken, audited or unaudited, and rank the others.

    Of two broken mechanisms, one loses too much, and the other one releases the true counts.
    """
    published = STUDIES["hellinger-accuracy"]
    own = (BROKEN, HONEST, UNKNOWN, TRUTH, replace(GEOMETRIC, name="right"))
    panel = with_mechanisms(published.panel("k2"), *own)
    known = ["geometric", "laplace", "laplace-dimension", "local"]
    values = {"n": [10, 20], "mechanism": [*known, *(mechanism.name for mechanism in own)]}

    @claim("mine-is-best", "Mine is best.", kind="addition", level=0, needs={"k2": {"mechanism": ("ten-times",)}})
    def best(look):
        return verdict(True, "It is.")

    study = replace(published, panels=(panel,), claims=(best,))
    pipeline.run(study, "s.zarr", values=values, trials=100, allow_failures=True)
    ds = xr.open_zarr("s.zarr", group="k2").load()
    audits = stored_audits(ds, "mechanism")
    n = audits["ten-times"]["n"]
    of_truth = "broken: draws do not follow the stated distribution at n = 20"
    described = {name: describe_audit(audit) for name, audit in audits.items()}
    assert described.pop("no-pmf").startswith("unaudited")
    assert described == {
        "ten-times": f"broken: loses 10 at n = {n}",
        "half": "audited to n = 20",
        "truth": of_truth,
        "right": "audited to n = 20",
    }
    assert [audit["verdict"] for audit in audits.values()] == ["broken", "holds", "unaudited", "broken", "holds"]
    assert {audit["states"] for audit in audits.values()} == {"1-DP"}
    np.testing.assert_allclose([audits["ten-times"]["loss"], audits["half"]["loss"]], [10.0, 0.5])
    assert audits["no-pmf"]["evidence"].endswith("no audit at n = 1: no pmf is known")
    assert re.fullmatch(
        r"draws do not follow the stated distribution at \[20, 0\] and \d+ others: from_uniforms draws output "
        r"\[20, 0\] in ([\d,]+) of \1 draws, stated [\d.]+ % \([\d,]+ draws at each of \d+ data sets, level 1e-06\)",
        audits["truth"]["evidence"],
    )
    assert re.search(
        r"; draws agree: [\d,]+ at each of \d+ data sets, level 1e-06 \(n = 10, 20\)$", audits["right"]["evidence"]
    )
    labels = [label_method(ds, "mechanism", name) for name in ("ten-times", "half", "no-pmf", "truth", "laplace")]
    broken, half, _, draws, _ = labels
    assert labels == [
        f"ten-times (broken: loses 10 at n = {n})", "half (audited to n = 20)", "no-pmf (unaudited)",
        f"truth ({of_truth})", "laplace",
    ]  # fmt: skip
    summary = pipeline.summarise(ds)
    assert float(summary.hellinger_mean.sel(mechanism="truth").max()) == 0.0
    looks = looks_of(MECHANISM_STYLES, "mechanism", [summary])
    assert [looks[label].origin for label in (broken, half, draws)] == ["broken", "added", "broken"]
    rows = {row[0]: row for row in rank_added({"k2": summary}).rows}
    assert rows["ten-times"][2:4] == (f"broken: loses 10 at n = {n}", "not ranked, as its guarantee is broken")
    unranked = "not ranked, as its draws do not follow its stated distribution"
    assert rows["truth"][2:] == (of_truth, unranked, audits["truth"]["evidence"])
    assert rows["half"][3] == "rank 3 of 4, behind laplace at every n; geometric is best"
    assert "added" in {row[1] for row in compare_accuracy({"k2": summary}).rows}
    status = command("status", "s.zarr")[1]
    assert f"audit of ten-times in panel k2: broken: loses 10 at n = {n}\n" in status
    assert f"audit of truth in panel k2: {of_truth}\n" in status
    assert broken in command("summarise", "s.zarr")[1]
    opened = ResultStore.open("s.zarr")
    ((_, finding),) = write_report(opened, study.from_spec(opened.spec), tmp_path / "page.html")
    assert finding.evidence == f"It is. Audit of ten-times: broken: loses 10 at n = {n}."
    page = (tmp_path / "page.html").read_text()
    for text in (f"loses 10 at n = {n}", "behind laplace at every n", "no-pmf (unaudited)", of_truth):
        assert text in page
    assert not verify("s.zarr", study=study).problems


@pytest.mark.slow
def test_draws_are_compared_at_each_audited_size_of_the_panel():
    """Draws that are wrong at one n of the panel only are found, also if it is not the largest."""
    right = GEOMETRIC.release(np.ones(2), np.array([1, 0]), 1.0, 0.0)
    panel = STUDIES["hellinger-accuracy"].panel("k2").with_values("n", [5, 10, 20])
    for n in (5, 10, 20):

        def draw(self, uniforms, n=n):
            return draw_truth(self, uniforms) if self.n == n else type(right).from_uniforms(self, uniforms)

        result = with_mechanisms(panel, altered("some", from_uniforms=draw)).methods[-1].audit(panel)
        assert describe_audit(result) == f"broken: draws do not follow the stated distribution at n = {n}"


def test_audit_that_compares_no_draws_says_so(monkeypatch):
    """Without time for the comparison, or if it raises an error, label and evidence state that there was none."""
    panel = STUDIES["hellinger-accuracy"].panel("k2").with_values("n", [5, 10])
    (method,) = with_mechanisms(panel, TRUTH).methods[-1:]
    result = method.audit(panel, seconds=0.0)
    assert describe_audit(result) == "audited to n = 1, draws not compared"
    reason = "a comparison of 1,000 draws by each sampler at 2 data sets takes more than"
    assert f"; draws not compared: {reason}" in result["evidence"]

    def refuse(*arguments):
        raise RuntimeError("no\ndraws")

    monkeypatch.setattr("studies.counts.added_mechanisms.audit_draws", refuse)
    result = method.audit(panel)
    assert describe_audit(result) == "audited to n = 10, draws not compared"
    assert result["evidence"].endswith("; draws not compared: RuntimeError: no draws")


def test_draws_that_are_not_compared_at_one_prior_are_named(monkeypatch):
    """If draws are compared at one prior only, the result for both priors states that they are not at the other."""
    panel = STUDIES["hellinger-accuracy"].panel("k2").with_values("n", [5])
    audit = with_mechanisms(panel, HONEST).methods[-1].audit
    problems = iter([((1.0, 1.0), (3, 2)), ((2.0, 1.0), (5, 5))] * 100)
    compared = added_mechanisms.audit_draws

    def compare(mechanism, prior, *rest):
        return (
            compared(mechanism, prior, *rest) if prior == (1.0, 1.0) else DrawsAudit(None, 0, "draws not compared: x")
        )

    monkeypatch.setattr(added_mechanisms, "audit_draws", compare)
    panel = panel.with_values("n", [5, 10])
    result = added_mechanisms.audit_added(audit.args[0], lambda values: next(problems), panel)
    assert describe_audit(result) == "audited to n = 5, draws not compared"
    assert result["evidence"].endswith("; draws not compared: x (n = 10)")


def test_audits_of_earlier_stores_are_described_as_they_were():
    assert describe_audit({"verdict": "holds", "n": 40, "loss": 1.0, "stated": 1.0}) == "audited to n = 40"


def test_own_mechanism_is_shown_at_first_next_to_the_best_and_the_baseline():
    """The lines of an own mechanism and of a broken one are shown besides those that are declared and the best one."""
    names = [*MECHANISMS, "mine", "bad"]
    variables = ("hellinger_mean", "hellinger_mcse", "expected_hellinger")
    values = {name: (("n", "mechanism"), np.ones((2, len(names)))) for name in variables}
    audits = {"bad": {"verdict": "broken", "n": 9, "loss": 2.0}}
    ds = xr.Dataset(values, {"n": [20, 40], "mechanism": ("mechanism", names, {"audits": json.dumps(audits)})})
    (plot,) = accuracy("k3")({"k3": ds})
    declared = {*accuracy("k3").first, "smooth"}
    assert set(plot.shown) == {*declared, "mine", "bad (broken: loses 2 at n = 9)"}
    looks = [plot.looks[name] for name in ("mine", "bad (broken: loses 2 at n = 9)")]
    assert [look.origin for look in looks] == ["added", "broken"]
    assert len({look.color for look in looks} | {INK}) == len({look.marker for look in looks}) + 1 == 3


def test_built_in_mechanisms_are_not_audited_again():
    assert not any(method.audit for panel in STUDIES["hellinger-accuracy"].panels for method in panel.methods)


@pytest.mark.parametrize(("k", "seconds"), [(2, 10.0), (3, 10.0), (4, 10.0), (3, 0.0), (2, 1e6)])
def test_audits_of_an_added_mechanism_fit_into_their_time(k, seconds):
    """If the time of an audit is proportional to its work, all audits fit, and twice as many records would not."""
    audited, times = [], []
    for n in audited_sizes({3, 500}, k, lambda: seconds - sum(times)):
        audited.append(n)
        times.append(1e-6 * count_candidates(n, k) ** 2)
    assert audited[0] == 1
    assert (3 in audited) == (audited[-1] >= 3)
    assert len(audited) == 1 or sum(times) <= seconds
    if audited[-1] < 500:
        assert sum(times) + 1e-6 * count_candidates(2 * audited[-1], k) ** 2 > seconds
    assert (audited[-1] == 500) is (k == 2)


def test_audits_include_every_size_of_the_panel_and_show_small_excesses():
    """A mechanism that loses too much at one n of the panel only, or one part in a million, is broken."""

    def build(factor):
        return lambda prior, counts, epsilon, delta: GEOMETRIC.release(prior, counts, factor(counts) * epsilon, delta)

    for n in (5, 10):  # of the panel: 5, 10, 20
        panel = STUDIES["hellinger-accuracy"].panel("k2").with_values("n", [5, 10, 20])
        one = replace(GEOMETRIC, name="one", release=build(lambda counts, n=n: 3.0 if counts.sum() == n else 1.0))
        found = with_mechanisms(panel, one).methods[-1].audit(panel)
        assert describe_audit(found) == f"broken: loses 3 at n = {n}"
    slight = replace(GEOMETRIC, name="slight", release=build(lambda counts: 1.0 + 1e-6))
    found = with_mechanisms(panel, slight).methods[-1].audit(panel)
    assert describe_audit(found) == f"broken: loses 1.000001 at n = {found['n']}"


@pytest.mark.slow
def test_audits_are_kept_when_a_store_grows(tmp_path):
    panel = with_mechanisms(STUDIES["hellinger-accuracy"].panel("k2"), HONEST, BROKEN)
    study = replace(STUDIES["hellinger-accuracy"], panels=(panel,), claims=())
    chosen = {"n": [4], "mechanism": ["half"]}
    pipeline.run(study, tmp_path / "s.zarr", values=chosen, trials=10)
    before = stored_audits(xr.open_zarr(tmp_path / "s.zarr", group="k2"), "mechanism")
    pipeline.extend(tmp_path / "s.zarr", study=study, values={"n": [8], "mechanism": ["ten-times"]})
    after = stored_audits(xr.open_zarr(tmp_path / "s.zarr", group="k2"), "mechanism")
    assert after["half"] == before["half"]
    assert after["ten-times"]["verdict"] == "broken"


@pytest.mark.slow
def test_draws_depend_on_the_name_of_the_study(folder, published, run_panel):
    study = replace(find_study(f"{folder}/my_study.py", {}).load(), name="mine")
    other = run_panel(study, "k2", trials=200, n=[20, 40]).sel(mechanism=published.mechanism)
    assert (other.hellinger != published.hellinger).mean() > 0.5
    xr.testing.assert_equal(other.expected_hellinger, published.expected_hellinger)


def test_files_import_modules_of_their_folder(tmp_path, monkeypatch):
    """In any current folder, files of mechanisms and studies can import modules next to them."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder, name in (("a", "beside_a_mechanism"), ("b", "beside_a_study")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("from studies.inference.gibbs_traces import STUDY")
        (tmp_path / folder / "mine.py").write_text(f"from {name} import STUDY")
    assert load_object(f"{tmp_path}/a/mine.py:STUDY") is STUDIES["gibbs-traces"]
    assert find_study(f"{tmp_path}/b/mine.py", {}).load() is STUDIES["gibbs-traces"]


TOY = STUDY_FILE.replace(', Method("odd", odd)', ",").replace('"toy", "A toy"', '"NAME", "A plugin\'s study"')
DISTRIBUTIONS = """
from mechanisms import MECHANISMS, Guarantee, Mechanism, OutputDistributions

DISTRIBUTIONS = OutputDistributions.from_table([[0.75, 0.25], [0.25, 0.75]], pairs=[[0, 1]])
GEOMETRIC = Mechanism("geometric-too", release=MECHANISMS["geometric"].release, guarantee=lambda e, d: Guarantee(e))
"""


def install(folder, package, code, **groups):
    """Write a module, and the metadata of an installed package with entry points for ``studies`` and ``mechanisms``."""
    (folder / f"{package}.py").write_text(code)
    information = folder / f"{package}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "\n".join(
            f"[dpstudies.{group}]\n" + "\n".join(f"{name} = {place}" for name, place in points.items())
            for group, points in groups.items()
        )
    )


@pytest.mark.slow
def test_studies_of_packages_are_listed(tmp_path):
    """Studies of installed packages are listed; a broken package causes a one-line warning and no other failure."""
    install(tmp_path, "good_studies", TOY.replace("NAME", "toy-study"), studies={"toy-study": "good_studies:STUDY"})
    install(tmp_path, "bad_studies", "1 / 0", studies={"no-study": "bad_studies:STUDY"})
    install(tmp_path, "bold_studies", TOY, studies={"calibration": "bold_studies:STUDY"})
    install(tmp_path, "odd_studies", TOY.replace("NAME", "even"), studies={"odd": "odd_studies:STUDY"})
    done = run_python(*COMMAND, "list", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert done.returncode == 0
    listed = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert listed == [*MODULES.built_in, "toy-study"]
    assert sorted(done.stderr.splitlines()) == [
        "dpstudies: calibration is built in and cannot be registered in dpstudies.studies, as bold_studies does; "
        "choose another name",
        "dpstudies: the study no-study is omitted: cannot load the study bad_studies:STUDY: ZeroDivisionError: "
        "division by zero",
        "dpstudies: the study odd is omitted: odd_studies:STUDY is registered as odd, but its study is named even; "
        "register it as even",
    ]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a package for this process only; modules need unique names."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda *words, **groups: install(tmp_path, *words, **groups)


def test_registered_study_runs_by_name(installed, command, refused):
    installed("run_studies", TOY.replace("NAME", "run-me"), studies={"run-me": "run_studies:STUDY"})
    assert command("run", "run-me", "--store", "s.zarr")[0] == 0
    assert command("resume", "s.zarr")[0] == 0
    assert xr.open_zarr("s.zarr", group="p").x.sizes == {"n": 2, "algorithm": 1, "trial": 7}
    refused("run", "run-you", "--store", "t.zarr", message="did you mean run-me?")


def test_registered_studies_are_in_the_mapping(installed):
    before = len(STUDIES)
    installed("mapped_studies", TOY.replace("NAME", "mapped"), studies={"mapped": "mapped_studies:STUDY"})
    installed("wrong_studies", "1 / 0", studies={"wrong": "wrong_studies:STUDY"})
    assert "mapped_studies" not in sys.modules
    assert MODULES["mapped"] == "mapped_studies:STUDY"
    assert "mapped" in STUDIES
    assert "mapped_studies" not in sys.modules  # a study is imported when it is accessed
    assert STUDIES["mapped"].title == "A plugin's study"
    with pytest.raises(BadInputError, match="cannot load the study wrong_studies:STUDY: ZeroDivisionError"):
        STUDIES["wrong"]
    with pytest.raises(KeyError):
        STUDIES["absent"]
    with pytest.warns(UserWarning, match="the study wrong is omitted: cannot load"):
        assert list(STUDIES)[before:] == ["mapped"]


def test_name_registered_by_two_packages_is_refused(installed):
    for package in ("first_studies", "second_studies"):
        installed(package, TOY.replace("NAME", "both"), studies={"both": f"{package}:STUDY"})
    message = "both is registered in dpstudies.studies by first_studies and second_studies; uninstall one of them"
    with pytest.raises(BadInputError, match=message):
        find_study("both", MODULES)
    with pytest.warns(UserWarning, match=message):
        assert "both" not in list(STUDIES)


@pytest.mark.slow
def test_packages_register_mechanisms(installed, command, printed, refused, monkeypatch):
    monkeypatch.setattr("studies.audits._DRAWS_SECONDS", 0.0)  # draws are not compared
    points = {
        "geometric-too": "distributions_plugin:GEOMETRIC",
        "response": "distributions_plugin:DISTRIBUTIONS",
        "laplace": "distributions_plugin:DISTRIBUTIONS",
    }
    installed(
        "distributions_plugin",
        DISTRIBUTIONS,
        mechanisms={**points, "gone": "distributions_plugin:GONE", "text": "distributions_plugin:__name__"},
    )
    assert REGISTERED.added() == ["geometric-too", "gone", "response", "text"]
    at = ("--prior", "1:1", "--n", "10", "--epsilon", "1")
    out = printed("audit", "geometric-too", "geometric", *at)
    rows = [line.split() for line in out.splitlines()[1:3]]
    assert rows[0][0] == "geometric-too"
    assert rows[0][1:] == rows[1][1:]
    assert command("audit", "response", "--epsilon", "1")[0] == 1
    refused("audit", "respnse", *at, message="did you mean response?")
    refused("audit", "gone", *at, message="unknown object of distributions_plugin 'GONE'")
    audited, left_out = audit_named(["all"], Question((1.0, 1.0), 10, 1.0))
    assert "geometric-too" in [one.name for one in audited]
    for reason in ("laplace is built in and cannot be registered", "'GONE'", "must be a mechanisms.Mechanism"):
        assert sum(reason in line for line in left_out) == 1
