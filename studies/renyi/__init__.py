"""Studies of Rényi private posterior sampling (P3)."""
