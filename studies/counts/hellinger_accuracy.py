"""Hellinger distance between the true posterior and private releases of it (P0, Figures 2 and 3a).

Each mechanism is sampled at balanced data, against the number of records (panels `k2`, `k3`, `k4`) and against the
prior (`prior`), and at real data, the sexes of 4,177 abalones (`abalone`). The papers' mechanisms are compared with
mechanisms calibrated by an exact audit or a sharper bound. Verdicts rest on the exact mean of the distance, which is
stored with the draws. For mechanisms calibrated by an audit, the multiplier and the audited loss are stored as well.

References
----------
P0: Bun, Farina, Gaboardi & Liu, "Tailoring Differentially Private Bayesian Inference to Distance Between
Distributions" (poster).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mechanisms import MECHANISMS, CountRelease, Mechanism, balanced_counts, hellinger
from mechanisms.counts.registry import validate
from pipeline import Factor, Measure, Method, Panel, Streams, Study
from studies.counts.hellinger_accuracy_claims import CLAIMS, ERRATA, FIGURES

_COUNTS = (1528.0, 1307.0, 1342.0)  # Abalone: male, female, infant; see studies/data/LICENCES.md
_PRIORS = (1, 5, 10, 15, 20, 40, 60, 80, *range(100, 401, 50))
_EPSILON = Factor("epsilon", (1.0,), "privacy loss", unit="nat")
_DELTA = Factor("delta", (1e-8,), "probability of a larger privacy loss")
_MEASURES = (
    Measure("hellinger", "Hellinger distance between the true and the released posterior"),
    Measure("expected_hellinger", "exact mean of the Hellinger distance, if computable", per_trial=False),
    Measure("multiplier", "multiplier of the exponent, if calibrated", per_trial=False),
    Measure("gamma", "rate of the smooth sensitivity per record, if calibrated", per_trial=False),
    Measure("audited_epsilon", "exact privacy loss of the calibrated mechanism", "nat", per_trial=False),
)


def _problem(cell: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the prior parameters and the true counts of a design cell."""
    prior, n = cell["prior"], cell.get("n")
    if n is not None:
        if n < 1:
            raise ValueError(f"n must be >= 1, got {n}")
        return prior, balanced_counts(n, cell["k"])
    counts = cell["counts"]
    return (prior if isinstance(prior, tuple) else np.full(len(counts), prior)), counts


def _simulate(cell: Mapping[str, Any], streams: Streams) -> tuple[Any, Any]:
    """Return the prior and the counts; only the releases are random."""
    return _problem(cell)


