"""Bayesian inference from a noisy sum of records of an exponential family (P4).

Families are declared in `families`; what each does is in `family`, with `records` and `region_moments`. Their sums are
released by `noisy_statistics`, within bounds that `private_quantile` can find. What the parameter was is then inferred
by `naive`, `gibbs`, `truncated_gibbs`, `marginal` (on an `adaptive_grid`), `binomial_mixture` and
`one_posterior_sample`, and posteriors are compared by `mmd`.
"""
