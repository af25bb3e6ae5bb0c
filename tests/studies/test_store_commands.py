"""Commands that maintain a store: extend, verify, errors, resume --retry, status, submit."""

import errno
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr
from zarr.storage import LocalStore

import pipeline.declare.source
from pipeline.stores.local_files import LocalFiles
from pipeline.stores.locations import SESSIONS, STATE
from pipeline.stores.root import COPY
from tests.pipeline.helpers import file_stamps
from tests.studies.test_cli import STUDY_FILE

ACCEPTED = ("--study", "toy.py", "--accept-edited-study")


@pytest.fixture
def store(command):
    """Run a study in which seven trials fail; return the relative path of its store."""
    Path("toy.py").write_text(STUDY_FILE)
    assert command("run", "toy.py", "--store", "t.zarr")[0] == 1
    return "t.zarr"


def test_errors_are_grouped_by_cause(command, store):
    code, out, _ = command("errors", store)
    assert code == 1
    assert out.splitlines() == [
        "p: 7 failed: value is two",
        "  n=2, algorithm=odd: 7 trials, first 0",
        "  again: dpstudies trial t.zarr --panel p --cell n=2 --trial 0",
        "7 failed trials, 1 causes; retry them with: dpstudies resume t.zarr --retry failed",
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


def test_failed_trials_are_retried_on_request_only(command, store):
    before = xr.open_zarr(store, group="p").load()
    assert command("resume", store)[0] == 1
    assert xr.open_zarr(store, group="p").load().equals(before)
    Path("toy.py").write_text(STUDY_FILE.replace("np.floor(data) == 2", "data < 0"))
    assert command("resume", store, "--retry", "killed", *ACCEPTED)[0] == 1
    code, out, _ = command("resume", store, "--retry", "failed", *ACCEPTED)
    assert (code, "9 trials in" in out or "7 trials in" in out) == (0, True)
    after = xr.open_zarr(store, group="p").load()
    assert (after.status == 1).all()
    ok = before.status == 1
    assert (after.x.where(ok) == before.x).where(ok, True).all()


def test_extend(command, store):
    before = xr.open_zarr(store, group="p").load()
    code, out, _ = command("extend", store, "--trials", "9", "--set", "n=3")
    assert (code, "9 trials failed" in out) == (1, True)
    after = xr.open_zarr(store, group="p").load()
    assert dict(after.sizes) == {"n": 3, "algorithm": 2, "trial": 9}
    assert after.sel(n=[1, 2], trial=range(7)).equals(before)
    for bad, message in (
        (("--trials", "8"), "must be >= 9, the stored number, got 8"),
        (("--set", "m=1"), "unknown factor 'm'"),
        ((), "extend requires --trials or --set"),
    ):
        code, _, err = command("extend", store, *bad)
        assert (code, message in err) == (2, True)


def test_verify(command, store):
    code, out, _ = command("verify", store, "--all")
    assert (code, out) == (0, "12 blocks of a setting read, 12 recomputed, 0 problems\n")
    path = Path(store, "p", "x", "c", "0", "1", "2")
    path.write_bytes(path.read_bytes()[:-1])
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
    assert command("resume", store)[0] == 1
    assert command("verify", store)[0] == 0


def test_verify_detects_different_numbers(command, store):
    Path("toy.py").write_text(STUDY_FILE.replace("[:, 0] +", "[:, 0] + 1e-3 +"))
    code, out, _ = command("verify", store, "--all", *ACCEPTED)
    assert code == 1
    assert "x is different: largest relative difference" in out
    assert "dpstudies verify t.zarr --repair" in out
    code, out, _ = command("verify", store, "--all", "--repair", *ACCEPTED)
    assert (code, "replaced with recomputed ones" in out) == (0, True)
    assert command("verify", store, "--all", *ACCEPTED)[0] == 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: (state / "sessions/000001.json").write_text("{"), "000001.json is damaged"),
        (shutil.rmtree, "their records were lost"),
    ],
    ids=["damaged", "lost"],
)
def test_report_mentions_damaged_and_lost_session_records(command, store, spoil, message):
    assert command("report", store)[0] == 0
    assert "to interrupted" not in Path("report.html").read_text()
    spoil(Path(store, STATE))
    assert command("report", store)[0] == 0
    assert message in Path("report.html").read_text()


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("spoil", [cut, Path.unlink], ids=["cut", "lost"])
@pytest.mark.parametrize(
    ("file", "named"),
    [("p/n/c/0", "p: n is damaged: "), ("p/x/zarr.json", "p: x is damaged: "), (COPY, "store: root is damaged: ")],
    ids=["coordinate", "metadata", "copy of the root"],
)
def test_verify_repairs_coordinates_metadata_and_root_on_request_only(command, store, spoil, file, named):
    """The repair makes no block pending."""
    spoil(Path(store, file))
    before = file_stamps(store)
    code, out, _ = command("verify", store, "--sample", "0")
    assert (code, named in out, "repair it with: dpstudies verify t.zarr --repair" in out) == (3, True, True)
    assert file_stamps(store) == before
    code, out, _ = command("verify", store, "--sample", "0", "--repair")
    assert (code, named in out, "were rewritten" in out, "pending" in out) == (0, True, True, False)
    found = "12 blocks of a setting read, 0 recomputed, 0 problems\n"
    assert command("verify", store, "--sample", "0")[:2] == (0, found)


