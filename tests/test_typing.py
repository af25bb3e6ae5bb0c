"""Tests of the type hints of public names, by running mypy in strict mode on code that uses them."""

import inspect
import re
from importlib.metadata import version
from pathlib import Path

import pytest

import mechanisms
import pipeline
import studies
from tests.pipeline.helpers import run_python

ROOT = Path(__file__).parents[1]
USER = """
import numpy as np
import xarray as xr

from mechanisms import FAMILIES, MECHANISMS, Audit, CountRelease, Guarantee, ReleasePosterior
from mechanisms import audit_counts, hellinger, posterior_from_release
from pipeline import Factor, Measure, Method, Panel, Streams, Study, open_results, run, summarise
from studies import STUDIES

release: CountRelease = MECHANISMS["smooth"].build([1, 1], [5, 5], 1.0, 1e-8)
guarantee: Guarantee | None = release.guarantee
distance = hellinger(np.ones(2), release.prior)
audit: Audit = audit_counts("geometric", [1, 1], 5, 1.0)
loss: float = audit.epsilon
draws = release.sample(np.random.default_rng(1), 3)
total: int = int(draws.sum())
family = FAMILIES["poisson"]
found: ReleasePosterior = posterior_from_release(12.0, "binomial", (1, 1), n=30, epsilon=1.0)
low, high = found.interval(0.9)


def simulate(cell: object, streams: Streams) -> np.ndarray:
    return streams.uniforms(1)[:, 0]


methods = (Method("a", lambda data, setting, streams: {"x": data}),)
panel = Panel("p", "p", simulate, methods, (Measure("x", "x"),), trials=3)
study: Study = Study("s", "S", "s", (panel,), seed=1).configure(trials=2)
url: str = run(study, "s.zarr", progress=False).url
ds: xr.Dataset = summarise(open_results(url)["p"].to_dataset())
published: Study = STUDIES["calibration"]
factor = Factor("n", (1, 2), "size", "int")
"""
# the hints of other packages take half of the time
CONFIG = """
[mypy]
[mypy-xarray.*,pandas.*,scipy.*,dask.*,distributed.*,zarr.*,matplotlib.*,jinja2.*,typer.*,rich.*,numba.*]
follow_imports = skip
"""
WRONG = {
    'Factor(3, (1, 2), "size")': "arg-type",
    'run("study.py", "s.zarr", trials="many")': "arg-type",
    'MECHANISMS["smooth"].build([1, 1], [5, 5], "one")': "arg-type",
    "STUDIES[3]": "index",
}


@pytest.mark.slow
def test_hints_accept_a_correct_program_and_refuse_wrong_calls(tmp_path):
    """mypy, run outside the package, reports one error per wrong call and none in the correct program."""
    (tmp_path / "user.py").write_text(USER + "\n".join(WRONG))
    (tmp_path / "user.ini").write_text(CONFIG)
    words = ["--strict", "--follow-imports=silent", "--ignore-missing-imports", "user.py"]
    done = run_python("-m", "mypy", "--config-file=user.ini", *words, cwd=tmp_path, env={"MYPYPATH": str(ROOT)})
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [code for code, error in zip(WRONG.values(), errors, strict=True) if not error.endswith(f"[{code}]")] == []


@pytest.mark.parametrize("package", [mechanisms, pipeline, studies], ids=lambda package: package.__name__)
def test_packages_have_hints_and_the_version_of_the_distribution(package):
    assert package.__version__ == version("dpstudies")
    assert Path(package.__file__).with_name("py.typed").exists()


PUBLIC = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in (mechanisms, pipeline)
    for name in package.__all__
    if inspect.isfunction(getattr(package, name))
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_have_complete_hints(name):
    signature = inspect.signature(PUBLIC[name])
    assert signature.return_annotation is not inspect.Signature.empty
    assert [one.name for one in signature.parameters.values() if one.annotation is inspect.Parameter.empty] == []


@pytest.mark.parametrize("name", mechanisms.__all__)
def test_help_on_a_name_of_mechanisms_needs_no_other_page(name):
    """No parameter is described by another function or module."""
    page = inspect.getdoc(getattr(mechanisms, name)) or ""
    assert "module docstring" not in " ".join(page.split())
    assert not re.search(r"(, \w+|\w+) ?:?.*\n    See `", page.split("Returns\n")[0])
