"""Value types and computations that all families of methods share.

Values: `privacy` (guarantees) with `privacy_parameters`, `noise`, `metadata` of registries, `protocols` of
distributions. Arguments are checked by `arguments`, once, where they enter. Models: `conjugate`
(Dirichlet–multinomial), `hellinger` distances, `beta_mixture`. Privacy losses: `exact_losses` of enumerated
distributions with their `divergences`, `privacy_profile`, and `conversions` between definitions of privacy. `calibrate`
searches for parameters, `sums` adds in a fixed order, `chain_diagnostics` judges chains, and `jit` compiles kernels.
"""
