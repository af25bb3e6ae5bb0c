"""Attacks by stores of somebody else: no command runs their code, connects, or touches a file outside of the store.

The payload of each attack is harmless: a file that must not appear, or a folder outside of the store that must not
change. Every attack is tried with every way to open a store, and the most dangerous ones with every command.
"""

import json
import os
import pickle
import shutil
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

import pipeline
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.files.locations import ROOT, SESSIONS
from pipeline.store.layout.root import COPY, seal, seal_root, unseal
from pipeline.store.sessions.lease import Session, end_session
from pipeline.store.sessions.records import SESSION_COPIES, sessions_of
from tests.pipeline.helpers import WRITING, refusal, unchanged, write_study_file

COMMANDS = {
    "status": ("status", "s.zarr"),
    "watch": ("status", "s.zarr", "--watch", "--every", "0.1"),
    "errors": ("errors", "s.zarr"),
    "trial": ("trial", "s.zarr", "--panel", "p", "--cell", "n=1", "--trial", "0", "--study", "small.py"),
    "summarise": ("summarise", "s.zarr"),
    "report": ("report", "s.zarr", "--study", "small.py", "--output", "page.html"),
    "verify": ("verify", "s.zarr", "--study", "small.py"),
    "repair": ("verify", "s.zarr", "--study", "small.py", "--repair"),
    "compact": ("compact", "s.zarr", "new.zarr"),
    "run": ("run", "small.py", "--store", "s.zarr"),
    "resume": ("resume", "s.zarr", "--study", "small.py"),
    "retry": ("resume", "s.zarr", "--study", "small.py", "--retry", "failed"),
    "extend": ("extend", "s.zarr", "--trials", "6", "--study", "small.py"),
    "until": ("extend", "s.zarr", "--until", "mcse(x) <= 0.2", "--study", "small.py"),
    "submit": ("submit", "small.py", "--store", "s.zarr", "--cluster", "profiles.yaml"),
    "cancel": ("cancel", "s.zarr"),
    "merge": ("merge", "s.zarr", "--store", "new.zarr"),
}

WAYS = ("status", "repair", "resume")  # to open a store: to read, verify and write


def for_command(command, *more):
    """Return a case of a test, which is slow for all but three commands."""
    return pytest.param(*more, command, marks=() if command in WAYS else pytest.mark.slow)


every_command = pytest.mark.parametrize("command", [*map(for_command, COMMANDS)])


