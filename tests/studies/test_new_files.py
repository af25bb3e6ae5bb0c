"""Tests of the command ``new``, of mechanisms that can only be sampled, and of files of the wrong kind."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mechanisms import audit_counts
from pipeline.declare.source import load_object
from tests.pipeline.helpers import run_python

AT = ("--prior", "1:1", "--n", "20", "--epsilon", "1")
DRAWS = """
import numpy as np
from mechanisms import Guarantee, Mechanism

def draw(scale):
    def sample(rng, counts, epsilon, delta, size):
        first = np.clip(np.rint(counts[0] + rng.laplace(scale=scale / epsilon, size=size)), 0, counts.sum()).astype(int)
        return np.column_stack([first, *[0 * first] * (counts.size - 2), counts.sum() - first])

    return sample

GOOD = Mechanism("good", sampler=draw(1), guarantee=lambda epsilon, delta: Guarantee(epsilon))
BAD = Mechanism("bad", sampler=draw(0.8), guarantee=lambda epsilon, delta: Guarantee(epsilon))
SILENT = Mechanism("silent", sampler=draw(1), guarantee=lambda epsilon, delta: None)
"""


def follow(command, out, verb):
    """Run the printed command with a verb, such as ``run``."""
    (line,) = re.findall(rf": dpstudies ({verb} .*)", out)
    return command(*line.split())


@pytest.mark.slow
def test_new_mechanism_is_audited_and_compared_without_editing(command, printed):
    out = printed("new", "mechanism", "mine")
    assert len(Path("mine.py").read_text().splitlines()) <= 40
    assert "within" in follow(command, out, "audit")[1]
    mechanism = load_object("mine.py:MECHANISM")
    assert mechanism.name == "mine"
    for k in (2, 3):
        assert audit_counts(mechanism, [1] * k, n=8, epsilon=1.0).check(mechanism.guarantee(1.0)).holds
    assert command("run", "mine.py", "--store", "m.zarr", "--trials", 20, "--set", "n=20")[0] == 0
    shown = command("summarise", "m.zarr")[1]
    assert "mine" in shown
    assert "hamming-exact" in shown


@pytest.mark.slow
def test_new_study_runs_to_a_page_without_editing(command, printed):
    out = printed("new", "study", "mine")
    text = Path("mine.py").read_text()
    assert len(text.splitlines()) <= 65
    assert all(part in text for part in ('dtype="bool"', "nominal=0.95", 'Factor("tails", tuple(DEGREES)', "@claim("))
    (line,) = re.findall(r": dpstudies (run .*)", out)
    assert command(*line.split())[0] == 0
    assert follow(command, out, "report")[0] == 0
    page = Path("mine.html").read_text()
    assert "Mean against median" in page
    assert "1 of 1 claim has a verdict" in page


@pytest.mark.parametrize("name", ["1st", "my-study", "class", "pipeline", "../x", ""])
def test_names_that_are_no_new_module_are_refused(refused, name):
    refused("new", "study", name, message="the name must be that of a new Python module")


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("GOOD", 0, "which does not contradict 1-DP"),
        ("BAD", 1, "which BREAKS 1-DP"),
        ("SILENT", 0, "does not contradict"),
    ],
)
def test_audit_bounds_the_loss_of_a_sampler(command, name, code, words):
    """Rounded Laplace noise on one of two counts loses exactly its ε; a scale 20 % too small loses 1.25·ε."""
    Path("draws.py").write_text(DRAWS)
    found, out, err = command("audit", f"draws.py:{name}", *AT)
    assert (found, err) == (code, "")
    assert words in out
    assert out.endswith(f"audited: 1, broken: {code}\n")
    bound = float(re.search(r"at least ([\d.]+) ", out)[1])
    assert bound <= (1.25 if name == "BAD" else 1.0)
    assert bound > (1.0 if name == "BAD" else 0.7)
    assert out == command("audit", f"draws.py:{name}", *AT)[1]


def test_audit_shows_samplers_beside_exact_audits(command):
    Path("draws.py").write_text(DRAWS)
    code, out, _ = command("audit", "geometric", "draws.py:GOOD", *AT)
    assert (code, out.count("1-DP")) == (0, 2)
    assert "relation must be replace-one" in command("audit", "draws.py:GOOD", *AT, "--relation", "add-remove")[2]


def test_file_that_hides_the_pipeline_is_named_and_the_command_works_beside_it(tmp_path):
    (tmp_path / "pipeline.py").write_text("x = 1\n")
    for line in ("from studies import STUDIES", "from studies.figures import Chart"):
        (tmp_path / "mine.py").write_text(f"{line}\n")
        found = run_python("mine.py", cwd=tmp_path)
        assert found.stderr.splitlines()[-1] == (
            f"ImportError: {tmp_path}/pipeline.py hides the package pipeline of dpstudies; rename it, or run elsewhere"
        )
    program = Path(sys.executable).with_name("dpstudies")
    found = subprocess.run([program, "list"], cwd=tmp_path, capture_output=True, text=True)
    assert (found.returncode, "hellinger-accuracy" in found.stdout) == (0, True)


@pytest.mark.parametrize(
    "draw",
    ["np.random.default_rng().standard_t(5, 9)", "np.random.standard_t(5, 9)", "[random.random()]"],
)
def test_simulation_with_unseeded_randomness_is_refused(command, draw):
    command("new", "study", "mine")
    text = Path("mine.py").read_text().replace('rng.standard_t(DEGREES[cell["tails"]], size=cell["n"])', draw)
    assert draw in text
    Path("mine.py").write_text(f"import random\n{text}")
    code, out, err = command("run", "mine.py", "--store", "s.zarr", "--trials", 4)
    assert code in (2, 3)
    assert "simulate of panel main must return the same data" in err
    assert "draw all random numbers from streams" in err
    assert "next: dpstudies report" not in out
