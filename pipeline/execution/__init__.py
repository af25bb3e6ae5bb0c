"""Blocks on a Dask cluster: tasks in flight, and trials that end their worker."""
