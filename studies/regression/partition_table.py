"""Private posterior probabilities and quantiles of a regression on a user's table (``dpstudies partition``).

The rows are divided at random by a key (`mechanisms.regression.keyed_partition`) and read once, in blocks, on a Dask
cluster. The result is the sufficient statistics of each partition, from which posteriors and releases are computed.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mechanisms.privacy import Guarantee
from mechanisms.protocols import validate_probabilities
from mechanisms.regression.coefficient_posterior import CoefficientPosterior
from mechanisms.regression.keyed_partition import keyed_partition
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, PartitionProbability, partition_probability
from mechanisms.regression.partition_quantile import QUANTILE_METHODS, PartitionQuantile, partition_quantile
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.prior import ConjugatePrior, FlatPrior, Prior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.statistics import RegressionStatistics
from pipeline import Streams
from pipeline.clusters.cluster import connect, load_profile
from pipeline.errors import BadInputError, unknown
from pipeline.tables.tables import open_table
from studies.regression.divided_rows import divide_rows

INTERCEPT = "intercept"
"""Name of the coefficient of the intercept."""

PRIORS = ("zellner", "flat", "conjugate", "semi-conjugate")
"""Names of priors, optionally followed by Zellner's g or the variance of each coefficient."""

_PRIOR_VARIANCE = 1000.0
_AT_ONCE = 10_000  # number of partitions per batch of posteriors
_LARGEST_MISS_PROBABILITY = 0.01


@dataclass(frozen=True)
class Request:
    """Specification of a release from a table.

    Attributes
    ----------
    target : str
        Name of the column y.
    coefficient : str
        Name of a feature, or `INTERCEPT`.
    n_partitions : int
        Number of partitions, M.
    epsilon : float
        Privacy loss of each value, in nats; losses of several values add up.
    cutoffs, probabilities : tuple of float
        Cutoffs b of Pr[β ≤ b], or probabilities p in (0, 1) of quantiles of β. One of the two is empty.
    method : str or None
        Key of `PROBABILITY_METHODS` or `QUANTILE_METHODS`; by default ``normality-corrected`` or ``quantile-centred``.
    features : tuple of str or None
        Names of the columns x; by default all columns except y.
    intercept : bool
        Include an intercept in the model.
    prior : str
        Name from `PRIORS`, optionally with a number, such as ``zellner:1000``. By default Zellner's g is n and a
        variance is 1000. Conjugate and semi-conjugate priors have σ² ~ IG(1, 1).
    error_variance : float or None
        Known σ², or None.
    split : tuple of float
        Division of ε among the steps of a quantile; by default half of ε is for the noise on the mean.
    start, share : float or None
        μ and θ of the search for the bounds of a quantile, by default 1 and 0.8; θ is used by ``quantile`` only.
    """

    target: str
    coefficient: str
    n_partitions: int
    epsilon: float
    cutoffs: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = ()
    method: str | None = None
    features: tuple[str, ...] | None = None
    intercept: bool = True
    prior: str = "zellner"
    error_variance: float | None = None
    split: tuple[float, ...] = ()
    start: float | None = None
    share: float | None = None

    def mechanism(self) -> PartitionProbability | PartitionQuantile:
        """Return the mechanism after validating its arguments; no table is needed.

        Raises
        ------
        BadInputError
            If an argument is invalid.
        """
        if bool(self.cutoffs) == bool(self.probabilities):
            got = "both" if self.cutoffs else "neither"
            raise BadInputError(f"either --cutoffs or --probabilities must be given, got {got}; give one of them")
        methods = PROBABILITY_METHODS if self.cutoffs else QUANTILE_METHODS
        name = self.method or ("normality-corrected" if self.cutoffs else "quantile-centred")
        if name not in methods:
            kind = "cutoffs" if self.cutoffs else "probabilities"
            raise BadInputError(unknown(f"method for {kind}", name, methods))
        try:
            if self.cutoffs:
                for what, given in (("split", self.split or None), ("mu", self.start), ("theta", self.share)):
                    if given is not None:
                        raise BadInputError(f"{what} must be omitted with cutoffs, got {given}; use it for quantiles")
                if not all(math.isfinite(cutoff) for cutoff in self.cutoffs):
                    raise BadInputError(f"cutoffs must be finite, got {', '.join(map(str, self.cutoffs))}")
                return partition_probability(name, self.n_partitions, self.epsilon)
            validate_probabilities(self.probabilities)
            shares = (0.5, 0.5) if not QUANTILE_METHODS[name].is_centred else (0.2, 0.3, 0.5)
            split = self.split or tuple(part * self.epsilon for part in shares)
            if self.share is not None and QUANTILE_METHODS[name].is_centred:
                raise BadInputError(f"theta must be omitted with {name}, got {self.share}; use it with quantile")
            start, share = (1.0 if self.start is None else self.start), (0.8 if self.share is None else self.share)
            return partition_quantile(name, self.n_partitions, self.epsilon, split, start, share)
        except BadInputError:
            raise
        except ValueError as error:
            raise BadInputError(str(error)) from error


