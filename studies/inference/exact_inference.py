"""Exact inference from private statistics, compared with the methods of P4, which use normal approximations.

In each trial, θ is drawn from the prior, the records from θ, and the release from the records. If a method's posterior
is correct, the posterior quantile of the true θ is uniform. The panels contain sparse counts, releases at the edge of
the support, and records that are dropped or clamped at public bounds. In the panel `edge` the release is y = 0.

Data augmentation takes time proportional to n, and runs up to n = 100 (1,000 in `edge`).

Each trial starts 2 chains of 1,000 draws, after 200 discarded iterations. If split R-hat is 1.01 or more, or the
effective sample size is below 100, longer chains replace them, of up to 16 times as many iterations. Chains that still
fail are included in all statistics; their share is part of the evidence. The ranks use 99 equally spaced draws.

Stored numbers cannot contain times, so `ess` and `thinning` give the effective sample size per iteration,
ess/(2,000·thinning). `tests/benchmarks/bench_exact_inference.py` prints the effective sample size per second.

References
----------
Talts, Betancourt, Simpson, Vehtari & Gelman, "Validating Bayesian inference algorithms with simulation-based
calibration", 2018, Algorithm 2: chains whose length depends on the effective sample size.
Ju, Awan, Gong & Rao, "Data augmentation MCMC for Bayesian inference from privatized data", NeurIPS 2022.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from mechanisms.inference.families import MODELS
from pipeline import Factor, Measure, Method, Panel, Scale, Statistic, Study
from studies.inference.exact_inference_claims import CLAIMS
from studies.inference.exact_trials import ENOUGH_DRAWS, LARGEST_RHAT, METHODS, simulate_releases
from studies.inference.inference_figures import EXACT_FIGURES
from studies.inference.noisy_trials import LARGEST_AUGMENTED
from studies.inference.page_tables import compare_chains
from studies.inference.uniformity import PIT_STATISTICS, RANK_STATISTICS, inference_panel

_JOINT_STATISTICS = tuple(replace(one, measure="joint") for one in PIT_STATISTICS if one.name in ("ks", "p"))
_STATISTICS = (
    *PIT_STATISTICS,
    *RANK_STATISTICS,
    Statistic("least", "ess", "smallest effective sample size among the trials", np.min),
    Statistic("largest", "rhat", "largest split R-hat among the trials", np.max),
    Statistic(
        "stuck", "rhat", f"fraction of trials with split R-hat >= {LARGEST_RHAT}",
        lambda rhat: np.mean(rhat >= LARGEST_RHAT)),
    Statistic(
        "short", "ess", f"fraction of trials with an effective sample size below {ENOUGH_DRAWS}",
        lambda ess: np.mean(ess < ENOUGH_DRAWS)),
)  # fmt: skip
_MEASURES = (
    Measure("pit", "posterior quantile of the true parameter"),
    Measure("rank", "rank of the true parameter among 99 draws"),
    Measure("covered", "1 if the central 95 % interval contains the true parameter"),
    Measure("width", "width of the central 95 % interval"),
    Measure("distance", "distance of the distribution functions of draws and exact", ragged=True),
    Measure("rhat", "split R-hat of the chains; 1 for independent draws"),
    Measure("ess", "effective sample size of the mean among 2,000 draws"),
)
_THINNING = Measure("thinning", "iterations per draw; more than 1 if shorter chains did not suffice")
_JOINT = Measure("joint", "fraction of draws nearer to a random point than the true parameter")
_MEAN_WIDTH = Measure("mean_width", "mean of the widths over components")
_OUTSIDE = Factor("outside", ("drop", "clamp"), "contribution of a record outside the bounds", "str")


def _panel(
    name: str, meaning: str, family: str, methods: tuple[Method, ...], priors: tuple[tuple[float, ...], ...],
    n: tuple[int, ...], epsilon: tuple[float, ...], bounds: tuple[float, float] | None = None,
    noises: tuple[str, ...] = (), trials: int = 1_500, version: int = 4,
) -> Panel:  # fmt: skip
    is_vector = MODELS[family].n_components(priors[0]) > 1
    noise = (Factor("noise", noises, "distribution of the noise", "str"),) if noises else ()
    scalars = ((_JOINT,) if is_vector else ()) + ((_MEAN_WIDTH,) if family == "multinomial" else ())
    return inference_panel(
        name, meaning, family, partial(simulate_releases, family, name == "edge"), methods, _MEASURES, n=n,
        epsilon=epsilon, priors=priors, bounds=bounds, factors=noise if bounds is None else (*noise, _OUTSIDE),
        scalars=(_THINNING, *scalars), largest=1_000 if name == "edge" else LARGEST_AUGMENTED, trials=trials,
        block_trials=min(trials, 100), version=version,
        statistics=(*_STATISTICS, *(_JOINT_STATISTICS if is_vector else ())))  # fmt: skip


_COUNT_METHODS = tuple(METHODS[name] for name in ("exact", "gibbs-exact", "data-augmentation", "gibbs"))
_AUGMENTATION, _MARGINAL = replace(METHODS["data-augmentation"], version=5), METHODS["marginal"]
_APPROXIMATE = (METHODS["gibbs-collapsed"], _MARGINAL)
_SPARSE = (1.0, 1.0), (1.0, 50.0), (0.5, 50.0)
_BOUNDED = (  # family, model, prior, bounds, methods and version
    ("exponential", "Gamma-exponential model", (8.0, 2.0), (0.00633, 0.9222), _APPROXIMATE, 5),
    ("poisson", "Gamma-Poisson model", (8.0, 2.0), (1.0, 8.0), _APPROXIMATE, 5),
    ("normal", "normal model with known variance", (0.0, 1.0), (-2.0, 2.0), _APPROXIMATE, 5),
    # in version 4, records and squares were released in their own units
    ("normal-unknown-variance", "normal model with unknown mean and variance", (0.0, 1.0, 3.0, 2.0), (-2.0, 2.0), (),
     6),
)  # fmt: skip
PANELS = (
    _panel(
        "binomial", "Beta-binomial model, also with sparse data", "binomial", (*_COUNT_METHODS, _MARGINAL), _SPARSE,
        (10, 100, 1_000), (0.1, 1.0, 3.0)),
    _panel(
        "edge", "Beta-binomial model, the release y = 0", "binomial", (*_COUNT_METHODS, _MARGINAL), ((1.0, 1.0),),
        (100, 1_000, 10_000, 100_000, 1_000_000), (1.0,), trials=100),
    _panel(
        "multinomial-3", "Dirichlet-multinomial model with three categories and three kinds of noise", "multinomial",
        _COUNT_METHODS, ((0.5,) * 3,), (100,), (1.0, 3.0), noises=("laplace", "geometric", "k-norm"), version=7),
    _panel(
        "multinomial-10", "Dirichlet-multinomial model with ten categories and two kinds of noise", "multinomial",
        _COUNT_METHODS, ((0.5,) * 10,), (100,), (1.0,), noises=("laplace", "k-norm"), version=7),
    *(
        _panel(
            family, f"{model}, records dropped or clamped", family, (_AUGMENTATION, *others), (prior,), (10, 100),
            (1.0,), bounds, version=version)
        for family, model, prior, bounds, others, version in _BOUNDED
    ),
)  # fmt: skip

STUDY = Study(
    name="exact-inference",
    papers=("P4",),
    title="Exact inference from private statistics",
    aim="Compare exact methods with normal approximations, for sparse counts and for dropped or clamped records.",
    panels=PANELS,
    seed=20_260_611,
    claims=CLAIMS,
    figures=EXACT_FIGURES,
    comparisons=(compare_chains,),
    quick=Scale(
        trials=100,
        panels=("binomial", "edge", "exponential", "poisson", "normal"),
        values={
            "n": {"binomial": (10, 1_000), "edge": (100, 1_000, 1_000_000)},
            "epsilon": {"binomial": (0.1, 3.0)},
            "algorithm": {
                "binomial": ("exact", "marginal", "gibbs", "gibbs-exact"),
                **dict.fromkeys(("exponential", "poisson", "normal"), ("data-augmentation",)),
            },
        },
    ),
)