def test_verify_names_a_damaged_root(command, store):
    cut(Path(store, "zarr.json"))
    code, out, _ = command("verify", store, "--sample", "0")
    assert (code, "store: root is damaged: the root, zarr.json, is damaged; its copy is intact" in out) == (3, True)
    assert command("verify", store, "--sample", "0", "--repair")[0] == 0
    assert command("verify", store, "--sample", "0")[0] == 0


def test_lost_session_record_is_reported_without_an_exit_code(command, store, monkeypatch):
    """The record cannot be repaired, and no number depends on it."""
    monkeypatch.setattr("pipeline.stores.sessions.LEASE_SECONDS", 0.5)  # the owner of the session is unknown
    cut(Path(store, SESSIONS, "000001.json"))
    for options in ((), ("--repair",)):
        code, out, _ = command("verify", store, "--sample", "0", *options)
        assert (code, "store: session 000001.json is lost: " in out, "rewritten" in out) == (0, True, False)
        assert "repair it with" not in out


@pytest.mark.parametrize("reader", ["status", "errors", "summarise", "report"])
def test_damage_gives_a_one_line_error_with_the_remedy(command, store, reader):
    path = Path(store, "p", "status", "c", "1", "1", "0")
    path.write_bytes(b"x" + path.read_bytes()[1:])
    code, _, err = command(reader, store)
    assert code == 3
    assert ("is damaged" if reader == "status" else "cannot be read") in err
    assert "dpstudies verify" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("reader", ["status", "errors", "summarise", "report"])
def test_file_system_error_is_one_line_and_not_reported_as_damage(command, store, monkeypatch, reader):
    get, read = LocalStore.get, LocalFiles._read

    def check(key):
        if key == "p/status/c/1/1/0":
            raise OSError(errno.EIO, "Input/output error")

    async def get_or_fail(self, key, *rest, **named):
        check(key)
        return await get(self, key, *rest, **named)

    def read_or_fail(self, key):
        check(key)
        return read(self, key)

    monkeypatch.setattr(LocalStore, "get", get_or_fail)  # lazy reads
    monkeypatch.setattr(LocalFiles, "_read", read_or_fail)  # counts
    code, _, err = command(reader, store)
    assert (code, err.count("\n")) == (3, 1)
    assert re.search(r"cannot read the store.*Input/output error; nothing was changed", err)


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
        code, out, err = command("status", "--watch", "--every", "0.2", "t.zarr")
        assert working.wait(60) == 0
    finally:
        working.kill()
    assert code == 1
    assert "complete, 7 trials failed" in out
    assert "of 28 trials" in err
    assert command("status", "t.zarr", "--watch", "--every", "0")[0] == 2


def test_submit_needs_a_persistent_scheduler(command):
    Path("toy.py").write_text(STUDY_FILE)
    Path("cluster.yaml").write_text("profiles: {here: {class: LocalCluster}}")
    code, _, err = command("submit", "toy.py", "--store", "t.zarr", "--cluster", "here")
    assert (code, "cluster must be a profile with the address of a running scheduler" in err) == (2, True)
    assert not Path("t.zarr").exists()


def test_time_limit_needs_processes(command):
    Path("toy.py").write_text(STUDY_FILE)
    code, _, err = command("run", "toy.py", "--store", "t.zarr", "--time-limit", "5")
    assert (code, "a time limit requires worker processes" in err) == (2, True)
    assert not Path("t.zarr").exists()


COMPUTING = {
    "resume": ("resume", "t.zarr"),
    "extend": ("extend", "t.zarr", "--trials", "9"),
    "verify": ("verify", "t.zarr"),
    "trial": ("trial", "t.zarr", "--panel", "p", "--cell", "n=2", "--trial", "0"),
}


