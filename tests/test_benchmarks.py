"""Tests that the benchmarks run at their smallest size; the printed times are not checked."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = sorted(Path(__file__).with_name("benchmarks").glob("bench_*.py"))
MODES = {"bench_scale.py": ("blocks", "utilisation", "summary"), "bench_pipeline.py": ("", "own")}
RUNS = [(script, mode) for script in SCRIPTS for mode in MODES.get(script.name, ("",))]


def run_script(script: Path, words: list[str], folder: Path) -> None:
    """Run a script as Python does, in another folder, and write its output to files next to the folder."""
    os.chdir(folder)
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT), stream)
    sys.argv = [str(script), *words]
    sys.path.insert(0, str(script.parent))
    main = ModuleType("__main__")
    main.__file__ = str(script)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    exec(compile(script.read_text(), script, "exec"), vars(main))


@pytest.mark.slow
@pytest.mark.parametrize(("script", "mode"), RUNS, ids=lambda value: getattr(value, "stem", value))
def test_benchmark_runs(forks, tmp_path, script, mode):
    folder = tmp_path / "empty"
    folder.mkdir()
    process = forks.Process(target=run_script, args=(script, [*mode.split(), "--smallest"], folder))
    process.start()
    process.join(120)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0, folder.with_suffix(".err").read_text()
    assert folder.with_suffix(".out").read_text().strip()
    assert list(folder.iterdir()) == []


def test_benchmarks_are_found():
    assert len(SCRIPTS) >= 12
