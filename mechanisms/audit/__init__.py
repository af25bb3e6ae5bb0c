"""Audits of all families of methods, and accounting of the losses of several releases.

Exact audits build an audited problem, which is the distributions of a mechanism for neighbouring data sets, and pass it
to `mechanisms.core.exact_losses`: `counts`, `replacements` (draws of binary regressions) and `partitions`. `densities`
and `sums` compute divergences of distributions with densities. `sampled` bounds a loss from draws alone. `accounting`
composes guarantees and profiles, by dp-accounting with the `profile_accountant`.
"""
