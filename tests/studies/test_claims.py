"""Tests of the findings, tests and phrases of evidence that claims share."""

import re

import numpy as np
import pytest
import xarray as xr

from pipeline import Finding, Look, claim, verdict
from studies import STUDIES
from studies.claims import (
    above,
    below,
    correct,
    decide,
    entries,
    highest,
    joined,
    listed,
    lowest,
    mean_ratio,
    named,
    place,
    shown,
    smaller,
    smallest,
    span,
    together,
    uniform,
    vector,
)

VALUES = xr.DataArray([[np.nan, 3.0, 1.0]], {"epsilon": [0.1], "n": [10, 20, 30]}, ("epsilon", "n"))


def test_findings_have_three_outcomes():
    assert [decide(*test, "").verdict for test in ((True, False), (False, True), (False, False))] == [
        "holds",
        "does not hold",
        "undecided",
    ]
    assert [correct(*test, "").verdict for test in ((True, False), (False, True), (False, False))] == [
        "holds",
        "corrected",
        "does not hold",
    ]


def test_statement_about_parts_fails_with_one_of_them_and_is_undecided_without():
    parts = (verdict(loss < 1, f"loss {loss}") for loss in (0.5, 2.0))
    assert together(parts, "Ratios: {}.") == Finding("does not hold", "Ratios: loss 0.5; loss 2.0.")
    assert together([], "Ratios: {}.") == Finding("undecided", "Ratios: nothing is stored.")


def test_function_that_yields_findings_of_parts_is_a_check():
    @joined("Ratios: {}.", ", ")
    def check(losses):
        """Every loss is below 1."""
        for loss in losses:
            yield verdict(loss < 1, f"{loss}")

    assert check([0.25, 0.5]) == Finding("holds", "Ratios: 0.25, 0.5.")
    assert check.__doc__ == "Every loss is below 1."


@pytest.mark.parametrize(
    ("least", "found"), [(0.0, (True, False)), (0.9, (False, False)), (1.5, (False, False)), (1.6, (False, True))]
)
def test_values_are_compared_with_a_limit_beyond_their_errors(least, found):
    values, errors = xr.DataArray([1.0, 3.0]), xr.DataArray([0.25, 0.25])
    assert above(least, (values, errors), 2) == found
    assert below(-least, (-values, errors), 2) == found


def test_phrases_of_evidence():
    assert (span(xr.DataArray([2.0, 1.0])), span(xr.DataArray([1.0, 1.001]))) == ("1.00 to 2.00", "1.00")
    assert shown((xr.DataArray([2.0, 1.0]), xr.DataArray([0.1, 0.2]))) == "1.000 to 2.000 ± up to 0.200"
    assert listed([0.5, -1.0], "+.2f") == "+0.50, -1.00"
    assert named(VALUES[0], (30, 20), ".1f", "n") == "30 1.0, 20 3.0"
    assert highest(VALUES[0], ".2f") == "3.00 (n = 20)"
    assert lowest(VALUES[0], ".2f") == "1.00 (n = 30)"
    assert place(smallest(VALUES), VALUES.dims) == "epsilon = 0.1, n = 30"
    assert vector(xr.Dataset(coords={"prior": "6:12"}), "prior").tolist() == [6.0, 12.0]
    assert entries("0.5:2") == (0.5, 2.0)


def test_ratio_of_means_has_the_error_of_a_quotient():
    ds = xr.Dataset({"x_mean": ("noise", [3.0, 4.0]), "x_mcse": ("noise", [0.3, 0.8])}, {"noise": ["a", "b"]})
    found, error = mean_ratio(ds, "x", "a", "b")
    assert (float(found), float(error)) == pytest.approx((0.75, 0.75 * (0.1**2 + 0.2**2) ** 0.5))


@pytest.mark.parametrize(("mean", "verdict"), [(0.5, "holds"), (0.8, "undecided"), (0.9, "does not hold")])
def test_mean_is_smaller_by_a_factor_beyond_the_error_of_the_difference(mean, verdict):
    ds = xr.Dataset({"x_mean": ("m", [mean, 1.0]), "x_mcse": ("m", [0.01, 0.01])}, {"m": ["a", "b"]})
    found = smaller(ds, "x", "a", "b", 4, 0.8)
    assert found.verdict == verdict
    assert found.evidence.startswith(f"Ratio of means of x, a to b: {mean:.3f} ± 0.01")


def test_p_values_have_a_joint_level():
    p = {"ranks": VALUES / 100, "quantiles": VALUES / 50}
    assert uniform(p, 0.03).verdict == "holds"
    assert uniform(p, 0.04) == verdict(
        False,
        "p-values of at least 0.01 (epsilon = 0.1, n = 30) for ranks and 0.02 (epsilon = 0.1, n = 30) for quantiles; "
        "values above 0.01 are accepted in 4 tests",
    )
    three = uniform({**p, "joint coverage": VALUES / 10}, 0.03).evidence
    assert re.search(r"at least 0.01 \(.*?\) for ranks, 0.02 \(.*?\) for quantiles and 0.1 \(.*?\) for joint", three)


def test_selected_values_are_needed_and_single_ones_lose_their_dimension():
    ds = xr.Dataset({"x": (("n", "m"), [[1.0, 2.0], [3.0, 4.0]])}, {"n": [1, 2], "m": ["a", "b"], "delta": 0.5})

    @claim(kind="self-check", needs={"panel": {"n": (2,), "m": "b", "delta": 0.5}})
    def four(look):
        """The value is 4."""
        return verdict(True, "It is.")

    assert four.needs == {"panel": {"n": (2,), "m": ("b",), "delta": (0.5,)}}
    found = Look(four, {"panel": ds}).select("panel")
    assert (found["x"].dims, found["x"].values.tolist()) == (("n",), [4.0])


CLAIMS = {f"{name}/{one.name}": one for name, study in STUDIES.items() for one in study.claims}


def problems(statement):
    """Return the rules that the statement of a claim breaks."""
    sentences = re.split(r"\. (?=[A-Z])", re.sub(r"\bet al\. ", "et al ", statement))
    rules = {"long": len(statement) > 160, "sentences": len(sentences) > 1, "end": not statement.endswith(".")}
    return [rule for rule, is_broken in {**rules, "cut": "…" in statement}.items() if is_broken]


def test_a_claim_is_one_sentence_with_a_short_title():
    assert {name: found for name, one in CLAIMS.items() if (found := problems(one.statement))} == {}
    assert {name: found for name, one in CLAIMS.items() if (found := problems(one.title))} == {}
    assert max(len(one.title) for one in CLAIMS.values()) <= 80
    assert problems(f"{90 * 'ab'}. It is long …") == ["long", "sentences", "end", "cut"]


def test_headlines_are_fixed_with_their_level():
    """A headline without an erratum is shown whatever its verdict: another one must not take its place."""
    leading = {name for name, one in CLAIMS.items() if one.leads and one.erratum is None}
    assert leading == {
        "hellinger-accuracy/k-norm-is-closest-at-balanced-data",
        "noisy-tables/narrower-in-small-cells",
        "regression-inference/ignoring-noise-costs",
        "private-mcmc/many-draws-at-large-budgets",
    }
