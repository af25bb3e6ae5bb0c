"""Zarr stores of results; `result_store` opens and describes a store, and the other modules take it.

It guarantees that a block is pending or committed as a whole, whenever a process is killed. `read`, `scan` and
`datasets` return committed trials only, and write nothing. `commit` writes blocks, only in the session to which
`sessions` gives access; `creation` and `layout` create and extend a store; `health` repairs a store if asked; `copies`
writes other stores. Only `codec` encodes chunks, and only `files` accesses folders and object stores; plain xarray
reads every store.
"""

from pipeline.errors import BadInputError

if not __debug__:
    raise BadInputError("Python must run without -O and PYTHONOPTIMIZE, which remove code that Zarr requires")
