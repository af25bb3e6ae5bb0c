"""Fixtures of the tests of studies."""

import sys

import pytest

from studies import cli


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Return a function that runs the command in this process, in an empty folder: ``code, out, err``."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["dpstudies", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run
