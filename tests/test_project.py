"""Tests of the project file and of the map for contributors: requirements, checked files, and named places."""

import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = {"dependencies": PROJECT["project"]["dependencies"], **PROJECT["project"]["optional-dependencies"]}


@pytest.mark.parametrize("kind", REQUIREMENTS)
def test_each_requirement_is_listed_once(kind):
    names = [re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in REQUIREMENTS[kind]]
    assert sorted(names) == sorted(set(names))


def test_every_extra_is_in_the_table_of_the_guide():
    guide = (ROOT / "pipeline/README.md").read_text()
    table = guide.partition("| extra | for |\n")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[1:]]
    extras = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(extras) == sorted(PROJECT["project"]["optional-dependencies"])


def test_supported_versions_of_python_are_stated_once_in_words():
    supported = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert f">={supported[0]}" == PROJECT["project"]["requires-python"]
    words = f"Python {supported[0]} to {supported[-1]}"
    assert all(words in (ROOT / file).read_text() for file in ("README.md", "pipeline/README.md"))


def test_mypy_checks_all_code_but_the_tests():
    folders = {file.relative_to(ROOT).parts[0] for file in [*ROOT.glob("*/**/*.py"), *ROOT.glob("*.py")]}
    checked = set(PROJECT["tool"]["mypy"]["files"])
    assert {folder for folder in folders if (ROOT / folder / "__init__.py").exists()} == checked


MAP = (ROOT / ".github/CONTRIBUTING.md").read_text().partition("## Where to look")[2].partition("## ")[0]
PLACES = re.findall(r"`((?:mechanisms|pipeline|studies)\.[\w.]+)`", MAP)


@pytest.mark.parametrize("name", PLACES)
def test_places_of_the_map_define_what_they_name(name):
    module, _, attribute = name.rpartition(".")
    assert pkgutil.resolve_name(f"{module}:{attribute}").__module__ == module


def test_the_map_has_places():
    assert len(PLACES) > 25
