"""One draw of the weights of a binary regression (P3).

`links` has the link functions. `mechanisms` sets what it is made from, for which privacy, `sampling` makes it, and
`audit` says what it spends, on the data of `worst_case` among others.
"""
