"""Tests of posteriors of tables with crossed margins against enumeration."""

import itertools

import numpy as np
import pytest

from mechanisms.core.noise import EXACT, Noise
from mechanisms.tables import crossed, crossed_posterior, dirichlet_multinomial, negative_binomial, poisson, uniform
from tests.mechanisms.refusals import assert_refused
from tests.mechanisms.tables.test_enumeration import log_weight

GAUSSIAN, GEOMETRIC = Noise("gaussian", 1.5), Noise("geometric", 1.0)
ROWS, COLUMNS = ((0,), [4.0, 1.0], GEOMETRIC), ((1,), [2.6, 3.1], GAUSSIAN)


def enumerate_crossed(shape, measurements, prior, n, most):
    """Return all tables with cells ≤ `most`, and their posterior probabilities."""
    cells = np.array(list(itertools.product(range(most + 1), repeat=int(np.prod(shape)))))
    if n is not None:
        cells = cells[cells.sum(axis=1) == n]
    tables = cells.reshape(-1, *shape)
    weight = np.array([log_weight(prior, x) for x in range(most + 1)])[cells].sum(axis=1)
    for axes, values, noise in measurements:
        others = tuple(1 + a for a in range(len(shape)) if a not in axes)
        residual = np.asarray(values) - tables.sum(axis=others)
        weight += noise.log_prob(residual.reshape(len(cells), -1))
    p = np.exp(weight - weight.max())
    return tables, p / p.sum()


@pytest.mark.parametrize(
    ("prior", "n", "most"),
    [(negative_binomial(1.0, 2.0), None, 16), (poisson(1.5), None, 16), (dirichlet_multinomial(0.8), 6, 6),
     (uniform(4), 6, 4)],
)  # fmt: skip
def test_crossed_margins_equal_enumeration(prior, n, most):
    measurements = [ROWS, COLUMNS]
    tables, p = enumerate_crossed((2, 2), measurements, prior, n, most)
    posterior = crossed_posterior((2, 2), measurements, prior, np.random.default_rng(7), n=n)
    exact = np.tensordot(p, tables, axes=1)
    assert np.all(np.abs(posterior.mean() - exact) < 5 * posterior.mcse())
    wrong = np.tensordot(p * (1 + 0.2 * tables[:, 0, 0]), tables, axes=1) / np.sum(p * (1 + 0.2 * tables[:, 0, 0]))
    assert np.any(np.abs(posterior.mean() - wrong) > 5 * posterior.mcse())
    odds = posterior.evaluate(lambda c: np.log((c[:, 0, 0] + 0.5) * (c[:, 1, 1] + 0.5) / (c[:, 0, 1] + 0.5) /
                                               (c[:, 1, 0] + 0.5)))  # fmt: skip
    logs = np.log(tables + 0.5)
    expected = p @ (logs[:, 0, 0] + logs[:, 1, 1] - logs[:, 0, 1] - logs[:, 1, 0])
    assert abs(odds.mean - expected) < 5 * odds.mcse
    assert posterior.rhat.max() <= 1.01
    assert "\n" not in repr(posterior)
    assert odds.omitted == posterior.omitted
    assert posterior.omitted == 0.0 if n is not None else 1e-12 <= posterior.omitted <= 1e-9


def two_way_margins(table, scale):
    """Return the margins of all pairs of three axes, with little noise."""
    return [((0, 1), table.sum(axis=2), Noise("laplace", scale)), ((0, 2), table.sum(axis=1), Noise("laplace", scale)),
            ((1, 2), table.sum(axis=0), Noise("laplace", scale))]  # fmt: skip


@pytest.mark.parametrize(("scale", "seed"), [(0.15, 2), (0.3, 2), (0.3, 3)])
def test_all_two_way_margins_equal_enumeration(scale, seed):
    """Rectangles change two-way margins: chains stayed in one table, with R-hat 1.000 and standard deviations of 0."""
    measurements = two_way_margins(np.ones((2, 2, 2)), scale)
    tables, p = enumerate_crossed((2, 2, 2), measurements, poisson(1.0), None, 3)
    posterior = crossed_posterior((2, 2, 2), measurements, poisson(1.0), np.random.default_rng(seed))
    exact = [np.tensordot(p, tables == count, axes=1) for count in range(3)]
    shares = [posterior.evaluate(lambda x, count=count: (x == count).reshape(len(x), 8)) for count in range(3)]
    assert all(np.all(np.abs(s.mean - e.ravel()) < 5 * s.mcse) for s, e in zip(shares, exact, strict=True))
    assert np.all(np.abs(shares[1].mean - 1.0) > 5 * shares[1].mcse)  # negative control: the chains that stayed


PERMUTATIONS = np.stack([np.eye(3, dtype=np.int64), np.roll(np.eye(3, dtype=np.int64), 1, axis=1)])


