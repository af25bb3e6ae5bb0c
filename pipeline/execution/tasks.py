"""Functions that workers run; the dashboard displays their names."""

import functools
from collections.abc import Callable
from typing import Any

from pipeline.blocks.one_thread import one_thread
from pipeline.execution.in_flight import Refusal, TransientError
from pipeline.execution.isolate import evaluate_apart
from pipeline.execution.shipping import shipped_task
from pipeline.execution.work import Receipt, Run, evaluate_work, unpack
from pipeline.faults import explain, is_transient


def on_worker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function to raise transient errors, which Dask retries, and to return a `Refusal` for other errors."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        try:
            with one_thread():  # once per task, since the lookup of libraries is slow
                return function(*args)
        except TransientError:
            raise
        except Exception as error:
            if is_transient(error):
                raise TransientError(explain(error)) from None
            return Refusal(explain(error))

    return call


@on_worker
def compute(
    run: str, session: str, runs: tuple[Run, ...], budget: int | None, is_suspect: bool = False
) -> list[Receipt]:
    """Compute and commit a batch of work, in child processes if it is suspect or if there is a time limit."""
    task = shipped_task(run, session)
    study, _ = task.opened()
    is_apart = is_suspect or task.time_limit is not None
    evaluate = functools.partial(evaluate_apart, task) if is_apart else evaluate_work
    return task(unpack(study, runs), functools.partial(evaluate, budget=budget))
