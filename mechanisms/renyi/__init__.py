"""Rényi-private draws from Dirichlet posteriors (P3).

`divergence` computes the Rényi divergence of Dirichlet distributions. `sampling` draws from tempered posteriors, and
`gaussian_counts` from posteriors given noisy counts. `audit` computes the divergences of distributions with densities,
and `conversions` converts Rényi guarantees to other privacy definitions.
"""
