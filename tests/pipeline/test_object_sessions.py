"""Tests of sessions in an object store: conditional writes, and the number of requests per block."""

import errno
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import pipeline
from pipeline.blocks.division import iterate_blocks
from pipeline.blocks.evaluate import evaluate_block
from pipeline.errors import SessionSupersededError
from pipeline.store.commit import BlockWriter, Planned
from pipeline.store.creation import create_empty_store, grow_store
from pipeline.store.files.object_files import ObjectFiles
from pipeline.store.health import check_template
from pipeline.store.read import read_outcome
from pipeline.store.result_store import ResultStore
from pipeline.store.sessions import lease
from pipeline.store.sessions.lease import Session
from tests.pipeline.helpers import (
    assert_equal_arrays,
    commit_block,
    compute_into,
    compute_pending,
    created,
    panel_of,
    pending,
)
from tests.pipeline.toy import STUDY

SMALL = panel_of(STUDY, "single")
LARGER = SMALL.extended(SMALL, 9, {})


def grow_and_fill(url, monkeypatch):
    """Take over the store as if the lease of its session had expired, extend it, and compute all blocks again."""
    monkeypatch.setattr(lease, "_state", lambda record: "over")
    with Session.begin(url, {}) as session:
        store, panel = grow_store(ResultStore.open(url, session.id), session, LARGER), LARGER.panels[0]
        for block in iterate_blocks(panel):
            commit_block(store, LARGER, panel, block, stale=panel.settings())


def test_record_is_created_once(url):
    with Session.begin(url, {}) as session:
        assert session.files.create("k", b"1")
        assert not session.files.create("k", b"2")
        assert session.files.read("k") == b"1"


@pytest.mark.parametrize("moment", ["before it begins", "while it computes", "between values and status"])
def test_superseded_session_cannot_write_to_a_store_extended_by_another(url, monkeypatch, tmp_path, moment):
    """If another session has extended and completed a store, the first session cannot write its last block."""
    session = Session.begin(url, {})
    store, panel = create_empty_store(session, SMALL, {}), SMALL.panels[0]
    *whole, last = iterate_blocks(panel)
    for block in whole:
        commit_block(store, SMALL, panel, block)
    settings = panel.settings()
    outcomes = evaluate_block(SMALL, last, settings)
    if moment == "before it begins":
        grow_and_fill(url, monkeypatch)

    def commit_last():
        with BlockWriter(store).commit([Planned(panel, last, settings)]) as commit:
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


@pytest.mark.parametrize("check", range(4))
def test_superseded_session_cannot_replace_the_template_of_a_store_extended_by_another(url, monkeypatch, check):
    """A growth that stops after any of its session checks, until another session has grown the store, fails."""
    session = Session.begin(url, {})
    store = create_empty_store(session, SMALL, {})
    require, n_checks = ObjectFiles.require_session, iter(range(100))

    def stop_after(files):
        require(files)
        if next(n_checks) == check:
            grow_and_fill(url, monkeypatch)

    further = LARGER.extended(LARGER, 12, {})
    with monkeypatch.context() as patch:
        patch.setattr(ObjectFiles, "require_session", stop_after)
        with pytest.raises(SessionSupersededError):
            grow_store(store, session, further)
    session.end()
    assert not check_template(ResultStore.open(url), LARGER)


def test_repeated_task_accepts_its_own_writes(memory_url):
    panel = SMALL.panels[0]
    with created(memory_url, SMALL) as store:
        for _ in range(2):
            commit_block(store, SMALL, panel, next(iterate_blocks(panel)))


@pytest.mark.parametrize("number", [0, -1], ids=["whole block", "block that may grow"])
def test_repeated_task_keeps_committed_values(memory_url, monkeypatch, number):
    """A task that was stopped between two statuses is repeated with other values, as those of an unseeded method."""
    coin = SMALL.panels[0].methods[0]
    study = panel_of(STUDY, "single", methods=(coin, replace(coin, name="other")))
    panel, settings = study.panels[0], study.panels[0].settings()
    block, write = list(iterate_blocks(panel))[number], ObjectFiles.replace
    outcomes = evaluate_block(study, block, settings)

    def commit(outcomes):
        with BlockWriter(store).commit([Planned(panel, block, settings)]) as commit:
            for setting, outcome in zip(settings, outcomes, strict=True):
                commit.write(panel, block, setting, outcome)

    def stop(files, key, *rest):
        if key in store.chunks.block_keys(panel, block, settings[1:], "status"):
            raise OSError(errno.ETIMEDOUT, "stopped")
        write(files, key, *rest)

    with created(memory_url, study) as store:
        with monkeypatch.context() as patch:
            patch.setattr(ObjectFiles, "replace", stop)
            with pytest.raises(OSError, match="stopped"):
                commit(outcomes)
        others = [replace(outcome, values={"heads": ~outcome.values["heads"]}) for outcome in outcomes]
        with pytest.raises(OSError, match="an object changed while its block was computed"):
            commit(others)
        kept = read_outcome(store, panel, block, settings[0])
        np.testing.assert_array_equal(kept.values["heads"], outcomes[0].values["heads"])
        compute_pending(store, study)
        assert not pending(store, panel).any()


@pytest.fixture
def requests(object_server, monkeypatch):
    """Return the number of requests by method and kind of key, without heartbeats."""
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 3600)
    return object_server.requests


def test_number_of_requests_per_block(requests):
    """A block takes one write per variable and setting, and one session check per write; errors take no request."""
    panel = SMALL.panels[0]
    with created("s3://studies/toy.zarr", SMALL) as store:
        requests.clear()
        commit_block(store, SMALL, panel, next(iterate_blocks(panel)))
        assert requests["PUT", "chunk"] == 2  # one request for the measure `heads`, and one for the status
        assert requests["PUT", "other"] == 0
        assert requests["GET", "other"] <= 2
        assert sum(requests.values()) <= 4  # no deletes and no lists


def run_and_count(url, requests, n_blocks, n_settings):
    """Run blocks of two trials on threads; return the number of requests that are not for coordinates."""
    methods = tuple(replace(SMALL.panels[0].methods[0], name=f"coin{k}") for k in range(n_settings))
    study = panel_of(STUDY, "single", methods=methods, trials=2 * n_blocks, block_trials=2)
    requests.clear()
    pipeline.run(study, url)
    n_coordinates = 2  # trial and algorithm
    for method in ("PUT", "HEAD"):
        requests[method, "chunk"] -= n_coordinates
    return Counter(requests)


def test_number_of_requests_of_a_run(requests):
    """A run takes two writes and no delete per block and setting, and the other requests do not depend on them.

    The two writes are those of the single measure and of the status; a further measure takes one more.
    """
    few, many = (run_and_count(f"s3://studies/{n}.zarr", requests, n, 3) for n in (4, 24))
    for found, n in ((few, 4), (many, 24)):
        assert found["PUT", "chunk"] == 2 * 3 * n
        assert found["GET", "chunk"] == 0
        assert found["HEAD", "chunk"] == 0
        n_deletes = sum(count for (method, _), count in found.items() if method in ("POST", "DELETE"))
        assert n_deletes <= 2  # the heartbeat, and the probe of conditional writes
    assert many["PUT", "other"] == few["PUT", "other"]
    per_block = (sum(many.values()) - sum(few.values())) / (24 - 4)
    assert per_block <= 2 * 3 + 2  # at most two checks of the session
