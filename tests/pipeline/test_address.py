"""Tests that threads, processes and a separate scheduler give identical arrays for a study with Numba kernels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import pipeline
from studies import STUDIES
from tests.pipeline.faults.harness import LOCAL_CLUSTER, Laboratory, write_profile

pytestmark = pytest.mark.slow

PANELS = ("k2", "k3", "prior")
VALUES = {"n": [20], "mechanism": ["smooth", "laplace"]}


def compute(path: Path, cluster: str | None, panels: tuple[str, ...] = PANELS, **options: Any) -> Path:
    study, chosen = STUDIES["hellinger-accuracy"], {"panels": panels, "values": VALUES, "trials": 300}
    pipeline.run(study, path, cluster=cluster, **chosen, **options)
    return path


@pytest.fixture(scope="module")
def on_threads(tmp_path_factory) -> Path:
    return compute(tmp_path_factory.mktemp("threads") / "s.zarr", None)


@pytest.mark.parametrize("profile", ["address", pytest.param("processes", marks=pytest.mark.exhaustive)])
def test_equal_to_threads(on_threads, tmp_path, profile):
    with Laboratory(tmp_path) as lab:
        if profile == "address":
            lab.start_cluster()
        else:
            lab.profile = write_profile(tmp_path, **LOCAL_CLUSTER, kwargs={"n_workers": 2})
        path = compute(tmp_path / "s.zarr", lab.profile)
    for panel in PANELS:
        one, other = (xr.open_zarr(store, group=panel).load() for store in (on_threads, path))
        assert one.status.isin([1, 5]).all()
        for name in one.variables:
            np.testing.assert_array_equal(one[name].values, other[name].values, err_msg=name, strict=True)
        xr.testing.assert_identical(one, other)


def test_another_seed_is_not_equal(on_threads, tmp_path):
    """Arrays computed with another seed are not equal (negative control of the comparison)."""
    path = compute(tmp_path / "s.zarr", None, ("k2",), seed=1)
    one, other = (xr.open_zarr(store, group="k2").load() for store in (on_threads, path))
    assert not np.array_equal(one.hellinger.values, other.hellinger.values)
