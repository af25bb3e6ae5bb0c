"""Releases of counts, and thereby of a Dirichlet posterior, with their exact output distributions (P0 and P1).

`sensitivity` provides the sensitivities of the Hellinger distance, and `scales` those used by the methods of P0 and
P1. The mechanisms are in `exponential` (`power_mixture` if there are too many candidates), `hamming`, `noise` and
`optimal`. `calibration`, `bound_calibration` and `hamming_loss` find the largest private exponents. `registry` lists
all mechanisms, and `audit` computes their exact privacy loss.
"""
