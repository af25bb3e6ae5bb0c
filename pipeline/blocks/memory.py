"""Peak memory of a method, traced while it evaluates one trial."""

import tracemalloc
from threading import Lock

from pipeline.blocks.evaluate import Block, evaluation_of
from pipeline.blocks.one_thread import one_thread
from pipeline.declare.panel import Setting
from pipeline.declare.study import Study
from pipeline.faults import is_interrupt

_TRACING = Lock()  # of `tracemalloc`, which traces the whole process; only `traced_peak` takes it


@one_thread()
def traced_peak(study: Study, block: Block, setting: Setting) -> int | None:
    """Return the largest number of bytes that an evaluation of a block holds at a time; None if it cannot be traced.

    Python and NumPy report their allocations; memory that compiled code or another process allocates is not traced.
    The data of the block are not counted, nor what a first evaluation keeps, which is not traced. Allocations of all
    threads are counted, so that nothing else should be computed meanwhile.
    """
    with _TRACING:
        if tracemalloc.is_tracing():  # by the user
            return None
        try:
            evaluate = evaluation_of(study, block, setting)
            evaluate()
            tracemalloc.start()
            evaluate()
            return (
                tracemalloc.get_traced_memory()[1] if tracemalloc.is_tracing() else None
            )  # unless the method stops it
        except BaseException as error:
            if is_interrupt(error):
                raise
            return None
        finally:
            tracemalloc.stop()
