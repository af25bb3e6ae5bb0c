"""Contracts of methods that users add to studies, and the draws that such a method returns for one trial.

============  ==========================================================  ==============================================
kind          function, with its arguments in order                       result
============  ==========================================================  ==============================================
posterior     `FitPosterior`: rng, model, prior, y                        draws of θ, or a `mechanisms` posterior
table         `FitTable`: rng, table, prior                               draws of all counts, or their intervals
regression    `FitRegression`: rng, release, box, prior                   draws of (θ₀, θ, σ²)
draw          `DrawParameters`: rng, X, y, epsilon, delta                 one private draw of the weights
counts        the release of a `mechanisms.Mechanism`                     counts
============  ==========================================================  ==============================================

Studies compute ranks, quantiles, intervals and diagnostics from draws. Quantiles are randomised:
(b + u·(e + 1))/(k + 1) for b smaller and e equal ones of k draws, so that they are uniform if the truth and the draws
are exchangeable. Chains are thinned for them to half of their effective sample size, since draws at a distance of one
effective draw still have a correlation, of exp(−2) in an AR(1) chain.
"""

import inspect
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechanisms import Guarantee
from mechanisms.core.arguments import real_array, returned_array
from mechanisms.core.chain_diagnostics import diagnose_chains
from mechanisms.core.privacy import Neighbouring
from mechanisms.core.protocols import Posterior
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.regression.gram_priors import ConjugatePrior, RegressionPrior
from mechanisms.regression.gram_release import GramRelease, PublicBox
from mechanisms.tables import Prior
from pipeline import Method, Streams
from pipeline.declare.source import imported_from

Array = NDArray[np.float64]
Kind = Literal["posterior", "table", "regression", "draw"]
Records = Literal["clamped", "exact", "normal", "conjugate"]

LEAST_DRAWS = 100
"""Smallest number of draws per fit: ranks are among 99 of them."""
_LEAST_LENGTH = 8  # of a chain, for its diagnostics
_RANKED = 99


class FitPosterior(Protocol):
    """Inference of θ from the noisy sum of the contributions of n records."""

    def __call__(
        self, rng: np.random.Generator, model: ReleaseModel, prior: tuple[float, ...], y: Array, /
    ) -> ArrayLike | Posterior:
        """Return draws of θ given the release y, shape (d,), of a model; `prior` has its hyperparameters."""


@dataclass(frozen=True)
class PublishedTable:
    """Published values of the nodes of a tree; all attributes are public."""

    values: Array  # shape (nodes,); NaN for suppressed values
    noise: Sequence[Any]  # per node: `mechanisms.core.noise.Noise`, or EXACT
    parents: NDArray[np.int64]  # node whose count is the sum of the counts of its children; -1 for a root
    seen: (
        Sequence[Any] | None
    )  # format of each published value, as in `mechanisms.tables.table_posterior`; None: values


@dataclass(frozen=True)
class Intervals:
    """Estimates of all nodes of a table, and central 95 % intervals, each of shape (nodes,)."""

    estimate: ArrayLike
    low: ArrayLike
    high: ArrayLike


class FitTable(Protocol):
    """Inference of the true counts of a noisy table."""

    def __call__(
        self, rng: np.random.Generator, table: PublishedTable, prior: Prior | None, /
    ) -> ArrayLike | Intervals:
        """Return draws of the counts of all nodes, or intervals; `prior` is None if it has to be fitted."""


class FitRegression(Protocol):
    """Inference of regression coefficients from a noisy Gram matrix of records that are scaled to [−1, 1]."""

    def __call__(
        self, rng: np.random.Generator, release: GramRelease, box: PublicBox, prior: RegressionPrior | ConjugatePrior, /
    ) -> ArrayLike:
        """Return draws of intercept, slopes and error variance in the units of the box, whose last column is y."""


class DrawParameters(Protocol):
    """Private draw of the weights of a logistic regression."""

    def __call__(self, rng: np.random.Generator, X: Array, y: Array, epsilon: float, delta: float, /) -> ArrayLike:
        """Return one draw of the weights given rows of X of norm at most 1, and labels y of 0 or 1."""


