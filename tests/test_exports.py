"""Tests of the names that the packages export: completion, deferred imports, star imports and pickling."""

import ast
import inspect
import pickle
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import cloudpickle
import jedi
import pytest

import mechanisms
import pipeline
import studies
from mechanisms.core.metadata import Registered
from tests.pipeline.helpers import run_python

PACKAGES = [mechanisms, pipeline, studies]
every_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
IPYTHON = """
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import mechanisms, pipeline, studies")
for shell.Completer.use_jedi in (False, True):
    for text in ("mechanisms.post", "pipeline.ru", "studies.STU"):
        with provisionalcompleter():
            found = shell.Completer.completions(text, len(text))
            print(*sorted(completion.text.rpartition(".")[2] for completion in found))
"""


def printed(code):
    """Return what a new interpreter prints."""
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stub_names(package):
    """Return the names that type checkers see, with their modules."""
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname: f"{package.__name__}.{node.module}" for node in imports for alias in node.names}


@every_package
def test_dir_lists_the_exported_names_which_are_those_of_the_stub(package):
    names = stub_names(package)
    assert dir(package) == package.__all__ == sorted(names)
    for name, module in names.items():
        assert getattr(package, name) is getattr(import_module(module), name)


@pytest.mark.slow
def test_names_are_completed_in_ipython():
    """Completion by the interpreter's own objects and by static analysis gives the exported names."""
    assert printed(IPYTHON) == 2 * "posterior posterior_from_release\nrun\nSTUDIES\n"


@pytest.mark.slow
@pytest.mark.parametrize(("text", "name"), [("mechanisms.audit_c", "audit_counts"), ("pipeline.summ", "summarise")])
def test_names_are_known_to_static_analysis(text, name):
    code = f"import {text.partition('.')[0]}\n{text}"
    project = jedi.Project(Path(__file__).parents[1])
    assert [found.name for found in jedi.Script(code, project=project).complete()] == [name]


@every_package
def test_import_imports_no_large_package(package):
    code = f"""
import sys
import {package.__name__}
print({{"numpy", "scipy", "numba", "xarray", "zarr", "dask"}} & set(sys.modules))
"""
    assert printed(code) == "set()\n"


@pytest.mark.timing
@every_package
def test_import_takes_at_most_a_fifth_of_a_second(package):
    code = f"""
import time
start = time.process_time()
import {package.__name__}
print(time.process_time() - start)
"""
    assert float(printed(code)) <= 0.2


@every_package
def test_star_import_gives_the_exported_names(package):
    namespace = {}
    exec(f"from {package.__name__} import *", namespace)
    assert sorted(set(namespace) - {"__builtins__"}) == package.__all__


@every_package
def test_exported_functions_and_classes_can_be_pickled(package):
    exported = [getattr(package, name) for name in package.__all__]
    kept = [value for value in exported if inspect.isfunction(value) or inspect.isclass(value)]
    assert all(pickle.loads(pickle.dumps(value)) is value for value in kept)


REGISTRIES = {name: value for name in mechanisms.__all__ if isinstance(value := getattr(mechanisms, name), dict)}


@pytest.mark.parametrize("name", REGISTRIES)
def test_entries_of_registries_are_pickled_by_name(name):
    registry = REGISTRIES[name]
    restored = pickle.loads(pickle.dumps(registry))
    assert list(restored) == list(registry)
    by_name = [key for key, value in registry.items() if isinstance(value, Registered)]
    assert all(restored[key] is registry[key] for key in by_name)
    assert cloudpickle.loads(cloudpickle.dumps(registry)).keys() == registry.keys()


def test_changed_entry_keeps_its_fields_when_it_is_pickled():
    changed = replace(mechanisms.GAUSSIAN_MECHANISMS["gaussian"], note="Changed.")
    assert pickle.loads(pickle.dumps(changed)) == changed
    local = replace(mechanisms.MECHANISMS["smooth"], note="Changed.")
    assert cloudpickle.loads(cloudpickle.dumps(local)).note == "Changed."


def test_function_with_the_name_of_its_module_is_exported():
    assert mechanisms.hellinger is import_module("mechanisms.core.hellinger").hellinger


@pytest.mark.parametrize(
    ("package", "name", "message"),
    [
        (mechanisms, "audit_count", "module 'mechanisms' has no attribute 'audit_count'$"),
        (mechanisms, "infer", "module 'mechanisms' has no attribute 'infer'; use posterior_from_release"),
        (pipeline, "critical", "module 'pipeline' has no attribute 'critical'; use Look.critical"),
        (studies, "STUDY", "module 'studies' has no attribute 'STUDY'$"),
    ],
)
def test_unknown_names_raise_an_error_with_the_successor_of_an_earlier_name(package, name, message):
    with pytest.raises(AttributeError, match=message) as raised:
        getattr(package, name)
    assert (raised.value.name, raised.value.obj) == (name, package)


@pytest.mark.slow
def test_modules_can_be_imported_in_any_order():
    """Each subpackage is imported by itself, in a process that has imported packages of others only.

    So are a module before the package that exports a function of its name, and the registry of a pickled entry.
    """
    folders = [file.parent for package in PACKAGES for file in Path(package.__file__).parent.glob("*/__init__.py")]
    names = sorted(f"{folder.parent.name}.{folder.name}" for folder in folders)
    assert len(names) > 20
    statements = [
        *(f"import {name}" for name in names),
        "import mechanisms.counts.sensitivity, mechanisms; assert mechanisms.hellinger([2.0, 1.0], [1.0, 2.0]) > 0",
        f"import pickle; assert pickle.loads({pickle.dumps(mechanisms.MECHANISMS['smooth'])!r}).name == 'smooth'",
    ]
    code = f"""
import os, sys
import distributed, matplotlib, numba, pandas, scipy.stats, typer, xarray, zarr
assert not {{"mechanisms", "pipeline", "studies"}} & set(sys.modules)
for statement in {statements}:
    child = os.fork()
    if child == 0:
        exec(statement)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, statement
"""
    printed(code)