def _validate(mechanisms: Mapping[str, Mechanism], cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
    """Validate a problem and return True if the mechanism is defined at its size."""
    prior, counts = _problem(cell)
    if len(prior) != len(counts):
        raise ValueError(f"prior must have {len(counts)} entries, one per category, got {len(prior)}")
    validate(prior, counts, setting["epsilon"], setting["delta"])
    try:
        mechanisms[setting["mechanism"]].require(int(sum(counts)), len(counts))
    except ValueError:  # larger than the mechanism supports
        return False
    return True


def _expected(distribution: CountRelease) -> float:
    """Return the exact mean distance, or NaN if there are too many candidates to enumerate."""
    try:
        return distribution.expected_hellinger()
    except ValueError:
        return np.nan


def _method(mechanism: Mechanism) -> Method:
    def release(data: tuple[Any, Any], setting: Mapping[str, Any], streams: Streams) -> dict[str, Any]:
        distribution = mechanism.build(*data, setting["epsilon"], setting["delta"])
        released = distribution.from_uniforms(streams.uniforms(distribution.n_uniforms))
        multiplier = gamma = loss = np.nan
        if mechanism.calibrate is not None:
            calibration = mechanism.calibrate(distribution.prior, distribution.n, setting["epsilon"])
            multiplier, gamma, loss = calibration.rate, calibration.gamma, calibration.loss
        return {
            "hellinger": hellinger(distribution.prior + distribution.counts, distribution.prior + released),
            "expected_hellinger": _expected(distribution),
            "multiplier": multiplier,
            "gamma": gamma,
            "audited_epsilon": loss,
        }

    return Method(mechanism.name, release, note=mechanism.note, is_private=mechanism.is_private)


def with_mechanisms(panel: Panel, *mechanisms: Mechanism) -> Panel:
    """Return a panel of this study with additional mechanisms on the same data sets.

    Parameters
    ----------
    panel : Panel
        A panel of this study.
    *mechanisms : Mechanism
        Releases of counts with new names. A mechanism is skipped at sizes that it does not support.

    Returns
    -------
    Panel
        The existing methods use the same random streams as long as the names of the study and the panel are unchanged.

    Examples
    --------
    >>> from dataclasses import replace
    >>> doubtful = replace(MECHANISMS["laplace"], name="doubtful")
    >>> [method.name for method in with_mechanisms(STUDY.panel("k2"), doubtful).methods][-2:]
    ['hamming-exact', 'doubtful']
    """
    added = {mechanism.name: mechanism for mechanism in mechanisms}

    def validate_setting(cell: Mapping[str, Any], setting: Mapping[str, Any]) -> bool:
        return _validate(added, cell, setting) if setting["mechanism"] in added else panel.validate(cell, setting)

    return replace(panel, methods=(*panel.methods, *map(_method, mechanisms)), validate=validate_setting)


_PUBLISHED = ("smooth", "smooth-n", "varying", "global", "local", "laplace", "laplace-dimension")
_OURS = ("smooth-exact", "varying-exact", "global-exact", "varying-bound", "geometric", "hamming-exact")
_ALL = (*_PUBLISHED, *_OURS)
_BINOMIAL = tuple(name for name in _ALL if name != "smooth-n")  # at k = 2 both definitions of N equal n + 1


def _panel(name: str, meaning: str, mechanisms: tuple[str, ...], factors: Any, constants: Any) -> Panel:
    return Panel(
        name=name,
        meaning=meaning,
        simulate=_simulate,
        methods=tuple(_method(MECHANISMS[name]) for name in mechanisms),
        measures=_MEASURES,
        factors=factors,
        constants=(_EPSILON, _DELTA, *constants),
        method_dim="mechanism",
        trials=10_000,
        block_trials=10_000,  # one block per cell, because the setup takes longer than the draws
        validate=partial(_validate, MECHANISMS),
    )


def _against_n(k: int, figure: str, largest: int) -> Panel:
    return _panel(
        f"k{k}",
        f"accuracy against the number of records, {k} categories, balanced data (P0, Figure {figure})",
        _BINOMIAL if k == 2 else _ALL,
        (Factor("n", tuple(range(100, largest + 1, 100)), "number of records", "int"),),
        (
            Factor("prior", ((1.0,) * k,), "Dirichlet parameters of the prior", "vector"),
            Factor("k", (k,), "number of categories", "int"),
        ),
    )


_PANELS = (
    _against_n(2, "2a", 500),
    _against_n(3, "2b", 500),
    _against_n(4, "2c", 600),
    _panel(
        "prior",
        "accuracy against the prior Beta(a, a), 100 records (P0, Figure 3a)",
        _BINOMIAL,
        (Factor("prior", _PRIORS, "parameter a of the prior Beta(a, a)"),),
        (Factor("counts", ((50.0, 50.0),), "true counts", "vector"),),
    ),
    _panel(
        "abalone",
        "accuracy on real data: sex of 4,177 abalones (male, female, infant)",
        _ALL,
        (),
        (
            Factor("counts", (_COUNTS,), "true counts: male, female, infant", "vector"),
            Factor("prior", ((1.0,) * 3,), "Dirichlet parameters of the prior", "vector"),
        ),
    ),
)

STUDY = Study(
    name="hellinger-accuracy",
    papers=("P0", "P1"),
    title="Accuracy of private posterior releases in Hellinger distance",
    aim=(
        "Compare the Hellinger exponential mechanism, for several sensitivities, with Laplace noise on the counts, by "
        "the Hellinger distance between the true and the released posterior."
    ),
    panels=_PANELS,
    seed=20_180_801,
    claims=CLAIMS,
    errata=ERRATA,
    figures=FIGURES,
)
