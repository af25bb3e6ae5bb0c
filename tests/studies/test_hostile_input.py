"""Tests of hostile input to every command: a one-line error that names the input, exit code 2, and no writes."""

import os

import pytest
import typer

from pipeline import run
from studies import STUDIES, cli
from tests.studies import test_audit_command, test_benchmark, test_own_methods, test_own_numbers
from tests.studies.conftest import contents
from tests.studies.regression import test_partition_table, test_regress
from tests.studies.test_cli import SMALL, STUDY_FILE
from tests.studies.test_mistakes import MISTAKES

RUN = ("run", "hellinger-accuracy", "--panel", "k2", "--trials", "2", "--store", "new.zarr")
LIMITS = ("run", "hellinger-limits", "--store", "new.zarr")
PARTITION = ("partition", "rows.csv", "--target", "y", "--coefficient", "x", "--partitions", "2", "--epsilon", "1")
SUBMIT = ("submit", "hellinger-accuracy", "--store", "new.zarr", "--cluster", "address")
EXTEND = ("extend", "good.zarr", "--trials", "4")
AUDIT = ("audit", "smooth", "--epsilon", "1", "--prior", "1:1", "--n", "3")
CHECK = ("cluster", "check", "threads")
TRIAL = ("trial", "good.zarr", "--panel", "k2", "--trial", "0")
MEAN = ("mean", "rows.csv", "--column", "x", "--epsilon", "1")
OF_X = (*MEAN, "--range", "0:9")
PLAN, RESUME, VERIFY = ("plan", "hellinger-accuracy"), ("resume", "good.zarr"), ("verify", "good.zarr")
SUMMARY, REPORT = ("summarise", "good.zarr"), ("report", "good.zarr", "--output", "page.html")
BENCHMARK = ("benchmark", "own.py", "--store", "new")
PROPORTION = ("proportion", "rows.csv", "--where", "x<3", "--epsilon", "1")
COUNT = ("count", "rows.csv", "--where", "x<3", "--epsilon", "1")
HISTOGRAM = ("histogram", "rows.csv", "--column", "y", "--epsilon", "1")
INFER = ("infer", "rows.csv", "--levels", "x", "--value", "y", "--sd", "1")
REGRESS = ("regress", "rows.csv", "--target", "y", "--epsilon", "1")
RANGES = ("--range", "x=0:11", "--range", "y=0:2")
HUGE = "9" * 25
ACCOUNT = ("--yes", "--ledger", "new.ledger", "--budget")

