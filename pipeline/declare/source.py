"""Sources of studies (a module, a file, or an object in memory) and their import on workers.

The content of a study file is sent to workers and imported under a name derived from its hash. Workers therefore do not
need access to the user's folder and never run an older version of the file.

Code that a user names is run. Code that only a store references is run if it is built in or registered by an installed
package, or if the user has run the same file before (`StudySource.is_trusted`).
"""

import ast
import hashlib
import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import cloudpickle

from pipeline.declare.code_files import code_sha256, loading, naming, parse, read_bytes, read_text
from pipeline.declare.importing import append_to_path, import_content
from pipeline.declare.local_modules import (
    INSTALLED,
    MODULES,
    LocalModule,
    local_modules,
    module_file,
    refuse_other_modules,
    remember_modules,
    with_modules,
)
from pipeline.declare.method_files import METHODS, MethodFile, paths_of_modules
from pipeline.declare.plugins import STUDIES, is_registered
from pipeline.declare.streams import sha256
from pipeline.declare.study import Study
from pipeline.declare.trusted_files import is_trusted_file, trust_file
from pipeline.errors import BadInputError, command, unknown
from pipeline.redact import encodable, text_of


@dataclass(frozen=True)
class StudySource:
    """Source from which another process can load a study."""

    # ``module:object``, or absolute path of a file that defines ``STUDY``; None if only in memory
    reference: str | None
    content: str | None = None
    pickled: bytes | None = None  # study, sent to workers but never stored
    modules: tuple[LocalModule, ...] = ()  # imported by the content
    methods: tuple[MethodFile, ...] = ()  # of a user, which are added to those of the study

    def load(self) -> Study:
        """Return the study as declared in its code, which is imported once per process, with the added methods.

        The object of a module is the present one, which `importlib.reload` replaces.
        """
        with loading:
            if self.methods:
                study = replace(self, methods=()).load()
                for file in self.methods:
                    study = study.with_methods(file.load(), code=file.code)
                return study
            return _load(self) if self.reference is None or self.content is not None else _declared_in_module(self)

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of stores and sessions that identify the code of the study."""
        file = {} if self.sha256 is None else {"study_file_sha256": self.sha256, "study_code_sha256": self.code_sha256}
        file |= {MODULES: json.dumps(self.module_files)} if self.module_files else {}
        methods = {METHODS: json.dumps([method.record for method in self.methods])} if self.methods else {}
        return {"study_reference": encodable(self.reference or ""), **file, **methods}

    @property
    def file(self) -> str | None:
        """File that declares the study, or None for a study in memory or a module without a file."""
        if self.content is not None or self.reference is None:
            return self.reference
        return module_file(self.reference.partition(":")[0])

    @cached_property
    def sha256(self) -> str | None:
        """SHA-256 of the file that declares the study; None in memory, and for a registered study with versions."""
        if self.content is not None:
            return sha256(self.content)
        if self.reference is None or self.file is None or is_registered(self.reference):
            return None
        return hashlib.sha256(read_bytes(self.file, "study file")).hexdigest()

    @cached_property
    def code_sha256(self) -> str | None:
        """SHA-256 of the code of that file and of local modules, without comments, blank lines and docstrings."""
        if self.sha256 is None or self.file is None:
            return None
        text = self.content if self.content is not None else read_bytes(self.file, "study file")
        return with_modules(code_sha256(text), {module.name: module.code for module in self.local_modules})

    @cached_property
    def local_modules(self) -> tuple[LocalModule, ...]:
        """Modules of the folder of the file that it imports; none in memory, and for a registered study."""
        if self.sha256 is None or self.file is None or self.content is not None:
            return self.modules
        return local_modules(read_bytes(self.file, "study file"), *self.folder_and_package)

    @property
    def module_files(self) -> dict[str, str]:
        """Name -> SHA-256 of the file of each local module."""
        return {module.name: module.file for module in self.local_modules}

    @property
    def folder_and_package(self) -> tuple[str, str]:
        """Folder whose modules are local, and the package of the file, which its relative imports start from."""
        assert self.file is not None
        folder = os.path.dirname(self.file)
        if self.content is not None or self.reference is None:
            return folder, ""
        names = self.reference.partition(":")[0].split(".")
        packages = names if os.path.basename(self.file) == "__init__.py" else names[:-1]
        root = os.path.abspath(os.path.join(folder, *[os.pardir] * len(packages)))
        return folder if os.path.basename(root) in INSTALLED else root, ".".join(packages)

    def refuse_stale(self) -> None:
        """Raise `BadInputError` if this process has imported another code of a study's module than that of its file.

        Modules that it imports from its folder are compared as well.
        """
        if self.sha256 is None or self.reference is None or self.content is not None:
            return  # `load` compares the modules of a file
        if self.file is None:
            return  # a worker lacks the module, which `load` states
        name = self.reference.partition(":")[0]
        content = read_bytes(self.file, "study file")
        modules = (LocalModule(name, code_sha256(content), self.sha256), *self.local_modules)
        refuse_other_modules(modules)
        with loading, naming(f"the study {self.reference}"):
            importlib.import_module(name)
        remember_modules(modules)

    @property
    def is_trusted(self) -> bool:
        """True if the code may run although only a store references it."""
        if self.sha256 is None or self.file is None:
            return self.reference is not None and is_registered(self.reference)
        return any(is_trusted_file(digest, self.file) for digest in self._digests)

    def trust(self) -> None:
        """Record that the user has run the study's file, and those of added methods."""
        for method in self.methods:
            method.trust()
        for digest in self._digests:
            trust_file(digest, self.file or "")

    @property
    def _digests(self) -> list[str]:
        """Hashes of the code and of the exact files, which other versions of Python may parse otherwise."""
        if self.sha256 is None or self.code_sha256 is None or self.file is None:
            return []
        return [self.code_sha256, with_modules(self.sha256, self.module_files)]


