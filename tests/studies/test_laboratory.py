"""Tests of all studies in one folder: runs, interrupts, resumption, errors, and the tables on their page."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from scipy import integrate, stats

import pipeline
from pipeline import BadInputError, Scale
from pipeline.store.files.locations import SESSIONS, STATE
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions.lease import Session
from studies import MODULES, STUDIES, folders
from studies.commands import collection as commands
from studies.counts import hellinger_accuracy_claims
from studies.folders import configure, is_folder, require_folder, store_path
from studies.inference import formula_errata as inference_errata
from studies.renyi import renyi_curves as renyi_errata
from studies.report import collection as collection_module
from studies.report import results
from studies.report.collection import tabulate_audits, verdicts_as_markdown
from studies.report.papers import PAPERS
from studies.report.provenance import describe_folder
from studies.report.results import list_comparisons, list_errata, load_results
from tests.studies.cases import CASES
from tests.studies.conftest import contents
from tests.studies.test_cli import STUDY_FILE

FEW = {
    "gibbs-traces": Scale(values={"iteration": (0, 1, 2)}),
    "renyi-curves": Scale(None, ("diffused", "concentrated"), {"coefficient": (0.5,), "order": (1.5, 2.0)}),
    "renyi-utility": Scale(3, ("loglik",), {"epsilon": (0.1,), "order": (2.0,)}),
}


@pytest.fixture
def few(monkeypatch):
    """Replace the registered studies by three fast ones."""
    studies = {name: replace(STUDIES[name], quick=scale) for name, scale in FEW.items()}
    for module in (folders, results, commands):
        monkeypatch.setattr(module, "STUDIES", studies)
    return studies


RUN = ("run", "all", "--store", "lab", "--scale", "quick")


@pytest.mark.slow
def test_run_all_twice_then_report(command, printed, tmp_path, few):
    code, out, err = command(*RUN)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [*few, "complete;"]
    assert "renyi-curves (2 of 3): 2 of 19 evaluations" in err  # of all studies
    assert "renyi-utility (3 of 3), panel loglik: 19 of 19 evaluations" in err
    before = contents(tmp_path)
    code, out, err = command(*RUN)
    assert (code, out.count("already complete"), err) == (0, 3, "")
    assert contents(tmp_path) == before
    out = printed("report", "lab", "--markdown", "verdicts.md")
    assert "report: lab/report.html, verdicts: verdicts.md" in out
    page = (tmp_path / "lab/report.html").read_text()
    assert "All evaluations done." in page
    assert "3 studies" in page
    software = yaml.safe_load(Path(__file__).parents[2].joinpath("CITATION.cff").read_text())
    assert f"{software['authors'][0]['name']}. {software['title']}, version {software['version']}. " in page
    assert "renyi-curves.zarr (seed " in page
    assert page.count("<figure") == 3
    links = re.findall(r'(?:src|href)="(?!data:|#)([^"]*)"', re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert set(links) <= {paper.url for paper in PAPERS}
    assert "default-src 'none'" in page.replace("&#39;", "'")
    lines = (tmp_path / "verdicts.md").read_text().splitlines()
    assert "`dpstudies run all --store lab --scale quick`" in lines[0]
    claims = [claim for study in few.values() for claim in study.claims if claim.kind == "conclusion"]
    assert len(lines) == 4 + len(claims)
    assert all(line.count(" | ") == 2 for line in lines[4:])
    _lose_records(tmp_path / "lab", "gibbs-traces")
    found, _ = load_results("lab")
    assert [len(one.sessions) for one in found.values()] == [1, 1, 1]  # a damaged record is read from its copy
    assert [row[0] for row in collection_module._times(found).rows] == [*few, "all"]
    origin = verdicts_as_markdown([], found)
    assert origin.count("`dpstudies run all --store lab --scale quick`") == 1
    first = next(one for one in found.values() if one.sessions).sessions[0]
    first["command"] = "dpstudies run renyi-curves"
    assert ": `dpstudies run renyi-curves`, `dpstudies run all --store lab" in verdicts_as_markdown([], found)
    _lose_records(tmp_path / "lab", *few)
    for name in few:
        assert command("status", f"lab/{name}.zarr")[0] == 3
        assert command("verify", f"lab/{name}.zarr", "--sample", "0", "--repair")[0] == 0
    found, _ = load_results("lab")
    assert verdicts_as_markdown([], found).startswith("The records of the sessions that computed these results were lo")
    assert [row[0] for row in describe_folder("lab", found)] == ["Folder", "Page written by"]


@pytest.mark.slow
def test_incomplete_store_has_figures_and_a_page(tmp_path, monkeypatch):
    """A third of the blocks of a study leaves no cell whole in some panels."""
    name = "hellinger-sensitivity"
    monkeypatch.setattr(results, "STUDIES", {name: STUDIES[name]})
    pipeline.run(STUDIES[name], store_path(tmp_path, name), share="1/3", **CASES[name].run)
    (tmp_path / "mine.zarr").mkdir()
    counts = collection_module.write_collection(tmp_path, tmp_path / "report.html")
    assert counts["undecided"] == counts.total() == len(STUDIES[name].claims)
    page = (tmp_path / "report.html").read_text()
    assert f"{name}: Share 1/3 of a run. All evaluations done." in page
    assert page.count("<figure") >= 1
    assert f"<b>mine.zarr is not on this page.</b> Its own page: dpstudies report {tmp_path / 'mine.zarr'}" in page


@pytest.mark.parametrize("versions", [{}, {"versions": None}, {"versions": {}}])
def test_records_of_somebody_else_may_lack_fields(versions):
    session = {"started": "2026-01-02T03:04:05Z", **versions}
    store = SimpleNamespace(attributes={"seed": 7, "spec_sha256": 64 * "a"})
    foreign = {"s": SimpleNamespace(sessions=[session], store=store)}
    assert verdicts_as_markdown([], foreign).startswith("dpstudies unknown, 2026-01-02: `unknown`\n")
    assert collection_module._origins(foreign).rows == [("s", "7", "unknown", 16 * "a", "unknown")]


def test_page_that_cannot_be_written_is_not_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(collection_module, "load_results", lambda folder: pytest.fail("computed"))
    (tmp_path / "file").touch()
    for path in ("file/report.html", "none/report.html"):
        with pytest.raises(OSError, match=path):
            collection_module.write_collection(tmp_path, tmp_path / path)


def _lose_records(folder, damaged, *lost):
    """Damage the session record of one store, or delete the hidden files of several stores."""
    for record in (folder / f"{damaged}.zarr" / SESSIONS).iterdir() if not lost else ():
        record.write_bytes(record.read_bytes()[:-20])
    for name in (damaged, *lost) if lost else ():
        shutil.rmtree(folder / f"{name}.zarr" / STATE)


def _fail_at(monkeypatch, name, error):
    """Make the run of one study raise `error`; return a function that removes the failure."""
    real = pipeline.run

    def run(source, path, **how):
        if name in path:
            raise error
        return real(source, path, **how)

    monkeypatch.setattr(pipeline, "run", run)
    return lambda: monkeypatch.setattr(pipeline, "run", real)


@pytest.mark.slow
def test_interrupt_keeps_finished_studies(command, tmp_path, few, monkeypatch):
    repair = _fail_at(monkeypatch, "renyi-curves", KeyboardInterrupt())
    code, out, err = command(*RUN, "--seed", "5")
    assert code == 130
    assert "continue with: dpstudies run all --store lab --scale quick --seed 5" in err
    assert [path.name for path in (tmp_path / "lab").iterdir()] == ["gibbs-traces.zarr"]
    repair()
    code, out, _ = command(*RUN, "--seed", "5")
    assert (code, out.count("already complete")) == (0, 1)


def test_errata_of_missing_stores_have_no_numbers():
    assert ("The store of calibration is missing.",) in {row[3:] for row in results.list_errata({})}


@pytest.mark.slow
def test_failure_of_one_study_does_not_stop_the_others(command, tmp_path, few, monkeypatch):
    repair = _fail_at(monkeypatch, "renyi-curves", RuntimeError("no such luck"))
    code, out, err = command(*RUN)
    assert code == 3
    assert "renyi-curves (2 of 3) cannot be run: no such luck" in err
    assert "incomplete: renyi-curves; continue with: dpstudies run all --store lab --scale quick" in out
    assert sorted(path.name for path in (tmp_path / "lab").iterdir()) == ["gibbs-traces.zarr", "renyi-utility.zarr"]
    code, _, err = command("report", "lab")
    assert code == 0
    assert err.count(" is not shown: ") == err.count("\n") == 1
    assert "renyi-curves is not shown: " in err
    page = (tmp_path / "lab/report.html").read_text()
    assert "Studies missing." in page
    assert "renyi-curves is missing." in page
    repair()
    assert command(*RUN)[0] == 0


@pytest.mark.slow
def test_incomplete_store_is_named_and_stops_no_other_study(command, tmp_path, few):
    """A compact store is complete, and a study whose store another session writes is the only one left out."""
    assert command(*RUN)[0] == 0
    lab = tmp_path / "lab"
    pipeline.compact(lab / "gibbs-traces.zarr", tmp_path / "compact.zarr")
    shutil.rmtree(lab / "gibbs-traces.zarr")
    shutil.move(tmp_path / "compact.zarr", lab / "gibbs-traces.zarr")
    for part in ("renyi-curves.zarr/diffused", "renyi-utility.zarr/loglik"):
        next(path for path in (lab / part / "status/c").rglob("*") if path.is_file()).unlink()
    with Session.begin(str(lab / "renyi-curves.zarr"), {}):
        code, out, err = command(*RUN)
    assert (code, "gibbs-traces (1 of 3): already complete" in out) == (3, True)
    assert "renyi-curves (2 of 3) cannot be run: the store " in err
    assert "renyi-utility (3 of 3): 3 evaluations" in out
    assert "incomplete: renyi-curves; continue with: " in out
    assert command(*RUN)[0] == 0
    next(path for path in (lab / "renyi-utility.zarr/loglik/status/c").rglob("*") if path.is_file()).unlink()
    assert command("report", "lab", "--output", "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "renyi-utility: Evaluations pending." in page
    assert "renyi-curves: " not in page
    assert command(*RUN)[0] == 0


@pytest.mark.slow
def test_failed_trials_exit_with_1_and_names_are_escaped(command, tmp_path, few, monkeypatch):
    """A custom study with failed trials leads to exit code 1, and its titles are escaped."""
    (tmp_path / "toy_of_one.py").write_text(STUDY_FILE.replace('"A toy"', '"<i>A toy</i>"'))
    monkeypatch.syspath_prepend(tmp_path)
    import toy_of_one

    for module in (folders, results, commands):
        monkeypatch.setattr(module, "STUDIES", {"gibbs-traces": STUDIES["gibbs-traces"], "toy": toy_of_one.STUDY})
        monkeypatch.setattr(module, "MODULES", {**MODULES, "toy": "toy_of_one:STUDY"}, raising=False)
    folder = "<b>lab"
    code, out, _ = command("run", "all", "--store", folder, "--scale", "quick")
    assert code == 1
    assert "7 trials failed; next" in out
    assert command("report", folder)[0] == 0
    page = (tmp_path / folder / "report.html").read_text()
    assert "All evaluations done, some failed." in page
    assert ("<b>lab" in page, "<i>A toy" in page) == (False, False)
    assert ("&lt;b&gt;lab" in page, "&lt;i&gt;A toy" in page) == (True, True)


@pytest.mark.slow
def test_quick_scale_of_one_study_has_all_its_quick_panels(command, refused):
    study = STUDIES["renyi-curves"]
    assert command("run", "renyi-curves", "--store", "s.zarr", "--scale", "quick", "--seed", "7")[0] == 0
    expected = study.configure(**configure(study, "quick", 7)).spec()
    assert ResultStore.open("s.zarr").spec == expected
    words = ("run", "renyi-curves", "--store", "t.zarr", "--scale", "quick", "--trials", "5")
    refused(*words, message="must be omitted with --scale")


def test_markdown_is_for_all_studies(refused, tmp_path):
    pipeline.run(STUDIES["renyi-curves"], tmp_path / "s.zarr", values=FEW["renyi-curves"].values)
    refused("report", "s.zarr", "--markdown", "x.md", message="--markdown is for a folder")


@pytest.mark.slow
def test_foreign_folders_are_refused_and_not_changed(command, refused, tmp_path, few):
    command(*RUN)
    (tmp_path / "letter.txt").write_text("a letter")
    for folder, message in (
        ("lab/renyi-curves.zarr", "must be a folder for the stores"),
        ("letter.txt", "must be a writable folder"),
        ("lab", "a different spec, scale or code version"),
    ):
        refused("run", "all", "--store", folder, message=message)
    for options in (("--figures", "f"), ("--study", "x")):
        refused("report", "lab", *options)
    refused("report", "lab", "--output", "absent/page.html", message="a .html or .htm file in an existing folder")


def test_folder_without_stores():
    assert not is_folder("/absent")
    with pytest.raises(BadInputError, match="contains no store of a study"):
        load_results("/absent")


def test_folder_with_stores_of_other_studies_only_names_them(refused, tmp_path):
    (tmp_path / "lab/own.zarr").mkdir(parents=True)
    refused("report", "lab", message="got own.zarr; report each store: dpstudies report lab/own.zarr")


def evaluations(study):
    return sum(len(panel.cells()) * panel.n_trials * len(panel.settings()) for panel in study.panels)


def test_studies_without_a_quick_scale_take_seconds():
    whole = [study for study in STUDIES.values() if study.quick == Scale()]
    assert whole
    assert max(map(evaluations, whole)) <= 10_000 < evaluations(STUDIES["calibration"])


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_quick_scale_is_a_smaller_part_of_the_published_scale(name):
    published, quick = STUDIES[name].configure(), STUDIES[name].configure(**configure(STUDIES[name], "quick"))
    assert evaluations(quick) < evaluations(published) or STUDIES[name].quick == Scale()
    for part in quick.panels:
        whole = published.panel(part.name)
        assert part.trials is None or part.trials <= whole.trials
        for role in ("factors", "method_factors", "outputs", "constants"):
            for axis, stated in zip(getattr(part, role), getattr(whole, role), strict=True):
                assert set(axis.values) <= set(stated.values), (part.name, axis.name)


@pytest.mark.slow
def test_published_scale_is_that_of_the_study(tmp_path):
    for study in STUDIES.values():
        assert study.configure(**configure(study)) == study.configure()
    require_folder(tmp_path / "new", "published", None)
    assert not (tmp_path / "new").exists()
    assert store_path("s3://bucket/lab", "a") == "s3://bucket/lab/a.zarr"


def test_every_study_claim_and_erratum_has_its_paper():
    papers = {paper.key for paper in PAPERS}
    for study in STUDIES.values():
        assert study.papers or "conclusion" not in {claim.kind for claim in study.claims}
        assert set(study.papers) <= papers
        assert {claim.paper for claim in study.claims} <= {"", *papers}
        for claim in study.claims:
            assert claim.erratum is None or (claim.erratum.paper or claim.paper) in papers
            assert claim.erratum is None or claim.erratum.place or claim.place
        assert all(erratum.paper in papers and erratum.place and erratum.show for erratum in study.errata)
    assert {paper for study in STUDIES.values() for paper in study.papers} == papers


def _numbers(text):
    return [float(number.replace(",", "")) for number in re.findall(r"-?\d[\d,]*\.?\d*(?:e[+-]\d+)?", text)]


def test_computed_numbers():
    """Each printed formula disagrees with an independent value, and each corrected formula agrees."""
    assert _numbers(inference_errata.wald({}))[-2:] == [2.0, 1.0]
    assert _numbers(inference_errata.kernel_mass({}))[-1] == 1.0
    assert _numbers(inference_errata.kernel_mass({}))[-2] < 0.5
    *_, quadrature, right, _ = _numbers(renyi_errata.gamma({}))
    assert quadrature == right
    *_, quadrature, right, wrong = _numbers(renyi_errata.trigamma({}))
    assert quadrature == right
    assert wrong < 0
    *_, inside, right, wrong = _numbers(inference_errata.random_sum({}))
    assert inside == right
    assert wrong > 2 * right
    *_, exact, right, wrong = _numbers(inference_errata.normal_variance({}))
    assert exact == right != wrong
    assert _numbers(hellinger_accuracy_claims.candidates({}))[2] == 5151  # 5151 is 102 choose 2


def test_covariance_of_regions():
    """The printed covariance of the sums in two regions equals its value by quadrature."""
    distribution = stats.expon(scale=0.25)

    def moment(low, high, power):
        return integrate.quad(lambda x: x**power * distribution.pdf(x), low, high)[0]

    low, high = inference_errata._BOUNDS
    expected = -1000 * moment(low, high, 1) * moment(high, 50, 1)
    found = _numbers(inference_errata.shared_regions({}))
    assert found[4] == pytest.approx(expected, abs=5e-4)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Return audits at a skewed prior, where `local` is not private, and results on quantiles from partitions."""
    folder = tmp_path_factory.mktemp("audited")
    values = {"prior": ["0.01:100"], "n": [300], "epsilon": [0.1], "mechanism": ["smooth", "local", "geometric"]}
    pipeline.run(STUDIES["privacy-audit"], folder / "privacy-audit.zarr", panels=["binomial"], values=values)
    study = STUDIES["partition-quantile"]
    pipeline.run(
        study, folder / "partition-quantile.zarr", panels=["default", "audit"], trials=3, values={"n": [20_000]}
    )
    results, missing = load_results(folder)
    assert set(missing) == set(STUDIES) - set(results)
    assert set(results) == {"privacy-audit", "partition-quantile"}, missing["partition-quantile"]
    return results