COMMANDS = {
    "study that is a folder": ("run", ".", "--store", "new.zarr"),
    "study that is empty": ("run", "", "--store", "new.zarr"),
    "study file that exits": ("run", "exits.py", "--store", "new.zarr"),
    "study file that raises": ("run", "raises.py", "--store", "new.zarr"),
    **{f"method file {name}": (*RUN, "--add", name) for name in ("exits.py", "binary.py", "")},
    "benchmark at an unknown scale": (*BENCHMARK, "--scale", "huge"),
    "benchmark in an unknown study": (*BENCHMARK, "--study", "calibrations"),
    "stored methods and a file that raises": ("extend", "good.zarr", "--add", "raises.py"),
    "module without that name": ("run", "studies:NOTHING", "--store", "new.zarr"),
    "object that is not a study": ("run", "os:path", "--store", "new.zarr"),
    "no store": (*RUN[:-1], ""),
    "store of blanks": (*RUN[:-1], "   "),
    "store in memory": (*RUN[:-1], "memory://new.zarr"),
    "store with a password": (*RUN[:-1], "s3://me:hush@bucket/new.zarr"),
    "store without a bucket": (*RUN[:-1], "s3://"),
    "store with a long name": (*RUN[:-1], "x" * 300),
    "store of 2,000 folders": (*RUN[:-1], "x/" * 2000),
    "store under a file": (*RUN[:-1], "rows.csv/new.zarr"),
    "store that is another folder": (*RUN[:-1], "folder"),
    "store with a null": (*RUN[:-1], "a\0b"),
    "folder of all studies that is empty": ("run", "all", "--store", ""),
    "folder of all studies that is a file": ("run", "all", "--store", "rows.csv"),
    "unknown scale": ("run", "all", "--store", "new", "--scale", "huge"),
    "unknown scale of one study": (*RUN, "--scale", "quik"),
    "scale with trials": (*RUN, "--scale", "quick", "--trials", "2"),
    "seed beyond 64 bits": (*RUN, "--seed", HUGE),
    "factor without a value": (*RUN, "--set", "n="),
    "factor without a name": (*RUN, "--set", "=3"),
    "the same factor twice": (*RUN, "--set", "n=20", "--set", "n=40"),
    "integer beyond 64 bits": (*RUN, "--set", f"n={HUGE}"),
    "privacy loss beyond the limit of a mechanism": (*LIMITS, "--set", "epsilon=1e15"),
    "cluster that runs a command": (*RUN, "--cluster", "clusters.yaml:system"),
    "cluster with a word as adaptive minimum": (*RUN, "--cluster", "clusters.yaml:adapts"),
    "cluster without threads": (*RUN, "--cluster", "clusters.yaml:threads"),
    "cluster with an unknown key": (*RUN, "--cluster", "clusters.yaml:key"),
    "cluster nested too deep": (*RUN, "--cluster", "deep.yaml:lab"),
    "share beyond the last": (*RUN, "--share", "4/3"),
    "share of a run until a target": (*RUN[:4], *RUN[6:], "--share", "1/3", "--until", "claims"),
    "share of all studies": ("run", "all", "--store", "new", "--share", "1/3"),
    "share of a whole store": (*RUN[:-1], "good.zarr", "--share", "1/3"),
    "merge of nothing": ("merge", "--store", "new.zarr"),
    "merge of a store that is no share": ("merge", "good.zarr", "--store", "new.zarr"),
    "merge without a destination": ("merge", "good.zarr"),
    "submission within nothing": (*SUBMIT, "--within", "1h"),
    "cancel without a submission": ("cancel", "good.zarr"),
    "cancel without a store": ("cancel", "new.zarr"),
    "resume without a store": ("resume", "new.zarr"),
    "resume of a file": ("resume", "rows.csv"),
    "resume of another folder": ("resume", "folder"),
    "extension beyond 64 bits": ("extend", "good.zarr", "--trials", HUGE),
    "status without a store": ("status", "new.zarr"),
    "status with interval 0": ("status", "good.zarr", "--watch", "--every", "0"),
    "trial that was not run": ("trial", "good.zarr", "--panel", "k2", "--cell", "n=20", "--trial", "100000"),
    "negative trial": ("trial", "good.zarr", "--panel", "k2", "--cell", "n=20", "--trial", "-1"),
    "trial of an unknown cell": ("trial", "good.zarr", "--panel", "k2", "--cell", "n=21", "--trial", "0"),
    "trial without its cell": ("trial", "good.zarr", "--panel", "k2", "--trial", "0"),
    "errors without a store": ("errors", "new.zarr"),
    "verification without a store": ("verify", "new.zarr"),
    "verification of a negative sample": ("verify", "good.zarr", "--sample", "-1"),
    "figures into a file": ("report", "good.zarr", "--figures", "rows.csv"),
    "partition with a ledger that is another file": (*PARTITION, "--cutoffs", "0", "--ledger", "rows.csv"),
    "partition with a budget of 0": (*PARTITION, "--cutoffs", "0", *ACCOUNT, "0"),
    "partition with an unknown prior": (*PARTITION, "--cutoffs", "0", "--prior", "jeffreys"),
    "audit of too many records": (*AUDIT, "--n", HUGE),
    "audit at an impossible delta": (*AUDIT, "--delta", "2"),
    "list of an unknown study": ("list", "no-such-study"),
    "list of a file without a study": ("list", "nothing.py"),
    "list of mechanisms of a study": ("list", "calibration", "--mechanisms"),
    "plan of an unknown study": ("plan", "no-such-study"),
    "plan of all studies": ("plan", "all"),
    "submission of an unknown study": ("submit", "no-such-study", "--store", "new.zarr", "--cluster", "address"),
    "submission without a cluster": ("submit", "hellinger-accuracy", "--store", "new.zarr"),
    "check of an unknown cluster": ("cluster", "check", "no-such-profile"),
    "check of a cluster that runs a command": ("cluster", "check", "clusters.yaml:system"),
    "check of a cluster with a store with a password": (*CHECK, "--store", "s3://me:hush@bucket/s.zarr"),
    "retry of an unknown kind": ("resume", "good.zarr", "--retry", "lost"),
    "summary of an unknown measure": ("summarise", "good.zarr", "--measure", "speed"),
    "summary of an unknown factor": ("summarise", "good.zarr", "--where", "nn=20"),
    "summary into a folder": ("summarise", "good.zarr", "--output", "folder.csv"),
    "report over a file of the user": ("report", "good.zarr"),
    "report with a table of verdicts of one store": ("report", "good.zarr", "--markdown", "verdicts.md"),
    "report in an unknown format": ("report", "good.zarr", "--output", "page.pdf"),
    "trial without a panel": ("trial", "good.zarr", "--trial", "0"),
    "trial with a cell of two values": (*TRIAL, "--cell", "n=20", "--cell", "n=40"),
    "list of clusters with an argument": ("cluster", "list", "slurm"),
    "submission of no trials": (*SUBMIT, "--trials", "0"),
    "status at an undefined interval": ("status", "good.zarr", "--watch", "--every", "nan"),
    "report of an empty folder": ("report", "folder"),
    "partition with an unknown feature": (*PARTITION, "--cutoffs", "0", "--features", "z"),
    "copy of a missing store": ("compact", "new.zarr", "copy.zarr"),
    "copy onto another folder": ("compact", "good.zarr", "folder"),
    "copy into its own store": ("compact", "good.zarr", "good.zarr/copy.zarr"),
    "run until claims within no time": (*RUN[:4], *RUN[6:], "--until", "claims", "--within", "soon"),
    "plan until a precision of an unknown measure": ("plan", "hellinger-accuracy", "--until", "mcse(speed) <= 0.1"),
    "extension until a negative precision": (*EXTEND[:2], "--until", "mcse(hellinger) <= -1"),
    "extension until claims within no time": (*EXTEND[:2], "--until", "claims", "--within", "soon"),
    "server at a port beyond the last": ("serve", "good.zarr", "--port", "65536"),
    "server of another study": ("serve", "good.zarr", "--study", "no-such-study"),
    "site with a long name": ("site", "--output", "x" * 300),
    "site in a store": ("site", "--output", "good.zarr/site"),
    "site with results of one store": ("site", "good.zarr"),
    "site with results of no store": ("site", "folder", "--output", "new"),
    "site with results under an empty name": ("site", ""),
    "findings of nothing": ("findings",),
    "findings of another folder": ("findings", "folder"),
    "findings of a store with a password": ("findings", "s3://me:hush@bucket/s.zarr"),
    "count with an empty marker in quotes": (*COUNT, "--na", "''", "--yes"),
    "mean with a ledger that is another file": (*OF_X, "--unit", "EUR", "--ledger", "rows.csv", "--yes"),
    "proportion without a comparison": ("proportion", "rows.csv", "--where", "x", "--epsilon", "1", "--yes"),
    "proportion with a budget of 0": (*PROPORTION, *ACCOUNT, "0"),
    "proportion with a plot in a missing folder": (*PROPORTION, "--plot", "gone/plot.svg", "--yes"),
    "proportion with a new ledger without a budget": (*PROPORTION, "--ledger", "new.ledger", "--yes"),
    "count with a seed beyond 64 bits": (*COUNT, "--seed", HUGE),
    "count beyond its budget": (*COUNT, *ACCOUNT, "0.5", "--plot", "plot.svg"),
    "count of a level that is not public": (*COUNT[:3], "x=3", "--levels", "1,2", "--epsilon", "1", "--yes"),
    "histogram with a budget of words": (*HISTOGRAM, "--edges", "0:1", "--plot", "plot.svg", *ACCOUNT, "much"),
    "inference on a table with the same column twice": (*INFER[:6], "--variance", "x"),
    "inference on a missing table": (*INFER[:1], "gone.csv", *INFER[2:]),
    "inference with a standard deviation of words": (*INFER[:6], "--sd", "much"),
    "inference with a negative privacy loss": (*INFER[:6], "--epsilon", "-1", "--noise", "laplace"),
    "inference at a level of 95": (*INFER, "--level", "95"),
    "inference with an unknown prior": (*INFER, "--prior", "jeffreys"),
    "inference with unknown noise": (*INFER, "--noise", "cauchy"),
    "inference with an unknown format of values": (*INFER, "--seen", "top-coded"),
    "inference with an unknown origin of totals": (*INFER, "--totals", "mixed"),
    "inference with negative draws": (*INFER, "--draws", "-1"),
    "inference in an unknown format": (*INFER, "--output", "values.xlsx"),
    "regression on an unknown column": (*REGRESS, "--features", "z", "--range", "y=0:2", "--yes"),
    "regression with a guess outside the range": (*REGRESS, *RANGES, "--guess", "x=0:12", "--yes"),
    "regression with a delta of 1": (*REGRESS, *RANGES, "--delta", "1", "--yes"),
    "regression with a budget without a ledger": (*REGRESS, *RANGES, "--budget", "3", "--yes"),
    "regression with an unknown format of the plot": (*REGRESS, *RANGES, "--plot", "plot.gif", "--yes"),
    "proportion of a level that is not public": (*PROPORTION, "--where", "x=3", "--levels", "1,2", "--yes"),
    "proportion from a missing release": ("proportion", "--release", "gone.json"),
    "histogram from a release and records": ("histogram", "rows.csv", "--release", "rows.csv"),
    "count from a release that is a folder": ("count", "--release", "folder"),
    "new mechanism with a path": ("new", "mechanism", "folder/mine"),
    "new study with the name of a file": ("new", "study", "good"),
    **{f"new {kind}": ("new", kind, "folder/mine") for kind in ("posterior", "table", "regression", "draw")},
}
DIVISION = (*PARTITION, "--cutoffs", "0")
RELEASES = (OF_X, PROPORTION, COUNT, (*HISTOGRAM, "--edges", "0:1"), (*REGRESS, *RANGES), DIVISION)
FAULTS = {
    ("--seed", "-1"): (BENCHMARK, PLAN, SUBMIT, VERIFY, INFER, *RELEASES),
    ("--na", ""): [(*words, "--yes") for words in RELEASES],
    ("--time-limit", "0"): (RUN, SUBMIT, RESUME, EXTEND),
    ("--cluster", "no-such-profile"): (
        *(("status", "good.zarr"), ("cancel", "good.zarr"), RESUME, EXTEND, VERIFY),
        *((*words, "--seed", "1") for words in RELEASES[-2:]),
    ),
    ("--study", "calibration"): (SUMMARY, VERIFY, RESUME, EXTEND, REPORT, (*TRIAL, "--cell", "n=20")),
    ("--panel", "k99"): (SUMMARY, PLAN, SUBMIT, EXTEND, ("trial", "good.zarr", "--trial", "0")),
    ("--set", "nn=3"): (PLAN, SUBMIT, EXTEND),
    ("--at-most", "0"): [(*words, "--until", "claims") for words in ((*RUN[:4], *RUN[6:]), SUBMIT, EXTEND[:2])],
}
"""Options with invalid values, and the commands that must refuse them."""
COMMANDS |= {
    f"{words[0]} with {option} {value}": (*words, option, value)
    for (option, value), refusing in FAULTS.items()
    for words in refusing
}

