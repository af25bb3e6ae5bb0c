"""Tests of the output of the commands: terminal escapes, credentials, and outputs that cannot be written."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from studies.output import printable
from tests.pipeline.helpers import COMMAND
from tests.readme import ROOT
from tests.studies.test_cli import STUDY_FILE


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext: ε ≤ 1, 日本", "plain\n\ttext: ε ≤ 1, 日本"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m\r\x7f", r"\x9b31m\r\x7f"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("\udcff", r"\udcff"),
        ("at s3://user:secret@bucket/a", "at s3://...@bucket/a"),
        ("at s3://user:sec/secret@bucket/a", "at s3://...@bucket/a"),
        ("at https://secret@host/a", "at https://...@host/a"),
        ("at s3://bucket/ann@example.org/a", "at s3://bucket/ann@example.org/a"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown


def test_terminal_escapes_of_a_study_are_not_printed(command, refused):
    """Terminal escapes in errors and titles are not printed, and names with escapes are refused."""
    text = STUDY_FILE.replace("value is two", r"\x1b[2Jtwo").replace('"a panel"', r'"a \x1b]0;panel\x07"')
    Path("toy.py").write_text(text)
    command("run", "toy.py", "--store", "t.zarr")
    at = ("--panel", "p", "--cell", "n=2", "--trial", "0")
    for words in (
        ("errors", "t.zarr"),
        ("errors", "t.zarr", "--full"),
        ("trial", "t.zarr", *at),
        ("summarise", "t.zarr"),
    ):
        _, out, err = command(*words)
        assert "\x1b" not in out + err
        assert (r"\x1b[" in out) == (words[0] != "summarise")
    Path("toy.py").write_text(text.replace('Method("odd"', r'Method("o\x1b[31md"'))
    assert "\x1b" not in refused("run", "toy.py", "--store", "u.zarr", message="control character")


def shell(line, folder):
    """Run a shell command; return its exit code and its standard error."""
    program = f"{sys.executable} -c '{COMMAND[1]}'"
    words = ["bash", "-o", "pipefail", "-c", line.replace("dpstudies", program)]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=folder, env=path)
    return done.returncode, done.stderr


REMEDY = "print to a terminal, or to a file on a disk with free space"


class Full(io.StringIO):
    """Output stream on a full disk."""

    def write(self, text):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("words", [("list",), ("plan", "--help"), ("cluster", "--help")])
def test_failure_to_write_the_output_gives_a_one_line_error(command, monkeypatch, words):
    monkeypatch.setattr(sys, "stdout", Full())
    code, _, err = command(*words)
    assert (code, err) == (3, f"dpstudies: cannot write the output: No space left on device; {REMEDY}\n")


@pytest.mark.slow
def test_run_continues_without_standard_error(command, monkeypatch):
    Path("toy.py").write_text(STUDY_FILE)
    monkeypatch.setattr(sys, "stderr", Full())
    assert command("run", "toy.py", "--store", "t.zarr")[0] == 1
    assert command("status", "absent.zarr")[0] == 2


FULL = f"dpstudies: cannot write the output: No space left on device; {REMEDY}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("dpstudies list > /dev/full", 3, FULL),
        ("dpstudies list | true", 3, f"dpstudies: cannot write the output: Broken pipe; {REMEDY}\n"),
        ("dpstudies status absent 2> /dev/full", 2, ""),
        ("dpstudies list >&-", 0, ""),
        ("PYTHONIOENCODING=ascii dpstudies list > /dev/null", 0, ""),
        ("mkdir gone; cd gone; rmdir ../gone; dpstudies status x", 2, "current folder was removed; change to another"),
    ],
)
def test_exit_codes_if_the_output_of_a_process_cannot_be_written(tmp_path, line, code, error):
    found, printed = shell(line, tmp_path)
    assert found == code
    assert "Traceback" not in printed
    assert error in printed if "folder" in error else printed == error
