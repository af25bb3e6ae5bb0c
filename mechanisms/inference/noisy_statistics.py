"""Release of sufficient statistics with independent Laplace noise on every component (P4).

    y = s + Lap(Δ/ε),  s = Σ t(xᵢ),

where Δ bounds the ℓ₁ change of s when one record is replaced; see `Family.sensitivity`.

References
----------
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018, section 2.
Dwork, McSherry, Nissim & Smith, "Calibrating noise to sensitivity in private data analysis", TCC 2006.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.privacy import Guarantee, validate_epsilon

__all__ = ["laplace_guarantee", "laplace_scale", "release_statistics", "validate_noise_scale"]


def laplace_scale(sensitivity: float, epsilon: float) -> float:
    """Return the scale Δ/ε of the Laplace noise that makes a release ε-DP.

    Parameters
    ----------
    sensitivity : float
        Δ, finite and > 0, in units of the statistic.
    epsilon : float
        Privacy loss in nats, finite and > 0.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument, or the quotient Δ/ε, is not a finite number > 0.

    Examples
    --------
    >>> laplace_scale(2.0, 0.1)
    20.0
    """
    return validate_noise_scale(_validate_sensitivity(sensitivity) / validate_epsilon(epsilon))


def laplace_guarantee(sensitivity: float, noise_scale: float) -> Guarantee:
    """Return the guarantee (Δ/b)-DP of noise of a given scale, replace-one with the number of records public.

    Parameters
    ----------
    sensitivity : float
        Δ of the released statistic, finite and > 0.
    noise_scale : float
        b, finite and > 0, in units of the statistic.

    Returns
    -------
    Guarantee

    Raises
    ------
    ValueError
        If an argument is not a finite number > 0.

    Examples
    --------
    >>> print(laplace_guarantee(2.0, noise_scale=20.0))
    0.1-DP
    """
    return Guarantee(_validate_sensitivity(sensitivity) / validate_noise_scale(noise_scale))


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
        Δ of a row in the ℓ₁ norm, finite and > 0.
    epsilon : float
        Privacy loss per row in nats, finite and > 0.

    Returns
    -------
    ndarray of float64, shape (..., d)

    Privacy
    -------
    Each row is ε-DP (`laplace_guarantee`), replace-one with n public, if Δ bounds the ℓ₁ distance between the
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
    values = np.asarray(statistics, dtype=np.float64)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"statistics must be finite, got {values[~np.isfinite(values)].flat[0]}; check the records")
    return values + rng.laplace(scale=laplace_scale(sensitivity, epsilon), size=values.shape)


def validate_noise_scale(noise_scale: float) -> float:
    """Return the scale of Laplace noise as a float and check that it is finite and > 0.

    Parameters
    ----------
    noise_scale : float
        b, finite and > 0.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If `noise_scale` is not a finite number > 0.

    Examples
    --------
    >>> validate_noise_scale(3)
    3.0
    """
    return _validate_positive("noise_scale", noise_scale, "sensitivity / epsilon")


def _validate_sensitivity(sensitivity: float) -> float:
    return _validate_positive("sensitivity", sensitivity, "the largest change of the statistic")


def _validate_positive(name: str, value: float, advice: str) -> float:
    if not (np.ndim(value) == 0 and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number > 0, got {value}; pass {advice}")
    return float(value)
