"""Limits on the size of the tables of product distributions, from bounds over all data sets.

The decision to accept a data set must not depend on its counts. Work and memory are therefore bounded over all data
sets of n records, from public arguments only, before any table is computed. With the notation of
`mechanisms.counts.product_distributions`, (ln Γ)'' ≥ 1/x = (x·ln x)'', so with a = αᵢ + cᵢ and b = αᵢ + x

    −gᵢ(x) ≥ ½(a·ln a + b·ln b) − ½(a + b)·ln(½(a + b)) ≥ (a − b)²/(4(a + b)),

and at most wᵢ = 1 + 4√(B² + 2B·a) counts x have −gᵢ(x) ≤ B. By concavity Σ wᵢ ≤ W = k + 4√(k²B² + 2kB·(n + Σα)), and
the convolutions of one power take at most Σ_{i<l} wᵢ·wₗ ≤ ½(1 − 1/k)·W² multiplications. The powers of
`mechanisms.counts.power_mixture` have J·u ≤ reach + ε if S is at least the local sensitivity, so B ≤ 2·reach/J for
small ε; for large ε small powers are omitted. Powers up to max(2k, 40) are counted one by one. Larger ones are counted
once per group, whose ends have the ratio exp(½/k).
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.conjugate import count_candidates
from mechanisms.counts.candidates import MAX_TABLE

__all__ = [
    "MAX_ENTRIES",
    "MAX_LOG_CANDIDATES",
    "MAX_WORK",
    "bound_tables",
    "log_reach",
    "require_product_distributions",
]

MAX_WORK = 100_000_000_000
"""Largest allowed bound on the number of multiplications for one set of tables. At balanced data about a fifth of the
bound is needed, which takes about ten seconds."""

MAX_ENTRIES = 100_000_000
"""Largest allowed bound on the number of entries of one set of tables, 800 MB; balanced data need about a third."""

MAX_LOG_CANDIDATES = 650.0
"""Largest ln |R| for which sums over candidates do not overflow."""


def require_product_distributions(n: int, k: int, prior_total: float = 0.0) -> None:
    """Raise ValueError if tables may be too large for some counts of n records; the check uses no private argument."""
    if k * (n + 1) > MAX_TABLE:
        raise _too_large("tables must have at most", MAX_TABLE, "entries", k * (n + 1), n, k)
    log_candidates = math.log(count_candidates(n, k))
    if log_candidates > MAX_LOG_CANDIDATES:
        raise ValueError(
            f"candidates must number at most exp({MAX_LOG_CANDIDATES:g}), got exp({log_candidates:.0f}) "
            f"(n = {n}, k = {k}); use fewer records, merge categories, or choose a mechanism that only adds noise"
        )
    work, size = bound_tables(n, k, prior_total)
    if work > MAX_WORK:
        raise _too_large("convolutions must take at most", MAX_WORK, "multiplications", work, n, k)
    if size > MAX_ENTRIES:
        raise _too_large("tables must have at most", MAX_ENTRIES, "entries", size, n, k)


def bound_tables(n: int, k: int, prior_total: float) -> tuple[int, int]:
    """Return upper bounds on the work for the tables and on their size over all data sets; see the module docstring."""
    reach = log_reach(n, k)
    single = max(2 * k, 40)
    stop = 16.0 * reach * (n + prior_total)  # u is above 1/(8(n + Σα))
    n_groups = max(1, math.ceil(2 * k * math.log(stop / single)))
    powers = np.concatenate([np.arange(1.0, single), single * np.exp(0.5 / k * np.arange(n_groups))])
    bound = 2.0 * reach / powers
    widths = np.minimum(k + 4.0 * np.sqrt((k * bound) ** 2 + 2 * k * bound * (n + prior_total)), k * (n + 1.0))
    work = np.minimum(0.5 * (1.0 - 1.0 / k) * widths**2, widths * (n + 1.0))
    size = widths + np.minimum(0.5 * (k + 1) * widths, k * (n + 1.0))
    return int(work.sum()), int(size.sum())


def log_reach(n: int, k: int) -> float:
    """Return ln(2⁵³·|R|) for n records in k categories; log weights further below the largest are negligible."""
    return math.log(count_candidates(n, k)) + 53 * math.log(2)


def _too_large(requirement: str, limit: int, unit: str, got: int, n: int, k: int) -> ValueError:
    return ValueError(
        f"{requirement} {limit:,} {unit}, got {got:,} (n = {n}, k = {k}); "
        "use fewer records, merge categories, lower the prior, or choose a mechanism that only adds noise"
    )
