"""Private linear regression in one call: a noisy Gram matrix, and the posterior of the coefficients given it.

`mechanisms.regression.gram_release` proves the guarantees, and `gram_samplers` describes the models and the prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.core.arguments import Floats, Integers, describe, find_entry, record_array
from mechanisms.core.html import posterior_table
from mechanisms.core.privacy import Guarantee
from mechanisms.core.privacy_parameters import warn_large_delta
from mechanisms.core.protocols import validate_probabilities
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.regression.gram_priors import RegressionPrior
from mechanisms.regression.gram_release import (
    GramNoise,
    GramRelease,
    PublicBox,
    calibrated_gram_noise,
    gram_sums,
    publish_gram,
    release_gram,
)
from mechanisms.regression.gram_samplers import (
    GRAM_METHODS,
    coefficient_intervals,
    resolves,
    sample_gram,
)
from mechanisms.regression.width_forecast import require_support
from mechanisms.release import CheckedRelease, Hook, LedgerLike, Rehearsal, check_release

if TYPE_CHECKING:
    import xarray as xr


_SPREAD = 0.25  # mean square of a scaled column beyond which clamped normal records pile up at the ends of its range
_LONGEST = 16  # largest number of iterations of repeated chains, as a multiple of those of the first


@dataclass(frozen=True, eq=False, repr=False)
class RegressionPosterior(DrawnPosterior):
    """Posterior of the coefficients and the error variance of a linear regression, in the units of the columns.

    All attributes are public. Means, quantiles and draws have one entry per name of `names`, along the last axis.
    """

    box: PublicBox  # the last column is the response
    release: GramRelease  # of the scaled columns
    method: str  # key of `GRAM_METHODS`
    unresolved_features: tuple[str, ...]
    """Features whose residual variance given the other features the draws do not bound away from 0.

    Intervals of their slopes rest on the prior, and are too narrow if a range is, say, 30 times too wide.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the components: ``intercept``, the features, and ``error_variance``."""
        return ("intercept", *self.box.names[:-1], "error_variance")

    @property
    def guarantee(self) -> Guarantee | None:
        """Guarantee of the release, which inference does not change; None for a rehearsal."""
        return self.release.guarantee

    @property
    def resolves_error(self) -> bool:
        """False if the draws do not bound the error variance away from 0; its interval is then an upper bound."""
        return bool(resolves(self._pooled[:, -1]))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the equal-tailed intervals of probability `level`, in (0, 1).

        If the release does not resolve the error variance, its interval starts at 0, and the upper end is a bound.
        """
        (level,) = validate_probabilities([level])
        return coefficient_intervals(self._pooled, level)

    def predict(self, rng: np.random.Generator, features: ArrayLike, size: int = 1_000) -> Floats:
        """Return draws of the response, shape (size, rows), given unclamped features, shape (rows, d)."""
        x = np.asarray(features, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.box.p - 1:
            raise ValueError(f"features must have shape (rows, {self.box.p - 1}), got {x.shape}; one per feature")
        drawn = self.sample(rng, size)
        expected = drawn[:, :1] + drawn[:, 1:-1] @ x.T
        return expected + np.sqrt(drawn[:, -1:]) * rng.normal(size=expected.shape)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the mean, sd and interval of each component, the guarantee and the method as values for JSON."""
        low, high = self.interval(level)
        columns = np.transpose([self.mean(), self.std(), low, high]).tolist()
        rows = (dict(zip(("mean", "sd", "low", "high"), values, strict=True)) for values in columns)
        error_bound = None if self.resolves_error else float(np.sqrt(high[-1]))
        return {
            "coefficients": dict(zip(self.names, rows, strict=True)),
            "level": level,
            "error_bound": error_bound,  # of the standard deviation, if its interval is one-sided
            "unresolved_features": list(self.unresolved_features),
            "guarantee": None if self.guarantee is None else str(self.guarantee),
            "n": self.release.n,
            "method": self.method,
            "noise": self.release.noise.name,
        }

    def to_arviz(self) -> xr.DataTree:
        """Convert the chains to an `xarray.DataTree` for ArviZ, with the groups ``posterior`` and ``observed_data``.

        ``posterior`` contains ``coefficients``, labelled by the coordinate ``coefficient``, and ``error_variance``.
        """
        import xarray as xr  # slow import

        columns = ["1", *self.box.names]
        posterior = xr.Dataset(
            {
                "coefficients": (("chain", "draw", "coefficient"), self.draws[..., :-1]),
                "error_variance": (("chain", "draw"), self.draws[..., -1]),
            },
            coords={"coefficient": list(self.names[:-1])},
            attrs={"method": self.method, "n": self.release.n, "guarantee": self._stated()},
        )
        observed = xr.Dataset(
            {"noisy_gram": (("column", "other_column"), self.release.noisy)},
            coords={"column": columns, "other_column": columns},
        )
        return xr.DataTree.from_dict({"posterior": posterior, "observed_data": observed})

    def _stated(self) -> str:
        return "none (rehearsal)" if self.guarantee is None else str(self.guarantee)

    def __repr__(self) -> str:
        values = self.to_dict()["coefficients"].items()
        shown = ", ".join(f"{name}={entry['mean']:.4g} ± {entry['sd']:.2g}" for name, entry in values)
        return f"RegressionPosterior({shown}, n={self.release.n}, method={self.method}, guarantee={self._stated()})"

    def _repr_html_(self) -> str:
        low, high = self.interval()
        return posterior_table(
            "Posterior of a linear regression",
            self.names,
            {"mean": self.mean(), "sd": self.std(), "95 % from": low, "to": high},
            f"n = {self.release.n}; method: {self.method}; guarantee: {self._stated()}",
        )


def private_regression(
    features: ArrayLike,
    response: ArrayLike,
    bounds: Mapping[str, tuple[float, float]],
    epsilon: float,
    *,
    delta: float | None = None,
    method: str = "normal-covariates",
    prior: RegressionPrior | None = None,
    rehearsal_seed: int | None = None,
    ledger: LedgerLike | None = None,
    before_release: Hook | None = None,
) -> RegressionPosterior:
    """Release the noisy Gram matrix of private records, and return the posterior of a linear regression given it.

    Parameters
    ----------
    features : array_like, shape (n,) or (n, d)
        Private covariates. An intercept is added.
    response : array_like, shape (n,)
        Private response.
    bounds : mapping of str to (float, float)
        Public bounds of each column: the features in order, and last the response. Values outside are clamped. Choose
        plausible ranges without looking at the data, e.g. 0 to 120 for an age.
    epsilon : float
        Privacy loss in nats, > 0.
    delta : float, optional
        δ of (ε, δ)-DP with Gaussian noise; by default the release is ε-DP with Laplace noise.
    method : str
        A method of `GRAM_METHODS` that is no control. Data-augmentation is for normal columns with clamped values: a
        value at an end of its range stands for any value beyond it, so that slopes of columns of zeros and ones are
        wrong.
    prior : RegressionPrior, optional
        Prior of the scaled columns, which are in [-1, 1]; all parts are independent:

        =================================================  ==============================================
        part                                               default
        =================================================  ==============================================
        each slope times its feature's standard deviation  Student's t with 2 degrees of freedom, scale 1
        standard deviation of the error                    half-t with 2 degrees of freedom, scale 1
        standard deviation of each feature                 half-t with 2 degrees of freedom, scale 1
        correlations of the features                       uniform over correlation matrices
        mean of each column                                normal, standard deviation 1
        =================================================  ==============================================
    rehearsal_seed : int, optional
        Seed of a rehearsal, which is reproducible and not private.
    ledger, before_release : optional
        Ledger of all releases from these records, or its path, in which this one is entered before the noise is drawn,
        and a function that is called in between; see `mechanisms.release.check_release`.

    Privacy
    -------
    ε-DP, or (ε, δ)-DP (proved), under replacement of one record; the number of records is public. OpenDP draws the
    noise with entropy of the operating system, and inference uses only the release. Every call is a separate release.
    Errors about missing values are not covered by the guarantee. A rehearsal has no guarantee.

    Raises
    ------
    ValueError
        If an argument is invalid, the ledger has less left than ε or δ, or the release would say next to nothing about
        the coefficients, before any noise is drawn.
    ModuleNotFoundError
        If OpenDP is not installed.

    Warns
    -----
    UserWarning
        If the chains have not converged, columns spread over their whole ranges with data-augmentation, or δ ≥ 1/n.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> age = rng.uniform(20, 70, 5_000)
    >>> income = 10 + 0.5 * age + rng.normal(0, 5, 5_000)
    >>> bounds = {"age": (18, 90), "income": (0, 100)}
    >>> posterior = private_regression(age, income, bounds, epsilon=1.0, rehearsal_seed=1)
    >>> low, high = posterior.interval(0.99)
    >>> bool(low[1] < 0.5 < high[1])
    True
    """
    if not isinstance(bounds, Mapping) or not all(np.shape(pair) == (2,) for pair in bounds.values()):
        raise ValueError(
            "bounds must map each column to a pair (low, high), features first and the response last, got none; bounds "
            "from the data would leak them: choose plausible ranges without looking, such as 0 to 120 for an age"
        )
    if not isinstance(prior, RegressionPrior | None):
        raise ValueError(f"prior must be a RegressionPrior or None, got {describe(prior)}; pass one")
    box = PublicBox.of(bounds)
    noise = calibrated_gram_noise("laplace" if delta is None else "gaussian", box.p, epsilon, delta)
    guarantee = Guarantee(epsilon, 0.0 if delta is None else delta)
    release = check_release(guarantee, "private_regression", rehearsal_seed, ledger, before_release)
    _require_order(features, box.names[:-1])
    x, y = record_array("features", features), record_array("response", response)
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or y.shape != x.shape[:1] or x.shape[1] != box.p - 1:
        raise ValueError(
            f"features and response must have shapes (n, {box.p - 1}) and (n,), got {x.shape} and {y.shape}; pass "
            "bounds of each feature, in order, and then of the response"
        )
    warn_large_delta(guarantee.delta, len(y))
    require_gram_method(method)
    require_support(box, len(y), noise)
    records = np.column_stack([x, y])
    is_finite = np.isfinite(records).all(axis=1)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise ValueError(f"records must be finite, got an invalid value in row {row}; remove or impute such records")
    sums, _ = gram_sums(box, records)
    released, rng = release_sums(sums, noise, release)
    return regression_from_release(rng, released, box, method, prior)


def regression_from_release(
    rng: np.random.Generator,
    release: GramRelease,
    box: PublicBox,
    method: str = "normal-covariates",
    prior: RegressionPrior | None = None,
) -> RegressionPosterior:
    """Return the posterior of the coefficients given a release whose columns have the bounds of `box`.

    Method and prior are as in `private_regression`; controls are allowed. Chains are repeated with up to 16 times as
    many iterations, until they have converged, and a UserWarning is given if they have not, or if data-augmentation
    takes many values of a column for clamped ones.
    """
    if release.noise.p != box.p:
        raise ValueError(f"a release must have {box.p} columns, as the bounds, got {release.noise.p}; pass its columns")
    entry = find_entry(GRAM_METHODS, method, "method")
    if entry.takes_ends_for_clamped:
        _warn_if_wide(method, release, box)
    for factor in (1, 4, _LONGEST):
        draws = sample_gram(rng, method, release, prior, n_burn_in=500 * factor, thinning=entry.thinning * factor)
        variances = draws[..., box.p + 1 :].reshape(-1, box.p - 1)
        is_resolved = zip(box.names[:-1], resolves(variances.T), strict=True)
        unresolved = tuple(name for name, known in is_resolved if not known)
        posterior = RegressionPosterior(box.unscale(draws[..., : box.p + 1]), box, release, method, unresolved)
        problem = posterior.problem()
        if problem is None:
            break
    else:
        warn(problem.partition(";")[0] + "; use another method", stacklevel=2)  # type: ignore[union-attr]
    return posterior


def _require_order(features: Any, names: Sequence[str]) -> None:
    """Raise ValueError if a column of a frame has the name of another feature in `bounds`."""
    columns = [str(column) for column in getattr(features, "columns", ())]
    if any(column != name and column in names for column, name in zip(columns, names, strict=False)):
        raise ValueError(
            f"features must have the order of bounds, {', '.join(names)}, got {', '.join(columns)}; reorder the columns"
        )


def _warn_if_wide(method: str, release: GramRelease, box: PublicBox) -> None:
    """Warn about columns whose released mean squares are those of many values near the ends of their ranges."""
    at_least = (np.diag(release.noisy)[1:] - 2.0 * release.noise.variance**0.5) / release.n
    wide = [name for name, mean_square in zip(box.names, at_least, strict=True) if mean_square > _SPREAD]
    if wide:
        warn(
            f"{method} takes values at the ends of a range for clamped ones, got columns that fill their "
            f"ranges: {', '.join(wide)}; if nothing was clamped, as with zeros and ones, coefficients are wrong: use "
            "normal-covariates",
            stacklevel=3,
        )


def require_gram_method(method: str) -> None:
    """Raise ValueError for an unknown method or a control."""
    offered = [name for name, entry in GRAM_METHODS.items() if not entry.is_control]
    if method not in offered:
        reason = "its intervals are not calibrated" if method in GRAM_METHODS else "choose one of them"
        raise ValueError(f"method must be one of {', '.join(offered)}, got {method}; {reason}")


def release_sums(
    sums: Sequence[Sequence[int]] | Integers, noise: GramNoise, release: CheckedRelease | Rehearsal
) -> tuple[GramRelease, np.random.Generator]:
    """Return the noisy Gram matrix, and the generator for its chains; that of a rehearsal is not private."""
    if isinstance(release, CheckedRelease):
        return publish_gram(sums, noise, release), np.random.default_rng()
    gram = np.array(sums, dtype=np.float64) / 2.0**32
    gram[0, 0] = float(sums[0][0])
    chains = release.generator("private_regression chains")
    return release_gram(release.generator("private_regression noise"), gram, noise), chains