def every_way(name, values, ways=WAYS):
    """Try each value with some ways to open a store, by default with three, and the first one with every command.

    Other commands are exhaustive tests of the other values.
    """
    cases = [for_command(command, value) for value in values[:1] for command in COMMANDS]
    cases += [for_command(command, value) for value in values[1:] for command in ways]
    others = [command for command in COMMANDS if command not in ways]
    exhaustive = (pytest.mark.slow, pytest.mark.exhaustive)
    cases += [pytest.param(value, command, marks=exhaustive) for value in values[1:] for command in others]
    return pytest.mark.parametrize((name, "command"), cases)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return a folder with a study file and a store of it."""
    folder = tmp_path_factory.mktemp("original")
    write_study_file(folder / "small.py", n=(1, 2))
    (folder / "profiles.yaml").write_text('{profiles: {nowhere: {address: "tcp://127.0.0.1:9"}}}')
    pipeline.run(str(folder / "small.py"), folder / "s.zarr", progress=False)
    return folder


@pytest.fixture
def place(original, tmp_path, monkeypatch):
    """Return the current folder: a copy of the study and the store, next to a folder ``outside`` with two files."""
    folder = shutil.copytree(original, tmp_path / "here")
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "precious").write_text("precious")
    (outside / "inner" / "0").write_text("precious")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("pipeline.store.sessions.lease.LEASE_SECONDS", 0.2)
    monkeypatch.setattr("pipeline.clusters.cluster._CONNECT_SECONDS", 0.2)  # no scheduler listens at the addresses
    return folder


@pytest.fixture
def attempt(dpstudies):
    """Return a function that runs one of `COMMANDS` and returns (exit code, errors)."""

    def run(command):
        code, _, errors = dpstudies(*COMMANDS[command], seconds=1.5 if command == "watch" else 60)
        return code, errors

    return run


def changed_root(change, store="s.zarr"):
    """Change the root of a store and its copy, and seal both again, as anybody can."""
    document = json.loads(Path(store, ROOT).read_text())
    change(document)
    content = seal_root(json.dumps(document).encode())
    for key in (ROOT, COPY):
        Path(store, key).write_bytes(content)


def changed_spec(change):
    def change_document(document):
        spec = json.loads(document["attributes"]["spec"])
        change(spec, document)
        document["attributes"]["spec"] = json.dumps(spec)

    changed_root(change_document)


def link(path, target):
    path = Path("s.zarr", path)
    if path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target, target_is_directory=True)


LINKS = {
    "chunk": lambda out: link("p/x/c/0/0/0", out / "precious"),
    "record": lambda out: link(f"{SESSIONS}/000001.json", out / "precious"),
    "writing": lambda out: link(WRITING, out),
    "sessions": lambda out: link(SESSIONS, out),
    "state": lambda out: link(".dpstudies", out),
    "panel": lambda out: link("p", out),
    "array": lambda out: link("p/x", out),
    "chunks": lambda out: link("p/x/c", out),
    "chunks of a cell": lambda out: link("p/x/c/0", out),
    "chunks of a method": lambda out: link("p/x/c/0/0", out / "inner"),
    "statuses of a method": lambda out: link("p/status/c/0/0", out / "inner"),
    "status": lambda out: link("p/status/c/0/0/0", out / "precious"),
    "root": lambda out: link(ROOT, out / "precious"),
    "copy of the root": lambda out: link(COPY, out / "precious"),
    "next record": lambda out: link(f"{SESSIONS}/000002.json", out / "precious"),
    "fenced": lambda out: (Path("s.zarr", WRITING).mkdir(exist_ok=True), link(f"{WRITING}/fenced-0", out)),
}


def assert_one_line(code, errors):
    assert "Traceback" not in errors
    assert code in (0, 1, 2, 3, 130), errors  # --watch repeats until an interrupt
    if code in (2, 3):
        lines = [line for line in errors.splitlines() if line.startswith("dpstudies: ")]
        assert lines or code == 3, errors


@every_way("kind", list(LINKS))
def test_no_link_is_followed(place, attempt, kind, command):
    """With a link at any place, and one status missing, nothing outside of the store changes."""
    Path("s.zarr/p/status/c/1/0/1").unlink()
    LINKS[kind](place.parent / "outside")
    with unchanged(place.parent / "outside"):
        code, errors = attempt(command)
    assert_one_line(code, errors)
    if command == "status" and kind in ("writing", "sessions", "state", "panel", "array", "chunks"):
        assert (code, errors.count("\n")) == (2, 1)
        assert errors.startswith("dpstudies: a store must not contain links")


@every_way("folder", [".dpstudies", SESSIONS, WRITING, "p/x/c"])
def test_files_in_the_place_of_folders_are_refused(place, attempt, folder, command):
    for make in (Path.touch, os.mkfifo) if command == "status" else (Path.touch,):
        path = Path("s.zarr", folder)
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        make(path)
        code, errors = attempt(command)
        assert (code, errors.count("\n")) == (2, 1), errors


def test_store_that_the_user_names_by_a_link_is_opened(place, dpstudies, attempt):
    Path("link.zarr").symlink_to("s.zarr")
    assert dpstudies("extend", "link.zarr", "--trials", "6", "--study", "small.py")[0] == 0
    assert attempt("status")[0] == 0


def test_negative_control_links_would_be_followed(place):
    """Without the check, a file is written to the folder outside (negative control of the attacks)."""
    files = LocalFiles(str(place / "s.zarr"), "000009-0123456789ab")
    link("p/x/c/0/0", place.parent / "outside")
    files.begin()
    files._checked.add("p/x/c/0/0")
    files.put("p/x/c/0/0/7", b"x")
    assert (place.parent / "outside" / "7").exists()


KEYS = [
    "../other.zarr",
    "../outside/array",
    "/tmp/absolute",
    "p/../../outside",
    "p//x",
    "p/./x",
    "p\\x",
    "p/\n",
    "",
    "q",
]


@every_command
def test_no_key_leaves_the_store(place, attempt, command):
    """A key of the metadata at any place outside of the spec is refused, and no other root is overwritten."""
    other = shutil.copytree("s.zarr", "other.zarr")
    for key in KEYS if command in ("status", "repair") else KEYS[:1]:
        shutil.rmtree("s.zarr")
        shutil.copytree(other, "s.zarr")

        def add(document, key=key):
            metadata = document["consolidated_metadata"]["metadata"]
            metadata[key] = metadata["p/x"]

        changed_root(add)
        with unchanged(other, place.parent / "outside"):
            code, errors = attempt(command)
        assert (code, errors.count("\n")) == (2, 1)
        assert "cannot have been written by this package, since its metadata" in errors


def other_codec(spec, document):
    document["consolidated_metadata"]["metadata"]["p/x"] = {
        "zarr_format": 2,
        "shape": [2, 1, 4],
        "chunks": [1, 1, 2],
        "dtype": "|O",
        "order": "C",
        "fill_value": None,
        "compressor": None,
        "filters": [{"id": "pickle", "protocol": 5}],
        "attributes": {},
    }


def renamed_panel(name):
    def change(spec, document):
        spec["panels"][name] = spec["panels"].pop("p")
        metadata = document["consolidated_metadata"]["metadata"]
        for path in list(metadata):
            metadata[f"{name}{path[1:]}"] = metadata.pop(path)

    return change


def huge_blocks(spec, document):
    spec["panels"]["p"]["block_trials"] = 10**9
    for name in ("x", "status", "error"):
        grid = document["consolidated_metadata"]["metadata"][f"p/{name}"]["chunk_grid"]
        grid["configuration"]["chunk_shape"][-1] = 10**9


def huge_grid(spec, document):
    spec["panels"]["p"]["trials"] = 10**9
    for name in ("x", "status", "error", "trial"):
        document["consolidated_metadata"]["metadata"][f"p/{name}"]["shape"][-1] = 10**9


SPECS = {
    "pickle": other_codec,
    "panel ../x": renamed_panel("../x"),
    "panel a/b": renamed_panel("a/b"),
    "panel zarr.json": renamed_panel(ROOT),
    "empty panel": renamed_panel(""),
    "huge blocks": huge_blocks,
    "huge grid": huge_grid,
    "label with an escape": lambda spec, document: spec["panels"]["p"].update(method_order=["\x1b[2J"]),
    "label with a surrogate": lambda spec, document: spec["panels"]["p"].update(method_order=["\ud800"]),
    "study with an escape": lambda spec, document: spec.update(study="\x1b[2J"),
    "study with a surrogate": lambda spec, document: spec.update(study="\ud800"),
    "spec without a seed": lambda spec, document: spec.pop("seed"),
    "spec without versions": lambda spec, document: spec.pop("version"),
    "audits that are no JSON": lambda spec, document: document["attributes"].update(audits="{"),
    "audit that is no mapping": lambda spec, document: document["attributes"].update(audits='{"p": {"m": 1}}'),
    "spec without panels": lambda spec, document: spec.pop("panels"),
    "spec with other types": lambda spec, document: spec["panels"].update(p=[1]),
    "text for trials": lambda spec, document: spec["panels"]["p"].update(trials="4"),
    "no metadata": lambda spec, document: document.pop("consolidated_metadata"),
}


@pytest.mark.parametrize("command", ["status", pytest.param("repair", marks=pytest.mark.slow), "resume"])
@pytest.mark.parametrize("kind", SPECS)
def test_metadata_that_do_not_follow_from_a_spec_are_refused(place, attempt, kind, command):
    changed_spec(SPECS[kind])
    started = time.process_time()
    with unchanged("s.zarr"):
        code, errors = attempt(command)
    assert (code, errors.count("\n")) == (2, 1), errors
    assert "cannot have been written by this package" in errors
    assert errors[:-1].isprintable()
    assert time.process_time() - started < 5


def forged_array(change):
    return lambda document: change(document["consolidated_metadata"]["metadata"]["p/status"])


def name_the_study_by_a_surrogate(document):
    document["attributes"].update(study_reference="\ud800")


@every_way(
    "change",
    [
        name_the_study_by_a_surrogate,
        forged_array(lambda status: status["codecs"][1]["configuration"].update(level=1.5)),
        forged_array(lambda status: status["codecs"][1].pop("configuration")),
        forged_array(lambda status: status.update(fill_value="x")),
        forged_array(lambda status: status["chunk_grid"].update(name="")),
        forged_array(lambda status: status.update(attributes=7)),
        forged_array(lambda status: status.update(unknown=7)),
    ],
)
def test_metadata_that_zarr_or_json_refuses_end_in_one_line(place, attempt, command, change):
    changed_root(change)
    code, errors = attempt(command)
    assert_one_line(code, errors)
    assert change is not name_the_study_by_a_surrogate or (code, errors.count("\n")) == (2, 1), errors


class Payload:
    """Object whose unpickling creates a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


