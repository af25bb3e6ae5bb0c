"""Tests of study sources (module, file or memory): workers load the same code as the user."""

import importlib
import sys
import tomllib
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest

import pipeline
from pipeline.declare.plugins import Plugins
from pipeline.declare.source import StudySource, find_study, source_of
from pipeline.declare.streams import sha256
from pipeline.errors import BadInputError
from studies import MODULES, STUDIES
from tests.pipeline.helpers import TOY_FILE, evaluate_one, refusal, run_python, write_study_file
from tests.pipeline.toy import STUDY


def number_of(study):
    return evaluate_one(study, "p", "m", range(1)).values["x"].item()


@pytest.fixture
def small(tmp_path):
    """Write a study file that returns a constant, and return the path of the file."""

    def small(number, folder="", name="study.py"):
        (tmp_path / folder).mkdir(exist_ok=True)
        return write_study_file(tmp_path / folder / name, x=f"0 * data + {number}")

    return small


@pytest.mark.parametrize("reference", ["tests.pipeline.toy:STUDY", str(TOY_FILE)])
def test_study_by_module_or_file(reference):
    source = find_study(reference, {})
    study = source.load()
    assert source.load() is study
    assert (study is STUDY) == (reference != str(TOY_FILE))
    assert study.spec() == STUDY.spec()
    hashes = {"study_file_sha256": sha256(TOY_FILE.read_text()), "study_code_sha256": source.code_sha256}
    assert source.attributes == {"study_reference": reference, **hashes}
    assert source.file == str(TOY_FILE)


def test_registered_study_has_no_hash():
    """A registered study has no hash, because its integer version identifies its code across releases."""
    source = find_study("studies.inference.gibbs_traces:STUDY", {})
    assert source.attributes == {"study_reference": "studies.inference.gibbs_traces:STUDY"}
    assert source.file.endswith("gibbs_traces.py")


def test_study_by_name():
    assert find_study("toy", {"toy": "tests.pipeline.toy:STUDY"}).load() is STUDY
    with pytest.raises(BadInputError, match=r"unknown study 'toi'; did you mean toy\? .*or a \.py file, or module:obj"):
        find_study("toi", {"toy": "tests.pipeline.toy:STUDY"})


def test_reference_does_not_depend_on_the_current_folder(small, tmp_path, monkeypatch):
    small(1.0)
    monkeypatch.chdir(tmp_path)
    assert find_study("study.py", {}).reference == str(tmp_path / "study.py")


def test_content_is_shipped(small):
    """A source contains the content of the study file, so later changes of the file have no effect."""
    path = small(1.0)
    before = find_study(path, {})
    small(2.0)
    after = find_study(path, {})
    assert number_of(after.load()) == 2.0
    assert number_of(before.load()) == 1.0
    assert before != after
    small(1.0)
    assert find_study(path, {}) == before


def test_files_with_equal_names_do_not_clash(small):
    sources = [find_study(small(number, folder), {}) for folder, number in (("a", 3.0), ("b", 4.0))]
    studies = [source.load() for source in sources]
    assert [number_of(study) for study in studies] == [3.0, 4.0]
    assert [number_of(source.load()) for source in sources] == [3.0, 4.0]


def test_imported_content_has_a_file_for_caches(small):
    path = small(5.0)
    simulate = find_study(path, {}).load().panels[0].simulate
    assert Path(simulate.__code__.co_filename).read_text() == Path(path).read_text()


@pytest.mark.slow
def test_another_process_loads_the_shipped_content(small):
    """Another process loads the content from the source, even if the file has changed since."""
    path = small(6.0)
    pickled = cloudpickle.dumps(find_study(path, {}))
    Path(path).write_text("raise RuntimeError('changed')")
    assert load_elsewhere(pickled) == "mine"


def load_elsewhere(pickled):
    """Load a pickled source in a new process, and return the name of its study."""
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).load().name)"
    done = run_python("-c", code, input=pickled, text=False, errors=None)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_study_in_memory():
    def simulate(cell, streams):
        return offset

    offset = 2.0
    panel = replace(STUDY.panel("table"), simulate=simulate)
    study = replace(STUDY, name="mine", panels=(panel,))
    source = source_of(study)
    assert source.reference is None
    assert source.attributes == {"study_reference": ""}
    assert source.file is None
    loaded = source.load()
    assert loaded.spec() == study.spec()
    assert evaluate_one(loaded, "table", "square", range(1)).values["curve"].tolist() == [4.0, 16.0, 36.0]


def test_studies_are_named_in_python_as_on_the_command_line(tmp_path):
    """A built-in study, registered like that of another package, runs and resumes by its name."""
    store = pipeline.run(
        "renyi-curves", tmp_path / "s.zarr", panels=["dirichlet-bounds"], values={"coefficient": [0.1]}
    )
    assert (store.spec["study"], store.complete) == ("renyi-curves", True)
    assert pipeline.resume(store, study="renyi-curves").complete
    with pytest.raises(BadInputError, match="unknown study 'renyi-curve'; did you mean renyi-curves"):
        pipeline.run("renyi-curve", tmp_path / "t.zarr")
    assert not (tmp_path / "t.zarr").exists()


