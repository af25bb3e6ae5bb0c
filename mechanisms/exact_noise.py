"""Exact samplers of discrete noise that use the entropy of the operating system, for releases of real data.

Samplers in double precision are not private, as the set of possible outputs depends on the data and outputs of small
probability never occur. The noise of this module consists of integers that OpenDP draws in rational arithmetic, without
a seed (Canonne, Kamath & Steinke 2020). Scales are rounded up, so the privacy loss is at most the requested one.

OpenDP is an optional package: ``pip install 'dpstudies[release]'``.

References
----------
Mironov, "On significance of the least significant bits for differential privacy", CCS 2012. Canonne, Kamath & Steinke,
"The discrete Gaussian for differential privacy", NeurIPS 2020, algorithms 1 to 3. OpenDP: https://docs.opendp.org.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from mechanisms.arguments import Floats, Integers

_LARGEST_SCALE = 2.0**52  # noise of 1,000 scales fits in 64 bits
_MAX_DRAWS = 5_000_000
_BITS = 32


def require_opendp() -> Any:
    """Return the module ``opendp.prelude``, which releases of real data need."""
    try:
        opendp = importlib.import_module("opendp.prelude")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"OpenDP must be installed to release real data, got: {error}; run: pip install 'dpstudies[release]', or "
            "rehearse with a seed, which is not private"
        ) from error
    opendp.enable_features("contrib")
    return opendp


def laplace_scale_for(sensitivity: int, epsilon: float) -> float:
    """Return the smallest double b for which sensitivity/b ≤ ε holds in exact arithmetic."""
    scale = sensitivity / epsilon
    if Fraction(sensitivity) > Fraction(scale) * Fraction(epsilon):
        scale = math.nextafter(scale, math.inf)
    if scale > _LARGEST_SCALE:
        raise ValueError(f"the noise scale must be at most 2^52 units, got {scale:g}; choose a larger epsilon")
    return scale


def integer_laplace(scale: float, size: int) -> Integers:
    """Draw independent integers z with Pr[z] exactly proportional to exp(−|z|/scale), scale in (0, 2⁵²]."""
    dp = require_opendp()
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return np.array(dp.m.make_laplace(domain, metric, scale=float(scale))([0] * size), dtype=np.int64)


def integer_gaussian(std: float, size: int) -> Integers:
    """Draw independent integers z with Pr[z] exactly proportional to exp(−z²/(2·std²)), std in (0, 2⁵²]."""
    dp = require_opendp()
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return np.array(dp.m.make_gaussian(domain, metric, scale=float(std))([0] * size), dtype=np.int64)


def sum_noise_scale(epsilon: float) -> float:
    """Return the scale of the noise of `noisy_sums` in units; raise a ValueError if ε is too small for it."""
    return laplace_scale_for(2**_BITS, epsilon)


def noisy_sums(values: Floats, low: float, high: float, epsilon: float) -> Floats:
    """Return sums of the columns of private values (M, c), clipped to public bounds, with exact noise, each ε-DP.

    Each value is rounded to `low` plus a multiple of the unit u = (high − low)/2³², which changes a sum by at most
    M·u/2, or 2⁻³³·M·ε noise scales. In units of u the sensitivity is 2³² and the noise scale 2³²/ε, rounded up.
    """
    unit = (high - low) * 2.0**-_BITS
    whole = np.clip(np.rint((np.clip(values, low, high) - low) / unit), 0, 2**_BITS)
    noise = integer_laplace(sum_noise_scale(epsilon), values.shape[1])
    sums = [sum(map(int, column)) + z for column, z in zip(whole.T.tolist(), noise.tolist(), strict=True)]
    return np.array([len(values) * low + unit * total for total in sums])


def sum_zero(draw: Callable[[float, int], Integers], scale: float, k: int) -> Integers:
    """Draw k independent integers given a sum of zero by exact rejection, whose running time depends on no data."""
    expected = math.sqrt(2 * math.pi * k) * (2.0 * scale + 1.0)
    if expected * k > _MAX_DRAWS:
        raise ValueError(
            f"rejection sampling must need at most {_MAX_DRAWS:,} draws on average, got {expected * k:,.0f}; choose a "
            "larger epsilon, or geometric-projected"
        )
    batch = min(4096, math.ceil(expected))
    for _ in range(math.ceil(60 * expected / batch)):  # the probability that all vectors are rejected is exp(−60)
        vectors = draw(scale, batch * k).reshape(batch, k)
        hits = np.flatnonzero(vectors.sum(axis=1) == 0)
        if hits.size:
            return vectors[hits[0]]
    raise RuntimeError("a lattice vector must be accepted within 60 times the expected number of draws; try again")
