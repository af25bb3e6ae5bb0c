"""Claims of the study `hellinger-accuracy` (P0).

Verdicts rest on exact expectations. A separate claim compares the means of the draws with the expectations.

P0 and P1 tailor noise to the Hellinger distance. K-norm noise is tailored to the neighbouring relation instead: the
unit ball of its norm is the convex hull of the differences of neighbouring counts (Hardt & Talwar 2010; Awan &
Slavković 2021). Where exact means are not stored, the mean of the draws is used, and differences within three of its
Monte Carlo standard errors are undecided.

References
----------
Hardt & Talwar, "On the geometry of differential privacy", STOC 2010. Awan & Slavković, "Structure and sensitivity in
differential privacy: comparing K-norm mechanisms", Journal of the American Statistical Association 116, 2021. Geng,
Kairouz, Oh & Viswanath, "The staircase mechanism in differential privacy", IEEE Journal of Selected Topics in Signal
Processing 9(7), 2015, on optimal noise for a given norm. Joseph & Yu, "Some constructions of private, efficient, and
optimal K-norm and elliptic Gaussian noise", COLT 2024, and Lebeda, "Better Gaussian mechanism using correlated noise",
SOSA 2025, on Gaussian noise tailored to the neighbouring relation.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from mechanisms import MECHANISMS
from mechanisms.core.conjugate import count_candidates
from pipeline import EVERY_PANEL, Claim, Erratum, Finding, claim, claims_in, two_sided_level, verdict
from studies.claims import Look, above, correct, decide, entries, joined, p0, place, ratio, smallest, span
from studies.counts.problems import at_poster

_SIZES = {"k2": (200, 300, 400, 500), "k3": (100, 200, 300), "k4": (100, 200, 300, 400, 500, 600)}
"""Sizes of the claims about calibrated mechanisms: n >= 200 for k2; for k3, all sizes that can be audited."""

_FEW_DRAWS = 100
"""Expected number of draws other than 1 below which the sample variance of a mean is unreliable."""


def _beats_dimension(
    panel: str, mechanism: str, n: tuple[int, ...], model: str, erratum: Erratum | None = None
) -> Claim:
    """Return the claim that a mechanism has a smaller mean distance than `laplace-dimension` at each n > 400."""
    names = mechanism, "laplace-dimension"

    @p0(
        f"beats-dimension-{panel}",
        "The smoothed Hellinger exponential mechanism outperforms the Laplace baseline scaled to the dimension for "
        f"n > 400 ({model}).",
        short=f"For n > 400, {mechanism} beats Laplace noise scaled to the dimension (panel {panel}).",
        needs=at_poster([panel], *names, n=(*n, ...)),
        place="Conclusion",
        erratum=erratum,
        level=0,
    )
    def check(look: Look) -> Finding:
        means = look[panel]["expected_hellinger"]
        mean, other = (means.sel(mechanism=name) for name in names)
        smaller = ", ".join(map(str, mean["n"].values[mean < other]))
        stored = f"Smaller at stored n = {smaller}" if smaller else "Larger at every stored n"
        large = mean["n"].values[mean["n"] > 400]
        numbers = "; ".join(f"n = {n}: {mean.sel(n=n):.4f} against {other.sel(n=n):.4f}" for n in large)
        return verdict((mean < other).sel(n=large).all(), f"{stored}. Exact mean distance: {numbers}.")

    return check


Pairs = tuple[tuple[str, str, str], ...]
"""Panel, and two mechanisms that are compared in it."""


def _needs(pairs: Pairs) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim about pairs: both mechanisms, at `_SIZES` if the panel has several sizes."""
    names = {panel: tuple(name for other, *two in pairs if other == panel for name in two) for panel, *_ in pairs}
    sizes: dict[str, Any] = {panel: {"n": (*n, ...)} for panel, n in _SIZES.items()}
    return {panel: at_poster([panel], *names[panel], **sizes.get(panel, {}))[panel] for panel in names}


