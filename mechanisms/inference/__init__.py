"""Bayesian inference from a noisy sum of records of an exponential family (P4).

Families are declared in `families`, and released by `noisy_statistics`, within bounds that `private_quantile` can find.
What the parameter was is then inferred by `naive`, `gibbs`, `truncated_gibbs`, `marginal`, `binomial_mixture` and
`one_posterior_sample`, and posteriors are compared by `mmd`.
"""
