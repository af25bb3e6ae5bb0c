"""Tests of private posteriors against quadrature for one record, of their coverage, and of data in messages."""

import subprocess
import sys
from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from mechanisms import Guarantee, Posterior, ReleasePosterior, posterior_from_release, private_posterior
from mechanisms.core.noise import Noise
from mechanisms.inference import private_posterior as posterior_module
from mechanisms.inference.drawn_posterior import DrawnPosterior
from mechanisms.inference.exact_posterior import exact_posterior
from mechanisms.inference.families import MODELS
from mechanisms.inference.release_model import ReleaseModel
from tests.mechanisms.inference.enumeration import binomial_mixture
from tests.mechanisms.inference.laplace import PRIORS, RECORDS
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_mean_within, assert_rejects

BOUNDS = {
    "exponential": (0.05, 1.5),
    "poisson": (1.0, 6.0),
    "normal": (-2.0, 3.0),
    "normal-unknown-variance": (-1.0, 2.0),
}
BOUNDED = [(name, "drop") for name in PRIORS] + [(name, "clamp") for name in BOUNDS]
VARIANCES = {"normal": {"variance": 1.0}}
RNG = np.random.default_rng(1)


def rehearse(name, seed=1, **options):
    options = {"bounds": BOUNDS.get(name), "rehearsal_seed": seed, **VARIANCES.get(name, {}), **options}
    return private_posterior(RECORDS[name], name, PRIORS[name], 0.8, **options)


@pytest.mark.parametrize(("name", "statistic"), [("binomial", 4), ("multinomial", pd.Series([1, 4, 1]))])
def test_a_sum_gives_the_posterior_of_its_records(name, statistic):
    ours = private_posterior(statistic, name, PRIORS[name], 0.8, n=6, rehearsal_seed=1)
    records = rehearse(name)
    assert repr(ours) == repr(records)
    np.testing.assert_array_equal(ours.release, records.release)
    np.testing.assert_array_equal(ours.quantile(0.3), records.quantile(0.3))


@pytest.mark.parametrize(
    ("name", "statistic", "n", "message"),
    [
        ("binomial", 7, 6, "an integer between 0 and n=6"),
        ("binomial", -1, 6, "an integer between 0 and n=6"),
        ("binomial", 2.5, 6, "an integer between 0 and n=6"),
        ("binomial", np.nan, 6, "an integer between 0 and n=6"),
        ("binomial", [0, 1, 1], 6, "one number if n is given"),
        ("binomial", 0, 0, "n must be an integer >= 1"),
        ("multinomial", [1, 4, 2], 6, "with sum n=6"),
        ("multinomial", [-1, 4, 3], 6, "with sum n=6"),
        ("multinomial", np.eye(3), 3, "one count per category if n is given"),
        ("multinomial", [3, 3], 6, "prior must have 2 numbers"),
        ("exponential", 4.0, 6, "pass the records"),
    ],
)
def test_wrong_sums_are_refused_before_any_noise_is_drawn(name, statistic, n, message, monkeypatch):
    monkeypatch.setattr("mechanisms.inference.private_posterior.release_sums", None)
    assert_refused(lambda: private_posterior(statistic, name, PRIORS[name], 0.8, n=n, bounds=BOUNDS.get(name)), message)


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("name", ["exponential", "poisson", "normal"])
def test_noise_of_a_release_has_the_scale_of_the_largest_contributions(name, outside):
    """The noise has the scale (largest − smallest contribution)/ε; a scale that is 20 % wrong is detected."""
    y, epsilon, (a, b) = 1.3, 1.5, BOUNDS[name]
    width = b - a if outside == "clamp" else max(b, 0.0) - min(a, 0.0)
    options = {"bounds": BOUNDS[name], "outside": outside, **VARIANCES.get(name, {})}
    found = posterior_from_release(y, name, PRIORS[name], n=1, epsilon=epsilon, **options)
    right, wrong = (
        exact_posterior(
            ReleaseModel(name, 1, Noise("laplace", factor * width / epsilon), (a, b), outside), PRIORS[name], [y]
        )
        for factor in (1.0, 1.2)
    )
    theta = right.quantile(np.linspace(0.01, 0.99, 99))
    np.testing.assert_allclose(found.cdf(theta), right.cdf(theta), atol=1e-9)
    assert np.abs(found.cdf(theta) - wrong.cdf(theta)).max() > 1e-3