@joined("Ratios of exact means: {}.")
def _smaller_means(look: Look, pairs: Pairs) -> Iterator[Finding]:
    """Judge the statement that, for each (panel, first, second), `first` has the smaller mean distance at all n."""
    for panel, first, second in pairs:
        ratios = ratio(look[panel]["expected_hellinger"], first, second)
        if "n" in ratios.dims:
            ratios = ratios.sel(n=ratios["n"].isin(_SIZES[panel]))
        yield verdict((ratios < 1).all(), f"{panel}: {first} to {second} {span(ratios, '.3f')}")


def _ratios(look: Look, other: str) -> dict[str, xr.DataArray]:
    """Return the ratios of exact mean distances of smooth to those of another mechanism by panel."""
    return {panel: ratio(summary["expected_hellinger"], "smooth", other) for panel, summary in look.items()}


_FAILS_AT_4 = Erratum(
    "The mechanism is ahead of Laplace noise scaled to the dimension for n > 400.",
    "It is ahead with 2 and 3 categories; with 4 it is behind, at least up to n = 600.",
)
_BEATS_DIMENSION = (
    _beats_dimension("k2", "smooth", (500,), "2 categories"),
    _beats_dimension("k3", "smooth-n", (500,), "3 categories, N = n + 1 as printed"),
    _beats_dimension("k4", "smooth-n", (500, 600), "4 categories, N = n + 1 as printed", _FAILS_AT_4),
)


@p0(place="Motivation 2", level=0, needs=at_poster(_SIZES, "smooth", "global"))
@joined("Smooth has the smaller mean distance: {}.", ", ")
def smooth_beats_global(look: Look) -> Iterator[Finding]:
    """Smooth sensitivity gives higher accuracy than global sensitivity."""
    for panel, ratios in _ratios(look, "global").items():
        yield verdict((ratios < 1).all(), f"{panel}: {int((ratios < 1).sum())} of {ratios.size} sizes")


@p0(
    short="Noise tailored to the Hellinger distance beats noise scaled to the l1 norm.",
    place="Motivation 1",
    needs=at_poster(_SIZES, "smooth", "laplace"),
    leads=True,
    erratum=Erratum(
        "Calibrating the noise to the Hellinger distance improves on noise scaled to the l1 norm.",
        "Laplace noise with the sensitivity of the histogram, not of the dimension, is ahead of the published "
        "mechanism.",
    ),
    level=0,
)
def tailored_beats_histogram(look: Look) -> Finding:
    """Noise calibrated to the Hellinger distance is more accurate than noise scaled to the l1 norm."""
    ratios = _ratios(look, "laplace")
    values = np.concatenate([ratios_of_panel.dropna("n").values for ratios_of_panel in ratios.values()])
    numbers = ", ".join(f"{panel}: {span(ratios_of_panel)}" for panel, ratios_of_panel in ratios.items())
    return correct(
        (values < 1).all(), (values > 1).all(), f"Ratio of exact mean distances, smooth to laplace: {numbers}."
    )


_EXACT_BEATS: Pairs = tuple(
    (panel, "smooth-exact", other) for panel, other in (("k2", "laplace"), ("k3", "laplace"), ("k3", "geometric"))
)
_GEOMETRIC_BEATS: Pairs = (("k2", "geometric", "smooth-exact"),)
_BOUND_BEATS: Pairs = tuple(
    (panel, "varying-bound", other)
    for panel, other in (("k4", "smooth"), ("k4", "smooth-n"), ("abalone", "smooth"), ("abalone", "laplace"))
)
_BEAT_BOUND: Pairs = (("k2", "laplace", "varying-bound"), ("k4", "hamming-exact", "varying-bound"))


@claim(
    short="Calibrated by an exact audit, smooth beats Laplace noise with 2 or 3 categories.",
    kind="addition",
    level=0,
    needs=_needs(_EXACT_BEATS),
)
def exact_beats_noise(look: Look) -> Finding:
    """The smooth mechanism, calibrated by an exact audit, beats Laplace noise for n >= 200 with 2 categories, and
    Laplace and geometric noise for n >= 100 with 3.
    """
    return _smaller_means(look, _EXACT_BEATS)


