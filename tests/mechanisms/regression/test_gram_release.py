"""Tests of releases of Gram matrices: sensitivities, noise, and integer releases."""

import itertools
import json

import numpy as np
import pytest

from mechanisms.audit.sampled import sampled_bound
from mechanisms.core.conversions import concentrated_epsilon
from mechanisms.core.privacy import Guarantee
from mechanisms.regression.gram_release import (
    GramNoise,
    GramRelease,
    PublicBox,
    calibrated_gram_noise,
    gram_sums,
    publish_gram,
)
from mechanisms.regression.k_norm_matrix import draw_k_norm
from mechanisms.release import CheckedRelease
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused
from tests.mechanisms.regression.scaled_records import k_norm

NAMES = ("laplace", "gaussian", "k-norm")


def changes(records, others):
    """Return the changes of the Gram matrix if one record replaces another."""
    z, w = (np.column_stack([np.ones(len(u)), u]) for u in (records, others))
    return z[:, :, None] * z[:, None, :] - w[:, :, None] * w[:, None, :]


def norm_of(name, change):
    """Return the norm of a change in which the sensitivity of the noise is stated."""
    if name == "k-norm":
        return k_norm(change)
    if name == "gaussian":
        return np.sqrt((change**2).sum(axis=(1, 2)))
    i, j = np.triu_indices(change.shape[1])
    return np.abs(change[:, i, j]).sum(axis=1)


@pytest.mark.parametrize("name", NAMES)
def test_loss_is_exact_on_a_grid_of_records(name):
    """At d = 1, over all pairs of records on a grid, the largest loss is at most ε, and for laplace noise equal to it.

    The loss of Laplace and K-norm noise at a pair is the norm of the change over the scale, which outputs attain.
    """
    ends = np.array([-1.0, -1 / 3, 0.0, 1 / 3, 1.0])
    grid = np.array(list(itertools.product(ends, ends)))
    pairs = np.array(list(itertools.product(range(len(grid)), repeat=2)))
    found = norm_of(name, changes(grid[pairs[:, 0]], grid[pairs[:, 1]])).max()
    sensitivity = GramNoise(name, 1.0, 2).sensitivity
    assert found <= sensitivity * (1 + 1e-12)
    assert found > {"laplace": 0.999999, "gaussian": 0.9, "k-norm": 0.6}[name] * sensitivity
    if name == "laplace":  # negative control: twice the sum of squares of half widths is no bound
        assert found > 2 * 2


@pytest.mark.parametrize("p", [2, 3, 6])
@pytest.mark.parametrize("name", NAMES)
def test_no_pair_of_records_exceeds_the_sensitivity(name, p):
    rng = np.random.default_rng(1)
    u, v = rng.uniform(-1, 1, (2, 20_000, p)) * rng.choice([1.0, 3.0], (2, 20_000, 1))
    u, v = np.clip(u, -1, 1), np.clip(v, -1, 1)
    h = (p + 2) / (2 * (p + 1))
    u[0], v[0] = 1.0, 1.0 - 2.0 * h
    found = norm_of(name, changes(u, v))
    sensitivity = GramNoise(name, 1.0, p).sensitivity
    assert found.max() <= sensitivity * (1 + 1e-12)
    if name == "laplace":
        assert found[0] == pytest.approx(sensitivity, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["laplace", *exhaustive("k-norm")])
def test_draws_lose_at_most_epsilon(name):
    """The statistical lower bound at the worst pair is below ε = 1, and above 1 for noise of half the scale."""
    rng, worst = np.random.default_rng(1), np.array([[1.0, 1.0], [-1 / 3, -1 / 3]])
    noise = calibrated_gram_noise(name, 2, 1.0)
    gram = changes(worst, np.zeros((2, 2)))

    def bound(scale):
        drawn = GramNoise(name, scale, 2)
        upper = np.triu_indices(3)

        def sample(index, n):
            return (gram[int(index)] + drawn.sample(rng, n))[:, *upper][:, 1:]

        direction = np.array([np.sign(changes(worst[:1], worst[1:])[0][upper])[1:]])
        middle = (gram.mean(axis=0)[upper][1:] * direction).sum()
        event = [lambda rows: (rows * direction).sum(axis=1) > middle + 2.0 * scale]
        return sampled_bound(sample, 0, 1, 20_000, events=event).epsilon

    assert bound(noise.scale) <= 1.0
    assert bound(noise.scale / 4) > 1.0


@pytest.mark.slow
def test_k_norm_noise_has_its_norm_and_directions():
    """The norm is Gamma(dim); directions agree with weighted normal matrices, and not with a wrong weight."""
    rng, m = np.random.default_rng(1), 3
    drawn = draw_k_norm(rng, m, 20_000)
    norms = k_norm(drawn)
    assert abs(norms.mean() - 6.0) < 5 * np.sqrt(6.0 / len(norms))
    on_sphere = ((drawn / norms[:, None, None]) ** 2).sum(axis=(1, 2))
    a = rng.normal(size=(200_000, m, m))
    a = a + np.swapaxes(a, 1, 2)
    a /= np.sqrt((a**2).sum(axis=(1, 2)))[:, None, None]
    for power, agrees in ((6, True), (4, False)):
        weight = k_norm(a) ** -float(power)
        values = 1.0 / k_norm(a) ** 2
        expected = np.average(values, weights=weight)
        influence = weight / weight.mean() * (values - expected)
        error = np.hypot(influence.std() / len(a) ** 0.5, on_sphere.std() / len(drawn) ** 0.5)
        assert (abs(on_sphere.mean() - expected) < 5 * error) == agrees