def named_source(study: Study | StudySource | str) -> StudySource:
    """Return the source of a study that the user named; raise `BadInputError` if there is none."""
    if isinstance(study, StudySource):
        return study
    if not isinstance(study, Study | str):
        raise BadInputError(f"a study must be a Study, a name, a .py file or module:object, got {text_of(study, repr)}")
    return source_of(study) if isinstance(study, Study) else find_study(study, STUDIES)


def find_study(target: str, named: Mapping[str, str]) -> StudySource:
    """Return the source of a study that the user named by a key of `named`, a ``.py`` file, or ``module:object``."""
    if target in named:
        return StudySource(named[target])
    if not (target.endswith(".py") or ":" in target):
        file = f"{target}.py"
        hint = f" (did you mean the file {file}?)" if os.path.isfile(file) else ""
        raise BadInputError(f"{unknown('study', target, named)}; or a .py file{hint}, or module:object")
    path, _, name = target.rpartition(":")
    if path.endswith(".py"):
        raise BadInputError(
            f"a study file must be named without an object, because it defines STUDY, got {name!r} after {path}; omit "
            f"it, or audit a mechanism with: {command('audit', target, *_AUDIT)}"
        )
    if target.endswith(".py") and not os.path.exists(target):
        stem = os.path.basename(target).removesuffix(".py")
        raise BadInputError(
            f"cannot read the study file {os.path.abspath(target)}: No such file or directory; correct the path, or "
            f"write an example with: {command('new', 'study', stem if stem.isidentifier() else 'NAME')}"
        )
    source = stored_source(target)
    enable_sibling_imports(source)
    return source


def stored_source(reference: str) -> StudySource:
    """Return the source that a reference names, without importing its code or extending ``sys.path``."""
    if not reference.endswith(".py"):
        return StudySource(reference)
    path = os.path.abspath(reference)
    if not os.path.exists(path):  # stores have escapes for names that are not in UTF-8
        path = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), path)
    content = read_text(path, "study file")
    return StudySource(path, content=content, modules=local_modules(content, os.path.dirname(path)))


def enable_sibling_imports(source: StudySource) -> None:
    """Allow a study that the user named or has run before to import modules from its folder."""
    if source.content is not None and source.reference is not None:
        append_to_path(os.path.dirname(source.reference))
    elif source.reference is not None and not is_registered(source.reference):
        append_to_path(os.getcwd())


def source_of(study: Study) -> StudySource:
    """Return the source of a study object: the file or module that defines it, or else the object itself."""
    # the modules that define its functions are searched first, since other modules may import the study
    declaring_modules = {getattr(function, "__module__", None) for function in functions_of(study)}
    for name in sorted(set(sys.modules) - {"__main__"}, key=lambda name: (name not in declaring_modules, name)):
        attributes = dict(getattr(sys.modules[name], "__dict__", {}))
        if id(study) not in map(id, attributes.values()):  # most modules do not refer to the study
            continue
        attribute = next(attribute for attribute, value in attributes.items() if value is study)
        if name in _from_files:
            return _from_files[name]
        if module_file(name) == getattr(sys.modules[name], "__file__", ""):
            return StudySource(f"{name}:{attribute}")
    return StudySource(None, pickled=cloudpickle.dumps(study))


