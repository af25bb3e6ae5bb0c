"""Test that a study with many random faults ends with the bits of an undisturbed run."""

import os

import pytest

from tests.pipeline.faults.soak import soak

N_FAULTS = int(os.environ.get("DPSTUDIES_SOAK_FAULTS", "15"))


@pytest.mark.slow
def test_faults_at_random(tmp_path):
    outcome = soak(tmp_path, N_FAULTS, seed=1)
    assert outcome.right, outcome
