"""Hellinger distance between the true posterior and private releases of it (P0, Figures 2 and 3a).

Each mechanism is sampled at balanced data, for a range of numbers of records (panels `k2`, `k3`, `k4`, `k10`) and of
priors (`prior`), and at real data, the sexes of 4,177 abalones (`abalone`). The papers consider balanced data only;
`skewed` and `skewed-k4` have unequal shares in several orders of the categories. Each trial of `random` draws shares
from a symmetric Dirichlet distribution, and counts from a multinomial distribution. The papers' mechanisms are compared
with mechanisms calibrated by an exact audit or a sharper bound, and with noise on the counts. Verdicts rest on the
exact mean distance where it can be computed; the store contains it next to the draws. For mechanisms calibrated by an
audit, the store also contains the multiplier and the audited loss.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from mechanisms import MECHANISMS, CountRelease, Mechanism, balanced_counts, hellinger
from mechanisms.core.hellinger import release_distances
from mechanisms.counts.mechanism import validate
from pipeline import Criteria, Factor, Figure, Measure, Method, Panel, Scale, Streams, Study
from studies.claims import entries
from studies.counts.added_mechanisms import audit_added, rank_added
from studies.counts.hellinger_accuracy_claims import CLAIMS, ERRATA, SKEWED, mean_distance, private_rivals
from studies.counts.page_tables import compare_accuracy
from studies.counts.problems import DELTA, EPSILON, balanced, flat_prior, require_prior
from studies.figures import Axis, Chart, quantiles, ratios
from studies.panels import Values, method_of, require
from studies.styles import MECHANISM_STYLES

_COUNTS = (1528.0, 1307.0, 1342.0)  # males, females and infants of Abalone; see studies/data/LICENCES.md
_PRIORS = (1, 5, 10, 15, 20, 40, 60, 80, *range(100, 401, 50))
_MEASURES = (
    Measure("hellinger", "Hellinger distance between the true and the released posterior"),
    Measure("expected_hellinger", "exact mean of the Hellinger distance, if computable", per_trial=False),
    Measure("multiplier", "multiplier of the exponent, if calibrated", per_trial=False),
    Measure("gamma", "rate of the smooth sensitivity per record, if calibrated", per_trial=False),
    Measure("audited_epsilon", "exact privacy loss of the calibrated mechanism", "nat", per_trial=False),
)


def _problem(cell: Values) -> tuple[Any, Any]:
    """Return the parameters of the prior and the true counts for a design cell."""
    prior, n = cell["prior"], cell.get("n")
    if n is not None:
        require(n >= 1, "n must be >= 1", n)
        k = cell.get("k", len(prior))
        return prior, (counts_of_shares(cell["shares"], n) if "shares" in cell else balanced_counts(n, k))
    counts = cell["counts"]
    return (prior if isinstance(prior, tuple) else np.full(len(counts), prior)), counts


def _validate(cell: Values, setting: Values) -> bool:
    """Validate prior, counts and setting."""
    (prior, counts), concentration = _problem(cell), cell.get("concentration", 1.0)
    require(concentration > 0, "concentration must be > 0", concentration)
    require_prior(prior, len(counts))
    validate(prior, counts, setting["epsilon"], setting["delta"])
    return True


def _supports(mechanism: Mechanism, cell: Values, setting: Values) -> bool:
    """Return True if the mechanism supports this number of records."""
    _, counts = _problem(cell)
    return mechanism.supports(int(sum(counts)), len(counts))


def _method(evaluate: Callable[..., dict[str, Any]], mechanism: Mechanism) -> Method:
    return method_of(mechanism, evaluate, supports=partial(_supports, mechanism))


def _added(evaluate: Callable[..., dict[str, Any]], mechanism: Mechanism) -> Method:
    """Return the method of a user's mechanism, which a run audits at the values of ε, δ and the prior of the panel."""
    return replace(_method(evaluate, mechanism), audit=partial(audit_added, mechanism, _problem))


