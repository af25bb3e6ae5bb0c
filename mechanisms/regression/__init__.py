"""A coefficient of a linear regression, from what the partitions of the rows state of it."""
