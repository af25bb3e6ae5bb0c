"""Studies of Bayesian inference from noisy statistics (P4)."""
