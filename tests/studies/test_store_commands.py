"""Tests of the commands that maintain a store: extend, verify, errors, resume --retry, status, submit."""

import errno
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import xarray as xr
from zarr.storage import LocalStore

import pipeline
import pipeline.declare.source
from pipeline.store.files.local_files import LocalFiles
from pipeline.store.files.locations import SESSIONS, STATE
from pipeline.store.layout.root import COPY
from pipeline.store.sessions import lease
from pipeline.store.sessions.lease import Session
from pipeline.store.sessions.records import SESSION_COPIES, now
from studies import cli
from studies.commands import reading
from tests.pipeline import precision_study
from tests.pipeline.helpers import COMMAND, chunk_file, file_stamps, run_python
from tests.studies.test_cli import STUDY_FILE

ACCEPTED = ("--study", "toy.py", "--accept-edited-study")  # of a copied store, which references another folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Run a study in which seven trials fail; return its folder, which tests must not change."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "toy.py").write_text(STUDY_FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["dpstudies", "run", "toy.py", "--store", "t.zarr"])
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert stop.value.code == 1
    return folder


@pytest.fixture
def store(finished, command):
    """Copy the finished study to the current folder; return the relative path of its store."""
    shutil.copytree(finished, ".", dirs_exist_ok=True)
    return "t.zarr"


def test_errors_are_grouped_by_cause(command, store):
    code, out, _ = command("errors", store)
    assert code == 1
    assert out.splitlines() == [
        "p: 7 failed: value is two",
        "  n=2, algorithm=odd: 7 trials, first 0",
        "  again: dpstudies trial t.zarr --panel p --cell n=2 --trial 0",
        "7 failed trials, 1 cause; retry them with: dpstudies resume t.zarr --retry failed",
    ]


def test_causes_that_differ_in_numbers_only_are_grouped(command):
    text = STUDY_FILE.replace('np.where(np.floor(data) == 2, "value is two", "")', "REASONS[: len(data)]")
    Path("toy.py").write_text(text + '\nREASONS = np.array(["step 1 of 3", "step 2 of 3", "no start"], object)\n')
    command("run", "toy.py", "--store", "t.zarr", "--set", "n=1")
    out = command("errors", "t.zarr")[1]
    assert (
        "p: 5 failed: step 1 of 3\n  n=1, algorithm=odd: 3 trials, first 0\n  n=1, algorithm=odd: 2 trials, first 1"
        in out
    )
    assert "p: 2 failed: no start\n  n=1, algorithm=odd: 2 trials, first 2" in out


@pytest.mark.slow
def test_failed_trials_are_retried_on_request_or_after_an_accepted_edit(command, store):
    before = xr.open_zarr(store, group="p").load()
    assert command("resume", store)[0] == 1
    assert command("resume", store, "--retry", "killed")[0] == 1
    assert command("resume", store, "--retry", "failed")[0] == 1
    assert xr.open_zarr(store, group="p").load().equals(before)
    Path("toy.py").write_text(STUDY_FILE.replace("np.floor(data) == 2", "data < 0"))
    code, out, _ = command("resume", store, *ACCEPTED)
    assert (code, "9 evaluations in" in out or "7 evaluations in" in out) == (0, True)
    after = xr.open_zarr(store, group="p").load()
    assert (after.status == 1).all()
    ok = before.status == 1
    assert (after.x.where(ok) == before.x).where(ok, True).all()


def test_extend(command, refused, store):
    before = xr.open_zarr(store, group="p").load()
    code, out, _ = command("extend", store, "--trials", "9", "--set", "n=3")
    assert (code, "9 trials failed" in out) == (1, True)
    after = xr.open_zarr(store, group="p").load()
    assert dict(after.sizes) == {"n": 3, "algorithm": 2, "trial": 9}
    assert after.sel(n=[1, 2], trial=range(7)).equals(before)
    for bad, message in (
        (("--trials", "8"), "must be >= 9, the stored number, got 8"),
        (("--set", "m=1"), "unknown factor 'm'"),
        ((), "extend requires --trials, --set, --add or --until"),
    ):
        refused("extend", store, *bad, message=message)