@dataclass(frozen=True)
class Release:
    """Released values with their privacy loss.

    Attributes
    ----------
    values : pandas.DataFrame
        One row per cutoff or probability, with its privacy loss in the column `epsilon`. Quantiles also have the
        clipping interval, and the flag `capped` of a search that reached the largest number of doublings. All columns
        are part of the release.
    method : str
    n_rows, n_partitions : int
    guarantee : Guarantee or None
        Guarantee of all values together; None for methods that are not private.
    miss_probability : float
        Probability of a wrong private centre, see `mechanisms.regression.partition_quantile.PartitionQuantile`; 0 for
        other methods.
    """

    values: pd.DataFrame
    method: str
    n_rows: int
    n_partitions: int
    guarantee: Guarantee | None
    miss_probability: float = 0.0

    @property
    def budget(self) -> str:
        """Privacy loss of the release, in one line."""
        each = f"{len(self.values)} x {self.values['epsilon'].iloc[0]:g}"
        if self.guarantee is None:
            return f"NOT PRIVATE: the privacy loss of {self.method} is {each} nats, more than the given epsilon"
        return (
            f"budget spent: {each} nats, {self.guarantee} in total, provided that the table is accepted "
            f"({self.guarantee.relation.value})"
        )

    @property
    def lines(self) -> list[str]:
        """Lines that report the partitions, the privacy loss and warnings."""
        fewest, n_larger = divmod(self.n_rows, self.n_partitions)
        each = f"{fewest:,} rows" + (f", {n_larger:,} of them with one more" if n_larger else "")
        lines = [
            f"{self.n_rows:,} rows, divided at random into {self.n_partitions:,} partitions of {each}",
            f"{self.method}: {self.budget}",
        ]
        capped = self.values["p"][self.values["capped"]] if "capped" in self.values else []
        if len(capped):
            lines.append(
                f"the search for bounds failed at p = {', '.join(f'{p:g}' for p in capped)}: the released values are "
                "mostly noise, and the budget is spent; increase --mu, decrease --theta, or use --method "
                "quantile-centred"
            )
        if self.miss_probability > _LARGEST_MISS_PROBABILITY:
            lines.append(
                f"too few partitions or too small epsilon for a private centre: it is wrong with probability of about "
                f"{self.miss_probability:.2g}, which gives large errors; increase either, or use --method quantile"
            )
        return [*lines, "for simulation only: the noise does not protect real data"]

    def write(self, path: Path) -> None:
        """Write the values and the privacy loss as CSV or JSON."""
        facts = {
            "method": self.method,
            "n_rows": self.n_rows,
            "n_partitions": self.n_partitions,
            "total_epsilon": None if self.guarantee is None else self.guarantee.epsilon,
        }
        if path.suffix == ".csv":
            self.values.assign(**facts).to_csv(path, index=False)
        else:
            finite = np.isfinite(self.values.astype(np.float64))
            records = self.values.astype(object).where(finite, None).to_dict("records")  # JSON has no infinity
            path.write_text(json.dumps({**facts, "budget": self.budget, "values": records}, indent=2) + "\n")


def release_table(path: str, request: Request, seed: int | None = None, cluster: str | None = None) -> Release:
    """Release posterior probabilities or quantiles of one coefficient of a regression on a table.

    Parameters
    ----------
    path : str
        Path of the table, see `pipeline.tables.formats`.
    request : Request
    seed : int, optional
        Seed of the partition and of the noise, which use separate streams; by default both are random. Noise from a
        known seed provides no privacy.
    cluster : str, optional
        ``FILE`` or ``FILE:PROFILE``; by default threads of this process.

    Returns
    -------
    Release

    Privacy
    -------
    The guarantee of the method holds for each value, under replacement of one row, with public n, columns and
    partition; losses add up. Errors are not covered: the absence of missing values in the table and of collinear
    columns in a partition reveals information about the rows.

    Raises
    ------
    BadInputError
        If an argument is invalid, or the table cannot be used.
    pipeline.execution.in_flight.ExecutionError
        If workers terminate.
    """
    mechanism = request.mechanism()
    profile = load_profile(cluster)
    table = open_table(path, request.target, request.features)
    n_rows = table.rows.shape[0]
    names = ((INTERCEPT,) if request.intercept else ()) + table.columns[:-1]
    if request.coefficient not in names:
        raise BadInputError(f"{path}: {unknown('coefficient', request.coefficient, names)}")
    if names.count(INTERCEPT) > 1:
        raise BadInputError(
            f"{path} must not have a column {INTERCEPT} if the model has an intercept; use --features or --no-intercept"
        )
    prior = find_prior(request.prior, n_rows)
    if not isinstance(prior, ConjugatePrior) and n_rows // request.n_partitions < len(names):
        raise BadInputError(
            f"partitions must have at least as many rows as coefficients, {len(names)}, got {request.n_partitions:,} "
            f"partitions of {n_rows:,} rows; decrease --partitions or use --prior conjugate"
        )
    division, noise = _generators(seed, request)
    try:
        partition = keyed_partition(division, n_rows, request.n_partitions)
        with connect(profile) as client:
            statistics = divide_rows(client, [table.rows], partition, request.intercept)
        posteriors = _Posteriors(statistics, names.index(request.coefficient), prior, request.error_variance)
        values = _release(mechanism, request, posteriors, noise)
    except ValueError as error:
        raise error if isinstance(error, BadInputError) else BadInputError(f"{path}: {error}") from error
    miss = mechanism.miss_probability if isinstance(mechanism, PartitionQuantile) else 0.0
    return Release(values, mechanism.name, n_rows, request.n_partitions, mechanism.guarantee(len(values)), miss)


