"""Tests of the research note: its generator with few stores, and the stored note."""

import re
from pathlib import Path

import pytest

import pipeline
from studies import STUDIES
from studies.report import checkout, findings
from tests.studies.test_cli import STUDY_FILE

NOTE = checkout.find_checkout() / findings.NOTE


@pytest.mark.slow
def test_note_from_a_folder_and_a_store_states_scales_and_names_missing_studies(command, monkeypatch, tmp_path):
    pipeline.run(STUDIES["gibbs-traces"], "lab/gibbs-traces.zarr", progress=False)
    values = {"n": [100]}
    pipeline.run(STUDIES["exact-inference"], "edge.zarr", progress=False, panels=["edge"], trials=5, values=values)
    monkeypatch.setattr(checkout, "find_checkout", lambda: tmp_path)
    (tmp_path / "studies").mkdir()
    assert command("findings", "lab", "edge.zarr")[:2] == (0, "wrote studies/FINDINGS.md\n")
    note = (tmp_path / "studies/FINDINGS.md").read_text()
    assert "* full run: `gibbs-traces`\n* run of " in note
    assert "evaluations: `exact-inference`\n* no store: `" in note
    assert "`hellinger-sensitivity`" in note.split("* no store: ")[1].splitlines()[0]
    figures = [path.relative_to(tmp_path) for path in (tmp_path / ".github").rglob("*.*")]
    assert figures == [Path(findings.FIGURES, "exact-inference-edge.svg")]
    assert f"](../{figures[0]})" in note
    assert "*Figure accuracy-k3: not computed, no store of `hellinger-accuracy`.*" in note
    assert re.findall("^#+ .*", note, re.MULTILINE) == re.findall("^#+ .*", NOTE.read_text(), re.MULTILINE)


@pytest.mark.slow
def test_store_of_a_study_that_is_not_registered_is_refused(command, refused, tmp_path):
    before = NOTE.read_bytes()
    (tmp_path / "toy.py").write_text(STUDY_FILE)
    command("run", "toy.py", "--store", "toy.zarr")
    message = "findings are about registered studies, got the store toy.zarr of toy; omit it\n"
    refused("findings", "toy.zarr", message=message)
    assert NOTE.read_bytes() == before


def test_stored_note_is_short_and_has_its_figures():
    note = NOTE.read_text()
    assert len(note.splitlines()) <= 250
    links = re.findall(r"\]\(([^)#]+)", note)
    assert len(links) >= 5
    assert [link for link in links if not (NOTE.parent / link).exists()] == []


@pytest.mark.parametrize("command", sorted(set(re.findall("dpstudies summarise (.*)", NOTE.read_text()))))
def test_commands_of_the_note_name_stored_panels_and_measures(command):
    store, panels, measures = re.fullmatch(
        r"lab/(\S+)\.zarr --panel (\S+) --measure (\S+) --where \S+", command
    ).groups()
    for panel in panels.split(","):
        declared = STUDIES[store].panel(panel)
        assert set(measures.split(",")) <= {measure.name for measure in declared.measures}


def test_evidence_is_shortened_between_its_parts():
    assert findings._shorten("One.") == "One."
    assert findings._shorten(f"{'a' * 200}; {'b' * 100}. c") == f"{'a' * 200}; …"
