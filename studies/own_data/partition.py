"""Private posterior probabilities and quantiles of a regression on a user's table (``dpstudies partition``).

The rows are divided at random by a key (`mechanisms.regression.keyed_partition`) and read once, in blocks. The
posteriors and the releases are computed from the sufficient statistics of each partition.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special

from mechanisms.core.arguments import validate_positive
from mechanisms.core.privacy import Guarantee
from mechanisms.core.protocols import validate_probabilities
from mechanisms.regression.keyed_partition import keyed_partition
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, PartitionProbability, partition_probability
from mechanisms.regression.partition_quantile import (
    QUANTILE_METHODS,
    SCALE_WINDOW,
    PartitionQuantile,
    partition_quantile,
)
from mechanisms.regression.posterior import CoefficientPosterior, coefficient_posterior
from mechanisms.regression.prior import ConjugatePrior, FlatPrior, Prior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.publish import joint_guarantee, publish_probabilities, publish_quantiles, validate_draws
from mechanisms.regression.statistics import RegressionStatistics
from mechanisms.release import LedgerFile, require_opendp
from pipeline import Streams
from pipeline.clusters.profiles import load_profile
from pipeline.clusters.user_cluster import ClusterChoice
from pipeline.errors import BadInputError, as_bad_input, unknown
from pipeline.tables.cells import Literal
from pipeline.tables.formats import unknown_name
from pipeline.tables.tables import open_table
from studies.option_texts import parse_numbers, parse_ranges, split_features
from studies.output import require_file, say, writing
from studies.own_data.divided_rows import divide_rows
from studies.own_data.partition_output import ALLOWED_FAILURE, Mechanism, Release
from studies.own_data.private_table import parse_markers
from studies.own_data.spending import Account

INTERCEPT = "intercept"
"""Name of the coefficient of the intercept."""

PRIORS = ("zellner", "flat", "conjugate", "semi-conjugate")
"""Names of priors, optionally followed by Zellner's g or the variance of each coefficient."""

_PRIOR_VARIANCE = 1000.0
_AT_ONCE = 1_000  # number of partitions per batch of posteriors, whose largest number of quadrature points all have
_SUBSTITUTE = (0.0, 1.0)  # public mean and standard deviation of partitions without a posterior


