"""Numba decorator with the flags shared by all kernels.

``nogil`` lets worker threads run kernels in parallel; ``cache`` stores the machine code on disk for later processes.
``fastmath`` stays off, so that sums keep their written order and results do not depend on the vector width.

A kernel calls only kernels of its own file. Numba's cache is invalidated by edits of the caller's file, not of the
callee's, so calls across files could run outdated code and silently return wrong numbers. Files exchange tables
(arrays) instead.

Kernels copy arrays element by element, because compiling an assignment ``a[:] = b`` takes Numba up to six seconds: it
includes the error message for unequal shapes.

An `inlined_kernel` is copied into its callers, for small kernels whose calls take a large part of the time. Numbers are
the same; compiling takes a third longer.

Without a folder that Numba may write, as in a container whose user has no home, each process compiles what it calls.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numba


def _decorator(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    flags = {"nogil": True, "error_model": "numpy", **options}

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **flags)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            warnings.warn(
                "compiled code is not kept, as Numba may write neither to the installed packages nor to the home; set "
                "NUMBA_CACHE_DIR to a folder, or every process compiles for up to a minute",
                RuntimeWarning,
                stacklevel=2,
            )
            return numba.njit(**flags)(function)

    return decorate


kernel = _decorator()
inlined_kernel = _decorator(forceinline=True)
