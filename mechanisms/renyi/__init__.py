"""Draws from Dirichlet posteriors with Rényi differential privacy (P3).

`divergence` computes the Rényi divergence between Dirichlet distributions. `sampling` draws from tempered posteriors,
and `gaussian_counts` draws from posteriors given noisy counts. `audit` computes divergences between distributions with
densities, and `conversions` converts between privacy definitions.

References
----------
P3: Geumlek, Song & Chaudhuri, "Rényi differential privacy mechanisms for posterior sampling", NeurIPS 2017.
"""
