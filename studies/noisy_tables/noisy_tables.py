"""Intervals for the true counts of noisy tables: exact posteriors, least squares, single values and naive intervals.

Panels: `tree` has three levels below the total, with Gaussian noise of one standard deviation on every node. The counts
of the leaves are negative binomial, and the assumed prior is the true one, or a wrong one with twice the mean and five
times the shape. `contingency` is the table sex × race × education × income of the 48,842 records of Adult, as a tree in
this order, with discrete Gaussian noise on every node and a prior that is fitted in each trial; all randomness is that
of the noise. `formats` has values that are clipped at 0, rounded to multiples of 5, or suppressed below 5. `mechanisms`
has releases of k counts of 1,000 records, a public total, by K-norm, geometric and discrete Gaussian noise; shares are
drawn from the Dirichlet prior. Discrete Gaussian noise has ρ = ε²/2 of ρ-zCDP, which ε-DP implies.

The interval score is width + (2/0.05)·(distance of the truth from the interval); its expectation is smallest for the
true quantiles (Gneiting & Raftery 2007). Equal-tailed intervals of integers have at least the nominal probability.

References
----------
Gneiting & Raftery, "Strictly proper scoring rules, prediction, and estimation", JASA 102, 2007. Cumings-Menon et al.,
"Full-information estimation for hierarchical data", 2024 (arXiv:2404.13164): least squares for the 2020 Census.
"""

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from mechanisms.core.noise import EXACT, Noise, calibrated_noise
from mechanisms.tables import Rounded, Suppressed, dirichlet_multinomial, negative_binomial
from pipeline import Criteria, Factor, Measure, Panel, Scale, Statistic, Streams, Study, claims_in
from studies.claims import ks_p_value
from studies.data.shipped import read_records
from studies.noisy_tables import noisy_tables_claims
from studies.noisy_tables.noisy_tables_figures import FIGURES
from studies.noisy_tables.own_tables import table_method
from studies.noisy_tables.table_trials import (
    FITTED,
    METHODS,
    NoisyTable,
    draw_noise,
    grow_tree,
    make_table,
    round_value,
)
from studies.panels import Values, require

_SHAPES = {"sparse": (0.6, 12.0), "dense": (2.0, 100.0)}
"""Kind of leaves -> shape and mean of their counts."""
_WRONG = 5.0, 2.0  # factors of shape and mean of the wrong prior
_GROUPS, _FORMAT_GROUPS = (4, 5, 25), (8, 25)
_SMALL = 20  # counts below it are small
_FORMATS = {"value": "value", "clipped": "clipped", "rounded": Rounded(5), "suppressed": Suppressed(5)}
_ALPHA, _RECORDS = 0.5, 1_000


def _simulate_tree(cell: Values, streams: Streams) -> list[NoisyTable]:
    shape, mean = _SHAPES[cell["leaves"]]
    assumed = (shape, mean) if cell["prior"] == "true" else (_WRONG[0] * shape, _WRONG[1] * mean)
    noise, tables = Noise("gaussian", cell["noise_std"]), []
    for rng in streams.generators():
        leaves = rng.negative_binomial(shape, shape / (shape + mean), math.prod(_GROUPS))
        truth, parents, levels = grow_tree(leaves, _GROUPS)
        parts = [np.flatnonzero(leaves < _SMALL), *levels]
        priors = [
            negative_binomial(*(parameter * leaves.size / level.size for parameter in assumed)) for level in levels
        ]
        alone = [prior for prior, level in zip(priors, levels, strict=True) for _ in level]
        tables.append(make_table(rng, truth, [noise] * truth.size, parents, parts, prior=priors[0], alone=alone))
    return tables


