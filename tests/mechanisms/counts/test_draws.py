"""Tests of the comparison of draws with their stated distribution: exact level, power, contract, time."""

import itertools
import math
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest

from mechanisms import MECHANISMS, Mechanism, audit_counts, enumerate_candidates
from mechanisms.core.exact_losses import ROUNDING
from mechanisms.core.noise import Noise
from mechanisms.counts import draws as draws_module
from mechanisms.counts.draws import (
    LEVEL,
    SIZES,
    _deviation,
    _upper_tails,
    audit_draws,
    compare_draws,
    compared_datasets,
)
from mechanisms.counts.noise import NoisyCounts
from tests.mechanisms.marks import exhaustive
from tests.mechanisms.refusals import assert_refused

GEOMETRIC = MECHANISMS["geometric"]
N, PRIOR = 6, (1.0, 1.0)
WITNESS = audit_counts(GEOMETRIC, PRIOR, N, 1.0).witness
DATASETS = compared_datasets(N, 2, WITNESS)


def exact_shares(stated, true, n_draws):
    """Return the p-values of all sequences of draws of 2 records in 2 categories, and their probabilities."""
    outputs = enumerate_candidates(2, 2)
    with np.errstate(divide="ignore"):
        log_pmf = np.log(stated)
    sequences = np.array(list(itertools.product(range(3), repeat=n_draws)))
    p_values = [compare_draws(outputs[sequence], log_pmf).p_value for sequence in sequences]
    return np.array(p_values), np.prod(np.asarray(true)[sequences], axis=1)


@pytest.mark.parametrize("n_draws", [2, 4, 6])
@pytest.mark.parametrize("pmf", [(0.25, 0.5, 0.25), (0.98, 0.01, 0.01), (0.999, 0.001, 0.0), (1 - 2e-9, 1e-9, 1e-9)])
def test_p_values_are_valid_at_every_level(pmf, n_draws):
    """By enumeration, p <= α has probability <= α for each α; for draws of another distribution, it has not."""
    p_values, shares = exact_shares(pmf, pmf, n_draws)
    for level in np.unique(p_values):
        assert shares[p_values <= level].sum() <= level * (1 + 1e-6)
    p_values, shares = exact_shares((0.98, 0.01, 0.01), (0.2, 0.4, 0.4), 6)  # negative control
    assert shares[p_values <= 1e-3].sum() > 0.5


def test_tails_equal_sums_of_binomial_probabilities():
    """Tails agree with 30-digit sums, also far below the smallest double at 1, and are 0 for an impossible event."""
    cases = [
        (1, 4, 1e-12),
        (3, 20, 0.05),
        (20, 20, 0.3),
        (900, 1000, 0.5),
        (40, 100_000, 1e-5),
        (99_999, 100_000, 0.999),
    ]
    for occurrences, size, p in cases:
        with mpmath.workdps(30):
            raised = mpmath.mpf(p) * (1 + mpmath.mpf(ROUNDING))
            exact = mpmath.fsum(
                mpmath.binomial(size, x) * raised**x * (1 - raised) ** (size - x)
                for x in range(occurrences, min(size, occurrences + 300) + 1)
            )
        tail = _upper_tails(np.array([occurrences]), size, np.array([p]))[0]
        assert tail == pytest.approx(float(exact), rel=1e-9)
    np.testing.assert_array_equal(_upper_tails(np.array([1, 0]), 10, np.array([0.0, 0.0])), [0.0, 1.0])


def test_output_of_probability_zero_is_rejected_by_one_draw():
    outputs = enumerate_candidates(2, 2)
    draws = np.repeat(outputs[[0, 2]], 500, axis=0)
    np.random.default_rng(1).shuffle(draws)
    log_pmf = np.array([math.log(0.5), -np.inf, math.log(0.5)])
    assert compare_draws(draws, log_pmf).p_value > 0.01
    draws[0] = outputs[1]
    comparison = compare_draws(draws, log_pmf)
    assert (comparison.p_value, comparison.event) == (0.0, "output [1, 1] in 1 of 1,000 draws, stated 0 %")


@pytest.mark.parametrize("name", ["geometric", "laplace", "smooth", "k-norm"])
def test_right_draws_pass_a_thousand_seeds(name):
    """All 1,000 comparisons pass at `LEVEL`, and at most a fifth (5 standard errors) fail at 0.2, but some do."""
    release = MECHANISMS[name].build((1, 1, 1), [4, 2, 0], 1.0, 1e-8)
    log_pmf = release.log_pmf()
    p_values = np.array(
        [compare_draws(release.sample(np.random.default_rng(seed), 1_000), log_pmf).p_value for seed in range(1_000)]
    )
    assert p_values.min() > LEVEL
    assert 0 < np.mean(p_values <= 0.2) < 0.2 + 5 * math.sqrt(0.2 * 0.8 / 1_000)