@pytest.mark.slow
def test_verify(command, store):
    code, out, _ = command("verify", store, "--all")
    assert (code, out) == (0, "12 blocks of a setting read, 12 recomputed, 0 problems\n")
    cut(Path(store, "p/x/c/0/1/2"))
    before = file_stamps(store)
    code, out, _ = command("verify", store)
    assert code == 3
    assert "p, n=1, odd, trials 6-6: x is unreadable" in out
    assert "nothing was changed; repair it with: dpstudies verify t.zarr --repair" in out
    assert file_stamps(store) == before
    code, out, _ = command("verify", store, "--repair")
    assert (code, "p, n=1, odd, trials 6-6: x is unreadable" in out) == (3, True)
    assert "damaged blocks are pending now; compute them with: dpstudies resume t.zarr" in out
    assert command("status", store)[0] == 3
    code, out, _ = command("report", store)
    assert (code, "pending" in out, "Evaluations pending." in Path("t.html").read_text()) == (0, True, True)
    assert command("resume", store)[0] == 1
    assert command("verify", store)[0] == 0


@pytest.mark.slow
def test_verify_detects_different_numbers(command, store):
    Path("toy.py").write_text(STUDY_FILE.replace("[:, 0] +", "[:, 0] + 1e-3 +"))
    code, out, _ = command("verify", store, "--all", *ACCEPTED)
    assert code == 1
    assert "x is different: largest relative difference" in out
    assert "dpstudies verify t.zarr --repair" in out
    code, out, _ = command("verify", store, "--all", "--repair", *ACCEPTED)
    assert (code, "replaced with recomputed ones" in out) == (0, True)
    assert command("verify", store, "--all", *ACCEPTED)[0] == 0


@pytest.mark.slow
def test_report_mentions_lost_session_records(command, store):
    assert command("report", store)[0] == 0
    assert "to interrupted" not in Path("t.html").read_text()
    shutil.rmtree(Path(store, STATE))
    assert command("report", store)[0] == 3
    assert command("verify", store, "--sample", "0", "--repair")[0] == 0
    assert command("report", store)[0] == 0
    assert "their records were lost" in Path("t.html").read_text()


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "file", "named"),
    [
        (cut, "p/n/c/0", "p: n is damaged: "),
        (Path.unlink, "p/x/zarr.json", "p: x is damaged: "),
        (Path.unlink, COPY, "store: root is damaged: "),
        (cut, "zarr.json", "store: root is damaged: the root, zarr.json, is damaged; its copy is intact"),
    ],
    ids=["coordinate", "metadata", "copy of the root", "root"],
)
def test_verify_repairs_coordinates_metadata_and_root_on_request_only(command, store, spoil, file, named):
    spoil(Path(store, file))
    before = file_stamps(store)
    code, out, _ = command("verify", store, "--sample", "0")
    assert (code, named in out, "repair it with: dpstudies verify t.zarr --repair" in out) == (3, True, True)
    assert file_stamps(store) == before
    code, out, _ = command("verify", store, "--sample", "0", "--repair")
    assert (code, named in out, "were rewritten" in out, "pending" in out) == (0, True, True, False)
    found = "12 blocks of a setting read, 0 recomputed, 0 problems\n"
    assert command("verify", store, "--sample", "0")[:2] == (0, found)


@pytest.mark.slow
@pytest.mark.parametrize("is_copied", [True, False])
def test_damaged_session_record_is_repaired(command, store, monkeypatch, is_copied):
    """A record is restored from its copy; if that is damaged, too, it is replaced by a note."""
    # the owner is unknown, so its lease must expire
    monkeypatch.setattr("pipeline.store.sessions.lease.LEASE_SECONDS", 0.5)
    for key in (f"{SESSIONS}/000001.json", *([] if is_copied else [SESSION_COPIES])):
        cut(Path(store, key))
    word = "damaged" if is_copied else "lost"
    for options, code in (((), 3), (("--repair",), 0)):
        found, out, _ = command("verify", store, "--sample", "0", *options)
        assert (found, f"store: session 000001.json is {word}: " in out) == (code, True)
        assert ("repair it with: dpstudies verify t.zarr --repair" in out) == (not options)
    assert command("verify", store, "--sample", "0")[0] == 0


