"""Claims of the study `partition-probability` (P2, chapter 3)."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy import special

from mechanisms.core.exact_losses import exceeds
from mechanisms.regression.partition_probability import score_slope
from pipeline import Erratum, Finding, claim, claims_in
from studies.claims import (
    Estimate,
    Look,
    above,
    at_most,
    both,
    correct,
    decide,
    in_panels,
    joined,
    listed,
    mean,
    named,
    p2,
)

_CUTOFFS = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
_AGREE = 0.02
"""Largest difference of means that are considered similar, about the resolution of a figure."""

_DECIDING = 3.0  # in Monte Carlo standard errors
_BIAS, _RMSE = 0.006, 0.02
_SLOPE = 0.03


def _default(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim about methods in the panel `default`, at the published cutoffs."""
    return {"default": {"cutoff": _CUTOFFS, "algorithm": tuple(methods)}}


def _with_noiseless(*methods: str) -> tuple[str, ...]:
    """Return methods and their variants without noise."""
    return *methods, *(f"{name}-noiseless" for name in methods)


def _apart(ds: xr.Dataset, names: Sequence[str]) -> Estimate:
    """Return the absolute mean differences of methods."""
    difference, error = mean(ds, "difference", algorithm=list(names))
    return abs(difference), error


def _over(ds: xr.Dataset, cutoffs: Sequence[int]) -> Estimate:
    """Return the mean differences at cutoffs below the true slope, and those above it with the other sign."""
    difference, error = mean(ds, "difference", cutoff=list(cutoffs))
    return difference * -np.sign(difference["cutoff"]), error


def _differences(ds: xr.Dataset) -> str:
    return f"at cutoffs {listed(ds['cutoff'], 'g')}: {listed(ds['difference_mean'], '+.4f')}"


def _means_agree(default: xr.Dataset, *methods: str) -> Finding:
    """Judge that means equal those given all rows; "corrected" if only those of the corrected, second method do."""
    names, repaired = ([f"{name}-noiseless", name] for name in methods)
    gaps = _apart(default, (*names, *repaired))[0].max("cutoff")
    evidence = (
        f"Largest difference of means over cutoffs, compared with the posterior given all rows (similar: at most "
        f"{_AGREE}): {named(gaps, (*names, *repaired), '.4f', 'algorithm')}. Noise shifts all means towards 1/2."
    )
    holds, fails = at_most(_AGREE, _apart(default, names), _DECIDING, slack=0.0)
    is_repaired = (gaps.sel(algorithm=repaired) <= _AGREE).all()
    return correct(False, is_repaired, evidence) if fails else decide(holds, False, evidence)


_NORMALITY = ("normality", "normality-corrected")
_FISHER = ("fisher", "fisher-corrected")


@p2(
    short="Normality method: mean probabilities are similar to those given all rows.",
    place="section 3.1.1, Figure 3.1",
    needs=_default(("full", *_with_noiseless(*_NORMALITY))),
)
def means_agree_normality(look: Look) -> Finding:
    """The mean probabilities given all rows, by the normality method without noise, and with noise are similar at every
    cutoff.
    """
    return _means_agree(look["default"], *_NORMALITY)


@p2(
    short="-2 log p method: mean probabilities are similar to those given all rows.",
    place="section 3.2.1, Figure 3.3",
    needs=_default(("full", *_with_noiseless(*_FISHER))),
)
def means_agree_fisher(look: Look) -> Finding:
    """The mean probabilities given all rows, by the -2 log p method without noise, and with noise are similar at every
    cutoff.
    """
    return _means_agree(look["default"], *_FISHER)


@p2(
    short="Below the true slope, the normality method overestimates; above, the opposite.",
    place="section 3.1.1, Figure 3.2",
    needs=_default(["normality-noiseless"]),
)
def normality_over_then_under(look: Look) -> Finding:
    """The normality method overestimates probabilities below the true slope and underestimates them above it."""
    normality = look["default"].sel(algorithm="normality-noiseless")
    return decide(
        *above(0.0, _over(normality, (-3, -2, -1, 1, 2, 3)), _DECIDING), f"Mean difference {_differences(normality)}."
    )


