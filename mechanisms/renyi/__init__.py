"""Draws from Dirichlet posteriors with Rényi differential privacy (P3).

`divergence` computes the Rényi divergence between Dirichlet distributions. `sampling` draws from tempered posteriors,
and `gaussian_counts` draws from posteriors given noisy counts. `audit` computes divergences between distributions with
densities, and `conversions` converts Rényi guarantees to other privacy definitions.
"""
