"""Tables of rows, processed block by block on a Dask cluster.

It guarantees that a table is read in blocks that fit into memory, and that no message contains the content of a cell.
`formats` reads files of CSV, Parquet and Zarr by the names of their columns, `cells` alone decides which texts are
numbers and which cells are equal, and `tables` applies functions to blocks of rows and combines the results. Nothing
here uses stores of results.
"""
