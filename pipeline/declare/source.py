"""Where a study's code is: in a module, in a file, or only in memory; and how a worker gets hold of it.

A study file is sent to workers by its content and imported under a name made of its hash, from a file in a cache folder
(numba can only cache kernels that have a file), so that workers need not see the user's folder and never run an older
version of the file.
"""

import importlib
import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from pipeline.declare.streams import sha256
from pipeline.declare.study import Study
from pipeline.errors import BadInputError, unknown


@dataclass(frozen=True)
class StudySource:
    """How to get a study in another process.

    Attributes
    ----------
    reference : str or None
        ``module:object``, or the absolute path of a ``.py`` file that defines ``STUDY``; None for a study that exists
        only in memory, such as one declared in a notebook.
    content : str or None
        Text of the file.
    pickled : bytes or None
        The study itself, by value; sent to workers, never stored.
    """

    reference: str | None
    content: str | None = None
    pickled: bytes | None = None

    def load(self) -> Study:
        """Return the study as its code declares it; each process imports it once."""
        with _loading:
            return _load(self)

    @property
    def attributes(self) -> dict[str, Any]:
        """What a store records of it."""
        file = {} if self.content is None else {"study_file_sha256": sha256(self.content)}
        return {"study_reference": self.reference or "", **file}

    @property
    def file(self) -> str | None:
        """A file of the study's code, where there is one."""
        if self.content is not None:
            return self.reference
        if self.reference is None:
            return None
        return getattr(sys.modules.get(self.reference.partition(":")[0]), "__file__", None)


def find_study(target: str, named: Mapping[str, str]) -> StudySource:
    """Return the source of the study that a user named.

    Parameters
    ----------
    target : str
        A name, a ``.py`` file, or ``module:object``.
    named : mapping of str to str
        Names and their ``module:object``.

    Raises
    ------
    BadInputError
        If there is no such study, or it does not import.
    """
    if target in named:
        return StudySource(named[target])
    if target.endswith(".py"):
        _import_from_beside(target)
        try:
            return StudySource(os.path.abspath(target), content=Path(target).read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"cannot read the study file {target}: {getattr(error, 'strerror', error)}") from error
    if ":" in target:
        return StudySource(target)
    raise BadInputError(unknown("study", target, named) + "; or a .py file, or module:object")


def source_of(study: Study) -> StudySource:
    """Return the source of a study object: its module where it has one that others can import, else the object."""
    modules = {getattr(panel.simulate, "__module__", None) for panel in study.panels}
    for name in sorted(modules - {None, "__main__"}, key=str):
        module = sys.modules.get(str(name))
        for attribute, value in vars(module).items() if module is not None else ():
            if value is study and not str(name).startswith(_PREFIX):
                return StudySource(f"{name}:{attribute}")
    return StudySource(None, pickled=cloudpickle.dumps(study))


def load_object(target: str) -> Any:
    """Return what a user named by ``module:object`` or ``file.py:object``.

    Raises
    ------
    BadInputError
        If the file cannot be read, the code does not import, or it has no object of that name.
    """
    place, _, name = target.rpartition(":")
    if place.endswith(".py"):
        _import_from_beside(place)
    try:
        with _loading:
            module = _import_file(Path(place).read_text()) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        raise BadInputError(f"cannot load {target}: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise BadInputError(unknown(f"object of {place}", name, [n for n in vars(module) if not n.startswith("_")]))
    return getattr(module, name)


_PREFIX = "dpstudies_file_"
_loading = threading.RLock()


@lru_cache(maxsize=32)
def _load(source: StudySource) -> Study:
    if source.pickled is not None:
        return cloudpickle.loads(source.pickled)
    if source.reference is None:
        raise BadInputError("the study exists only in the program that declared it; name its file with --study")
    module_name, _, attribute = source.reference.partition(":")
    attribute = "STUDY" if source.content is not None else attribute
    try:
        module = importlib.import_module(module_name) if source.content is None else _import_file(source.content)
        study = getattr(module, attribute)
    except Exception as error:
        raise BadInputError(f"cannot load the study {source.reference}: {type(error).__name__}: {error}") from error
    if not isinstance(study, Study):
        raise BadInputError(f"{source.reference} must be a Study, got {type(study).__name__}")
    return study


def _import_from_beside(path: str) -> None:
    """Let a user's file import what lies beside it, in the user's own process.

    Not on workers that run on: they would go on with what they have imported, whatever the files say by then. There
    such an import is an error.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.append(folder)


def _import_file(content: str) -> ModuleType:
    name = _PREFIX + sha256(content)[:16]
    if name in sys.modules:
        return sys.modules[name]
    folder = Path(tempfile.gettempdir()) / f"dpstudies-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    path = folder / f"{name}.py"
    partial = folder / f"{name}.{os.getpid()}"
    partial.write_text(content)
    partial.replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    cloudpickle.register_pickle_by_value(module)  # a changed copy of its study is sent with its functions
    return module