@contextmanager
def fake_scheduler(payload):
    """Listen on the loopback interface; send a pickle to every client, and yield the address and the connections."""
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        is_over = threading.Event()

        def serve():
            while not is_over.is_set():
                try:
                    connection, client = server.accept()
                except TimeoutError:
                    continue
                accepted.append(client)
                with connection:
                    connection.sendall(pickle.dumps(payload))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.getsockname()[1]}", accepted
        finally:
            is_over.set()
            thread.join()


def forge_submission(address, /, **changes):
    """Add the record of an open submission to the store."""
    record = {
        "id": "000002-0123456789ab",
        "started": "2026-01-01T00:00:00Z",
        "submission": "0" * 32,
        "run": "0" * 32,
        "address": address,
        "cluster": f"{os.getcwd()}/hostile.yaml:there",
        "process": {"host": "h", "machine": "m", "pid": 1, "created": 0.0},
        **changes,
    }
    Path("hostile.yaml").write_text(json.dumps({"profiles": {"there": {"address": address}}}))
    Path("s.zarr", SESSIONS, "000002.json").write_bytes(seal(record))


@pytest.mark.slow
@every_command
def test_no_recorded_address_is_connected_to(place, attempt, command):
    """A store with a pending block and the record of a submission names a scheduler that no command contacts."""
    Path("s.zarr/p/status/c/0/0/0").unlink()
    with fake_scheduler(Payload(place / "payload")) as (address, accepted):
        forge_submission(address)
        assert_one_line(*attempt(command))
        time.sleep(0.2)
        assert accepted == []
    assert not (place / "payload").exists()


