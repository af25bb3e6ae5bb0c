"""Tests of the study `gibbs-traces`."""

import numpy as np


def test_iterations_and_constants(results):
    for panel in ("binomial", "exponential"):
        ds = results(panel)
        assert ds.iteration.values.tolist() == list(range(1, 501))
        assert (int(ds.n), float(ds.epsilon), int(ds.status)) == (1_000, 0.1, 1)
        assert (ds.theta > 0).all()


def test_chains_end_near_the_true_parameter(summaries):
    """The means of late iterations are near the true parameter, where the posterior is concentrated."""
    for panel, reach in (("binomial", 0.1), ("exponential", 2.0)):
        late = summaries[panel].theta.values[:, 100:]
        assert np.abs(late.mean(axis=1) - float(summaries[panel].truth)).max() < reach
