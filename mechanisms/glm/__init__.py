"""One draw of the weights of a binary regression, as private as is asked for."""
