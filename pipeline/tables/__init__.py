"""Rows of a table, read once in blocks on a Dask cluster."""
