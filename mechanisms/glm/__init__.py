"""Private posterior sampling of the weights of a binary regression (P3).

`links` defines the link functions. `mechanisms` sets the target distributions and their guarantees, `sampling` draws
from them, and `audit` computes their Rényi divergences, for example on the data of `worst_case`.
"""
