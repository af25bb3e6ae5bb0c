"""Studies of regression by partitions (P2), and the same on a table of one's own."""