_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "posterior": ("rng", "model", "prior", "y"),
    "table": ("rng", "table", "prior"),
    "regression": ("rng", "release", "box", "prior"),
    "draw": ("rng", "X", "y", "epsilon", "delta"),
}


def _always(cell: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True)
class OwnMethod:
    """Method of a user, which `pipeline.Study.with_methods` adds to a study.

    Parameters
    ----------
    name : str
        Label in the store, and role of the random streams of the method.
    kind : {"posterior", "table", "regression", "draw"}
        Contract of `fit`, see `studies.own_methods`. A mechanism of counts is a `mechanisms.Mechanism` instead.
    fit : callable
        Function of the arguments of its kind. All random numbers must come from `rng`. An exception fails its trial.
        Draws have shape (draws,) or (draws, p), at least 100, or (chains, draws, p) if they are chains. Those of kind
        draw have shape (p,), or (draws, p) if the guarantee is that of several draws together; a further argument
        `precision`, if the function has it, is the prior precision of each weight.
    supports : callable
        ``(cell) -> bool``, given values of factors and constants by name: False if the method does not apply. Cells of
        the kind posterior also have ``family`` and ``model``, and those of the kind regression ``n_features`` and the
        name of the ``noise``.
    chains : bool
        True if draws are Markov chains, which may be autocorrelated; False if they are independent.
    guarantee : callable, optional
        ``(epsilon, delta) -> Guarantee``, or None where there is none, such as at δ = 0: cells without one are not
        computed. Required for the kind draw, with a loss of at most ε and δ for replacement of one record.
    records : {"clamped", "exact", "normal", "conjugate"}
        Joint model of a regression in panels where each method analyses records of its own model: normal records
        clamped to the box, unclamped ones, a normal Gram matrix, or this with moments from `ConjugatePrior`.
    note : str
        Description in one sentence.
    unseeded : bool
        True if equal `rng` do not give equal numbers, as of a program without a seed.

    Raises
    ------
    ValueError
        For an unknown kind, or a function that does not take the arguments of its kind.

    Examples
    --------
    >>> from studies import STUDIES
    >>> def fit(rng, model, prior, y):
    ...     share = rng.beta(prior[0], prior[1], 1000)
    ...     return share[abs(rng.binomial(model.n, share) - y[0]) < 3 * model.noise.scale]
    >>> method = OwnMethod("rejection", "posterior", fit, lambda cell: cell["family"] == "binomial")
    >>> STUDIES["calibration"].with_methods(method).panel("binomial").methods[-1].name
    'rejection'
    """

    name: str
    kind: Kind
    fit: Callable[..., Any] = field(repr=False)
    supports: Callable[[Mapping[str, Any]], bool] = field(default=_always, repr=False)
    chains: bool = False
    guarantee: Callable[[float, float], Guarantee | None] | None = field(default=None, repr=False)
    records: Records = "clamped"
    note: str = ""
    unseeded: bool = False

    def __post_init__(self) -> None:
        if self.kind not in _ARGUMENTS:
            raise ValueError(
                f"kind of {self.name} must be one of {', '.join(_ARGUMENTS)}, got {self.kind!r}; a mechanism of counts "
                "is a mechanisms.Mechanism"
            )
        if not callable(self.fit) or not callable(self.supports):
            raise ValueError(f"fit and supports of {self.name} must be functions, got another value; pass functions")
        arguments = _ARGUMENTS[self.kind]
        more = {"precision": 1.0} if self.kind == "draw" and self.takes_precision else {}
        try:
            inspect.signature(self.fit).bind(*arguments, **more)
        except TypeError:
            listed = ", ".join(arguments)
            got = inspect.signature(self.fit)
            raise ValueError(f"fit of {self.name} must take ({listed}) for kind {self.kind}, got {got}") from None
        if self.kind == "draw" and self.guarantee is None:
            raise ValueError(
                f"method {self.name} of kind draw must state a guarantee, got none; pass e.g. guarantee=mechanisms."
                "Guarantee for (epsilon, delta)-DP"
            )
        if self.records not in get_args(Records):
            allowed = ", ".join(get_args(Records))
            raise ValueError(f"records of {self.name} must be one of {allowed}, got {self.records!r}")

    def applies(self, cell: Mapping[str, Any]) -> bool:
        """Return what `supports` returns; raise ValueError if it raises another exception or returns no bool."""
        try:
            result = self.supports(cell)
        except Exception as error:
            raise ValueError(f"supports of {self.name} raised {describe(error)}") from error
        if not isinstance(result, bool | np.bool_):
            raise ValueError(f"supports of {self.name} must return True or False, got {type(result).__name__}")
        return bool(result)

    def states(self, epsilon: float, delta: float) -> bool:
        """Return True if the method has a guarantee of at most ε and δ, and False if it has none."""
        assert self.guarantee is not None
        try:
            stated = self.guarantee(epsilon, delta)
        except Exception as error:
            raise ValueError(f"guarantee of {self.name} raised {describe(error)}") from error
        if stated is None:
            return False
        allowed = f"at most ({epsilon:g}, {delta:g})-DP for replacement of one record"
        if not isinstance(stated, Guarantee):
            raise ValueError(f"guarantee of {self.name} must be a Guarantee or None, got {type(stated).__name__}")
        is_at_most = stated.epsilon <= epsilon * (1.0 + 1e-12) and stated.delta <= delta
        if not is_at_most or stated.relation is not Neighbouring.REPLACE_ONE:
            raise ValueError(f"guarantee of {self.name} must be {allowed}, got {stated}; return None where it has none")
        return True

    @cached_property
    def takes_precision(self) -> bool:
        """True if `fit` has an argument `precision`."""
        return "precision" in inspect.signature(self.fit).parameters

    def method(self, evaluate: Callable[..., Mapping[str, Any]], **options: Any) -> Method:
        """Return the method of a panel; `evaluate` takes the data, the setting and the streams."""
        note = self.note or f"Added method of kind {self.kind}."
        return Method(self.name, evaluate, note=note, unseeded=self.unseeded, **options)