@pytest.mark.parametrize(("noise", "y"), [("laplace", 12.3), ("geometric", 12.0)])
def test_binomial_posterior_equals_the_mixture(noise, y):
    found = posterior_from_release(y, "binomial", (2, 3), n=30, epsilon=0.25, noise=noise)
    exact = binomial_mixture((2, 3), 30, y, 4.0)
    assert found.method == "exact"
    assert "affordable" in found.reason
    assert found.mcse() == 0.0
    for got, expected in [
        (found.mean(), exact.mean()),
        (found.std(), exact.std()),
        (found.interval(), exact.interval(0.95)),
        (found.cdf([0.2, 0.5]), exact.cdf([0.2, 0.5])),
    ]:
        np.testing.assert_allclose(got, expected, rtol=1e-9)


def coverage(name, outside, epsilon, assumed_epsilon, trials=100):
    """Return, for θ drawn from the prior, 1.0 if the 80 % interval contains the first component of θ, else 0.0."""
    rng, n, prior = np.random.default_rng(3), 6, PRIORS[name]
    unscaled = ReleaseModel(name, n, Noise("laplace", 1.0), BOUNDS.get(name), outside)
    model = replace(unscaled, noise=Noise("laplace", unscaled.sensitivity() / epsilon))
    covered = []
    for theta in model.entry.draw_parameters(rng, prior, trials):
        (y,) = model.draw_release(rng, theta[None])
        options = {"n": n, "epsilon": assumed_epsilon, "bounds": BOUNDS.get(name), "outside": outside, "rng": rng}
        options |= VARIANCES.get(name, {})
        low, high = posterior_from_release(y, name, prior, **options).interval(0.8)
        true = model.released_moments(theta) if (name, outside) == ("normal-unknown-variance", "clamp") else theta
        covered.append(np.atleast_1d(low)[0] <= true[0] <= np.atleast_1d(high)[0])
    return np.array(covered, dtype=float)


COVERED = [  # records outside the bounds of each family are dropped or clamped
    ("binomial", "drop"),
    ("poisson", "drop"),
    *exhaustive(("multinomial", "drop"), ("normal", "clamp"), ("exponential", "clamp")),
    *exhaustive(("normal-unknown-variance", "drop"), ("normal-unknown-variance", "clamp")),
]


@pytest.mark.filterwarnings("ignore:the release of 6 records lies between 0 and 1")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "outside"), COVERED)
def test_intervals_cover_parameters_of_the_prior(name, outside):
    assert_mean_within(coverage(name, outside, 0.8, 0.8), 0.8)


@pytest.mark.filterwarnings("ignore:the release of 6 records lies between 0 and 1")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "outside"), [("binomial", "drop"), ("poisson", "clamp")])
def test_intervals_that_ignore_the_noise_do_not_cover(name, outside):
    """If inference assumes 50 times the true ε, 80 % intervals cover θ too rarely (negative control)."""
    assert_rejects(assert_mean_within, coverage(name, outside, 0.1, 5.0), 0.8)


@pytest.mark.slow
@pytest.mark.exhaustive  # the gate has the coverage of simulated releases, and the noise of real ones
def test_intervals_of_real_releases_cover_the_parameter():
    rng, covered = np.random.default_rng(4), []
    for theta in rng.gamma(6.0, size=100) / 2.0:
        found = private_posterior(rng.poisson(theta, 12), "poisson", (6, 2), 0.8, bounds=(1, 6), outside="clamp")
        low, high = found.interval(0.8)
        covered.append(float(low <= theta <= high))
    assert stats.binomtest(int(sum(covered)), len(covered), 0.8).pvalue > 1e-6


@pytest.mark.filterwarnings("ignore:the release of 6 records lies between 0 and 1")
@pytest.mark.parametrize(("name", "outside"), BOUNDED)
def test_release_has_a_guarantee_and_inference_assumes_its_noise(name, outside):
    options = {"bounds": BOUNDS.get(name), "outside": outside, **VARIANCES.get(name, {})}
    found = private_posterior(RECORDS[name], name, PRIORS[name], 0.5, **options)
    n = len(RECORDS[name])
    assert isinstance(found, Posterior)
    assert found.guarantee == Guarantee(0.5)
    assert found.model.noise.scale == pytest.approx(found.model.sensitivity() / 0.5, rel=1e-8)
    again = posterior_from_release(
        found.release, name, PRIORS[name], n=n, epsilon=0.5, **options, rng=np.random.default_rng(2)
    )
    error = 6 * np.hypot(found.mcse(), again.mcse()) + 1e-6
    assert np.all(np.abs(np.subtract(found.mean(), again.mean())) <= error)
    with pytest.raises(ValueError, match="read-only"):
        found.release[0] = 1.0


