"""Posterior of a table for a fixed prior, or for a weighted grid of priors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from mechanisms.tables.formats import NoiseLike, Seen
from mechanisms.tables.messages import Messages
from mechanisms.tables.posterior import TablePosterior
from mechanisms.tables.priors import Prior, PriorGrid, leaf_weights, negative_binomial
from mechanisms.tables.tilts import Tilts, solve_tilts
from mechanisms.tables.tree import Problem, solve, table_problem

__all__ = ["fit_prior", "table_posterior"]

Floats = NDArray[np.float64]

_EVALUATIONS = 60  # usual number of evaluations of the marginal likelihood
_SMALLEST = 1e-6  # weight of a prior below which it is omitted


def table_posterior(
    values: ArrayLike,
    noise: NoiseLike | Sequence[NoiseLike],
    parents: ArrayLike,
    prior: Prior | Sequence[Prior] | PriorGrid | Literal["auto"],
    n: int | None = None,
    seen: Seen | Sequence[Seen] | None = None,
    names: Sequence[str] | None = None,
) -> TablePosterior:
    """Return the exact posterior of counts that add up on a tree, given noisy values at its nodes.

    Parameters
    ----------
    values : array_like, shape (m,)
        Published value of each node; NaN if it was not measured. Integers for integer noise and `EXACT`.
    noise : Noise, EXACT, or a sequence of m of them
        Noise of each value; `EXACT` for an invariant. ``k-norm`` noise with scale 2/ε is that of all children of a node
        with an exact total, and is equivalent to geometric noise given the total.
    parents : array_like of int, shape (m,)
        Index of the parent of each node; −1 for a root. Nodes without children are leaves.
    prior : Prior, sequence of Prior, PriorGrid or "auto"
        Prior of the leaves, one for all or one per leaf in the order of the nodes: `negative_binomial`, `poisson`,
        `uniform` or `dirichlet_multinomial`; or the result of `fit_prior`, which "auto" computes.
    n : int, optional
        Public total of a table with exactly one root.
    seen : str, Suppressed, Rounded, or a sequence of m of them, optional
        Format of each value: "value" (default), "clipped" at 0, `Suppressed` or `Rounded`.
    names : sequence of str, optional
        Names of the nodes in messages of errors.

    Returns
    -------
    TablePosterior
        Marginals of all nodes, and joint draws.

    Privacy
    -------
    The posterior is computed from the published values; post-processing does not change their guarantee.

    Raises
    ------
    ValueError
        If an argument is invalid, invariants and bounds contradict each other, a leaf has neither a measurement at or
        above it nor a proper prior, the table was made consistent after the noise, it needs too much memory, or the
        bound of the error exceeds 1e-6. The last is possible for large tables with values that contradict each other by
        several hundred nats: tilts at the most probable table, which repair it, need at most 2²⁶ products.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> from mechanisms.tables import negative_binomial
    >>> values, parents = [13.0, 2.0, -1.0, 10.0], [3, 3, 3, -1]
    >>> posterior = table_posterior(values, Noise("gaussian", 3.0), parents, negative_binomial(1.0, 5.0))
    >>> posterior.mean().round(1)
    array([ 9.5,  1.5,  0.9, 11.9])
    >>> posterior.interval(0.9)[0]
    array([6., 0., 0., 8.])
    >>> posterior.sample(np.random.default_rng(1), 1)
    array([[ 9,  3,  0, 12]])
    """
    if isinstance(prior, str):
        if prior != "auto":
            raise ValueError(f"prior must be 'auto' or a prior, got {prior!r}; use e.g. negative_binomial(1, 10)")
        prior = fit_prior(values, noise, parents, n=n, seen=seen, names=names)
    if isinstance(prior, PriorGrid):
        problem = table_problem(values, noise, parents, prior.priors[0], n, seen, names)
        return _mixture(problem, prior)
    problem = table_problem(values, noise, parents, prior, n, seen, names)
    messages = solve(problem)
    m = problem.shape.parents.size
    name = f"{prior}" if isinstance(prior, Prior) else "one per leaf"
    return TablePosterior(
        problem, name, _log_evidence(problem, messages), messages.error, messages.start[:m], messages.offset[:m],
        messages.size[:m], messages.marginal, [(1.0, lambda: messages)],
    )  # fmt: skip


def _log_evidence(problem: Problem, messages: Messages) -> float:
    """Return ln p(y), with the normaliser of Dirichlet-multinomial priors given the totals of their roots."""
    found = float(messages.log_weight.sum())
    weights, shape = problem.weights, problem.shape
    if weights.is_dirichlet.any():
        alpha = np.zeros(shape.parents.size)
        alpha[shape.leaves[weights.is_dirichlet]] = weights.r[weights.is_dirichlet]
        for level in range(len(shape.levels) - 1, 0, -1):
            shape.sum_children(alpha, level)
        roots = np.flatnonzero((shape.parents < 0) & (alpha > 0))
        a, n = alpha[roots], problem.total[roots]
        found += float((special.gammaln(n + 1.0) + special.gammaln(a) - special.gammaln(n + a)).sum())
    return found


def _mixture(problem: Problem, grid: PriorGrid) -> TablePosterior:
    """Return the posterior for a weighted grid of priors that all leaves share."""
    leaves = problem.shape.leaves
    kept = [j for j, weight in enumerate(grid.weights) if weight >= _SMALLEST * max(grid.weights)]
    weights = np.array([grid.weights[j] for j in kept])
    weights /= weights.sum()

    def solve_with(prior: Prior) -> Messages:
        return solve(problem.with_weights(leaf_weights(prior, leaves.size)))

    components = [(float(w), partial(solve_with, grid.priors[j])) for w, j in zip(weights, kept, strict=True)]
    m = problem.shape.parents.size
    parts, error, evidence = [], 0.0, []
    for weight, call in components:
        messages = call()
        parts.append((weight, messages.start[:m], messages.size[:m], messages.offset[:m], messages.marginal))
        error += weight * messages.error
        evidence.append(_log_evidence(problem, messages))
    start = np.min([part[1] for part in parts], axis=0)
    size = np.max([part[1] + part[2] for part in parts], axis=0) - start
    offset = np.cumsum(size) - size
    marginal = np.zeros(int(size.sum()))
    for weight, first, length, place, values in parts:
        ends = np.cumsum(length)
        within = np.arange(ends[-1]) - np.repeat(ends - length, length)
        to, source = (np.repeat(begin, length) + within for begin in (offset + first - start, place))
        marginal[to] += weight * values[source]
    log_evidence = float(special.logsumexp(np.array(evidence), b=weights))
    return TablePosterior(problem, f"{grid}", log_evidence, error, start, offset, size, marginal, components)


def fit_prior(
    values: ArrayLike,
    noise: NoiseLike | Sequence[NoiseLike],
    parents: ArrayLike,
    *,
    n: int | None = None,
    seen: Seen | Sequence[Seen] | None = None,
    names: Sequence[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> PriorGrid:
    """Return negative binomial priors on a grid of shapes and means, weighted by their exact marginal likelihoods.

    The prior of the logarithms of shape and mean is uniform on the grid, which is centred on the maximum of the
    marginal likelihood and spans two posterior standard deviations on each side.

    Parameters
    ----------
    values, noise, parents, n, seen, names
        Table; see `table_posterior`.
    progress : callable, optional
        Function of the numbers of evaluations of the marginal likelihood, done and expected.

    Returns
    -------
    PriorGrid
        Priors and their posterior probabilities; pass it as `prior` of `table_posterior` for the same table.

    Raises
    ------
    ValueError
        If the table is invalid; see `table_posterior`.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> values, parents = [13.0, 2.0, -1.0, 0.0, 10.0], [4, 4, 4, 4, -1]
    >>> len(fit_prior(values, Noise("gaussian", 3.0), parents).priors)
    25
    """
    problem = table_problem(values, noise, parents, negative_binomial(1.0, 1.0), n, seen, names)
    leaves = problem.shape.leaves
    centre = problem.factors.centre()
    roots = np.flatnonzero((problem.shape.parents < 0) & ~np.isnan(centre))
    known = centre[leaves][~np.isnan(centre[leaves])]
    total = float(np.maximum(centre[roots], 0.0).sum()) if roots.size else float(np.maximum(known, 0.0).sum())
    count = leaves.size if roots.size else max(known.size, 1)
    found: dict[tuple[float, float], float] = {}
    last: list[Tilts] = []  # of the last evaluation

    def evidence(log_shape: float, log_mean: float) -> float:
        key = (round(log_shape, 9), round(log_mean, 9))
        if key not in found:
            prior = negative_binomial(float(np.exp(log_shape)), float(np.exp(log_mean)))
            if progress is not None:
                progress(len(found), max(_EVALUATIONS, len(found) + 25))
            one = problem.with_weights(leaf_weights(prior, leaves.size))
            last[:] = [solve_tilts(one.shape, one.factors, one.weights, one.cap, *last)]
            found[key] = float(solve(one, last[0]).log_weight.sum())
        return found[key]

    at, step = np.array([0.0, np.log(max(total / max(count, 1), 0.05))]), np.array([1.2, 0.6])
    for _ in range(4):  # coordinate search of the maximum, with smaller and smaller steps
        for axis in (1, 0):
            move = np.zeros(2)
            move[axis] = step[axis]
            for _ in range(8):
                here, up, down = evidence(*at), evidence(*(at + move)), evidence(*(at - move))
                if here >= max(up, down):
                    break
                at = at + move if up > down else at - move
        step /= 2.0
    spread = []
    for axis in (0, 1):  # posterior standard deviation from the curvature, within the limits of the grid
        move = np.zeros(2)
        move[axis] = step[axis]
        bend = 2.0 * evidence(*at) - evidence(*(at + move)) - evidence(*(at - move))
        spread.append(float(np.clip(step[axis] / np.sqrt(max(bend, 1e-9)), 1e-4, 1.0)))
    nodes = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    points = [(at[0] + a * spread[0], at[1] + b * spread[1]) for a in nodes for b in nodes]
    log_weights = np.array([evidence(*point) for point in points])
    weights = np.exp(log_weights - special.logsumexp(log_weights))
    priors = tuple(negative_binomial(float(np.exp(a)), float(np.exp(b))) for a, b in points)
    return PriorGrid(priors, tuple(float(one) for one in weights))
