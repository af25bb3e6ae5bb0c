"""Bayesian inference from a noisy sum of records of an exponential family (P4).

`families` declares the models, and `family`, `records` and `region_moments` implement them. `noisy_statistics` releases
their sums, within bounds that `private_quantile` can choose. `naive`, `gibbs`, `truncated_gibbs`, `marginal` (on an
`adaptive_grid`), `binomial_mixture` and `one_posterior_sample` infer the parameter, and `mmd` compares posteriors.
"""
