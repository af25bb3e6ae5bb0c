"""Faults of workers on another host: expired credentials, full memory and missing modules."""

import signal
from pathlib import Path

from tests.pipeline.fault_processes import Machines, inside, two_hosts, wait_until, write_profile
from tests.pipeline.fault_study import Outcome, Part, judge, n_committed, write_study

_PORT, _NEAR, _FAR = 8786, "192.0.2.1", "192.0.2.2"
_HELPED = """
import sys
sys.path.insert(0, {helpers!r})

def simulate(cell, streams):
    import only_the_driver_has_it
"""


def an_expired_credential(folder: Path) -> Outcome:
    """Let the credentials of two workers expire during a run, start other workers, and resume the run."""
    study, store = write_study(folder, seconds=0.05), folder / "s.zarr"
    with Machines(folder) as lab:
        near, far = two_hosts(lab)
        lab.scheduler(_PORT, _NEAR, near)
        places = ((_NEAR, near), (_FAR, far))
        workers = [lab.worker(_PORT, _NEAR, *place, disturbed={"expires_after": 150}) for place in places]
        profile = write_profile(folder, address=f"tcp://{_NEAR}:{_PORT}")
        run = lab.dpstudies("run", study, "--store", store, "--cluster", profile, inside=near)
        code, kept = run.finish(), n_committed(store)
        for worker in workers:
            lab.kill(worker)
        for place in places:
            lab.worker(_PORT, _NEAR, *place)
        resume = lab.dpstudies("resume", store, "--cluster", profile, inside=near)
        checks = {
            f"exit 3, got {code}": code == 3,
            "says what to do": "renew the credentials in the environment of the workers" in run.message,
            "no traceback": "Traceback" not in run.output,
            "some were committed": kept > 0,
            "resume: exit 0": resume.finish() == 0,
        }
    return judge("credential of the workers expired", run, store, checks)


def paused_workers(folder: Path) -> Outcome:
    """Limit the memory of two workers so that both pause, and follow the printed advice."""
    study, store = write_study(folder), folder / "s.zarr"
    with Machines(folder) as lab:
        near, far = two_hosts(lab)
        lab.scheduler(_PORT, _NEAR, near)
        places = ((_NEAR, near), (_FAR, far))
        workers = [lab.worker(_PORT, _NEAR, *place, more=("--memory-limit", "60MB")) for place in places]
        profile = write_profile(folder, address=f"tcp://{_NEAR}:{_PORT}")
        run = lab.dpstudies("run", study, "--store", store, "--cluster", profile, inside=near)
        wait_until(lambda: "every worker is paused" in run.output, "a warning about the workers")
        waits = run.runs
        lab.kill(run, signal.SIGINT)
        code = run.finish()
        for worker in workers:
            lab.kill(worker)
        lab.worker(_PORT, _NEAR, _FAR, far)
        resume = lab.dpstudies("resume", store, "--cluster", profile, inside=near)
        checks = {
            "the run waits": waits,
            "says what to set": "set a larger memory_limit or fewer threads per worker" in run.output,
            f"Ctrl-C: exit 130, got {code}": code == 130,
            "resume: exit 0": resume.finish() == 0,
        }
    return judge("all workers paused for memory", run, store, checks)


def a_missing_module(folder: Path) -> Outcome:
    """Hide a module that the study imports lazily from the only worker, so that its tasks fail."""
    study, store, helpers = write_study(folder), folder / "s.zarr", folder / "helpers"
    helpers.mkdir()
    (helpers / "only_the_driver_has_it.py").touch()
    text = study.read_text()
    study.write_text(text.replace("\ndef simulate(cell, streams):\n", _HELPED.format(helpers=str(helpers))))
    with Machines(folder) as lab:
        near, far = two_hosts(lab, "mnt")
        lab.scheduler(_PORT, _NEAR, near)
        inside(far, "mnt", "mount", "-t", "tmpfs", "none", helpers)
        worker = lab.worker(_PORT, _NEAR, _FAR, far)
        profile = write_profile(folder, address=f"tcp://{_NEAR}:{_PORT}")
        run = lab.dpstudies("run", study, "--store", store, "--panel", "p", "--cluster", profile, inside=near)
        code = run.finish()
        checks = {
            f"exit 2, got {code}": code == 2,
            "names the module": "lacks only_the_driver_has_it" in run.message,
            "no traceback": "Traceback" not in run.output,
            "nothing is written": not store.exists(),
        }
        lab.kill(worker)
        inside(far, "mnt", "umount", helpers)
        lab.worker(_PORT, _NEAR, _FAR, far)
        again = lab.dpstudies("run", study, "--store", store, "--panel", "p", "--cluster", profile, inside=near)
        checks["with the module: exit 0"] = again.finish() == 0
    return judge("a module is missing on the worker", run, store, checks, {}, Part(("p",)))
