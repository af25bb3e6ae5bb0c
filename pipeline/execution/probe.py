"""Checks of the workers when a run begins: each can load the study and open the store."""

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from distributed import Client, get_worker

from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.errors import BadInputError
from pipeline.execution.flight import ExecutionError, Flight
from pipeline.execution.shipping import shipped_task
from pipeline.execution.tasks import on_worker
from pipeline.execution.work import Task
from pipeline.faults import explain, is_transient
from pipeline.redact import redact_text, told


def refuse_unfit_workers(client: Client, run: str, source: StudySource, spec: Mapping[str, Any]) -> None:
    """Let every worker load a study, and find the modules that its functions import later.

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    run : str
        The run, which the workers have.
    source : StudySource
        The study's code.
    spec : mapping
        Spec of the configured study.

    Raises
    ------
    BadInputError
        If a worker cannot load the study, misses a module that is found here, or has another version of the code.
    """
    modules = tuple(sorted(imported_modules(source)))
    problem = _find_problem(client, run, "loaded the study", load_study, run, dict(spec), modules)
    if problem:
        raise BadInputError(problem)


def refuse_workers_without_store(client: Client, task: Task) -> None:
    """Let every worker open the store of a task.

    Raises
    ------
    ExecutionError
        If a worker cannot open it.
    """
    problem = _find_problem(client, task.run, "opened the store", open_store, task.run, task.session)
    if problem:
        raise ExecutionError(problem)


def _find_problem(client: Client, run: str, deed: str, function: Callable[..., str], *args: Any) -> str:
    """Run a function on every worker, and return the first problem that it returns; empty if there is none."""
    flight = Flight(client, run)
    for worker in sorted(client.scheduler_info(n_workers=-1)["workers"]) or [None]:
        # on another worker if this one has left; a new one if an adaptive cluster has shrunk to nothing
        options = {"workers": [worker], "allow_other_workers": True} if worker else {}
        flight.submit(worker, function, *args, **options)
    problems = {}
    while len(flight):
        for landed in flight.wait():
            problem = landed.result or landed.transient
            if landed.fate is not None:
                problem = f"worker {landed.payload} ended while it {deed}; look at its log, or use --cluster threads"
            if problem:
                problems[str(landed.payload)] = problem
    more = f"; the same check fails on {len(problems) - 1} more workers" if len(problems) > 1 else ""
    return f"{problems[min(problems)]}{more}" if problems else ""


@on_worker
def load_study(run: str, spec: dict[str, Any], modules: tuple[str, ...]) -> str:
    """Load a study on a worker; return in one line why that is not possible, empty if it is."""
    where = f"worker {get_worker().address}"
    try:
        study = shipped_task(run).source.load().from_spec(spec)
    except Exception as error:
        text = redact_text(" ".join(str(error).split())) if isinstance(error, BadInputError) else told(error)
        return f"{where} cannot load the study: {text}; install there all that the study imports"
    if sha256(canonical_json(study.spec())) != sha256(canonical_json(spec)):
        return f"the code of {where} is of a different version; install the same version everywhere"
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        return f"{where} misses {', '.join(missing)}, which the study imports; install it there"
    return ""


@on_worker
def open_store(run: str, session: str) -> str:
    """Open the store of a session on a worker; return in one line why that is not possible, empty if it is."""
    task = shipped_task(run, session)
    try:
        task.opened()
    except (BadInputError, OSError) as error:
        if is_transient(error):
            raise
        where = f"worker {get_worker().address} cannot open the store {task.url}"
        return f"{where}: {explain(error)}; choose a --store that all workers can open"
    return ""


def imported_modules(source: StudySource) -> set[str]:
    r"""Return the top-level modules that a study's code imports anywhere, as far as this process finds them.

    Functions may import when they are called, which loading the study does not show. The text of the study's file is
    searched, and that of modules in the same folder.

    Examples
    --------
    >>> sorted(imported_modules(StudySource(None, content="import json\ndef f():\n    from numpy import random")))
    ['json', 'numpy']
    """
    text, folder = source.content, None
    if source.file is not None:
        folder = Path(source.file).parent
        text = text if text is not None else _read(Path(source.file))
    found: set[str] = set()
    waiting = [text] if text is not None else []
    while waiting:
        for name in set(_imports(waiting.pop())) - found:
            if name not in sys.modules and importlib.util.find_spec(name) is None:
                continue  # an optional import, which fails here, too
            found.add(name)
            if folder is not None and (folder / f"{name}.py").is_file():
                waiting.append(_read(folder / f"{name}.py"))
    return found


def _imports(text: str) -> Iterator[str]:
    """Yield the top-level names of absolute imports in a text of Python."""
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
                yield node.module.partition(".")[0]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
