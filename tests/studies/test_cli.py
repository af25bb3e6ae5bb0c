"""Tests of the command: output, exit codes, and one-line errors for bad input without writes."""

import json
import re
from pathlib import Path

import pytest
import xarray as xr
import yaml

from mechanisms import MECHANISMS
from pipeline.blocks.evaluate import Block
from pipeline.runs import estimate
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.read import read_outcome
from studies import STUDIES, cli, folders
from tests.pipeline.helpers import COMMAND, run_python, writing
from tests.readme import ROOT

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


@pytest.mark.parametrize("has_costs", [True, False])
def test_a_plan_that_times_few_methods_has_the_stored_cost_of_all(command, monkeypatch, has_costs):
    def make_plan(study):
        counts = {"n_cells": 1, "n_settings": 41, "n_trials": 10, "n_blocks": 1, "n_bytes": 1, "n_timed": 3}
        times = {"seconds": 7.0, "n_piloted": 1, "commit_seconds": 0.0}
        return [
            estimate.PanelPlan(**counts, **times, panel=panel.name, mcse={}, failures=0, error="", proposed_block=None)
            for panel in study.panels
        ]

    monkeypatch.setattr(estimate, "make_plan", make_plan)
    monkeypatch.setattr(folders, "COSTS", costs := Path("costs.json"))
    costs.write_text(json.dumps({"published": {"private-mcmc": {"adult": 2.0}} if has_costs else {}}))
    code, out, _ = command("plan", "private-mcmc", "--panel", "adult", "--trials", "10")
    seconds, note = ("900.0 s", "an earlier run of all") if has_costs else ("7.0 s", "of another order of magnitude")
    assert (code, seconds in out, note in " ".join(out.split())) == (0, True, True)


def test_a_study_from_plan_to_report(command, printed, tmp_path):
    """A small study passes through all commands, in the order of a first session."""
    out = printed("list")
    assert all(name in out for name in STUDIES)
    out = printed("plan", *SMALL[1:])
    assert "1,000 evaluations" in out
    assert list(tmp_path.iterdir()) == []
    code, out, err = command(*SMALL, "--store", "s.zarr")
    assert (code, "complete" in out, "1,000 of 1,000 evaluations" in err) == (0, True, True)
    assert err.startswith("dpstudies: dashboard: http://127.0.0.1:")
    assert command("status", "s.zarr")[0] == 0
    code, out, _ = command("trial", "s.zarr", "--panel", "k2", "--cell", "n=40", "--trial", "99")
    assert (code, out.count(" equal"), "DIFFERENT" in out) == (0, 5, False)
    out = printed("summarise", "s.zarr", "--csv")
    assert "hellinger_mean" in out.splitlines()[0]
    assert len(out.splitlines()) == 11
    out = printed("report", "s.zarr", "--figures", "figures")
    assert "undecided" in out  # the claim needs n > 400, which this store lacks
    drawn = {f"{name}.{kind}" for name in ("accuracy-k2", "cost") for kind in ("png", "svg")}
    assert {path.name for path in tmp_path.glob("figures/*")} == drawn
    page = (tmp_path / "s.html").read_text()
    assert page.count("<figure") == 2  # with the figure of costs
    glossary = page.partition("Methods of this figure")[2].partition("</details>")[0]
    assert all(f"<dt>{name}</dt><dd>{MECHANISMS[name].note}</dd>" in glossary for name in ("smooth", "laplace"))
    assert command("resume", "s.zarr")[0] == 0
    assert command(*SMALL, "--store", "s.zarr")[0] == 0


@pytest.mark.slow
def test_mechanism_beyond_its_largest_size_does_not_apply(command, tmp_path):
    """Calibrated mechanisms do not apply to a problem with too many outputs, here 1.7e11."""
    five = (*SMALL[:3], "k4", "--set", "n=10000", "--set", FIVE, "--trials", "100")
    assert command(*five, "--store", "s.zarr")[0] == 0
    ds = xr.open_zarr(tmp_path / "s.zarr", group="k4").isel(n=0).load()
    assert ds.status.isel(trial=0).values.tolist() == [1, 5, 5, 5, 1]
    assert ds.expected_hellinger.isnull().values.tolist() == [False, True, True, True, True]
    assert (ds.hellinger.sel(mechanism=["smooth", "laplace"]) >= 0).all()


def test_trial_that_differs_exits_with_1(command):
    """If a committed number differs, recomputing its trial gives exit code 1; another trial gives exit code 0."""
    command(*SMALL, "--store", "s.zarr")
    with writing("s.zarr") as store:
        panel = STUDIES["hellinger-accuracy"].from_spec(store.spec).panel("k2")
        setting, block = panel.settings()[0], Block("k2", 1, range(100))
        outcome = read_outcome(store, panel, block, setting)
        outcome.values["hellinger"][5] += 1e-15
        with BlockWriter(store).commit([Planned(panel, block, [setting], [setting])]) as commit:
            commit.write(panel, block, setting, outcome)
    code, out, _ = command("trial", "s.zarr", "--panel", "k2", "--cell", "n=40", "--trial", "5")
    (line,) = [line for line in out.splitlines() if "DIFFERENT" in line]
    assert (code, line.split()[0], out.count("(stored: ")) == (1, "smooth", 1)
    assert command("trial", "s.zarr", "--panel", "k2", "--cell", "n=40", "--trial", "6")[0] == 0