@claim(
    short="With the factor sqrt(2M), the normality method has bias <= .006 at every cutoff.",
    kind="addition",
    needs=_default(_with_noiseless(*_NORMALITY)),
    erratum=Erratum(
        "The normal score of the mean probability times √M.",
        "√(2M): the partitions' means scatter as widely as each posterior.",
        place="section 3.1, equation 3.10",
        paper="P2",
    ),
)
def corrected_does_not(look: Look) -> Finding:
    """The normality method with the factor sqrt(2M) in place of sqrt(M) has bias <= .006 at every cutoff, and RMSE <=
    .02 at 3 sd from the true slope.
    """
    default = look["default"]
    printed, corrected = (default.sel(algorithm=f"{name}-noiseless") for name in _NORMALITY)
    ends = default.sel(cutoff=[-3, 3])
    rmse, spread = (
        ends[name].sel(algorithm=corrected["algorithm"]) for name in ("difference_rmse", "difference_rmse_mcse")
    )
    others = ends["difference_rmse"].max("cutoff")
    bias = abs(corrected["difference_mean"]), corrected["difference_mcse"]
    return decide(
        *both(at_most(_BIAS, bias, _DECIDING, slack=0.0), at_most(_RMSE, (rmse, spread), _DECIDING, slack=0.0)),
        f"Bias {_differences(corrected)} (standard error up to {bias[1].max():.4f}; at most {_BIAS} is required), "
        f"with the printed factor {listed(printed['difference_mean'], '+.4f')}. RMSE at -3 and 3 sd up to "
        f"{rmse.max():.4f} (standard error {spread.max():.4f}; at most {_RMSE} is required), with the "
        f"printed factor {named(others, ('normality-noiseless',), '.4f', 'algorithm')}; with noise "
        f"{named(others, _NORMALITY, '.4f', 'algorithm')}.",
    )


_EXPECTED_SLOPES = {
    "full": 1.0,
    "normality-noiseless": math.sqrt(0.5),
    "normality-corrected-noiseless": 1.0,
    "fisher-noiseless": math.nan,  # depends on the smallest probability
    "fisher-corrected-noiseless": 1.0,
}


@claim(
    short="Scores change by 1/sqrt(2) (normality), .90 (-2 log p) and 1 (corrected).",
    kind="addition",
    needs=_default(_EXPECTED_SLOPES),
)
@joined(f"{{}}; deviations of at most {_SLOPE} are allowed.")
def slopes_of_scores(look: Look) -> Iterator[Finding]:
    """The score changes by 1/sqrt(2) for the normality method, .90 for -2 log p and 1 for the corrected ones, if the
    normal score of the probability changes by 1.
    """
    default = look["default"]
    expected = {**_EXPECTED_SLOPES, "fisher-noiseless": score_slope(float(default["least_probability"]))}
    for name, slope in expected.items():
        ends = default.sel(algorithm=name, cutoff=[-1, 1])
        score = special.ndtri(ends["probability_median"].values)
        error = ends["probability_median_mcse"].values * math.sqrt(2 * math.pi) * np.exp(score**2 / 2)
        score_change, spread = float(score[1] - score[0]) / 2, float(np.hypot(*error)) / 2
        off = abs(score_change - slope)
        evidence = f"{name} {score_change:.3f} (expected {slope:.3f}, Monte Carlo standard error {spread:.3f})"
        yield decide(off <= _SLOPE, off > _SLOPE + _DECIDING * spread, evidence)


_VARYING = ("normality-noiseless", "normality", "fisher-noiseless", "fisher")


@p2(
    short="Differences from all rows vary most at cutoffs near the true slope.",
    place="sections 3.1.1 and 3.2.1, Figures 3.2 and 3.4",
    needs=_default(_VARYING),
)
@joined(f"Standard deviation of the differences at cutoffs {listed(_CUTOFFS, 'g')}: {{}}.")
def largest_near_the_truth(look: Look) -> Iterator[Finding]:
    """The differences from the probabilities given all rows vary most at cutoffs near the true slope."""
    default = look["default"]
    for name in _VARYING:
        sd = default["difference_sd"].sel(algorithm=name)
        error = sd / np.sqrt(2.0 * default["n_ok"].sel(algorithm=name))  # of normal differences
        near, far = ((spread.sel(cutoff=0), spread.sel(cutoff=[-3, -2, 2, 3])) for spread in (sd, error))
        excess, limit = near[0] - near[1], np.hypot(*far)
        yield decide(*above(0.0, (excess, limit), _DECIDING), f"{name} {listed(sd, '.3f')}")


