"""Hostile input of every command: a one-line error that names the input, exit code 2, and no writes."""

import os

import pytest

from pipeline import run
from studies import STUDIES
from tests.studies.test_cli import SMALL, STUDY_FILE

RUN = ("run", "hellinger-accuracy", "--panel", "k2", "--trials", "2", "--store", "new.zarr")
PARTITION = ("partition", "rows.csv", "--target", "y", "--coefficient", "x", "--partitions", "2", "--epsilon", "1")
AUDIT = ("audit", "smooth", "--epsilon", "1", "--prior", "1:1", "--n", "3")
HUGE = "9" * 25

COMMANDS = {
    "no such study": ("run", "no-such-study", "--store", "new.zarr"),
    "study that is a folder": ("run", ".", "--store", "new.zarr"),
    "study that is empty": ("run", "", "--store", "new.zarr"),
    "study file that exits": ("run", "exits.py", "--store", "new.zarr"),
    "study file that raises": ("run", "raises.py", "--store", "new.zarr"),
    "study file without a study": ("run", "nothing.py", "--store", "new.zarr"),
    "study file that is not Python": ("run", "binary.py", "--store", "new.zarr"),
    "missing study file": ("run", "gone.py", "--store", "new.zarr"),
    "missing module": ("run", "no.such.module:STUDY", "--store", "new.zarr"),
    "module without that name": ("run", "studies:NOTHING", "--store", "new.zarr"),
    "object that is not a study": ("run", "os:path", "--store", "new.zarr"),
    "no store": (*RUN[:-1], ""),
    "store of blanks": (*RUN[:-1], "   "),
    "store in memory": (*RUN[:-1], "memory://new.zarr"),
    "store of an unknown kind": (*RUN[:-1], "nope://bucket/new.zarr"),
    "store with a password": (*RUN[:-1], "s3://me:hush@bucket/new.zarr"),
    "store without a bucket": (*RUN[:-1], "s3://"),
    "store with a long name": (*RUN[:-1], "x" * 300),
    "store of 2,000 folders": (*RUN[:-1], "x/" * 2000),
    "store under a file": (*RUN[:-1], "rows.csv/new.zarr"),
    "store that is a file": (*RUN[:-1], "rows.csv"),
    "store that is another folder": (*RUN[:-1], "folder"),
    "store with a null": (*RUN[:-1], "a\0b"),
    "folder of all studies that is empty": ("run", "all", "--store", ""),
    "folder of all studies that is a file": ("run", "all", "--store", "rows.csv"),
    "unknown scale": ("run", "all", "--store", "new", "--scale", "huge"),
    "scale of one study": (*RUN, "--scale", "quick"),
    "no trials": (*RUN, "--trials", "0"),
    "negative trials": (*RUN, "--trials", "-5"),
    "trials that are not a number": (*RUN, "--trials", "many"),
    "a billion trials": (*RUN, "--trials", "1000000000000"),
    "trials beyond 64 bits": (*RUN, "--trials", HUGE),
    "negative seed": (*RUN, "--seed", "-1"),
    "seed beyond 64 bits": (*RUN, "--seed", HUGE),
    "unknown panel": (*RUN, "--panel", "k99"),
    "unknown factor": (*RUN, "--set", "nn=3"),
    "factor without a value": (*RUN, "--set", "n="),
    "factor without an equals sign": (*RUN, "--set", "n"),
    "factor without a name": (*RUN, "--set", "=3"),
    "the same value twice": (*RUN, "--set", "n=20,20"),
    "the same factor twice": (*RUN, "--set", "n=20", "--set", "n=40"),
    "integer that is a fraction": (*RUN, "--set", "n=2.5"),
    "integer beyond 64 bits": (*RUN, "--set", f"n={HUGE}"),
    "negative number of records": (*RUN, "--set", "n=-1"),
    "number that is a word": (*RUN, "--set", "epsilon=small"),
    "NaN": (*RUN, "--set", "epsilon=nan"),
    "infinite number": (*RUN, "--set", "epsilon=inf"),
    "negative privacy loss": (*RUN, "--set", "epsilon=-1"),
    "privacy loss of 0": (*RUN, "--set", "epsilon=0"),
    "denormal privacy loss": (*RUN, "--set", "epsilon=1e-320"),
    "enormous privacy loss": (*RUN, "--set", "epsilon=1e308"),
    "privacy loss beyond the limit of a mechanism": (
        "run",
        "hellinger-limits",
        "--set",
        "epsilon=1e15",
        "--store",
        "new.zarr",
    ),
    "unknown mechanism": (*RUN, "--set", "mechanism=smoooth"),
    "prior of zeros": (*RUN, "--set", "prior=0:0"),
    "prior of the wrong length": (*RUN, "--set", "prior=1:1:1"),
    "time limit of 0": (*RUN, "--time-limit", "0"),
    "time limit on threads": (*RUN, "--time-limit", "5"),
    "unknown cluster": (*RUN, "--cluster", "no-such-profile"),
    "missing cluster file": (*RUN, "--cluster", "gone.yaml:lab"),
    "cluster file that is not YAML": (*RUN, "--cluster", "binary.py:lab"),
    "cluster that runs a command": (*RUN, "--cluster", "clusters.yaml:system"),
    "cluster with a word as adaptive minimum": (*RUN, "--cluster", "clusters.yaml:adapts"),
    "cluster without threads": (*RUN, "--cluster", "clusters.yaml:threads"),
    "cluster with an unknown key": (*RUN, "--cluster", "clusters.yaml:key"),
    "cluster nested too deep": (*RUN, "--cluster", "deep.yaml:lab"),
    "submission without an address": ("submit", "hellinger-accuracy", "--store", "new.zarr", "--cluster", "threads"),
    "cancel without a submission": ("cancel", "good.zarr"),
    "cancel without a store": ("cancel", "new.zarr"),
    "resume without a store": ("resume", "new.zarr"),
    "resume of a file": ("resume", "rows.csv"),
    "resume of another folder": ("resume", "folder"),
    "extension to fewer trials": ("extend", "good.zarr", "--trials", "1"),
    "extension by nothing": ("extend", "good.zarr"),
    "extension beyond 64 bits": ("extend", "good.zarr", "--trials", HUGE),
    "extension of an unknown factor": ("extend", "good.zarr", "--set", "nn=3"),
    "extension by another study": ("extend", "good.zarr", "--study", "hellinger-limits", "--trials", "9"),
    "status without a store": ("status", "new.zarr"),
    "status with interval 0": ("status", "good.zarr", "--watch", "--every", "0"),
    "trial that was not run": ("trial", "good.zarr", "--panel", "k2", "--cell", "n=20", "--trial", "100000"),
    "negative trial": ("trial", "good.zarr", "--panel", "k2", "--cell", "n=20", "--trial", "-1"),
    "trial of an unknown cell": ("trial", "good.zarr", "--panel", "k2", "--cell", "n=21", "--trial", "0"),
    "trial without its cell": ("trial", "good.zarr", "--panel", "k2", "--trial", "0"),
    "summary of an unknown panel": ("summarise", "good.zarr", "--panel", "k99"),
    "errors without a store": ("errors", "new.zarr"),
    "verification without a store": ("verify", "new.zarr"),
    "verification of a negative sample": ("verify", "good.zarr", "--sample", "-1"),
    "verification with a negative seed": ("verify", "good.zarr", "--seed", "-1"),
    "report without a store": ("report", "new.zarr"),
    "report into a folder that is a file": ("report", "good.zarr", "--output", "rows.csv/page.html"),
    "figures into a file": ("report", "good.zarr", "--figures", "rows.csv"),
    "partition of a missing table": (*PARTITION[:1], "gone.csv", *PARTITION[2:], "--cutoffs", "0"),
    "partition with a negative seed": (*PARTITION, "--cutoffs", "0", "--seed", "-1"),
    "partition without cutoffs or probabilities": PARTITION,
    "partition of 0 partitions": (*PARTITION, "--cutoffs", "0", "--partitions", "0"),
    "partition with an unknown column": (*PARTITION, "--cutoffs", "0", "--target", "z"),
    "partition at NaN": (*PARTITION, "--cutoffs", "nan"),
    "partition at an impossible quantile": (*PARTITION, "--probabilities", "1.5"),
    "partition with a negative privacy loss": (*PARTITION, "--cutoffs", "0", "--epsilon", "-1"),
    "partition with an unknown prior": (*PARTITION, "--cutoffs", "0", "--prior", "jeffreys"),
    "audit of an unknown mechanism": ("audit", "smoooth", *AUDIT[2:]),
    "audit at privacy loss 0": (*AUDIT, "--epsilon", "0"),
    "audit of a negative number of records": (*AUDIT, "--n", "-3"),
    "audit of too many records": (*AUDIT, "--n", HUGE),
    "audit with a prior of words": (*AUDIT, "--prior", "a:b"),
    "audit at an impossible delta": (*AUDIT, "--delta", "2"),
    "audit at an impossible order": (*AUDIT, "--order", "0"),
    "unknown option": (*RUN, "--no-such-option"),
    "unknown command": ("walk",),
}

