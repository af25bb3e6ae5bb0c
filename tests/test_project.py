"""Tests of the project file: requirements, and the files that linters check."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = {"dependencies": PROJECT["project"]["dependencies"], **PROJECT["project"]["optional-dependencies"]}
SCRIPTS = sorted((ROOT / ".github").glob("*.py"))


@pytest.mark.parametrize("kind", REQUIREMENTS)
def test_each_requirement_is_listed_once(kind):
    names = [re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in REQUIREMENTS[kind]]
    assert sorted(names) == sorted(set(names))


def test_mypy_checks_all_code_but_the_tests():
    folders = {file.relative_to(ROOT).parts[0] for file in [*ROOT.glob("*/**/*.py"), *ROOT.glob("*.py")]}
    checked = set(PROJECT["tool"]["mypy"]["files"])
    assert {folder for folder in folders if (ROOT / folder / "__init__.py").exists() or folder == ".github"} == checked


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_import_public_names_and_no_package_imports_them(script):
    """Scripts outside of the packages, which import-linter does not see, are above all layers."""
    imports = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").split(".")[0] in ("mechanisms", "pipeline", "studies")]
    assert ours
    names = [part for node in ours for part in (*node.module.split("."), *(alias.name for alias in node.names))]
    assert [name for name in names if name.startswith("_") and name != "__version__"] == []
    packages = [file for package in ("mechanisms", "pipeline", "studies") for file in (ROOT / package).rglob("*.py")]
    assert [file for file in packages if f".github/{script.name}" in file.read_text()] == []
