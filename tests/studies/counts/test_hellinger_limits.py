"""Tests of the study `hellinger-limits`."""

import itertools

import numpy as np
import pytest
import xarray as xr

import pipeline
from mechanisms import MECHANISMS, balanced_counts, hellinger
from mechanisms.counts.optimal import optimal_distribution
from studies import STUDIES
from studies.counts.hellinger_limits import STUDY
from studies.figures import render
from studies.report import drawable, judge, load_summaries
from studies.styles import INK

SIZES = (3, 6)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Run the study at two sizes."""
    path = tmp_path_factory.mktemp("study") / "s.zarr"
    pipeline.run(STUDY, path, values={"n": SIZES})
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


def test_store_layout(store):
    """Check groups, dimensions, coordinates and measures; every private mechanism applies."""
    private = {name for name, mechanism in MECHANISMS.items() if mechanism.is_private}
    for k in (2, 3, 4):
        ds = xr.open_zarr(store, group=f"k{k}")
        for name in ("worst_hellinger", "balanced_hellinger", "status"):
            assert ds[name].dims == ("n", "mechanism")
        assert ds.worst_dataset.dims == ("n", "mechanism", "cell")
        assert (ds.status == 1).all()
        assert set(ds.mechanism.values.tolist()) == private - ({"smooth-n"} if k == 2 else set())
        assert (float(ds.epsilon), ds.prior.item()) == (1.0, ":".join("1" * k))


def test_distances_equal_enumeration(summaries):
    for k, n in itertools.product((2, 3, 4), SIZES):
        datasets = np.array([c for c in itertools.product(range(n + 1), repeat=k) if sum(c) == n])
        distance = np.array([hellinger(1.0 + c, 1.0 + datasets) for c in datasets])
        balanced = np.flatnonzero((datasets == balanced_counts(n, k)).all(axis=1))[0]
        for name in summaries[f"k{k}"].mechanism.values.tolist():
            distributions = np.array([MECHANISMS[name].build(np.ones(k), c, 1.0, 1e-8).pmf() for c in datasets])
            expected = (distributions * distance).sum(axis=1)
            one = summaries[f"k{k}"].sel(n=n, mechanism=name)
            assert float(one.worst_hellinger) == pytest.approx(expected.max(), rel=1e-9)
            assert float(one.balanced_hellinger) == pytest.approx(expected[balanced], rel=1e-9)
            worst = np.flatnonzero((datasets == one.worst_dataset.values).all(axis=1))[0]
            assert expected[worst] == pytest.approx(expected.max(), rel=1e-9)


def test_worst_case_equals_the_linear_program(summaries):
    """The worst case of the registered mechanism is the optimum of the linear program."""
    for k, n in itertools.product((2, 3, 4), SIZES):
        limit = optimal_distribution(np.ones(k), n, 1.0, "worst-case").worst_case
        stored = float(summaries[f"k{k}"].worst_hellinger.sel(n=n, mechanism="optimal"))
        assert stored == pytest.approx(limit, rel=1e-6)


def test_verdicts(summaries):
    assert verdicts(summaries) == {
        "none-is-better": "passed",
        "geometric-is-nearest": "corrected",  # at n = 3 the mechanism on the Hamming distance is nearer
        "tailored-is-nearer": "corrected",
    }
    six = {panel: ds.sel(n=[6]) for panel, ds in summaries.items()}
    assert verdicts(six)["geometric-is-nearest"] == "holds"


def test_verdicts_depend_on_the_results(summaries):
    """Exchanging the two mechanisms of a comparison changes the verdict."""
    assert verdicts(renamed(summaries, {"optimal": "laplace", "laplace": "optimal"})) == {
        "none-is-better": "failed",
        "geometric-is-nearest": "does not hold",
        "tailored-is-nearer": "not reproduced",
    }
    swapped = renamed(summaries, {"geometric": "smooth-exact", "smooth-exact": "geometric"})
    assert verdicts(swapped)["geometric-is-nearest"] == "does not hold"
    best = renamed(summaries, {"hamming-exact": "smooth", "smooth": "hamming-exact"})
    nearer = {**best, "k2": swapped["k2"]}
    assert verdicts(nearer)["tailored-is-nearer"] == "reproduced"
    far = {
        panel: ds.assign(
            worst_hellinger=ds.worst_hellinger * xr.where(ds.mechanism.str.contains("smooth|vary|glob"), 9, 1)
        )
        for panel, ds in summaries.items()
    }
    assert verdicts(far)["tailored-is-nearer"] == "not reproduced"


def test_claims_without_results_are_undecided(summaries):
    findings = {claim.name: finding for claim, finding in judge(STUDY, {"k2": summaries["k2"]})}
    assert findings["none-is-better"].evidence == "The store has no panel k3."
    assert findings["geometric-is-nearest"].verdict == "corrected"
    without = {panel: ds.drop_sel(mechanism="optimal") for panel, ds in summaries.items()}
    assert set(verdicts(without).values()) == {"undecided"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": [0]}, "n must be >= 1"),
        ({"n": [21]}, "the linear program must have at most"),
        ({"prior": ["1:1"]}, "prior must have 3 entries"),
        ({"epsilon": [0]}, "epsilon must be"),
        ({"cell": [0, 1]}, "cell must be 0 to 2"),
    ],
)
def test_invalid_values_raise(values, message):
    with pytest.raises(ValueError, match=message):
        STUDY.configure(panels=["k3"], values=values)


def test_every_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    for figure in STUDY.figures:
        (svg,) = render(figure.draw, summaries, ["svg"])
        assert INK.encode() in svg
        grid = figure.draw(summaries).axes
        assert len(grid) == 3
        for axes, panel in zip(grid, ("k2", "k3", "k4"), strict=True):
            assert len(axes.get_lines()) == summaries[panel].sizes["mechanism"]  # the optimum is the line at 1
    worst = STUDY.figures[0].draw(summaries).axes
    assert min(line.get_ydata().min() for axes in worst for line in axes.get_lines()[1:]) >= 1


def test_study_is_registered():
    assert STUDIES["hellinger-limits"] is STUDY
