"""Tests that results have the same bits for all BLAS kernels of this processor, and without compilation."""

import json

import numpy as np
import pytest

from mechanisms.inference.mmd import mmd2
from tests.pipeline.helpers import run_python
from tests.studies.bits import PANELS, digests

KERNELS = ("Nehalem", "Haswell")
ON_LAPACK = ("partition-probability", "partition-quantile", "private-mcmc", "regression-inference", "renyi-logistic")
"""Studies that factorise matrices, whose bits may depend on the kernels."""
COSTLY = ("hellinger-limits", "privacy-audit", "renyi-audit", *ON_LAPACK)
COMPARED = tuple(name for name, panel in PANELS.items() if name.split("/")[0] not in COSTLY and not panel.on_demand)
SLOW = ("hellinger-accuracy/k3", "hellinger-accuracy/k10", "hellinger-accuracy/abalone", "noisy-tables/contingency")
"""Panels that take seconds; the gate compares others with the same functions."""
QUICK = tuple(name for name in COMPARED if name not in SLOW)


def computed(arguments, **environment):
    """Return the output of a Python process with further environment variables."""
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment}
    return json.loads(run_python(*arguments, env=environment, seconds=600, check=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernels", "panels"),
    [
        ("Nehalem", QUICK),
        pytest.param("Nehalem", SLOW, marks=pytest.mark.exhaustive),
        pytest.param("Haswell", COMPARED, marks=pytest.mark.exhaustive),
    ],
    ids=["Nehalem", "Nehalem-slow-panels", "Haswell"],
)
def test_bits_do_not_depend_on_blas_kernels(kernels, panels):
    """OpenBLAS falls back to other kernels if the processor lacks those that the variable names."""
    expected, found = digests(panels), computed(("-m", "tests.studies.bits", *panels), OPENBLAS_CORETYPE=kernels)
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == []


PRODUCT = (
    "import json, numpy as np; x = np.random.default_rng(0).random((5, 400)); print(json.dumps((x @ x[0]).tolist()))"
)


@pytest.mark.slow
def test_matrix_products_depend_on_blas_kernels():
    """Otherwise, the comparisons would be void."""
    if len({str(computed(("-c", PRODUCT), OPENBLAS_CORETYPE=kernels)) for kernels in KERNELS}) == 1:
        pytest.xfail("NumPy has no BLAS library with several kernels")


DISTANCES = """
import json, numpy as np
from mechanisms.inference.mmd import mmd2
rng = np.random.default_rng(0)
print(json.dumps(mmd2(rng.beta(3, 7, size=(600, 30)), rng.beta(3, 6, size=(600, 30))).tolist()))
"""


@pytest.mark.slow
def test_mmd_does_not_depend_on_compilation():
    rng = np.random.default_rng(0)
    compiled = mmd2(rng.beta(3, 7, size=(600, 30)), rng.beta(3, 6, size=(600, 30)))
    assert computed(("-c", DISTANCES), NUMBA_DISABLE_JIT="1") == compiled.tolist()
