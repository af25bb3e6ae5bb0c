"""Exact posteriors of noisy tables: published counts with known noise that add up on a tree, or with crossed margins.

`table_posterior` computes the posterior of all counts of a tree by convolutions, and `fit_prior` a weighted grid of
priors. `priors` contains the priors of the leaves, and `likelihoods` the likelihoods of values that were clipped,
rounded or suppressed. `crossed_posterior` draws counts whose measured margins are no tree. `tree` validates tables, and
`forest` pairs the children of their nodes. `solve` computes tables by the `messages` of their nodes, with `tilts` that
centre them and the loops of `kernels`.
"""

from mechanisms.core.noise import EXACT
from mechanisms.tables.crossed import CrossedPosterior, crossed_posterior
from mechanisms.tables.fit import fit_prior, table_posterior
from mechanisms.tables.likelihoods import RandomRounded, Rounded, SmallRounded, Suppressed
from mechanisms.tables.posterior import Evaluation, Shares, TablePosterior, Theta
from mechanisms.tables.priors import (
    GroupGrids,
    Prior,
    PriorGrid,
    dirichlet_multinomial,
    negative_binomial,
    poisson,
    uniform,
)

__all__ = [
    "EXACT",
    "CrossedPosterior",
    "Evaluation",
    "GroupGrids",
    "Prior",
    "PriorGrid",
    "RandomRounded",
    "Rounded",
    "Shares",
    "SmallRounded",
    "Suppressed",
    "TablePosterior",
    "Theta",
    "crossed_posterior",
    "dirichlet_multinomial",
    "fit_prior",
    "negative_binomial",
    "poisson",
    "table_posterior",
    "uniform",
]
