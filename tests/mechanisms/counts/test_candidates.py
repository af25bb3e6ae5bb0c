"""Tests of exact means that omit candidates whose terms do not change a bit."""

import numpy as np
import pytest

from mechanisms.counts import candidates
from mechanisms.counts.registry import MECHANISMS


@pytest.mark.parametrize("name", ["laplace", "laplace-dimension", "geometric", "hamming-exact"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 20.0, 150.0])
@pytest.mark.parametrize(
    ("prior", "counts"),
    [
        ((1.0, 1.0), (200, 100)),
        ((1.0, 1.0), (300, 0)),
        ((0.3, 2.0, 5.0), (100, 100, 100)),
        ((1.0, 1.0, 1.0), (0, 0, 300)),
        ((1.0, 1.0, 1.0), (300, 0, 0)),
        ((1.0, 1.0, 1.0, 1.0), (2, 2, 58, 58)),
        ((0.1, 1.0, 1.0, 30.0), (118, 0, 1, 1)),
    ],
)
def test_omitted_terms_change_no_bit_of_a_mean(monkeypatch, name, epsilon, prior, counts):
    mean = MECHANISMS[name].build(prior, counts, epsilon).expected_hellinger()
    monkeypatch.setattr(candidates, "NEGLIGIBLE", 0.0)
    assert mean > 0
    assert MECHANISMS[name].build(prior, counts, epsilon).expected_hellinger() == mean


def test_omitted_larger_terms_change_a_mean(monkeypatch):
    release = MECHANISMS["hamming-exact"].build(np.ones(3), (100, 100, 100), 1.0)
    mean = release.expected_hellinger()
    monkeypatch.setattr(candidates, "NEGLIGIBLE", 1e-3)
    assert release.expected_hellinger() < 0.999 * mean
