"""Tests of a mechanism that has only a sampler: its draws, and its comparison in a study."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mechanisms import Guarantee, Mechanism, audit_counts
from pipeline import open_results, run
from studies import STUDIES
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within

PRIOR, COUNTS = np.ones(2), np.array([30, 20])


def sampled(scale=1.0):
    """Return the geometric mechanism on two counts as a sampler whose distribution is not available."""

    def sampler(rng, counts, epsilon, delta, size):
        success, n = -math.expm1(-epsilon / scale), int(counts.sum())
        first = np.clip(counts[0] + rng.geometric(success, size) - rng.geometric(success, size), 0, n)
        return np.stack([first, n - first], axis=1)

    return Mechanism("mine", "Mine.", sampler=sampler, guarantee=lambda epsilon, delta: Guarantee(epsilon, 0.0))


@pytest.mark.slow
def test_sampler_is_compared_in_a_study(tmp_path):
    """The mean distance that a study stores for a sampler of `geometric` agrees with the exact mean."""
    published = STUDIES["hellinger-accuracy"]
    study = replace(published, panels=(published.panel("k2"),), claims=(), figures=(), errata=())
    study = study.with_methods(sampled())
    run(study, tmp_path / "s.zarr", trials=10_000, values={"n": [100], "mechanism": ["geometric", "mine"]})
    ds = open_results(tmp_path / "s.zarr")["k2"].to_dataset().isel(n=0).load()
    mine = ds.sel(mechanism="mine")
    exact = ds.expected_hellinger.sel(mechanism="geometric").item()
    assert np.isnan(mine.expected_hellinger)
    assert_mean_within(mine.hellinger.values, exact, wrong=1.2 * exact)  # negative control: 16 standard errors away


def test_exact_audit_of_a_sampler_is_refused():
    message = "can only be sampled, and has no pmf; audit it by sampled_bound"
    assert_refused(lambda: audit_counts(sampled(), [1, 1], 5, 1.0), message)


@pytest.mark.parametrize("uniforms", [np.zeros(2), np.zeros((3, 2)), np.ones((3, 1)), np.full((3, 1), np.nan)])
def test_invalid_uniforms_are_refused(uniforms):
    release = sampled().build(PRIOR, COUNTS, 1.0)
    assert_refused(lambda: release.from_uniforms(uniforms), r"uniforms must (be in \[0, 1\)|have shape)")
    assert release.from_uniforms(np.zeros((0, 1))).shape == (0, 2)
