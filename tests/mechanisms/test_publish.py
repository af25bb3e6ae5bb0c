"""Tests of releases of real data: distribution of the noise, an error without OpenDP, and no data in messages."""

import inspect
import math
import sys
from fractions import Fraction

import numpy as np
import pytest

from mechanisms import (
    FAMILIES,
    MECHANISMS,
    Guarantee,
    Neighbouring,
    posterior_from_release,
    publish_counts,
    publish_sums,
)
from mechanisms.core.exact_scales import laplace_scale_for
from mechanisms.core.noise import Noise
from mechanisms.counts.publish import PUBLISHABLE
from mechanisms.inference import publish as sums_publish
from mechanisms.inference.families import MODELS
from mechanisms.inference.release_model import ReleaseModel
from mechanisms.regression.partition_probability import partition_probability
from mechanisms.regression.partition_publish import publish_probabilities, publish_quantiles
from mechanisms.regression.partition_quantile import partition_quantile
from mechanisms.release import CheckedRelease, ExactNoise, entry, require_opendp
from tests.mechanisms.counts.enumeration import count_rows, frequencies_of
from tests.mechanisms.inference.laplace import BOUNDS, RECORDS, statistic
from tests.mechanisms.refusals import assert_refused
from tests.statistical import assert_frequencies, assert_mean_within

COUNTS = [48213, 1977, 2]
REPLACED, ADDED = Neighbouring
NOISE = CheckedRelease(Guarantee(1.0), "test").enter()


@pytest.fixture
def without_opendp(monkeypatch):
    for name in ["opendp", *(name for name in sys.modules if name.startswith("opendp."))]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def sensitivities_without_noise(monkeypatch):
    """Replace the noise of sums by zeros, and return the list of the integer sensitivities that releases compute."""
    seen = []
    monkeypatch.setattr(ExactNoise, "laplace", lambda noise, scale, size: np.zeros(size, dtype=np.int64))
    monkeypatch.setattr(sums_publish, "laplace_scale_for", lambda d, epsilon: seen.append(d) or float(d))
    return seen


@pytest.mark.parametrize(
    ("draw", "log_weight"),
    [(NOISE.laplace, lambda z: -np.abs(z) / 2.7), (NOISE.gaussian, lambda z: -np.square(z) / (2 * 2.7**2))],
)
def test_integer_noise_of_opendp_has_the_stated_scale(draw, log_weight):
    """A chi-square test accepts integer noise of the stated scale, and rejects a scale that is 15 % wrong."""
    z = np.arange(-150, 151)
    weights = np.exp(log_weight(z))
    observed = np.bincount(draw(2.7, 20_000) + 150, minlength=z.size)
    assert_frequencies(observed, weights / weights.sum(), wrong=weights**1.15)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_sum_zero_noise_has_the_lattice_pmf(kind):
    squares = kind == "gaussian"
    found = np.array([NOISE.sum_zero(kind, 1.2, 3) for _ in range(400)])
    assert np.all(found.sum(axis=1) == 0)
    reach = 12
    grid = np.array([(a, b) for a in range(-reach, reach + 1) for b in range(-reach, reach + 1)])
    vectors = np.column_stack([grid, -grid.sum(axis=1)])
    energy = np.square(vectors).sum(axis=1) / (2 * 1.44) if squares else np.abs(vectors).sum(axis=1) / 1.2
    distribution = np.exp(-energy)
    wrong = np.exp(-1.6 * energy)
    assert_frequencies(count_rows(found, vectors), distribution / distribution.sum(), wrong=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHABLE)
def test_published_counts_have_the_pmf_of_the_mechanism(name):
    """Published counts for k = 3 and n = 6 have the exact pmf that audits use (chi-square test)."""
    distribution = MECHANISMS[name].build([1, 1, 1], [3, 2, 1], 1.0, 1e-2).pmf()
    released = [publish_counts(name, [3, 2, 1], 1.0, 1e-2) for _ in range(250)]
    observed = frequencies_of(np.array([one.counts for one in released]), 6, 3)
    other = MECHANISMS[name].build([1, 1, 1], [0, 0, 6], 1.0, 1e-2).pmf()
    assert_frequencies(observed, distribution, wrong=other)  # negative control: the pmf at another data set
    assert released[0].guarantee == MECHANISMS[name].guarantee(1.0, 1e-2)
    assert not released[0].rehearsal
    if name != "geometric":
        assert any((one.vector < 0).any() for one in released)
        assert all(one.vector.sum() == 6 for one in released) is (name != "geometric-projected")


