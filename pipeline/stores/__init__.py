"""Results in Zarr: what is kept, and how it is written so that nothing is lost."""
