"""Studies of private regression from partitions of the rows (P2), and its application to users' tables."""
