"""Division of a study into blocks of trials, and computation of blocks in one process.

It guarantees that the outcome of a trial depends only on its key, not on its block, on the other trials, or on the
number of threads. A function of a study may raise or return anything: each trial has a status and an error, and the
values have their declared shapes and dtypes. `division` numbers the blocks of a panel in the order of computation.
Nothing here uses stores or Dask.
"""
