"""Studies of private counts and the Hellinger distance between posteriors (P0 and P1)."""
