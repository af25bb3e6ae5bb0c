"""Tests of the study `renyi-curves`."""

import math

import numpy as np
import pytest
import xarray as xr
from scipy.special import gammaln

import pipeline
from studies import STUDIES
from studies.figures import render
from studies.renyi.renyi_curves import STUDY
from studies.report import drawable, judge, load_summaries
from studies.styles import INK

PANELS = ("diffused", "concentrated")
COEFFICIENTS = [0.1, 0.3, 0.5, 0.7, 0.9, 1.0]
VERDICTS = {
    "vertical-asymptotes": "reproduced",
    "smaller-is-more-private": "reproduced",
    "corners-are-the-supremum": "corrected",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Run the whole study."""
    path = tmp_path_factory.mktemp("study") / "s.zarr"
    pipeline.run(STUDY, path)
    return path


@pytest.fixture(scope="module")
def summaries(store):
    return load_summaries(store)


def verdicts(summaries):
    return {claim.name: finding.verdict for claim, finding in judge(STUDY, summaries)}


def test_store_layout(store):
    """Check groups, dimensions, coordinates and measures; infinite divergences are stored."""
    for panel in PANELS:
        ds = xr.open_zarr(store, group=panel).load()
        assert {str(name): variable.dims for name, variable in ds.data_vars.items()} == {
            "renyi_epsilon": ("coefficient", "order"),
            "corner_epsilon": ("coefficient", "order"),
            "critical_order": ("coefficient",),
            "status": ("coefficient",),
            "error": ("coefficient",),
        }
        assert ds.coefficient.values.tolist() == COEFFICIENTS
        assert ds.order.values.tolist() == [round(1 + 0.05 * step, 2) for step in range(381)]
        assert (ds.prior.item(), int(ds.n)) == ("6:12", 100)
        assert (ds.status == 1).all()
        assert ds.renyi_epsilon.notnull().all()
        assert np.isinf(ds.renyi_epsilon).any()
        assert ds.renyi_epsilon.attrs["units"] == "nat"


def test_curves_equal_enumeration(summaries):
    """Enumerate all neighbouring data sets of 100 records, with log-gamma functions."""

    def log_beta(x):
        return gammaln(x).sum(axis=-1) - gammaln(x.sum(axis=-1))

    ones = np.arange(100)
    for panel in PANELS:
        for coefficient, order in ((0.3, 2.0), (0.7, 5.0), (1.0, 6.9), (0.5, 12.95)):
            prior, step = ((6, 12), coefficient) if panel == "diffused" else (np.array([6, 12]) / coefficient, 1)
            distributions = prior + step * np.stack([np.arange(101), 100 - np.arange(101)], axis=1)
            best = 0.0
            for p, q in (
                (distributions[ones], distributions[ones + 1]),
                (distributions[ones + 1], distributions[ones]),
            ):
                mixed = order * p + (1 - order) * q
                best = max(best, ((log_beta(mixed) - order * log_beta(p)) / (order - 1) + log_beta(q)).max())
            found = summaries[panel].renyi_epsilon.sel(coefficient=coefficient, order=order)
            assert float(found) == pytest.approx(best, rel=1e-8)


def test_known_values(summaries):
    """Direct sampling has the same known values in both panels; asymptotes are those of P3."""
    for panel in PANELS:
        direct = summaries[panel].sel(coefficient=1.0)
        assert direct.renyi_epsilon.sel(order=[2.0, 5.0, 6.9]).values == pytest.approx(
            [0.19129, 0.617111, 1.392636], abs=5e-6
        )
        assert np.isinf(direct.renyi_epsilon.sel(order=[7.0, 7.1])).all()
        np.testing.assert_allclose(summaries[panel].critical_order, 1 + 6 / np.array(COEFFICIENTS), rtol=1e-15)
    assert float(summaries["diffused"].corner_epsilon.sel(coefficient=1.0, order=1.0)) == pytest.approx(
        0.10116, abs=2e-5
    )


def test_verdicts_and_evidence(summaries):
    findings = {claim.name: finding for claim, finding in judge(STUDY, summaries)}
    assert {name: finding.verdict for name, finding in findings.items()} == VERDICTS
    assert "9.571 (0.7), 7.667 (0.9), 7 (1)" in findings["vertical-asymptotes"].evidence
    assert "up to 12.2% (order 1, coefficient 1), at orders up to 1.95" in (
        findings["corners-are-the-supremum"].evidence
    )


@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize(
    ("claim", "measure", "place", "value", "verdict"),
    [
        ("vertical-asymptotes", "renyi_epsilon", {"coefficient": 0.5, "order": 12.95}, math.inf, "not reproduced"),
        ("vertical-asymptotes", "renyi_epsilon", {"coefficient": 0.5, "order": 13.05}, 2.0, "not reproduced"),
        ("vertical-asymptotes", "renyi_epsilon", {"coefficient": 0.9, "order": 3.0}, 5.0, "not reproduced"),
        ("smaller-is-more-private", "renyi_epsilon", {"coefficient": 0.5, "order": 2.0}, 0.5, "not reproduced"),
        ("smaller-is-more-private", "renyi_epsilon", {"coefficient": 0.3, "order": 13.5}, math.inf, "reproduced"),
        ("smaller-is-more-private", "renyi_epsilon", {"coefficient": 0.3, "order": 2.0}, math.inf, "not reproduced"),
        ("corners-are-the-supremum", "corner_epsilon", {"coefficient": 0.3, "order": 2.0}, 1e-3, "not reproduced"),
    ],
)
def test_verdicts_depend_on_the_results(summaries, panel, claim, measure, place, value, verdict):
    changed = summaries[panel].copy(deep=True)
    changed[measure].loc[place] = value
    (checked,) = (one for one in STUDY.claims if one.name == claim)
    assert checked.judge({**summaries, panel: changed}).verdict == verdict


def test_equal_corners_reproduce_the_claim(summaries):
    same = {panel: ds.assign(corner_epsilon=ds.renyi_epsilon) for panel, ds in summaries.items()}
    assert verdicts(same)["corners-are-the-supremum"] == "reproduced"


def test_claims_without_results_are_undecided(summaries):
    few = {panel: ds.sel(order=slice(1, 10)) for panel, ds in summaries.items()}
    assert set(verdicts(few).values()) == {"undecided"}
    assert set(verdicts({"diffused": summaries["diffused"]}).values()) == {"undecided"}


def test_corners_with_invalid_parameters_are_infinite(tmp_path):
    values = {"prior": ["0.5:2"], "coefficient": [0.2, 1.0], "order": [1.0, 1.2], "n": [10]}
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["diffused"], values=values)
    ds = xr.open_zarr(tmp_path / "s.zarr", group="diffused").load()
    assert np.isfinite(ds.renyi_epsilon).all()
    np.testing.assert_array_equal(np.isinf(ds.corner_epsilon), [[False, False], [True, True]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"coefficient": [0.0]}, r"coefficient must be in \(0, 1\]"),
        ({"coefficient": [1.5]}, r"coefficient must be in \(0, 1\]"),
        ({"order": [0.5, 2.0]}, "order must be a finite number >= 1"),
        ({"prior": ["1:1:1"]}, "prior must have 2 entries"),
        ({"prior": ["1:0"]}, "prior must have positive"),
        ({"n": [0]}, "n must be an integer >= 1"),
    ],
)
def test_invalid_values_raise(values, message):
    with pytest.raises(ValueError, match=message):
        STUDY.configure(values=values)


def test_every_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    (figure,) = STUDY.figures
    (svg,) = render(figure.draw, summaries, ["svg"])
    assert INK.encode() in svg
    drawn = figure.draw(summaries)
    assert [axes.get_title(loc="left") for axes in drawn.axes] == list(PANELS)
    labels = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert labels == ["0.1", "0.3", "0.5", "0.7", "0.9", "1 (direct posterior)"]
    for axes in drawn.axes:
        curve, asymptote = axes.get_lines()[-2:]
        assert np.isfinite(curve.get_ydata()).all()
        assert curve.get_xdata()[-1] == 6.95
        np.testing.assert_array_equal(asymptote.get_xdata(), [7.0, 7.0])
        assert axes.get_ylim() == (0, 2)


def test_study_is_registered():
    assert STUDIES["renyi-curves"] is STUDY
