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
P4: Bernstein & Sheldon, "Differentially Private Bayesian Inference for Exponential Families", NeurIPS 2018.
Talts, Betancourt, Simpson, Vehtari & Gelman, "Validating Bayesian inference algorithms with simulation-based
calibration", 2018, Algorithm 2: chains whose length depends on the effective sample size.
Ju, Awan, Gong & Rao, "Data augmentation MCMC for Bayesian inference from privatized data", NeurIPS 2022.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mechanisms.inference.families import MODELS
from mechanisms.inference.methods import INFERENCE_METHODS
from pipeline import Factor, Measure, Method, Panel, Scale, Statistic, Study
from studies.inference.exact_inference_claims import CLAIMS
from studies.inference.exact_trials import (
    AUGMENTATION,
    COLLAPSED,
    ENOUGH_DRAWS,
    EXACT,
    GIBBS,
    GIBBS_EXACT,
    LARGEST_RHAT,
    MARGINAL,
    release_model,
    simulate_releases,
)
from studies.inference.inference_figures import EXACT_FIGURES
from studies.inference.noisy_trials import LARGEST_AUGMENTED
from studies.inference.page_tables import compare_chains
from studies.inference.uniformity import PIT_STATISTICS, RANK_STATISTICS, components, require_components

_JOINT_STATISTICS = tuple(replace(one, measure="joint") for one in PIT_STATISTICS if one.name in ("ks", "p"))
_STATISTICS = (
    *PIT_STATISTICS,
    *RANK_STATISTICS,
    Statistic("least", "ess", "smallest effective sample size among the trials", np.min),
    Statistic("largest", "rhat", "largest split R-hat among the trials", np.max),
    Statistic(
        "stuck", "rhat", f"fraction of trials with split R-hat >= {LARGEST_RHAT}", lambda r: np.mean(r >= LARGEST_RHAT)
    ),
    Statistic(
        "short",
        "ess",
        f"fraction of trials with an effective sample size below {ENOUGH_DRAWS}",
        lambda ess: np.mean(ess < ENOUGH_DRAWS),
    ),
)


def _panel(
    name: str,
    meaning: str,
    family: str,
    methods: tuple[Method, ...],
    priors: tuple[tuple[float, ...], ...],
    n: tuple[int, ...],
    epsilon: tuple[float, ...],
    bounds: tuple[float, float] | None = None,
    noises: tuple[str, ...] = (),
    trials: int = 1_500,
    version: int = 5,
) -> Panel:
    p = MODELS[family].n_components(priors[0])
    dims, outputs = components(p, "component of the parameter")
    largest = 1_000 if name == "edge" else LARGEST_AUGMENTED

    def validate(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
        model, method = release_model(family, cell), INFERENCE_METHODS[setting["algorithm"]]
        method.validate_prior(family, cell["prior"])
        require_components(cell, model.n_components(cell["prior"]))
        return method.supports(model) and (not method.draws_records or model.n <= largest)

    factors = [Factor("n", n, "number of records", "int"), Factor("epsilon", epsilon, "privacy loss", unit="nat")]
    constants: list[Factor] = []
    prior = Factor("prior", priors, "hyperparameters of the prior", "vector")
    (factors if len(priors) > 1 else constants).append(prior)
    if noises:
        factors.append(Factor("noise", noises, "distribution of the noise", "str"))
    if bounds is not None:
        factors.append(Factor("outside", ("drop", "clamp"), "contribution of a record outside the bounds", "str"))
        constants.append(Factor("bounds", (bounds,), "public bounds of a record", "vector"))
    return Panel(
        name=name,
        meaning=meaning,
        simulate=simulate_releases(family, at_zero=name == "edge"),
        methods=methods,
        measures=(
            Measure("pit", "posterior quantile of the true parameter", dims=dims),
            Measure("rank", "rank of the true parameter among 99 draws", dims=dims),
            Measure("covered", "1 if the central 95 % interval contains the true parameter", dims=dims),
            Measure("width", "width of the central 95 % interval", dims=dims),
            Measure("distance", "distance of the distribution functions of draws and exact", dims=dims, ragged=True),
            Measure("rhat", "split R-hat of the chains; 1 for independent draws", dims=dims),
            Measure("ess", "effective sample size of the mean among 2,000 draws", dims=dims),
            Measure("thinning", "iterations per draw; more than 1 if shorter chains did not suffice"),
            *(
                [Measure("joint", "fraction of draws nearer to a random point than the true parameter")]
                if p > 1
                else []
            ),
            *([Measure("mean_width", "mean of the widths over components")] if family == "multinomial" else []),
        ),
        factors=tuple(factors),
        outputs=outputs,
        constants=tuple(constants),
        trials=trials,
        block_trials=min(trials, 100),
        statistics=(*_STATISTICS, *(_JOINT_STATISTICS if p > 1 else ())),
        validate=validate,
        version=version if bounds is not None else 6 if family == "multinomial" else 4,
    )


_COUNT_METHODS = (EXACT, GIBBS_EXACT, AUGMENTATION, GIBBS)
_UNBOUNDED_AUGMENTATION = replace(AUGMENTATION, version=5)
PANELS = (
    _panel(
        "binomial",
        "Beta-binomial model, also with sparse data",
        "binomial",
        (*_COUNT_METHODS, MARGINAL),
        ((1.0, 1.0), (1.0, 50.0), (0.5, 50.0)),
        (10, 100, 1_000),
        (0.1, 1.0, 3.0),
    ),
    _panel(
        "edge",
        "Beta-binomial model, the release y = 0",
        "binomial",
        (*_COUNT_METHODS, MARGINAL),
        ((1.0, 1.0),),
        (100, 1_000, 10_000, 100_000, 1_000_000),
        (1.0,),
        trials=100,
    ),
    _panel(
        "multinomial-3",
        "Dirichlet-multinomial model with three categories and three kinds of noise",
        "multinomial",
        _COUNT_METHODS,
        ((0.5,) * 3,),
        (100,),
        (1.0, 3.0),
        noises=("laplace", "geometric", "k-norm"),
    ),
    _panel(
        "multinomial-10",
        "Dirichlet-multinomial model with ten categories and two kinds of noise",
        "multinomial",
        _COUNT_METHODS,
        ((0.5,) * 10,),
        (100,),
        (1.0,),
        noises=("laplace", "k-norm"),
    ),
    *(
        _panel(
            family,
            f"{model}, records dropped or clamped",
            family,
            (_UNBOUNDED_AUGMENTATION, *(() if MODELS[family].has_square else (COLLAPSED, MARGINAL))),
            (prior,),
            (10, 100),
            (1.0,),
            bounds,
            # in version 4, records and squares were released in their own units
            version=6 if MODELS[family].has_square else 5,
        )
        for family, model, prior, bounds in (
            ("exponential", "Gamma-exponential model", (8.0, 2.0), (0.00633, 0.9222)),
            ("poisson", "Gamma-Poisson model", (8.0, 2.0), (1.0, 8.0)),
            ("normal", "normal model with known variance", (0.0, 1.0), (-2.0, 2.0)),
            (
                "normal-unknown-variance",
                "normal model with unknown mean and variance",
                (0.0, 1.0, 3.0, 2.0),
                (-2.0, 2.0),
            ),
        )
    ),
)

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