@pytest.mark.slow
@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("name", FAMILIES)
def test_published_sums_have_the_stated_noise(name, relation):
    """The noise on sums is a multiple of the unit, with mean absolute value b; twice the noise is rejected."""
    family, bounds = FAMILIES[name], BOUNDS.get(name)
    released = [publish_sums(family, RECORDS[name], 0.8, bounds, relation) for _ in range(150)]
    one = released[0]
    assert one.noise_scale == pytest.approx(family.sensitivity(bounds, relation) / 0.8, rel=1e-8)
    assert one.noise_scale >= family.sensitivity(bounds, relation) / 0.8 * (1 - 1e-8)
    assert one.guarantee == Guarantee(0.8, relation=relation)
    exact = statistic(name, RECORDS[name], bounds)
    noise = np.array([each.noisy for each in released]) - exact
    assert_mean_within(np.abs(noise[:, 0]), one.noise_scale, wrong=2 * one.noise_scale)
    assert all(float(value / one.unit).is_integer() for each in released for value in each.noisy)


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize("name", FAMILIES)
def test_integer_sensitivity_bounds_every_change(name, relation, sensitivities_without_noise):
    """Without noise, sums of neighbours differ by at most the sensitivity that determines the noise scale."""
    family, bounds, data = FAMILIES[name], BOUNDS.get(name), list(RECORDS[name])
    changed = data[:-1] if relation is ADDED else [*data[:-1], data[0]]
    first, second = (publish_sums(family, np.array(each), 1.0, bounds, relation) for each in (data, changed))
    moved = np.abs(first.noisy - second.noisy).sum() / first.unit
    assert 0 < moved <= sensitivities_without_noise[0]
    exact = statistic(name, data, bounds)
    np.testing.assert_allclose(first.noisy, exact, atol=len(data) * first.unit / 2)
    if family.integer_records:
        np.testing.assert_array_equal(first.noisy, exact)


@pytest.mark.parametrize("relation", Neighbouring)
@pytest.mark.parametrize(("outside", "bounds"), [("drop", (0.3, 2.0)), ("clamp", (0.3, 2.0)), ("clamp", (-1.3, 0.9))])
@pytest.mark.parametrize("name", ["normal", "normal-unknown-variance"])
def test_integer_sensitivity_is_the_largest_change(name, outside, bounds, relation, sensitivities_without_noise):
    """Without noise, the largest change over pairs of records is the sensitivity, up to 2 rounding units."""
    model = ReleaseModel(name, 30, Noise("laplace", 1.0), bounds, outside)
    low, high = bounds
    quarters = [0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high]  # z = −½ and ½
    records = [*bounds, *quarters, 10.0, -10.0, *np.random.default_rng(7).uniform(*bounds, size=20)]
    released = [publish_sums(MODELS[name], [x], 1.0, bounds, relation, outside=outside) for x in records]
    sums, unit = np.array([one.noisy for one in released]) / released[0].unit, released[0].unit
    others = sums if relation is REPLACED else np.zeros((1, sums.shape[1]))
    moved = np.abs(sums[:, None] - others).sum(axis=2).max()
    assert moved <= sensitivities_without_noise[0] <= moved + 2
    exact = [model.statistic([x]) for x in records]
    np.testing.assert_allclose(sums * unit, exact, atol=2 * unit)


