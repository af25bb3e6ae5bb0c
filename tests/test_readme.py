"""Tests that README tables and stored verdicts agree with the declarations of mechanisms, studies and claims."""

import re

import pytest
from cogapp import Cog

from studies import STUDIES
from tests.readme import ROOT, VERDICTS

READMES = {path: (ROOT / path).read_text() for path in ("README.md", "mechanisms/README.md", "studies/README.md")}


@pytest.mark.parametrize("path", READMES)
def test_tables_are_current(path):
    """README tables are current; ``cog -r -I . README.md mechanisms/README.md studies/README.md`` updates them."""
    assert "[[[cog" in READMES[path]
    assert Cog().process_string(READMES[path]) == READMES[path]


def test_outdated_tables_are_rewritten():
    for path, current, outdated in (
        ("mechanisms/README.md", "| `laplace` | baseline |", "| `laplace` | ours |"),
        ("studies/README.md", "| `gibbs-traces` | P4 |", "| `gibbs-trace` | P4 |"),
        ("studies/README.md", "| P4, Algorithm 3, line 4 | m = n·q. |", "| P4, Algorithm 3, line 4 | m = n. |"),
    ):
        assert READMES[path].count(current) == 1
        assert Cog().process_string(READMES[path].replace(current, outdated)) == READMES[path]


def test_links_lead_to_files():
    for path in (*sorted(ROOT.glob("*/README.md")), ROOT / "README.md", ROOT / ".github/CONTRIBUTING.md"):
        links = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
        assert links or path.parent != ROOT
        assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_conclusion_has_a_verdict():
    """The stored table of verdicts has one row for each conclusion, with its statement, place and study."""
    rows = re.findall(r"^\| ([^|\s]+) \| (.* \(.*\)) \| (.*) \|$", VERDICTS.read_text(), re.MULTILINE)
    declared = [
        (claim.paper, f"{claim.statement} ({claim.place}; {name})".replace("|", "\\|"))
        for name, study in STUDIES.items()
        for claim in study.claims
        if claim.kind == "conclusion"
    ]
    assert sorted(row[:2] for row in rows) == sorted(declared)
    assert {row[2] for row in rows} <= {"reproduced", "corrected", "not reproduced", "undecided"}
