"""Files of users with methods that `Study.with_methods` adds to a study, and their records in a store."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any

from pipeline.declare.code_files import code_sha256, loading, naming, read_text
from pipeline.declare.importing import append_to_path, import_content
from pipeline.declare.local_modules import (
    LocalModule,
    local_modules,
    refuse_other_modules,
    remember_modules,
    with_modules,
)
from pipeline.declare.panel import AddedMethod
from pipeline.declare.trusted_files import is_trusted_file, trust_file
from pipeline.errors import BadInputError, command, unknown
from pipeline.redact import encodable

METHODS = "study_methods"
"""Attribute of stores and sessions with the files of added methods, as JSON."""
_DEFAULTS = "METHOD", "MECHANISM"  # names of the object if the user gives none
_LABEL = "method file"
_EXAMPLE = f"write an example with: {command('new', 'posterior', 'my_posterior')}"
# Paths of imported files by the name of the module; only `_import` adds to them. They are global, as `sys.modules` is.
paths_of_modules: dict[str, str] = {}
"""Name of an imported module -> path of the method file."""


@dataclass(frozen=True)
class MethodFile:
    """File of a user that defines a method, with its content, which is sent to workers."""

    path: str  # absolute
    object: str  # its name in the file
    content: str
    modules: tuple[LocalModule, ...] = ()

    def load(self) -> AddedMethod:
        """Return the method; the file is imported once per process."""
        module = _import(self)
        if not hasattr(module, self.object):
            defined = [name for name, value in vars(module).items() if _is_method(value)]
            message = unknown(f"object of {self.path}", self.object, defined)
            raise BadInputError(message if defined else f"{message}; {_EXAMPLE}")
        method: AddedMethod = getattr(module, self.object)
        if not _is_method(method):
            raise BadInputError(
                f"{self.object} of {self.path} must be a studies.OwnMethod or a mechanisms.Mechanism, got "
                f"{type(method).__name__}; add methods of your own study to the methods of its panel"
            )
        return method

    @cached_property
    def code(self) -> str:
        """SHA-256 of the code, with that of local modules, without comments and docstrings."""
        return with_modules(code_sha256(self.content), {module.name: module.code for module in self.modules})

    @property
    def is_trusted(self) -> bool:
        """True if the user has run this code at this path."""
        return is_trusted_file(self.code, self.path)

    def trust(self) -> None:
        """Record that the user has run the file."""
        trust_file(self.code, self.path)

    @property
    def record(self) -> dict[str, str]:
        """Path, object, name and hash of the code, as JSON values."""
        return {"file": encodable(self.path), "object": self.object, "name": self.load().name, "code": self.code}


def find_method(target: str) -> MethodFile:
    """Return the file of a method that the user named by ``FILE.py``, which defines METHOD, or ``FILE.py:NAME``.

    >>> find_method("mine.txt")
    Traceback (most recent call last):
        ...
    pipeline.errors.BadInputError: a method must be FILE.py or FILE.py:NAME, got 'mine.txt'; write an example with: \
dpstudies new posterior my_posterior
    """
    path, name = (target, "") if target.endswith(".py") else target.rpartition(":")[::2]
    if not path.endswith(".py"):
        raise BadInputError(f"a method must be FILE.py or FILE.py:NAME, got {target!r}; {_EXAMPLE}")
    if not os.path.exists(path):
        raise BadInputError(
            f"cannot read the {_LABEL} {os.path.abspath(path)}: No such file or directory; correct the path, or "
            f"{_EXAMPLE}"
        )
    file = stored_method(path, name)
    append_to_path(os.path.dirname(file.path))
    if not name:
        module = _import(file)
        name = next((default for default in _DEFAULTS if hasattr(module, default)), _DEFAULTS[0])
        file = replace(file, object=name)
    file.load()  # raises an error if it is no method
    return file


def _import(file: MethodFile) -> ModuleType:
    with loading:
        refuse_other_modules(file.modules)
        with naming(f"the {_LABEL} {file.path}"):
            module = import_content(file.content, file.modules)
        remember_modules(file.modules)
    paths_of_modules[module.__name__] = file.path
    return module


def _is_method(value: Any) -> bool:
    return isinstance(getattr(value, "kind", None), str) and isinstance(getattr(value, "name", None), str)


def stored_method(path: str, name: str) -> MethodFile:
    """Return the file of a method by its path and the name of the object, without importing it."""
    path = os.path.abspath(path)
    content = read_text(path, _LABEL)
    return MethodFile(path, name, content, local_modules(content, os.path.dirname(path)))


def read_records(attributes: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the records of the added methods of a store from the attributes of its root."""
    try:
        records = json.loads(attributes.get(METHODS, "[]"))
        return [{key: str(record[key]) for key in ("file", "object", "name", "code")} for record in records]
    except (TypeError, ValueError, KeyError):
        raise BadInputError(f"the store must list its added methods in {METHODS}, got other values") from None