CLUSTERS = """
profiles:
  system: {module: os, class: system}
  adapts: {module: distributed, class: LocalCluster, adapt: {minimum: x}}
  threads: {module: distributed, class: LocalCluster, kwargs: {threads_per_worker: 0}}
  key: {module: distributed, class: LocalCluster, walltime: 1h}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the files that the commands name; nothing in it may change."""
    path = tmp_path_factory.mktemp("hostile")
    (path / "folder").mkdir()
    (path / "folder" / "mine.txt").write_text("mine")
    (path / "rows.csv").write_text("x,y\n" + "\n".join(f"{k},{k % 3}" for k in range(12)) + "\n")
    (path / "exits.py").write_text("import sys\nsys.exit(0)\n")
    (path / "raises.py").write_text("raise KeyError('no')\n")
    (path / "nothing.py").write_text(STUDY_FILE.partition("STUDY =")[0])
    (path / "binary.py").write_bytes(bytes(range(256)))
    (path / "clusters.yaml").write_text(CLUSTERS)
    (path / "deep.yaml").write_text("[" * 20_000)
    return path


@pytest.fixture(scope="module")
def good(folder):
    """Return the folder with a small store."""
    values = {"n": [20], "mechanism": ["smooth"]}
    run(STUDIES["hellinger-accuracy"], folder / "good.zarr", panels=["k2"], values=values, trials=2)
    return folder


def state(folder):
    return {path: (path.is_dir() or path.read_bytes()) for path in sorted(folder.rglob("*"))}


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_hostile_input_gives_a_one_line_error_and_writes_nothing(command, good, monkeypatch, words):
    monkeypatch.chdir(good)
    before = state(good)
    code, _, err = command(*words)
    lines = [line for line in err.splitlines() if line.strip()]
    assert code == 2, err
    assert lines[-1].startswith("dpstudies: ")
    assert "Traceback" not in err
    assert "hush" not in err
    assert sum(line.startswith("dpstudies: ") for line in lines) == 1, err
    assert len(lines[-1]) < 800
    assert state(good) == before
    assert os.getcwd() == str(good)


def test_valid_commands_run(command, good):
    """Negative control: the same commands with valid input succeed."""
    assert command(*RUN)[0] == 0
    assert command(*SMALL, "--store", "small.zarr")[0] == 0
