"""Cases of the studies on inference from noisy statistics."""

import xarray as xr

from pipeline.declare.claims import VERDICTS
from studies import STUDIES
from tests.studies.case import EVERY, Case, Flip, chain, change, drop, only, outcomes, select

_CALIBRATION = STUDIES["calibration"]
_PANELS = [panel.name for panel in _CALIBRATION.panels]
_EXPONENTIAL = [name for name in _PANELS if name.startswith("exponential")]
_AUGMENTED = [f"augmentation-{panel}" for panel in ("binomial", "multinomial", "exponential", "exponential-wide")]
_KINDS = {claim.name: claim.kind for claim in _CALIBRATION.claims}
_OF_RUN = "n epsilon algorithm trial"
_STATISTICS = "pit rank mmd2 rhat ess"
_TRUNCATED = "non-private naive naive-truncated gibbs gibbs-collapsed gibbs-published marginal data-augmentation"


def _judged(claims, holds, method, **values):
    """Return a flip that sets statistics of a method to `values`, and states whether the claims then hold."""
    verdicts = {claim: VERDICTS[_KINDS[claim]][0 if holds else 1] for claim in claims}
    return Flip(verdicts, change(EVERY, {"algorithm": method}, **values))


def _calibrated(method, claims):
    """Return flips of claims that hold only if PIT values and ranks both have large p-values."""
    return (
        _judged(claims, True, method, pit_p=0.5, rank_p=0.5),
        _judged(claims, False, method, pit_p=1e-9, rank_p=0.5),
        _judged(claims, False, method, pit_p=0.5, rank_p=1e-9),
    )


def _over_confident(method, claims):
    return (
        _judged(claims, True, method, pit_p=0.5, pit_tails=0.9),
        _judged(claims, False, method, pit_p=0.5, pit_tails=0.1),
        _judged(claims, False, method, pit_p=1e-9, pit_tails=0.9),
    )


def _near(method, claims):
    return (_judged(claims, True, method, mmd2_mean=-1.0), _judged(claims, False, method, mmd2_mean=9.0))


def _bounds(verdict, wide, own):
    """Return an alteration of the p-values of PIT values: `wide` for wide bounds, `own` for bounds from the true θ."""
    at = {"algorithm": "gibbs-published"}
    return Flip(
        {"bounds-hide-it": verdict},
        chain(
            change(EVERY, at, rank_p=0.5),
            change("exponential-wide", at, pit_p=wide),
            change("exponential-paper-bounds", at, pit_p=own),
        ),
    )


_OF_PUBLISHED = ("gibbs-is-calibrated", "utility")


def _with_trials(n):
    """Return an alteration with `n` ok trials in every cell to which a method applies."""
    return change(EVERY, {}, n_ok=lambda ds: xr.where(ds.n_ok > 0, n, 0))