def test_no_recorded_profile_of_another_file_is_proposed(place, dpstudies):
    Path("s.zarr/p/status/c/0/0/0").unlink()
    forge_submission("tcp://127.0.0.1:1", cluster=f"{os.getcwd()}/s.zarr/c.yaml:there")
    Path("hostile.yaml").rename("s.zarr/c.yaml")
    _, out, _ = dpstudies("status", "s.zarr")
    assert "status --watch s.zarr --cluster FILE:PROFILE" in out
    assert "c.yaml" not in out


def test_negative_control_named_addresses_are_connected_to(place, dpstudies, monkeypatch):
    monkeypatch.setattr("pipeline.clusters.cluster._ASK_SECONDS", 1)
    Path("s.zarr/p/status/c/0/0/0").unlink()
    with fake_scheduler(b"") as (address, accepted):
        forge_submission(address)
        dpstudies("status", "s.zarr", "--cluster", "hostile.yaml")
        assert accepted


ASKED = {"shape": [2, 1], "trials": [4, 4], "stopped": [1, 1]}
FORGED = [
    {"submission": ""},
    {"id": "../../../../outside"},
    {"id": "000002-../../x"},
    {"id": ""},
    {"id": 7},
    {"submission": {}},
    {"stopped": 7},
    {"address": 7},
    {"process": None},
    {"started": {}},
    {"started": "\x1b[31m"},
    {"finished": "late"},
    {"profile": []},
    {"profile": "\ud800"},
    {"until": 7},
    {"costs": {"p": {"a": [2, -1.0]}}},
    {"costs": {"p": {"a": [True, 1]}}},
    {"costs": [{"p": 7}]},
    {"peaks": {"p": {"a": -1}}},
    {"peaks": {"p": [1]}},
    {"until": "mcse(x) <= 0.1", "at_most": "9" * 5000, "panels": [None]},
    {"asked": 7},
    {"asked": {"q": ASKED}},
    {"asked": {"p": {**ASKED, "stopped": [1, 10**30]}}},
    {"asked": {"p": {**ASKED, "trials": [None, "9" * 5000]}}},
    {"asked": {"p": {**ASKED, "trials": [-4, 4]}}},
    {"asked": {"p": {**ASKED, "shape": [2, 1, 1]}}},
]


