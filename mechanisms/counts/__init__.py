"""Releases of counts, and thereby of a Dirichlet posterior, with their exact laws."""
