"""Tests of the study `gibbs-traces`."""

import numpy as np
import pytest
import xarray as xr

import pipeline
from studies import STUDIES
from studies.figures import render
from studies.inference.gibbs_traces import STUDY
from studies.report import drawable, judge, load_summaries
from studies.styles import INK


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "s.zarr"
    pipeline.run(STUDY, path)
    return path


@pytest.fixture(scope="module")
def summaries(store):
    return load_summaries(store, study=STUDY)


def test_store_layout(store):
    for panel in ("binomial", "exponential"):
        ds = xr.open_zarr(store, group=panel)
        assert ds.theta.dims == ("start", "iteration")
        assert ds.iteration.values.tolist() == list(range(1, 501))
        assert (int(ds.n), float(ds.epsilon), int(ds.status)) == (1_000, 0.1, 1)
        assert (ds.theta > 0).all()


def test_chains_end_near_the_true_parameter(summaries):
    """With 1,000 records and this noise, the posterior is concentrated near the true parameter."""
    for panel, reach in (("binomial", 0.1), ("exponential", 2.0)):
        late = summaries[panel].theta.values[:, 100:]
        assert np.abs(late.mean(axis=1) - float(summaries[panel].truth)).max() < reach


def test_verdict_depends_on_the_results(summaries):
    ((_, finding),) = judge(STUDY, summaries)
    assert finding.verdict == "reproduced"
    apart = {name: ds.assign(theta=ds.theta + 10 * ds.start) for name, ds in summaries.items()}
    ((_, finding),) = judge(STUDY, apart)
    assert finding.verdict == "not reproduced"
    ((_, finding),) = judge(STUDY, {"binomial": summaries["binomial"]})
    assert finding.verdict == "undecided"


def test_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    (figure,) = STUDY.figures
    (svg,) = render(figure.draw, summaries, ["svg"])
    assert INK.encode() in svg


def test_study_is_registered():
    assert STUDIES["gibbs-traces"] is STUDY
