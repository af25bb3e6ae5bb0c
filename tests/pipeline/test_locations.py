"""Tests that invalid store locations are rejected with a one-line message, before anything is written."""

import pytest

from pipeline import BadInputError, resume, run
from pipeline.store.files.locations import holds_root, normalise_location, probe_name
from pipeline.store.result_store import ResultStore
from tests.pipeline.helpers import refusal
from tests.pipeline.toy import STUDY

REFUSED = {
    "": "got an empty string",
    "  ": "got an empty string",
    "a\0b": "got a null character",
    "x" * 300: "at most 800 bytes, and 255 per name",
    "ä" * 128: "got",
    "a/" * 2_000: "at most 800 bytes, and 255 per name",
    "nope://bucket/s.zarr": "a folder or the URL of an object store, s3://, gs:// or az://",
    "s3://bucket": "must have the form s3://BUCKET/NAME.zarr",
    "s3:///s.zarr": "must have the form s3://BUCKET/NAME.zarr",
    "s3://a bucket/s.zarr": "must have the form s3://BUCKET/NAME.zarr",
    "s3://bucket/a//s.zarr": "must have the form s3://BUCKET/NAME.zarr",
    "s3://bucket/../s.zarr": "must have the form s3://BUCKET/NAME.zarr",
    "s3://bucket/a\nb": "must have the form s3://BUCKET/NAME.zarr",
    "s3://bucket/a\udcff": "must have the form s3://BUCKET/NAME.zarr",
    "s3://[::1/s.zarr": "must contain no credentials",
    "s3://user:secret@bucket/s.zarr": "must contain no credentials",
    "s3://user:sec/secret@bucket/s.zarr": "must contain no credentials",
    "s3://user:sec#secret@bucket/s.zarr": "must contain no credentials",
    "s3://user:secret": "must contain no credentials",
    "s3://bucket/s.zarr?key=secret": "must contain no credentials",
    "user:secret@s3://bucket/s.zarr": "got other characters before ://",
}


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: repr(path[:20]))
def test_invalid_locations_are_rejected(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    for call in (normalise_location, holds_root, lambda path: run(STUDY, path), resume):
        with refusal(REFUSED[path]) as caught:
            call(path)
        assert "secret" not in str(caught.value)
        assert len(str(caught.value)) < 400
    assert list(tmp_path.iterdir()) == []


def test_valid_locations_are_normalised(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert normalise_location("s.zarr") == str(tmp_path / "s.zarr")
    assert normalise_location(b"s.zarr") == str(tmp_path / "s.zarr")
    assert normalise_location(tmp_path / "a" / ".." / "x") == str(tmp_path / "x")
    assert normalise_location("x" * 255) == f"{tmp_path}/{'x' * 255}"
    assert normalise_location("a\udcff") == f"{tmp_path}/a\udcff"
    assert normalise_location("s3://bucket/ann@example.org/s.zarr//") == "s3://bucket/ann@example.org/s.zarr"


def test_longest_path_is_writable(tmp_path):
    depth = (790 - len(str(tmp_path))) // 2
    store = run(STUDY, f"{tmp_path}/{'a/' * depth}s", panels=["single"], trials=1)
    assert resume(store.url, study=STUDY).complete


@pytest.mark.parametrize("name", ["notes.txt", ".dpstudies-notes", "cluster-check.txt"])
def test_a_folder_with_probes_of_machines_counts_as_empty_and_no_other_one_does(tmp_path, name):
    (tmp_path / probe_name(3, "0" * 32)).touch()
    assert ResultStore.find(tmp_path) is None
    (tmp_path / name).touch()
    with pytest.raises(BadInputError, match="exists but is not a result store"):
        ResultStore.find(tmp_path)
