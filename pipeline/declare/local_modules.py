"""Modules that a file of a user imports from its folder, whose code belongs to that of the file.

They are found in source text, which is not executed; modules that `importlib.import_module` imports are not found. Code
of this project, which has versions, and installed packages are not local.
"""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.declare.code_files import code_sha256, parse
from pipeline.declare.importing import file_on_path, was_edited_since_import
from pipeline.declare.streams import canonical_json, sha256
from pipeline.errors import BadInputError

LocalCodes = tuple[tuple[str, str], ...]
"""Names of local modules, in order, and the SHA-256 of their code."""
_VERSIONED = {"mechanisms", "pipeline", "studies"}
_INSTALLED = {"site-packages", "dist-packages"}
# Specs of local modules, and the SHA-256 of their code, when this process imported them; only `remember_modules` adds
# to it. It is global, as `sys.modules` is.
_imported: dict[str, tuple[Any, str]] = {}


def local_files(text: str | bytes, folder: str, package: str = "") -> dict[str, str]:
    """Return name -> file of the modules below a folder that source text of a package, or one of them, imports."""
    files: dict[str, str] = {}
    waiting = [(text, package)]
    while waiting:
        for name in imported_names(*waiting.pop()):
            file = None if name in files else _local_file(name, folder)
            if file is not None:
                files[name] = file
                is_package = os.path.basename(file) == "__init__.py"
                waiting.append((Path(file).read_bytes(), name if is_package else name.rpartition(".")[0]))
    return files


def local_codes(text: str | bytes, folder: str, package: str = "") -> LocalCodes:
    """Return the names of local modules with the SHA-256 of their code, in the order of names."""
    return tuple(
        (name, code_sha256(Path(file).read_bytes()))
        for name, file in sorted(local_files(text, folder, package).items())
    )


def with_local_codes(code: str, codes: LocalCodes) -> str:
    """Return the SHA-256 of the code of a file and of its local modules; that of the file if it has none."""
    return sha256(canonical_json([code, dict(codes)])) if codes else code


def imported_names(text: str | bytes, package: str = "") -> Iterator[str]:
    """Yield the dotted names, and those of their packages, that source text of a package imports anywhere."""
    try:
        tree = parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (package or not node.level):
            packages = package.split(".")
            parents = packages[: len(packages) + 1 - node.level] if node.level else []
            names = [".".join([*parents, *filter(None, [node.module]), alias.name]) for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[: depth + 1]) for depth in range(len(parts)))


def refuse_other_modules(codes: LocalCodes) -> None:
    """Raise `BadInputError` if an import would execute, or has executed, other code than that of local modules."""
    for name, code in codes:
        file = file_on_path(name, sys.path)
        if file is None:
            continue  # its import fails
        if code_sha256(Path(file).read_bytes()) != code:
            raise BadInputError(
                f"the module {name} of the study's folder must have the same code in {file}, which this process would "
                "import; start another process, or rename one of the modules, or copy it to this worker"
            )
        module = sys.modules.get(name)
        if module is None:
            continue
        imported = getattr(module, "__file__", None) or ""
        if os.path.realpath(imported) != os.path.realpath(file):
            raise BadInputError(
                f"the module {name} of the study must be {file}, but this process has imported {imported}; start "
                "another process, or rename one of the modules"
            )
        spec, remembered = _imported.get(name, (None, ""))
        is_same = spec is module.__spec__ and spec is not None  # a reload replaces it
        if remembered != code if is_same else was_edited_since_import(module):
            raise BadInputError(
                f"the module {name} of the study must have the code that this process has imported, but {file} was "
                "edited since; reload it with importlib.reload, or start another process"
            )


def remember_modules(codes: LocalCodes) -> None:
    """Record the code of local modules that were imported just now."""
    for name, code in codes:
        if name in sys.modules:
            _imported[name] = sys.modules[name].__spec__, code


def _local_file(name: str, folder: str) -> str | None:
    """Return the file of a module in a folder, unless an installed module of its name would be imported."""
    top = name.partition(".")[0]
    if top in _VERSIONED or top in sys.stdlib_module_names:
        return None
    installed = file_on_path(name, sys.path)
    if installed is not None and _INSTALLED.intersection(Path(installed).parts):
        return None
    return file_on_path(name, [folder])
