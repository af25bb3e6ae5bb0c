"""Mechanisms that add integer noise with any given distribution to counts.

As for the geometric mechanism (`mechanisms.counts.noise`), noise is added to the first k − 1 counts, which are clipped
in order. The noise is Z given |Z| ≤ `REACH`, where the pmf of Z is given up to a constant. Its probabilities are added
up in a table, so that the distribution of the release, and thereby an exact audit, includes the limit of the noise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers, returned_array
from mechanisms.core.conjugate import require_at_most
from mechanisms.core.privacy import Guarantee, Status
from mechanisms.counts.candidates import require_uniforms
from mechanisms.counts.mechanism import CountRelease, Mechanism
from mechanisms.counts.noise import CategoryPmfs, clip_in_order, log_clipped_pmf, mean_clipped_distance

REACH = 100_000  # largest absolute value of the noise, and largest number of records


@dataclass(frozen=True, eq=False, repr=False)
class _Table:
    """Log probabilities of the noise z = −REACH, …, REACH, and of its tails."""

    log_pmf: Floats
    log_at_most: Floats
    log_at_least: Floats


@dataclass(frozen=True, eq=False, repr=False)
class TabulatedCounts(CountRelease):
    """Distribution of counts with tabulated noise at one data set; `noise_mechanism` builds it."""

    prior: Floats
    counts: Integers
    table: _Table = field(repr=False)

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw: one per noisy count."""
        return self.k - 1

    def from_uniforms(self, uniforms: Floats) -> Integers:
        return clip_in_order(self.counts, self._draw_noise(require_uniforms(uniforms, self.n_uniforms)))

    def expected_hellinger(self) -> float:
        return mean_clipped_distance(self.prior, self.counts, self._category_pmfs())

    def log_pmf(self) -> Floats:
        return log_clipped_pmf(self.counts, self._category_pmfs())

    def _draw_noise(self, uniforms: Floats) -> Floats:
        """Return the smallest z with F(z) > u, found in the nearer tail, whose probabilities are accurate."""
        lower, upper = np.exp(self.table.log_at_most), np.exp(self.table.log_at_least)
        from_below = np.searchsorted(lower, uniforms, side="right")
        # F(z) > u if and only if Pr[Z ≥ z + 1] < 1 − u
        from_above = upper.size - 1 - np.searchsorted(upper[::-1], 1.0 - uniforms, side="left")
        return np.where(uniforms < 0.5, from_below, from_above).astype(np.float64) - REACH

    def _category_pmfs(self) -> CategoryPmfs:
        offset = np.arange(self.n + 1) - self.counts[:-1, None] + REACH
        log_interior = self.table.log_pmf[offset]
        log_interior[:, 0] = self.table.log_at_most[REACH - self.counts[:-1]]
        return log_interior, self.table.log_at_least[offset]