@pytest.mark.usefixtures("sensitivities_without_noise")
@pytest.mark.parametrize("bounds", [(0.0, 1e12), (-1e8, 1e8), (1e6, 1e6 + 1e-3), (0.0, 1e-9)])
@pytest.mark.parametrize("outside", ["drop", "clamp"])
def test_each_component_has_the_stated_error_at_any_bounds(outside, bounds):
    """Without noise, a sum is off by at most n·g/2 and a sum of squares by at most 3·n·g/2, at bounds of any size."""
    z = np.linspace(-1.2, 1.2, 1_001)
    low, high = bounds
    records = (low + high) / 2 + z * (high - low) / 2
    released = publish_sums("normal-unknown-variance", records, 1.0, bounds, outside=outside)
    model = ReleaseModel("normal-unknown-variance", z.size, Noise("laplace", 1.0), bounds, outside)
    kept = model.contributions(records)
    assert np.all(np.abs(kept) <= 1)
    exact = [math.fsum(kept), math.fsum(kept**2)]
    assert np.all(np.abs(released.noisy - exact) <= np.array([0.5, 1.5]) * z.size * released.unit)
    assert released.unit <= 2.0**-30
    assert released.noise_scale == pytest.approx(2.25)


def test_squares_of_large_records_have_their_noise_only():
    """The sum of squares of 1,000 records at 1e11 within bounds of 1e12 is within 40 scales of its value."""
    released = publish_sums("normal-unknown-variance", np.full(1000, 1e11), 1.0, bounds=(0, 1e12))
    np.testing.assert_allclose(released.noisy, [-800.0, 640.0], atol=40 * 2.25)


def test_squares_are_rounded_without_a_loss_of_precision():
    """Squares above 2⁵³ units are rounded exactly, unlike squares in double precision (negative control)."""
    model = ReleaseModel("normal-unknown-variance", 2, Noise("laplace", 1.0), (-1.0, 1.0), "clamp")
    unit = 2.0**-60
    records = np.array([0.3, 0.9])
    (_, squares), _ = sums_publish._integer_sums(model, records, REPLACED, unit)
    z = model.contributions(records)
    quotients = [round(Fraction(x) / Fraction(unit)) for x in z.tolist()]
    assert squares == sum(round(q * q * Fraction(unit)) for q in quotients)
    assert squares != sum(int(x) for x in np.rint(z**2 / unit))


def test_loss_of_rounded_scales_is_at_most_epsilon():
    for sensitivity in (1, 2, 3, 2**33):
        for epsilon in (0.1, 0.3, 1.0, 1 / 3, 2.9, 1e-3):
            scale = laplace_scale_for(sensitivity, epsilon)
            assert Fraction(sensitivity) <= Fraction(scale) * Fraction(epsilon)
            assert scale <= math.nextafter(sensitivity / epsilon, math.inf)
    dp = require_opendp()
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    assert dp.m.make_laplace(domain, metric, scale=laplace_scale_for(2, 0.3)).map(2) <= 0.3
    assert_refused(lambda: laplace_scale_for(2**40, 1e-6), r"the noise scale must be at most 2\^52 units")


@pytest.mark.filterwarnings("ignore:.* is read as a noisy count")  # one in 18 noisy sums lies between 0 and 1
def test_inference_from_a_published_sum_assumes_its_noise():
    """The likelihood of the discrete noise is proportional to that of the continuous noise used in inference."""
    family = FAMILIES["binomial"]
    released = publish_sums(family, [0, 1, 1, 0, 1], 0.8)
    s = np.arange(6)
    steps = np.abs(released.noisy[0] - s) / released.unit
    on_grid = -steps * (released.unit / released.noise_scale)
    assumed = -np.abs(released.noisy[0] - s) / released.noise_scale
    np.testing.assert_allclose(np.diff(on_grid), np.diff(assumed), atol=1e-12)
    posterior = posterior_from_release(
        released.noisy, family, (1.0, 1.0), n=5, noise=Noise("laplace", released.noise_scale)
    )
    assert 0 < posterior.mean() < 1


@pytest.mark.slow
def test_releases_differ_and_rehearsals_repeat():
    for publish in (
        lambda seed: publish_counts("k-norm", COUNTS, 1e-3, rehearsal_seed=seed).vector,  # counts are projected
        lambda seed: publish_sums(FAMILIES["binomial"], [0, 1], 0.1, rehearsal_seed=seed).noisy,
    ):
        assert np.array_equal(publish(7), publish(7))
        assert not np.array_equal(publish(None), publish(None))
    assert publish_counts("k-norm", COUNTS, 0.1, rehearsal_seed=7).rehearsal
    assert publish_sums(FAMILIES["binomial"], [0, 1], 0.1, rehearsal_seed=7).rehearsal


