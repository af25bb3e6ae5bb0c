"""Rényi private draws from Dirichlet posteriors (P3).

The divergence of Dirichlet distributions is in `divergence`. `sampling` draws from weakened posteriors, `gaussian_counts` from
those of noisy counts; `audit` says what distributions with densities spend, and `conversions` what that is in other kinds of
privacy.
"""
