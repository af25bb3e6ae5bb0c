"""Tests of the limit to one BLAS thread, which holds while any thread computes blocks."""

import multiprocessing
import threading

import numpy as np
import pytest

from pipeline.blocks.one_thread import one_thread
from tests.pipeline.helpers import blas_threads, evaluate_one, panel_of
from tests.pipeline.toy import STUDY

pytestmark = pytest.mark.usefixtures("two_threads")


def test_limits_hold_until_the_last_thread_leaves():
    """If one of two threads leaves the context of the limit, the limit still holds for the other thread."""
    found = {}
    first_inside, second_inside, first_left = (threading.Event() for _ in range(3))

    def first():
        with one_thread():
            first_inside.set()
            second_inside.wait(10)
        first_left.set()

    def second():
        first_inside.wait(10)
        with one_thread():
            second_inside.set()
            first_left.wait(10)
            found["second"] = blas_threads()

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"second": {1}}
    assert blas_threads() == {2}


def test_limits_nest_and_end_with_an_exception():
    def raise_inside():
        with one_thread():
            with one_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        raise_inside()
    assert blas_threads() == {2}


def test_blocks_are_computed_with_one_thread():
    """The limit also holds for blocks that are evaluated without a cluster."""
    found = []

    def simulate(cell, streams):
        found.append(blas_threads())
        return streams.uniforms(1)[:, 0]

    study = panel_of(STUDY, "means", simulate=simulate)
    assert np.isin(evaluate_one(study, "means", study.panels[0].methods[0].name, range(2)).status, (1, 2)).all()
    assert set().union(*found) == {1}
    assert blas_threads() == {2}


def _enter(queue):
    with one_thread():
        queue.put(blas_threads())


def test_forked_process_can_enter():
    """A forked process can set the limit, although it lacks the thread that sets limits."""
    with one_thread():
        pass
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=_enter, args=(queue,))
    process.start()
    process.join(20)
    assert process.exitcode == 0, "the process waits for a thread that does not exist"
    assert queue.get() == {1}
