"""Tests of the study `hellinger-sensitivity`."""

import mpmath
import numpy as np
import pytest
import xarray as xr
from scipy.special import betaln

import pipeline
from studies import STUDIES
from studies.counts.hellinger_sensitivity import STUDY
from studies.figures import render
from studies.report import drawable, judge, load_summaries
from studies.styles import INK

MEASURES = ("local_sensitivity", "smooth_sensitivity", "varying_sensitivity", "global_sensitivity")
VERDICTS = {
    "largest-at-the-edge": "reproduced",
    "smooth-below-global": "reproduced",
    "bounds-in-order": "passed",
    "statement-1": "reproduced",
    "statement-1-below": "corrected",
    "statement-2": "corrected",
    "statement-2-centre": "corrected",
    "statement-3": "corrected",
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


def steps(n, first=1.0, second=1.0):
    """Return H(x, x+1) between Beta posteriors at x = 0..n-1 by the textbook formula."""
    a, b = first + np.arange(n + 1), second + n - np.arange(n + 1)
    log_affinity = betaln(a[:-1] + 0.5, b[1:] + 0.5) - (betaln(a[:-1], b[:-1]) + betaln(a[1:], b[1:])) / 2
    return np.sqrt(1 - np.exp(log_affinity))


def local_sensitivities(n, *prior):
    step = steps(n, *prior)
    return np.maximum(np.append(step, 0.0), np.insert(step, 0, 0.0))


def test_store_layout(store):
    """Check groups, dimensions, coordinates and measures as read by xarray."""
    ds = xr.open_zarr(store, group="beta")
    assert {str(name): variable.dims for name, variable in ds.data_vars.items()} == {
        **dict.fromkeys(MEASURES, ("n", "successes")),
        "status": ("n",),
        "error": ("n",),
    }
    assert set(ds.coords) == {"n", "successes", "epsilon", "delta", "prior"}
    assert (ds.status == 1).all()
    assert (float(ds.epsilon), float(ds.delta), ds.prior.item()) == (1.0, 1e-8, "1:1")
    assert ds.n.values.tolist() == [20, 100, 500, 2000]
    assert ds.successes.values.tolist() == list(range(2001))
    for name in MEASURES:
        assert ds[name].attrs["units"] == "1"
        np.testing.assert_array_equal(ds[name].notnull(), ds.n >= ds.successes)
    statements = xr.open_zarr(store, group="statements")
    assert statements.n_violations.dims == ("statement", "n")
    assert statements.n.values.tolist() == list(range(1, 2001))


@pytest.mark.parametrize(("prior", "epsilon", "delta"), [((1.0, 1.0), 1.0, 1e-8), ((0.5, 3.0), 2.0, 1e-4)])
def test_sensitivities_equal_enumeration(tmp_path, prior, epsilon, delta):
    """Compute every sensitivity from its definition as a maximum or minimum over all data sets."""
    text = ":".join(map(str, prior))
    values = {"n": [1, 7, 30], "prior": [text], "epsilon": [epsilon], "delta": [delta], "successes": range(31)}
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=["beta"], values=values)
    ds = xr.open_zarr(tmp_path / "s.zarr", group="beta")
    for n in (1, 7, 30):
        stored = ds.sel(n=n, successes=slice(0, n))
        local = local_sensitivities(n, *prior)
        distance = abs(np.subtract.outer(np.arange(n + 1), np.arange(n + 1)))
        gamma = np.log(1 - epsilon / (2 * np.log(delta / (2 * (n + 1)))))
        expected = {
            "local_sensitivity": local,
            "smooth_sensitivity": (local * np.exp(-gamma * distance)).max(axis=1),
            "varying_sensitivity": 1 / (1 / local + distance).min(axis=1),
            "global_sensitivity": np.full(n + 1, local.max()),
        }
        for name, values in expected.items():
            np.testing.assert_allclose(stored[name], values, rtol=1e-10)


def test_known_values(summaries):
    """Figure 1 at n = 100: .3389 at the edge, .0703 at the centre, where the smooth sensitivity is .1220."""
    at = summaries["beta"].sel(n=100)
    found = [float(at[name].sel(successes=x)) for name, x in zip(MEASURES, (50, 50, 50, 0), strict=True)]
    assert found == pytest.approx([0.0703, 0.1220, 0.0703, 0.3389], abs=5e-5)


