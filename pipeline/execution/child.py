"""Child process of a worker, which computes trials that may terminate their process or exceed a time limit.

The process loads the study once, and then computes one `Step` after the other. Requests and replies are pickled, on
standard input and output; what trials print goes to standard error.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from pipeline.blocks.evaluate import Block, Outcome, evaluate_block, simulate_block
from pipeline.blocks.one_thread import one_thread
from pipeline.clusters.lifetime import end_with
from pipeline.declare.study import Study
from pipeline.redact import format_error


@dataclass(frozen=True)
class Step:
    """Computation of settings, given by their indices, on a block; without settings, data are only simulated."""

    block: Block
    settings: tuple[int, ...] = ()
    budget: int | None = None


def serve(parent: int) -> None:
    """Compute the steps that the process `parent` requests, until it closes the connection or ends."""
    end_with(parent)
    requests, replies = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    with suppress(EOFError, BrokenPipeError):
        source, spec = requests.recv()
        try:
            study = source.load().from_spec(spec)
        except Exception as error:
            replies.send(format_error(error))
            return
        replies.send("")
        while True:
            step = requests.recv()
            with one_thread():
                replies.send(_compute(study, step))


def _compute(study: Study, step: Step) -> list[Outcome]:
    if step.settings:
        settings = study.panel(step.block.panel).settings()
        return evaluate_block(study, step.block, [settings[k] for k in step.settings], step.budget)
    with suppress(Exception, SystemExit):  # an exception is an outcome of each setting
        simulate_block(study, step.block)
    return []
