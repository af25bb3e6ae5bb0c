"""Studies of posterior sampling with Rényi differential privacy (P3)."""