@dataclass(frozen=True)
class Request:
    """Specification of a release from a table, of probabilities at cutoffs or of quantiles."""

    target: str  # column y
    coefficient: str  # feature, or `INTERCEPT`
    n_partitions: int
    epsilon: float  # loss of one value in nats; losses add up; ``quantile-centred`` releases its scale only once
    cutoffs: tuple[float, ...] = ()  # the b of Pr[β ≤ b]
    probabilities: tuple[float, ...] = ()  # of quantiles of β
    method: str | None = None  # by default ``normality-corrected`` or ``quantile-centred``
    features: tuple[str, ...] | None = None  # columns x; by default all except y
    intercept: bool = True
    # a name from `PRIORS`, optionally with a number: Zellner's g, by default n, or a variance, by default 1000.
    # Conjugate and semi-conjugate priors have σ² ~ IG(1, 1).
    prior: str = "zellner"
    error_variance: float | None = None  # σ², if known
    split: tuple[float, ...] = ()  # parts of ε, one per step of a quantile; by default half of ε is for the mean
    # μ of the search for the bounds of a quantile; by default the ratio of the widths of `ranges`, or 1
    start: float | None = None
    share: float | None = None  # θ of the search, by default 0.8; not used by ``quantile-centred``
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)  # public, of target and coefficient's column
    allowed_failure: float = ALLOWED_FAILURE  # largest `Release.failure`
    markers: tuple[Literal, ...] = ()  # cells that are missing, in addition to empty ones

    def mechanism(self) -> Mechanism:
        """Return the mechanism after validating its arguments; no table is needed."""
        if bool(self.cutoffs) == bool(self.probabilities):
            got = "both" if self.cutoffs else "neither"
            raise BadInputError(f"either --cutoffs or --probabilities must be given, got {got}; give exactly one")
        if not 0 <= self.allowed_failure <= 1:
            raise BadInputError(
                f"allow-failure must be a probability in [0, 1], got {self.allowed_failure:g}; e.g. 0.01"
            )
        with as_bad_input():
            self._validate_model()
        methods = PROBABILITY_METHODS if self.cutoffs else QUANTILE_METHODS
        name = self.method or ("normality-corrected" if self.cutoffs else "quantile-centred")
        if name not in methods:
            kind = "cutoffs" if self.cutoffs else "probabilities"
            raise BadInputError(unknown(f"method for {kind}", name, methods))
        with as_bad_input():
            if self.cutoffs:
                parts, columns = ":".join(map(str, self.split)), ", ".join(self.ranges)
                omitted = {"split": parts, "mu": self.start, "theta": self.share, "range": columns}
                for option, text in omitted.items():
                    if text not in (None, ""):
                        raise BadInputError(f"{option} must be omitted with cutoffs, got {text}; use it for quantiles")
                if not all(math.isfinite(cutoff) for cutoff in self.cutoffs):
                    raise BadInputError(f"cutoffs must be finite, got {', '.join(map(str, self.cutoffs))}")
                return partition_probability(name, self.n_partitions, self.epsilon)
            validate_probabilities(self.probabilities)
            shares = (0.5, 0.5) if not QUANTILE_METHODS[name].is_centred else (0.2, 0.3, 0.5)
            split = self.split or tuple(part * self.epsilon for part in shares)
            if self.share is not None and QUANTILE_METHODS[name].is_centred:
                raise BadInputError(f"theta must be omitted with {name}, got {self.share}; use it with quantile")
            share = 0.8 if self.share is None else self.share
            mechanism = partition_quantile(name, self.n_partitions, self.epsilon, split, self._start(), share)
            failure = mechanism.miss_probability(len(self.probabilities))
        if failure > self.allowed_failure:
            raise BadInputError(
                f"probability of a misplaced clipping interval must be at most {self.allowed_failure:g}, got about "
                f"{failure:.2g} for {mechanism.name} with {self.n_partitions:,} partitions and epsilon = "
                f"{self.epsilon:g}; increase --partitions or --epsilon, or pass --allow-failure {failure:.2g}"
            )
        return mechanism

    def guarantee(self) -> Guarantee | None:
        """Return the joint guarantee of all values; None if not private."""
        mechanism, n = self.mechanism(), len(self.cutoffs or self.probabilities)
        return joint_guarantee(mechanism, n) if mechanism.method.is_private else None

    def describe_noise(self) -> str:
        """Return the size of the noise, which follows from public parameters, as text."""
        mechanism, M = self.mechanism(), self.n_partitions
        if not mechanism.method.has_noise:
            return "none"
        if isinstance(mechanism, PartitionProbability):
            middle = 0.5 if mechanism.method.is_mean else float(special.chdtri(2.0 * M, 0.5))
            reach = mechanism.noise_scale * math.log(20.0)  # exceeded by Laplace noise with probability 1/20
            low, high = sorted(mechanism.postprocess([middle - reach, middle + reach]).tolist())
            return f"moves a probability of 0.5 to {low:.2g} ... {high:.2g} in 95 % of releases"
        if mechanism.method.is_centred:
            std = math.sqrt(2.0) * mechanism.noise_scale(SCALE_WINDOW * math.sqrt(M))
            return f"about {std:.2g} posterior standard deviations per quantile"
        std = math.sqrt(2.0) * mechanism.noise_scale(1.0)
        return (
            f"a standard deviation of {std:.2g} half-widths of the interval of a quantile, the smallest of "
            f"{mechanism.search.start:g} times 1, 2, 4, ... in which the search finds enough values"
        )

    def _validate_model(self) -> None:
        """Raise an error unless prior and error variance are valid, for any number of rows and coefficients."""
        prior = find_prior(self.prior, 1)
        if self.error_variance is not None:
            variance = validate_positive("error_variance", self.error_variance, "omit it if it is unknown")
            ratio = variance * np.asarray(prior.precision).item() if isinstance(prior, SemiConjugatePrior) else 1.0
            if not (math.isfinite(ratio) and ratio > 0):
                raise ValueError(
                    f"error_variance divided by the variance of the prior must be finite and > 0, got {ratio:g}; "
                    "change one of them"
                )

    def _start(self) -> float:
        """Return μ, which determines the first interval of the search for the bounds of a quantile."""
        if not self.ranges:
            return 1.0 if self.start is None else self.start
        if self.start is not None:
            raise BadInputError("mu must be omitted with ranges, got both; omit --mu or --range")
        columns = {self.target} | ({self.coefficient} - {INTERCEPT})
        if set(self.ranges) != columns:
            raise BadInputError(
                f"ranges must be given for {' and '.join(sorted(columns))}, got {', '.join(self.ranges)}; give one "
                "--range for each"
            )
        for column, (low, high) in self.ranges.items():
            if not (math.isfinite(high - low) and low < high):
                raise BadInputError(f"range of {column} must be finite numbers LOW < HIGH, got {low:g} and {high:g}")
        widths = {column: high - low for column, (low, high) in self.ranges.items()}
        return widths[self.target] / widths.get(self.coefficient, 1.0)


