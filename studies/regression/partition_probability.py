"""Private posterior probabilities from partitions of the rows (P2, Figures 3.1 to 3.4), as published and corrected.

Data sets of 100,000 rows, y = 1 + 2x + N(0, 1), are divided into 1,000 partitions of 100 rows. Each method returns the
posterior probability that the slope is below each cutoff. Panel `default` uses Zellner's prior with g = n in every
partition. In `zellner-partition`, g is the number of rows of the partition, as in P2; this shrinks every slope by
1/101, or six posterior standard deviations. In `abalone`, real rows are divided at random. Panel `audit` contains the
exact privacy loss of each kind of noise when the worst-case row is replaced.

Assumptions not stated in the paper: x ~ N(0, 1), the error variance is known, and the cutoffs are −3 to 3 posterior
standard deviations from the true slope. Each cutoff is a separate release with privacy loss ε.

    dpstudies run partition-probability --panel default --set epsilon=1 --set partition_size=50,100 --store s.zarr
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mechanisms.audit.partitions import adversarial_posteriors, probability_distributions
from mechanisms.core.exact_losses import audit_distributions
from mechanisms.regression.partition_prior import ZellnerPrior
from mechanisms.regression.partition_probability import PROBABILITY_METHODS, ProbabilityMethod, partition_probability
from pipeline import Factor, Figure, Measure, Panel, Scale, Statistic, Streams, Study
from studies.figures import Chart
from studies.panels import Values, method_of
from studies.regression.page_tables import audited_probabilities, compare_probabilities
from studies.regression.partition_figures import ERRORS, spreads
from studies.regression.partition_probability_claims import CLAIMS
from studies.regression.partition_trials import (
    SLOPE,
    Array,
    PartitionTrials,
    check_rows,
    full_method,
    row_factors,
    simulate_probabilities,
)


def _evaluate(entry: ProbabilityMethod, trials: PartitionTrials, setting: Values, streams: Streams) -> dict[str, Any]:
    method = partition_probability(entry, trials.parts.shape[1], setting["epsilon"], setting["least_probability"])
    generators = streams.generators() if entry.has_noise else [None] * len(trials.parts)
    probabilities = np.stack([method.release(rng, parts) for rng, parts in zip(generators, trials.parts, strict=True)])
    return {
        "probability": probabilities,
        "difference": probabilities - trials.full,
        "spent": len(setting["cutoff"]) * method.loss,
    }


def _validate(cell: Values, setting: Values) -> bool:
    n_partitions, name = check_rows(cell).size, setting["algorithm"]
    if name in PROBABILITY_METHODS:
        partition_probability(name, n_partitions, setting["epsilon"], setting["least_probability"])
    return True


def _rmse(differences: Array) -> float:
    return float(np.sqrt(np.mean(differences**2)))


def _rmse_mcse(differences: Array) -> float:
    """Return the delta-method standard error of the root mean square, or 0 if all differences are 0."""
    root = _rmse(differences)
    return float(np.std(differences**2) / (2.0 * root * np.sqrt(differences.size))) if root > 0 else 0.0


_ROWS = row_factors(1.0, "known")
_EPSILON = Factor("epsilon", (0.25,), "privacy loss of each cutoff", unit="nat")
_SIZE = Factor("partition_size", (100,), "minimum number of rows per partition")
_LEAST = Factor("least_probability", (0.001,), "p*, the lower limit of probabilities in the fisher methods")
_DEFAULT = Panel(
    name="default",
    meaning="simulated rows, Zellner's g = n in every partition (P2, Figures 3.1 to 3.4)",
    simulate=partial(simulate_probabilities, "n"),
    methods=(full_method("probability"), *(method_of(entry, _evaluate) for entry in PROBABILITY_METHODS.values())),
    measures=(
        Measure("probability", "posterior probability that the slope is below the cutoff", dims=("cutoff",)),
        Measure("difference", "probability minus that given all rows", dims=("cutoff",)),
        Measure("spent", "total privacy loss of the releases at all cutoffs", "nat", per_trial=False),
    ),
    outputs=(Factor("cutoff", (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0), "cutoff", unit="posterior sd"),),
    constants=(*_ROWS, _SIZE, _EPSILON, _LEAST),
    trials=10_000,  # with 1,000 trials the standard error, .002, is too large to detect a bias of .006
    block_trials=100,
    statistics=(
        Statistic("rmse", "difference", "root mean squared difference from the probability given all rows", _rmse),
        Statistic(
            "rmse_mcse", "difference", "Monte Carlo standard error of the root mean squared difference", _rmse_mcse
        ),
    ),
    validate=_validate,
)


def _replace_row(cell: Values, streams: Streams) -> Array:
    """Return the probabilities, shape (2, M), of two data sets that differ in the row with the largest effect."""
    (rng,) = streams.generators()
    sizes, coefficients = check_rows(cell), np.array(cell["coefficients"])
    x = rng.standard_normal((sizes.sum(), coefficients.size - 1))
    y = coefficients[0] + x @ coefficients[1:] + cell["error_std"] * rng.standard_normal(len(x))
    labels = np.repeat(np.arange(sizes.size), sizes)
    pair = adversarial_posteriors(x, y, labels, SLOPE, ZellnerPrior(float(cell["n"])), cell["error_std"] ** 2)
    return pair.cdf(coefficients[SLOPE])


def _audit(entry: ProbabilityMethod, pair: Array, setting: Values, streams: Streams) -> dict[str, Any]:
    method = partition_probability(entry, pair.shape[1], setting["epsilon"], setting["least_probability"])
    return {"exact_epsilon": audit_distributions(probability_distributions(method, pair, [[0, 1]])).epsilon}


_PANELS = (
    _DEFAULT,
    replace(
        _DEFAULT,
        name="zellner-partition",
        meaning="simulated rows, Zellner's g = rows per partition, as in P2",
        simulate=partial(simulate_probabilities, "partition_size"),
        trials=1_000,
    ),
    replace(
        _DEFAULT,
        name="abalone",
        meaning="rings of 4,177 abalone on shell and shucked weight, divided at random in each trial",
        constants=(_SIZE, replace(_EPSILON, values=(1.0,)), _LEAST),
        trials=1_000,
    ),
    Panel(
        name="audit",
        meaning="exact privacy loss at the true slope when one row is replaced by the worst case",
        simulate=_replace_row,
        methods=tuple(method_of(entry, _audit) for entry in PROBABILITY_METHODS.values() if entry.has_noise),
        measures=(Measure("exact_epsilon", "exact privacy loss of one cutoff", "nat"),),
        constants=(*_ROWS, _SIZE, replace(_EPSILON, meaning="stated privacy loss of each cutoff"), _LEAST),
        validate=_validate,
    ),
)


_SPREADS = ("full", "normality-noiseless", "normality", "full", "fisher-noiseless", "fisher")
_DIFFERENCES = tuple(
    name + noise
    for name in ("normality", "normality-corrected", "fisher", "fisher-corrected")
    for noise in ("-noiseless", "")
)


def _spreads(panel: str) -> Chart:
    return spreads(panel, "cutoff", "probability", _SPREADS, "posterior probability", 3, lambda rows: (-0.03, 1.03))


_BOXES = (
    "Median, quartiles (box) and 5 and 95 % quantiles (line) over data sets, at cutoffs in posterior standard "
    "deviations from the true slope"
)

FIGURES = (
    Figure(
        "probabilities",
        "Posterior probabilities (P2, Figures 3.1 and 3.3)",
        f"{_BOXES}. Columns: given all rows, from partitions without noise, and released with noise.",
        ("default",),
        _spreads("default"),
    ),
    Figure(
        "probability-differences",
        "Differences from the posterior given all rows (P2, Figures 3.2 and 3.4)",
        f"{_BOXES}, of the probability minus that given all rows. Left: without noise; right: with noise. Each method "
        "is above its correction.",
        ("default",),
        spreads("default", "cutoff", "difference", _DIFFERENCES, "probability minus that given all rows"),
        claims=(
            "normality-over-then-under",
            "corrected-does-not",
            "slopes-of-scores",
            "largest-near-the-truth",
            "fisher-has-no-pattern",
        ),
    ),
    Figure(
        "probability-errors",
        "Bias and root mean squared error",
        "Mean (with ± 2 Monte Carlo standard errors) and root mean square of the difference from the probability given "
        "all rows, against the cutoff. Left: without noise; right: with noise. Without noise the corrected normality "
        "method has the smallest errors; with noise it has the smallest bias of the private methods.",
        ("default",),
        ERRORS,
    ),
    Figure(
        "zellner-partition",
        "Zellner's prior with g = rows per partition",
        f"{_BOXES}. The slope of every partition is shrunk by 1/101, six standard deviations of the posterior given "
        "all rows, so all methods give a probability near 1 that the slope is below the true slope.",
        ("zellner-partition",),
        _spreads("zellner-partition"),
    ),
    Figure(
        "abalone-probabilities",
        "Rings of abalone on shell weight, 41 partitions",
        "Median, quartiles (box) and 5 and 95 % quantiles (line) over random divisions of the same 4,177 rows, at "
        "cutoffs in posterior standard deviations from the posterior mean given all rows. The rings are not linear in "
        "the weights: slopes of partitions are on average larger than the slope given all rows, and their standard "
        "deviation is 1.5 times that of their posteriors. The -2 log p method does not model this dispersion.",
        ("abalone",),
        _spreads("abalone"),
    ),
)

STUDY = Study(
    name="partition-probability",
    papers=("P2",),
    title="Private posterior probabilities of a regression slope, from partitions",
    aim="Compare probabilities from partitions, with and without noise, with those given all rows.",
    panels=_PANELS,
    seed=20_180_513,
    claims=CLAIMS,
    figures=FIGURES,
    quick=Scale(trials=500),
    comparisons=(compare_probabilities,),
    audits=(audited_probabilities,),
)
