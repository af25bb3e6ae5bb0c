"""Configuration of the tests: a separate home directory, the marker of slow tests, and the order of test files.

Tests do not read or write the user's list of study files or the cache of their modules.
"""

import atexit
import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import typer
from hypothesis import settings

settings.register_profile("dpstudies", deadline=None)  # a busy machine takes longer than Hypothesis allows by default
settings.load_profile("dpstudies")

if "DPSTUDIES_HOME" not in os.environ:  # environment variables are inherited by xdist workers and subprocesses
    os.environ["DPSTUDIES_HOME"] = tempfile.mkdtemp(prefix="dpstudies-tests-")
    atexit.register(shutil.rmtree, os.environ["DPSTUDIES_HOME"], ignore_errors=True)

# Tests start hundreds of interpreters. Write bytecode even if the environment forbids it, so that a module is compiled
# once: packages that pip installed without compiling them have no bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Files that take longest, longest first. xdist gives groups of tests to its processes in the order of collection, so a
# long group that starts last would leave the other processes idle.
LONG = (
    "test_studies.py", "test_benchmarks.py", "test_faults.py", "test_neighbouring.py", "test_private_regression.py",
    "test_site.py", "test_own_methods.py", "test_tree.py", "test_benchmark.py", "test_bring_your_own.py",
    "test_exact_posterior.py", "test_isolate.py", "test_foreign_stores.py", "test_object_store.py",
    "test_submission.py", "test_private_posterior.py", "test_hostile_input.py", "test_kill.py", "test_draws.py",
    "test_store_commands.py", "test_private_chains.py", "test_ledger.py", "test_scale.py", "test_until.py",
    "test_leftovers.py", "test_bits.py", "test_cluster_check.py", "test_verify.py", "test_registry.py", "test_infer.py",
    "test_serve.py", "test_user_cluster.py", "test_durability.py", "test_store.py", "test_sampled.py",
    "test_object_faults.py", "test_compact.py", "test_chunk_digests.py", "test_gram_samplers.py", "test_extend.py",
    "test_data_augmentation.py", "test_fitted_prior.py", "test_run.py", "test_gibbs_exact.py", "test_tutorial.py",
    "test_laboratory.py", "test_root.py", "test_soak.py", "test_dp_gd.py", "test_private_tables.py",
    "test_replacements.py", "test_families.py", "test_cli.py", "test_adaptive.py", "test_gibbs.py",
    "test_sparse_vector.py", "test_address.py", "test_choice.py", "test_publish_bounds.py", "test_audit_command.py",
    "test_slurm.py", "test_page.py",
)  # fmt: skip

# Files whose tests start clusters, servers or browsers and wait for them, and can fail on a busy machine.
WAITING = (
    "test_adaptive.py", "test_address.py", "test_cluster.py", "test_cluster_check.py", "test_execution.py",
    "test_faults.py", "test_foreign_stores.py", "test_isolate.py", "test_kill.py", "test_leftovers.py", "test_logs.py",
    "test_object_sessions.py", "test_page.py", "test_serve.py", "test_sessions.py", "test_slurm.py",
    "test_soak.py", "test_submission.py", "test_user_cluster.py", "test_worker_checks.py",
)  # fmt: skip

IMPORTED_BY_FORKS = [
    "mechanisms.core.exact_losses",
    "mechanisms.inference",
    "mechanisms.draws",
    "pipeline.runs.run",
    "studies.registry",
]
MECHANISMS = Path(__file__).with_name("mechanisms")
parser_of = cache(typer.main.get_command)
"""Replacement of `typer.main.get_command` that makes the parser of the command line, which takes 15 ms, only once."""


@pytest.fixture(scope="session")
def forks() -> ForkServerContext:
    """Return a context whose processes are forks of one that has imported the packages, so that they start fast."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED_BY_FORKS)
    return context


def tested_study(path: Path) -> str:
    return path.stem.removeprefix("test_").replace("_", "-")


@pytest.hookimpl(tryfirst=True)  # this hook is called before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests, group them by folder or file for pytest-xdist, and move long files to the front.

    Fast tests of mechanisms, and tests of computed studies, are grouped by folder, so that one process compiles the
    kernels which they share.
    """
    from studies import MODULES  # after the home directory is set

    for item in items:
        if item.path.name in WAITING:
            item.add_marker("waiting")
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("system")
        is_slow = item.get_closest_marker("slow") is not None
        group = str(item.path if is_slow or MECHANISMS not in item.path.parents else item.path.parent)
        if "compute" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            name = parameters["study"].name if "study" in parameters else tested_study(item.path)
            group = MODULES[name].split(".")[1]  # the folder of the study
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


def pytest_collection_finish() -> None:
    """Exempt the million objects of imports and collection from garbage collection, which takes a tenth of the time."""
    gc.collect()
    gc.freeze()
