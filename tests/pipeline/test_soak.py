"""Test that a study with many random faults ends with the bits of an undisturbed run."""

import pytest

from tests.pipeline.faults.soak import soak


@pytest.mark.slow
@pytest.mark.parametrize("n_faults", [10, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_faults_at_random(tmp_path, n_faults):
    outcome = soak(tmp_path, n_faults, seed=1)
    assert outcome.right, outcome
