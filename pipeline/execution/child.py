"""Child process of a worker, which computes trials that may terminate their process or exceed a time limit.

The process loads the study once, and then computes one `Step` after the other. Requests and replies are pickled, on
standard input and output; what trials print goes to standard error.
"""

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from pipeline.blocks.evaluate import Block, Outcome, evaluate_block, simulate_block
from pipeline.blocks.one_thread import one_thread
from pipeline.blocks.repetition import FirstTrial, find_defect
from pipeline.clusters.lifetime import end_with
from pipeline.declare.study import Study
from pipeline.redact import format_error


@dataclass(frozen=True)
class Step:
    """Computation of settings, given by their indices, on a block; without settings, data are only simulated."""

    block: Block
    settings: tuple[int, ...] = ()
    budget: int | None = None


Request = Step | FirstTrial


def serve(parent: int) -> None:
    """Compute the steps that the process `parent` requests, until it closes the connection or ends."""
    end_with(parent)
    requests, replies = Connection(os.dup(0), writable=False), Connection(os.dup(1), readable=False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # trials run in a thread, as on a worker; an interrupt in the main thread would be one by the user
    server = threading.Thread(target=_serve, args=(requests, replies), name="dpstudies-trials")
    server.start()
    server.join()
    os._exit(0)  # threads that a trial started may not end


def _serve(requests: Connection, replies: Connection) -> None:
    with suppress(EOFError, BrokenPipeError):
        source, spec = requests.recv()
        try:
            study = source.load().from_spec(spec)
        except BaseException as error:
            replies.send(format_error(error))
            return
        replies.send("")
        while True:
            request = requests.recv()
            with one_thread():
                replies.send(_reply(study, request))


def _reply(study: Study, request: Request) -> list[Outcome] | str:
    if isinstance(request, FirstTrial):
        return find_defect(study, request)
    if not request.settings:
        simulate_block(study, request.block)  # an exception is an outcome of each setting
        return []
    settings = study.panel(request.block.panel).settings()
    return evaluate_block(study, request.block, [settings[k] for k in request.settings], request.budget)
