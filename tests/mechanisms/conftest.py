"""One BLAS thread, as in runs: xdist's processes occupy the cores, and waiting BLAS threads would slow them down."""

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module", autouse=True)
def _one_blas_thread() -> Iterator[None]:
    with threadpool_limits(1, user_api="blas"):
        yield
