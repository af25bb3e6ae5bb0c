"""Checks of workers at the start of a run: each must be able to load the study and open the store."""

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
from pipeline.errors import BadInputError, ExecutionError
from pipeline.execution.in_flight import TasksInFlight
from pipeline.execution.shipping import shipped_task
from pipeline.execution.tasks import on_worker
from pipeline.execution.work import Task
from pipeline.faults import explain, is_transient
from pipeline.redact import format_error, redact_text


def refuse_unfit_workers(client: Client, run: str, source: StudySource, spec: Mapping[str, Any]) -> None:
    """Raise `BadInputError` if a worker cannot load a study or lacks a module that its functions import."""
    modules = tuple(sorted(imported_modules(source)))
    problem = _find_problem(client, "loaded the study", load_study, run, dict(spec), modules)
    if problem:
        raise BadInputError(problem)


def refuse_workers_without_store(client: Client, task: Task) -> None:
    """Raise `ExecutionError` if a worker cannot open the store of a task."""
    problem = _find_problem(client, "opened the store", open_store, task.run, task.session)
    if problem:
        raise ExecutionError(problem)


def _find_problem(client: Client, action: str, function: Callable[..., str], *args: Any) -> str:
    """Run a function on each worker; return the first error message, or an empty string on success."""
    in_flight = TasksInFlight(client)
    for worker in sorted(client.scheduler_info(n_workers=-1)["workers"]) or [None]:
        # another worker runs the check if this one has left; without workers, an adaptive cluster starts one
        options = {"workers": [worker], "allow_other_workers": True} if worker else {}
        in_flight.submit(worker, function, *args, **options)
    return in_flight.first_problem(
        lambda worker: f"worker {worker} terminated while it {action}; check its log, or use --cluster threads",
        "the same check fails on {} more workers",
    )


@on_worker
def load_study(run: str, spec: dict[str, Any], modules: tuple[str, ...]) -> str:
    """Load a study on a worker; return a one-line error message, or an empty string on success."""
    where = f"worker {get_worker().address}"
    try:
        study = shipped_task(run).source.load().from_spec(spec)
    except Exception as error:
        text = redact_text(" ".join(str(error).split())) if isinstance(error, BadInputError) else format_error(error)
        return f"{where} cannot load the study: {text}; install the packages that the study imports there"
    if sha256(canonical_json(study.spec())) != sha256(canonical_json(spec)):
        return f"the code on {where} has a different version; install the same version everywhere"
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        return f"{where} lacks {', '.join(missing)}, which the study imports; install it there"
    return ""


@on_worker
def open_store(run: str, session: str) -> str:
    """Open the store of a session on a worker; return a one-line error message, or an empty string on success."""
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
    """Return the installed top-level modules that the study file, or modules in its folder, import anywhere."""
    text, folder = source.content, None
    if source.file is not None:
        folder = Path(source.file).parent
        text = text if text is not None else _read(Path(source.file))
    found: set[str] = set()
    waiting = [text] if text is not None else []
    while waiting:
        for name in set(_imports(waiting.pop())) - found:
            if name not in sys.modules and importlib.util.find_spec(name) is None:
                continue  # the module is not installed in this process, so the import is optional
            found.add(name)
            if folder is not None and (folder / f"{name}.py").is_file():
                waiting.append(_read(folder / f"{name}.py"))
    return found


def _imports(text: str) -> Iterator[str]:
    """Yield the top-level names of the absolute imports in Python source text."""
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
