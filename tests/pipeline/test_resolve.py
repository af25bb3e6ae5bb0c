"""Tests that code which only a store references does not run, and that edited study files are refused."""

import hashlib
import importlib
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pipeline.declare.source
from pipeline import extend, open_results, resume, run
from pipeline.blocks.evaluate import Status
from pipeline.declare.code_files import code_sha256
from pipeline.declare.importing import PREFIX
from pipeline.declare.local_modules import local_files, module_file
from pipeline.declare.method_files import stored_method
from pipeline.declare.plugins import is_registered
from pipeline.declare.source import StudySource, find_study, stored_source
from pipeline.declare.streams import sha256
from pipeline.declare.trusted_files import is_trusted_file, trust_file
from pipeline.errors import ExecutionError
from pipeline.runs.resolve import is_recorded, study_of
from pipeline.runs.verify import verify
from pipeline.store.result_store import ResultStore
from pipeline.store.scan.states import count_by_status
from pipeline.store.sessions.lease import Session
from tests.pipeline.helpers import create_store, edit, file_stamps, refusal, unchanged, write_study_file
from tests.pipeline.toy import STUDY

TRACED = """
from pathlib import Path
with open({trace!r}, "a") as trace:
    trace.write("imported ")
OFFSET = 0
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    """Return a function that makes this process use the list of known study files of a given user."""
    path = list(sys.path)

    def become(name):
        monkeypatch.setenv("DPSTUDIES_HOME", str(tmp_path / "homes" / name))
        pipeline.declare.source._load.cache_clear()
        for module in [module for module in sys.modules if module.startswith((PREFIX, "local_"))]:
            del sys.modules[module]
        sys.path[:] = path

    become("ann")
    yield become
    become("ann")


@pytest.fixture
def trace(tmp_path):
    """Return the path of a file to which study files append when they are imported."""
    return tmp_path / "trace"


@pytest.fixture
def study_file(tmp_path, trace):
    path = tmp_path / "code" / "mine.py"
    path.parent.mkdir()
    write_study_file(path, x="data + OFFSET", head=TRACED.format(trace=str(trace)))
    return path


@pytest.fixture
def store(user, study_file, tmp_path):
    """Return the path of a store of the study file in which the last block is pending."""
    path = run(str(study_file), tmp_path / "s.zarr").url
    lose_last_block(path)
    return path


def lose_last_block(store):
    Path(store, "p", "status", "c", "0", "0", "1").unlink()


def hashes_of(store):
    return [session.get("study_code_sha256") for session in ResultStore.open(store).sessions]


def refused(call, *texts):
    with refusal(*texts):
        call()


# Edited files


NAMED = {
    "run": lambda store, file, **how: run(file, store, **how),
    "resume": lambda store, file, **how: resume(store, study=file, **how),
    "extend": lambda store, file, **how: extend(store, study=file, trials=6, **how),
    "verify": lambda store, file, **how: verify(store, study=file, **how),
    "study_of": lambda store, file, **how: study_of(ResultStore.open(store), file, **how),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", NAMED)
@pytest.mark.parametrize("old", ["OFFSET = 0", "from pathlib import Path"], ids=["numbers", "no number"])
def test_an_edited_study_file_is_refused(store, study_file, command, old):
    edit(study_file, old, f"{old} + 100" if "OFFSET" in old else f"import json\n{old}")
    now = find_study(str(study_file), {}).code_sha256
    with (
        unchanged(store),
        refusal(
            f"was edited: the SHA-256 of its code is {now[:12]}..., and {hashes_of(store)[0][:12]}... in the last "
            "session",
            "restore the file, or increase a version in it and choose another --store, or accept the edit with "
            "--accept-edited-study",
        ),
    ):
        NAMED[command](store, str(study_file))


@pytest.mark.parametrize("call", [resume, verify, lambda store: extend(store, trials=6)])
def test_an_edited_study_file_is_refused_where_only_the_store_names_it(store, study_file, trace, user, call):
    """If only the store names the study file, an edited file is refused and not imported."""
    edit(study_file)
    trace.unlink()
    refused(
        lambda: call(store), "was edited: the SHA-256 of its code is ", "accept the edit with --accept-edited-study"
    )
    assert not trace.exists()


def test_an_accepted_edit_of_a_file_that_another_user_ran_is_refused(store, study_file, trace, user):
    """The user who has run the recorded version at this path need not name the file; others must."""
    edit(study_file)
    trace.unlink()
    refused(lambda: study_of(ResultStore.open(store), only_reads=True), "was edited since you ran it")
    user("bob")
    refused(lambda: resume(store, accept_edited_study=True), "which you have not run before")
    assert not trace.exists()
    user("ann")
    study_of(ResultStore.open(store), accept_edited_study=True)
    assert trace.exists()


@pytest.mark.parametrize("new", ["# a comment\n\n\nOFFSET = 0  # bits", "OFFSET=(0)", "OFFSET = 0"])
def test_restored_files_and_changes_outside_of_code_are_no_edit(store, study_file, new):
    """The user named the file before; also the list of known files compares the code."""
    edit(study_file)
    edit(study_file, "OFFSET = 100", new)
    resume(store)
    run(str(study_file), store)
    assert len(set(hashes_of(store))) == 1


def test_an_edit_is_accepted_if_no_stored_trial_is_ok(tmp_path):
    file = tmp_path / "boot.py"
    write_study_file(file, x="data.total()", trials=20, block_trials=10)
    with pytest.raises(ExecutionError, match=r"\(boot\.py:10: AttributeError: "):
        run(str(file), tmp_path / "s.zarr", progress=False)
    edit(file, "data.total()", "data.copy()")
    store = run(str(file), tmp_path / "s.zarr", progress=False)
    assert count_by_status(store, "p")[Status.OK] == 20
    edit(file, "data.copy()", "data + 1")
    refused(lambda: run(str(file), tmp_path / "s.zarr", progress=False), "was edited: ")


@pytest.mark.parametrize("is_complete", [False, True])
def test_accepted_edit_is_recorded(store, study_file, is_complete):
    """On request, an edit that changes no number is accepted, and later sessions compare with the new hash."""
    if is_complete:
        resume(store)
    edit(study_file, "OFFSET = 0", "OFFSET = 0 + 0")
    resume(store, study=str(study_file), accept_edited_study=True)
    *_, first, second = hashes_of(store)
    verify(store)
    assert first != second == find_study(str(study_file), {}).code_sha256
    lose_last_block(store)
    resume(store)
    assert hashes_of(store)[-3:] == [first, second, second]
    edit(study_file, "OFFSET = 0 + 0", "OFFSET = 0")
    refused(lambda: resume(store, study=str(study_file)), f"{second[:12]}... in the last session")


def write_failing_study(path, is_corrected, offset):
    """Write a study in which a trial per block fails unless it is corrected, and the first block has an offset."""
    before = f"if not {is_corrected} and any(k % 4 == 1 for k in streams.trials): raise LookupError('no result')"
    x = f"data + {offset} * (np.array(streams.trials) < 4)"
    write_study_file(path, x, before, "import numpy as np", trials=12, block_trials=4)


@pytest.mark.parametrize("is_again", [False, True])
def test_failed_trials_are_recomputed_after_an_accepted_edit(tmp_path, is_again):
    """Failed trials are recomputed until a session has finished; ok trials of the same blocks do not change."""
    file, store = tmp_path / "corrected.py", tmp_path / "s.zarr"
    write_failing_study(file, is_corrected=False, offset=0)
    run(str(file), store, progress=False)
    before = open_results(store)["p"].to_dataset().load()
    assert np.flatnonzero(before["status"] == Status.FAILED).tolist() == [1, 5, 9]
    write_failing_study(file, is_corrected=True, offset=7)
    if is_again:  # a session that was interrupted before it computed anything has recorded the new hash
        source = find_study(str(file), {})
        Session.begin(str(store), {"profile": "threads", **source.attributes}).end()
        resume(store, study=str(file), progress=False)
    else:
        resume(store, study=str(file), accept_edited_study=True, progress=False)
    after = open_results(store)["p"].to_dataset().load()
    was_ok = (before["status"] == Status.OK).to_numpy()
    assert (after["status"] == Status.OK).all()
    np.testing.assert_array_equal(after["x"].values[was_ok], before["x"].values[was_ok])
    assert 7 < after["x"].values.ravel()[1] < 8  # a recomputed trial of the first block has the new numbers
    with unchanged(store):
        resume(store, study=str(file), progress=False)


def test_a_raised_version_is_another_store(store, study_file, tmp_path):
    edit(study_file, "seed=1", "seed=1, version=2")
    refused(lambda: run(str(study_file), store), "version: stored 1, now 2")
    assert run(str(study_file), tmp_path / "new.zarr").spec["version"] == 2


def test_an_edited_file_may_be_read(store, study_file):
    """If the user names an edited study file, a report about its store is written."""
    edit(study_file)
    refused(
        lambda: study_of(ResultStore.open(store), only_reads=True),
        f"the study file {study_file} was edited since you ran it; restore the file, or, to use the edited code, add "
        f"--study {study_file}",
    )
    for named in (str(study_file), None):
        source, _ = study_of(ResultStore.open(store), named, only_reads=True)
        assert not is_recorded(ResultStore.open(store), source)


def test_an_edited_module_is_refused(user, study_file, tmp_path, monkeypatch):
    monkeypatch.chdir(study_file.parent)
    study_file.rename("local_study.py")
    path = run("local_study:STUDY", tmp_path / "s.zarr").url
    lose_last_block(path)
    user("ann")
    resume(path)
    edit(Path("local_study.py"))
    lose_last_block(path)
    user("ann")
    refused(lambda: resume(path), "local_study.py was edited", "accept the edit with --accept-edited-study")


NUMBER = "NUMBER = 0  # a comment\n"
# Head of a study file, and a statement before its evaluation; files next to it, of which the last one is edited.
IMPORTS = {
    "module": ("import local_part", "pass", {"local_part.py": NUMBER}),
    "lazy": ("", "import local_part", {"local_part.py": NUMBER}),
    "next": (
        "import local_first as local_part",
        "pass",
        {"local_first.py": "from local_last import *", "local_last.py": NUMBER},
    ),
    "package": (
        "from local_package import part as local_part",
        "pass",
        {
            "local_package/__init__.py": "",
            "local_package/part.py": "from .deep import NUMBER",
            "local_package/deep.py": NUMBER,
        },
    ),
    "namespace": ("from local_space.deep import part as local_part", "pass", {"local_space/deep/part.py": NUMBER}),
    "mixed": (
        "from local_package.deep import part as local_part",
        "pass",
        {"local_package/__init__.py": "", "local_package/deep/part.py": NUMBER},
    ),
    "star": (
        "from local_package import *\nlocal_part = part",
        "pass",
        {"local_package/__init__.py": "__all__ = ['part']", "local_package/part.py": NUMBER},
    ),
    "own package": (
        "from local_code import part as local_part",
        "pass",
        {"__init__.py": "", "../elsewhere.py": "", "part.py": NUMBER},
    ),
}


@pytest.mark.parametrize("kind", IMPORTS)
def test_an_edited_module_that_a_study_file_imports_is_refused(user, tmp_path, kind, monkeypatch):
    """Numbers of a module in the folder of a study file are part of its code, but for comments."""
    head, before, files = IMPORTS[kind]
    file = tmp_path / "local_code" / "mine.py"

    def become_new_process():
        user("ann")
        if kind == "own package":
            monkeypatch.syspath_prepend(str(tmp_path))

    become_new_process()
    for name, text in files.items():
        (file.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (file.parent / name).write_text(text)
    write_study_file(file, "data + local_part.NUMBER", before, head)
    path = run(str(file), tmp_path / "s.zarr").url
    resume(path)  # modules that are imported now do not change the hash
    edited = file.parent / list(files)[-1]
    edit(edited, "  # a comment", "")
    become_new_process()
    lose_last_block(path)
    resume(path)
    edit(edited, "NUMBER = 0", "NUMBER = 1 + 0")  # of another size, which Python compares
    before, message = file_stamps(path), f" of the study file {file} was edited"
    if kind != "lazy":  # whose module this process has imported, as a notebook has
        refused(lambda: run(str(file), path), "must have the code that this process has imported", "reload it")
    for call in (resume, verify, lambda store: run(str(file), store)):
        become_new_process()
        refused(lambda call=call: call(path), message, "accept the edit with --accept-edited-study")
    become_new_process()
    refused(lambda: study_of(ResultStore.open(path), only_reads=True), message)
    assert file_stamps(path) == before
    lose_last_block(path)
    refused(lambda: resume(path, accept_edited_study=True), "gives numbers that differ from the stored ones")


def test_an_edited_module_is_reloaded_or_refused(user, tmp_path, monkeypatch):
    """Each store has the numbers of the code in its hash: of a module, or of one that a module or a file imports."""
    (tmp_path / "local_part.py").write_text(NUMBER)
    head = "import local_part\nOFFSET = 0"
    write_study_file(tmp_path / "local_study.py", "0 * data + OFFSET + local_part.NUMBER", head=head)
    write_study_file(tmp_path / "mine.py", "0 * data + local_part.NUMBER", head="import local_part")
    monkeypatch.syspath_prepend(str(tmp_path))
    study, part = importlib.import_module("local_study"), importlib.import_module("local_part")
    numbers = []

    def compute(named, changed):
        path = tmp_path / f"{len(numbers)}.zarr"
        refused(lambda: run(named(), path), "reload it with importlib.reload")
        importlib.reload(changed)
        numbers.append(int(open_results(run(named(), path))["p"].x.values.max()))

    edit(tmp_path / "local_study.py", "OFFSET = 0", "OFFSET = 10")  # before the first run
    compute(lambda: study.STUDY, study)
    edit(tmp_path / "local_study.py", "OFFSET = 10", "OFFSET = 200")
    compute(lambda: "local_study:STUDY", study)
    edit(tmp_path / "local_part.py", "NUMBER = 0", "NUMBER = 3_000")
    compute(lambda: study.STUDY, part)
    edit(tmp_path / "local_part.py", "NUMBER = 3_000", "NUMBER = 40_000")
    compute(lambda: str(tmp_path / "mine.py"), part)
    assert numbers == [10, 200, 3200, 40_000]


def test_an_edit_that_changes_numbers_of_one_cell_is_refused(user, tmp_path):
    """The accepted edit of a file is compared in every cell, since only some may change."""
    file = tmp_path / "mine.py"
    write_study_file(file, "data", n=(1, 2, 3))
    store = run(str(file), tmp_path / "s.zarr").url
    edit(file, "return streams.uniforms(1)[:, 0]", "return streams.uniforms(1)[:, 0] + (cell['n'] == 2)")
    refused(
        lambda: extend(store, study=str(file), trials=6, accept_edited_study=True),
        "the edit changes stored numbers: panel p, m, trial 3 gives numbers that differ",
        f"verify {store} --repair --all --accept-edited-study",
    )


def test_standard_modules_below_the_folder_are_not_local():
    text = "import json, email.message, sysconfig, math, _ctypes, numpy.linalg, os.path"
    for folder in ("/", sys.prefix, sys.base_prefix, str(Path.home())):
        assert local_files(text, folder) == {}


def test_hash_of_code_is_that_of_other_versions_of_python():
    """The hash leaves out empty fields, which versions of Python add, and code that is too deep is hashed as text."""
    text = "def f(x: int = 1, *more, **others) -> float:\n    return [y async for y in x if f'{y!r:>3}'] + 1.0j"
    assert code_sha256(text) == "edabedee8f4af7ce5986e1ca70d2909fcd1e97436d5c9055bb9701aa28ad13f9"
    deep = "+".join(["1"] * 20_000)
    assert code_sha256(deep) != code_sha256(f"{deep} # a comment")


def test_a_file_of_the_recorded_content_is_no_edit(store, study_file, monkeypatch):
    """A version of Python that parses a file otherwise finds no edit."""
    monkeypatch.setattr(pipeline.declare.source, "code_sha256", lambda text: sha256("of another version"))
    resume(store)
    verify(store)


def test_code_of_a_method_file_contains_that_of_its_modules(tmp_path):
    file, module = tmp_path / "mine.py", tmp_path / "local_part.py"
    file.write_text("import json, numpy, pipeline, local_part, local_part.absent, missing")
    codes = []
    for text in (NUMBER, NUMBER.replace("#", "# more of"), NUMBER.replace("0", "1"), "not Python"):
        module.write_text(text)
        method = stored_method(str(file), "METHOD")
        assert [module.name for module in method.modules] == ["local_part"]
        codes.append(method.code)
    assert codes[0] == codes[1]
    assert len(set(codes)) == 3


def test_modules_of_one_name_in_two_folders_are_refused(user, tmp_path):
    """A second study never computes with the module of another folder that this process has imported."""
    for number, folder in enumerate(["first", "second"]):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "local_part.py").write_text(f"NUMBER = {number}")
        write_study_file(
            tmp_path / folder / "mine.py", f"data * 0 + local_part.NUMBER + {number}", head="import local_part"
        )
    run(str(tmp_path / "first/mine.py"), tmp_path / "first.zarr")
    refused(
        lambda: run(str(tmp_path / "second/mine.py"), tmp_path / "second.zarr"),
        f"local_part of the study's folder has other code in {tmp_path}/first/local_part.py, which this process has",
        "start another process, rename one of the modules",
    )
    assert not (tmp_path / "second.zarr").exists()


def test_hash_equals_that_of_the_file(user, study_file):
    """The hash of a study file is the one that ``sha256sum`` prints, for any line endings."""
    study_file.write_bytes(b"x = '\xc3\xa9'\r\n")
    assert find_study(str(study_file), {}).sha256 == hashlib.sha256(study_file.read_bytes()).hexdigest()


# Stores from elsewhere


UNNAMED = {
    "resume": resume,
    "extend": lambda store: extend(store, trials=6),
    "verify": verify,
    "study_of": lambda store: study_of(ResultStore.open(store)),
    "report": lambda store: study_of(ResultStore.open(store), only_reads=True),
}


@pytest.mark.parametrize("command", UNNAMED)
def test_the_code_of_a_store_from_elsewhere_does_not_run(store, study_file, trace, user, command):
    user("bob")
    trace.unlink()
    refused(lambda: UNNAMED[command](store), "which you have not run before", f"add --study {study_file}")
    assert not trace.exists()


def test_code_named_by_the_user_runs_and_becomes_known(store, study_file, trace, user):
    user("bob")
    resume(store, study=str(study_file))
    trace.unlink()
    user("bob")
    assert resume(store).url == store
    assert trace.read_text() == "imported "


@pytest.mark.slow
@pytest.mark.parametrize(
    "reference", ["os:system", "this:s", "antigravity:x", "cogapp.__main__:x", "__main__:x", "a.:b"]
)
def test_stores_cannot_import_modules(user, tmp_path, reference):
    path = create_store(tmp_path / "s.zarr", STUDY, study_reference=reference).url
    before = set(sys.modules)
    for call in UNNAMED.values():
        refused(lambda call=call: call(path), reference, "which you have not run before")
    assert "this" not in set(sys.modules) - before
    assert "cogapp.__main__" not in sys.modules


def test_a_module_of_the_current_folder_does_not_run(user, study_file, trace, tmp_path, monkeypatch):
    """Modules in the current folder do not run, even if the folder contains the entry points of a package."""
    monkeypatch.chdir(study_file.parent)
    study_file.rename("local_study.py")
    Path("local-1.0.dist-info").mkdir()
    Path("local-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: local\nVersion: 1.0\n")
    Path("local-1.0.dist-info/entry_points.txt").write_text("[dpstudies.studies]\nmine = local_study:STUDY\n")
    path = run("local_study:STUDY", tmp_path / "s.zarr").url
    user("bob")
    trace.unlink()
    refused(lambda: resume(path), "which you have not run before", "add --study local_study:STUDY")
    assert not trace.exists()


def test_a_known_file_in_another_folder_does_not_run(store, study_file, trace, user, tmp_path):
    """A copy of a known file in another folder is not trusted, because it may import other files there."""
    elsewhere = tmp_path / "elsewhere" / "mine.py"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(study_file.read_bytes())
    source = stored_source(str(elsewhere))
    assert stored_source(str(study_file)).is_trusted
    assert not source.is_trusted
    assert str(elsewhere.parent) not in sys.path


@pytest.mark.parametrize("reference", ["", 7, None, ["a.py"], "no such thing"])
def test_empty_references_are_refused(user, tmp_path, reference):
    path = create_store(tmp_path / "s.zarr", STUDY, study_reference=reference).url
    refused(lambda: resume(path), "has no reference to its study; name the study with --study")


def test_study_must_be_a_regular_file(user, tmp_path):
    """A path of a study that is not a regular file, such as that of a pipe, is refused."""
    os.mkfifo(tmp_path / "pipe.py")
    path = create_store(tmp_path / "s.zarr", STUDY, study_reference=f"{tmp_path}/pipe.py").url
    refused(lambda: resume(path), "cannot read the study file", "not a regular file")
    for name in ("pipe.py", ".py", "a\0b.py"):
        refused(lambda name=name: find_study(f"{tmp_path}/{name}", {}), "cannot read the study file")


def test_registered_studies():
    assert is_registered("studies.counts.hellinger_accuracy:STUDY")
    assert not is_registered("studies.absent:STUDY")
    assert not is_registered("tests.pipeline.toy:STUDY")
    assert StudySource("studies.counts.hellinger_accuracy:STUDY").is_trusted


def test_built_in_studies_are_next_to_this_package(tmp_path, monkeypatch):
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "__init__.py").write_text("")
    (tmp_path / "studies" / "mine.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "studies"]:
        monkeypatch.delitem(sys.modules, name)
    assert module_file("studies.mine") == str(tmp_path / "studies" / "mine.py")
    assert not is_registered("studies.mine:STUDY")


# The list of known files


def known_list(tmp_path):
    return tmp_path / "homes" / "ann" / "state" / "study-files.txt"


def test_list_of_known_files_is_private(user, tmp_path):
    trust_file("a" * 64, "/x/ä b.py")
    trust_file("a" * 64, "/x/ä b.py")
    path = known_list(tmp_path)
    assert path.read_text() == f"{'a' * 64}  /x/ä b.py\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert is_trusted_file("a" * 64, "/x/ä b.py")
    assert not is_trusted_file("a" * 64, "/y/ä b.py")
    assert not is_trusted_file("b" * 64, "/x/ä b.py")


@pytest.mark.parametrize("what", ["list", "folder"])
def test_list_with_write_access_for_others_is_ignored(user, tmp_path, what):
    trust_file("a" * 64, "/x.py")
    path = known_list(tmp_path)
    (path if what == "list" else path.parent).chmod(0o777)
    assert not is_trusted_file("a" * 64, "/x.py")


def test_list_that_is_a_link_is_ignored(user, tmp_path):
    trust_file("a" * 64, "/x.py")
    path = known_list(tmp_path)
    path.rename(tmp_path / "other")
    path.symlink_to(tmp_path / "other")
    assert not is_trusted_file("a" * 64, "/x.py")
    with unchanged(tmp_path / "other"):
        trust_file("b" * 64, "/x.py")


@pytest.mark.parametrize("damage", [b"\xff\xfe\0 nonsense", b"a" * 64 + b"  /cut/off", b"\n\n\n"])
def test_damaged_lines_of_the_list_are_skipped(user, tmp_path, damage):
    trust_file("a" * 64, "/x.py")
    path = known_list(tmp_path)
    path.write_bytes(path.read_bytes() + damage)
    assert is_trusted_file("a" * 64, "/x.py")
    trust_file("b" * 64, "/y.py")
    assert is_trusted_file("b" * 64, "/y.py")
    assert not is_trusted_file("a" * 64, "/cut")


def test_concurrent_writers_of_the_list(user, tmp_path):
    names = [f"/{'x' * 200}/{k}.py" for k in range(80)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(partial(trust_file, "a" * 64), names))
    assert sorted(known_list(tmp_path).read_text().splitlines()) == sorted(f"{'a' * 64}  {name}" for name in names)


def test_no_file_is_known_without_a_home(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPSTUDIES_HOME", str(tmp_path / "file"))
    trust_file("a" * 64, "/x.py")
    assert not is_trusted_file("a" * 64, "/x.py")


def test_odd_paths_are_not_known(user):
    for path in ("/a\nb.py", "/\ud800.py", "/\udcff.py"):
        trust_file("a" * 64, path)
        assert is_trusted_file("a" * 64, path) == ("\n" not in path)
