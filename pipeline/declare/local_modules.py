"""Modules that a file of a user imports from its folder, or from a package that contains it: part of its code.

They are found in source text, which is not executed, by the files that an import would find. Modules that
`importlib.import_module` imports are not found. Code of this project, which has versions, and installed packages are
not local. Other code may run if a module is imported late and edited while a run computes, if bytecode is kept for a
file of equal size and time, or if numba caches a function that calls one of another, edited module.
"""

import ast
import hashlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path
from typing import Any

from pipeline.declare.code_files import code_sha256, parse
from pipeline.declare.importing import was_edited_since_import
from pipeline.declare.streams import canonical_json, sha256
from pipeline.errors import BadInputError

MODULES = "study_modules"
"""Attribute of stores and sessions with the SHA-256 of the files of local modules by name, as JSON."""
_VERSIONED = {"mechanisms", "pipeline", "studies"}
INSTALLED = {"site-packages", "dist-packages"}
"""Names of folders with installed packages."""
_STANDARD = os.path.realpath(sysconfig.get_paths()["stdlib"])
_SUFFIXES = ("/__init__.py", ".py", *EXTENSION_SUFFIXES)
# Specs of local modules, and the SHA-256 of their code, when this process imported them; only `remember_modules` adds
# to it. It is global, as `sys.modules` is.
_imported: dict[str, tuple[Any, str]] = {}


@dataclass(frozen=True)
class LocalModule:
    """Name of a local module, and the SHA-256 of its code and of its file."""

    name: str
    code: str
    file: str


def local_modules(text: str | bytes, folder: str, package: str = "") -> tuple[LocalModule, ...]:
    """Return the local modules of source text in a package, in the order of names."""
    files = sorted(local_files(text, folder, package).items())
    contents = ((name, _read(file) or b"") for name, file in files)
    return tuple(LocalModule(name, code_sha256(text), hashlib.sha256(text).hexdigest()) for name, text in contents)


def local_files(text: str | bytes, folder: str, package: str = "") -> dict[str, str]:
    """Return name -> file of the local modules that source text in a folder, or one of these modules, imports.

    The packages that contain the text are among them.
    """
    files: dict[str, str] = {}
    names = [*_with_parents(package), *imported_names(text, package)]
    while names:
        name = names.pop()
        file = None if name in files else _local_file(name, folder)
        content = None if file is None else _read(file)
        if file is None or content is None:
            continue
        files[name] = file
        is_package = os.path.basename(file) == "__init__.py"
        names += imported_names(content, name if is_package else name.rpartition(".")[0])
    return files


def module_file(name: str) -> str | None:
    """Return the file that an import of a module would execute, without importing it, or None without such a file."""
    names = name.split(".")
    try:
        spec = importlib.util.find_spec(names[0]) or PathFinder.find_spec(names[0], [os.getcwd()])
        for depth in range(2, len(names) + 1):
            if spec is None or spec.submodule_search_locations is None:
                return None
            spec = PathFinder.find_spec(".".join(names[:depth]), list(spec.submodule_search_locations))
    except (ImportError, KeyError, ValueError, AttributeError):  # such as __main__, or a nested namespace package
        return None
    return os.path.abspath(spec.origin) if spec is not None and spec.has_location and spec.origin else None


def with_modules(digest: str, digests: Mapping[str, str]) -> str:
    """Return the SHA-256 of a file and its local modules, or that of the file if it has none."""
    return sha256(canonical_json([digest, dict(digests)])) if digests else digest


def imported_names(text: str | bytes, package: str = "") -> Iterator[str]:
    """Yield the dotted names, and those of their packages, that source text in a package imports anywhere.

    Names in the literal ``__all__`` of a package are among them, since ``import *`` imports its modules.
    """
    try:
        tree = parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (package or not node.level):
            packages = package.split(".")
            parents = packages[: len(packages) + 1 - node.level] if node.level else []
            names = [".".join([*parents, *filter(None, [node.module]), alias.name]) for alias in node.names]
        elif isinstance(node, ast.Assign) and package and "__all__" in map(ast.unparse, node.targets):
            with suppress(ValueError, TypeError):
                names = [f"{package}.{name}" for name in ast.literal_eval(node.value)]
        for name in names:
            yield from _with_parents(name)


