"""Tests of AdaSSP and its bootstrap."""

from dataclasses import replace

import numpy as np
import pytest

from mechanisms.regression.adassp import AdaSSP
from tests.mechanisms.regression.scaled_records import gram_from, records_of


def gram_of(rng, n=2_000, slopes=(0.5,)):
    return gram_from(records_of(rng, n, slopes, error_std=0.2))


def test_penalty_raises_the_smallest_eigenvalue():
    """The penalty of ridge regression complements the lower bound on the smallest eigenvalue."""
    rng, method = np.random.default_rng(1), AdaSSP(2, 0.01, 1e-6)
    release = method.release(rng, gram_of(rng, n=50))
    weak, strong = (method.estimate(replace(release, least=np.array([least])))[0] for least in (0.0, 1e9))
    bound = np.sqrt(2 * np.log(8 / 0.05)) * method.stds[1]
    np.testing.assert_allclose(strong[:2], np.linalg.solve(release.xx[0], release.xy[0]))
    np.testing.assert_allclose(weak[:2], np.linalg.solve(release.xx[0] + bound * np.eye(2), release.xy[0]))


def changes(rng, size, q):
    """Return the changes of the three statistics when one of three records is replaced, shape (3, size)."""
    z = np.concatenate([np.ones((size, 4, 1)), rng.uniform(-1, 1, (size, 4, q)).round(rng.integers(2))], axis=2)
    x, y = z[..., :-1], z[..., -1]
    x[0, 2], x[0, 3], y[0, 2], y[0, 3] = x[0, 2].round(), x[0, 2].round(), 1.0, -1.0
    first, second = (np.einsum("sri,srj->sij", rows, rows) for rows in (x[:, [0, 1, 2]], x[:, [0, 1, 3]]))
    products = x[:, 2] * y[:, 2:3] - x[:, 3] * y[:, 3:]
    return np.array(
        [
            np.abs(np.linalg.eigvalsh(first)[:, 0] - np.linalg.eigvalsh(second)[:, 0]),
            np.sqrt(((first - second) ** 2).sum(axis=(1, 2))),
            np.sqrt((products**2).sum(axis=1) + (y[:, 2] ** 2 - y[:, 3] ** 2) ** 2),
        ]
    )


@pytest.mark.parametrize("p", [2, 4])
def test_no_pair_of_records_exceeds_a_sensitivity(p):
    rng, stds = np.random.default_rng(1), AdaSSP(p, 1.5, 1e-6).stds  # ρ of 3/2: the noise of a sensitivity of 1 is 1
    found = np.max([changes(rng, 5_000, p).max(axis=1) for _ in range(10)], axis=0)
    assert (found <= stds + 1e-9).all()
    assert (found[1:] > 0.7 * stds[1:]).all()
