"""Tests of the warning filters: warnings of other packages fail the gate, but not the README's test command."""

import re
from pathlib import Path

import pytest

from tests.pipeline.helpers import run_python

ROOT = Path(__file__).parents[1]
FILE = """
import warnings
import pytest

@pytest.mark.parametrize(
    ("category", "module"),
    [
        (DeprecationWarning, "other_package.module"),
        (RuntimeWarning, "other_package.module"),
        (FutureWarning, "pipeline.runs.run"),  # attributed to the caller of a function that is to change
        (RuntimeWarning, "mechanisms.core.noise"),
        (UserWarning, "tests.pipeline.test_run"),
    ],
)
def test_warns(category, module):
    warnings.warn_explicit("a warning", category, "file.py", 1, module=module)
"""
(GATE,) = re.findall(r'^export PYTEST_ADDOPTS="(.*)"$', (ROOT / ".ci/run").read_text(), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(("options", "outcomes"), [("", "...FF"), (GATE, "FFFFF")], ids=["test command", "gate"])
def test_warnings_of_other_packages_fail_the_gate_only(tmp_path, options, outcomes):
    (tmp_path / "test_one.py").write_text(FILE)
    options_of_pytest = (f"-c{ROOT / 'pyproject.toml'}", "-q", "-n0", "-pno:cacheprovider", "test_one.py")
    done = run_python("-m", "pytest", *options_of_pytest, cwd=tmp_path, env={"PYTEST_ADDOPTS": options})
    assert done.stdout.split()[0] == outcomes, done.stdout
