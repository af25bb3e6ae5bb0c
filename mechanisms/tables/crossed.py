"""Posterior of tables whose measured margins cross, such as row and column totals, by integer moves.

The cells of an array of counts have independent priors, and any sums over axes are measured. Such a table is no tree,
so four Markov chains draw its counts with three moves, each accepted by the ratio of the posterior (Metropolis):

* ±s in one cell, which changes all margins of the cell (not with a public total);
* ±s moved from one cell to another, which keeps the total;
* ±s exchanged in a rectangle of two axes, + − / − +, which keeps all margins of these axes.

If several margins close a cycle, such as all two-way margins of three axes, rectangles change them. The last move is
then also made in a box of three or more axes, with alternating signs, which keeps all margins of fewer axes, and in
sums of two or three boxes, as single ones do not connect all sparse tables.

The step s is geometric with a mean that is adapted during burn-in. Chains start from independent draws around the
measured cells. Without a public total, cells in no measured margin are independent and are drawn from their prior.

References
----------
Diaconis & Sturmfels, "Algebraic algorithms for sampling from conditional distributions", Annals of Statistics 26(1),
1998: moves that connect tables with fixed margins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers, describe, real_array, require_generator, validate_integer
from mechanisms.core.chain_diagnostics import diagnose_chains
from mechanisms.core.jit import kernel
from mechanisms.core.noise import Exact, Noise
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.tables.likelihoods import FAR, Factors, likelihoods, refuse_large, validate_count
from mechanisms.tables.posterior import Evaluation, draws_to_arviz, evaluate_draws
from mechanisms.tables.priors import Prior, Weights, leaf_weights

if TYPE_CHECKING:
    import xarray as xr

Measurement = tuple[Sequence[int], ArrayLike, Noise | Exact]

_CHAINS = 4
_KEPT = 2_000  # draws per chain
_LARGEST_RHAT, _FEWEST = 1.01, 400  # of all cells and measured margins
_SWEEPS = 4, 16, 64, 256  # per draw, in attempts until the chains converge
_TABLE = 1 << 22  # largest number of tabulated log weights
_REACH = 40.0
_LOG_OMITTED = -12.0 * math.log(10.0)  # of the prior probability of larger totals


@dataclass(frozen=True, eq=False, repr=False)
class CrossedPosterior(Posterior):
    """Draws of the counts of a table with crossed margins; build it with `crossed_posterior`.

    Parameters
    ----------
    draws : ndarray of int64, shape (4, draws, *shape)
        Counts of the cells in four chains.
    rhat, ess : ndarray of float64, with the shape of the table
        Split R-hat and effective sample size of the mean of each cell; NaN and the number of draws for a constant cell.
    omitted : float
        Estimate of the posterior probability of the tables that the draws omit; 0 with a public total. Tables whose
        unmeasured cells are too large have a probability below 1e-12. If measured cells are, a value is 40 noise scales
        away, and the likelihood L below e⁻⁴⁰·max L. With proper priors the sum 1e-12 + e⁻⁴⁰·E[max L/L] is a bound, but
        its expectation is a mean over the draws.
    """

    draws: Integers = field(repr=False)
    rhat: Floats = field(repr=False)
    ess: Floats = field(repr=False)
    omitted: float

    @property
    def _flat(self) -> Integers:
        return self.draws.reshape(-1, *self.draws.shape[2:])

    def mean(self) -> Floats:
        """Return the posterior mean of each cell."""
        return self._flat.mean(axis=0)

    def std(self) -> Floats:
        """Return the posterior standard deviation of each cell."""
        return self._flat.std(axis=0)

    def mcse(self) -> Floats:
        """Return the Monte Carlo standard error of the mean of each cell."""
        return self.std() / np.sqrt(self.ess)

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of counts ≤ `theta`, which broadcasts with the table."""
        at, shape = np.asarray(theta, dtype=np.float64), self.draws.shape[2:]
        shares = np.mean(self._flat.reshape(-1, *(1,) * max(at.ndim - len(shape), 0), *shape) <= at, axis=0)
        return np.where(np.isnan(at), np.nan, shares)

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of each cell, for probabilities in (0, 1)."""
        return np.quantile(self._flat, validate_probabilities(probabilities), axis=0, method="inverted_cdf")

    def sample(self, rng: np.random.Generator, size: int) -> Integers:  # type: ignore[override]
        """Return draws of the chains, chosen with replacement, shape (size, *shape)."""
        return self._flat[rng.integers(len(self._flat), size=validate_integer("size", size))]

    def evaluate(self, function: Callable[[Integers], Any]) -> Evaluation:
        """Return the posterior of a function of draws of shape (size, *shape), with an error from its effective size.

        Raises
        ------
        ValueError
            If the function does not return one finite value per draw.
        """
        evaluation = evaluate_draws(function, self._flat)
        draws = evaluation.draws
        chains = np.moveaxis(draws.reshape(*self.draws.shape[:2], *draws.shape[1:]), (0, 1), (-2, -1))
        _, ess = diagnose_chains(chains)
        return evaluation._replace(mcse=evaluation.std / np.sqrt(ess), omitted=self.omitted)

    def to_arviz(self) -> xr.DataTree:
        """Convert the chains to an `xarray.DataTree` with the variable ``count``, cells in row-major order."""
        return draws_to_arviz({"count": self.draws.reshape(*self.draws.shape[:2], -1)}, {})

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.draws.shape[2:]))
        rhat = np.nanmax(self.rhat) if np.isfinite(self.rhat).any() else 1.0
        ess = f"{self.ess.min():.0f}"
        return f"CrossedPosterior({shape}, 4 chains, rhat={rhat:.3f}, ess={ess}, omitted={self.omitted:.1g})"


def crossed_posterior(
    shape: Sequence[int],
    measurements: Sequence[Measurement],
    prior: Prior | Sequence[Prior],
    rng: np.random.Generator,
    n: int | None = None,
) -> CrossedPosterior:
    """Return draws from the posterior of an array of counts with noisy values of any margins.

    Parameters
    ----------
    shape : sequence of int
        Shape of the table.
    measurements : sequence of (axes, values, noise)
        Each has noisy values of the margin that keeps `axes` and sums over the others: all axes for the cells, none for
        the total. `values` has the shape of the margin, with NaN for entries that were not measured. Noise is a
        `Noise`, not ``k-norm``, or `EXACT`.
    prior : Prior or sequence of Prior
        Prior of the cells, one for all or one per cell in row-major order.
    rng : numpy.random.Generator
    n : int, optional
        Public total.

    Returns
    -------
    CrossedPosterior
        Four chains. Without a public total, counts are limited to a bound that the total of the prior exceeds with a
        probability below 1e-12, plus 40 noise scales above the values.

    Privacy
    -------
    The posterior is computed from the published values; post-processing does not change their guarantee.

    Raises
    ------
    ValueError
        If an argument is invalid, a margin is exact (chains would not be connected; pass n for an exact total), the
        posterior is close to the bound of the counts, or the chains do not converge: R-hat above 1.01, effective sample
        sizes below 400, or, for margins that close a cycle, no change of any cell.

    Examples
    --------
    >>> from mechanisms.core.noise import Noise
    >>> from mechanisms.tables import poisson
    >>> noise, rows, columns = Noise("gaussian", 1.0), [9.0, 4.0], [7.5, 5.0]
    >>> margins = [((0,), rows, noise), ((1,), columns, noise)]
    >>> posterior = crossed_posterior((2, 2), margins, poisson(3.0), np.random.default_rng(1))
    >>> posterior.mean().shape, bool(posterior.ess.min() > 400)
    ((2, 2), True)
    """
    rng, sizes = require_generator(rng, "chains"), _integers("shape", shape, 1, "pass the categories per axis")
    cells = math.prod(sizes)
    total = None if n is None else validate_count("n", n, "pass the public total")
    index, factors = _margins(sizes, measurements)
    weights = leaf_weights(prior, np.arange(cells), cells)
    if weights.is_dirichlet.any() and total is None:
        raise ValueError("dirichlet_multinomial must have a public total, got n=None; pass n or other priors")
    covered = (factors.kind[index] >= 0).any(axis=0)
    unbounded = np.flatnonzero(weights.is_improper & ~covered)
    if total is None and unbounded.size:
        raise ValueError(
            f"every cell must be measured or have a proper prior, got neither for cell {unbounded[0]}; pass one"
        )
    largest = weights.upper.sum(dtype=np.float64)  # the bounds of eight cells without one exceed the largest integer
    if total is not None and largest < total:
        raise ValueError(f"n must be at most {largest:.0f}, the largest total of the prior, got {total}; check both")
    most = _largest_count(factors, weights, total)
    if (size := (most + 1) * (factors.kind.size + cells)) > _TABLE:
        raise ValueError(
            f"the table must have at most {_TABLE:,} weights, got {size:,} for {cells} cells with counts up to "
            f"{most:,}; use a smaller table"
        )
    x = np.arange(most + 1)
    log_factor = factors.log(np.arange(factors.kind.size)[:, None], x)
    log_weight = weights.log(np.tile(x, (cells, 1)))
    log_weight[x > weights.upper[:, None]] = -np.inf
    upper = np.minimum(weights.upper, most)
    # cells that no margin covers are independent: they are drawn from the prior
    free_cells = np.flatnonzero(~covered) if total is None else np.empty(0, np.int64)
    mass = np.exp(log_weight[free_cells])
    upper[free_cells], log_weight[free_cells, 1:] = 0, -np.inf
    has_boxes = _close_cycle([axis for axis, size in enumerate(sizes) if size > 1], [axes for axes, *_ in measurements])
    starts = [_start(rng, index, factors, upper, total) for _ in range(_CHAINS)]
    for sweeps in _SWEEPS:
        draws = np.stack([_run(rng, start.copy(), index, log_factor, log_weight, np.array(sizes), total, has_boxes,
                               sweeps) for start in starts])  # fmt: skip
        for cell, p in zip(free_cells, mass, strict=True):
            draws[..., cell] = rng.choice(x, size=draws.shape[:2], p=p / p.sum())
        margins = draws @ (index[..., None] == np.arange(factors.kind.size)).sum(axis=0)
        rhat, ess = diagnose_chains(np.moveaxis(np.concatenate([draws, margins], axis=-1), -1, 0))
        if has_boxes and draws.any() and np.isnan(rhat[:cells]).all():
            rhat[:cells] = np.inf  # boxes may not connect all tables: equal chains without a move prove nothing
        sums = draws[..., weights.upper == FAR].sum(axis=-1)  # other cells cannot exceed the bound
        if total is None and most - weights.upper[weights.upper < FAR].sum() < sums.mean() + 6.0 * sums.std():
            raise ValueError(
                f"the posterior of the total must be far below {most:,}, got mean {sums.mean():.6g} and standard "
                f"deviation {sums.std():.6g}; check the prior against the values"
            )
        if np.all(np.isnan(rhat) | (rhat <= _LARGEST_RHAT)) and ess.min() >= _FEWEST:
            at = np.minimum(margins, most)  # unmeasured margins may be larger
            log_ratio = log_factor.max(axis=1).sum() - log_factor[np.arange(len(log_factor)), at].sum(axis=-1)
            omitted = math.exp(_LOG_OMITTED) + math.exp(-_REACH) * float(np.exp(np.minimum(log_ratio, 600.0)).mean())
            return CrossedPosterior(
                draws.reshape(_CHAINS, _KEPT, *sizes), rhat[:cells].reshape(sizes), ess[:cells].reshape(sizes),
                0.0 if total is not None else min(omitted, 1.0),
            )  # fmt: skip
    raise ValueError(
        f"chains must converge, got R-hat {np.nanmax(rhat):.3f} and an effective sample size of {ess.min():.0f} after "
        f"{sweeps * _KEPT:,} sweeps; use fewer cells, an informative prior, or table_posterior for a tree"
    )


def _integers(name: str, values: Any, least: int, advice: str) -> tuple[int, ...]:
    """Return a sequence of integers as a tuple."""
    if not isinstance(values, Sequence | np.ndarray):
        raise ValueError(f"{name} must be a sequence of integers, got {describe(values)}; {advice}")
    return tuple(validate_integer(name, integer, least, advice) for integer in values)


def _margins(sizes: tuple[int, ...], measurements: Sequence[Measurement]) -> tuple[Integers, Factors]:
    """Return the index of the entry of each measured margin per cell, shape (margins, cells), and the likelihoods."""
    cells = np.arange(math.prod(sizes)).reshape(sizes)
    index, values, noises, start = [], [], [], 0
    for axes, margin_values, noise in measurements:
        kept = _integers("axes", axes, 0, "pass axes of the table")
        if len(set(kept)) != len(kept) or any(axis >= len(sizes) for axis in kept):
            raise ValueError(
                f"axes must be different and below {len(sizes)}, got {tuple(axes)}; pass axes of the table"
            )
        expected = tuple(sizes[axis] for axis in kept)
        y = real_array("values", margin_values)
        if y.shape != expected:
            raise ValueError(f"values of the margin {kept} must have shape {expected}, got {describe(y)}; check axes")
        if isinstance(noise, Exact):
            raise ValueError(
                f"noise of the margin {kept} must not be EXACT, as moves would not connect all tables; pass n for "
                "an exact total, or table_posterior for a tree"
            )
        if not isinstance(noise, Noise):
            raise ValueError(f"noise of the margin {kept} must be a Noise, got {describe(noise)}; pass Noise")
        place = np.unravel_index(cells, sizes)
        flat = np.ravel_multi_index(tuple(place[a] for a in kept), expected) if kept else np.zeros_like(cells)
        index.append(start + flat.ravel())
        values.append(y.ravel())
        noises += [noise] * y.size
        start += y.size
    if not values:
        raise ValueError("measurements must contain at least one margin, got none; pass (axes, values, noise)")
    flat_values = np.concatenate(values)
    refuse_large(flat_values, None)
    factors = likelihoods(flat_values, noises, ["value"] * start)
    return np.array(index), factors


def _close_cycle(axes: list[int], margins: list[Sequence[int]]) -> bool:
    """Return True if some three or more axes are in no margin together, but are without any one of them."""

    def is_measured(group: Iterable[int]) -> bool:
        return any(set(margin).issuperset(group) for margin in margins)

    return any(
        not is_measured(group) and all(is_measured(set(group) - {axis}) for axis in group)
        for size in range(3, len(axes) + 1)
        for group in itertools.combinations(axes, size)
    )


def _largest_count(factors: Factors, weights: Weights, total: int | None) -> int:
    """Return a count that no cell or margin exceeds with a relevant probability, by the values and the prior.

    The total T of the cells with proper priors exceeds (ln E exp(tT) − ln p)/t with probability p at most (Chernoff);
    the smallest of these bounds over t is used, with ln E exp(tx) = −r·ln(1 − (eᵗ − 1)·mean/r) for a negative binomial
    count x, mean·(eᵗ − 1) for a Poisson count, and at most t·upper for a uniform one.
    """
    if total is not None:
        return total
    measured = factors.kind >= 0
    high = np.maximum(factors.low[measured], 0.0) + _REACH * factors.scale[measured]
    bounded, is_poisson = weights.upper < FAR, weights.r == 0.0
    is_gamma = ~(bounded | is_poisson | weights.is_improper)
    largest = np.min(-weights.rate[is_gamma]) if is_gamma.any() else 1.0  # ln E exp(tx) is finite below
    t = largest * np.append(np.geomspace(1e-8, 0.5, 400), 1.0 - np.geomspace(0.5, 1e-6, 100))[:, None]
    mean, r = weights.mean(), weights.r
    log_mgf = np.sum(mean[is_poisson] * np.expm1(t), axis=1)
    log_mgf -= np.sum(r[is_gamma] * np.log1p(-np.expm1(t) * mean[is_gamma] / r[is_gamma]), axis=1)
    prior = np.min((log_mgf - _LOG_OMITTED) / t[:, 0]) if (is_gamma | is_poisson).any() else 0.0
    return int(min(high.sum() + prior + weights.upper[bounded].sum(), FAR)) + 100


def _start(rng: np.random.Generator, index: Integers, factors: Factors, upper: Integers, total: int | None) -> Integers:
    """Return a dispersed start of one chain: the cells share the public total, or the mean of the measured totals."""
    sums = [np.sum(factors.low[u][factors.kind[u] >= 0]) for u in map(np.unique, index)]
    shared_total = total if total is not None else max(round(float(np.mean(sums))), 1)
    x = np.minimum(rng.multinomial(shared_total, rng.dirichlet(np.ones(upper.size))), upper)
    for cell in rng.permutation(upper.size):  # cells below their bounds take what others cannot
        x[cell] += min(shared_total - int(x.sum()), int(upper[cell] - x[cell]))
    return x


def _run(
    rng: np.random.Generator, x: Integers, index: Integers, log_factor: Floats, log_weight: Floats, sizes: Integers,
    total: int | None, has_boxes: bool, sweeps: int,
) -> Integers:  # fmt: skip
    """Return draws of one chain after adaptation of the step, shape (draws, cells)."""
    cells, mean_step = x.size, 1.0
    margins, draws = np.zeros(log_factor.shape[0], np.int64), np.empty((_KEPT, cells), np.int64)
    np.add.at(margins, index, x[None, :])
    strides = np.array([np.prod(sizes[axis + 1 :], dtype=np.int64) for axis in range(sizes.size)])

    def move(n: int) -> float:
        return _moves(x, margins, index, log_factor, log_weight, sizes, strides, total is not None, has_boxes,
                      mean_step, rng.random((n, 6)))  # fmt: skip

    movable = max(np.isfinite(log_weight[:, 1:]).any(axis=1).mean(), 1.0 / cells)  # share of the cells
    for _ in range(20):  # burn-in: half of the moves should be accepted
        accepted = move(_KEPT * sweeps * cells // 40 + 200)
        mean_step = min(max(mean_step * math.exp(accepted / movable - 0.4), 1.0), log_factor.shape[1] / 4 + 1.0)
    for draw in draws:
        move(max(sweeps * cells, 8))
        draw[:] = x
    return draws


@kernel
def _add_box(changed, by, n, a, b, step, sizes, strides):
    """Add to n changed cells the corners of the box between cells a and b, with alternating signs and +step at a.

    Return the number of changed cells, and the change at b, which is 0 if a and b differ on fewer than three axes.
    """
    shifts, r = np.empty(sizes.size, np.int64), 0
    for axis in range(sizes.size):
        shift = (b // strides[axis]) % sizes[axis] - (a // strides[axis]) % sizes[axis]
        if shift != 0:
            shifts[r] = shift * strides[axis]
            r += 1
    if r < 3:
        return n, 0
    change = 0
    for corner in range(1 << r):
        cell, change = a, step
        for k in range(r):
            if corner >> k & 1:
                cell, change = cell + shifts[k], -change
        place = 0
        while place < n and changed[place] != cell:
            place += 1
        if place == n:
            changed[n], by[n] = cell, 0
            n += 1
        by[place] += change
    return n, change


@kernel
def _moves(x, margins, index, log_factor, log_weight, sizes, strides, keeps_total, has_boxes, mean_step, uniforms):
    """Apply one move per row of uniforms to `x` and `margins`; return the share of accepted moves.

    The third uniform decides the sign of the step. Given the sign, twice its value modulo 1 is uniform on [0, 1) and
    independent of all others, so it decides the acceptance.
    """
    cells, limit, accepted = x.size, log_factor.shape[1], 0
    changed, by = np.empty(max(cells, 4), np.int64), np.empty(max(cells, 4), np.int64)
    choices = sizes.size + 1 if has_boxes else sizes.size
    for move in range(len(uniforms)):
        u = uniforms[move]
        step = 1 + int(np.log(1.0 - u[1]) / np.log1p(-1.0 / mean_step)) if mean_step > 1.0 else 1
        if u[2] < 0.5:
            step = -step
        u_accept = u[2] * 2.0 % 1.0
        a, b = min(int(u[3] * cells), cells - 1), min(int(u[4] * cells), cells - 1)
        kind, axis = int(u[0] * 3.0), min(int(u[5] * choices), choices - 1)
        n = 0
        if kind == 0 and not keeps_total:
            changed[0], by[0], n = a, step, 1
        elif kind <= 1:
            if a == b:
                continue
            changed[0], changed[1], by[0], by[1], n = a, b, step, -step, 2
        elif axis < sizes.size:  # the corners of a rectangle: cell b's coordinate replaces that of a on one axis
            i, j = (a // strides[axis]) % sizes[axis], (b // strides[axis]) % sizes[axis]
            c, d = a + (j - i) * strides[axis], b + (i - j) * strides[axis]
            if i == j or c == b:
                continue
            changed[0], changed[1], changed[2], changed[3] = a, c, d, b
            by[0], by[1], by[2], by[3], n = step, -step, -step, step, 4
        else:  # one to three boxes, each with opposite signs at the last corner of the one before
            u_cell, u_last = u[4], u[5] * choices % 1.0
            for box in range(3):
                n, change_at_b = _add_box(changed, by, n, a, b, step, sizes, strides)
                if n == 0 or change_at_b == 0 or u_last < 0.5 + 0.25 * box:
                    break
                u_cell = u_cell * cells % 1.0
                a, b, step = b, min(int(u_cell * cells), cells - 1), -change_at_b
            if n == 0:
                continue
        change = 0.0
        for k in range(n):
            value = x[changed[k]] + by[k]
            if value < 0 or value >= limit:
                change = -np.inf
                break
            change += log_weight[changed[k], value] - log_weight[changed[k], x[changed[k]]]
        if change == -np.inf:
            continue
        for v in range(len(index)):
            for k in range(n):  # an entry that several cells change counts once, with its total change
                entry, shift, is_first = index[v, changed[k]], 0, True
                for other in range(n):
                    if index[v, changed[other]] == entry:
                        shift += by[other]
                        is_first = is_first and other >= k
                if is_first and shift != 0:
                    after = margins[entry] + shift
                    change += log_factor[entry, after] - log_factor[entry, margins[entry]] if after < limit else -np.inf
        if change >= 0.0 or np.log(1.0 - u_accept) < change:
            accepted += 1
            for k in range(n):
                x[changed[k]] += by[k]
                for v in range(len(index)):
                    margins[index[v, changed[k]]] += by[k]
    return accepted / max(len(uniforms), 1)
