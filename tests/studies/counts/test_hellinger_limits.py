"""Tests of the study `hellinger-limits`."""

import itertools

import numpy as np
import pytest

from mechanisms import MECHANISMS, balanced_counts
from mechanisms.counts.optimal import optimal_distribution
from studies.counts.hellinger_limits import STUDY
from tests.mechanisms.counts.enumeration import Enumerated

SIZES = (3, 6)


def test_every_private_mechanism_applies(results):
    for k in (2, 3, 4):
        private = {name for name, one in MECHANISMS.items() if one.is_private and k >= one.min_categories}
        ds = results(f"k{k}")
        assert set(ds.mechanism.values.tolist()) == private
        assert (float(ds.epsilon), ds.prior.item()) == (1.0, ":".join("1" * k))


def test_distances_equal_enumeration(summaries):
    for k, n in itertools.product((2, 3, 4), SIZES):
        enumerated = Enumerated(np.ones(k), n)
        datasets, distance = enumerated.datasets, enumerated.distances
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
    for k, n in itertools.product((2, 3, 4), SIZES):
        limit = optimal_distribution(np.ones(k), n, 1.0).worst_case
        stored = float(summaries[f"k{k}"].worst_hellinger.sel(n=n, mechanism="optimal"))
        assert stored == pytest.approx(limit, rel=1e-6)


def test_figures_show_every_mechanism(summaries):
    for figure in STUDY.figures:
        (plot,) = figure.draw(summaries)
        lines = plot.rows.groupby("axes", sort=False)["series"].nunique()
        expected = {f"{k} categories": summaries[f"k{k}"].sizes["mechanism"] - 1 for k in (2, 3, 4)}
        assert lines.to_dict() == expected  # the optimum is the line at 1
        assert set(plot.rows["level"].dropna()) == {1.0}
    (worst,) = STUDY.figures[0].draw(summaries)
    assert worst.rows["y"].min() >= 1
