"""The command: output, exit codes, and one-line errors for bad input, without writes."""

from pathlib import Path

import pytest
import xarray as xr
import yaml

from studies import STUDIES, cli

ROOT = Path(__file__).parents[2]
STUDY_FILE = """
import numpy as np
from pipeline import Factor, Measure, Method, Panel, Study

def simulate(cell, streams):
    return streams.uniforms(1)[:, 0] + cell["n"]

def mean(data, setting, streams):
    return {"x": data}

def odd(data, setting, streams):
    return {"x": data, "error": np.where(np.floor(data) == 2, "value is two", "")}

STUDY = Study("toy", "A toy", "To test.", (Panel(
    "p", "a panel", simulate, (Method("mean", mean), Method("odd", odd)), (Measure("x", "a number"),),
    (Factor("n", (1, 2), "size", "int"),), trials=7, block_trials=3),), seed=1)
"""


FIVE = "mechanism=smooth,smooth-exact,varying-bound,hamming-exact,laplace"
SMALL = ("run", "hellinger-accuracy", "--panel", "k2", "--set", "n=20,40", "--set", FIVE, "--trials", "100")


def test_a_study_from_plan_to_report(command, tmp_path):
    """All commands on one small store, as in a first session."""
    code, out, _ = command("list")
    assert code == 0
    assert all(name in out for name in STUDIES)
    code, out, _ = command("plan", *SMALL[1:])
    assert code == 0
    assert "1,000 trials" in out
    assert list(tmp_path.iterdir()) == []
    code, out, err = command(*SMALL, "--store", "s.zarr")
    assert (code, "complete" in out, "1,000 of 1,000 trials" in err) == (0, True, True)
    assert command("status", "s.zarr")[0] == 0
    code, out, _ = command("trial", "s.zarr", "--panel", "k2", "--cell", "n=40", "--trial", "99")
    assert (code, out.count(" equal"), "DIFFERENT" in out) == (0, 5 * 5, False)
    code, out, _ = command("summarise", "s.zarr", "--csv")
    assert code == 0
    assert "hellinger_mean" in out.splitlines()[0]
    assert len(out.splitlines()) == 11
    code, out, _ = command("report", "s.zarr", "--figures", "figures")
    assert code == 0
    assert "undecided" in out  # no n > 400 here
    assert {path.name for path in tmp_path.glob("figures/*")} == {"accuracy-k2.png", "accuracy-k2.svg"}
    page = (tmp_path / "report.html").read_text()
    assert page.count("<figure") == 1
    assert command("resume", "s.zarr")[0] == 0
    assert command(*SMALL, "--store", "s.zarr")[0] == 0


def test_mechanism_beyond_its_largest_size_does_not_apply(command, tmp_path):
    """10,000 records in 4 categories have 1.7e11 candidates: too many for audits and for exact means of noise."""
    five = (*SMALL[:3], "k4", "--set", "n=10000", "--set", FIVE, "--trials", "100")
    assert command(*five, "--store", "s.zarr")[0] == 0
    ds = xr.open_zarr(tmp_path / "s.zarr", group="k4").isel(n=0).load()
    assert ds.status.isel(trial=0).values.tolist() == [1, 5, 5, 5, 1]
    assert ds.expected_hellinger.isnull().values.tolist() == [False, True, True, True, True]
    assert (ds.hellinger.sel(mechanism=["smooth", "laplace"]) >= 0).all()


def test_trial_that_differs_exits_with_1(command, tmp_path):
    """The command detects one changed number, in that trial and in no other."""
    command(*SMALL, "--store", "s.zarr")
    import zarr

    array = zarr.open_group(tmp_path / "s.zarr")["k2/hellinger"]
    array[1, 0, 5] = array[1, 0, 5] + 1e-15
    code, out, _ = command("trial", "s.zarr", "--panel", "k2", "--cell", "n=40", "--trial", "5")
    assert (code, [line.split()[:2] for line in out.splitlines() if "DIFFERENT" in line]) == (
        1,
        [["smooth", "hellinger"]],
    )
    assert command("trial", "s.zarr", "--panel", "k2", "--cell", "n=40", "--trial", "6")[0] == 0