@pytest.mark.parametrize("middle", [-0.9, 0.5])
def test_mean_of_records_in_far_too_wide_bounds_is_not_pulled_to_their_middle(middle):
    """Bounds are 100 standard deviations wide; the conjugate prior of 0.3.0 moved the mean by more than the noise."""
    n, std = 200, 0.02
    y, options = [n * middle, n * (middle**2 + std**2)], {"n": n, "epsilon": 1.0, "bounds": (-1, 1)}
    errors = {}
    for prior in (None, (0.0, 1 / 3, 1.0, 0.1)):
        rng = np.random.default_rng(1)
        found = posterior_from_release(y, "normal-unknown-variance", prior, outside="clamp", rng=rng, **options)
        errors[prior] = abs(found.mean()[0] - middle) / (found.model.noise.density_variance**0.5 / n)
    weak, conjugate = errors.values()
    assert weak < 0.3
    assert conjugate > 0.6


def test_release_of_a_rehearsal_has_the_stated_noise(monkeypatch):
    """The mean absolute noise on both sums is the noise scale of the model; twice this scale is rejected."""
    name = "normal-unknown-variance"
    first = rehearse(name)
    model = first.model
    # only the release is drawn again, not its posterior
    monkeypatch.setattr(posterior_module, "rehearse", lambda *_: 50)
    monkeypatch.setattr(
        posterior_module, "infer_by", lambda choice, public, *_: replace(first, release=public.noisy_statistics)
    )
    exact = model.statistic(RECORDS[name])
    noise = np.array([rehearse(name, seed).release for seed in range(100)]) - exact
    for component in noise.T:
        assert_mean_within(np.abs(component), model.noise.scale, wrong=2.0 * model.noise.scale)


@pytest.mark.parametrize("name", PRIORS)
def test_rehearsals_repeat_and_have_no_guarantee(name):
    first, second, other = rehearse(name), rehearse(name), rehearse(name, seed=2)
    assert first.guarantee is None
    assert "guarantee=none (rehearsal)" in repr(first)
    np.testing.assert_array_equal(first.release, second.release)
    np.testing.assert_array_equal(first.mean(), second.mean())
    assert not np.array_equal(first.release, other.release)


@pytest.mark.parametrize("name", PRIORS)
def test_result_has_no_private_data(name):
    found = rehearse(name)
    assert isinstance(found, ReleasePosterior)
    assert not np.any(found.release[0] == found.model.statistic(RECORDS[name])[0])
    values = {**vars(found), **vars(found.distribution)}
    assert not any(getattr(value, "shape", None) == np.shape(RECORDS[name]) for value in values.values())
    assert "\n" not in repr(found)
    assert len(repr(found)) < 220
    assert not any(part in repr(found) for part in ("array", "release", str(RECORDS[name])))


@pytest.mark.parametrize(
    "convert",
    [
        np.array,
        pd.Series,
        tuple,
        lambda x: pd.DataFrame({"x": x})["x"],
        lambda x: xr.DataArray(x, dims="patient"),
        lambda x: np.array(x, dtype=bool),
        lambda x: [bool(value) for value in x],
    ],
)
def test_records_may_be_any_array(convert):
    options = {"epsilon": 1.0, "rehearsal_seed": 1}
    expected = private_posterior(RECORDS["binomial"], "binomial", (1, 1), **options)
    found = private_posterior(convert(RECORDS["binomial"]), "binomial", (1, 1), **options)
    assert found.release == expected.release


def test_frames_and_labelled_arrays_of_categories_are_records():
    one_hot = pd.get_dummies(pd.Series(["a", "b", "b"]), dtype=bool)
    for records in (one_hot, xr.DataArray(one_hot.to_numpy(), dims=("patient", "category"))):
        found = private_posterior(records, "multinomial", (1, 1), 50.0, rehearsal_seed=1)
        np.testing.assert_allclose(found.release, [1, 2], atol=0.5)


