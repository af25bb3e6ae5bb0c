"""Tests that Dask's warnings and errors are printed on one line without secrets, except those that a run handles."""

import io
import logging

import pytest

from pipeline.clusters.logs import filtered_logs
from tests.pipeline.helpers import run_python


@pytest.fixture
def printed():
    """Yield the output of a handler like that of Dask, and the handler's logger."""
    logger, handler = logging.getLogger("distributed.toy"), logging.StreamHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(name)s - %(levelname)s - %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    yield handler.stream, logger
    logger.removeHandler(handler)


def test_warnings_are_printed_on_one_line(printed):
    stream, logger = printed
    with filtered_logs():
        logger.warning("Worker is at %d%% memory usage.\nPausing worker.", 85)
        try:
            raise RuntimeError("sbatch: error\ntoken=hush")
        except RuntimeError:
            logger.exception("Task failed")
    assert stream.getvalue().splitlines() == [
        "distributed.toy - WARNING - Worker is at 85% memory usage. Pausing worker.",
        "distributed.toy - ERROR - Task failed RuntimeError: sbatch: error token=***",
    ]


@pytest.mark.parametrize(
    "message",
    [
        "Compute Failed\nKey: a",
        "Task a-1 marked as failed because 1 workers died while trying to run it",
        "Removing worker 'tcp://h:1' caused the cluster to lose already computed task(s), which ...",
        "Worker process still alive after 4.0 seconds, killing",
        'Async instruction for <Task cancelled name="execute(a)"> ended with CancelledError',
        "Waited for 1 worker(s) to reconnect after restarting but, after 10s, 1 have not returned",
    ],
)
def test_handled_messages_are_not_printed(printed, message):
    stream, logger = printed
    with filtered_logs():
        logger.error(message)
    assert stream.getvalue() == ""
    logger.error(message)  # negative control: handlers are restored
    assert message in stream.getvalue()


def test_handlers_are_restored(printed):
    stream, logger = printed
    with filtered_logs(), filtered_logs():
        logger.info("hidden")
    logger.warning("two\nlines")
    assert stream.getvalue() == "distributed.toy - WARNING - two\nlines\n"


RUN = """
import os, sys, time
from pipeline.clusters.profiles import Profile
from pipeline.clusters.cluster import connect
if __name__ == "__main__":
    with connect(Profile("a", kwargs={"n_workers": 1, "memory_limit": "500MB"})) as client:
        if "memory" in sys.argv:
            try:
                client.submit(lambda: len(bytearray(600_000_000)) + time.sleep(5)).result()
            except Exception:
                pass
        client.submit(sum, [1]).result()
"""


def stderr_of(folder, *words):
    (folder / "run.py").write_text(RUN)
    return run_python(folder / "run.py", *words).stderr


@pytest.mark.slow
def test_a_normal_run_and_its_end_print_nothing(tmp_path):
    assert stderr_of(tmp_path) == ""


@pytest.mark.slow
def test_a_worker_without_memory_is_reported(tmp_path):
    assert "exceeded 95% memory budget" in stderr_of(tmp_path, "memory")
