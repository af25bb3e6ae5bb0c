"""Calibration of posteriors from noisy statistics, by the quantiles of Cook et al. (P4, Figure 1) and by ranks.

In each trial, θ is drawn from the prior, the records from θ, and the noisy statistics from the records. Every method
infers θ from its input. If its posterior is correct, the posterior quantile of the true θ is uniform.

Panels are `binomial`, `multinomial` and three panels for the exponential model, where a sum can only be released if
records are bounded. The bounds are public in `exponential` (central 95 % interval of a record at the prior mean) and in
`exponential-wide` (central 95 % interval of Exp(1), with another prior). `exponential-paper-bounds` uses the bounds of
the paper's experiment, the central 95 % interval of a record at the true θ of the trial. These bounds are not available
in practice and depend on θ; no method models that dependence, so no method is exactly calibrated in this panel. Data
augmentation takes time proportional to n, and runs up to n = 100.

References
----------
Cook, Gelman & Rubin, "Validation of software for Bayesian models using posterior quantiles", JCGS 15(3), 2006.
Talts, Betancourt, Simpson, Vehtari & Gelman, "Validating Bayesian inference algorithms with simulation-based
calibration", 2018.
"""

import math
from functools import partial

import numpy as np

from pipeline import Criteria, Measure, Panel, Scale, Statistic, Study
from studies.inference.calibration_claims import CLAIMS, EXPONENTIAL
from studies.inference.formula_errata import ERRATA
from studies.inference.inference_figures import FIGURES
from studies.inference.noisy_trials import LARGEST_RHAT, METHODS, N_RANKED, simulate_trials
from studies.inference.own_posteriors import calibrated_posterior
from studies.inference.page_tables import audited_statistics, compare_calibration
from studies.inference.uniformity import PIT_STATISTICS, RANK_STATISTICS, inference_panel

_STATISTICS = (
    *PIT_STATISTICS,
    # both are missing for methods without chains
    Statistic(
        "stuck", "rhat", f"fraction of trials with split R-hat above {LARGEST_RHAT}",
        lambda rhat: np.mean(rhat > LARGEST_RHAT) if np.isfinite(rhat).any() else np.nan),
    Statistic(
        "least", "ess", "smallest effective sample size among the trials",
        lambda ess: np.nanmin(ess) if np.isfinite(ess).any() else np.nan),
    *RANK_STATISTICS,
)  # fmt: skip
_MEASURES = (
    Measure("pit", "posterior quantile of the true parameter"),
    Measure("rank", f"rank of the true parameter among {N_RANKED} draws"),
    Measure("mmd2", "unbiased MMD^2 to draws of the non-private posterior"),
    Measure("rhat", "split R-hat of the chains; missing for independent draws", ragged=True),
    Measure("ess", "effective sample size of the mean over chains", ragged=True),
)


def _panel(
    name: str, meaning: str, family: str, prior: tuple[float, ...], bounds: tuple[float, float] | None = None,
    own_bounds: bool = False,
) -> Panel:  # fmt: skip
    unit = "bounds in units of the mean record at the true parameter" if own_bounds else "public bounds of a record"
    return inference_panel(
        name, meaning, family, partial(simulate_trials, family, own_bounds), METHODS[family], _MEASURES,
        n=(10, 100, 1_000, 10_000, 100_000), epsilon=(0.01, 0.1), priors=(prior,), bounds=bounds, unit=unit,
        accepts={"posterior": partial(calibrated_posterior, family)},
        component="category of the multinomial", trials=1_000, block_trials=200, statistics=_STATISTICS,
        version=2)  # fmt: skip  # sums have a fixed order


_UNIT_BOUNDS = (-math.log(0.975), -math.log(0.025))  # ends of the central 95 % interval of Exp(1)
_MEAN_BOUNDS = (_UNIT_BOUNDS[0] / 4, _UNIT_BOUNDS[1] / 4)
_OWN = "bounds from the true rate of each trial, as in the paper's experiment"
_PANELS = (
    _panel("binomial", "Beta-binomial model (P4, Figure 1)", "binomial", (10.0, 10.0)),
    _panel("multinomial", "Dirichlet-multinomial model (P4, Figure 1)", "multinomial", (5.0, 5.0, 5.0)),
    *(
        _panel(name, f"Gamma-exponential model, {meaning}", "exponential", prior, bounds, own_bounds)
        for name, meaning, prior, bounds, own_bounds in (
            (EXPONENTIAL[0], "public bounds from the prior mean (P4, Figure 1)", (8.0, 2.0), _MEAN_BOUNDS, False),
            (EXPONENTIAL[1], "wider prior, public bounds from rate 1", (3.0, 3.0), _UNIT_BOUNDS, False),
            (EXPONENTIAL[2], _OWN, (8.0, 2.0), _UNIT_BOUNDS, True),
        )
    ),
)
_QUICK = "non-private", "naive", "naive-truncated", "gibbs", "gibbs-collapsed", "gibbs-published", "marginal"

STUDY = Study(
    name="calibration",
    papers=("P4",),
    title="Calibration of inference from noisy statistics",
    aim="Test which methods have calibrated posteriors, for a range of sizes and privacy losses.",
    panels=_PANELS,
    seed=20_181_203,
    claims=CLAIMS,
    errata=ERRATA,
    figures=FIGURES,
    quick=Scale(
        trials=100,
        values={
            "n": {"binomial": (10, 100, 100_000), **dict.fromkeys(("multinomial", *EXPONENTIAL), (10, 100_000))},
            "algorithm": {
                "multinomial": ("non-private", "naive", "gibbs", "gibbs-exact"),
                **dict.fromkeys(EXPONENTIAL[:2], _QUICK),
                EXPONENTIAL[2]: ("non-private", "naive", "naive-truncated", "gibbs-collapsed", "marginal"),
            },
        },
    ),
    criteria=Criteria(
        uniform=("pit",),
        exact={name: {} for name in ("binomial", "multinomial", *EXPONENTIAL[:2])},  # bounds do not depend on θ
        loss=("mmd2",),
    ),
    comparisons=(compare_calibration,),
    audits=(audited_statistics,),
)