@lru_cache  # one table, read once per process
def _adult() -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Return counts, parents and parts of the tree sex / race / education / income of all records of Adult."""
    frame = read_records("adult")
    columns = ["sex", "race", "education", "income"]
    codes = [frame[name].astype("category").cat.codes.to_numpy() for name in columns]
    sizes = [int(code.max()) + 1 for code in codes]
    leaves = np.bincount(np.ravel_multi_index(codes, sizes), minlength=math.prod(sizes))
    truth, parents, levels = grow_tree(leaves, sizes)
    edges = (0, 1, _SMALL, 200, np.inf)
    parts = [np.flatnonzero((low <= leaves) & (leaves < high)) for low, high in pairwise(edges)]
    return truth, parents, (*parts, np.concatenate(levels[1:]))


def _simulate_contingency(cell: Values, streams: Streams) -> list[NoisyTable]:
    truth, parents, parts = _adult()
    noise = [Noise("discrete-gaussian", cell["noise_std"])] * truth.size
    return [make_table(rng, truth, noise, parents, parts, prior=None, alone=None) for rng in streams.generators()]


def _simulate_formats(cell: Values, streams: Streams) -> list[NoisyTable]:
    shape, mean = _SHAPES["sparse"]
    form, tables = _FORMATS[cell["published"]], []
    for rng in streams.generators():
        leaves = rng.negative_binomial(shape, shape / (shape + mean), math.prod(_FORMAT_GROUPS))
        truth, parents, levels = grow_tree(leaves, _FORMAT_GROUPS)
        noise = [Noise("discrete-gaussian", cell["noise_std"])] * truth.size
        values = round_value(form, truth + draw_noise(rng, noise))
        parts, prior = [np.flatnonzero(leaves < _SMALL), *levels], negative_binomial(shape, mean)
        published = {"values": values, "seen": [form] * truth.size}
        tables.append(make_table(rng, truth, noise, parents, parts, prior=prior, alone=None, **published))
    return tables


def _simulate_mechanisms(cell: Values, streams: Streams) -> list[NoisyTable]:
    k, epsilon, name = cell["k"], cell["epsilon"], cell["noise"]
    is_gaussian = name == "discrete-gaussian"
    noise = calibrated_noise(name, *((math.sqrt(2.0), epsilon**2 / 2.0) if is_gaussian else (2.0, epsilon)))
    parents, prior, tables = np.append(np.full(k, k), -1), dirichlet_multinomial(_ALPHA), []
    for rng in streams.generators():
        counts = rng.multinomial(_RECORDS, rng.dirichlet(np.full(k, _ALPHA)))
        values = np.append(counts + noise.sample(rng, (k,)), _RECORDS)
        parts = [np.flatnonzero(counts < _SMALL), np.flatnonzero(counts >= _SMALL), np.arange(k)]
        kinds, truth = [noise] * k + [EXACT], np.append(counts, _RECORDS)
        tables.append(make_table(rng, truth, kinds, parents, parts, values=values, prior=prior, alone=None))
    return tables


def _p_value(quantiles: np.ndarray) -> float:
    """Return the p-value of the test that quantiles are uniform, without missing ones."""
    known = quantiles[~np.isnan(quantiles)]
    return ks_p_value(known) if known.size else math.nan


def _panel(
    name: str, meaning: str, simulate: Any, parts: tuple[str, ...], methods: tuple[str, ...],
    factors: tuple[Factor, ...], trials: int,
) -> Panel:  # fmt: skip
    dims = ("part",)
    return Panel(
        name=name,
        meaning=meaning,
        simulate=simulate,
        methods=tuple(FITTED if (name, method) == ("contingency", "tree") else METHODS[method] for method in methods),
        measures=(
            Measure("covered", "fraction of nodes whose 95 % interval contains the count", dims=dims, ragged=True),
            Measure("width", "mean width of the 95 % intervals", "count", dims=dims, ragged=True),
            Measure("square", "mean squared error of the estimates", "count^2", dims=dims, ragged=True),
            Measure("score", "mean interval score of the 95 % intervals", "count", dims=dims, ragged=True),
            Measure("pit", "posterior quantile of the count of a random node", dims=dims, ragged=True),
        ),
        factors=factors,
        outputs=(Factor("part", parts, "nodes of the table", "str"),),
        trials=trials,
        block_trials=min(trials, 10),
        statistics=(
            Statistic("p", "pit", "p-value of the Kolmogorov-Smirnov test of uniform quantiles", _p_value),
            Statistic("rmse", "square", "root mean squared error", lambda square: math.sqrt(np.nanmean(square))),
        ),
        validate=_validate,
        accepts={"table": table_method},
        version=5,
    )


def _validate(cell: Values, setting: Values) -> bool:
    """Raise ValueError for values that no table has."""
    for name in ("noise_std", "epsilon"):
        scale = cell.get(name, 1.0)
        require(0.0 < scale <= 1e3, f"{name} must be in (0, 1000]", f"{scale:g}", "e.g. 1")
    k = cell.get("k", 2)
    require(2 <= k <= 1_000, "k must be from 2 to 1,000", k, "e.g. 10")
    return True


_NOISE_STD = Factor("noise_std", (2.0, 5.0), "standard deviation of the noise", "float", "count")
_PLAIN = ("tree", "least-squares", "least-squares-clipped", "naive")

_PANELS = (
    _panel("tree", "three levels below a total, negative binomial counts, Gaussian noise on every node",
           _simulate_tree, ("leaf below 20", "leaf", "county", "state", "total"),
           ("tree", "least-squares", "least-squares-clipped", "leaf", "naive"),
           (Factor("leaves", ("sparse", "dense"), "distribution of the leaves", "str"), _NOISE_STD,
            Factor("prior", ("true", "wrong"), "assumed prior of the leaves", "str")), 100),
    _panel("contingency",
           "sex, race, education and income of Adult, discrete Gaussian noise on every node, fitted prior",
           _simulate_contingency, ("0", "1 to 19", "20 to 199", "200 or more", "margins"), _PLAIN, (_NOISE_STD,), 100),
    _panel("formats", "eight groups of 25 counts, discrete Gaussian noise, published in several formats",
           _simulate_formats, ("leaf below 20", "leaf", "group", "total"), ("tree", "published", "naive"),
           (Factor("published", tuple(_FORMATS), "format of the values", "str"), _NOISE_STD), 100),
    _panel("mechanisms", "k counts of 1,000 records, a public total, by several mechanisms",
           _simulate_mechanisms, ("below 20", "20 or more", "all"), _PLAIN,
           (Factor("k", (10, 100), "number of categories", "int"),
            Factor("epsilon", (0.3, 1.0), "privacy loss", "float", unit="nat"),
            Factor("noise", ("k-norm", "geometric", "discrete-gaussian"), "distribution of the noise", "str")), 300),
)  # fmt: skip

STUDY = Study(
    name="noisy-tables",
    title="Noisy tables: intervals for the true counts",
    aim="Compare exact posteriors of published tables with noise with least squares and with single values, by "
    "coverage, width and interval score per level of the table.",
    panels=_PANELS,
    seed=20_261_126,
    claims=claims_in(vars(noisy_tables_claims)),
    figures=FIGURES,
    criteria=Criteria(
        uniform=("pit",),
        exact={  # levels whose nodes do not depend on the counts, with the true prior
            "tree": {"prior": ("true",), "part": ("leaf", "county", "state", "total")},
            "formats": {"part": ("leaf", "group", "total")},
            "mechanisms": {"part": ("all",)},
        },
        loss=("score",),
        covered="covered",
        width="width",
    ),
    quick=Scale(
        trials={"tree": 20, "contingency": 10, "formats": 30, "mechanisms": 40},
        panels=("tree", "contingency", "formats", "mechanisms"),
        values={
            "noise_std": {"tree": (5.0,), "contingency": (5.0,), "formats": (2.0,)},
            "leaves": ("sparse",),
            "epsilon": (1.0,),
        },
    ),
)
