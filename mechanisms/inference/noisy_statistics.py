"""Release of sufficient statistics with independent Laplace noise on every component (P4).

    y = s + Lap(Δ/ε),  s = Σ t(xᵢ),

where Δ bounds the ℓ₁ change of s between neighbouring data sets; see `Family.sensitivity`. The release does not reveal
the number of records, so it can also be private under addition and removal of a record.

References
----------
P4, section 2. Dwork, McSherry, Nissim & Smith, "Calibrating noise to sensitivity in private data analysis", TCC 2006.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import real_array, validate_positive
from mechanisms.privacy_parameters import validate_epsilon, validate_sensitivity


def laplace_scale(sensitivity: float, epsilon: float) -> float:
    """Return the scale Δ/ε of the Laplace noise that makes a release ε-DP."""
    return validate_noise_scale(validate_sensitivity(sensitivity) / validate_epsilon(epsilon))


def release_statistics(
    rng: np.random.Generator, statistics: ArrayLike, sensitivity: float, epsilon: float
) -> NDArray[np.float64]:
    """Add independent Laplace noise of scale Δ/ε to every component of the statistics.

    Parameters
    ----------
    rng : numpy.random.Generator
    statistics : array_like, shape (..., d)
        Exact statistics, one release per row; finite.
    sensitivity : float
        Sensitivity Δ of a row in the ℓ₁ norm, finite and > 0.
    epsilon : float
        Privacy loss per row in nats, finite and > 0.

    Returns
    -------
    ndarray of float64, shape (..., d)

    Privacy
    -------
    Each row is ε-DP under replace-one with n public, if Δ bounds the ℓ₁ distance between the
    statistics of neighbours. The guarantee holds for noise in real arithmetic. The rounding of doubles leaks
    information (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012), so use
    these draws for simulation, not for the protection of data.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> release_statistics(np.random.default_rng(1), [[12.0], [30.0]], sensitivity=1.0, epsilon=0.5).round(2)
    array([[12.05],
           [34.62]])
    """
    values = real_array("statistics", statistics)
    if not np.all(np.isfinite(values)):
        raise ValueError("statistics must be finite, got NaN or infinity; check the records")
    return values + rng.laplace(scale=laplace_scale(sensitivity, epsilon), size=values.shape)


def validate_noise_scale(noise_scale: float) -> float:
    """Return the scale of Laplace noise as a float, after checking that it is finite and > 0."""
    return validate_positive("noise_scale", noise_scale, "pass sensitivity / epsilon")
