"""Posterior of a table for a fixed prior, or for a weighted grid of priors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from mechanisms.tables.formats import NoiseLike, Seen, node_name
from mechanisms.tables.messages import add_windows
from mechanisms.tables.posterior import TablePosterior
from mechanisms.tables.priors import GroupGrids, Prior, PriorGrid, leaf_weights, negative_binomial
from mechanisms.tables.solve import Solution, Start, solve
from mechanisms.tables.tree import Table, read_table

_EVALUATIONS = 60  # usual number of evaluations of the marginal likelihood
_SMALLEST = 1e-6  # weight of a prior below which it is omitted


def table_posterior(
    values: ArrayLike,
    noise: NoiseLike | Sequence[NoiseLike],
    parents: ArrayLike,
    prior: Prior | Sequence[Prior] | PriorGrid | GroupGrids | Literal["auto"],
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
    prior : Prior, sequence of Prior, PriorGrid, GroupGrids or "auto"
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
        bound of the error exceeds 1e-6. The last is possible for tables with values that contradict each other by
        several hundred nats.

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
    grid = prior.grids[0] if isinstance(prior, GroupGrids) else prior
    first = grid.priors[0] if isinstance(grid, PriorGrid) else grid
    table = read_table(values, noise, parents, first, n, seen, names)
    tables, weights, log_kept = [table], np.ones(1), 0.0
    if isinstance(prior, PriorGrid):
        kept = np.flatnonzero(np.array(prior.weights) >= _SMALLEST * max(prior.weights))
        tables = [_with_prior(table, prior.priors[j]) for j in kept]
        weights = np.array(prior.weights)[kept]
        # equal prior probabilities: the marginal likelihoods of omitted priors are proportional to their weights
        log_kept = float(np.log(weights.sum() / sum(prior.weights) * len(prior.priors)))
        weights /= weights.sum()
    elif isinstance(prior, GroupGrids):
        tables = [_grouped(table, prior)]
    terms, error, evidence = [], 0.0, []
    start: Start | None = None
    for weight, one in zip(weights, tables, strict=True):
        found = solve(one, start)
        start = found.start
        terms.append((float(weight), np.arange(table.total.size), found.marginal))
        error += float(weight) * found.error
        evidence.append(_log_evidence(one, found))
    components: list[tuple[float, Callable[[], Solution]]] = [(1.0, lambda: found)] if len(tables) == 1 else [
        (float(weight), partial(solve, one)) for weight, one in zip(weights, tables, strict=True)
    ]  # fmt: skip
    marginal = found.marginal if len(tables) == 1 else add_windows(table.total.size, terms)
    log_evidence = float(special.logsumexp(evidence)) - log_kept
    name = f"{prior}" if isinstance(prior, Prior | PriorGrid | GroupGrids) else "one per leaf"
    return TablePosterior(table, name, log_evidence, error, marginal, components)


def _with_prior(table: Table, prior: Prior | Sequence[Prior]) -> Table:
    """Return the table with another prior."""
    return replace(table, options=(leaf_weights(prior, table.forest.leaves, table.forest.above.size),))


def _grouped(table: Table, prior: GroupGrids) -> Table:
    """Return the table with one part per group, whose options are the points of its grid."""
    parts = table.groups()
    if tuple(node for node, _ in parts) != prior.nodes:
        raise ValueError(f"prior must be fitted to the same table, got groups {prior.nodes}; use fit_prior")
    group = np.empty(table.forest.above.size, np.int64)
    for k, (_, nodes) in enumerate(parts):
        group[nodes] = k
    leaves = table.forest.leaves
    options = tuple(
        leaf_weights([prior.grids[k].priors[j] for k in group[leaves]], leaves, group.size)
        for j in range(len(prior.grids[0].priors))
    )
    return replace(table, options=options, parts=parts)


def _log_evidence(table: Table, solution: Solution) -> float:
    """Return ln p(y), with the normaliser of Dirichlet-multinomial priors given the totals of their roots."""
    found, weights, forest = solution.log_weight + table.log_constant, table.weights, table.forest
    if weights.is_dirichlet.any():
        alpha = forest.add_up(np.where(weights.is_dirichlet, weights.r, 0.0))
        roots = np.flatnonzero((forest.above < 0) & (alpha > 0))
        a, n = alpha[roots], table.total[roots]
        found += float((special.betaln(a, n + 1.0) + np.log(a + n)).sum())
    return found


def fit_prior(
    values: ArrayLike,
    noise: NoiseLike | Sequence[NoiseLike],
    parents: ArrayLike,
    *,
    n: int | None = None,
    seen: Seen | Sequence[Seen] | None = None,
    per_group: bool = False,
    names: Sequence[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> PriorGrid | GroupGrids:
    """Return negative binomial priors on a grid of shapes and means, weighted by their exact marginal likelihoods.

    The prior of the logarithms of shape and mean is uniform on the grid, which is centred on the maximum of the
    marginal likelihood and spans two posterior standard deviations on each side.

    Parameters
    ----------
    values, noise, parents, n, seen, names
        Table; see `table_posterior`.
    per_group : bool
        If True, each child of a root has a grid of its own for the leaves below it.
    progress : callable, optional
        Function of the numbers of evaluations of the marginal likelihood, done and expected.

    Returns
    -------
    PriorGrid or GroupGrids
        Priors and their posterior probabilities; pass it as `prior` of `table_posterior` for the same table. With
        `per_group`, the probabilities are those given the measurements of the group.

    Raises
    ------
    ValueError
        If the table is invalid, see `table_posterior`, or, with `per_group`, a group has no measurement.

    Examples
    --------
    >>> from mechanisms.noise import Noise
    >>> values, parents = [13.0, 2.0, -1.0, 0.0, 10.0], [4, 4, 4, 4, -1]
    >>> len(fit_prior(values, Noise("gaussian", 3.0), parents).priors)
    25
    """
    table = read_table(values, noise, parents, negative_binomial(1.0, 1.0), n, seen, names)
    if not per_group:
        return _fit(table, progress)
    grids = {}
    for node, nodes in table.groups():
        part = table.part(nodes)
        if np.isnan(part.factors.centre()).all():
            raise ValueError(f"every group must have a measurement, got none for {node_name(names, node)}; fit one "
                             "prior for all leaves")  # fmt: skip
        grids[node] = _fit(part, progress)
    return GroupGrids(tuple(grids), tuple(grids.values()))


def _fit(table: Table, progress: Callable[[int, int], object] | None) -> PriorGrid:
    """Return a grid around the maximum of the marginal likelihood, found by a coordinate search."""
    forest, centre = table.forest, table.factors.centre()
    roots = np.flatnonzero((forest.above < 0) & ~np.isnan(centre))
    known = centre[forest.leaves][~np.isnan(centre[forest.leaves])]
    total = float(np.maximum(centre[roots], 0.0).sum()) if roots.size else float(np.maximum(known, 0.0).sum())
    count = forest.leaves.size if roots.size else max(known.size, 1)
    found: dict[tuple[float, float], float] = {}
    last: list[Start] = []  # of the last evaluation

    def evidence(log_shape: float, log_mean: float) -> float:
        key = (round(log_shape, 9), round(log_mean, 9))
        if key not in found:
            prior = negative_binomial(float(np.exp(log_shape)), float(np.exp(log_mean)))
            if progress is not None:
                progress(len(found), max(_EVALUATIONS, len(found) + 25))
            solution = solve(_with_prior(table, prior), *last)
            last[:], found[key] = [solution.start], solution.log_weight
        return found[key]

    at, step = np.array([0.0, np.log(max(total / max(count, 1), 0.05))]), np.array([1.2, 0.6])
    for _ in range(4):  # coordinate search of the maximum, with smaller and smaller steps
        for move in np.diag(step)[::-1]:
            for _ in range(8):
                here, up, down = evidence(*at), evidence(*(at + move)), evidence(*(at - move))
                if here >= max(up, down):
                    break
                at = at + move if up > down else at - move
        step /= 2.0
    # posterior standard deviations from the curvature, within the limits of the grid
    bend = [2.0 * evidence(*at) - evidence(*(at + move)) - evidence(*(at - move)) for move in np.diag(step)]
    spread = np.clip(step / np.sqrt(np.maximum(bend, 1e-9)), 1e-4, 1.0)
    points = [tuple(at + spread * node) for node in itertools.product((-2.0, -1.0, 0.0, 1.0, 2.0), repeat=2)]
    log_weights = np.array([evidence(*point) for point in points])
    weights = np.exp(log_weights - special.logsumexp(log_weights))
    priors = tuple(negative_binomial(float(np.exp(a)), float(np.exp(b))) for a, b in points)
    return PriorGrid(priors, tuple(float(one) for one in weights))
