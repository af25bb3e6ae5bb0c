"""Bayesian inference from a noisy sum of records of an exponential family (P4).

`families` declares the models, and `family` implements them. A `ReleaseModel` states the release, within bounds that
`publish_bounds` can choose, and `publish` draws it. `naive`, `gibbs`, `marginal` (on an `adaptive_grid`) and
`one_posterior_sample` infer the parameter as in P4; `exact_posterior`, `gibbs_exact` and `data_augmentation` are exact
for any noise. `methods` lists them and chooses among the exact ones, and `mmd` compares posteriors.
`sum_release` has the posterior given one released sum, `noisy_counts` that given several noisy values of the same
counts, and `private_posterior` both in one call.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018.
"""
