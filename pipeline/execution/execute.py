"""Run the pending blocks of a store on a Dask client.

The driver keeps a bounded window of tasks in flight and batches small blocks into tasks of a second. Workers write to
the store and return receipts, never arrays, so a driver that dies loses nothing that was committed.

A task that killed its worker process, or held it longer than the time limit, is taken apart at the end, with nothing
else in flight: see `pipeline.execution.isolate`.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice

from distributed import Client, Variable, fire_and_forget

from pipeline.blocks.evaluate import Status
from pipeline.execution.flight import Flight, translating_losses
from pipeline.execution.isolate import isolate
from pipeline.execution.work import STOPPED, PendingWork, Receipt, Task, Work

_TASK_SECONDS = 1.0
_ASK_SECONDS = 1.0
_LARGEST_BATCH = 1000
_HAND_OVER_SECONDS = 300
_MOST_SUBMITTED = 10_000  # tasks that are handed to a scheduler at once: it keeps each in memory


def execute(
    client: Client,
    task: Task,
    works: PendingWork,
    on_receipt: Callable[[Receipt], None],
    time_limit: float | None = None,
) -> None:
    """Run work until it is committed.

    Parameters
    ----------
    client : distributed.Client
        Where to compute.
    task : Task
        How workers compute and commit.
    works : PendingWork
        What to do, in order.
    on_receipt : callable
        Called in this thread for each piece of work that is committed.
    time_limit : float, optional
        How long one piece of work may take, in seconds; needs worker processes with nannies.

    Raises
    ------
    ExecutionError
        If a worker cannot load the study or write to the store.
    KeyboardInterrupt
        After the tasks that had begun came to the end of their block.
    """
    task = replace(task, announced=time_limit is not None)
    flight = Flight(client, task.run, time_limit)
    seconds: dict[str, float] = {}
    suspects: list[Work] = []
    rest, n_left = iter(works), len(works)
    queue: deque[Work] = deque()
    n_threads, asked = 1, -math.inf

    def take(receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            panel = receipt.work.block.panel
            before = seconds.get(panel, receipt.seconds)
            seconds[panel] = 0.8 * before + 0.2 * receipt.seconds
            on_receipt(receipt)

    try:
        while n_left or len(flight):
            if time.monotonic() - asked > _ASK_SECONDS:  # workers come and go
                with translating_losses():
                    n_threads = max(1, sum(client.nthreads().values()))
                asked = time.monotonic()
            while n_left and len(flight) < 2 * n_threads:
                queue.extend(islice(rest, max(0, _LARGEST_BATCH - len(queue))))
                batch = _next_batch(queue, seconds, math.ceil(n_left / (2 * n_threads)))
                n_left -= len(batch)
                flight.submit(batch, task, batch)
            for landed in flight.wait():
                if landed.fate is None:
                    take(landed.result)
                elif landed.fate == Status.KILLED:
                    suspects += landed.payload
                else:
                    suspects.append(landed.payload.pop(landed.position))
                    queue.extendleft(landed.payload)
                    n_left += len(landed.payload)
        for suspect in suspects:
            take([isolate(flight, task, suspect)])
    except BaseException:
        STOPPED.add(task.run)  # what has begun comes to the end of its block
        flight.give_up()
        raise


def _next_batch(queue: deque[Work], seconds: Mapping[str, float], fair: int) -> list[Work]:
    """Take work of one panel for about a second, but a fair share at most, so that no worker has a long tail."""
    panel = queue[0].block.panel
    each = seconds.get(panel)
    wanted = 1 if each is None else min(max(1, int(_TASK_SECONDS / max(each, 1e-6))), _LARGEST_BATCH, fair)
    batch = [queue.popleft()]
    while queue and len(batch) < wanted and queue[0].block.panel == panel:
        batch.append(queue.popleft())
    return batch


def hand_over(client: Client, task: Task, works: PendingWork) -> int:
    """Give work to a scheduler that goes on with it when the client is gone; return how many tasks it was.

    Returns when the scheduler has all of it. What ends its worker more often than the scheduler allows, or raises,
    stays pending.
    """
    each = max(1, math.ceil(len(works) / _MOST_SUBMITTED))
    rest, n_tasks = iter(works), 0
    with translating_losses():
        while batch := list(islice(rest, each)):
            fire_and_forget(client.submit(task, batch, pure=False))
            n_tasks += 1
        marker = Variable(task.run, client=client)  # goes the way of the tasks, after them
        marker.set(n_tasks)
        marker.get(timeout=_HAND_OVER_SECONDS)
        marker.delete()
    return n_tasks
