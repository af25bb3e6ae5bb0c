"""Check that workers can load a study, before anything is written."""

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from distributed import Client, get_worker

from pipeline.declare.source import StudySource
from pipeline.declare.streams import canonical_json, sha256
from pipeline.errors import BadInputError
from pipeline.execution.flight import Flight
from pipeline.execution.shipping import shipped_task
from pipeline.execution.tasks import on_worker
from pipeline.redact import redact_text, told


def refuse_unfit_workers(client: Client, run: str, source: StudySource, spec: Mapping[str, Any]) -> None:
    """Let a worker load a study, and find the modules that its functions import later.

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
        If the worker cannot load the study, misses a module that is found here, or has another version of the code.
    """
    flight = Flight(client, run)
    flight.submit(None, load_study, run, dict(spec), tuple(sorted(imported_modules(source))))
    (landed,) = flight.wait()
    if landed.fate is not None:
        raise BadInputError("a worker ended while it loaded the study; look at its log, or use --cluster threads")
    problem = landed.result or landed.transient
    if problem:
        raise BadInputError(problem)


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
