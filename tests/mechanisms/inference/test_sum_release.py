"""Tests of `SumRelease`: the same posteriors as `posterior_from_release`, and values that are valid by construction."""

import numpy as np
import pytest

from mechanisms import Noise, ReleaseModel, SumRelease, choose_method, posterior_from_release
from mechanisms.core.privacy import Guarantee, Neighbouring
from mechanisms.inference.families import MODELS
from mechanisms.inference.methods import fit_release
from tests.mechanisms.refusals import assert_refused

ADD = Neighbouring.ADD_OR_REMOVE_ONE
LAPLACE = Noise("laplace", 4.0)
RELEASES = {
    "binomial": (12.4, (2, 3), {}),
    "multinomial": ([10.2, 15.1, 5.3], (1, 2, 3), {}),
    "exponential": (19.3, (8, 2), {"bounds": (0.05, 1.5)}),
    "poisson": (60.2, (3, 2), {"bounds": (0, 6), "outside": "clamp"}),
    "normal": (31.4, (1, 4), {"bounds": (-2, 4), "variance": 2.0}),
    "normal-unknown-variance": ([-3.1, 12.2], None, {"bounds": (0, 10), "outside": "clamp"}),
}


def test_releases_cover_every_family():
    assert set(RELEASES) == set(MODELS)


@pytest.mark.parametrize("name", RELEASES)
def test_posterior_equals_that_of_the_function_with_the_same_noise(name):
    y, prior, options = RELEASES[name]
    release = SumRelease(y, ReleaseModel(name, 30, LAPLACE, **options), ADD)
    ours = release.posterior(prior, np.random.default_rng(1))
    expected = posterior_from_release(
        y, name, prior, n=30, noise=LAPLACE, relation=ADD, rng=np.random.default_rng(1), **options
    )
    np.testing.assert_array_equal(ours.interval(), expected.interval())
    assert repr(ours) == repr(expected)
    assert ours.guarantee == release.guarantee == expected.guarantee
    assert ours.guarantee.relation is ADD


@pytest.mark.parametrize("name", [name for name in RELEASES if name != "normal-unknown-variance"])
def test_posterior_is_that_of_the_chosen_method(name):
    y, prior, options = RELEASES[name]
    model = ReleaseModel(name, 30, LAPLACE, **options)
    direct = fit_release(None, model, prior, np.atleast_1d(y), choose_method(model, prior))
    np.testing.assert_array_equal(SumRelease(y, model).posterior(prior).mean(), direct.mean())


def test_release_is_a_copy_that_cannot_change():
    y = np.array([10.0, 15.0, 5.0])
    release = SumRelease(y, ReleaseModel("multinomial", 30, LAPLACE))
    y[0] = 99.0
    assert release.noisy_statistics.tolist() == [10.0, 15.0, 5.0]
    with pytest.raises(ValueError, match="read-only"):
        release.noisy_statistics[0] = 1.0
    assert release.guarantee == Guarantee(0.5)
    assert not release.is_surprising()
    assert SumRelease(1e6 * y, release.model).is_surprising()


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("model must be a ReleaseModel, got a str", {"model": "binomial"}),
        ("noisy_statistics must be finite, of shape .1,., got .1.0, 2.0.; pass one release", {"y": [1.0, 2.0]}),
        ("noisy_statistics must be finite", {"y": np.nan}),
        ("noisy_statistics must be an array of real numbers, got rows of unequal lengths",
         {"family": "multinomial", "y": [[1.0], [2.0, 3.0]]}),
        ("noisy_statistics must be an array of real numbers", {"y": "12"}),
        ("noisy_statistics must be integers for geometric", {"y": 1.5, "noise": Noise("geometric", 2.0)}),
        ("must sum to n = 30", {"family": "multinomial", "y": [1, 2, 3], "noise": Noise("k-norm", 2.0)}),
        ("relation must be REPLACE_ONE for k-norm noise",
         {"family": "multinomial", "y": [10, 15, 5], "noise": Noise("k-norm", 2.0), "relation": ADD}),
        ("relation must be a Neighbouring", {"relation": "add-remove"}),
        (r"prior \(alpha, beta\) must be given for the binomial family, got None", {"prior": None}),
        ("prior must have 2 numbers", {"prior": (1, 1, 1)}),
        ("noisy_statistics must be finite, of shape .3,.",
         {"family": "multinomial", "y": [4.0, 26.0], "prior": (1, 1, 1)}),
        ("rng must be a numpy Generator for the sampler data-augmentation",
         {"family": "normal-unknown-variance", "y": [1.0, 2.0], "prior": None, "bounds": (0, 9)}),
    ],
)  # fmt: skip
def test_invalid_releases_are_refused_in_one_line(message, changes):
    assert_refused(lambda: infer(**changes), message)


def infer(
    family="binomial", y=12.0, noise=LAPLACE, bounds=None, relation=Neighbouring.REPLACE_ONE, prior=(1, 1), model=None
):
    return SumRelease(y, model or ReleaseModel(family, 30, noise, bounds), relation).posterior(prior)
