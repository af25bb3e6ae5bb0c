"""Tests that messages which suggest a command quote the paths in it."""

import pickle
import shlex

import pytest

import pipeline
from pipeline.errors import BadInputError, IncompleteStoreError, SessionSupersededError
from pipeline.runs.verify import verify
from pipeline.store.result_store import ResultStore, open_complete
from pipeline.store.sessions.lease import Session
from tests.pipeline.helpers import create_store
from tests.pipeline.toy import STUDY


def words_after(hint, text):
    """Return the words, split as by a shell, of the command that follows `hint` in a text."""
    return shlex.split(text.split(hint)[1].splitlines()[0])


@pytest.fixture
def place(tmp_path):
    """Return a path that contains a space and a quote."""
    return str(tmp_path / "my brother's.zarr")


def test_a_superseded_session(place):
    assert words_after("show the status with: ", str(SessionSupersededError(place))) == ["dpstudies", "status", place]
    for missing in (False, True):
        error = SessionSupersededError(place, is_store_missing=missing)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def begin_during_a_submission(path):
    with Session.begin(path, {"submission": "0" * 32}):
        Session.begin(path, {})


@pytest.mark.parametrize(
    ("call", "hint", "command"),
    [
        (pipeline.cancel, "show its status with: ", "status"),
        (begin_during_a_submission, "end it with: ", "cancel"),
        (open_complete, "finish it with: ", "resume"),
        (lambda path: verify(path, study=STUDY), "finish it with: ", "resume"),
    ],
    ids=["no submission", "submission", "interrupted creation", "verification of one"],
)
def test_commands_quote_the_path_of_a_store(place, call, hint, command, monkeypatch):
    create_store(place, STUDY)
    if command == "resume":
        monkeypatch.setattr(ResultStore, "complete", property(lambda store: False))
    with pytest.raises((IncompleteStoreError, BadInputError)) as caught:
        call(place)
    assert words_after(hint, str(caught.value)) == ["dpstudies", command, place]
