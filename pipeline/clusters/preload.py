"""Preload of worker processes of this machine, which Dask imports when one starts."""

import signal
from contextlib import ExitStack

from distributed import Worker

from pipeline.clusters.logs import without_harmless

_LIFE = ExitStack()


def dask_setup(worker: Worker) -> None:
    """Leave interrupts to the driver, and print no harmless messages."""
    # a terminal sends Ctrl-C to the workers, too; the driver stops them
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _LIFE.enter_context(without_harmless())