def functions_of(study: Study) -> Iterator[Any]:
    """Yield the functions of a study; a `functools.partial` is replaced by the function that it wraps."""
    for panel in study.panels:
        of_panel = (panel.simulate, panel.evaluate, panel.validate)
        of_methods = (method.evaluate for method in panel.methods)
        of_statistics = (statistic.function for statistic in panel.statistics)
        for function in (*of_panel, *of_methods, *of_statistics):
            yield function.func if isinstance(function, partial) else function
    yield from (claim.check for claim in study.claims)
    yield from (figure.draw for figure in study.figures)


def imported_from(path: str) -> str:
    """Return the file of the user whose content was imported from a path, or the path itself for other files."""
    module = os.path.basename(path).removesuffix(".py")
    source = _from_files.get(module)
    if source is None or source.reference is None:
        return paths_of_modules.get(module, path)
    return source.reference


def load_object(target: str) -> Any:
    """Return the object that the user named by ``module:object`` or ``file.py:object``."""
    module_name, colon, name = target.rpartition(":")
    module_name = module_name if colon else target
    if module_name.endswith(".py"):
        path = os.path.abspath(module_name)
        append_to_path(os.path.dirname(path))
        load = partial(import_content, read_text(path, "file"))
    else:
        append_to_path(os.getcwd())
        load = partial(importlib.import_module, module_name)
    with naming(target), loading:
        module = load()
    if not colon:
        raise BadInputError(f"an object of {module_name} must be named, got none; {_propose_audits(module, target)}")
    if not hasattr(module, name):
        audits = _find_audits(module)
        message = unknown(f"object of {module_name}", name, audits).removesuffix("; none is declared here")
        raise BadInputError(message if audits else f"{message}; {_propose_audits(module, module_name)}")
    return getattr(module, name)


_ESCAPED = re.compile(r"\\u(d[89a-f][0-9a-f]{2})")
# Sources of imported files by the name of the module, which contains the hash of the file; only `_load` adds to them.
# They are global, as is `sys.modules`, which imports change.
_from_files: dict[str, StudySource] = {}


@lru_cache(maxsize=32)  # a study is imported or unpickled once per process
def _load(source: StudySource) -> Study:
    """Return a study in memory, or that of a file."""
    if source.pickled is not None:
        return cloudpickle.loads(source.pickled)
    if source.reference is None or source.content is None:
        raise BadInputError("the study exists only in the program that declared it; name its file with --study")
    refuse_other_modules(source.modules)
    with naming(f"the study {source.reference}"):
        module = import_content(source.content, source.modules)
        remember_modules(source.modules)
    _from_files[module.__name__] = source
    if not hasattr(module, "STUDY"):
        raise BadInputError(f"{source.reference} must define STUDY; {_propose_audits(module, source.reference)}")
    return _require_study(source.reference, "STUDY", module.STUDY)


def _declared_in_module(source: StudySource) -> Study:
    """Return the study that a module declares."""
    assert source.reference is not None
    module_name, _, attribute = source.reference.partition(":")
    with naming(f"the study {source.reference}"):
        study = getattr(importlib.import_module(module_name), attribute)
    return _require_study(source.reference, attribute, study)


def _require_study(reference: str, attribute: str, study: Any) -> Study:
    if not isinstance(study, Study):
        raise BadInputError(
            f"{reference} must be a Study, got {type(study).__name__}; assign a pipeline.Study to {attribute}"
        )
    return study


def _find_audits(module: Any) -> dict[str, str]:
    """Return the kinds of the mechanisms and output distributions by name that a module defines itself."""
    # strings: this package must not import mechanisms
    kinds = {("mechanisms", "Mechanism"): "a mechanism", ("mechanisms", "OutputDistributions"): "output distributions"}
    try:
        nodes = list(ast.walk(parse(inspect.getsource(module))))
    except (OSError, TypeError):  # a module without source code
        nodes = []
    imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    named = {
        name: kinds.get((type(value).__module__.partition(".")[0], type(value).__name__), "")
        for name, value in vars(module).items()
        if name not in imported
    }
    return {name: kind for name, kind in named.items() if kind}


def _propose_audits(module: Any, path: str) -> str:
    """Return commands that audit the mechanisms and output distributions which a file defines."""
    proposals = [
        f"{name} is {kind}; audit it with: {command('audit', f'{path}:{name}', *_AUDIT)}"
        for name, kind in _find_audits(module).items()
    ]
    if isinstance(vars(module).get("STUDY"), Study):
        proposals.append(f"STUDY is a study; run it with: {command('run', path, '--store', 'results.zarr')}")
    return ", or ".join(proposals) or (
        "it defines nothing to audit either; 'dpstudies new study NAME' writes an example, and 'dpstudies new "
        "mechanism NAME' one of a mechanism"
    )


_AUDIT = ("--epsilon", "1", "--prior", "1:1", "--n", "20")