@dataclass(frozen=True)
class Draws:
    """Draws of one fit, shape (chains, draws, p), declared as chains or as independent, and its posterior, if any.

    >>> draws = Draws.of(OwnMethod("mine", "posterior", lambda rng, model, prior, y: None), np.arange(200.0), 1)
    >>> draws.quantiles(np.array([49.5]), np.array([0.0]), most=99)
    array([0.25])
    """

    values: Array
    are_chains: bool
    posterior: Any = None

    @classmethod
    def of(cls, own: OwnMethod, values: Any, p: int, posterior: Any = None) -> "Draws":
        """Return the draws of p components that a method returned; raise ValueError for another shape or number."""
        array = real_array(f"fit of {own.name}", returned_array(f"fit of {own.name}", values))
        n_axes = 1 + own.chains
        if array.ndim == n_axes and p == 1:
            array = array[..., None]
        if array.ndim != n_axes + 1 or array.shape[-1] != p:
            shape = f"({'chains, ' * own.chains}draws{f', {p}' if p > 1 else ''})"
            raise ValueError(f"fit of {own.name} must return draws of shape {shape}, got {np.shape(values)}")
        array = array if own.chains else array[None]
        if array[..., 0].size < LEAST_DRAWS or (own.chains and array.shape[1] < _LEAST_LENGTH):
            raise ValueError(f"fit of {own.name} must return at least {LEAST_DRAWS} draws, got {array[..., 0].size}")
        n_bad = int((~np.isfinite(array)).any(axis=-1).sum())
        if n_bad:
            raise ValueError(f"draws of {own.name} must be finite, got {n_bad} that are not")
        return cls(array, own.chains, posterior)

    @property
    def pooled(self) -> Array:
        """All draws, shape (draws, p)."""
        return self.values.reshape(-1, self.values.shape[-1])

    @cached_property
    def diagnostics(self) -> tuple[Array, Array]:
        """Split R-hat and effective sample size per component, shape (p,): 1 and the number for independent draws."""
        if self.are_chains:
            return diagnose_chains(np.moveaxis(self.values, -1, 0))
        p = self.values.shape[-1]
        return np.ones(p), np.full(p, float(len(self.pooled)))

    def thinned(self, component: int, most: int | None = None) -> Array:
        """Return evenly spaced draws of a component that are nearly independent, and at most `most` of them."""
        column = self.pooled[:, component]
        kept = max(1, int(self.diagnostics[1][component] / 2)) if self.are_chains else column.size
        return column[spaced(column.size, min(kept, column.size, most or column.size))]

    def nearly_independent(self) -> Array:
        """Return evenly spaced draws of all components, thinned for the one with the fewest effective draws."""
        kept = max(2, int(self.diagnostics[1].min() / 2)) if self.are_chains else len(self.pooled)
        return self.pooled[spaced(len(self.pooled), min(kept, len(self.pooled)))]

    def quantiles(self, truth: Array, uniforms: Array, most: int | None = None) -> Array:
        """Return randomised quantiles of the true components among at most `most` draws, shape (p,)."""
        return np.array([self.quantile(j, truth[j], uniforms[j], most) for j in range(len(truth))])

    def quantile(self, component: int, truth: float, uniform: float, most: int | None = None) -> float:
        """Return the randomised quantile of the truth among at most `most` draws of a component."""
        return randomised_quantile(self.thinned(component, most), truth, uniform)

    def ranks(self, truth: Array, uniforms: Array) -> Array:
        """Return ranks of the true components, from 0 to 99, which are uniform if the draws are right, shape (p,)."""
        return np.floor((_RANKED + 1) * self.quantiles(truth, uniforms, _RANKED))

    def pit(self, truth: Array, uniforms: Array) -> Array:
        """Return posterior quantiles of the true components, exact ones if there is a posterior, shape (p,)."""
        if self.posterior is None:
            return self.quantiles(truth, uniforms)
        value = real_array("cdf", self.posterior.cdf(truth if truth.size > 1 else truth[0]))
        if value.size != truth.size or not ((value >= 0.0) & (value <= 1.0)).all():
            raise ValueError(f"cdf of a posterior must return {truth.size} probabilities, got shape {value.shape}")
        return value.reshape(-1)


