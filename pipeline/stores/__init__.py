"""Zarr stores of results: layout, checksums, sessions and durable commits."""
