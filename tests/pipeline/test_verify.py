"""Verification sees a changed bit, a cut file and a lost one; what it returns to pending is computed again."""

from pathlib import Path

import numpy as np
import pytest
import zarr

from pipeline import resume
from pipeline.errors import BadInputError, IncompleteStoreError, UnreadableStoreError
from pipeline.stores.store import ResultStore
from pipeline.verify import verify
from tests.pipeline.helpers import assert_equal_arrays, chunk_file, file_stamps
from tests.pipeline.toy import STUDY

PLACES = [
    ("means", "estimate", (0, 0, 0, 0, 1, 0)),
    ("means", "n_above", (1, 0, 1, 1, 1, 0)),
    ("means", "quantile", (0, 0, 1, 0, 0, 1, 0)),
    ("means", "exact", (1, 0, 0, 0, 2)),
    ("means", "status", (1, 0, 1, 1, 2, 0)),
    ("faults", "error", (0, 1, 0)),
    ("faults", "x", (1, 3, 0)),
    ("table", "curve", (1, 0, 0)),
    ("single", "status", (0, 1)),
]


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def checked(store, **arguments):
    return verify(store, study=STUDY, **arguments)


def test_a_whole_store_has_no_flaw_and_is_not_touched(store_copy):
    before = file_stamps(store_copy)
    found = checked(store_copy, sample=None)
    assert found.flaws == ()
    assert found.n_pending == 0
    assert found.n_read == found.n_computed == 2 * 2 * 7 + 2 * 2 * 6 + 2 * 2 + 3
    assert file_stamps(store_copy) == before


def test_a_sample_is_of_its_size_and_of_its_seed(store_copy):
    assert checked(store_copy, sample=0).n_computed == 0
    one, same, other = (checked(store_copy, sample=3, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert 0 < one.n_computed < one.n_read == other.n_read


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [(flip, "unreadable"), (cut, "unreadable"), (Path.unlink, "missing")],
    ids=["flip", "cut", "lose"],
)
def test_damaged_blocks_return_to_pending_and_are_computed_again(complete_store, store_copy, spoil, kind):
    places = [place for place in PLACES if place[1] != "status" or kind != "missing"]
    for panel, name, position in places:
        spoil(chunk_file(store_copy, panel, name, *position))
    found = checked(store_copy, sample=0)
    told = {(flaw.where.partition(",")[0], flaw.variable) for flaw in found.flaws}
    assert told == {(panel, name) for panel, name, _ in places}
    assert found.flaws[0].kind == kind
    again = checked(store_copy, sample=None)
    assert (again.flaws, again.n_pending) == ((), len({flaw.where for flaw in found.flaws}))
    resume(store_copy, study=STUDY)
    assert_equal_arrays(store_copy, complete_store)


def test_what_lost_its_status_is_pending_and_no_flaw(store_copy):
    chunk_file(store_copy, "single", "status", 0, 1).unlink()
    found = checked(store_copy, sample=0)
    assert (found.flaws, found.n_pending) == ((), 1)


def test_other_numbers_are_told_and_replaced_on_request_only(complete_store, store_copy):
    array = zarr.open_group(store_copy)["means/estimate"]
    array[0, 0, 0, 0, 0, 1] = np.nextafter(array[0, 0, 0, 0, 0, 1], 9)
    changed = file_stamps(store_copy)
    (flaw,) = checked(store_copy, sample=None).flaws
    assert (flaw.variable, flaw.kind) == ("estimate", "different")
    assert "largest relative difference" in flaw.problem
    assert "e-16" in flaw.problem
    assert file_stamps(store_copy) == changed
    assert len(checked(store_copy, sample=None, repair=True).flaws) == 1
    assert checked(store_copy, sample=None).flaws == ()
    assert_equal_arrays(store_copy, complete_store)


@pytest.mark.parametrize("name", ["n", "trial", "method"])
def test_coordinates_are_mended(complete_store, store_copy, name):
    flip(chunk_file(store_copy, "means", name, 0))
    (flaw,) = checked(store_copy, sample=0).flaws
    assert (flaw.where, flaw.variable, flaw.kind) == ("means", name, "mended")
    assert_equal_arrays(store_copy, complete_store)


def test_metadata_is_mended(complete_store, store_copy):
    path = store_copy / "means" / "estimate" / "zarr.json"
    path.write_text(path.read_text().replace("float64", "float32"))
    (flaw,) = checked(store_copy, sample=0).flaws
    assert (flaw.where, flaw.variable, flaw.kind) == ("means", "estimate", "mended")
    assert path.read_text() == (complete_store / "means" / "estimate" / "zarr.json").read_text()


def test_reading_damage_says_what_to_do(store_copy):
    flip(chunk_file(store_copy, "single", "status", 0, 1))
    with pytest.raises(UnreadableStoreError, match="dpstudies verify"):
        ResultStore.open(store_copy).pending(STUDY.panel("single"))
    with pytest.raises(UnreadableStoreError, match="dpstudies verify"):
        resume(store_copy, study=STUDY)


def test_reading_well_hides_no_other_error(store_copy):
    store = ResultStore.open(store_copy)
    with pytest.raises(BadInputError, match="mine"), store.reading():
        raise BadInputError("mine")


def test_bad_input(store_copy, tmp_path):
    with pytest.raises(BadInputError, match="must be >= 0, got -1"):
        checked(store_copy, sample=-1)
    path = store_copy / "zarr.json"
    root = zarr.open_group(store_copy, mode="r", use_consolidated=False)
    zarr.create_group(tmp_path / "t.zarr", attributes=dict(root.attrs))
    assert path.exists()
    with pytest.raises(IncompleteStoreError, match="was interrupted while it was created"):
        checked(tmp_path / "t.zarr")
