"""Lifetime of processes that must not outlive the process that started them."""

import ctypes
import os
import signal
import sys
import threading
import time

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LOOK_SECONDS = 1.0


def end_with(parent: int) -> None:
    """End this process when the process `parent`, which started it, ends; call this in the main thread."""
    if sys.platform == "linux":  # immediate, even for code that holds the GIL
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    else:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
