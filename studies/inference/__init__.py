"""Studies of inference from noisy statistics (P4)."""
