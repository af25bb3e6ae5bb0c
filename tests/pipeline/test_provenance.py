"""Tests of the source revision recorded by sessions."""

import shutil
import subprocess
import sys

import pytest

from pipeline.store.sessions.records import describe


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_change_anywhere_in_the_repository_is_recorded(tmp_path):
    """A change in any folder of the repository is recorded, because results may depend on any of them."""
    study, mechanism = tmp_path / "studies/mine.py", tmp_path / "mechanisms/mine.py"
    for file in (study, mechanism):
        file.parent.mkdir()
        file.write_text("a = 1")

    def git(*words):
        named = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        subprocess.run(["git", "-C", tmp_path, *named, *words], check=True, capture_output=True)

    git("init")
    assert "git_commit" not in describe(str(study))
    git("add", ".")
    git("commit", "-m", "first")
    assert describe(str(study))["git_dirty"] is False
    mechanism.write_text("a = 2")
    assert describe(str(study))["git_dirty"] is True
    assert "git_commit" not in describe(None)


def test_command_is_recorded_without_secrets(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/home/me/study.py", "--token", "hush", "--store", "s.zarr", "PASSWORD=hush"])
    assert describe(None)["command"] == "study.py --token *** --store s.zarr PASSWORD=***"