OTHERS = {
    "audit": test_audit_command,
    "benchmark": test_benchmark,
    "partition": test_partition_table,
    "regress": test_regress,
}
"""Modules with tables of further refused options of a command."""

CLUSTERS = """
profiles:
  system: {module: os, class: system}
  adapts: {module: distributed, class: LocalCluster, adapt: {minimum: x}}
  threads: {module: distributed, class: LocalCluster, kwargs: {threads_per_worker: 0}}
  key: {module: distributed, class: LocalCluster, walltime: 1h}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the files that the commands name; no command may change a file in it."""
    path = tmp_path_factory.mktemp("hostile")
    (path / "folder").mkdir()
    (path / "folder.csv").mkdir()
    (path / "good.html").write_text("a page of the user")
    (path / "folder" / "mine.txt").write_text("mine")
    (path / "rows.csv").write_text("x,y\n" + "\n".join(f"{k},{k % 3}" for k in range(12)) + "\n")
    (path / "exits.py").write_text("import sys\nsys.exit(0)\n")
    (path / "good.py").write_text("# a file of the user\n")
    (path / "own.py").write_text(test_own_methods.FILE)
    (path / "raises.py").write_text("raise KeyError('no')\n")
    (path / "nothing.py").write_text(STUDY_FILE.partition("STUDY =")[0])
    (path / "binary.py").write_bytes(bytes(range(256)))
    (path / "clusters.yaml").write_text(CLUSTERS)
    (path / "deep.yaml").write_text("[" * 20_000)
    return path


