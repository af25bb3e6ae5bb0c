"""Tests of every registered study on the small run of its case; the numbers are tested in other files."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import pipeline
from pipeline import Claim
from pipeline.blocks.repetition import find_defect, first_trials, shared_methods
from pipeline.declare.source import StudySource
from pipeline.execution.checks import rerun_trial
from pipeline.results.verdicts import check, undecided
from pipeline.runs.resolve import study_of
from pipeline.store.result_store import ResultStore
from studies import MODULES, STUDIES
from studies.figures import convert, describe_hidden, interactive, specify
from studies.figures import plot as plot_module
from studies.figures.first_lines import MAX_LINES
from studies.report import drawable, judge
from studies.styles import INK
from tests.studies.case import EVERY, change
from tests.studies.cases import CASES
from tests.studies.first_lines_check import hidden_winners, six_in_turn
from tests.studies.svg_text import overlapping, texts

every_study = pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
REFUSED = [
    pytest.param(name, panel, given, message, id=f"{name}-{panel}-{given}")
    for name, case in CASES.items()
    for panel, options in case.refused.items()
    for given, message in options.items()
]
FLIPS = [
    pytest.param(STUDIES[name], flip, id=f"{name}-{number}-{next(iter(flip.verdicts), flip.others)}")
    for name, case in CASES.items()
    for number, flip in enumerate(case.flips)
]


def findings(study, summaries, claims=()):
    """Return the findings of all or some claims on the panels that they need; sizes that the case lacks are ignored."""
    chosen = tuple(claim for claim in study.claims if not claims or claim.name in claims)
    if CASES[study.name].needs_all:
        return {claim.name: found for claim, found in judge(replace(study, claims=chosen), summaries)}
    of_any_size = {claim.name: replace(claim, declared={panel: {} for panel in claim.needs}) for claim in chosen}
    return {
        claim.name: undecided(study, of_any_size[claim.name], summaries) or check(study, claim, summaries)
        for claim in chosen
    }


def verdicts(study, summaries, claims=()):
    return {name: finding.verdict for name, finding in findings(study, summaries, claims).items()}


def without_case(studies):
    return set(studies) - set(CASES)


def test_every_study_has_a_case():
    assert not without_case(STUDIES)
    assert set(CASES) <= set(STUDIES)


def test_study_without_a_case_is_found():
    assert without_case({**STUDIES, "new-study": STUDIES["gibbs-traces"]}) == {"new-study"}


def undeclared_claims(modules, studies):
    declared = {id(claim) for study in studies for claim in study.claims}
    found = (value for module in modules for value in vars(module).values() if isinstance(value, Claim))
    return {claim.name for claim in found if id(claim) not in declared}


def test_every_claim_belongs_to_a_study():
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("studies.") and "templates" not in name  # files that users change
    ]
    assert undeclared_claims(modules, STUDIES.values()) == set()
    others = [study for study in STUDIES.values() if study.name != "renyi-curves"]
    assert undeclared_claims(modules, others) == {claim.name for claim in STUDIES["renyi-curves"].claims}


@every_study
def test_study_is_registered(study):
    assert STUDIES[study.name] is study
    assert StudySource(MODULES[study.name]).load() is study
    assert replace(study, seed=1).spec()["seed"] == 1


@every_study
def test_store_has_the_declared_layout(study, summaries, results):
    """Dimensions, methods, measures and statuses read by xarray are the declared ones."""
    case = CASES[study.name]
    assert set(case.dims) == set(summaries)
    for panel in summaries:
        ds = results(panel)
        declared = study.panel(panel)
        assert set(ds.data_vars) == {measure.name for measure in declared.measures} | {"status", "error"}
        for names, dims in case.dims[panel].items():
            assert {name: ds[name].dims for name in names.split()} == dict.fromkeys(names.split(), tuple(dims.split()))
        for measure in declared.measures:
            assert ds[measure.name].attrs.get("units", "") == measure.unit
        if panel in case.methods:
            assert ds[declared.method_dim].values.tolist() == case.methods[panel].split()
        if declared.method_dim:
            methods = ds[declared.method_dim]
            not_private = {method.name for method in declared.methods if not method.is_private}
            stated = methods.attrs.get("not_private", "").splitlines()
            assert set(stated) == not_private & set(methods.values.tolist())
        assert set(np.unique(ds.status)) == ({1, 5} if panel in case.partial else {1})


@every_study
def test_verdicts(study, prepared):
    case = CASES[study.name]
    found = findings(study, prepared)
    assert {name: found[name].verdict for name in case.verdicts} == case.verdicts
    for name, parts in case.evidence.items():
        for part in parts:
            assert part in found[name].evidence


@pytest.mark.parametrize(("study", "flip"), FLIPS)
def test_verdicts_depend_on_the_results(study, prepared, flip):
    found = findings(study, flip.alter(prepared), () if flip.others else flip.verdicts)
    expected = {name: flip.verdicts.get(name, flip.others) for name in found}
    assert {name: finding.verdict for name, finding in found.items()} == expected
    for name, part in flip.evidence.items():
        assert part in found[name].evidence


@every_study
def test_case_has_two_decided_verdicts_on_every_claim(study):
    case = CASES[study.name]
    expected = {claim.name: set() for claim in study.claims}
    for verdicts_of_run in (case.verdicts, *(flip.verdicts for flip in case.flips)):
        for name, verdict in verdicts_of_run.items():
            expected[name].add(verdict)
    assert {name for name, words in expected.items() if len(words - {"undecided"}) < 2} == set()


@every_study
def test_claims_without_panels_are_undecided(study):
    for finding in findings(study, {}).values():
        assert finding.verdict == "undecided"
        assert finding.evidence.startswith("The store has no panel ")


@every_study
def test_claims_on_pending_or_failed_trials_are_undecided(study, prepared):
    pending = change(EVERY, {}, n_pending=lambda ds: ds.n_pending + 1)
    assert set(verdicts(study, pending(prepared)).values()) == {"undecided"}
    on_trials = [claim.name for claim in study.claims if claim.min_trials]
    assert set(verdicts(study, change(EVERY, {}, n_ok=0)(prepared), on_trials).values()) == {"undecided"}


@every_study
def test_every_figure_is_drawn(study, summaries):
    chosen = CASES[study.name].figures
    figures = [figure for figure in study.figures if not chosen or figure.name in chosen]
    assert drawable(study, summaries) == figures
    assert not drawable(study, change(EVERY, {}, n_ok=0)(summaries))
    for figure in figures:
        assert figure.caption
        stored = {panel: summaries[panel] for panel in figure.panels if panel in summaries}
        plots = figure.draw(stored)
        assert all(plot.y.title for plot in plots)
        assert hidden_winners(plots) == set()
        assert not any(describe_hidden(plots).better.values())
        assert all(len(plot.shown) <= MAX_LINES for plot in plots if plot.named)
        svg = convert("svg", specify(plots)).decode()
        assert len(svg) > 10_000
        shown = json.loads(interactive(plots))
        words = texts(svg)
        assert set(shown["first"]) <= {one.words for one in words} | set(plots[0].titles)
        assert {one.color for one in words} == {INK}  # the text colour of the page, or black: contrast of at least 4.5
        assert min(one.opacity for one in words) == 1
        assert min(one.size for one in words) >= 11
        assert overlapping(words) == []


@pytest.mark.parametrize("study", [STUDIES["hellinger-limits"]], ids=lambda study: study.name)
def test_choice_of_lines_that_ignores_the_results_hides_better_ones(study, summaries, monkeypatch):
    """A control for the check of the figures: six lines of all origins in turn hide the best ones."""
    monkeypatch.setattr(plot_module, "choose_first_lines", six_in_turn)
    for figure in study.figures:
        plots = figure.draw({panel: summaries[panel] for panel in figure.panels if panel in summaries})
        assert hidden_winners(plots)
        assert set(describe_hidden(plots).better["lower estimate"]) == hidden_winners(plots)


def test_overlapping_texts_are_found():
    """A control for the check of the figures: two labels of axes at the same place."""
    words = [{"label": label, "x": x} for label, x in (("published", 0), ("corrected", 0), ("apart", 90))]
    place = {"x": {"field": "x", "type": "quantitative"}, "text": {"field": "label"}}
    spec = {"data": {"values": words}, "mark": {"type": "text", "align": "left"}, "encoding": place}
    assert overlapping(texts(convert("svg", spec).decode())) == [("published", "corrected")]


QUICK = ("calibration", "fixed-width-stopping", "gibbs-traces", "hellinger-sensitivity", "noisy-tables", "renyi-curves")


@pytest.mark.slow
@pytest.mark.parametrize(
    "study",
    [pytest.param(study, marks=() if name in QUICK else pytest.mark.exhaustive) for name, study in STUDIES.items()],
    ids=STUDIES,
)
def test_first_trials_have_no_defect(study):
    """Methods give the same numbers again, in another order, and together with another trial, as runs check."""
    case = CASES[study.name]
    configured = study.configure(panels=list(case.dims), **case.run)
    shared = shared_methods(configured.panels)
    for panel in configured.panels:
        for trial in first_trials(panel, shared=shared[panel.name]):
            assert find_defect(configured, trial) == ""


@pytest.mark.parametrize("study", [STUDIES[name] for name, case in CASES.items() if case.reruns], ids=lambda s: s.name)
def test_trials_computed_again_are_identical(study, store):
    opened = ResultStore.open(store)
    _, configured = study_of(opened, study)
    for panel, cell, trial in CASES[study.name].reruns:
        reruns = rerun_trial(opened, configured, panel, cell, trial)
        assert reruns
        assert all(rerun.equal for rerun in reruns)


@pytest.mark.parametrize("study", [STUDIES[name] for name, case in CASES.items() if case.part], ids=lambda s: s.name)
def test_results_do_not_depend_on_other_values_methods_or_trials(study, results, tmp_path):
    """A run with fewer values, methods and trials has the same bits as the corresponding part of a larger run."""
    part = CASES[study.name].part
    pipeline.run(study, tmp_path / "part.zarr", **part)
    for panel in part["panels"]:
        small = xr.open_zarr(tmp_path / "part.zarr", group=panel).load()
        large = results(panel).sel({name: small[name] for name in small.dims})
        for measure in study.panel(panel).measures:
            np.testing.assert_array_equal(small[measure.name], large[measure.name])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "panel", "given", "message"), REFUSED)
def test_invalid_values_are_refused_before_writing(refused, name, panel, given, message):
    chosen = ("--panel", panel) if panel else ()
    refused("run", name, *chosen, "--set", given, "--store", "s.zarr", message=message)
