"""Preload module of local worker processes, imported by Dask when a worker starts."""

import multiprocessing
import os
import signal
from contextlib import ExitStack

from distributed import Worker

from pipeline.clusters.lifetime import end_with
from pipeline.clusters.logs import filtered_logs

_LIFE = ExitStack()


def dask_setup(worker: Worker) -> None:
    """End with the driver, ignore interrupts, which a terminal sends to workers and driver, and filter log messages."""
    end_with(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _LIFE.enter_context(filtered_logs())


def dask_teardown(worker: Worker) -> None:
    """End the processes that trials have started and left running, for which the worker process would wait."""
    for process in multiprocessing.active_children():
        process.kill()