def test_study_file_with_failed_trials(command, tmp_path):
    """Failures are counted, listed with the command that reruns them, and set the exit code."""
    (tmp_path / "toy.py").write_text(STUDY_FILE)
    code, out, _ = command("run", "toy.py", "--store", "t.zarr")
    assert (code, "7 trials failed" in out) == (1, True)
    assert command("status", "t.zarr")[0] == 1
    code, out, _ = command("errors", "t.zarr")
    assert code == 1
    assert "p: 7 failed: value is two\n  n=2, algorithm=odd: 7 trials, first 0\n" in out
    assert "dpstudies trial t.zarr --panel p --cell n=2 --trial 0" in out
    assert command("report", "t.zarr")[0] == 0
    assert "Complete, with failed trials." in (tmp_path / "report.html").read_text()


def test_report_escapes_titles(command, tmp_path):
    (tmp_path / "toy.py").write_text(STUDY_FILE.replace('"A toy"', '"<script>alert(1)</script>"'))
    command("run", "toy.py", "--store", "t.zarr")
    command("report", "t.zarr")
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_incomplete_store_exits_with_3(command, tmp_path):
    command(*SMALL, "--store", "s.zarr")
    (tmp_path / "s.zarr/k2/status/c/0/0/0").unlink()
    assert command("status", "s.zarr")[0] == 3
    code, out, _ = command("report", "s.zarr")
    assert (code, "pending" in out) == (0, True)
    assert "Incomplete." in (tmp_path / "report.html").read_text()
    assert command("resume", "s.zarr")[0] == 0


BAD_VALUES = {
    "epsilon=0": "epsilon must be",
    "epsilon=-1": "epsilon must be",
    "epsilon=nan": "epsilon must be",
    "epsilon=inf": "epsilon must be",
    "epsilon=1e-320": "epsilon must be in [1e-100, 1e100], got 1e-320",
    "epsilon=1e308": "epsilon must be in [1e-100, 1e100], got 1e+308",
    "epsilon=1,2": "epsilon must have one value",
    "delta=0": "delta must be in (0, 1)",
    "delta=1": "delta must be in (0, 1)",
    "delta=nan": "delta must be",
    "prior=1:0": "prior must have positive",
    "prior=1:-1": "prior must have positive",
    "prior=1:nan": "prior must be finite",
    "prior=1:1:1": "prior must have 2 entries",
    "n=0": "n must be >= 1",
    "n=1.5": "n must be an integer",
    "n=9,9": "n must have distinct values",
    "mechanism=smoth": "did you mean smooth?",
    "epsilom=1": "did you mean epsilon?",
    "epsilon": "NAME=V1,V2",
}


@pytest.mark.parametrize("value", BAD_VALUES)
def test_bad_values(command, tmp_path, value):
    code, out, err = command("run", "hellinger-accuracy", "--store", "s.zarr", "--panel", "k2", "--set", value)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert BAD_VALUES[value] in err
    assert list(tmp_path.iterdir()) == []


