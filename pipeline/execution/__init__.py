"""Computation of blocks on a Dask cluster: tasks in flight, retries, and isolation of trials that end their process.

It guarantees that `execute` returns once every pending block is committed, or raises the reason why blocks remain
pending, and that committed blocks are kept. Workers write to the store and return counts, never arrays. A trial counts
as killed only if it has ended two child processes by itself. `checks` refuses workers with other code, packages or
numbers before anything is written.
"""
