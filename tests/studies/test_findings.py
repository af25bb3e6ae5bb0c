"""Tests of the research note: its generator with few stores, and the stored note."""

import importlib.util
import re
from pathlib import Path

import pytest

import pipeline
from studies import STUDIES

ROOT = Path(__file__).parents[2]
NOTE = ROOT / "studies/FINDINGS.md"


@pytest.fixture(scope="module")
def findings():
    """Return the module that writes the note."""
    spec = importlib.util.spec_from_file_location("findings", ROOT / ".github/findings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_note_from_two_stores_states_scales_and_names_missing_studies(findings, tmp_path):
    stores = [f"{tmp_path}/traces.zarr", f"{tmp_path}/edge.zarr"]
    pipeline.run(STUDIES["gibbs-traces"], stores[0], progress=False)
    values = {"n": [100]}
    pipeline.run(STUDIES["exact-inference"], stores[1], progress=False, panels=["edge"], trials=5, values=values)
    findings.write_findings(stores, tmp_path / "note.md", tmp_path / "figures")
    note = (tmp_path / "note.md").read_text()
    assert "* full run: `gibbs-traces`\n* run of " in note
    assert "evaluations: `exact-inference`\n* no store: `" in note
    assert "`hellinger-sensitivity`" in note.split("* no store: ")[1].splitlines()[0]
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["exact-inference-edge.svg"]
    assert "*Figure accuracy-k3: not computed, no store of `hellinger-accuracy`.*" in note
    assert re.findall("^#+ .*", note, re.MULTILINE) == re.findall("^#+ .*", NOTE.read_text(), re.MULTILINE)


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


def test_evidence_is_shortened_between_its_parts(findings):
    assert findings._shorten("One.") == "One."
    assert findings._shorten(f"{'a' * 200}; {'b' * 100}. c") == f"{'a' * 200}; …"