@dataclass(frozen=True)
class PartitionOptions:
    """Options of the command ``partition``, by the names of its arguments; see its help."""

    table: str
    target: str
    coefficient: str
    partitions: int
    epsilon: float
    cutoffs: str
    probabilities: str
    method: str | None
    no_intercept: bool
    prior: str
    error_variance: float | None
    split: str
    mu: float | None
    ranges: list[str] | None
    allow_failure: float
    theta: float | None
    output: Path | None
    features: str | None
    na: list[str] | None
    cluster: str | None
    ledger: str | None
    budget: str | None
    yes: bool
    rehearsal: int | None
    json: bool

    def parse(self) -> Request:
        """Return the request, before its mechanism is checked."""
        return Request(
            target=self.target,
            coefficient=self.coefficient,
            n_partitions=self.partitions,
            epsilon=self.epsilon,
            cutoffs=parse_numbers("cutoffs", self.cutoffs),
            probabilities=parse_numbers("probabilities", self.probabilities),
            method=self.method,
            features=split_features(self.features),
            intercept=not self.no_intercept,
            prior=self.prior,
            error_variance=self.error_variance,
            split=parse_numbers("split", self.split, "vector") if self.split else (),
            start=self.mu,
            share=self.theta,
            ranges=parse_ranges(self.ranges),
            allowed_failure=self.allow_failure,
            markers=parse_markers(self.na),
        )


def answer_partition(options: PartitionOptions) -> None:
    """Release and print posterior probabilities or quantiles of a coefficient."""
    require_file("output", options.output, ".csv", ".json", kept=(options.table, options.ledger))
    account = Account.open(options.ledger, options.budget, options.yes, options.rehearsal)
    request = options.parse()
    guarantee, noise = request.guarantee(), request.describe_noise()
    name = f"partition of {options.table}, coefficient {options.coefficient} of {options.target}"

    def confirm() -> None:
        assert guarantee is not None  # methods without a guarantee are refused
        account.confirm(name, guarantee, f"noise: {noise}\n")

    if guarantee is not None:
        account.check(guarantee)
    release = release_table(
        options.table,
        request,
        account.seed,
        load_profile(options.cluster),
        ledger=account.labelled(name),
        confirm=confirm,
    )
    release.show(options.coefficient, noise, options.json, account.describe_rest())
    if options.output is not None:
        with writing(options.output, f"the values above are {'rehearsed' if release.rehearsal else 'released'}"):
            release.write(options.output)
        say(f"values: {options.output}")


def release_table(
    path: str,
    request: Request,
    seed: int | None = None,
    cluster: ClusterChoice = None,
    *,
    ledger: LedgerFile | None = None,
    confirm: Callable[[], object] = lambda: None,
) -> Release:
    """Release posterior probabilities or quantiles of one coefficient of a regression on a table.

    `seed` is that of the partition and of the noise, which use separate streams, for a rehearsal without privacy. By
    default the partition is random, and the noise is drawn exactly with fresh entropy of the operating system. The
    cluster is as in `pipeline.run`. `confirm` is called before a release is
    entered in the ledger; an exception that it raises prevents the release.

    Privacy
    -------
    The guarantee of the method holds for each value, under replacement of one row, with public n, columns and
    partition; losses add up. Partitions without a posterior, as with collinear columns or an exact fit, have a public
    normal distribution instead. The guarantee holds over all tables of numbers, none of which is rejected because of
    its values; numbers beyond 1e140 in size count as 1e140 with their sign. Tables with missing or infinite values are
    rejected: impute them or drop their rows.
    """
    mechanism = request.mechanism()
    if seed is None:
        if not mechanism.method.is_private:
            raise BadInputError(
                f"method must be private to release real data, got {mechanism.name}; rehearse it with --seed"
            )
        with as_bad_input():
            require_opendp()
            validate_draws(mechanism)
    table = open_table(path, request.target, request.features, markers=request.markers)
    n_rows = table.rows.shape[0]
    names = ((INTERCEPT,) if request.intercept else ()) + table.columns[:-1]
    if request.coefficient not in names:
        raise BadInputError(f"{path}: {unknown_name(table.source, 'coefficient', request.coefficient, names)}")
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
    is_powered = isinstance(mechanism, PartitionQuantile)
    with as_bad_input(path):
        partition = keyed_partition(division, n_rows, request.n_partitions)
        statistics = divide_rows([table.rows], partition, request.intercept, cluster, table.columns)
        k = names.index(request.coefficient)
        posteriors = _posteriors(statistics, k, prior, request.error_variance, is_powered)
        values = _release(mechanism, request, posteriors, noise, ledger, confirm)
    if seed is not None:
        values = values.drop(columns="epsilon")
    guarantee = request.guarantee()
    return Release(values, mechanism, n_rows, guarantee, request.allowed_failure, rehearsal=seed is not None)


