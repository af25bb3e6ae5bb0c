"""Import of study files by content."""

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import psutil

from pipeline.declare.streams import sha256
from pipeline.declare.trusted_files import private_folder

_STARTED = psutil.Process().create_time()
PREFIX = "dpstudies_file_"
"""Prefix of the names of modules that are imported from the content of a file."""


def import_content(content: str, modules: tuple[Any, ...] = ()) -> ModuleType:
    """Import content under a name derived from its hash, once per process, from a file as numba requires.

    It is imported again with other code of the modules that it imports.
    """
    name = PREFIX + sha256(repr((content, modules)) if modules else content)[:16]
    if name in sys.modules:
        return sys.modules[name]
    path = _module_folder() / f"{name}.py"
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content.encode())
    partial.replace(path)
    append_to_path(str(path.parent))  # processes that functions start with `multiprocessing` import the module by name
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
    cloudpickle.register_pickle_by_value(module)  # modified copies of the study are sent with their functions
    return module


@lru_cache(maxsize=1)  # one folder per process
def _module_folder() -> Path:
    """Return a folder that only the user can change: one in the user's cache or, if that fails, a temporary one."""
    try:
        folder = private_folder("cache") / "studies"
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # the disk of the cache may be full or read-only
            return folder
    except OSError:
        temporary = Path(tempfile.mkdtemp(prefix="dpstudies-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return temporary


def append_to_path(folder: str) -> None:
    """Append a folder to ``sys.path`` of this process; workers would keep modules after their files have changed."""
    if folder not in sys.path:
        sys.path.append(folder)


def was_edited_since_import(module: ModuleType) -> bool:
    """Return True if the file of a module was edited in this process after Python imported it.

    Python records the time and the size of the file that it imported in another one; False if it wrote none.
    """
    spec = module.__spec__
    if spec is None or not spec.origin or not spec.cached:
        return False
    try:
        status = os.stat(spec.origin)
        with open(spec.cached, "rb") as compiled:
            header = compiled.read(16)
    except OSError:
        return False
    if header[4:8] != bytes(4) or status.st_mtime < _STARTED:  # a hash instead of a time, or no edit in this process
        return False
    present = [int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF]
    return [int.from_bytes(header[start : start + 4], "little") for start in (8, 12)] != present
