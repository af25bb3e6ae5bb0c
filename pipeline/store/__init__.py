"""Zarr stores of results; `result_store` opens and describes one, and all else takes it.

It promises to others: a block is pending or committed as a whole, whatever process dies; what `read`, `scan` and
`datasets` return was committed, and they write nothing; `commit` writes blocks, and only in the session that `sessions`
lets write. `creation` makes and extends a store by `layout`; `health` repairs one if asked, and `copies` makes others.
`codec` alone knows bytes, and `files` alone the folder or object store, so that plain xarray reads every store.
"""

from pipeline.errors import BadInputError

if not __debug__:
    raise BadInputError("Python must run without -O and PYTHONOPTIMIZE, which remove code that Zarr requires")