@pytest.mark.slow
def test_audited_losses(audited):
    rows = {row[0]: row for row in tabulate_audits(audited).rows}
    assert rows["local"][1:3] == ("none", "not private")
    assert float(rows["local"][4]) == pytest.approx(1.10, abs=0.01)
    assert rows["geometric"][1:6] == ("ε-DP", "holds", rows["geometric"][3], "1.000000", "0.00%")
    assert rows["smooth"][1:3] == ("(ε, δ)-DP, conjectured", "holds")
    assert float(rows["smooth"][4]) == pytest.approx(1 - float(rows["smooth"][5].rstrip("%")) / 100, abs=1e-4)
    for row in rows.values():  # the stored loss is a share of the audited epsilon
        assert min(abs(float(row[3]) / float(row[4]) - epsilon) for epsilon in (0.1, 0.45, 0.9, 1, 3)) < 1e-3, row
    assert rows["quantile"][2] == rows["quantile-centred"][2] == "holds"
    # A window distribution has at least half of its epsilon as its loss, and Laplace noise has all of it.
    assert (0.2 / 2 + 0.25 / 2 + 0.45) / 0.9 <= float(rows["quantile-centred"][4]) <= 1


@pytest.mark.slow
def test_comparisons_show_stored_numbers(audited):
    (table,) = list_comparisons(audited)
    assert table.title == "Posterior quantiles from partitions"
    assert [row[:2] for row in table.rows] == [
        ("quantile", "P2"),
        ("quantile-centred", "ours"),
        ("quantile-exact", "ours"),
    ]
    summary = audited["partition-quantile"].summaries["default"].sel(algorithm="quantile-centred")
    largest = summary["difference_median"].values[np.argmax(np.abs(summary["difference_median"].values))]
    assert float(table.rows[1][3].split(" ± ")[0]) == pytest.approx(largest, rel=1e-3)


@pytest.mark.slow
def test_errata_take_their_numbers_from_the_stores(audited):
    shown = {row[:2]: row[3] for row in list_errata(audited)}
    total = next(text for (where, _), text in shown.items() if where == "P2, equations 4.3 and 4.5")
    n_partitions, slope, _, mean, _, printed = _numbers(total)
    assert (n_partitions, slope) == (20, 2)
    assert printed == pytest.approx(20 * mean, abs=1e-2)
    assert sum("The store of" in text for text in shown.values()) > 10


def test_quick_scale_of_a_copy_leaves_out_panels_and_axes_that_it_lacks():
    for study in STUDIES.values():
        whole = study.configure(**configure(study, "quick"))
        for panel in study.panels:
            part = replace(study, panels=(panel,), claims=(), figures=())
            quick = part.configure(**configure(part, "quick"), check=False)
            assert [kept.name for kept in quick.panels] == [panel.name]
            if panel.name in (study.quick.panels or [panel.name]):
                assert quick.panels[0].spec() == whole.panel(panel.name).spec()