CALIBRATION = Case(
    run={"trials": 8, "values": {"n": [10, 100, 1_000, 100_000], "epsilon": [0.01, 0.1]}},
    dims={
        panel: {_STATISTICS: f"{_OF_RUN} component" if panel == "multinomial" else _OF_RUN, "status": _OF_RUN}
        for panel in _PANELS
    },
    methods={
        "binomial": "non-private naive ops ops-likelihood gibbs marginal exact gibbs-exact data-augmentation",
        "multinomial": "non-private naive gibbs gibbs-exact data-augmentation",
        **dict.fromkeys(_EXPONENTIAL, _TRUNCATED),
    },
    partial=tuple(_PANELS),
    prepare=_with_trials(500),  # the fewest with which every claim has a verdict
    verdicts={"ops-is-over-dispersed": "reproduced"},
    flips=(
        *_calibrated("non-private", [f"control-{panel}" for panel in _PANELS]),
        *_calibrated("gibbs", [f"gibbs-is-calibrated-{panel}" for panel in ("binomial", "multinomial")]),
        *_calibrated("gibbs", [f"repaired-{panel}" for panel in _EXPONENTIAL]),
        *_calibrated("gibbs-published", [f"gibbs-is-calibrated-{panel}" for panel in _EXPONENTIAL]),
        *_calibrated("gibbs-collapsed", [f"collapsed-{panel}" for panel in _EXPONENTIAL]),
        *_calibrated("marginal", [f"marginal-{panel}" for panel in ("binomial", *_EXPONENTIAL)]),
        *_calibrated("gibbs-exact", [f"gibbs-exact-{panel}" for panel in ("binomial", "multinomial")]),
        *_calibrated("data-augmentation", _AUGMENTED),
        *_over_confident("naive", [f"naive-is-over-confident-{panel}" for panel in _PANELS]),
        *_over_confident("naive-truncated", [f"naive-recovers-{panel}" for panel in _EXPONENTIAL]),
        *_near(
            "gibbs",
            ["utility-binomial", "utility-multinomial", *(f"utility-of-release-{panel}" for panel in _EXPONENTIAL)],
        ),
        *_near("gibbs-published", [f"utility-{panel}" for panel in _EXPONENTIAL]),
        _judged(["ops-is-over-dispersed"], True, "ops", pit_tails=0.0, n_ok=1_000),
        _judged(["ops-is-over-dispersed"], False, "ops", pit_tails=0.1, n_ok=1_000),
        _bounds("holds", wide=1e-9, own=0.5),
        _bounds("does not hold", wide=0.5, own=0.5),
        _bounds("does not hold", wide=1e-9, own=1e-9),
        Flip(
            {
                "ops-is-over-dispersed": "undecided",
                "control-exponential": "undecided",
                "bounds-hide-it": "undecided",
                "gibbs-is-calibrated-binomial": "reproduced",
            },
            chain(only("binomial"), drop("binomial", algorithm="ops")),
        ),
        Flip({"gibbs-is-calibrated-binomial": "undecided"}, select(EVERY, n=[10, 1_000])),
        Flip(
            {
                "gibbs-is-calibrated-binomial": "reproduced",
                "ops-is-over-dispersed": "undecided",
                "bounds-hide-it": "undecided",
                **{f"{claim}-{panel}": "undecided" for claim in _OF_PUBLISHED for panel in _EXPONENTIAL},
            },
            _with_trials(100),
        ),
    ),
    refused={
        "binomial": {
            "n=0": "n must be",
            "epsilon=0": "epsilon must be",
            "prior=0:1": "must be finite and > 0",
            "prior=0.05:0.05": "shapes >= 0.1 for marginal",
        },
        "multinomial": {"prior=1:1": "component must be [0, 1], one value per parameter"},
        "exponential": {
            "bounds=1:0.5": "bounds must",
            "bounds=0.5:0.5": "bounds must",
            "bounds=-1:0.5": "lower bound must be >= 0",
        },
    },
    reruns=tuple(
        (panel, {"n": 10, "epsilon": 0.1}, 3) for panel in ("binomial", "multinomial", "exponential-paper-bounds")
    ),
    part={
        "panels": ["exponential"],
        "trials": 3,
        "values": {"n": [10], "epsilon": [0.1], "algorithm": ["gibbs", "marginal"]},
    },
)

GIBBS_TRACES = Case(
    dims={panel: {"theta": "start iteration", "status": ""} for panel in ("binomial", "exponential")},
    verdicts={"forgets-its-start": "reproduced"},
    flips=(
        Flip({"forgets-its-start": "not reproduced"}, change(EVERY, {}, theta=lambda ds: ds.theta + 10 * ds.start)),
        Flip({"forgets-its-start": "undecided"}, only("binomial")),
    ),
    refused={},
)

_EXACT = STUDIES["exact-inference"]
_SMALL = {"n": [10, 100], "epsilon": [1.0]}
_COUNTS = "exact gibbs-exact data-augmentation gibbs"
_JOINT = [panel.name for panel in _EXACT.panels if panel.outputs]
_NEAR = [f"augmentation-is-exact-{panel}" for panel in ("exponential", "poisson", "normal")]
_RULES = ("normal-approximation-suffices", "gibbs-needs-large-counts")
_CALIBRATED = [claim.name for claim in _EXACT.claims if claim.name.startswith("exact-methods-are-calibrated")]


def _many_records(summaries):
    """Return the summaries with the larger n renamed 1,000, to which the claims on normal approximations apply."""
    return {**summaries, "binomial": summaries["binomial"].assign_coords(n=[10, 1_000])}


def _distances(approximate):
    """Return an alteration that sets all distances to 0.02, except for normal approximations, which depend on n."""
    return change(
        "binomial",
        {},
        distance_mean=lambda ds: xr.where(ds.algorithm.isin(["gibbs", "marginal"]), approximate(ds.n), 0.02),
    )


def _lengths(verdict, **changed):
    """Return a flip of the claim on lengths of chains, which all suffice but for the changes."""
    values = {"rhat_stuck": 0.01, "ess_short": 0.0, "n_failed": 0, **changed}
    return Flip({"chains-are-long-enough": verdict}, change(EVERY, {}, **values))


def _narrower(panel):
    """Return flips of a claim on a panel that set the ratio of widths with noise of the K-norm and other noise."""
    base = change(panel, {}, mean_width_mean=1.0, mean_width_mcse=1e-3)
    ratios = {"holds": 0.9, "undecided": 0.998, "does not hold": 1.1}
    return outcomes(
        f"k-norm-is-narrower-{panel}",
        ratios,
        lambda ratio: chain(base, change(panel, {"noise": "k-norm"}, mean_width_mean=ratio)),
    )


def _factors(panel):
    """Return the dimensions of the measures in a panel of `exact-inference`, separated by spaces."""
    names = [*(factor.name for factor in panel.factors), "algorithm", "trial", *(f.name for f in panel.outputs)]
    return " ".join(names)


