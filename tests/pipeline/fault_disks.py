"""Faults of disks and files: full or read-only disks, damaged or missing chunks, stores of another version."""

import os
from pathlib import Path

from pipeline.blocks.evaluate import Status
from tests.pipeline.fault_processes import Machines, inside
from tests.pipeline.fault_study import N_TRIALS, Outcome, judge, n_committed, write_study
from tests.pipeline.helpers import file_stamps


def a_full_disk(folder: Path) -> Outcome:
    """Run on a disk of 0.5 MB until the disk is full, enlarge the disk, and resume the run."""
    study, disk = write_study(folder), folder / "disk"
    disk.mkdir()
    with Machines(folder) as lab:
        host = lab.host("mnt")
        inside(host, "mnt", "mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", disk)
        run = lab.dpstudies("run", study, "--store", disk / "s.zarr", inside=host)
        code, seen = run.finish(), Path(f"/proc/{host}/root/{disk}/s.zarr")
        kept = n_committed(seen)
        inside(host, "mnt", "mount", "-o", "remount,size=50m", disk)
        resume = lab.dpstudies("resume", disk / "s.zarr", inside=host)
        checks = {
            "exit 3": code == 3,
            "names the reason": "No space left on device" in run.message,
            "no traceback": "Traceback" not in run.output,
            f"some are committed, got {kept}": 0 < kept < N_TRIALS,
            "resume: exit 0": resume.finish() == 0,
        }
        return judge("disk full, then made larger", run, seen, checks)


def a_read_only_store(folder: Path) -> Outcome:
    """Run and resume on a read-only disk, and then make the disk writable."""
    study, disk = write_study(folder), folder / "disk"
    disk.mkdir()
    with Machines(folder) as lab:
        host = lab.host("mnt")
        seen = Path(f"/proc/{host}/root/{disk}/s.zarr")
        inside(host, "mnt", "mount", "-t", "tmpfs", "-o", "size=50m", "tmpfs", disk)
        lab.dpstudies("run", study, "--store", disk / "s.zarr", inside=host, dies_at=200).finish()
        before = file_stamps(seen)
        inside(host, "mnt", "mount", "-o", "remount,ro", disk)
        resume = lab.dpstudies("resume", disk / "s.zarr", inside=host)
        other = lab.dpstudies("run", study, "--store", disk / "other.zarr", inside=host)
        codes = [resume.finish(), other.finish()]
        checks = {
            f"exit 2 or 3, got {codes}": all(code in (2, 3) for code in codes),
            "names the reason": "Read-only file system" in resume.message and str(disk) in other.message,
            "no traceback": "Traceback" not in resume.output + other.output,
            "nothing is changed": file_stamps(seen) == before and not seen.with_name("other.zarr").exists(),
        }
        inside(host, "mnt", "mount", "-o", "remount,rw", disk)
        checks["resume: exit 0"] = lab.dpstudies("resume", disk / "s.zarr", inside=host).finish() == 0
        return judge("store on a read-only disk", resume, seen, checks)


def another_version(folder: Path) -> Outcome:
    """Change the version of a study, and resume its store."""
    study, store = write_study(folder), folder / "s.zarr"
    text = study.read_text()
    with Machines(folder) as lab:
        lab.dpstudies("run", study, "--store", store, dies_at=200).finish()
        before = file_stamps(store)
        study.write_text(text.replace("seed=1)", "seed=1, version=2)"))
        resume = lab.dpstudies("resume", store, "--study", study)  # without --study, the edited file is refused
        run = lab.dpstudies("run", study, "--store", store)
        codes = [resume.finish(), run.finish()]
        checks = {
            f"exit 2, got {codes}": codes == [2, 2],
            "names what changed": "version: stored 1, now 2" in resume.message,
            "nothing is changed": file_stamps(store) == before,
        }
        study.write_text(text)
        checks["resume: exit 0"] = lab.dpstudies("resume", store).finish() == 0
    return judge("store of another version of the study", resume, store, checks)


def flip(chunk: Path) -> None:
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)


def cut(chunk: Path) -> None:
    os.truncate(chunk, chunk.stat().st_size // 2)


def _damaged(folder: Path, fault: str, harm) -> Outcome:
    """Damage one chunk of each kind by calling `harm`; read the status, verify, repair, resume, and verify again."""
    study, store = write_study(folder, failing={(3, "b", 6): "raise"}), folder / "s.zarr"
    chunks = {
        "p/x": "p/x/c/1/0/2",
        "p/square": "p/square/c/2/1",
        "p/error": "p/error/c/3/1/1",
        "p/status": "p/status/c/4/0/0",
        "q/status": "q/status/c/0/1/2",
    }
    with Machines(folder) as lab:
        lab.dpstudies("run", study, "--store", store).finish()
        for chunk in chunks.values():
            harm(store / chunk)
        status = lab.dpstudies("status", store)
        code = status.finish()
        before = file_stamps(store)
        verify = lab.dpstudies("verify", store, "--sample", "0")
        codes = [verify.finish()]
        is_same = file_stamps(store) == before
        steps = (("verify", "--sample", "0", "--repair"), ("resume",), ("verify",))
        codes += [lab.dpstudies(command, store, *options).finish() for command, *options in steps]
        named = {
            f"names {name}": any(
                line.startswith(f"{name[0]}, ") and f": {name[2:]} is " in line for line in verify.output.splitlines()
            )
            for name in chunks
            if harm is not Path.unlink or "status" not in name  # trials without a status count as pending
        }
    checks = {
        **named,
        f"verify 3, repair 3, resume 1, verify 0; got {codes}": codes == [3, 3, 1, 0],
        "verify without repair changes nothing": is_same,
        f"status: exit 3, got {code}": code == 3,
    }
    return judge(fault, verify, store, checks, {("p", 3, "b", 6): Status.FAILED, ("q", 3, "b", 6): Status.FAILED})


def a_flipped_bit(folder: Path) -> Outcome:
    """Flip a bit in one chunk of each kind."""
    return _damaged(folder, "a bit flipped in 5 chunks", flip)


def a_cut_chunk(folder: Path) -> Outcome:
    """Truncate one chunk of each kind."""
    return _damaged(folder, "5 chunks cut off", cut)


def a_missing_chunk(folder: Path) -> Outcome:
    """Remove one chunk of each kind."""
    return _damaged(folder, "5 chunks removed", Path.unlink)


def a_damaged_coordinate(folder: Path) -> Outcome:
    """Flip a bit in a chunk of one coordinate, and remove a chunk of another one."""
    study, store = write_study(folder), folder / "s.zarr"
    with Machines(folder) as lab:
        lab.dpstudies("run", study, "--store", store).finish()
        flip(store / "p/n/c/0")
        (store / "q/trial/c/0").unlink()
        before = file_stamps(store)
        verify = lab.dpstudies("verify", store, "--sample", "0")
        codes = [verify.finish()]
        is_same = file_stamps(store) == before
        steps = (("verify", "--sample", "0", "--repair"), ("resume",), ("verify",))
        codes += [lab.dpstudies(command, store, *options).finish() for command, *options in steps]
    checks = {
        "names both": "p: n is damaged: " in verify.output and "q: trial is damaged: " in verify.output,
        f"verify 3, repair 0, resume 0, verify 0; got {codes}": codes == [3, 0, 0, 0],
        "verify without repair changes nothing": is_same,
    }
    return judge("coordinates: a bit flipped, a chunk removed", verify, store, checks)
