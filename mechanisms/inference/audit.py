"""Exact audits of sums with Laplace noise, over the extreme records of a family.

A data set with the statistic s is released as y = s + Lap(b) in each component. Compared with a neighbour that has the
statistic s', the privacy loss at y is Σⱼ (|yⱼ − s'ⱼ| − |yⱼ − sⱼ|)/b ≤ ‖s − s'‖₁/b, attained at y = s. This distance is
convex in the contribution of the record that differs, so its maximum is at extreme records: 0 and 1, one-hot rows, the
ends of the public bounds, and records outside the bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import integrate

from mechanisms.audit import Audit, Witness
from mechanisms.inference.families import FAMILIES
from mechanisms.inference.family import Family
from mechanisms.inference.noisy_statistics import validate_noise_scale
from mechanisms.inference.records import Bounds
from mechanisms.metadata import find_entry
from mechanisms.privacy import Neighbouring, validate_relation

__all__ = ["audit_sums"]


def audit_sums(
    family: Family | str,
    noise_scale: float,
    bounds: Bounds | None = None,
    relation: Neighbouring = Neighbouring.REPLACE_ONE,
    epsilons: Sequence[float] = (),
) -> Audit:
    """Audit the release of a family's sums with Laplace noise, for data sets of any size.

    Parameters
    ----------
    family : Family or str
        An entry of `FAMILIES` or its name. The multinomial is audited with three categories, as more categories add
        only pairs of data sets that are equivalent to these.
    noise_scale : float
        Scale b of the noise, finite and > 0, in units of the statistic.
    bounds : tuple of float, optional
        See `Family.validate_bounds`.
    relation : Neighbouring
        The neighbouring relation.
    epsilons : sequence of float
        Values ≥ 0 at which to compute δ(ε).

    Returns
    -------
    Audit
        Result without Rényi divergences. The data sets of the witness are lists of records, and the output is a noisy
        sum.

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
    2.0 0.2418 [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]] against [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], output [0.0, 0.0, 2.0]
    1.0 0.0 [[0.0, 0.0, 1.0]] against [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]], output [0.0, 0.0, 1.0]
    """
    family, scale = find_entry(FAMILIES, family, "family"), validate_noise_scale(noise_scale)
    for epsilon in epsilons:
        if not (math.isfinite(epsilon) and epsilon >= 0):
            raise ValueError(f"epsilons must be finite and >= 0, got {epsilon}; pass losses in nats")
    records = _extreme_records(family, family.validate_bounds(bounds))
    base = records[0]
    if validate_relation(relation) is Neighbouring.REPLACE_ONE:
        pairs = [([base, one], [base, other]) for one, other in itertools.combinations(records, 2)]
    else:
        pairs = [([base], [base, one]) for one in records]
    witness, deltas = Witness(None, None, None, -1.0), dict.fromkeys(map(float, epsilons), 0.0)
    for first, second in pairs:
        sums, other_sums = (family.statistics(np.array(data), bounds)[1] for data in (first, second))
        changes = np.abs(sums - other_sums) / scale
        loss = float(changes.sum())
        if loss > witness.log_ratio:
            witness = Witness(np.array(first), np.array(second), sums, loss)
        moved = sorted(changes[changes > 0].tolist())
        for epsilon in deltas:
            deltas[epsilon] = max(deltas[epsilon], _hockey_stick(moved, epsilon))
    return Audit(
        epsilon=witness.log_ratio,
        witness=witness,
        deltas=deltas,
        renyi={},
        n_pairs=len(pairs),
        n_outputs=0,
        evidence="closed form",
        relation=relation,
    )


def _extreme_records(family: Family, bounds: Bounds | None) -> list[Any]:
    """Return records whose contributions include all extreme points of the set of possible contributions."""
    if family.is_vector:
        return list(np.eye(3)[::-1])
    if bounds is None:
        return [np.float64(end) for end in family.record_range]
    inside, outside = list(bounds), [bounds[0] - 1.0, bounds[1] + 1.0]
    low, high = family.record_range
    return [np.float64(record) for record in (*outside, *inside) if low <= record <= high]


def _hockey_stick(changes: Sequence[float], epsilon: float) -> float:
    """Return δ(ε) between Laplace noise of scale 1 and the same noise shifted in at most two components.

    `changes` contains the shifts > 0 in ascending order. For a shift m, the loss of a component is m with probability ½
    and −m with probability e^(−m)/2. Between these values the loss has the density e^((loss − m)/2)/4. The δ of the
    other component is averaged over this distribution.
    """
    if not changes:
        return 0.0
    *rest, move = changes
    if not rest:
        if epsilon >= move:
            return 0.0
        return -math.expm1((epsilon - move) / 2) if epsilon >= -move else -math.expm1(epsilon)

    def weighted(loss: float) -> float:
        return math.exp((loss - move) / 2) / 4 * _hockey_stick(rest, epsilon - loss)

    ends = [*(end for end in (epsilon - rest[-1], epsilon + rest[-1]) if -move < end < move), move]
    total, low = 0.0, -move
    for high in sorted(ends):
        total += integrate.quad(weighted, low, high, epsabs=0.0, epsrel=1e-11)[0]
        low = high
    atoms = 0.5 * _hockey_stick(rest, epsilon - move) + 0.5 * math.exp(-move) * _hockey_stick(rest, epsilon + move)
    return total + atoms