EXACT_INFERENCE = Case(
    run={
        "trials": {
            **dict.fromkeys((panel.name for panel in _EXACT.panels), 8),
            **dict.fromkeys(("binomial", "multinomial-3", "normal"), 15),  # of which tests read the distributions
            "edge": 30,
        },
        "values": _SMALL,
    },
    dims={
        panel.name: {
            "pit rank covered width score distance rhat ess": _factors(panel),
            "thinning": _factors(panel).removesuffix(" component"),
            **({"joint": _factors(panel).removesuffix(" component")} if panel.outputs else {}),
            **({"mean_width": _factors(panel).removesuffix(" component")} if "multinomial" in panel.name else {}),
        }
        for panel in _EXACT.panels
    },
    methods={
        "binomial": f"{_COUNTS} marginal",
        "edge": f"{_COUNTS} marginal",
        "multinomial-3": _COUNTS,
        "multinomial-10": _COUNTS,
        **dict.fromkeys(("exponential", "poisson", "normal"), "data-augmentation gibbs-collapsed marginal"),
        "normal-unknown-variance": "data-augmentation",
    },
    partial=("multinomial-3", "multinomial-10", "exponential", "poisson", "normal"),
    prepare=change(EVERY, {}, n_ok=lambda ds: xr.where(ds.n_ok > 0, 1_500, 0)),
    needs_all=False,
    verdicts={"exact-at-the-edge": "holds"},
    flips=(
        Flip(
            dict.fromkeys(_CALIBRATED, "holds"),
            chain(change(EVERY, {}, pit_p=0.5, rank_p=0.5), change(EVERY, {}, joint_p=0.5)),
        ),
        Flip(dict.fromkeys(_CALIBRATED, "does not hold"), change(EVERY, {}, pit_p=1e-12, rank_p=0.5)),
        Flip(
            {f"exact-methods-are-calibrated-{panel}": "does not hold" for panel in _JOINT},
            chain(change(EVERY, {}, pit_p=0.5, rank_p=0.5), change(EVERY, {}, joint_p=1e-12)),
        ),
        Flip(dict.fromkeys(_NEAR, "holds"), change(EVERY, {}, distance_mean=0.02, ess_mean=1e3)),
        Flip(dict.fromkeys(_NEAR, "does not hold"), change(EVERY, {}, distance_mean=0.1, ess_mean=1e3)),
        Flip(dict.fromkeys(_RULES, "undecided"), _distances(lambda n: 0.02)),
        Flip(dict.fromkeys(_RULES, "holds"), chain(_many_records, _distances(lambda n: xr.where(n == 10, 0.1, 0.02)))),
        Flip(dict.fromkeys(_RULES, "does not hold"), chain(_many_records, _distances(lambda n: 0.1))),
        _lengths("passed"),
        _lengths("failed", rhat_stuck=0.2),
        _lengths("failed", ess_short=0.2),
        _lengths("failed", n_failed=lambda ds: 1 * (ds.n_ok > 0)),
        Flip({"normal-approximation-fails": "holds"}, change("binomial", {}, pit_p=1e-12)),
        Flip({"normal-approximation-fails": "does not hold"}, change("binomial", {}, pit_p=0.5)),
        Flip(
            {"exact-at-the-edge": "does not hold", "approximation-does-not-vanish": "holds"},
            change("edge", {}, distance_mean=0.15),
        ),
        Flip(
            {"exact-at-the-edge": "holds", "approximation-does-not-vanish": "does not hold"},
            change("edge", {}, distance_mean=0.01),
        ),
        *_narrower("multinomial-3"),
        *_narrower("multinomial-10"),
    ),
    refused={
        "binomial": {"n=0": "n must be", "epsilon=0": "epsilon must be", "prior=0:1": "must be finite and > 0"},
        "multinomial-3": {
            "noise=cauchy": "unknown noise 'cauchy'; allowed: laplace",
            "prior=1:1": "component must be [0, 1], one value per parameter",
        },
        "exponential": {
            "outside=winsorise": "unknown outside 'winsorise'; allowed: drop, clamp",
            "bounds=1:0.5": "lower < upper",
        },
    },
    reruns=(
        ("multinomial-10", {"n": 100, "epsilon": 1.0, "noise": "k-norm"}, 5),
        ("poisson", {"n": 100, "epsilon": 1.0, "outside": "clamp"}, 7),
    ),
    part={
        "panels": ["multinomial-3"],
        "trials": 10,
        "values": {"n": [100], "epsilon": [1.0], "algorithm": ["exact", "gibbs-exact"]},
    },
)

CASES = {"calibration": CALIBRATION, "gibbs-traces": GIBBS_TRACES, "exact-inference": EXACT_INFERENCE}
