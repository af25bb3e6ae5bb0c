"""Claims of the study `calibration` (P4)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from pipeline import Claim, Erratum, Finding, claim, two_sided_level, verdict
from pipeline.declare.claims import Kind
from studies.claims import Look, count, gap, highest, in_panels, named, p4, span, tested, uniform
from studies.inference.noisy_trials import LARGEST_AUGMENTED, LARGEST_RHAT

_LEVEL = 0.01
_FEWEST_FOR_PUBLISHED = 500
"""Trials for verdicts on the printed sampler for truncated families; fewer would often not detect its small errors."""
MODELS: dict[str, tuple[str, Kind]] = {
    "binomial": ("gibbs", "conclusion"),
    "multinomial": ("gibbs", "conclusion"),
    "exponential": ("gibbs-published", "conclusion"),
    "exponential-wide": ("gibbs-published", "addition"),  # P4 does not use these bounds
    "exponential-paper-bounds": ("gibbs-published", "conclusion"),
}
"""Panel -> the Gibbs sampler as printed, and the kind of claims of P4 in this panel."""

_COUNTED = ("binomial", "multinomial")
EXPONENTIAL = ("exponential", "exponential-wide", "exponential-paper-bounds")
_P4: dict[str, Any] = {"paper": "P4", "place": "section 5"}
_ADDED: dict[str, Any] = {"kind": "addition"}


def _ends(panel: str, *methods: str, most: int = 100_000) -> dict[str, dict[str, Any]]:
    """Return the needs of a claim: the ends of the published grid; verdicts cover all stored n and ε."""
    return {panel: {"n": (10, most, ...), "epsilon": (0.01, 0.1, ...), "algorithm": methods}}


def _calibrated(panel: str, method: str, look: Look) -> Finding:
    """Judge the statement that a method is calibrated at all values of n to which it applies."""
    part = look[panel].sel(algorithm=method)
    finding = uniform(tested(part), look.level)
    text = f"{method}: KS distance {span(part['pit_ks'], '.3f')}; {finding.evidence}"
    if (part["rhat_n_values"] > 0).any():
        text += (
            f"; split R-hat above {LARGEST_RHAT} in up to {part['rhat_stuck'].max():.1%} of the trials of a "
            f"cell, smallest effective sample size {part['ess_least'].min():.0f}"
        )
    return replace(finding, evidence=f"{text}.", is_settled=finding.verdict != "holds")


def _over_confident(panel: str, method: str, look: Look) -> Finding:
    """Judge the statement that a method is over-confident at the smallest n and ε, and calibrated at the largest."""
    part = look[panel].sel(algorithm=method)
    small, large = part.isel(n=0, epsilon=0), part.isel(n=-1, epsilon=-1)
    tails, p = small["pit_tails"], large["pit_p"]
    over = (tails > 0.1 + look.critical(5) * np.sqrt(0.09 / small["n_ok"])).all()
    right = bool((p > look.level / p.size).all())
    return verdict(
        over and right,
        f"{method}: {tails.max():.0%} of the quantiles outside [0.05, 0.95] (10% if calibrated) at the smallest n and "
        f"epsilon; KS distance {large['pit_ks'].max():.3f} (p = {p.min():.2g}) at the largest.",
        is_settled=not right,
    )


def _nearer(panel: str, method: str, look: Look, to: str) -> Finding:
    """Judge the statement that the MMD of a method is not significantly larger than that of another method."""
    less, error = gap(look[panel], "mmd2", method, to)
    limit = look.critical(3) * error
    behind = less > limit
    text = f"{method} has a smaller MMD^2 than {to} in {count(less < 0)} cells"
    if behind.any():
        text += f"; significantly larger in {int(behind.sum())}, by up to {highest(less, '.2g')}"
    return verdict(not behind.any(), f"{text}.", is_settled=bool(behind.any() or (less < -limit).all()))


def _claims(
    judge: Callable[..., Finding],
    label: str,
    statement: str,
    short: str,
    method: str = "",
    panels: Iterable[str] = MODELS,
    options: Mapping[str, Any] = MappingProxyType(_P4),
    to: str = "",
    most: int = 100_000,
) -> Iterator[Claim]:
    """Yield the claims that a statement holds for a method, by default the sampler as printed, one per panel.

    `short` is the statement in fewer words. A statement may compare the method with another one, `to`. The method
    applies up to n = `most`.
    """
    judge = partial(judge, to=to) if to else judge
    for panel in panels:
        printed, kind = MODELS[panel]
        needs = _ends(panel, method or printed, *filter(None, [to]), most=most)
        fewest = _FEWEST_FOR_PUBLISHED if not method and printed == "gibbs-published" else 100
        declared = {"level": _LEVEL, "kind": kind, "min_trials": fewest, "needs": needs, **options}
        check = partial(judge, panel, method or printed)
        yield claim(f"{label}-{panel}", f"{statement} (panel {panel}).", short=f"{short} ({panel}).", **declared)(check)


@p4(place="section 5", level=two_sided_level(5), needs=_ends("binomial", "ops", "ops-likelihood"))
def ops_is_over_dispersed(look: Look) -> Finding:
    """Posteriors from one-posterior sampling (OPS) are over-dispersed."""
    ds = look["binomial"]
    tails, ks = ds["pit_tails"], ds["pit_ks"]
    limit = 0.1 - look.critical(5) * np.sqrt(0.09 / ds["n_ok"].sel(algorithm="ops"))
    if not (limit > 0).all():
        return verdict(None, "Too few trials to detect over-dispersion; at least 250 are needed.")
    is_over = tails.sel(algorithm="ops") < limit
    widths = "; ".join(
        f"{name}: KS distance {span(ks.sel(algorithm=name), '.3f')}, {span(tails.sel(algorithm=name), '.1%')} of "
        "quantiles outside [0.05, 0.95] (10% if calibrated)"
        for name in ("ops", "ops-likelihood")
    )
    holds = bool(is_over.all())
    return verdict(holds, f"Over-dispersed in {count(is_over)} cells. {widths}.", is_settled=holds)


_UNCALIBRATED = ("gibbs-published", "gibbs", "gibbs-collapsed", "marginal")


@p4(
    short="With bounds from the true parameter, tests miss that Gibbs is uncalibrated.",
    place="experiment",
    kind="addition",
    needs=in_panels(EXPONENTIAL[1:], n=(1_000, ...), epsilon=(0.1, ...), algorithm=_UNCALIBRATED),
    min_trials=_FEWEST_FOR_PUBLISHED,
    erratum=Erratum(
        "The sampler for truncated families is calibrated.",
        "It treats regions as independent, and one step ignores the release. Bounds from the true parameter hide this.",
        place="section 5",
    ),
)
def bounds_hide_it(look: Look) -> Finding:
    """With bounds from the true parameter, the tests do not detect that the Gibbs sampler, as printed, is
    uncalibrated.
    """
    is_accepted, passes = (
        uniform(tested(ds.sel(algorithm="gibbs-published")), _LEVEL).verdict == "holds" for ds in look.values()
    )
    public, true = (ds.sel(n=1_000, epsilon=0.1) for ds in look.values())
    distances = ", ".join(
        f"{name} {public['pit_ks'].sel(algorithm=name):.3f} (p = {public['pit_p'].sel(algorithm=name):.1g})"
        for name in _UNCALIBRATED
    )
    return verdict(
        passes and not is_accepted,
        f"KS distance at n = 1,000, epsilon = 0.1 with public bounds: {distances}; with bounds from the true parameter "
        f"{named(true['pit_ks'], _UNCALIBRATED[:1], '.3f', 'algorithm')}.",
    )


_NAIVE = "over-confident at small n and epsilon and calibrated at large ones"
_GIBBS, _TO = "Gibbs posteriors are at least as near in MMD to the non-private posterior as naive", "naive-truncated"
_EVERYWHERE = "is calibrated at every size and privacy loss"
_UTILITY = {**_P4, "level": two_sided_level(3)}
_exact = partial(_claims, _calibrated, options=_ADDED)

CLAIMS = (
    *_claims(
        _calibrated,
        "gibbs-is-calibrated",
        f"The Gibbs sampler, as printed, {_EVERYWHERE}",
        "The Gibbs sampler, as printed, is calibrated",
    ),
    bounds_hide_it,
    *_claims(
        _over_confident,
        "naive-is-over-confident",
        f"The naive method is {_NAIVE}",
        "The naive method is over-confident at small n",
        "naive",
    ),
    ops_is_over_dispersed,
    *_claims(
        _nearer,
        "utility",
        f"{_GIBBS} ones",
        "Gibbs is no farther from the posterior than naive",
        options=_UTILITY,
        to="naive",
    ),
    *_claims(
        _over_confident,
        "naive-recovers",
        f"The naive method applied to the private statistic is {_NAIVE}",
        "Naive given the release is over-confident at small n",
        _TO,
        EXPONENTIAL,
        _P4 | _ADDED,
    ),
    *_claims(
        _nearer,
        "utility-of-release",
        f"{_GIBBS} posteriors from the private statistic",
        "Given the release, Gibbs is no farther than naive",
        "gibbs",
        EXPONENTIAL,
        _UTILITY | _ADDED,
        to=_TO,
    ),
    *_exact(
        "repaired",
        "The Gibbs sampler with the joint distribution of the regions and the full conditional of the sum is "
        "calibrated",
        "The repaired Gibbs sampler is calibrated",
        "gibbs",
        EXPONENTIAL,
    ),
    *_exact(
        "collapsed",
        "The Gibbs sampler with a Metropolis move between posterior modes is calibrated",
        "Gibbs with moves between modes is calibrated",
        "gibbs-collapsed",
        EXPONENTIAL,
    ),
    *_exact(
        "marginal",
        f"The marginal posterior {_EVERYWHERE}",
        "The marginal posterior is calibrated",
        "marginal",
        ("binomial", *EXPONENTIAL),
    ),
    *_exact(
        "gibbs-exact",
        "The Gibbs sampler with integer draws of the counts is calibrated",
        "Gibbs with integer draws is calibrated",
        "gibbs-exact",
        _COUNTED,
    ),
    *_exact(
        "augmentation",
        f"Data augmentation is calibrated at up to {LARGEST_AUGMENTED} records",
        f"Data augmentation is calibrated to n = {LARGEST_AUGMENTED}",
        "data-augmentation",
        (*_COUNTED, "exponential", "exponential-wide"),
        most=LARGEST_AUGMENTED,
    ),
    *_claims(
        _calibrated,
        "control",
        "The non-private posterior given the records is calibrated",
        "The non-private posterior is calibrated",
        "non-private",
        options={"kind": "self-check"},
    ),
)
