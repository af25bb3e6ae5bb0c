"""A store of the toy study that is computed once, and copies of it to spoil."""

import shutil

import pytest

from tests.pipeline.helpers import compute_into
from tests.pipeline.toy import STUDY


@pytest.fixture(scope="session")
def complete_store(tmp_path_factory):
    """Path of a complete store of the toy study; read only."""
    path = tmp_path_factory.mktemp("complete") / "toy.zarr"
    compute_into(path, STUDY)
    return path


@pytest.fixture
def store_copy(complete_store, tmp_path):
    """Path of a copy that a test may change."""
    return shutil.copytree(complete_store, tmp_path / "copy.zarr")