INCOMES = np.random.default_rng(8).lognormal(10.4, 0.6, 200)


def infer_incomes(records=INCOMES, **changes):
    options = {"epsilon": 5.0, "bounds": (0, 200_000), "outside": "clamp", "rehearsal_seed": 1, **changes}
    return private_posterior(records, "normal-unknown-variance", **options)


@pytest.mark.parametrize("epsilon", [0.5, 50.0])
def test_known_variance_changes_units_only(epsilon):
    """The posterior of a mean in units of σ, times σ, is that in units of the records."""
    prior, sigma = np.array([3e4, 1e8]), 25_000.0
    options = {"epsilon": epsilon, "outside": "clamp", "rehearsal_seed": 1}
    ours = private_posterior(INCOMES, "normal", prior, bounds=(0, 2e5), variance=sigma**2, **options)
    unit = private_posterior(
        INCOMES / sigma, "normal", prior / [sigma, sigma**2], bounds=(0, 2e5 / sigma), variance=1, **options
    )
    assert ours.method == "exact"
    for probability in (0.025, 0.5, 0.975):
        assert ours.quantile(probability) == pytest.approx(sigma * unit.quantile(probability), rel=1e-9)
    assert ours.std() == pytest.approx(sigma * unit.std(), rel=1e-9)
    assert ours.release[0] == pytest.approx(sigma * unit.release[0], rel=1e-9)
    if epsilon > 1:
        assert ours.mean() == pytest.approx(
            (3e4 / 1e8 + INCOMES.sum() / sigma**2) / (1 / 1e8 + 200 / sigma**2), rel=0.05
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "shift"),
    [(1e11, -1e16), *exhaustive((1e-7, 0), (1, -1e5))],
)
def test_inference_of_unknown_variance_does_not_depend_on_units(factor, shift):
    """Amounts in euro and in billions of cents give the same release, and posteriors in their units."""
    euro, other = infer_incomes(), infer_incomes(INCOMES * factor + shift, bounds=(shift, 2e5 * factor + shift))
    np.testing.assert_allclose(other.release, euro.release, rtol=1e-9)
    for one, end in zip(other.interval(), euro.interval(), strict=True):
        np.testing.assert_allclose(one, [factor * end[0] + shift, factor**2 * end[1]], rtol=1e-6)


def covered_mean(trials, **changes):
    """Return, for simulated incomes, 1.0 if the default 95 % interval contains the mean of clamped incomes."""
    (m, s, b), covered = (10.4, 0.6, 2e5), []
    beyond = (np.log(b) - m) / s
    target = np.exp(m + s * s / 2) * stats.norm.cdf(beyond - s) + b * stats.norm.sf(beyond)
    for seed in range(trials):
        incomes = np.random.default_rng([9, seed]).lognormal(m, s, 200)
        low, high = infer_incomes(incomes, rehearsal_seed=seed, **changes).interval()
        covered.append(float(np.atleast_1d(low)[0] <= target <= np.atleast_1d(high)[0]))
    return np.array(covered)


@pytest.mark.exhaustive
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_default_intervals_cover_the_mean_of_clamped_incomes(epsilon):
    """Coverage is near 95 %, within 5 standard errors; with a strong prior at the midpoint it is not."""
    covered = covered_mean(60, epsilon=epsilon)
    error = 5 * np.sqrt(0.95 * 0.05 / covered.size)
    assert 0.93 - error <= covered.mean() <= min(0.98 + error, 1.0)
    assert covered_mean(12, epsilon=epsilon, prior=(1e5, 100.0, 1.0, 1e9)).mean() < 0.93 - error


def test_proportions_are_counts_divided_by_n():
    for y, n, noise in ((0.637, 100, "laplace"), (0.57, 100, "geometric"), ([0.2, 0.5, 0.4], 10, "laplace")):
        family, prior = ("multinomial", (1, 1, 1)) if np.ndim(y) else ("binomial", (1, 1))
        options = {"n": n, "epsilon": 0.5, "noise": noise}
        found = posterior_from_release(y, family, prior, proportion=True, **options)
        counts = posterior_from_release(np.round(n * np.array(y), 9), family, prior, **options)
        np.testing.assert_allclose(found.quantile([0.1, 0.9]), counts.quantile([0.1, 0.9]), rtol=1e-12)
    with pytest.raises(ValueError, match="noisy_statistics must be integers"):
        release(y=0.637, n=10, noise="geometric", proportion=True)
    with pytest.raises(ValueError, match="proportion must be False for the poisson family, got True"):
        release(family="poisson", bounds=(0, 3), proportion=True)