def counts_of_shares(shares: tuple[float, ...], n: int) -> NDArray[np.int64]:
    """Return the counts of `n` records in categories with the given shares, rounded by the largest-remainder method."""
    expected = n * np.array(shares, dtype=np.float64)
    is_distribution = np.all(expected >= 0) and abs(sum(shares) - 1.0) <= 1e-9
    require(is_distribution, "shares must be >= 0 with sum 1", ":".join(f"{share:g}" for share in shares))
    counts = np.floor(expected + 1e-9).astype(np.int64)
    largest = np.argsort(counts - expected, kind="stable")[: n - int(counts.sum())]
    counts[largest] += 1
    return counts


def exact_mean(distribution: CountRelease) -> float:
    """Return the exact mean distance, or NaN if there are too many count vectors or noise vectors to enumerate."""
    try:
        return distribution.expected_hellinger()
    except ValueError:
        return np.nan


def _release(mechanism: Mechanism, data: tuple[Any, Any], setting: Values, streams: Streams) -> dict[str, Any]:
    distribution = mechanism.build(*data, setting["epsilon"], setting["delta"])
    released = distribution.from_uniforms(streams.uniforms(distribution.n_uniforms))
    multiplier = gamma = loss = np.nan
    if mechanism.calibrate is not None:
        calibration = mechanism.calibrate(distribution.prior, distribution.n, setting["epsilon"])
        multiplier, gamma, loss = calibration.rate, calibration.gamma, calibration.loss
    return {
        "hellinger": release_distances(distribution.prior, distribution.counts, released),
        "expected_hellinger": exact_mean(distribution),
        "multiplier": multiplier,
        "gamma": gamma,
        "audited_epsilon": loss,
    }


_PUBLISHED = ("smooth", "smooth-n", "varying", "global", "local", "laplace", "laplace-dimension")
_ALL = sorted(
    (name for name, mechanism in MECHANISMS.items() if mechanism.evaluation != "program"),
    key=lambda name: name not in _PUBLISHED,
)
"""All mechanisms that support these sizes, first those of the papers and their baselines."""


def _panel(name: str, meaning: str, k: int, factors: Any, constants: Any) -> Panel:
    return Panel(
        name=name,
        meaning=meaning,
        simulate=lambda cell, streams: _problem(cell),  # only the releases are random
        methods=tuple(_method(_release, MECHANISMS[name]) for name in _ALL if k >= MECHANISMS[name].min_categories),
        accepts={"counts": partial(_added, _release)},
        measures=_MEASURES,
        factors=factors,
        constants=constants,
        method_dim="mechanism",
        trials=10_000,
        block_trials=10_000,  # a cell is one block, because the setup takes longer than the draws
        validate=_validate,
        version=2,  # sums have a fixed order
    )


def _against_n(k: int, sizes: tuple[int, ...], figure: str = "") -> Panel:
    meaning = f"accuracy against the number of records, {k} categories, balanced data{figure}"
    return _panel(f"k{k}", meaning, k, **balanced(k, sizes))


def _skewed(name: str, shares: list[tuple[float, ...]]) -> Panel:
    k = len(shares[0])
    factors = (
        Factor("shares", tuple(shares), "shares of the categories", "vector"),
        Factor("n", (100, 300, 1000), "number of records", "int"),
    )
    meaning = f"accuracy at unequal shares of {k} categories, in several orders"
    return _panel(name, meaning, k, factors, (EPSILON, DELTA, flat_prior(k)))