def test_expected_squares_in_the_unit_ball():
    """K-norm noise of unit sensitivity has 56 and 690; the box halves the Laplace noise of the ball or better."""
    for p, k_norm_square, ball in ((2, 56.0, 148.0), (6, 690.0, 3160.0)):
        laplace = calibrated_gram_noise("laplace", p, 1.0)
        exact = 2.0 * laplace.scale**2 * ((p + 1) ** 2 - 1) / (p + 1) ** 2
        assert exact < 0.5 * ball
        for noise, expected, slack in (
            (laplace, exact, 0.0),
            (calibrated_gram_noise("k-norm", p, 1.0), k_norm_square, 0.005 * k_norm_square),
        ):
            found = (noise.sample(np.random.default_rng(1), 4_000) ** 2).sum(axis=(1, 2)) / (p + 1) ** 2
            assert abs(found.mean() - expected) < slack + 5 * found.std() / 4_000**0.5


def test_gaussian_noise_spends_its_epsilon():
    noise = calibrated_gram_noise("gaussian", 2, 1.0, 1e-6)
    assert concentrated_epsilon(noise.guarantee.rho, 1e-6) == pytest.approx(1.0, rel=1e-6)
    assert concentrated_epsilon(noise.guarantee.rho, 1e-6) <= 1.0


def test_sums_are_exact_and_do_not_depend_on_blocks():
    box = PublicBox(("x", "y"), (10.0, -1.0), (11.0, 3.0))
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.uniform(9.8, 11.2, 1_000), rng.normal(1, 2, 1_000)])
    sums, n_missing = gram_sums(box, rows)
    parts = gram_sums(box, rows[:300])[0] + gram_sums(box, rows[300:])[0]
    assert n_missing == 0
    np.testing.assert_array_equal(sums, parts)
    z = np.column_stack([np.ones(1_000), box.scale(rows)])
    np.testing.assert_allclose(sums[0, 1:] / 2**32, (z.T @ z)[0, 1:], atol=1_000 * 2**-17)
    np.testing.assert_allclose(sums[1:, 1:] / 2**32, (z.T @ z)[1:, 1:], atol=2_000 * 2**-17)
    rows[3, 0], rows[5, 1] = np.nan, np.inf
    assert gram_sums(box, rows)[1] == 2


def test_integer_noise_has_the_stated_scale():
    """Laplace noise has variance 2b²; Gaussian noise has σ on the diagonal and σ/√2 elsewhere."""
    box = PublicBox(("x", "y"), (0.0, 0.0), (1.0, 1.0))
    sums, _ = gram_sums(box, np.full((5, 2), 0.5))
    for name, stated in (("laplace", Guarantee(1.0)), ("gaussian", Guarantee(1.0, 1e-6))):
        noise = calibrated_gram_noise(name, 2, 1.0, stated.delta or None)
        noisy = np.array([publish_gram(sums, noise, CheckedRelease(stated, "test")).noisy for _ in range(400)])
        assert (noisy[:, 0, 0] == 5).all()
        diagonal, off_diagonal = noisy[:, 1, 1], noisy[:, 1, 2]
        spread = noise.scale if name == "gaussian" else np.sqrt(2) * noise.scale
        ratio = np.sqrt(0.5) if name == "gaussian" else 1.0
        for values, expected in ((diagonal, spread), (off_diagonal, spread * ratio)):
            square = values**2
            assert abs(square.mean() - expected**2) < 5 * square.std() / 20
            assert abs(square.mean() - 4 * expected**2) > 5 * square.std() / 20


def test_k_norm_noise_does_not_release_real_data():
    noise = calibrated_gram_noise("k-norm", 2, 1.0)
    with pytest.raises(ValueError, match="must be laplace or gaussian for real data"):
        publish_gram(np.ones((3, 3), dtype=np.int64), noise, CheckedRelease(Guarantee(1.0), "test"))


def test_releases_survive_json():
    noise = calibrated_gram_noise("laplace", 2, 1.0)
    release = GramRelease(
        np.arange(9.0).reshape(3, 3) + np.arange(9.0).reshape(3, 3).T, 7, noise, guarantee=Guarantee(1.0)
    )
    restored = GramRelease.from_dict(json.loads(json.dumps(release.to_dict())))
    np.testing.assert_array_equal(restored.noisy, release.noisy)
    assert (restored.n, restored.noise, restored.guarantee) == (7, noise, Guarantee(1.0))
    assert_refused(lambda: GramRelease.from_dict({"n": 3}), "a release must have n, noise")


NO_RANGE = r"bounds of x must be finite numbers LOW < HIGH, got .*without looking"


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        *(({"x": ends, "y": (0, 1)}, NO_RANGE) for ends in [(1.0, 0.0), (0.0, 0.0), (0.0, np.inf), (np.nan, 1.0)]),
        ({1: (0, 1), "1": (0, 1), "y": (0, 1)}, "columns must have different names, got 1 twice"),
        ({"intercept": (0, 1), "y": (0, 1)}, "names of other results, intercept and error_variance, got intercept"),
        ({"x": (0, 1), "error_variance": (0, 1), "y": (0, 1)}, "got error_variance; rename it"),
    ],
)
def test_invalid_ranges_and_names_of_columns_are_refused(bounds, message):
    assert_refused(lambda: PublicBox.of(bounds), message)


def test_a_response_may_have_the_name_of_a_result():
    assert PublicBox.of({"x": (0, 1), "intercept": (0, 1)}).names == ("x", "intercept")
