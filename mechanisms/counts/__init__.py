"""Releases of counts, and thereby of a Dirichlet posterior, with their exact output distributions (P0 and P1).

`sensitivity` provides the sensitivities of the Hellinger distance. The mechanisms are in `exponential` (`power_mixture`
if there are too many possible outputs to enumerate), `permute_and_flip`, `hamming`, `noise`, `k_norm`,
`discrete_gaussian` and `optimal`. `projection` maps noisy vectors to counts, and `minimax_post_processing` maps the
classes of K-norm vectors to counts by a linear program.
`calibration` and `bound_calibration` find the largest exponents at which a mechanism is ε-DP. `registry` lists all
mechanisms, `audit` computes their exact privacy loss, `draws` compares their draws with the stated distributions, and
`publish` releases real counts.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster). P1: "Differentially Private Bayesian Inference" (draft).
"""
