"""Files with code of a user: their text, the hash of their code, and errors of their import with a line."""

import ast
import errno
import hashlib
import os
import stat
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.declare.importing import PREFIX
from pipeline.declare.streams import sha256
from pipeline.errors import BadInputError
from pipeline.faults import is_interrupt
from pipeline.redact import redact_text, text_of

# Imports change `sys.modules`, which is global, and so are their locks.
loading = threading.RLock()
"""Lock of imports of files of users."""
_parsing = threading.Lock()
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def parse(text: str | bytes) -> ast.Module:
    """Return the syntax tree of Python source text, one at a time: Python 3.11 fails if two threads create trees."""
    with _parsing:
        return ast.parse(text)


def code_sha256(text: str | bytes) -> str:
    """Return the SHA-256 of code without comments, blank lines, positions and docstrings; of all if it is not Python.

    >>> code_sha256("x = 1  # a comment") == code_sha256(b"x = 1")
    True
    """
    try:
        tree = parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return sha256(repr([_describe(node) for node in ast.walk(tree)]))


def _describe(node: ast.AST) -> tuple[str, list[tuple[str, Any]]]:
    """Return the type of a node and its fields, with numbers of nodes; an empty field is left out, as it may be new."""
    fields: list[tuple[str, Any]] = []
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            parts = [None if isinstance(part, ast.AST) else part for part in value]
            fields += [(name, parts)] if parts else []
        elif value is not None or isinstance(node, ast.Constant):
            fields.append((name, None if isinstance(value, ast.AST) else repr(value)))
    return type(node).__name__, fields


def read_text(path: str, label: str) -> str:
    """Return the content of a source file with its original line ends, so that its hash is that of the file."""
    try:
        return read_bytes(path, label).decode()
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"the {label} {path} must be UTF-8 text, got another encoding at byte {error.start + 1}; save it as UTF-8"
        ) from error


def read_bytes(path: str, label: str) -> bytes:
    """Return the bytes of a regular file; raise `BadInputError` with its path and label."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe might never end
            raise OSError(errno.EINVAL, "not a regular file")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a path with a null character raises ValueError
        reason = getattr(error, "strerror", error)
        raise BadInputError(f"cannot read the {label} {path}: {reason}; correct the path") from error


@contextmanager
def naming(label: str) -> Iterator[None]:
    """Convert errors of imported code to `BadInputError`, with the line of a file of the user that raises."""
    try:
        yield
    except BaseException as error:
        if is_interrupt(error):
            raise
        text = " ".join((error.msg if isinstance(error, SyntaxError) else text_of(error)).split())
        raise BadInputError(
            redact_text(f"cannot load {label}{_place(error)}: {type(error).__name__}: {text}")
        ) from error


def _place(error: BaseException) -> str:
    """Return the line of a file of the user that raised an error, for the end of its path; empty for other files."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if PREFIX in frame.filename]
    if isinstance(error, SyntaxError) and PREFIX in (error.filename or ""):
        lines.append(error.lineno)
    return f", line {lines[-1]}" if lines else ""
