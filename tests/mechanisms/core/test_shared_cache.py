"""Tests of the cache that threads share."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mechanisms.core.shared_cache import computed_once


def test_threads_with_equal_arguments_wait_for_one_computation():
    computed, both_run = [], threading.Barrier(3)

    @computed_once(maxsize=4)
    def square(number):
        computed.append(number)
        both_run.wait(10)
        return [number**2]

    with ThreadPoolExecutor(4) as pool:
        squares = [pool.submit(square, number) for number in (3, 3, 3, 4)]
        both_run.wait(10)  # the computation for 4 does not wait for that for 3
    assert [future.result() for future in squares] == [[9], [9], [9], [16]]
    assert squares[0].result() is squares[2].result()
    assert sorted(computed) == [3, 4]


def test_error_is_raised_and_not_cached():
    calls = []

    @computed_once(maxsize=4)
    def fail(number):
        calls.append(number)
        raise ValueError("number must be even")

    for _ in range(2):
        with pytest.raises(ValueError, match="even"):
            fail(3)
    assert calls == [3, 3]
