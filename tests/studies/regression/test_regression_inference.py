"""Tests of the measures of `regression-inference`."""

import numpy as np

from studies.regression.regression_inference import _score


def test_equal_draws_are_scored():
    """All replicates of a bootstrap can be at the limit of the variance; a draw that is not finite fails its trial."""
    draws, truth = np.ones((2, 2, 20, 1)), np.array([[1.0], [0.5]])
    draws[1, 0, 0] = np.nan
    found = _score(draws, truth)
    assert [found[name][0, 0] for name in ("pit", "covered", "width", "score", "rhat", "ess")] == [0, 1, 0, 0, 1, 40]
    assert np.isnan([found["rhat"][1, 0], found["width"][1, 0]]).all()
