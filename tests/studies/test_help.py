"""Tests of help, version, shell completion, and the command ``list``."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest

import pipeline
from mechanisms import GLM_MECHANISMS, INFERENCE_METHODS, MECHANISMS, QUANTILE_METHODS
from mechanisms.regression.gram_samplers import GRAM_METHODS
from studies import STUDIES, cli
from tests.pipeline.helpers import run_python
from tests.studies.test_cli import STUDY_FILE

STUDY_MODULE = "studies.counts.hellinger_accuracy"
SLOW = {"zarr", "xarray", "dask", "distributed", "scipy", "numba", "matplotlib", STUDY_MODULE}
"""Modules that take longer to import than the help takes to print."""

COMMANDS = [(info.name or info.callback.__name__,) for info in cli.app.registered_commands]
GROUPS = [
    (group.name, info.name or info.callback.__name__)
    for group in cli.app.registered_groups
    for info in group.typer_instance.registered_commands
]


@pytest.mark.parametrize("words", [(), ("cluster",)], ids=["program", "group"])
def test_bare_command_prints_its_help(command, printed, words):
    out = printed(*words)
    assert out.startswith(f"Usage: {' '.join(['dpstudies', *words])} [OPTIONS] COMMAND")
    assert command(*words, "--help")[:2] == (0, out)


BEGINNING = "run", "report", "new", "benchmark", "infer", "mean"
"""Commands of the tasks in the README, which the help lists first, in one line each."""


def test_help_begins_with_the_commands_of_the_readme(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = command()[1].split("Commands to begin with:\n")[1].splitlines()
    assert [line.split()[0] for line in lines[:6]] == [*BEGINNING]
    assert lines[6] == ""
    readme = (Path(cli.__file__).parents[1] / "README.md").read_text()
    assert all(f"dpstudies {name} " in readme or f"dpstudies {name}`" in readme for name in BEGINNING)


def test_help_lists_every_command_once_under_a_heading():
    listed = [name for names in cli.Commands.headings.values() for name in names]
    visible = [info.name or info.callback.__name__ for info in cli.app.registered_commands if not info.hidden]
    assert sorted(listed) == sorted([*visible, *(group.name for group in cli.app.registered_groups)])


@pytest.mark.parametrize("words", [(), *COMMANDS, *GROUPS, ("new",), ("cluster",)], ids=" ".join)
def test_no_help_is_cut_at_80_columns_and_errors_name_it(command, refused, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    path = " ".join(["dpstudies", *words])
    code, out, _ = command(*words, "-h")
    assert (code, out.startswith(f"Usage: {path} "), command(*words, "--help")[1]) == (0, True, out)
    texts = out.splitlines()[1:]  # below the usage, which has the ellipses of arguments
    assert not [line for line in texts if "…" in line or re.search(r"\w ?\.\.\.(?! )", line)]
    assert max(map(len, texts)) <= 80
    refused(*words, "--no-such-option", message=f"; see '{path} --help'\n")


def imported(*words):
    """Return the modules that a command imports."""
    code = (
        "import sys\nfrom studies.cli import main\ntry: main()\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    found = run_python("-c", code, *words, check=True)
    assert found.stdout
    return set(found.stderr.split())


@pytest.mark.slow
def test_help_list_and_status_import_neither_studies_nor_arrays(tmp_path):
    store = pipeline.run(STUDIES["gibbs-traces"], tmp_path / "s.zarr", panels=["binomial"], values={"iteration": [0]})
    for words, modules in ((("--help",), set()), (("list",), set()), (("status", store.url), {"zarr"})):
        assert SLOW & imported(*words) == modules
    assert STUDY_MODULE in imported("list", "hellinger-accuracy")


def test_help_of_run_explains_all(command):
    assert "or all: every listed study" in " ".join(command("run", "--help")[1].split())


def test_version_is_that_of_the_distribution(command):
    assert command("--version")[:2] == (0, f"dpstudies {version('dpstudies')}\n")


def test_summarize_is_summarise(command):
    Path("toy.py").write_text(STUDY_FILE)
    command("run", "toy.py", "--store", "t.zarr")
    assert command("summarize", "t.zarr") == command("summarise", "t.zarr")
    assert "summarize" not in command("--help")[1]


def test_list_shows_the_panels_of_a_study(printed):
    Path("toy.py").write_text(STUDY_FILE.replace('"int")', '"int"), Factor("t", range(40), "time")'))
    out = printed("list", "toy.py")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines == [
        "toy: A toy",
        "To test.",
        "",
        "panel p: a panel",
        "n 1, 2 (factor: size)",
        "t 0, 1, ..., 39; 40 values (factor: time)",
        "algorithm mean, odd",
        "trials 7 per cell",
        "measures x",
        "",
        "time and storage depend on the machine; measure a few trials with: dpstudies plan toy.py",
    ]


@pytest.mark.parametrize("name", STUDIES)
def test_list_shows_every_panel_and_method_of_a_study(printed, name):
    out = printed("list", name)
    for panel in STUDIES[name].panels:
        assert f"panel {panel.name}" in out
        assert all(axis.name in out for axis in panel.settable().values())
        assert all(method.name in out for method in panel.methods)


def test_list_shows_every_mechanism(command):
    code, out, _ = command("list", "--mechanisms")
    names = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert code == 0
    assert {*MECHANISMS, *GLM_MECHANISMS, *INFERENCE_METHODS, *GRAM_METHODS, *QUANTILE_METHODS} <= set(names)
    assert command("list", "gibbs-traces", "--mechanisms")[0] == 2
    two = command("list", "gibbs-traces", "calibration")[1]
    assert two == command("list", "gibbs-traces")[1] + command("list", "calibration")[1]
    assert "did you mean gibbs-traces" in command("list", "gibs-traces")[2]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("summ", ["summarise"]),
        ("run gibbs", ["gibbs-traces"]),
        ("run al", ["all"]),
        ("plan al", []),
        ("list hellinger-l", ["hellinger-limits"]),
        ("cluster ch", ["check"]),
        ("cluster check slu", ["slurm"]),
        ("run all --cluster ls", ["lsf"]),
    ],
)
def test_shell_completion(command, monkeypatch, typed, offered):
    monkeypatch.setenv("_DPSTUDIES_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"dpstudies {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    code, out, _ = command()
    assert (code, out.split()) == (0, offered)


def test_cluster_list_shows_profiles_of_the_package_and_of_the_folder(command, tmp_path):
    (tmp_path / "cluster.yaml").write_text(
        "profiles: {slurm: {class: LocalCluster, scale: 3}, mine: {class: LocalCluster, env: {TOKEN: hush}}}"
    )
    code, out, _ = command("cluster", "list")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert ["slurm", "distributed.LocalCluster", "3", "cluster.yaml"] in rows
    assert ["mine", "distributed.LocalCluster", "cluster.yaml"] in rows
    assert any(row[:2] == ["pbs", "dask_jobqueue.PBSCluster"] for row in rows)
    assert "hush" not in out
