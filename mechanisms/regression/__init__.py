"""Private linear regression, from a noisy Gram matrix or from posteriors in disjoint partitions of the rows (P2).

`private_regression` returns the posterior of all coefficients given a noisy Gram matrix of clamped records.
`gram_release` releases it, with noise of `k_norm_matrix` in simulations, and `gram_samplers` infers from it, with
priors of `gram_priors`. `width_forecast` states expected widths before a release. `adassp`, `dp_gd` and `binagg`
release other statistics, in simulations, and compute intervals from them.

`keyed_partition` divides the rows, and `statistics` reduces them to sufficient statistics per partition, or draws
these. `posterior` returns the posterior of one coefficient under a `prior`. `partition_probability` and
`partition_quantile` release aggregates of the partitions, the latter within bounds from `sparse_vector`. `audit`
computes their privacy losses.

References
----------
P2: Amitai, "Bayesian Inference Via Partitioning Under Differential Privacy", Duke University 2018.
"""