def test_studies_are_declared_once_as_entry_points():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert dict(MODULES.built_in) == project["entry-points"]["dpstudies.studies"]
    assert list(MODULES.built_in.values()) == sorted(MODULES.built_in.values())  # by folder


def test_metadata_of_older_code_are_refused():
    message = "dpstudies must register names in dpstudies.others, got none, because it was installed from older code"
    with pytest.raises(BadInputError, match=message):
        _ = "calibration" in Plugins("dpstudies.others")


@pytest.mark.parametrize("name", MODULES.built_in)
def test_source_of_a_built_in_study_is_its_module(name):
    """The source of a built-in study is the study's module, even if its functions are defined in other modules."""
    assert source_of(STUDIES[name]) == StudySource(MODULES[name])


def test_source_of_a_study_of_functions_of_other_modules(tmp_path, monkeypatch):
    (tmp_path / "made_of_toy.py").write_text(
        "from dataclasses import replace\nfrom tests.pipeline.toy import STUDY as TOY\nMINE = replace(TOY, name='mine')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert source_of(importlib.import_module("made_of_toy").MINE) == StudySource("made_of_toy:MINE")


def test_source_of_a_study_of_a_file_is_the_file(small):
    source = find_study(small(10.0), {})
    assert source_of(source.load()) == source


def test_source_of_a_study_of_a_module_that_others_cannot_import_is_the_object(tmp_path, monkeypatch):
    module = types.ModuleType("made_here")
    module.STUDY = replace(STUDY, aim="elsewhere")
    monkeypatch.setitem(sys.modules, "made_here", module)
    assert source_of(module.STUDY).reference is None


def test_source_of_a_changed_study_is_the_object():
    changed = replace(STUDY, seed=8)
    source = source_of(changed)
    assert source.reference is None
    assert source.load().spec() == changed.spec()
    assert source.load().seed == 8


@pytest.mark.slow
def test_changed_study_of_a_file_is_loaded_by_another_process(small):
    """A study from a file that was changed in memory is pickled with its functions, so other processes can load it."""
    study = replace(find_study(small(7.0), {}).load(), seed=2)
    assert load_elsewhere(cloudpickle.dumps(source_of(study))) == "mine"


def test_study_whose_module_cannot_be_imported(small):
    """A study that `exec` defines has a source, even though its functions name a module that cannot be imported."""
    namespace = {"__name__": "no_such_module"}
    exec(Path(small(8.0)).read_text(), namespace)
    assert number_of(source_of(namespace["STUDY"]).load()) == 8.0


def test_study_in_memory_cannot_be_found_again():
    with pytest.raises(BadInputError, match="exists only in the program that declared it; name its file with --study"):
        StudySource(None).load()


@pytest.mark.parametrize(
    ("message", "target"),
    [
        ("cannot load the study no_such_module:S: ModuleNotFoundError: No module named", "no_such_module:S"),
        ("cannot load the study pipeline.declare.study:STUDIES: AttributeError: ", "pipeline.declare.study:STUDIES"),
        ("cannot load the study pipeline.declare.study:: ", "pipeline.declare.study:"),
        ("pipeline.declare.study:Panel must be a Study, got type", "pipeline.declare.study:Panel"),
        ("absent.py: No such file", "absent.py"),
        ("unknown study 'absent'", "absent"),
    ],
)
def test_invalid_names_are_rejected(message, target):
    with refusal(message):
        find_study(target, {}).load()


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ("SyntaxError: ", b"def f(:\n"),
        ("ZeroDivisionError: division by zero", b"1 / 0\n"),
        ("ModuleNotFoundError: No module named 'no_such_module'", b"import no_such_module\n"),
        ("must define STUDY; it defines nothing to audit either", b"x = 1\n"),
        ("must be a Study, got int", b"STUDY = 1\n"),
        ("must be UTF-8", b"# \xff\n"),
        ("line 2: SystemExit: 0", b"import sys\nsys.exit(0)\n"),
        ("line 1: ValueError: bad \\udcff", b"raise ValueError('bad \\udcff')"),
        ("line 2: Panic: panic", b"class Panic(BaseException): pass\nraise Panic('panic')"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_files_are_rejected(tmp_path, message, content):
    path = tmp_path / "bad.py"
    path.write_bytes(content)
    for _ in range(2):  # a failed import leaves no module behind
        with refusal(message, str(path)):
            find_study(str(path), {}).load()


def test_threads_may_load_one_file_concurrently(tmp_path):
    """If several threads load one file, none of them uses a module that is only partly imported."""
    path = write_study_file(tmp_path / "slow.py", x="0 * data + 9.0", head="import time\ntime.sleep(0.3)")
    source = find_study(path, {})
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda k: number_of(source.load()), range(4))) == [9.0] * 4
