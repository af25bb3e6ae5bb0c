"""Computation of blocks on a Dask cluster."""