@pytest.mark.parametrize("reader", ["status", "errors", "summarise", "report"])
def test_damage_gives_a_one_line_error_with_the_remedy(command, store, reader):
    path = chunk_file(store, "p", "status", 1, 1, 0)
    path.write_bytes(b"x" + path.read_bytes()[1:])
    code, _, err = command(reader, store)
    assert code == 3
    assert "is damaged" in err
    assert "dpstudies verify" in err
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["status", "errors", "summarise", "report"])
def test_file_system_error_is_one_line_and_not_reported_as_damage(command, store, monkeypatch, reader):
    get, read = LocalStore.get, LocalFiles._read

    def check(key):
        if key == "p/status/c/1/1/0":
            raise OSError(errno.EIO, "Input/output error")

    async def get_or_fail(self, key, *rest, **named):
        check(key)
        return await get(self, key, *rest, **named)

    def read_or_fail(self, key, *part):
        check(key)
        return read(self, key, *part)

    monkeypatch.setattr(LocalStore, "get", get_or_fail)  # lazy reads
    monkeypatch.setattr(LocalFiles, "_read", read_or_fail)  # counts
    code, _, err = command(reader, store)
    assert (code, err.count("\n")) == (3, 1)
    assert re.search(r"cannot read the store.*Input/output error; make it readable, and repeat", err)


@pytest.mark.slow
def test_status_watches_until_the_store_is_complete(command):
    Path("toy.py").write_text(
        STUDY_FILE.replace("def mean(", "import time\ndef mean(").replace(
            'return {"x": data}', 'time.sleep(0.4); return {"x": data}'
        )
    )
    run = [sys.executable, "-c", "import pipeline; pipeline.run('toy.py', 't.zarr')"]
    working = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not Path("t.zarr", "p", "status", "c").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        _, out, _ = command("status", "t.zarr")
        assert re.search(r"has no end: if it does not run any more, continue with: dpstudies resume t.zarr", out)
        code, out, err = command("status", "--watch", "--every", "0.2", "t.zarr")
        assert working.wait(60) == 0
    finally:
        working.kill()
    assert code == 1
    assert "complete, 7 trials failed" in out
    assert "of 28 evaluations" in err
    assert command("status", "t.zarr", "--watch", "--every", "0")[0] == 2


@pytest.mark.parametrize(("is_killed", "code", "state"), [(False, 1, "complete"), (True, 3, "incomplete: --until")])
def test_status_watches_a_run_between_two_rounds(command, store, monkeypatch, is_killed, code, state):
    session = Session.begin(store, {"until": "mcse(x) <= 1"})

    def end_round(seconds):
        if is_killed:
            monkeypatch.setattr(lease, "_ENDED", {session.id})
        else:
            session.end({"finished": now()})

    monkeypatch.setattr("time.sleep", end_round)
    assert "is not reached yet; the session of " in command("status", store)[1]
    found, out, err = command("status", "--watch", store)
    session.end()
    assert (found, state in out) == (code, True)
    assert err == "28 of 28 evaluations, 0 evaluations/s, time left estimating\n"


