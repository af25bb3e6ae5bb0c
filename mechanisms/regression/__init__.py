"""A coefficient of a linear regression, from what partitions of the rows state of it (P2).

Rows are divided by `keyed_partition` and reduced to `statistics` a partition, of `row_moments`, or drawn by
`simulation`. `posterior` makes the posterior of one coefficient under a `prior`. What all partitions state is
released by `partition_probability` and `partition_quantile`, whose bounds come from `sparse_vector`; `audit` says what
that spends.
"""