def refuse_other_modules(modules: Sequence[LocalModule]) -> None:
    """Raise `BadInputError` if an import would execute, or has executed, other code than that of local modules."""
    for local in modules:
        module = sys.modules.get(local.name)
        file = _file_on_path(local.name, sys.path) if module is None else getattr(module, "__file__", None)
        content = None if file is None else _read(file)
        if content is None:
            continue  # its import fails
        if code_sha256(content) != local.code:
            raise BadInputError(
                f"the module {local.name} of the study's folder has other code in {file}, which this process "
                f"{'would import' if module is None else 'has imported'}; start another process, rename one of the "
                "modules, or copy it to all workers"
            )
        if module is None:
            continue
        spec, remembered = _imported.get(local.name, (None, ""))
        is_same = spec is module.__spec__ and spec is not None  # a reload replaces it
        if remembered != local.code if is_same else was_edited_since_import(module):
            raise BadInputError(
                f"the module {local.name} of the study must have the code that this process has imported, but {file} "
                "was edited since; reload it with importlib.reload, or start another process or workers"
            )


def remember_modules(modules: Sequence[LocalModule]) -> None:
    """Record the code of local modules that were imported just now."""
    for local in modules:
        if local.name in sys.modules:
            _imported[local.name] = sys.modules[local.name].__spec__, local.code


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".") if name else []
    return (".".join(parts[: depth + 1]) for depth in range(len(parts)))


def _local_file(name: str, folder: str) -> str | None:
    """Return the file of a module below a folder, or in a package that contains the folder, if an import executes it.

    It is also returned if a module of another folder of the user has its name, so that the import is refused.
    """
    top, home = name.partition(".")[0], os.path.realpath(folder)
    if top in _VERSIONED or top in sys.builtin_module_names:
        return None
    places = _places(top, sys.path if folder in sys.path else [*sys.path, folder])
    for place in places:
        parent = os.path.realpath(os.path.dirname(place))
        if Path(parent).is_relative_to(_STANDARD):  # the folder may contain the installation of Python
            return None
        is_below = Path(parent).is_relative_to(home)
        is_installed = is_below and INSTALLED.intersection(Path(parent).relative_to(home).parts)
        if (is_below and not is_installed) or Path(home).is_relative_to(os.path.realpath(place)):
            return None if _is_standard(top, place) else _file_below(os.path.dirname(place), name)
    if top in sys.stdlib_module_names or any(INSTALLED.intersection(Path(place).parts) for place in places):
        return None
    return _file_below(folder, name)


def _is_standard(top: str, place: str) -> bool:
    """Return True if a module in a folder has the name of a standard one, which this process has imported."""
    loaded = getattr(sys.modules.get(top), "__file__", place) or ""
    return top in sys.stdlib_module_names and not loaded.startswith(place)


def _places(top: str, path: Sequence[str]) -> list[str]:
    """Return the file of a top-level module that an import would find, or the folders of a package."""
    spec = PathFinder.find_spec(top, path)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return list(spec.submodule_search_locations)
    return [spec.origin] if spec.origin else []


def _file_on_path(name: str, path: Sequence[str]) -> str | None:
    """Return the file of a module that an import would find on a path."""
    files = (_file_below(os.path.dirname(place), name) for place in _places(name.partition(".")[0], path))
    return next(filter(None, files), None)


def _file_below(folder: str, name: str) -> str | None:
    """Return the file of a module from the folder of its top-level package, or None without such a file."""
    stem = os.path.join(os.path.abspath(folder), *name.split("."))
    return next((stem + suffix for suffix in _SUFFIXES if os.path.isfile(stem + suffix)), None)


def _read(file: str) -> bytes | None:
    """Return the content of a file, or None if it cannot be read, so that its import fails."""
    try:
        return Path(file).read_bytes()
    except OSError:
        return None
