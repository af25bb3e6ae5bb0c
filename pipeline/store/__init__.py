"""Zarr stores of results: a folder or file per question; `result_store` opens and describes a store.

`files` reads and writes files by key, `codec` turns values into the bytes of chunks and back, and `layout` has the root
and the initial files. `sessions` decides who may write, `scan` which trials are asked for, `commit` writes blocks, and
`datasets` opens panels with xarray. `health` finds and repairs damage, and `copies` writes compact and merged stores.
Only `sessions`, `commit`, `health` and `copies` write, besides the creation and growth of a store by `layout`.
"""

from pipeline.errors import BadInputError

if not __debug__:
    raise BadInputError("Python must run without -O and PYTHONOPTIMIZE, which remove code that Zarr requires")