@pytest.mark.usefixtures("without_opendp")
def test_releases_need_opendp_and_rehearsals_do_not():
    for publish in (
        lambda **seed: publish_counts("geometric", COUNTS, 1.0, **seed),
        lambda **seed: publish_sums(FAMILIES["binomial"], [0, 1], 1.0, **seed),
    ):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'dpstudies\[release\]'"):
            publish()
        assert publish(rehearsal_seed=1).rehearsal
    quantile, probability = (
        partition_quantile("quantile", 3, 1.0, (0.5, 0.5)),
        partition_probability("normality", 3, 1.0),
    )
    for publish in (
        lambda: publish_quantiles(quantile, np.zeros((3, 1)), np.ones(3)),
        lambda: publish_probabilities(probability, np.full((3, 1), 0.5)),
    ):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'dpstudies\[release\]'"):
            publish()


def test_exact_samplers_accept_no_generator_and_no_seed():
    for name, function in inspect.getmembers(ExactNoise, inspect.isfunction):
        assert not {"rng", "seed"} & set(inspect.signature(function).parameters), name
    assert "numpy.random" not in inspect.getsource(entry)
    assert "default_rng" not in inspect.getsource(entry)


EMPTY = {
    "binomial": ([], None, None),
    "binomial-sum": (0, None, 0),
    "multinomial": (np.zeros((0, 3)), None, None),
    "multinomial-sum": ([0, 0, 0], None, 0),
    "exponential": ([], (0.5, 2.0), None),
    "poisson": ([], (0, 5), None),
    "normal": ([], (-1.0, 2.0), None),
    "normal-unknown-variance": ([], (-1.0, 2.0), None),
}


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("case", EMPTY)
def test_empty_data_are_released_if_their_number_is_private(case, seed):
    """A refusal would distinguish no record from one record; the release is noise around zero."""
    name, (data, bounds, n) = case.removesuffix("-sum"), EMPTY[case]
    added = Neighbouring.ADD_OR_REMOVE_ONE
    released = publish_sums(name, data, 1e6, bounds, added, rehearsal_seed=seed, n=n)
    assert np.abs(released.noisy).max() < 1e-3
    assert released.noisy.shape == {"multinomial": (3,), "normal-unknown-variance": (2,)}.get(name, (1,))
    with pytest.raises(ValueError, match=r"n must be an integer >= 1, got 0|data must have shape .* n >= 1"):
        publish_sums(name, data, 1e6, bounds, rehearsal_seed=seed, n=n)


@pytest.mark.parametrize("name", ["normal", "normal-unknown-variance", "exponential"])
def test_bounds_too_narrow_for_doubles_are_refused_whatever_the_records(name, monkeypatch):
    monkeypatch.setattr(ExactNoise, "laplace", None)
    for bounds in ((0.0, 5e-324), (0.0, 1e-300), (0.0, 9e-51)):
        messages = set()
        for record in (0.0, bounds[1]):
            with pytest.raises(ValueError, match="bounds must differ by >= 1e-50, got") as caught:
                publish_sums(name, [record], 1.0, bounds)
            messages.add(str(caught.value))
        assert len(messages) == 1


@pytest.mark.parametrize("name", ["normal", "normal-unknown-variance"])
@pytest.mark.parametrize("outside", ["drop", "clamp"])
def test_releases_at_the_limits_of_bounds_do_not_depend_on_records(name, outside):
    for bounds in ((0.0, 1e-50), (-1e50, 1e50), (math.nextafter(1e50, 0.0), 1e50)):
        for epsilon in (1e-3, 1.0, 1e100):
            for record in (bounds[0], bounds[1], 0.0, 1e300, -1e300):
                assert np.isfinite(publish_sums(name, [record], epsilon, bounds, outside=outside).noisy).all()
