"""Releases of counts, and thereby of a Dirichlet posterior, with their exact distributions (P0 and P1).

How far one record moves the posterior is in `sensitivity`, and `scales` names what P0 and P1 divide the score by.
Counts are released by `exponential` (by `power_mixture` where the candidates are too many), `hamming`, `noise` and
`optimal`. `calibration`, `bound_calibration` and `hamming_loss` find the largest exponents that are private,
`registry` lists all mechanisms, and `audit` says what they spend.
"""
