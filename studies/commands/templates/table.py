"""Your own inference of noisy tables: change `fit`, and run it on the tables of the study noisy-tables."""

import numpy as np

from mechanisms.tables import EXACT
from studies import OwnMethod


def fit(rng, table, prior):
    """Return 500 independent draws of the counts of all nodes, shape (500, nodes).

    `table` has, for each node, a published value (NaN if it is suppressed), its noise or EXACT, its parent or -1, and
    the format of the value (`seen`). `prior` is that of the leaves, or None if it has to be fitted. The example takes
    each value by itself, without the prior and the sums, and negative counts as 0: the benchmark says that this is not
    calibrated, since it is biased up. Draw random numbers from `rng` only.
    """
    draws = np.tile(np.nan_to_num(table.values), (500, 1))
    for node, noise in enumerate(table.noise):
        if noise != EXACT:
            draws[:, node] -= noise.sample(rng, (500,))
    return np.maximum(np.rint(draws), 0)


METHOD = OwnMethod(
    "template",
    "table",
    fit,
    supports=lambda cell: cell.get("noise") != "k-norm",  # its noises of several nodes are dependent
    chains=False,  # True if draws are Markov chains: shape (chains, draws, nodes)
    note="Each value by itself.",
)
# Instead of draws, `fit` may return studies.Intervals(estimate, low, high), central 95 % intervals of all nodes.