@pytest.mark.slow
def test_sparse_tables_that_single_boxes_do_not_connect():
    """Only two tables have these two-way margins; they differ by a sum of two boxes, and are equally likely."""
    margins = two_way_margins(PERMUTATIONS, 0.1)
    posterior = crossed_posterior((2, 3, 3), margins, poisson(1.0), np.random.default_rng(1))
    assert np.all(np.abs(posterior.mean() - PERMUTATIONS.mean(axis=0)) <= 5 * posterior.mcse())
    assert posterior.mcse().max() < 0.03


def test_equal_chains_without_a_move_are_refused(monkeypatch):
    """Four chains in the same table are no evidence of convergence, unless rectangles connect all tables."""
    monkeypatch.setattr(crossed, "_run", lambda *_: np.tile(PERMUTATIONS.ravel(), (2000, 1)))
    margins, rng = two_way_margins(PERMUTATIONS, 0.1), np.random.default_rng(1)
    assert_refused(
        lambda: crossed_posterior((2, 3, 3), margins, poisson(1.0), rng), "chains must converge, got R-hat inf"
    )
    assert crossed_posterior((2, 3, 3), margins[:2], poisson(1.0), rng).std().max() == 0.0


@pytest.mark.parametrize(
    ("measurements", "prior", "n", "message"),
    [
        ([((0,), [1.0, 2.0], EXACT)], poisson(1), None, "must not be EXACT"),
        ([((0,), [1.0], GAUSSIAN)], poisson(1), None, "must have shape"),
        ([((2,), [1.0], GAUSSIAN)], poisson(1), None, "axes must be different and below 2"),
        ([((0,), [np.nan, 2.0], GAUSSIAN)], uniform(), None, "neither for cell 0"),
        ([ROWS], dirichlet_multinomial(1), None, "public total"),
        ([ROWS], uniform(1), 6, "n must be at most 4"),
        ([], poisson(1), None, "at least one margin"),
        ([((0,), [1e9, 2.0], GAUSSIAN)], poisson(1), None, "at most 4,194,304 weights"),
        ([((0,), [3.0, 4.0], "laplace")], poisson(2), 7, "must be a Noise, got 'laplace'"),
        ([((0,), [3.0, 4.0], 3.0)], poisson(2), 7, "must be a Noise, got 3.0"),
        ([((0,), [3.0, 1e30], GAUSSIAN)], poisson(2), 7, "at most 2"),
        ([((0,), [3.0, 4.0], GAUSSIAN)], poisson(2), 10**30, "n must be at most 2"),
        ([(0, [3.0, 4.0], GAUSSIAN)], poisson(2), None, "axes must be a sequence of integers"),
        ([(("0",), [3.0, 4.0], GAUSSIAN)], poisson(2), None, "axes must be an integer"),
    ],
)
def test_bad_input_is_refused(measurements, prior, n, message):
    assert_refused(lambda: crossed_posterior((2, 2), measurements, prior, np.random.default_rng(1), n=n), message)


def test_shapes_and_generators_of_other_types_are_refused():
    rng = np.random.default_rng(1)
    assert_refused(lambda: crossed_posterior(4, [ROWS], poisson(2), rng), "shape must be a sequence of integers")
    assert_refused(lambda: crossed_posterior((2.5, 2), [ROWS], poisson(2), rng), "shape must be an integer")
    assert_refused(lambda: crossed_posterior((2, 2), [ROWS], poisson(2), 7), "rng must be a numpy Generator")


@pytest.mark.parametrize(
    ("shape", "measurements", "prior", "mean", "variance"),
    [
        ((2, 2), [((0,), [9.0, np.nan]), ((1,), [np.nan, np.nan])], poisson(1000.0), 1000.0, 1000.0),
        ((2,), [((0,), [9.0, np.nan])], [poisson(5.0), negative_binomial(2.0, 300.0)], 300.0, 300.0 + 300.0**2 / 2.0),
        ((2,), [((0,), [9.0, np.nan])], [poisson(5.0), uniform(700)], 350.0, (701.0**2 - 1.0) / 12.0),
    ],
)
def test_cells_that_are_not_measured_have_their_prior(shape, measurements, prior, mean, variance):
    given = [(axes, values, Noise("gaussian", 1.0)) for axes, values in measurements]
    posterior = crossed_posterior(shape, given, prior, np.random.default_rng(1))
    free, error = posterior.mean()[1], 5.0 * posterior.mcse()[1]
    assert np.all(np.abs(free - mean) < error)
    assert np.allclose(posterior.std()[1] ** 2, variance, rtol=0.25)
    assert np.all(posterior.mean()[0] < mean - error)  # negative control: the measured cells differ from it


@pytest.mark.parametrize("shape", [(2, 4), (3, 4)])
def test_tables_of_eight_or_more_cells_with_a_public_total_are_accepted(shape):
    """The bounds of eight cells without one had a sum beyond 64 bits, which refused every total."""
    rows = np.full(shape[0], 12.0 / shape[0])
    found = crossed_posterior(shape, [((0,), rows, Noise("gaussian", 1.0))], poisson(2.0), np.random.default_rng(1), 12)
    assert np.all(found.draws.sum(axis=(2, 3)) == 12)
