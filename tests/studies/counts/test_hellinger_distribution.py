"""Tests of the study `hellinger-distribution`."""

import numpy as np
import pytest
import xarray as xr
from scipy.special import gammaln

import pipeline
from mechanisms import MECHANISMS
from studies import STUDIES
from studies.counts.hellinger_distribution import STUDY
from studies.figures import render
from studies.report import drawable, judge, load_summaries
from studies.styles import INK, MECHANISM_STYLES


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


def renamed(summaries, names):
    """Exchange the names of mechanisms."""
    return {
        panel: ds.assign_coords(mechanism=[names.get(name, name) for name in ds.mechanism.values.tolist()])
        for panel, ds in summaries.items()
    }


def log_beta(a):
    return gammaln(a).sum(axis=-1) - gammaln(a.sum(axis=-1))


def textbook_distance(a, b):
    return np.sqrt(np.maximum(1 - np.exp(log_beta((a + b) / 2) - (log_beta(a) + log_beta(b)) / 2), 0))


def all_counts(n, k):
    """Return all count vectors by filtering a full grid."""
    grid = np.stack(np.meshgrid(*[np.arange(n + 1)] * (k - 1), indexing="ij"), -1).reshape(-1, k - 1)
    grid = grid[grid.sum(axis=1) <= n]
    return np.column_stack([grid, n - grid.sum(axis=1)])


def test_store_layout(store):
    """Check groups, dimensions, coordinates and measures as read by xarray."""
    for panel, k in (("k2", 2), ("k3", 3)):
        ds = xr.open_zarr(store, group=panel).load()
        assert ds.probability.dims == ("n", "mechanism", "distance_bin")
        assert ds.status.dims == ("n", "mechanism")
        skipped = ds.status.where(ds.status != 1, drop=True)
        assert k == 3 or not skipped.size
        if k == 3:  # too many candidates for an exact calibration
            assert (skipped == 5).all()
            assert skipped.n.values.tolist() == [500]
            assert sorted(skipped.mechanism.values) == ["global-exact", "smooth-exact", "varying-exact"]
        assert "trial" not in ds.dims
        assert (float(ds.epsilon), float(ds.delta), ds.prior.item()) == (1.0, 1e-8, ":".join("1" * k))
        assert ds.n.values.tolist() == [100, 500]
        np.testing.assert_array_equal(ds.distance_bin, np.arange(50) / 50)
        assert "Not private" in ds.mechanism.attrs["notes"]["local"]
        assert ds.mechanism.attrs["not_private"] == ["local"]
        assert ("smooth-n" in ds.mechanism.values) == (k > 2)


def test_probabilities_add_up_and_match_the_mean(summaries):
    for ds in summaries.values():
        ok = ds.n_ok == 1
        assert float(abs(ds.probability.sum("distance_bin") - 1).where(ok).max()) < 1e-13
        left = ds.probability.dot(ds.distance_bin)
        within = (left <= ds.expected_hellinger) & (ds.expected_hellinger <= left + 0.02 * (1 + 1e-9))
        assert (within | ~ok).all()


@pytest.mark.parametrize(("k", "n"), [(2, 9), (2, 30), (3, 8)])
def test_probabilities_equal_enumeration(tmp_path, k, n):
    """Enumerate independent implementations: weights exp(-H/(2 LS)), and rounded, clipped Laplace noise."""
    names = ("local", "laplace", "laplace-dimension")
    pipeline.run(STUDY, tmp_path / "s.zarr", panels=[f"k{k}"], values={"n": [n], "mechanism": names})
    ds = xr.open_zarr(tmp_path / "s.zarr", group=f"k{k}").sel(n=n)
    counts = np.full(k, n // k)
    counts[: n % k] += 1
    candidates = all_counts(n, k)
    distance = textbook_distance(1.0 + counts, 1.0 + candidates)
    distance[(candidates == counts).all(axis=1)] = 0.0
    neighbours = abs(candidates - counts).sum(axis=1) == 2

    def laplace(scale):
        def below(t):
            return np.where(t < 0, np.exp(t / scale) / 2, 1 - np.exp(-t / scale) / 2)

        distribution, rest = np.ones(len(candidates)), np.full(len(candidates), n)
        for x, c in zip(candidates.T[:-1], counts, strict=False):
            upper = np.where(x == rest, 1.0, below(x - c + 0.5))
            distribution *= upper - np.where(x == 0, 0.0, below(x - c - 0.5))
            rest = rest - x
        return distribution

    weights = np.exp(-distance / (2 * distance[neighbours].max()))
    distributions = {
        "local": weights / weights.sum(),
        "laplace": laplace(min(k - 1, 2.0)),
        "laplace-dimension": laplace(k),
    }
    for name, distribution in distributions.items():
        expected = np.histogram(distance, np.linspace(0, 1, 51), weights=distribution)[0]
        np.testing.assert_allclose(ds.probability.sel(mechanism=name), expected, rtol=1e-9, atol=1e-14)
        assert float(ds.expected_hellinger.sel(mechanism=name)) == pytest.approx(distribution @ distance, rel=1e-9)


def test_custom_bins(tmp_path):
    """Coarse bins have the sums of the finer bins, and the last bin includes the farthest candidates."""
    for name, bins in (("fine", [0, 0.25, 0.5, 0.75]), ("coarse", [0.0, 0.5])):
        pipeline.run(STUDY, tmp_path / name, panels=["k2"], values={"n": [40], "distance_bin": bins})
    fine, coarse = (xr.open_zarr(tmp_path / name, group="k2").probability.values for name in ("fine", "coarse"))
    np.testing.assert_allclose(fine[..., ::2] + fine[..., 1::2], coarse, rtol=1e-13)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": [0]}, "n must be >= 1"),
        ({"prior": ["1:1"]}, "prior must have 3 entries"),
        ({"epsilon": [-1.0]}, "epsilon must be"),
        ({"n": [100_000]}, "candidates must number at most"),
        ({"distance_bin": [0.1, 0.5]}, "distance_bin must list the lower edges"),
        ({"distance_bin": [0, 0.5, 0.2]}, "distance_bin must list the lower edges"),
        ({"distance_bin": [0, 1]}, "distance_bin must list the lower edges"),
    ],
)
def test_invalid_values_raise(values, message):
    with pytest.raises(ValueError, match=message):
        STUDY.configure(panels=["k3"], values=values)


