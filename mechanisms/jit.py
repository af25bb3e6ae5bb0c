"""The numba flags that every kernel shares.

``nogil`` lets worker threads run kernels side by side; ``cache`` keeps the machine code between processes.
``fastmath`` stays off: sums keep their written order, so a result does not depend on the vector width.

A kernel calls only kernels of its own file. Numba's cache notices an edit of the caller's file, not of the
callee's, so a call across files could run outdated code and give silently wrong numbers. Files exchange
tables (arrays) instead.
"""

import numba

kernel = numba.njit(nogil=True, cache=True, error_model="numpy")
