"""Exact audits of sums with Laplace noise, over the extreme records of a family.

A data set with the statistic s is released as y = s + Lap(b) in each component. Compared with a neighbour that has the
statistic s', the privacy loss at y is Σⱼ (|yⱼ − s'ⱼ| − |yⱼ − sⱼ|)/bⱼ ≤ Σⱼ |sⱼ − s'ⱼ|/bⱼ, attained at y = s. The shared
records cancel, so one record, or none, represents each data set. The distance is convex in the contribution of the
record that differs, so its maximum is at extreme contributions: 0 and 1, one-hot rows, the ends of the public bounds,
and records outside the bounds. For the contributions (z, z²) of standardised records with weights 1/b it is the largest
change of z/b₁ ± z²/b₂, whose maxima are also at the vertices of these parabolas. Differences are computed in exact
arithmetic. The largest δ of (z, z²) may be at other records, which are searched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from scipy import integrate, optimize

from mechanisms.core.arguments import find_entry, validate_number, validate_positive
from mechanisms.core.exact_losses import Audit, Witness
from mechanisms.core.noise import Noise
from mechanisms.core.privacy import Neighbouring, validate_relation
from mechanisms.inference.families import MODELS, Bounds, Family
from mechanisms.inference.release_model import ReleaseModel


def audit_sums(
    family: Family | str, noise_scale: float | Sequence[float], bounds: Bounds | None = None,
    relation: Neighbouring = Neighbouring.REPLACE_ONE, epsilons: Sequence[float] = (),
    outside: Literal["drop", "clamp"] = "drop",
) -> Audit:  # fmt: skip
    """Audit the release of a family's sums with Laplace noise, for data sets of any size.

    Parameters
    ----------
    family : Family or str
        An entry of `MODELS` or its name. The multinomial is audited with three categories, as more categories add
        only pairs of data sets that are equivalent to these.
    noise_scale : float or sequence of float
        Scale b of the noise, finite and > 0, in units of the statistic; or one scale for the sum and one for the sum of
        squares, if the variance is unknown.
    bounds : tuple of float, optional
        Public bounds a < b of unbounded records, finite, integers if records are; None for bounded ones.
    relation : Neighbouring
        The neighbouring relation.
    epsilons : sequence of float
        Values ≥ 0 at which to compute δ(ε).
    outside : {"drop", "clamp"}
        Contribution of a record outside the bounds: 0, or the nearest bound.

    Returns
    -------
    Audit
        Result without Rényi divergences. The data sets of the witness are lists of records, standardised as in
        `ReleaseModel` if the variance is unknown, and the output is a noisy sum.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    Noise that suffices for addition and removal of a record is too small for replacement:

    >>> from mechanisms.inference.families import FAMILIES
    >>> for relation in Neighbouring:
    ...     found = audit_sums(FAMILIES["multinomial"], noise_scale=1.0, relation=relation, epsilons=(1.0,))
    ...     print(found.epsilon, round(found.deltas[1.0], 4), found.witness)
    2.0 0.2418 [[0.0, 0.0, 1.0]] against [[0.0, 1.0, 0.0]], output [0.0, 0.0, 1.0]
    1.0 0.0 [] against [[0.0, 0.0, 1.0]], output [0.0, 0.0, 0.0]
    """
    family = find_entry(MODELS, family, "family")
    scales = [
        validate_positive("noise_scale", scale, "pass sensitivity / epsilon")
        for scale in np.atleast_1d(np.asarray(noise_scale, dtype=object))
    ]
    if len(scales) not in (1, 1 + family.has_square):
        raise ValueError(f"noise_scale must be one number, got {len(scales)}; pass one scale")
    for epsilon in epsilons:
        validate_number("epsilons", epsilon, "finite and >= 0", lambda e: 0.0 <= e < math.inf, "pass losses in nats")
    checked = family.validate_bounds(bounds)
    limits = (-1.0, 1.0) if family.has_square else checked  # standardised records do not depend on the bounds
    model = ReleaseModel(family.name, 1, Noise("laplace", 1.0), limits, outside)
    records = _extreme_records(model, scales[0] / scales[-1])
    if validate_relation(relation) is Neighbouring.REPLACE_ONE:
        pairs = [([first], [second]) for first, second in itertools.combinations(records, 2)]
    else:
        pairs = [([], [record]) for record in records]
    witness, deltas = Witness(None, None, None, -1.0), dict.fromkeys(map(float, epsilons), 0.0)
    for first, second in pairs:
        sums, other_sums = (_statistic(model, data) for data in (first, second))
        weights = map(Fraction, scales * (len(sums) // len(scales)))
        exact = [abs(s - other) / b for s, other, b in zip(sums, other_sums, weights, strict=True)]
        loss = float(sum(exact))
        if loss > witness.log_ratio:
            witness = Witness(np.array(first), np.array(second), np.array(sums, dtype=np.float64), loss)
        moved = sorted(float(change) for change in exact if change > 0)
        deltas = {epsilon: max(delta, _hockey_stick(moved, epsilon)) for epsilon, delta in deltas.items()}
    if family.has_square and relation is Neighbouring.REPLACE_ONE:
        deltas = {
            epsilon: max(delta, _largest_delta(scales[0], scales[-1], epsilon)) for epsilon, delta in deltas.items()
        }
    return Audit(
        witness.log_ratio, witness, deltas, {}, len(pairs), n_outputs=0, evidence="closed form", relation=relation
    )


def _largest_delta(scale: float, square_scale: float, epsilon: float) -> float:
    """Return the largest δ(ε) of a replacement of z, where z and z² have noise of the given scales, by a search.

    One of the records is 1, or −1, and the other one has the other sign or is 0: otherwise both shifts are smaller.
    """

    def minus_delta(z: float) -> float:
        changes = (1.0 - z) / scale, (1.0 - z * z) / square_scale
        return -_hockey_stick(sorted(change for change in changes if change > 0.0), epsilon)

    grid = np.linspace(-1.0, 0.0, 33)
    deltas = [minus_delta(z) for z in grid.tolist()]
    best = int(np.argmin(deltas))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, 32)]
    refined = optimize.minimize_scalar(minus_delta, bounds=ends, method="bounded", options={"xatol": 1e-9})
    return -min(float(refined.fun), deltas[best])


def _extreme_records(model: ReleaseModel, ratio: float) -> list[Any]:
    """Return records whose contributions include all extreme points, for scales b₁ and b₂ = b₁/`ratio`."""
    if model.entry.is_vector:
        return list(np.eye(3)[::-1])
    low, high = model.entry.record_range
    if model.bounds is None:
        return [np.float64(low), np.float64(high)]
    a, b = model.bounds
    are_integers = model.entry.integer_records
    outside = [a - 1.0, b + 1.0] if are_integers else [math.nextafter(a, -math.inf), math.nextafter(b, math.inf)]
    vertices = [v for v in (-0.5 / ratio, 0.0, 0.5 / ratio) if a <= v <= b] if model.entry.has_square else []
    return [np.float64(record) for record in (*outside, a, b, *vertices) if low <= record <= high]


def _statistic(model: ReleaseModel, records: Sequence[Any]) -> list[Fraction]:
    """Return the exact statistic of a data set, which may be empty."""
    if model.entry.is_vector:
        return [Fraction(total) for total in np.reshape(records, (-1, 3)).sum(axis=0).tolist()]
    contributions = [Fraction(c) for c in model.contributions(records).tolist()]
    squares = [sum((c * c for c in contributions), Fraction(0))] if model.entry.has_square else []
    return [sum(contributions, Fraction(0)), *squares]


def _hockey_stick(changes: Sequence[float], epsilon: float) -> float:
    """Return δ(ε) between Laplace noise of scale 1 and the same noise shifted in at most two components."""
    # `changes` contains the shifts > 0 in ascending order. For a shift m, the loss of a component is m with probability
    # ½ and −m with probability e^(−m)/2. Between these values the loss has the density e^((loss − m)/2)/4. The δ of the
    # other component is averaged over this distribution.
    *rest, move = changes or [0.0]
    if not rest:
        if epsilon >= move:
            return 0.0
        return -math.expm1((epsilon - move) / 2) if epsilon >= -move else -math.expm1(epsilon)

    def weighted(loss: float) -> float:
        return math.exp((loss - move) / 2) / 4 * _hockey_stick(rest, epsilon - loss)

    low = max(-move, move - 80.0)  # smaller losses have a probability below 1e-17
    kinks = [end for end in (epsilon - rest[-1], epsilon + rest[-1]) if low < end < move] or None
    total, _ = integrate.quad(weighted, low, move, points=kinks, epsabs=0.0, epsrel=1e-11)
    atoms = 0.5 * _hockey_stick(rest, epsilon - move) + 0.5 * math.exp(-move) * _hockey_stick(rest, epsilon + move)
    return min(total + atoms, 1.0)
