"""Claims and figures of the study `hellinger-accuracy` (P0).

Verdicts rest on exact expectations. A separate claim compares the draws with them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from mechanisms.conjugate import count_candidates
from pipeline import Claim, Erratum, Figure, Finding, claim, verdict
from studies.styles import MECHANISM_STYLES


def _ahead(summary: xr.Dataset, first: str, second: str) -> xr.DataArray:
    """Return True in each cell where `first` has a smaller exact expectation than `second`."""
    expected = summary["expected_hellinger"]
    return expected.sel(mechanism=first) < expected.sel(mechanism=second)


def _beats_dimension(panel: str, mechanism: str) -> Any:
    """Return a check that `mechanism` has a smaller mean distance than `laplace-dimension` at every n > 400."""

    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        summary = summaries[panel]
        ahead = _ahead(summary, mechanism, "laplace-dimension")
        expected = summary["expected_hellinger"]
        sizes = [n for n in summary["n"].values.tolist() if n > 400]
        numbers = "; ".join(
            f"n = {n}: {expected.sel(n=n, mechanism=mechanism):.4f} against "
            f"{expected.sel(n=n, mechanism='laplace-dimension'):.4f}"
            for n in sizes
        )
        where = [n for n in summary["n"].values.tolist() if bool(ahead.sel(n=n))]
        stored = f"Smaller at stored n = {', '.join(map(str, where))}" if where else "Larger at every stored n"
        holds = all(bool(ahead.sel(n=n)) for n in sizes)
        return verdict(holds, f"{stored}. Exact mean distance: {numbers}.")

    return check


def _smooth_beats_global(summaries: Mapping[str, xr.Dataset]) -> Finding:
    panels = [name for name in ("k2", "k3", "k4") if name in summaries]
    n_ahead = {name: _ahead(summaries[name], "smooth", "global") for name in panels}
    counts = ", ".join(f"{name}: {int(ahead.sum())} of {ahead.size} sizes" for name, ahead in n_ahead.items())
    holds = all(bool(ahead.all()) for ahead in n_ahead.values())
    return verdict(holds, f"Smooth has the smaller mean distance: {counts}.")


def _laplace_is_ahead(summaries: Mapping[str, xr.Dataset]) -> Finding:
    ratios = {
        name: summaries[name]["expected_hellinger"].sel(mechanism="smooth")
        / summaries[name]["expected_hellinger"].sel(mechanism="laplace")
        for name in ("k2", "k3", "k4")
    }
    numbers = ", ".join(f"{name}: {float(r.min()):.2f} to {float(r.max()):.2f}" for name, r in ratios.items())
    holds = all(bool((ratio > 1).all()) for ratio in ratios.values())
    return Finding(
        "corrected" if holds else "holds",
        f"Laplace noise scaled to the sensitivity of the histogram {'has' if holds else 'does not have'} the "
        f"smaller mean distance everywhere. Ratio of mean distances, smooth to laplace: {numbers}.",
    )


def _ours_ahead(pairs: Mapping[str, tuple[str, tuple[str, ...]]]) -> Any:
    """Return a check that one mechanism per panel has a smaller exact mean than its rivals at the required sizes."""

    def check(summaries: Mapping[str, xr.Dataset]) -> Finding:
        evidence, holds = [], True
        for panel, (name, rivals) in pairs.items():
            expected = summaries[panel]["expected_hellinger"]
            if "n" in expected.dims:
                expected = expected.sel(n=[n for n in expected["n"].values.tolist() if n in _SIZES[panel]])
            for rival in rivals:
                ratio = expected.sel(mechanism=name) / expected.sel(mechanism=rival)
                holds &= bool((ratio < 1).all())
                evidence.append(f"{panel}: {name} to {rival} {_range(ratio)}")
        return verdict(holds, f"Ratios of exact means: {'; '.join(evidence)}.")

    return check


def _range(ratio: xr.DataArray) -> str:
    low, high = float(ratio.min()), float(ratio.max())
    return f"{low:.3f}" if ratio.size == 1 else f"{low:.3f} to {high:.3f}"


def _certified(summaries: Mapping[str, xr.Dataset]) -> Finding:
    losses = {name: (s["audited_epsilon"] / s["epsilon"]).values.ravel() for name, s in summaries.items()}
    shares = np.concatenate([loss[np.isfinite(loss)] for loss in losses.values()])
    holds = shares.size > 0 and bool((shares <= 1).all())
    return verdict(
        holds,
        f"{shares.size} calibrations; ratio of audited loss to epsilon from {shares.min():.9f} to {shares.max():.9f}.",
    )


def _draws_agree(summaries: Mapping[str, xr.Dataset]) -> Finding:
    worst, where, points = 0.0, "", 0
    for name, summary in summaries.items():
        z = abs(summary["hellinger_mean"] - summary["expected_hellinger"]) / summary["hellinger_mcse"]
        points += int(z.count())
        if float(z.max()) >= worst:
            worst, where = float(z.max()), name
    holds = worst <= 5
    return verdict(
        holds,
        f"Largest deviation: {worst:.2f} standard errors (panel {where}) among {points} points; at most 5 are allowed.",
    )


def candidates(summaries: Mapping[str, Any]) -> str:
    """Count the candidates for more than two categories."""
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


_SIZES = {"k2": (200, 300, 400, 500), "k3": (100, 200, 300), "k4": (100, 200, 300, 400, 500, 600)}
"""Sizes of the claims about calibrated mechanisms: n >= 200 for k2; for k3, all sizes that can be audited."""


def _as_published(panel: str) -> dict[str, tuple[Any, ...]]:
    """Return the constants used in the poster."""
    k = 3 if panel == "abalone" else int(panel[1:])
    return {"epsilon": (1.0,), "delta": (1e-8,), "prior": (":".join("1" * k),)}


def _list_claims() -> tuple[Claim, ...]:
    conclusion = (
        "The smoothed Hellinger exponential mechanism outperforms the Laplace baseline scaled to the dimension for "
        "n > 400"
    )
    behind = Erratum(
        "The mechanism is ahead of Laplace noise scaled to the dimension for n > 400.",
        "It is ahead with 2 and 3 categories; with 4 it is behind, at least up to n = 600.",
    )
    cases = (
        ("k2", "smooth", (500,), None),
        ("k3", "smooth-n", (500,), None),
        ("k4", "smooth-n", (500, 600), behind),
    )
    return (
        *(
            claim(
                f"beats-dimension-{panel}",
                f"{conclusion} ({panel[1:]} categories{', N = n + 1 as printed' if mechanism == 'smooth-n' else ''}).",
                paper="P0",
                place="Conclusion",
                needs={panel: {"n": sizes, "mechanism": (mechanism, "laplace-dimension"), **_as_published(panel)}},
                erratum=erratum,
            )(_beats_dimension(panel, mechanism))
            for panel, mechanism, sizes, erratum in cases
        ),
        claim(
            "smooth-beats-global",
            "Smooth sensitivity gives higher accuracy than global sensitivity.",
            paper="P0",
            place="Motivation 2",
            needs={panel: {"mechanism": ("smooth", "global"), **_as_published(panel)} for panel in ("k2", "k3", "k4")},
        )(_smooth_beats_global),
        claim(
            "tailored-beats-histogram",
            "Noise calibrated to the Hellinger distance is more accurate than noise scaled to the l1 norm.",
            paper="P0",
            place="Motivation 1",
            needs={panel: {"mechanism": ("smooth", "laplace"), **_as_published(panel)} for panel in ("k2", "k3", "k4")},
            erratum=Erratum(
                "Calibrating the noise to the Hellinger distance improves on noise scaled to the l1 norm.",
                "Laplace noise with the sensitivity of the histogram, not of the dimension, is ahead of the published "
                "mechanism.",
            ),
        )(_laplace_is_ahead),
        claim(
            "exact-beats-noise",
            "The smooth mechanism, calibrated by an exact audit, is pure DP. It is more accurate than Laplace noise on "
            "the counts for n >= 200 with 2 categories, and than Laplace and geometric noise for n >= 100 with 3 "
            "categories.",
            kind="addition",
            needs={
                panel: {"n": _SIZES[panel], "mechanism": ("smooth-exact", *rivals), **_as_published(panel)}
                for panel, rivals in (("k2", ("laplace",)), ("k3", ("laplace", "geometric")))
            },
        )(_ours_ahead({"k2": ("smooth-exact", ("laplace",)), "k3": ("smooth-exact", ("laplace", "geometric"))})),
        claim(
            "geometric-is-best-at-two-cells",
            "With 2 categories, geometric noise, which is universally optimal for counts, is more accurate than the "
            "calibrated Hellinger mechanism.",
            place="Ghosh, Roughgarden & Sundararajan 2012",
            kind="addition",
            needs={"k2": {"n": _SIZES["k2"], "mechanism": ("smooth-exact", "geometric"), **_as_published("k2")}},
        )(_ours_ahead({"k2": ("geometric", ("smooth-exact",))})),
        claim(
            "bound-beats-published",
            "The varying mechanism, calibrated by a sharper bound, is pure DP. It is more accurate than the published "
            "mechanism at every size with 4 categories, where no exact audit is possible, and more accurate than "
            "Laplace noise on real data.",
            kind="addition",
            needs={
                "k4": {
                    "n": _SIZES["k4"],
                    "mechanism": ("varying-bound", "smooth", "smooth-n"),
                    **_as_published("k4"),
                },
                "abalone": {"mechanism": ("varying-bound", "smooth", "laplace"), **_as_published("abalone")},
            },
        )(
            _ours_ahead(
                {
                    "k4": ("varying-bound", ("smooth", "smooth-n")),
                    "abalone": ("varying-bound", ("smooth", "laplace")),
                }
            )
        ),
        claim(
            "bound-is-behind",
            "The varying mechanism calibrated by the bound is less accurate than Laplace noise with 2 categories, and "
            "less accurate with 4 categories than the exponential mechanism on the Hamming distance, which can be "
            "calibrated exactly at every size.",
            kind="addition",
            needs={
                "k2": {"n": _SIZES["k2"], "mechanism": ("varying-bound", "laplace"), **_as_published("k2")},
                "k4": {"n": _SIZES["k4"], "mechanism": ("varying-bound", "hamming-exact"), **_as_published("k4")},
            },
        )(_ours_ahead({"k2": ("laplace", ("varying-bound",)), "k4": ("hamming-exact", ("varying-bound",))})),
        claim(
            "certified",
            "The audited privacy loss of every calibrated mechanism is at most epsilon.",
            kind="addition",
            needs={},
        )(_certified),
        claim(
            "draws-agree",
            "The mean distance of the draws equals its exact expectation within 5 Monte Carlo standard errors.",
            kind="self-check",
            needs={},
        )(_draws_agree),
    )


CLAIMS = _list_claims()


def _draw_against_n(panel: str) -> Any:
    def draw(summaries: Mapping[str, xr.Dataset]) -> Any:
        from studies.figures import draw_lines

        return draw_lines(summaries[panel], "n", "hellinger", "expected_hellinger", "mechanism", MECHANISM_STYLES)

    return draw


def _draw_prior(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.figures import draw_quartiles

    return draw_quartiles(summaries["prior"], "prior", "hellinger", "mechanism", MECHANISM_STYLES)


def _draw_abalone(summaries: Mapping[str, xr.Dataset]) -> Any:
    from studies.figures import draw_ranges

    return draw_ranges(summaries["abalone"], "hellinger", "expected_hellinger", "mechanism", MECHANISM_STYLES)


_LINES = (
    "Mean Hellinger distance between the true and the released posterior against the number of records. Markers show "
    "means of the draws; error bars show ± 2 Monte Carlo standard errors and are often smaller than the marker. Lines "
    "connect the exact expectations."
)
FIGURES = (
    *(
        Figure(
            f"accuracy-k{k}",
            f"Accuracy against n, {k} categories (P0, Figure {label})",
            _LINES,
            (f"k{k}",),
            _draw_against_n(f"k{k}"),
        )
        for k, label in ((2, "2a"), (3, "2b"), (4, "2c"))
    ),
    Figure(
        "accuracy-prior",
        "Accuracy against the prior (P0, Figure 3a)",
        "Hellinger distance for 50 successes in 100 records under the prior Beta(a, a), for each mechanism. Lines are "
        "medians of the draws, dark bands span the quartiles, and light bands span the 5th to the 95th percentile.",
        ("prior",),
        _draw_prior,
    ),
    Figure(
        "accuracy-abalone",
        "Accuracy on real data: the sexes of 4,177 abalones",
        "Hellinger distance between the true and the released posterior. Thick bars span the quartiles of the draws, "
        "thin bars the 5th to the 95th percentile; the marker is the exact mean.",
        ("abalone",),
        _draw_abalone,
    ),
)