@pytest.mark.exhaustive
def test_right_mechanism_passes_audits_of_a_thousand_seeds(monkeypatch):
    monkeypatch.setattr(draws_module, "SIZES", (1_000,))
    audits = {
        audit_draws(GEOMETRIC, PRIOR, DATASETS, 1.0, 1e-8, np.random.default_rng(seed), 600.0).agree
        for seed in range(1_000)
    }
    assert audits == {True}


@pytest.mark.parametrize("seed", [0, *exhaustive(1, 2)])
@pytest.mark.parametrize("name", MECHANISMS)
def test_draws_of_registered_mechanisms_agree(name, seed):
    mechanism = MECHANISMS[name]
    for prior, n in (((1.0, 1.0), 8), ((0.5, 2.0, 1.0), 4)):
        if len(prior) < mechanism.min_categories:
            continue
        datasets = compared_datasets(n, len(prior), audit_counts(mechanism, prior, n, 1.0).witness)
        audit = audit_draws(mechanism, prior, datasets, 1.0, 1e-8, np.random.default_rng(seed), 600.0)
        assert (audit.agree, audit.n_draws) == (True, 2 * SIZES[0])
        assert audit.text == f"draws agree: 200,000 at each of {len(datasets)} data sets, level 1e-06"


def scaled(factor, applies=lambda counts: True):
    """Return a release whose draws have noise of another scale, at data sets for which `applies` is true."""

    class Scaled(NoisyCounts):
        def from_uniforms(self, uniforms):
            scale = self.independent.scale * (factor if applies(self.counts.tolist()) else 1.0)
            noise = replace(self.noise, noise=Noise("geometric", scale))
            return NoisyCounts(self.prior, self.counts, noise, self.in_order).from_uniforms(uniforms)

    return Scaled


def changed(from_uniforms=None, sample=None):
    """Return a release whose functions of draws are replaced; they receive the release, the right function and more."""

    class Changed(NoisyCounts):
        pass

    for name, function in (("from_uniforms", from_uniforms), ("sample", sample)):
        if function is not None:
            right = getattr(NoisyCounts, name)

            def call(release, *arguments, function=function, right=right):
                return function(release, partial(right, release), *arguments)

            setattr(Changed, name, call)
    return Changed


class NoUniforms(NoisyCounts):
    @property
    def n_uniforms(self):
        raise AttributeError("not\nwritten")


def mechanism_of(kind):
    def release(prior, counts, epsilon, delta):
        right = GEOMETRIC.release(prior, counts, epsilon, delta)
        return kind(right.prior, right.counts, right.noise, right.in_order)

    return replace(GEOMETRIC, name="cheat", release=release)


