"""Zarr stores of results: layout, checksums, sessions and durable commits."""

from pipeline.errors import BadInputError

if not __debug__:
    raise BadInputError("Python must run without -O and PYTHONOPTIMIZE, which remove code that Zarr requires")