@claim(
    short="With 2 categories, geometric noise beats the calibrated Hellinger mechanism.",
    place="Ghosh, Roughgarden & Sundararajan 2012",
    kind="addition",
    level=0,
    needs=_needs(_GEOMETRIC_BEATS),
)
def geometric_is_best_at_two_cells(look: Look) -> Finding:
    """With 2 categories, geometric noise, which is universally optimal for counts, is more accurate than the calibrated
    Hellinger mechanism.
    """
    return _smaller_means(look, _GEOMETRIC_BEATS)


@claim(
    short="Calibrated by a proved bound, varying beats its published form (4 categories).",
    kind="addition",
    level=0,
    needs=_needs(_BOUND_BEATS),
)
def bound_beats_published(look: Look) -> Finding:
    """The varying mechanism, calibrated by a proved bound, is more accurate than the published one with 4 categories,
    and than Laplace noise on real data.
    """
    return _smaller_means(look, _BOUND_BEATS)


@claim(
    short="Calibrated by the bound, varying is behind Laplace noise with 2 categories.",
    kind="addition",
    level=0,
    needs=_needs(_BEAT_BOUND),
)
def bound_is_behind(look: Look) -> Finding:
    """Calibrated by the bound, varying is less accurate than Laplace noise with 2 categories, and than hamming-exact
    with 4 categories.
    """
    return _smaller_means(look, _BEAT_BOUND)


@claim(kind="addition", level=0, also=EVERY_PANEL)
def certified(look: Look) -> Finding:
    """The audited privacy loss of every calibrated mechanism is at most epsilon."""
    stored = [summary for summary in look.values() if "audited_epsilon" in summary]
    losses = np.concatenate([(summary["audited_epsilon"] / summary["epsilon"]).values.ravel() for summary in stored])
    shares = losses[np.isfinite(losses)]
    return verdict(
        shares.size > 0 and (shares <= 1).all(),
        f"{shares.size} calibrations; ratio of audited loss to epsilon from {shares.min():.9f} to {shares.max():.9f}.",
    )


@claim(
    short="Mean distances of draws agree with their exact expectations.",
    kind="self-check",
    level=two_sided_level(5),
    also=EVERY_PANEL,
)
def draws_agree(look: Look) -> Finding:
    """The mean distance of the draws equals its exact expectation within 5 Monte Carlo standard errors."""
    deviations = {}
    for name, summary in look.items():
        if "expected_hellinger" not in summary:  # the panel of random data stores one expectation per trial
            continue
        expected, n_ok = summary["expected_hellinger"], summary["n_ok"]
        # If few draws are expected to differ from 1, the sample variance is unreliable; with mean E, the variance
        # of a draw in [0, 1] is at most E(1 − E).
        bound = ((expected * (1 - expected) / n_ok) ** 0.5).where(n_ok * (1 - expected) < _FEW_DRAWS, 0.0)
        deviations[name] = abs(summary["hellinger_mean"] - expected) / np.maximum(summary["hellinger_mcse"], bound)
    worst, where = max((float(deviation.max()), name) for name, deviation in deviations.items())
    limit, points = look.critical(5), sum(int(deviation.count()) for deviation in deviations.values())
    return verdict(
        worst <= limit,
        f"Largest deviation: {worst:.2f} standard errors (panel {where}) among {points} points; at most {limit:.3g} "
        "are allowed.",
        is_settled=worst > limit,
    )


# Comparisons with K-norm noise and others

_BALANCED = ("k3", "k4", "k10", "abalone")
SKEWED = ("skewed", "skewed-k4")
_TAILORED = (
    *("smooth", "smooth-n", "varying", "global", "smooth-exact", "varying-exact", "global-exact", "varying-bound"),
    *("permute-and-flip", "permute-and-flip-exact"),
)
_IN_ORDER = ("laplace", "laplace-dimension", "geometric")
_LITERATURE = "K-norm noise of Hardt & Talwar 2010 and Awan & Slavković 2021"
_COMPARED = ("smooth", "varying-bound", "laplace", "geometric", "geometric-projected", "k-norm")


