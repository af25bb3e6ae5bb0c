"""Tests of the tables that notebooks show for posteriors, audits, studies and stores, and of pickles."""

import pickle
import re

import numpy as np
import pytest

import mechanisms
import pipeline
from mechanisms.core.noise import Noise
from mechanisms.tables import negative_binomial, table_posterior
from studies import STUDIES


def _posterior():
    return mechanisms.posterior_from_release(63.7, "binomial", prior=(1, 1), n=100, epsilon=0.5)


def _regression():
    rng = np.random.default_rng(1)
    x = rng.uniform(size=200)
    bounds = {"<x>": (0.0, 1.0), "y": (0.0, 2.0)}
    return mechanisms.private_regression(x[:, None], x + rng.uniform(size=200), bounds, 1.0, rehearsal_seed=1)


def _table():
    values, parents = [*np.full(19, 3.0), 60.0], [19] * 19 + [-1]
    return table_posterior(values, Noise("gaussian", 3.0), parents, negative_binomial(1.0, 5.0))


def _audit():
    return mechanisms.audit_counts(mechanisms.MECHANISMS["geometric"], prior=[1, 1], n=5, epsilon=1.0)


def _store(folder):
    return pipeline.run(STUDIES["renyi-curves"], folder / "s.zarr", values={"coefficient": [0.5], "order": [2.0]})


SHOWN = {
    "posterior": (_posterior, ["theta", "0.6343", "95 % from", "guarantee: 0.5-DP"]),
    "regression": (_regression, ["intercept", "&lt;x&gt;", "error_variance", "none (rehearsal)"]),
    "table": (_table, ["node 0", "node 11", "8 more"]),
    "audit": (_audit, ["privacy loss ε", "against", "exact"]),
    "study": (lambda: STUDIES["hellinger-accuracy"], ["k3", "cells", "17 claims"]),
    "studies": (lambda: STUDIES, ["hellinger-accuracy", "P4", "Calibration of inference"]),
}


def check(html, parts):
    """Check that a table is small, shows the parts, and leaves all colours to the page."""
    assert [part for part in parts if part not in html] == []
    assert html.count("<table") == 1
    assert len(html) < 10_000
    assert not re.search("color|background|…", html)
    assert html.count("<td") == html.count("</td>") > 0


@pytest.mark.parametrize("name", SHOWN)
def test_notebooks_show_a_small_table(name):
    make, parts = SHOWN[name]
    check(make()._repr_html_(), parts)


def test_studies_are_printed_in_lines_and_can_be_pickled():
    assert [line.split()[0] for line in str(STUDIES).splitlines()] == list(STUDIES)
    for study in STUDIES.values():
        assert pickle.loads(pickle.dumps(study)).spec() == study.spec()


def test_notebooks_show_the_panels_of_a_store(tmp_path):
    check(_store(tmp_path)._repr_html_(), ["renyi-curves", "diffused", "coefficient"])
