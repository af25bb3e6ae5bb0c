"""Tests that a command ends with its exit code, whatever functions of a study leave running or do to its streams."""

import io
import sys

import psutil
import pytest

from pipeline.blocks.failures import call
from tests.pipeline.helpers import run_python

STUDY = """
import io, multiprocessing, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pipeline import Measure, Method, Panel, Study


def leave_thread():
    threading.Thread(target=time.sleep, args=(600,)).start()


def leave_executor():
    ThreadPoolExecutor(1).submit(time.sleep, 600)


def leave_process():
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    process.start()
    with open("processes.txt", "a") as file:
        print(process.pid, file=file)


def use_pool():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(double, [1, 2]) == [2, 4]


def double(number):
    return 2 * number


def close_streams():
    print("a method prints")
    sys.stdout.close()
    sys.stderr.close()
    print("and continues")


def replace_streams():
    sys.stdout, sys.stderr = io.StringIO(), None


def close_buffer():
    sys.stdout.buffer.close()


def panel(name, action):
    def method(data, setting, streams):
        action()
        return {"x": data}

    data = lambda cell, streams: np.arange(1.0, 1.0 + len(streams.trials))
    return Panel(name, "", data, (Method("a", method),), (Measure("x", "a number"),), trials=2)


actions = (leave_thread, leave_executor, leave_process, use_pool, close_streams, replace_streams, close_buffer)
STUDY = Study("left", "Left", "To end.", tuple(panel(one.__name__.replace("_", "-"), one) for one in actions), seed=1)
"""


def run_panels(folder, *panels, cluster="threads"):
    """Run panels as the installed command does, which must end within the time limit."""
    (folder / "left.py").write_text(STUDY)
    words = [word for name in panels for word in ("--panel", name)]
    words = ["run", "left.py", "--store", "s.zarr", *words, "--cluster", cluster]
    return run_python("-c", "from studies.cli import run_process; run_process()", *words, cwd=folder, seconds=90)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["threads", "processes"])
def test_command_ends_if_methods_use_pools_and_leave_threads_and_processes(tmp_path, cluster):
    """A pool imports the function of a study file, and a process that is left running does not outlive the run."""
    panels = ("use-pool", "leave-thread", "leave-executor", "leave-process")
    done = run_panels(tmp_path, *panels, *["replace-streams"] * (cluster == "processes"), cluster=cluster)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "complete; next: dpstudies report s.zarr"
    ended = "dpstudies: ended threads or processes that functions of the study had started and left running"
    assert (done.stderr.splitlines()[-1] == ended) is (cluster == "threads")
    assert_ended(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("panel", "printed"), [("close-streams", ["a method prints", "and continues"]), ("replace-streams", [])]
)
def test_run_goes_on_if_a_method_closes_or_replaces_the_streams(tmp_path, panel, printed):
    done = run_panels(tmp_path, panel)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == printed or not printed
    assert lines[-1] == "complete; next: dpstudies report s.zarr"
    assert done.stderr.splitlines()[-1].startswith(f"panel {panel}: 2 of 2 evaluations")


@pytest.mark.slow
def test_closed_file_of_the_output_gives_a_one_line_error(tmp_path):
    done = run_panels(tmp_path, "close-buffer")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("dpstudies: cannot write the output: I/O operation on closed file; ")
    assert "Traceback" not in done.stderr


def assert_ended(folder):
    """Assert that the processes which a method has left running have ended, or end now."""
    identifiers = [int(line) for line in (folder / "processes.txt").read_text().split()]
    left = [psutil.Process(number) for number in identifiers if psutil.pid_exists(number)]
    assert identifiers
    assert not psutil.wait_procs(left, timeout=10)[1]


def test_function_of_a_study_cannot_close_the_streams_for_others(monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.StringIO())
    call(lambda: (sys.stdout.close(), sys.stderr.close()))
    print("another function prints")
    print("another function prints", file=sys.stderr)
    sys.stdout.close()
    sys.stderr.close()


FORK = """
import os, signal, time
from studies.cli import _Interrupt
signal.signal(signal.SIGTERM, _Interrupt())
readable, writable = os.pipe()
child = os.fork()
if not child:
    try:
        os.write(writable, b"ready")
        time.sleep(20)
    finally:
        os._exit(1)
os.read(readable, 5)  # Python drops signals that arrive during the fork
os.kill(child, signal.SIGTERM)
print(os.waitpid(child, 0)[1])  # the number of the signal that ended the child
"""


def test_forked_process_ends_without_a_message_when_a_pool_terminates_it():
    done = run_python("-c", f"import warnings; warnings.simplefilter('ignore'){FORK}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "15\n", "")
