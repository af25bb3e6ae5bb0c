"""The study: its panels follow the contract, chains start apart and meet, its claim can fail."""

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


def test_contract_of_the_store(store):
    for panel in ("binomial", "exponential"):
        ds = xr.open_zarr(store, group=panel)
        assert ds.theta.dims == ("start", "iteration")
        assert ds.iteration.values.tolist() == list(range(1, 501))
        assert (int(ds.n), float(ds.epsilon), int(ds.status)) == (1_000, 0.1, 1)
        assert (ds.theta > 0).all()


def test_chains_end_where_the_posterior_is(summaries):
    """Near the true parameter, as 1,000 records with this noise are informative."""
    for panel, reach in (("binomial", 0.1), ("exponential", 2.0)):
        late = summaries[panel].theta.values[:, 100:]
        assert np.abs(late.mean(axis=1) - float(summaries[panel].truth)).max() < reach


def test_the_claim_follows_the_numbers(summaries):
    ((_, finding),) = judge(STUDY, summaries)
    assert finding.verdict == "reproduced"
    apart = {name: ds.assign(theta=ds.theta + 10 * ds.start) for name, ds in summaries.items()}
    ((_, finding),) = judge(STUDY, apart)
    assert finding.verdict == "not reproduced"
    ((_, finding),) = judge(STUDY, {"binomial": summaries["binomial"]})
    assert finding.verdict == "undecided"


def test_the_figure_is_drawn(summaries):
    assert drawable(STUDY, summaries) == list(STUDY.figures)
    (figure,) = STUDY.figures
    (image,) = render(figure.draw, summaries, ["svg"])
    assert INK.encode() in image


def test_listed():
    assert STUDIES["gibbs-traces"] is STUDY
