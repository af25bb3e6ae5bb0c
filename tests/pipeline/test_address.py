"""Tests that threads, processes and a separate scheduler give identical arrays for a study with Numba kernels."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import yaml

import pipeline
from studies import STUDIES
from tests.pipeline.faults.harness import LOCAL_CLUSTER, Laboratory

pytestmark = pytest.mark.slow

PANELS = ("k2", "k3", "prior")
VALUES = {"n": [20], "mechanism": ["smooth", "laplace"]}


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("stores")
    study = STUDIES["hellinger-accuracy"]

    def run(name: str, cluster: str | None) -> Path:
        pipeline.run(study, folder / f"{name}.zarr", trials=300, panels=PANELS, values=VALUES, cluster=cluster)
        return folder / f"{name}.zarr"

    (folder / "processes.yaml").write_text(
        yaml.safe_dump({"profiles": {"two": {**LOCAL_CLUSTER, "kwargs": {"n_workers": 2}}}})
    )
    with Laboratory(folder) as lab:
        lab.start_cluster()
        clusters = {"threads": None, "processes": f"{folder}/processes.yaml", "address": lab.profile}
        return {name: run(name, cluster) for name, cluster in clusters.items()}


@pytest.mark.parametrize("profile", ["processes", "address"])
@pytest.mark.parametrize("panel", PANELS)
def test_equal_to_threads(stores, profile, panel):
    one, other = (xr.open_zarr(stores[name], group=panel).load() for name in ("threads", profile))
    assert one.status.isin([1, 5]).all()
    for name in one.variables:
        np.testing.assert_array_equal(one[name].values, other[name].values, err_msg=name, strict=True)
    assert one.equals(other)
    assert one.attrs == other.attrs


def test_another_seed_is_not_equal(stores, tmp_path):
    """Arrays computed with another seed are not equal (negative control of the comparison)."""
    pipeline.run(STUDIES["hellinger-accuracy"], tmp_path / "s.zarr", trials=300, panels=["k2"], values=VALUES, seed=1)
    one, other = (xr.open_zarr(path, group="k2").load() for path in (stores["threads"], tmp_path / "s.zarr"))
    assert not np.array_equal(one.hellinger.values, other.hellinger.values)
