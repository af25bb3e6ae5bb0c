"""Claims and figures of the study `partition-probability` (P2, chapter 3).

References
----------
P2: Amitai, "Bayesian Inference Via Partitioning Under Differential Privacy", Duke University 2018, chapter 3.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy import special

from mechanisms.audit import audit_distributions
from mechanisms.regression.audit import adversarial_posteriors, probability_distributions
from mechanisms.regression.partition_probability import partition_probability, score_slope
from mechanisms.regression.prior import ZellnerPrior
from pipeline import Erratum, Figure, Finding, claim
from studies.styles import PARTITION_STYLES

Summaries = Mapping[str, xr.Dataset]

_CUTOFFS = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
_AGREE = 0.02
"""Largest difference of means that are considered similar, about the resolution of a figure."""

_DECIDING = 3.0  # Monte Carlo standard errors
_BIAS, _RMSE = 0.006, 0.02
_SLOPE = 0.03


def _needs(panel: str, *methods: str) -> dict[str, dict[str, tuple[Any, ...]]]:
    return {panel: {"cutoff": _CUTOFFS, "algorithm": methods}}


def _one(summaries: Summaries, method: str, panel: str = "default") -> xr.Dataset:
    return summaries[panel].sel(algorithm=method)


def _listed(values: xr.DataArray) -> str:
    return ", ".join(f"{float(value):+.4f}" for value in values)


def _gap(summaries: Summaries, method: str, panel: str = "default", n_errors: float = 0.0) -> float:
    """Return the largest absolute mean difference over cutoffs, minus `n_errors` Monte Carlo standard errors."""
    one = _one(summaries, method, panel)
    return float((np.abs(one["difference_mean"]) - n_errors * one["difference_mcse"]).max())


def _means_agree(family: str) -> Callable[[Summaries], Finding]:
    def check(summaries: Summaries) -> Finding:
        names = (f"{family}-noiseless", family, f"{family}-corrected-noiseless", f"{family}-corrected")
        gaps = {name: _gap(summaries, name) for name in names}
        apart = {name: _gap(summaries, name, n_errors=_DECIDING) > _AGREE for name in names}
        if apart[names[0]] or apart[names[1]]:
            repaired = max(gaps[name] for name in names[2:]) <= _AGREE
            verdict: Any = "corrected" if repaired else "does not hold"
        else:
            verdict = "holds" if max(gaps[name] for name in names[:2]) <= _AGREE else "undecided"
        listed = "; ".join(f"{name} {gap:.4f}" for name, gap in gaps.items())
        return Finding(
            verdict,
            f"Largest difference of means over cutoffs, compared with the posterior given all rows (similar: at most "
            f"{_AGREE}): {listed}. Noise shifts all means towards 1/2.",
        )

    return check


def _over_then_under(summaries: Summaries) -> Finding:
    one = _one(summaries, "normality-noiseless")
    mean, error = one["difference_mean"], _DECIDING * one["difference_mcse"]
    low, high = one["cutoff"] < 0, one["cutoff"] > 0
    holds = bool((mean - error)[low].min() > 0 and (mean + error)[high].max() < 0)
    fails = bool((mean + error)[low].min() < 0 or (mean - error)[high].max() > 0)
    return Finding(
        "holds" if holds else "does not hold" if fails else "undecided",
        f"Mean difference at cutoffs {_cutoffs(one)}: {_listed(mean)}.",
    )


def _cutoffs(one: xr.Dataset) -> str:
    return ", ".join(f"{value:g}" for value in one["cutoff"].values)


def _corrected_does_not(summaries: Summaries) -> Finding:
    one, printed = _one(summaries, "normality-corrected-noiseless"), _one(summaries, "normality-noiseless")
    bias, error = np.abs(one["difference_mean"]), _DECIDING * one["difference_mcse"]
    rmse, spread, other = (
        each[name].sel(cutoff=[-3, 3])
        for each, name in ((one, "difference_rmse"), (one, "difference_rmse_mcse"), (printed, "difference_rmse"))
    )
    verdict: Any = "undecided"
    if bool((bias - error > _BIAS).any() or (rmse - _DECIDING * spread > _RMSE).any()):
        verdict = "does not hold"
    elif bool((bias <= _BIAS).all() and (rmse <= _RMSE).all()):
        verdict = "holds"
    noisy = ", ".join(
        f"{name} {float(_one(summaries, name)['difference_rmse'].sel(cutoff=[-3, 3]).max()):.4f}"
        for name in ("normality", "normality-corrected")
    )
    return Finding(
        verdict,
        f"Bias at cutoffs {_cutoffs(one)}: {_listed(one['difference_mean'])} (Monte Carlo standard error up to "
        f"{float(one['difference_mcse'].max()):.4f}; at most {_BIAS} is required), with the printed factor "
        f"{_listed(printed['difference_mean'])}. RMSE at -3 and 3 sd up to {float(rmse.max()):.4f} (Monte Carlo "
        f"standard error {float(spread.max()):.4f}; at most {_RMSE} is required), with the printed factor "
        f"{float(other.max()):.4f}; with noise {noisy}.",
    )


def _slopes(summaries: Summaries) -> Finding:
    expected = {
        "full": 1.0,
        "normality-noiseless": math.sqrt(0.5),
        "normality-corrected-noiseless": 1.0,
        "fisher-noiseless": score_slope(float(summaries["default"]["least_probability"])),
        "fisher-corrected-noiseless": 1.0,
    }
    lines, holds, fails = [], True, False
    for name, slope in expected.items():
        ends = _one(summaries, name).sel(cutoff=[-1, 1])
        score = special.ndtri(ends["probability_median"].values)
        error = ends["probability_median_mcse"].values * math.sqrt(2 * math.pi) * np.exp(score**2 / 2)
        found, spread = float(score[1] - score[0]) / 2, float(np.hypot(*error)) / 2
        holds &= abs(found - slope) <= _SLOPE
        fails |= abs(found - slope) > _SLOPE + _DECIDING * spread
        lines.append(f"{name} {found:.3f} (expected {slope:.3f}, Monte Carlo standard error {spread:.3f})")
    verdict: Any = "holds" if holds else "does not hold" if fails else "undecided"
    return Finding(verdict, f"{'; '.join(lines)}; deviations of at most {_SLOPE} are allowed.")


def _largest_near_the_truth(summaries: Summaries) -> Finding:
    lines, holds, fails = [], True, False
    for name in ("normality-noiseless", "normality", "fisher-noiseless", "fisher"):
        one = _one(summaries, name)
        sd = one["difference_sd"]
        error = _DECIDING * sd / np.sqrt(2.0 * one["n_ok"])  # standard error of the sd of normal differences
        near, far = sd.sel(cutoff=0), sd.sel(cutoff=[-3, -2, 2, 3])
        limit = np.hypot(error.sel(cutoff=0), error.sel(cutoff=[-3, -2, 2, 3]))
        holds &= bool((near - far > limit).all())
        fails |= bool((far - near > limit).any())
        lines.append(f"{name} {', '.join(f'{float(value):.3f}' for value in sd)}")
    return Finding(
        "holds" if holds else "does not hold" if fails else "undecided",
        f"Standard deviation of the differences at cutoffs {_cutoffs(summaries['default'])}: {'; '.join(lines)}.",
    )


def _no_pattern(summaries: Summaries) -> Finding:
    one, corrected = _one(summaries, "fisher-noiseless"), _one(summaries, "fisher-corrected-noiseless")
    mean, error = (one[f"difference_{what}"].sel(cutoff=[-2, 2]).values for what in ("mean", "mcse"))
    pattern = bool(np.all(np.abs(mean) > _DECIDING * error)) and mean[0] > 0 > mean[1]
    none = bool(np.all(np.abs(mean) + _DECIDING * error <= _BIAS))
    return Finding(
        "does not hold" if pattern else "holds" if none else "undecided",
        f"Mean difference without noise at cutoffs {_cutoffs(one)}: {_listed(one['difference_mean'])}. Corrected "
        f"method: {_listed(corrected['difference_mean'])}.",
    )


def audit_adversarial(name: str, n_partitions: int, size: int, epsilon: float, least_probability: float) -> float:
    """Return the exact privacy loss of one cutoff when one row of the first partition is replaced by the worst case.

    The rows are simulated and the posterior after the replacement is recomputed.
    """
    rng = np.random.default_rng(2018)
    x = rng.standard_normal((n_partitions * size, 1))
    y = 1.0 + 2.0 * x[:, 0] + rng.standard_normal(x.shape[0])
    labels = np.repeat(np.arange(n_partitions), size)
    pair = adversarial_posteriors(x, y, labels, 1, ZellnerPrior(float(x.shape[0])), error_variance=1.0)
    method = partition_probability(name, n_partitions, epsilon, least_probability)
    return audit_distributions(probability_distributions(method, pair.cdf(2.0), [[0, 1]])).epsilon


def _published_noise(summaries: Summaries) -> Finding:
    ds = summaries["default"]
    epsilon, size, least = (float(ds[name]) for name in ("epsilon", "partition_size", "least_probability"))
    n_partitions = int(ds["n"]) // int(size)
    lost = {
        name: audit_adversarial(name, n_partitions, int(size), epsilon, least)
        for name in ("normality", "fisher-published", "fisher")
    }
    listed = ", ".join(f"{name} {loss:.6g}" for name, loss in lost.items())
    broken, repaired = (lost[name] > epsilon + 1e-9 for name in ("fisher-published", "fisher"))
    verdict: Any = "holds" if not broken else "does not hold" if repaired else "corrected"
    return Finding(
        verdict,
        f"Exact loss when one of {n_partitions * int(size):,} rows is replaced by the worst case, for epsilon = "
        f"{epsilon:g} and {n_partitions:,} partitions: {listed}. The sensitivity of the sum is -2 ln p*, which must "
        "not be divided by the number of partitions.",
    )


def _partition_g(summaries: Summaries) -> Finding:
    names = ("normality-noiseless", "normality-corrected-noiseless", "fisher-noiseless")
    there, here = (
        {name: _one(summaries, name, panel)["probability_mean"].sel(cutoff=0).item() for name in ("full", *names)}
        for panel in ("zellner-partition", "default")
    )
    fails = min(there[name] for name in names) > 0.99
    holds = max(_gap(summaries, name) for name in names) < 0.1
    listed = "; ".join(f"{name} {there[name]:.4f} (g = n: {here[name]:.4f})" for name in ("full", *names))
    verdict: Any = ("corrected" if holds else "does not hold") if fails else "holds"
    return Finding(verdict, f"Mean probability at the true slope: {listed}. The correct value is about 1/2.")


CLAIMS = (
    *(
        claim(
            f"means-agree-{family}",
            f"The mean probabilities given all rows, by {method} without noise, and with noise are similar at every "
            "cutoff.",
            paper="P2",
            place=f"section {section}",
            needs=_needs(
                "default",
                "full",
                *(f"{family}{kind}{noise}" for kind in ("", "-corrected") for noise in ("", "-noiseless")),
            ),
        )(_means_agree(family))
        for family, method, section in (
            ("normality", "the normality method", "3.1.1, Figure 3.1"),
            ("fisher", "the -2 log p method", "3.2.1, Figure 3.3"),
        )
    ),
    claim(
        "normality-over-then-under",
        "The normality method overestimates probabilities below the true slope and underestimates them above it.",
        paper="P2",
        place="section 3.1.1, Figure 3.2",
        needs=_needs("default", "normality-noiseless"),
    )(_over_then_under),
    claim(
        "corrected-does-not",
        "The normality method with the factor sqrt(2M) in place of sqrt(M) has bias <= .006 at every cutoff, and RMSE "
        "<= .02 at 3 sd from the true slope.",
        kind="addition",
        needs=_needs(
            "default", "normality", "normality-corrected", "normality-noiseless", "normality-corrected-noiseless"
        ),
        erratum=Erratum(
            "The normal score of the mean probability times √M.",
            "√(2M): the partitions' means scatter as widely as each posterior.",
            place="section 3.1, equation 3.10",
            paper="P2",
        ),
    )(_corrected_does_not),
    claim(
        "slopes-of-scores",
        "When the normal score of the posterior probability changes by 1, the score of the normality method changes by "
        "1/sqrt(2), that of the -2 log p method by .90, and those of the corrected methods by 1.",
        kind="addition",
        needs=_needs(
            "default",
            "full",
            *(f"{name}-noiseless" for name in ("normality", "normality-corrected", "fisher", "fisher-corrected")),
        ),
    )(_slopes),
    claim(
        "largest-near-the-truth",
        "The differences from the probabilities given all rows vary most at cutoffs near the true slope.",
        paper="P2",
        place="sections 3.1.1 and 3.2.1, Figures 3.2 and 3.4",
        needs=_needs("default", "normality", "normality-noiseless", "fisher", "fisher-noiseless"),
    )(_largest_near_the_truth),
    claim(
        "fisher-has-no-pattern",
        "The -2 log p method has no clear pattern of under- or overestimation.",
        paper="P2",
        place="section 3.2.1, Figure 3.4",
        needs=_needs("default", "fisher-noiseless", "fisher-corrected-noiseless"),
        erratum=Erratum(
            "The −2 log p method has no clear pattern of under- or overestimation.",
            "Its normal score has slope .90 instead of 1.",
            place="section 3.2.1",
        ),
    )(_no_pattern),
    claim(
        "fisher-noise-is-private",
        "Laplace noise of scale -2 ln p*/(M epsilon) makes the -2 log p method epsilon-differentially private.",
        paper="P2",
        place="section 3.2",
        needs=_needs("default", "fisher-published"),
        erratum=Erratum(
            "The sum of −2 log p has sensitivity −2 ln p*/M.", "−2 ln p*: as printed the noise is M times too small."
        ),
    )(_published_noise),
    claim(
        "g-is-the-partitions-length",
        "With g = the number of rows of the partition in Zellner's prior, probabilities from partitions equal those "
        "given all rows.",
        paper="P2",
        place="sections 3.1.1 and 3.2.1",
        needs={
            panel: {
                "cutoff": (0.0,),
                "algorithm": ("full", "normality-noiseless", "normality-corrected-noiseless", "fisher-noiseless"),
            }
            for panel in ("default", "zellner-partition")
        },
        erratum=Erratum(
            "Zellner's g is the number of rows of a partition.",
            "g = n in every partition; otherwise each posterior is shrunk by six posterior standard deviations.",
            place="section 3.1",
        ),
    )(_partition_g),
)


# Figures

_SPREADS = ("full", "normality-noiseless", "normality", "full", "fisher-noiseless", "fisher")
_DIFFERENCES = tuple(
    name + noise
    for name in ("normality", "normality-corrected", "fisher", "fisher-corrected")
    for noise in ("-noiseless", "")
)


def _draw_probabilities(panel: str) -> Callable[[Summaries], Any]:
    def draw(summaries: Summaries) -> Any:
        from studies.regression.partition_figures import draw_spreads

        ds, ylabel = summaries[panel], "posterior probability"
        return draw_spreads(ds, "cutoff", "probability", _SPREADS, 3, PARTITION_STYLES, ylabel, (-0.03, 1.03))

    return draw


def _draw_differences(summaries: Summaries) -> Any:
    from studies.regression.partition_figures import draw_spreads

    ds, ylabel = summaries["default"], "probability minus that given all rows"
    return draw_spreads(ds, "cutoff", "difference", _DIFFERENCES, 2, PARTITION_STYLES, ylabel)


def _draw_errors(summaries: Summaries) -> Any:
    from studies.regression.partition_figures import draw_errors

    return draw_errors(summaries["default"], "cutoff", PARTITION_STYLES)


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
        _draw_probabilities("default"),
    ),
    Figure(
        "probability-differences",
        "Differences from the posterior given all rows (P2, Figures 3.2 and 3.4)",
        f"{_BOXES}, of the probability minus that given all rows. Left: without noise; right: with noise. Each method "
        "is above its correction.",
        ("default",),
        _draw_differences,
    ),
    Figure(
        "probability-errors",
        "Bias and root mean squared error",
        "Mean (with ± 2 Monte Carlo standard errors) and root mean square of the difference from the probability given "
        "all rows, against the cutoff. Left: without noise; right: with noise. Without noise the corrected normality "
        "method has the smallest errors; with noise it has the smallest bias of the private methods.",
        ("default",),
        _draw_errors,
    ),
    Figure(
        "zellner-partition",
        "Zellner's prior with g = rows per partition",
        f"{_BOXES}. The slope of every partition is shrunk by 1/101, six standard deviations of the posterior given "
        "all rows, so all methods give a probability near 1 that the slope is below the true slope.",
        ("zellner-partition",),
        _draw_probabilities("zellner-partition"),
    ),
    Figure(
        "abalone-probabilities",
        "Rings of abalone on shell weight, 41 partitions",
        "Median, quartiles (box) and 5 and 95 % quantiles (line) over random divisions of the same 4,177 rows, at "
        "cutoffs in posterior standard deviations from the posterior mean given all rows. The rings are not linear in "
        "the weights: slopes of partitions are on average larger than the slope given all rows, and their standard "
        "deviation is 1.5 times that of their posteriors. The -2 log p method does not model this dispersion.",
        ("abalone",),
        _draw_probabilities("abalone"),
    ),
)