def noise_mechanism(
    name: str,
    *,
    log_pmf: Callable[..., ArrayLike],
    guarantee: Callable[..., Guarantee | None] | None = None,
    note: str = "",
) -> Mechanism:
    """Return a mechanism that adds integer noise with a given distribution to the counts.

    Parameters
    ----------
    name : str
        Name of the mechanism, which keys its random streams.
    log_pmf : callable
        Maps (z, epsilon) to the log probability of the noise z up to a constant, where z is an integer array of any
        shape (m,), and ε > 0 the privacy loss in nats for which the noise is calibrated; −inf for impossible noise. If
        it has parameters called ``k`` or ``delta``, it also gets the number of categories, k ≥ 2, or δ of (ε, δ)-DP.
    guarantee : callable, optional
        Maps ε, or (ε, δ) if `log_pmf` has the parameter ``delta``, to the stated `Guarantee` under replacement of one
        record, or to None. By default ε-DP or (ε, δ)-DP, conjectured.
    note : str
        Description of the mechanism in one sentence.

    Returns
    -------
    Mechanism
        For at most 100,000 records. Noise z is added to the first k − 1 counts, which are clipped in order; |z| is at
        most 100,000.

    Privacy
    -------
    The guarantee is that stated by the caller. `mechanisms.audit_counts` and ``dpstudies audit`` compare it with the
    exact loss. Draws in double precision are for simulation.

    Raises
    ------
    ValueError
        If `log_pmf` has other parameters. From `Mechanism.build`, if it returns another shape, NaN or +inf, or no
        possible noise.

    Examples
    --------
    Two-sided geometric noise that is calibrated for two categories, at which one count has noise:

    >>> from mechanisms import audit_counts
    >>> mine = noise_mechanism("mine", log_pmf=lambda z, epsilon: -epsilon * abs(z))
    >>> print(audit_counts(mine, prior=[1, 1], n=20, epsilon=1.0).check(mine.guarantee(1.0)).text)
    within 1-DP, conjectured: loses 1.0000, slack 0.0000
    >>> audit_counts(mine, prior=[1, 1, 1], n=5, epsilon=1.0).check(mine.guarantee(1.0)).holds
    False

    With more categories, one replaced record changes two counts, unless only k − 1 = 1 of them has noise:

    >>> wide = noise_mechanism("wide", log_pmf=lambda z, epsilon, k: -epsilon * abs(z) / min(k - 1, 2))
    >>> audit_counts(wide, prior=[1, 1, 1], n=5, epsilon=1.0).check(wide.guarantee(1.0)).holds
    True
    """
    names = _named_parameters(log_pmf)

    def release(prior: Floats, counts: Integers, epsilon: float, delta: float) -> TabulatedCounts:
        offered = {"k": len(counts), "delta": delta}
        return TabulatedCounts(
            prior, counts, _tabulate(log_pmf, epsilon, tuple((name, offered[name]) for name in names))
        )

    def state(epsilon: float, delta: float | None = None) -> Guarantee | None:
        stated = (epsilon, delta or 0.0) if "delta" in names else (epsilon,)
        return Guarantee(*stated, status=Status.CONJECTURED) if guarantee is None else guarantee(*stated)

    def require(n: int, k: int) -> None:
        require_at_most(REACH, "records for tabulated noise", n, n, k)

    return Mechanism(name, note, release=release, guarantee=state, require=require, needs_delta="delta" in names)


def _named_parameters(log_pmf: Callable[..., ArrayLike]) -> tuple[str, ...]:
    """Return those of k and delta that a function takes by name after (z, epsilon)."""
    try:
        signature = inspect.signature(log_pmf)
    except (TypeError, ValueError):  # a callable without a signature, such as one of C
        return ()
    named = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    bound = getattr(log_pmf, "keywords", {})  # arguments of functools.partial
    names = tuple(name for name in ("k", "delta") if name in named and name not in bound)
    try:
        signature.bind(None, None, **dict.fromkeys(names))
    except TypeError as error:
        raise ValueError(
            f"log_pmf must take (z, epsilon), and k and delta by name if it needs them, got {signature}; compute other "
            "values before, or give them defaults"
        ) from error
    return names


@lru_cache(maxsize=8)  # 5 MB per entry; an audit builds the same noise at all data sets
def _tabulate(log_pmf: Callable[..., ArrayLike], epsilon: float, named: tuple[tuple[str, float], ...] = ()) -> _Table:
    z = np.arange(-REACH, REACH + 1)
    logs = returned_array("log_pmf", log_pmf(z, epsilon, **dict(named))).astype(np.float64)
    if logs.shape != z.shape or np.any(np.isnan(logs) | (logs == np.inf)) or not np.any(np.isfinite(logs)):
        raise ValueError(
            f"log_pmf must return {z.size:,} log probabilities < inf, not all -inf, got shape {logs.shape} or invalid "
            "numbers; return one per z"
        )
    logs -= logs.max()
    logs -= np.log(np.exp(logs).sum())
    return _Table(logs, np.logaddexp.accumulate(logs), np.logaddexp.accumulate(logs[::-1])[::-1])