@pytest.mark.slow
@every_way("changes", FORGED, ways=("status", "resume"))
def test_forged_records_end_in_one_line(place, attempt, changes, command):
    forge_submission("tcp://127.0.0.1:9", **changes)
    with unchanged(place.parent / "outside"):
        assert_one_line(*attempt(command))
    if "id" in changes:  # which must not lead out of the store
        with unchanged(place.parent / "outside"):
            assert not end_session(str(place / "s.zarr"), str(changes["id"]), {})


@every_way("name", ["²", "9" * 5000, "1_0", "1000000000000000"])
def test_forged_numbers_of_records_end_in_one_line(place, attempt, name, command):
    """Neither a name that is no number nor a number of missing records that does not fit in memory."""
    forge_submission("tcp://127.0.0.1:9", id=f"{name}-0123456789ab", ended="2026-01-01T00:00:00Z")
    record = Path("s.zarr", SESSIONS, "000002.json")
    Path("s.zarr", SESSION_COPIES).write_bytes(seal({name: unseal(record.read_bytes())}))
    record.rename(record.with_name(f"{name[:100]}.json"))
    assert_one_line(*attempt(command))


def test_forged_submission_cancels_no_tasks(place, dpstudies):
    forge_submission("tcp://127.0.0.1:9", submission="p")
    code, _, errors = dpstudies("cancel", "s.zarr", "--cluster", "hostile.yaml")
    assert code == 2
    assert "cluster must be a profile with the address of the scheduler" in errors


def test_files_of_an_earlier_session_that_cannot_be_removed_are_an_error(place, attempt, monkeypatch):
    """The session ends with one line, and the next one begins at once after the files are gone."""
    left = Path("s.zarr", WRITING, "000001-0123456789ab")
    left.mkdir(parents=True)
    Path("s.zarr/p/status/c/0/0/0").unlink()
    with monkeypatch.context() as patch:
        refuse = Mock(side_effect=PermissionError(1, "Operation not permitted"))
        patch.setattr("pipeline.store.files.local_files._destroy", refuse)
        code, errors = attempt("resume")
    assert code == 3
    assert "cannot remove files of an earlier session" in errors
    assert "ended" in sessions_of(LocalFiles("s.zarr"))[-1]
    assert attempt("resume")[0] == 0
    assert not any(Path("s.zarr", WRITING).iterdir())


def test_full_disk_leaves_no_record(place, monkeypatch, caplog):
    """A record that cannot be written is removed, so that the next session begins at once."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
        for _ in range(3):
            with unchanged("s.zarr"), refusal("No space left on device"):
                Session.begin(str(place / "s.zarr"), {})
    with caplog.at_level("INFO", "pipeline"):
        Session.begin(str(place / "s.zarr"), {}).end()
    assert "waiting" not in caplog.text


def test_full_disk_after_the_record_is_not_bad_input(place, attempt, monkeypatch):
    """A command that has written something ends with exit code 3, not with 2."""
    Path("s.zarr/p/status/c/0/0/0").unlink()
    files_of_records = [LocalFiles._write_temporary]
    full = OSError(28, "No space left on device")

    def write(self, content):
        if files_of_records:  # the copies of the records
            return files_of_records.pop()(self, content)
        raise full

    monkeypatch.setattr(LocalFiles, "_write_temporary", write)
    code, errors = attempt("extend")
    assert (code, errors.count("\n")) == (3, 1), errors
    assert "cannot write to the store" in errors


def test_wait_for_a_damaged_record_is_announced(place, caplog):
    Path("s.zarr", SESSIONS, "000001.json").write_bytes(b"")
    Path("s.zarr", SESSION_COPIES).unlink()
    with caplog.at_level("INFO", "pipeline"):
        Session.begin(str(place / "s.zarr"), {}).end()
    assert "waiting up to 0.2 s for a heartbeat of another session, whose record is damaged" in caplog.text
