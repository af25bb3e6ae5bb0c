"""Real Slurm on this machine in a separate folder: munge, controller and node, on loopback only.

This module requires Debian's packages ``slurm-wlm`` and ``munge`` and root privileges; it uses no system service or
system file.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pipeline.faults.harness import end, free_ports, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")
_PATH = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin{os.pathsep}/usr/local/sbin"
_START_SECONDS = 60
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1
MpiDefault=none
ReturnToService=2
KillWait=5
MinJobAge=10
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} CoresPerSocket={cpus} RealMemory={megabytes} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return the names of the programs that Slurm requires and this machine lacks."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    if absent:
        return f"{', '.join(absent)} not installed: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "Slurm is started as root here"


@contextmanager
def running(folder: Path, megabytes: int = 2048) -> Iterator[dict[str, str]]:
    """Start Slurm with one node; yield the environment variables for its commands; stop its processes on exit."""
    host = socket.gethostname().partition(".")[0]
    controller_port, node_port = free_ports(2)
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge" / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    values = {"host": host, "folder": folder, "cpus": os.cpu_count(), "megabytes": megabytes}
    values |= {"controller_port": controller_port, "node_port": node_port}
    (folder / "slurm.conf").write_text(_CONFIGURATION.format(**values))
    environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    places = {name: folder / "munge" / f"munged.{name}" for name in ("log", "pid", "seed")}
    commands = [
        [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={folder}/munge.socket",
            f"--log-file={places['log']}",
            f"--pid-file={places['pid']}",
            f"--seed-file={places['seed']}",
        ],
        ["slurmctld", "-D", "-c", "-f", f"{folder}/slurm.conf"],
        ["slurmd", "-D", "-N", host, "-f", f"{folder}/slurm.conf"],
    ]
    started = []
    try:
        for command in commands:
            with open(folder / f"{command[0]}.out", "w") as log:
                started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment))
            time.sleep(1)
        _await_node(folder, environment)
        yield environment
    finally:
        subprocess.run(["scancel", "--me"], env=environment, cwd=folder, timeout=20, capture_output=True)
        for process in reversed(started):
            end(process)


def _await_node(folder: Path, environment: dict[str, str]) -> None:
    def state() -> str:
        command, pipes = ["sinfo", "-h", "-o", "%T"], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, env=environment, cwd=folder, text=True, timeout=30, **pipes).stdout.strip()

    try:
        wait_until(lambda: state() == "idle", "an idle node", _START_SECONDS)
    except TimeoutError as error:
        logs = "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(folder.glob("*.out")))
        raise RuntimeError(f"the node must be idle, got state {state()!r}; {logs}") from error