@p2(
    place="section 3.2.1, Figure 3.4",
    needs=_default(f"{name}-noiseless" for name in _FISHER),
    erratum=Erratum(
        "The −2 log p method has no clear pattern of under- or overestimation.",
        "Its normal score has slope .90 instead of 1.",
        place="section 3.2.1",
    ),
)
def fisher_has_no_pattern(look: Look) -> Finding:
    """The -2 log p method has no clear pattern of under- or overestimation."""
    printed, corrected = (look["default"].sel(algorithm=f"{name}-noiseless") for name in _FISHER)
    over, error = _over(printed, (-2, 2))
    return decide(
        at_most(_BIAS, (abs(over), error), _DECIDING)[0],
        above(0.0, (over, error), _DECIDING)[0],
        f"Mean difference without noise {_differences(printed)}. "
        f"Corrected method: {listed(corrected['difference_mean'], '+.4f')}.",
    )


_AUDITED = ("normality", "fisher-published", "fisher")


@p2(
    short="Noise of scale -2 ln p*/(M epsilon) makes the -2 log p method private.",
    place="section 3.2",
    needs={"audit": {"algorithm": _AUDITED}},
    leads=True,
    erratum=Erratum(
        "The sum of −2 log p has sensitivity −2 ln p*/M.", "−2 ln p*: as printed the noise is M times too small."
    ),
)
def fisher_noise_is_private(look: Look) -> Finding:
    """Laplace noise of scale -2 ln p*/(M epsilon) makes the -2 log p method epsilon-differentially private."""
    ds = look["audit"]
    losses, n, epsilon = ds["exact_epsilon"], int(ds["n"]), float(ds["epsilon"])
    return correct(
        not exceeds(float(losses.sel(algorithm="fisher-published")), epsilon),
        not exceeds(float(losses.sel(algorithm="fisher")), epsilon),
        f"Exact loss when one of {n:,} rows is replaced by the worst case, for epsilon = {epsilon:g} and "
        f"{n // int(ds['partition_size']):,} partitions: {named(losses, _AUDITED, '.6g', 'algorithm')}. The "
        "sensitivity of the sum is -2 ln p*, which must not be divided by the number of partitions.",
    )


_AT_THE_SLOPE = ("normality-noiseless", "normality-corrected-noiseless", "fisher-noiseless")


@p2(
    short="With g = the rows of the partition, partitions agree with all rows.",
    place="sections 3.1.1 and 3.2.1",
    needs=in_panels(("default", "zellner-partition"), cutoff=(0.0, ...), algorithm=("full", *_AT_THE_SLOPE)),
    erratum=Erratum(
        "Zellner's g is the number of rows of a partition.",
        "g = n in every partition; otherwise each posterior is shrunk by six posterior standard deviations.",
        place="section 3.1",
    ),
)
def g_is_the_partitions_length(look: Look) -> Finding:
    """With g = the number of rows of the partition in Zellner's prior, probabilities from partitions equal those given
    all rows.
    """
    here, there = (ds["probability_mean"].sel(cutoff=0) for ds in look.values())
    numbers = "; ".join(
        f"{name} {float(there.sel(algorithm=name)):.4f} (g = n: {float(here.sel(algorithm=name)):.4f})"
        for name in ("full", *_AT_THE_SLOPE)
    )
    return correct(
        not float(there.sel(algorithm=list(_AT_THE_SLOPE)).min()) > 0.99,
        (_apart(look["default"], _AT_THE_SLOPE)[0] < 0.1).all(),
        f"Mean probability at the true slope: {numbers}. The correct value is about 1/2.",
    )


CLAIMS = claims_in(globals())