@pytest.mark.parametrize("name", ["run", *COMPUTING])
def test_edited_study_file_is_refused_unless_accepted(command, store, name):
    """Old and new numbers would be mixed: numbers around 1.5 and 101.5."""
    words = COMPUTING.get(name, ("run", "toy.py", "--store", "t.zarr"))
    before = {path: path.stat().st_mtime_ns for path in Path(store).rglob("*")}
    Path("toy.py").write_text("# a comment\n" + STUDY_FILE)
    code, out, err = command(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "toy.py was edited: its SHA-256 is" in err
    assert "accept the edit with --study" in err
    assert {path: path.stat().st_mtime_ns for path in Path(store).rglob("*")} == before
    accepted = ACCEPTED[2:] if name == "run" else ACCEPTED
    assert command(*words, *accepted)[0] == (1 if name in ("run", "resume", "extend") else 0)


def test_code_of_a_foreign_store_does_not_run(command, monkeypatch, tmp_path):
    """Commands that need the code give a one-line error; others run."""
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
        code, out, err = command(*words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "which you have not run before" in err
        assert f"add --study {tmp_path}/toy.py" in err
    assert not Path("trace").exists()
    assert not Path("report.html").exists()
    assert command("report", "t.zarr", "--study", "toy.py")[0] == 0
    assert Path("trace").exists()


def test_packages_of_the_current_folder_are_not_imported(command):
    """Listing studies in a foreign folder does not run its code."""
    Path("evil.py").write_text("open('trace', 'w')")
    Path("evil-1.0.dist-info").mkdir()
    Path("evil-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    Path("evil-1.0.dist-info/entry_points.txt").write_text("[dpstudies.studies]\nevil = evil:STUDY\n")
    code, out, _ = command("list")
    assert (code, "evil" in out) == (0, False)
    assert not Path("trace").exists()


def test_printed_command_of_a_trial_can_be_pasted(command):
    """Values of the cell are quoted, and commands in stored errors are not printed."""
    label = "a b,c='d';$HOME"
    text = STUDY_FILE.replace('(Factor("n", (1, 2), "size", "int"),)', f'(Factor("label", ({label!r},), "", "str"),)')
    text = text.replace('cell["n"]', "2").replace("value is two", "two\\nagain: rm -rf /")
    Path("toy.py").write_text(text)
    command("run", "toy.py", "--store", "a store.zarr")
    code, out, _ = command("errors", "a store.zarr")
    (again,) = [line.removeprefix("  again: ") for line in out.splitlines() if "again:" in line]
    words = shlex.split(again)
    assert words[:4] == ["dpstudies", "trial", "a store.zarr", "--panel"]
    assert f"label={label}" in words
    assert command(*words[1:])[0] == 0
    code, _, err = command(*words[1:], "--cell", "label=x")
    assert (code, "label is given twice; a cell has one value of label" in err) == (2, True)


def test_missing_error_chunk(command, store):
    for path in Path(store, "p", "error", "c").rglob("*"):
        if path.is_file():
            path.unlink()
    code, out, _ = command("errors", store)
    assert code == 1
    assert "p: 7 failed: no error is stored; check for damage with verify" in out
    assert "again: dpstudies trial t.zarr --panel p --cell n=2 --trial 0" in out


@pytest.mark.parametrize("words", [("report", "t.zarr"), ("report", "t.zarr", "--figures", "figures")])
def test_report_on_a_full_disk_keeps_the_previous_page(command, store, monkeypatch, words):
    Path("report.html").write_text("the page before")
    Path("report.html").chmod(0o640)
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
        f"dpstudies: cannot write {Path.cwd()}/report.html: No space left on device; choose another path\n",
    )
    assert Path("report.html").read_text() == "the page before"
    assert sorted(path.name for path in Path().iterdir() if path.is_file()) == ["report.html", "toy.py"]
    assert command("report", "t.zarr")[0] == 0
    assert "<html" in Path("report.html").read_text()
    assert Path("report.html").stat().st_mode & 0o777 == 0o640


def test_report_to_a_link_and_to_a_device(command, store):
    """Neither the link nor the device is replaced by a file."""
    Path("pages").mkdir()
    Path("link.html").symlink_to("pages/page.html")
    assert command("report", "t.zarr", "--output", "link.html")[0] == 0
    assert Path("link.html").is_symlink()
    assert "<html" in Path("pages/page.html").read_text()
    assert command("report", "t.zarr", "--output", "/dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()
