"""Post-processing of the K-norm release with the smallest worst-case mean Hellinger distance, by linear programming.

The class s of a lattice vector is a sufficient statistic (`mechanisms.counts.k_norm`). A post-processing is
therefore a table of probabilities T(o|s) of counts o given s. Its mean distance at the data set c is

    E_c = Σ_s Pr[s|c] Σ_o T(o|s)·H(posterior(c), posterior(o)).

A first linear program minimises max_c E_c. Its solutions have nearly the same distance at all data sets, including
balanced ones. A second program therefore minimises the mean of E_c over Dirichlet–multinomial data sets, and allows a
worst case larger than the minimum by a relative `SLACK`. Post-processing preserves the privacy of the release. At k = 2
the K-norm release is geometric noise, and the smallest worst case equals that of the best ε-DP release of counts (Gupte
& Sundararajan 2010).

Permutations of categories with equal prior do not change the problem. They map the classes and data sets of an orbit
to each other, so one class per orbit is sufficient, and the mean distance is equal at all data sets of an orbit.
Columns (s, o) are generated as needed: given dual prices y_c ≥ 0 of the data sets, the best column of class s is the
Bayes decision under the prior y. If Σy = 1, the sum Σ_s min_o Σ_c y_c·Pr[s|c]·H(c, o) is a lower bound on the minimum.

References
----------
Gupte & Sundararajan, "Universally optimal privacy mechanisms for minimax agents", PODS 2010. Huangfu & Hall,
"Parallelizing the dual revised simplex method", Mathematical Programming Computation 10, 2018 (HiGHS, the solver).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import gammaln

from mechanisms.core.arguments import Floats, Integers
from mechanisms.core.conjugate import (
    canonical_pairs,
    count_candidates,
    enumerate_candidates,
    rank_candidates,
    require_at_most,
)
from mechanisms.core.hellinger import hellinger
from mechanisms.core.metadata import Style
from mechanisms.core.privacy import pure_guarantee
from mechanisms.core.privacy_parameters import validate_size
from mechanisms.core.sums import weighted_sum
from mechanisms.counts.candidates import require_uniforms
from mechanisms.counts.k_norm import KNormNoise, LatticeClasses, count_classes, lattice_classes
from mechanisms.counts.mechanism import CountRelease, Mechanism

# largest number of (class, output) pairs up to permutations of categories, which take a few seconds
MAX_COLUMNS = 100_000
MAX_PAIRS = 4_000_000  # largest number of (class, output) pairs
# largest ε of the linear program, in nats; from 16 on, mean distances are below the tolerances of the solver
MAX_EPSILON = 12.0
SLACK = 0.005  # relative excess over the smallest worst case that the second program allows
_GAP = 1e-9  # relative gap between the worst case and its lower bound below which no further columns are generated
_EXCESS = 1e-3  # relative excess over the allowed worst case from which a solution is refused
_MAX_ROUNDS = 200


@dataclass(frozen=True, eq=False)
class PostProcessing:
    """Probabilities of released counts given the class of a lattice vector; see `minimax_post_processing`."""

    classes: LatticeClasses  # all classes of n records
    of_class: Integers = field(repr=False)  # index of the class of each table entry, shape (t,), ascending
    outputs: Integers = field(repr=False)  # index of the released counts in `enumerate_candidates`, shape (t,)
    shares: Floats = field(repr=False)  # probability of the output given the class, shape (t,), > 0
    # mean distance E_c at each data set, in the order of `enumerate_candidates`
    expected: Floats = field(repr=False)
    smallest_worst_case: float  # lower bound on the worst case of every post-processing

    @property
    def worst_case(self) -> float:
        """Largest mean distance over all data sets."""
        return float(self.expected.max())


def require_post_processable(n: int, k: int) -> None:
    """Raise ValueError if the linear program is too large even if all prior entries are equal."""
    n = validate_size(n)
    n_pairs = count_classes(n, k) * count_candidates(n, k)
    _require_columns(n_pairs // math.factorial(k), n, k)
    advice = "use fewer records or categories, or k-norm"
    require_at_most(MAX_PAIRS, "pairs of a class and an output", n_pairs, n, k, advice)


def _require_columns(n_columns: int, n: int, k: int) -> None:
    advice = "use fewer records, equal prior entries, or k-norm"
    require_at_most(MAX_COLUMNS, "columns of the linear program", n_columns, n, k, advice)


def minimax_post_processing(prior: Floats, n: int, epsilon: float, slack: float = SLACK) -> PostProcessing:
    """Return, and cache, a post-processing of the K-norm release whose worst-case mean distance is nearly the smallest.

    It exceeds the smallest by at most a relative `slack`, which lowers the average of E_c over data sets. Raises
    ValueError if the program is too large, or the lower bound does not verify its solution.
    """
    table = _solve(tuple(prior.tolist()), n, epsilon, slack)
    largest = table.smallest_worst_case * (1.0 + slack) * (1.0 + _EXCESS)
    if not table.worst_case <= largest:
        raise ValueError(
            f"the worst case must be at most {largest:.3g}, got {table.worst_case:.3g}; use a smaller epsilon or k-norm"
        )
    return table


@dataclass(frozen=True, eq=False, repr=False)
class MinimaxCounts(CountRelease):
    """Distribution of the K-norm release with minimax post-processing: ε-DP (proved), as the table is public."""

    prior: Floats
    counts: Integers
    noise: KNormNoise
    table: PostProcessing = field(repr=False)

    @property
    def n_uniforms(self) -> int:
        """Number of uniforms per draw: those of the noise, and k, of which the last selects the output."""
        return self.noise.n_uniforms(self.k) + self.k

    def from_uniforms(self, uniforms: Floats) -> Integers:
        u = require_uniforms(uniforms, self.n_uniforms)
        place_values = (self.n + 1) ** np.arange(self.k)[::-1]
        codes = self.table.classes.statistics @ place_values
        drawn = np.clip(self.noise.vectors(self.counts, u[:, : -self.k]), 0, self.n) @ place_values
        drawn_class = np.searchsorted(codes, drawn)
        # Entries are sorted by class, so each class is a range of the cumulative shares.
        cumulative = np.cumsum(self.table.shares)
        start = np.searchsorted(self.table.of_class, drawn_class)
        last = np.searchsorted(self.table.of_class, drawn_class, side="right") - 1
        before = cumulative[start] - self.table.shares[start]
        target = before + u[:, -1] * (cumulative[last] - before)
        picked = np.clip(np.searchsorted(cumulative, target, side="right"), start, last)
        return enumerate_candidates(self.n, self.k)[self.table.outputs[picked]]

    def expected_hellinger(self) -> float:
        return float(self.table.expected[rank_candidates(self.counts, self.n, self.k)])

    def log_pmf(self) -> Floats:
        log_pmf = np.full(count_candidates(self.n, self.k), -np.inf)
        log_class = self.table.classes.log_pmf(self.counts)
        np.logaddexp.at(log_pmf, self.table.outputs, log_class[self.table.of_class] + np.log(self.table.shares))
        return log_pmf


class _Solution(NamedTuple):
    """Solution of a linear program: column probabilities, minimum, dual prices of data set orbits and of classes."""

    shares: Floats
    minimum: float
    prices: Floats
    values: Floats


class _Program:
    """Linear program over orbits of permutations: one row per data set orbit, one column per (class orbit, output)."""

    def __init__(self, prior: Floats, n: int, epsilon: float) -> None:
        self.outputs = enumerate_candidates(n, prior.size)
        self.classes = lattice_classes(self.outputs[0], epsilon)
        self.labels = np.unique(prior, return_inverse=True)[1]
        self.distance = np.array([hellinger(prior + c, prior + self.outputs) for c in self.outputs])
        data_form = canonical_pairs(self.outputs, self.outputs, self.labels, n)
        data_orbit, data_size = np.unique(data_form, axis=0, return_inverse=True, return_counts=True)[1:]
        self.data_orbit = data_orbit.ravel()
        class_form = canonical_pairs(self.classes.statistics, self.classes.statistics, self.labels, n)
        _, self.chosen, class_size = np.unique(class_form, axis=0, return_index=True, return_counts=True)
        _require_columns(self.chosen.size * len(self.outputs), n, prior.size)
        pmf = np.exp([self.classes.log_pmf(c)[self.chosen] for c in self.outputs]).T
        # Weight of a data set in the mean distance of its orbit, for each class orbit.
        self.weights = pmf * class_size[:, None] / data_size[self.data_orbit]
        place = (self.data_orbit, np.arange(len(self.outputs)))
        self.to_orbits = sparse.csr_array((np.ones(len(self.outputs)), place), (data_size.size, len(self.outputs)))
        log_model = (gammaln(prior + self.outputs) - gammaln(self.outputs + 1.0)).sum(axis=1)
        model = np.exp(log_model - log_model.max())
        self.model = self.to_orbits @ (model / model.sum())
        self.columns: dict[tuple[int, int], Floats] = {}

    def add(self, class_orbit: int, output: int) -> bool:
        """Add a column, and return True if it is new."""
        if (class_orbit, output) in self.columns:
            return False
        self.columns[class_orbit, output] = self.to_orbits @ (self.weights[class_orbit] * self.distance[:, output])
        return True

    def costs(self, prices: Floats) -> Floats:
        """Return the cost of each output in each class orbit, given dual prices of the data set orbits."""
        return (self.weights * prices[self.data_orbit]) @ self.distance

    def generate(self, prices: Floats, values: Floats) -> bool:
        """Add the cheapest column of each class orbit if its cost is below `values`; return True if any is new."""
        costs = self.costs(prices)
        cheapest = costs.argmin(axis=1)
        improved = np.flatnonzero(values - costs.min(axis=1) > 1e-13).tolist()
        added = [self.add(class_orbit, int(cheapest[class_orbit])) for class_orbit in improved]
        return any(added)

    def minimise(self, largest: float | None) -> _Solution:
        """Minimise the worst case or, if `largest` limits it, the mean over Dirichlet–multinomial data sets."""
        rows = np.array(list(self.columns.values())).T
        n_columns = rows.shape[1]
        place = ([class_orbit for class_orbit, _ in self.columns], np.arange(n_columns))
        totals = sparse.csr_array((np.ones(n_columns), place), (self.chosen.size, n_columns + 1))
        if largest is None:  # the last variable is the worst case
            cost = np.append(np.zeros(n_columns), 1.0)
            upper, bound = np.column_stack([rows, -np.ones(len(rows))]), np.zeros(len(rows))
        else:
            cost = np.append(self.model @ rows, 0.0)
            upper, bound = np.column_stack([rows, np.zeros(len(rows))]), np.full(len(rows), largest)
        optimum = linprog(
            cost, A_ub=upper, b_ub=bound, A_eq=totals, b_eq=np.ones(self.chosen.size), bounds=(0, None),
            method="highs-ds",
        )  # fmt: skip
        if optimum.status != 0:
            raise ArithmeticError(f"the linear program with {n_columns} columns was not solved: {optimum.message}")
        prices = np.maximum(-optimum.ineqlin.marginals, 0.0)
        return _Solution(optimum.x[:-1], float(optimum.fun), prices, optimum.eqlin.marginals)


@lru_cache(maxsize=64)  # seconds per table, which trials and audits share
def _solve(prior: tuple[float, ...], n: int, epsilon: float, slack: float) -> PostProcessing:
    program = _Program(np.array(prior), n, epsilon)
    for class_orbit, output in enumerate(program.costs(program.model).argmin(axis=1).tolist()):
        program.add(class_orbit, output)
    lower = 0.0
    for _ in range(_MAX_ROUNDS):
        solution = program.minimise(None)
        prices = solution.prices / solution.prices.sum()
        lower = max(lower, float(program.costs(prices).min(axis=1).sum()))
        if solution.minimum <= lower * (1.0 + _GAP) or not program.generate(prices, solution.values):
            break
    largest = solution.minimum * (1.0 + slack)
    for _ in range(_MAX_ROUNDS):
        solution = program.minimise(largest)
        if not program.generate(solution.prices + program.model, solution.values):
            break
    return _tabulate(program, solution.shares, lower)


def _tabulate(program: _Program, shares: Floats, lower: float) -> PostProcessing:
    """Return the table for all classes, given the table for one class per orbit."""
    used = np.flatnonzero(shares > 1e-12)
    columns = np.array(list(program.columns))[used]
    (n_outputs, k), statistics = program.outputs.shape, program.classes.statistics
    n = int(program.outputs[0].sum())
    forms = canonical_pairs(
        np.repeat(statistics, n_outputs, axis=0), np.tile(program.outputs, (len(statistics), 1)), program.labels, n
    )
    codes = forms @ ((n + 1) ** 2) ** np.arange(k)  # one integer per pair, below 2**63 within `MAX_PAIRS`
    pair_orbit = np.unique(codes, return_inverse=True)[1].reshape(len(statistics), n_outputs)
    share = np.zeros(int(pair_orbit.max()) + 1)
    np.add.at(share, pair_orbit[program.chosen[columns[:, 0]], columns[:, 1]], shares[used])
    of_class, outputs = np.nonzero(share[pair_orbit] > 0)
    entries = pair_orbit[of_class, outputs]
    # Given the class, outputs of one orbit are equally likely.
    _, same, size = np.unique(np.stack([of_class, entries]), axis=1, return_inverse=True, return_counts=True)
    table = share[entries] / size[same.ravel()]
    table /= np.bincount(of_class, table)[of_class]
    rows = zip(program.outputs, program.distance, strict=True)
    weights = ((np.exp(program.classes.log_pmf(c))[of_class] * table, distance[outputs]) for c, distance in rows)
    expected = np.array([float(weighted_sum(shares, distances)) for shares, distances in weights])
    for array in (of_class, outputs, table, expected):
        array.flags.writeable = False
    return PostProcessing(program.classes, of_class, outputs, table, expected, lower)


K_NORM_MINIMAX = Mechanism(
    name="k-norm-minimax",
    note="K-norm noise for small n, post-processed by a linear program for nearly the smallest worst case.",
    release=lambda prior, counts, epsilon, delta: MinimaxCounts(
        prior, counts, KNormNoise(epsilon), minimax_post_processing(prior, int(counts.sum()), epsilon)
    ),
    guarantee=pure_guarantee, require=require_post_processable, max_epsilon=MAX_EPSILON, evaluation="program",
    symmetric=True, style=Style("crimson", "8"),
)  # fmt: skip
