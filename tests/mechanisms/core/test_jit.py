"""Tests that Numba kernels have the right flags and call no kernel in another file, which would break the cache."""

import importlib
import pkgutil

import numba
import numba.core.caching
import pytest
from numba.core.registry import CPUDispatcher

import mechanisms
from mechanisms.core import jit

MODULES = [importlib.import_module(info.name) for info in pkgutil.walk_packages(mechanisms.__path__, "mechanisms.")]
KERNELS = [value for module in MODULES for value in vars(module).values() if isinstance(value, CPUDispatcher)]


def test_kernels_are_found():
    assert len(KERNELS) >= 8


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.py_func.__qualname__)
def test_kernel_is_nogil_cached_and_calls_its_own_file_only(kernel):
    assert kernel.targetoptions["nogil"]
    assert not kernel.targetoptions.get("parallel", False)
    assert not kernel.targetoptions.get("fastmath", False)
    function = kernel.py_func
    called = [function.__globals__.get(name) for name in function.__code__.co_names]
    modules = {other.py_func.__module__ for other in called if isinstance(other, CPUDispatcher)}
    assert modules <= {function.__module__}


def test_without_a_writable_folder_kernels_compile_in_each_process(monkeypatch):
    """As in a container whose user has no home and may not write to the installation; imports failed (regression)."""
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    with pytest.warns(RuntimeWarning, match="compiled code is not kept, .* set NUMBA_CACHE_DIR to a folder"):
        twice = jit.kernel(lambda x: 2.0 * x)
    assert twice(1.5) == 3.0
