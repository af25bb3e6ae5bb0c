"""Tests that messages which suggest a command quote the paths in it."""

import pickle
import shlex

import pytest

import pipeline
from pipeline.clusters.cluster import _hint
from pipeline.clusters.profiles import Profile
from pipeline.errors import IncompleteStoreError, SessionSupersededError
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


@pytest.mark.parametrize("call", [open_complete, lambda path: verify(path, study=STUDY)])
def test_an_interrupted_creation(place, call, monkeypatch):
    create_store(place, STUDY)
    monkeypatch.setattr(ResultStore, "complete", property(lambda store: False))
    with pytest.raises(IncompleteStoreError) as caught:
        call(place)
    assert words_after("finish it with: ", str(caught.value)) == ["dpstudies", "resume", place]


def test_no_open_submission(place):
    create_store(place, STUDY)
    with pytest.raises(pipeline.BadInputError) as caught:
        pipeline.cancel(place)
    assert words_after("show its status with: ", str(caught.value)) == ["dpstudies", "status", place]


def test_an_open_submission(place):
    session = Session.begin(place, {"submission": "0" * 32})
    with pytest.raises(pipeline.BadInputError) as caught:
        Session.begin(place, {})
    session.end()
    assert words_after("end it with: ", str(caught.value)) == ["dpstudies", "cancel", place]


def test_a_cluster_without_workers():
    assert words_after("start one with: ", _hint(Profile("a", address="tcp://h$x:1")))[-1] == "tcp://h$x:1"
    batch = Profile("my jobs", "dask_jobqueue", "SLURMCluster", kwargs={"cores": 1, "memory": "1GB"})
    assert words_after("the script with: ", _hint(batch)) == [
        "dpstudies",
        "cluster",
        "check",
        "my jobs",
        "--no-connect",
    ]
