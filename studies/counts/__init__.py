"""Studies of counts released through the Hellinger distance (P0 and P1)."""