TRUTH = changed(lambda release, right, uniforms: np.tile(release.counts, (len(uniforms), 1)))
ROWS, VALUES = "draws other counts from", "must return integers >= 0 of shape"
CHEATS = {
    "true counts": (TRUTH, "from_uniforms draws output [6, 0] in"),
    "half the noise": (scaled(0.5), "from_uniforms draws"),
    "no noise at edges": (scaled(0.01, lambda counts: 0 in counts), "at [6, 0] and 1 other: from_uniforms draws"),
    "no noise at the worst pair": (
        scaled(0.01, lambda counts: counts in (WITNESS.dataset.tolist(), WITNESS.neighbour.tolist())),
        "from_uniforms draws",
    ),
    "no noise in sample": (
        changed(sample=lambda release, right, rng, size: np.tile(release.counts, (size, 1))),
        "sample draws output [6, 0]",
    ),
    "fixed seed in sample": (
        changed(sample=lambda release, right, rng, size: right(np.random.default_rng(7), size)),
        "sample draws equal draws of two calls in",
    ),
    "each draw of sample twice": (
        changed(sample=lambda release, right, rng, size: np.repeat(right(rng, -(-size // 2)), 2, axis=0)[:size]),
        "sample draws equal draws of one call in",
    ),
    "uniforms of the first row": (changed(lambda _, right, u: right(np.repeat(u[:1], len(u), axis=0))), ROWS),
    "uniforms of other rows": (changed(lambda _, right, u: np.roll(right(u), 1, axis=0)), ROWS),
    "sorted uniforms": (changed(lambda _, right, u: right(np.sort(u, axis=0))), ROWS),
    "uniforms are ignored": (changed(lambda _, right, u: right(np.random.default_rng().random(u.shape))), ROWS),
    "shape": (
        changed(lambda _, right, u: right(u)[:, :1]),
        f"{VALUES} (10000, 2) with sums n, got int64 of shape (10000, 1)",
    ),
    "NaN": (changed(lambda _, right, u: np.full((len(u), 2), np.nan)), f"{VALUES} (10000, 2) with sums n, got float64"),
    "type": (changed(lambda _, right, u: right(u).astype(float)), f"{VALUES} (10000, 2) with sums n, got float64"),
    "sum": (changed(lambda _, right, u: right(u) + 1), VALUES),
    "error": (
        changed(lambda _, right, u: 1 // 0),
        "from_uniforms raises ZeroDivisionError: integer division or modulo by zero (",
    ),
    "no uniforms": (NoUniforms, "n_uniforms raises AttributeError: not written ("),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_wrong_samplers_are_found_at_every_seed(cheat, monkeypatch):
    """The pmf is within its guarantee; 20 of 20 comparisons of 20,000 draws find the sampler."""
    monkeypatch.setattr(draws_module, "SIZES", (10_000, 1_000))
    kind, text = CHEATS[cheat]
    mechanism = mechanism_of(kind)
    assert audit_counts(mechanism, PRIOR, N, 1.0).check(mechanism.guarantee(1.0)).holds
    for seed in range(20):
        audit = audit_draws(mechanism, PRIOR, DATASETS, 1.0, 1e-8, np.random.default_rng(seed), 600.0)
        assert (audit.agree, audit.n_draws) == (False, 20_000)
        assert audit.text.startswith("draws do not follow the stated distribution at [")
        assert text in audit.text
        assert audit.text.endswith(f"(20,000 draws at each of {len(DATASETS)} data sets, level 1e-06)")


def test_noise_of_a_category_that_repeats_another_is_found(monkeypatch):
    """The marginal distribution of the first count is right, that of all counts is not."""
    monkeypatch.setattr(draws_module, "SIZES", (10_000, 1_000))

    one_uniform = changed(lambda _, right, u: right(np.repeat(u[:, :1], 2, axis=1)))
    for seed in range(20):
        rng, datasets = np.random.default_rng(seed), [np.array([2, 2, 2])]
        audit = audit_draws(mechanism_of(one_uniform), (1, 1, 1), datasets, 1.0, 1e-8, rng, 600.0)
        assert audit.text.startswith("draws do not follow the stated distribution at [2, 2, 2]: from_uniforms draws")
        assert audit_draws(GEOMETRIC, (1, 1, 1), datasets, 1.0, 1e-8, rng, 600.0).agree


@pytest.mark.slow
def test_noise_that_is_five_per_cent_too_small_is_found():
    audits = [
        audit_draws(mechanism_of(scaled(factor)), PRIOR, DATASETS, 1.0, 1e-8, np.random.default_rng(seed), 600.0).agree
        for factor in (0.95, 1.0)
        for seed in range(4)
    ]
    assert audits == [False] * 4 + [True] * 4


def test_draws_are_compared_at_edges_balanced_counts_and_the_worst_pair():
    witness = SimpleNamespace(dataset=np.array([1, 2, 2]), neighbour=np.array([2, 1, 2]))
    shown = [counts.tolist() for counts in compared_datasets(5, 3, witness)]
    assert shown == [[5, 0, 0], [0, 0, 5], [2, 2, 1], [1, 2, 2], [2, 1, 2]]
    witness = SimpleNamespace(dataset=np.array([1, 0]), neighbour=np.array([0, 1]))
    assert [counts.tolist() for counts in compared_datasets(1, 2, witness)] == [[1, 0], [0, 1]]


def test_results_depend_on_the_seed_only():
    mechanism = mechanism_of(scaled(0.5))
    texts = [audit_draws(mechanism, PRIOR, DATASETS, 1.0, 1e-8, np.random.default_rng(1), 600.0).text for _ in range(2)]
    assert texts[0] == texts[1]


def timed(monkeypatch, seconds_per_draw, seconds_per_call, kind=NoisyCounts):
    """Return a mechanism whose calls advance a simulated clock."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(draws_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    class Timed(kind):
        def from_uniforms(self, uniforms):
            clock.now += seconds_per_call + seconds_per_draw * len(uniforms)
            return super().from_uniforms(uniforms)

    return mechanism_of(Timed), clock


@pytest.mark.parametrize(
    ("seconds_per_draw", "seconds_per_call", "n_draws"),
    [
        (0, 0, 100_000),
        (2e-5, 0, 30_000),
        (1e-4, 0, 3_000),
        (1e-3, 0, 0),
        (0, 0.01, 30_000),
        (1e-9, 4.0, 0),
        (0, 11.0, 0),
    ],
)
def test_number_of_draws_fits_into_the_time(monkeypatch, seconds_per_draw, seconds_per_call, n_draws):
    mechanism, clock = timed(monkeypatch, seconds_per_draw, seconds_per_call)
    audit = audit_draws(mechanism, PRIOR, DATASETS, 1.0, 1e-8, np.random.default_rng(1), 10.0)
    assert (audit.agree, audit.n_draws) == ((True, 2 * n_draws) if n_draws else (None, 0))
    assert clock.now <= 10.0 + 4 * seconds_per_call
    if not n_draws:
        least = f"a comparison of 1,000 draws by each sampler at {len(DATASETS)} data sets"
        assert audit.text == f"draws not compared: {least} takes more than 10 s"


def test_wrong_draws_before_the_end_of_the_time_are_reported(monkeypatch):
    """A sampler that slows down at the second data set is broken if the draws at the first one deviate."""
    for kind, agree in ((TRUTH, False), (NoisyCounts, None)):
        mechanism, clock = timed(monkeypatch, 0, 0, kind)

        class Slowing(type(mechanism.at(np.ones(2), DATASETS[0], 1.0, 0.0))):
            def from_uniforms(self, uniforms, clock=clock):
                clock.now += 100.0 * (len(uniforms) == 10_000 and self.counts[0] == 0)
                return super().from_uniforms(uniforms)

        audit = audit_draws(mechanism_of(Slowing), PRIOR, DATASETS, 1.0, 1e-8, np.random.default_rng(1), 10.0)
        assert audit.agree is agree


def test_lack_of_memory_is_no_deviation():
    def fail(*_):
        raise MemoryError

    audit = audit_draws(mechanism_of(changed(fail)), PRIOR, DATASETS, 1.0, 1e-8, np.random.default_rng(1), 10.0)
    assert (audit.agree, audit.text) == (None, "draws not compared: the memory does not suffice")


@pytest.mark.parametrize(
    ("draws", "log_pmf", "message"),
    [
        (np.zeros((3, 2), dtype=int), np.zeros(1), r"draws must have shape \(N, k\) with an even N >= 2, got \(3, 2\)"),
        (np.ones((2, 2), dtype=int), np.zeros(2), r"log_pmf must have shape \(3,\), got \(2,\)"),
        (np.array([[1, 1], [0, 1]]), np.log([0.25, 0.5, 0.25]), "counts must be 2 integers >= 0 with sum 2"),
    ],
)
def test_invalid_arguments_raise(draws, log_pmf, message):
    assert_refused(lambda: compare_draws(draws, log_pmf), message)


def test_mechanisms_without_a_pmf_raise():
    sampled = Mechanism(
        "sampled", sampler=lambda rng, c, e, d, size: np.tile(c, (size, 1)), guarantee=lambda e, d: None
    )
    with pytest.raises(ValueError, match="has no pmf"):
        audit_draws(sampled, PRIOR, DATASETS, 1.0, 1e-8, np.random.default_rng(1), 600.0)


class OddCalls:
    """A geometric release whose `sample` returns the true counts at some places of a call."""

    def __init__(self, release, places):
        self.release, self.places = release, places

    def __getattr__(self, name):
        return getattr(self.release, name)

    def sample(self, rng, size):
        draws = self.release.sample(rng, size).copy()
        draws[self.places(size)] = self.release.counts
        return draws


@pytest.mark.parametrize(
    "places",
    [lambda size: slice(0, 1), lambda size: slice(size - 1, size), lambda size: slice(0, size if size == 1 else 0)],
    ids=["first", "last", "call for one draw"],
)
def test_true_counts_at_the_ends_of_calls_are_found(places):
    def audit(seed, change):
        rng = np.random.default_rng(seed)
        release = MECHANISMS["geometric"].build([1, 1], [3, 3], 1.0)
        return _deviation(change(release), rng, 1000, 1e-6, time.perf_counter() + 60.0)

    assert all("called for one draw or three" in audit(seed, lambda one: OddCalls(one, places)) for seed in range(5))
    assert not any(audit(seed, lambda one: one) for seed in range(5))


def test_distributions_that_are_no_numbers_are_refused():
    draws = np.tile([3, 7], (10, 1))
    log_pmf = MECHANISMS["geometric"].build([1, 1], [3, 7], 1.0).log_pmf()
    for bad, message in ((np.full_like(log_pmf, np.nan), "log_pmf must be"), (log_pmf + 9, "log_pmf must be")):
        with pytest.raises(ValueError, match=message):
            compare_draws(draws, bad)
    assert_refused(lambda: compare_draws(draws.astype(float), log_pmf), "draws must be integers")