BAD_CALLS = {
    ("run", "hellinger-accurcy", "--store", "s.zarr"): "did you mean hellinger-accuracy",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--panel", "k5"): "unknown panel 'k5'",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--trials", "0"): "trials must be >= 1, got 0",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--trials", "-5"): "trials must be >= 1, got -5",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--trials", "x"): "--trials",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--seed", "-1"): "seed must be >= 0",
    ("run", "hellinger-accuracy"): "--store",
    ("rn",): "run",
    ("run", "absent.py", "--store", "s.zarr"): "cannot read the study file",
    ("run", "absent_module:x", "--store", "s.zarr"): "cannot load the study absent_module:x",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--cluster", "absent.yaml"): "cannot read the cluster file",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--panel", "abalone", "--set", "counts=1:2:-3"): "counts must",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--panel", "abalone", "--set", "counts=1:2.5:3"): "counts must",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--panel", "abalone", "--set", "prior=1:1"): "3 entries",
    ("run", "hellinger-accuracy", "--store", "nope://bucket/s.zarr"): "a store must be a folder or the URL",
    ("run", "hellinger-accuracy", "--store", "/proc/absent/s.zarr"): "cannot write to the store",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--trials", "1000000000000"): "trials must be <= ",
    ("run", "hellinger-accuracy", "--store", "s.zarr", "--trials", "1000000000"): "must have at most 10,000,000 blocks",
    ("plan", "hellinger-accuracy", "--trials", "1000000000"): "must have at most 10,000,000 blocks",
    ("plan", "hellinger-accuracy", "--set", "epsilon=0"): "epsilon must be",
    ("status", "absent.zarr"): "no result store at absent.zarr",
    ("resume", "absent.zarr"): "no result store at absent.zarr",
}


@pytest.mark.parametrize("call", BAD_CALLS, ids=" ".join)
def test_bad_calls(command, tmp_path, call):
    code, out, err = command(*call)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert BAD_CALLS[call] in err
    assert list(tmp_path.iterdir()) == []


def test_foreign_files_at_the_store_path_are_not_changed(command, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/letter.txt").write_text("a letter")
    (tmp_path / "file.zarr").write_text("not a folder")
    xr.Dataset({"x": 1}).to_zarr(tmp_path / "foreign.zarr", consolidated=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for place in ("folder", "file.zarr", "foreign.zarr"):
        code, _, err = command(*SMALL, "--store", place)
        assert (code, err.count("\n")) == (2, 1)
        assert "not a result store" in err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("change", [("--trials", "50"), ("--seed", "2"), ("--set", "epsilon=2")])
def test_store_of_another_spec_is_refused_and_not_changed(command, tmp_path, change):
    command(*SMALL, "--store", "s.zarr")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, _, err = command(*SMALL, *change, "--store", "s.zarr")
    assert (code, err.count("\n")) == (2, 1)
    assert "created with a different spec" in err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_store_of_another_code_version_is_refused(command, tmp_path):
    """The error names the changed entry."""
    (tmp_path / "toy.py").write_text(STUDY_FILE)
    command("run", "toy.py", "--store", "t.zarr")
    (tmp_path / "toy.py").write_text(STUDY_FILE.replace('Method("mean", mean)', 'Method("mean", mean, version=2)'))
    for call in (("run", "toy.py", "--store", "t.zarr"), ("resume", "t.zarr", "--study", "toy.py")):
        code, _, err = command(*call)
        assert (code, err.count("\n")) == (2, 1)
        assert "panels.p.methods.mean.version: stored 1, now 2" in err


def test_typing_error_in_cluster_file(command, tmp_path):
    Path("cluster.yaml").write_text(yaml.safe_dump({"profiles": {"here": {"adress": "tcp://127.0.0.1:1"}}}))
    code, _, err = command(*SMALL, "--store", "s.zarr", "--cluster", "cluster.yaml")
    assert (code, err.count("\n")) == (2, 1)
    assert "did you mean address" in err
    assert not (tmp_path / "s.zarr").exists()


def test_unreachable_scheduler(command, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.clusters.cluster._CONNECT_SECONDS", 1)
    Path("cluster.yaml").write_text(yaml.safe_dump({"profiles": {"gone": {"address": "tcp://127.0.0.1:9"}}}))
    code, _, err = command(*SMALL, "--store", "s.zarr", "--cluster", "cluster.yaml:gone")
    assert code == 2
    assert "no scheduler responds at tcp://127.0.0.1:9" in err.splitlines()[-1]
    assert not (tmp_path / "s.zarr").exists()


def test_readme_names_every_command(command):
    text = (ROOT / "README.md").read_text()
    registered = {info.name or info.callback.__name__ for info in cli.app.registered_commands}
    assert all(f"dpstudies {name}" in text for name in registered)
