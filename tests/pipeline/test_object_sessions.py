"""Tests of sessions in an object store: conditional writes, and the number of requests per block."""

from collections import Counter

import pytest
import s3fs

import pipeline
from pipeline.blocks.evaluate import Block, evaluate_block
from pipeline.errors import BusyStoreError, SessionSupersededError
from pipeline.stores import sessions
from pipeline.stores.commits import Planned
from pipeline.stores.sessions import Session
from pipeline.stores.store import ResultStore
from tests.pipeline.helpers import assert_equal_arrays, commit_block, compute_into, panel_of
from tests.pipeline.toy import STUDY

pytestmark = pytest.mark.slow  # this file takes half a minute or more

SMALL = panel_of(STUDY, "single")
LARGER = SMALL.extended(SMALL, 9, {})


def blocks(panel):
    return [
        Block(panel.name, 0, range(start, min(start + panel.block_trials, panel.n_trials)))
        for start in range(0, panel.n_trials, panel.block_trials)
    ]


def grow_and_fill(url, monkeypatch):
    """Take over the store as after a lease, extend it, and compute all blocks again."""
    monkeypatch.setattr(sessions, "_state", lambda record: "over")
    with Session.begin(url, {}) as session:
        store, panel = ResultStore.open(url, session.id).grow(session, LARGER), LARGER.panels[0]
        for block in blocks(panel):
            commit_block(store, LARGER, panel, block, stale=panel.settings())


def test_second_session_is_rejected_until_the_first_ends(url):
    with Session.begin(url, {}), pytest.raises(BusyStoreError, match="is being written by another session"):
        Session.begin(url, {})
    Session.begin(url, {}).end()


def test_record_is_created_once(url):
    files = Session.begin(url, {}).files
    assert files.create("k", b"1")
    assert not files.create("k", b"2")
    assert files.read("k") == b"1"


@pytest.mark.parametrize("moment", ["before it begins", "while it computes", "between values and status"])
def test_superseded_session_cannot_write_to_a_store_extended_by_another(url, monkeypatch, tmp_path, moment):
    """Let another session extend and fill the store while this one computes its shorter last block."""
    session = Session.begin(url, {})
    store, panel = ResultStore.create(session, SMALL, {}), SMALL.panels[0]
    *whole, last = blocks(panel)
    for block in whole:
        commit_block(store, SMALL, panel, block)
    settings = panel.settings()
    outcomes = evaluate_block(SMALL, last, settings)
    if moment == "before it begins":
        grow_and_fill(url, monkeypatch)

    def commit_last():
        with store.commit([Planned(panel, last, settings)]) as commit:
            if moment == "while it computes":
                grow_and_fill(url, monkeypatch)
            for setting, outcome in zip(settings, outcomes, strict=True):
                commit.write(panel, last, setting, outcome)
            if moment == "between values and status":
                grow_and_fill(url, monkeypatch)

    with pytest.raises(SessionSupersededError):
        commit_last()
    session.end()
    assert_equal_arrays(url, compute_into(tmp_path / "whole.zarr", LARGER).url, n_least=3)


def test_repeated_task_accepts_its_own_writes(url):
    with Session.begin(url, {}) as session:
        store, panel = ResultStore.create(session, SMALL, {}), SMALL.panels[0]
        for _ in range(2):
            commit_block(store, SMALL, panel, blocks(panel)[0])


def test_number_of_requests_per_block(url, monkeypatch):
    """One write per variable and setting, none for absent errors; one check of the session per write of a task."""
    counts, call = Counter(), s3fs.S3FileSystem._call_s3

    async def counted(files, method, *arguments, **keywords):
        counts[method] += 1
        return await call(files, method, *arguments, **keywords)

    panel = SMALL.panels[0]
    with Session.begin(url, {}) as session:
        store = ResultStore.create(session, SMALL, {})
        with monkeypatch.context() as patch:
            patch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
            commit_block(store, SMALL, panel, blocks(panel)[0])
        assert counts["put_object"] == 2  # heads and status
        assert counts["delete_object"] == counts["get_object"] == 0
        assert counts["head_object"] <= 2


def test_run_is_rejected_in_one_line_while_another_session_writes(url):
    with Session.begin(url, {}), pytest.raises(BusyStoreError):
        pipeline.run(STUDY, url, panels=["single"])
