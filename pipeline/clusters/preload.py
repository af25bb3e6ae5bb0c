"""Preload module of local worker processes, imported by Dask when a worker starts."""

import signal
from contextlib import ExitStack

from distributed import Worker

from pipeline.clusters.logs import filtered_logs

_LIFE = ExitStack()


def dask_setup(worker: Worker) -> None:
    """Ignore interrupts, which a terminal sends to both workers and driver, and filter log messages."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _LIFE.enter_context(filtered_logs())