def test_study_that_always_fails_is_described_by_plan_and_stops_the_run(command, printed):
    text = STUDY_FILE.replace('return {"x": data}', 'raise ValueError("a wrong name")')
    text = text.replace("trials=7, block_trials=3", "trials=30, block_trials=10")
    Path("toy.py").write_text(text.replace(', Method("odd", odd)', ","))
    out = printed("plan", "toy.py")
    assert re.fullmatch(
        r"20 trials of the pilot of panel p failed: toy\.py:\d+: ValueError: a wrong name", out.splitlines()[-1]
    )
    code, _, err = command("run", "toy.py", "--store", "t.zarr", "--cluster", "threads")
    assert code == 3
    assert re.search(r"first block of panel p failed \(toy\.py:\d+: ValueError: a wrong name\): the run stops", err)
    assert "continue with: dpstudies resume t.zarr --cluster threads\n" in err
    assert command("run", "toy.py", "--store", "t.zarr", "--allow-failures")[0] == 1
    code, _, err = command("resume", "t.zarr", "--retry", "failed")
    kept = "committed blocks are kept, 60 trials failed; continue with: dpstudies resume t.zarr --retry failed"
    assert (code, kept in err) == (3, True)


def test_plan_proposes_larger_blocks(printed):
    Path("toy.py").write_text(STUDY_FILE.replace("trials=7, block_trials=3", "trials=20_000, block_trials=5"))
    out = printed("plan", "toy.py")
    assert re.search(
        r"^panel p: commits take \d\d% of the time of its blocks; declare block_trials=\d+ instead of 5, which changes "
        r"no number, before a store is created$",
        out,
        re.MULTILINE,
    )


def test_foreign_files_at_the_store_path_are_not_changed(refused, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/letter.txt").write_text("a letter")
    (tmp_path / "file.zarr").write_text("not a folder")
    xr.Dataset({"x": 1}).to_zarr(tmp_path / "foreign.zarr", consolidated=False)
    for place in ("folder", "file.zarr", "foreign.zarr"):
        refused(*SMALL, "--store", place, message="not a result store")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--trials", "50"), "has other numbers of trials"),
        (("--seed", "2"), "created with a different spec"),
        (("--set", "epsilon=2"), "created with a different spec"),
    ],
)
def test_store_of_another_spec_is_refused_and_not_changed(command, refused, change, message):
    command(*SMALL, "--store", "s.zarr")
    refused(*SMALL, *change, "--store", "s.zarr", message=message)


def test_store_of_another_code_version_is_refused(command, refused, tmp_path):
    (tmp_path / "toy.py").write_text(STUDY_FILE)
    command("run", "toy.py", "--store", "t.zarr")
    (tmp_path / "toy.py").write_text(STUDY_FILE.replace('Method("mean", mean)', 'Method("mean", mean, version=2)'))
    for call in (("run", "toy.py", "--store", "t.zarr"), ("resume", "t.zarr", "--study", "toy.py")):
        refused(*call, message="panels.p.methods.mean.version: stored 1, now 2")


def test_typing_error_in_cluster_file(refused):
    Path("cluster.yaml").write_text(yaml.safe_dump({"profiles": {"here": {"adress": "tcp://127.0.0.1:1"}}}))
    refused(*SMALL, "--store", "s.zarr", "--cluster", "cluster.yaml", message="did you mean address")


@pytest.mark.slow
def test_unreachable_scheduler(refused, monkeypatch):
    monkeypatch.setattr("pipeline.clusters.cluster._CONNECT_SECONDS", 1)
    Path("cluster.yaml").write_text(yaml.safe_dump({"profiles": {"gone": {"address": "tcp://127.0.0.1:9"}}}))
    message = "no scheduler responds at tcp://127.0.0.1:9"
    refused(*SMALL, "--store", "s.zarr", "--cluster", "cluster.yaml:gone", message=message)


@pytest.mark.slow
def test_client_that_failed_is_closed_before_the_process_ends(tmp_path):
    """A client whose loop has ended waits for 20 s, and prints a traceback."""
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"profiles": {"gone": {"address": "tls://127.0.0.1:9"}}}))
    done = run_python(*COMMAND, "cluster", "check", f"{tmp_path}/c.yaml:gone")
    assert done.returncode == 2
    assert "no scheduler responds at tls://127.0.0.1:9" in done.stderr.splitlines()[-1]


def test_readmes_name_every_command(command):
    text = "".join(path.read_text() for path in [ROOT / "README.md", *ROOT.glob("*/README.md")])
    registered = {info.name or info.callback.__name__ for info in cli.app.registered_commands if not info.hidden}
    assert all(f"dpstudies {name}" in text for name in registered)