def _draw_data(cell: Values, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
    """Return counts of consecutive trials, with the exact mean distance under K-norm noise for each of them."""
    concentration = np.full(len(cell["prior"]), cell["concentration"])
    counts = [rng.multinomial(cell["n"], rng.dirichlet(concentration)) for rng in streams.generators()]
    k_norm = [exact_mean(MECHANISMS["k-norm"].build(cell["prior"], c, cell["epsilon"])) for c in counts]
    return np.array(counts), np.array(k_norm)


def _release_each(
    mechanism: Mechanism, data: tuple[np.ndarray, np.ndarray], setting: Values, streams: Streams
) -> dict[str, Any]:
    (counts, k_norm), prior = data, np.array(setting["prior"])
    distributions = [mechanism.build(setting["prior"], c, setting["epsilon"], setting["delta"]) for c in counts]
    uniforms = streams.uniforms(distributions[0].n_uniforms)
    released = np.concatenate(
        [distribution.from_uniforms(row[None]) for distribution, row in zip(distributions, uniforms, strict=True)]
    )
    expected = np.array([exact_mean(distribution) for distribution in distributions])
    return {
        "hellinger": hellinger(prior + counts, prior + released),
        "expected_at_data": expected,
        "ratio_to_k_norm": expected / k_norm,
    }


_RANDOM = Panel(
    name="random",
    meaning="accuracy at counts drawn from Dirichlet-multinomial distributions, 3 categories",
    simulate=_draw_data,
    # laplace-projected is omitted, because its exact means take a minute
    methods=tuple(_method(_release_each, MECHANISMS[name]) for name in _ALL if name != "laplace-projected"),
    accepts={"counts": partial(_added, _release_each)},
    measures=(
        Measure("hellinger", "Hellinger distance between the true and the released posterior"),
        Measure("expected_at_data", "exact mean of that distance at the data set, if computable"),
        Measure("ratio_to_k_norm", "ratio of that mean to the mean of k-norm at the same data set"),
    ),
    factors=(
        Factor("concentration", (0.3, 1.0, 5.0), "parameter of the symmetric Dirichlet distribution of the shares"),
        Factor("n", (100,), "number of records", "int"),
    ),
    constants=(EPSILON, DELTA, flat_prior(3)),
    method_dim="mechanism",
    trials=100,
    block_trials=25,
    validate=_validate,
    version=2,  # sums have a fixed order
)

_SKEWED = [*dict.fromkeys(permutations((0.98, 0.01, 0.01))), *permutations((0.8, 0.15, 0.05))]
_SKEWED_K4 = [
    shares[i:] + shares[:i] for shares in ((0.97, 0.01, 0.01, 0.01), (0.6, 0.2, 0.15, 0.05)) for i in range(4)
]
_PANELS = (
    _against_n(2, tuple(range(100, 501, 100)), " (P0, Figure 2a)"),
    _against_n(3, tuple(range(100, 501, 100)), " (P0, Figure 2b)"),
    _against_n(4, tuple(range(100, 601, 100)), " (P0, Figure 2c)"),
    _panel(
        "prior", "accuracy against the prior Beta(a, a), 100 records (P0, Figure 3a)", 2,
        (Factor("prior", _PRIORS, "parameter a of the prior Beta(a, a)", "float"),),
        (EPSILON, DELTA, Factor("counts", ((50.0, 50.0),), "true counts", "vector"))),
    _panel(
        "abalone", "accuracy on real data: sex of 4,177 abalones (male, female, infant)", 3, (),
        (EPSILON, DELTA, Factor("counts", (_COUNTS,), "true counts: male, female, infant", "vector"), flat_prior(3))),
    _against_n(10, (100, 200, 500, 1000)),
    _skewed("skewed", _SKEWED),
    _skewed("skewed-k4", _SKEWED_K4),
    _RANDOM,
)  # fmt: skip


def _with_mean(ds: xr.Dataset) -> xr.Dataset:
    """Return a summary with the exact mean, or that of the draws where it is not computable."""
    return ds.assign(mean=mean_distance(ds)[0])


def accuracy(panel: str) -> Chart:
    """Describe the mean distance against n: markers are means of draws, lines connect exact means if computable."""
    return Chart(
        panel, "n", {"y": "hellinger_mean", "exact": "mean"}, "mechanism", MECHANISM_STYLES, prepare=_with_mean,
        y=Axis("mean Hellinger distance", log=True), marks=("exact", "errors", "points"), height=300,
        best="lowest", first=("k-norm", "laplace", "smooth", "smooth-exact", "laplace-dimension", "varying-exact"),
        with_constants=True)  # fmt: skip


def _skewed_ratios(summaries: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Return the mean distances divided by that of k-norm, for each panel and decreasing shares."""
    parts = {}
    for ds in (summaries[panel] for panel in SKEWED if panel in summaries):
        mean = mean_distance(ds)[0]
        ratio = private_rivals(mean / mean.sel(mechanism="k-norm", drop=True))
        for shares in ds["shares"].values.tolist():
            if tuple(sorted(entries(shares))[::-1]) != entries(shares):
                continue
            ratio_at_shares = ratio.sel(shares=shares).dropna("mechanism", how="all")
            parts[f"shares {shares}"] = ds.sel(shares=shares, mechanism=ratio_at_shares["mechanism"]).assign(
                ratio=ratio_at_shares
            )
    return parts


def _against_size(k: int, label: str = "") -> Figure:
    caption = (
        "Mean Hellinger distance between the true and the released posterior against the number of records, at "
        "balanced data. Markers show means of the draws; error bars show ± 2 Monte Carlo standard errors and are often "
        "smaller than the marker. Lines connect the exact expectations, or the means of draws where these cannot be "
        "computed."
    )
    title = f"Accuracy against n, {k} categories{label}"
    return Figure(f"accuracy-k{k}", title, caption, (f"k{k}",), accuracy(f"k{k}"))


_BANDS = Chart(
    "prior", "prior", quantiles("hellinger"), "mechanism", MECHANISM_STYLES, x=Axis(discrete=True),
    y=Axis("Hellinger distance", limits=(0.0, 1.0)), marks=("tails", "band", "line"), facet={"mechanism": "{}"},
    columns=3, height=120, named=False)  # fmt: skip
_BOXES = Chart(
    "abalone", "mechanism", {**quantiles("hellinger"), "y": "mean"}, "mechanism", MECHANISM_STYLES,
    x=Axis(discrete=True), y=Axis("Hellinger distance", log=True), marks=("whisker", "box", "points"),
    prepare=lambda ds: _with_mean(ds).dropna("mechanism", how="all", subset=["hellinger_mean"]), named=False,
    sideways=True, with_constants=True)  # fmt: skip
_FIGURES = (
    _against_size(2, " (P0, Figure 2a)"),
    _against_size(3, " (P0, Figure 2b)"),
    _against_size(4, " (P0, Figure 2c)"),
    Figure(
        "accuracy-prior",
        "Accuracy against the prior (P0, Figure 3a)",
        "Hellinger distance for 50 successes in 100 records under the prior Beta(a, a), for each mechanism. Lines are "
        "medians of the draws, dark bands span the quartiles, and light bands span the 5th to the 95th percentile.",
        ("prior",),
        _BANDS,
    ),
    Figure(
        "accuracy-abalone",
        "Accuracy on real data: the sexes of 4,177 abalones",
        "Hellinger distance between the true and the released posterior. Thick bars span the quartiles of the draws, "
        "thin bars the 5th to the 95th percentile; the marker is the exact mean.",
        ("abalone",),
        _BOXES,
    ),
    _against_size(10),
    Figure(
        "accuracy-skewed",
        "Accuracy at unequal shares, relative to K-norm noise",
        "Mean Hellinger distance of each private mechanism divided by that of k-norm against the number of records, at "
        "unequal shares with the largest category first. The line at 1 is k-norm.",
        SKEWED,
        ratios(_skewed_ratios, "mean distance / that of k-norm"),
    ),
)

STUDY = Study(
    name="hellinger-accuracy",
    papers=("P0", "P1"),
    title="Accuracy of private posterior releases in Hellinger distance",
    aim=(
        "Compare the Hellinger exponential mechanism, for several sensitivities, with noise on the counts, by the "
        "Hellinger distance between the true and the released posterior."
    ),
    panels=_PANELS,
    seed=20_180_801,
    claims=CLAIMS,
    errata=ERRATA,
    figures=_FIGURES,
    quick=Scale(
        trials=1_000,
        panels=("k2", "k3", "k4", "prior", "abalone", "k10", "skewed", "skewed-k4"),
        values={"n": {"k3": (100, 200, 300, 500), "k10": (100, 500), "skewed": (100,), "skewed-k4": (100,)}},
    ),
    criteria=Criteria(loss=("hellinger",), distance="expected_hellinger"),
    comparisons=(rank_added, compare_accuracy),
)