def test_verdicts(summaries):
    """For n > 400 the published mechanism has the smaller mean but a heavier tail than the baseline."""
    assert verdicts(summaries) == {
        "ahead-of-dimension-k2": "corrected",
        "ahead-of-dimension-k3": "corrected",
        "smooth-ahead-of-global": "reproduced",
        "ahead-of-histogram": "corrected",
        "distributions-are-whole": "passed",
    }


def test_verdicts_depend_on_the_results(summaries):
    """Exchanging the two mechanisms of a comparison changes the verdict."""
    for k, first in ((2, "smooth"), (3, "smooth-n")):
        swapped = renamed(summaries, {first: "laplace-dimension", "laplace-dimension": first})
        assert verdicts(swapped)[f"ahead-of-dimension-k{k}"] == "not reproduced"
        ahead = renamed(summaries, {first: "laplace", "laplace": first})
        assert verdicts(ahead)[f"ahead-of-dimension-k{k}"] == "reproduced"
    swapped = renamed(summaries, {"smooth": "global", "global": "smooth"})
    assert verdicts(swapped)["smooth-ahead-of-global"] == "not reproduced"
    swapped = renamed(summaries, {"smooth": "laplace", "laplace": "smooth"})
    assert verdicts(swapped)["ahead-of-histogram"] == "reproduced"


def test_wrong_probabilities_or_means_fail_the_claim(summaries):
    for change in ({"probability": 1 + 1e-11}, {"expected_hellinger": 1.2}):
        changed = summaries["k2"].assign({name: summaries["k2"][name] * factor for name, factor in change.items()})
        assert verdicts({**summaries, "k2": changed})["distributions-are-whole"] == "failed"


def test_claims_without_results_are_undecided(summaries):
    small = {"k2": summaries["k2"].sel(n=[100])}
    findings = {claim.name: finding for claim, finding in judge(STUDY, small)}
    assert findings["ahead-of-dimension-k2"].evidence == "Panel k2 has no n = 500."
    assert findings["ahead-of-dimension-k3"].evidence == "The store has no panel k3."
    assert findings["distributions-are-whole"].verdict == "passed"


def test_every_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    for figure in STUDY.figures:
        (svg,) = render(figure.draw, summaries, ["svg"])
        assert INK.encode() in svg
        drawn = figure.draw(summaries)
        ds = summaries[figure.panels[0]]
        assert len(drawn.axes) == 2 * ds.sizes["n"]
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in drawn.axes)
        for axes in drawn.axes[1::2]:
            for line in axes.get_lines():
                assert line.get_ydata()[-1] == pytest.approx(1.0, abs=1e-12) or np.isnan(line.get_ydata()[-1])


def test_styles_of_mechanisms_are_unique():
    """Markers are distinct in black and white; a variant has the colour of its sensitivity."""
    assert set(MECHANISMS) <= set(MECHANISM_STYLES)
    markers = [style["marker"] for style in MECHANISM_STYLES.values()]
    assert len(set(markers)) == len(markers)
    for name, style in MECHANISM_STYLES.items():
        family, _, variant = name.rpartition("-")
        if family in MECHANISM_STYLES and variant in ("n", "exact", "bound"):
            assert style["color"] == MECHANISM_STYLES[family]["color"]
            assert style["linestyle"] != MECHANISM_STYLES[family]["linestyle"]


def test_study_is_registered():
    assert STUDIES["hellinger-distribution"] is STUDY
