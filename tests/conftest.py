"""Separate home directory for the tests, the marker of slow tests, and the order of test files.

Tests do not read or write the user's list of study files or the cache of their modules.
"""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

if "DPSTUDIES_HOME" not in os.environ:  # inherited by xdist workers and subprocesses
    os.environ["DPSTUDIES_HOME"] = tempfile.mkdtemp(prefix="dpstudies-tests-")
    atexit.register(shutil.rmtree, os.environ["DPSTUDIES_HOME"], ignore_errors=True)

# Tests start hundreds of interpreters. Write bytecode even if the environment forbids it, so that a module is compiled
# once: packages that pip installed without compiling them have no bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

STUDIES = Path(__file__).parent / "studies"
COMPUTES_A_STUDY = {"store", "stores", "summaries", "splits"}
# Files that take longest, longest first. xdist gives whole files to its processes in the order of collection, so a long
# file that starts last would leave the other processes idle.
LONG = (
    "test_adaptive.py", "test_faults.py", "test_object_store.py", "test_calibration.py", "test_hellinger_accuracy.py",
    "test_benchmarks.py", "test_slurm.py", "test_privacy_audit.py", "test_address.py", "test_cluster_check.py",
    "test_extend.py", "test_soak.py", "test_durability.py", "test_output.py", "test_kill.py", "test_registry.py",
    "test_run.py", "test_audit.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as slow if they compute panels of a built-in study, at a small scale; move long files to the front."""
    for item in items:
        if item.path.parent.parent == STUDIES and COMPUTES_A_STUDY & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))
