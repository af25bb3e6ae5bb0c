"""Posterior of the counts of a table, of their shares, and of functions of several counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms.core.arguments import Floats, Integers, real_array, require_generator, returned_array, validate_integer
from mechanisms.core.beta_mixture import SMALLEST_WEIGHT, BinomialMixture, mixture_quantiles
from mechanisms.core.html import posterior_table
from mechanisms.core.protocols import Posterior, validate_probabilities
from mechanisms.core.sums import weighted_sum
from mechanisms.tables import kernels
from mechanisms.tables.forest import select
from mechanisms.tables.messages import Windows
from mechanisms.tables.solution import Solution
from mechanisms.tables.tree import Table

if TYPE_CHECKING:
    import xarray as xr

_CHAINS, _DRAWS = 4, 1_000
_ATOMS = 1 << 24  # largest number of pairs of counts in the exact distribution of one share
_SMALLEST_SUM = 1e-290  # of gamma draws, below which shares lose digits


class Evaluation(NamedTuple):
    """Posterior of a function of the counts, estimated from independent draws."""

    draws: Floats  # values of the function, shape (size, …)
    mean: Floats
    std: Floats
    mcse: Floats  # Monte Carlo standard error of the mean
    omitted: float = 0.0  # bound of the total variation distance between the draws and the posterior

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the equal-tailed interval of the draws with probability `level`."""
        (level,) = validate_probabilities([level])
        low, high = np.quantile(self.draws, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
        return low, high


@dataclass(frozen=True, eq=False, repr=False)
class TablePosterior(Posterior):
    """Posterior of the counts of a table; build it with `table_posterior`.

    Methods return one entry per node of the table, in its order, so that results have the shape (m,).

    Parameters
    ----------
    problem : Table
        The validated table.
    prior : str
        Prior, as text.
    log_marginal_likelihood : float
        ln p(y), up to a constant for an improper prior. For a grid of priors, p(y) is the sum of the marginal
        likelihoods of its points, weighted by their probabilities before the measurements: those of the hyperprior of
        `fit_prior`, or equal ones.
    error : float
        Bound of the total variation distance between each marginal and the exact one, apart from rounding errors.
    """

    problem: Table = field(repr=False)
    prior: str
    log_marginal_likelihood: float
    error: float
    _marginal: Windows
    _components: Sequence[tuple[float, Callable[[], Solution]]]  # weight and solution of each prior

    @property
    def parents(self) -> Integers:
        """Index of the parent of each node; −1 for a root."""
        return self.problem.forest.parents

    def pmf(self, node: int) -> tuple[Integers, Floats]:
        """Return the counts of a node with a relevant probability, and their probabilities, each of shape (c,)."""
        i = self._node(node)
        return self._marginal.counts(i), self._marginal.of(i).copy()

    def mean(self) -> Floats:
        """Return the posterior mean of each count."""
        return self._marginal.moments()[0]

    def std(self) -> Floats:
        """Return the posterior standard deviation of each count."""
        return np.sqrt(self._marginal.moments()[1])

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of counts ≤ `theta`, a number or an array of shape (..., m)."""
        start, size = self._marginal.start, self._marginal.size
        at = np.broadcast_to(np.floor(real_array("theta", theta)), np.broadcast_shapes(np.shape(theta), start.shape))
        probability = np.zeros(at.shape)
        for i in range(start.size):
            cumulative = np.append(0.0, np.cumsum(self._marginal.of(i)))
            index = np.clip(np.nan_to_num(at[..., i]) - start[i] + 1, 0, size[i]).astype(np.int64)
            probability[..., i] = np.minimum(cumulative[index], 1.0)
        return np.where(np.isnan(at), np.nan, probability)

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return the smallest counts with cumulative probability ≥ p, shape (..., m), for p in (0, 1)."""
        p = validate_probabilities(probabilities)
        of = self._marginal
        counts = np.empty((p.size, of.start.size))
        for row, probability in zip(counts, p.ravel(), strict=True):
            kernels.quantiles(of, float(probability), row)
        return counts.reshape(*p.shape, of.start.size)

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the equal-tailed interval of each count, which has at least the probability `level`."""
        return super().interval(level)

    def sample(self, rng: np.random.Generator, size: int) -> Integers:  # type: ignore[override]
        """Return independent joint draws of all counts, which add up on the tree, shape (size, m)."""
        size, rng = validate_integer("size", size), require_generator(rng, "draws")
        if len(self._components) == 1:
            return self._components[0][1]().draw(rng, size)
        weights = np.array([weight for weight, _ in self._components])
        sizes = rng.multinomial(size, weights / weights.sum())
        parts = [solve().draw(rng, n) for n, (_, solve) in zip(sizes, self._components, strict=True)]
        return rng.permutation(np.concatenate(parts))

    @property
    def theta(self) -> Theta:
        """Posterior of the shares θ of a superpopulation, for Dirichlet-multinomial priors.

        The counts of a Dirichlet-multinomial whose total is not known are negative binomial with shapes α_j and equal
        ratios of mean and shape; such priors are accepted, too.

        Raises
        ------
        ValueError
            If the leaves have other priors, a fitted prior, or, without a public total, too many counts.
        """
        return Theta(self, np.arange(self.parents.size))

    def shares(self, node: int) -> Shares:
        """Return the posterior of the shares of the children of a node: the count of a child over that of the node.

        Raises
        ------
        ValueError
            If the node is a leaf, out of range, or certainly empty.
        """
        i = self._node(node)
        children = np.flatnonzero(self.parents == i)
        if not children.size:
            raise ValueError(f"node must have children, got leaf {i}; pass an inner node")
        support, p = self.pmf(i)
        if not p[support > 0].any():
            raise ValueError(f"node must be able to have a count > 0, got node {i}, which is empty; pass another node")
        return Shares(self, i, children)

    def evaluate(self, function: Callable[[Integers], Any], rng: np.random.Generator, size: int = 10_000) -> Evaluation:
        """Estimate the posterior of a function of the counts, such as a ratio, a difference or a rank.

        The function maps independent joint draws of the counts, shape (size, m), to values, shape (size, …).

        Raises
        ------
        ValueError
            If the function does not return one finite value per draw.
        """
        return evaluate_draws(function, self.sample(rng, size))._replace(omitted=self.error)

    def to_arviz(self, rng: np.random.Generator) -> xr.DataTree:
        """Convert 4 chains of 1,000 independent draws to an `xarray.DataTree` with the variable ``count``."""
        draws = self.sample(rng, _CHAINS * _DRAWS).reshape(_CHAINS, _DRAWS, -1)
        return draws_to_arviz({"count": draws}, {"prior": self.prior})

    def _node(self, node: int) -> int:
        i = validate_integer("node", node, 0, "pass the index of a node")
        if i >= self.parents.size:
            raise ValueError(f"node must be below {self.parents.size}, got {i}; pass the index of a node")
        return i

    def __repr__(self) -> str:
        leaves = self.problem.forest.leaves.size
        return (
            f"TablePosterior({self.parents.size:,} nodes, {leaves:,} leaves, prior={self.prior}, "
            f"log_marginal_likelihood={self.log_marginal_likelihood:.6g}, error={self.error:.1g})"
        )

    def _repr_html_(self) -> str:
        return posterior_table(
            "Posterior of the counts of a table",
            [f"node {i}" for i in range(self.parents.size)],
            {"mean": self.mean(), "sd": self.std()},
            f"{self.problem.forest.leaves.size:,} leaves; prior: {self.prior}",
        )


@dataclass(frozen=True, eq=False)
class Theta(Posterior):
    """Posterior of the shares θ ~ Dir(α) of a superpopulation given a table; see `TablePosterior.theta`.

    Given the count c of a node and the total n of its root, θ of the node is Beta(α + c, A − α + n − c), with α and A
    the sums of the parameters of the leaves below the node and below the root. Without a public total, the mixture is
    over the joint distribution of c and n. Results have one entry per node.

    Parameters
    ----------
    table : TablePosterior
    nodes : ndarray of int64, shape (c,)
        Nodes whose shares the results contain.
    """

    table: TablePosterior = field(repr=False)
    nodes: Integers = field(repr=False)
    marginals: list[BinomialMixture | None] = field(init=False, repr=False)  # None for a root, whose share is 1

    def __post_init__(self) -> None:
        problem = self.table.problem
        weights, forest = problem.weights, problem.forest
        leaves = select(weights, forest.leaves)
        is_public = leaves.is_dirichlet.all()
        is_negative_binomial = ((leaves.rate < 0.0) & (leaves.r > 0.0)).all()
        if not (is_public or (is_negative_binomial and np.ptp(leaves.rate) <= -1e-9 * leaves.rate[0])):
            raise ValueError(
                "theta needs dirichlet_multinomial priors, or negative_binomial priors with one ratio of mean and "
                "shape, got others; pass them, or use shares for the table itself"
            )
        if len(self.table._components) > 1 or len(problem.options) > 1:
            raise ValueError("theta needs one prior, got a fitted grid; pass a negative_binomial prior")
        alpha, root = forest.add_up(np.where(forest.left < 0, weights.r, 0.0)), forest.root_of()[: forest.m]
        joint = {} if is_public else _joint_with_root(self.table, root)
        mixtures: list[BinomialMixture | None] = []
        for i in self.nodes:
            if forest.parents[i] < 0:
                mixtures.append(None)
                continue
            n: Any = int(problem.total[root[i]])
            counts, p = self.table.pmf(int(i))
            if not is_public:
                totals, p = self.table.pmf(int(root[i]))[0], joint[int(i)].ravel()
                n, counts = np.repeat(totals, counts.size), np.tile(counts, totals.size)
            kept = p >= SMALLEST_WEIGHT * p.max()
            prior = (float(alpha[i]), float(alpha[root[i]] - alpha[i]))
            n = n if is_public else n[kept]
            mixtures.append(BinomialMixture(prior, n, counts[kept], p[kept] / p[kept].sum()))
        object.__setattr__(self, "marginals", mixtures)

    def mean(self) -> Floats:
        """Return the posterior mean of each share."""
        return np.array([1.0 if marginal is None else marginal.mean() for marginal in self.marginals])

    def std(self) -> Floats:
        """Return the posterior standard deviation of each share."""
        return np.array([0.0 if marginal is None else marginal.std() for marginal in self.marginals])

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of shares ≤ θ; `theta` broadcasts with the nodes on its last axis."""
        values = real_array("theta", theta)
        values = np.broadcast_to(values, np.broadcast_shapes(values.shape, self.nodes.shape))
        probability = np.array(values >= 1.0, dtype=np.float64)
        for j, marginal in enumerate(self.marginals):
            if marginal is not None:
                probability[..., j] = marginal.cdf(values[..., j])
        return probability

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return quantiles of each share, shape (..., c), for probabilities in (0, 1)."""
        p = validate_probabilities(probabilities)
        quantiles = np.ones((p.size, self.nodes.size))
        is_drawn = [j for j, marginal in enumerate(self.marginals) if marginal is not None]
        if is_drawn:
            mixtures = [marginal for marginal in self.marginals if marginal is not None]
            quantiles[:, is_drawn] = mixture_quantiles(mixtures, p.ravel())
        return quantiles.reshape(*p.shape, self.nodes.size)

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent joint draws of the shares, shape (size, c): first of the counts, then of θ."""
        forest, leaves = self.table.problem.forest, self.table.problem.forest.leaves
        counts = self.table.sample(rng, size)[:, leaves]
        shapes = self.table.problem.weights.r[leaves] + counts
        draws, root_of_leaf = rng.standard_gamma(shapes), forest.root_of()[leaves]
        for root in np.unique(root_of_leaf):
            below = root_of_leaf == root
            draws[:, below] = redraw_underflowed(rng, draws[:, below], shapes[:, below])
        gammas = np.zeros((forest.above.size, size))
        gammas[leaves] = draws.T
        gammas = forest.add_up(gammas).T
        return gammas[:, self.nodes] / gammas[:, forest.root_of()[self.nodes]]


def redraw_underflowed(rng: np.random.Generator, draws: Floats, shapes: Floats | Integers) -> Floats:
    """Return gamma `draws`, shape (size, k), in which rows with a tiny sum are drawn again up to a factor.

    Shares of gamma variables are independent of their sum, so that the choice of rows does not change the distribution.
    """
    is_tiny = draws.sum(axis=1) < _SMALLEST_SUM
    if is_tiny.any():
        shapes = shapes[is_tiny]  # Gamma(r) is Gamma(r + 1) times a uniform number to the power 1/r
        logs = np.log(rng.standard_gamma(shapes + 1.0)) - rng.standard_exponential(shapes.shape) / shapes
        draws[is_tiny] = np.exp(logs - logs.max(axis=1, keepdims=True))
    return draws


@dataclass(frozen=True, eq=False)
class Shares(Posterior):
    """Exact posterior of shares x_child/x_node given that the node is not empty; see `TablePosterior.shares`.

    Results have one entry per child, in the order of `children`.
    """

    table: TablePosterior = field(repr=False)
    node: int
    children: Integers = field(repr=False)
    _atoms: list[tuple[Floats, Floats]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        size = self.table._marginal.size
        pairs = size[self.node] * size[self.children].sum()
        if pairs > _ATOMS:
            raise ValueError(
                f"shares need at most {_ATOMS:,} pairs of counts, got {pairs:,} for node {self.node}; use evaluate"
            )
        pieces_of_child: list[list[tuple[Floats, Floats]]] = [[] for _ in self.children]
        for share, solve in self.table._components:
            solution = solve()
            t = solution.marginal.counts(self.node)[:, None]
            for j, (_, start, split) in enumerate(solution.splits(self.node)):
                joint = split * solution.marginal.of(self.node)[:, None]
                kept = (joint > 0.0) & (t > 0)
                value = (start + np.arange(joint.shape[1])) / np.maximum(t, 1)
                pieces_of_child[j].append((value[kept], share * joint[kept]))
        atoms = []
        for pieces in pieces_of_child:
            value, weight = (np.concatenate(column) for column in zip(*pieces, strict=True))
            order = np.argsort(value)
            atoms.append((value[order], weight[order] / weight.sum()))
        object.__setattr__(self, "_atoms", atoms)

    def mean(self) -> Floats:
        """Return the posterior mean of each share."""
        return np.array([weighted_sum(values, weights) for values, weights in self._atoms])

    def std(self) -> Floats:
        """Return the posterior standard deviation of each share."""
        squares = [weighted_sum(values**2, weights) for values, weights in self._atoms]
        return np.sqrt(np.maximum(squares - self.mean() ** 2, 0.0))

    def cdf(self, theta: ArrayLike) -> Floats:
        """Return the posterior probability of shares ≤ `theta`, a number or of shape (..., number of children)."""
        at = real_array("theta", theta)
        at = np.broadcast_to(at, np.broadcast_shapes(at.shape, self.children.shape))
        probability = np.empty(at.shape)
        for j, (values, weights) in enumerate(self._atoms):
            cumulative = np.append(0.0, np.cumsum(weights))
            probability[..., j] = np.minimum(cumulative[np.searchsorted(values, at[..., j], side="right")], 1.0)
        return np.where(np.isnan(at), np.nan, probability)

    def quantile(self, probabilities: ArrayLike) -> Floats:
        """Return the smallest shares with cumulative probability ≥ p, shape (..., number of children)."""
        p = validate_probabilities(probabilities)
        return np.stack([
            values[np.minimum(np.searchsorted(np.cumsum(weights), p), values.size - 1)]
            for values, weights in self._atoms
        ], axis=-1)  # fmt: skip

    def sample(self, rng: np.random.Generator, size: int) -> Floats:
        """Return independent joint draws, shape (size, number of children); draws of an empty node are repeated."""
        size, shares = validate_integer("size", size), np.empty((0, self.children.size))
        while len(shares) < size:
            counts = self.table.sample(rng, size)
            counts = counts[counts[:, self.node] > 0]
            shares = np.concatenate([shares, counts[:, self.children] / counts[:, self.node, None]])
        return shares[:size]


def _joint_with_root(table: TablePosterior, root: Integers) -> dict[int, Floats]:
    """Return Pr[root = t, node = s] of shape (t, s) for each node, by the splits on the path to the node."""
    size = table._marginal.size
    pairs = int((size[root] * size).sum())
    if pairs > _ATOMS:
        raise ValueError(
            f"theta without a public total needs at most {_ATOMS:,} pairs of counts, got {pairs:,}; pass n, "
            "or evaluate gamma draws with the shapes plus the counts"
        )
    ((_, solve),) = table._components
    solution, forest = solve(), table.problem.forest
    joint = {int(i): np.diag(table.pmf(int(i))[1]) for i in forest.levels[0]}
    for nodes in forest.levels:
        for node in forest.inner(nodes[nodes < forest.m]):
            joint |= {child: joint[int(node)] @ split for child, _, split in solution.splits(int(node))}
    return joint


def evaluate_draws(function: Callable[[Integers], Any], draws: Integers) -> Evaluation:
    """Return the posterior of a function from draws of its argument."""
    values = returned_array("function", function(draws))
    if values.dtype.kind not in "biuf":
        raise ValueError(f"function must return real numbers, got an array of {values.dtype.name}; convert the values")
    values = values.astype(np.float64)
    if values.shape[:1] != (len(draws),) or not np.all(np.isfinite(values)):
        raise ValueError(
            f"function must return one finite value per draw, got shape {values.shape} for {len(draws)} draws; return "
            "an array whose first axis is that of the draws, and add a constant to counts that may be 0"
        )
    std = values.std(axis=0, ddof=1) if len(draws) > 1 else np.full(values.shape[1:], np.nan)
    return Evaluation(values, values.mean(axis=0), std, std / np.sqrt(len(draws)))


def draws_to_arviz(variables: dict[str, NDArray[Any]], attributes: dict[str, Any]) -> xr.DataTree:
    """Return draws of shape (chain, draw, …) as a tree with the group ``posterior``."""
    import xarray as xr  # slow import

    data = {name: (("chain", "draw", "node")[: draws.ndim], draws) for name, draws in variables.items()}
    return xr.DataTree.from_dict({"posterior": xr.Dataset(data, attrs=attributes)})