def test_counts_that_look_like_proportions_are_warned_about(recwarn):
    with pytest.warns(UserWarning, match="between 0 and 1, and is read as a noisy count; pass proportion=True"):
        release(y=0.637, n=100)
    with pytest.warns(UserWarning, match="pass proportion=True"):
        release(y=[0.2, 0.5, 0.3], n=100, family="multinomial", prior=(1, 1, 1))
    release(y=0.637, n=1)
    release(y=-0.2, n=100)
    release(y=1.637, n=100)
    assert not recwarn.list


def test_percentages_that_are_passed_as_proportions_are_warned_about(recwarn):
    for y, prior in ((63.0, (1, 1)), ([20.0, 50.0, 30.0], (1, 1, 1))):
        family = "multinomial" if np.ndim(y) else "binomial"
        with pytest.warns(UserWarning, match=r"proportions so far from those of 100 records; .* not percentages"):
            release(y=y, n=100, family=family, prior=prior, proportion=True)
    release(y=1.03, n=100, proportion=True)
    assert not recwarn.list


UNKNOWN = {"family": "normal-unknown-variance", "prior": (0, 1, 1, 1), "bounds": (0, 1), "y": [3.0, 2.0]}
KNOWN = {"family": "normal", "variance": 1}
NO_VARIANCE = r"variance must be .* got None; pass it, or use normal-unknown-var"
UNIT = r"variance must be that of a record, in the squared unit of the bounds"
RECORD = {"family": "normal-unknown-variance", "prior": None, "bounds": (0, 1), "records": [0.5]}


