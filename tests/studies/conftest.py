"""Fixtures of the tests of studies."""

import sys
from contextlib import ExitStack, nullcontext
from functools import cache
from itertools import count
from pathlib import Path

import pytest
import typer
import xarray as xr

import pipeline
from studies import STUDIES, cli
from studies.figures import Converter
from studies.report import collection, findings, load_summaries, page, site
from studies.report import study as study_page
from tests.conftest import parser_of, tested_study
from tests.studies.cases import CASES


@pytest.fixture(scope="session", autouse=True)
def one_converter():
    """Draw the figures of all pages by one process, as the start of another one takes half a second."""
    with ExitStack() as stack:
        start = cache(lambda: stack.enter_context(Converter()))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for module in (collection, findings, page, site, study_page):
            patch.setattr(module, "Converter", lambda: nullcontext(start()))
        yield


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


@pytest.fixture
def printed(command):
    """Return a function that runs a command, which must succeed in silence, and returns its standard output."""

    def run(*words):
        code, out, err = command(*words)
        assert (code, err) == (0, "")
        return out

    return run


def contents(folder):
    """Return the content and the time of all files in a folder, and None for folders and pipes, by path."""
    paths = sorted(Path(folder).rglob("*"))
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else None for path in paths}


@pytest.fixture
def refused(command, capsys):
    """Return a function that asserts that a command is refused in one line before anything is written.

    The line must contain a message. The function returns what the command prints, which is nothing but this line,
    unless `is_first` is false: forecasts of regressions precede the reading of records.
    """

    def refuse(*words, message="", is_first=True, longest=800):
        capsys.readouterr()  # of earlier calls
        before = contents(".")
        code, out, err = command(*words)
        assert (code, err.count("\n"), out == "") == (2, 1, is_first), out + err
        assert err.startswith("dpstudies: ")
        assert "Traceback" not in err
        assert len(err) < longest
        assert message in err
        assert contents(".") == before
        return out + err

    return refuse


@pytest.fixture(scope="session")
def compute(tmp_path_factory):
    """Return a function that runs the case of a study at most once.

    It returns the path of the store, the summaries by panel, and those on which the claims of the case are judged.
    First trials are not evaluated repeatedly: `test_first_trials_have_no_defect` does so.
    """

    @cache
    def run(name):
        study, case, path = STUDIES[name], CASES[name], tmp_path_factory.mktemp(name) / "s.zarr"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pipeline.runs.session.refuse_defects", lambda *_: None)
            pipeline.run(study, path, panels=list(case.dims), **case.run)
        summaries = load_summaries(path, study=study)
        return path, summaries, case.prepare(summaries)

    return run


@pytest.fixture
def run_panel(tmp_path):
    """Return a function that runs a panel of a study at some values, in a store of its own; it returns the results."""
    numbers = count()

    def run(study, panel, trials=None, allow_failures=False, **values):
        path = tmp_path / f"{next(numbers)}.zarr"
        pipeline.run(study, path, panels=[panel], trials=trials, values=values, allow_failures=allow_failures)
        return xr.open_zarr(path, group=panel).load()

    return run


@pytest.fixture
def study(request):
    """Return the study to which the test file belongs; tests of all studies receive each study as a parameter."""
    return STUDIES[tested_study(request.path)]


@pytest.fixture
def store(compute, study):
    return compute(study.name)[0]


@pytest.fixture
def results(store):
    """Return a function that reads the results of a panel."""
    return lambda panel: xr.open_zarr(store, group=panel).load()


@pytest.fixture
def summaries(compute, study):
    return compute(study.name)[1]


@pytest.fixture
def prepared(compute, study):
    """Return the summaries on which the claims of the case are judged."""
    return compute(study.name)[2]