def mean_distance(summary: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the mean distances, exact ones if they are stored, and their standard errors (0 for exact means)."""
    exact = summary["expected_hellinger"]
    is_exact = exact.notnull()
    return exact.where(is_exact, summary["hellinger_mean"]), summary["hellinger_mcse"].where(~is_exact, 0.0)


def private_rivals(values: xr.DataArray) -> xr.DataArray:
    """Return the values for all private mechanisms other than k-norm."""
    names = [name for name in values["mechanism"].values.tolist() if name in MECHANISMS]
    return values.sel(mechanism=[name for name in names if MECHANISMS[name].is_private and name != "k-norm"])


def _place(values: xr.DataArray) -> str:
    """Format the coordinates of the data, such as "n = 100, shares = 0.98:0.01:0.01"."""
    return place(values, [name for name in ("n", "shares", "concentration") if name in values.coords])


@joined()
def _compare(look: Look) -> Iterator[Finding]:
    """Judge the statement that k-norm has the smallest mean distance of all private mechanisms in each cell."""
    for panel, (mean, error) in ((panel, mean_distance(summary)) for panel, summary in look.items()):
        k_norm_mean, spread = (array.sel(mechanism="k-norm", drop=True) for array in (mean, error))
        rival, tolerance = private_rivals(mean), 3 * np.hypot(private_rivals(error), spread)
        compared, ahead, behind = (
            rival.notnull() & k_norm_mean.notnull(),
            rival - k_norm_mean > tolerance,
            k_norm_mean - rival > tolerance,
        )
        nearest = smallest((rival / k_norm_mean).where(compared))
        where = f" at {_place(nearest)}" if _place(nearest) else ""
        yield decide(
            (ahead | ~compared).all(),
            behind.any(),
            f"{panel}: ahead in {int(ahead.sum())} of {int(compared.sum())} comparisons, nearest rival "
            f"{nearest['mechanism'].item()} with {nearest:.3f} times its distance{where}",
        )


@p0(
    short="At balanced and real data, k-norm is closest to the true posterior.",
    leads=True,
    place=f"Motivation 1; {_LITERATURE}",
    kind="addition",
    needs=at_poster(_BALANCED, *_COMPARED, ...),
)
def k_norm_is_closest_at_balanced_data(look: Look) -> Finding:
    """At balanced and real data, k-norm is closer to the true posterior than every private mechanism tailored to the
    Hellinger distance and all other noise on counts.
    """
    return _compare(look)


@p0(
    short="At skewed data, k-norm is closest to the true posterior.",
    place=f"Motivation 1; {_LITERATURE}",
    kind="addition",
    needs=at_poster(SKEWED, *_COMPARED, ...),
)
def k_norm_is_closest_at_skewed_data(look: Look) -> Finding:
    """At skewed data, in every stored order of the categories, k-norm is closer to the true posterior than tailored
    mechanisms and all other noise on counts.
    """
    return _compare(look)


@p0(
    short="At random data, k-norm is on average closest to the true posterior.",
    place=f"Motivation 1; {_LITERATURE}",
    kind="addition",
    needs=at_poster(["random"], *_COMPARED, ...),
)
def k_norm_is_closest_at_random_data(look: Look) -> Finding:
    """At Dirichlet-multinomial data of 3 categories, k-norm is on average closer to the true posterior than every other
    private mechanism with an exact mean.
    """
    summary = look["random"]
    ratios = private_rivals(summary["ratio_to_k_norm_mean"]).dropna("mechanism", how="all")
    rivals = ratios["mechanism"].values.tolist()
    error = summary["ratio_to_k_norm_mcse"].sel(mechanism=rivals)
    nearest = smallest(ratios)
    low = summary["ratio_to_k_norm_q05"].sel(mechanism=rivals).min()
    return decide(
        *above(1.0, (ratios, error), 3),
        f"{int(summary['n_ok'].sel(mechanism='k-norm').sum())} data sets, {len(rivals)} rivals. Mean ratio of the "
        f"exact mean to that of k-norm at least {nearest:.3f} ({nearest['mechanism'].item()}, "
        f"{_place(nearest)}); its 5 % quantile over the data sets is at least {low:.3f} for every rival.",
    )


@p0(
    short="At very skewed data, tailored mechanisms have over twice the distance of k-norm.",
    place="Motivation 1, away from balanced data",
    kind="addition",
    needs=at_poster(SKEWED, "smooth", "varying-bound", "k-norm"),
)
@joined()
def tailored_noise_fails_at_skewed_data(look: Look) -> Iterator[Finding]:
    """If a category has over nine tenths of the records, every private mechanism tailored to the Hellinger distance has
    over twice the mean distance of k-norm.
    """
    for panel, summary in look.items():
        shares = summary["shares"].values.tolist()
        mean = mean_distance(summary)[0].sel(shares=[vector for vector in shares if max(entries(vector)) > 0.9])
        best = mean.sel(mechanism=[name for name in _TAILORED if name in mean["mechanism"]]).min("mechanism")
        k_norm_mean = mean.sel(mechanism="k-norm", drop=True)
        least = smallest(best / k_norm_mean)
        yield verdict(
            (best / k_norm_mean > 2).all(),
            f"{panel}: smallest mean of the tailored mechanisms {span(best, '.3f')}, that of k-norm "
            f"{span(k_norm_mean, '.3f')}, ratio at least {least:.2f} ({_place(least)})",
        )


def _spread(expected: xr.DataArray, name: str) -> float:
    """Return the largest relative difference between mean distances at permutations of the same shares."""
    sets = [str(sorted(entries(vector))) for vector in expected["shares"].values.tolist()]
    grouped = expected.sel(mechanism=name, drop=True).groupby(expected["shares"].copy(data=sets))
    return float((grouped.max() / grouped.min() - 1).max())


@p0(
    short="The accuracy of k-norm does not depend on the order of the categories.",
    place="Preliminary Experimental Results, the baseline",
    kind="addition",
    needs=at_poster(SKEWED, "k-norm", *_IN_ORDER),
)
@joined("Largest relative difference between orders: {}.")
def order_of_categories(look: Look) -> Iterator[Finding]:
    """The mean distance of k-norm does not depend on the order of the categories; that of noise clipped in order
    changes by more than 1 %.
    """
    for panel, summary in look.items():
        spread_of_k_norm, *others = (_spread(summary["expected_hellinger"], name) for name in ("k-norm", *_IN_ORDER))
        listed = ", ".join(f"{name} {other:.1%}" for name, other in zip(_IN_ORDER, others, strict=True))
        yield verdict(
            spread_of_k_norm < 1e-9 and min(others) > 0.01, f"{panel}: k-norm {spread_of_k_norm:.0e}, {listed}"
        )


_EXPONENTIAL = ("permute-and-flip", "permute-and-flip-exact", "global", "smooth-exact")


@p0(
    short="Permute-and-flip is at least as accurate as the exponential mechanism.",
    place="Mechanism; McKenna & Sheldon 2020 for the first part",
    kind="addition",
    needs=at_poster(("k2", "k3"), *_EXPONENTIAL),
)
@joined("Ratios of exact means; {}.")
def permute_and_flip(look: Look) -> Iterator[Finding]:
    """Permute-and-flip is at least as accurate as the exponential mechanism on the global sensitivity; calibrated
    exactly, it is behind smooth-exact at balanced data.
    """
    pairs = list(zip(_EXPONENTIAL[:2], _EXPONENTIAL[2:], strict=True))
    for panel, summary in look.items():
        proved, exact = (ratio(summary["expected_hellinger"], *pair).dropna("n") for pair in pairs)
        yield verdict(
            (proved <= 1 + 1e-9).all() and (exact > 1).all(),
            f"{panel}: permute-and-flip to global {span(proved, '.3f')}; {panel}: permute-and-flip-exact to "
            f"smooth-exact {span(exact, '.3f')}",
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