def release(**changes):
    arguments = {"y": 12.0, "family": "binomial", "prior": (1, 1), "n": 30, "epsilon": 1.0, **changes}
    return posterior_from_release(**arguments)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("noise must be one of laplace, geometric, k-norm with epsilon, got 'gaussian'; pass", {"noise": "gaussian"}),
        ("prior must have 2 numbers", {"prior": "flat"}),
        ("bounds must be two numbers", {"family": "poisson"}),
        ("noisy_statistics must be finite, of shape", {"y": [1.0, 2.0]}),
        ("noisy_statistics must be finite", {"y": np.nan}),
        ("noisy_statistics must be integers", {"y": 1.5, "noise": "geometric"}),
        ("y must be an array of real numbers", {"y": "12"}),
        ("rng must be a numpy Generator for the sampler data-augmentation, got None; use default_rng", UNKNOWN),
        ("n must be at most 100,000 for draws of records", {**UNKNOWN, "n": 10**6}),
        (NO_VARIANCE, {"family": "normal", "bounds": (0, 1)}),
    ],
)
def test_invalid_arguments_of_a_release_are_refused_in_one_line(message, changes):
    assert_refused(lambda: release(**changes), message)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("data must be integers between 0 and 1 .* invalid value in row 1", {"records": [1, 48213]}),
        ("data must be an array of real numbers, got an array of str", {"records": ["48213"]}),
        ("data must be an array of real numbers, got rows of unequal", {"records": [[48213], [1, 2]]}),
        ("data must be integers .* invalid value in row 1", {"records": pd.Series([1, None], dtype="Int64")}),
        ("data must be an array of real numbers, got other objects", {"records": pd.Series([1, "48213"])}),
        ("data must be integers", {"records": [1, np.nan]}),
        ("data must have shape", {"records": [[1], [0]]}),
        ("data must have shape", {"records": 1}),
        ("data must have shape .n,., n >= 1, got .0,.", {"records": []}),
        ("data must have one-hot rows", {"records": [[1, 1], [0, 1]], "family": "multinomial"}),
        ("data must be finite numbers >= 0 for", {"records": [-48213.0], "family": "exponential", "bounds": (0, 1)}),
        ("prior must have 2 numbers", {"records": np.eye(2), "family": "multinomial", "prior": (1, 1, 1)}),
        ("family must be one of", {"family": "cauchy"}),
        ("prior .*must be", {"prior": (0, 1)}),
        ("epsilon must be a finite number > 0", {"epsilon": -1.0}),
        ("bounds must be None", {"bounds": (0, 1)}),
        ("bounds must be two numbers", KNOWN),
        ("outside must be drop or clamp", {"outside": None}),
        ("bounds must be at most 1e\\+50", {**KNOWN, "bounds": (-1e51, 0)}),
        ("got masked entries", {"records": np.ma.array([0, 1, 1], mask=[0, 1, 0])}),
        ("invalid value in row 1", {"records": [0, 10**400]}),
        ("between 0 and n=7, got another", {"records": 10**400, "n": 7}),
        ("n must be at most 1,000,000,000,000,000", {"records": 48213, "n": 10**16}),
        ("epsilon must be a finite number > 0", {"epsilon": 10**400}),
        ("must be finite and > 0", {"prior": (10**400, 1)}),
        ("bounds must be finite", {"family": "poisson", "bounds": (0, 10**400)}),
        ("parameter_range must be None", {"parameter_range": (0, 1)}),
        (NO_VARIANCE, {**KNOWN, "bounds": (0, 1), "variance": None}),
        ("variance must be a finite number > 0", {**KNOWN, "bounds": (0, 1), "variance": 0.0}),
        *((UNIT, {**KNOWN, "prior": (0, 1e8), "bounds": (0, 2e5), "variance": each}) for each in (1e-300, 1e300)),
        ("variance must be 1 for the normal-unknown-variance family", {**RECORD, "variance": 2.0}),
        (
            r"prior \(shape, rate\) must be given for the exponential family, got None",
            {"family": "exponential", "prior": None, "bounds": (0, 1)},
        ),
        ("epsilon must be a finite number > 0, got None", {"epsilon": None}),
        (
            "parameter_range must have a prior probability >= 0.001",
            {**KNOWN, "prior": (0, 1), "bounds": (7, 9), "parameter_range": (7, 9)},
        ),
        (
            "n must be at most 100,000 for draws of records",
            {**RECORD, "prior": (0, 1, 1, 1), "records": np.ones(100_001)},
        ),
        ("n must be at least 2 for the default prior, got 1; pass a prior .mean, strength, shape, scale.", RECORD),
        (
            "prior must have 4 numbers .mean, strength, shape, scale. or 5 .mean, half_width, ratio, median, log_std.",
            {**RECORD, "prior": (0, 1, 1)},
        ),
        (
            "prior .mean, half_width, ratio, median, log_std. must be finite with half_width, ratio, median, log_std >",
            {**RECORD, "prior": (0, 1, 1, 1, 0)},
        ),
        (
            "prior must have shape > 0.5, as the mean has no expectation otherwise, got 0.001",
            {**RECORD, "prior": (0, 1, 0.001, 0.001), "records": [1, 0]},
        ),
        (
            "chains must have R-hat <= 1.01 .* before any noise is drawn",
            {**RECORD, "prior": (0, 0.001, 0.6, 0.1), "bounds": (0, 1e5), "records": np.ones(300)},
        ),
    ],
)
def test_invalid_arguments_are_refused_before_any_draw_without_data(message, changes, monkeypatch):
    def spent(*_, **__):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr("mechanisms.release.ExactNoise.laplace", spent)
    monkeypatch.setattr("mechanisms.core.noise.Noise.sample", spent)
    arguments = {"records": [1, 0], "family": "binomial", "prior": (1, 1), "epsilon": 1.0, **changes}
    for seed in (None, 1):
        assert "48213" not in assert_refused(partial(private_posterior, **arguments, rehearsal_seed=seed), message)


@pytest.mark.filterwarnings("error")
def test_extreme_priors_and_bounds_give_finite_posteriors():
    """A concentrated Beta prior has the standard deviation of a Beta distribution, not a rounding error."""
    posterior = posterior_from_release(1e6, "binomial", (1e15, 1e15), n=10, epsilon=1.0)
    np.testing.assert_allclose(posterior.std(), stats.beta(1e15, 1e15).std(), rtol=1e-6)
    assert np.isfinite(private_posterior([0, 1], "binomial", (1e300, 1e300), 1.0, rehearsal_seed=1).std())
    wide = private_posterior([2, 0, 1, 4], "poisson", (2, 1), 1.0, bounds=(0, 1e15), rehearsal_seed=1)
    np.testing.assert_allclose(wide.mean(), 2.0, atol=0.1)


