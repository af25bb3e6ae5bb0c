"""Mechanisms as functions of raw records, ``(dataset, num_samples) -> samples``, for sampling-based testers.

Audits of exact distributions (`mechanisms.audit`) need no samples. Testers that estimate a divergence from samples,
such as those of DP-Auditorium, expect this protocol: the input is a data set of records, the output an array with one
independent release per row.

References
----------
Kong, Medina, Ribero & Syed, "DP-Auditorium: a large scale library for auditing differential privacy", IEEE S&P 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.arguments import Floats, Integers, validate_integer
from mechanisms.conjugate import validate_prior
from mechanisms.counts.mechanism import Mechanism
from mechanisms.counts.registry import MECHANISMS
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.family import Bounds, Family
from mechanisms.inference.publish import validate_data
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.metadata import find_entry
from mechanisms.noise import calibrated_noise
from mechanisms.privacy_parameters import validate_delta, validate_epsilon

Sampler = Callable[[ArrayLike, int], NDArray[Any]]


def count_sampler(
    rng: np.random.Generator, mechanism: Mechanism | str, prior: ArrayLike, epsilon: float, delta: float = 1e-8
) -> Sampler:
    """Return a sampler of released counts that takes the raw categorical records.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the draws; successive calls of the sampler continue the stream.
    mechanism : Mechanism or str
        An entry of `MECHANISMS` or its key, or a custom mechanism.
    prior : array_like, shape (k,)
        Dirichlet parameters, one per category.
    epsilon, delta : float
        Privacy parameters of the mechanism; some mechanisms ignore δ.

    Returns
    -------
    callable
        Maps ``(dataset, num_samples)`` to released counts, int64 of shape ``(num_samples, k)``. The data set has shape
        ``(n,)`` and contains categories 0 to k − 1. An invalid argument raises ValueError.

    Privacy
    -------
    Each row has the guarantee of the mechanism; the privacy loss of `num_samples` rows is `num_samples` times as large.

    Raises
    ------
    ValueError
        If the prior, ε or δ is invalid.

    Examples
    --------
    >>> sampler = count_sampler(np.random.default_rng(1), "geometric", [1, 1], 1.0)
    >>> sampler([0, 1, 1, 0, 1, 1, 1, 0], 3)
    array([[3, 5], [5, 3], [2, 6]])
    """
    entry, alpha = find_entry(MECHANISMS, mechanism, "mechanism"), validate_prior(prior)
    epsilon, delta = validate_epsilon(epsilon), validate_delta(delta)

    def sample(dataset: ArrayLike, num_samples: int) -> Integers:
        counts = np.bincount(_categories(dataset, alpha.size), minlength=alpha.size)
        distribution = entry.build(alpha, counts, epsilon, delta)
        return distribution.sample(rng, _size(num_samples))

    return sample


def statistics_sampler(
    rng: np.random.Generator, family: Family | str, epsilon: float, bounds: Bounds | None = None
) -> Sampler:
    """Return a sampler of noisy sufficient statistics that takes the raw records.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the draws; successive calls of the sampler continue the stream.
    family : Family or str
        An entry of `FAMILIES` or its key.
    epsilon : float
        Privacy loss per release in nats, finite and > 0.
    bounds : tuple of float, optional
        Public bounds outside which records are dropped; see `Family.validate_bounds`.

    Returns
    -------
    callable
        Maps ``(dataset, num_samples)`` to noisy statistics, float64 of shape ``(num_samples, d)``, for a data set
        accepted by `publish_sums`. An invalid argument raises ValueError.

    Privacy
    -------
    Each row is ε-DP in real arithmetic; `num_samples` rows together are (num_samples·ε)-DP. The rounding of doubles
    leaks information (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012):
    use `publish_sums` for real data.

    Raises
    ------
    ValueError
        If ε or the bounds are invalid.

    Examples
    --------
    >>> sampler = statistics_sampler(np.random.default_rng(1), "poisson", 1.0, bounds=(0, 9))
    >>> sampler([3, 1, 4, 12], 2).round(2)
    array([[ 8.22], [28.81]])
    """
    model = find_entry(FAMILIES, family, "family")
    noise = calibrated_noise("laplace", model.sensitivity(bounds), epsilon)

    def sample(dataset: ArrayLike, num_samples: int) -> Floats:
        records, n = validate_data(dataset, model)
        s = ReleaseModel(model.name, n, noise, bounds).statistic(records)
        return s + noise.sample(rng, (_size(num_samples), s.size))

    return sample


def _categories(dataset: ArrayLike, k: int) -> Integers:
    """Return one or more records as integers from 0 to k − 1, after checking them."""
    records = np.asarray(dataset)
    if records.ndim != 1 or not records.size:
        raise ValueError(f"dataset must have shape (n,) with n >= 1, got {records.shape}; give one category per record")
    allowed = np.isin(records, np.arange(k))
    if not allowed.all():
        record = np.flatnonzero(~allowed)[0]
        raise ValueError(
            f"dataset must contain categories 0 to {k - 1}, got an invalid value in record {record}; number the "
            "categories from 0, one per entry of the prior"
        )
    return records.astype(np.int64)


def _size(num_samples: int) -> int:
    return validate_integer("num_samples", num_samples, advice="pass the number of draws")
