"""Bayesian inference from a noisy sum of records of an exponential family (P4).

`families` declares the models, and `family` and `records` implement them.
`noisy_statistics` releases noisy sums of the records, within bounds that `private_quantile` can choose. `naive`,
`gibbs`, `truncated_gibbs`, `marginal` (on an `adaptive_grid`) and `one_posterior_sample` infer the parameter, and `mmd`
compares posteriors.

The exact methods take a `ReleaseModel` with any noise: `exact_posterior`, `gibbs_exact` and
`data_augmentation`. `choice` chooses among them, and `count_table` states several noisy values of the same counts.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018.
"""
