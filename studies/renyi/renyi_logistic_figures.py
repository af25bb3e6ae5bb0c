"""Figures of the study `renyi-logistic`: measures against ε by data set and order."""

from pipeline import Figure
from studies.figures import Axis, Chart
from studies.renyi.renyi_logistic_claims import DATA_SETS
from studies.styles import GLM_STYLES


def _chart(measure: str, ylabel: str) -> Chart:
    """Describe the mean of a measure against ε, with one row per order and one column per panel."""
    return Chart(
        "",
        "epsilon",
        {"y": f"{measure}_mean"},
        "mechanism",
        GLM_STYLES,
        x=Axis("ε (nat)", log=True, ticks=(0.01, 0.1, 1.0, 10.0)),
        y=Axis(ylabel),
        marks=("line", "errors", "points"),
        facet={"order": "order {}"},
        panels_in_row=True,
        height=160,
        share_y=False,
    )


_CAPTION = (
    " against the privacy loss, with one row per order of the Rényi guarantee{}. Error bars show ± 2 Monte Carlo "
    "standard errors. true-posterior: the posterior without privacy. glm-diffused: Algorithm 5. glm-concentrated: "
    "Algorithm 4. ops, ops-tight, ops-renyi: OPS as published, with twice the likelihood power, and calibrated to the "
    "same Rényi guarantee through its pure one."
)
_BY_DATA_SET = _CAPTION.format(" and one column per data set")

FIGURES = (
    Figure(
        "test-error",
        "Test error (P3, Figure 3)",
        "Mean test error" + _BY_DATA_SET,
        DATA_SETS,
        _chart("test_error", "test error"),
    ),
    Figure(
        "test-nll",
        "Test likelihood (P3, appendix)",
        "Mean negative log-likelihood of a test record" + _BY_DATA_SET,
        DATA_SETS,
        _chart("test_nll", "−log-likelihood of a test record (nat)"),
        claims=("beats-ops-in-likelihood", "diffused-beats-concentrated-in-likelihood"),
    ),
    Figure(
        "splits",
        "Test error over random splits",
        "Mean test error over random splits, with one draw per split," + _CAPTION.format(""),
        ("abalone-splits",),
        _chart("test_error", "test error"),
        claims=("one-split-is-enough",),
    ),
    Figure(
        "csv-test-error",
        "Test error on the user's data",
        "Mean test error" + _CAPTION.format(""),
        ("csv",),
        _chart("test_error", "test error"),
    ),
)
