"""Fixtures of the tests of studies."""

import sys
from functools import cache

import pytest
import typer

import pipeline
from studies import STUDIES, cli
from studies.report import load_summaries
from tests.conftest import parser_of, tested_study
from tests.studies.cases import CASES


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Return a function that runs the command in this process, in an empty folder, and returns (code, out, err)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(typer.main, "get_command", parser_of)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["dpstudies", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def compute(tmp_path_factory):
    """Return a function that runs the case of a study at most once, and returns its stores and summaries by panel."""

    @cache
    def run(name):
        study, case, folder = STUDIES[name], CASES[name], tmp_path_factory.mktemp(name)
        stores, summaries = {}, {}
        for number, options in enumerate(case.runs):
            path = folder / f"{number}.zarr"
            pipeline.run(study, path, **options)
            loaded = load_summaries(path, study=study)
            stores |= dict.fromkeys(loaded, path)
            summaries |= loaded
        return stores, summaries

    return run


@pytest.fixture
def study(request):
    """Return the study to which the test file belongs; tests of all studies receive each study as a parameter."""
    return STUDIES[tested_study(request.path)]


@pytest.fixture
def stores(compute, study):
    return compute(study.name)[0]


@pytest.fixture
def summaries(compute, study):
    return compute(study.name)[1]
