"""Separate home directory for the tests, and the marker of slow tests.

Tests do not read or write the user's list of study files or the cache of their modules.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest

if "DPSTUDIES_HOME" not in os.environ:  # inherited by xdist workers and subprocesses
    os.environ["DPSTUDIES_HOME"] = tempfile.mkdtemp(prefix="dpstudies-tests-")
    atexit.register(shutil.rmtree, os.environ["DPSTUDIES_HOME"], ignore_errors=True)

STUDIES = Path(__file__).parent / "studies"
COMPUTES_A_STUDY = {"store", "stores", "summaries", "splits"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as slow if they compute panels of a built-in study, at a small scale."""
    for item in items:
        if item.path.parent.parent == STUDIES and COMPUTES_A_STUDY & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
