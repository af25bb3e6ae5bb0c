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