def spaced(n: int, kept: int) -> NDArray[np.int64]:
    """Return the indices of `kept` of n draws, evenly spaced.

    >>> spaced(10, 5).tolist()
    [1, 3, 5, 7, 9]
    """
    return ((np.arange(kept) + 0.5) * n / kept).astype(np.int64)


def randomised_quantile(draws: Array, truth: float, uniform: float) -> float:
    """Return (b + u·(e + 1))/(k + 1) for b smaller and e equal ones of k draws.

    >>> randomised_quantile(np.array([1.0, 2.0, 2.0, 5.0]), 2.0, 0.5)
    0.5
    """
    smaller, equal = np.count_nonzero(draws < truth), np.count_nonzero(draws == truth)
    return float((smaller + uniform * (equal + 1)) / (draws.size + 1))


def evaluate_trials(
    evaluate: Callable[[int, np.random.Generator, Array], Mapping[str, Any]], n_uniforms: int, streams: Streams
) -> dict[str, Any]:
    """Return the measures of all trials, each by ``evaluate(i, rng, uniforms)``; an exception fails its trial only.

    If every trial raises, so does this function, and the pipeline records tracebacks.
    """
    rows: list[Mapping[str, Any] | None] = []
    errors = []
    uniforms = streams.uniforms(max(n_uniforms, 1), label="ranks")
    for i, rng in enumerate(streams.generators()):
        try:
            rows.append(evaluate(i, rng, uniforms[i]))
            errors.append("")
        except Exception as error:
            rows.append(None)
            errors.append(describe(error))
            last = error
    computed = next((row for row in rows if row is not None), None)
    if computed is None:
        raise last
    measures = {name: np.array([(row or computed)[name] for row in rows]) for name in computed}
    return {**measures, "error": np.array(errors, object)}


def describe(error: Exception) -> str:
    """Return class and text of an exception on one line, after the last line of a user's file that raised it."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = imported_from(frame.filename)
        if path != frame.filename:
            return f"{os.path.basename(path)}:{frame.lineno}: {text}"
    return text
