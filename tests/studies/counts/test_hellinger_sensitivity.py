"""Tests of the study `hellinger-sensitivity`."""

import mpmath
import numpy as np
import pytest
from scipy.special import betaln

from studies.counts.hellinger_sensitivity import STUDY, compute_steps

MEASURES = ("local_sensitivity", "smooth_sensitivity", "varying_sensitivity", "global_sensitivity")


def steps(n, first=1.0, second=1.0):
    """Return the Hellinger distances between Beta posteriors at x and x + 1, x = 0..n-1, by the textbook formula."""
    a, b = first + np.arange(n + 1), second + n - np.arange(n + 1)
    log_affinity = betaln(a[:-1] + 0.5, b[1:] + 0.5) - (betaln(a[:-1], b[:-1]) + betaln(a[1:], b[1:])) / 2
    return np.sqrt(1 - np.exp(log_affinity))


def local_sensitivities(n, *prior):
    step = steps(n, *prior)
    return np.maximum(np.append(step, 0.0), np.insert(step, 0, 0.0))


def test_grid(results):
    ds = results("beta")
    assert set(ds.coords) == {"n", "successes", "epsilon", "delta", "prior"}
    assert (float(ds.epsilon), float(ds.delta), ds.prior.item()) == (1.0, 1e-8, "1:1")
    assert ds.n.values.tolist() == [20, 100, 500, 2000]
    assert ds.successes.values.tolist() == list(range(2001))
    for name in MEASURES:
        assert ds[name].attrs["units"] == "1"
        np.testing.assert_array_equal(ds[name].notnull(), ds.n >= ds.successes)
    statements = results("statements")
    assert statements.n.values.tolist() == list(range(1, 2001))


@pytest.mark.parametrize(("prior", "epsilon", "delta"), [((1.0, 1.0), 1.0, 1e-8), ((0.5, 3.0), 2.0, 1e-4)])
def test_sensitivities_equal_enumeration(run_panel, prior, epsilon, delta):
    """Each sensitivity equals its definition as a maximum or minimum over all data sets."""
    values = {"n": [1, 7, 30], "prior": [":".join(map(str, prior))], "successes": range(31)}
    ds = run_panel(STUDY, "beta", epsilon=[epsilon], delta=[delta], **values)
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
    """At n = 100 and balanced data, the local, smooth and global sensitivity are 0.0703, 0.1220 and 0.3389."""
    at = summaries["beta"].sel(n=100)
    found = [float(at[name].sel(successes=x)) for name, x in zip(MEASURES, (50, 50, 50, 0), strict=True)]
    assert found == pytest.approx([0.0703, 0.1220, 0.0703, 0.3389], abs=5e-5)


def exponents(n, xs):
    """Return ln(1 − H(x, x+1)²) at each x in `xs`, with the Hellinger distance H in 40-digit arithmetic."""
    with mpmath.workdps(40):
        return {
            x: mpmath.log(mpmath.beta(x + mpmath.mpf(3) / 2, n - x + mpmath.mpf(1) / 2))
            - mpmath.log(mpmath.beta(x + 1, n - x + 1) * mpmath.beta(x + 2, n - x)) / 2
            for x in xs
        }


def exact_counterexamples(n):
    """Return the counterexamples to each statement printed in P1, in 40-digit arithmetic."""
    with mpmath.workdps(40):
        tiny = mpmath.mpf(10) ** -30
        step = {x: -value for x, value in exponents(n, range(n)).items()}  # the value increases with H(x, x+1)
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
    """Distances H(x, x+1) near the centre, which differ least, have the same order as in 40-digit arithmetic."""
    (step,) = compute_steps({"n": (n,), "prior": (1.0, 1.0)})
    exact = exponents(n, range(n // 2 - 4, n // 2 + 4))
    for x in list(exact)[:-1]:
        wanted = mpmath.sign(exact[x + 1] - exact[x]) if x + 1 + x + 1 != n else 0
        assert np.sign(step[x + 1] - step[x]) == wanted
        assert float(abs(step[x] / exact[x] - 1)) < 1e-13


def test_local_sensitivity_is_the_larger_step():
    sizes = (1, 2, 9, 40)
    for n, step in zip(sizes, compute_steps({"n": sizes, "prior": (0.5, 3.0)}), strict=True):
        np.testing.assert_allclose(np.sqrt(1 - np.exp(step)), steps(n, 0.5, 3.0), rtol=1e-10)


def test_figures_show_every_sensitivity(summaries):
    for figure in STUDY.figures:
        (plot,) = figure.draw(summaries)
        assert plot.titles == ["n = 20", "n = 100", "n = 500", "n = 2000"]
        assert plot.x.title
        assert list(plot.series) == ["smooth", "varying", "global", "local"]
        line = plot.rows.query("axes == 'n = 100' and series == 'local'")
        np.testing.assert_allclose(line["y"], local_sensitivities(100), rtol=1e-10)
