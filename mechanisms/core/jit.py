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
"""

import numba

kernel = numba.njit(nogil=True, cache=True, error_model="numpy")
inlined_kernel = numba.njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
