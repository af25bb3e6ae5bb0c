"""Tables of rows, processed block by block on a Dask cluster."""
