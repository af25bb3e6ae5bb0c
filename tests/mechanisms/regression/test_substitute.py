"""Tests of the public substitute for posteriors, used for partitions whose rows do not determine a posterior."""

import numpy as np
import pytest

from mechanisms.regression.partition_prior import ConjugatePrior, FlatPrior, SemiConjugatePrior, ZellnerPrior
from mechanisms.regression.posterior import coefficient_posterior
from mechanisms.regression.statistics import partition_statistics
from tests.mechanisms.refusals import assert_refused

SUBSTITUTE = (0.25, 2.0)


def table(flaw, n=60, n_partitions=4):
    """Return statistics of four partitions; in the second one, columns are collinear, or a column or y is constant."""
    rng = np.random.default_rng(5)
    x, labels = rng.standard_normal((n, 2)), np.arange(n) % n_partitions
    y = 1 + x @ [2.0, -1.0] + rng.standard_normal(n)
    second = labels == 1
    if flaw == "collinear":
        x[second, 1] = 3.0 - 2.0 * x[second, 0]
    elif flaw == "constant column":
        x[second, 0] = 1.0
    elif flaw == "constant outcome":
        y[second] = 0.0
    return partition_statistics(x, y, labels)


@pytest.mark.parametrize("error_variance", [None, 1.5])
@pytest.mark.parametrize("flaw", ["collinear", "constant column", "constant outcome"])
@pytest.mark.parametrize("prior", [FlatPrior(), ZellnerPrior(60.0)])
def test_flawed_partition_has_the_substitute_and_others_are_unchanged(prior, flaw, error_variance):
    sound = coefficient_posterior(table(None), 1, prior, error_variance)
    found = coefficient_posterior(table(flaw), 1, prior, error_variance, substitute=SUBSTITUTE)
    assert np.isfinite(found.cdf([0.0, 1.0])).all()
    if flaw != "constant outcome" or error_variance is None:
        assert (found.mean()[1], found.std()[1]) == SUBSTITUTE
        assert found.quantile(0.5)[1] == pytest.approx(SUBSTITUTE[0])
        assert_refused(lambda: coefficient_posterior(table(flaw), 1, prior, error_variance), "partition 1 must have")
    others = [0, 2, 3]
    for measure in (lambda posterior: posterior.mean(), lambda posterior: posterior.quantile([0.1, 0.9])):
        assert np.array_equal(measure(found)[others], measure(sound)[others])


@pytest.mark.parametrize("prior", [FlatPrior(), ZellnerPrior(60.0), ConjugatePrior(), SemiConjugatePrior()])
def test_sound_partitions_ignore_the_substitute(prior):
    with_substitute, without = (coefficient_posterior(table(None), 1, prior, substitute=s) for s in (SUBSTITUTE, None))
    assert np.array_equal(with_substitute.quantile([0.1, 0.5]), without.quantile([0.1, 0.5]))


def test_rows_that_conflict_with_a_semi_conjugate_prior_have_the_substitute(monkeypatch):
    """A partition whose rows need too many quadrature points gets the public substitute as its posterior."""
    statistics, prior = table(None), SemiConjugatePrior()
    monkeypatch.setattr("mechanisms.regression.posterior._MOST_POINTS", 10)
    with pytest.raises(ValueError, match="partition 0 must have a posterior of the error variance that 10 quadrature"):
        coefficient_posterior(statistics, 1, prior)
    found = coefficient_posterior(statistics, 1, prior, substitute=SUBSTITUTE)
    np.testing.assert_allclose(found.mean(), SUBSTITUTE[0])
    np.testing.assert_allclose(found.std(), SUBSTITUTE[1])


def test_too_few_rows_raise_because_sizes_are_public():
    statistics = partition_statistics([[0.0], [1.0]], [1.0, 2.0], [0, 0])
    with pytest.raises(ValueError, match="must have more rows than coefficients if the error variance is unknown"):
        coefficient_posterior(statistics, 1, FlatPrior(), substitute=SUBSTITUTE)
