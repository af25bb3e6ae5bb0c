"""Claims of the study `hellinger-accuracy` (P0).

Verdicts rest on exact expectations. A separate claim compares the means of the draws with the expectations.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.conjugate import count_candidates
from pipeline import Claim, Erratum, Finding, claim, claims_in, critical, two_sided_level, verdict
from studies.claims import Stored, correct, joined, p0, ratio, span
from studies.counts.problems import at_poster

_SIZES = {"k2": (200, 300, 400, 500), "k3": (100, 200, 300), "k4": (100, 200, 300, 400, 500, 600)}
"""Sizes of the claims about calibrated mechanisms: n >= 200 for k2; for k3, all sizes that can be audited."""

_FEW_DRAWS = 100
"""Expected number of draws other than 1 below which the sample variance of a mean is unreliable."""


def _beats_dimension(
    panel: str, mechanism: str, n: tuple[int, ...], model: str, erratum: Erratum | None = None
) -> Claim:
    """Return the claim that a mechanism has a smaller mean distance than `laplace-dimension` at each n > 400."""

    @p0(
        f"beats-dimension-{panel}",
        "The smoothed Hellinger exponential mechanism outperforms the Laplace baseline scaled to the dimension for "
        f"n > 400 ({model}).",
        place="Conclusion",
        erratum=erratum,
        level=0,
    )
    def check(summaries: Stored) -> Finding:
        names = mechanism, "laplace-dimension"
        own, other = (
            at_poster(summaries, panel, *names, n=n)["expected_hellinger"].sel(mechanism=one) for one in names
        )
        smaller = ", ".join(map(str, own["n"].values[own < other]))
        stored = f"Smaller at stored n = {smaller}" if smaller else "Larger at every stored n"
        large = own["n"].values[own["n"] > 400]
        numbers = "; ".join(f"n = {n}: {own.sel(n=n):.4f} against {other.sel(n=n):.4f}" for n in large)
        return verdict((own < other).sel(n=large).all(), f"{stored}. Exact mean distance: {numbers}.")

    return check


@joined("Ratios of exact means: {}.")
def _smaller_means(summaries: Stored, *pairs: tuple[str, str, str]) -> Iterator[Finding]:
    """Judge the statement that, for each (panel, first, second), `first` has the smaller mean distance at all n."""
    sizes: dict[str, Any] = {panel: {"n": n} for panel, n in _SIZES.items()}
    stored = [at_poster(summaries, *pair, **sizes.get(pair[0], {})) for pair in pairs]
    for summary, (panel, first, second) in zip(stored, pairs, strict=True):
        found = ratio(summary["expected_hellinger"], first, second)
        if "n" in found.dims:
            found = found.sel(n=found["n"].isin(_SIZES[panel]))
        yield verdict((found < 1).all(), f"{panel}: {first} to {second} {span(found, '.3f')}")


def _ratios(summaries: Stored, first: str, second: str) -> dict[str, xr.DataArray]:
    """Return the ratios of exact mean distances by panel."""
    stored = {panel: at_poster(summaries, panel, first, second) for panel in ("k2", "k3", "k4")}
    return {panel: ratio(summary["expected_hellinger"], first, second) for panel, summary in stored.items()}


_FAILS_AT_4 = Erratum(
    "The mechanism is ahead of Laplace noise scaled to the dimension for n > 400.",
    "It is ahead with 2 and 3 categories; with 4 it is behind, at least up to n = 600.",
)
_BEATS_DIMENSION = (
    _beats_dimension("k2", "smooth", (500,), "2 categories"),
    _beats_dimension("k3", "smooth-n", (500,), "3 categories, N = n + 1 as printed"),
    _beats_dimension("k4", "smooth-n", (500, 600), "4 categories, N = n + 1 as printed", _FAILS_AT_4),
)


@p0(place="Motivation 2", level=0)
@joined("Smooth has the smaller mean distance: {}.", ", ")
def smooth_beats_global(summaries: Stored) -> Iterator[Finding]:
    """Smooth sensitivity gives higher accuracy than global sensitivity."""
    for panel, found in _ratios(summaries, "smooth", "global").items():
        yield verdict((found < 1).all(), f"{panel}: {int((found < 1).sum())} of {found.size} sizes")


@p0(
    place="Motivation 1",
    leads=True,
    erratum=Erratum(
        "Calibrating the noise to the Hellinger distance improves on noise scaled to the l1 norm.",
        "Laplace noise with the sensitivity of the histogram, not of the dimension, is ahead of the published "
        "mechanism.",
    ),
    level=0,
)
def tailored_beats_histogram(summaries: Stored) -> Finding:
    """Noise calibrated to the Hellinger distance is more accurate than noise scaled to the l1 norm."""
    ratios = _ratios(summaries, "smooth", "laplace")
    behind = all((found > 1).all() for found in ratios.values())
    numbers = ", ".join(f"{panel}: {span(found)}" for panel, found in ratios.items())
    return correct(not behind, behind, f"Ratio of exact mean distances, smooth to laplace: {numbers}.")


@claim(kind="addition", level=0)
def exact_beats_noise(summaries: Stored) -> Finding:
    """The smooth mechanism, calibrated by an exact audit, is pure DP. It is more accurate than Laplace noise on the
    counts for n >= 200 with 2 categories, and than Laplace and geometric noise for n >= 100 with 3 categories.
    """
    pairs = ("k2", "laplace"), ("k3", "laplace"), ("k3", "geometric")
    return _smaller_means(summaries, *((panel, "smooth-exact", other) for panel, other in pairs))


@claim(place="Ghosh, Roughgarden & Sundararajan 2012", kind="addition", level=0)
def geometric_is_best_at_two_cells(summaries: Stored) -> Finding:
    """With 2 categories, geometric noise, which is universally optimal for counts, is more accurate than the calibrated
    Hellinger mechanism.
    """
    return _smaller_means(summaries, ("k2", "geometric", "smooth-exact"))


@claim(kind="addition", level=0)
def bound_beats_published(summaries: Stored) -> Finding:
    """The varying mechanism, calibrated by a sharper bound, is pure DP. It is more accurate than the published
    mechanism at every size with 4 categories, where no exact audit is possible, and more accurate than Laplace noise on
    real data.
    """
    pairs = ("k4", "smooth"), ("k4", "smooth-n"), ("abalone", "smooth"), ("abalone", "laplace")
    return _smaller_means(summaries, *((panel, "varying-bound", other) for panel, other in pairs))


@claim(kind="addition", level=0)
def bound_is_behind(summaries: Stored) -> Finding:
    """The varying mechanism calibrated by the bound is less accurate than Laplace noise with 2 categories, and less
    accurate with 4 categories than the exponential mechanism on the Hamming distance, which can be calibrated exactly
    at every size.
    """
    return _smaller_means(summaries, ("k2", "laplace", "varying-bound"), ("k4", "hamming-exact", "varying-bound"))


@claim(kind="addition", level=0)
def certified(summaries: Stored) -> Finding:
    """The audited privacy loss of every calibrated mechanism is at most epsilon."""
    stored = [summary for summary in summaries.values() if "audited_epsilon" in summary]
    losses = np.concatenate([(summary["audited_epsilon"] / summary["epsilon"]).values.ravel() for summary in stored])
    shares = losses[np.isfinite(losses)]
    return verdict(
        shares.size > 0 and (shares <= 1).all(),
        f"{shares.size} calibrations; ratio of audited loss to epsilon from {shares.min():.9f} to {shares.max():.9f}.",
    )


@claim(kind="self-check", level=two_sided_level(5))
def draws_agree(summaries: Stored) -> Finding:
    """The mean distance of the draws equals its exact expectation within 5 Monte Carlo standard errors."""
    deviations = {}
    for name, summary in summaries.items():
        if "expected_hellinger" not in summary:  # the panel of random data stores one expectation per trial
            continue
        expected, n_ok = summary["expected_hellinger"], summary["n_ok"]
        # If few draws are expected to differ from 1, the sample variance is unreliable; with mean E, the variance
        # of a draw in [0, 1] is at most E(1 − E).
        bound = ((expected * (1 - expected) / n_ok) ** 0.5).where(n_ok * (1 - expected) < _FEW_DRAWS, 0.0)
        deviations[name] = abs(summary["hellinger_mean"] - expected) / np.maximum(summary["hellinger_mcse"], bound)
    worst, where = max((float(one.max()), name) for name, one in deviations.items())
    limit, points = critical(5), sum(int(one.count()) for one in deviations.values())
    return verdict(
        worst <= limit,
        f"Largest deviation: {worst:.2f} standard errors (panel {where}) among {points} points; at most {limit:.3g} "
        "are allowed.",
        is_settled=worst > limit,
    )


CLAIMS = (*_BEATS_DIMENSION, *claims_in(globals()))


def candidates(summaries: Mapping[str, Any]) -> str:
    """Return the numbers of candidates (count vectors with sum n) for three and four categories as text."""
    return f"k = 3, n = 100: {count_candidates(100, 3):,} candidates; k = 4, n = 600: {count_candidates(600, 4):,}."


ERRATA = (
    Erratum(
        "The number of candidates, in the rate γ, is n + 1.",
        "It is the number of count vectors, C(n + k − 1, k − 1), which is n + 1 for two categories only.",
        "Mechanism",
        "P0",
        candidates,
    ),
)