@pytest.fixture(scope="module")
def good(folder):
    """Return the folder after a small store has been computed in it."""
    values = {"n": [20], "mechanism": ["smooth"]}
    run(STUDIES["hellinger-accuracy"], folder / "good.zarr", panels=["k2"], values=values, trials=2)
    return folder


def list_commands(group, *path):
    """Yield the words and the parameters of every command of a group that the help lists."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from list_commands(command, *path, name)
        elif not command.hidden:
            yield (*path, name), command.params


def test_every_command_and_every_option_with_a_value_has_invalid_input():
    lines = [*MISTAKES, *test_own_numbers.BAD]
    lines += [f"{name} {line}" for name, module in OTHERS.items() for line in module.BAD]
    lines += [f"{name} {line}" for name in ("run", "plan", "submit") for line in test_own_methods.BAD]
    refused = [*COMMANDS.values(), *(tuple(line.split()) for line in lines)]
    for path, parameters in list_commands(typer.main.get_command(cli.app)):
        given = [words for words in refused if words[: len(path)] == path]
        valued = {one.opts[0] for one in parameters if one.opts[0].startswith("-") and not one.is_flag}
        assert given, path
        assert valued <= {word for words in given for word in words}, path


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_hostile_input_gives_a_one_line_error_and_writes_nothing(command, good, monkeypatch, words):
    monkeypatch.chdir(good)
    before = contents(good)
    code, _, err = command(*words)
    *_, line = [line for line in err.splitlines() if line.strip()]
    assert (code, line[:11], err.count("dpstudies: ")) == (2, "dpstudies: ", 1), err
    assert "Traceback" not in err
    assert "hush" not in err
    assert len(line) < 800
    assert contents(good) == before
    assert os.getcwd() == str(good)


@pytest.mark.slow
def test_valid_commands_run(command, good):
    """The commands of the other tests succeed if their input is valid (negative control)."""
    assert command(*RUN)[0] == 0
    assert command(*SMALL, "--store", "small.zarr")[0] == 0