def test_status_watches_a_store_that_grows(command, store, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    counts = [(40, 10, 50), (40, 9, 600), (400, 200, 49), (649, 0, 0)]
    monkeypatch.setattr(reading, "total_by_kind", Mock(side_effect=[*counts, counts[-1]]))
    code, _, err = command("status", "--watch", store)
    assert (code, re.findall(r"(?m)^\S+ of \S+ evaluations", err)) == (
        0,
        ["50 of 100 evaluations", "49 of 649 evaluations", "600 of 649 evaluations"],
    )
    assert (err.count("time left estimating"), " -" in err) == (2, False)


COMPUTING = {
    "resume": ("resume", "t.zarr"),
    "extend": ("extend", "t.zarr", "--trials", "9"),
    "verify": ("verify", "t.zarr"),
    "trial": ("trial", "t.zarr", "--panel", "p", "--cell", "n=2", "--trial", "0"),
}


@pytest.mark.slow
def test_edited_study_file_is_refused_unless_accepted(command, refused):
    run = ("run", "toy.py", "--store", "t.zarr")
    Path("toy.py").write_text(STUDY_FILE)
    command(*run)
    for name, words in {"run": run, **COMPUTING}.items():
        Path("toy.py").write_text(f"EDITED = {name!r}\n{STUDY_FILE}")
        err = refused(*words, message="toy.py was edited: the SHA-256 of its code is")
        assert err.endswith("accept the edit with --accept-edited-study\n")
        if name == "run":
            page = command("report", "t.zarr", "--study", "toy.py")
            assert page[1].startswith("The code of the study was edited after the last session: claims, figures")
            assert "<b>The code of the study was edited after" in Path("t.html").read_text()
        assert command(*words, ACCEPTED[-1])[0] == (1 if name in ("run", "resume", "extend") else 0), name


@pytest.mark.slow
def test_code_of_a_foreign_store_does_not_run(command, refused, monkeypatch, tmp_path):
    """The code of another user's store does not run: commands that need it print one line, and others work."""
    Path("toy.py").write_text(f"import pathlib\npathlib.Path({str(tmp_path / 'trace')!r}).touch()\n{STUDY_FILE}")
    command("run", "toy.py", "--store", "t.zarr")
    monkeypatch.setenv("DPSTUDIES_HOME", str(tmp_path / "another"))
    monkeypatch.setattr(pipeline.declare.importing, "PREFIX", "dpstudies_file_again_")
    pipeline.declare.source._load.cache_clear()
    Path("trace").unlink()
    for words, expected in {
        ("status", "t.zarr"): 1,
        ("status", "t.zarr", "--watch"): 1,
        ("errors", "t.zarr"): 1,
        ("summarise", "t.zarr"): 0,
    }.items():
        assert command(*words)[0] == expected
    for words in (*COMPUTING.values(), ("report", "t.zarr")):
        err = refused(*words, message="which you have not run before")
        assert f"add --study {tmp_path}/toy.py" in err
    assert not Path("trace").exists()
    assert command("report", "t.zarr", "--study", "toy.py")[0] == 0
    assert Path("trace").exists()


def test_packages_of_the_current_folder_are_not_imported(command):
    Path("evil.py").write_text("open('trace', 'w')")
    Path("evil-1.0.dist-info").mkdir()
    Path("evil-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    Path("evil-1.0.dist-info/entry_points.txt").write_text("[dpstudies.studies]\nevil = evil:STUDY\n")
    code, out, _ = command("list")
    assert (code, "evil" in out) == (0, False)
    assert not Path("trace").exists()


def test_printed_command_of_a_trial_can_be_pasted(command, refused):
    """The printed command quotes the values of the cell; commands in stored error texts are not printed."""
    label = "a b,c='d';$HOME"
    text = STUDY_FILE.replace('(Factor("n", (1, 2), "size", "int"),)', f'(Factor("label", ({label!r},), "", "str"),)')
    text = text.replace('cell["n"]', "2").replace("value is two", "two\\nagain: rm -rf /")
    Path("toy.py").write_text(text)
    command("run", "toy.py", "--store", "a store.zarr")
    out = command("errors", "a store.zarr")[1]
    (again,) = [line.removeprefix("  again: ") for line in out.splitlines() if "again:" in line]
    words = shlex.split(again)
    assert words[:4] == ["dpstudies", "trial", "a store.zarr", "--panel"]
    assert f"label={label}" in words
    assert command(*words[1:])[0] == 0
    refused(*words[1:], "--cell", "label=x", message="label is given twice; a cell has one value of label")


def test_missing_error_chunk(command, store):
    for path in Path(store, "p", "error", "c").rglob("*"):
        if path.is_file():
            path.unlink()
    code, _, err = command("errors", store)
    assert code == 3
    assert " is missing); repair it with: dpstudies verify" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "first"),
    [(("report", "t.zarr"), "{folder}/t.html"), (("report", "t.zarr", "--figures", "figures"), "figures/p-x.svg")],
)
def test_report_on_a_full_disk_keeps_the_previous_page(command, store, monkeypatch, words, first):
    assert command("report", "t.zarr")[0] == 0
    Path("t.html").chmod(0o640)
    before = Path("t.html").read_text()
    write = Path.write_bytes

    def write_half(path, content):
        write(path, content[: len(content) // 2])
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_half)
        code, out, err = command(*words)
    assert (code, out, err) == (
        2,
        "",
        f"dpstudies: cannot write {first.format(folder=Path.cwd())}: No space left on device; choose another path\n",
    )
    assert Path("t.html").read_text() == before
    assert sorted(path.name for path in Path().iterdir() if path.is_file()) == ["t.html", "toy.py"]
    assert command("report", "t.zarr")[0] == 0
    assert "<html" in Path("t.html").read_text()
    assert Path("t.html").stat().st_mode & 0o777 == 0o640


@pytest.mark.slow
def test_report_to_a_link_and_to_a_device(command, store):
    """A report to a link or a device writes to the target, and does not replace the link or device."""
    Path("pages").mkdir()
    Path("link.html").symlink_to("pages/page.html")
    assert command("report", "t.zarr", "--output", "link.html")[0] == 0
    assert Path("link.html").is_symlink()
    assert "<html" in Path("pages/page.html").read_text()
    assert command("report", "t.zarr", "--output", "/dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.slow
def test_pages_have_the_names_of_their_stores_and_replace_no_other_file(command, refused, store, monkeypatch):
    """By default, a page is named after its store; pages of other stores and other files are not overwritten."""
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda uri: bool(opened.append(uri)))
    assert command("report", store)[1].endswith(f"report: {Path.cwd()}/t.html\n")
    shutil.copytree(store, "t")
    shutil.copytree(store, "moved/t.zarr")
    kept = f"{Path.cwd()}/t.html exists and is not the page of {Path.cwd()}/t; choose another path with --output\n"
    refused("report", "t", message=kept)
    assert command("report", "t", "--output", "other.html")[0] == 0
    assert "All evaluations done, some failed." in Path("t.html").read_text()
    shutil.copy("t.html", "moved/t.html")
    assert command("report", "moved/t.zarr")[0] == 0  # the page may move with its store
    Path("moved/t.html").write_text("a letter")
    refused("report", "moved/t.zarr", message="exists and is not the page of")
    code, out, _ = command("report", store, "--open")
    assert (code, opened) == (0, [Path("t.html").resolve().as_uri()])
    assert out.endswith("no browser was found; open the page yourself\n")


@pytest.mark.slow
def test_commands_read_a_compact_store(command, refused, store):
    """Commands that read have the same output for a store and its compact copy; commands that write reject the copy."""
    code, out, err = command("compact", store, "compact.zarr")
    assert (code, err) == (0, "")
    assert out == "every chunk is equal to the original; next: dpstudies report compact.zarr\n"
    before = file_stamps("compact.zarr")
    for words in (
        ("status",),
        ("summarise", "--csv"),
        ("errors",),
        ("trial", "--panel", "p", "--cell", "n=1", "--trial", "0"),
        ("verify", "--all"),
        ("report",),
    ):
        name, *options = words
        one, other = (command(name, path, *options) for path in (store, "compact.zarr"))
        assert (one[0], one[1].replace(store, "S").replace("t.html", "R")) == (
            other[0],
            other[1].replace("compact.zarr", "S").replace("compact.html", "R"),
        )
    for words in (("run", "toy.py", "--store"), ("resume",), ("extend", "--trials", "99"), ("verify", "--repair")):
        refused(*words, "compact.zarr", message="is compact and can only be read")
    assert file_stamps("compact.zarr") == before
    assert command("compact", store, "compact.zarr")[0] == 2


@pytest.mark.slow
def test_damage_of_every_chunk_is_reported_in_one_line(tmp_path):
    """Zarr drops the reads that are pending after the first error when the process exits."""
    store = tmp_path / "s.zarr"
    pipeline.run(precision_study.STUDY, store, trials=500, panels=["p"], progress=False)
    for chunk in (path for path in (store / "p/x/c").rglob("*") if path.is_file()):
        cut(chunk)
    done = run_python(*COMMAND, "report", store, "--study", precision_study.__file__, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"repair it with: dpstudies verify {store} --repair")


def test_damage_to_a_compact_store_is_reported(command, store):
    command("compact", store, "compact.zarr")
    shard = chunk_file("compact.zarr", "p", "status", 0, 0, 0)
    cut(shard)
    code, out, _ = command("verify", "compact.zarr", "--sample", "0")
    assert code == 3
    assert "nothing was changed; compact the original store again" in out
    shard.unlink()
    code, out, _ = command("status", "compact.zarr")
    assert (code, "compact the original again: dpstudies compact ORIGINAL NEW" in out) == (3, True)
    assert "resume" not in out


def test_printed_commands_accept_paths_that_begin_with_a_dash(command):
    Path("toy.py").write_text(STUDY_FILE)
    out = command("run", "toy.py", "--store=-x.zarr")[1]
    shown = re.search(r"(?:next|see): dpstudies (.*)", out)[1].split()
    assert shown[-1] == "./-x.zarr"
    assert command(*shown)[0] != 2
    assert "./-x.zarr" in command("status", "--", "-x.zarr")[1]
