"""Benchmarks run at their smallest size; the printed times are not checked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(Path(__file__).with_name("benchmarks").glob("bench_*.py"))
MODES = {"bench_scale.py": ("blocks", "utilisation", "summary")}
RUNS = [(script, mode) for script in SCRIPTS for mode in MODES.get(script.name, ("",))]


@pytest.mark.slow
@pytest.mark.parametrize(("script", "mode"), RUNS, ids=lambda value: getattr(value, "stem", value))
def test_benchmark_runs(tmp_path, script, mode):
    command = [sys.executable, str(script), *mode.split(), "--smallest"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert list(tmp_path.iterdir()) == []


def test_benchmarks_are_found():
    assert len(SCRIPTS) >= 11