def find_prior(text: str, n_rows: int) -> Prior:
    """Return the prior with the name and optional number of `Request.prior`; Zellner's g is `n_rows` by default."""
    name, colon, number = text.partition(":")
    if name not in PRIORS:
        raise BadInputError(unknown("prior", name, PRIORS))
    try:
        value = float(number) if colon else None
        if name == "zellner":
            return ZellnerPrior(float(n_rows) if value is None else value)
        if name == "flat":
            if value is not None:
                raise ValueError("flat takes no number")
            return FlatPrior()
        variance = _PRIOR_VARIANCE if value is None else value
        if not (math.isfinite(variance) and variance > 0):
            raise ValueError("a variance must be finite and > 0")
        return (ConjugatePrior if name == "conjugate" else SemiConjugatePrior)(precision=1.0 / variance)
    except ValueError as error:
        raise BadInputError(
            f"prior must be a name with an optional number, such as zellner:1000, flat or conjugate:100, got {text}: "
            f"{error}"
        ) from error


def _generators(seed: int | None, request: Request) -> tuple[np.random.Generator, np.random.Generator | None]:
    """Return generators for the partition, which depends only on `seed` and M, and for the noise of a rehearsal."""
    if seed is None:
        return np.random.default_rng(), None
    later = ("ranges", "allowed_failure", "markers")  # these options do not affect the noise of a rehearsal
    asked = {key: json.dumps(value) for key, value in asdict(request).items() if key not in later}
    streams = (
        Streams(seed, "partition", "table", "division", {"n_partitions": request.n_partitions}, range(1)),
        Streams(seed, "partition", "table", "noise", asked, range(1)),
    )
    first, second = (next(stream.generators()) for stream in streams)
    return first, second


def _posteriors(
    statistics: RegressionStatistics, k: int, prior: Prior, error_variance: float | None, is_powered: bool
) -> Iterator[CoefficientPosterior]:
    """Yield the posteriors of batches of partitions; if `is_powered`, likelihoods have the power n/nⱼ."""
    n_rows = statistics.n_rows
    power = n_rows.sum() / n_rows if is_powered else np.ones(n_rows.shape)
    for start in range(0, n_rows.size, _AT_ONCE):
        batch = slice(start, start + _AT_ONCE)
        yield coefficient_posterior(statistics[batch], k, prior, error_variance, power[batch], _SUBSTITUTE)


def _release(
    mechanism: Mechanism,
    request: Request,
    posteriors: Iterable[CoefficientPosterior],
    rng: np.random.Generator | None,
    ledger: LedgerFile | None,
    confirm: Callable[[], object],
) -> pd.DataFrame:
    """Release the values; if `rng` is None, after a confirmation, with an entry in the ledger and by exact draws."""
    p = request.probabilities
    if isinstance(mechanism, PartitionProbability):
        below = np.concatenate([posterior.cdf(request.cutoffs) for posterior in posteriors])
        if rng is None:
            confirm()
            released = publish_probabilities(mechanism, below, ledger=ledger)
        else:
            released = mechanism.release(rng, below)
        return pd.DataFrame({"cutoff": request.cutoffs, "probability": released, "epsilon": mechanism.loss})
    quantiles, spreads = zip(*((posterior.quantile(p), posterior.std()) for posterior in posteriors), strict=True)
    arrays = np.concatenate(quantiles), np.concatenate(spreads)
    if rng is None:
        confirm()
        drawn = publish_quantiles(mechanism, *arrays, ledger=ledger)
    else:
        drawn = mechanism.release(rng, *arrays)
    ascending = np.empty(len(p))
    ascending[np.argsort(p, kind="stable")] = np.sort(drawn.values)
    scales = [mechanism.noise_scale(width) * mechanism.method.has_noise for width in drawn.half_widths]
    return pd.DataFrame(
        {
            "p": p,
            "quantile": ascending,
            "noise": [math.sqrt(2.0) * scale for scale in scales],
            "clipped_from": drawn.centres - drawn.half_widths,
            "clipped_to": drawn.centres + drawn.half_widths,
            "capped": drawn.capped,
            "epsilon": mechanism.loss,
        }
    )