def exponents(n, xs):
    """Return ln(1 - H(x, x+1)^2) in extended precision at some x."""
    with mpmath.workdps(40):
        return {
            x: mpmath.log(mpmath.beta(x + mpmath.mpf(3) / 2, n - x + mpmath.mpf(1) / 2))
            - mpmath.log(mpmath.beta(x + 1, n - x + 1) * mpmath.beta(x + 2, n - x)) / 2
            for x in xs
        }


def exact_counterexamples(n):
    """Return the counterexamples of each statement as printed in P1, computed with 40 digits."""
    with mpmath.workdps(40):
        tiny = mpmath.mpf(10) ** -30
        step = {x: -value for x, value in exponents(n, range(n)).items()}  # increases with H(x, x+1)
        local = [max(step.get(x, 0), step.get(x - 1, 0)) for x in range(n + 1)]
        centres = {n // 2, (n + 1) // 2}
        low, high = min(centres), max(centres)

        def towards(x, other):
            return step.get(min(x, other)) if 0 <= other <= n else None

        def is_step(x, other):
            return towards(x, other) is not None and abs(local[x] - towards(x, other)) < tiny

        named = [is_step(x, x + 1) if x >= high else is_step(x, x - 1) for x in range(n + 1)]
        return {
            "I": [x for x in range(2, high + 1) if not step[x - 1] < step[x - 2] - tiny]
            + [x for x in range(low, n - 1) if not step[x] < step[x + 1] - tiny],
            "I-below": [x for x in range(low + 1) if x + 2 <= n and not step[x] > step[x + 1] + tiny],
            "II": [x for x in range(n + 1) if not named[x]],
            "II-inside": [x for x in range(1, n) if not named[x]],
            "II-centre": [x for x in sorted(centres) if 0 < x < n and abs(step[x - 1] - step[x]) > tiny],
            "III": [
                x for x in range(n + 1) if x not in centres and not local[x] > max(local[c] for c in centres) + tiny
            ],
        }


@pytest.mark.parametrize("n", [*range(1, 13), 51, 100])
def test_counterexamples_with_exact_arithmetic(summaries, n):
    for name, expected in exact_counterexamples(n).items():
        found = summaries["statements"].sel(statement=name, n=n)
        assert int(found.n_violations) == len(expected), name
        ends = [min(expected), max(expected)] if expected else [np.nan, np.nan]
        np.testing.assert_array_equal([found.first_violation, found.last_violation], ends, name)


@pytest.mark.parametrize("n", [1999, 2000])
def test_closest_comparisons_at_large_n(n):
    """Double precision orders the steps near the centre, where they differ least, as 40 digits do."""
    (step,) = STUDY.panel("statements").simulate({"n": (n,), "prior": (1.0, 1.0)}, None)
    exact = exponents(n, range(n // 2 - 4, n // 2 + 4))
    for x in list(exact)[:-1]:
        wanted = mpmath.sign(exact[x + 1] - exact[x]) if x + 1 + x + 1 != n else 0
        assert np.sign(step[x + 1] - step[x]) == wanted
        assert float(abs(step[x] / exact[x] - 1)) < 1e-13


def test_local_sensitivity_is_the_larger_step():
    sizes = (1, 2, 9, 40)
    for n, step in zip(sizes, STUDY.panel("statements").simulate({"n": sizes, "prior": (0.5, 3.0)}, None), strict=True):
        np.testing.assert_allclose(np.sqrt(1 - np.exp(step)), steps(n, 0.5, 3.0), rtol=1e-10)


def test_verdicts_and_counterexamples(summaries):
    assert verdicts(summaries) == VERDICTS
    evidence = {claim.name: finding.evidence for claim, finding in judge(STUDY, summaries)}
    assert "at 2 sizes: n = 2 (x = 0 and 2), n = 3 (x = 0 and 3). It holds for n >= 4." in evidence["statement-3"]
    assert "n = 2000 (x = 0 and 2000). It holds for 0 < x < n" in evidence["statement-2"]
    assert "at 999 sizes: n = 3 (x = 1 and 2), " in evidence["statement-2-centre"]
    assert "n = 2000 (x = 999 and 1000)" in evidence["statement-1-below"]
    assert "No comparison at n = 1, 2." in evidence["statement-1"]


@pytest.mark.parametrize(
    ("claim", "statement", "n", "count", "verdict"),
    [
        ("statement-1", "I", 50, 1, "not reproduced"),
        ("statement-1-below", "I", 50, 1, "not reproduced"),
        ("statement-1-below", "I-below", slice(None), 0, "reproduced"),
        ("statement-2", "II-inside", 50, 1, "not reproduced"),
        ("statement-2", "II", slice(None), 0, "reproduced"),
        ("statement-2-centre", "II-centre", 50, 1, "not reproduced"),
        ("statement-3", "III", 50, 1, "not reproduced"),
        ("statement-3", "III", slice(None), 0, "reproduced"),
    ],
)
def test_verdicts_on_statements_depend_on_the_results(summaries, claim, statement, n, count, verdict):
    changed = summaries["statements"].copy(deep=True)
    changed["n_violations"].loc[{"statement": statement, "n": n}] = count
    changed["first_violation"] = changed["first_violation"].fillna(0)
    changed["last_violation"] = changed["last_violation"].fillna(0)
    assert verdicts({**summaries, "statements": changed})[claim] == verdict


@pytest.mark.parametrize(
    ("claim", "measure", "x", "factor"),
    [
        ("largest-at-the-edge", "local_sensitivity", 50, 3.0),
        ("largest-at-the-edge", "local_sensitivity", 30, 10.0),
        ("smooth-below-global", "smooth_sensitivity", 50, 3.0),
        ("bounds-in-order", "varying_sensitivity", 50, 0.99),
        ("bounds-in-order", "smooth_sensitivity", 0, 1.01),
    ],
)
def test_verdicts_on_sensitivities_depend_on_the_results(summaries, claim, measure, x, factor):
    changed = summaries["beta"].copy(deep=True)
    changed[measure].loc[{"n": 100, "successes": x}] *= factor
    assert verdicts({**summaries, "beta": changed})[claim] in ("failed", "not reproduced")


def test_claims_without_results_are_undecided(summaries):
    few = {"statements": summaries["statements"].sel(n=slice(1, 10)), "beta": summaries["beta"].sel(n=[20])}
    findings = {claim.name: finding for claim, finding in judge(STUDY, few)}
    assert {name for name, finding in findings.items() if finding.verdict != "undecided"} == {"bounds-in-order"}
    assert findings["statement-3"].evidence == "Panel statements has no n = 11, 12, 13, 14, 15, ...."
    failed = summaries["statements"].assign(n_ok=0 * summaries["statements"]["n_ok"])
    assert verdicts({**summaries, "statements": failed})["statement-1"] == "undecided"
    other_prior = summaries["beta"].assign_coords(prior="2:2")
    assert verdicts({**summaries, "beta": other_prior})["largest-at-the-edge"] == "undecided"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": [0]}, "n must be >= 1"),
        ({"prior": ["1:1:1"]}, "prior must have 2 entries"),
        ({"prior": ["1:0"]}, "prior must have positive"),
        ({"successes": [-1, 0]}, "successes must be >= 0"),
        ({"epsilon": [0.0]}, "epsilon must be"),
        ({"delta": [1.0]}, "delta must be"),
    ],
)
def test_invalid_values_raise(values, message):
    with pytest.raises(ValueError, match=message):
        STUDY.configure(values=values)


def test_too_large_sizes_raise():
    with pytest.raises(ValueError, match="n must be <= 100,000"):
        STUDY.configure(panels=["statements"], values={"n": [100_001]})


def test_every_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    for figure in STUDY.figures:
        (svg,) = render(figure.draw, summaries, ["svg"])
        assert INK.encode() in svg
        drawn = figure.draw(summaries)
        assert [axes.get_title(loc="left") for axes in drawn.axes] == ["n = 20", "n = 100", "n = 500", "n = 2000"]
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in drawn.axes)
        assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["local", "varying", "smooth", "global"]
        line = drawn.axes[1].get_lines()[0]
        np.testing.assert_allclose(line.get_ydata(), local_sensitivities(100), rtol=1e-10)


def test_study_is_registered():
    assert STUDIES["hellinger-sensitivity"] is STUDY
