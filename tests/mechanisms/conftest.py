"""Fixture that limits BLAS to one thread, as in runs, because the processes of pytest-xdist use all cores."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module", autouse=True)
def _one_blas_thread() -> Iterator[None]:
    with threadpool_limits(1, user_api="blas"):
        yield
