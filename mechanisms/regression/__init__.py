"""Private inference on a regression coefficient from posteriors in disjoint partitions of the rows (P2).

`keyed_partition` divides the rows, and `statistics` reduces them to sufficient statistics per partition, which
`row_moments` computes from rows and `simulation` draws. `posterior` returns the posterior of one coefficient under a
`prior`. `partition_probability` and `partition_quantile` release aggregates of the partitions, the latter within bounds
from `sparse_vector`. `audit` computes their privacy losses.
"""
