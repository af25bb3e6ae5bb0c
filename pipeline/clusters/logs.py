"""Filter for Dask's log messages that keeps the warnings and errors which the pipeline neither handles nor repeats."""

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pipeline.redact import format_error, redact_text

_HARMLESS = re.compile(
    "|".join(
        (
            # failed tasks, which a run retries, isolates or reports
            "^Compute Failed",
            "^Run Failed",
            "marked as failed because [0-9]+ workers died",
            # results that are computed again
            "caused the cluster to lose already computed task",
            # workers that were terminated after a time limit or with their cluster
            "^Worker process still alive after",
            "^Async instruction for .* ended with CancelledError",
            "to reconnect after restarting",
            "did not shut down within",
            "^Received heartbeat from unregistered worker",
            "^Scheduler was unaware of this worker",
            "^Failed to communicate with scheduler during heartbeat",
        )
    )
)


class _Harmful(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _HARMLESS.search(record.getMessage())


class _OneLine(logging.Formatter):
    """Formatter that writes a record, with type and text of its exception, as one line without secrets."""

    def __init__(self, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._formatter = formatter or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        copy = logging.makeLogRecord(record.__dict__)
        error = record.exc_info[1] if record.exc_info else None
        # the message about a failed callback contains only a representation of the event loop
        message = "" if error is not None and record.name.startswith("tornado") else record.getMessage()
        parts = [redact_text(" ".join(message.split())), "" if error is None else format_error(error)]
        copy.msg = " ".join(filter(None, parts))
        copy.args, copy.exc_info, copy.exc_text = (), None, None
        return self._formatter.format(copy)


@contextmanager
def filtered_logs() -> Iterator[None]:
    """Limit Dask's log output in this process to relevant warnings and errors, one line each."""
    with ExitStack() as stack:
        # other handlers, such as log files, were configured by the user
        names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in ("distributed", "tornado")]
        for handler in {handler for name in names for handler in logging.getLogger(name).handlers}:
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                harmful = _Harmful()
                handler.addFilter(harmful)
                stack.callback(handler.removeFilter, harmful)
                stack.callback(handler.setFormatter, handler.formatter)
                handler.setFormatter(_OneLine(handler.formatter))
                stack.callback(handler.setLevel, handler.level)
                handler.setLevel(max(handler.level, logging.WARNING))
        yield


@contextmanager
def without_refusals() -> Iterator[None]:
    """Omit the log messages of `tornado` about jobs that a batch system refuses."""
    logger, is_other = logging.getLogger("tornado.application"), lambda record: not _is_refusal(record)
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def _is_refusal(record: logging.LogRecord) -> bool:
    """Return True for the error of `dask_jobqueue` about a command of the batch system that failed."""
    error = record.exc_info[1] if record.exc_info else None
    return isinstance(error, RuntimeError) and str(error).startswith("Command exited with non-zero exit code")