def test_drawn_posterior_equals_statistics_of_its_draws():
    draws = np.random.default_rng(5).normal(size=(4, 500, 2))
    posterior, pooled = DrawnPosterior(draws), draws.reshape(-1, 2)
    np.testing.assert_allclose(posterior.mean(), pooled.mean(axis=0))
    np.testing.assert_allclose(posterior.std(), pooled.std(axis=0))
    np.testing.assert_array_equal(posterior.cdf([0.0, 1.0]), [(pooled[:, 0] <= 0).mean(), (pooled[:, 1] <= 1).mean()])
    np.testing.assert_allclose(posterior.quantile([0.1, 0.5]), np.quantile(pooled, [0.1, 0.5], axis=0))
    np.testing.assert_allclose(posterior.cdf(posterior.quantile([0.1, 0.5])), [[0.1] * 2, [0.5] * 2], atol=1e-3)
    assert np.isin(posterior.sample(RNG, 50), pooled).all()


def test_monte_carlo_error_grows_with_autocorrelation():
    """For an AR(1) process with coefficient 0.9, the Monte Carlo error is √19 times that of independent draws."""
    rng, draws = np.random.default_rng(6), np.empty((4, 5_000))
    value = rng.normal(size=4)
    for i in range(5_000):
        value = 0.9 * value + np.sqrt(1 - 0.81) * rng.normal(size=4)
        draws[:, i] = value
    error = DrawnPosterior(draws).mcse()
    assert error == pytest.approx(np.sqrt(19 / draws.size), rel=0.2)
    units = np.array([1.0, 2.0**-50, 2.0**-500])  # draws within 1e-15 were taken as independent
    np.testing.assert_array_equal(DrawnPosterior(draws[..., None] * units).mcse(), error * units)


@pytest.mark.parametrize("name", PRIORS)
def test_draws_are_converted_for_arviz(name):
    found = rehearse(name)
    tree = found.to_arviz(np.random.default_rng(1))
    first = tree.posterior["mean" if name == "normal-unknown-variance" else "theta"]
    assert first.dims == ("chain", "draw", "category")[: 3 if name == "multinomial" else 2]
    draws = first.values.reshape(-1, *first.shape[2:])
    error = 6 * np.std(draws, axis=0) / np.sqrt(len(draws)) + 1e-12
    assert np.all(np.abs(draws.mean(axis=0) - np.atleast_1d(found.mean())[: np.size(error)]) <= error)
    assert tree.posterior.attrs["guarantee"] == "none (rehearsal)"
    np.testing.assert_array_equal(tree.observed_data.release, found.release)
    if found.method == "exact":
        assert_refused(lambda: found.to_arviz(), "rng must be a numpy Generator for an exact posterior")
    else:
        np.testing.assert_array_equal(found.to_arviz().posterior["mean"], found.distribution.draws[..., 0])


@pytest.mark.parametrize("name", PRIORS)
def test_results_are_numbers_for_a_scalar_and_arrays_for_a_vector(name):
    found = rehearse(name)
    results = [found.quantile(0.5), *found.interval(0.9), found.cdf(found.mean())]
    if np.ndim(found.mean()) == 0:
        assert all(isinstance(result, float) for result in results)
    else:
        assert {np.shape(result) for result in results} == {np.shape(found.mean())}
        assert_refused(lambda: found.cdf(0.5), "the last axis of theta must have one value each for")


@pytest.mark.parametrize("name", PRIORS)
def test_plots_have_densities_of_integral_one(name):
    found = rehearse(name)
    figure = found.plot()
    assert len(figure.axes) == np.size(found.mean())
    for axes in figure.axes:
        density, edges, _ = axes.patches[-1].get_data()
        assert density @ np.diff(edges) == pytest.approx(0.999, abs=2e-3)
    plt.close(figure)


@pytest.mark.slow
def test_import_of_mechanisms_does_not_import_plots():
    code = "import sys, mechanisms; assert not {'matplotlib', 'xarray', 'arviz_stats'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_examples_cover_every_family():
    assert set(PRIORS) == set(MODELS)
