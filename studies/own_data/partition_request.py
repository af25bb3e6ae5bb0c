"""Request of ``dpstudies partition``, with its public checks and the size of its noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from mechanisms.core.arguments import validate_positive
from mechanisms.core.privacy import Guarantee
from mechanisms.core.protocols import validate_probabilities
from mechanisms.regression.partition_prior import ConjugatePrior, FlatPrior, Prior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, PartitionProbability, partition_probability
from mechanisms.regression.partition_publish import joint_guarantee
from mechanisms.regression.partition_quantile import (
    QUANTILE_METHODS,
    SCALE_WINDOW,
    partition_quantile,
)
from pipeline.errors import BadInputError, as_bad_input, unknown
from pipeline.tables.cells import Literal
from studies.option_texts import parse_numbers, parse_ranges, split_features
from studies.own_data.option_groups import BudgetOptions, ColumnOptions, OutputOptions
from studies.own_data.partition_output import ALLOWED_FAILURE, Mechanism
from studies.own_data.private_table import parse_markers

INTERCEPT = "intercept"
"""Name of the coefficient of the intercept."""

PRIORS = ("zellner", "flat", "conjugate", "semi-conjugate")
"""Names of priors, optionally followed by Zellner's g or the variance of each coefficient."""

_PRIOR_VARIANCE = 1000.0


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

    def question(self, names: Sequence[str]) -> dict[str, Any]:
        """Return what a value is of, given the `names` of all coefficients, for JSON; all of it is public."""
        return {
            "target": self.target,
            "coefficient": self.coefficient,
            "features": list(names),
            "prior": self.prior,
            "error_variance": self.error_variance,
            "split": list(self.split) or None,
        }

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

    columns: ColumnOptions
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
    cluster: str | None
    budget: BudgetOptions
    output: OutputOptions

    def parse(self) -> Request:
        """Return the request, before its mechanism is checked."""
        assert self.columns.target is not None  # the command requires it
        return Request(
            target=self.columns.target,
            coefficient=self.coefficient,
            n_partitions=self.partitions,
            epsilon=self.epsilon,
            cutoffs=parse_numbers("cutoffs", self.cutoffs),
            probabilities=parse_numbers("probabilities", self.probabilities),
            method=self.method,
            features=split_features(self.columns.features),
            intercept=not self.no_intercept,
            prior=self.prior,
            error_variance=self.error_variance,
            split=parse_numbers("split", self.split, "vector") if self.split else (),
            start=self.mu,
            share=self.theta,
            ranges=parse_ranges(self.ranges),
            allowed_failure=self.allow_failure,
            markers=parse_markers(self.columns.na),
        )


def find_prior(text: str, n_rows: int) -> Prior:
    """Return the prior with the name and optional number of `Request.prior`; Zellner's g is `n_rows` by default."""
    name, colon, number = text.partition(":")
    if name not in PRIORS:
        raise BadInputError(unknown("prior", name, PRIORS))
    try:
        if "_" in number:  # Python accepts 2_0 as 20
            raise ValueError("a number has no underscores")
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
