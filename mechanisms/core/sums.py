"""Sums of products in a fixed order.

Matrix products call BLAS, whose order of summation depends on the processor. The sums of `np.einsum` without
``optimize`` do not call BLAS, so that results have the same bits on all processors with the same NumPy.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.core.arguments import Floats

Reals = NDArray[np.floating[Any]]


def weighted_sum(values: Reals, weights: Reals) -> Floats:
    """Return ``values @ weights`` for weights of shape (n,) or (n, m), and values of shape (..., n)."""
    return np.einsum("...i,i->..." if weights.ndim == 1 else "...i,ij->...j", values, weights)