def find_prior(text: str, n_rows: int) -> Prior:
    """Return the prior with the given name and optional number.

    Parameters
    ----------
    text : str
        See `Request.prior`.
    n_rows : int
        Default of Zellner's g.

    Raises
    ------
    BadInputError
        If the name or the number is invalid.

    Examples
    --------
    >>> find_prior("zellner", 5000), find_prior("semi-conjugate:100", 5000)
    (ZellnerPrior(g=5000.0), SemiConjugatePrior(mean=0.0, precision=0.01, shape=1.0, rate=1.0))
    """
    name, colon, number = text.partition(":")
    if name not in PRIORS:
        raise BadInputError(unknown("prior", name, PRIORS))
    try:
        value = float(number) if colon else None
        if name == "zellner":
            return ZellnerPrior(float(n_rows) if value is None else value)
        if name == "flat" and value is None:
            return FlatPrior()
        variance = _PRIOR_VARIANCE if value is None else value
        if name == "flat" or not (math.isfinite(variance) and variance > 0):
            raise ValueError("flat takes no number" if name == "flat" else "a variance must be finite and > 0")
        return (ConjugatePrior if name == "conjugate" else SemiConjugatePrior)(precision=1.0 / variance)
    except ValueError as error:
        raise BadInputError(
            f"prior must be a name with an optional number, such as zellner:1000, flat or conjugate:100, got {text}: "
            f"{error}"
        ) from error


def _generators(seed: int | None, request: Request) -> tuple[np.random.Generator, np.random.Generator]:
    """Return generators of the partition, which depends on the seed and M only, and of the noise of this request."""
    if seed is None:
        return np.random.default_rng(), np.random.default_rng()
    asked = {key: json.dumps(value) for key, value in asdict(request).items()}
    streams = (
        Streams(seed, "partition", "table", "division", {"n_partitions": request.n_partitions}, range(1)),
        Streams(seed, "partition", "table", "noise", asked, range(1)),
    )
    first, second = (next(stream.generators()) for stream in streams)
    return first, second


@dataclass(frozen=True)
class _Posteriors:
    """Posteriors of a coefficient in each partition, computed in batches of partitions."""

    statistics: RegressionStatistics
    k: int
    prior: Prior
    error_variance: float | None

    def compute(self, measure: Callable[[CoefficientPosterior], np.ndarray], powered: bool) -> np.ndarray:
        """Return a measure of the posteriors, shape (M, c); with `powered`, likelihoods have the power n/nⱼ."""
        n_rows = self.statistics.n_rows
        power = n_rows.sum() / n_rows if powered else np.ones(n_rows.shape)
        found = []
        for start in range(0, n_rows.size, _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            posterior = coefficient_posterior(
                self.statistics[some], self.k, self.prior, self.error_variance, power[some]
            )
            found.append(measure(posterior))
        return np.concatenate(found)


def _release(
    mechanism: PartitionProbability | PartitionQuantile,
    request: Request,
    posteriors: _Posteriors,
    rng: np.random.Generator,
) -> pd.DataFrame:
    if isinstance(mechanism, PartitionProbability):
        below = posteriors.compute(lambda posterior: posterior.cdf(request.cutoffs), powered=False)
        released = mechanism.release(rng, below)
        return pd.DataFrame({"cutoff": request.cutoffs, "probability": released, "epsilon": mechanism.loss})
    p = request.probabilities
    found = posteriors.compute(
        lambda posterior: np.column_stack([posterior.quantile(p), posterior.std()]), powered=True
    )
    drawn = mechanism.release(rng, found[:, :-1], found[:, -1])
    return pd.DataFrame(
        {
            "p": p,
            "quantile": drawn.values,
            "clipped_from": drawn.centres - drawn.half_widths,
            "clipped_to": drawn.centres + drawn.half_widths,
            "capped": drawn.capped,
            "epsilon": math.inf if mechanism.guarantee() is None else mechanism.epsilon,
        }
    )
